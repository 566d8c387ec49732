"""Means and covariances of all clusters on the leading principal axes, shrunk so that tiny clusters have them too."""

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Partitions, Reals

MOST_AXES = 10
_RIDGE = 1e-6


@final
@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Normal clouds, one per cluster, in Q dimensions."""

    rows: Float[Reals, "N Q"]
    """Rows on these axes."""
    monomials: Float[Reals, "N J"]
    """One, each coordinate, and each product of two: what a quadratic form is linear in."""
    means: Float[Reals, "C Q"]
    """Centres."""
    scatters: Float[Reals, "C Q Q"]
    """Sums of the outer products of the rows about their centres."""
    pooled: Float[Reals, "C Q Q"]
    """Covariance within the clusters of the partition that each cluster is of: what scatters are shrunk to."""
    strength: float
    """How many rows the pooled covariance counts for."""

    @classmethod
    def of(cls, geometry: Geometry, parts: Partitions) -> "Moments":
        """Moments of every cluster."""
        rows = geometry.rows[:, :MOST_AXES]
        axes = rows.shape[1]
        upper = np.triu_indices(axes)
        monomials = np.hstack([np.ones((len(rows), 1)), rows, rows[:, upper[0]] * rows[:, upper[1]]])
        sums = parts.sums(monomials[:, 1:])
        means = sums[:, :axes] / parts.sizes[:, None]
        scatters = np.empty((len(means), axes, axes))
        scatters[:, upper[0], upper[1]] = sums[:, axes:]
        scatters[:, upper[1], upper[0]] = sums[:, axes:]
        scatters -= parts.sizes[:, None, None] * means[:, :, None] * means[:, None, :]
        pooled = parts.total(scatters) / parts.n_rows + _RIDGE * np.eye(axes)
        return cls(rows, monomials, means, scatters, pooled[parts.owner], axes + 2.0)

    def covariances(self, scatters: Reals, sizes: Reals) -> Reals:
        """Covariances (C, Q, Q) of clusters of these scatters and sizes."""
        shrunk: Reals = (scatters + self.strength * self.pooled) / (sizes + self.strength)[:, None, None]
        return shrunk


def log_determinants(covariances: Reals) -> Reals:
    """Logarithms of determinants (C,), never below those of a vanishing cloud."""
    values = np.linalg.slogdet(covariances)[1]
    logs: Reals = np.maximum(values, covariances.shape[-1] * np.log(_RIDGE) * 1.5)
    return logs
