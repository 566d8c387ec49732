"""Partitions one small step away from a proposal, among which there may be a better one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from typing import Self, TypeVar, final

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist, squareform
from sklearn.neighbors import NearestNeighbors

from coterie.judged.candidates.candidate import Labels, Proposal, Rule, by_size
from coterie.judged.candidates.kmeans import Covariance, cluster_means, enough_rows, k_means_from, mixtures_from
from coterie.judged.candidates.linkage import linkage_cuts
from coterie.judged.space import Floats, ViewGeometry, fit_views

_VOTERS = (5, 15)
_MOST_VOTES = 8  # what still changes by then goes back and forth
_EM_STEPS = 5
_LINKS = 10  # neighbours that connect a row's cluster with theirs
_SMOOTHING = 5  # neighbours by which the density at a row is judged
_NO_DISTANCE = 1e-6  # over the largest: stands for the distance of equal rows where its logarithm is taken
_MOST_MERGES = 6
_CRUMBS = (0.01, 0.04)  # shares of the rows below which a cluster is a crumb
_SPLITS_OF_A_KIND = 3
_MOST_TRIED = 16  # clusters that are looked at for what splits them, the largest: small ones matter little
_FEWEST_SPLIT = 4  # rows
_LEAST_PART = 0.05  # share of a cluster's rows that must lie beyond a gap for it to be more than outliers
_SWAPPED = 3  # merges, each of which is made together with each of as many splits

Rows = npt.NDArray[np.intp]
_Item = TypeVar("_Item")


def moved(x: Floats, proposal: Proposal, *, max_clusters: int = 50, keep_number: bool = False) -> list[Proposal]:
    """Make the partitions that are one small step away from a proposal, in the form of the columns that it saw.

    Rows are given anew to the same clusters: to those of their neighbours, of the likeliest Gaussian, of the nearest
    mean. Clusters that are hardly apart are merged, small ones go to what is near, those that look like two are split.

    Parameters
    ----------
    x : float64 array (N, D)
        The rows in their original units, the same that the proposal was made for.
    proposal : Proposal
        Where to step from.
    max_clusters : int, default 50
        No result has more clusters.
    keep_number : bool, default False
        Whether every result has as many clusters as the proposal; merges then come together with splits.

    Returns
    -------
    list of Proposal
        Some twenty at most, no two alike, none like the proposal, many worse than it. Equal rows that were together
        are so still.
    """
    x = np.asarray(x, dtype=np.float64)
    view = next(view for view in fit_views(x) if view.name == proposal.view)
    scene = _Scene.of(view.transform(x), proposal.labels)
    merges, splits = list(_merges(scene)), list(_splits(scene))
    if keep_number:
        accepted = range(scene.k, scene.k + 1)
        changes = [_split_off(merge, part) for merge in merges[:_SWAPPED] for part in splits[:_SWAPPED]]
    else:
        accepted = range(2, max_clusters + 1)
        changes = [*merges, *_without_crumbs(scene), *(_split_off(scene.labels, part) for part in splits)]
    by_neighbours: Iterable[tuple[Labels, Rule]] = ((labels, "neighbours") for labels in changes)
    return _written_down(proposal, x, chain(_reassigned(scene), by_neighbours), accepted)


def _written_down(
    original: Proposal, x: Floats, moves: Iterable[tuple[Labels, Rule]], accepted: range
) -> list[Proposal]:
    """Turn labels and rules into proposals: of equal ones the first, none like the original."""
    first = _first_alike(x, original.labels)
    found = {by_size(original.labels)[0].tobytes(): original}
    for labels, rule in moves:
        ordered, n_clusters = by_size(labels[first])
        if n_clusters in accepted:
            result = replace(original, labels=ordered, n_clusters=n_clusters, rule=rule, refined=True)
            found.setdefault(ordered.tobytes(), result)
    return list(found.values())[1:]


def _first_alike(x: Floats, labels: Labels) -> Rows:
    """For each row the first one that is equal to it and in the same cluster."""
    order = np.lexsort((*x.T, labels))  # stable: among those alike, the first comes first
    differs = (np.diff(x[order], axis=0) != 0.0).any(axis=1) | (np.diff(labels[order]) != 0)
    leaders = np.concatenate(([0], np.flatnonzero(differs) + 1))
    first = np.empty_like(order)
    first[order] = np.repeat(order[leaders], np.diff(leaders, append=len(order)))
    return first


@final
@dataclass(frozen=True, eq=False)
class _Scene:
    """Rows of one view, their clusters and their neighbours."""

    x: Floats
    labels: Labels
    sizes: Rows
    neighbours: npt.NDArray[np.int64]
    """Nearest other rows (N, up to 15), nearest first."""
    distances: Floats
    """To these."""

    @classmethod
    def of(cls, x: Floats, labels: Labels) -> Self:
        """Find the neighbours; that of all pairs takes no longer in many dimensions, where trees do."""
        count = min(max(_VOTERS), len(x) - 1)
        distances, neighbours = NearestNeighbors(n_neighbors=count, algorithm="brute").fit(x).kneighbors()
        return cls(x, labels, np.bincount(labels), neighbours, distances)

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.sizes)

    @cached_property
    def reach(self) -> Floats:
        """Distance (N,) to a neighbour further down the list, small where it is dense; never quite zero."""
        distance = self.distances[:, min(_SMOOTHING, self.distances.shape[1]) - 1]
        reach: Floats = np.maximum(distance, _NO_DISTANCE * (float(distance.max()) or 1.0))
        return reach

    @cached_property
    def links(self) -> npt.NDArray[np.int64]:
        """Clusters a and b of each row and of each of its neighbours (N, L), as a K + b."""
        links: npt.NDArray[np.int64] = self.labels[:, None] * self.k + self.labels[self.neighbours[:, :_LINKS]]
        return links

    def connection(self) -> Floats:
        """Links (K, K) between two clusters over the rows of the smaller one."""
        links = np.bincount(self.links.ravel(), minlength=self.k**2).reshape(self.k, self.k)
        connection: Floats = (links + links.T) / np.minimum(self.sizes[:, None], self.sizes)
        return connection

    def depth(self) -> Floats:
        """Fall (K, K) of the density from the lower peak of two clusters to the pass between them, in logs."""
        beyond = self.reach[self.neighbours[:, :_LINKS]]
        level = np.maximum(np.maximum(self.reach[:, None], beyond), self.distances[:, :_LINKS])
        lowest = np.full(self.k**2, np.inf)
        np.minimum.at(lowest, self.links.ravel(), level.ravel())
        between = lowest.reshape(self.k, self.k)
        peaks = np.full(self.k, np.inf)
        np.minimum.at(peaks, self.labels, self.reach)
        depth: Floats = np.log(np.minimum(between, between.T) / np.maximum(peaks[:, None], peaks))
        return depth


def _reassigned(scene: _Scene) -> Iterator[tuple[Labels, Rule]]:
    """Give the rows anew to the clusters that there are."""
    n, d = scene.x.shape
    covariance: Covariance = "full" if enough_rows(n, d, scene.k, "full") else "diagonal"
    for labels in mixtures_from(scene.x, [scene.labels], covariance, _EM_STEPS):
        yield labels, "gaussians"
    for labels in k_means_from(scene.x, [scene.labels]):
        yield labels, "centres"
    for count in _VOTERS:
        yield _elected(scene, count), "neighbours"


def _elected(scene: _Scene, count: int) -> Labels:
    """Let each row join the cluster that most of its neighbours are in, until none does; a draw changes nothing."""
    labels, n = scene.labels, len(scene.labels)
    own = np.arange(n)
    for _ in range(_MOST_VOTES):
        ballots = own[:, None] * scene.k + labels[scene.neighbours[:, :count]]
        votes = 2 * np.bincount(ballots.ravel(), minlength=n * scene.k).reshape(n, scene.k)
        votes[own, labels] += 1
        winners = votes.argmax(axis=1)
        if np.array_equal(winners, labels):
            break
        labels = winners
    return labels


def _merges(scene: _Scene) -> Iterator[Labels]:
    """Merge each of the pairs of clusters that are most connected, or that the shallowest valley divides."""
    a, b = np.triu_indices(scene.k, 1)
    means = cluster_means(scene.x, scene.labels)
    apart = cdist(means, means)[a, b]  # decides among pairs that have no link
    most_connected = np.lexsort((apart, -scene.connection()[a, b]))[:_MOST_MERGES].tolist()
    shallowest = np.lexsort((apart, scene.depth()[a, b]))[:_MOST_MERGES].tolist()
    for pair in list(dict.fromkeys(_in_turn(most_connected, shallowest)))[:_MOST_MERGES]:
        yield np.where(scene.labels == b[pair], a[pair], scene.labels)


def _in_turn(*lists: list[_Item]) -> Iterator[_Item]:
    """The first of each list, then the second of each, and so on."""
    return (item for items in zip_longest(*lists) for item in items if item is not None)


def _without_crumbs(scene: _Scene) -> Iterator[Labels]:
    """Let each row of the smallest clusters join that of the nearest row in a larger one."""
    for share in _CRUMBS:
        crumb = (scene.sizes < share * len(scene.x))[scene.labels]
        if crumb.any() and not crumb.all():
            labels = scene.labels.copy()
            labels[crumb] = labels[~crumb][cKDTree(scene.x[~crumb]).query(scene.x[crumb])[1]]
            yield labels


def _split_off(labels: Labels, part: Rows) -> Labels:
    """Let some rows be a cluster of their own."""
    split = labels.copy()
    split[part] = labels.max() + 1
    return split


def _splits(scene: _Scene) -> Iterator[Rows]:
    """Rows to split off: those of one of two compact halves that explain most, and those beyond the widest gaps."""
    largest = np.argsort(-scene.sizes, kind="stable")[:_MOST_TRIED].tolist()
    clusters = [np.flatnonzero(scene.labels == each) for each in largest if scene.sizes[each] >= _FEWEST_SPLIT]
    halves, beyond_gaps = [], []
    for rows in clusters:
        geometry = ViewGeometry.of(scene.x[rows])
        half = next(linkage_cuts(geometry, "ward", [2])) == 1
        halves.append((_explained(geometry.x, half), rows, half))
        if (gap := _widest_gap(geometry, scene.reach[rows])) is not None:
            beyond_gaps.append((gap[0], rows[gap[1]]))
    halves.sort(key=lambda each: -each[0])
    beyond_gaps.sort(key=lambda each: -each[0])
    improved = [
        rows[next(k_means_from(scene.x[rows], [half.astype(np.int64)])) == 1]
        for _, rows, half in halves[:_SPLITS_OF_A_KIND]
    ]
    return _in_turn(improved, [rows for _, rows in beyond_gaps[:_SPLITS_OF_A_KIND]])


def _explained(x: Floats, half: npt.NDArray[np.bool_]) -> float:
    """Sum of squares that a cut of rows in two explains."""
    apart = x[half].mean(axis=0) - x[~half].mean(axis=0)
    return float(half.sum() * (~half).mean() * (apart @ apart))


def _widest_gap(geometry: ViewGeometry, reach: Floats) -> tuple[float, npt.NDArray[np.bool_]] | None:
    """Width, over what is usual, of the widest gap with enough rows on both sides, and which rows are on one.

    It is the last merge of two parts that large in single linkage of max(d_ij, r_i, r_j), r the reach. Outliers, which
    merge later, go with the nearest row of the two parts.
    """
    lengths = np.maximum(geometry.condensed, squareform(np.maximum.outer(reach, reach), checks=False))
    merges = linkage(lengths, "single")
    n = len(reach)
    sizes = np.concatenate((np.ones(n), merges[:, 3]))
    smaller = sizes[merges[:, :2].astype(np.int64)].min(axis=1)
    large_enough = np.flatnonzero(smaller >= max(2.0, _LEAST_PART * n))
    if not large_enough.size:
        return None
    last = int(large_enough[-1])
    width = float(np.log(merges[last, 2] / np.median(merges[:, 2])))
    merges[:, 2] = np.arange(n - 1)
    before, after = (fcluster(merges, last + shift, criterion="distance") for shift in (-0.5, 0.5))
    inner = np.bincount(before)[before] != np.bincount(after)[after]  # only the two that merge there grow
    side = before == before[inner][0]
    if not inner.all():
        side[~inner] = side[inner][cKDTree(geometry.x[inner]).query(geometry.x[~inner])[1]]
    return width, side
