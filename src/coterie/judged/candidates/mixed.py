"""Mixtures for tables of numbers and categories: Gaussian for continuous columns, multinomial for discrete ones.

All columns are independent within a cluster, as in latent class analysis. A discrete column that has nothing to do with
the others gains nothing by being split, so it does not attract clusters.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, Self, final

import numpy as np
from jaxtyping import Float

from coterie.judged.candidates.kmeans import GaussianMoments, has_enough_rows, k_means_from_ward, maximise_likelihood
from coterie.judged.space import Floats, Geometry, Integers, Labels

_PRIOR_ROWS = 2.0  # weight of the overall proportions of levels in those of a cluster, in rows


@final
class LevelIndicators:
    """Recognises the levels of discrete columns from the features of a view, and indicates them.

    The level of a row is the nearest of the combinations of features that occurred: the one with the largest
    x . p - |p|^2 / 2, which is linear in x.
    """

    ARRAYS: Final = ("slopes", "offsets", "column", "continuous")

    def __init__(self, slopes: Floats, offsets: Floats, column: Integers, continuous: Integers) -> None:
        self.slopes = slopes  # (D, L): combinations of the features of each level
        self.offsets = offsets  # (L,)
        self.column = column  # (L,): the column of each level, ascending from 0
        self.continuous = continuous  # (C,): positions of the other features

    @classmethod
    def fit(cls, geometry: Geometry) -> Self:
        """Learn the levels of the discrete columns of a geometry."""
        rows, slopes, column = geometry.rows, [], []
        rest = np.ones(rows.shape[1], dtype=np.bool_)
        for number, features in enumerate(geometry.discrete):
            patterns = np.unique(rows[:, features], axis=0)
            block = np.zeros((rows.shape[1], len(patterns)))
            block[features] = patterns.T
            slopes.append(block)
            column.append(np.full(len(patterns), number))
            rest[features] = False
        joined = np.hstack(slopes)
        return cls(joined, -0.5 * np.square(joined).sum(axis=0), np.concatenate(column), np.flatnonzero(rest))

    def transform(self, rows: Float[Floats, "N D"]) -> Float[Floats, "N L"]:
        """Return one for the level of each column, zero for its others."""
        nearness = rows @ self.slopes + self.offsets
        indicators = np.zeros_like(nearness)
        starts = np.searchsorted(self.column, np.arange(self.column[-1] + 2))
        every = np.arange(len(rows))
        for start, stop in pairwise(starts.tolist()):
            indicators[every, start + nearness[:, start:stop].argmax(axis=1)] = 1.0
        return indicators


@final
class MixedMoments:
    """Rows as a design in which the log density of every component is linear."""

    def __init__(self, rows: Floats, levels: LevelIndicators) -> None:
        self.indicators = levels.transform(rows)
        self.gaussian = GaussianMoments(rows[:, levels.continuous], "diagonal") if len(levels.continuous) else None
        continuous = np.ones((len(rows), 1)) if self.gaussian is None else self.gaussian.design
        self.design = np.hstack([continuous, self.indicators])
        self.overall = self.indicators.mean(axis=0)

    @property
    def centre(self) -> Floats:
        """What is subtracted from continuous features."""
        return np.empty(0) if self.gaussian is None else self.gaussian.centre

    def coefficients(self, responsibilities: Floats) -> Floats:
        """Return the coefficients (P, K) of each component's log joint density, up to a constant."""
        sizes = responsibilities.sum(axis=0)
        if self.gaussian is None:
            continuous = np.log(np.maximum(sizes, 1e-9))[None]
        else:
            continuous = self.gaussian.coefficients(responsibilities)
        counts = self.indicators.T @ responsibilities + _PRIOR_ROWS * self.overall[:, None]
        return np.vstack([continuous, np.log(np.maximum(counts / (sizes + _PRIOR_ROWS), 1e-12))])


def mixed_design(rows: Floats, levels: LevelIndicators, centre: Floats) -> Floats:
    """Return the design of any rows, as in ``MixedMoments``."""
    centred = rows[:, levels.continuous] - centre
    return np.hstack([np.ones((len(rows), 1)), centred, np.square(centred), levels.transform(rows)])


def mixed_mixture(geometry: Geometry, ks: Sequence[int], *, steps: int) -> Iterator[Labels]:
    """Fit a mixture for mixed columns by EM from the clusters of k-means; nothing if no column is discrete."""
    if not geometry.discrete:
        return
    moments = MixedMoments(geometry.rows, LevelIndicators.fit(geometry))
    n, d = moments.design.shape
    starts = (k_means_from_ward(geometry, k) for k in ks if has_enough_rows(n, d, k, "diagonal"))
    yield from maximise_likelihood(moments, starts, steps)
