"""Valleys in histograms: dips between two peaks, and whether they are more than chance."""

import numpy as np
from scipy.ndimage import convolve1d

from coterie.evidence.partitions import Integers, Reals

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
