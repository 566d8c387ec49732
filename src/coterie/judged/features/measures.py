"""Features of partitions: sizes, neighbourhoods, gaps, modes, separation, normality, shapes, pairs, columns.

Every function returns columns by name, one value per partition. ``table.FEATURES`` says what they mean; columns that it
does not list are not used.
Letters: N rows, R partitions, C clusters of all partitions together, Q principal axes.
"""

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from scipy.ndimage import convolve1d
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from coterie.judged.features.partitions import Members, Partitions, rand_index
from coterie.judged.space import Floats, Geometry, Integers, Singles

Columns = dict[str, Floats]


def safe_log(values: npt.NDArray[Any], floor: float = 1e-6, ceiling: float = 1e6) -> Floats:
    """Take the logarithm of values clipped to the floor and the ceiling."""
    logs: Floats = np.log(np.clip(values, floor, ceiling))
    return logs


def _low_is_bad(parts: Partitions, mean: str, **columns: Floats) -> Columns:
    """Summarise values (C,) over the clusters of each partition; `mean` is the suffix of the mean over rows."""
    found = {}
    for name, values in columns.items():
        found[name + mean] = parts.weighted_mean(values)
        found[f"{name}_worst"] = parts.min(values)
        found[f"{name}_median"] = parts.median(values)
        found[f"{name}_notable"] = parts.min_of_large(values)
    return found


def _high_is_bad(parts: Partitions, mean: str, **columns: Floats) -> Columns:
    """Summarise values (C,) in the same way, the largest of which is the worst."""
    means = {name + mean: parts.weighted_mean(values) for name, values in columns.items()}
    return means | {f"{name}_worst": parts.max(values) for name, values in columns.items()}


_MAX_AXES = 10
_RIDGE = 1e-6


@final
@dataclass(frozen=True, slots=True, eq=False)
class ClusterMoments:
    """Means and scatter matrices of all clusters on the leading principal axes."""

    rows: Float[Floats, "N Q"]  # rows on these axes
    monomials: Float[Floats, "N J"]  # one, each coordinate, and each product of two: quadratic forms are linear in them
    means: Float[Floats, "C Q"]  # cluster means
    scatters: Float[Floats, "C Q Q"]  # sums of outer products of the centred rows
    pooled: Float[Floats, "C Q Q"]  # within-cluster covariance of its partition, which a covariance is shrunk to
    strength: float  # number of rows that the pooled covariance counts for
    covariances: Float[Floats, "C Q Q"]  # shrunk
    log_volumes: Float[Floats, " C"]  # log determinants of the covariances

    @classmethod
    def compute(cls, geometry: Geometry, parts: Partitions) -> Self:
        """Compute the moments of every cluster."""
        rows = geometry.components[:, :_MAX_AXES]
        axes = rows.shape[1]
        upper = np.triu_indices(axes)
        monomials = np.hstack([np.ones((len(rows), 1)), rows, rows[:, upper[0]] * rows[:, upper[1]]])
        sums = parts.vector_sums(monomials[:, 1:])
        means = sums[:, :axes] / parts.sizes[:, None]
        scatters = np.empty((len(means), axes, axes))
        scatters[:, upper[0], upper[1]] = sums[:, axes:]
        scatters[:, upper[1], upper[0]] = sums[:, axes:]
        scatters -= parts.sizes[:, None, None] * means[:, :, None] * means[:, None, :]
        scatters += parts.sizes[:, None, None] * geometry.discrete_noise[:axes, :axes]
        pooled = (parts.sum(scatters) / parts.n_rows + _RIDGE * np.eye(axes))[parts.owner]
        strength = axes + 2.0
        covariances = _shrink(scatters, parts.sizes, pooled, strength)
        volumes = log_determinants(covariances)
        return cls(rows, monomials, means, scatters, pooled, strength, covariances, volumes)

    def shrink(self, scatters: Floats, sizes: Floats) -> Floats:
        """Return the shrunk covariances (C, Q, Q) of clusters with these scatters and sizes."""
        return _shrink(scatters, sizes, self.pooled, self.strength)


def _shrink(scatters: Floats, sizes: Floats, pooled: Floats, strength: float) -> Floats:
    shrunk: Floats = (scatters + strength * pooled) / (sizes + strength)[:, None, None]
    return shrunk


def log_determinants(covariances: Floats) -> Floats:
    """Return the log determinants (C,), bounded below for degenerate clusters."""
    values = np.linalg.slogdet(covariances)[1]
    logs: Floats = np.maximum(values, covariances.shape[-1] * np.log(_RIDGE) * 1.5)
    return logs


