"""Many partitions of the same rows, laid end to end, so that one call works on the clusters of all of them.

Letters, beside those used everywhere: R partitions, C clusters of all partitions together.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from scipy.sparse import csr_array

from coterie.errors import InputError
from coterie.judged.space import Integers, Reals, Singles, Space

Labels = npt.NDArray[np.integer[Any]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """R partitions of N rows; the clusters of the first come first, then those of the second, and so on."""

    cluster: Integers
    """(R, N): which of the C clusters each row is in, under each partition."""
    owner: Integers
    """(C,): the partition that each cluster belongs to."""
    starts: Integers
    """(R,): each partition's first cluster."""
    sizes: Reals
    """(C,): rows of each cluster, at least one."""

    @classmethod
    def of(cls, labels: Labels) -> "Partitions":
        """Lay out labels (R, N); numbers that no row bears are left out."""
        labels = np.asarray(labels)
        if labels.ndim != 2 or 0 in labels.shape or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
            raise InputError(
                f"Partitions must be integers from 0, of shape (partitions, rows); these are {labels.dtype} of shape "
                f"{labels.shape}. Give rows that are noise a cluster of their own, or leave them out."
            )
        width = int(labels.max()) + 1
        shifted = labels + width * np.arange(len(labels))[:, None]
        counts = np.bincount(shifted.ravel(), minlength=width * len(labels))
        kept = np.flatnonzero(counts)
        place = np.cumsum(counts > 0) - 1
        owner = kept // width
        return cls(
            cluster=place[shifted],
            owner=owner,
            starts=np.searchsorted(owner, np.arange(len(labels))),
            sizes=counts[kept].astype(np.float64),
        )

    @property
    def n_rows(self) -> int:
        """N."""
        return int(self.cluster.shape[1])

    @property
    def n_clusters(self) -> Reals:
        """K of each partition (R,)."""
        return np.diff(self.starts, append=len(self.owner)).astype(np.float64)

    def one_hot(self) -> Singles:
        """Membership (C, N), dense."""
        table = np.zeros((len(self.sizes), self.n_rows), dtype=np.float32)
        table[self.cluster, np.arange(self.n_rows)] = 1.0
        return table

    def sums(self, rows: Reals) -> Reals:
        """Sum (C, D) of the rows (N, D) of each cluster."""
        runs = len(self.starts)
        order = np.argsort(self.cluster, axis=1, kind="stable").ravel()
        ends = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.intp)
        member = csr_array((np.ones(runs * self.n_rows), order, ends), shape=(len(self.sizes), self.n_rows))
        return np.asarray(member @ rows)

    def totals(self, values: npt.NDArray[Any]) -> Reals:
        """Sum (C,) over each cluster's rows of a value (R, N) or (N,) that each row has."""
        weights = np.broadcast_to(values, self.cluster.shape).ravel()
        added = np.bincount(self.cluster.ravel(), weights=weights, minlength=len(self.sizes))
        return added.astype(np.float64, copy=False)

    def means(self, values: npt.NDArray[Any]) -> Reals:
        """Mean (C,) over each cluster's rows."""
        return self.totals(values) / self.sizes

    def own(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Entry (R, N) of a table (C, N) at each row's own cluster."""
        found: npt.NDArray[Any] = table[self.cluster, np.arange(self.n_rows)]
        return found

    def total(self, values: npt.NDArray[Any]) -> Reals:
        """Sum (R, ...) over the clusters of each partition of values (C, ...)."""
        added: Reals = np.add.reduceat(values, self.starts, axis=0)
        return added

    def mean(self, values: npt.NDArray[Any]) -> Reals:
        """Mean (R,) over the clusters of each partition."""
        return self.total(values) / self.n_clusters

    def weighted(self, values: npt.NDArray[Any]) -> Reals:
        """Mean (R,) over the clusters of each partition, each counting by its size."""
        return self.total(values * self.sizes) / self.n_rows

    def least(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Smallest value (R, ...) among the clusters of each partition."""
        smallest: npt.NDArray[Any] = np.minimum.reduceat(values, self.starts, axis=0)
        return smallest

    def least_notable(self, values: Reals) -> Reals:
        """Smallest value (R,) among the clusters of each partition that are not small: a fifth of the fair share."""
        notable = self.sizes >= 0.2 * self.n_rows / self.n_clusters[self.owner]
        return self.least(np.where(notable, values, np.inf))

    def most(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Largest value (R, ...) among the clusters of each partition."""
        largest: npt.NDArray[Any] = np.maximum.reduceat(values, self.starts, axis=0)
        return largest

    def padded(self, values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
        """Values (C, ...) as a table (R, largest K, ...), filled up."""
        widest = int(self.n_clusters.max())
        table = np.full((len(self.starts), widest, *values.shape[1:]), fill, dtype=values.dtype)
        table[self.owner, self.place] = values
        return table

    @property
    def place(self) -> Integers:
        """Number (C,) of each cluster within its partition."""
        return np.arange(len(self.owner)) - self.starts[self.owner]

    def median(self, values: npt.NDArray[Any]) -> Reals:
        """Median (R,) over the clusters of each partition."""
        ordered = values[np.lexsort((values, self.owner))]
        count = self.n_clusters.astype(np.intp)
        middle: Reals = (ordered[self.starts + (count - 1) // 2] + ordered[self.starts + count // 2]) / 2.0
        return middle


def rand_index(both: Reals, first: Reals, second: Reals | float, rows: int) -> Reals:
    """Adjusted Rand index from the ordered pairs of rows that both partitions, and that each, put together."""
    expected = first * second / max(rows * (rows - 1.0), 1.0)
    room = (first + second) / 2.0 - expected
    # Where both are all in one or all apart, they are equal.
    return np.where(room > 0.0, (both - expected) / np.where(room > 0.0, room, 1.0), 1.0)


def safe_log(values: npt.NDArray[Any], floor: float = 1e-6, ceiling: float = 1e6) -> Reals:
    """Logarithm of values that may be zero or infinite, which count as the floor and the ceiling."""
    logs: Reals = np.log(np.clip(values, floor, ceiling))
    return logs


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
    def of(cls, geometry: Space, parts: Partitions) -> "Moments":
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


def size_evidence(parts: Partitions) -> dict[str, Reals]:
    """How many clusters there are, and how unequal."""
    count, rows = parts.n_clusters, parts.n_rows
    share = parts.sizes / rows
    entropy = -parts.total(share * np.log(share))
    return {
        "log_clusters": np.log(count),
        "log_rows_per_cluster": np.log(rows / count),
        "size_evenness": np.where(count > 1, entropy / np.log(np.maximum(count, 2)), 1.0),
        "log_effective_clusters": entropy,
        "smallest_share": parts.least(share),
        "largest_share": parts.most(share),
        "log_smallest_to_fair": np.log(parts.least(share) * count),
        "tiny_clusters": parts.mean(parts.sizes < 5),
        "small_clusters": parts.mean(share < 0.2 / count[parts.owner]),
    }
