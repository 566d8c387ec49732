"""Distances, neighbours and spanning trees of one view, shared by the algorithms that need them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.linalg import eigh
from scipy.spatial.distance import pdist, squareform
from scipy.special import ndtri

from coterie.errors import InputError
from coterie.tables.encoder import NumberSummary, summarise

Integers = npt.NDArray[np.intp]
Reals = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def spanning_tree(distances: npt.NDArray[np.floating[Any]], cores: Reals) -> tuple[Integers, Reals]:
    """Minimum spanning tree under max(distance, core of either end), by Prim's rule on the full matrix.

    Returns the edges (N - 1, 2) and their lengths, the shortest first. With all cores zero it is the Euclidean tree;
    with the distances to the k-th neighbour as cores it is the tree of mutual reachability, whose long edges cross
    sparse regions.
    """
    rows = len(distances)
    edges = np.zeros((rows - 1, 2), dtype=np.intp)
    best = np.full(rows, np.inf)
    parent = np.zeros(rows, dtype=np.intp)
    outside = np.ones(rows, dtype=np.bool_)
    closer = np.empty(rows, dtype=np.bool_)
    newest = 0
    for step in range(rows - 1):
        outside[newest] = False
        best[newest] = np.inf
        # Many pairs are equally near by their cores: the distance itself decides among them, not the order of rows.
        reach = np.maximum(np.maximum(distances[newest], cores), cores[newest]) + 0.01 * distances[newest]
        np.less(reach, best, out=closer)
        np.logical_and(closer, outside, out=closer)
        np.copyto(best, reach, where=closer)
        np.copyto(parent, newest, where=closer)
        newest = int(best.argmin())
        edges[step] = parent[newest], newest
    first, second = edges.T
    direct = distances[first, second]
    lengths = np.maximum(np.maximum(direct, cores[first]), cores[second])
    order = np.lexsort((direct, lengths))
    return edges[order], lengths[order]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Modes:
    """Every row as a peak of the density, most of them of next to no height."""

    prominence: Float[Reals, " N"]
    """Rise of each peak above the pass to a higher one, in logs of the core."""
    higher: Int[Integers, " N"]
    """The peak that it is joined to at that pass; itself for the highest of all."""

    @classmethod
    def of(cls, edges: Integers, log_lengths: Reals, log_cores: Reals) -> "Modes":
        """Join parts of the tree of mutual reachability from its shortest edge up.

        Of the two peaks that meet, the lower one ends there. The highest peak never ends: it is said to stand out as
        much as the next one.
        """
        peak = list(range(len(log_cores)))  # leads from each row to the densest row of its part
        heights = log_cores.tolist()  # small is dense
        prominence = np.zeros(len(log_cores))
        higher = np.arange(len(log_cores))
        order = np.argsort(log_lengths, kind="stable")
        for (first, second), level in zip(edges[order].tolist(), log_lengths[order].tolist(), strict=True):
            high, low = _top(peak, first), _top(peak, second)
            if heights[high] > heights[low]:
                high, low = low, high
            prominence[low] = level - heights[low]
            peak[low] = higher[low] = high
        prominence[_top(peak, 0)] = prominence.max()
        return cls(prominence, higher)

    def leading(self, most: int, log_cores: Reals) -> Integers:
        """The most prominent peaks first, equal ones by their density, so that the order of rows is of no effect."""
        return np.lexsort((log_cores, -self.prominence))[:most]

    def thresholds(self, log_cores: Reals, counts: Sequence[int]) -> list[float]:
        """Prominence from which on there are so many peaks."""
        most = self.prominence[self.leading(max(counts), log_cores)]
        return [float(most[count - 1]) for count in counts]

    def basins(self, prominence: float) -> Integers:
        """Partition (N,) of the rows among the peaks that rise by so much: each row goes to the one it climbs to."""
        target = np.where(self.prominence < prominence, self.higher, np.arange(len(self.higher)))
        while not np.array_equal(further := target[target], target):
            target = further
        return np.unique(target, return_inverse=True)[1]


def _top(peak: list[int], row: int) -> int:
    """Densest row of a row's part, halving the path on the way."""
    while peak[row] != row:
        peak[row] = peak[peak[row]]
        row = peak[row]
    return row


