"""How far k-means agrees with itself on two halves of the rows, for each number of clusters."""

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from coterie.judged.candidates.kmeans import cluster_means, k_means_from_ward
from coterie.judged.features.partitions import Partitions, rand_indices
from coterie.judged.space import Floats, Geometry

_NUMBERS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30)
_MIN_ROWS = 2  # of a half, per cluster
_SEED = 0  # halves are the same whenever the rows are


def halves_agreement(geometry: Geometry, numbers: Sequence[int] = _NUMBERS) -> tuple[Floats, Floats]:
    """Return log numbers of clusters, and the adjusted Rand index of two partitions of all rows into that many.

    Each is by the means of k-means on one half of the rows, which are split at random.
    """
    rows = geometry.rows
    # The order of the rows must not matter: the halves are random in a sorted order.
    order = np.lexsort(rows.T)[np.random.default_rng(_SEED).permutation(len(rows))]
    halves = [type(geometry)(rows[np.sort(part)]) for part in np.array_split(order, 2)]
    numbers = [k for k in numbers if k * _MIN_ROWS <= len(halves[1].rows)]
    if not numbers:
        return np.zeros(1), np.ones(1)
    labels = []
    for k in numbers:
        for half in halves:
            means = cluster_means(half.rows, k_means_from_ward(half, k))
            labels.append(cdist(rows, means, "sqeuclidean").argmin(axis=1))
    return np.log(numbers), np.diagonal(rand_indices(np.stack(labels)), 1)[::2]


def stability_features(curve: tuple[Floats, Floats], parts: Partitions) -> dict[str, Floats]:
    """Interpolate the agreement of the halves at the number of clusters of each partition."""
    numbers, agreement = curve
    own = np.interp(np.log(parts.n_clusters), numbers, agreement)
    return {"halves_agree": own, "halves_agree_relative": own - agreement.max()}
