"""The candidate algorithms, each declared once, and the candidate partitions that they generate.

To add an algorithm, write a function ``generate(geometry, ks, **settings)`` that yields integer labels (N,), and
register it; nothing else has to change, and code outside the package can do the same:

>>> import numpy as np
>>> def halves(geometry, ks):
...     yield (geometry.rows[:, 0] > np.median(geometry.rows[:, 0])).astype(np.int64)
>>> register(Algorithm("halves", halves))
>>> found = generate_candidates(np.random.default_rng(0).normal(size=(50, 2)), effort="fast", seed=0)
>>> "halves" in {candidate.algorithm for candidate in found}
True
>>> del ALGORITHMS["halves"]
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.judged.candidates.communities import communities, nested_communities
from coterie.judged.candidates.graphs import (
    density_modes,
    density_peaks,
    divisive_tree,
    genie,
    hdbscan,
    single_linkage,
    spectral,
)
from coterie.judged.candidates.kmeans import gaussian_mixture, k_means, k_means_from_ward, linkage_cuts
from coterie.judged.candidates.mixed import mixed_mixture
from coterie.judged.features.measures import silhouette_features
from coterie.judged.features.partitions import Partitions
from coterie.judged.space import Floats, Geometry, Labels, Space

Effort = Literal["fast", "balanced"]
EFFORTS: Final[tuple[Effort, ...]] = ("fast", "balanced")
MAX_VIEWS: Final[dict[Effort, int]] = {"fast": 2, "balanced": 7}  # views that algorithms run on
MAX_ON_OTHER_VIEWS: Final = 12  # clusters: with more, other views than the reference add no good candidates

_FINE_STEPS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
_WIDE_STEPS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 26, 35, 50)
_GROWTH = 1.15
_USUAL_CLUSTERS = 50  # numbers up to this one are always tried
_ROWS_PER_TOPIC = 10  # of embeddings, among those that are clustered
_ROWS_PER_CLUSTER = 5  # among those that are clustered, for larger numbers
_MAX_FALL = 0.95  # fraction of the highest silhouette below which still larger numbers are not tried
# What algorithms ran on, where the name of the view is no adjective.
_ROWS_OF_VIEWS: Final = {
    "ranks": "ranks of the columns",
    "power": "power-transformed columns",
    "factors": "factors of the columns",
    "cosine": "directions of the rows",
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A partition of the rows that some algorithm generated."""

    labels: Labels  # (N,): 0 to n_clusters - 1, all in use, the largest cluster first; ties by first row
    n_clusters: int
    algorithm: str  # name of the algorithm, such as "Ward linkage"
    view: str  # the view of the columns that it ran on, such as "standardised"
    rule: str  # how new rows are assigned to its clusters: "centres", "gaussians" or "neighbours"

    def __str__(self) -> str:
        return f"{self.algorithm} on {_ROWS_OF_VIEWS.get(self.view, f'{self.view} columns')}"


