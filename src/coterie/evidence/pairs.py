"""Evidence from pairs of neighbouring clusters: whether there is a pair that should be one."""

import numpy as np

from coterie.evidence.geometry import Geometry
from coterie.evidence.moments import Moments, log_determinants
from coterie.evidence.partitions import Integers, Partitions, Reals, safe_log
from coterie.evidence.valleys import histograms, valleys

_RANK = 8
_LOW, _HIGH, _BINS = -0.54, 1.54, 26  # the means, at 0 and 1, are well inside their bins
_CAP = 10.0


def pair_evidence(geometry: Geometry, parts: Partitions, moments: Moments) -> dict[str, Reals]:
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


def _partners(geometry: Geometry, parts: Partitions, moments: Moments) -> Integers:
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
    return valleys(histograms(cluster, positions, len(parts.sizes), _LOW, _HIGH, _BINS))


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
