"""Refinement: partitions one small change away from a candidate, among which there may be a better one."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import TypeVar, final

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist, squareform

from coterie.judged.candidates.kmeans import (
    Covariance,
    cluster_means,
    has_enough_rows,
    improve_by_k_means,
    improve_by_mixture,
    linkage_cuts,
)
from coterie.judged.candidates.registry import Candidate, order_by_size
from coterie.judged.space import Floats, Geometry, Integers, Labels, Space

_VOTING_NEIGHBOURS = (5, 15)
_MAX_VOTES = 8  # labels that still change by then oscillate
_EM_STEPS = 5
_LINKS = 10  # neighbours that connect a row's cluster with theirs
_SMOOTHING = 5  # rank of the neighbour whose distance estimates the density at a row
_ZERO_DISTANCE = 1e-6  # over the largest distance: replaces the distance of equal rows where its logarithm is taken
_MAX_MERGES = 6
_SMALL_FRACTIONS = (0.01, 0.04)  # of the rows: smaller clusters are dissolved
_SPLITS_PER_KIND = 3
_MAX_SPLIT_CLUSTERS = 16  # only the largest clusters are considered for splitting
_MIN_ROWS_TO_SPLIT = 4
_MIN_PART = 0.05  # fraction of a cluster's rows that must lie beyond a gap; fewer are outliers
_MAX_SWAPS = 3  # merges, each combined with each of that many splits

_Item = TypeVar("_Item")


def neighbouring_partitions(
    x: Floats | Space, candidate: Candidate, *, max_clusters: int = 50, keep_number: bool = False
) -> list[Candidate]:
    """Return partitions one small change away from a candidate, computed in its view.

    Rows are reassigned to the same clusters: to that of their neighbours, the most probable Gaussian, the nearest mean.
    Pairs of clusters that are hardly separated are merged, small clusters dissolved, bimodal ones split.

    With `keep_number`, merges are combined with splits, so that the number of clusters stays. There are some twenty
    results at most, all distinct and different from the candidate; many are worse. Equal rows of one cluster stay
    together.
    """
    space = Space.of(x)
    state = _State(space.geometry(candidate.view), candidate.labels)
    merges, splits = list(_merge_pairs(state)), list(_find_splits(state))
    if keep_number:
        accepted = range(state.k, state.k + 1)
        changes = [_split_off(merge, part) for merge in merges[:_MAX_SWAPS] for part in splits[:_MAX_SWAPS]]
    else:
        accepted = range(2, max_clusters + 1)
        changes = [*merges, *_dissolve_small(state), *(_split_off(state.labels, part) for part in splits)]
    first = _first_equal(space.x, candidate.labels)
    found = {order_by_size(candidate.labels)[0].tobytes(): candidate}
    for labels, rule in (*_reassign(state), *((labels, "neighbours") for labels in changes)):
        ordered, n_clusters = order_by_size(labels[first])
        if n_clusters in accepted:
            result = replace(candidate, labels=ordered, n_clusters=n_clusters, rule=rule, refined=True)
            found.setdefault(ordered.tobytes(), result)
    return list(found.values())[1:]


def _first_equal(x: Floats, labels: Labels) -> Integers:
    """Return for each row the first one that is equal to it and in the same cluster."""
    _, first, inverse = np.unique(np.column_stack((x, labels)), axis=0, return_index=True, return_inverse=True)
    return first[inverse]


@final
class _State:
    """Rows of one view, their clusters and their nearest other rows (N, up to 15), nearest first."""

    def __init__(self, geometry: Geometry, labels: Labels) -> None:
        self.x, self.labels, self.sizes = geometry.rows, labels, np.bincount(labels)
        self.k = len(self.sizes)
        self.distances, self.neighbours = geometry.brute_neighbours
        # The distance to the fifth neighbour is small where the density is high; never zero.
        reach = self.distances[:, min(_SMOOTHING, self.distances.shape[1]) - 1]
        self.reach: Floats = np.maximum(reach, _ZERO_DISTANCE * (float(reach.max()) or 1.0))
        # Clusters a and b of each row and each of its neighbours (N, L), as a K + b.
        self.links = labels[:, None] * self.k + labels[self.neighbours[:, :_LINKS]]

    def connection(self) -> Floats:
        """Return the links (K, K) between two clusters over the size of the smaller one."""
        links = np.bincount(self.links.ravel(), minlength=self.k**2).reshape(self.k, self.k)
        connection: Floats = (links + links.T) / np.minimum(self.sizes[:, None], self.sizes)
        return connection

    def depth(self) -> Floats:
        """Return the log density ratio (K, K) of the lower peak of two clusters to the saddle between them."""
        beyond = self.reach[self.neighbours[:, :_LINKS]]
        level = np.maximum(np.maximum(self.reach[:, None], beyond), self.distances[:, :_LINKS])
        lowest = np.full(self.k**2, np.inf)
        np.minimum.at(lowest, self.links.ravel(), level.ravel())
        between = lowest.reshape(self.k, self.k)
        peaks = np.full(self.k, np.inf)
        np.minimum.at(peaks, self.labels, self.reach)
        depth: Floats = np.log(np.minimum(between, between.T) / np.maximum(peaks[:, None], peaks))
        return depth


def _reassign(state: _State) -> Iterator[tuple[Labels, str]]:
    """Assign the rows again to the same clusters; yield the labels and the assignment rule that fits them."""
    n, d = state.x.shape
    covariance: Covariance = "full" if has_enough_rows(n, d, state.k, "full") else "diagonal"
    for labels in improve_by_mixture(state.x, [state.labels], covariance, _EM_STEPS):
        yield labels, "gaussians"
    yield improve_by_k_means(state.x, state.labels), "centres"
    for count in _VOTING_NEIGHBOURS:
        yield _majority_vote(state, count), "neighbours"


def _majority_vote(state: _State, count: int) -> Labels:
    """Move each row to the cluster of most of its neighbours until nothing changes; a tie moves nothing."""
    labels, n = state.labels, len(state.labels)
    own = np.arange(n)
    for _ in range(_MAX_VOTES):
        pairs = own[:, None] * state.k + labels[state.neighbours[:, :count]]
        votes = 2 * np.bincount(pairs.ravel(), minlength=n * state.k).reshape(n, state.k)
        votes[own, labels] += 1
        winners = votes.argmax(axis=1)
        if np.array_equal(winners, labels):
            break
        labels = winners
    return labels


def _merge_pairs(state: _State) -> Iterator[Labels]:
    """Merge each of the pairs of clusters with most links, or with the shallowest valley between them."""
    a, b = np.triu_indices(state.k, 1)
    means = cluster_means(state.x, state.labels)
    apart = cdist(means, means)[a, b]  # decides among pairs that have no link
    most_connected = np.lexsort((apart, -state.connection()[a, b]))[:_MAX_MERGES].tolist()
    shallowest = np.lexsort((apart, state.depth()[a, b]))[:_MAX_MERGES].tolist()
    for pair in list(dict.fromkeys(_interleave(most_connected, shallowest)))[:_MAX_MERGES]:
        yield np.where(state.labels == b[pair], a[pair], state.labels)


def _interleave(*lists: list[_Item]) -> Iterator[_Item]:
    """Yield the first of each list, then the second of each, and so on."""
    return (item for items in zip_longest(*lists) for item in items if item is not None)


def _dissolve_small(state: _State) -> Iterator[Labels]:
    """Move each row of the smallest clusters to that of the nearest row in a larger one."""
    for fraction in _SMALL_FRACTIONS:
        crumb = (state.sizes < fraction * len(state.x))[state.labels]
        if crumb.any() and not crumb.all():
            labels = state.labels.copy()
            labels[crumb] = labels[~crumb][cKDTree(state.x[~crumb]).query(state.x[crumb])[1]]
            yield labels


def _split_off(labels: Labels, part: Integers) -> Labels:
    """Make some rows a cluster of their own."""
    split = labels.copy()
    split[part] = labels.max() + 1
    return split


def _find_splits(state: _State) -> Iterator[Integers]:
    """Find rows to split off: halves of clusters that explain most variance, and rows beyond the widest gaps."""
    largest = np.argsort(-state.sizes, kind="stable")[:_MAX_SPLIT_CLUSTERS].tolist()
    clusters = [np.flatnonzero(state.labels == each) for each in largest if state.sizes[each] >= _MIN_ROWS_TO_SPLIT]
    halves, beyond_gaps = [], []
    for rows in clusters:
        geometry = Geometry(state.x[rows])
        cut = next(linkage_cuts(geometry, [2]))
        half = cut == cut[0]
        apart = geometry.rows[half].mean(axis=0) - geometry.rows[~half].mean(axis=0)
        halves.append((float(half.sum() * (~half).mean() * (apart @ apart)), rows, half))
        if (gap := _widest_gap(geometry, state.reach[rows])) is not None:
            beyond_gaps.append((gap[0], rows[gap[1]]))
    halves.sort(key=lambda each: -each[0])
    beyond_gaps.sort(key=lambda each: -each[0])
    best = halves[:_SPLITS_PER_KIND]
    improved = [rows[improve_by_k_means(state.x[rows], half.astype(np.int64)) == 1] for _, rows, half in best]
    return _interleave(improved, [rows for _, rows in beyond_gaps[:_SPLITS_PER_KIND]])


def _widest_gap(geometry: Geometry, reach: Floats) -> tuple[float, npt.NDArray[np.bool_]] | None:
    """Return the log width, over the median, of the widest gap with enough rows on both sides, and one of the sides.

    It is the last merge of two large parts in single linkage of max(d_ij, r_i, r_j), r the reach. Outliers, which merge
    later, join the side of their nearest row.
    """
    lengths = np.maximum(geometry.condensed, squareform(np.maximum.outer(reach, reach), checks=False))
    merges = linkage(lengths, "single")
    n = len(reach)
    sizes = np.concatenate((np.ones(n), merges[:, 3]))
    smaller = sizes[merges[:, :2].astype(np.int64)].min(axis=1)
    large_enough = np.flatnonzero(smaller >= max(2.0, _MIN_PART * n))
    if not large_enough.size:
        return None
    last = int(large_enough[-1])
    width = float(np.log(merges[last, 2] / np.median(merges[:, 2])))
    merges[:, 2] = np.arange(n - 1)
    before, after = (fcluster(merges, last + shift, criterion="distance") for shift in (-0.5, 0.5))
    inner = np.bincount(before)[before] != np.bincount(after)[after]  # only the two that merge there grow
    side = before == before[inner][0]
    if not inner.all():
        side[~inner] = side[inner][cKDTree(geometry.rows[inner]).query(geometry.rows[~inner])[1]]
    return width, side
