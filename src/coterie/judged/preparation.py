"""From a table to the rows that are clustered: encoded columns, missing values filled in, relative scales restored."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Float32, Int

from coterie.judged.columns import FEW_VALUES, Columns, Flags, Floats, Integers, prediction_weights
from coterie.tables.calendar import CycleColumn
from coterie.tables.encoder import MISSING_LEVEL, TableEncoder
from coterie.tables.roles import MAX_LEVELS
from coterie.tables.table import Table, format_list, unknown_column
from coterie.validation import Number, check_parameter

Singles = npt.NDArray[np.float32]
Missing: TypeAlias = Literal["ignore", "indicator"]

_TELLING = 0.25  # multiple correlation with the other columns from which a part of a date is used
_NEIGHBOURS = 5  # donors whose mean fills a gap
_MAX_DONORS = 1000
_MAX_DONOR_CELLS = 2**18  # fewer donors if there are many features, since they are saved
_MIN_DONORS = 100
_CELLS_AT_ONCE = 2**19
_MEAN_SQUARED_DIFFERENCE = 2.0  # of two random rows in a column of variance one
_ENCODING: dict[Missing, Literal["keep", "indicate"]] = {"ignore": "keep", "indicator": "indicate"}
_MAX_LOG_SCALE = 200.0  # beyond, the ratio of two columns' scales makes no difference
# Multiples of these, within these limits, have sums and products that are exact in 64 bits.
_COORDINATES = (
    (re.compile(r"(?:.*[\W_])?(?:lat|latitude|breite|breitengrad|latitud)", re.IGNORECASE), 90.0),
    (re.compile(r"(?:.*[\W_])?(?:lon|lng|long|longitude|länge|längengrad|longitud)", re.IGNORECASE), 180.0),
)
_FINE_GRID = 2.0**-20
_GRID, _FAR = 2.0**-12, 16.0


@final
@dataclass(frozen=True, eq=False)
class Preparation:
    """How rows of a table become finite rows of numbers, fitted on a table and applicable to others."""

    encoder: TableEncoder
    columns: Columns  # the columns of the table that the features were made from, and their weights
    donors: Float32[Singles, "M D"]  # encoded rows of the fitted table, with NaN, to fill missing values from

    @classmethod
    def fit(
        cls,
        table: Table,
        sample: Int[npt.NDArray[np.int64], " S"],
        *,
        missing: Missing = "ignore",
        column_weights: Mapping[str, float] | None = None,
    ) -> Self:
        """Fit to a table; if it has missing values, with donors from a random sample of its rows.

        Columns of weight 0 are left out, and so are those that cannot form clusters.
        """
        weights = column_weights or {}
        for name, weight in weights.items():
            check_parameter(f"column_weights[{name!r}]", weight, Number(0.0))
            if name not in table.names:
                raise unknown_column(table, str(name))
        leave_out = {name: "as asked for" for name, weight in weights.items() if weight == 0.0}
        encoder = TableEncoder("standard", missing=_ENCODING[missing]).fit(table, leave_out=leave_out)
        encoded = encoder.transform(table)
        if encoder.cycles and (kept := _telling_cycles(encoder, encoded[sample])) != encoder.cycles:
            encoder = encoder.with_cycles(kept)
            encoded = encoder.transform(table)
        n_donors = min(_MAX_DONORS, max(_MIN_DONORS, _MAX_DONOR_CELLS // len(encoder.features)))
        if not np.isnan(encoded).any():  # model files should not hold rows without need
            n_donors = 0
        chosen = sample[np.linspace(0, len(sample) - 1, min(n_donors, len(sample))).astype(np.intp)]
        columns = _find_columns(encoder, weights)
        if columns.in_one_unit:
            names = [encoder.features[position].column for position in columns.in_one_unit]
            note = f"compared as places on the globe, by latitude and longitude: {format_list(names)}"
            encoder = replace(encoder, notes=(*encoder.notes, note))
        return cls(encoder, columns, encoded[chosen])

    def transform(self, table: Table) -> Float[Floats, "N D"]:
        """Return the rows that are clustered: finite, in the relative scales of the columns."""
        return self.scale(self.encode(table))

    def encode(self, table: Table) -> Float32[Singles, "N D"]:
        """Encode rows and fill in their missing values; each row by itself, whatever the others are."""
        encoded = self.encoder.transform(table)
        self._imputer.fill(encoded)
        return encoded

    def scale(self, encoded: Float32[Singles, "N D"]) -> Float[Floats, "N D"]:
        """Restore the relative scales of encoded columns; categories get the median scale of the number columns."""
        return encoded.astype(np.float64) * self._scales

    @property
    def units(self) -> tuple[Floats, Floats]:
        """Factor and offset (D,) that turn encoded numbers into the units of the table."""
        return np.array(self.encoder.numbers.scales), np.array(self.encoder.numbers.centres)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what to save beside the encoder."""
        return {"preparation.donors": self.donors, "preparation.weights": self.columns.weight}

    @classmethod
    def from_arrays(cls, encoder: TableEncoder, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Restore from ``to_arrays``; version 0.2 saved nothing, since the encoder filled in missing values."""
        columns = _find_columns(encoder, {})
        donors = arrays.get("preparation.donors", np.empty((0, len(encoder.features)), dtype=np.float32))
        weight = arrays.get("preparation.weights", columns.weight)
        return cls(encoder, replace(columns, weight=weight), donors)

    @cached_property
    def _imputer(self) -> "Imputer":
        return Imputer(self.donors, self.columns.group)

    @cached_property
    def _scales(self) -> Floats:
        scales = _relative_scales(self.encoder)
        if self.columns.in_one_unit:  # a degree of longitude is shorter away from the equator
            latitude, longitude = self.columns.in_one_unit
            mean = self.encoder.numbers.centres[self.encoder.number_index(latitude)]
            scales[longitude] *= np.cos(np.radians(mean))
        return scales


def _telling_cycles(encoder: TableEncoder, encoded: Float32[Singles, "N D"]) -> tuple[CycleColumn, ...]:
    """Return the parts of dates that other columns say something about; the others would be noise."""
    columns = _find_columns(encoder, {})
    z = np.where(np.isnan(encoded), 0.0, encoded.astype(np.float64))
    parts = {f"{encoder.names[cycle.position]}: {cycle.part}" for cycle in encoder.cycles}
    discrete = columns.find_discrete(z) | np.array([name in parts for name in columns.names])
    weights = dict(zip(columns.names, prediction_weights(z, columns, discrete), strict=True))
    return tuple(
        cycle
        for cycle in encoder.cycles
        if weights[f"{encoder.names[cycle.position]}: {cycle.part}"] >= _TELLING
        or not any(number == cycle.position for number in encoder.numbers.positions)
    )


def _find_columns(encoder: TableEncoder, weights: Mapping[str, float]) -> Columns:
    """Return the columns behind the features of an encoder.

    An indicator of missing values is a column of its own, and so is a part of a date.
    """
    numbers = {encoder.names[position] for position in encoder.indicators.positions}
    named: dict[tuple[str, str | None], str] = {}  # by the column, and the part of its date or whether it is missing
    group, weight, category = [], [], []
    for feature in encoder.features:
        is_indicator = feature.level == MISSING_LEVEL and feature.column in numbers
        key = feature.column, MISSING_LEVEL if is_indicator else feature.part
        if key not in named:
            named[key] = {MISSING_LEVEL: feature.name, None: feature.column}.get(key[1], f"{key[0]}: {key[1]}")
            weight.append(weights.get(feature.column, 1.0))
            # Hours are continuous, unlike weekdays and months.
            category.append(feature.kind == "category" or (feature.kind == "cycle" and feature.part != "hour"))
        group.append(len(named) - 1)
    return Columns(
        np.array(group),
        tuple(named.values()),
        np.array(weight, dtype=np.float64),
        np.array(category),
        _find_coordinates(encoder),
    )


def _find_coordinates(encoder: TableEncoder) -> tuple[int, ...]:
    """Return the positions of the features that are latitude and longitude; none if there is no such pair."""
    found = []
    for form, largest in _COORDINATES:
        named = [
            position
            for position, feature in enumerate(encoder.features)
            if feature.kind == "number" and form.fullmatch(feature.column)
        ]
        if len(named) != 1:
            return ()
        index = encoder.number_index(named[0])
        numbers = encoder.numbers
        if not numbers.lowest or max(-numbers.lowest[index], numbers.highest[index]) > largest:
            return ()
        found.append(named[0])
    return tuple(found)


def _relative_scales(table: TableEncoder) -> Floats:
    """Return the scale of each encoded column over that of the median number, which categories get."""
    numbers = np.log(table.numbers.scales)  # a quotient of huge and tiny scales would overflow
    usual = float(np.median(numbers)) if numbers.size else 0.0
    scales = iter(numbers.tolist())
    units = [usual if feature.kind in {"category", "cycle"} else next(scales) for feature in table.features]
    return np.exp(np.clip(np.array(units) - usual, -_MAX_LOG_SCALE, _MAX_LOG_SCALE))


@final
@dataclass(frozen=True, eq=False)
class Imputer:
    """Fills in missing values by the mean of the nearest donors that have them.

    As scikit-learn's KNNImputer, except in three ways. A column that a donor lacks adds the mean squared difference of
    two rows to the distance, so that donors with few values are not the nearest by accident. All donors as near as the
    fifth count. Values are rounded so that sums are exact: what becomes of a row depends neither on the rows beside it
    nor on the machine. Letters: M donors, N rows, D features.
    """

    donors: Float32[Singles, "M D"]  # NaN for missing values
    group: Int[Integers, " D"]  # column of each feature; the features of a column are missing together

    def fill(self, encoded: Float32[Singles, "N D"]) -> None:
        """Replace NaN in place; by 0, the mean of the column, where no donor has a value."""
        incomplete = np.flatnonzero(np.isnan(encoded).any(axis=1))
        step = max(1, _CELLS_AT_ONCE // max(1, len(self.donors)))
        for start in range(0, len(incomplete), step):
            rows = incomplete[start : start + step]
            encoded[rows] = self._filled(encoded[rows])

    def _filled(self, rows: Float32[Singles, "N D"]) -> Float32[Singles, "N D"]:
        missing = np.isnan(rows)
        filled = np.where(missing, np.float32(0.0), rows)
        distances = self._distances(filled, ~missing)
        for first in self._first[missing[:, self._first].any(axis=0) & self._present[:, self._first].any(axis=0)]:
            gaps, able = missing[:, first], self._present[:, first]
            features = np.flatnonzero(self.group == self.group[first])
            values = self._exact_values[np.ix_(able, features)]
            means = _mean_of_nearest(distances[gaps][:, able], values)
            filled[np.ix_(gaps, features)] = _nearest_level(means, self.donors[np.ix_(able, features)])
        return filled

    def _distances(self, rows: Float32[Singles, "N D"], present: Flags) -> Float[Floats, "N M"]:
        """Return squared distances over the columns that a row has."""
        y, there = _on_grid(self._values), self._present.astype(np.float64)
        lacking = _MEAN_SQUARED_DIFFERENCE * (1.0 - there[:, self._first])
        donors = np.hstack([there, y, y * y, lacking])
        x, here = _on_grid(rows), present.astype(np.float64)
        distances: Floats = np.hstack([x * x, -2.0 * x, here, here[:, self._first]]) @ donors.T
        return distances

    @cached_property
    def _first(self) -> Integers:
        """Positions of the first feature of each column."""
        return np.unique(self.group, return_index=True)[1]

    @cached_property
    def _present(self) -> Flags:
        return ~np.isnan(self.donors)

    @cached_property
    def _values(self) -> Singles:
        return np.where(self._present, self.donors, np.float32(0.0))

    @cached_property
    def _exact_values(self) -> Floats:
        return np.round(self._values.astype(np.float64) / _FINE_GRID) * _FINE_GRID


def _nearest_level(means: Float[Floats, "N F"], values: Float32[Singles, "M F"]) -> npt.NDArray[Any]:
    """Replace means by the nearest value if there are few different ones, so that a discrete column stays discrete."""
    levels = np.unique(values, axis=0)
    if len(levels) > (FEW_VALUES if values.shape[1] == 1 else MAX_LEVELS):
        return means
    nearness = means @ levels.T - 0.5 * np.square(levels, dtype=np.float64).sum(axis=1)
    # Rounded, so that of several as near the first is taken, whatever the order of the sums was.
    nearest: Singles = levels[nearness.round(6).argmax(axis=1)]
    return nearest


def _on_grid(rows: Singles) -> Floats:
    return (np.round(np.clip(rows, -_FAR, _FAR) / _GRID) * _GRID).astype(np.float64)


def _mean_of_nearest(distances: Float[Floats, "N M"], values: Float[Floats, "M F"]) -> Float[Floats, "N F"]:
    """Return the mean values of the donors that are as near as the fifth."""
    last = min(_NEIGHBOURS, len(values)) - 1
    farthest = np.partition(distances, last, axis=1)[:, [last]]
    near = (distances <= farthest).astype(np.float64)
    means: Floats = near @ values / near.sum(axis=1, keepdims=True)
    return means
