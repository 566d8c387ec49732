"""Evidence from distances to clusters and to their centres: the classical indices."""

import numpy as np
from scipy.ndimage import convolve1d

from coterie.judged.features.partitions import Integers, Moments, Partitions, Reals, Singles, log_determinants, safe_log
from coterie.judged.space import Space

_KERNEL = np.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16.0
_NOISE = float(np.square(_KERNEL).sum())  # variance of a smoothed count, as a share of the count


def valleys(counts: Reals) -> tuple[Reals, Reals]:
    """Depth in [0, 1] and significance of the clearest valley of each histogram (C, B).

    The valley is where the count falls most, in standard errors, below the lower of the highest peaks on its two sides.
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
    # Some dip is always found: what is within chance counts as shallow.
    return depth * np.square(significance) / (np.square(significance) + 4.0), significance


def histograms(group: Integers, values: Reals, groups: int, low: float, high: float, bins: int) -> Reals:
    """Histogram (C, B) of the values of each group; what lies outside the range falls into the outer bins."""
    position = np.clip(((values - low) * (bins / (high - low))).astype(np.intp), 0, bins - 1)
    return np.bincount(group * bins + position, minlength=groups * bins).reshape(groups, bins).astype(np.float64)


_TINY = np.finfo(np.float32).tiny


def separation_evidence(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    """Silhouettes, Calinski-Harabasz, Davies-Bouldin, variance left over, and agreement with the nearest centre."""
    return {**_silhouettes(geometry, parts), **_centres(geometry, parts)}


def _silhouettes(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    sums: Singles = parts.one_hot() @ geometry.distances  # (C, N)
    sizes = parts.sizes.astype(np.float32)
    own_size = sizes[parts.cluster]
    within = parts.own(sums) / np.maximum(own_size - 1.0, 1.0)
    sums /= sizes[:, None]
    sums[parts.cluster, np.arange(parts.n_rows)] = np.inf
    between = parts.least(sums)
    defined = (own_size > 1.0) & np.isfinite(between)
    between = np.where(defined, between, within)
    values = np.where(defined, (between - within) / np.maximum(np.maximum(within, between), _TINY), 0.0)
    means = parts.means(values)
    return {
        "silhouette": values.mean(axis=1),
        "silhouette_worst": parts.least(means),
        "silhouette_median": parts.median(means),
        "silhouette_notable": parts.least_notable(means),
        "silhouette_negative": (values < 0.0).mean(axis=1),
    }


def _centres(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    rows, count = parts.n_rows, parts.n_clusters
    centres = parts.sums(geometry.rows) / parts.sizes[:, None]
    lengths = np.einsum("cd,cd->c", centres, centres)
    scatter = np.maximum(parts.totals(geometry.squares) - parts.sizes * lengths, 0.0)
    total = max(float(geometry.squares.sum()), float(_TINY))
    left = np.clip(parts.total(scatter) / total, 0.0, 1.0)
    ratio = (1.0 - left) * np.maximum(rows - count, 1.0) / (np.maximum(left, 1e-9) * np.maximum(count - 1.0, 1.0))

    squared = np.maximum(geometry.squares + lengths[:, None] - 2.0 * (centres @ geometry.rows.T), 0.0)
    own = parts.own(squared)
    nearest = own <= parts.least(squared) * (1.0 + 1e-9) + 1e-12
    radii = parts.means(np.sqrt(own))
    similarity = _most_similar(parts, centres, radii)
    return {
        "log_calinski_harabasz": np.where(count > 1, safe_log(ratio), 0.0),
        "log_davies_bouldin": np.where(count > 1, safe_log(parts.mean(similarity), 1e-3, 1e3), 0.0),
        "log_davies_bouldin_worst": np.where(count > 1, safe_log(parts.most(similarity), 1e-3, 1e3), 0.0),
        "variance_left": left,
        # Cutting an even cloud of d dimensions into k pieces leaves about k^(-2/d) of its variance.
        "log_left_to_uniform": safe_log(left) + 2.0 / geometry.dimension * np.log(count),
        "nearest_centre": nearest.mean(axis=1),
        "nearest_centre_worst": parts.least(parts.means(nearest)),
        "spherical_gain": _spherical_gain(geometry, parts, left),
        "log_radius_ratio": safe_log(parts.most(radii) / np.maximum(parts.median(radii), 1e-6), 1.0, 1e3),
    }


def _most_similar(parts: Partitions, centres: Reals, radii: Reals) -> Reals:
    """Davies and Bouldin's similarity (C,) of each cluster to the one it is most like."""
    padded, spread = parts.padded(centres, 0.0), parts.padded(radii, -np.inf)
    squares = np.einsum("rkd,rkd->rk", padded, padded)
    apart = squares[:, :, None] + squares[:, None, :] - 2.0 * (padded @ padded.transpose(0, 2, 1))
    apart = np.sqrt(np.maximum(apart, 1e-12))
    similar = (spread[:, :, None] + spread[:, None, :]) / apart
    similar[:, np.arange(similar.shape[1]), np.arange(similar.shape[1])] = -np.inf
    most: Reals = np.maximum(similar.max(axis=2)[parts.owner, parts.place], 0.0)
    return most


