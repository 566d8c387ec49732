"""Features against scikit-learn and small cases by hand, their invariances, and that they favour the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score, davies_bouldin_score, silhouette_samples

from coterie.errors import InputError
from coterie.judged.candidates.registry import generate_candidates
from coterie.judged.features import partitions, table
from coterie.judged.features.partitions import AGREEMENTS, Partitions, agreement_features, rand_indices
from coterie.judged.space import Geometry, Space
from tests.judged.sets import blobs as grid_blobs
from tests.judged.sets import candidate, rings

NAMES = list(table.FEATURES)


def features(x: np.ndarray, *labels: list[int] | np.ndarray) -> dict[str, list[float]]:
    values = table.partition_features(Space(x), np.array(labels))
    return {name: values[:, column].tolist() for column, name in enumerate(table.FEATURES)}


def random_partitions(x: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Partition by the nearest of a few random rows, into several numbers of clusters."""
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
    return random_partitions(x, 12, np.random.default_rng(6))


@pytest.fixture(scope="module")
def values(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return table.partition_features(Space(x), labels)


def test_indices_are_those_of_scikit_learn(x: np.ndarray, labels: np.ndarray, values: np.ndarray) -> None:
    x = Space(x).reference.rows
    samples = np.array([silhouette_samples(x, run) for run in labels])
    per_cluster = [[each[run == k].mean() for k in np.unique(run)] for each, run in zip(samples, labels, strict=True)]
    basins = Geometry(x).basins[0]
    expected = {
        "silhouette": samples.mean(axis=1),
        "silhouette_negative": (samples < 0.0).mean(axis=1),
        "silhouette_worst": [min(means) for means in per_cluster],
        "silhouette_median": [np.median(means) for means in per_cluster],
        "log_calinski_harabasz": [np.log(calinski_harabasz_score(x, run)) for run in labels],
        "log_davies_bouldin": [np.log(davies_bouldin_score(x, run)) for run in labels],
        "basins_agree": [adjusted_rand_score(basins, run) for run in labels],
    }
    for name, column in expected.items():
        np.testing.assert_allclose(values[:, NAMES.index(name)], column, atol=2e-5, err_msg=name)


def test_equal_clusters_are_found() -> None:
    parts = Partitions.from_labels(np.array([[0, 0, 1, 1, 2], [2, 0, 1, 1, 0], [0, 0, 1, 1, 1]]))
    assert parts.members.tolist() == [0, 1, 2, 3, 4, 1, 4, 2, 3, 0, 0, 1, 2, 3, 4]
    chosen, same = parts.distinct, parts.same
    equal = [(0, 6), (1, 4)]  # {0, 1} and {2, 3}
    assert len(chosen) == len(parts.sizes) - len(equal)
    assert all(same[first] == same[second] for first, second in equal)
    assert len(np.unique(same)) == len(chosen)


def test_sizes_and_neighbours_by_hand() -> None:
    found = features(np.arange(10.0)[:, None], [0] * 8 + [1] * 2)
    assert found["smallest_share"] == pytest.approx([0.2])
    assert found["largest_share"] == pytest.approx([0.8])
    assert found["tiny_clusters"] == [0.5]
    assert found["size_evenness"] == pytest.approx([-(0.8 * np.log(0.8) + 0.2 * np.log(0.2)) / np.log(2.0)])
    # The nearest of 0, 1, 3, 7, 15 are 1, 0, 1, 3, 7.
    found = features(np.array([[0.0], [1.0], [3.0], [7.0], [15.0]]), [0, 0, 0, 1, 1], [0, 1, 0, 1, 0])
    assert found["same_1"] == pytest.approx([0.8, 0.0])
    assert (found["same_1_worst"][0], found["same_1_median"][0]) == (0.5, 0.75)


def test_gaps_by_hand() -> None:
    """Steps of 1, 2, 9, 3: the cut of 9 is compared with 2 and with 3."""
    x = np.array([[0.0], [1.0], [3.0], [12.0], [15.0]])
    found = features(x, [0, 0, 0, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 1, 1])
    assert found["gap_to_longest_worst"][0] == pytest.approx(np.log(3.0))
    assert found["gap_to_longest_median"][0] == pytest.approx(np.log(9.0 / np.sqrt(6.0)))
    assert found["log_dunn"][0] == pytest.approx(np.log(3.0))
    assert found["log_cuts_to_fewest"][:2] == pytest.approx([0.0, np.log(5.0 / 2.0)])
    assert found["uncut_to_cut"][::2] == pytest.approx([np.log(3.0 / 9.0), np.log(9.0 / 2.0)])


def test_modularity_and_variance_of_columns_by_hand() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random((13, 2)), 50.0 + rng.random((13, 2))])
    found = features(x, [0] * 13 + [1] * 13, [0] * 26)
    assert found["modularity"][0] == pytest.approx(0.5)
    assert found["conductance_worst"][0] == 0.0
    assert found["log_pieces"] == pytest.approx([0.0, np.log(2.0)])
    x = np.array([[-1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
    found = features(x, [0, 0, 1, 1])
    assert (found["column_best"], found["column_median"], found["columns_mattering"]) == ([1.0], [0.5], [0.5])


def test_classes_show_in_their_columns_and_random_labels_in_none() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2, 3], 50)
    x = np.hstack([5.0 * rng.normal(size=(4, 2))[truth] + 0.1 * rng.normal(size=(200, 2)), rng.normal(size=(200, 8))])
    found = features(x / x.std(axis=0), truth, rng.permutation(truth))
    assert found["column_best"][0] > 0.99
    assert found["column_best"][1] < 0.1
    assert found["columns_mostly_explained"] == pytest.approx([0.2, 0.0])
    assert found["columns_mattering"][0] == pytest.approx(0.2, abs=0.02)
    assert found["columns_idle"][0] == pytest.approx(0.8, abs=0.11)
    assert found["columns_idle"][1] > 0.8


def test_blocks_change_nothing(
    x: np.ndarray, labels: np.ndarray, values: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "_MAX_CELLS", 1000)
    np.testing.assert_allclose(table.partition_features(Space(x), labels), values, rtol=1e-4, atol=1e-5)


def assert_alike(first: np.ndarray, second: np.ndarray) -> None:
    """Compare up to rounding; a row on the edge of a bin may fall to either side of it."""
    wrong = ~np.isclose(first, second, rtol=1e-3, atol=1e-3)
    assert {NAMES[index] for index in np.flatnonzero(wrong.any(axis=0))} == set()


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 100_000)))
    rows, columns = draw(st.integers(20, 60)), draw(st.integers(1, 12))
    # Axes of clearly different widths: directions of equal spread have no order.
    x = (rng.normal(size=(rows, columns)) + 3.0 * rng.integers(0, 3, size=(rows, 1))) * 1.3 ** -np.arange(columns)
    return x, random_partitions(x, 5, rng), rng


