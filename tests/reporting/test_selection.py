"""Scored candidates, alternatives and outliers on the report page."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import make_blobs

from coterie import Coterie
from coterie.base import Selection
from coterie.judged.candidates.registry import ALGORITHMS
from coterie.reporting.page import render_report
from coterie.reporting.profile import describe_clusters, feature_statistics
from coterie.reporting.sections import measure_silhouettes, membership_histogram
from coterie.reporting.selection import (
    ALTERNATIVES,
    SelectionSection,
    describe_candidate,
    family_of,
    find_alternatives,
    selection_section,
)
from coterie.tables.table import Table
from tests.reporting.pages import KMeansClusterer, Structure, data_of, points_of, wine

N_FAR = 4


def candidate(n_clusters: int, score: float, algorithm: str = "k-means") -> dict[str, Any]:
    words = {"algorithm": algorithm, "columns": "standardised"}
    return {**words, "n_clusters": n_clusters, "score": score}


def selection_of(
    confidence: float, candidates: Sequence[Mapping[str, Any]], runner_up: Mapping[str, Any] | None = None
) -> Selection:
    """Return a selection in which the candidate whose score is the confidence was chosen."""
    best: dict[int, Mapping[str, Any]] = {}
    for each in candidates:
        best.setdefault(each["n_clusters"], each)
    levels = [best[number] for number in sorted(best)]

    def alternative(n_clusters: int, X: Table) -> NDArray[np.int64]:
        return np.arange(X.n_rows) % n_clusters

    return Selection(
        confidence=confidence,
        candidates=candidates,
        levels=levels,
        chosen=next((level for level in levels if level["score"] == confidence), None),
        runner_up=runner_up,
        shortlist=lambda at_most: candidates[:at_most],
        alternative=alternative,
    )


def section_of(n_clusters: int, confidence: float, *args: Any) -> SelectionSection:
    section = selection_section(selection_of(confidence, *args), n_clusters)
    assert section is not None
    return section


@pytest.fixture(scope="module")
def table() -> Table:
    X, _ = make_blobs(120, centers=[[0, 0], [6, 0], [0, 7]], cluster_std=0.6, random_state=0)
    far = np.array([[30.0, 30.0], [-30.0, 20.0], [25.0, -30.0], [-30.0, -30.0]])
    return Table(("width", "height"), block=np.vstack([X, far]))


@pytest.fixture(scope="module")
def model(table: Table) -> Coterie:
    return Coterie(max_clusters=8, noise=True, effort="fast", random_state=0).fit(table)


@pytest.fixture(scope="module")
def page(model: Coterie, table: Table) -> str:
    truth = np.append(np.zeros(120), np.ones(N_FAR))
    return render_report(model, table, title="A title", source="a file", truth=truth)


def test_page_explains_the_choice(model: Coterie, page: str) -> None:
    structure = Structure(page)
    assert "why" in structure.ids()
    assert f"The confidence is {model.confidence_:.2f}. This is the expected adjusted Rand index" in structure.text
    assert f"Chosen from {len(model.candidates_)} candidates: " in structure.text
    assert structure.text.count("Chosen from") == 1
    assert "Runner-up: " in structure.text
    marks = [a for tag, a in structure.tags if tag == "i" and "bottom" in (a.get("style") or "") and a.get("title")]
    assert len(marks) == len(model.candidates_)
    assert model.chosen_ is not None
    assert str(model.chosen_["n_clusters"]) in re.findall(r'data-clusters="(\d+)"', page)
    assert "<svg" in page.partition('id="why"')[2].partition("</section>")[0]


def test_alternatives_are_one_click_away(model: Coterie, table: Table, page: str) -> None:
    data = points_of(page)
    buttons = [a for tag, a in Structure(page).tags if tag == "button" and "data-choice" in a]
    assert [a["data-choice"] for a in buttons if a["aria-pressed"] == "true"] == ["0"]
    assert len(buttons) == len(data["alternatives"]) + 1 <= ALTERNATIVES + 1
    for shown in data["alternatives"]:
        assert len(shown["labels"]) == len(data["id"])
        own = model.alternative(shown["clusters"], table)
        pairs = set(zip(own[data["row"]].tolist(), shown["labels"], strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_outliers_are_not_a_cluster(model: Coterie, page: str) -> None:
    n = int((model.labels_ == -1).sum())
    assert n >= N_FAR
    structure = Structure(page)
    assert f"and {n} outliers" in structure.text
    assert "outliers (in no cluster)" in structure.text
    assert "all rows except outliers" in structure.text
    assert sum(tag == "path" and a.get("class") == "outlier" for tag, a in structure.tags) == n
    assert "k-1" not in page
    assert f"cluster-{model.n_clusters_}" not in structure.ids()
    cells = [a for tag, a in structure.tags if tag == "td" and a.get("class") == "one"]
    assert len(cells) == 2 * (model.n_clusters_ + 1)


def test_outliers_are_excluded_from_the_statistics(model: Coterie, table: Table) -> None:
    data = data_of(model, table)
    inside = model.labels_ >= 0
    assert data.n_outliers == (~inside).sum()
    assert data.sizes.tolist() == np.bincount(model.labels_[inside]).tolist()
    assert np.isnan(data.own_membership[~inside]).all()
    statistics = feature_statistics(data)
    assert table.block is not None
    assert statistics.overall == pytest.approx(table.block[inside].mean(axis=0))
    silhouettes = measure_silhouettes(data)
    assert silhouettes is not None
    assert silhouettes.n_rows == inside.sum()
    assert [each.cluster for each in silhouettes.clusters] == list(range(model.n_clusters_))
    assert membership_histogram(data)[1] <= inside.sum()
    assert sum(profile.size for profile in describe_clusters(data, statistics)) == inside.sum()


def test_sections_need_candidates_and_algorithms_a_family() -> None:
    assert selection_section(None, 3) is None
    model = KMeansClusterer(3).fit(wine())
    assert find_alternatives(None, data_of(model, wine()), np.arange(10)) == ()
    assert "why" not in Structure(render_report(model, wine(), title="", source="")).ids()
    families = {name: family_of(candidate(3, 0.5, name)) for name in ALGORITHMS}
    assert "other" not in families.values()
    assert family_of(candidate(3, 0.5, "halves")) == "other"


def test_removed_clusters_are_explained() -> None:
    better = candidate(3, 0.8, "spectral")
    section = section_of(9, 0.2, [better, candidate(9, 0.2)], better)
    assert "Its score is higher" in section.runner_up
    assert section.choice == "Chosen from 2 candidates: k-means on standardised columns."
    section = section_of(1, 0.5, [candidate(4, 0.5), candidate(2, 0.3)])
    assert section.confidence.value == 0.5
    assert "3 clusters of the candidate had only outliers and were removed." in section.confidence.meaning


def test_single_cluster_and_single_number_of_clusters() -> None:
    single = section_of(1, 0.7, [candidate(2, 0.4), candidate(3, 0.3)], candidate(2, 0.4))
    assert single.confidence.unit == "probability of one cluster"
    assert single.choice == "2 candidates were scored, and none was chosen."
    assert single.chart is not None
    assert single.chart.chosen is None
    assert selection_section(selection_of(1.0, [candidate(1, 0.5)]), 1) is None
    assert section_of(4, 0.5, [candidate(4, 0.5)]).chart is None


def test_alternatives_are_near_and_keep_their_colours() -> None:
    data = data_of(KMeansClusterer(3).fit(wine()), wine())
    selection = selection_of(0.8, [candidate(k, 0.8 - 0.1 * abs(k - 3) / 9) for k in (3, 2, 4, 5, 6, 7, 8, 48)])
    alternatives = find_alternatives(selection, data, np.arange(50))
    assert [each.n_clusters for each in alternatives] == [2, 4, 5, 6, 7]
    for each in alternatives:
        assert set(each.clusters) == set(each.labels)
        assert len(each.clusters) == each.n_clusters == len(set(each.labels))
        assert len({0, 1, 2} & set(each.labels)) == min(3, each.n_clusters)


def test_candidates_are_described_by_algorithm_and_columns() -> None:
    assert describe_candidate(candidate(3, 0.5)).startswith("3 clusters by k-means on ")
