"""Evidence against scikit-learn, against small cases by hand, and its invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score, davies_bouldin_score, silhouette_samples

from coterie.errors import InputError
from coterie.judged.features import table
from coterie.judged.features.partitions import Partitions
from coterie.judged.features.table import FEATURES, evidence_of
from coterie.judged.space import Space


def column(evidence: np.ndarray, name: str) -> np.ndarray:
    return evidence[:, FEATURES.index(name)]


def of(x: np.ndarray, *labels: list[int], name: str) -> list[float]:
    found: list[float] = column(evidence_of(Space.of(x), np.array(labels)), name).tolist()
    return found


def proposals(x: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Partitions by nearest of a few rows, at several numbers of clusters."""
    labels = np.zeros((runs, len(x)), dtype=np.int64)
    for run in range(runs):
        centres = x[rng.choice(len(x), min(2 + run % 5, len(x)), replace=False)]
        nearest = np.square(x[:, None] - centres).sum(axis=2).argmin(axis=1)
        labels[run] = np.unique(nearest, return_inverse=True)[1]
    return labels


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    rng = np.random.default_rng(5)
    centres = 4.0 * rng.normal(size=(4, 3))
    return centres[rng.integers(4, size=160)] + rng.normal(size=(160, 3))


@pytest.fixture(scope="module")
def labels(x: np.ndarray) -> np.ndarray:
    return proposals(x, 12, np.random.default_rng(6))


@pytest.fixture(scope="module")
def evidence(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return evidence_of(Space.of(x), labels)


def test_columns_are_named_once(evidence: np.ndarray) -> None:
    assert len(set(FEATURES)) == len(FEATURES)
    assert evidence.shape == (12, len(FEATURES))
    assert evidence.dtype == np.float32


def test_indices_are_those_of_scikit_learn(x: np.ndarray, labels: np.ndarray, evidence: np.ndarray) -> None:
    samples = np.array([silhouette_samples(x, run) for run in labels])
    per_cluster = [
        [values[run == k].mean() for k in np.unique(run)] for values, run in zip(samples, labels, strict=True)
    ]
    expected = {
        "silhouette": samples.mean(axis=1),
        "silhouette_negative": (samples < 0.0).mean(axis=1),
        "silhouette_worst": [min(values) for values in per_cluster],
        "silhouette_median": [np.median(values) for values in per_cluster],
        "log_calinski_harabasz": [np.log(calinski_harabasz_score(x, run)) for run in labels],
        "log_davies_bouldin": [np.log(davies_bouldin_score(x, run)) for run in labels],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(column(evidence, name), values, atol=2e-5, err_msg=name)


def test_sizes_by_hand() -> None:
    x = np.arange(10.0)[:, None]
    split = [0] * 8 + [1] * 2
    assert of(x, split, name="smallest_share") == pytest.approx([0.2])
    assert of(x, split, name="largest_share") == pytest.approx([0.8])
    assert of(x, split, name="tiny_clusters") == [0.5]
    entropy = -(0.8 * np.log(0.8) + 0.2 * np.log(0.2)) / np.log(2.0)
    assert of(x, split, name="size_evenness") == pytest.approx([entropy])


def test_neighbours_by_hand() -> None:
    """The nearest of 0, 1, 3, 7, 15 are 1, 0, 1, 3, 7."""
    x = np.array([[0.0], [1.0], [3.0], [7.0], [15.0]])
    assert of(x, [0, 0, 0, 1, 1], [0, 1, 0, 1, 0], name="same_1") == pytest.approx([0.8, 0.0])
    assert of(x, [0, 0, 0, 1, 1], name="same_1_worst") == [0.5]
    assert of(x, [0, 0, 0, 1, 1], name="same_1_median") == [0.75]


def test_gaps_by_hand() -> None:
    """Steps of 1, 2, 9, 3: the cut of 9 is set against 2 and against 3."""
    x = np.array([[0.0], [1.0], [3.0], [12.0], [15.0]])
    split = [0, 0, 0, 1, 1]
    assert of(x, split, name="gap_to_longest_worst") == pytest.approx([np.log(3.0)])
    assert of(x, split, name="gap_to_longest_median") == pytest.approx([np.log(9.0 / np.sqrt(6.0))])
    assert of(x, split, name="log_dunn") == pytest.approx([np.log(3.0)])
    assert of(x, split, [0, 1, 0, 1, 0], name="log_cuts_to_fewest") == pytest.approx([0.0, np.log(5.0 / 2.0)])
    assert of(x, split, [0, 0, 1, 1, 1], name="uncut_to_cut") == pytest.approx([np.log(3.0 / 9.0), np.log(9.0 / 2.0)])


def test_modularity_of_two_cliques() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random((13, 2)), 50.0 + rng.random((13, 2))])
    halves = [0] * 13 + [1] * 13
    assert of(x, halves, name="modularity") == pytest.approx([0.5])
    assert of(x, halves, name="conductance_worst") == [0.0]
    assert of(x, halves, [0] * 26, name="log_pieces") == pytest.approx([0.0, np.log(2.0)])