def size_features(parts: Partitions) -> Columns:
    """Number of clusters, and how unequal their sizes are."""
    count, rows = parts.n_clusters, parts.n_rows
    fraction = parts.sizes / rows
    entropy = -parts.sum(fraction * np.log(fraction))
    return {
        "log_clusters": np.log(count),
        "log_rows_per_cluster": np.log(rows / count),
        "size_evenness": np.where(count > 1, entropy / np.log(np.maximum(count, 2)), 1.0),
        "log_effective_clusters": entropy,
        "smallest_share": parts.min(fraction),
        "largest_share": parts.max(fraction),
        "log_smallest_to_fair": np.log(parts.min(fraction) * count),
        "tiny_clusters": parts.mean(parts.sizes < 5),
        "small_clusters": parts.mean(fraction < 0.2 / count[parts.owner]),
    }


def mode_features(geometry: Geometry, parts: Partitions) -> Columns:
    """Most and second most prominent density mode of each cluster: one without a mode is part of another."""
    best = np.zeros(len(parts.sizes))
    second = np.zeros(len(parts.sizes))
    for peak, prominence in zip(geometry.peaks[::-1], geometry.prominences[::-1], strict=True):
        cluster = parts.cluster[:, peak]  # one of each partition, so none twice
        second[cluster] = best[cluster]
        best[cluster] = prominence
    best, second = np.log1p(best), np.log1p(second)
    return {
        **_low_is_bad(parts, "", own_mode=best),
        **_high_is_bad(parts, "_mean", second_mode=second),
        "without_mode": parts.mean(best < np.log(2.0)),
        "with_two_modes": parts.mean(second > np.log(2.0)),
        "rows_without_mode": parts.weighted_mean(best < np.log(2.0)),
        "rows_with_two_modes": parts.weighted_mean(second > np.log(2.0)),
        "basins_agree": _agreement(parts, geometry.basins[0]),
        "high_basins_agree": _agreement(parts, geometry.basins[1]),
        "log_modes_per_cluster": np.log(count_modes(geometry, 1.0) / parts.n_clusters),
    }


def _agreement(parts: Partitions, basins: Integers) -> Floats:
    """Compute the adjusted Rand index (R,) of each partition with the basins (N,) of the modes."""
    width = int(basins.max()) + 1
    cells = np.bincount((parts.cluster * width + basins).ravel(), minlength=len(parts.sizes) * width)
    both = parts.sum(np.square(cells.reshape(-1, width).astype(np.float64)).sum(axis=1)) - parts.n_rows
    ours = parts.sum(np.square(parts.sizes)) - parts.n_rows
    theirs = float(np.square(np.bincount(basins).astype(np.float64)).sum()) - parts.n_rows
    return rand_index(both, ours, theirs, parts.n_rows)


_MAX_LOG_RATIO = 8.0


def _ends(parts: Partitions, tree: Integers) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
    """Return the clusters (R, N - 1) of both ends of each edge, and whether they differ."""
    first, second = parts.cluster[:, tree[:, 0]], parts.cluster[:, tree[:, 1]]
    return first, second, first != second


