"""Tables from files and folders, and to files."""

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from coterie.errors import InputError, OutputError, TableError
from coterie.files import write_atomically
from coterie.images.folders import IMAGE_ENDINGS, OnProgress, Size, read_images
from coterie.tables.readers.binary import BINARY_READERS, pyarrow
from coterie.tables.readers.delimited import parse_delimited
from coterie.tables.table import Array, Table, listed

_EXAMPLES = Path(__file__).parents[1] / "examples"
_TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")


def read_table(
    path: str | Path,
    *,
    stdin: IO[bytes] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    as_text: Sequence[str] = (),
    image_size: Size | None = None,
    image_channels: int | None = None,
    on_progress: OnProgress | None = None,
) -> Table:
    """Read a table from a file, whose ending says of which kind it is, or from a folder of images.

    Parameters
    ----------
    path : str or Path
        A .csv, .tsv or .txt file (also with .gz), .parquet, .arrow, .feather, .ipc, .npy, .npz or .mat, or a folder.
        "-" reads CSV from `stdin`.
    stdin : binary file, optional
        Used for "-"; the standard input by default.
    header : bool, optional
        Whether a text table's first line has names; found out by default.
    delimiter : str, optional
        What separates a text table's cells; by default comma, semicolon, tab, bar or spaces, found out.
    as_text : sequence of str
        Columns of a text table to keep as they are written, such as ids with leading zeros.
    image_size, image_channels, on_progress
        For a folder: what its images are brought to, and what is told of the progress; see
        `coterie.images.folders.read_images`.

    Returns
    -------
    Table
        Its `notes` say what was found out. One-dimensional arrays beside the data of .npz and .mat files
        are in `side`, and so are the names of image files.

    Raises
    ------
    TableError
        When the file cannot be read as a table; the message says why and, for text, on which line.
    """
    if str(path) == "-":
        data = (sys.stdin.buffer if stdin is None else stdin).read()
        return parse_delimited(data, source="standard input", header=header, delimiter=delimiter, as_text=as_text)
    path = Path(path)
    if not path.exists():
        raise TableError(f"there is no file {str(path)!r}; check the path")
    if path.is_dir():
        return read_images(path, size=image_size, channels=image_channels, on_progress=on_progress)
    name = path.name.lower()
    text_ending = next((ending for ending in _TEXT_ENDINGS if name.endswith(ending)), None)
    try:
        if text_ending is not None:
            if delimiter is None and text_ending.startswith(".tsv"):
                delimiter = "\t"
            return parse_delimited(
                _text_bytes(path), source=path.name, header=header, delimiter=delimiter, as_text=as_text
            )
        if path.suffix.lower() in BINARY_READERS:
            return BINARY_READERS[path.suffix.lower()](path)
    except OSError as error:
        raise TableError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error
    if path.suffix.lower() in IMAGE_ENDINGS:
        raise TableError(f"{path.name!r} is one image; name the folder that has all of them")
    known = ", ".join((*_TEXT_ENDINGS, *BINARY_READERS))
    raise TableError(f"{path.name!r} has an ending that is not known; known are {known}")


def example_path(name: str) -> Path:
    """Return the path of a table that ships with the package, such as "wine"."""
    path = _EXAMPLES / f"{name}.csv"
    known = sorted(file.stem for file in _EXAMPLES.glob("*.csv"))
    if name not in known:
        raise InputError(f"there is no example called {name!r}; there is {listed(known)}")
    return path


def write_table(
    path: str | Path,
    names: Sequence[str],
    columns: Sequence[Array],
    *,
    force: bool,
    stdout: IO[bytes] | None = None,
) -> None:
    """Write columns as CSV, TSV or Parquet, by the file's ending; "-" writes CSV to `stdout`.

    Parameters
    ----------
    path : str or Path
        Where to; written whole or not at all.
    names, columns : sequences
        One name per column; None, NaN and NaT are written as empty cells.
    force : bool
        Whether an existing file may be replaced.
    stdout : binary file, optional
        Used for "-"; the standard output by default.

    Raises
    ------
    OutputError
        When the file exists already, its folder does not, or writing fails.
    """
    if str(path) == "-":
        out = sys.stdout.buffer if stdout is None else stdout
        out.write(_delimited(names, columns, ","))
        out.flush()
        return
    match Path(path).suffix.lower():
        case ".csv":
            data = _delimited(names, columns, ",")
        case ".tsv":
            data = _delimited(names, columns, "\t")
        case ".parquet":
            data = _parquet(names, columns)
        case ending:
            raise OutputError(f"{str(path)!r} ends in {ending!r}; a table is written as .csv, .tsv or .parquet")
    write_atomically(path, data, force=force)


def _text_bytes(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix.lower() != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise TableError(f"{path.name} is not a whole gzip file: {error}") from error


def _delimited(names: Sequence[str], columns: Sequence[Array], delimiter: str) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*(_cells(column) for column in columns), strict=True))
    return text.getvalue().encode("utf-8")


def _cells(column: Array) -> list[Any]:
    column = np.asarray(column)
    if column.dtype.kind == "M":
        return ["" if np.isnat(moment) else str(moment) for moment in column]
    if column.dtype.kind == "f":
        return ["" if missing else value for missing, value in zip(np.isnan(column), column.tolist(), strict=True)]
    return ["" if value is None else value for value in column.tolist()]


def _parquet(names: Sequence[str], columns: Sequence[Array]) -> bytes:
    arrow, parquet = pyarrow("lib"), pyarrow("parquet")
    out = io.BytesIO()
    parquet.write_table(arrow.Table.from_arrays([arrow.array(column) for column in columns], list(names)), out)
    return out.getvalue()
