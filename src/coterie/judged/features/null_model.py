"""Gap statistics: how much better clusters explain the rows than they would explain rows without clusters.

As in Tibshirani et al. (2001), with two null models instead of a box. One is a Gaussian with the covariance of the
rows. The other has the distribution of each column and the rank correlations of the rows: skewed, rounded and
heavy-tailed columns are no evidence of clusters. Letters: N rows, M rows of a null model, D features.
"""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from coterie.judged.candidates.kmeans import cluster_means, k_means_from_ward
from coterie.judged.features.partitions import Partitions
from coterie.judged.space import Floats, Geometry
from coterie.ops.ranks import rank_values

_NUMBERS = (2, 3, 4, 6, 8, 12, 20, 30)
_ROWS = 300  # of a null model: the variance left by k-means is about the same for more
_TOTAL_ROWS = 400  # small null models vary: several are averaged
_MIN_ROWS = 3  # per cluster
_SEED = 0  # null models are the same whenever the rows are
_MAX_GAP = 3.0
_BALANCED = 1e-6  # sum of cubes of an axis that is zero up to rounding


@final
@dataclass(frozen=True, slots=True, eq=False)
class GapCurves:
    """Log fraction of the variance that k-means leaves, by the number of clusters."""

    log_numbers: Float[Floats, " K"]
    rows: Float[Floats, " K"]
    normal: Float[Floats, " K"]  # under the Gaussian null model
    columns: Float[Floats, " K"]  # under the null model with the distributions of the columns

    @classmethod
    def compute(cls, geometry: Geometry) -> Self:
        """Run k-means on the rows and on samples of both null models."""
        n = len(geometry.rows)
        size = min(n, _ROWS)
        numbers = [k for k in _NUMBERS if k * _MIN_ROWS <= size]
        if not numbers or not geometry.unit_rows.any():
            zero = np.zeros(1)
            return cls(zero, zero, zero, zero)
        rng = np.random.default_rng(_SEED)
        samples = range(max(1, _TOTAL_ROWS // size))
        normal = [_log_variance_left(Geometry(_sample_normal(geometry, size, rng)), numbers) for _ in samples]
        columns = [_log_variance_left(Geometry(_sample_columns(geometry, size, rng)), numbers) for _ in samples]
        own = _log_variance_left(geometry, numbers)
        return cls(np.log(numbers), own, np.mean(normal, axis=0), np.mean(columns, axis=0))


def gap_statistics(curves: GapCurves, parts: Partitions, variance_left: Floats) -> dict[str, Floats | float]:
    """Compare the variance that each partition leaves with that of the null models for its number of clusters."""
    numbers, left = np.log(parts.n_clusters), np.log(np.maximum(variance_left, 1e-6))
    found: dict[str, Floats | float] = {}
    for name, curve in (("normal", curves.normal), ("columns", curves.columns)):
        gaps = np.clip(curve - curves.rows, -_MAX_GAP, _MAX_GAP)
        found[f"gap_{name}"] = np.clip(np.interp(numbers, curves.log_numbers, curve) - left, -_MAX_GAP, _MAX_GAP)
        found[f"gap_{name}_of_k_means"] = np.interp(numbers, curves.log_numbers, gaps)
        found[f"gap_{name}_of_two"] = float(gaps[0])
        found[f"gap_{name}_largest"] = float(gaps.max())
    return found


def _log_variance_left(geometry: Geometry, numbers: list[int]) -> Floats:
    """Return the log fraction of the variance within the clusters of k-means, for each number of clusters."""
    rows = geometry.unit_rows
    total = max(float(np.square(rows).sum()), 1e-12)
    left = []
    for k in numbers:
        labels = k_means_from_ward(geometry, k)
        names, inverse = np.unique(labels, return_inverse=True)
        means = cluster_means(rows, labels)
        between = float((np.bincount(inverse, minlength=len(names)) * np.square(means).sum(axis=1)).sum())
        left.append(1.0 - between / total)
    return np.log(np.maximum(left, 1e-6))


def _sample_normal(geometry: Geometry, size: int, rng: np.random.Generator) -> Float[Floats, "M D"]:
    """Sample rows from a Gaussian with the covariance of the rows, on their principal axes."""
    deviations = geometry.components.std(axis=0)
    sampled: Floats = rng.normal(size=(size, len(deviations))) * deviations
    return sampled


def _sample_columns(geometry: Geometry, size: int, rng: np.random.Generator) -> Float[Floats, "M D"]:
    """Sample rows with the distribution of each column and about the rank correlations of the rows.

    Categories of several features are sampled on their own.
    """
    rows = geometry.unit_rows
    n, d = rows.shape
    scores = ndtri((rank_values(rows) - 0.5) / n)
    deviations = scores.std(axis=0)
    scores = (scores - scores.mean(axis=0)) / np.where(deviations > 0.0, deviations, 1.0)
    # On principal axes, so that the order of rows and columns does not matter.
    variances, axes = np.linalg.eigh(scores.T @ scores / n)
    skewness = np.power(axes, 3).sum(axis=0)
    skewness = np.where(np.abs(skewness) > _BALANCED, skewness, axes[0])  # such as (1, -1): either sign would be chance
    axes = axes * np.where(skewness < 0.0, -1.0, 1.0)
    latent = (rng.normal(size=(size, d)) * np.sqrt(np.maximum(variances[::-1], 0.0))) @ axes[:, ::-1].T
    places = np.minimum((ndtr(latent) * n).astype(np.int64), n - 1)
    sampled: Floats = np.sort(rows, axis=0)[places, np.arange(d)]
    for features in geometry.discrete:
        if len(features) > 1:
            sampled[:, features] = rows[np.lexsort(rows[:, features].T)[rng.integers(n, size=size)]][:, features]
    return sampled
