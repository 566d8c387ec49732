"""Compact clusters: k-means and Gaussian mixtures, started from Ward's clusters."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol, final

import numpy as np
import numpy.typing as npt

from coterie.judged.space import Floats, Geometry, Integers, Labels

Covariance = Literal["full", "diagonal", "shared"]

_MAX_ITERATIONS = 60
_TOLERANCE = 1e-4  # squared movement of all means, over the mean variance of the columns, at which k-means ends
_MIN_VARIANCE = 1e-4  # over the mean variance of the columns
_PRIOR_ROWS = 0.1  # per dimension: weight of the overall variances in those of a cluster
_CONVERGED = 3e-3  # mean change of a row's responsibilities at which EM ends


def linkage_cuts(
    geometry: Geometry, ks: Sequence[int], *, method: Literal["ward", "average", "complete"] = "ward"
) -> Iterator[Labels]:
    """Cut the dendrogram of a linkage into each number of clusters."""
    children = geometry.merges(method)[:, :2].astype(np.int64)
    n = len(children) + 1
    parent = np.arange(2 * n - 1)
    parent[children] = np.arange(n, 2 * n - 1)[:, None]
    for k in ks:
        # The last k - 1 merges are undone.
        yield follow(np.where(parent < 2 * n - k, parent, np.arange(2 * n - 1)))[:n]


def follow(target: Integers) -> Integers:
    """Follow each number to its target, the target of that, and so on up to one that is its own target."""
    while not np.array_equal(target, further := target[target]):  # halves the way each time
        target = further
    return target


def k_means(geometry: Geometry, ks: Sequence[int]) -> Iterator[Labels]:
    """Run k-means from Ward's clusters."""
    for k in ks:
        yield k_means_from_ward(geometry, k)


def gaussian_mixture(geometry: Geometry, ks: Sequence[int], *, covariance: Covariance, steps: int) -> Iterator[Labels]:
    """Fit a Gaussian mixture by EM from the clusters of k-means, where there are enough rows for it.

    Discrete columns are left out: each of their levels would make a degenerate Gaussian.
    """
    x = geometry.rows[:, geometry.continuous]
    n, d = x.shape
    starts = [k_means_from_ward(geometry, k) for k in ks if has_enough_rows(n, d, k, covariance)]
    return improve_by_mixture(x, starts, covariance, steps)


def k_means_from_ward(geometry: Geometry, k: int) -> Labels:
    """Run k-means from Ward's clusters, once for each number of clusters."""

    def compute() -> Labels:
        (start,) = linkage_cuts(geometry, [k])
        k_means = geometry.cached("k-means of the rows", lambda: KMeans(geometry.rows))
        return k_means.improve(start)

    return geometry.cached(("k-means", k), compute)


def cluster_means(x: Floats, labels: Labels) -> Floats:
    """Return the mean (K, D) of each cluster, in the order of the labels, which may have gaps."""
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    means: Floats = (np.eye(len(sizes))[inverse].T @ x) / sizes[:, None]
    return means


@final
class KMeans:
    """Lloyd's algorithm on some rows (N, D), for any number of starts."""

    def __init__(self, x: Floats) -> None:
        self.x = x
        self.extended = np.column_stack((x, np.ones(len(x))))
        self.columns = np.ascontiguousarray(self.extended.T)
        self.enough = _TOLERANCE * float(x.var(axis=0).mean())

    def improve(self, start: Labels) -> Labels:
        """Run from the cluster means of a partition; a cluster that loses all rows keeps its mean."""
        means = cluster_means(self.x, start)
        for _ in range(_MAX_ITERATIONS):
            nearest = _nearest_mean(self.columns, means)
            sums = nearest.astype(np.float64) @ self.extended
            sizes = sums[:, -1:]
            moved = np.where(sizes > 0, sums[:, :-1] / np.maximum(sizes, 1.0), means)
            shift = float(np.square(moved - means).sum())
            means = moved
            if shift <= self.enough:
                break
        labels: Labels = (nearest if shift == 0.0 else _nearest_mean(self.columns, means)).argmax(axis=0)
        return labels


def improve_by_k_means(x: Floats, start: Labels) -> Labels:
    """Run k-means from the cluster means of a partition."""
    return KMeans(x).improve(start)


def _nearest_mean(columns: Floats, means: Floats) -> npt.NDArray[np.bool_]:
    """Return whether each of the means (K, D) is the nearest one to each row; of equally near ones the first is.

    `columns` (D + 1, N) are those of the rows, then ones.
    """
    squares = np.einsum("kd,kd->k", means, means)
    lengths = np.column_stack((-2.0 * means, squares)) @ columns
    nearest: npt.NDArray[np.bool_] = lengths == lengths.min(axis=0)  # several times cheaper than argmin along this axis
    if np.count_nonzero(nearest) > columns.shape[1]:
        nearest = lengths.argmin(axis=0) == np.arange(len(means))[:, None]
    return nearest


def has_enough_rows(n: int, d: int, k: int, covariance: Covariance) -> bool:
    """Return whether n rows suffice for k clusters with such covariances in d dimensions."""
    return n >= 3 * k * (d + 1) if covariance == "full" else n >= 3 * k


def improve_by_mixture(x: Floats, starts: Iterable[Labels], covariance: Covariance, steps: int) -> Iterator[Labels]:
    """Fit a Gaussian mixture from each partition; yield the most probable component of every row."""
    return maximise_likelihood(GaussianMoments(x, covariance), starts, steps)


