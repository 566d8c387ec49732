"""Scores of a clustering: agreement with known labels (ARI, NMI, ACC), and silhouettes."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

Labels = npt.NDArray[np.integer[Any]]

_CHUNK_CELLS = 1 << 22  # distances held at once by `silhouettes`: 16 MB


def adjusted_rand_index(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Compute the adjusted Rand index (ARI) of two partitions: 1 if they are equal, about 0 for random labels.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    return float(adjusted_rand_score(truth, labels))


def normalized_mutual_information(
    truth: npt.ArrayLike, labels: npt.ArrayLike, *, mean: Literal["arithmetic", "geometric"] = "arithmetic"
) -> float:
    """Compute the mutual information of two partitions divided by the mean of their entropies (NMI); 1 if equal.

    Examples
    --------
    >>> round(normalized_mutual_information([0, 0, 1, 1], [0, 1, 2, 3]), 3)
    0.667
    """
    return float(normalized_mutual_info_score(truth, labels, average_method=mean))


def matched_accuracy(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Compute the clustering accuracy (ACC): rows that agree under the best one-to-one matching of clusters to classes.

    Examples
    --------
    >>> matched_accuracy([0, 0, 1, 1], [1, 1, 0, 2])
    0.75
    """
    counts = contingency_matrix(truth, labels)
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / counts.sum())


def silhouettes(x: npt.NDArray[np.floating[Any]], labels: Labels) -> npt.NDArray[np.float64]:
    """Compute the mean silhouette (R,) of several partitions (R, N) of the rows of x (N, D); labels count from 0.

    It is -1 for a single cluster, or one cluster per row. Distances are computed once for all partitions, in blocks:
    the memory is that of N x R x K numbers, not of N x N.
    """
    labels = np.asarray(labels)
    runs, rows = labels.shape
    clusters = int(labels.max()) + 1
    one_hot = (labels[:, :, None] == np.arange(clusters)).astype(np.float32)  # (R, N, K)
    sizes = one_hot.sum(axis=1)  # (R, K)
    columns = one_hot.transpose(1, 0, 2).reshape(rows, runs * clusters)
    centred = (x - x.mean(axis=0)).astype(np.float32)
    squares = np.einsum("nd,nd->n", centred, centred)
    totals = np.zeros(runs)
    for start in range(0, rows, max(1, _CHUNK_CELLS // rows)):
        block = slice(start, min(rows, start + max(1, _CHUNK_CELLS // rows)))
        distances = squares[block, None] + squares - 2.0 * centred[block] @ centred.T
        distances[np.arange(block.stop - start), np.arange(start, block.stop)] = 0.0
        sums = (np.sqrt(np.maximum(distances, 0.0)) @ columns).reshape(-1, runs, clusters).transpose(1, 0, 2)
        totals += _silhouette_sums(sums, sizes, labels[:, block])
    found = (sizes > 0).sum(axis=1)
    return np.where((found >= 2) & (found < rows), totals / rows, -1.0)


def _silhouette_sums(sums: npt.NDArray[Any], sizes: npt.NDArray[Any], labels: Labels) -> npt.NDArray[np.float64]:
    """Sum the silhouettes of a block of rows, given the sums of distances (R, N, K) to every cluster."""
    own = labels[:, :, None]
    own_size = np.take_along_axis(sizes, labels, axis=1)
    within = np.take_along_axis(sums, own, axis=2)[:, :, 0] / np.maximum(own_size - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(sizes[:, None, :] > 0, sums / sizes[:, None, :], np.inf)
    np.put_along_axis(means, own, np.inf, axis=2)
    between = means.min(axis=2)
    defined = (own_size > 1) & np.isfinite(between)
    scale = np.maximum(np.maximum(within, between), np.finfo(np.float32).tiny)
    with np.errstate(invalid="ignore"):
        values = np.where(defined, (between - within) / scale, 0.0)
    total: npt.NDArray[np.float64] = values.sum(axis=1, dtype=np.float64)
    return total
