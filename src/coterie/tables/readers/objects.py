"""Columns of Python objects, as databases, spreadsheets and JSON give them -> a table."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from coterie.errors import TableError
from coterie.tables.table import Array, Table, as_table, format_list, unique_names

LONGEST_VECTOR: Final = 8192  # numbers in a list that become columns
_FLOATS = frozenset({int, float, type(None)})


def describe_vectors(names: Sequence[str]) -> str:
    """Say that lists of equally many numbers became columns."""
    return f"lists of numbers became columns such as {names[0] + '.0'!r}: {format_list(names)}"


def from_objects(
    names: Sequence[str], columns: Sequence[Sequence[object]], *, source: str, notes: Sequence[str] = ()
) -> Table:
    """Return a table of columns of numbers, booleans, texts, dates and None, typed as `as_table` types objects.

    Columns with bytes are left out, with a note. Empty names are filled in, and repeated ones numbered.
    """
    unique, naming = unique_names(names)
    types = [set(map(type, column)) for column in columns]
    binary = [name for name, found in zip(unique, types, strict=True) if bytes in found]
    note = (f"left out, since bytes are neither numbers nor text: {format_list(binary)}",) if binary else ()
    kept = {
        name: _to_array(column, found, name, source)
        for name, column, found in zip(unique, columns, types, strict=True)
        if bytes not in found
    }
    if not kept:
        raise TableError(f"{source} has no column of numbers, texts or dates. It has {format_list(unique)}.")
    records = np.empty(len(columns[0]), dtype=[(name, column.dtype) for name, column in kept.items()])
    for name, column in kept.items():
        records[name] = column
    table = as_table(records)
    return Table(table.names, table.columns, notes=(*notes, *naming, *note), source=source)


def _to_array(column: Sequence[object], types: set[type], name: str, source: str) -> Array:
    """Convert integers exactly, other numbers to floats, and leave anything else as objects."""
    try:
        if types == {int}:
            return np.array(column, dtype=np.int64)
        if types <= _FLOATS and types != {type(None)}:
            return np.array(column, dtype=np.float64)
    except OverflowError as error:
        raise TableError(
            f"Column {name!r} of {source} has an integer that is too large: {error}. Store it as a number with a "
            "decimal point, or as text."
        ) from error
    values = np.empty(len(column), dtype=object)
    values[:] = column
    return values