class Moments(Protocol):
    """Rows as a design (N, P) in which the log density of every component of a mixture is linear."""

    design: Floats

    def coefficients(self, responsibilities: Floats) -> Floats:
        """Return the coefficients (P, K) of each component's log joint density, up to a constant."""


def maximise_likelihood(moments: Moments, starts: Iterable[Labels], steps: int) -> Iterator[Labels]:
    """Run EM from each partition; yield the most probable component of every row."""
    columns = np.ascontiguousarray(moments.design.T)
    for start in starts:
        clusters, labels = np.unique(start, return_inverse=True)
        responsibilities = (np.arange(len(clusters))[:, None] == labels).astype(np.float64)  # (K, N)
        for _ in range(steps):
            updated = np.ascontiguousarray(moments.coefficients(responsibilities.T).T) @ columns
            updated -= updated.max(axis=0)
            np.exp(updated, out=updated)
            updated /= updated.sum(axis=0)
            responsibilities -= updated
            change = float(np.abs(responsibilities, out=responsibilities).sum()) / len(moments.design)
            responsibilities = updated
            if change < _CONVERGED:
                break
        yield responsibilities.argmax(axis=0)


@final
class GaussianMoments:
    """Rows with the products of their columns, so that each half of an EM step is one matrix product.

    The weighted sums of the design are sufficient statistics of the covariances, and a Gaussian's log density is linear
    in it. That makes a step some ten times cheaper than whitening the rows by every component in turn.
    """

    def __init__(self, x: Floats, covariance: Covariance) -> None:
        self.covariance = covariance
        self.centre = x.mean(axis=0)
        self.d = x.shape[1]
        self.design = quadratic_design(x - self.centre, covariance)
        variances = ((x - self.centre) ** 2).mean(axis=0)
        smallest = _MIN_VARIANCE * (float(variances.mean()) or 1.0)  # if all rows are equal, any will do
        self.rows, self.columns = _column_pairs(self.d, covariance)
        on_diagonal = self.rows == self.columns
        self.factor = np.where(on_diagonal, -0.5, -1.0)  # a pair i < j stands for two entries of a matrix
        self.scatter = (x - self.centre).T @ (x - self.centre)
        self.prior = np.where(on_diagonal, variances[self.rows], 0.0)
        self.floor = np.where(on_diagonal, smallest, 0.0)
        self.pair = np.zeros((self.d, self.d), dtype=np.intp)  # where each entry of a matrix is among the pairs
        self.pair[self.rows, self.columns] = self.pair[self.columns, self.rows] = np.arange(len(self.rows))

    def coefficients(self, responsibilities: Floats) -> Floats:
        """Return the coefficients (P, K) of each component's log joint density, up to a constant."""
        sums = responsibilities.T @ self.design
        sizes = np.maximum(sums[:, 0], 1e-9)
        means = sums[:, 1 : self.d + 1] / sizes[:, None]
        centred = means[:, self.rows] * means[:, self.columns]
        if self.covariance == "shared":
            within = self.scatter[self.rows, self.columns] - sizes @ centred
            spread = self._regularised(within[None], sizes.sum(keepdims=True), len(sizes))
        else:
            spread = self._regularised(sums[:, self.d + 1 :] - sizes[:, None] * centred, sizes, len(sizes))
        if self.covariance == "diagonal":
            linear = means / spread
            quadratic = -0.5 / spread
            log_volume = np.log(spread).sum(axis=1)
        else:
            matrices = spread[:, self.pair]  # one, if it is shared
            precisions = np.linalg.inv(matrices)
            linear = (precisions @ means[:, :, None])[:, :, 0]
            quadratic = self.factor * precisions[:, self.rows, self.columns]
            if self.covariance == "shared":
                quadratic = np.empty((len(means), 0))  # the same for all components
            log_volume = np.linalg.slogdet(matrices)[1]
        constant = np.log(sizes) - 0.5 * (log_volume + np.einsum("ki,ki->k", linear, means))
        return np.concatenate([constant[:, None], linear, quadratic], axis=1).T

    def _regularised(self, scatter: Floats, sizes: Floats, k: int) -> Floats:
        """Return covariances (K or 1, pairs), kept regular by some rows' worth of the overall variances."""
        weight = _PRIOR_ROWS * (self.d + 1)
        prior = self.prior * k ** (-2.0 / self.d)
        pooled: Floats = (scatter + weight * prior) / (sizes + weight)[:, None]
        return pooled + self.floor


def quadratic_design(centred: Floats, covariance: Covariance) -> Floats:
    """Return the columns 1, x_i and x_i x_j (i <= j) of rows (N, D).

    For diagonal covariances there is only i = j, for a shared one no product: its products are equally probable under
    all components.
    """
    if covariance == "shared":
        return np.column_stack((np.ones(len(centred)), centred))
    rows, columns = _column_pairs(centred.shape[1], covariance)
    products = centred[:, rows] * centred[:, columns]
    return np.concatenate([np.ones((len(centred), 1)), centred, products], axis=1)


def _column_pairs(d: int, covariance: Covariance) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    pairs = np.diag_indices(d) if covariance == "diagonal" else np.triu_indices(d)
    return pairs[0], pairs[1]