_FAR = 10.0  # deviations from the centre at which standardised values are clipped
_MOST_DIMENSIONS = 50
_KEPT_VARIANCE = 0.99
_LEAST_WHITENED = 4  # thin clusters side by side differ along an axis of little variance: few axes are all kept
_MOST_KNOTS = 256
# Raw columns are worth a look of their own only where their deviations differ, but not so much that one column is all.
_RAW_RATIOS = (1.15, 30.0)
_EQUAL_VARIANCES = 1.3
_SKEWED, _HEAVY_TAILED = 1.0, 3.0
_SKEWED_SHARE = 0.2
_FEW_VALUES = 10


@final
@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A form of the columns, fitted on some rows and applicable to others.

    Attributes
    ----------
    name : {"raw", "standardised", "whitened", "ranks"}
        Which form.
    centre, scale : float64 array (D,)
        Subtracted from each column, and what the difference is divided by; infinite for constant columns.
    limit : float64 array ()
        Scaled values are clipped there.
    knots, scores : float64 array (Q, D)
        For "ranks", scaled values and their normal scores, interpolated between; no rows otherwise.
    projection : float64 array (D, E)
        Applied last; no columns if none is.
    """

    name: str
    centre: Floats
    scale: Floats
    limit: Floats
    knots: Floats
    scores: Floats
    projection: Floats

    def transform(self, x: Floats) -> Floats:
        """Bring rows (N, D) into this form (N, E)."""
        # Halves, since the difference of two huge values of opposite sign overflows.
        with np.errstate(over="ignore"):
            z = (0.5 * x - 0.5 * self.centre) / (0.5 * self.scale)
        z = np.clip(z, -self.limit, self.limit)
        if len(self.knots):
            columns = (np.interp(*three) for three in zip(z.T, self.knots.T, self.scores.T, strict=True))
            z = np.stack(list(columns), axis=1)
        return z @ self.projection if self.projection.size else z

    def to_arrays(self) -> dict[str, Floats]:
        """All but the name, to be saved."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, Floats]) -> Self:
        """Undo `to_arrays`."""
        return cls(name, **arrays)


def fit_views(x: Floats) -> list[View]:
    """Forms of the rows (N, D) that differ from one another, those that tell most beyond the ones before them first."""
    summary = summarise(x, np.ones(x.shape[1], dtype=np.bool_))
    scale = np.where(summary.constant, np.inf, summary.scale)
    standardised = _plain("standardised", summary.centre, scale, _FAR)
    z = standardised.transform(x)
    views = [_reduced(standardised, x)]
    if _is_skewed(z):
        knots, scores = _normal_scores(z)
        ranks = View("ranks", summary.centre, scale, np.array(_FAR), knots, scores, _nothing(x, axis=1))
        views.append(_reduced(ranks, x))
    if (raw := _raw(summary)) is not None:
        views.append(_reduced(raw, x))
    if (directions := _whitening(z)).size:
        views.append(_plain("whitened", summary.centre, scale, _FAR, directions))
    return views


def views_of(x: Floats) -> dict[str, Floats]:
    """Return the rows in every form of `fit_views`, by its name."""
    return {view.name: view.transform(x) for view in fit_views(x)}


def _nothing(x: Floats, axis: int) -> Floats:
    return np.empty((0, x.shape[-1]) if axis == 0 else (x.shape[-1], 0))


def _plain(name: str, centre: Floats, scale: Floats, limit: float, projection: Floats | None = None) -> View:
    none = np.empty((0, len(centre)))
    return View(name, centre, scale, np.array(limit), none, none, none.T if projection is None else projection)


def _reduced(view: View, x: Floats) -> View:
    """Let a view of very many columns end in their leading principal axes, which keep distances as far as may be."""
    if x.shape[1] <= _MOST_DIMENSIONS:
        return view
    variances, directions = _principal_axes(view.transform(x))
    kept = directions[:, : min(_MOST_DIMENSIONS, max(1, int((variances > 0).sum())))]
    return View(view.name, view.centre, view.scale, view.limit, view.knots, view.scores, kept)


def _principal_axes(z: Floats) -> tuple[Floats, Floats]:
    """Variances, largest first and zero where they are but rounding, and the axes as columns."""
    centred = z - z.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    singular[singular < 1e-9 * max(singular[0], 1e-9)] = 0.0
    # The sign of an axis is arbitrary; its largest entry shall be positive.
    sign = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    return singular**2 / len(z), (axes * sign[:, None]).T


