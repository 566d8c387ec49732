"""All proposals together: laws, and odd input."""

from typing import get_args

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from coterie.judged.candidates.candidate import RULES, Algorithm, Proposal, by_size, distinct
from coterie.judged.candidates.registry import Effort, ladder, propose
from coterie.judged.space import Floats
from tests.proposals.sets import blobs, rings, slanted

EFFORTS: tuple[Effort, ...] = get_args(Effort)


def tabular(n: int = 150) -> Floats:
    """Skewed, unequal, correlated columns, so that every view is there."""
    x, _ = blobs(n, d=4, spread=1.0)
    return np.exp(0.3 * x + 0.2 * x[:, :1]) * [1.0, 2.0, 3.0, 4.0]


def as_sets(proposals: list[Proposal]) -> set[tuple[str, str, bytes]]:
    return {(each.algorithm, each.view, each.labels.tobytes()) for each in proposals}


@pytest.mark.parametrize("effort", EFFORTS)
def test_proposals_are_canonical_and_distinct(effort: Effort) -> None:
    proposals = propose(tabular(), effort=effort, max_clusters=8, seed=0)
    for each in proposals:
        sizes = np.bincount(each.labels)
        assert each.labels.dtype == np.int64
        assert each.labels.shape == (150,)
        assert 2 <= each.n_clusters == len(sizes) <= 8
        assert sizes.min() > 0
        assert (np.diff(sizes) <= 0).all()
        assert np.array_equal(by_size(each.labels)[0], each.labels)
        assert each.rule == RULES[each.algorithm]
    assert len({each.labels.tobytes() for each in proposals}) == len(proposals)
    assert len({each.view for each in proposals}) >= (2 if effort == "fast" else 4)


def test_more_effort_means_more_algorithms_and_more_proposals() -> None:
    found = {effort: propose(tabular(), effort=effort, max_clusters=5, seed=0) for effort in EFFORTS}
    counts = [len(found[effort]) for effort in EFFORTS]
    assert counts == sorted(counts)
    assert {each.algorithm for each in found["thorough"]} == set(get_args(Algorithm))
    assert set(RULES) == set(get_args(Algorithm))


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("make", [blobs, rings, slanted])
def test_easy_sets_are_among_the_proposals(effort: Effort, make: type) -> None:
    x, truth = make(n=240)
    agreement = max(
        adjusted_rand_score(truth, each.labels) for each in propose(x, effort=effort, max_clusters=4, seed=0)
    )
    assert agreement > 0.97


@pytest.mark.parametrize("effort", EFFORTS)
def test_equal_seeds_give_equal_proposals(effort: Effort) -> None:
    first, second = (propose(tabular(), effort=effort, max_clusters=5, seed=3) for _ in range(2))
    assert [each.labels.tolist() for each in first] == [each.labels.tolist() for each in second]


@pytest.mark.parametrize("factor", [0.25, 1e-12, 7e5])
def test_scale_does_not_matter(factor: float) -> None:
    x = tabular()
    before, after = (propose(rows, effort="balanced", max_clusters=12, seed=0) for rows in (x, factor * x))
    assert as_sets(before) == as_sets(after)


def test_permuting_rows_permutes_what_has_no_chance_in_it() -> None:
    x = tabular()
    order = np.random.default_rng(0).permutation(len(x))
    moved = {by_size(each.labels[np.argsort(order)])[0].tobytes() for each in propose(x[order], effort="fast", seed=0)}
    there = {each.labels.tobytes() for each in propose(x, effort="fast", seed=0)}
    assert len(moved & there) >= 0.97 * len(there)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("k", [1, 2, 7, 40])
def test_a_given_number_of_clusters_is_honoured(effort: Effort, k: int) -> None:
    proposals = propose(tabular(), effort=effort, n_clusters=k, max_clusters=5, seed=0)
    assert {each.n_clusters for each in proposals} == {k}
    assert len(proposals) >= (1 if k == 1 else 4)