def _extremes(parts: Partitions, tree: Integers, logs: Floats) -> tuple[Floats, Floats]:
    """Return the longest edge within each cluster and the shortest edge out of it (C,); the median where there is none.

    A minimum spanning tree holds the shortest of all edges that leave a cluster, so the latter is the gap itself.
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


def _floored_logs(lengths: Floats) -> Floats:
    return np.log(np.maximum(lengths, 1e-3 * float(lengths.mean()) or 1.0))


def gap_features(geometry: Geometry, parts: Partitions) -> Columns:
    """Gaps between clusters over the edges within, on the spanning tree."""
    logs = _floored_logs(geometry.unit_tree.lengths)
    first, _, cut = _ends(parts, geometry.unit_tree.edges)
    values = np.broadcast_to(logs, cut.shape)
    longest, gap = _extremes(parts, geometry.unit_tree.edges, logs)
    clusters = len(parts.sizes)
    inner = np.bincount(first[~cut], minlength=clusters)
    typical = np.bincount(first[~cut], weights=values[~cut], minlength=clusters) / np.maximum(inner, 1)
    typical = np.where(inner > 0, typical, np.median(logs))
    cuts = cut.sum(axis=1)
    to_longest = np.clip(gap - longest, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    to_typical = np.clip(gap - typical, -_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    widest_cut = np.where(cut, values, logs.min()).max(axis=1)
    return {
        **_low_is_bad(parts, "_mean", gap_to_longest=to_longest, gap_to_typical=to_typical),
        **_high_is_bad(parts, "_mean", inner_tail=np.clip(longest - typical, 0.0, _MAX_LOG_RATIO)),
        "log_dunn": np.clip(parts.min(gap) - parts.max(longest), -_MAX_LOG_RATIO, _MAX_LOG_RATIO),
        "log_cuts_to_fewest": np.log((cuts + 1.0) / parts.n_clusters),
        "cut_share": cuts / len(logs),
        "cut_length": np.where(cuts > 0, (values * cut).sum(axis=1) / np.maximum(cuts, 1) - logs.mean(), 0.0),
        # Above zero where the widest gap was missed.
        "uncut_to_cut": np.clip(parts.max(longest) - widest_cut, -_MAX_LOG_RATIO, _MAX_LOG_RATIO),
    }


def density_features(geometry: Geometry, parts: Partitions) -> Columns:
    """Density-based validity (DBCV): separation against sparseness, on the tree of mutual reachability."""
    tree = geometry.unit_reachability_tree
    longest, gap = _extremes(parts, tree.edges, _floored_logs(tree.lengths))
    validity = np.sign(gap - longest) * -np.expm1(-np.abs(gap - longest))  # (gap - longest) / max of both
    return _low_is_bad(parts, "", density_validity=validity)


_RANKS = (1, 2, 4, 8, 12)
_BORDER_RANK = 8
_GRAPH_RANK = 12
_EMPTY = 3.0  # log density ratio of the inside of a cluster to empty space


def neighbourhood_features(geometry: Geometry, parts: Partitions) -> Columns:
    """Neighbours with the same label, graph cuts, connected pieces of clusters, and density at borders."""
    same = _count_same(geometry, parts)
    fractions = {rank: parts.cluster_sums(same[rank]) / (parts.sizes * _available(geometry, rank)) for rank in _RANKS}
    columns = _low_is_bad(parts, "", **{f"same_{rank}": fraction for rank, fraction in fractions.items()})
    outvoted = 2 * same[_GRAPH_RANK] < _available(geometry, _GRAPH_RANK)
    columns["outvoted"] = outvoted.mean(axis=1)
    columns["outvoted_worst"] = parts.max(parts.cluster_means(outvoted))
    columns |= _cuts(geometry, parts, fractions[_GRAPH_RANK])
    columns |= _pieces(geometry, parts)
    columns |= _borders(geometry, parts, same[_BORDER_RANK] < _available(geometry, _BORDER_RANK))
    return columns


def _available(geometry: Geometry, rank: int) -> int:
    return min(rank, int(geometry.unit_neighbours.shape[1]))


def _count_same(geometry: Geometry, parts: Partitions) -> dict[int, npt.NDArray[np.uint8]]:
    """Count (R, N) how many neighbours of each row, up to each rank, are in its cluster."""
    labels = parts.labels_by_row()
    count = np.zeros(labels.shape, dtype=np.uint8)
    found = {}
    for rank in range(1, _RANKS[-1] + 1):
        if rank <= geometry.unit_neighbours.shape[1]:
            count += labels[geometry.unit_neighbours[:, rank - 1]] == labels
        if rank in _RANKS:
            found[rank] = count.T.copy(order="C")
    return found


def _cuts(geometry: Geometry, parts: Partitions, inside: Floats) -> Columns:
    """Modularity and conductance of the directed neighbour graph."""
    degree = _available(geometry, _GRAPH_RANK)
    arriving = np.bincount(geometry.unit_neighbours[:, :degree].ravel(), minlength=parts.n_rows)
    volume = parts.sizes * degree + parts.cluster_sums(arriving)
    total = 2.0 * degree * parts.n_rows
    kept = 2.0 * inside * degree * parts.sizes
    chance = parts.sum(np.square(volume / total))
    modularity = parts.sum(kept) / total - chance
    leaving = 1.0 - kept / volume
    return {
        "modularity": modularity,
        "modularity_relative": modularity / np.maximum(1.0 - chance, 1e-3),
        "conductance_mean": parts.mean(leaving),
        "conductance_rows": parts.weighted_mean(leaving),
        "conductance_worst": parts.max(leaving),
        "log_normalised_cut": np.log1p(parts.sum(leaving)),
    }


def _pieces(geometry: Geometry, parts: Partitions) -> Columns:
    """Connected components of each cluster in the graph of mutual neighbours, all partitions in one graph."""
    runs, rows = parts.cluster.shape
    first, second = geometry.mutual_links.T  # sorted by the first row
    labels = parts.labels_by_row()
    run, link = np.nonzero((labels[first] == labels[second]).T)
    run *= rows
    nodes = runs * rows
    begins = np.concatenate([[0], np.cumsum(np.bincount(run + first[link], minlength=nodes))])
    graph = csr_array((np.ones(len(run)), run + second[link], begins), shape=(nodes, nodes))
    count, piece = connected_components(graph, directed=False)
    weight = np.bincount(piece, minlength=count)
    cluster = np.zeros(count, dtype=np.intp)
    cluster[piece] = parts.cluster.ravel()
    largest = np.zeros(len(parts.sizes))
    np.maximum.at(largest, cluster, weight.astype(np.float64))
    large = weight >= np.maximum(3.0, 0.05 * parts.sizes[cluster])
    pieces = np.maximum(np.bincount(cluster[large], minlength=len(parts.sizes)), 1)
    return {
        **_high_is_bad(parts, "", astray=1.0 - largest / parts.sizes),
        "log_pieces": np.log(parts.mean(pieces)),
        "log_pieces_worst": np.log(parts.max(pieces)),
    }


def _borders(geometry: Geometry, parts: Partitions, border: npt.NDArray[np.bool_]) -> Columns:
    """Density where clusters meet: a true border is sparser than the inside, a cut through a cluster is not."""
    sparsity = geometry.log_cores * geometry.dimension
    at_border = parts.cluster_sums(border)
    inside = parts.sizes - at_border
    outer = parts.cluster_sums(sparsity * border) / np.maximum(at_border, 1.0)
    inner = parts.cluster_sums(sparsity * ~border) / np.maximum(inside, 1.0)
    gap = np.clip(outer - inner, -_EMPTY, _EMPTY) * ((at_border > 0) & (inside > 0)) * at_border
    spread = max(float(sparsity.std()), 1e-6)
    deviation = np.sqrt(
        np.maximum(parts.cluster_means(np.square(sparsity)) - np.square(parts.cluster_means(sparsity)), 0.0)
    )
    # Clusters that do not touch have the best possible border: one extra row in empty space stands for it.
    return {
        **_low_is_bad(parts, "_mean", border_sparsity=(gap + _EMPTY) / (at_border + 1.0)),
        "border_share": border.mean(axis=1),
        "border_share_worst": parts.max(at_border / parts.sizes),
        "border_sparsity": (parts.sum(gap) + _EMPTY) / (parts.sum(at_border) + 1.0),
        "density_spread_within": np.sqrt(parts.weighted_mean(np.square(deviation))) / spread,
        "density_spread_worst": parts.max(deviation) / spread,
    }


def count_modes(geometry: Geometry, prominence: float) -> float:
    """Count the modes of more than that prominence; the highest one always counts."""
    return float(max(1, (geometry.prominences > prominence).sum()))


_KERNEL = np.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16.0
_NOISE = float(np.square(_KERNEL).sum())  # variance of a smoothed count over the count


def valleys(counts: Floats) -> tuple[Floats, Floats]:
    """Return depth in [0, 1] and significance of the clearest valley of each histogram (C, B).

    The valley is where the count falls most, in standard errors, below the lower of the highest peaks on both sides.
    """
    smooth = convolve1d(counts, _KERNEL, axis=1, mode="constant")
    left = np.maximum.accumulate(smooth, axis=1)
    right = np.maximum.accumulate(smooth[:, ::-1], axis=1)[:, ::-1]
    rim = np.minimum(left, right)
    score = (rim - smooth) / np.sqrt(_NOISE * (rim + smooth) + 0.5)
    lowest = score.argmax(axis=1)
    each = np.arange(len(counts))
    significance = score[each, lowest]
    depth = (rim - smooth)[each, lowest] / (rim[each, lowest] + 0.5)
    # There is always some dip: one that is not significant counts as shallow.
    return depth * np.square(significance) / (np.square(significance) + 4.0), significance


def histograms(group: Integers, values: Floats, groups: int, low: float, high: float, bins: int) -> Floats:
    """Return the histogram (C, B) of the values of each group; values out of range fall into the outer bins."""
    position = np.clip(((values - low) * (bins / (high - low))).astype(np.intp), 0, bins - 1)
    return np.bincount(group * bins + position, minlength=groups * bins).reshape(groups, bins).astype(np.float64)


_TINY = np.finfo(np.float32).tiny


_DENSE_ABOVE = 0.1  # fraction of the rows of a cluster above which its distances are added by a dense matrix product


def silhouette_features(geometry: Geometry, parts: Partitions) -> Columns:
    """Silhouettes of the rows."""
    sums = _distance_sums(geometry, parts, parts.distinct)
    sizes = parts.sizes.astype(np.float32)
    entries = parts.own_entries()
    within, between = np.empty((2, *parts.cluster.shape), dtype=np.float32)
    for run, clusters in enumerate(parts.runs):  # one after the other, since a small table stays in the cache
        table = sums[parts.same[clusters]]
        within[run] = table.ravel()[entries[run]]
        table /= sizes[clusters, None]
        table.ravel()[entries[run]] = np.inf
        table.min(axis=0, out=between[run])
    own_size = sizes[parts.cluster]
    within /= np.maximum(own_size - 1.0, 1.0)
    defined = (own_size > 1.0) & np.isfinite(between)
    between = np.where(defined, between, within)
    values = np.where(defined, (between - within) / np.maximum(np.maximum(within, between), _TINY), 0.0)
    return {
        **_low_is_bad(parts, "_rows", silhouette=parts.cluster_means(values)),
        "silhouette": values.mean(axis=1),
        "silhouette_negative": (values < 0.0).mean(axis=1),
    }


def _distance_sums(geometry: Geometry, parts: Partitions, chosen: Integers) -> Float[Singles, "U N"]:
    """Sum the distances of each row to those of each of the chosen clusters."""
    sums = np.empty((len(chosen), parts.n_rows), dtype=np.float32)
    large = parts.sizes[chosen] > _DENSE_ABOVE * parts.n_rows
    sums[large] = parts.one_hot(chosen[large]) @ geometry.unit_distances
    sums[~large] = parts.indicators(chosen[~large], np.float32) @ geometry.unit_distances
    return sums


def centre_features(geometry: Geometry, parts: Partitions) -> Columns:
    """Calinski-Harabasz, Davies-Bouldin, unexplained variance, and agreement with the nearest mean."""
    rows, count = parts.n_rows, parts.n_clusters
    centres = parts.vector_sums(geometry.components) / parts.sizes[:, None]
    lengths = np.einsum("cd,cd->c", centres, centres)
    scatter = np.maximum(parts.cluster_sums(geometry.squared_norms) - parts.sizes * lengths, 0.0)
    total = max(float(geometry.squared_norms.sum()), float(_TINY))
    left = np.clip(parts.sum(scatter) / total, 0.0, 1.0)
    ratio = (1.0 - left) * np.maximum(rows - count, 1.0) / (np.maximum(left, 1e-9) * np.maximum(count - 1.0, 1.0))

    own, least = _squared_distances(geometry, parts, centres, lengths)
    nearest = own <= least * (1.0 + 1e-9) + 1e-12
    radii = parts.cluster_means(np.sqrt(own))
    similarity = _most_similar(parts, centres, radii)
    return {
        "log_calinski_harabasz": np.where(count > 1, safe_log(ratio), 0.0),
        "log_davies_bouldin": np.where(count > 1, safe_log(parts.mean(similarity), 1e-3, 1e3), 0.0),
        "log_davies_bouldin_worst": np.where(count > 1, safe_log(parts.max(similarity), 1e-3, 1e3), 0.0),
        "variance_left": left,
        # Cutting a uniform cloud of d dimensions into k pieces leaves about k^(-2/d) of its variance.
        "log_left_to_uniform": safe_log(left) + 2.0 / geometry.dimension * np.log(count),
        "nearest_centre": nearest.mean(axis=1),
        "nearest_centre_worst": parts.min(parts.cluster_means(nearest)),
        "spherical_gain": _spherical_gain(geometry, parts, left),
        "log_radius_ratio": safe_log(parts.max(radii) / np.maximum(parts.median(radii), 1e-6), 1.0, 1e3),
    }


def _squared_distances(
    geometry: Geometry, parts: Partitions, centres: Floats, lengths: Floats
) -> tuple[Float[Floats, "R N"], Float[Floats, "R N"]]:
    """Return the squared distance of each row from the mean of its cluster, and from the nearest mean."""
    components = np.ascontiguousarray(geometry.components.T)
    entries = parts.own_entries()
    own, least = np.empty((2, *parts.cluster.shape))
    for run, clusters in enumerate(parts.runs):  # one after the other, since a small table stays in the cache
        table = geometry.squared_norms + lengths[clusters, None]
        table -= 2.0 * (centres[clusters] @ components)
        np.maximum(table, 0.0, out=table)
        own[run] = table.ravel()[entries[run]]
        table.min(axis=0, out=least[run])
    return own, least


def _most_similar(parts: Partitions, centres: Floats, radii: Floats) -> Floats:
    """Return Davies and Bouldin's similarity (C,) of each cluster to the most similar one."""
    most = np.empty(len(centres))
    for count in np.unique(parts.n_clusters).astype(np.int64).tolist():  # partitions of equal size at once
        clusters = parts.starts[parts.n_clusters == count][:, None] + np.arange(count)
        own, spread = centres[clusters], radii[clusters]
        squares = np.einsum("rkd,rkd->rk", own, own)
        apart = squares[:, :, None] + squares[:, None, :] - 2.0 * (own @ own.transpose(0, 2, 1))
        apart = np.sqrt(np.maximum(apart, 1e-12))
        similar = (spread[:, :, None] + spread[:, None, :]) / apart
        similar[:, np.arange(count), np.arange(count)] = -np.inf
        most[clusters] = np.maximum(similar.max(axis=2), 0.0)
    return most


