"""Spanning trees of a set of rows, and the modes of its density that they reveal."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

Integers = npt.NDArray[np.intp]
Reals = npt.NDArray[np.float64]


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
