"""Groups of similar clusters, so that many clusters can be read: a tree cut at a few branches."""

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from coterie.base import Selection
from coterie.reporting.data import OUTLIER, ClusteringData
from coterie.reporting.profile import FeatureStatistics, cluster_names, describe_traits, feature_statistics

GROUPED_FROM: Final = 13  # clusters from which they are grouped
_MOST: Final = 12  # groups
_FEWEST: Final = 3


@final
@dataclass(frozen=True)
class Group:
    """Clusters that are similar to each other, the largest first."""

    number: int
    name: str  # what they have in common; empty if no column tells
    clusters: tuple[int, ...]
    size: int  # rows
    fraction: float


def group_clusters(
    data: ClusteringData, selection: Selection | None, statistics: FeatureStatistics | None
) -> tuple[Group, ...]:
    """Group the clusters of a result that has many of them, the largest group first; no groups if there are few.

    The groups are a coarser level of the selection if one fits, or else branches of Ward's tree of the cluster means.
    """
    if data.n_clusters < GROUPED_FROM:
        return ()
    branch = _coarser_level(selection, data.n_clusters)
    if branch is None:
        branch = _branches(data, by_direction=statistics is None and data.table.image is None)
    sizes = np.bincount(branch, weights=data.sizes)
    order = np.argsort(-sizes, kind="stable")
    names = _names(data, np.argsort(order, kind="stable")[branch], len(order)) if statistics is not None else None
    members = [np.flatnonzero(branch == old) for old in order]
    return tuple(
        Group(
            number=number,
            name="" if names is None else names[number],
            clusters=tuple(own[np.argsort(-data.sizes[own], kind="stable")].tolist()),
            size=int(sizes[old]),
            fraction=float(sizes[old] / len(data.labels)),
        )
        for number, (old, own) in enumerate(zip(order, members, strict=True))
    )


def _coarser_level(selection: Selection | None, n_clusters: int) -> NDArray[np.int64] | None:
    """Return the cluster of a coarser level that each cluster is in; None if no level groups them well."""
    if selection is None or selection.chosen is None:
        return None
    parents_of = {level["n_clusters"]: level.get("parents") for level in selection.levels}
    branch, number = np.arange(n_clusters), selection.chosen["n_clusters"]
    while (parents := parents_of.get(number)) is not None and len(parents) > branch.max():
        branch = np.asarray(parents, dtype=np.int64)[branch]
        number = max(parents) + 1  # each cluster of the level before has parts
        largest = np.bincount(branch).max()
        if _FEWEST <= number <= _MOST and largest <= n_clusters / 2:
            return np.unique(branch, return_inverse=True)[1].astype(np.int64)
    return None


def _branches(data: ClusteringData, *, by_direction: bool) -> NDArray[np.int64]:
    """Cut the tree of the cluster means into branches, about as many as the square root of the clusters."""
    from scipy.cluster.hierarchy import fcluster, linkage  # noqa: PLC0415  (slow to import, for many clusters only)

    inside = np.flatnonzero(data.inside)
    sums = np.zeros((data.n_clusters, data.encoded.shape[1]))
    np.add.at(sums, data.labels[inside], data.encoded[inside])
    means = sums / np.maximum(data.sizes, 1)[:, None]
    if by_direction:
        means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    wanted = int(np.clip(round(np.sqrt(data.n_clusters)), _FEWEST, _MOST))
    return fcluster(linkage(means, "ward"), wanted, criterion="maxclust").astype(np.int64) - 1


def _names(data: ClusteringData, group_of: NDArray[np.int64], n_groups: int) -> list[str]:
    """Name the groups as if they were clusters."""
    labels = np.where(data.inside, group_of[np.maximum(data.labels, 0)], OUTLIER)
    grouped = replace(data, labels=labels, prototypes=np.zeros((n_groups, data.prototypes.shape[1]), np.float32))
    statistics = feature_statistics(grouped)
    return cluster_names([describe_traits(grouped, statistics, group) for group in range(n_groups)])
