"""Many partitions of the same rows, from classical algorithms on several forms of the columns."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np

from coterie.proposals.centres import k_means_from, k_means_plus_plus
from coterie.proposals.dendrograms import genie_cuts, linkage_cuts, single_cuts
from coterie.proposals.densities import density_modes, density_peaks, hdbscan
from coterie.proposals.geometry import Geometry
from coterie.proposals.graphs import spectral
from coterie.proposals.ladder import Ladders
from coterie.proposals.mixtures import Covariance, enough_rows, mixtures_from
from coterie.proposals.partitions import Algorithm, Floats, Labels, Proposal, distinct
from coterie.proposals.plans import MOST_VIEWS, PLANS, Effort, Plan
from coterie.proposals.views import views_of

_MIXTURES: dict[Covariance, Algorithm] = {
    "full": "Gaussian mixture",
    "diagonal": "Gaussian mixture, diagonal",
    "shared": "Gaussian mixture, shared shape",
}
_LINKAGES: dict[Literal["average", "complete"], Algorithm] = {
    "average": "average linkage",
    "complete": "complete linkage",
}
_SMOOTHING = 5  # neighbours by which the density at a row is judged
_MODE_SMOOTHING = 10  # modes need a smoother density

Run = tuple[Algorithm, Iterable[Labels]]


def propose(
    x: Floats,
    *,
    effort: Effort,
    max_clusters: int = 50,
    n_clusters: int | None = None,
    seed: int,
    on_progress: Callable[[str], None] | None = None,
) -> list[Proposal]:
    """Propose partitions of the same rows into many numbers of clusters.

    Parameters
    ----------
    x : float64 array (N, D)
        Rows in their original units, finite, at most some 2,000: distances of all pairs are held.
    effort : {"fast", "balanced", "thorough"}
        How many algorithms see how many forms of the columns.
    max_clusters : int, default 50
        No proposal has more clusters.
    n_clusters : int, optional
        If given, every proposal has exactly as many.
    seed : int
        Seed of restarts; equal seeds give equal proposals.
    on_progress : callable, optional
        Called with a few words as each algorithm begins.

    Returns
    -------
    list of Proposal
        No two alike. Empty where nothing can be proposed, such as when all rows are equal, or when fewer rows
        differ than `n_clusters`.
    """
    if len(x) < 2:
        return []
    views = list(views_of(np.asarray(x, dtype=np.float64)).items())[: MOST_VIEWS[effort]]
    n_distinct = len(np.unique(views[0][1], axis=0))
    lowest, highest = (2, max_clusters) if n_clusters is None else (n_clusters, n_clusters)
    if n_distinct < max(2, lowest):
        return []
    ladders = Ladders.of(len(x), n_distinct, max_clusters, n_clusters)
    tell = on_progress or (lambda _: None)

    def partitions() -> Iterator[tuple[Algorithm, str, Labels]]:
        for position, (name, rows) in enumerate(views):
            plan = PLANS[effort][min(position, 1)]
            for algorithm, proposed in _runs(Geometry.of(rows), plan, ladders, seed):
                tell(f"{algorithm}, {name} columns")
                for labels in proposed:
                    yield algorithm, name, labels

    return distinct(partitions(), accepted=range(lowest, highest + 1))


def _runs(geometry: Geometry, plan: Plan, ladders: Ladders, seed: int) -> Iterator[Run]:
    """Yield each algorithm of a plan with its partitions, which are made as they are asked for."""
    yield from _compact_runs(geometry, plan, ladders, seed)
    yield from _linked_runs(geometry, plan, ladders)
    yield from _dense_runs(geometry, plan, ladders, seed)


def _compact_runs(geometry: Geometry, plan: Plan, ladders: Ladders, seed: int) -> Iterator[Run]:
    """Ward's clusters, k-means from them, and mixtures from those."""
    n, d = geometry.x.shape
    names: list[Algorithm] = ["Ward linkage", "k-means", *(_MIXTURES[covariance] for covariance in plan.mixtures)]
    every = sorted({k for name in names for k in plan.ks(name, ladders)})
    ward = dict(zip(every, linkage_cuts(geometry, "ward", every), strict=True))
    if plan.ward:
        yield "Ward linkage", [ward[k] for k in plan.ks("Ward linkage", ladders)]
    means = dict(zip(every, k_means_from(geometry.x, (ward[k] for k in every)), strict=True))
    yield "k-means", [means[k] for k in plan.ks("k-means", ladders)]
    for restart in range(plan.restarts):
        yield "k-means", k_means_plus_plus(geometry.x, plan.ks("k-means", ladders), seed + restart)
    for covariance in plan.mixtures:
        algorithm = _MIXTURES[covariance]
        starts = [means[k] for k in plan.ks(algorithm, ladders) if enough_rows(n, d, k, covariance)]
        yield algorithm, mixtures_from(geometry.x, starts, covariance, plan.em_steps)


def _linked_runs(geometry: Geometry, plan: Plan, ladders: Ladders) -> Iterator[Run]:
    """Clusters that merge by the distances between their rows."""
    for method in plan.linkages:
        algorithm = _LINKAGES[method]
        yield algorithm, linkage_cuts(geometry, method, plan.ks(algorithm, ladders))
    if plan.single:
        yield "single linkage", single_cuts(geometry.tree, plan.ks("single linkage", ladders))
    for gini in plan.ginis:
        yield "Genie linkage", genie_cuts(geometry.tree, plan.ks("Genie linkage", ladders), gini=gini)
    for gini in plan.leafless_ginis:
        tree = geometry.smoothed_tree(_SMOOTHING)
        yield "Genie linkage", genie_cuts(tree, plan.ks("Genie linkage", ladders), gini=gini, skip_leaves=True)


def _dense_runs(geometry: Geometry, plan: Plan, ladders: Ladders, seed: int) -> Iterator[Run]:
    """Regions of many rows near one another, and graphs of neighbours."""
    for size in plan.hdbscan_sizes:
        for selection in plan.selections:
            yield "HDBSCAN", hdbscan(geometry, size, selection, min(size, _SMOOTHING))
    for count in plan.spectral_neighbours:
        yield "spectral", spectral(geometry, plan.ks("spectral", ladders), count, seed)
    if plan.peaks:
        yield "density peaks", density_peaks(geometry, plan.ks("density peaks", ladders), _SMOOTHING)
    if plan.modes:
        yield "density modes", density_modes(geometry, plan.ks("density modes", ladders), _MODE_SMOOTHING)
