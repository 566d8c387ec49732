"""Distances, neighbours and spanning trees of one view, shared by the algorithms that need them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist, squareform

from coterie.proposals.partitions import Floats
from coterie.proposals.trees import spanning_tree

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
class Geometry:
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
