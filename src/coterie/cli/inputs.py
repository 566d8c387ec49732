"""From the FILE that a command was given to the columns that it works on."""

import csv
import io
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np

from coterie.errors import InputError, TableError
from coterie.images.folders import FILE, Size
from coterie.tables.readers.binary import BINARY_READERS
from coterie.tables.readers.files import example_path, read_table
from coterie.tables.table import Array, ChosenColumns, ImageShape, Table, choose_columns, unique_names, whole_numbers

STEPS = 1500
"""How long ``coterie learn`` trains on a table of sorted sets, unless told."""
IMAGE_STEPS = 600
"""The same on a folder of sorted images."""


@final
@dataclass(frozen=True)
class Reading:
    """Which table to read, and which of its columns to use."""

    file: str
    header: bool | None = None
    delimiter: str | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    ids: str | None = None
    truth: str | None = None
    image_size: str | None = None
    """Of a folder: what its images are brought to, as it was written."""


@final
@dataclass(frozen=True)
class Writing:
    """Which files to write, and how to talk about it."""

    rows: str | None = None
    report: str | None = None
    model: str | None = None
    append: bool = False
    force: bool = False
    quiet: bool = False
    json: bool = False


@final
@dataclass(frozen=True)
class ClusterRequest:
    """All that ``coterie cluster`` was told."""

    reading: Reading
    writing: Writing = field(default_factory=Writing)
    method: str = "coterie"
    clusters: str = "auto"
    effort: str | None = None
    """None for the method's own."""
    granularity: float | None = None
    """None for the method's own."""
    outliers: bool = False
    allow_single: bool = False
    weights: str | None = None
    """None for the method's own."""
    scaling: str | None = None
    """None for the method's own."""
    recipe: str | None = None
    """File with the parameters of TCC."""
    seed: int | None = None
    """None for the recipe's, or 0."""
    image: str | None = None


@final
@dataclass(frozen=True)
class PredictRequest:
    """All that ``coterie predict`` was told."""

    model: str
    reading: Reading
    writing: Writing = field(default_factory=Writing)


@final
@dataclass(frozen=True)
class LearnRequest:
    """All that ``coterie learn`` was told; what is None was left to the command."""

    reading: Reading
    """The FILE is a recipe, or a table of sorted sets."""
    writing: Writing = field(default_factory=Writing)
    folder: str | None = None
    tensorboard: str | None = None
    sets: str | None = None
    method: str | None = None
    weights: str | None = None
    steps: int | None = None
    seed: int | None = None


_EXAMPLE = "example:"
_HEIGHT_AND_WIDTH = re.compile(r"([1-9]\d{0,4})[x×]([1-9]\d{0,4})", re.IGNORECASE)


@final
@dataclass(frozen=True)
class Source:
    """Where a table is read from, as often as needed: standard input gives its bytes only once."""

    path: str
    data: bytes = b""

    @property
    def is_text(self) -> bool:
        """Whether cells are written as text, so that they can be repeated as they are."""
        return not self.is_folder and Path(self.path).suffix.lower() not in BINARY_READERS

    @property
    def is_folder(self) -> bool:
        """Whether it has images, and no table."""
        return self.path != "-" and Path(self.path).is_dir()

    @property
    def name(self) -> str:
        """What to call it."""
        if self.path == "-":
            return "standard input"
        return Path(self.path).resolve().name if self.is_folder else Path(self.path).name

    def read(
        self,
        reading: Reading,
        as_text: tuple[str, ...],
        *,
        like: ImageShape | None = None,
        on_step: Callable[[str], None] | None = None,
    ) -> Table:
        """Read the table, these columns as texts; or the images, brought to the shape `like` if there is one."""
        asked = None if reading.image_size is None else height_and_width("--image-size", reading.image_size)
        if asked is not None and not self.is_folder:
            raise InputError(f"--image-size is for a folder of images, and {self.name} is none; leave it out")

        def on_progress(done: int, count: int) -> None:
            if on_step is not None:
                on_step(f"{done:,} of {count:,} images")

        try:
            return read_table(
                self.path,
                stdin=io.BytesIO(self.data),
                header=reading.header,
                delimiter=reading.delimiter,
                as_text=as_text,
                image_size=asked if like is None else like[:2],
                image_channels=None if like is None else like[2],
                on_progress=on_progress,
            )
        except TypeError as error:  # what scikit-learn expects of objects that are neither numbers nor texts
            raise TableError(f"{self.name}: {error}") from error


