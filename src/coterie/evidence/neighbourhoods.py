"""Evidence from the graph of nearest neighbours: whether rows are with their own, and clusters in one piece."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Partitions, Reals

_RANKS = (1, 2, 4, 8, 12)
_BORDER_RANK = 8
_GRAPH_RANK = 12
_EMPTY = 3.0  # how much sparser than the inside of a cluster, in logs of the density, empty space counts as


def neighbourhood_evidence(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    """Neighbours that share the label, cut of the graph, pieces of clusters, and density along the borders."""
    alike = _alike(geometry, parts)
    shares = {rank: parts.totals(alike[rank]) / (parts.sizes * _known(geometry, rank)) for rank in _RANKS}
    evidence = {f"same_{rank}": parts.weighted(share) for rank, share in shares.items()}
    evidence |= {f"same_{rank}_worst": parts.least(shares[rank]) for rank in (1, 4, 12)}
    evidence |= {f"same_{rank}_median": parts.median(shares[rank]) for rank in (1, 4, 12)}
    outvoted = 2 * alike[_GRAPH_RANK] < _known(geometry, _GRAPH_RANK)
    evidence["outvoted"] = outvoted.mean(axis=1)
    evidence["outvoted_worst"] = parts.most(parts.means(outvoted))
    evidence |= _cuts(geometry, parts, shares[_GRAPH_RANK])
    evidence |= _pieces(geometry, parts)
    evidence |= _borders(geometry, parts, alike[_BORDER_RANK] < _known(geometry, _BORDER_RANK))
    return evidence


def _known(geometry: Geometry, rank: int) -> int:
    return min(rank, int(geometry.neighbours.shape[1]))


def _alike(geometry: Geometry, parts: Partitions) -> dict[int, npt.NDArray[np.uint8]]:
    """How many (R, N) of each row's nearest, up to each rank, are in its cluster."""
    cluster = parts.cluster.astype(np.int32)
    count = np.zeros(cluster.shape, dtype=np.uint8)
    found = {}
    for rank in range(1, _RANKS[-1] + 1):
        if rank <= geometry.neighbours.shape[1]:
            count += cluster[:, geometry.neighbours[:, rank - 1]] == cluster
        if rank in _RANKS:
            found[rank] = count.copy()
    return found


def _cuts(geometry: Geometry, parts: Partitions, inside: Reals) -> dict[str, Reals]:
    """Modularity and conductance of the graph in which each row has arrows to its nearest."""
    degree = _known(geometry, _GRAPH_RANK)
    arriving = np.bincount(geometry.neighbours[:, :degree].ravel(), minlength=parts.n_rows)
    volume = parts.sizes * degree + parts.totals(arriving)
    total = 2.0 * degree * parts.n_rows
    kept = 2.0 * inside * degree * parts.sizes
    chance = parts.total(np.square(volume / total))
    modularity = parts.total(kept) / total - chance
    leaving = 1.0 - kept / volume
    return {
        "modularity": modularity,
        "modularity_relative": modularity / np.maximum(1.0 - chance, 1e-3),
        "conductance_mean": parts.mean(leaving),
        "conductance_rows": parts.weighted(leaving),
        "conductance_worst": parts.most(leaving),
        "log_normalised_cut": np.log1p(parts.total(leaving)),
    }


def _pieces(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    """Connected parts of each cluster in the graph of mutual neighbours, in one graph of all partitions' rows."""
    runs, rows = parts.cluster.shape
    first, second = geometry.links.T
    run, link = np.nonzero(parts.cluster[:, first] == parts.cluster[:, second])
    nodes = runs * rows
    ends = (run * rows + first[link], run * rows + second[link])
    graph = coo_array((np.ones(len(run), dtype=np.int8), ends), shape=(nodes, nodes))
    count, piece = connected_components(graph.tocsr(), directed=False)
    weight = np.bincount(piece, minlength=count)
    cluster = np.zeros(count, dtype=np.intp)
    cluster[piece] = parts.cluster.ravel()
    largest = np.zeros(len(parts.sizes))
    np.maximum.at(largest, cluster, weight.astype(np.float64))
    notable = weight >= np.maximum(3.0, 0.05 * parts.sizes[cluster])
    pieces = np.maximum(np.bincount(cluster[notable], minlength=len(parts.sizes)), 1)
    astray = 1.0 - largest / parts.sizes
    return {
        "astray": parts.weighted(astray),
        "astray_worst": parts.most(astray),
        "log_pieces": np.log(parts.mean(pieces)),
        "log_pieces_worst": np.log(parts.most(pieces)),
    }


def _borders(geometry: Geometry, parts: Partitions, border: npt.NDArray[np.bool_]) -> dict[str, Reals]:
    """Density where clusters meet: a true border is sparser than the inside, a cut through a cluster is not."""
    sparsity = geometry.log_cores * geometry.dimension
    at_border = parts.totals(border)
    inside = parts.sizes - at_border
    outer = parts.totals(sparsity * border) / np.maximum(at_border, 1.0)
    inner = parts.totals(sparsity * ~border) / np.maximum(inside, 1.0)
    gap = np.clip(outer - inner, -_EMPTY, _EMPTY) * ((at_border > 0) & (inside > 0))
    spread = max(float(sparsity.std()), 1e-6)
    deviation = np.sqrt(np.maximum(parts.means(np.square(sparsity)) - np.square(parts.means(sparsity)), 0.0))
    # Clusters that do not touch have the best border there is: one row more, in empty space, stands for it.
    return {
        "border_share": border.mean(axis=1),
        "border_share_worst": parts.most(at_border / parts.sizes),
        "border_sparsity": (parts.total(gap * at_border) + _EMPTY) / (parts.total(at_border) + 1.0),
        "border_sparsity_worst": parts.least((gap * at_border + _EMPTY) / (at_border + 1.0)),
        "border_sparsity_notable": parts.least_notable((gap * at_border + _EMPTY) / (at_border + 1.0)),
        "density_spread_within": np.sqrt(parts.weighted(np.square(deviation))) / spread,
        "density_spread_worst": parts.most(deviation) / spread,
    }
