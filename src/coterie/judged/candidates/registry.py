"""Many partitions of the same rows, from classical algorithms on several forms of the columns."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self, final

import numpy as np

from coterie.judged.candidates.candidate import Algorithm, Labels, Proposal, distinct
from coterie.judged.candidates.density import density_modes, density_peaks, hdbscan
from coterie.judged.candidates.kmeans import Covariance, enough_rows, k_means_from, k_means_plus_plus, mixtures_from
from coterie.judged.candidates.linkage import genie_cuts, linkage_cuts, single_cuts
from coterie.judged.candidates.spectral import spectral
from coterie.judged.space import Floats, ViewGeometry, views_of

_STEPS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
_WIDE_STEPS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 26, 35, 50)
_GROWTH = 1.15


def ladder(n: int, n_distinct: int, max_clusters: int, *, wide: bool = False) -> tuple[int, ...]:
    """Numbers of clusters from 2 up, each one at first, then thinning out.

    Parameters
    ----------
    n : int
        Number of rows; clusters of two rows on average are the smallest worth proposing.
    n_distinct : int
        Number of rows that differ.
    max_clusters : int
        Largest number wanted.
    wide : bool
        Take wider steps.
    """
    highest = min(max_clusters, max(2, n // 2), n_distinct)
    steps = list(_WIDE_STEPS if wide else _STEPS)
    growth = _GROWTH**2 if wide else _GROWTH
    while steps[-1] < highest:
        steps.append(round(steps[-1] * growth))
    return tuple(k for k in steps if k <= highest)


@final
@dataclass(frozen=True, slots=True)
class Ladders:
    """Numbers of clusters in fine and in wide steps."""

    fine: tuple[int, ...]
    wide: tuple[int, ...]

    @classmethod
    def of(cls, n: int, n_distinct: int, max_clusters: int, n_clusters: int | None) -> Self:
        """Both ladders; `n_clusters` alone, if it is given."""
        if n_clusters is not None:
            return cls((n_clusters,), (n_clusters,))
        return cls(*(ladder(n, n_distinct, max_clusters, wide=wide) for wide in (False, True)))


Effort = Literal["fast", "balanced", "thorough"]

# Beyond, single linkage does little but set rows apart, eigenvectors are many, and so are parameters of mixtures;
# that all clusters have the same shape is most often so of the few classes of a table.
_MOST_CLUSTERS: dict[Algorithm, int] = {
    "single linkage": 12,
    "spectral": 30,
    "Gaussian mixture": 30,
    "Gaussian mixture, shared shape": 12,
}


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What is run on one view. Numbers of clusters are taken in wide steps, but for what is named in `fine`."""

    fine: frozenset[Algorithm] = frozenset()
    ward: bool = True
    restarts: int = 0  # of k-means, besides the start from Ward's clusters
    mixtures: tuple[Covariance, ...] = ()
    em_steps: int = 12
    linkages: tuple[Literal["average", "complete"], ...] = ()
    single: bool = False
    ginis: tuple[float, ...] = (0.3,)
    leafless_ginis: tuple[float, ...] = ()
    hdbscan_sizes: tuple[int, ...] = ()
    selections: tuple[Literal["eom", "leaf"], ...] = ("eom",)
    spectral_neighbours: tuple[int, ...] = ()
    peaks: bool = False
    modes: bool = False

    def ks(self, algorithm: Algorithm, ladders: Ladders) -> Sequence[int]:
        """Numbers of clusters that an algorithm is asked for."""
        rungs = ladders.fine if algorithm in self.fine else ladders.wide
        most = _MOST_CLUSTERS.get(algorithm, rungs[-1])
        return [k for k in rungs if k <= most or len(rungs) == 1]  # a number that was asked for is always tried


_THOROUGH = Plan(
    fine=frozenset({"k-means", "Ward linkage", "Genie linkage", "Gaussian mixture", "average linkage", "spectral"}),
    restarts=1,
    mixtures=("full", "diagonal", "shared"),
    em_steps=40,
    linkages=("average", "complete"),
    single=True,
    ginis=(0.3, 0.5),
    leafless_ginis=(0.3, 0.5),
    hdbscan_sizes=(5, 10, 20, 40),
    selections=("eom", "leaf"),
    spectral_neighbours=(7, 15, 30),
    peaks=True,
    modes=True,
)
PLANS: dict[Effort, tuple[Plan, Plan]] = {
    "fast": (
        Plan(mixtures=("full", "shared"), em_steps=8, single=True, spectral_neighbours=(10,), modes=True),
        Plan(ward=False),
    ),
    "balanced": (
        Plan(
            fine=frozenset({"k-means", "Ward linkage"}),
            mixtures=("full", "diagonal", "shared"),
            em_steps=25,
            linkages=("average",),
            single=True,
            ginis=(0.3, 0.5),
            leafless_ginis=(0.3,),
            hdbscan_sizes=(5, 12, 30),
            selections=("eom", "leaf"),
            spectral_neighbours=(8, 20),
            peaks=True,
            modes=True,
        ),
        Plan(ward=False, mixtures=("full", "diagonal"), hdbscan_sizes=(10,), spectral_neighbours=(10,), modes=True),
    ),
    "thorough": (_THOROUGH, _THOROUGH),
}
"""By effort: what is run on the standardised columns, and on each other form of them."""
MOST_VIEWS: dict[Effort, int] = {"fast": 2, "balanced": 4, "thorough": 4}
"""How many forms of the columns are looked at."""


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
            for algorithm, proposed in _runs(ViewGeometry.of(rows), plan, ladders, seed):
                tell(f"{algorithm}, {name} columns")
                for labels in proposed:
                    yield algorithm, name, labels

    return distinct(partitions(), accepted=range(lowest, highest + 1))


def _runs(geometry: ViewGeometry, plan: Plan, ladders: Ladders, seed: int) -> Iterator[Run]:
    """Yield each algorithm of a plan with its partitions, which are made as they are asked for."""
    yield from _compact_runs(geometry, plan, ladders, seed)
    yield from _linked_runs(geometry, plan, ladders)
    yield from _dense_runs(geometry, plan, ladders, seed)


def _compact_runs(geometry: ViewGeometry, plan: Plan, ladders: Ladders, seed: int) -> Iterator[Run]:
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


def _linked_runs(geometry: ViewGeometry, plan: Plan, ladders: Ladders) -> Iterator[Run]:
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


def _dense_runs(geometry: ViewGeometry, plan: Plan, ladders: Ladders, seed: int) -> Iterator[Run]:
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
