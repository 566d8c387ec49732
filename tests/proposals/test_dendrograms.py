"""Dendrograms against scipy and against a slow Genie."""

from itertools import combinations
from typing import Literal

import numpy as np
import pytest
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.sparse.csgraph import minimum_spanning_tree
from sklearn.metrics import adjusted_rand_score

from coterie.judged.candidates.candidate import Labels, by_size
from coterie.judged.candidates.linkage import genie_cuts, linkage_cuts, single_cuts
from coterie.judged.space import Floats, SpanningTree, ViewGeometry
from tests.proposals.sets import blobs, rings

KS = [2, 3, 5, 8, 13, 30]


def same(first: Labels, second: Labels) -> bool:
    return bool((by_size(first)[0] == by_size(second)[0]).all())


def rows(n: int, d: int, seed: int) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("method", ["ward", "average", "complete"])
def test_cuts_are_those_of_scipy(method: Literal["ward", "average", "complete"]) -> None:
    geometry = ViewGeometry.of(rows(60, 3, seed=1))
    expected = cut_tree(linkage(geometry.x, method), KS)
    cuts = list(linkage_cuts(geometry, method, KS))
    assert all(same(cut, column) for cut, column in zip(cuts, expected.T, strict=True))


def test_single_linkage_cuts_the_spanning_tree() -> None:
    geometry = ViewGeometry.of(rows(60, 2, seed=2))
    expected = cut_tree(linkage(geometry.x, "single"), KS)
    assert all(same(*pair) for pair in zip(single_cuts(geometry.tree, KS), expected.T, strict=True))


def test_every_number_of_clusters_can_be_cut_though_all_heights_are_equal() -> None:
    geometry = ViewGeometry.of(np.eye(12))
    for cuts in (linkage_cuts(geometry, "average", KS[:4]), single_cuts(geometry.tree, KS[:4])):
        assert [by_size(cut)[1] for cut in cuts] == KS[:4]


@pytest.mark.parametrize("seed", range(4))
def test_spanning_tree_is_as_short_as_that_of_scipy(seed: int) -> None:
    geometry = ViewGeometry.of(rows(80, 4, seed))
    tree = geometry.tree
    assert tree.lengths.sum() == pytest.approx(minimum_spanning_tree(geometry.distances).sum())
    assert (np.diff(tree.lengths) >= 0).all()
    assert np.allclose(geometry.distances[tuple(tree.edges.T)], tree.lengths)


def test_smoothed_tree_lengthens_edges_of_lonely_rows() -> None:
    geometry = ViewGeometry.of(np.concatenate([rows(50, 2, seed=3), [[30.0, 0.0]]]))
    smoothed = geometry.smoothed_tree(5)
    ends = geometry.reach(5)[smoothed.edges].max(axis=1)
    assert np.allclose(smoothed.lengths, np.maximum(geometry.distances[tuple(smoothed.edges.T)], ends))


def slow_genie(tree: SpanningTree, k: int, gini: float) -> Labels:
    """Recompute everything at every merge."""
    n = len(tree.edges) + 1
    labels = np.arange(n)
    left = [tuple(edge) for edge in tree.edges.tolist()]
    for _ in range(n - k):
        sizes = np.bincount(labels, minlength=n)
        present = sizes[sizes > 0]
        index = sum(abs(int(a) - int(b)) for a, b in combinations(present, 2)) / ((len(present) - 1) * n)
        touching = [(a, b) for a, b in left if min(sizes[labels[a]], sizes[labels[b]]) == present.min()]
        a, b = touching[0] if index > gini else left[0]
        left.remove((a, b))
        labels[labels == labels[b]] = labels[a]
    return labels


@pytest.mark.parametrize("gini", [0.1, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_genie_is_what_its_definition_says(seed: int, gini: float) -> None:
    tree = ViewGeometry.of(rows(50, 2, seed) ** 3).tree
    ks = [2, 3, 4, 7, 12, 25]
    assert all(same(cut, slow_genie(tree, k, gini)) for k, cut in zip(ks, genie_cuts(tree, ks, gini=gini), strict=True))


def test_genie_of_no_limit_is_single_linkage() -> None:
    tree = ViewGeometry.of(rows(70, 2, seed=5)).tree
    assert all(same(*pair) for pair in zip(genie_cuts(tree, KS, gini=1.0), single_cuts(tree, KS), strict=True))


def test_genie_without_leaves_joins_each_leaf_to_its_neighbour() -> None:
    x, truth = blobs(n=120)
    tree = ViewGeometry.of(x).smoothed_tree(5)
    (labels,) = genie_cuts(tree, [4], gini=0.3, skip_leaves=True)
    assert adjusted_rand_score(truth, labels) == 1.0
    leaves = np.flatnonzero(np.bincount(tree.edges.ravel()) == 1)
    to_leaf = tree.edges[np.isin(tree.edges, leaves).any(axis=1)]
    assert (labels[to_leaf[:, 0]] == labels[to_leaf[:, 1]]).all()


def test_genie_without_leaves_skips_numbers_that_the_inner_rows_do_not_allow() -> None:
    star = SpanningTree(np.array([[0, 1], [0, 2], [0, 3]]), np.ones(3))
    assert list(genie_cuts(star, [2, 3], gini=0.3, skip_leaves=True)) == []


def test_linkages_that_follow_neighbours_find_rings() -> None:
    x, truth = rings()
    tree = ViewGeometry.of(x).tree
    for (labels,) in (single_cuts(tree, [2]), genie_cuts(tree, [2], gini=0.5)):
        assert adjusted_rand_score(truth, labels) == 1.0