def _raw(summary: NumberSummary) -> View | None:
    varying = summary.scale[~summary.constant]
    if not varying.size or not _RAW_RATIOS[0] <= varying.max() / varying.min() <= _RAW_RATIOS[1]:
        return None
    scale = np.where(summary.constant, np.inf, varying.max())
    return _plain("raw", summary.centre, scale, 1e3)


def _whitening(z: Floats) -> Floats:
    """Projection (D, E) to principal components of variance one; no columns if it would change nothing."""
    variances, axes = _principal_axes(z)
    if z.shape[1] == 1 or variances[0] == 0.0:
        return _nothing(z, axis=1)
    enough = int(np.searchsorted(np.cumsum(variances), _KEPT_VARIANCE * variances.sum())) + 1
    enough = min(max(enough, _LEAST_WHITENED), _MOST_DIMENSIONS, int((variances > 1e-6 * variances[0]).sum()))
    if variances[0] <= _EQUAL_VARIANCES * variances[enough - 1] and enough == (z.std(axis=0) > 0).sum():
        return _nothing(z, axis=1)
    projection: Floats = axes[:, :enough] / np.sqrt(variances[:enough])
    return projection


def _is_skewed(z: Floats) -> bool:
    """Whether many of the columns with more than a few values have long tails."""
    continuous = np.array([len(np.unique(column)) > _FEW_VALUES for column in z.T])
    if not continuous.any():
        return False
    centred = z[:, continuous] - z[:, continuous].mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0))
    moments = centred / np.maximum(deviation, np.finfo(np.float64).tiny)
    skewed = np.abs((moments**3).mean(axis=0)) > _SKEWED
    heavy = (moments**4).mean(axis=0) - 3.0 > _HEAVY_TAILED
    return bool((skewed | heavy).mean() >= _SKEWED_SHARE)


def _normal_scores(z: Floats) -> tuple[Floats, Floats]:
    """Knots (Q, D) and normal scores of their ranks; equal values share the mean of their ranks."""
    knots, scores = [], []
    for column in z.T:
        values, counts = np.unique(column, return_counts=True)
        middle = (np.cumsum(counts) - 0.5 * counts) / len(column)
        # Few values are repeated, which interpolation does not mind; very many are thinned out.
        picked = np.linspace(0, len(values) - 1, min(_MOST_KNOTS, len(z))).round().astype(np.int64)
        knots.append(values[picked])
        scores.append(ndtri(middle[picked]) if len(values) > 1 else np.zeros(len(picked)))
    return np.stack(knots, axis=1), np.stack(scores, axis=1)


_MOST_NEIGHBOURS = 32
_NO_DISTANCE = 1e-6  # over the largest: stands for the distance of equal rows where it divides


@final
@dataclass(frozen=True, eq=False)
class SpanningTree:
    """Edges (N - 1, 2) of a minimum spanning tree, and their lengths, shortest first."""

    edges: npt.NDArray[np.int64]
    lengths: Floats


@final
@dataclass(frozen=True, eq=False)
class ViewGeometry:
    """Rows (N, D) of one view with what follows from their distances; made when first asked for, then kept."""

    x: Floats

    @classmethod
    def of(cls, x: Floats) -> Self:
        """Take rows as they are."""
        return cls(np.ascontiguousarray(x, dtype=np.float64))

    @cached_property
    def condensed(self) -> Floats:
        """Distances (N (N - 1) / 2,) as scipy's linkages take them."""
        return pdist(self.x)

    @cached_property
    def distances(self) -> Floats:
        """Distances (N, N)."""
        return squareform(self.condensed)

    @cached_property
    def neighbours(self) -> npt.NDArray[np.int64]:
        """The nearest other rows of each row, nearest first (N, up to 32)."""
        count = min(_MOST_NEIGHBOURS, len(self.x) - 1)
        masked = self.distances.copy()
        np.fill_diagonal(masked, np.inf)
        nearest = np.argpartition(masked, count - 1, axis=1)[:, :count]
        order = np.take_along_axis(masked, nearest, axis=1).argsort(axis=1, kind="stable")
        return np.take_along_axis(nearest, order, axis=1)

    def reach(self, count: int) -> Floats:
        """Distance (N,) of each row to its neighbour of that number, or to the last that is known; never quite zero."""
        column = min(count, self.neighbours.shape[1]) - 1
        distance = self.distances[np.arange(len(self.x)), self.neighbours[:, column]]
        reach: Floats = np.maximum(distance, _NO_DISTANCE * self.distances.max())
        return reach

    @cached_property
    def tree(self) -> SpanningTree:
        """Minimum spanning tree of the distances."""
        return SpanningTree(*spanning_tree(self.distances, np.zeros(len(self.x))))

    def smoothed_tree(self, count: int) -> SpanningTree:
        """Minimum spanning tree of max(d_ij, r_i, r_j), r the reach: thin bridges of few rows become long."""
        return SpanningTree(*spanning_tree(self.distances, self.reach(count)))