def _spherical_gain(geometry: Geometry, parts: Partitions, left: Floats) -> Floats:
    """Return the BIC gain per row and column of equal spherical Gaussians over a single one."""
    rows, columns = parts.n_rows, float(geometry.components.shape[1])
    fraction = parts.sizes / rows
    fit = -0.5 * columns * safe_log(left * rows / np.maximum(rows - parts.n_clusters, 1.0))
    price = 0.5 * (parts.n_clusters - 1.0) * (columns + 1.0) * np.log(rows) / rows
    gain: Floats = (parts.sum(fraction * np.log(fraction)) + fit - price) / columns
    return gain


def normality_features(geometry: Geometry, parts: Partitions, moments: ClusterMoments) -> Columns:
    """How well one Gaussian per cluster explains the rows (BIC), and whether it recovers the labels."""
    axes = moments.rows.shape[1]
    constants = np.log(parts.sizes / parts.n_rows) - 0.5 * moments.log_volumes
    own, best, mixture = _log_likelihoods(parts, moments, constants)
    own_distance = 2.0 * (constants[parts.cluster] - own)

    single = np.cov(moments.rows.T, bias=True).reshape(axes, axes) + 1e-6 * np.eye(axes)
    single += geometry.discrete_noise[:axes, :axes]
    alone = -0.5 * (log_determinants(single[None])[0] + axes)
    gain = mixture.mean(axis=1) - alone
    hard = own.mean(axis=1) - alone
    parameters = (parts.n_clusters - 1.0) * (1.0 + axes + axes * (axes + 1) / 2)
    price = 0.5 * parameters * np.log(parts.n_rows) / parts.n_rows
    certainty = np.exp(own - mixture)
    returned = own >= best - 1e-9
    kurtosis = parts.cluster_means(np.square(own_distance)) / (axes * (axes + 2.0)) - 1.0
    return {
        "normal_gain": gain / axes,
        "normal_gain_hard": hard / axes,
        "normal_bic": np.clip((gain - price) / axes, -10.0, 10.0),
        "normal_returns": returned.mean(axis=1),
        "normal_returns_worst": parts.min(parts.cluster_means(returned)),
        "normal_certainty": certainty.mean(axis=1),
        "normal_certainty_worst": parts.min(parts.cluster_means(certainty)),
        "kurtosis_mean": np.clip(parts.weighted_mean(kurtosis), -1.0, 10.0),
        "kurtosis_most": np.log1p(np.maximum(parts.max(kurtosis), -0.9)),
        "axis_aligned_gain": _axis_aligned_gain(geometry, parts),
    }


