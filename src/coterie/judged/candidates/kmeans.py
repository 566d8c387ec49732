"""Compact clusters: k-means and Gaussian mixtures, started from Ward's clusters."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from coterie.judged.space import Floats, Geometry, Labels

Covariance = Literal["full", "diagonal", "shared"]

_MAX_ITERATIONS = 60
_MIN_VARIANCE = 1e-4  # over the mean variance of the columns
_PRIOR_ROWS = 0.1  # per dimension: weight of the overall variances in those of a cluster
_CONVERGED = 1e-2


def linkage_cuts(
    geometry: Geometry, ks: Sequence[int], *, method: Literal["ward", "average", "complete"] = "ward"
) -> Iterator[Labels]:
    """Cut the dendrogram of a linkage into each number of clusters."""
    for k in ks:
        yield fcluster(geometry.merges(method), k, criterion="maxclust").astype(np.int64)


def k_means(geometry: Geometry, ks: Sequence[int], *, seed: int, random_starts: bool = False) -> Iterator[Labels]:
    """Run k-means from Ward's clusters, or from k-means++ with the seed."""
    for k in ks:
        yield _fit_k_means(geometry.rows, k, seed) if random_starts else k_means_from_ward(geometry, k)


def gaussian_mixture(geometry: Geometry, ks: Sequence[int], *, covariance: Covariance, steps: int) -> Iterator[Labels]:
    """Fit a Gaussian mixture by EM from the clusters of k-means, where there are enough rows for it.

    Discrete columns are left out: each of their levels would make a degenerate Gaussian.
    """
    x = geometry.rows[:, geometry.continuous]
    starts = [k_means_from_ward(geometry, k) for k in ks if has_enough_rows(*x.shape, k, covariance)]
    return improve_by_mixture(x, starts, covariance, steps)


def k_means_from_ward(geometry: Geometry, k: int) -> Labels:
    """Run k-means from Ward's clusters, once for each number of clusters."""

    def compute() -> Labels:
        (start,) = linkage_cuts(geometry, [k])
        return improve_by_k_means(geometry.rows, start)

    return geometry.cached(("k-means", k), compute)


def improve_by_k_means(x: Floats, start: Labels) -> Labels:
    """Run k-means from the cluster means of a partition."""
    return _fit_k_means(x, cluster_means(x, start), seed=0)


def cluster_means(x: Floats, labels: Labels) -> Floats:
    """Return the mean (K, D) of each cluster, in the order of the labels, which may have gaps."""
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    means: Floats = (np.eye(len(sizes))[inverse].T @ x) / sizes[:, None]
    return means


def _fit_k_means(x: Floats, start: Floats | int, seed: int) -> Labels:
    k, init = (start, "k-means++") if isinstance(start, int) else (len(start), start)
    model = KMeans(k, init=init, n_init=1, max_iter=_MAX_ITERATIONS, random_state=seed)
    with warnings.catch_warnings():
        # It warns when it ends with fewer clusters than asked for; the result is a valid candidate all the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels: Labels = model.fit(x).labels_.astype(np.int64)
    return labels


def has_enough_rows(n: int, d: int, k: int, covariance: Covariance) -> bool:
    """Return whether n rows suffice for k clusters with such covariances in d dimensions."""
    return n >= 3 * k * (d + 1) if covariance == "full" else n >= 3 * k


def improve_by_mixture(x: Floats, starts: Iterable[Labels], covariance: Covariance, steps: int) -> Iterator[Labels]:
    """Fit a mixture from each partition by EM; yield the most probable component of every row."""
    moments = GaussianMoments(x, covariance)
    for start in starts:
        clusters, labels = np.unique(start, return_inverse=True)
        responsibilities = np.eye(len(clusters))[labels]
        for _ in range(steps):
            updated = softmax(moments.design @ moments.coefficients(responsibilities), axis=1)
            converged = np.abs(updated - responsibilities).max() < _CONVERGED
            responsibilities = updated
            if converged:
                break
        yield responsibilities.argmax(axis=1)


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
        self.prior = np.where(on_diagonal, variances[self.rows], 0.0)
        self.floor = np.where(on_diagonal, smallest, 0.0)

    def coefficients(self, responsibilities: Floats) -> Floats:
        """Return the coefficients (P, K) of each component's log joint density, up to a constant."""
        sums = responsibilities.T @ self.design
        sizes = np.maximum(sums[:, 0], 1e-9)
        means = sums[:, 1 : self.d + 1] / sizes[:, None]
        centred = means[:, self.rows] * means[:, self.columns]
        spread = self._regularised(sums[:, self.d + 1 :] - sizes[:, None] * centred, sizes)
        if self.covariance == "diagonal":
            linear = means / spread
            quadratic = -0.5 / spread
            log_volume = np.log(spread).sum(axis=1)
        else:
            matrices = self._matrices(spread)  # one, if it is shared
            precisions = np.linalg.inv(matrices)
            linear = (precisions @ means[:, :, None])[:, :, 0]
            quadratic = self.factor * precisions[:, self.rows, self.columns]
            quadratic = np.broadcast_to(quadratic, (len(means), quadratic.shape[1]))
            log_volume = np.linalg.slogdet(matrices)[1]
        constant = np.log(sizes) - 0.5 * (log_volume + np.einsum("ki,ki->k", linear, means))
        return np.concatenate([constant[:, None], linear, quadratic], axis=1).T

    def _regularised(self, scatter: Floats, sizes: Floats) -> Floats:
        """Return covariances (K or 1, pairs), kept regular by some rows' worth of the overall variances."""
        weight = _PRIOR_ROWS * (self.d + 1)
        prior = self.prior * len(sizes) ** (-2.0 / self.d)
        if self.covariance == "shared":
            scatter, sizes = scatter.sum(axis=0, keepdims=True), sizes.sum(keepdims=True)
        pooled: Floats = (scatter + weight * prior) / (sizes + weight)[:, None]
        return pooled + self.floor

    def _matrices(self, entries: Floats) -> Floats:
        matrices = np.empty((len(entries), self.d, self.d))
        matrices[:, self.rows, self.columns] = entries
        matrices[:, self.columns, self.rows] = entries
        return matrices


def quadratic_design(centred: Floats, covariance: Covariance) -> Floats:
    """Return the columns 1, x_i and x_i x_j (i <= j; only i = j for diagonal covariances) of rows (N, D)."""
    rows, columns = _column_pairs(centred.shape[1], covariance)
    products = centred[:, rows] * centred[:, columns]
    return np.concatenate([np.ones((len(centred), 1)), centred, products], axis=1)


def _column_pairs(d: int, covariance: Covariance) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    pairs = np.diag_indices(d) if covariance == "diagonal" else np.triu_indices(d)
    return pairs[0], pairs[1]
