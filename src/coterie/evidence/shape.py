"""Evidence from the inside of clusters: whether there is one that should be split."""

import numpy as np

from coterie.evidence.moments import Moments
from coterie.evidence.partitions import Partitions, Reals
from coterie.evidence.valleys import histograms, valleys

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