@settings(max_examples=8)
@given(problems(), st.floats(-6.0, 6.0), st.floats(-1e3, 1e3))
def test_labels_order_scale_and_shift_do_not_matter(
    problem: tuple[np.ndarray, np.ndarray, np.random.Generator], log_scale: float, shift: float
) -> None:
    x, labels, rng = problem
    expected = table.partition_features(Space(x), labels)
    renamed = np.array([rng.permutation(run.max() + 1)[run] for run in labels])
    assert_alike(table.partition_features(Space(x), renamed), expected)
    order = rng.permutation(len(x))
    assert_alike(table.partition_features(Space(x[order]), labels[:, order]), expected)
    assert_alike(table.partition_features(Space((x + shift) * 10.0**log_scale), labels), expected)


DEGENERATE = {
    "equal rows": np.ones((30, 3)),
    "equal rows of many columns": np.ones((6, 300)),
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
def test_features_are_finite(name: str) -> None:
    x = DEGENERATE[name]
    each = np.arange(len(x))
    labels = np.array([0 * each, each, each % 2, np.minimum(each, 1), 3 * (each == len(x) - 1)])
    values = table.partition_features(Space(x), labels)
    assert values.dtype == np.float32
    assert np.isfinite(values).all()
    assert np.abs(values).max() < 50.0


@pytest.mark.parametrize("labels", [np.array([[0, -1, 1]]), np.array([0, 1, 1]), np.array([[0.0, 1.0, 1.0]])])
def test_labels_that_are_no_partition_are_rejected(labels: np.ndarray) -> None:
    with pytest.raises(InputError, match="integers from 0"):
        Partitions.from_labels(labels)


def blobs(*centres: tuple[float, float], size: int = 150) -> np.ndarray:
    rng = np.random.default_rng(11)
    return np.concatenate([np.array(centre) + rng.normal(size=(size, 2)) for centre in centres])


@pytest.fixture(scope="module")
def three_blobs() -> dict[str, list[float]]:
    """Features of the truth, of one blob cut in two, and of two blobs merged."""
    x = blobs((0.0, 0.0), (5.5, 0.0), (0.0, 7.0))
    truth = np.repeat([0, 1, 2], 150)
    return features(x, truth, np.where((truth == 2) & (x[:, 0] > 0.0), 3, truth), np.minimum(truth, 1))


HALVED = {
    "border_sparsity": 1.0,
    "border_sparsity_worst": 0.5,
    "valley_worst": 0.4,
    "valley_significance_worst": 0.5,
    "merging_cost_worst": 0.2,
    "own_mode_worst": 0.5,
    "silhouette_worst": 0.1,
    "density_validity_worst": 0.3,
    "gap_to_typical_worst": 0.5,
    "separation_worst": 0.3,
    "modularity_relative": 0.02,
    "normal_bic": 0.005,
    "basins_agree": 0.1,
    "own_mode_notable": 0.5,
    "merging_cost_notable": 0.2,
    "normal_certainty_worst": 0.02,
}
MERGED = {
    "second_mode_worst": 0.5,
    "inner_valley_worst": 0.4,
    "inner_valley_significance_worst": 0.7,
    "inner_halves_worst": 0.1,
    "inner_gap_worst": 0.01,
    "with_two_modes": 0.3,
    "uncut_to_cut": -0.2,
    "variance_left": 0.1,
    "log_pieces_worst": 0.5,
}


def test_halved_and_merged_clusters_show(three_blobs: dict[str, list[float]]) -> None:
    for name, margin in HALVED.items():
        truth, halved, _ = three_blobs[name]
        assert truth > halved + margin, name
    for name, margin in MERGED.items():
        truth, _, merged = three_blobs[name]
        assert merged > truth + margin, name
    x, labels = rings()
    found = features(x, labels, (x[:, 0] > 0.0).astype(np.int64))
    for name in ("border_sparsity", "density_validity", "same_12", "own_mode_worst", "log_dunn"):
        assert found[name][0] > found[name][1], name


def test_clustered_rows_leave_more_empty_space() -> None:
    rng = np.random.default_rng(4)
    clustered = blobs((0.0, 0.0), (20.0, 0.0), (0.0, 20.0), (20.0, 20.0), size=60)
    rows = (clustered, rng.normal(size=(240, 2)), rng.random((240, 2)))
    found = [features(x, np.zeros(240, dtype=np.int64)) for x in rows]
    for name in ("emptiness_normal", "emptiness_box"):
        assert found[0][name][0] > max(found[1][name][0], found[2][name][0]) + 0.5


def test_kurtosis_distinguishes_rings_from_heavy_tails() -> None:
    rng = np.random.default_rng(8)
    normal = rng.normal(size=(600, 2))
    ring = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    heavy = rng.standard_t(4.0, size=(600, 2))
    one = np.zeros(600, dtype=np.int64)
    low, none, high = (features(x, one)["kurtosis_mean"][0] for x in (ring, normal, heavy))
    assert low < -0.4
    assert abs(none) < 0.15
    assert high > 0.5


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(2, 30))
def test_rand_indices_are_those_of_scikit_learn(seed: int, runs: int, rows: int) -> None:
    labels = np.random.default_rng(seed).integers(0, [[5]] * runs, size=(runs, rows))
    expected = [[adjusted_rand_score(first, second) for second in labels] for first in labels]
    found = rand_indices(labels)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    for known in range(runs):
        np.testing.assert_array_equal(rand_indices(labels, found[:known, :known]), found)