N_NEIGHBOURS = 15
CORE_RANK = 10
"""Which neighbour's distance tells the density around a row."""
MUTUAL_RANK = 10
"""Two rows are linked if each is among the other's so many nearest."""
LARGEST_AXES = 64
"""Coordinates kept: further principal axes carry little, and would cost much."""
MOST_MODES = 64
BASIN_PROMINENCES = (1.0, 2.0)
"""Modes less prominent than this have no basin of their own."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Distances, neighbours, trees and density of N rows, in units in which the rows' mean variance is one.

    Examples
    --------
    >>> import numpy as np
    >>> Space.of(np.array([[0.0], [1.0], [3.0]])).tree.tolist()
    [[0, 1], [1, 2]]
    """

    n_columns: int
    """D of the rows as given."""
    columns: Float[Reals, "N D"]
    """Rows as given, about their mean."""
    rows: Float[Reals, "N A"]
    """Rows on their principal axes, the widest first; the sign of each axis makes its skewness positive."""
    squares: Float[Reals, " N"]
    """Squared distance of each row from the mean, on all axes."""
    distances: Float[Singles, "N N"]
    """Between rows, zero on the diagonal."""
    neighbours: Int[Integers, "N J"]
    """Nearest other rows, the nearest first."""
    neighbour_distances: Float[Singles, "N J"]
    """How far these are."""
    links: Int[Integers, "L 2"]
    """Pairs of rows each of which is a near neighbour of the other."""
    tree: Int[Integers, "N-1 2"]
    """Edges of the Euclidean minimum spanning tree."""
    lengths: Float[Reals, " N-1"]
    """Lengths of these edges."""
    reach_tree: Int[Integers, "N-1 2"]
    """Edges of the spanning tree of mutual reachability."""
    reach_lengths: Float[Reals, " N-1"]
    """Lengths of these edges."""
    log_cores: Float[Reals, " N"]
    """Logarithm of the distance to the tenth neighbour: small where rows are dense."""
    dimension: float
    """Estimate of the intrinsic dimension, between 1 and the number of columns."""
    peaks: Int[Integers, " M"]
    """Rows that are modes of the density, the most prominent first."""
    prominence: Float[Reals, " M"]
    """Logarithm of the density of each mode over that of the pass to a denser one."""
    basins: Int[Integers, "P N"]
    """Partitions of the rows among the modes that stand out by at least 1, and by at least 2."""

    @classmethod
    def of(cls, x: Float[Reals, "N D"]) -> "Space":
        """Compute all of it; for up to about 2,000 rows, since all distances are kept.

        Parameters
        ----------
        x : array (N, D)
            At least two rows of finite numbers.
        """
        scaled = _scaled(np.asarray(x, dtype=np.float64))
        distances = _distances(scaled)
        neighbours, neighbour_distances = _neighbours(distances)
        cores = neighbour_distances[:, min(CORE_RANK, neighbours.shape[1]) - 1].astype(np.float64)
        tree, lengths = spanning_tree(distances, np.zeros_like(cores))
        reach_tree, reach_lengths = spanning_tree(distances, cores)
        # Equal rows have no finite density: what is far below the usual distance counts as zero.
        floor = 1e-3 * float(cores.mean()) or 1.0
        # Two rows may be each other's tenth neighbours: how near the others are tells which of them is the denser.
        crowding = neighbour_distances[:, :CORE_RANK].mean(axis=1, dtype=np.float64)
        log_cores = np.log(np.maximum(cores, floor)) + 1e-6 * crowding
        dimension = _dimension(neighbour_distances, floor, scaled.shape[1])
        modes = Modes.of(reach_tree, np.log(np.maximum(reach_lengths, floor)), log_cores)
        peaks = modes.leading(MOST_MODES, log_cores)
        return cls(
            n_columns=scaled.shape[1],
            columns=scaled,
            rows=_principal(scaled),
            squares=np.einsum("nd,nd->n", scaled, scaled),
            distances=distances,
            neighbours=neighbours,
            neighbour_distances=neighbour_distances,
            links=_links(neighbours),
            tree=tree,
            lengths=lengths,
            reach_tree=reach_tree,
            reach_lengths=reach_lengths,
            log_cores=log_cores,
            dimension=dimension,
            peaks=peaks,
            prominence=modes.prominence[peaks] * dimension,
            basins=np.stack([modes.basins(level / dimension) for level in BASIN_PROMINENCES]),
        )