def _log_likelihoods(
    parts: Partitions, moments: ClusterMoments, constants: Floats
) -> tuple[Float[Floats, "R N"], Float[Floats, "R N"], Float[Floats, "R N"]]:
    """Return log-likelihoods of the rows, up to a constant, under their clusters, the best clusters and the mixture."""
    forms, monomials = -0.5 * _quadratic_forms(moments), np.ascontiguousarray(moments.monomials.T)
    forms[:, 0] += constants
    entries = parts.own_entries()
    own, best, mixture = np.empty((3, *parts.cluster.shape))
    for run, clusters in enumerate(parts.runs):  # one after the other, since a small table stays in the cache
        table = forms[clusters] @ monomials
        np.minimum(table, constants[clusters, None], out=table)  # squared distances are not negative
        own[run] = table.ravel()[entries[run]]
        table.max(axis=0, out=best[run])
        table -= best[run]
        np.exp(table, out=table)
        table.sum(axis=0, out=mixture[run])
    return own, best, best + np.log(mixture)


def _quadratic_forms(moments: ClusterMoments) -> Float[Floats, "C J"]:
    """Return the coefficients of the squared Mahalanobis distance from each cluster, for each monomial."""
    inverses = np.linalg.inv(moments.covariances).astype(np.float64, copy=False)
    upper = np.triu_indices(moments.rows.shape[1])
    pulled = np.einsum("cij,cj->ci", inverses, moments.means)
    doubled = np.where(upper[0] == upper[1], 1.0, 2.0) * inverses[:, upper[0], upper[1]]
    constant = np.einsum("ci,ci->c", pulled, moments.means)
    return np.hstack([constant[:, None], -2.0 * pulled, doubled])


