"""Why this answer, alternatives and outliers on the report page."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from coterie import Coterie
from coterie.errors import InputError
from coterie.judged.candidates.candidate import Algorithm
from coterie.judged.estimator import ANOTHER
from coterie.judged.features.table import rand_indices
from coterie.report.findings import gather
from coterie.report.page import render_report
from coterie.report.profile import describe_clusters, feature_statistics
from coterie.report.sections import membership_histogram, silhouettes
from coterie.report.selection import ALTERNATIVES, FAMILIES, alternatives_of, described, judgement_of
from coterie.tables.table import Table
from tests.report.test_report import FakeClusterer, Structure, points_of, wine

N_FAR = 4


def taken_number(model: Coterie) -> int:
    assert model.chosen_ is not None
    return int(model.chosen_["n_clusters"])


def proposal(n_clusters: int, score: float, algorithm: str = "k-means") -> dict[str, Any]:
    words = {"algorithm": algorithm, "refined": False, "columns": "standardised"}
    return {**words, "n_clusters": n_clusters, "score": score}


@dataclass
class FakeJudged:
    """A clusterer that was told what was proposed and what was taken."""

    n_clusters_: int
    confidence_: float
    proposals_: Sequence[Mapping[str, Any]]
    runner_up_: Mapping[str, Any] | None = None
    asked: list[int] = field(default_factory=list)

    @property
    def levels_(self) -> Sequence[Mapping[str, Any]]:
        best: dict[int, Mapping[str, Any]] = {}
        for each in self.proposals_:
            best.setdefault(each["n_clusters"], each)
        return [best[number] for number in sorted(best)]

    @property
    def chosen_(self) -> Mapping[str, Any] | None:
        return next((level for level in self.levels_ if level["score"] == self.confidence_), None)

    def alternative(self, n_clusters: int, X: Table) -> NDArray[np.int64]:
        self.asked.append(n_clusters)
        return np.arange(X.n_rows) % n_clusters

    def shortlist(self, at_most: int) -> Sequence[Mapping[str, Any]]:
        return self.proposals_[:at_most]


@pytest.fixture(scope="module")
def table() -> Table:
    X, _ = make_blobs(120, centers=[[0, 0], [6, 0], [0, 7]], cluster_std=0.6, random_state=0)
    far = np.array([[30.0, 30.0], [-30.0, 20.0], [25.0, -30.0], [-30.0, -30.0]])
    return Table(("width", "height"), block=np.vstack([X, far]))


@pytest.fixture(scope="module")
def model(table: Table) -> Coterie:
    return Coterie(n_clusters=None, max_clusters=8, noise=True, effort="fast", random_state=0).fit(table)


@pytest.fixture(scope="module")
def page(model: Coterie, table: Table) -> str:
    truth = np.append(np.zeros(120), np.ones(N_FAR))
    return render_report(model, table, title="A title", source="a file", truth=truth)


def test_page_says_why(model: Coterie, page: str) -> None:
    structure = Structure(page)
    assert "why" in structure.ids()
    assert f"expects an agreement of {model.confidence_:.2f} with the true groups" in structure.text
    assert "The runner-up that really differs" in structure.text
    marks = [a for tag, a in structure.tags if tag == "i" and "bottom" in (a.get("style") or "") and a.get("title")]
    assert len(marks) == len(model.proposals_)
    steps = re.findall(r'data-clusters="(\d+)"', page)
    assert str(taken_number(model)) in steps
    assert "<svg" in page.partition('id="why"')[2].partition("</section>")[0]


def test_alternatives_are_a_click_away(model: Coterie, table: Table, page: str) -> None:
    data = points_of(page)
    buttons = [a for tag, a in Structure(page).tags if tag == "button" and "data-choice" in a]
    assert [a["data-choice"] for a in buttons if a["aria-pressed"] == "true"] == ["0"]
    assert len(buttons) == len(data["alternatives"]) + 1 <= ALTERNATIVES + 1
    for shown in data["alternatives"]:
        assert len(shown["labels"]) == len(data["points"])
        own = model.alternative(shown["clusters"], table)
        rows = [int(point[4]) - 1 for point in data["points"]]
        pairs = set(zip(own[rows].tolist(), shown["labels"], strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_outliers_are_no_cluster(model: Coterie, page: str) -> None:
    n = int((model.labels_ == -1).sum())
    assert n >= N_FAR
    structure = Structure(page)
    assert f"{n} rows are outliers" in structure.text
    assert "outliers, in no cluster" in structure.text
    assert "all rows but the outliers" in structure.text
    assert sum(tag == "path" and a.get("class") == "outlier" for tag, a in structure.tags) == n
    assert "k-1" not in page
    assert f"cluster-{model.n_clusters_}" not in structure.ids()
    cells = [a for tag, a in structure.tags if tag == "td" and a.get("class") == "one"]
    assert len(cells) == 2 * (model.n_clusters_ + 1)


def test_outliers_stay_out_of_the_figures(model: Coterie, table: Table) -> None:
    found = gather(model, table, None)
    inside = model.labels_ >= 0
    assert found.n_outliers == (~inside).sum()
    assert found.sizes.tolist() == np.bincount(model.labels_[inside]).tolist()
    assert np.isnan(found.top_membership[~inside]).all()
    statistics = feature_statistics(found)
    assert table.block is not None
    assert statistics.overall == pytest.approx(table.block[inside].mean(axis=0))
    scores = silhouettes(found)
    assert scores is not None
    assert scores.drawn == inside.sum()
    assert [knife.cluster for knife in scores.knives] == list(range(model.n_clusters_))
    assert membership_histogram(found).fullest <= inside.sum()
    assert sum(profile.size for profile in describe_clusters(found, statistics)) == inside.sum()


def test_alternative_labels(model: Coterie, table: Table, tmp_path: Path) -> None:
    taken = taken_number(model)
    assert (model.alternative(taken, table) == model.labels_).all()
    other = next(level["n_clusters"] for level in model.levels_ if level["n_clusters"] != taken)
    labels = model.alternative(other, table)
    assert set(labels.tolist()) <= set(range(-1, other))
    assert labels.max() == other - 1
    with pytest.raises(InputError, match=r"n_clusters=99 was not proposed. Ask for one of these: 2, 3"):
        model.alternative(99, table)
    model.save(tmp_path / "model.safetensors")
    loaded = Coterie.load(tmp_path / "model.safetensors")
    assert (loaded.alternative(taken, table) == model.labels_).all()
    with pytest.raises(InputError, match="holds no proposals"):
        loaded.alternative(other, table)
    with pytest.raises(InputError, match="holds no proposals"):
        loaded.shortlist()


def test_shortlist_has_the_answer_and_no_repetition(model: Coterie) -> None:
    short = model.shortlist(6)
    assert 1 < len(short) <= 6
    assert model.chosen_ in short
    assert [each["score"] for each in short] == sorted((each["score"] for each in short), reverse=True)
    opinions = model._kept_opinions()
    places = opinions.distinct(None, ANOTHER, 6)
    agreement = rand_indices(np.stack([opinions.proposals[place].labels for place in places]))
    assert (agreement[~np.eye(len(places), dtype=bool)] < ANOTHER).all()


def test_other_clusterers_have_no_judge() -> None:
    fake = FakeClusterer(3).fit(wine())
    assert judgement_of(fake) is None
    assert alternatives_of(fake, gather(fake, wine(), None), np.arange(10)) == ()
    assert "why" not in Structure(render_report(fake, wine(), title="", source="")).ids()


def test_every_algorithm_has_a_family() -> None:
    assert set(FAMILIES) == set(get_args(Algorithm))


@pytest.mark.parametrize(
    ("confidence", "words"),
    [(0.9, "is confident"), (0.6, "fairly confident"), (0.3, "unsure"), (0.1, "Little more than a guess")],
)
def test_confidence_in_words(confidence: float, words: str) -> None:
    found = judgement_of(FakeJudged(3, confidence, [proposal(3, confidence), proposal(2, 0.05)]))
    assert found is not None
    assert words in found.verdict.words
    assert ("no groups" in found.verdict.warning) == (confidence < 0.25) == bool(found.verdict.caution)
    assert [row.taken for row in found.rows] == [True, False]


@pytest.mark.parametrize(("n_clusters", "score", "said"), [(5, 0.62, True), (5, 0.9, False), (2, 0.62, False)])
def test_fewer_clusters_than_the_highest_has_are_explained(n_clusters: int, score: float, said: bool) -> None:
    found = judgement_of(FakeJudged(3, 0.6, [proposal(n_clusters, score), proposal(3, 0.6)]))
    assert found is not None
    assert ("the fewest clusters are taken" in found.verdict.meaning) is said


def test_a_dial_that_was_turned_is_said_to_be() -> None:
    better = proposal(3, 0.8, "spectral")
    found = judgement_of(FakeJudged(9, 0.2, [better, proposal(9, 0.2)], runner_up_=better))
    assert found is not None
    assert "granularity" in found.verdict.warning
    assert "The judge likes it better" in found.runner_up
    assert [level.taken for level in found.levels] == [False, True]


def test_clusters_of_outliers_alone_are_said_to_be_dissolved() -> None:
    found = judgement_of(FakeJudged(1, 0.5, [proposal(4, 0.5), proposal(2, 0.3)]))
    assert found is not None
    assert "expects an agreement of 0.50" in found.verdict.figure
    assert "3 clusters of the proposal had outliers only and are no more." in found.verdict.meaning
    assert [level.taken for level in found.levels] == [False, True]


def test_one_group_and_one_number() -> None:
    single = judgement_of(FakeJudged(1, 0.7, [proposal(2, 0.4), proposal(3, 0.3)], runner_up_=proposal(2, 0.4)))
    assert single is not None
    assert "70% likely" in single.verdict.figure
    assert single.ladder is not None
    assert single.ladder.taken is None
    assert judgement_of(FakeJudged(1, 1.0, [proposal(1, 0.5)])) is None
    asked = judgement_of(FakeJudged(4, 0.5, [proposal(4, 0.5)]))
    assert asked is not None
    assert asked.ladder is None


def test_alternatives_are_near_and_keep_their_colours() -> None:
    found = gather(FakeClusterer(3).fit(wine()), wine(), None)
    judged = FakeJudged(3, 0.8, [proposal(k, 0.8 - 0.1 * abs(k - 3) / 9) for k in (3, 2, 4, 5, 6, 7, 8, 48)])
    shown = alternatives_of(judged, found, np.arange(50))
    assert [each.n_clusters for each in shown] == [2, 4, 5, 6, 7] == judged.asked
    for each in shown:
        assert sorted(group.colour for group in each.groups)[-1] == each.n_colours - 1
        assert len(each.groups) == each.n_clusters == len(set(each.labels))
        assert len({0, 1, 2} & set(each.labels)) == min(3, each.n_clusters)


def test_a_refined_proposal_is_called_so() -> None:
    plain = proposal(3, 0.5)
    assert described(plain).startswith("3 clusters by k-means on ")
    assert described(plain | {"refined": True}).startswith("3 clusters by k-means, refined on ")
