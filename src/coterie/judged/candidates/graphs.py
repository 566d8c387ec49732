"""Clusters of any shape, from dendrograms, spanning trees, densities and neighbour graphs."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, qr
from scipy.sparse import coo_array, csc_array, diags_array
from scipy.sparse.csgraph import connected_components, depth_first_order
from scipy.sparse.linalg import eigsh
from sklearn.cluster import HDBSCAN

from coterie.judged.candidates.kmeans import improve_by_k_means
from coterie.judged.space import Floats, Geometry, Integers, Labels, Modes, find_root

_SMOOTHING = 5  # rank of the neighbour whose distance estimates the density at a row
_MODE_SMOOTHING = 10  # modes need a smoother density
_DENSE_UP_TO = 200  # rows
_LOCAL_SCALE = 7  # rank of the neighbour whose distance is a row's own scale (Zelnik-Manor and Perona 2004)
_BRIDGE = 1e-3  # weight of the spanning tree's edges, which make the graph connected
_MIN_SHARE = 0.25  # of the mean cluster size: no smaller cluster is cut off
_BEYOND = 1.001  # just over the largest eigenvalue, which is 1


def single_linkage(geometry: Geometry, ks: Sequence[int]) -> Iterator[Labels]:
    """Merge along the edges of the spanning tree, the shortest first."""
    return _merge_along(geometry.tree.edges, len(geometry.rows), ks)


def genie(geometry: Geometry, ks: Sequence[int], *, gini: float, skip_leaves: bool = False) -> Iterator[Labels]:
    """Genie linkage (Gagolewski et al. 2016): single linkage that keeps cluster sizes from growing too unequal.

    With `skip_leaves`, the tree is that of mutual reachability, and its leaves, often outliers, join their only
    neighbour beforehand and do not count in the sizes.
    """
    edges = (geometry.reachability_tree(_SMOOTHING) if skip_leaves else geometry.tree).edges
    n = len(edges) + 1
    is_leaf = np.bincount(edges.ravel(), minlength=n) == 1
    to_leaf = is_leaf[edges].any(axis=1) if skip_leaves else np.zeros(n - 1, dtype=np.bool_)
    inner = edges[~to_leaf]
    possible = [k for k in ks if k <= len(inner) + 1]
    return _merge_along(np.concatenate([edges[to_leaf], inner[genie_order(inner, gini)]]), n, possible)


def _merge_along(edges: Integers, n: int, ks: Sequence[int]) -> Iterator[Labels]:
    """Merge n rows along the edges (n - 1, 2) in their order; yield the clusters when k are left, for each k."""
    for k in ks:
        merged = edges[: n - k]
        graph = coo_array((np.ones(len(merged)), merged.T), shape=(n, n))
        yield connected_components(graph, directed=False)[1].astype(np.int64)


def genie_order(edges: Integers, gini: float) -> npt.NDArray[np.int64]:
    """Return the order in which Genie merges along the edges of a tree, which come shortest first.

    While the Gini index of the cluster sizes, sum_{i<j} |c_i - c_j| / ((k - 1) n), exceeds `gini`, the shortest edge
    that touches one of the smallest clusters is taken, otherwise the shortest edge.
    """
    n = len(edges) + 1
    names = {int(row): name for name, row in enumerate(np.unique(edges))}
    ends = [(names[a], names[b]) for a, b in edges.tolist()]
    root, size = list(range(n)), [1] * n
    sizes = {1: n}  # number of clusters of each size: few sizes, so that the index is cheap to update
    differences = 0  # sum of |c_i - c_j| over pairs of clusters
    taken = [False] * (n - 1)
    order: list[int] = []
    shortest = scan = 0
    scanned_for = 1

    # Each choice depends on the sizes that the last one left, hence a plain loop, over at most some 2,000 edges.
    for clusters in range(n, 1, -1):
        while taken[shortest]:
            shortest += 1
        chosen = shortest
        if differences > gini * (clusters - 1) * n:
            smallest = min(sizes)
            if smallest != scanned_for:
                scan, scanned_for = shortest, smallest
            # Skipped edges touch no cluster of this size, nor will they later: merging only makes larger ones.
            while taken[scan] or smallest not in {size[find_root(root, end)] for end in ends[scan]}:
                scan += 1
            chosen = scan
        taken[chosen] = True
        order.append(chosen)
        kept, gone = (find_root(root, end) for end in ends[chosen])
        differences += _merge_sizes(sizes, size[kept], size[gone])
        root[gone] = kept
        size[kept] += size[gone]
    return np.array(order, dtype=np.int64)


def _merge_sizes(sizes: dict[int, int], a: int, b: int) -> int:
    """Replace clusters of sizes a and b by one of a + b; return the change of the sum of |c_i - c_j|."""
    for size in (a, b):
        sizes[size] -= 1
        if not sizes[size]:
            del sizes[size]
    change = sum(count * (abs(c - a - b) - abs(c - a) - abs(c - b)) for c, count in sizes.items())
    sizes[a + b] = sizes.get(a + b, 0) + 1
    return change - abs(a - b)


def divisive_tree(geometry: Geometry, ks: Sequence[int]) -> Iterator[Labels]:
    """Cut the longest edges of the tree of mutual reachability that leave two large enough parts (Gagolewski 2025).

    Its leaves, often outliers, do not count in the sizes and stay with their only neighbour. Where too few edges can be
    cut, there are no clusters of that number.
    """
    edges = geometry.reachability_tree(_SMOOTHING).edges
    n = len(edges) + 1
    degree = np.bincount(edges.ravel(), minlength=n)
    start = int(degree.argmax())
    order, parent = depth_first_order(coo_array((np.ones(n - 1), edges.T), shape=(n, n)), start, directed=False)
    # In this order, each row is followed by all rows below it.
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    counts = degree[order] > 1
    below = np.ones(n, dtype=np.int64)
    for row, upper in zip(range(n - 1, 0, -1), place[parent[order[:0:-1]]].tolist(), strict=True):
        below[upper] += below[row]
    counted = np.concatenate([[0], np.cumsum(counts)])
    lower = place[edges].max(axis=1)[::-1]  # the lower end of each edge, the longest edge first
    size = counted[lower + below[lower]] - counted[lower]
    smaller = np.minimum(size, counted[-1] - size)
    for k in ks:
        enough = max(1.0, _MIN_SHARE * counted[-1] / k)
        part, sizes = np.zeros(n, dtype=np.int64), [int(counted[-1])]
        for row in lower[smaller >= enough].tolist():  # parts only shrink: where the whole is too small, so are they
            if len(sizes) == k:
                break
            upper, under = part[row], slice(row, row + below[row])
            inside = part[under] == upper
            cut_off = int((inside & counts[under]).sum())
            if min(cut_off, sizes[upper] - cut_off) >= enough:
                part[under][inside] = len(sizes)
                sizes[upper] -= cut_off
                sizes.append(cut_off)
        if len(sizes) == k:
            yield part[place]


def hdbscan(
    geometry: Geometry,
    ks: Sequence[int],  # noqa: ARG001  (HDBSCAN finds the number itself; candidates with another one are dropped)
    *,
    min_size: int,
    selection: Literal["eom", "leaf"],
) -> Iterator[Labels]:
    """Yield HDBSCAN's clusters, if it finds two or more; noise joins the nearest clustered row."""
    n, smoothing = len(geometry.rows), min(min_size, _SMOOTHING)
    if min_size < 2 or 2 * min_size > n or smoothing > n:
        return
    model = HDBSCAN(min_cluster_size=min_size, min_samples=smoothing, cluster_selection_method=selection, copy=True)
    labels = model.fit(geometry.rows).labels_.astype(np.int64)
    if labels.max() >= 1:
        noise, clustered = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
        labels[noise] = labels[clustered[geometry.distances[np.ix_(noise, clustered)].argmin(axis=1)]]
        yield labels


