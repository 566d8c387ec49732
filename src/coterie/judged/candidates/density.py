"""Clusters as dense regions: HDBSCAN, density peaks, and modes of the density."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from sklearn.cluster import HDBSCAN

from coterie.judged.candidates.candidate import Labels
from coterie.judged.space import Floats, Modes, ViewGeometry


def hdbscan(geometry: ViewGeometry, size: int, selection: Literal["eom", "leaf"], smoothing: int) -> Iterator[Labels]:
    """Yield HDBSCAN's clusters of at least that size, if it finds two; noise joins the nearest clustered row."""
    n = len(geometry.x)
    if size < 2 or 2 * size > n or smoothing > n:
        return
    model = HDBSCAN(min_cluster_size=size, min_samples=smoothing, cluster_selection_method=selection, copy=True)
    labels = model.fit(geometry.x).labels_.astype(np.int64)
    if labels.max() >= 1:
        yield _without_noise(geometry.distances, labels)


def _without_noise(distances: Floats, labels: Labels) -> Labels:
    noise = np.flatnonzero(labels < 0)
    clustered = np.flatnonzero(labels >= 0)
    complete = labels.copy()
    complete[noise] = labels[clustered[distances[np.ix_(noise, clustered)].argmin(axis=1)]]
    return complete


def density_peaks(geometry: ViewGeometry, ks: Sequence[int], smoothing: int) -> Iterator[Labels]:
    """Let the densest rows that are far from any denser one be centres (Rodriguez and Laio 2014).

    Every other row follows its nearest denser row.
    """
    reach = geometry.reach(smoothing)
    order = reach.argsort(kind="stable")  # densest first
    ranked = geometry.distances[np.ix_(order, order)]
    n = len(order)
    ranked[np.triu_indices(n)] = np.inf
    leader = ranked.argmin(axis=1)  # of the densest row: itself
    gap = ranked[np.arange(n), leader]
    gap[0] = np.inf
    prominence = gap / reach[order]
    by_prominence = np.argsort(-prominence, kind="stable")
    for k in ks:
        following = leader.copy()
        following[by_prominence[:k]] = by_prominence[:k]
        while not np.array_equal(following, jumped := following[following]):  # halves the way to the centre each time
            following = jumped
        labels = np.empty(n, dtype=np.int64)
        labels[order] = following
        yield labels


def density_modes(geometry: ViewGeometry, ks: Sequence[int], smoothing: int) -> Iterator[Labels]:
    """Let the modes that rise most above the passes between them be clusters, with the rows that climb to each."""
    ks = [k for k in ks if k < len(geometry.x)]
    if not ks:
        return
    log_reach = np.log(geometry.reach(smoothing))
    tree = geometry.smoothed_tree(smoothing)
    modes = Modes.of(tree.edges, np.log(np.maximum(tree.lengths, np.exp(log_reach.min()))), log_reach)
    for threshold in modes.thresholds(log_reach, ks):
        if threshold > 0.0:  # beyond, every row would be a mode
            yield modes.basins(threshold).astype(np.int64)
