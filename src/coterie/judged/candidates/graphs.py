"""Clusters of any shape, from dendrograms, spanning trees, densities and neighbour graphs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self, final

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, qr
from scipy.sparse import coo_array, csc_array, diags_array, eye_array
from scipy.sparse.csgraph import connected_components, depth_first_order
from scipy.sparse.linalg import LinearOperator, eigsh, splu

from coterie.judged.candidates.kmeans import follow, improve_by_k_means
from coterie.judged.space import Floats, Geometry, Integers, Labels, Modes, SpanningTree, find_root

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
            while taken[scan] or not (
                size[find_root(root, ends[scan][0])] == smallest or size[find_root(root, ends[scan][1])] == smallest
            ):
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
    low, high = (a, b) if a < b else (b, a)
    both = a + b
    change = low - high
    for c, count in sizes.items():  # |c - a - b| - |c - a| - |c - b|, written out since this is the innermost loop
        if c <= low:
            change += count * c
        elif c >= both:
            change -= count * c
        elif c <= high:
            change += count * (2 * low - c)
        else:
            change += count * (2 * both - 3 * c)
    sizes[both] = sizes.get(both, 0) + 1
    return change


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


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dendrogram:
    """Single linkage of N rows; nodes are the rows, then the N - 1 merges, the shortest first."""

    children: list[list[int]]  # nodes that each merge joins
    parent: Integers  # (2 N - 1,): the merge that each node is joined by; itself for the last one
    sizes: list[int]  # rows under each node
    densities: list[float]  # inverse length of each merge

    @classmethod
    def from_tree(cls, tree: SpanningTree) -> Self:
        """Merge along the edges of a spanning tree."""
        n = len(tree.edges) + 1
        root, parent = list(range(2 * n - 1)), np.arange(2 * n - 1)
        sizes = [1] * n
        children = []
        for merge, (first, second) in enumerate(tree.edges.tolist(), start=n):
            pair = [find_root(root, first), find_root(root, second)]
            root[pair[0]] = root[pair[1]] = merge
            sizes.append(sizes[pair[0]] + sizes[pair[1]])
            children.append(pair)
        parent[np.array(children)] = np.arange(n, 2 * n - 1)[:, None]
        return cls(children, parent, sizes, (1.0 / tree.lengths).tolist())

    def label(self, min_size: int, selection: Literal["eom", "leaf"]) -> Labels:
        """Label the rows by HDBSCAN's clusters, -1 for noise: the most stable clusters, or those that never split."""
        n = len(self.children) + 1
        nodes, parents, stability = self._find_clusters(min_size)
        target = self.parent.copy()
        selected = [nodes[index] for index in _select(parents, stability, selection)]
        target[selected] = selected
        found = follow(target)[:n]
        return np.where(found == 2 * n - 2, -1, found)

    def _find_clusters(self, min_size: int) -> tuple[list[int], list[int], list[float]]:
        """Return the node, the number of the parent cluster and the stability of each cluster, that of all rows first.

        A cluster ends where it splits into two of at least `min_size` rows each. It is stable if its rows stay in it
        over a wide range of densities (Campello et al. 2013).
        """
        n = len(self.children) + 1
        nodes, parents, born, stability = [2 * n - 2], [-1], [0.0], [0.0]
        cluster = {2 * n - 2: 0}
        for node in range(2 * n - 2, n - 1, -1):
            if (own := cluster.pop(node, None)) is None:
                continue
            density = self.densities[node - n]
            large = [child for child in self.children[node - n] if self.sizes[child] >= min_size]
            stay = self.sizes[large[0]] if len(large) == 1 else 0
            stability[own] += (self.sizes[node] - stay) * (density - born[own])
            for child in large:
                cluster[child] = own
                if len(large) == 2:
                    cluster[child] = len(nodes)
                    nodes.append(child)
                    parents.append(own)
                    born.append(density)
                    stability.append(0.0)
        return nodes, parents, stability


def _select(parents: list[int], stability: list[float], selection: Literal["eom", "leaf"]) -> list[int]:
    """Return the numbers of the clusters selected, none of which contains another; never that of all rows."""
    below = [0.0] * len(parents)  # stability of the best clusters within each one
    good = [False] * len(parents)
    split = set(parents)
    for index in range(len(parents) - 1, 0, -1):
        good[index] = index not in split or (selection == "eom" and below[index] <= stability[index])
        below[parents[index]] += stability[index] if good[index] else below[index]
    within = [False] * len(parents)
    for index in range(1, len(parents)):
        within[index] = within[parents[index]] or good[parents[index]]
    return [index for index in range(1, len(parents)) if good[index] and not within[index]]


def hdbscan(
    geometry: Geometry,
    ks: Sequence[int],  # noqa: ARG001  (HDBSCAN finds the number itself; candidates with another one are dropped)
    *,
    min_size: int,
    selection: Literal["eom", "leaf"],
) -> Iterator[Labels]:
    """Yield HDBSCAN's clusters, if it finds two or more; noise joins the nearest clustered row."""
    if 2 * min_size > len(geometry.rows):
        return
    dendrogram = geometry.cached("dendrogram", lambda: Dendrogram.from_tree(geometry.reachability_tree(_SMOOTHING)))
    labels = dendrogram.label(min_size, selection)
    if labels.max() >= 0:
        noise, clustered = np.flatnonzero(labels < 0), np.flatnonzero(labels >= 0)
        labels[noise] = labels[clustered[geometry.distances[np.ix_(noise, clustered)].argmin(axis=1)]]
        yield labels


def density_peaks(geometry: Geometry, ks: Sequence[int]) -> Iterator[Labels]:
    """Take dense rows far from any denser one as centres (Rodriguez and Laio 2014).

    Every other row joins the cluster of its nearest denser row.
    """
    reach = geometry.reach(_SMOOTHING)
    order = reach.argsort(kind="stable")  # densest first
    n = len(order)
    ranked = np.where(np.tri(n, k=-1, dtype=np.bool_), geometry.distances[np.ix_(order, order)], np.inf)
    leader = ranked.argmin(axis=1)  # of the densest row: itself
    gap = ranked[np.arange(n), leader]
    gap[0] = np.inf
    by_prominence = np.argsort(-gap / reach[order], kind="stable")
    for k in ks:
        target = leader.copy()
        target[by_prominence[:k]] = by_prominence[:k]
        labels = np.empty(n, dtype=np.int64)
        labels[order] = follow(target)
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
    directed = near + bridges
    graph = directed + directed.T
    normalise = diags_array(1.0 / np.sqrt(np.asarray(graph.sum(axis=0)).ravel()))
    return csc_array(normalise @ graph @ normalise)


def _leading_eigenvectors(graph: csc_array, count: int, seed: int) -> Floats:
    """Return the eigenvectors (N, K) of the largest eigenvalues, largest first."""
    n = graph.shape[0]
    if n <= _DENSE_UP_TO or 2 * count >= n:
        vectors: Floats = eigh(graph.toarray(), subset_by_index=(n - count, n - 1))[1]
        return vectors[:, ::-1]
    start = np.random.default_rng(seed).normal(size=n)
    # Shift-invert about a number beyond the spectrum separates the leading eigenvalues, which are close together. The
    # shifted matrix is definite, so that it is factored without pivoting, in an order that keeps the factors sparse.
    shifted = csc_array(graph - _BEYOND * eye_array(n))
    factors = splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    inverse = LinearOperator((n, n), factors.solve, dtype=np.float64)
    values, vectors = eigsh(graph, count, sigma=_BEYOND, which="LM", v0=start, tol=1e-6, OPinv=inverse)
    return vectors[:, np.argsort(-values)]