def density_peaks(geometry: Geometry, ks: Sequence[int]) -> Iterator[Labels]:
    """Take dense rows far from any denser one as centres (Rodriguez and Laio 2014).

    Every other row joins the cluster of its nearest denser row.
    """
    reach = geometry.reach(_SMOOTHING)
    order = reach.argsort(kind="stable")  # densest first
    ranked = geometry.distances[np.ix_(order, order)]
    n = len(order)
    ranked[np.triu_indices(n)] = np.inf
    leader = ranked.argmin(axis=1)  # of the densest row: itself
    gap = ranked[np.arange(n), leader]
    gap[0] = np.inf
    by_prominence = np.argsort(-gap / reach[order], kind="stable")
    for k in ks:
        target = leader.copy()
        target[by_prominence[:k]] = by_prominence[:k]
        while not np.array_equal(target, jumped := target[target]):  # halves the way to the centre each time
            target = jumped
        labels = np.empty(n, dtype=np.int64)
        labels[order] = target
        yield labels


def density_modes(geometry: Geometry, ks: Sequence[int]) -> Iterator[Labels]:
    """Take the k most prominent modes of the density; each row joins the mode that it ascends to."""
    ks = [k for k in ks if k < len(geometry.rows)]
    if not ks:
        return
    log_reach = np.log(geometry.reach(_MODE_SMOOTHING))
    tree = geometry.reachability_tree(_MODE_SMOOTHING)
    modes = Modes.find(tree.edges, np.log(np.maximum(tree.lengths, np.exp(log_reach.min()))), log_reach)
    prominence = modes.prominence[modes.leading(max(ks), log_reach)]
    for k in ks:
        if prominence[k - 1] > 0.0:  # at zero, every row would be a mode
            yield modes.basins(prominence[k - 1]).astype(np.int64)


