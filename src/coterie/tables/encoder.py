"""TableEncoder: numbers, categories, booleans and dates -> one matrix of numbers of comparable size, and back."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError, TableError
from coterie.tables.calendar import AXES, CycleColumn, Part, find_cycles, is_time_of_day
from coterie.tables.roles import (
    MAX_LEVELS,
    OTHER_LEVEL,
    advise_texts,
    choose_row_names,
    count_texts,
    describe_levels,
    describe_unusable,
    find_unusable,
)
from coterie.tables.table import Array, ColumnKind, Table, format_list
from coterie.validation import Choice, check_parameter

Floats: TypeAlias = npt.NDArray[np.float64]
Counts: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Scaling: TypeAlias = Literal["robust", "standard", "none"]
Missing: TypeAlias = Literal["fill", "keep", "indicate"]

MISSING_LEVEL = "(missing)"
FAR = 5.0  # robust scaling compresses values that are more than this many deviations from the centre
_SCALING, _MISSING = Choice(*get_args(Scaling)), Choice(*get_args(Missing))
_LARGEST = 1e15  # the squares of encoded values must be finite in float32
_ELEMENTS_PER_BATCH = 2**21
_WINSORISED_FRACTION = 100
_MIN_ROWS_TO_WINSORISE = 10
_CONSTANT = 10 * np.finfo(np.float64).eps
_MAX_LINES = 10


@final
@dataclass(frozen=True)
class Feature:
    """One column of the encoded matrix: an input column, one level of a category, or a part of a date."""

    name: str
    column: str
    kind: ColumnKind | Literal["cycle"]  # "cycle": cosine or sine of a part of a date
    level: str | None = None  # level of a category; "cos" or "sin" of a part of a date
    part: Part | None = None  # part of a date


@final
@dataclass(frozen=True)
class NumberColumns:
    """The columns that become one feature each, by position in the table: z = (x - centre) / scale."""

    positions: tuple[int, ...] = ()
    kinds: tuple[ColumnKind, ...] = ()
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    fills: tuple[float, ...] = ()
    lowest: tuple[float, ...] = ()  # smallest and largest value of `fit`
    highest: tuple[float, ...] = ()


@final
@dataclass(frozen=True)
class CategoryColumn:
    """A text column: its levels (None for missing), their proportions in `fit`, and the scale of its features.

    Missing values are no level if they are kept as NaN.
    """

    position: int
    levels: tuple[str | None, ...]
    shares: tuple[float, ...]
    offsets: tuple[float, ...]
    scale: float

    @property
    def is_constant(self) -> bool:
        """Whether all rows that have a level have the same."""
        return len(self.levels) <= 1

    @property
    def is_missing(self) -> bool:
        """Whether every value is missing."""
        return set(self.levels) <= {None}

    def encode(self, column: Array, missing: float) -> npt.NDArray[np.float32]:
        """Return (indicator - offset) / scale per level; `missing` if that is no level.

        Unknown levels are the level of all others if there is one, and zeros if not.
        """
        n_levels = len(self.levels)
        known = (np.eye(n_levels) - np.array(self.offsets)) / self.scale
        rows = np.vstack([known, np.full(n_levels, missing), np.zeros(n_levels)]).astype(np.float32)
        code = {None: n_levels} | {level: i for i, level in enumerate(self.levels)}
        other = code.get(OTHER_LEVEL, -1)
        codes = np.fromiter((code.get(text, other) for text in to_texts(column)), dtype=np.intp, count=len(column))
        return rows[codes]


@final
@dataclass(frozen=True)
class TableEncoder:
    """Convert a table to a matrix of numbers of comparable size, and back.

    Parameters
    ----------
    scaling : {"robust", "standard", "none"}
        "standard" scales each number column to mean 0 and standard deviation 1. "robust" computes both after
        winsorising 1 % of the values on each side, and compresses values beyond 5 deviations logarithmically.
        "none" leaves numbers unchanged.
    missing : {"fill", "keep", "indicate"}
        "fill" replaces missing and infinite numbers by the median of the column, and makes missing categories a level
        of their own. "keep" encodes both as NaN: all levels of a missing category are NaN. "indicate" encodes missing
        numbers as NaN and adds a feature, 1 where the number is missing; missing categories are a level.

    Notes
    -----
    A category becomes one feature per level; together these have the variance of one standardised column. Of more than
    50 levels, the rarest become one. Booleans become 0 and 1. Dates become seconds since 1970, and hour, weekday and
    month, if they vary, points on a circle. Columns that cannot form clusters are left out, such as ids and names (see
    ``coterie.tables.roles.find_unusable``), and so are constant ones, unless all are constant.

    The encoder is immutable: `fit` returns a fitted one.

    Examples
    --------
    >>> from coterie.tables.table import as_table
    >>> table = as_table([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> encoder = TableEncoder("standard").fit(table)
    >>> encoder.transform(table).round(2).tolist()
    [[-1.2200000286102295], [0.0], [1.2200000286102295]]
    >>> encoder.notes
    ("left out, since they are constant: 'x1'",)
    """

    scaling: Scaling = "robust"
    names: tuple[str, ...] = ()
    named: bool = False
    numbers: NumberColumns = NumberColumns()
    categories: tuple[CategoryColumn, ...] = ()
    notes: tuple[str, ...] = ()
    missing: Missing = "fill"
    indicators: NumberColumns = NumberColumns()  # of missing values: 1 where the column at this position has none
    cycles: tuple[CycleColumn, ...] = ()
    row_names: str | None = None  # a column that is left out and names the rows
    date_orders: tuple[tuple[str, str], ...] = ()  # of date columns: whether the "day" or the "month" came first

    def __post_init__(self) -> None:
        check_parameter("scaling", self.scaling, _SCALING)
        check_parameter("missing", self.missing, _MISSING)

    def fit(self, table: Table, *, leave_out: Mapping[str, str] | None = None) -> "TableEncoder":
        """Return an encoder fitted to the columns of this table, except those to leave out, each with the reason."""
        unusable = find_unusable(table)
        asked, leave_out = leave_out or {}, {**describe_unusable(unusable), **(leave_out or {})}
        kinds, unscaled = table.kinds, self.scaling == "none"
        used = [i for i, name in enumerate(table.names) if name not in leave_out]
        if not used:
            if len(asked) == table.n_columns:
                raise TableError(f"All columns of {table.source} are left out. Leave fewer out.")
            advice = f"Add columns of numbers, categories or dates{advise_texts(unusable)}."
            raise TableError(f"No column of {table.source} can form clusters: {_with_reasons(leave_out)}. {advice}")
        positions = [i for i in used if kinds[i] != "category"]
        winsorised = np.array([self.scaling == "robust" and kinds[i] == "number" for i in positions], dtype=np.bool_)
        summary = summarise(_select_numbers(table, positions), winsorised)
        categories = [
            _fit_category(table.column(i), i, scaled=not unscaled, with_missing=self.missing != "keep")
            for i in used
            if kinds[i] == "category"
        ]
        cycles = [
            CycleColumn.fit(table.column(i), i, part, scaled=not unscaled)
            for i in positions
            if kinds[i] == "date"
            for part in find_cycles(table.column(i))
        ]
        indicators = NumberColumns()
        if self.missing == "indicate":
            indicators = _fit_indicators(positions, 1 - summary.present / table.n_rows, scaled=not unscaled)
        varied = (
            not summary.constant.all()
            or any(not category.is_constant for category in categories)
            or bool(indicators.positions)
        )
        # Of times without a day, the hour says all.
        replaced = {cycle.position for cycle in cycles if is_time_of_day(table.column(cycle.position))}
        as_numbers = np.array([position not in replaced for position in positions], dtype=np.bool_)
        kept_numbers = np.flatnonzero((summary.present > 0) & ~(summary.constant & varied) & as_numbers)
        kept_categories = [c for c in categories if not c.is_missing and not (c.is_constant and varied)]
        if not (len(kept_numbers) or kept_categories or indicators.positions or cycles):
            raise TableError(f"Every value of every column is missing in {table.source}. There is nothing to cluster.")
        if unscaled:
            _check_size(summary.largest.max(initial=0.0))
        numbers = NumberColumns(
            positions=tuple(positions[i] for i in kept_numbers),
            kinds=tuple(kinds[positions[i]] for i in kept_numbers),
            centres=tuple([0.0] * len(kept_numbers) if unscaled else summary.centre[kept_numbers].tolist()),
            scales=tuple([1.0] * len(kept_numbers) if unscaled else summary.scale[kept_numbers].tolist()),
            fills=tuple(summary.median[kept_numbers].tolist()),
            lowest=tuple(summary.lowest[kept_numbers].tolist()),
            highest=tuple(summary.highest[kept_numbers].tolist()),
        )
        fitted = replace(
            self,
            names=table.names,
            named=table.named,
            numbers=numbers,
            categories=tuple(kept_categories),
            indicators=indicators,
            cycles=tuple(cycles),
            row_names=choose_row_names(unusable),
            date_orders=tuple((name, order.rstrip("?")) for name, order in table.date_orders.items()),
        )
        notes = _describe_columns(table, positions, summary, categories, missing=self.missing, varied=varied)
        if leave_out:
            ordered = {name: leave_out[name] for name in table.names if name in leave_out}
            notes = chain([f"left out: {_with_reasons(ordered)}"], notes)
        return replace(fitted, notes=(*table.notes, *notes, *_describe_cycles(table.names, cycles)))

    def with_cycles(self, cycles: tuple[CycleColumn, ...]) -> "TableEncoder":
        """Return this encoder with only some of its parts of dates."""
        before = set(_describe_cycles(self.names, self.cycles))
        notes = (note for note in self.notes if note not in before)
        return replace(self, cycles=cycles, notes=(*notes, *_describe_cycles(self.names, cycles)))

    def transform(self, table: Table) -> npt.NDArray[np.float32]:
        """Encode rows as a float32 matrix (n, D), finite unless missing values are kept; unseen levels become zeros."""
        table = self._match_columns(table)
        encoded = np.zeros((table.n_rows, len(self.features)), dtype=np.float32)
        numbers = self.numbers
        if numbers.positions:
            self._check_kinds(table)
            block = _select_numbers(table, numbers.positions)
            centre, scale = np.array(numbers.centres), np.array(numbers.scales)
            fill = np.array(numbers.fills) if self.missing == "fill" else np.full(len(scale), np.nan)
            step = max(1, _ELEMENTS_PER_BATCH // (8 * len(scale)))
            for start in range(0, len(block), step):
                z = block[start : start + step].astype(np.float64)
                missing = ~np.isfinite(z)
                if missing.any():
                    z = np.where(missing, fill, z)
                # Halves, because the difference of two huge values of opposite sign overflows.
                z = 0.5 * z - 0.5 * centre
                with np.errstate(over="ignore"):
                    z = _transform_far(z / (0.5 * scale), self._compressed, np.log1p)
                if self.scaling == "none":
                    _check_size(np.abs(z).max(initial=0.0, where=~np.isnan(z)))
                else:  # rows that come after `fit` may be arbitrarily far away
                    z = np.clip(z, -_LARGEST, _LARGEST)
                encoded[start : start + step, self._number_slots] = z
        gap = 0.0 if self.missing == "fill" else np.nan
        for category, slots in self._category_slots:
            encoded[:, slots] = category.encode(table.column(category.position), gap)
        for cycle, slots in self._cycle_slots:
            encoded[:, slots] = cycle.encode(table.column(cycle.position), gap)
        for position, share, deviation, slot in self._indicator_slots:
            encoded[:, slot] = (~np.isfinite(_to_floats(table.column(position))) - share) / deviation
        return encoded

    def inverse_transform(self, Z: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Convert encoded values (n, D) to input units; levels of a category become proportions from 0 to 1."""
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != len(self.features):
            raise InputError(f"Expected encoded rows of {len(self.features)} values, got an array of shape {Z.shape}.")
        decoded = np.empty_like(Z)
        slots = self._number_slots
        with np.errstate(over="ignore"):  # a point far outside the data may have no finite original
            expanded = _transform_far(Z[:, slots], self._compressed, np.expm1)
            decoded[:, slots] = expanded * self.numbers.scales + self.numbers.centres
        for category, levels in self._category_slots:
            decoded[:, levels] = np.clip(Z[:, levels] * category.scale + category.offsets, 0.0, 1.0)
        for cycle, both in self._cycle_slots:
            decoded[:, both] = np.clip(Z[:, both] * cycle.scale + cycle.centre, -1.0, 1.0)
        for _, share, deviation, slot in self._indicator_slots:
            decoded[:, slot] = np.clip(Z[:, slot] * deviation + share, 0.0, 1.0)
        return decoded

    def inverse(self, Z: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Former name of ``inverse_transform``."""
        warnings.warn("TableEncoder.inverse was renamed to inverse_transform.", FutureWarning, stacklevel=2)
        return self.inverse_transform(Z)

    def describe_unseen(self, table: Table) -> tuple[str, ...]:
        """List the categories of a table that did not occur in `fit`, one line per column."""
        table = self._match_columns(table)
        lines = []
        for category in self.categories:
            known = set(category.levels) if self.missing == "fill" else {*category.levels, None}
            unseen = [text for text in to_texts(table.column(category.position)) if text not in known]
            if unseen:
                levels = format_list(sorted({MISSING_LEVEL if text is None else text for text in unseen}), 5)
                lines.append(
                    f"column {self.names[category.position]!r}: {len(unseen)} rows have values "
                    f"that did not occur when the model was fitted: {levels}"
                )
        return tuple(lines)

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """Meaning of each column of the encoded matrix, in the order of the table's columns."""
        by_position: dict[int, list[Feature]] = {}
        for position, kind in zip(self.numbers.positions, self.numbers.kinds, strict=True):
            by_position[position] = [Feature(self.names[position], self.names[position], kind)]
        for cycle in self.cycles:
            column = self.names[cycle.position]
            both = [Feature(f"{column}: {cycle.part} ({axis})", column, "cycle", axis, cycle.part) for axis in AXES]
            by_position.setdefault(cycle.position, []).extend(both)
        for position in self.indicators.positions:
            column = self.names[position]
            indicator = Feature(f"{column} is missing", column, "category", MISSING_LEVEL)
            by_position.setdefault(position, []).append(indicator)
        for category in self.categories:
            column = self.names[category.position]
            levels = [MISSING_LEVEL if level is None else level for level in category.levels]
            by_position[category.position] = [Feature(f"{column}={x}", column, "category", x) for x in levels]
        return tuple(feature for position in sorted(by_position) for feature in by_position[position])

    @cached_property
    def used_kinds(self) -> dict[int, ColumnKind]:
        """Kinds of the columns that are encoded, by position."""
        kinds: dict[int, ColumnKind] = dict(zip(self.numbers.positions, self.numbers.kinds, strict=True))
        kinds |= dict.fromkeys((category.position for category in self.categories), "category")
        kinds |= dict.fromkeys((cycle.position for cycle in self.cycles), "date")
        for position in self.indicators.positions:
            kinds.setdefault(position, "number")
        return kinds

    @property
    def used_positions(self) -> list[int]:
        """Positions of the columns that are encoded."""
        return sorted(self.used_kinds)

    def to_card(self) -> dict[str, Any]:
        """Return the encoder as JSON values."""
        card: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return card

    @staticmethod
    def from_card(card: Mapping[str, Any]) -> "TableEncoder":
        """Return the encoder that `to_card` wrote."""
        expected = {field.name for field in fields(TableEncoder)}
        # Former versions did not have these.
        if not expected - {"missing", "indicators", "cycles", "row_names", "date_orders"} <= set(card) <= expected:
            raise InputError(f"The card of the encoder has the keys {sorted(card)}; expected {sorted(expected)}.")
        columns = {
            "numbers": NumberColumns(**_with_tuples(card["numbers"])),
            "categories": [CategoryColumn(**_with_tuples(item)) for item in card["categories"]],
            "indicators": NumberColumns(**_with_tuples(card.get("indicators", {}))),
            "date_orders": [(str(name), str(order)) for name, order in card.get("date_orders", [])],
            "cycles": [CycleColumn(**_with_tuples(item)) for item in card.get("cycles", [])],
        }
        return TableEncoder(**_with_tuples({**card, **columns}))

    @cached_property
    def _compressed(self) -> npt.NDArray[np.bool_]:
        return np.array([self.scaling == "robust" and k == "number" for k in self.numbers.kinds], dtype=np.bool_)

    @cached_property
    def _number_slots(self) -> npt.NDArray[np.intp] | slice:
        """Positions of the number columns in the encoded matrix; for speed a slice if there are no others."""
        if not self.categories and not self.indicators.positions and not self.cycles:
            return slice(None)
        return np.flatnonzero([feature.kind not in {"category", "cycle"} for feature in self.features])

    def number_index(self, position: int) -> int:
        """Return which of the number columns a column of the encoded matrix is."""
        return [i for i, feature in enumerate(self.features) if feature.kind not in {"category", "cycle"}].index(
            position
        )

    @cached_property
    def _first_slots(self) -> dict[tuple[str, str | None], int]:
        """The position in the encoded matrix of the first feature of each column and kind of feature."""
        slots: dict[tuple[str, str | None], int] = {}
        indicators = {self.names[position] for position in self.indicators.positions}
        for slot, feature in enumerate(self.features):
            is_indicator = feature.level == MISSING_LEVEL and feature.column in indicators
            slots.setdefault((feature.column, MISSING_LEVEL if is_indicator else feature.part), slot)
        return slots

    @cached_property
    def _category_slots(self) -> list[tuple[CategoryColumn, slice]]:
        """The categories and their positions in the encoded matrix."""
        starts = [self._first_slots[self.names[category.position], None] for category in self.categories]
        return [(c, slice(start, start + len(c.levels))) for c, start in zip(self.categories, starts, strict=True)]

    @cached_property
    def _cycle_slots(self) -> list[tuple[CycleColumn, slice]]:
        """The parts of dates and their positions in the encoded matrix."""
        starts = [self._first_slots[self.names[cycle.position], cycle.part] for cycle in self.cycles]
        return [(c, slice(start, start + len(AXES))) for c, start in zip(self.cycles, starts, strict=True)]

    @cached_property
    def _indicator_slots(self) -> list[tuple[int, float, float, int]]:
        """The position in the table, centre, scale and position in the encoded matrix of each indicator."""
        indicators = self.indicators
        slots = [self._first_slots[self.names[position], MISSING_LEVEL] for position in indicators.positions]
        return list(zip(indicators.positions, indicators.centres, indicators.scales, slots, strict=True))

    def _match_columns(self, table: Table) -> Table:
        """Return the table with its columns in the order of `fit`: by name if both have names."""
        if not self.names:
            raise InputError("This TableEncoder is not fitted. Use the one that fit(table) returns.")
        if self.named and table.named:
            position, known = {name: i for i, name in enumerate(table.names)}, set(self.names)
            missing = [name for name in self.names if name not in position]
            unexpected = [name for name in table.names if name not in known]
            if missing or unexpected:
                named = {"missing": missing, "unexpected": unexpected}
                parts = "; ".join(f"{what}: {format_list(names)}" for what, names in named.items() if names)
                raise TableError(
                    f"The columns of {table.source} differ from those that the model was fitted on ({parts}). "
                    "Give it the same columns."
                )
            return table.select([position[name] for name in self.names])
        if table.n_columns != len(self.names):
            raise TableError(
                f"X has {table.n_columns} features, but TableEncoder is expecting {len(self.names)} features as input"
            )
        return table

    def _check_kinds(self, table: Table) -> None:
        kinds = table.kinds
        for position, kind in zip(self.numbers.positions, self.numbers.kinds, strict=True):
            now = kinds[position]
            compatible = now != "category" and (now == "date") == (kind == "date")
            if not compatible and not _all_missing(table.column(position)):
                raise TableError(
                    f"Column {self.names[position]!r} had the kind {kind!r} when the model was fitted, but has the "
                    f"kind {now!r} in {table.source}. Convert it."
                )


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace lists, which JSON makes of tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _all_missing(column: Array) -> bool:
    if column.dtype.kind == "O":
        return all(value is None for value in column)
    return bool(np.isnan(_to_floats(column)).all())


def _check_size(largest: float) -> None:
    if largest > _LARGEST:
        raise TableError(f"A value as large as {largest:g} cannot be used unscaled. Use the scaling 'robust'.")


def _select_numbers(table: Table, positions: Sequence[int]) -> Array:
    """Return number columns as one array; the table's own block, not copied, if it has no other columns."""
    block = table.select(positions).block
    if block is not None:
        return block
    columns = [_to_floats(table.columns[i]) for i in positions]
    return np.column_stack(columns) if columns else np.empty((table.n_rows, 0))


def _to_floats(column: Array) -> Floats:
    if column.dtype.kind == "O":  # every value is missing, see `_check_kinds`
        return np.full(len(column), np.nan)
    if column.dtype.kind != "M":
        return column.astype(np.float64)
    seconds = column.astype("datetime64[us]").astype(np.int64) / 1e6
    seconds[np.isnat(column)] = np.nan
    return seconds


def to_texts(column: Array) -> list[str | None]:
    """Convert a column to strings, also if this part of the data has numbers only; 7.0 becomes '7'."""
    if column.dtype.kind == "O":
        return list(column)
    if column.dtype.kind == "f":
        return [None if math.isnan(value) else repr(value).removesuffix(".0") for value in column.tolist()]
    return [str(value) for value in column.tolist()]


def _fit_indicators(positions: Sequence[int], shares: Floats, *, scaled: bool) -> NumberColumns:
    """Return indicators of missing values for the columns that have some, given their share of missing values."""
    incomplete = np.flatnonzero((shares > 0) & (shares < 1)).tolist()
    return NumberColumns(
        positions=tuple(positions[i] for i in incomplete),
        kinds=tuple("boolean" for _ in incomplete),
        centres=tuple(float(shares[i]) if scaled else 0.0 for i in incomplete),
        scales=tuple(math.sqrt(shares[i] * (1 - shares[i])) if scaled else 1.0 for i in incomplete),
    )


def _fit_category(column: Array, position: int, *, scaled: bool, with_missing: bool) -> CategoryColumn:
    counts: dict[str | None, int] = dict(count_texts(column).items())
    if len(counts) > MAX_LEVELS:
        frequent = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))[: MAX_LEVELS - 1]
        rest = sum(counts.values()) - sum(count for _, count in frequent)
        counts = dict(frequent)
        counts[OTHER_LEVEL] = counts.get(OTHER_LEVEL, 0) + rest
    levels: tuple[str | None, ...] = tuple(sorted(map(str, counts)))
    n_missing = len(column) - sum(counts.values())
    if with_missing and n_missing:
        counts[None], levels = n_missing, (*levels, None)
    total = max(1, sum(counts.values()))
    shares = tuple(counts[level] / total for level in levels)
    variance = sum(share * (1 - share) for share in shares)
    return CategoryColumn(
        position=position,
        levels=levels,
        shares=shares,
        offsets=shares if scaled else (0.0,) * len(shares),
        scale=float(np.sqrt(variance)) if scaled and variance > 0 else 1.0,
    )


class NumberSummary(NamedTuple):
    """Statistics of each column; values that are not finite count as missing."""

    present: Counts
    constant: Flags
    median: Floats
    centre: Floats
    scale: Floats
    far: Counts
    largest: Floats
    lowest: Floats
    highest: Floats


def summarise(block: npt.NDArray[Any], winsorised: Flags) -> NumberSummary:
    """Compute the statistics of every column of a 2-D array, a few columns at a time to limit the memory of copies.

    Columns that are `winsorised`, if they have at least 10 values, have their max(1, n // 100) smallest and largest
    values replaced by the nearest of the others; `far` counts the values more than 5 scales from the centre.
    """
    n_rows, n_columns = block.shape
    width = max(1, _ELEMENTS_PER_BATCH // n_rows)
    parts = [
        _summarise_batch(block[:, start : start + width], winsorised[start : start + width])
        for start in range(0, max(1, n_columns), width)
    ]
    return NumberSummary(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))


def _summarise_batch(block: npt.NDArray[Any], winsorised: Flags) -> tuple[npt.NDArray[Any], ...]:
    ordered = np.array(block.T, dtype=np.float64, order="C")
    missing = ~np.isfinite(ordered)
    n = ordered.shape[1]
    present = n - missing.sum(axis=1)
    if missing.any():
        ordered[missing] = np.nan
        ordered[present == 0] = 0.0
    ordered.sort(axis=1)  # missing values end up last
    count = np.where(present == 0, n, present)
    row = np.arange(len(ordered))

    # Dividing by a power of two brings each column near [-2, 2] without rounding, so that no square overflows.
    largest = np.maximum(np.abs(ordered[:, 0]), np.abs(ordered[row, count - 1]))
    unit = np.ldexp(1.0, np.clip(np.frexp(largest)[1] - 1, -1000, 1000))
    ordered /= unit[:, None]
    lowest, highest = ordered[:, 0].copy(), ordered[row, count - 1]
    constant = highest - lowest <= _CONSTANT * np.maximum(np.abs(lowest), np.abs(highest))
    median = 0.5 * (ordered[row, (count - 1) // 2] + ordered[row, count // 2])

    centre, spread = _mean_and_deviation(ordered, count)
    far = np.zeros(len(ordered), dtype=np.int64)
    if winsorised.any():
        cut = np.where(count >= _MIN_ROWS_TO_WINSORISE, np.maximum(1, count // _WINSORISED_FRACTION), 0)
        clipped = np.clip(ordered, ordered[row, cut][:, None], ordered[row, count - 1 - cut][:, None])
        clipped_centre, clipped_spread = _mean_and_deviation(clipped, count)
        centre = np.where(winsorised, clipped_centre, centre)
        usable = winsorised & (clipped_spread >= 1e-3 * spread) & (clipped_spread > 0)
        spread = np.where(usable, clipped_spread, spread)
        farthest = np.maximum(np.abs(lowest - centre), np.abs(highest - centre))
        reaches_far = np.flatnonzero(winsorised & ~constant & (farthest > FAR * spread))
        distance = np.abs(ordered[reaches_far] - centre[reaches_far, None])
        far[reaches_far] = (distance > FAR * spread[reaches_far, None]).sum(axis=1)
    scale = spread * unit
    scale = np.where(constant | (scale < 4 * np.finfo(np.float64).tiny), 1.0, scale)
    centre = np.where(constant, median, centre) * unit
    return present, constant, median * unit, centre, scale, far, largest, lowest * unit, highest * unit


def _mean_and_deviation(ordered: Floats, count: Counts) -> tuple[Floats, Floats]:
    """Return mean and population standard deviation of the first `count` values of each row."""
    if (count == ordered.shape[1]).all():
        mean = ordered.mean(axis=1)
        deviation = ordered - mean[:, None]
    else:
        exists = np.arange(ordered.shape[1]) < count[:, None]
        mean = ordered.mean(axis=1, where=exists)
        deviation = np.where(exists, ordered - mean[:, None], 0.0)
    return mean, np.sqrt(np.einsum("ij,ij->i", deviation, deviation) / count)


def _transform_far(z: Floats, compressed: Flags, function: np.ufunc) -> Floats:
    """Replace z by sign(z) (5 + f(|z| - 5)) beyond 5 in columns that are `compressed`; f is log1p, or its inverse."""
    distance = np.minimum(np.abs(z), np.finfo(np.float64).max)
    far = (distance > FAR) & compressed
    if far.any():
        z = np.where(far, np.copysign(FAR + function(np.where(far, distance - FAR, 0.0)), z), z)
    return z


def _describe_columns(
    table: Table,
    positions: list[int],
    summary: NumberSummary,
    categories: list[CategoryColumn],
    *,
    missing: Missing,
    varied: bool,
) -> Iterator[str]:
    """Yield the decisions of `fit` that the user may want to know, one line each."""
    names = np.array([table.names[i] for i in positions], dtype=object)
    yield from _describe_missing(table, positions, summary, categories, missing)
    constant = [*names[summary.constant & (summary.present > 0)]]
    constant += [table.names[c.position] for c in categories if c.is_constant and not c.is_missing]
    if not varied:
        yield "all columns are constant, so that all rows are equal"
    elif constant:
        which = format_list(constant) if table.image is None else f"{len(constant):,} of {table.n_columns:,} pixels"
        yield f"left out, since they are constant: {which}"
    far = np.flatnonzero(summary.far)
    if len(far):
        shown = ", ".join(f"{names[i]!r} {summary.far[i]}" for i in far[:_MAX_LINES])
        if len(rest := far[_MAX_LINES:]):
            shown += f", and {len(rest)} more columns {summary.far[rest].sum()}"
        yield f"extreme values pulled in (count per column): {shown}"
    if dates := [table.names[i] for i in positions if table.kinds[i] == "date"]:
        yield f"treated as dates: {format_list(dates)}"
    if many := [table.names[c.position] for c in categories if OTHER_LEVEL in c.levels and len(c.levels) >= MAX_LEVELS]:
        yield describe_levels(many)


def _describe_missing(
    table: Table,
    positions: Sequence[int],
    summary: NumberSummary,
    categories: Sequence[CategoryColumn],
    missing: Missing,
) -> Iterator[str]:
    counts = dict(zip(positions, (table.n_rows - summary.present).tolist(), strict=True))
    if missing == "keep":
        counts |= {c.position: sum(text is None for text in table.column(c.position)) for c in categories}
    incomplete = [position for position in sorted(counts) if 0 < counts[position] < table.n_rows]
    medians = dict(zip(positions, summary.median.tolist(), strict=True))
    if incomplete:
        parts = [f"{table.names[position]!r} {counts[position]:,} of {table.n_rows:,}" for position in incomplete]
        if missing == "fill":
            values = [_format_value(medians.get(position, math.nan), table.kinds[position]) for position in incomplete]
            parts = [f"{part} ({value})" for part, value in zip(parts, values, strict=True)]
        more = f" and {len(parts) - _MAX_LINES} more columns" if len(parts) > _MAX_LINES else ""
        how = {
            "fill": ", filled with the median",
            "keep": ", which tell nothing",
            "indicate": ", each a feature of its own",
        }
        yield f"missing values{how[missing]}: {', '.join(parts[:_MAX_LINES])}{more}"
    for category in categories:
        if None in category.levels and not category.is_missing:
            name, count = table.names[category.position], round(category.shares[-1] * table.n_rows)
            yield f"column {name!r}: {count} missing values form a category of their own"
    empty = [table.names[position] for position, present in zip(positions, summary.present, strict=True) if not present]
    if empty := [*empty, *(table.names[c.position] for c in categories if c.is_missing)]:
        yield f"left out, since all values are missing: {format_list(empty)}"


def _format_value(value: float, kind: ColumnKind) -> str:
    """Format a number as in the table; dates without a time of day that is midnight."""
    if kind != "date":
        return f"{value:.6g}"
    return str(np.datetime64(round(value), "s")).removesuffix("T00:00:00").replace("T", " ")


def _with_reasons(leave_out: Mapping[str, str]) -> str:
    """List columns with the reason in brackets."""
    shown = [f"{name!r} ({reason})" for name, reason in list(leave_out.items())[:_MAX_LINES]]
    more = f" and {len(leave_out) - _MAX_LINES} more" if len(leave_out) > _MAX_LINES else ""
    return f"{', '.join(shown)}{more}"


def _describe_cycles(names: Sequence[str], cycles: Sequence[CycleColumn]) -> Iterator[str]:
    """Yield a line for each date column of which parts are features."""
    parts: dict[str, list[str]] = {}
    for cycle in cycles:
        parts.setdefault(names[cycle.position], []).append(cycle.part)
    for name, own in parts.items():
        listed = " and ".join([", ".join(own[:-1]), own[-1]] if own[1:] else own)
        yield f"column {name!r}: rows are also compared by {listed}"
