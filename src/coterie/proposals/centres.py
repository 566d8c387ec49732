"""k-means along a ladder of numbers of clusters."""

import warnings
from collections.abc import Iterable, Iterator

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from coterie.proposals.partitions import Floats, Labels

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
