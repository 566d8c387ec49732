"""Centre, scale and fill value of many numeric columns at once, safe for huge and odd values."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Within this many scales of the centre a value stays as it is; farther out its distance grows as a logarithm.
FAR = 5.0
# Only values that come after fitting can lie this far out; their squares must stay finite in float32.
_FARTHEST = 1e15
_ELEMENTS_AT_ONCE = 2**21
_WINSORISED_SHARE = 100
_FEWEST_TO_WINSORISE = 10
_CONSTANT = 10 * np.finfo(np.float64).eps


@final
@dataclass(frozen=True, eq=False)
class NumberSummary:
    """What a scaler needs to know of each column; values that are not finite count as missing."""

    present: Counts
    constant: Flags
    median: Floats
    centre: Floats
    scale: Floats
    far: Counts
    largest: Floats


def summarise(block: npt.NDArray[Any], winsorised: Flags) -> NumberSummary:
    """Summarise every column of a 2-D block, a few columns at a time so that copies stay small.

    Where `winsorised`, the g = max(1, n // 100) smallest and largest values are first moved to their
    nearest neighbour among the rest (from 10 values on), and `far` counts what lies over 5 scales out.
    """
    n_rows, n_columns = block.shape
    width = max(1, _ELEMENTS_AT_ONCE // n_rows)
    parts = [
        _summarise_few(block[:, start : start + width], winsorised[start : start + width])
        for start in range(0, max(1, n_columns), width)
    ]
    return NumberSummary(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))


def _summarise_few(block: npt.NDArray[Any], winsorised: Flags) -> tuple[npt.NDArray[Any], ...]:
    ordered = np.array(block.T, dtype=np.float64, order="C")
    missing = ~np.isfinite(ordered)
    n = ordered.shape[1]
    present = n - missing.sum(axis=1)
    if missing.any():
        ordered[missing] = np.nan
        ordered[present == 0] = 0.0
    ordered.sort(axis=1)  # missing values end up last
    count = np.where(present == 0, n, present)
    row = np.arange(len(ordered))

    # A power of two takes each column near [-2, 2] without rounding, so that no square overflows.
    largest = np.maximum(np.abs(ordered[:, 0]), np.abs(ordered[row, count - 1]))
    unit = np.ldexp(1.0, np.clip(np.frexp(largest)[1] - 1, -1000, 1000))
    ordered /= unit[:, None]
    lowest, highest = ordered[:, 0], ordered[row, count - 1]
    constant = highest - lowest <= _CONSTANT * np.maximum(np.abs(lowest), np.abs(highest))
    median = 0.5 * (ordered[row, (count - 1) // 2] + ordered[row, count // 2])

    centre, spread = _mean_and_spread(ordered, count)
    far = np.zeros(len(ordered), dtype=np.int64)
    if winsorised.any():
        cut = np.where(count >= _FEWEST_TO_WINSORISE, np.maximum(1, count // _WINSORISED_SHARE), 0)
        tamed = np.clip(ordered, ordered[row, cut][:, None], ordered[row, count - 1 - cut][:, None])
        tamed_centre, tamed_spread = _mean_and_spread(tamed, count)
        centre = np.where(winsorised, tamed_centre, centre)
        usable = winsorised & (tamed_spread >= 1e-3 * spread) & (tamed_spread > 0)
        spread = np.where(usable, tamed_spread, spread)
        farthest = np.maximum(np.abs(lowest - centre), np.abs(highest - centre))
        reaches_far = np.flatnonzero(winsorised & ~constant & (farthest > FAR * spread))
        distance = np.abs(ordered[reaches_far] - centre[reaches_far, None])
        far[reaches_far] = (distance > FAR * spread[reaches_far, None]).sum(axis=1)
    scale = spread * unit
    scale = np.where(constant | (scale < 4 * np.finfo(np.float64).tiny), 1.0, scale)
    return present, constant, median * unit, np.where(constant, median, centre) * unit, scale, far, largest


def _mean_and_spread(ordered: Floats, count: Counts) -> tuple[Floats, Floats]:
    """Return mean and population standard deviation of each row's first `count` values."""
    if (count == ordered.shape[1]).all():
        mean = ordered.mean(axis=1)
        deviation = ordered - mean[:, None]
    else:
        exists = np.arange(ordered.shape[1]) < count[:, None]
        mean = ordered.mean(axis=1, where=exists)
        deviation = np.where(exists, ordered - mean[:, None], 0.0)
    return mean, np.sqrt(np.einsum("ij,ij->i", deviation, deviation) / count)


def scaled_rows(
    block: npt.NDArray[Any], fill: Floats, centre: Floats, scale: Floats, compressed: Flags
) -> Iterator[tuple[slice, Floats]]:
    """Yield slices of rows with their scaled values; what is not finite becomes the column's `fill` first."""
    n_rows, n_columns = block.shape
    step = max(1, _ELEMENTS_AT_ONCE // (8 * max(1, n_columns)))
    half_centre, half_scale = 0.5 * centre, 0.5 * scale
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        z = block[rows].astype(np.float64)
        missing = ~np.isfinite(z)
        if missing.any():
            z = np.where(missing, fill, z)
        # Halves, since the difference of two huge values of opposite sign overflows.
        z *= 0.5
        z -= half_centre
        with np.errstate(over="ignore"):
            z /= half_scale
        yield rows, compress(z, compressed)


def compress(z: Floats, compressed: Flags) -> Floats:
    """Draw in what lies beyond 5, where `compressed`: sign(z) (5 + log(1 + |z| - 5))."""
    distance = np.minimum(np.abs(z), np.finfo(np.float64).max)
    far = distance > FAR
    far &= compressed
    if far.any():
        z = np.where(far, np.copysign(FAR + np.log1p(np.where(far, distance - FAR, 0.0)), z), z)
    return z


def expand(z: Floats, compressed: Flags) -> Floats:
    """Undo `compress`."""
    distance = np.abs(z)
    far = (distance > FAR) & compressed
    return np.where(far, np.copysign(FAR + np.expm1(np.where(far, distance - FAR, 0.0)), z), z)


def limit(z: Floats) -> Floats:
    """Keep values that came after fitting within what float32 arithmetic can square."""
    return np.clip(z, -_FARTHEST, _FARTHEST)
