"""The table that everything else in this package reads, and the choice of its columns."""

import difflib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from coterie.data.pixels import ImageShape
from coterie.errors import TableError

Array: TypeAlias = npt.NDArray[Any]
ColumnKind: TypeAlias = Literal["number", "boolean", "date", "category"]

_KIND_OF_DTYPE: dict[str, ColumnKind] = {
    "i": "number",
    "u": "number",
    "f": "number",
    "b": "boolean",
    "M": "date",
    "O": "category",
}


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Rows and named columns, read-only.

    A table holds either one 2-D numeric `block` (fast: the caller's own memory, not split up) or
    separate `columns`, never both.

    Parameters
    ----------
    names : tuple of str
        One name per column, all different.
    columns : tuple of 1-D arrays
        Numbers (float64, integers), booleans, datetime64, or objects that are `str` or `None`.
    block : 2-D array, optional
        Numbers or booleans, used in place of `columns`.
    named : bool
        Whether the names came with the data; False when they were made up here.
    side : mapping of str to 1-D arrays
        Values that came along, such as known labels; never clustered.
    notes : tuple of str
        What reading decided, in sentences for the user.
    source : str
        Where the table came from.
    image : (height, width, channels), optional
        Set where each row is an image of this shape: the columns are its pixels, row by row, channels last.
    """

    names: tuple[str, ...]
    columns: tuple[Array, ...] = ()
    block: Array | None = None
    named: bool = True
    side: Mapping[str, Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = "memory"
    image: ImageShape | None = None

    def __post_init__(self) -> None:
        if self.block is None:
            object.__setattr__(self, "columns", tuple(_read_only(column) for column in self.columns))
            lengths = {len(column) for column in self.columns}
            width = len(self.columns)
        else:
            object.__setattr__(self, "block", _read_only(self.block))
            lengths, width = {self.block.shape[0]}, self.block.shape[1]
        if len(lengths) > 1 or width != len(self.names):
            raise TableError(
                f"a table needs one name per column and equally long columns; got {len(self.names)} names, "
                f"{width} columns, lengths {sorted(lengths)}"
            )
        if self.image is not None and math.prod(self.image) != width:
            raise TableError(
                f"images of the shape {self.image} (height, width, channels) have {math.prod(self.image):,} pixels, "
                f"but the table has {width:,} columns; give the shape whose product is that number"
            )
        object.__setattr__(
            self, "side", MappingProxyType({name: _read_only(values) for name, values in self.side.items()})
        )

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        if self.block is not None:
            return int(self.block.shape[0])
        return len(self.columns[0]) if self.columns else 0

    @property
    def n_columns(self) -> int:
        """How many columns there are, `side` left out."""
        return len(self.names)

    @property
    def kinds(self) -> tuple[ColumnKind, ...]:
        """What each column holds."""
        if self.block is not None:
            return (_KIND_OF_DTYPE[self.block.dtype.kind],) * self.n_columns
        return tuple(_KIND_OF_DTYPE[column.dtype.kind] for column in self.columns)

    def column(self, position: int) -> Array:
        """Return one column, without copying it."""
        return self.columns[position] if self.block is None else self.block[:, position]

    def select(self, positions: Sequence[int]) -> "Table":
        """Return the table that has these columns only, in this order; no images, unless it is all of them."""
        if list(positions) == list(range(self.n_columns)):
            return self
        names = tuple(self.names[i] for i in positions)
        if self.block is None:
            return replace(self, names=names, columns=tuple(self.columns[i] for i in positions), image=None)
        return replace(self, names=names, block=self.block[:, list(positions)], image=None)


@final
@dataclass(frozen=True, eq=False)
class ChosenColumns:
    """What to cluster, and what goes along with it untouched."""

    features: Table
    ids: Array | None = None
    truth: Array | None = None
    ids_name: str | None = None
    truth_name: str | None = None


def choose_columns(
    table: Table,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    ids: str | None = None,
    truth: str | None = None,
) -> ChosenColumns:
    """Pick the columns to cluster; those for `ids` and `truth` are never among them.

    Parameters
    ----------
    table : Table
        Where to choose from.
    columns : sequence of str, optional
        Names to keep, in this order; all by default. Where no column has such a name,
        a number counts columns from 1.
    drop : sequence of str, optional
        Names to leave out.
    ids, truth : str, optional
        The column (or `side` values) that names the rows, and the one with the known groups.

    Returns
    -------
    ChosenColumns
        The features as a table, with `ids` and `truth` as arrays.

    Examples
    --------
    >>> import numpy as np
    >>> table = Table(("who", "height", "weight"), (np.arange(3), np.ones(3), np.ones(3)))
    >>> choose_columns(table, ids="who", drop=["weight"]).features.names
    ('height',)
    """
    if columns is None:
        kept = list(range(table.n_columns))
    else:
        kept = list(dict.fromkeys(_position(table, name) for name in columns))
    left_out = {_position(table, name) for name in drop or ()}
    ids_name, ids_values = _beside(table, ids, left_out)
    truth_name, truth_values = _beside(table, truth, left_out)
    kept = [position for position in kept if position not in left_out]
    if not kept:
        raise TableError(
            f"no column is left to cluster in {table.source}, which has {listed(table.names)}; "
            "drop fewer columns or choose others"
        )
    return ChosenColumns(table.select(kept), ids_values, truth_values, ids_name, truth_name)


def column_position(table: Table, name: str) -> int | None:
    """Find a column by its name, or by its number from 1 where no column has that name."""
    if name in table.names:
        return table.names.index(name)
    if name.isdecimal() and 1 <= int(name) <= table.n_columns:
        return int(name) - 1
    return None


def unique_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fill in empty names, tell repeated ones apart by a number, and say so in notes."""
    notes = []
    filled = [name.strip() or f"column_{number}" for number, name in enumerate(names, start=1)]
    if unnamed := [new for new, old in zip(filled, names, strict=True) if not old.strip()]:
        notes.append(f"columns without a name were called {listed(unnamed)}")
    counts = Counter(filled)
    taken = set(filled)
    seen: Counter[str] = Counter()
    unique = []
    for name in filled:
        seen[name] += 1
        if seen[name] == 1:
            unique.append(name)
            continue
        number = seen[name]
        while f"{name}_{number}" in taken:
            number += 1
        taken.add(f"{name}_{number}")
        unique.append(f"{name}_{number}")
    if repeated := [name for name, count in counts.items() if count > 1]:
        notes.append(f"column names that occur more than once were numbered: {listed(repeated)}")
    return tuple(unique), tuple(notes)


def _position(table: Table, name: str) -> int:
    position = column_position(table, name)
    if position is None:
        raise TableError(_unknown(table, name, table.names))
    return position


def _beside(table: Table, name: str | None, left_out: set[int]) -> tuple[str | None, Array | None]:
    """Find the values that go along under `name`, and mark their column as no feature."""
    if name is None:
        return None, None
    if name not in table.names and name in table.side:
        return name, whole_numbers(table.side[name])
    position = column_position(table, name)
    if position is None:
        raise TableError(_unknown(table, name, (*table.side, *table.names)))
    left_out.add(position)
    return table.names[position], whole_numbers(table.column(position))


def whole_numbers(values: Array) -> Array:
    """Return floats that are all whole as int64, so that an id 7 is not written as 7.0."""
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return values
    exact = np.abs(values) < 2.0**53
    return values.astype(np.int64) if (exact & (values == np.floor(values))).all() else values


def _unknown(table: Table, name: str, known: Sequence[str]) -> str:
    by_lowered = {other.lower(): other for other in known}
    close = [by_lowered[match] for match in difflib.get_close_matches(name.strip().lower(), by_lowered, n=3)]
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
    return f"no column is called {name!r} in {table.source}{hint} The columns are {listed(known, 30)}"


def listed(names: Sequence[str], at_most: int = 10) -> str:
    """Quote names for a message, cutting a long list short."""
    shown = ", ".join(repr(name) for name in names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"


def _read_only(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view