@pytest.mark.parametrize("effort", ["fast", "thorough"])
@pytest.mark.parametrize(
    ("x", "most"),
    [
        pytest.param(np.zeros((0, 2)), 0, id="no rows"),
        pytest.param(np.zeros((1, 2)), 0, id="one row"),
        pytest.param(np.full((30, 3), 0.1), 0, id="all rows equal"),
        pytest.param(np.array([[0.0], [1.0]]), 2, id="two rows"),
        pytest.param(np.array([[0.0], [1.0], [5.0]]), 2, id="three rows"),
        pytest.param(np.repeat([[0.0, 1.0], [1.0, 0.0]], 40, axis=0), 2, id="two distinct rows"),
        pytest.param(np.repeat(np.eye(5), 12, axis=0), 4, id="five distinct rows"),
        pytest.param(np.random.default_rng(0).normal(size=(60, 1)), 4, id="one column"),
        pytest.param(np.random.default_rng(0).integers(0, 2, size=(80, 6)).astype(float), 4, id="yes or no"),
        pytest.param(np.random.default_rng(0).normal(size=(12, 200)), 4, id="more columns than rows"),
        pytest.param(np.random.default_rng(0).normal(size=(60, 2)) * 1e300, 4, id="huge"),
        pytest.param(np.random.default_rng(0).normal(size=(60, 2)) * 1e-300, 4, id="tiny"),
        pytest.param(np.random.default_rng(0).standard_cauchy(size=(90, 3)), 4, id="heavy tails"),
        pytest.param(np.concatenate([np.zeros((70, 2)), np.eye(2)]), 3, id="mostly equal rows"),
    ],
)
def test_odd_input_yields_what_can_be_proposed(effort: Effort, x: Floats, most: int) -> None:
    proposals = propose(x, effort=effort, max_clusters=4, seed=0)
    assert bool(proposals) == bool(most)
    assert all(2 <= each.n_clusters <= most for each in proposals)
    for k in (2, 6):
        assert all(each.n_clusters == k for each in propose(x, effort=effort, n_clusters=k, seed=0))


def test_more_clusters_than_distinct_rows_are_not_proposed() -> None:
    assert propose(np.repeat(np.eye(3), 9, axis=0), effort="fast", n_clusters=4, seed=0) == []
    assert propose(np.repeat(np.eye(3), 9, axis=0), effort="fast", n_clusters=3, seed=0)


def test_progress_is_told_in_words() -> None:
    told: list[str] = []
    propose(blobs()[0], effort="fast", seed=0, on_progress=told.append)
    assert told[0] == "Ward linkage, standardised columns"
    assert len(told) == len(set(told)) >= 6


def test_of_equal_partitions_the_first_stays() -> None:
    first, second = np.array([5, 5, 9, 9, 9]), np.array([1, 1, 0, 0, 0])
    (kept,) = distinct([("k-means", "raw", first), ("spectral", "raw", second)], range(2, 3))
    assert (kept.algorithm, kept.labels.tolist()) == ("k-means", [1, 1, 0, 0, 0])


def test_labels_go_by_size_then_by_first_row() -> None:
    labels, n_clusters = by_size(np.array([7, 3, 3, 7, 4, 4, 4]))
    assert (labels.tolist(), n_clusters) == ([1, 2, 2, 1, 0, 0, 0], 3)


def test_ladder_thins_out_and_ends_where_rows_do() -> None:
    assert ladder(1000, 1000, 50) == (*range(2, 13), 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
    assert ladder(1000, 1000, 9) == tuple(range(2, 10))
    assert ladder(9, 9, 50) == (2, 3, 4)
    assert ladder(100, 5, 50) == (2, 3, 4, 5)
    assert ladder(2, 2, 50) == ladder(3, 3, 50) == (2,)
    assert ladder(9, 1, 50) == ()
    assert 150 < ladder(1000, 1000, 200)[-1] <= 200
    wide = ladder(1000, 1000, 50, wide=True)
    assert wide[:7] == (2, 3, 4, 5, 6, 7, 8)
    assert len(wide) < len(ladder(1000, 1000, 50))
