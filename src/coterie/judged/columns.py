"""The columns of a table behind the features of its rows: which are discrete, and how much each of them counts.

A discrete column separates its levels by perfect gaps, whether or not they have to do with anything else in the table.
It therefore counts in distances by how well the other columns predict it. Letters: N rows, D features, G columns.
"""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from coterie.ops.ranks import rank_values

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.intp]

FEW_VALUES = 10  # a number column with at most this many distinct values is discrete
_ROWS_PER_VALUE = 5  # unless there are fewer rows for each
_LEAST_WEIGHT = 0.1  # of a column that the others do not predict at all
_RIDGE = 0.1  # of the regression on the other columns, whose variances are one
_MAX_FEATURES = 600  # of more, all columns count alike
_MIN_ROWS = 20


@final
@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The column that each feature was made from; a category is one column of several features."""

    group: Int[Integers, " D"]  # number of the column of each feature, ascending from 0
    names: tuple[str, ...]  # names of the columns
    weight: Float[Floats, " G"]  # factors given by the user
    category: Bool[Flags, " G"]  # whether the column is a category, with one feature for each level
    in_one_unit: tuple[int, ...] = ()  # features that keep their relative scale: latitude and longitude

    @classmethod
    def numbers(cls, count: int) -> Self:
        """Return columns that are all numbers."""
        names = tuple(f"x{index}" for index in range(count))
        return cls(np.arange(count), names, np.ones(count), np.zeros(count, dtype=np.bool_))

    @property
    def count(self) -> int:
        """G."""
        return len(self.names)

    def features(self, column: int) -> Integers:
        """Return the positions of the features of a column."""
        return np.flatnonzero(self.group == column)

    def join_one_hot(self, x: Float[Floats, "N D"]) -> "Columns":
        """Join adjacent numbers that are the indicators of one category: exactly one of them is high in each row."""
        if len(x) < _MIN_ROWS:
            return self
        two_valued = ~self.category[self.group] & ((x == x.min(axis=0)) | (x == x.max(axis=0))).all(axis=0)
        two_valued &= x.min(axis=0) < x.max(axis=0)
        high = x == x.max(axis=0)
        starts = np.ones(len(self.group), dtype=np.bool_)  # whether a feature starts a column
        starts[1:] = self.group[1:] != self.group[:-1]
        joined = starts.copy()
        indicators = np.zeros(len(self.group), dtype=np.bool_)
        first = 0
        while first < len(starts):
            covered = np.zeros(len(x), dtype=np.bool_)
            last = first
            while last < len(starts) and two_valued[last] and not (covered & high[:, last]).any():
                covered |= high[:, last]
                last += 1
                if covered.all():
                    joined[first + 1 : last] = False
                    indicators[first:last] = True
                    break
            first = last if indicators[first] else first + 1
        if joined.all() or not indicators.any():
            return self
        group = np.cumsum(joined) - 1
        kept = self.group[joined]
        names = tuple(self.names[column] for column in kept)
        return Columns(group, names, self.weight[kept], self.category[kept] | indicators[joined], self.in_one_unit)

    def find_discrete(self, x: Float[Floats, "N D"]) -> Bool[Flags, " G"]:
        """Return which columns are categories, or numbers with few distinct values."""
        discrete = self.category.copy()
        most = min(FEW_VALUES, len(x) // _ROWS_PER_VALUE)
        for feature in np.flatnonzero(~self.category[self.group]):
            column = x[:, feature]
            # A few rows tell that most columns have many values.
            if len(np.unique(column[: 4 * FEW_VALUES])) <= most and len(np.unique(column)) <= most:
                discrete[self.group[feature]] = True
        return discrete

    def scales(self, variances: Float[Floats, " D"]) -> Float[Floats, " D"]:
        """Return what to divide features by, so that each column has variance one; infinite for constant columns."""
        total = np.bincount(self.group, weights=variances, minlength=self.count)
        scale = np.where(total > 0.0, np.sqrt(total), np.inf)
        return scale[self.group]


def prediction_weights(z: Float[Floats, "N D"], columns: Columns, discrete: Bool[Flags, " G"]) -> Float[Floats, " G"]:
    """Return the weight of each column: one if continuous, else the multiple correlation with all other columns.

    `z` are features in which every column has variance one. Discrete columns are predicted by a ridge regression on all
    other columns and on the squares of the continuous ones. The squared correlation is adjusted for the degrees of
    freedom, and lowered by the standard error of what chance alone explains.
    """
    weight = np.ones(columns.count)
    if len(z) < _MIN_ROWS or not discrete.any() or columns.count < 2 or z.shape[1] > _MAX_FEATURES:
        return weight
    scores = z - z.mean(axis=0)
    continuous = ~discrete[columns.group] & (scores.std(axis=0) > 0.0)
    if continuous.any():
        scores[:, continuous] = ndtri((rank_values(z[:, continuous]) - 0.5) / len(z))
    squares = scores[:, continuous] ** 2
    design = np.hstack([scores, (squares - squares.mean(axis=0)) / np.sqrt(2.0)])
    covariance = design.T @ design / len(z)
    precision = np.linalg.inv(covariance + _RIDGE * np.eye(len(covariance)))
    freedom = float(np.einsum("ij,ji->", covariance, precision)) / len(z)  # of the regression, per row
    projected = design @ precision
    error_of_chance = np.sqrt(2.0 * max(freedom, 1.0 / len(z)) / len(z))
    for column in np.flatnonzero(discrete):
        own = columns.features(int(column))
        # Residuals of the regression on everything else, from the joint precision matrix.
        residual = np.linalg.solve(precision[np.ix_(own, own)], projected[:, own].T)
        left = float(np.square(residual).sum()) / len(z) / max(1.0 - freedom, 0.1)
        total = float(np.square(scores[:, own]).sum()) / len(z)
        explained = 1.0 - left / total if total > 0.0 else 0.0
        weight[column] = np.sqrt(np.clip(explained - error_of_chance, _LEAST_WEIGHT**2, 1.0))
    return weight
