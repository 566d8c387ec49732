"""Scores, against scikit-learn and hand-made tables."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score, silhouette_score

from coterie import metrics
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information, silhouettes


def rows(count: int, features: int = 3, seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(count, features))


def expected(x: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> float:
    found = len(np.unique(labels))
    return float(silhouette_score(x, labels)) if 2 <= found < len(x) else -1.0


@given(st.integers(0, 10_000), st.integers(3, 40), st.integers(1, 8), st.integers(1, 4))
def test_silhouettes_are_scikit_learns(seed: int, count: int, clusters: int, runs: int) -> None:
    """Random labels, so clusters of one row and labels that no row has occur."""
    x = rows(count, seed=seed)
    labels = np.random.default_rng(seed + 1).integers(clusters, size=(runs, count))
    np.testing.assert_allclose(silhouettes(x, labels), [expected(x, run) for run in labels], atol=1e-5)


def test_silhouettes_of_partitions_with_unlike_numbers_of_clusters() -> None:
    x = rows(60)
    labels = np.stack([np.arange(60) % k for k in (2, 3, 7, 30)])
    np.testing.assert_allclose(silhouettes(x, labels), [expected(x, run) for run in labels], atol=1e-5)


def test_labels_that_no_row_has_count_for_nothing() -> None:
    x = rows(20)
    labels = np.arange(20) % 2
    np.testing.assert_allclose(silhouettes(x, labels[None] * 6 + 1), silhouettes(x, labels[None]), rtol=1e-5)


@pytest.mark.parametrize("cells", [1, 100, 1000, 7000])
def test_chunks_change_nothing(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows(83)
    labels = np.random.default_rng(1).integers(4, size=(3, 83))
    whole = silhouettes(x, labels)
    monkeypatch.setattr(metrics, "_CHUNK_CELLS", cells)
    np.testing.assert_allclose(silhouettes(x, labels), whole, rtol=1e-6)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3], [2, 2, 2, 2]])
def test_one_cluster_or_a_cluster_for_each_row_is_the_worst(labels: list[int]) -> None:
    assert silhouettes(rows(4), np.array([labels])).tolist() == [-1.0]


def test_a_single_row_has_the_worst_silhouette() -> None:
    assert silhouettes(rows(1), np.zeros((1, 1), dtype=int)).tolist() == [-1.0]


def test_equal_rows_have_no_silhouette() -> None:
    assert silhouettes(np.ones((6, 2)), np.array([[0, 0, 0, 1, 1, 1]])).tolist() == [0.0]


def test_far_from_the_origin_silhouettes_stay_exact() -> None:
    x = rows(50)
    labels = (x[:, 0] > 0).astype(int)[None]
    np.testing.assert_allclose(silhouettes(x + 1e6, labels), silhouettes(x, labels), atol=1e-4)


def test_silhouettes_take_float32() -> None:
    x = rows(50)
    labels = (x[:, 0] > 0).astype(int)[None]
    np.testing.assert_allclose(silhouettes(x.astype(np.float32), labels), silhouettes(x, labels), atol=1e-5)


@pytest.mark.parametrize(
    ("truth", "labels", "accuracy"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 1, 1], [0, 1, 2, 3], 0.5),  # more clusters than classes
        ([0, 1, 2, 3], [0, 0, 0, 0], 0.25),  # fewer
        ([0, 0, 0, 1, 1, 2], [5, 5, 9, 9, 9, 9], 4 / 6),
        (["a", "a", "b"], [3, 3, 3], 2 / 3),
        ([0, 0, 0, 1, 1, 1], [0, 0, 1, 0, 0, 1], 0.5),  # greedy matching would give 4 of 6 to one cluster
    ],
)
def test_matched_accuracy(truth: list[object], labels: list[int], accuracy: float) -> None:
    assert matched_accuracy(np.array(truth), np.array(labels)) == pytest.approx(accuracy)


@given(st.integers(0, 10_000))
def test_scores_do_not_depend_on_the_names_of_clusters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(4, size=(2, 30))
    renamed = rng.permutation(9)[labels]
    for score in (adjusted_rand_index, normalized_mutual_information, matched_accuracy):
        assert score(truth, renamed) == pytest.approx(score(truth, labels))
        assert score(truth, rng.permutation(4)[truth]) == pytest.approx(1.0)


@given(st.integers(0, 10_000))
def test_information_is_shared_over_either_mean(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(2, size=40), rng.integers(6, size=40)
    geometric = normalized_mutual_information(truth, labels, mean="geometric")
    assert geometric == pytest.approx(normalized_mutual_info_score(truth, labels, average_method="geometric"))
    # The geometric mean is never the larger one.
    assert geometric >= normalized_mutual_information(truth, labels) - 1e-12


def test_means_of_entropies_differ_where_entropies_do() -> None:
    halves, quarters = np.arange(8) // 4, np.arange(8) // 2
    # One bit is shared, of one and of two.
    assert normalized_mutual_information(halves, quarters) == pytest.approx(2 / 3)
    assert normalized_mutual_information(halves, quarters, mean="geometric") == pytest.approx(2**-0.5)
    for mean in ("arithmetic", "geometric"):
        assert normalized_mutual_information(halves, 1 - halves, mean=mean) == pytest.approx(1.0)


@given(st.integers(0, 10_000))
def test_matched_accuracy_is_at_least_the_plain_one(seed: int) -> None:
    truth, labels = np.random.default_rng(seed).integers(3, size=(2, 20))
    assert (truth == labels).mean() - 1e-12 <= matched_accuracy(truth, labels) <= 1.0
