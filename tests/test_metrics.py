"""Scores, compared with scikit-learn and with values computed by hand."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, silhouette_samples, silhouette_score

from coterie import metrics
from coterie.metrics import (
    adjusted_rand_index,
    matched_accuracy,
    normalized_mutual_information,
    row_silhouettes,
    silhouettes,
)


def rows(count: int, features: int = 3, seed: int = 0) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(count, features))


def expected(x: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> float:
    found = len(np.unique(labels))
    return float(silhouette_score(x, labels)) if 2 <= found < len(x) else -1.0


@given(st.integers(0, 10_000), st.integers(3, 40), st.integers(1, 8), st.integers(1, 4))
def test_silhouettes_equal_those_of_scikit_learn(seed: int, count: int, clusters: int, runs: int) -> None:
    """Random labels include clusters of one row and unused labels."""
    x = rows(count, seed=seed)
    labels = np.random.default_rng(seed + 1).integers(clusters, size=(runs, count))
    np.testing.assert_allclose(silhouettes(x, labels), [expected(x, run) for run in labels], atol=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 60), st.integers(1, 8), st.integers(1, 8))
def test_agreement_equals_that_of_scikit_learn(seed: int, count: int, classes: int, clusters: int) -> None:
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(classes, size=count), rng.integers(clusters, size=count)
    assert adjusted_rand_index(truth, labels) == pytest.approx(adjusted_rand_score(truth, labels), abs=1e-12)
    for mean in ("arithmetic", "geometric"):
        found = normalized_mutual_information(truth, labels, mean=mean)
        assert found == pytest.approx(normalized_mutual_info_score(truth, labels, average_method=mean), abs=1e-9)


@pytest.mark.parametrize("cells", [1, 500, 1 << 22])
def test_silhouettes_of_rows_equal_those_of_scikit_learn(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = rows(60), np.random.default_rng(1).integers(4, size=60)
    monkeypatch.setattr(metrics, "_CHUNK_CELLS", cells)
    np.testing.assert_allclose(row_silhouettes(x, labels), silhouette_samples(x, labels), atol=1e-9)


@pytest.mark.parametrize("cells", [1, 100, 1000, 7000])
def test_the_chunk_size_does_not_change_silhouettes(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows(83)
    labels = np.random.default_rng(1).integers(4, size=(3, 83))
    whole = silhouettes(x, labels)
    monkeypatch.setattr(metrics, "_CHUNK_CELLS", cells)
    np.testing.assert_allclose(silhouettes(x, labels), whole, rtol=1e-6)


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3], [2, 2, 2, 2], [0]])
def test_one_cluster_or_one_cluster_per_row_scores_minus_one(labels: list[int]) -> None:
    assert silhouettes(rows(len(labels)), np.array([labels])).tolist() == [-1.0]


def test_silhouettes_are_accurate_and_zero_for_equal_rows() -> None:
    assert silhouettes(np.ones((6, 2)), np.array([[0, 0, 0, 1, 1, 1]])).tolist() == [0.0]
    x = rows(50)
    labels = (x[:, 0] > 0).astype(int)[None]
    np.testing.assert_allclose(silhouettes(x + 1e6, labels), silhouettes(x, labels), atol=1e-4)
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
def test_scores_do_not_depend_on_the_order_of_labels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, labels = rng.integers(4, size=(2, 30))
    renamed = rng.permutation(9)[labels]
    for score in (adjusted_rand_index, normalized_mutual_information, matched_accuracy):
        assert score(truth, renamed) == pytest.approx(score(truth, labels))
        assert score(truth, rng.permutation(4)[truth]) == pytest.approx(1.0)


def test_nmi_with_either_mean_equals_a_computation_by_hand() -> None:
    halves, quarters = np.arange(8) // 4, np.arange(8) // 2
    # The mutual information is one bit; the entropies are one and two bits.
    assert normalized_mutual_information(halves, quarters) == pytest.approx(2 / 3)
    assert normalized_mutual_information(halves, quarters, mean="geometric") == pytest.approx(2**-0.5)
    for mean in ("arithmetic", "geometric"):
        assert normalized_mutual_information(halves, 1 - halves, mean=mean) == pytest.approx(1.0)


@given(st.integers(0, 10_000))
def test_matched_accuracy_is_at_least_the_accuracy_without_matching(seed: int) -> None:
    truth, labels = np.random.default_rng(seed).integers(3, size=(2, 20))
    assert (truth == labels).mean() - 1e-12 <= matched_accuracy(truth, labels) <= 1.0
