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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.judged.candidates.graphs import (
    density_modes,
    density_peaks,
    genie,
    hdbscan,
    linkage_cuts,
    single_linkage,
    spectral,
)
from coterie.judged.candidates.kmeans import gaussian_mixture, k_means, ward
from coterie.judged.space import Floats, Labels, Space

Effort = Literal["fast", "balanced", "thorough"]
EFFORTS: Final[tuple[Effort, ...]] = ("fast", "balanced", "thorough")
MAX_VIEWS: Final[dict[Effort, int]] = {"fast": 2, "balanced": 4, "thorough": 4}
"""Number of views of the columns that algorithms run on."""

_FINE_STEPS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 23, 26, 30, 35, 40, 45, 50)
_WIDE_STEPS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 26, 35, 50)
_GROWTH = 1.15


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A partition of the rows that some algorithm generated.

    Attributes
    ----------
    labels : int64 array (N,)
        Cluster of each row, 0 to ``n_clusters - 1``, all in use, the largest cluster first; ties by first row.
    n_clusters : int
        Number of clusters.
    algorithm : str
        Name of the algorithm, such as "Ward linkage".
    view : str
        The view of the columns that it ran on, such as "standardised".
    rule : str
        How new rows are assigned to its clusters: "centres", "gaussians" or "neighbours".
    refined : bool
        Whether it was derived from a candidate of that algorithm by refinement.
    """

    labels: Labels
    n_clusters: int
    algorithm: str
    view: str
    rule: str
    refined: bool = False

    def __str__(self) -> str:
        return f"{self.algorithm} on {self.view} columns"


def order_by_size(labels: npt.NDArray[np.integer]) -> tuple[Labels, int]:
    """Renumber clusters from the largest down, ties by first occurrence; return the labels and their number."""
    found, first, inverse, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    rank = np.empty(len(found), dtype=np.int64)
    rank[order] = np.arange(len(found))
    return rank[inverse], len(found)


Settings = Mapping[str, Any]


@final
@dataclass(frozen=True, slots=True)
class Runs:
    """How often an algorithm runs on one view, and with which settings."""

    settings: tuple[Settings, ...] = ({},)
    """Keyword arguments of each run."""
    fine: bool = False
    """Whether the numbers of clusters are in fine steps instead of wide ones."""


OFF: Final = Runs(())
"""The algorithm does not run."""


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
        What is run on the standardised columns, and on every other view; by default once on each view.
    max_clusters : int, optional
        Largest number of clusters that it is asked for, unless a larger one was given by the user.
    seeded : bool
        Whether ``generate`` takes a ``seed`` too.
    """

    name: str
    generate: Callable[..., Iterable[npt.NDArray[np.integer]]]
    rule: str = "neighbours"
    runs: Mapping[Effort, tuple[Runs, Runs]] = field(default_factory=lambda: dict.fromkeys(EFFORTS, (Runs(), Runs())))
    max_clusters: int | None = None
    seeded: bool = False

    def select_ks(self, steps: "ClusterNumbers", *, fine: bool) -> Sequence[int]:
        """Return the numbers of clusters to ask for."""
        ks = steps.fine if fine else steps.wide
        largest = self.max_clusters or ks[-1]
        return [k for k in ks if k <= largest or len(ks) == 1]  # a number given by the user is always tried


ALGORITHMS: Final[dict[str, Algorithm]] = {}
"""All candidate algorithms by name, in the order in which they run."""


def register(*algorithms: Algorithm) -> None:
    """Add algorithms, which then take part in every fit, in the assignment of new rows and in the report.

    Raises
    ------
    InputError
        If the name is taken.
    """
    for algorithm in algorithms:
        if algorithm.name in ALGORITHMS:
            raise InputError(f"A candidate algorithm {algorithm.name!r} is registered already. Choose another name.")
        ALGORITHMS[algorithm.name] = algorithm


def _runs(*settings: Settings, fine: bool = False) -> Runs:
    return Runs(settings or ({},), fine)


