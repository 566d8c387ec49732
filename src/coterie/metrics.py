"""Scores of a clustering: agreement with known labels (ARI, NMI, ACC), and silhouettes.

The values are those of ``sklearn.metrics``, whose import takes as long as a small fit, since it needs ``scipy.stats``.
"""

import math
import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, check_consistent_length

Labels = npt.NDArray[np.integer[Any]]
Counts = npt.NDArray[np.int64]

_CHUNK_CELLS = 1 << 22  # distances held at once by `silhouettes`: 16 MB


def adjusted_rand_index(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Compute the adjusted Rand index (ARI) of two partitions: 1 if they are equal, about 0 for random labels.

    Examples
    --------
    >>> adjusted_rand_index([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    classes, clusters, shared = _shared_rows(*_check_values(truth, labels))
    # Numbers of pairs of rows, in Python's integers, which do not overflow.
    together = int((shared**2).sum())
    only_classes = int((_sizes(classes, shared) ** 2).sum()) - together
    only_clusters = int((_sizes(clusters, shared) ** 2).sum()) - together
    if only_classes == only_clusters == 0:
        return 1.0
    rows = int(shared.sum())
    both, neither = together - rows, rows**2 - only_classes - only_clusters - together
    chance = (both + only_classes) * (only_classes + neither) + (both + only_clusters) * (only_clusters + neither)
    return 2.0 * (both * neither - only_classes * only_clusters) / chance


def normalized_mutual_information(
    truth: npt.ArrayLike, labels: npt.ArrayLike, *, mean: Literal["arithmetic", "geometric"] = "arithmetic"
) -> float:
    """Compute the mutual information of two partitions divided by the mean of their entropies (NMI); 1 if equal.

    Examples
    --------
    >>> round(normalized_mutual_information([0, 0, 1, 1], [0, 1, 2, 3]), 3)
    0.667
    """
    classes, clusters, shared = _shared_rows(*_check_values(truth, labels))
    class_sizes, cluster_sizes = _sizes(classes, shared), _sizes(clusters, shared)
    if len(class_sizes) == len(cluster_sizes) <= 1:
        return 1.0
    if min(len(class_sizes), len(cluster_sizes)) == 1:
        return 0.0
    rows = int(shared.sum())
    share = shared / rows
    independent = -np.log(class_sizes[classes] * cluster_sizes[clusters]) + math.log(rows) + math.log(rows)
    terms = share * (np.log(shared) - math.log(rows)) + share * independent
    information = float(np.where(np.abs(terms) < np.finfo(np.float64).eps, 0.0, terms).sum())
    if information <= 0.0:
        return 0.0
    entropies = _entropy(class_sizes), _entropy(cluster_sizes)
    return information / {"arithmetic": sum(entropies) / 2.0, "geometric": math.sqrt(math.prod(entropies))}[mean]


def matched_accuracy(truth: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Compute the clustering accuracy (ACC): rows that agree under the best one-to-one matching of clusters to classes.

    Examples
    --------
    >>> matched_accuracy([0, 0, 1, 1], [1, 1, 0, 2])
    0.75
    """
    classes, clusters, shared = _shared_rows(np.asarray(truth), np.asarray(labels))
    counts = np.zeros((len(_sizes(classes, shared)), len(_sizes(clusters, shared))), dtype=np.int64)
    counts[classes, clusters] = shared
    rows, columns = linear_sum_assignment(counts, maximize=True)
    return float(counts[rows, columns].sum() / counts.sum())


def _check_values(truth: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return both as arrays; as in scikit-learn, missing values are an error, and fractions deserve a warning."""
    arrays = [check_array(each, ensure_2d=False, ensure_min_samples=0, dtype=None) for each in (truth, labels)]
    if any(type_of_target(each) == "continuous" for each in arrays):
        warnings.warn("Classes and clusters should be discrete, but have fractions.", UserWarning, stacklevel=3)
    return arrays[0], arrays[1]


def _shared_rows(truth: npt.NDArray[Any], labels: npt.NDArray[Any]) -> tuple[Labels, Labels, Counts]:
    """Return the pairs of a class and a cluster that share rows, both numbered from 0, and how many rows they share."""
    if not truth.ndim == labels.ndim == 1:
        raise ValueError(f"Classes and clusters need one dimension, but have shapes {truth.shape} and {labels.shape}.")
    check_consistent_length(truth, labels)
    classes, clusters = (np.unique(each, return_inverse=True)[1] for each in (truth, labels))
    n_clusters = int(clusters.max(initial=0)) + 1
    pairs, shared = np.unique(classes * n_clusters + clusters, return_counts=True)
    return pairs // n_clusters, pairs % n_clusters, shared


def _sizes(parts: Labels, shared: Counts) -> Counts:
    """Count the rows of each class, or of each cluster."""
    return np.bincount(parts, weights=shared).astype(np.int64)


def _entropy(sizes: Counts) -> float:
    rows = int(sizes.sum())
    return float(-(sizes / rows * (np.log(sizes) - math.log(rows))).sum())


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
        totals += _silhouettes_of(sums, sizes, labels[:, block]).sum(axis=1, dtype=np.float64)
    found = (sizes > 0).sum(axis=1)
    return np.where((found >= 2) & (found < rows), totals / rows, -1.0)


def row_silhouettes(x: npt.NDArray[np.floating[Any]], labels: Labels) -> npt.NDArray[np.float64]:
    """Compute the silhouette (N,) of every row of x (N, D) in one partition (N,); labels count from 0.

    It is slower than ``silhouettes``, but exact: distances are not rounded to single precision.
    """
    one_hot = (labels[:, None] == np.arange(int(labels.max()) + 1)).astype(np.float64)  # (N, K)
    sizes = one_hot.sum(axis=0)[None]
    step = max(1, _CHUNK_CELLS // len(x))
    values = [
        _silhouettes_of((cdist(x[start : start + step], x) @ one_hot)[None], sizes, labels[None, start : start + step])
        for start in range(0, len(x), step)
    ]
    joined: npt.NDArray[np.float64] = np.concatenate(values, axis=1)[0]
    return joined


def _silhouettes_of(sums: npt.NDArray[Any], sizes: npt.NDArray[Any], labels: Labels) -> npt.NDArray[Any]:
    """Return the silhouettes (R, N) of a block of rows, given the sums of distances (R, N, K) to every cluster."""
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
        return np.where(defined, (between - within) / scale, 0.0)
