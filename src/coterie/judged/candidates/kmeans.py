"""k-means along a ladder of numbers of clusters."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from coterie.judged.candidates.candidate import Labels
from coterie.judged.space import Floats

_MOST_ROUNDS = 60


def k_means_from(x: Floats, starts: Iterable[Labels]) -> Iterator[Labels]:
    """Improve partitions, such as Ward's, by k-means from the means of their clusters."""
    for start in starts:
        yield _k_means(x, cluster_means(x, start), seed=0)


def k_means_plus_plus(x: Floats, ks: Iterable[int], seed: int) -> Iterator[Labels]:
    """k-means from rows drawn apart from one another."""
    for k in ks:
        yield _k_means(x, k, seed)


def cluster_means(x: Floats, labels: Labels) -> Floats:
    """Mean (K, D) of each cluster; the labels may have gaps, and are taken in their order."""
    _, inverse, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    means: Floats = (np.eye(len(sizes))[inverse].T @ x) / sizes[:, None]
    return means


def _k_means(x: Floats, start: Floats | int, seed: int) -> Labels:
    k, init = (start, "k-means++") if isinstance(start, int) else (len(start), start)
    model = KMeans(k, init=init, n_init=1, max_iter=_MOST_ROUNDS, random_state=seed)
    with warnings.catch_warnings():
        # It warns where it ends with fewer clusters than asked for; what it ends with is a proposal all the same.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels: Labels = model.fit(x).labels_.astype(np.int64)
    return labels


Covariance = Literal["full", "diagonal", "shared"]

_SMALLEST_VARIANCE = 1e-4  # over the mean variance of the columns
_PRIOR_ROWS = 0.1  # per dimension: weight of the overall variances in those of a cluster
_SETTLED = 1e-2


def mixtures_from(x: Floats, starts: Iterable[Labels], covariance: Covariance, steps: int) -> Iterator[Labels]:
    """Fit a mixture from each partition; yield the likeliest component of every row."""
    moments = Moments(x, covariance)
    for start in starts:
        clusters, labels = np.unique(start, return_inverse=True)
        yield _climb(moments, np.eye(len(clusters))[labels], steps)


def enough_rows(n: int, d: int, k: int, covariance: Covariance) -> bool:
    """Whether k clusters of n rows in d dimensions can each have such a covariance."""
    return n >= 3 * k * (d + 1) if covariance == "full" else n >= 3 * k


def _climb(moments: "Moments", responsibilities: Floats, steps: int) -> Labels:
    for _ in range(steps):
        updated = softmax(moments.design @ moments.coefficients(responsibilities))
        settled = np.abs(updated - responsibilities).max() < _SETTLED
        responsibilities = updated
        if settled:
            break
    labels: Labels = responsibilities.argmax(axis=1)
    return labels


def softmax(logits: Floats) -> Floats:
    """Shares (N, K) of each row in proportion to the exponential of its entries."""
    shares: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


@final
class Moments:
    """Rows with their products, so that each half of a step is one product of matrices.

    The design's weighted sums are all that the covariances need, and a Gaussian's log density is linear in it. That
    makes a step some ten times cheaper than one that whitens the rows by every component in turn.
    """

    def __init__(self, x: Floats, covariance: Covariance) -> None:
        self.covariance = covariance
        self.centre = x.mean(axis=0)
        self.d = x.shape[1]
        self.design = design(x - self.centre, covariance)
        variances = ((x - self.centre) ** 2).mean(axis=0)
        least = _SMALLEST_VARIANCE * (float(variances.mean()) or 1.0)  # of equal rows, any will do
        self.rows, self.columns = _products(self.d, covariance)
        on_diagonal = self.rows == self.columns
        self.factor = np.where(on_diagonal, -0.5, -1.0)  # pairs i < j stand for two entries of a matrix
        self.prior = np.where(on_diagonal, variances[self.rows], 0.0)
        self.floor = np.where(on_diagonal, least, 0.0)

    def coefficients(self, responsibilities: Floats) -> Floats:
        """Coefficients (P, K) of the log of each component's share times its density, up to a constant."""
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
        """Covariances (K or 1, pairs), kept from being singular by some rows' worth of the overall variances."""
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


def design(centred: Floats, covariance: Covariance) -> Floats:
    """Columns 1, x_i and x_i x_j (i <= j; only i = j for diagonal covariances) of rows (N, D)."""
    rows, columns = _products(centred.shape[1], covariance)
    products = centred[:, rows] * centred[:, columns]
    return np.concatenate([np.ones((len(centred), 1)), centred, products], axis=1)


def _products(d: int, covariance: Covariance) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    pairs = np.diag_indices(d) if covariance == "diagonal" else np.triu_indices(d)
    return pairs[0], pairs[1]