def test_blocks_and_precision_do_not_change_rand_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(0, 6, size=(12, 70))
    expected = rand_indices(labels)
    monkeypatch.setattr(partitions, "_MAX_CELLS", 100)
    monkeypatch.setattr(partitions, "_MAX_EXACT_ROWS", 0)
    np.testing.assert_array_equal(rand_indices(labels), expected)
    np.testing.assert_array_equal(rand_indices(labels, expected[:9, :9]), expected)


def test_agreements_by_hand() -> None:
    pairs, swapped, crossed, finer = [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 2, 2]
    labels = np.array([pairs, swapped, crossed, finer])
    values = agreement_features(rand_indices(labels), labels.max(axis=1) + 1)
    found = {name: values[:, column].tolist() for column, name in enumerate(AGREEMENTS)}
    near, far = 4.0 / 7.0, adjusted_rand_score(crossed, finer)
    mean = (1.0 - 0.5 + near) / 3
    assert found["agreement_best"] == pytest.approx([1.0, 1.0, max(-0.5, far), near], abs=1e-6)
    assert [found[name][0] for name in ("agreement_mean", "agreement_top_3")] == pytest.approx([mean, mean], abs=1e-6)
    assert found["agreement_median"][0] == pytest.approx(near, abs=1e-6)
    assert found["agreement_same_k_best"] == pytest.approx([1.0, 1.0, -0.5, 0.0])
    assert found["agreement_same_k_mean"] == pytest.approx([0.25, 0.25, -0.5, 0.0])
    assert found["agreement_same_k_overall"] == pytest.approx([0.0, 0.0, 0.0, 0.0])
    assert found["agreement_fewer_best"] == pytest.approx([0.0, 0.0, 0.0, near], abs=1e-6)
    assert found["share_same_k"] == [0.75, 0.75, 0.75, 0.25]
    assert found["share_fewer"] == [0.0, 0.0, 0.0, 0.75]
    assert found["share_alike"] == [0.25, 0.25, 0.0, 0.0]


