"""What is known of a set of rows whatever the partition, computed once."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.linalg import eigh

from coterie.errors import InputError
from coterie.evidence.partitions import Integers, Reals, Singles
from coterie.proposals.trees import Modes, spanning_tree

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
class Geometry:
    """Distances, neighbours, trees and density of N rows, in units in which the rows' mean variance is one.

    Examples
    --------
    >>> import numpy as np
    >>> Geometry.of(np.array([[0.0], [1.0], [3.0]])).tree.tolist()
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
    def of(cls, x: Float[Reals, "N D"]) -> "Geometry":
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