def _mixture(
    covariance: str, fast: int, balanced: int, other: int, *, fine: bool = False
) -> Mapping[Effort, tuple[Runs, Runs]]:
    """Return the runs of a mixture with these numbers of EM steps; zero turns it off."""
    steps = (fast, 0, balanced, other)
    runs = (_runs({"covariance": covariance, "steps": count}) if count else OFF for count in steps)
    return _by_effort(*runs, _runs({"covariance": covariance, "steps": 40}, fine=fine))


def _genie(*ginis: float, leafless: tuple[float, ...] = (), fine: bool = False) -> Runs:
    smoothed = ({"gini": gini, "skip_leaves": True} for gini in leafless)
    return _runs(*({"gini": gini} for gini in ginis), *smoothed, fine=fine)


def _hdbscan(*sizes: int, selections: tuple[str, ...] = ("eom", "leaf")) -> Runs:
    return _runs(*({"min_size": size, "selection": selection} for size in sizes for selection in selections))


def _spectral(*neighbours: int, fine: bool = False) -> Runs:
    return _runs(*({"n_neighbours": count} for count in neighbours), fine=fine)


def _by_effort(*runs: Runs) -> Mapping[Effort, tuple[Runs, Runs]]:
    """Return what is run on the standardised columns and on other views; "thorough" does not distinguish them."""
    fast, fast_other, balanced, balanced_other, thorough = runs
    return {"fast": (fast, fast_other), "balanced": (balanced, balanced_other), "thorough": (thorough, thorough)}


_ONCE, _FINE = Runs(), Runs(fine=True)
_AVERAGE, _COMPLETE = {"method": "average"}, {"method": "complete"}
_WARD_AND_RANDOM = _runs({}, {"random_starts": True}, fine=True)
_GENIE_RUNS = _by_effort(
    _genie(0.3),
    _genie(0.3),
    _genie(0.3, 0.5, leafless=(0.3,)),
    _genie(0.3),
    _genie(0.3, 0.5, leafless=(0.3, 0.5), fine=True),
)
_HDBSCAN_RUNS = _by_effort(OFF, OFF, _hdbscan(5, 12, 30), _hdbscan(10, selections=("eom",)), _hdbscan(5, 10, 20, 40))
_SPECTRAL_RUNS = _by_effort(_spectral(10), OFF, _spectral(8, 20), _spectral(10), _spectral(7, 15, 30, fine=True))

# Limits: mixtures have many parameters; clusters of equal shape are most often the few classes of a table; single
# linkage into many clusters only separates single rows; spectral clustering needs an eigenvector per cluster.
# fmt: off
register(
    Algorithm("Ward linkage", ward, "neighbours", _by_effort(_ONCE, OFF, _FINE, OFF, _FINE)),
    Algorithm("k-means", k_means, "centres", _by_effort(_ONCE, _ONCE, _FINE, _ONCE, _WARD_AND_RANDOM), seeded=True),
    Algorithm("Gaussian mixture", gaussian_mixture, "gaussians", _mixture("full", 8, 25, 12, fine=True), 30),
    Algorithm("Gaussian mixture, diagonal", gaussian_mixture, "gaussians", _mixture("diagonal", 0, 25, 12)),
    Algorithm("Gaussian mixture, shared shape", gaussian_mixture, "gaussians", _mixture("shared", 8, 25, 0), 12),
    Algorithm(
        "average linkage", linkage_cuts, "neighbours",
        _by_effort(OFF, OFF, _runs(_AVERAGE), OFF, _runs(_AVERAGE, fine=True)),
    ),
    Algorithm("complete linkage", linkage_cuts, "neighbours", _by_effort(OFF, OFF, OFF, OFF, _runs(_COMPLETE))),
    Algorithm("single linkage", single_linkage, "neighbours", _by_effort(_ONCE, OFF, _ONCE, OFF, _ONCE), 12),
    Algorithm("Genie linkage", genie, "neighbours", _GENIE_RUNS),
    Algorithm("HDBSCAN", hdbscan, "neighbours", _HDBSCAN_RUNS),
    Algorithm("spectral", spectral, "neighbours", _SPECTRAL_RUNS, 30, seeded=True),
    Algorithm("density peaks", density_peaks, "neighbours", _by_effort(OFF, OFF, _ONCE, OFF, _ONCE)),
    Algorithm("density modes", density_modes, "neighbours", _by_effort(_ONCE, OFF, _ONCE, _ONCE, _ONCE)),
)
# fmt: on


