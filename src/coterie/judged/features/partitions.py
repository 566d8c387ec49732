"""Many partitions of the same rows, laid end to end, so that one call works on the clusters of all of them.

Letters: N rows, R partitions, C clusters of all partitions together.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from coterie.errors import InputError
from coterie.judged.space import Floats, Integers, Singles

AnyLabels = npt.NDArray[np.integer[Any]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """R partitions of N rows; the clusters of the first come first, then those of the second, and so on."""

    cluster: Integers  # (R, N): which of the C clusters each row is in, under each partition
    owner: Integers  # (C,): the partition that each cluster belongs to
    starts: Integers  # (R,): first cluster of each partition
    sizes: Floats  # (C,): number of rows of each cluster, at least one
    members: Integers  # (R N,): the rows of the first cluster, then those of the second, and so on
    first: Integers  # (C,): where the rows of each cluster begin among the members
    distinct: Integers  # (U,): the first cluster of each set of rows, since many partitions share clusters
    same: Integers  # (C,): which of the distinct clusters has the rows of each cluster

    @classmethod
    def from_labels(cls, labels: AnyLabels) -> Self:
        """Lay out labels (R, N); unused numbers are skipped."""
        labels = np.asarray(labels)
        if labels.ndim != 2 or 0 in labels.shape or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
            raise InputError(
                f"Partitions must be integers from 0, of shape (partitions, rows); got {labels.dtype} of shape "
                f"{labels.shape}. Give noise a cluster of its own, or leave it out."
            )
        width = int(labels.max()) + 1
        shifted = labels + width * np.arange(len(labels))[:, None]
        counts = np.bincount(shifted.ravel(), minlength=width * len(labels))
        used = np.flatnonzero(counts)
        number = np.cumsum(counts > 0) - 1
        owner = used // width
        narrow = labels.astype(np.uint16) if width <= 1 << 16 else labels  # 16 bits are sorted by counting
        members = np.argsort(narrow, axis=1, kind="stable").ravel()
        first = np.cumsum(counts[used]) - counts[used]
        distinct, same = _find_distinct(members, first, labels.shape[1])
        return cls(
            cluster=number[shifted],
            owner=owner,
            starts=np.searchsorted(owner, np.arange(len(labels))),
            sizes=counts[used].astype(np.float64),
            members=members,
            first=first,
            distinct=distinct,
            same=same,
        )

    @property
    def n_rows(self) -> int:
        """N."""
        return int(self.cluster.shape[1])

    @property
    def n_clusters(self) -> Floats:
        """Number of clusters of each partition (R,)."""
        return np.diff(self.starts, append=len(self.owner)).astype(np.float64)

    @property
    def position(self) -> Integers:
        """Number (C,) of each cluster within its partition."""
        return np.arange(len(self.owner)) - self.starts[self.owner]

    @property
    def runs(self) -> list[slice]:
        """The clusters of each partition (R,)."""
        return [slice(start, stop) for start, stop in pairwise([*self.starts.tolist(), len(self.owner)])]

    def own_entries(self) -> Integers:
        """Return where the own cluster of each row (R, N) is in the flattened table (K, N) of its partition."""
        return (self.cluster - self.starts[:, None]) * self.n_rows + np.arange(self.n_rows)

    def labels_by_row(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Return the number within its partition of the cluster of each row (N, R).

        Partitions come last, so that those of a row are copied at once, and numbers are as short as possible.
        """
        labels = self.cluster - self.starts[:, None]
        return np.ascontiguousarray(labels.T.astype(np.min_scalar_type(labels.max())))

    def one_hot(self, chosen: Integers) -> Singles:
        """Return the memberships (U, N) of the chosen clusters, dense."""
        members = Members.of(self, chosen)
        table = np.zeros((len(chosen), self.n_rows), dtype=np.float32)
        table[members.cluster, members.row] = 1.0
        return table

    def indicators(self, chosen: Integers, kind: npt.DTypeLike = np.float64) -> csr_array:
        """Return the memberships (U, N) of the chosen clusters, sparse."""
        members = Members.of(self, chosen)
        ends = np.append(members.first, len(members.row))
        ones = np.ones(len(members.row), dtype=kind)
        return csr_array((ones, members.row, ends), shape=(len(chosen), self.n_rows))

    def vector_sums(self, rows: Floats) -> Floats:
        """Sum the rows (N, D) of each cluster (C, D)."""
        return np.asarray(self.indicators(self.distinct) @ rows)[self.same]

    def cluster_sums(self, values: npt.NDArray[Any]) -> Floats:
        """Sum values (R, N) or (N,) of rows over each cluster (C,)."""
        weights = np.broadcast_to(values, self.cluster.shape).ravel()
        added = np.bincount(self.cluster.ravel(), weights=weights, minlength=len(self.sizes))
        return added.astype(np.float64, copy=False)

    def cluster_means(self, values: npt.NDArray[Any]) -> Floats:
        """Average values of rows over each cluster (C,)."""
        return self.cluster_sums(values) / self.sizes

    def sum(self, values: npt.NDArray[Any]) -> Floats:
        """Sum values (C, ...) over the clusters of each partition (R, ...)."""
        return self._reduce(np.add, values)

    def mean(self, values: npt.NDArray[Any]) -> Floats:
        """Average over the clusters of each partition (R,)."""
        return self.sum(values) / self.n_clusters

    def weighted_mean(self, values: npt.NDArray[Any]) -> Floats:
        """Average over the clusters of each partition (R,), weighted by size."""
        return self.sum(values * self.sizes) / self.n_rows

    def median(self, values: npt.NDArray[Any]) -> Floats:
        """Return the median over the clusters of each partition (R,)."""
        ordered = np.sort(self.padded(values, np.inf), axis=1)
        count, run = self.n_clusters.astype(np.intp), np.arange(len(self.starts))
        middle: Floats = (ordered[run, (count - 1) // 2] + ordered[run, count // 2]) / 2.0
        return middle

    def min(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the smallest value (R, ...) among the clusters of each partition."""
        return self._reduce(np.minimum, values)

    def min_of_large(self, values: Floats) -> Floats:
        """Return the smallest value (R,) among clusters of at least a fifth of the mean size."""
        large = self.sizes >= 0.2 * self.n_rows / self.n_clusters[self.owner]
        return self.min(np.where(large, values, np.inf))

    def max(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the largest value (R, ...) among the clusters of each partition."""
        return self._reduce(np.maximum, values)

    def _reduce(self, function: np.ufunc, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Reduce values (C, ...) to one for each partition (R, ...)."""
        if values.ndim == 1:
            reduced: npt.NDArray[Any] = function.reduceat(values, self.starts)
            return reduced
        # Along the first of several axes, this is several times faster than reduceat.
        return np.stack([function.reduce(values[run], axis=0) for run in self.runs])

    def padded(self, values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
        """Return values (C, ...) as a table (R, largest K, ...), filled up."""
        widest = int(self.n_clusters.max())
        table = np.full((len(self.starts), widest, *values.shape[1:]), fill, dtype=values.dtype)
        table[self.owner, self.position] = values
        return table


@final
@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The rows of U clusters, one cluster after the other."""

    row: Integers  # (M,)
    cluster: Integers  # (M,): ascending
    first: Integers  # (U,): where each cluster begins
    sizes: Floats  # (U,)

    @classmethod
    def of(cls, parts: Partitions, chosen: Integers) -> Self:
        """Collect the rows of the chosen clusters."""
        sizes = parts.sizes[chosen]
        cluster = np.repeat(np.arange(len(chosen)), sizes.astype(np.intp))
        first = (np.cumsum(sizes) - sizes).astype(np.intp)
        row = parts.members[np.arange(len(cluster)) + (parts.first[chosen] - first)[cluster]]
        return cls(row, cluster, first, sizes)


def _find_distinct(members: Integers, first: Integers, n_rows: int) -> tuple[Integers, Integers]:
    """Return the first cluster (U,) of each set of rows, and which of them has the rows of each cluster (C,)."""
    codes = np.random.default_rng(0).integers(1 << 63, size=n_rows)  # sums of random codes tell sets apart
    sums = np.add.reduceat(codes[members], first)
    _, found, same = np.unique(sums, return_index=True, return_inverse=True)
    order = np.argsort(found)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return found[order], rank[same]


def rand_index(both: Floats, first: Floats, second: Floats | float, rows: int) -> Floats:
    """Compute the adjusted Rand index from the numbers of ordered pairs together in both partitions, and in each."""
    expected = first * second / max(rows * (rows - 1.0), 1.0)
    room = (first + second) / 2.0 - expected
    # There is no room only where both partitions are all in one cluster or all single rows, and so equal.
    return np.where(room > 0.0, (both - expected) / np.where(room > 0.0, room, 1.0), 1.0)


_MAX_CELLS = 1 << 21  # of a table in memory at once
_MAX_STEP = 256  # clusters of a block: narrow ones leave out more of what is symmetric, very narrow ones are slow
_MAX_EXACT_ROWS = 1 << 12  # up to that many, the number of pairs of rows is exact in single precision


def rand_indices(labels: Int[AnyLabels, "R N"], known: Float[Floats, "K K"] | None = None) -> Float[Floats, "R R"]:
    """Compute the adjusted Rand index of every pair of partitions; `known` has those of the first K."""
    old = 0 if known is None else len(known)
    new = len(labels) - old
    parts = Partitions.from_labels(np.concatenate((labels[old:], labels[:old])))
    together = _pairs_together(parts, new)
    # From here on, ordered pairs of different rows that are in one cluster.
    own = parts.sum(np.square(parts.sizes)) - parts.n_rows
    found = rand_index(together - parts.n_rows, own[:new, None], own, parts.n_rows)
    if known is None:
        return found
    return np.block([[known, found[:, new:].T], [found[:, new:], found[:, :new]]])


def _pairs_together(parts: Partitions, new: int) -> Float[Floats, "S R"]:
    """Count the pairs of rows, also of equal ones, that one of the first `new` partitions and any other one join.

    They are sums of squared cells of contingency tables, which are the same for clusters of the same rows.
    """
    chosen, same = parts.distinct, parts.same
    kind = np.float32 if parts.n_rows <= _MAX_EXACT_ROWS else np.float64
    members: npt.NDArray[Any] = parts.one_hot(chosen).astype(kind, copy=False)
    ends = np.append(parts.starts, len(same))
    holds = csr_array((np.ones(len(same), dtype=kind), same, ends), shape=(len(parts.starts), len(chosen)))
    last = int(same[: ends[new]].max()) + 1  # clusters of the first partitions come first
    sums = np.zeros((len(parts.starts), last), dtype=kind)  # of each partition with each of them
    step = max(1, min(_MAX_STEP, _MAX_CELLS // len(chosen)))
    for start in range(0, last, step):
        stop = min(start + step, last)
        cells = members[start:] @ members[start:stop].T
        np.square(cells, out=cells)
        sums[:, start:stop] += holds[:, start:] @ cells
        # The table is symmetric: what is beyond this block is not computed again.
        sums[:, stop:] += holds[:, start:stop] @ cells[stop - start : last - start].T
    return (holds[:new, :last] @ sums.T).astype(np.float64)


_ALIKE = 0.9  # adjusted Rand index above which two partitions count as alike

AGREEMENTS: dict[str, str] = {
    "agreement_mean": "mean over all other candidates",
    "agreement_best": "with the most similar candidate",
    "agreement_top_3": "mean over the three most similar candidates",
    "agreement_top_10": "mean over the ten most similar candidates",
    "agreement_median": "median over all other candidates",
    "agreement_same_k_best": "with the most similar candidate of the same number of clusters",
    "agreement_same_k_mean": "mean over candidates of the same number of clusters",
    "agreement_near_k_mean": "mean over candidates of a number of clusters at most one away",
    "agreement_fewer_best": "with the most similar candidate of fewer clusters",
    "agreement_more_best": "with the most similar candidate of more clusters",
    "share_same_k": "fraction of candidates with the same number of clusters",
    "share_fewer": "fraction of candidates with fewer clusters",
    "share_alike": "fraction of candidates with agreement above 0.9",
    "agreement_same_k_overall": "mean among all candidates of this number of clusters, whether with this one or not",
}
"""Adjusted Rand index of a candidate with the others of the same rows: column -> meaning."""


def agreement_features(agreement: Float[Floats, "R R"], n_clusters: Int[Integers, " R"]) -> Float[Singles, "R A"]:
    """Compute the columns of `AGREEMENTS` from the adjusted Rand indices and the numbers of clusters."""
    counts = np.asarray(n_clusters)
    others = ~np.eye(len(counts), dtype=np.bool_)
    same = (counts[:, None] == counts) & others
    near = (np.abs(counts[:, None] - counts) <= 1) & others
    fewer, more = counts < counts[:, None], counts > counts[:, None]
    ordered = -np.sort(-np.where(others, agreement, -np.inf), axis=1)[:, :-1]
    if not ordered.size:
        ordered = np.zeros((1, 1))
    among_same = (agreement * same).sum(axis=1)
    at_k = counts[:, None] == counts
    pairs = at_k @ same.sum(axis=1)
    columns = (
        _mean(agreement, others),
        _best(agreement, others),
        ordered[:, :3].mean(axis=1),
        ordered[:, :10].mean(axis=1),
        np.median(ordered, axis=1),
        _best(agreement, same),
        _mean(agreement, same),
        _mean(agreement, near),
        _best(agreement, fewer),
        _best(agreement, more),
        at_k.mean(axis=1),
        fewer.mean(axis=1),
        ((agreement > _ALIKE) & others).mean(axis=1),
        np.where(pairs > 0, at_k @ among_same / np.maximum(pairs, 1), 0.0),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _mean(values: Floats, chosen: npt.NDArray[np.bool_]) -> Floats:
    """Average the chosen entries of each line; zero where there are none."""
    mean: Floats = (values * chosen).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)
    return mean


def _best(values: Floats, chosen: npt.NDArray[np.bool_]) -> Floats:
    """Return the largest chosen entry of each line; zero where there is none."""
    best: Floats = np.where(chosen, values, -np.inf).max(axis=1)
    return np.where(np.isfinite(best), best, 0.0)
