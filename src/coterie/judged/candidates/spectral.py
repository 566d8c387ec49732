"""Spectral clustering of a graph of neighbours."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.linalg import eigh, qr
from scipy.sparse import coo_array, csc_array, diags_array
from scipy.sparse.linalg import eigsh

from coterie.judged.candidates.candidate import Labels
from coterie.judged.candidates.kmeans import k_means_from
from coterie.judged.space import Floats, ViewGeometry

_DENSE_UP_TO = 200  # rows
_LOCAL_SCALE = 7  # the neighbour whose distance is a row's own scale (Zelnik-Manor and Perona 2004)
_BRIDGE = 1e-3  # weight of the spanning tree's edges, which make the graph connected
_BEYOND = 1.001  # just over the largest eigenvalue, which is 1


def spectral(geometry: ViewGeometry, ks: Sequence[int], n_neighbours: int, seed: int) -> Iterator[Labels]:
    """Group the rows by the leading eigenvectors of their neighbour graph, for each number of clusters."""
    ks = [k for k in ks if k < len(geometry.x)]
    if not ks:
        return
    vectors = _leading_eigenvectors(_affinities(geometry, n_neighbours), max(ks), seed)
    for k in ks:
        length = np.sqrt(np.einsum("nk,nk->n", vectors[:, :k], vectors[:, :k]))
        directions = vectors[:, :k] / np.maximum(length, np.finfo(np.float64).tiny)[:, None]
        # Directions are all of length one, of which rounding would choose the first.
        unlike = qr(vectors[:, :k].T, mode="r", pivoting=True)[1][:k]
        start = (directions @ directions[unlike].T).argmax(axis=1)
        yield from k_means_from(directions, [start])


def _affinities(geometry: ViewGeometry, n_neighbours: int) -> csc_array:
    """Symmetric graph of neighbours, each weighed by its distance over the two rows' own scales."""
    n = len(geometry.x)
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
    shrink = diags_array(1.0 / np.sqrt(degree))
    return csc_array(shrink @ (graph + graph.T) @ shrink)


def _leading_eigenvectors(graph: csc_array, count: int, seed: int) -> Floats:
    """Eigenvectors (N, K) of the largest eigenvalues, largest first."""
    n = graph.shape[0]
    if n <= _DENSE_UP_TO or 2 * count >= n:
        vectors: Floats = eigh(graph.toarray(), subset_by_index=(n - count, n - 1))[1]
        return vectors[:, ::-1]
    start = np.random.default_rng(seed).normal(size=n)
    # Inverting about a number beyond the spectrum sets the leading eigenvalues apart, which are close to one another.
    values, vectors = eigsh(graph, count, sigma=_BEYOND, which="LM", v0=start, tol=1e-6)
    return vectors[:, np.argsort(-values)]
