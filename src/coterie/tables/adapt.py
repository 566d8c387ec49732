"""Tables that differ from the one that a model was fitted on: what is not there, or unreadable, counts as missing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
import numpy.typing as npt

from coterie.errors import TableError
from coterie.tables.encoder import TableEncoder, to_texts
from coterie.tables.table import Array, Table, format_list, text_column
from coterie.tables.values import infer_column

_FAR: Final = 0.5  # ranges beyond the range of the fit from which a value is far outside
_MAX_LINES: Final = 10


@final
@dataclass(frozen=True, slots=True, eq=False)
class AdaptedTable:
    """A table with the columns of a fit, and what was done to it."""

    table: Table
    notes: tuple[str, ...]  # one sentence each, without those that the table itself has
    changed: tuple[str, ...]  # the notes on columns that are missing or cannot be read
    missing: float  # fraction of the columns that the model uses which are missing


def follow_date_orders(encoder: TableEncoder, table: Table) -> tuple[Table, list[str]]:
    """Return a table whose dates are read as in the fit where their own values do not tell, and these columns' names.

    All days and months of such columns are at most 12, so that both can change places.
    """
    before = dict(encoder.date_orders)
    changed = [
        name
        for name, order in table.date_orders.items()
        if order.endswith("?") and name in table.names and before.get(name, order[:-1]) != order[:-1]
    ]
    if not changed:
        return table, []
    columns = [
        _swap_days_and_months(column) if name in changed else column
        for name, column in zip(table.names, table.columns, strict=True)
    ]
    orders = {name: before[name] if name in changed else order for name, order in table.date_orders.items()}
    return replace(table, columns=tuple(columns), date_orders=orders), changed


def _swap_days_and_months(dates: Array) -> Array:
    years, months, days = (dates.astype(f"datetime64[{unit}]") for unit in "YMD")
    month, day = (months - years).astype(np.int64), (days - months).astype(np.int64)
    swapped = (years.astype("datetime64[M]") + day).astype("datetime64[D]") + month
    moments = swapped.astype("datetime64[us]") + (dates - days)
    moments[np.isnat(dates)] = np.datetime64("NaT")
    return np.asarray(moments)


def adapt_table(encoder: TableEncoder, table: Table) -> AdaptedTable:
    """Return a table that the encoder can transform.

    Columns are matched by name if both have names; other columns are ignored. Columns that are missing, and cells that
    cannot be read as what the column was in the fit, become missing values.

    Examples
    --------
    >>> from coterie.tables.table import as_table
    >>> encoder = TableEncoder().fit(Table(("age", "size"), (np.array([20.0, 60.0]), np.array([1.0, 2.0]))))
    >>> adapted = adapt_table(encoder, Table(("age",), (text_column(["30", "old"]),)))
    >>> adapted.table.names, adapted.missing
    (('age', 'size'), 0.5)
    >>> adapted.notes[1]
    "column 'age': 1 of 2 values is no number and counts as missing: 'old'"
    """
    table, reordered = follow_date_orders(encoder, table)
    notes, changed = [], []
    if reordered:
        notes.append(f"dates were read in the order of day and month of the fit: {format_list(reordered)}")
    needed = encoder.used_positions
    if encoder.named and table.named:
        position = {name: i for i, name in enumerate(table.names)}
        absent = [encoder.names[i] for i in needed if encoder.names[i] not in position]
        if needed and len(absent) == len(needed):
            raise TableError(
                f"{table.source} has none of the columns that the model was fitted on: {format_list(absent)}. It has "
                f"{format_list(table.names)}. Give it a table with the same columns."
            )
        known = set(encoder.names)
        if others := [name for name in table.names if name not in known]:
            notes.append(f"ignored because the model does not use them: {format_list(others)}")
        if absent:
            changed.append(f"missing, so that clusters are less certain: {format_list(absent)}")
        sources = [position.get(name) for name in encoder.names]
    elif table.n_columns != len(encoder.names):
        kind, advice = ("pixels per image", "Use a model that was fitted on such images")
        if table.image is None:
            kind, advice = "columns", "Choose columns with --columns, --drop or --id"
        raise TableError(
            f"{table.source} has {table.n_columns:,} {kind}, but the model was fitted on "
            f"{len(encoder.names):,} columns. {advice}."
        )
    else:
        absent, sources = [], list(range(table.n_columns))
    if table.block is None or absent or sources != list(range(table.n_columns)) or encoder.categories or encoder.cycles:
        columns, more = _convert(encoder, table, sources)
        changed += more
        table = replace(table, names=encoder.names, columns=columns, block=None, image=None)
    notes += changed + list(_describe_far(encoder, table))
    return AdaptedTable(table, tuple(notes), tuple(changed), len(absent) / max(1, len(needed)))


def _convert(encoder: TableEncoder, table: Table, sources: Sequence[int | None]) -> tuple[tuple[Array, ...], list[str]]:
    """Return the columns of the fit, of the kinds that they had there, and notes on values that were lost."""
    kinds, notes, columns = encoder.used_kinds, [], []
    for position, (name, source) in enumerate(zip(encoder.names, sources, strict=True)):
        kind = kinds.get(position)  # None for columns that the model does not use
        if source is None or kind is None:
            columns.append(_nothing(kind, table.n_rows))
            continue
        column = table.column(source)
        able = "M" if kind == "date" else "iufb"
        if kind == "category" or column.dtype.kind in able:
            columns.append(column)
            continue
        converted, lost = _to_kind(kind, column)
        columns.append(converted)
        if lost:
            what = "date" if kind == "date" else "number"
            verb, count = ("is", "counts") if len(lost) == 1 else ("are", "count")
            shown = format_list(list(dict.fromkeys(lost)), 3)
            notes.append(
                f"column {name!r}: {len(lost):,} of {table.n_rows:,} values {verb} no {what} and {count} as missing: "
                f"{shown}"
            )
    return tuple(columns), notes


def _nothing(kind: str | None, n_rows: int) -> Array:
    if kind == "category":
        return text_column([None] * n_rows)
    if kind == "date":
        return np.full(n_rows, np.datetime64("NaT", "us"))
    return np.full(n_rows, np.nan)


def _to_kind(kind: str, column: Array) -> tuple[Array, list[str]]:
    """Convert a column to numbers or dates; what is neither becomes missing and is returned."""
    texts = to_texts(column)
    read = infer_column(texts, kind="date" if kind == "date" else "number").values
    if read.dtype.kind not in ("M" if kind == "date" else "f"):  # nothing could be read
        read = _nothing(kind, len(column))
    missing = np.isnat(read) if kind == "date" else np.isnan(read)
    return read, [text for text, gap in zip(texts, missing.tolist(), strict=True) if gap and text is not None]


def _describe_far(encoder: TableEncoder, table: Table) -> list[str]:
    """Say which columns have values far outside the range of the fit."""
    numbers, lines = encoder.numbers, []
    if len(numbers.lowest) != len(numbers.positions):  # models of earlier versions do not say
        return []
    for position, kind, low, high in zip(
        numbers.positions, numbers.kinds, numbers.lowest, numbers.highest, strict=True
    ):
        if kind != "number":
            continue
        values: npt.NDArray[np.float64] = table.column(position).astype(np.float64)
        margin = _FAR * (high - low)
        if far := int(((values < low - margin) | (values > high + margin)).sum()):
            lines.append(
                f"column {encoder.names[position]!r}: {far:,} of {table.n_rows:,} values are far outside the range of "
                f"the fit, {low:.6g} to {high:.6g}"
            )
    if len(lines) > _MAX_LINES:
        rest = len(lines) - _MAX_LINES
        return [*lines[:_MAX_LINES], f"{rest} more columns have values far outside the range of the fit"]
    return lines
