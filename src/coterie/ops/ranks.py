"""Ranks of values, and evenly spread points. ``scipy.stats`` has both, but its import takes as long as a small fit."""

from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

Floats = npt.NDArray[np.float64]


def rank_values(values: Float[npt.NDArray[np.floating[Any]], "N D"]) -> Float[Floats, "N D"]:
    """Rank the values of each column from 1; equal values have their mean rank, and a column with a NaN only NaN."""
    order = values.argsort(axis=0)
    ascending = np.take_along_axis(values, order, axis=0)
    differs = ascending[1:] != ascending[:-1]
    edge = np.ones((min(1, len(values)), values.shape[1]), dtype=np.bool_)
    place = np.arange(len(values))[:, None]
    # The first and the last place of the equal values that each place is among.
    first = np.maximum.accumulate(np.where(np.vstack([edge, differs]), place, 0), axis=0)
    last = np.where(np.vstack([differs, edge]), place, len(values))[::-1]
    last = np.minimum.accumulate(last, axis=0)[::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, 0.5 * (first + last) + 1.0, axis=0)
    ranks[:, np.isnan(ascending[-1:]).any(axis=0)] = np.nan  # NaN sorts last
    return ranks


def halton_points(count: int, dimensions: int) -> Float[Floats, "N D"]:
    """Return the first points of the Halton sequence in the unit cube; the very first is the corner at zero."""
    points = np.zeros((count, dimensions))
    for column, base in enumerate(_first_primes(dimensions)):
        # The digits of the number of a point, mirrored at the point.
        left, weight = np.arange(count), 1.0 / base
        while left.any():
            points[:, column] += (left % base) * weight
            left //= base
            weight /= base
    return points


def _first_primes(count: int) -> list[int]:
    primes: list[int] = []
    number = 2
    while len(primes) < count:
        if all(number % prime for prime in primes):
            primes.append(number)
        number += 1
    return primes