def _spherical_gain(geometry: Space, parts: Partitions, left: Reals) -> Reals:
    """Gain per row and column of equal round normal clusters over one, less the price of their parameters (BIC)."""
    rows, columns = parts.n_rows, float(geometry.rows.shape[1])
    share = parts.sizes / rows
    fit = -0.5 * columns * safe_log(left * rows / np.maximum(rows - parts.n_clusters, 1.0))
    price = 0.5 * (parts.n_clusters - 1.0) * (columns + 1.0) * np.log(rows) / rows
    gain: Reals = (parts.total(share * np.log(share)) + fit - price) / columns
    return gain


def normality_evidence(geometry: Space, parts: Partitions, moments: Moments) -> dict[str, Reals]:
    """How well normal clouds explain the rows, at the price of their parameters, and whether they return the labels."""
    axes = moments.rows.shape[1]
    covariances = moments.covariances(moments.scatters, parts.sizes)
    determinants = log_determinants(covariances)
    inverses = np.linalg.inv(covariances).astype(np.float64, copy=False)
    distances = _mahalanobis(moments, inverses)  # (C, N)
    own_distance = parts.own(distances)
    constants = np.log(parts.sizes / parts.n_rows) - 0.5 * determinants
    distances *= -0.5
    distances += constants[:, None]  # log-likelihoods now, but for a constant that all share
    own, best = parts.own(distances), parts.most(distances)
    distances -= best[parts.owner]
    np.exp(distances, out=distances)
    mixture = best + np.log(parts.total(distances))

    single = np.cov(moments.rows.T, bias=True).reshape(axes, axes) + 1e-6 * np.eye(axes)
    alone = -0.5 * (log_determinants(single[None])[0] + axes)
    gain = mixture.mean(axis=1) - alone
    hard = own.mean(axis=1) - alone
    parameters = (parts.n_clusters - 1.0) * (1.0 + axes + axes * (axes + 1) / 2)
    price = 0.5 * parameters * np.log(parts.n_rows) / parts.n_rows
    certainty = np.exp(own - mixture)
    returned = own >= best - 1e-9
    kurtosis = parts.means(np.square(own_distance)) / (axes * (axes + 2.0)) - 1.0
    return {
        "normal_gain": gain / axes,
        "normal_gain_hard": hard / axes,
        "normal_bic": np.clip((gain - price) / axes, -10.0, 10.0),
        "normal_returns": returned.mean(axis=1),
        "normal_returns_worst": parts.least(parts.means(returned)),
        "normal_certainty": certainty.mean(axis=1),
        "normal_certainty_worst": parts.least(parts.means(certainty)),
        "kurtosis_mean": np.clip(parts.weighted(kurtosis), -1.0, 10.0),
        "kurtosis_most": np.log1p(np.maximum(parts.most(kurtosis), -0.9)),
        "axis_aligned_gain": _axis_aligned_gain(geometry, parts),
    }


def _mahalanobis(moments: Moments, inverses: Reals) -> Reals:
    """Squared distances (C, N) of all rows from all clouds, as one matrix product over monomials."""
    axes = moments.rows.shape[1]
    upper = np.triu_indices(axes)
    pulled = np.einsum("cij,cj->ci", inverses, moments.means)
    doubled = np.where(upper[0] == upper[1], 1.0, 2.0) * inverses[:, upper[0], upper[1]]
    constant = np.einsum("ci,ci->c", pulled, moments.means)
    forms = np.hstack([constant[:, None], -2.0 * pulled, doubled])
    squared: Reals = np.maximum(forms @ moments.monomials.T, 0.0)
    return squared


def _axis_aligned_gain(geometry: Space, parts: Partitions) -> Reals:
    """BIC gain per row and axis of clouds whose axes are those of all rows."""
    rows, axes = geometry.rows, geometry.rows.shape[1]
    sizes = parts.sizes[:, None]
    sums = parts.sums(np.hstack([rows, np.square(rows)]))
    scatter = np.maximum(sums[:, axes:] - np.square(sums[:, :axes]) / sizes, 0.0)
    total = np.square(rows).mean(axis=0) + 1e-6
    pooled = (parts.total(scatter) / parts.n_rows)[parts.owner] + 1e-6 * total
    variances = (scatter + 3.0 * pooled) / (sizes + 3.0)
    fit = -0.5 * np.log(variances / total).sum(axis=1) + np.log(parts.sizes / parts.n_rows)
    price = 0.5 * (parts.n_clusters - 1.0) * (2.0 * axes + 1.0) * np.log(parts.n_rows) / parts.n_rows
    gain: Reals = np.clip((parts.weighted(fit) - price) / axes, -10.0, 10.0)
    return gain