def _axis_aligned_gain(geometry: Geometry, parts: Partitions) -> Floats:
    """Return the BIC gain per row and axis of Gaussians aligned with the principal axes."""
    rows, axes = geometry.components, geometry.components.shape[1]
    sizes = parts.sizes[:, None]
    sums = parts.vector_sums(np.hstack([rows, np.square(rows)]))
    noise = np.diagonal(geometry.discrete_noise)
    scatter = np.maximum(sums[:, axes:] - np.square(sums[:, :axes]) / sizes, 0.0) + sizes * noise
    total = np.square(rows).mean(axis=0) + noise + 1e-6
    pooled = (parts.sum(scatter) / parts.n_rows)[parts.owner] + 1e-6 * total
    variances = (scatter + 3.0 * pooled) / (sizes + 3.0)
    fit = -0.5 * np.log(variances / total).sum(axis=1) + np.log(parts.sizes / parts.n_rows)
    price = 0.5 * (parts.n_clusters - 1.0) * (2.0 * axes + 1.0) * np.log(parts.n_rows) / parts.n_rows
    gain: Floats = np.clip((parts.weighted_mean(fit) - price) / axes, -10.0, 10.0)
    return gain


_MAX_COLUMNS = 64  # of more, every second, third ... one is used
_TOP = 3
_MOSTLY = 0.5
_CHANCE = 3.0  # times the fraction that a random partition explains