def order_by_size(labels: npt.NDArray[np.integer]) -> tuple[Labels, int]:
    """Renumber clusters from the largest down, ties by first occurrence; return the labels and their number."""
    numbers = labels.astype(np.int64)
    numbers -= numbers.min(initial=0)
    if numbers.max(initial=0) > 4 * len(numbers):  # too far apart to count them by position
        numbers = np.unique(numbers, return_inverse=True)[1]
    sizes = np.bincount(numbers)
    first = np.empty(len(sizes), dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last one written is the first row
    used = np.flatnonzero(sizes)
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[used[np.lexsort((first[used], -sizes[used]))]] = np.arange(len(used))
    return rank[numbers], len(used)


@final
@dataclass(frozen=True, slots=True)
class Runs:
    """How often an algorithm runs on one view, and with which settings."""

    settings: tuple[Mapping[str, Any], ...] = ({},)  # keyword arguments of each run
    fine: bool = False  # whether the numbers of clusters are in fine steps instead of wide ones


OFF: Final = Runs(())  # the algorithm does not run


@final
@dataclass(frozen=True, slots=True)
class Algorithm:
    """A source of candidate partitions.

    Attributes
    ----------
    name : str
        Shown to users; judges know algorithms by it, and score those that they do not know by their features alone.
    generate : callable
        ``generate(geometry, ks, **settings)`` yields integer labels (N,), usually one array for each k of ``ks``. Every
        distinct value is a cluster. ``geometry`` is a ``coterie.judged.space.Geometry``; its ``rows`` are (N, D).
    rule : str
        How new rows are assigned: "centres" (nearest mean), "gaussians" (most probable) or "neighbours" (vote).
    runs : dict of effort to (Runs, Runs)
        What is run on the reference view, and on every other view; by default once on each view.
    other_views : tuple of str, optional
        The other views on which it runs; by default all of them.
    max_clusters : int, optional
        Largest number of clusters that it is asked for, unless a larger one was given by the user.
    seeded : bool
        Whether ``generate`` takes a ``seed`` too.
    metric : str
        "euclidean" for algorithms that run on the views of a table; "cosine" for those that run on the directions of
        embeddings, and whose ``geometry`` is a ``coterie.judged.cosine.CosineGeometry``.
    """

    name: str
    generate: Callable[..., Iterable[npt.NDArray[np.integer]]]
    rule: str = "neighbours"
    runs: Mapping[Effort, tuple[Runs, Runs]] = field(default_factory=lambda: dict.fromkeys(EFFORTS, (Runs(), Runs())))
    max_clusters: int | None = None
    seeded: bool = False
    other_views: tuple[str, ...] | None = None
    metric: str = "euclidean"

    def runs_on(self, view: str, effort: Effort, *, is_reference: bool) -> Runs:
        """Return what is run on a view."""
        reference, other = self.runs[effort]
        if is_reference:
            return reference
        return other if self.other_views is None or view in self.other_views else OFF


ALGORITHMS: Final[dict[str, Algorithm]] = {}  # all candidate algorithms by name, in the order in which they run


def register(*algorithms: Algorithm) -> None:
    """Add algorithms, which then take part in every fit, in the assignment of new rows and in the report."""
    for algorithm in algorithms:
        if algorithm.name in ALGORITHMS:
            raise InputError(f"A candidate algorithm {algorithm.name!r} is registered already. Choose another name.")
        ALGORITHMS[algorithm.name] = algorithm


def _grid(*, fine: bool = False, **values: Sequence[Any]) -> Runs:
    """Return one run for each combination of values."""
    return Runs(tuple(dict(zip(values, each, strict=True)) for each in product(*values.values())), fine)


def _by_effort(
    fast: Runs, fast_other: Runs, balanced: Runs, balanced_other: Runs
) -> Mapping[Effort, tuple[Runs, Runs]]:
    """Return what is run on the reference view and on other views."""
    return {"fast": (fast, fast_other), "balanced": (balanced, balanced_other)}


def _mixture(covariance: str, fast: int, balanced: int, other: int) -> Mapping[Effort, tuple[Runs, Runs]]:
    """Return the runs of a mixture with these numbers of EM steps; zero turns it off."""
    runs = [_grid(covariance=[covariance], steps=[steps]) if steps else OFF for steps in (fast, balanced, other)]
    return _by_effort(runs[0], OFF, *runs[1:])


_ONCE, _FINE = Runs(), Runs(fine=True)
_LINEAR = ("standardised", "raw", "factors", "whitened", "unweighted")  # without ranks
_SCALED = ("standardised", "raw", "ranks", "whitened", "unweighted")  # all columns
_DIAGONAL_VIEWS = ("standardised", "raw", "ranks", "unweighted")
_SPECTRAL_VIEWS = ("raw", "ranks", "whitened", "unweighted")
_MIXED_RUNS = _by_effort(_grid(steps=[8]), OFF, _grid(steps=[25]), OFF)
_GENIE_ONCE = _grid(gini=[0.3])
_GENIE_RUNS = _by_effort(
    _GENIE_ONCE,
    _GENIE_ONCE,
    Runs(({"gini": 0.3}, {"gini": 0.5}, {"gini": 0.3, "skip_leaves": True})),
    _GENIE_ONCE,
)
_HDBSCAN_RUNS = _by_effort(OFF, OFF, _grid(min_size=(5, 12, 30), selection=("eom", "leaf")), OFF)
_SPECTRAL_ONCE = _grid(n_neighbours=[10])
_SPECTRAL_RUNS = _by_effort(_SPECTRAL_ONCE, OFF, _grid(n_neighbours=(8, 20)), _SPECTRAL_ONCE)

# Views and numbers: those with which an algorithm generates good candidates that no other has; measured on generated
# sets, and on benchmark shapes and tables (docs/decisions/0034).
# Limits: mixtures have many parameters; clusters of equal shape are most often the few classes of a table; single
# linkage into many clusters only separates single rows; spectral clustering needs an eigenvector per cluster.
register(
    Algorithm("Ward linkage", linkage_cuts, "neighbours", _by_effort(_ONCE, OFF, _ONCE, OFF)),
    Algorithm("k-means", k_means, "centres", _by_effort(_ONCE, _ONCE, _FINE, _ONCE), other_views=_LINEAR),
    Algorithm("Gaussian mixture", gaussian_mixture, "gaussians", _mixture("full", 8, 25, 12), 30, other_views=_SCALED),
    Algorithm(
        "Gaussian mixture, diagonal",
        gaussian_mixture,
        "gaussians",
        _mixture("diagonal", 0, 25, 12),
        50,
        other_views=_DIAGONAL_VIEWS,
    ),
    Algorithm("Gaussian mixture, shared shape", gaussian_mixture, "gaussians", _mixture("shared", 8, 25, 0), 12),
    Algorithm("mixed mixture", mixed_mixture, "mixture", _MIXED_RUNS, 20),
    Algorithm("average linkage", linkage_cuts, "neighbours", _by_effort(OFF, OFF, _grid(method=["average"]), OFF), 12),
    Algorithm("single linkage", single_linkage, "neighbours", _by_effort(_ONCE, OFF, _ONCE, OFF), 12),
    Algorithm("Genie linkage", genie, "neighbours", _GENIE_RUNS, 20, other_views=("raw", "whitened")),
    Algorithm(
        "divisive tree",
        divisive_tree,
        "neighbours",
        _by_effort(_ONCE, OFF, _ONCE, _ONCE),
        other_views=("raw", "factors", "whitened"),
    ),
    Algorithm("HDBSCAN", hdbscan, "neighbours", _HDBSCAN_RUNS),
    Algorithm("spectral", spectral, "neighbours", _SPECTRAL_RUNS, 30, seeded=True, other_views=_SPECTRAL_VIEWS),
    Algorithm("density peaks", density_peaks, "neighbours", _by_effort(OFF, OFF, _ONCE, OFF)),
    Algorithm("density modes", density_modes, "neighbours", _by_effort(_ONCE, OFF, _ONCE, OFF)),
)

_GRAPHS = _by_effort(_grid(n_neighbours=[30]), OFF, _grid(n_neighbours=(30, 15)), OFF)
_NESTED_RUNS = _by_effort(_grid(n_neighbours=[30]), OFF, _grid(n_neighbours=[30]), OFF)
register(
    Algorithm("communities", communities, "similar rows", _GRAPHS, metric="cosine"),
    Algorithm("nested communities", nested_communities, "similar rows", _NESTED_RUNS, metric="cosine"),
    Algorithm("k-means, cosine", k_means, "centres", _by_effort(_ONCE, OFF, _FINE, OFF), metric="cosine"),
    Algorithm("Ward linkage, cosine", linkage_cuts, "similar rows", _by_effort(OFF, OFF, _ONCE, OFF), metric="cosine"),
)


def cluster_numbers(n: int, n_distinct: int, max_clusters: int, *, fine: bool = True) -> tuple[int, ...]:
    """Return numbers of clusters from 2 up, first every one, then in growing steps.

    Clusters have at least two of the n rows on average.
    """
    highest = min(max_clusters, max(2, n // 2), n_distinct)
    steps, growth = (list(_FINE_STEPS), _GROWTH) if fine else (list(_WIDE_STEPS), _GROWTH**2)
    while steps[-1] < highest:
        steps.append(round(steps[-1] * growth))
    return tuple(k for k in steps if k <= highest)


def find_max_clusters(geometry: Geometry) -> int:
    """Return the largest number of clusters that is worth trying: 50, or more if there are five rows for each.

    Numbers above 50 are tried in growing steps for as long as the silhouette of k-means does not fall. Few tables have
    that many clusters, and candidates with many clusters take the most time.
    """
    limit = len(geometry.rows) // _ROWS_PER_CLUSTER
    best, found = -1.0, _USUAL_CLUSTERS
    for k in cluster_numbers(len(geometry.rows), limit, limit, fine=False) if limit > _USUAL_CLUSTERS else ():
        parts = Partitions.from_labels(k_means_from_ward(geometry, k)[None])
        silhouette = float(silhouette_features(geometry, parts)["silhouette"][0])
        if k > _USUAL_CLUSTERS:
            if silhouette < _MAX_FALL * best:
                break
            found = k
        best = max(best, silhouette)
    return found


def _limit(max_clusters: int | Literal["auto"], space: Space) -> int:
    if max_clusters != "auto":
        return max_clusters
    if space.metric == "cosine":
        return max(_USUAL_CLUSTERS, len(space.x) // _ROWS_PER_TOPIC)
    return find_max_clusters(space.reference)


def generate_candidates(
    x: Floats | Space,
    *,
    effort: Effort,
    max_clusters: int | Literal["auto"] = "auto",
    n_clusters: int | None = None,
    seed: int,
    on_stage: Callable[[str], None] | None = None,
    n_jobs: int | None = None,
) -> list[Candidate]:
    """Partition the rows by all algorithms, into many numbers of clusters, on several views of the columns.

    Rows (N, D) are in their original units, at most some 2,000, since all distances are held in memory. There are at
    most `max_clusters` clusters, which "auto" leaves to ``find_max_clusters``. If `n_clusters` is given, every
    algorithm is asked for that number as well, however large; if it is one, for nothing else. The seed is that of
    random starts. `on_stage` is called before each run with a text such as "k-means, standardised columns".

    With `n_jobs` threads, or one for each processor if it is -1, several views are worked on at once, and `on_stage` is
    called from all threads. The result is the same.

    All candidates are distinct. There are none if all rows are equal, or fewer than `n_clusters` are distinct.
    """
    space = Space.of(x)
    if len(space.x) < 2 or (n_distinct := len(np.unique(space.reference.rows, axis=0))) < max(2, n_clusters or 0):
        return []
    asked = set() if n_clusters is None else {n_clusters}
    highest = 1 if n_clusters == 1 else _limit(max_clusters, space)
    numbers = {fine: cluster_numbers(len(space.x), n_distinct, highest, fine=fine) for fine in (False, True)}
    views = [view.name for view in space.views[: MAX_VIEWS[effort]]]
    geometries = [space.geometry(name) for name in views]  # threads share none of them

    def candidates_on(position: int) -> list[Candidate]:
        """Return the candidates on one view that have an acceptable number of clusters."""
        geometry, view = geometries[position], views[position]
        found = []
        for algorithm in (each for each in ALGORITHMS.values() if each.metric == space.metric):
            runs = algorithm.runs_on(view, effort, is_reference=position == 0)
            largest = min(algorithm.max_clusters or highest, highest if position == 0 else MAX_ON_OTHER_VIEWS)
            ks = sorted(asked.union(k for k in numbers[runs.fine] if k <= largest))
            for settings in runs.settings:
                if on_stage is not None:
                    on_stage(f"{algorithm.name}, {view} columns")
                seeds = {"seed": seed} if algorithm.seeded else {}
                for labels in algorithm.generate(geometry, ks, **seeds, **settings):
                    ordered, k = order_by_size(labels)
                    if 2 <= k <= highest or k in asked:
                        found.append(Candidate(ordered, k, algorithm.name, view, algorithm.rule))
        geometry.forget_distances()
        return found

    distinct: dict[bytes, Candidate] = {}  # the first of equal partitions is kept
    for candidates in _map(candidates_on, range(len(views)), n_jobs):
        for candidate in candidates:
            distinct.setdefault(candidate.labels.tobytes(), candidate)
    return list(distinct.values())


def count_runs(space: Space, effort: Effort) -> int:
    """Return how often ``generate_candidates`` runs an algorithm, and calls `on_stage`."""
    algorithms = [each for each in ALGORITHMS.values() if each.metric == space.metric]
    views = enumerate(view.name for view in space.views[: MAX_VIEWS[effort]])
    return sum(len(a.runs_on(view, effort, is_reference=i == 0).settings) for i, view in views for a in algorithms)


def _map(
    compute: Callable[[int], list[Candidate]], positions: Iterable[int], n_jobs: int | None
) -> Iterator[list[Candidate]]:
    """Compute in that many threads, all processors if it is -1, one if it is None; results are in order."""
    threads = (os.cpu_count() or 1) if n_jobs == -1 else n_jobs or 1
    if threads == 1:
        yield from map(compute, positions)
    else:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(compute, positions)
