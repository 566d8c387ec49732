"""Coterie as users meet it: what it finds, what it promises, what it refuses. Odd tables are in test_coterie_odd.py."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from coterie import Coterie
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import InputError, WeightsError
from coterie.judged.assign import Outliers, Partitioner, assign
from coterie.judged.candidates.candidate import Proposal, Rule
from coterie.judged.judge import JUDGED_ROWS
from coterie.methods import load
from coterie.pretrained.registry import load_pretrained
from tests.proposals.sets import blobs

Floats = npt.NDArray[np.float64]
RULES: tuple[Rule, ...] = ("centres", "gaussians", "neighbours")


def quick(**settings: Any) -> Coterie:
    usual: dict[str, Any] = {"effort": "fast", "random_state": 0}
    return Coterie(**(usual | settings))


@pytest.fixture(scope="module")
def rows() -> Floats:
    return blobs(90)[0]


@pytest.fixture(scope="module")
def fitted(rows: Floats) -> Coterie:
    return quick().fit(rows)


def assert_sound(model: Coterie, X: Any) -> None:
    """What a user may read is whole, and its parts agree with each other."""
    found = model.labels_[model.labels_ >= 0]
    sizes = np.bincount(found, minlength=model.n_clusters_)
    assert len(sizes) == model.n_clusters_
    assert sizes.min() > 0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), model.probabilities_)
    np.testing.assert_allclose(model.probabilities_.sum(axis=1), 1.0, rtol=1e-5)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.cluster_centers_.shape == model.prototypes_.shape == (model.n_clusters_, len(model.table_.features))
    assert 0.0 <= model.confidence_ <= 1.0


def test_blobs_are_found() -> None:
    X, truth = blobs(150)
    model = quick().fit(X)
    assert_sound(model, X)
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    sizes = np.bincount(model.labels_).tolist()
    assert sizes == sorted(sizes, reverse=True)


def test_moons_are_found() -> None:
    X, truth = make_moons(200, noise=0.04, random_state=0)
    model = quick().fit(X)
    assert_sound(model, X)
    assert adjusted_rand_score(truth, model.labels_) > 0.95


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_keeps_the_clusters_and_survives_its_file(rule: Rule) -> None:
    X, truth = blobs(120)
    partitioner = Partitioner.of(X, Proposal(truth.astype(np.int64), 4, "k-means", "standardised", rule))
    assert partitioner.assignment.kind == rule
    memberships, labels = assign(X, partitioner, None, np.arange(4))
    np.testing.assert_array_equal(labels, truth)
    again = Partitioner.from_arrays(*partitioner.to_arrays())
    np.testing.assert_array_equal(assign(X, again, None, np.arange(4))[0], memberships)


def test_a_rule_that_loses_a_cluster_gives_way() -> None:
    X = np.array([[-1.0], [1.0], [-1.1], [1.1], [-0.01], [0.01]])
    labels = np.array([0, 0, 0, 0, 1, 1])  # both have the same mean
    partitioner = Partitioner.of(X, Proposal(labels, 2, "k-means", "standardised", "centres"))
    np.testing.assert_array_equal(assign(X, partitioner, None, np.arange(2))[1], labels)


def test_many_rows_are_drawn_from_and_it_is_said() -> None:
    X, truth = blobs(JUDGED_ROWS["fast"] + 500)
    model = quick(n_clusters=4).fit(X)
    assert_sound(model, X)
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    assert model.notes_[0].startswith("1,000 of the 1,500 rows, drawn by chance, were clustered")


@pytest.mark.usefixtures("untouched_random_state")
def test_same_seed_same_result_whatever_the_threads(rows: Floats, fitted: Coterie) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with threadpool_limits(2):
            again = quick().fit(rows)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(again.probabilities_, fitted.probabilities_)
    assert again.proposals_ == fitted.proposals_


@pytest.mark.parametrize("noise", [False, True])
def test_a_saved_model_predicts_the_same(noise: bool, rows: Floats, tmp_path: Path) -> None:
    model = quick(n_clusters=4, noise=noise).fit(rows)
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert isinstance(loaded, Coterie)
    new = np.concatenate([rows, rows + 0.3, [[400.0, 400.0, 400.0]]])
    np.testing.assert_array_equal(loaded.predict(new), model.predict(new))
    np.testing.assert_array_equal(loaded.predict_proba(new), model.predict_proba(new))
    assert (loaded.predict(new)[-1] == -1) == noise
    for name in ("n_clusters_", "confidence_", "proposals_", "levels_", "runner_up_", "notes_"):
        assert getattr(loaded, name) == getattr(model, name), name
    np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)
    assert "labels_" not in vars(loaded)
    loaded.save(tmp_path / "again.safetensors")
    first, second = (load_checkpoint(tmp_path / f"{name}.safetensors")[0] for name in ("model", "again"))
    assert {name: value.shape for name, value in first.items()} == {name: value.shape for name, value in second.items()}


@pytest.mark.parametrize("k", [1, 2, 3, 7, 29, 30])
def test_a_number_that_is_asked_for_is_honoured(k: int) -> None:
    X = blobs(30)[0]
    model = quick(n_clusters=k).fit(X)
    assert_sound(model, X)
    assert model.n_clusters_ == k
    assert {each["n_clusters"] for each in model.proposals_} <= {k}


def test_a_number_is_honoured_with_outliers_too() -> None:
    X = np.concatenate([blobs(60)[0], [[90.0, 90.0, 90.0]]])
    model = quick(n_clusters=5, noise=True).fit(X)
    assert_sound(model, X)
    assert model.n_clusters_ == 5


def test_far_rows_are_outliers_if_asked_for() -> None:
    X = np.concatenate([blobs(120)[0], [[90.0, 90.0, 90.0]]])
    model = quick(noise=True).fit(X)
    assert_sound(model, X)
    assert model.labels_[-1] == -1
    assert (model.labels_ == -1).mean() < 0.1
    assert model.predict([[90.0, 90.0, 90.0], [-500.0, 0.0, 0.0]]).tolist() == [-1, -1]
    assert quick(n_clusters=2).fit(X).labels_.min() == 0


def test_a_cluster_of_outliers_alone_is_dissolved_unless_its_number_was_asked_for() -> None:
    X, truth = blobs(120)
    X = np.concatenate([X, [[90.0, 90.0, 90.0]]])
    labels = np.append(truth, 4).astype(np.int64)
    partitioner = Partitioner.of(X, Proposal(labels, 5, "Ward linkage", "standardised", "neighbours"))
    seen = partitioner.view.transform(X)
    assert Outliers.of(partitioner, X, dissolve=True).among(seen, labels)[-1]
    assert not Outliers.of(partitioner, X).among(seen, labels)[-1]
    memberships, found = assign(X, partitioner, Outliers.of(partitioner, X, dissolve=True), np.arange(4))
    assert found[-1] == -1
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0, rtol=1e-6)


def test_granularity_is_a_dial(rows: Floats, fitted: Coterie) -> None:
    numbers = [quick(granularity=dial).fit(rows).n_clusters_ for dial in (-50.0, 50.0)]
    assert numbers[0] <= fitted.n_clusters_ <= numbers[1]
    assert numbers[0] < numbers[1]


def test_clusters_keep_their_numbers() -> None:
    X, _ = blobs(120)
    X = X[np.r_[0:120:4, 1:80:4, 2:60:4, 3:40:4]]  # 30, 20, 15 and 10 rows
    model = quick(n_clusters=4, keep_ids=True).fit(X)
    first = model.labels_
    order = np.random.default_rng(1).permutation(len(X))[:60]
    order = order[np.argsort(first[order] == 0, kind="stable")][:-12]  # the largest is no longer so
    model.fit(X[order] + 0.01)
    np.testing.assert_array_equal(model.labels_, first[order])
    assert_sound(model, X[order] + 0.01)
    assert model.fit(X[:, :2]).n_clusters_ == 4  # of other columns nothing is known


def test_the_likeliest_clusters_agree_with_memberships(rows: Floats, fitted: Coterie) -> None:
    clusters, shares = fitted.predict_top(rows, m=2)
    memberships = fitted.predict_proba(rows)
    np.testing.assert_array_equal(clusters[:, 0], fitted.predict(rows))
    np.testing.assert_array_equal(shares, np.take_along_axis(memberships, clusters, axis=1))
    np.testing.assert_array_equal(shares, -np.sort(-memberships, axis=1)[:, :2])
    assert fitted.predict_top(rows, m=99)[0].shape == (len(rows), fitted.n_clusters_)
    for wrong in (0, 1.5, "two"):
        with pytest.raises(InputError, match="must be a whole number of at least 1"):
            fitted.predict_top(rows, m=wrong)  # type: ignore[arg-type]  # that is the point


def test_the_account_of_the_choice_is_consistent(fitted: Coterie) -> None:
    scores = [each["score"] for each in fitted.proposals_]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= 0.0
    assert fitted.confidence_ == scores[0]
    numbers = [each["n_clusters"] for each in fitted.levels_]
    assert numbers == sorted({each["n_clusters"] for each in fitted.proposals_})
    for level in fitted.levels_:
        same = [each["score"] for each in fitted.proposals_ if each["n_clusters"] == level["n_clusters"]]
        assert level["score"] == max(same)
    assert fitted.runner_up_ in fitted.proposals_[1:]
    assert fitted.notes_[-1].startswith(f"of {len(scores)} proposals, that of {fitted.proposals_[0]['algorithm']} on")


def test_one_cluster_may_be_allowed() -> None:
    X = np.random.default_rng(0).normal(size=(80, 2))
    assert_sound(quick(allow_single=True).fit(X), X)


def test_progress_is_told(rows: Floats) -> None:
    told: list[str] = []
    quick(n_clusters=2, on_progress=told.append).fit(rows)
    assert "k-means, standardised columns" in told


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be a whole number of at least 1"),
        ({"n_clusters": 2.5}, "n_clusters=2.5 must be"),
        ({"n_clusters": True}, "n_clusters=True must be"),
        ({"n_clusters": "auto"}, "n_clusters='auto' must be"),
        ({"n_clusters": 91}, "n_clusters=91 is more than n_samples=90"),
        ({"max_clusters": 1}, "max_clusters=1 must be a whole number of at least 2"),
        ({"max_clusters": None}, "max_clusters=None must be"),
        ({"granularity": float("nan")}, "granularity=nan must be a finite number"),
        ({"granularity": "fine"}, "granularity='fine' must be a finite number"),
        ({"effort": "lots"}, "effort='lots' must be one of fast, balanced, thorough"),
        ({"random_state": "seed"}, "random_state must be a whole number"),
        ({"judge": None, "n_clusters": 2}, "judge=None must be the name of weights that ship"),
    ],
)
def test_wrong_parameters_are_refused(settings: dict[str, Any], told: str, rows: Floats) -> None:
    with pytest.raises(InputError, match=told):
        quick(**settings).fit(rows)


def test_files_that_hold_no_judge_are_refused(rows: Floats, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="has weights of the method 'dac', not of a judge"):
        quick(n_clusters=2, judge="dac-plane-v1").fit(rows)
    with pytest.raises(WeightsError, match="No weights are called 'zebra'"):
        quick(n_clusters=2, judge="zebra").fit(rows)
    tensors, card = load_pretrained("judge-v2")
    path = tmp_path / "judge.safetensors"
    save_checkpoint(path, tensors, {key: value for key, value in card.items() if key != "calibration"}, force=True)
    with pytest.raises(WeightsError, match=r"lacks part of a judge \('calibration'\)"):
        quick(n_clusters=2, judge=path).fit(rows)
    narrow = {name: value[:, :5] if name.endswith("embed.0.weight") else value for name, value in tensors.items()}
    narrow |= {name: tensors[name][:5] for name in ("centre", "spread")}
    save_checkpoint(
        path, narrow, card | {"model": card["model"] | {"n_columns": 5}, "columns": list("abcde")}, force=True
    )
    with pytest.raises(WeightsError, match="reads 5 numbers about a proposal"):
        quick(n_clusters=2, judge=path).fit(rows)


def test_a_fit_that_fails_leaves_nothing_to_predict_with(rows: Floats, tmp_path: Path) -> None:
    model = quick(n_clusters=2, keep_ids=True).fit(rows)
    with pytest.raises(InputError, match="fewer distinct"):
        model.set_params(n_clusters=3).fit(np.repeat(rows[:2, :2], 5, axis=0))
    with pytest.raises(NotFittedError):
        model.predict(rows[:, :2])
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "model.safetensors")
    assert model.set_params(n_clusters=2).fit(rows[:, :2]).n_clusters_ == 2


class TakesAnyClusterer(Protocol):
    """What topic models such as BERTopic ask of a clusterer."""

    labels_: npt.NDArray[np.int64]

    def fit(self, X: Any) -> Any:
        """Cluster embeddings."""

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Clusters of new ones."""


class Topics:
    """A topic model as far as clustering goes: documents are embedded elsewhere, and clusters are topics."""

    def __init__(self, clusterer: TakesAnyClusterer) -> None:
        self.clusterer = clusterer

    def fit_transform(self, embeddings: Floats) -> list[int]:
        self.clusterer.fit(embeddings)
        return list(map(int, self.clusterer.labels_))

    def transform(self, embeddings: Floats) -> list[int]:
        return list(map(int, self.clusterer.predict(embeddings)))


def test_it_serves_where_a_topic_model_wants_a_clusterer() -> None:
    embeddings, truth = blobs(100, d=5)
    topics = Topics(quick(n_clusters=4))
    assert adjusted_rand_score(truth, topics.fit_transform(embeddings)) == 1.0
    assert topics.transform(embeddings[:7]) == topics.clusterer.labels_[:7].tolist()
