"""Parts of dates that come round again, as points on a circle: the hour, the weekday and the month."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from coterie.tables.table import Array

Part: TypeAlias = Literal["hour", "weekday", "month"]

PERIODS: Final[dict[Part, int]] = {"hour": 24, "weekday": 7, "month": 12}
AXES: Final = ("cos", "sin")  # the two features of a part, in this order

_MIN_VALUES = 20  # fewer dates do not show that something comes round again
_MIN_DAYS: Final[dict[Part, int]] = {"hour": 2, "weekday": 14, "month": 548}  # between the first and the last date
_MONDAY = 3  # what to add to the days since 1970-01-01, a Thursday, for Mondays to be multiples of seven


@final
@dataclass(frozen=True)
class CycleColumn:
    """A part of the dates of a column; its two features together have variance one, unless they are unscaled."""

    position: int
    part: Part
    centre: tuple[float, float] = (0.0, 0.0)
    scale: float = 1.0

    @classmethod
    def fit(cls, column: Array, position: int, part: Part, *, scaled: bool) -> "CycleColumn":
        """Fit to the dates of a column of which at least one is present."""
        points = to_circle(column, part)
        if not scaled:
            return cls(position, part)
        centre, variance = np.nanmean(points, axis=0), float(np.nanvar(points, axis=0).sum())
        return cls(position, part, (float(centre[0]), float(centre[1])), float(np.sqrt(variance)))

    def encode(self, column: Array, missing: float) -> npt.NDArray[np.float32]:
        """Return the two features (N, 2) of each date, `missing` where there is none."""
        points = (to_circle(column, self.part) - self.centre) / self.scale
        return np.where(np.isnan(points), missing, points).astype(np.float32)


def find_cycles(column: Array) -> tuple[Part, ...]:
    """Return the parts of dates that vary, and over which the dates go round more than once.

    Examples
    --------
    >>> nights = np.datetime64("2024-03-01T22:00") + np.arange(30) * np.timedelta64(25, "h")
    >>> find_cycles(nights)
    ('hour', 'weekday')
    """
    present = column[~np.isnat(column)]
    if len(present) < _MIN_VALUES:
        return ()
    days = float((present.max() - present.min()) / np.timedelta64(1, "D"))
    fewest = {**_MIN_DAYS, "hour": 0} if is_time_of_day(column) else _MIN_DAYS
    return tuple(part for part in PERIODS if days >= fewest[part] and len(np.unique(_units(present, part))) > 1)


def is_time_of_day(column: Array) -> bool:
    """Return whether dates are times without a day, which are stored as times of 1970-01-01."""
    present = column[~np.isnat(column)]
    return len(present) > 0 and bool((present.astype("datetime64[D]") == np.datetime64("1970-01-01")).all())


def to_circle(column: Array, part: Part) -> npt.NDArray[np.float64]:
    """Return cosine and sine (N, 2) of a part of each date as an angle, NaN for missing dates."""
    angles = 2.0 * np.pi * _units(column, part) / PERIODS[part]
    return np.column_stack([np.cos(angles), np.sin(angles)])


def _units(column: Array, part: Part) -> npt.NDArray[np.float64]:
    """Return hours, whole days or whole months since the cycle began, NaN for missing dates."""
    if part == "hour":
        return np.where(
            np.isnat(column), np.nan, column.astype("datetime64[m]").astype(np.int64) / 60.0 % PERIODS[part]
        )
    if part == "weekday":
        count = column.astype("datetime64[D]").astype(np.int64) + _MONDAY
    else:
        count = column.astype("datetime64[M]").astype(np.int64)
    return np.where(np.isnat(column), np.nan, count % PERIODS[part])