def spectral(geometry: Geometry, ks: Sequence[int], *, seed: int, n_neighbours: int) -> Iterator[Labels]:
    """Cluster the leading eigenvectors of the neighbour graph by k-means, for each number of clusters."""
    ks = [k for k in ks if k < len(geometry.rows)]
    if not ks:
        return
    vectors = _leading_eigenvectors(_affinities(geometry, n_neighbours), max(ks), seed)
    for k in ks:
        length = np.sqrt(np.einsum("nk,nk->n", vectors[:, :k], vectors[:, :k]))
        directions = vectors[:, :k] / np.maximum(length, np.finfo(np.float64).tiny)[:, None]
        # All directions have length one: pivoting on them would choose the first by rounding.
        pivots = qr(vectors[:, :k].T, mode="r", pivoting=True)[1][:k]
        start = (directions @ directions[pivots].T).argmax(axis=1)
        yield improve_by_k_means(directions, start)


def _affinities(geometry: Geometry, n_neighbours: int) -> csc_array:
    """Return the normalised symmetric neighbour graph, weighted by distances over the local scales of both rows."""
    n = len(geometry.rows)
    neighbours = geometry.neighbours[:, :n_neighbours]
    row = np.repeat(np.arange(n), neighbours.shape[1])
    column = neighbours.ravel()
    reach = geometry.reach(_LOCAL_SCALE)
    weight = np.exp(-(geometry.distances[row, column] ** 2) / (reach[row] * reach[column]))
    near = coo_array((weight, (row, column)), shape=(n, n))
    edges = geometry.tree.edges
    bridges = coo_array((np.full(len(edges), _BRIDGE), edges.T), shape=(n, n))
    graph = near + bridges
    degree = np.asarray((graph + graph.T).sum(axis=0)).ravel()
    normalise = diags_array(1.0 / np.sqrt(degree))
    return csc_array(normalise @ (graph + graph.T) @ normalise)


def _leading_eigenvectors(graph: csc_array, count: int, seed: int) -> Floats:
    """Return the eigenvectors (N, K) of the largest eigenvalues, largest first."""
    n = graph.shape[0]
    if n <= _DENSE_UP_TO or 2 * count >= n:
        vectors: Floats = eigh(graph.toarray(), subset_by_index=(n - count, n - 1))[1]
        return vectors[:, ::-1]
    start = np.random.default_rng(seed).normal(size=n)
    # Shift-invert about a number beyond the spectrum separates the leading eigenvalues, which are close together.
    values, vectors = eigsh(graph, count, sigma=_BEYOND, which="LM", v0=start, tol=1e-6)
    return vectors[:, np.argsort(-values)]