def test_blocks_change_nothing(
    x: np.ndarray, labels: np.ndarray, evidence: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_CELLS", 1000)
    np.testing.assert_allclose(evidence_of(Space.of(x), labels), evidence, rtol=1e-4, atol=1e-5)


def assert_alike(first: np.ndarray, second: np.ndarray) -> None:
    """Equal but for rounding; a row on the edge of a bin may fall to either side of it."""
    wrong = ~np.isclose(first, second, rtol=1e-3, atol=1e-3)
    assert {FEATURES[index] for index in np.flatnonzero(wrong.any(axis=0))} == set()


def test_basins_agree_as_scikit_learn_says(x: np.ndarray, labels: np.ndarray, evidence: np.ndarray) -> None:
    basins = Space.of(x).basins[0]
    expected = [adjusted_rand_score(basins, run) for run in labels]
    np.testing.assert_allclose(column(evidence, "basins_agree"), expected, atol=1e-6)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    rows, columns = draw(st.integers(20, 60)), draw(st.integers(1, 12))
    # Axes of clearly different widths: directions of equal spread have no order.
    x = (rng.normal(size=(rows, columns)) + 3.0 * rng.integers(0, 3, size=(rows, 1))) * 1.3 ** -np.arange(columns)
    return x, proposals(x, 5, rng), rng


@settings(max_examples=8)
@given(problems())
def test_names_of_clusters_and_order_of_rows_do_not_matter(
    problem: tuple[np.ndarray, np.ndarray, np.random.Generator],
) -> None:
    x, labels, rng = problem
    expected = evidence_of(Space.of(x), labels)
    renamed = np.array([rng.permutation(run.max() + 1)[run] for run in labels])
    assert_alike(evidence_of(Space.of(x), renamed), expected)
    order = rng.permutation(len(x))
    assert_alike(evidence_of(Space.of(x[order]), labels[:, order]), expected)


@settings(max_examples=8)
@given(problems(), st.floats(-6.0, 6.0), st.floats(-1e3, 1e3))
def test_scale_place_and_rotation_do_not_matter(
    problem: tuple[np.ndarray, np.ndarray, np.random.Generator], log_scale: float, shift: float
) -> None:
    x, labels, rng = problem
    expected = evidence_of(Space.of(x), labels)
    turn = np.linalg.qr(rng.normal(size=(x.shape[1], x.shape[1])))[0]
    turned, moved = (evidence_of(Space.of((each + shift) * 10.0**log_scale), labels) for each in (x @ turn, x))
    by_columns = FEATURES.index("column_best")  # from here on, evidence is about the columns as they are
    assert_alike(turned[:, :by_columns], expected[:, :by_columns])
    assert_alike(moved[:, by_columns:], expected[:, by_columns:])


DEGENERATE = {
    "equal rows": np.ones((30, 3)),
    "two rows": np.array([[0.0], [1.0]]),
    "three rows": np.array([[0.0, 1.0], [1.0, 1.0], [5.0, 1.0]]),
    "three equal rows": np.zeros((3, 2)),
    "few distinct rows": np.repeat(np.eye(3), 7, axis=0),
    "more columns than rows": np.random.default_rng(0).normal(size=(12, 90)),
    "huge": np.array([[0.0], [1e300], [3.0], [2e300]]),
    "tiny": 1e-300 * np.random.default_rng(1).random((9, 2)),
    "one far row": np.append(np.random.default_rng(2).random(40), 1e9)[:, None],
    "grid": np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_evidence_is_finite(name: str) -> None:
    x = DEGENERATE[name]
    each = np.arange(len(x))
    labels = np.array([0 * each, each, each % 2, np.minimum(each, 1), 3 * (each == len(x) - 1)])
    evidence = evidence_of(Space.of(x), labels)
    assert np.isfinite(evidence).all()
    assert np.abs(evidence).max() < 50.0


@pytest.mark.parametrize("labels", [np.array([[0, -1, 1]]), np.array([0, 1, 1]), np.array([[0.0, 1.0, 1.0]])])
def test_what_is_no_partition_is_refused(labels: np.ndarray) -> None:
    with pytest.raises(InputError, match="integers from 0"):
        Partitions.of(labels)