@final
@dataclass(frozen=True, slots=True)
class ClusterNumbers:
    """Numbers of clusters that algorithms are asked for, in fine and in wide steps."""

    fine: tuple[int, ...]
    wide: tuple[int, ...]

    @classmethod
    def choose(cls, n: int, n_distinct: int, max_clusters: int, n_clusters: int | None) -> "ClusterNumbers":
        """Return both sequences; only `n_clusters` if it is given."""
        if n_clusters is not None:
            return cls((n_clusters,), (n_clusters,))
        return cls(*(cluster_numbers(n, n_distinct, max_clusters, wide=wide) for wide in (False, True)))


def cluster_numbers(n: int, n_distinct: int, max_clusters: int, *, wide: bool = False) -> tuple[int, ...]:
    """Return numbers of clusters from 2 up, first every one, then in growing steps.

    Clusters have at least two of the n rows on average.
    """
    highest = min(max_clusters, max(2, n // 2), n_distinct)
    steps = list(_WIDE_STEPS if wide else _FINE_STEPS)
    growth = _GROWTH**2 if wide else _GROWTH
    while steps[-1] < highest:
        steps.append(round(steps[-1] * growth))
    return tuple(k for k in steps if k <= highest)


def generate_candidates(
    x: Floats | Space,
    *,
    effort: Effort,
    max_clusters: int = 50,
    n_clusters: int | None = None,
    seed: int,
    on_stage: Callable[[str], None] | None = None,
) -> list[Candidate]:
    """Partition the rows by all algorithms, into many numbers of clusters, on several views of the columns.

    Parameters
    ----------
    x : float64 array (N, D) or Space
        Finite rows in their original units, at most some 2,000, since all distances are held in memory.
    effort : {"fast", "balanced", "thorough"}
        How many algorithms run on how many views.
    max_clusters : int
        No candidate has more clusters.
    n_clusters : int, optional
        If given, every candidate has exactly this number of clusters.
    seed : int
        Seed of random starts.
    on_stage : callable, optional
        Called with the name of the algorithm and the view, such as "k-means, standardised columns", before each run.

    Returns
    -------
    list of Candidate
        All distinct. Empty if there are none, such as when all rows are equal, or fewer than `n_clusters` are distinct.
    """
    space = Space.of(x)
    lowest, highest = (2, max_clusters) if n_clusters is None else (n_clusters, n_clusters)
    if len(space.x) < 2 or (n_distinct := len(np.unique(space.standardised.rows, axis=0))) < max(2, lowest):
        return []
    numbers = ClusterNumbers.choose(len(space.x), n_distinct, max_clusters, n_clusters)
    found: dict[bytes, Candidate] = {}  # the first of equal partitions is kept
    for position, view in enumerate(space.views[: MAX_VIEWS[effort]]):
        geometry = space.geometry(view.name)
        for algorithm in ALGORITHMS.values():
            runs = algorithm.runs[effort][min(position, 1)]
            ks = algorithm.select_ks(numbers, fine=runs.fine)
            for settings in runs.settings:
                if on_stage is not None:
                    on_stage(f"{algorithm.name}, {view.name} columns")
                seeds = {"seed": seed} if algorithm.seeded else {}
                for labels in algorithm.generate(geometry, ks, **seeds, **settings):
                    ordered, k = order_by_size(labels)
                    if lowest <= k <= highest:
                        candidate = Candidate(ordered, k, algorithm.name, view.name, algorithm.rule)
                        found.setdefault(ordered.tobytes(), candidate)
        geometry.forget_distances()
    return list(found.values())