_MOST_COLUMNS = 64  # of more, every second, third ... one is looked at
_TOP = 3
_MOSTLY = 0.5
_CHANCE = 3.0  # times the share that a partition by chance would explain


def column_evidence(geometry: Space, parts: Partitions) -> dict[str, Reals]:
    """How much of each column's variance lies between clusters, and how that is spread over the columns."""
    columns = geometry.columns[:, :: -(-geometry.n_columns // _MOST_COLUMNS)]
    variance = np.square(columns).mean(axis=0)
    columns = columns[:, variance > 0.0] / np.sqrt(variance[variance > 0.0])
    if not columns.shape[1]:
        columns = np.zeros((len(columns), 1))
    between = parts.total(np.square(parts.sums(columns)) / parts.sizes[:, None]) / parts.n_rows
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
_NORMAL = 2.0 / np.pi  # of the variance of a normal cloud, what a cut at its mean explains


def shape_evidence(parts: Partitions, moments: Moments) -> dict[str, Reals]:
    """Gaps, two-sidedness, valleys and skewness of each cluster along its own two longest axes."""
    spreads, axes = np.linalg.eigh(moments.scatters / parts.sizes[:, None, None])
    leading = range(min(_AXES, axes.shape[2]))
    found = [_along(parts, moments, axes[:, :, -1 - axis], spreads[:, -1 - axis]) for axis in leading]
    gap, halves, depth, significance, skewness = np.max(np.array(found), axis=0)
    flatness = np.maximum(spreads[:, -1], 1e-9) / np.maximum(np.maximum(spreads, 0.0).sum(axis=1), 1e-9)
    significance = np.log1p(significance)
    return {
        "inner_gap_mean": parts.weighted(gap),
        "inner_gap_worst": parts.most(gap),
        "inner_halves_mean": parts.weighted(halves),
        "inner_halves_worst": parts.most(halves),
        "inner_valley_mean": parts.weighted(depth),
        "inner_valley_worst": parts.most(depth),
        "inner_valley_significance_mean": parts.weighted(significance),
        "inner_valley_significance_worst": parts.most(significance),
        "inner_skewness_mean": parts.weighted(skewness),
        "elongation_mean": parts.weighted(flatness),
    }


def _along(parts: Partitions, moments: Moments, axis: Reals, variance: Reals) -> tuple[Reals, ...]:
    """Five numbers (C,) of the rows of each cluster along one axis (C, Q) of its own."""
    deviation = np.sqrt(np.maximum(variance, 1e-18))
    offset = np.einsum("cq,cq->c", axis, moments.means)
    values = parts.own((axis / deviation[:, None]) @ moments.rows.T) - (offset / deviation)[parts.cluster]
    values[np.broadcast_to((variance < 1e-12)[parts.cluster], values.shape)] = 0.0
    depth, significance = valleys(
        histograms(parts.cluster.ravel(), values.ravel(), len(parts.sizes), -_REACH, _REACH, _BINS)
    )
    skewness = np.log1p(np.abs(parts.means(values**3)))
    gap, halves = _splits(parts, values)
    return gap, halves, depth, significance, skewness


def _splits(parts: Partitions, values: Reals) -> tuple[Reals, Reals]:
    """Largest gap, weighed by the share of rows beyond it, and largest share of variance that one cut explains."""
    wide = 1e3
    # One sort serves all clusters: each has its own range of the real line.
    ordered = np.sort((np.clip(values, -0.4 * wide, 0.4 * wide) + wide * parts.cluster).ravel())
    cluster = np.repeat(np.arange(len(parts.sizes)), parts.sizes.astype(np.intp))
    ordered -= wide * cluster
    first = np.concatenate([[0], np.cumsum(parts.sizes)[:-1]]).astype(np.intp)
    size = parts.sizes[cluster]
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
    # Few rows are always split well by some cut: they say little.
    weight = parts.sizes / (parts.sizes + 10.0)
    return largest * weight, _NORMAL + (halves - _NORMAL) * weight


_RANK = 8
_LOW, _HIGH, _PAIR_BINS = -0.54, 1.54, 26  # the means, at 0 and 1, are well inside their bins
_CAP = 10.0


def pair_evidence(geometry: Space, parts: Partitions, moments: Moments) -> dict[str, Reals]:
    """For each cluster and the one it touches most: the valley between them, and what merging them would cost."""
    partner = _partners(geometry, parts, moments)
    together = parts.sizes + parts.sizes[partner]
    apart = moments.means[partner] - moments.means
    between = (parts.sizes * parts.sizes[partner] / together)[:, None, None] * apart[:, :, None] * apart[:, None, :]
    within = moments.scatters + moments.scatters[partner]
    covariances = moments.covariances(within, together)
    direction = np.linalg.solve(covariances, apart[:, :, None])[:, :, 0].astype(np.float64, copy=False)
    separation = np.sqrt(np.maximum(np.einsum("cq,cq->c", direction, apart), 0.0))
    depth, significance = _valleys_between(parts, moments, partner, direction)
    merging = _merging_cost(parts, moments, partner, moments.covariances(within + between, together))
    alone = parts.n_clusters[parts.owner] < 2
    depth, significance, separation, merging = (
        np.where(alone, 0.0, values) for values in (depth, np.log1p(significance), safe_log(separation, 1e-2), merging)
    )
    return {
        "valley_rows": parts.weighted(depth),
        "valley_significance_notable": parts.least_notable(significance),
        "separation_rows": parts.weighted(separation),
        "merging_cost_rows": parts.weighted(merging),
        "merging_cost_notable": parts.least_notable(merging),
        "valley_mean": parts.mean(depth),
        "valley_worst": parts.least(depth),
        "valley_median": parts.median(depth),
        "valley_significance_mean": parts.weighted(significance),
        "valley_significance_worst": parts.least(significance),
        "valley_significance_median": parts.median(significance),
        "separation_worst": parts.least(separation),
        "separation_median": parts.median(separation),
        "merging_cost_worst": parts.least(merging),
        "merging_cost_median": parts.median(merging),
    }


def _partners(geometry: Space, parts: Partitions, moments: Moments) -> Integers:
    """Cluster (C,) with most neighbours across the border, or the nearest one where nothing crosses it."""
    widest = int(parts.n_clusters.max())
    place = parts.place
    cells = len(parts.sizes) * widest
    arrows = np.zeros(cells)
    for rank in range(min(_RANK, geometry.neighbours.shape[1])):
        other = place[parts.cluster[:, geometry.neighbours[:, rank]]]
        arrows += np.bincount((parts.cluster * widest + other).ravel(), minlength=cells)
    crossing = arrows.reshape(-1, widest)
    padded = parts.padded(moments.means, np.inf)[parts.owner]  # (C, largest K, Q)
    padded -= moments.means[:, None, :]
    distance = np.sqrt(np.einsum("ckq,ckq->ck", padded, padded))
    # The arrows that arrive count too; one arrow outweighs any distance.
    backward = parts.padded(crossing, 0.0)  # (R, K, K)
    score = crossing + backward.transpose(0, 2, 1)[parts.owner, place] + 0.5 / (1.0 + distance)
    score[np.isinf(distance)] = -np.inf
    score[np.arange(len(place)), place] = -1.0  # itself, only if there is no other
    chosen: Integers = parts.starts[parts.owner] + score.argmax(axis=1)
    return chosen


def _valleys_between(parts: Partitions, moments: Moments, partner: Integers, direction: Reals) -> tuple[Reals, Reals]:
    """Valley along the direction that best tells the two apart, the means at 0 and 1."""
    here = np.einsum("cq,cq->c", direction, moments.means)
    there = np.einsum("cq,cq->c", direction, moments.means[partner])
    width = np.maximum(there - here, 1e-9)
    one_hot = parts.one_hot() > 0.0
    cluster, row = np.nonzero(one_hot | one_hot[partner])
    positions = ((direction / width[:, None]) @ moments.rows.T - (here / width)[:, None])[cluster, row]
    return valleys(histograms(cluster, positions, len(parts.sizes), _LOW, _HIGH, _PAIR_BINS))


def _merging_cost(parts: Partitions, moments: Moments, partner: Integers, merged: Reals) -> Reals:
    """Log-likelihood per row that one normal cloud for both would lose, less the parameters that it would save."""
    axes = moments.rows.shape[1]
    sizes, others = parts.sizes, parts.sizes[partner]
    together = sizes + others
    single = log_determinants(moments.covariances(moments.scatters, sizes))
    fit = 0.5 * (together * log_determinants(merged) - sizes * single - others * single[partner])
    choice = sizes * np.log(sizes / together) + others * np.log(others / together)
    price = 0.5 * (1.0 + axes + axes * (axes + 1) / 2) * np.log(together)
    cost: Reals = np.clip((fit + choice - price) / together, -_CAP, _CAP)
    return cost
