"""Tables from files and folders, and to files; ``FORMATS`` is the registry of file formats."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias, final

from coterie.errors import EmptyTableError, InputError, OutputError, TableError
from coterie.files import write_atomically
from coterie.tables.readers.binary import read_arrow, read_mat, read_npy, read_npz, read_parquet, to_parquet
from coterie.tables.readers.databases import read_database, read_duckdb
from coterie.tables.readers.delimited import parse_delimited, read_delimited, to_csv
from coterie.tables.readers.images import IMAGE_ENDINGS, OnProgress, Size, read_images
from coterie.tables.readers.jsonlines import read_json
from coterie.tables.readers.parts import Part, combine, expand_pattern, is_pattern, list_folder, walk
from coterie.tables.readers.sparse import read_matrix_market
from coterie.tables.readers.spreadsheets import read_workbook
from coterie.tables.table import Array, Table, format_list

Writer: TypeAlias = Callable[[Sequence[str], Sequence[Array]], bytes]  # names and columns -> the bytes of a file

FOLDER_ENDING = "/"  # ending under which a format of folders is registered
_EXAMPLES = Path(__file__).parents[1] / "examples"
_TEXT_OPTIONS = ("header", "delimiter", "as_text")
_IMAGE_OPTIONS = ("image_size", "image_channels", "on_progress")
_TABLE_SEPARATOR = "::"  # between a file and the name of one of its tables
_BESIDE_TABLES = (".txt", ".json")  # endings of files in a folder that describe the others


@final
@dataclass(frozen=True)
class Format:
    """A file format: the endings of its files and the functions that read and write them."""

    description: str  # what it is, for help texts
    endings: tuple[str, ...]  # endings of file names, in lower case; ``FOLDER_ENDING`` for folders
    read: Callable[..., Table]  # called with the path and the keyword arguments that ``options`` names
    options: tuple[str, ...] = ()  # keyword arguments of ``read_table`` that the reader takes; others are ignored
    write: Writer | None = None  # writes tables in this format; None if they can only be read
    requires: str | None = None  # optional dependency, such as "duckdb"; the reader imports it

    @property
    def is_text(self) -> bool:
        """Whether cells are stored as text, so that a column can be read as it is written."""
        return "as_text" in self.options

    @property
    def has_tables(self) -> bool:
        """Whether a file has several tables or sheets, one of which is named after ``::``."""
        return "table" in self.options

    @property
    def is_images(self) -> bool:
        """Whether it is a folder of images."""
        return "image_size" in self.options


def _read_folder(
    path: Path, image_size: Size | None = None, image_channels: int | None = None, on_progress: OnProgress | None = None
) -> Table:
    return read_images(path, size=image_size, channels=image_channels, on_progress=on_progress)


# To add a format, append a line. Of two that match a file name, the one with the longer ending is used.
FORMATS: list[Format] = [
    Format("comma-separated text", (".csv",), read_delimited, _TEXT_OPTIONS, to_csv),
    Format("tab-separated text", (".tsv",), read_delimited, _TEXT_OPTIONS, partial(to_csv, delimiter="\t")),
    Format("delimited text", (".txt", ".csv.gz", ".tsv.gz", ".txt.gz"), read_delimited, _TEXT_OPTIONS),
    Format("compressed text", (".csv.zst", ".tsv.zst", ".txt.zst"), read_delimited, _TEXT_OPTIONS),
    Format("Excel", (".xlsx", ".xlsm", ".xlsb", ".xls"), read_workbook, ("header", "table"), requires="calamine"),
    Format("OpenDocument spreadsheet", (".ods",), read_workbook, ("header", "table"), requires="calamine"),
    Format("JSON", (".json", ".jsonl", ".ndjson"), read_json),
    Format("compressed JSON lines", (".jsonl.gz", ".ndjson.gz", ".jsonl.zst", ".ndjson.zst"), read_json),
    Format("Parquet", (".parquet",), read_parquet, write=to_parquet),
    Format("Arrow", (".arrow", ".feather", ".ipc"), read_arrow),
    Format("SQLite or DuckDB", (".db",), read_database, ("table",)),
    Format("SQLite", (".sqlite", ".sqlite3"), read_database, ("table",)),
    Format("DuckDB", (".duckdb",), read_duckdb, ("table",), requires="duckdb"),
    Format("NumPy", (".npy",), read_npy),
    Format("NumPy archive", (".npz",), read_npz),
    Format("Matrix Market", (".mtx", ".mtx.gz"), read_matrix_market),
    Format("MATLAB", (".mat",), read_mat),
    Format("folder of images", (FOLDER_ENDING,), _read_folder, _IMAGE_OPTIONS, requires="Pillow"),
]


def find_format(path: str | Path) -> Format | None:
    """Return the format of a file, a folder or a pattern; None if no format has its ending.

    Examples
    --------
    >>> find_format("flowers.csv").description
    'comma-separated text'
    >>> find_format("shop.sqlite::orders").description
    'SQLite'
    """
    path, _ = split_table(path)
    parts = _find_parts(path)
    if parts is not None and parts.files:
        return _match_ending(parts.files[0].name)
    return _match_ending(path.name + (FOLDER_ENDING if path.is_dir() else ""))


def _match_ending(name: str) -> Format | None:
    name = name.lower()
    matches = [(len(ending), i) for i, f in enumerate(FORMATS) for ending in f.endings if name.endswith(ending)]
    return FORMATS[max(matches)[1]] if matches else None


def split_table(path: str | Path) -> tuple[Path, str | None]:
    """Split a file from the name of one of its tables; the name is None if there is none.

    Examples
    --------
    >>> split_table("shop.sqlite::orders")[1]
    'orders'
    """
    pieces = str(path).split(_TABLE_SEPARATOR)
    for i in range(1, len(pieces)):
        file = _TABLE_SEPARATOR.join(pieces[:i])
        found = _match_ending(file)
        if found is not None and found.has_tables:
            return Path(file), _TABLE_SEPARATOR.join(pieces[i:])
    return Path(path), None


def readable_endings() -> tuple[str, ...]:
    """Return the endings of all files that can be read."""
    return tuple(ending for each in FORMATS for ending in each.endings if ending != FOLDER_ENDING)


def writable_endings() -> tuple[str, ...]:
    """Return the endings of all files that can be written."""
    return tuple(ending for each in FORMATS if each.write is not None for ending in each.endings)


def read_table(
    path: str | Path,
    *,
    table: str | None = None,
    stdin: IO[bytes] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    as_text: Sequence[str] = (),
    image_size: Size | None = None,
    image_channels: int | None = None,
    on_progress: OnProgress | None = None,
) -> Table:
    """Read a table from a file of any format in ``FORMATS``, from several files, or from a folder of images.

    Parameters
    ----------
    path : str or Path
        File or folder. The ending decides on the format; "-" reads delimited text from `stdin`. A folder without
        images, and a pattern such as "data/*.csv", are read as one table, whose columns are matched by name. A table
        of a database or a sheet of a workbook can be named after two colons: "shop.sqlite::orders".
    table : str, optional
        The same name as a separate argument.
    stdin : binary file, optional
        Stream used for "-"; the standard input by default.
    header : bool, optional
        Text and workbooks: whether the first line has the column names; detected by default.
    delimiter : str, optional
        Text: one character, "tab" or "space"; detected by default.
    as_text : sequence of str
        Text: columns to keep as written, such as ids with leading zeros.
    image_size, image_channels, on_progress
        Folders: `size`, `channels` and `on_progress` of ``coterie.tables.readers.images.read_images``.

    Returns
    -------
    Table
        Its `notes` say what was detected. `extra_columns` has what is stored beside the data: one-dimensional arrays
        of .npz and .mat files, and the names of image files.
    """
    if str(path) == "-":
        data = (sys.stdin.buffer if stdin is None else stdin).read()
        return parse_delimited(data, source="standard input", header=header, delimiter=delimiter, as_text=as_text)
    path, named = split_table(path)
    given: dict[str, Any] = {"header": header, "delimiter": delimiter, "as_text": as_text}
    given |= {"image_size": image_size, "image_channels": image_channels, "on_progress": on_progress}
    given["table"] = named if table is None else table
    try:
        parts = _find_parts(path)
        return _read_file(path, given) if parts is None else _read_parts(path, parts, given)
    except OSError as error:
        raise TableError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error


def _read_file(path: Path, given: Mapping[str, Any]) -> Table:
    """Read one file, or a folder of images."""
    if not path.exists():
        file, separator, _ = str(path).partition(_TABLE_SEPARATOR)
        if separator and Path(file).exists():
            raise TableError(f"{file!r} has only one table. Leave out what follows it in {str(path)!r}.")
        raise TableError(f"There is no file {str(path)!r}. Check the path.")
    found = _match_ending(path.name + (FOLDER_ENDING if path.is_dir() else ""))
    if found is None:
        if path.suffix.lower() in IMAGE_ENDINGS:
            raise TableError(f"{path.name!r} is a single image. Give the folder that contains the images.")
        raise TableError(
            f"{path.name!r} has an unknown ending. Files that can be read end in {', '.join(readable_endings())}."
        )
    if given["table"] is not None and not found.has_tables:
        raise TableError(
            f"{path.name!r} ({found.description}) has only one table, but the table {given['table']!r} was asked for. "
            "Leave its name out."
        )
    return found.read(path, **{name: given[name] for name in found.options})


@final
@dataclass(frozen=True)
class _Parts:
    """The files of a folder or of a pattern that are read as one table, and others, both by their path below a root."""

    root: Path
    files: list[Path]
    ignored: list[Path]


def _find_parts(path: Path) -> _Parts | None:
    """Return the files that a folder or a pattern stands for; None for a single file and for a folder of images."""
    if path.is_dir():
        if any(file.suffix.lower() in IMAGE_ENDINGS for file in walk(path)):
            return None
        root, found = path, list_folder(path)
    elif is_pattern(path):
        root, found = expand_pattern(path)
    else:
        return None
    files = [file for file in found if _match_ending(file.name) is not None]
    data = [file for file in files if not file.name.lower().endswith(_BESIDE_TABLES)] or files
    if not data and path.is_dir():
        return None  # the reader of images says what is missing
    return _Parts(root, data, [file for file in found if file not in set(data)])


def _read_parts(path: Path, parts: _Parts, given: Mapping[str, Any]) -> Table:
    """Read files and put them below each other; those without rows are skipped."""
    if not parts.files:
        found = f" It matches {format_list([file.name for file in parts.ignored], 3)}." if parts.ignored else ""
        raise TableError(f"No table matches {str(path)!r}.{found} Check the path.")
    _check_one_format(path, parts.files)
    read, empty = [], []
    for file in parts.files:
        try:
            if (parts.root / file).stat().st_size == 0:
                raise EmptyTableError(f"{file.name} is empty.")
            read.append(Part(file, _read_file(parts.root / file, given)))
        except EmptyTableError:
            empty.append(file.as_posix())
        except TableError as error:
            raise TableError(f"{file.as_posix()}: {error}" if file.parent.name else str(error)) from error
    if not read:
        raise EmptyTableError(f"None of the {len(empty):,} files that {str(path)!r} stands for has rows.")
    result = combine(read, path.resolve().name if path.is_dir() else path.name)
    ignored = [file.as_posix() for file in parts.ignored]
    notes = [f"ignored, since they are no tables or describe others: {format_list(ignored, 3)}"] if ignored else []
    skipped = "1 file without rows was" if len(empty) == 1 else f"{len(empty):,} files without rows were"
    notes += [f"{skipped} skipped: {format_list(empty, 3)}"] if empty else []
    return replace(result, notes=(*result.notes, *notes))


def _check_one_format(path: Path, files: Sequence[Path]) -> None:
    """Reject files of several formats: the same rows may be stored in two of them."""
    formats = [found for file in files if (found := _match_ending(file.name)) is not None]
    if len({found.read if not found.is_text else None for found in formats}) > 1:
        count = Counter(found.description for found in formats)
        folder = path if path.is_dir() else path.parent
        raise TableError(
            f"{str(path)!r} stands for files of several formats: "
            f"{', '.join(f'{number} {description}' for description, number in count.items())}. "
            f"Choose those of one, such as {str(folder / ('*' + files[0].suffix))!r}."
        )


def write_table(
    path: str | Path, names: Sequence[str], columns: Sequence[Array], *, force: bool, stdout: IO[bytes] | None = None
) -> None:
    """Write columns to a file, in the format of its ending; "-" writes CSV to `stdout`, by default the standard output.

    None, NaN and NaT become empty cells. An existing file raises an `OutputError`, unless `force` allows to replace it.
    """
    if str(path) == "-":
        out = sys.stdout.buffer if stdout is None else stdout
        out.write(to_csv(names, columns))
        out.flush()
        return
    found = _match_ending(Path(path).name)
    if found is None or found.write is None:
        endings = ", ".join(writable_endings())
        raise OutputError(f"{str(path)!r} cannot be written as a table. Use one of these endings: {endings}.")
    write_atomically(path, found.write(names, columns), force=force)


def example_path(name: str) -> Path:
    """Return the path of a table that ships with the package, such as "wine"."""
    known = sorted(file.stem for file in _EXAMPLES.glob("*.csv"))
    if name not in known:
        raise InputError(f"There is no example {name!r}. Available: {format_list(known)}.")
    return _EXAMPLES / f"{name}.csv"
