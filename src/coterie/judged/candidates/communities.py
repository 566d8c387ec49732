"""Communities of the graph of similar rows: clusters of embeddings, at several resolutions."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.sparse import csr_array, csr_matrix

from coterie.judged.cosine import CosineGeometry
from coterie.judged.space import Floats, Labels

_RESOLUTIONS = 0.2 * 1.32 ** np.arange(24)  # up to 119
_SEED = 0  # the algorithm uses none unless it shuffles the rows
_FINEST_ROWS = 8  # mean size of the communities that are merged


def find_communities(geometry: CosineGeometry, n_neighbours: int, resolution: float) -> Labels:
    """Return the communities of the graph by the Louvain algorithm (Blondel et al. 2008), once for each resolution."""
    from sknetwork.clustering import Louvain  # noqa: PLC0415  (for embeddings only)

    def compute() -> Labels:
        graph = geometry.graph(n_neighbours)
        matrix = csr_matrix((graph.data, graph.indices, graph.indptr), shape=graph.shape)
        found: Labels = Louvain(resolution=resolution, random_state=_SEED).fit_predict(matrix).astype(np.int64)
        return found

    return geometry.cached(("communities", n_neighbours, resolution), compute)


def communities(geometry: CosineGeometry, ks: Sequence[int], *, n_neighbours: int) -> Iterator[Labels]:
    """Yield the communities at growing resolutions, up to the largest of the numbers of clusters."""
    if len(geometry.rows) <= 2 or not ks:
        return
    for resolution in _RESOLUTIONS.tolist():
        labels = find_communities(geometry, n_neighbours, resolution)
        if labels.max() >= max(ks):
            break
        yield labels


def nested_communities(geometry: CosineGeometry, ks: Sequence[int], *, n_neighbours: int) -> Iterator[Labels]:
    """Merge small communities, the two with the most edges for their sizes first; yield each number of clusters."""
    if len(geometry.rows) <= 2 or not ks:
        return
    finest = finest_communities(geometry, n_neighbours, max(ks))
    merges = geometry.cached(
        ("merges of communities", n_neighbours, int(finest.max())),
        lambda: merge_communities(community_weights(geometry.graph(n_neighbours), finest)),
    )
    count = len(merges) + 1
    for k in (k for k in ks if k <= count):
        target = np.arange(count)
        for kept, gone in merges[: count - k].tolist():
            target[target == gone] = kept
        yield target[finest]


def finest_communities(geometry: CosineGeometry, n_neighbours: int, at_least: int) -> Labels:
    """Return communities of about eight rows, or as many as are asked for, if the graph has that many."""
    wanted = max(at_least, len(geometry.rows) // _FINEST_ROWS)
    for resolution in _RESOLUTIONS.tolist():
        labels = find_communities(geometry, n_neighbours, resolution)
        if labels.max() + 1 >= wanted:
            break
    return labels


def community_weights(graph: csr_array, labels: Labels) -> Float[Floats, "K K"]:
    """Sum the weights of the edges between communities, and twice those within."""
    n = len(labels)
    members = csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, int(labels.max()) + 1))
    weights: Floats = (members.T @ graph @ members).toarray()
    return weights


def merge_communities(weights: Float[Floats, "K K"]) -> Int[npt.NDArray[np.int64], "M 2"]:
    """Return the communities that are merged, in this order: the first of each pair then stands for both.

    The two with the largest weight between them over the product of their total weights are merged first (as in
    Bonald et al. 2018).
    """
    between, total = weights.copy(), weights.sum(axis=1)
    merged = np.zeros(len(weights), dtype=np.bool_)  # into another one
    strength = between / np.outer(total, total)
    np.fill_diagonal(strength, -np.inf)
    merges = np.empty((len(weights) - 1, 2), dtype=np.int64)
    for step in range(len(merges)):
        kept, gone = sorted(divmod(int(strength.argmax()), len(strength)))
        merges[step] = kept, gone
        merged[gone] = True
        between[kept] += between[gone]
        total[kept] += total[gone]
        between[:, kept] = between[kept]
        strength[kept] = np.where(merged, -np.inf, between[kept] / (total[kept] * total))
        strength[kept, kept] = -np.inf
        strength[:, kept] = strength[kept]
        strength[gone] = strength[:, gone] = -np.inf
    return merges
