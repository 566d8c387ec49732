"""The rows of one fit: their views, and per view distances, neighbours, spanning trees and density.

A ``Space`` is made once per fit and shared by candidate generation, features and assignment. Everything is
computed when first asked for, then kept.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeVar, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import linkage
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform

from coterie.errors import InputError
from coterie.judged.columns import Columns
from coterie.judged.views import AnyView, View, fit_views

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Integers = npt.NDArray[np.intp]
Labels = npt.NDArray[np.int64]
_Result = TypeVar("_Result")


@final
@dataclass(frozen=True, slots=True, eq=False)
class SpanningTree:
    """Minimum spanning tree of N rows."""

    edges: Int[Integers, "E 2"]  # pairs of rows
    lengths: Float[Floats, " E"]  # length of each edge, the shortest first


def spanning_tree(distances: npt.NDArray[np.floating[Any]], cores: Floats) -> SpanningTree:
    """Compute the minimum spanning tree under max(d_ij, c_i, c_j) by Prim's algorithm on the full matrix.

    With all cores c zero it is the Euclidean tree. With the distances to the k-th neighbour as cores it is the tree of
    mutual reachability, whose long edges cross sparse regions.
    """
    rows = len(distances)
    exact, own = distances.astype(np.float64, copy=False), cores.tolist()
    edges = np.zeros((rows - 1, 2), dtype=np.intp)
    best = np.full(rows, np.inf)
    parent = np.zeros(rows, dtype=np.intp)
    limits = cores.copy()  # infinite for rows that are in the tree
    closer = np.empty(rows, dtype=np.bool_)
    reach = np.empty(rows)
    newest = 0
    for step in range(rows - 1):
        limits[newest] = best[newest] = np.inf
        np.maximum(exact[newest], limits, out=reach)
        if own[newest] > 0.0:
            np.maximum(reach, own[newest], out=reach)
        # Cores make many pairs equally near: the distance itself breaks such ties, not the order of rows.
        reach += 0.01 * distances[newest]
        np.less(reach, best, out=closer)
        np.copyto(best, reach, where=closer)
        np.copyto(parent, newest, where=closer)
        newest = int(best.argmin())
        edges[step] = parent[newest], newest
    first, second = edges.T
    direct = distances[first, second]
    lengths = np.maximum(np.maximum(direct, cores[first]), cores[second])
    order = np.lexsort((direct, lengths))
    return SpanningTree(edges[order], lengths[order])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Modes:
    """The density peaks of N rows: every row is one, most of almost no prominence."""

    prominence: Float[Floats, " N"]  # log density of each peak over that of the saddle to a higher one
    higher: Int[Integers, " N"]  # the peak that it is merged into at that saddle; itself for the highest

    @classmethod
    def find(cls, edges: Integers, log_lengths: Floats, log_cores: Floats) -> Self:
        """Merge parts of the tree of mutual reachability along its edges, the shortest first.

        Of the two peaks that meet, the lower one ends there. The highest peak never ends; its prominence is set to that
        of the next one.
        """
        peak = list(range(len(log_cores)))  # leads from each row to the densest row of its part
        heights = log_cores.tolist()  # small is dense
        prominence = np.zeros(len(log_cores))
        higher = np.arange(len(log_cores))
        order = np.argsort(log_lengths, kind="stable")
        for (first, second), level in zip(edges[order].tolist(), log_lengths[order].tolist(), strict=True):
            high, low = find_root(peak, first), find_root(peak, second)
            if heights[high] > heights[low]:
                high, low = low, high
            prominence[low] = level - heights[low]
            peak[low] = higher[low] = high
        prominence[find_root(peak, 0)] = prominence.max()
        return cls(prominence, higher)

    def leading(self, count: int, log_cores: Floats) -> Integers:
        """Return the most prominent peaks, ties by density, so that the order of rows has no effect."""
        return np.lexsort((log_cores, -self.prominence))[:count]

    def basins(self, prominence: float) -> Integers:
        """Assign each row (N,) to the peak of at least that prominence that it ascends to."""
        target = np.where(self.prominence < prominence, self.higher, np.arange(len(self.higher)))
        while not np.array_equal(further := target[target], target):
            target = further
        return np.unique(target, return_inverse=True)[1]


def find_root(parent: list[int], row: int) -> int:
    """Follow the parents to the root, halving the path on the way."""
    while parent[row] != row:
        parent[row] = parent[parent[row]]
        row = parent[row]
    return row


_MAX_NEIGHBOURS = 32
_FEATURE_NEIGHBOURS = 15
_CORE_RANK = 10  # the neighbour whose distance estimates the density at a row
_ZERO_DISTANCE = 1e-6  # over the largest distance: replaces the distance of equal rows where it divides
_MAX_COMPONENTS = 64
_MAX_MODES = 64
_BASIN_PROMINENCES = (1.0, 2.0)


class Geometry:
    """Rows (N, D) under one view, with what is derived from their distances; for up to about 2,000 rows.

    There are two sets of distances on purpose. Candidate algorithms use ``distances``, which are exact for equal and
    for equidistant rows (float64, one pair at a time). Features use ``unit_distances`` (float32, by matrix product, in
    units in which the mean variance of the columns is one): the judge was trained on features computed that way, and
    its scores would change in the last digits with the other ones.
    """

    def __init__(self, rows: Floats, discrete: tuple[Integers, ...] = ()) -> None:
        self.rows = np.ascontiguousarray(rows, dtype=np.float64)
        self.discrete = discrete  # positions of the features of each discrete column; none if the view mixes columns
        self._cache: dict[Hashable, Any] = {}

    @cached_property
    def continuous(self) -> Integers:
        """Positions of the features that are not of discrete columns; of all features if there are no others."""
        kept = np.ones(self.rows.shape[1], dtype=np.bool_)
        for features in self.discrete:
            kept[features] = False
        return np.flatnonzero(kept if kept.any() else ~kept)

    def cached(self, key: Hashable, compute: Callable[[], _Result]) -> _Result:
        """Return what was stored under the key, computing it the first time; for results that algorithms share."""
        if key not in self._cache:
            self._cache[key] = compute()
        result: _Result = self._cache[key]
        return result

    def forget_distances(self) -> None:
        """Free the float64 distances, of which only the candidate algorithms have need."""
        self.__dict__.pop("condensed", None)
        self.__dict__.pop("distances", None)

    @cached_property
    def condensed(self) -> Floats:
        """Distances (N (N - 1) / 2,) as scipy's linkages take them."""
        return pdist(self.rows)

    @cached_property
    def distances(self) -> Floats:
        """Distances (N, N)."""
        return squareform(self.condensed)

    @cached_property
    def neighbours(self) -> npt.NDArray[np.int64]:
        """Nearest other rows of each row, nearest first (N, up to 32)."""
        return _nearest(self.distances, _MAX_NEIGHBOURS)[0]

    def merges(self, method: Literal["ward", "average", "complete"]) -> Floats:
        """Return scipy's linkage matrix (N - 1, 4) with ranks for heights, so that there are no ties."""

        def compute() -> Floats:
            merges = linkage(self.condensed, method)
            merges[:, 2] = np.arange(len(merges))
            return merges

        return self.cached(("linkage", method), compute)

    def reach(self, rank: int) -> Floats:
        """Return the distance (N,) of each row to its neighbour of that rank, or to the last known; never zero."""

        def compute() -> Floats:
            column = min(rank, self.neighbours.shape[1]) - 1
            distance = self.distances[np.arange(len(self.rows)), self.neighbours[:, column]]
            reach: Floats = np.maximum(distance, _ZERO_DISTANCE * self.distances.max())
            return reach

        return self.cached(("reach", rank), compute)

    @cached_property
    def tree(self) -> SpanningTree:
        """Euclidean minimum spanning tree."""
        return spanning_tree(self.distances, np.zeros(len(self.rows)))

    def reachability_tree(self, rank: int) -> SpanningTree:
        """Return the spanning tree of max(d_ij, r_i, r_j), r the reach: thin bridges of few rows become long."""
        return self.cached(("tree", rank), lambda: spanning_tree(self.distances, self.reach(rank)))

    @cached_property
    def unit_rows(self) -> Float[Floats, "N D"]:
        """Centred rows, scaled to a mean variance of one; zeros where all rows are equal."""
        x = self.rows
        if x.ndim != 2 or len(x) < 2 or x.shape[1] < 1 or not np.isfinite(x).all():
            raise InputError(
                f"Features of partitions need two or more rows of finite numbers; got shape {x.shape}"
                f"{'' if np.isfinite(x).all() else ' with NaN or infinity'}. Fill missing values, or give more rows."
            )
        largest = np.abs(x).max()  # first, since the squares of huge numbers overflow
        centred = x / largest if largest > 0.0 else x
        centred = centred - centred.mean(axis=0)
        spread = float(np.sqrt(np.square(centred).mean()))
        # Rounding leaves a spread of this order where all rows are equal.
        return centred / spread if spread > 1e-14 else np.zeros_like(centred)

    @cached_property
    def squared_norms(self) -> Float[Floats, " N"]:
        """Squared distance of each unit row from the mean."""
        norms: Floats = np.einsum("nd,nd->n", self.unit_rows, self.unit_rows)
        return norms

    @property
    def components(self) -> Float[Floats, "N A"]:
        """Unit rows on their leading principal axes; the sign of each axis makes its skewness positive."""
        return self._principal[0]

    @property
    def discrete_noise(self) -> Float[Floats, "A A"]:
        """Covariance on the principal axes of noise as large as the discrete columns.

        Added to covariances, it keeps one level of a discrete column from being infinitely dense.
        """
        return self._principal[1]

    @cached_property
    def _principal(self) -> tuple[Floats, Floats]:
        scaled = self.unit_rows
        rows, columns = scaled.shape
        kept = min(_MAX_COMPONENTS, rows, columns)
        noise = np.zeros((kept, kept))
        if columns <= rows:
            _, axes = eigh(scaled.T @ scaled, subset_by_index=[columns - kept, columns - 1])
            coordinates = scaled @ axes[:, ::-1]
            for features in self.discrete:
                own = axes[features, ::-1]
                noise += own.T @ (own * scaled[:, features].var(axis=0)[:, None])
        else:
            values, axes = eigh(scaled @ scaled.T, subset_by_index=[rows - kept, rows - 1])
            coordinates = axes[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0))
        sign = np.where(np.power(coordinates, 3).sum(axis=0) < 0.0, -1.0, 1.0)
        return coordinates * sign, noise * np.outer(sign, sign)

    @cached_property
    def unit_distances(self) -> Float[Singles, "N N"]:
        """Distances between unit rows."""
        sums = self.squared_norms[:, None] + self.squared_norms
        gaps = self.unit_rows @ self.unit_rows.T
        gaps *= -2.0
        gaps += sums
        sums *= 1e-13
        np.copyto(gaps, 0.0, where=gaps < sums)  # equal rows up to rounding
        np.fill_diagonal(gaps, 0.0)
        distances: Singles = np.sqrt(gaps, out=gaps).astype(np.float32)
        return distances

    @cached_property
    def _unit_nearest(self) -> tuple[Integers, Singles]:
        return _nearest(self.unit_distances, _FEATURE_NEIGHBOURS)

    @property
    def unit_neighbours(self) -> Int[Integers, "N J"]:
        """Nearest other rows by ``unit_distances``, nearest first."""
        return self._unit_nearest[0]

    @property
    def unit_neighbour_distances(self) -> Float[Singles, "N J"]:
        """Distances to ``unit_neighbours``."""
        return self._unit_nearest[1]

    @cached_property
    def mutual_links(self) -> Int[Integers, "L 2"]:
        """Pairs of rows each of which is among the ten nearest of the other."""
        near = self.unit_neighbours[:, :_CORE_RANK]
        rows = len(near)
        forward = (np.arange(rows)[:, None] * rows + near).ravel()
        backward = (near * rows + np.arange(rows)[:, None]).ravel()
        both = np.intersect1d(forward, backward, assume_unique=True)
        pairs = np.stack([both // rows, both % rows], axis=1)
        mutual: Integers = pairs[pairs[:, 0] < pairs[:, 1]]
        return mutual

    @cached_property
    def unit_tree(self) -> SpanningTree:
        """Euclidean minimum spanning tree of ``unit_distances``."""
        return spanning_tree(self.unit_distances, np.zeros(len(self.rows)))

    @cached_property
    def unit_reachability_tree(self) -> SpanningTree:
        """Spanning tree of mutual reachability of ``unit_distances``."""
        return spanning_tree(self.unit_distances, self._cores)

    @cached_property
    def _cores(self) -> Float[Floats, " N"]:
        """Distance of each row to its tenth neighbour."""
        rank = min(_CORE_RANK, self.unit_neighbours.shape[1])
        return self.unit_neighbour_distances[:, rank - 1].astype(np.float64)

    @cached_property
    def _core_floor(self) -> float:
        """Distance below which rows count as equal, since equal rows have no finite density."""
        return 1e-3 * float(self._cores.mean()) or 1.0

    @cached_property
    def log_cores(self) -> Float[Floats, " N"]:
        """Logarithm of the distance to the tenth neighbour: small where the density is high."""
        # Two rows may be each other's tenth neighbours: the mean distance to the others breaks the tie.
        crowding = self.unit_neighbour_distances[:, :_CORE_RANK].mean(axis=1, dtype=np.float64)
        logs: Floats = np.log(np.maximum(self._cores, self._core_floor)) + 1e-6 * crowding
        return logs

    @cached_property
    def dimension(self) -> float:
        """Intrinsic dimension by Levina and Bickel, from ten neighbours; between 1 and the number of columns."""
        near: Floats = np.maximum(self.unit_neighbour_distances[:, :_CORE_RANK].astype(np.float64), self._core_floor)
        if near.shape[1] < 3:
            return 1.0
        inverse = float(np.log(near[:, -1:] / near[:, :-1]).sum(axis=1).mean() / (near.shape[1] - 2))
        return float(np.clip(1.0 / max(inverse, 1e-6), 1.0, self.rows.shape[1]))

    @cached_property
    def _modes(self) -> Modes:
        tree = self.unit_reachability_tree
        return Modes.find(tree.edges, np.log(np.maximum(tree.lengths, self._core_floor)), self.log_cores)

    @cached_property
    def peaks(self) -> Int[Integers, " M"]:
        """Rows that are modes of the density, the most prominent first."""
        return self._modes.leading(_MAX_MODES, self.log_cores)

    @cached_property
    def prominences(self) -> Float[Floats, " M"]:
        """Log density of each peak over that of the saddle to a denser one."""
        return self._modes.prominence[self.peaks] * self.dimension

    @cached_property
    def basins(self) -> Int[Integers, "P N"]:
        """Partitions of the rows among the modes of prominence at least 1, and at least 2."""
        return np.stack([self._modes.basins(level / self.dimension) for level in _BASIN_PROMINENCES])


def _nearest(distances: npt.NDArray[Any], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the nearest other rows and their distances (N, up to count), nearest first."""
    count = min(count, len(distances) - 1)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    nearest = np.argpartition(others, count - 1, axis=1)[:, :count]
    found = np.take_along_axis(others, nearest, axis=1)
    order = np.argsort(found, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(found, order, axis=1)


class Space:
    """The rows (N, D) of one fit, in original units, with their views and the geometry of each.

    Examples
    --------
    >>> import numpy as np
    >>> space = Space(np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 2.0, 4.0])
    >>> [view.name for view in space.views]
    ['standardised', 'raw', 'whitened']
    >>> space.geometry("raw").distances.shape
    (50, 50)
    """

    metric: ClassVar[str] = "euclidean"

    def __init__(self, x: Floats, columns: Columns | None = None, *, noise: float = 0.0) -> None:
        self.x: Floats = np.asarray(x, dtype=np.float64)
        self.noise = noise  # fraction of the rows that were left out as background noise
        self.columns = (columns or Columns.numbers(self.x.shape[1])).join_one_hot(self.x)
        self._geometries: dict[str, Geometry] = {}

    @classmethod
    def of(cls, x: "Floats | Space") -> "Space":
        """Return the space of some rows; a space is returned as it is."""
        return x if isinstance(x, Space) else cls(x)

    @property
    def views(self) -> tuple[AnyView, ...]:
        """The views that differ from one another, the reference first."""
        return self.table_views

    @cached_property
    def table_views(self) -> tuple[View, ...]:
        """The views of columns that are scaled and weighed one by one."""
        return fit_views(self.x, self.columns)

    @cached_property
    def discrete(self) -> npt.NDArray[np.bool_]:
        """Which columns are categories, or numbers with few distinct values."""
        return self.columns.find_discrete(self.x)

    @cached_property
    def _discrete_features(self) -> tuple[Integers, ...]:
        varying = self.x.min(axis=0) < self.x.max(axis=0)
        found = (self.columns.features(int(column)) for column in np.flatnonzero(self.discrete))
        return tuple(features for features in found if varying[features].any())

    def view(self, name: str) -> AnyView:
        """Return the view of that name."""
        return next(view for view in self.views if view.name == name)

    def geometry(self, name: str) -> Geometry:
        """Return the geometry of the rows under a view."""
        if name not in self._geometries:
            self._geometries[name] = self._measure(self.view(name))
        return self._geometries[name]

    def _measure(self, view: AnyView) -> Geometry:
        mixed = isinstance(view, View) and view.projection.size > 0
        return Geometry(view.transform(self.x), () if mixed else self._discrete_features)

    @property
    def reference(self) -> Geometry:
        """The geometry that features are computed from, for candidates of all views, so that they are comparable."""
        return self.geometry(self.views[0].name)

    def without_geometry(self) -> "Space":
        """Return the rows and views alone, which take little memory."""
        light = Space(self.x, self.columns, noise=self.noise)
        light.table_views = self.table_views
        return light