@pytest.mark.parametrize("runs", [1, 2, 15])
def test_agreements_are_finite_and_do_not_depend_on_the_order_of_candidates(runs: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=(runs, 40))
    counts, order = labels.max(axis=1) + 1, rng.permutation(runs)
    values = agreement_features(rand_indices(labels), counts)
    assert values.shape == (runs, len(AGREEMENTS))
    assert np.isfinite(values).all()
    np.testing.assert_allclose(agreement_features(rand_indices(labels[order]), counts[order]), values[order], atol=1e-6)


def test_ranks_average_ties() -> None:
    ranks = table.rank_columns(np.array([[2.0, 5.0], [1.0, 5.0], [2.0, 5.0], [9.0, 5.0]], dtype=np.float32))
    np.testing.assert_allclose(ranks[:, 0], [0.5, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(ranks[:, 1], 0.5)
    assert table.rank_columns(np.ones((1, 3), dtype=np.float32)).tolist() == [[0.5] * 3]


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_steps_are_to_the_next_number_of_the_same_series(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(count, len(table.FEATURES))).astype(np.float32)
    n_clusters, series = rng.integers(2, 8, count), rng.integers(0, 3, count)
    steps = table.step_features(values, n_clusters, series, table.FEATURE_SETS["euclidean"])
    assert steps.shape == (count, len(table.FEATURE_SETS["euclidean"].steps))
    assert np.isfinite(steps).all()
    stepped = values[:, NAMES.index(table.STEPPED[0])]
    for one in range(count):
        same = series == series[one]
        fewer, more = same & (n_clusters < n_clusters[one]), same & (n_clusters > n_clusters[one])
        before = stepped[same & (n_clusters == n_clusters[fewer].max())] if fewer.any() else stepped[one]
        after = stepped[same & (n_clusters == n_clusters[more].min())] if more.any() else stepped[one]
        assert np.isclose(stepped[one] - before, steps[one, 0], atol=1e-6).any()
        assert np.isclose(after - stepped[one], steps[one, len(table.STEPPED)], atol=1e-6).any()


def test_added_candidates_have_the_same_features_as_if_generated_at_once() -> None:
    x, truth = grid_blobs(80)
    candidates = generate_candidates(x, effort="fast", seed=0)
    late = candidate(np.where(truth == 3, 2, truth))
    at_once = table.CandidateFeatures.compute(x, [*candidates, late])
    extended = table.CandidateFeatures.compute(x, candidates).extended([late])
    assert extended.candidates == at_once.candidates
    np.testing.assert_allclose(extended.table(), at_once.table(), rtol=1e-5, atol=1e-6)
    assert extended.table().shape == (len(candidates) + 1, len(table.column_names()))


def test_columns_are_selected_by_name_and_unknown_ones_are_neutral() -> None:
    x, truth = grid_blobs(80)
    found = table.CandidateFeatures.compute(x, [candidate(truth), candidate(np.minimum(truth, 1))])
    picked = found.select({"silhouette": 9.0, "no such column": 7.0, "by Ward linkage": 9.0, "by k-means": 9.0})
    np.testing.assert_array_equal(picked[:, 0], found.values[:, NAMES.index("silhouette")])
    assert picked[:, 1:].tolist() == [[7.0, 1.0, 0.0]] * 2
    assert len(set(table.column_names())) == len(table.column_names())