@final
@dataclass(frozen=True)
class Loaded:
    """A table that was read, and the columns of it that were chosen."""

    source: Source
    reading: Reading
    table: Table
    chosen: ChosenColumns


def load(reading: Reading, *, like: ImageShape | None = None, on_step: Callable[[str], None] | None = None) -> Loaded:
    """Read the FILE, and pick the columns that the options name.

    Parameters
    ----------
    reading : Reading
        What to read.
    like : (height, width, channels), optional
        The shape that the images of a folder must have.
    on_step : callable, optional
        Called with a few words now and then, where reading takes long.
    """
    source = _source(reading.file)
    # Ids stay as they are written: 007 is not 7.
    table = source.read(reading, () if reading.ids is None else (reading.ids,), like=like, on_step=on_step)
    chosen = choose_columns(
        table,
        columns=_names(reading.columns, table) or None,
        drop=_names(reading.drop, table),
        ids=FILE if reading.ids is None and source.is_folder else reading.ids,
        truth=reading.truth,
    )
    return Loaded(source, reading, table, chosen)


def _source(file: str) -> Source:
    """Find what FILE stands for: a path, standard input, or an example that ships."""
    if file == "-":
        return Source(file, sys.stdin.buffer.read())
    if file.startswith(_EXAMPLE):
        return Source(str(example_path(file.removeprefix(_EXAMPLE))))
    return Source(file)


def height_and_width(option: str, text: str) -> Size:
    """Read a size such as 28x28."""
    size = _HEIGHT_AND_WIDTH.fullmatch(text)
    if size is None:
        raise InputError(f"{option} takes height x width, such as 28x28; got {text!r}")
    return int(size[1]), int(size[2])


def _names(given: tuple[str, ...], table: Table) -> list[str]:
    """Split lists of names at their commas, unless a column is called just so; quotes protect commas."""
    names: list[str] = []
    for text in given:
        parts = [text] if text in table.names else next(csv.reader([text], skipinitialspace=True), [])
        names += [part.strip() for part in parts if part.strip()]
    return names


def result_table(
    loaded: Loaded, labels: Array, memberships: Array, *, append: bool, typed: bool
) -> tuple[tuple[str, ...], list[Array]]:
    """Return names and columns of the table of results.

    Parameters
    ----------
    loaded : Loaded
        The rows.
    labels : array (N,)
        The cluster of each row; -1 for outliers, whose membership is 0.
    memberships : array (N, K)
        The membership of each row in each cluster.
    append : bool
        Whether all that was read goes along, but for the pixels of images, or only the ids.
    typed : bool
        Whether the file that will be written knows numbers and dates. Otherwise the cells of a text table
        are repeated as they were written.
    """
    table, chosen = loaded.table, loaded.chosen
    names, columns = _all_columns(loaded, typed=typed) if append else ([], [])
    if not names:
        names = [chosen.ids_name or "row"]
        columns = [np.arange(1, table.n_rows + 1) if chosen.ids is None else _tidy(chosen.ids)]
    own = np.where(labels < 0, 0.0, memberships[np.arange(table.n_rows), labels].astype(np.float64).round(4))
    unique, _ = unique_names([*names, "cluster", "membership"])
    return unique, [*columns, labels, own]


def _all_columns(loaded: Loaded, *, typed: bool) -> tuple[list[str], list[Array]]:
    """Return names and columns of what was read; thousands of pixels are left out."""
    table = loaded.table
    names, columns = [*table.side], [_tidy(values) for values in table.side.values()]
    if table.image is not None:
        return names, columns
    as_written = loaded.source.is_text and not typed
    given = loaded.source.read(loaded.reading, table.names) if as_written else table
    return [*table.names, *names], [*(_tidy(given.column(i)) for i in range(table.n_columns)), *columns]


def _tidy(column: Array) -> Array:
    """Write whole numbers without a decimal point, and dates no finer than they are."""
    if column.dtype.kind == "M":
        for unit in ("D", "s"):
            coarse = column.astype(f"datetime64[{unit}]")
            if (np.isnat(column) | (coarse == column)).all():
                return coarse
    return whole_numbers(column)
