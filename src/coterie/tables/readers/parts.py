"""Several files as one table: those of a folder or of a pattern such as data/*.csv, put below each other."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final
from urllib.parse import unquote

import numpy as np

from coterie.errors import TableError
from coterie.tables.readers.objects import from_objects
from coterie.tables.table import Array, ColumnKind, Table, format_list, text_column

_MAGIC = re.compile(r"[*?\[]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # how Hive and Spark call the folder of rows without a value
_DELTA_LOG = "_delta_log"
_KIND_NAMES = {"number": "numbers", "boolean": "booleans", "date": "dates", "category": "texts"}


@final
@dataclass(frozen=True, eq=False)
class Part:
    """One file of several: its path below their folder, and its table."""

    file: Path
    table: Table

    @property
    def name(self) -> str:
        """Path for messages."""
        return self.file.as_posix()


def is_pattern(path: Path) -> bool:
    """Return whether a path stands for several files, such as data/*.csv."""
    return _MAGIC.search(str(path)) is not None and not path.exists()


def expand_pattern(pattern: Path) -> tuple[Path, list[Path]]:
    """Return the folder above a pattern, and the files below it that match, in natural order."""
    fixed = next(i for i, part in enumerate(pattern.parts) if _MAGIC.search(part))
    root = Path(*pattern.parts[:fixed])
    matches = [Path(match) for match in glob.iglob(str(pattern), recursive=True)]  # noqa: PTH207  (skips hidden files)
    files = {file for match in matches for file in (walk(match) if match.is_dir() else (match,))}
    return root, _sort(file.relative_to(root) for file in files)


def list_folder(folder: Path) -> list[Path]:
    """Return the files in a folder and its sub-folders, in natural order; a name with an underscore is no part."""
    if (folder / _DELTA_LOG).is_dir():
        raise TableError(
            f"{str(folder)!r} is a Delta Lake table, whose files also have rows that were deleted since. "
            "Write its current rows to a Parquet file."
        )
    below = (file.relative_to(folder) for file in walk(folder))
    return _sort(file for file in below if not any(part.startswith("_") for part in file.parts))


def walk(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its sub-folders that are not hidden."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if not name.startswith("."))


def _sort(files: Iterator[Path]) -> list[Path]:
    """Sort files by name, numbers by value: part-2 comes before part-10."""
    return sorted(files, key=lambda file: [_number_key(text) for text in re.split(r"(\d+)", file.as_posix())])


def _number_key(text: str) -> tuple[bool, int, str]:
    return (False, int(text), text) if text.isdecimal() and len(text) < 1000 else (True, 0, text)


def combine(parts: Sequence[Part], source: str) -> Table:
    """Put the tables below each other: columns are matched by name, and folders called key=value become columns.

    Other columns, or a column of another type, raise a `TableError` that names the file and the column.
    """
    first = parts[0].table
    tables = [_match_columns(part, parts[0]) for part in parts]
    partition = _partition(parts)
    rows = sum(table.n_rows for table in tables)
    files = f"{len(parts):,} files were" if len(parts) > 1 else "1 file was"
    notes = [
        f"{files} read as one table of {rows:,} rows: {format_list([part.name for part in parts], 3)}",
        *_merge_notes(parts),
    ]
    combined = replace(first, extra_columns=_join_extra_columns(tables), source=source)
    blocks = [table.block for table in tables if table.block is not None]
    if len(blocks) == len(tables) and partition is None:
        return replace(combined, block=np.concatenate(blocks), notes=tuple(notes))
    columns = tuple(_join_column(parts, tables, i) for i in range(first.n_columns))
    names = first.names
    if partition is not None:
        names, columns = (*names, *partition.names), (*columns, *partition.columns)
        notes.append(f"columns that are the names of folders: {format_list(partition.names)}")
    return replace(combined, names=names, columns=columns, block=None, image=None, notes=tuple(notes))


def _match_columns(part: Part, first: Part) -> Table:
    """Return the table of a part with its columns in the order of the first part."""
    table, expected = part.table, first.table
    if table.names == expected.names:
        return table
    position = {name: i for i, name in enumerate(table.names)}
    known = set(expected.names)
    missing = [name for name in expected.names if name not in position]
    additional = [name for name in table.names if name not in known]
    if not missing and not additional:
        return table.select([position[name] for name in expected.names])
    lacks = f"lacks the columns {format_list(missing)}" if missing else ""
    has = f"has the additional columns {format_list(additional)}" if additional else ""
    unnamed = [each.name for each in (part, first) if not each.table.named]
    hint = f" No header was found in {format_list(unnamed)}." if len(unnamed) == 1 else ""
    raise TableError(
        f"{part.name!r} {' and '.join(filter(None, (lacks, has)))}, compared with {first.name!r}.{hint} "
        "Files are read as one table only if they have the same columns. Correct the file, or leave it out by a "
        "pattern such as 'folder/part-*.csv'."
    )


def _join_column(parts: Sequence[Part], tables: Sequence[Table], position: int) -> Array:
    """Return a column of all parts; in a part that has no value of it, its type does not count."""
    pieces = [table.column(position) for table in tables]
    present = [i for i, piece in enumerate(pieces) if not _is_empty(piece)]
    kinds = [tables[i].kinds[position] for i in present]
    # In a file with gaps, booleans are numbers.
    joined = "number" if set(kinds) == {"number", "boolean"} or not kinds else kinds[0]
    for i, kind in zip(present, kinds, strict=True):
        if kind != joined and {kind, joined} != {"number", "boolean"}:
            name = tables[i].names[position]
            raise TableError(
                f"Column {name!r} has {_KIND_NAMES[kind]} in {parts[i].name!r}{_example(pieces[i])}, but "
                f"{_KIND_NAMES[kinds[0]]} in {parts[present[0]].name!r}{_example(pieces[present[0]])}. "
                "Correct the file, or leave it out by a pattern such as 'folder/part-*.csv'."
            )
    shown = set(present)
    return np.concatenate([piece if i in shown else _gaps(len(piece), joined) for i, piece in enumerate(pieces)])


def _is_empty(column: Array) -> bool:
    if column.dtype.kind == "O":
        return all(value is None for value in column)
    return column.dtype.kind in "fM" and bool(np.isnan(column).all())


def _gaps(count: int, kind: ColumnKind) -> Array:
    if kind == "category":
        return text_column([None] * count)
    return np.full(count, "NaT", dtype="datetime64[us]") if kind == "date" else np.full(count, np.nan)


def _example(column: Array) -> str:
    value = next((value for value in column.tolist() if isinstance(value, str)), None)
    return "" if value is None else f" (such as {value!r})"


def _partition(parts: Sequence[Part]) -> Table | None:
    """Return the columns that folders called key=value stand for; a file's own column comes first."""
    known = set(parts[0].table.names)
    values = [
        {key: unquote(value) for key, sign, value in (name.partition("=") for name in part.file.parts[:-1]) if sign}
        for part in parts
    ]
    names = [name for name in dict.fromkeys(key for each in values for key in each) if name not in known]
    if not names:
        return None
    columns = [
        [each.get(name) for each, part in zip(values, parts, strict=True) for _ in range(part.table.n_rows)]
        for name in names
    ]
    given = [[None if value == _NO_VALUE else value for value in column] for column in columns]
    return from_objects(names, given, source="names of folders")


def _merge_notes(parts: Sequence[Part]) -> Iterator[str]:
    """Yield each note once, with the files that it is about unless it is about all."""
    files: dict[str, list[str]] = {}
    for part in parts:
        for note in part.table.notes:
            files.setdefault(note, []).append(part.name)
    for note, names in files.items():
        yield note if len(names) == len(parts) else f"{format_list(names, 3)}: {note}"


def _join_extra_columns(tables: Sequence[Table]) -> dict[str, Array]:
    """Return the extra columns that all parts have, with values of one type."""
    shared = [name for name in tables[0].extra_columns if all(name in table.extra_columns for table in tables)]
    pieces = {name: [table.extra_columns[name] for table in tables] for name in shared}
    return {name: np.concatenate(each) for name, each in pieces.items() if len({p.dtype.kind for p in each}) == 1}
