"""From the FILE argument of a command to the columns that it works on, and back to a table of results."""

import csv
import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np

from coterie.cli.checks import parse_size
from coterie.cli.options import EXAMPLE, Reading
from coterie.errors import InputError, TableError
from coterie.progress import Callback, Progress
from coterie.tables.readers import example_path, find_format, read_table
from coterie.tables.readers.images import FILE_COLUMN
from coterie.tables.table import Array, ColumnChoice, ImageShape, Table, as_integers, choose_columns, unique_names


@final
@dataclass(frozen=True, slots=True)
class Source:
    """Where a table is read from; it can be read again, although standard input gives its bytes only once."""

    path: str
    data: bytes = b""

    @property
    def is_text(self) -> bool:
        """Whether cells are stored as text, so that they can be repeated as written."""
        found = find_format(self.path)
        return self.path == "-" or (found is not None and found.is_text)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of images."""
        found = None if self.path == "-" else find_format(self.path)
        return found is not None and found.is_images

    @property
    def name(self) -> str:
        """Name for messages."""
        if self.path == "-":
            return "standard input"
        path = Path(self.path)
        return path.resolve().name if path.is_dir() else path.name

    def read(
        self,
        reading: Reading,
        as_text: tuple[str, ...],
        *,
        shape: ImageShape | None = None,
        callback: Callback | None = None,
    ) -> Table:
        """Read the table, with some columns as text; or the images, resized to a shape if one is given."""
        size = None if reading.image_size is None else parse_size("--image-size", reading.image_size)
        if size is not None and not self.is_folder:
            raise InputError(f"--image-size is for folders of images, and {self.name} is not a folder. Leave it out.")

        def on_progress(done: int, count: int) -> None:
            if callback is not None:
                callback(Progress(step=done, steps=count, stage="images"))

        try:
            return read_table(
                self.path,
                stdin=io.BytesIO(self.data),
                header=reading.header,
                delimiter=reading.delimiter,
                as_text=as_text,
                image_size=size if shape is None else shape[:2],
                image_channels=None if shape is None else shape[2],
                on_progress=on_progress,
            )
        except TypeError as error:  # what scikit-learn expects for objects that are neither numbers nor text
            raise TableError(f"{self.name}: {error}") from error


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """A table that was read, and the columns that were chosen from it."""

    source: Source
    reading: Reading
    table: Table
    chosen: ColumnChoice


def load_table(reading: Reading, *, shape: ImageShape | None = None, callback: Callback | None = None) -> Loaded:
    """Read the FILE, its images converted to a shape if one is given, and choose the columns that the options name."""
    source = Source(reading.file)
    if reading.file == "-":
        source = Source("-", sys.stdin.buffer.read())
    elif reading.file.startswith(EXAMPLE):
        source = Source(str(example_path(reading.file.removeprefix(EXAMPLE))))
    # Ids stay as written: 007 is not 7.
    table = source.read(reading, () if reading.ids is None else (reading.ids,), shape=shape, callback=callback)
    chosen = choose_columns(
        table,
        columns=_split_names(reading.columns, table) or None,
        drop=_split_names(reading.drop, table),
        ids=FILE_COLUMN if reading.ids is None and source.is_folder else reading.ids,
        truth=reading.truth,
    )
    return Loaded(source, reading, table, chosen)


def name_rows(loaded: Loaded, column: str | None) -> Loaded:
    """Return what was read with a column that names its rows, if there is one and the options name none."""
    if column is None or loaded.chosen.ids is not None or column not in loaded.table.names:
        return loaded
    ids = as_integers(loaded.table.column(loaded.table.names.index(column)))
    return replace(loaded, chosen=replace(loaded.chosen, ids=ids, ids_name=column))


def _split_names(given: list[str] | None, table: Table) -> list[str]:
    """Split lists of names at commas, except those in quotes or in the name of a column."""
    names: list[str] = []
    for text in given or ():
        parts = [text] if text in table.names else next(csv.reader([text], skipinitialspace=True), [])
        names += [part.strip() for part in parts if part.strip()]
    return names


def result_table(
    loaded: Loaded, labels: Array, memberships: Array, *, append: bool, typed: bool
) -> tuple[tuple[str, ...], list[Array]]:
    """Return names and columns of the table of results; the membership of outliers is 0.

    With `append`, it has all columns that were read, except pixels, instead of the ids only. If the output format is
    not `typed`, so that it does not store numbers and dates, the cells of a text table are repeated as written.
    """
    table, chosen = loaded.table, loaded.chosen
    names, columns = _all_columns(loaded, typed=typed) if append else ([], [])
    if not names:
        names = [chosen.ids_name or "row"]
        columns = [np.arange(1, table.n_rows + 1) if chosen.ids is None else _simplify(chosen.ids)]
    own = np.where(labels < 0, 0.0, memberships[np.arange(table.n_rows), labels].astype(np.float64).round(4))
    unique, _ = unique_names([*names, "cluster", "membership"])
    return unique, [*columns, labels, own]


def _all_columns(loaded: Loaded, *, typed: bool) -> tuple[list[str], list[Array]]:
    table = loaded.table
    names, columns = [*table.extra_columns], [_simplify(values) for values in table.extra_columns.values()]
    if table.image is not None:
        return names, columns
    as_written = loaded.source.is_text and not typed
    given = loaded.source.read(loaded.reading, table.names) if as_written else table
    return [*table.names, *names], [*(_simplify(given.column(i)) for i in range(table.n_columns)), *columns]


def _simplify(column: Array) -> Array:
    """Convert to integers, days or seconds where this loses nothing."""
    if column.dtype.kind == "M":
        for unit in ("D", "s"):
            coarse = column.astype(f"datetime64[{unit}]")
            if (np.isnat(column) | (coarse == column)).all():
                return coarse
    return as_integers(column)
