"""Linkages: one pass of merges, from which the partition into any number of clusters is read."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from coterie.judged.candidates.candidate import Labels
from coterie.judged.space import SpanningTree, ViewGeometry

Edges = npt.NDArray[np.int64]


def linkage_cuts(
    geometry: ViewGeometry, method: Literal["ward", "average", "complete"], ks: Sequence[int]
) -> Iterator[Labels]:
    """Cut scipy's dendrogram into each number of clusters."""
    merges = linkage(geometry.condensed, method)
    # By their order instead of their heights merges have no ties, so that every number of clusters can be cut.
    merges[:, 2] = np.arange(len(merges))
    for k in ks:
        yield fcluster(merges, k, criterion="maxclust").astype(np.int64)


def tree_cuts(edges: Edges, n: int, ks: Sequence[int]) -> Iterator[Labels]:
    """Merge n rows along the edges (n - 1, 2) in their order, and yield the state with each number of clusters left."""
    for k in ks:
        merged = edges[: n - k]
        graph = coo_array((np.ones(len(merged)), merged.T), shape=(n, n))
        yield connected_components(graph, directed=False)[1].astype(np.int64)


def single_cuts(tree: SpanningTree, ks: Sequence[int]) -> Iterator[Labels]:
    """Single linkage: the shortest edges of the spanning tree merge first."""
    return tree_cuts(tree.edges, len(tree.edges) + 1, ks)


def genie_cuts(tree: SpanningTree, ks: Sequence[int], *, gini: float, skip_leaves: bool = False) -> Iterator[Labels]:
    """Genie linkage (Gagolewski et al. 2016): single linkage that keeps cluster sizes from growing too unequal.

    With `skip_leaves`, rows at the ends of the tree, often outliers, join their only neighbour beforehand and count
    for nothing in the sizes.
    """
    n = len(tree.edges) + 1
    at_end = np.bincount(tree.edges.ravel(), minlength=n) == 1
    to_leaf = at_end[tree.edges].any(axis=1) if skip_leaves else np.zeros(n - 1, dtype=np.bool_)
    inner = tree.edges[~to_leaf]
    possible = [k for k in ks if k <= len(inner) + 1]
    return tree_cuts(np.concatenate([tree.edges[to_leaf], inner[genie_order(inner, gini)]]), n, possible)


def genie_order(edges: Edges, gini: float) -> npt.NDArray[np.int64]:
    """Order in which Genie merges along the edges of a tree, which come shortest first.

    As long as the Gini index of the cluster sizes, sum_{i<j} |c_i - c_j| / ((k - 1) n), exceeds `gini`, the shortest
    edge that touches one of the smallest clusters is taken, otherwise the shortest edge.
    """
    n = len(edges) + 1
    names = {int(row): name for name, row in enumerate(np.unique(edges))}
    ends = [(names[a], names[b]) for a, b in edges.tolist()]
    root, size = list(range(n)), [1] * n
    sizes = {1: n}  # how many clusters there are of each size: few sizes, so that the index is cheap to keep
    differences = 0  # sum of |c_i - c_j| over pairs of clusters
    taken = [False] * (n - 1)
    order: list[int] = []
    shortest = scan = 0
    scanned_for = 1

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    # Each choice depends on the sizes that the last one left, so this loop over at most some 2,000 edges is plain.
    for clusters in range(n, 1, -1):
        while taken[shortest]:
            shortest += 1
        chosen = shortest
        if differences > gini * (clusters - 1) * n:
            smallest = min(sizes)
            if smallest != scanned_for:
                scan, scanned_for = shortest, smallest
            # What was passed over touches no cluster of this size, nor will it later: merging only makes larger ones.
            while taken[scan] or smallest not in {size[find(ends[scan][0])], size[find(ends[scan][1])]}:
                scan += 1
            chosen = scan
        taken[chosen] = True
        order.append(chosen)
        kept, gone = find(ends[chosen][0]), find(ends[chosen][1])
        differences += _change_of_differences(sizes, size[kept], size[gone])
        root[gone] = kept
        size[kept] += size[gone]
    return np.array(order, dtype=np.int64)


def _change_of_differences(sizes: dict[int, int], a: int, b: int) -> int:
    """Replace clusters of sizes a and b by one of a + b; return by how much the sum of |c_i - c_j| grows."""
    for size in (a, b):
        sizes[size] -= 1
        if not sizes[size]:
            del sizes[size]
    change = sum(count * (abs(c - a - b) - abs(c - a) - abs(c - b)) for c, count in sizes.items())
    sizes[a + b] = sizes.get(a + b, 0) + 1
    return change - abs(a - b)