def _scaled(x: Reals) -> Reals:
    """Rows about their mean, of mean variance one (zeros where all rows are equal)."""
    if x.ndim != 2 or len(x) < 2 or x.shape[1] < 1 or not np.isfinite(x).all():
        raise InputError(
            f"A partition is judged on two or more rows of finite numbers; these have the shape {x.shape}"
            f"{'' if np.isfinite(x).all() else ' and hold NaN or infinity'}. Fill the gaps, or give more rows."
        )
    largest = np.abs(x).max()  # first, since the squares of huge numbers would not be finite
    centred = x / largest if largest > 0.0 else x
    centred = centred - centred.mean(axis=0)
    spread = float(np.sqrt(np.square(centred).mean()))
    # Rounding leaves a spread of this order where all rows are equal.
    return centred / spread if spread > 1e-14 else np.zeros_like(centred)


def _distances(scaled: Reals) -> Singles:
    squares = np.einsum("nd,nd->n", scaled, scaled)
    sums = squares[:, None] + squares
    gaps = sums - 2.0 * (scaled @ scaled.T)
    gaps[gaps < 1e-13 * sums] = 0.0  # equal rows, but for rounding
    np.fill_diagonal(gaps, 0.0)
    distances: Singles = np.sqrt(gaps, out=gaps).astype(np.float32)
    return distances


def _neighbours(distances: Singles) -> tuple[Integers, Singles]:
    count = min(N_NEIGHBOURS, len(distances) - 1)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    nearest = np.argpartition(others, count - 1, axis=1)[:, :count]
    found = np.take_along_axis(others, nearest, axis=1)
    order = np.argsort(found, axis=1, kind="stable")
    return np.take_along_axis(nearest, order, axis=1), np.take_along_axis(found, order, axis=1)


def _links(neighbours: Integers) -> Integers:
    near = neighbours[:, :MUTUAL_RANK]
    rows = len(near)
    forward = (np.arange(rows)[:, None] * rows + near).ravel()
    backward = (near * rows + np.arange(rows)[:, None]).ravel()
    both = np.intersect1d(forward, backward, assume_unique=True)
    pairs = np.stack([both // rows, both % rows], axis=1)
    mutual: Integers = pairs[pairs[:, 0] < pairs[:, 1]]
    return mutual


def _dimension(neighbour_distances: Singles, floor: float, columns: int) -> float:
    """Levina and Bickel's estimate from the tenth neighbour, its inverse averaged over rows and ranks."""
    near: npt.NDArray[Any] = np.maximum(neighbour_distances[:, :CORE_RANK].astype(np.float64), floor)
    if near.shape[1] < 3:
        return 1.0
    inverse = float(np.log(near[:, -1:] / near[:, :-1]).sum(axis=1).mean() / (near.shape[1] - 2))
    return float(np.clip(1.0 / max(inverse, 1e-6), 1.0, columns))


def _principal(scaled: Reals) -> Reals:
    """Coordinates on the leading principal axes, from the smaller of the two Gram matrices."""
    rows, columns = scaled.shape
    kept = min(LARGEST_AXES, rows, columns)
    if columns <= rows:
        _, axes = eigh(scaled.T @ scaled, subset_by_index=[columns - kept, columns - 1])
        coordinates = scaled @ axes[:, ::-1]
    else:
        values, axes = eigh(scaled @ scaled.T, subset_by_index=[rows - kept, rows - 1])
        coordinates = axes[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0.0))
    signed: Reals = coordinates * np.where(np.power(coordinates, 3).sum(axis=0) < 0.0, -1.0, 1.0)
    return signed