def column_features(geometry: Geometry, parts: Partitions) -> Columns:
    """Fraction of each column's variance between clusters, and how it is distributed over the columns."""
    columns = geometry.unit_rows[:, :: -(-geometry.rows.shape[1] // _MAX_COLUMNS)]
    variance = np.square(columns).mean(axis=0)
    columns = columns[:, variance > 0.0] / np.sqrt(variance[variance > 0.0])
    if not columns.shape[1]:
        columns = np.zeros((len(columns), 1))
    between = parts.sum(np.square(parts.vector_sums(columns)) / parts.sizes[:, None]) / parts.n_rows
    chance = ((parts.n_clusters - 1.0) / max(parts.n_rows - 1.0, 1.0))[:, None]
    explained = np.clip((between - chance) / np.maximum(1.0 - chance, 1e-9), 0.0, 1.0)
    ordered = -np.sort(-explained, axis=1)
    total, squares = explained.sum(axis=1), np.square(explained).sum(axis=1)
    return {
        "column_best": ordered[:, 0],
        "column_top_3": ordered[:, :_TOP].mean(axis=1),
        "column_median": np.median(explained, axis=1),
        "columns_mattering": np.square(total) / np.maximum(squares, 1e-12) / explained.shape[1],
        "columns_mostly_explained": (explained > _MOSTLY).mean(axis=1),
        "columns_idle": (between < _CHANCE * chance).mean(axis=1),
    }


_REACH, _BINS = 2.5, 25  # of the histograms, in standard deviations; 0 and 1 are in the middle of bins
_AXES = 2
_NORMAL = 2.0 / np.pi  # fraction of the variance of a Gaussian that a cut at its mean explains


def shape_features(parts: Partitions, moments: ClusterMoments) -> Columns:
    """Gaps, bimodality, valleys and skewness of each cluster along its own two longest axes."""
    chosen, same = parts.distinct, parts.same
    spreads, axes = np.linalg.eigh(moments.scatters[chosen] / parts.sizes[chosen, None, None])
    members = Members.of(parts, chosen)
    means = moments.means[chosen]
    leading = range(min(_AXES, axes.shape[2]))
    found = [_along(members, moments.rows, means, axes[:, :, -1 - axis], spreads[:, -1 - axis]) for axis in leading]
    gap, halves, depth, significance, skewness = np.max(np.array(found), axis=0)[:, same]
    spreads = spreads[same]
    flatness = np.maximum(spreads[:, -1], 1e-9) / np.maximum(np.maximum(spreads, 0.0).sum(axis=1), 1e-9)
    return _high_is_bad(
        parts,
        "_mean",
        inner_gap=gap,
        inner_halves=halves,
        inner_valley=depth,
        inner_valley_significance=np.log1p(significance),
        inner_skewness=skewness,
        elongation=flatness,
    )


def _along(
    members: Members, rows: Floats, means: Floats, axis: Floats, variance: Floats
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return gap, variance explained by a cut, valley depth and significance, and skewness (U,) along an axis."""
    scaled = axis / np.sqrt(np.maximum(variance, 1e-18))[:, None]
    offset = np.einsum("uq,uq->u", scaled, means)
    # All rows are projected, and those of the cluster taken: that is faster than collecting them beforehand.
    values = (scaled @ rows.T).ravel()[members.cluster * len(rows) + members.row] - offset[members.cluster]
    values[(variance < 1e-12)[members.cluster]] = 0.0
    depth, significance = valleys(histograms(members.cluster, values, len(members.sizes), -_REACH, _REACH, _BINS))
    skewness = np.log1p(np.abs(np.add.reduceat(values * values * values, members.first) / members.sizes))
    gap, halves = _splits(members, values)
    return gap, halves, depth, significance, skewness


def _splits(members: Members, values: Floats) -> tuple[Floats, Floats]:
    """Return the largest gap, weighted by the fraction of rows beyond it, and the most variance that a cut explains."""
    wide = 1e3
    cluster, first = members.cluster, members.first
    # One sort serves all clusters: each has its own range of the real line.
    ordered = np.sort(np.clip(values, -0.4 * wide, 0.4 * wide) + wide * cluster)
    ordered -= wide * cluster
    size = members.sizes[cluster]
    before = np.arange(1, len(ordered) + 1) - first[cluster]  # rows up to and including this one
    inside = before < size
    running = np.cumsum(ordered)
    running = running - (running[first] - ordered[first])[cluster]
    after = np.maximum(size - before, 1.0)
    steps = np.diff(ordered, append=0.0)
    gaps = np.where(inside, steps * np.minimum(before, after) / size, 0.0)
    explained = np.where(inside, np.square(running) / (before * after), 0.0)
    largest = np.log1p(np.maximum.reduceat(gaps, first))
    halves = np.clip(np.maximum.reduceat(explained, first), 0.0, 1.0)
    # Few rows are always split well by some cut, so shrink their values.
    weight = members.sizes / (members.sizes + 10.0)
    return largest * weight, _NORMAL + (halves - _NORMAL) * weight


_RANK = 8
_LOW, _HIGH, _PAIR_BINS = -0.54, 1.54, 26  # the means, at 0 and 1, are well inside their bins
_MAX_COST = 10.0


def pair_features(geometry: Geometry, parts: Partitions, moments: ClusterMoments) -> Columns:
    """For each cluster and the one it touches most: the valley between them, and the cost of merging them."""
    partner = _partners(geometry, parts, moments)
    together = parts.sizes + parts.sizes[partner]
    apart = moments.means[partner] - moments.means
    between = (parts.sizes * parts.sizes[partner] / together)[:, None, None] * apart[:, :, None] * apart[:, None, :]
    within = moments.scatters + moments.scatters[partner]
    covariances = moments.shrink(within, together)
    direction = np.linalg.solve(covariances, apart[:, :, None])[:, :, 0].astype(np.float64, copy=False)
    separation = np.sqrt(np.maximum(np.einsum("cq,cq->c", direction, apart), 0.0))
    depth, significance = _valleys_between(parts, moments, partner, direction)
    merging = _merging_cost(parts, moments, partner, moments.shrink(within + between, together))
    alone = parts.n_clusters[parts.owner] < 2
    depth, significance, separation, merging = (
        np.where(alone, 0.0, values) for values in (depth, np.log1p(significance), safe_log(separation, 1e-2), merging)
    )
    return {
        **_low_is_bad(parts, "_rows", valley=depth, separation=separation, merging_cost=merging),
        **_low_is_bad(parts, "_mean", valley_significance=significance),
        "valley_mean": parts.mean(depth),
    }


def _partners(geometry: Geometry, parts: Partitions, moments: ClusterMoments) -> Integers:
    """Return the cluster (C,) with most neighbours across the border, or the nearest one if there are none."""
    widest = int(parts.n_clusters.max())
    position = parts.position
    cells = len(parts.sizes) * widest
    edges = np.zeros(cells)
    labels, begins = parts.labels_by_row(), np.ascontiguousarray(parts.cluster.T * widest)
    for rank in range(min(_RANK, geometry.unit_neighbours.shape[1])):
        other = labels[geometry.unit_neighbours[:, rank]]
        edges += np.bincount((begins + other).ravel(), minlength=cells)
    crossing = edges.reshape(-1, widest)
    padded = parts.padded(moments.means, np.inf)[parts.owner]  # (C, largest K, Q)
    padded -= moments.means[:, None, :]
    distance = np.sqrt(np.einsum("ckq,ckq->ck", padded, padded))
    # Incoming edges count too; one edge outweighs any distance.
    backward = parts.padded(crossing, 0.0)  # (R, K, K)
    score = crossing + backward.transpose(0, 2, 1)[parts.owner, position] + 0.5 / (1.0 + distance)
    score[np.isinf(distance)] = -np.inf
    score[np.arange(len(position)), position] = -1.0  # itself, only if there is no other
    chosen: Integers = parts.starts[parts.owner] + score.argmax(axis=1)
    return chosen


def _valleys_between(
    parts: Partitions, moments: ClusterMoments, partner: Integers, direction: Floats
) -> tuple[Floats, Floats]:
    """Return the valleys along the discriminant direction of each pair, the means at 0 and 1."""
    here = np.einsum("cq,cq->c", direction, moments.means)
    there = np.einsum("cq,cq->c", direction, moments.means[partner])
    width = np.maximum(there - here, 1e-9)
    positions = (direction / width[:, None]) @ moments.rows.T  # (C, N)
    counts = np.zeros((len(parts.sizes), _PAIR_BINS))
    alone = partner == np.arange(len(partner))  # where there is no other cluster
    for clusters in (np.arange(len(partner)), partner):
        members = Members.of(parts, clusters)
        entries = members.cluster * parts.n_rows + members.row
        values = positions.ravel()[entries] - (here / width)[members.cluster]
        counts += histograms(members.cluster, values, len(parts.sizes), _LOW, _HIGH, _PAIR_BINS)
    counts[alone] /= 2.0
    return valleys(counts)


def _merging_cost(parts: Partitions, moments: ClusterMoments, partner: Integers, merged: Floats) -> Floats:
    """Return the log-likelihood per row lost by one Gaussian for both, less the BIC price of the second."""
    axes = moments.rows.shape[1]
    sizes, others = parts.sizes, parts.sizes[partner]
    together = sizes + others
    single = moments.log_volumes
    fit = 0.5 * (together * log_determinants(merged) - sizes * single - others * single[partner])
    choice = sizes * np.log(sizes / together) + others * np.log(others / together)
    price = 0.5 * (1.0 + axes + axes * (axes + 1) / 2) * np.log(together)
    cost: Floats = np.clip((fit + choice - price) / together, -_MAX_COST, _MAX_COST)
    return cost
