"""Evidence from the modes of the density: whether each cluster has one, and only one."""

import numpy as np

from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Integers, Partitions, Reals, rand_index
from coterie.evidence.whole import modes_above


def mode_evidence(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    """Most and second most prominent mode of each cluster: one without a mode is a part of another."""
    best = np.zeros(len(parts.sizes))
    second = np.zeros(len(parts.sizes))
    for peak, prominence in zip(geometry.peaks[::-1], geometry.prominence[::-1], strict=True):
        cluster = parts.cluster[:, peak]  # no cluster twice, since each is of another partition
        second[cluster] = best[cluster]
        best[cluster] = prominence
    best, second = np.log1p(best), np.log1p(second)
    return {
        "own_mode": parts.weighted(best),
        "own_mode_worst": parts.least(best),
        "own_mode_median": parts.median(best),
        "second_mode_mean": parts.weighted(second),
        "second_mode_worst": parts.most(second),
        "without_mode": parts.mean(best < np.log(2.0)),
        "with_two_modes": parts.mean(second > np.log(2.0)),
        "rows_without_mode": parts.weighted(best < np.log(2.0)),
        "rows_with_two_modes": parts.weighted(second > np.log(2.0)),
        "own_mode_notable": parts.least_notable(best),
        "basins_agree": _agreement(parts, geometry.basins[0]),
        "high_basins_agree": _agreement(parts, geometry.basins[1]),
        "log_modes_per_cluster": np.log(modes_above(geometry, 1.0) / parts.n_clusters),
    }


def _agreement(parts: Partitions, basins: Integers) -> Reals:
    """Adjusted Rand index (R,) of each partition with the basins (N,) of the modes."""
    width = int(basins.max()) + 1
    cells = np.bincount((parts.cluster * width + basins).ravel(), minlength=len(parts.sizes) * width)
    both = parts.total(np.square(cells.reshape(-1, width).astype(np.float64)).sum(axis=1)) - parts.n_rows
    ours = parts.total(np.square(parts.sizes)) - parts.n_rows
    theirs = float(np.square(np.bincount(basins).astype(np.float64)).sum()) - parts.n_rows
    return rand_index(both, ours, theirs, parts.n_rows)
