"""Partitions one change away from a candidate: laws, unusual input, and that the right change is among them."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from coterie.judged.candidates.registry import Candidate, order_by_size
from coterie.judged.refine import neighbouring_partitions
from coterie.judged.space import Floats
from coterie.judged.views import fit_views
from tests.judged.sets import blobs, candidate, rings

MAX_RESULTS = 20


def best(truth: npt.ArrayLike, results: list[Candidate]) -> float:
    return max(float(adjusted_rand_score(truth, each.labels)) for each in results)


def separated(x: Floats, before: Candidate, after: Candidate) -> int:
    """Count the pairs of equal rows that were together and are no longer."""
    equal = (x[:, None] == x).all(axis=2)
    together, still = (each.labels[:, None] == each.labels for each in (before, after))
    return int((equal & together & ~still).sum())


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, Candidate]:
    """Rows, sometimes with equal ones, and a random partition in one of their views."""
    n, d = draw(st.integers(2, 60)), draw(st.integers(1, 5))
    k = draw(st.integers(2, n))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    x = rng.gamma(0.7, size=(n, d)) * rng.uniform(1.0, 3.0, size=d)
    x = x.round(draw(st.sampled_from([0, 1, 12])))
    labels = np.concatenate((np.arange(k), rng.integers(0, k, n - k)))
    view = draw(st.sampled_from(fit_views(x)))
    return x, candidate(rng.permutation(labels), view.name)


@given(tables(), st.integers(2, 60), st.booleans())
def test_results_are_distinct_and_valid(table: tuple[Floats, Candidate], max_clusters: int, keep_number: bool) -> None:
    x, original = table
    results = neighbouring_partitions(x, original, max_clusters=max_clusters, keep_number=keep_number)
    assert len(results) <= MAX_RESULTS
    assert len({each.labels.tobytes() for each in (original, *results)}) == len(results) + 1
    for each in results:
        ordered, n_clusters = order_by_size(each.labels)
        assert each.labels.dtype == np.int64
        assert np.array_equal(ordered, each.labels)
        assert n_clusters == each.n_clusters
        assert n_clusters == original.n_clusters if keep_number else 2 <= n_clusters <= max_clusters
        assert (each.algorithm, each.view) == (original.algorithm, original.view)
        assert separated(x, original, each) == 0
    rules = [each.rule for each in results]
    assert rules.count("gaussians") <= 1
    assert rules.count("centres") <= 1


@given(tables(), st.booleans())
def test_equal_calls_give_equal_results(table: tuple[Floats, Candidate], keep_number: bool) -> None:
    first, second = (neighbouring_partitions(*table, keep_number=keep_number) for _ in range(2))
    assert [each.labels.tolist() for each in first] == [each.labels.tolist() for each in second]


@pytest.mark.usefixtures("untouched_random_state")
def test_neither_the_global_random_state_nor_the_input_changes() -> None:
    x, truth = blobs()
    before, original = x.copy(), candidate(truth)
    labels = original.labels.copy()
    assert neighbouring_partitions(x, original)
    assert np.array_equal(before, x)
    assert np.array_equal(labels, original.labels)


@pytest.mark.parametrize("keep_number", [False, True])
@pytest.mark.parametrize(
    ("x", "labels"),
    [
        pytest.param([[0.0], [1.0]], [0, 1], id="two rows"),
        pytest.param([[3.0], [3.0]], [0, 1], id="two equal rows"),
        pytest.param(np.zeros((30, 2)), np.arange(30) % 3, id="all rows equal"),
        pytest.param(np.repeat(np.eye(3), 20, axis=0), np.arange(60) // 20, id="three distinct rows"),
        pytest.param(np.arange(12.0)[:, None], np.arange(12), id="every row a cluster"),
        pytest.param(np.arange(12.0)[:, None], [0] * 11 + [1], id="a cluster of one row"),
        pytest.param(np.random.default_rng(0).normal(size=(12, 70)), np.arange(12) % 2, id="more columns than rows"),
        pytest.param(np.random.default_rng(0).normal(size=(40, 2)) * 1e300, np.arange(40) % 3, id="huge"),
        pytest.param(np.random.default_rng(0).normal(size=(40, 2)) * 1e-300, np.arange(40) % 3, id="tiny"),
        pytest.param(np.random.default_rng(0).standard_cauchy(size=(60, 3)), np.arange(60) % 4, id="heavy tails"),
    ],
)
def test_unusual_rows_are_handled(x: npt.ArrayLike, labels: npt.ArrayLike, keep_number: bool) -> None:
    rows, original = np.asarray(x, dtype=np.float64), candidate(labels)
    for each in neighbouring_partitions(rows, original, keep_number=keep_number):
        assert each.n_clusters >= 2
        assert separated(rows, original, each) == 0


def test_two_rows_have_no_other_partition() -> None:
    assert neighbouring_partitions(np.array([[0.0], [1.0]]), candidate([0, 1])) == []


@pytest.mark.parametrize("make", [blobs, rings])
def test_a_cluster_cut_in_two_is_merged(make: type) -> None:
    x, truth = make()
    first = np.flatnonzero(truth == 0)
    cut = truth.copy()
    cut[first[x[first, 0] > np.median(x[first, 0])]] = truth.max() + 1
    assert best(truth, neighbouring_partitions(x, candidate(cut))) == 1.0


def test_two_clusters_given_as_one_are_split() -> None:
    x, truth = blobs(k=3)
    for joined in (np.where(truth == 1, 0, truth), np.where(truth == 2, 1, truth)):
        assert best(truth, neighbouring_partitions(x, candidate(joined))) == 1.0
    x, truth = rings()
    beside = 8.0 + np.random.default_rng(0).normal(size=(100, 2))
    x, truth = np.concatenate((x, beside)), np.concatenate((truth, np.full(100, 2)))
    assert best(truth, neighbouring_partitions(x, candidate(truth == 2))) == 1.0


def test_a_merge_and_a_split_together_keep_the_number() -> None:
    x, truth = blobs(k=4)
    first = np.flatnonzero(truth == 0)
    wrong = np.where(truth == 3, 2, truth)
    wrong[first[::2]] = 3
    results = neighbouring_partitions(x, candidate(wrong), keep_number=True)
    assert {each.n_clusters for each in results} == {4}
    assert best(truth, results) == 1.0


@pytest.mark.parametrize("make", [blobs, rings])
def test_a_few_wrong_labels_are_corrected(make: type) -> None:
    x, truth = make()
    noisy = truth.copy()
    wrong = np.random.default_rng(0).choice(len(x), round(0.03 * len(x)), replace=False)
    noisy[wrong] = (noisy[wrong] + 1) % (truth.max() + 1)
    for keep_number in (False, True):
        assert best(truth, neighbouring_partitions(x, candidate(noisy), keep_number=keep_number)) == 1.0


def test_rows_move_to_the_most_probable_gaussian_and_to_the_nearest_mean() -> None:
    x, truth = blobs(spread=1.0)
    noisy = truth.copy()
    noisy[::10] = (noisy[::10] + 1) % 4
    before = adjusted_rand_score(truth, noisy)
    results = neighbouring_partitions(x, candidate(noisy), keep_number=True)
    by_rule = {each.rule: each for each in results if each.rule != "neighbours"}
    assert set(by_rule) == {"gaussians", "centres"}
    assert min(adjusted_rand_score(truth, each.labels) for each in by_rule.values()) > before + 0.1


def test_tiny_clusters_are_dissolved_all_at_once() -> None:
    x, truth = blobs(n=600)
    with_tiny = truth.copy()
    with_tiny[:10] = 4 + np.arange(10) // 2
    assert best(truth, neighbouring_partitions(x, candidate(with_tiny))) == 1.0


def test_a_cluster_is_not_split_by_its_outliers() -> None:
    x, truth = blobs(n=240, d=2, k=3)
    joined = np.where(truth == 2, 1, truth)
    x, joined = np.concatenate((x, [[3.0, 30.0], [3.0, -30.0]])), np.concatenate((joined, [1, 1]))
    results = neighbouring_partitions(x, candidate(joined))
    assert max(adjusted_rand_score(truth, each.labels[:240]) for each in results) == 1.0


def test_changes_are_made_in_the_view_of_the_candidate() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(200) % 2
    x = np.stack([20.0 * rng.uniform(-1.0, 1.0, size=200), 0.3 * rng.normal(size=200) + 4.0 * truth], axis=1)
    doubtful = np.where(np.arange(200) % 10 < 3, x[:, 0] > 0.0, truth)
    raw, standardised = (
        neighbouring_partitions(x, candidate(doubtful, view), keep_number=True) for view in ("raw", "standardised")
    )
    assert best(x[:, 0] > 0.0, raw) > 0.8
    assert best(x[:, 0] > 0.0, standardised) < 0.6
    assert best(truth, standardised) > 0.8
