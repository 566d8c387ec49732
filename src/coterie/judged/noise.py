"""Background noise: rows scattered thinly over the whole range of the data, between and around the clusters.

The model compares the rows with probes, points spread evenly over the bounding box. Where only background is, rows and
probes have the same distribution, so that probes show what share of the background is visible outside the clusters and
how many of its rows a threshold finds. Without background, probes lie where no row is.

The density at a point follows from the volume of the cube that reaches its k-th nearest row (Byers and Raftery,
"Nearest-neighbor clutter removal", 1998): times the density of the background it has a gamma distribution with shape k.
Unlike balls, cubes can be cut off at the sides of the box exactly, so that rows near a side do not seem isolated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int
from scipy.spatial import cKDTree
from scipy.special import gammaincinv

from coterie.ops.ranks import halton_points

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

_NEIGHBOURS = 3  # fewer are too random, more reach from the background into clusters
_PROBES = 1024
_MAX_ROWS = 20_000  # rows that neighbours are searched among; more are sampled
_FEW_VALUES = 30  # columns with at most that many values say nothing about density
_MAX_COLUMNS = 8  # in more columns, boxes are practically empty
_OUTSIDE = 0.001  # share of rows on either side of a column that the box leaves out, for single rows far away
_CERTAIN = 0.1  # share of the background that lies as densely as clusters do and is left out of the estimates
_MIN_FOUND = 20  # rows of certain background, to base the estimates on
_MIN_OPEN = 0.05  # share of the box in which only background is
_SHARES = (0.01, 0.45)  # of the rows that may be background
_SAMPLING_ERROR = 1.36  # 95th percentile of the Kolmogorov-Smirnov statistic, times the root of the sample size
_TOLERANCE = 0.04  # difference of distributions allowed beyond the sampling error
_UNEVENNESS = 0.35  # difference allowed between the background and an even distribution over each column


@final
@dataclass(frozen=True, eq=False)
class NoiseModel:
    """Volume around a row, up to its nearest rows, beyond which it belongs to the background."""

    columns: Int[Integers, " C"]  # columns with many values
    lower: Float[Floats, " C"]  # sides of the box
    upper: Float[Floats, " C"]
    rows: Float[Floats, "N C"]  # fitted rows, in units of the box
    density: Float[Floats, ""]  # rows of background, inside clusters too
    volume: Float[Floats, ""]  # largest volume of rows in clusters

    @classmethod
    def fit(cls, rows: Float[Floats, "M D"]) -> Self | None:
        """Fit the background of rows; None if there is none."""
        columns = np.flatnonzero([len(np.unique(column)) > _FEW_VALUES for column in rows.T])
        if not 2 <= len(columns) <= _MAX_COLUMNS:
            return None
        kept = rows[:, columns]
        if len(kept) > _MAX_ROWS:
            kept = kept[np.random.default_rng(0).choice(len(kept), _MAX_ROWS, replace=False)]
        outside = max(1, int(_OUTSIDE * len(kept)))
        ordered = np.sort(kept, axis=0)
        lower, upper = ordered[outside], ordered[-1 - outside]
        if (lower == upper).any():
            return None
        kept = (kept - lower) / (upper - lower)
        tree = cKDTree(kept)
        inside = kept[((kept >= 0.0) & (kept <= 1.0)).all(axis=1)]
        probes = halton_points(_PROBES + 1, len(columns))[1:]  # the first is a corner
        found, visible = _volumes(tree, inside), _volumes(tree, probes)
        density = _estimate_density(found, visible)
        if density is None or not _SHARES[0] <= density / len(kept) <= _SHARES[1]:
            return None
        certain = float(gammaincinv(_NEIGHBOURS, _CERTAIN)) / density
        near, far = found > certain, visible > certain
        if not _is_background(inside[near], found[near], probes[far], visible[far]):
            return None
        volume = _best_volume(found, visible, density)
        return cls(columns, lower, upper, kept, np.array(density), np.array(volume))

    def find(self, rows: Float[Floats, "M D"]) -> Bool[Flags, " M"]:
        """Return which rows belong to the background."""
        scaled = (rows[:, self.columns] - self.lower) / (self.upper - self.lower)
        found: Flags = _volumes(self._tree, scaled) > self.volume
        return found

    @property
    def share(self) -> float:
        """Estimated share of the background among the fitted rows, including what is inside clusters."""
        return float(self.density) / len(self.rows)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.rows)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays to save."""
        return {f"noise.{field.name}": getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self | None:
        """Restore from ``to_arrays``; None if nothing was saved."""
        if "noise.rows" not in arrays:
            return None
        return cls(**{field.name: arrays[f"noise.{field.name}"] for field in fields(cls)})


def _volumes(tree: cKDTree, points: Floats) -> Floats:
    """Return the volume within the unit box of the cube around each point up to the k-th nearest other row."""
    ranks = [1, _NEIGHBOURS, _NEIGHBOURS + 1]
    distances = np.asarray(tree.query(points, k=ranks, p=np.inf)[0], dtype=np.float64)
    # A row of the tree is its own nearest row.
    reach = np.where(distances[:, 0] == 0.0, distances[:, 2], distances[:, 1])[:, None]
    low = np.maximum(points - reach, np.minimum(points, 0.0))
    high = np.minimum(points + reach, np.maximum(points, 1.0))
    volumes: Floats = (high - low).prod(axis=1)
    return volumes


def _estimate_density(found: Floats, visible: Floats) -> float | None:
    """Estimate the rows of background in the box from the volumes at rows and at probes; None if there are too few.

    The rows of the background that lie in the open, outside clusters, over the share of the box that is open. What is
    open depends on the density, which is therefore estimated again until it changes no more. It starts low, so that
    the sparsest of several densities is found.
    """
    limit = float(gammaincinv(_NEIGHBOURS, _CERTAIN))
    density = float(gammaincinv(_NEIGHBOURS, 0.85) / np.quantile(visible, 0.9))
    for _ in range(50):
        count, opened = int((found > limit / density).sum()), float((visible > limit / density).mean())
        if count < _MIN_FOUND or opened < _MIN_OPEN:
            return None
        before, density = density, count / opened
        if abs(density - before) < 0.01 * before:
            break
    return density


def _is_background(rows: Floats, found: Floats, probes: Floats, visible: Floats) -> bool:
    """Return whether rows in the open are distributed as probes in the open are, and over the whole box."""
    limit = _SAMPLING_ERROR * np.sqrt(1.0 / len(rows) + 1.0 / len(probes)) + _TOLERANCE
    even = np.linspace(0.0, 1.0, _PROBES)
    if any(_difference(column, even) > _UNEVENNESS for column in rows.T):
        return False
    # Tails of clusters become sparser outwards: they differ in the volumes or in the distance from the centre.
    outwards = (np.abs(points - 0.5).max(axis=1) for points in (rows, probes))
    pairs = [(found, visible), tuple(outwards), *zip(rows.T, probes.T, strict=True)]
    return all(_difference(*pair) <= limit for pair in pairs)


def _difference(first: Floats, second: Floats) -> float:
    """Return the Kolmogorov-Smirnov statistic of two samples."""
    values = np.concatenate([first, second])
    shares = [np.searchsorted(np.sort(each), values, side="right") / len(each) for each in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


def _best_volume(found: Floats, visible: Floats, density: float) -> float:
    """Return the volume that separates background from clusters with the best F1 score.

    Probes beyond the volume tell how many rows of the background are found; the count of all rows beyond it is known.
    """
    order = np.sort(found)
    beyond = np.arange(len(order))[::-1]
    recall = 1.0 - np.searchsorted(np.sort(visible), order, side="right") / len(visible)
    score = np.minimum(density * recall, beyond) / (beyond + density)
    return float(order[score.argmax()])
