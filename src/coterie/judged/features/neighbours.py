"""Evidence from the graph of nearest neighbours: whether rows are with their own, and clusters in one piece."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from coterie.judged.features.partitions import Integers, Partitions, Reals, rand_index
from coterie.judged.space import Space


def mode_evidence(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    """Most and second most prominent mode of each cluster: one without a mode is a part of another."""
    best = np.zeros(len(parts.sizes))
    second = np.zeros(len(parts.sizes))
    for peak, prominence in zip(geometry.peaks[::-1], geometry.prominence[::-1], strict=True):
        cluster = parts.cluster[:, peak]  # no cluster twice, since each is of another partition
        second[cluster] = best[cluster]
        best[cluster] = prominence
    best, second = np.log1p(best), np.log1p(second)
    return {
        "own_mode": parts.weighted(best),
        "own_mode_worst": parts.least(best),
        "own_mode_median": parts.median(best),
        "second_mode_mean": parts.weighted(second),
        "second_mode_worst": parts.most(second),
        "without_mode": parts.mean(best < np.log(2.0)),
        "with_two_modes": parts.mean(second > np.log(2.0)),
        "rows_without_mode": parts.weighted(best < np.log(2.0)),
        "rows_with_two_modes": parts.weighted(second > np.log(2.0)),
        "own_mode_notable": parts.least_notable(best),
        "basins_agree": _agreement(parts, geometry.basins[0]),
        "high_basins_agree": _agreement(parts, geometry.basins[1]),
        "log_modes_per_cluster": np.log(modes_above(geometry, 1.0) / parts.n_clusters),
    }


def _agreement(parts: Partitions, basins: Integers) -> Reals:
    """Adjusted Rand index (R,) of each partition with the basins (N,) of the modes."""
    width = int(basins.max()) + 1
    cells = np.bincount((parts.cluster * width + basins).ravel(), minlength=len(parts.sizes) * width)
    both = parts.total(np.square(cells.reshape(-1, width).astype(np.float64)).sum(axis=1)) - parts.n_rows
    ours = parts.total(np.square(parts.sizes)) - parts.n_rows
    theirs = float(np.square(np.bincount(basins).astype(np.float64)).sum()) - parts.n_rows
    return rand_index(both, ours, theirs, parts.n_rows)


_CAP = 8.0  # of logarithms of ratios


def gap_evidence(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    """Gaps between clusters against the edges within; validity in terms of density."""
    return {
        **_tree_evidence(geometry, parts),
        **_reach_evidence(geometry, parts),
    }


def _ends(parts: Partitions, tree: Integers) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
    """Clusters (R, N - 1) of both ends of each edge, and whether they differ."""
    first, second = parts.cluster[:, tree[:, 0]], parts.cluster[:, tree[:, 1]]
    return first, second, first != second


def _extremes(parts: Partitions, tree: Integers, logs: Reals) -> tuple[Reals, Reals]:
    """Longest edge within each cluster and shortest edge out of it (C,); the usual length where there is none.

    A spanning tree holds the shortest of all edges that leave a cluster, so the latter is the gap itself.
    """
    first, second, cut = _ends(parts, tree)
    values = np.broadcast_to(logs, cut.shape)
    longest = np.full(len(parts.sizes), -np.inf)
    np.maximum.at(longest, first[~cut], values[~cut])
    shortest = np.full(len(parts.sizes), np.inf)
    np.minimum.at(shortest, first[cut], values[cut])
    np.minimum.at(shortest, second[cut], values[cut])
    longest = np.where(np.isfinite(longest), longest, np.median(logs))
    shortest = np.where(np.isfinite(shortest), shortest, longest)
    return longest, shortest


def _floored_logs(lengths: Reals) -> Reals:
    return np.log(np.maximum(lengths, 1e-3 * float(lengths.mean()) or 1.0))


def _tree_evidence(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    logs = _floored_logs(geometry.lengths)
    first, _, cut = _ends(parts, geometry.tree)
    values = np.broadcast_to(logs, cut.shape)
    longest, gap = _extremes(parts, geometry.tree, logs)
    clusters = len(parts.sizes)
    inner = np.bincount(first[~cut], minlength=clusters)
    typical = np.bincount(first[~cut], weights=values[~cut], minlength=clusters) / np.maximum(inner, 1)
    typical = np.where(inner > 0, typical, np.median(logs))
    cuts = cut.sum(axis=1)
    to_longest = np.clip(gap - longest, -_CAP, _CAP)
    to_typical = np.clip(gap - typical, -_CAP, _CAP)
    widest_cut = np.where(cut, values, logs.min()).max(axis=1)
    tail = np.clip(longest - typical, 0.0, _CAP)
    return {
        "gap_to_longest_worst": parts.least(to_longest),
        "gap_to_longest_median": parts.median(to_longest),
        "gap_to_typical_worst": parts.least(to_typical),
        "gap_to_typical_median": parts.median(to_typical),
        "log_dunn": np.clip(parts.least(gap) - parts.most(longest), -_CAP, _CAP),
        "log_cuts_to_fewest": np.log((cuts + 1.0) / parts.n_clusters),
        "cut_share": cuts / len(logs),
        "cut_length": np.where(cuts > 0, (values * cut).sum(axis=1) / np.maximum(cuts, 1) - logs.mean(), 0.0),
        "inner_tail_mean": parts.weighted(tail),
        "inner_tail_worst": parts.most(tail),
        # Above zero where the widest gap of all was missed.
        "uncut_to_cut": np.clip(parts.most(longest) - widest_cut, -_CAP, _CAP),
    }


def _reach_evidence(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    """Validity as of DBCV: density separation against density sparseness, on the tree of mutual reachability."""
    longest, gap = _extremes(parts, geometry.reach_tree, _floored_logs(geometry.reach_lengths))
    validity = np.sign(gap - longest) * -np.expm1(-np.abs(gap - longest))  # (gap - longest) / max of both
    return {
        "density_validity": parts.weighted(validity),
        "density_validity_notable": parts.least_notable(validity),
        "density_validity_worst": parts.least(validity),
        "density_validity_median": parts.median(validity),
    }


_RANKS = (1, 2, 4, 8, 12)
_BORDER_RANK = 8
_GRAPH_RANK = 12
_EMPTY = 3.0  # how much sparser than the inside of a cluster, in logs of the density, empty space counts as


def neighbourhood_evidence(geometry: Space, parts: Partitions) -> dict[str, Reals]:
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


def _known(geometry: Space, rank: int) -> int:
    return min(rank, int(geometry.neighbours.shape[1]))


def _alike(geometry: Space, parts: Partitions) -> dict[int, npt.NDArray[np.uint8]]:
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


def _cuts(geometry: Space, parts: Partitions, inside: Reals) -> dict[str, Reals]:
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


def _pieces(geometry: Space, parts: Partitions) -> dict[str, Reals]:
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


def _borders(geometry: Space, parts: Partitions, border: npt.NDArray[np.bool_]) -> dict[str, Reals]:
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


def modes_above(geometry: Space, prominence: float) -> float:
    """How many modes stand out by so much; the highest one always does."""
    return float(max(1, (geometry.prominence > prominence).sum()))
