"""Tables of numbers, categories, booleans and dates, and how they become one array of numbers.

`as_table` takes what the user has, `choose_columns` says what to cluster, `TableEncoder` makes numbers of it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from coterie.data.categories import MISSING_LEVEL, CategoryColumn, fit_category
from coterie.data.columns import Array, ChosenColumns, ColumnKind, Table, choose_columns, listed
from coterie.data.inputs import as_table
from coterie.data.remarks import fit_notes
from coterie.data.scaling import expand, limit, scaled_rows, summarise
from coterie.errors import InputError, TableError

__all__ = ["ChosenColumns", "Feature", "Scaling", "Table", "TableEncoder", "as_table", "choose_columns"]

Scaling: TypeAlias = Literal["robust", "standard", "none"]
_SCALINGS = ("robust", "standard", "none")
_LARGEST_UNSCALED = 1e15  # as far as `limit` lets scaled ones go: squares must stay finite in float32


@final
@dataclass(frozen=True)
class Feature:
    """One column of the encoded array: a whole input column, or one level of a category."""

    name: str
    column: str
    kind: ColumnKind
    level: str | None = None


@final
@dataclass(frozen=True)
class NumberColumns:
    """The columns that stay one feature each, by position in the table: z = (x - centre) / scale."""

    positions: tuple[int, ...] = ()
    kinds: tuple[ColumnKind, ...] = ()
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    fills: tuple[float, ...] = ()


@final
@dataclass(frozen=True)
class TableEncoder:
    """Turn a table into an array of numbers of comparable size, and back.

    Parameters
    ----------
    scaling : {"robust", "standard", "none"}
        "standard" takes each number column to mean 0 and standard deviation 1. "robust" does so with
        its outermost percent on each side drawn in, and compresses logarithmically what then lies more
        than 5 deviations out. "none" leaves numbers as they are.

    Notes
    -----
    Missing and infinite numbers become the column's median. A category becomes one feature per level;
    together its features have the variance of one standardised column. Booleans count as 0 and 1, dates as
    seconds since 1970. Constant columns are left out, unless all are constant.

    The encoder is immutable: `fit` returns a fitted one.

    Examples
    --------
    >>> table = as_table([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> encoder = TableEncoder("standard").fit(table)
    >>> encoder.transform(table).round(2).tolist()
    [[-1.2200000286102295], [0.0], [1.2200000286102295]]
    >>> encoder.notes
    ("left out, since there is only one value: 'x1'",)
    """

    scaling: Scaling = "robust"
    names: tuple[str, ...] = ()
    named: bool = False
    numbers: NumberColumns = NumberColumns()
    categories: tuple[CategoryColumn, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.scaling not in _SCALINGS:
            raise InputError(f"scaling must be one of {', '.join(_SCALINGS)}; got {self.scaling!r}")

    def fit(self, table: Table) -> "TableEncoder":
        """Return an encoder that knows this table's columns, levels, centres and scales."""
        kinds = table.kinds
        positions = [i for i, kind in enumerate(kinds) if kind != "category"]
        winsorised = np.array([self.scaling == "robust" and kinds[i] == "number" for i in positions], dtype=np.bool_)
        summary = summarise(_number_block(table, positions), winsorised)
        categories = [
            fit_category(table.column(i), i, table.names[i], scaled=self.scaling != "none")
            for i, kind in enumerate(kinds)
            if kind == "category"
        ]
        varied = not summary.constant.all() or any(not category.is_constant for category in categories)
        kept_numbers = np.flatnonzero((summary.present > 0) & ~(summary.constant & varied))
        kept_categories = [c for c in categories if not c.is_missing and not (c.is_constant and varied)]
        if not len(kept_numbers) and not kept_categories:
            raise TableError(f"every value of every column is missing in {table.source}; there is nothing to cluster")
        as_is = self.scaling == "none"
        if as_is:
            _refuse_too_large(summary.largest.max(initial=0.0))
        numbers = NumberColumns(
            positions=tuple(positions[i] for i in kept_numbers),
            kinds=tuple(kinds[positions[i]] for i in kept_numbers),
            centres=tuple([0.0] * len(kept_numbers) if as_is else summary.centre[kept_numbers].tolist()),
            scales=tuple([1.0] * len(kept_numbers) if as_is else summary.scale[kept_numbers].tolist()),
            fills=tuple(summary.median[kept_numbers].tolist()),
        )
        notes = fit_notes(table, positions, summary, categories, varied=varied)
        return TableEncoder(self.scaling, table.names, table.named, numbers, tuple(kept_categories), notes)

    def transform(self, table: Table) -> npt.NDArray[np.float32]:
        """Encode rows as an array (n, D) in float32, all finite; levels not seen in `fit` are all zeros."""
        table = self._matching(table)
        encoded = np.zeros((table.n_rows, len(self.features)), dtype=np.float32)
        numbers = self.numbers
        if numbers.positions:
            self._check_kinds(table)
            centre, scale, fill = map(np.array, (numbers.centres, numbers.scales, numbers.fills))
            block = _number_block(table, numbers.positions)
            for rows, z in scaled_rows(block, fill, centre, scale, self._compressed):
                if self.scaling == "none":
                    _refuse_too_large(np.abs(z).max(initial=0.0))
                encoded[rows, self._number_slots] = z if self.scaling == "none" else limit(z)
        for category, start in self._category_slots:
            encoded[:, start : start + len(category.levels)] = category.encode(table.column(category.position))
        return encoded

    def inverse(self, Z: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Take encoded values (n, D) back to input units; the levels of a category to shares from 0 to 1."""
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != len(self.features):
            raise InputError(f"expected encoded rows of {len(self.features)} values, got an array of shape {Z.shape}")
        decoded = np.empty_like(Z)
        slots = self._number_slots
        with np.errstate(over="ignore"):  # a point far outside of the data may have no finite original
            decoded[:, slots] = expand(Z[:, slots], self._compressed) * self.numbers.scales + self.numbers.centres
        for category, start in self._category_slots:
            stop = start + len(category.levels)
            decoded[:, start:stop] = category.decode(Z[:, start:stop])
        return decoded

    def describe_unseen(self, table: Table) -> tuple[str, ...]:
        """Say which texts of a table did not occur in `fit`, one line per column."""
        table = self._matching(table)
        lines = []
        for category in self.categories:
            unseen = category.unseen(table.column(category.position))
            if unseen:
                shown = listed(sorted(MISSING_LEVEL if level is None else level for level in unseen), 5)
                lines.append(
                    f"column {self.names[category.position]!r}: {sum(unseen.values())} rows have values "
                    f"that were not there when the model was fitted: {shown}"
                )
        return tuple(lines)

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What each column of the encoded array stands for, in the order of the table's columns."""
        by_position: dict[int, list[Feature]] = {}
        for position, kind in zip(self.numbers.positions, self.numbers.kinds, strict=True):
            by_position[position] = [Feature(self.names[position], self.names[position], kind)]
        for category in self.categories:
            column = self.names[category.position]
            labels = [MISSING_LEVEL if level is None else level for level in category.levels]
            by_position[category.position] = [Feature(f"{column}={x}", column, "category", x) for x in labels]
        return tuple(feature for position in sorted(by_position) for feature in by_position[position])

    def to_card(self) -> dict[str, Any]:
        """Return all of the encoder as plain values that JSON holds exactly."""
        card: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return card

    @staticmethod
    def from_card(card: Mapping[str, Any]) -> "TableEncoder":
        """Return the encoder that `to_card` described."""
        expected = {field.name for field in fields(TableEncoder)}
        if set(card) != expected:
            raise InputError(f"the encoder's card has the keys {sorted(card)}, expected {sorted(expected)}")
        return TableEncoder(
            scaling=card["scaling"],
            names=tuple(card["names"]),
            named=card["named"],
            numbers=NumberColumns(**{key: tuple(values) for key, values in card["numbers"].items()}),
            categories=tuple(
                CategoryColumn(
                    position=item["position"],
                    levels=tuple(item["levels"]),
                    shares=tuple(item["shares"]),
                    offsets=tuple(item["offsets"]),
                    scale=item["scale"],
                )
                for item in card["categories"]
            ),
            notes=tuple(card["notes"]),
        )

    @cached_property
    def _compressed(self) -> npt.NDArray[np.bool_]:
        return np.array([self.scaling == "robust" and k == "number" for k in self.numbers.kinds], dtype=np.bool_)

    @cached_property
    def _number_slots(self) -> npt.NDArray[np.intp] | slice:
        """Where the number columns are in the encoded array; a slice where they are all of it, for speed."""
        if not self.categories:
            return slice(None)
        return np.flatnonzero([feature.kind != "category" for feature in self.features])

    @cached_property
    def _category_slots(self) -> tuple[tuple[CategoryColumn, int], ...]:
        first: dict[str, int] = {}
        for slot, feature in enumerate(self.features):
            first.setdefault(feature.column, slot)
        return tuple((category, first[self.names[category.position]]) for category in self.categories)

    def _matching(self, table: Table) -> Table:
        """Bring a table's columns into the order of `fit`, by name where both have names."""
        if not self.names:
            raise InputError("this TableEncoder has not been fitted; use the one that its fit(table) returns")
        if self.named and table.named:
            missing = [name for name in self.names if name not in set(table.names)]
            unexpected = [name for name in table.names if name not in set(self.names)]
            if missing or unexpected:
                parts = [f"missing: {listed(missing)}"] if missing else []
                parts += [f"unexpected: {listed(unexpected)}"] if unexpected else []
                raise TableError(
                    f"the columns of {table.source} are not those that the model was fitted on "
                    f"({'; '.join(parts)}); give it the same columns"
                )
            place = {name: i for i, name in enumerate(table.names)}
            return table.select([place[name] for name in self.names])
        if table.n_columns != len(self.names):
            raise TableError(
                f"X has {table.n_columns} features, but TableEncoder is expecting {len(self.names)} features as input"
            )
        return table

    def _check_kinds(self, table: Table) -> None:
        kinds = table.kinds
        for position, kind in zip(self.numbers.positions, self.numbers.kinds, strict=True):
            now = kinds[position]
            alike = now != "category" and (now == "date") == (kind == "date")
            if not alike and not _all_missing(table.column(position)):
                raise TableError(
                    f"column {self.names[position]!r} was of the kind {kind!r} when the model was fitted, "
                    f"and is of the kind {now!r} in {table.source}; convert it"
                )


def _all_missing(column: Array) -> bool:
    if column.dtype.kind == "O":
        return all(value is None for value in column)
    return bool(np.isnat(column).all() if column.dtype.kind == "M" else np.isnan(column).all())


def _number_block(table: Table, positions: Sequence[int]) -> Array:
    """Return number columns side by side; the table's own block, uncopied, where all of it is wanted."""
    block = table.select(positions).block
    if block is not None:
        return block
    columns = [_as_floats(table.columns[i]) for i in positions]
    return np.column_stack(columns) if columns else np.empty((table.n_rows, 0))


def _as_floats(column: Array) -> npt.NDArray[np.float64]:
    if column.dtype.kind == "O":  # all missing, or it would have been refused
        return np.full(len(column), np.nan)
    if column.dtype.kind != "M":
        return column.astype(np.float64)
    seconds = column.astype("datetime64[us]").astype(np.int64) / 1e6
    seconds[np.isnat(column)] = np.nan
    return seconds


def _refuse_too_large(largest: float) -> None:
    if largest > _LARGEST_UNSCALED:
        raise TableError(f"a value as large as {largest:g} cannot be used unscaled; use the scaling 'robust'")
