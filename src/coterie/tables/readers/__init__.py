"""Tables from files and folders, and to files; ``FORMATS`` is the registry of file formats."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias, final

from coterie.errors import InputError, OutputError, TableError
from coterie.files import write_atomically
from coterie.tables.readers.binary import read_arrow, read_mat, read_npy, read_npz, read_parquet, to_parquet
from coterie.tables.readers.delimited import parse_delimited, read_delimited, to_csv
from coterie.tables.readers.images import IMAGE_ENDINGS, OnProgress, Size, read_images
from coterie.tables.table import Array, Table, format_list

Writer: TypeAlias = Callable[[Sequence[str], Sequence[Array]], bytes]  # names and columns -> the bytes of a file

FOLDER_ENDING = "/"  # ending under which a format of folders is registered
_EXAMPLES = Path(__file__).parents[1] / "examples"
_TEXT_OPTIONS = ("header", "delimiter", "as_text")
_IMAGE_OPTIONS = ("image_size", "image_channels", "on_progress")


@final
@dataclass(frozen=True)
class Format:
    """A file format: the endings of its files and the functions that read and write them."""

    description: str  # what it is, for help texts
    endings: tuple[str, ...]  # endings of file names, in lower case; ``FOLDER_ENDING`` for folders
    read: Callable[..., Table]  # called with the path and the keyword arguments that ``options`` names
    options: tuple[str, ...] = ()  # keyword arguments of ``read_table`` that the reader takes; others are ignored
    write: Writer | None = None  # writes tables in this format; None if they can only be read
    requires: str | None = None  # optional dependency, such as "pyarrow"; the reader imports it

    @property
    def is_text(self) -> bool:
        """Whether cells are stored as text, so that a column can be read as it is written."""
        return "as_text" in self.options


def _read_folder(
    path: Path, image_size: Size | None = None, image_channels: int | None = None, on_progress: OnProgress | None = None
) -> Table:
    return read_images(path, size=image_size, channels=image_channels, on_progress=on_progress)


# To add a format, append a line. Of two that match a file name, the one with the longer ending is used.
FORMATS: list[Format] = [
    Format("comma-separated text", (".csv",), read_delimited, _TEXT_OPTIONS, to_csv),
    Format("tab-separated text", (".tsv",), read_delimited, _TEXT_OPTIONS, partial(to_csv, delimiter="\t")),
    Format("delimited text", (".txt", ".csv.gz", ".tsv.gz", ".txt.gz"), read_delimited, _TEXT_OPTIONS),
    Format("Parquet", (".parquet",), read_parquet, write=to_parquet, requires="pyarrow"),
    Format("Arrow", (".arrow", ".feather", ".ipc"), read_arrow, requires="pyarrow"),
    Format("NumPy", (".npy",), read_npy),
    Format("NumPy archive", (".npz",), read_npz),
    Format("MATLAB", (".mat",), read_mat),
    Format("folder of images", (FOLDER_ENDING,), _read_folder, _IMAGE_OPTIONS, requires="Pillow"),
]


def find_format(path: str | Path) -> Format | None:
    """Return the format of a file or folder by its ending; None if no format has it.

    Examples
    --------
    >>> find_format("flowers.csv").description
    'comma-separated text'
    """
    path = Path(path)
    name = path.name.lower() + (FOLDER_ENDING if path.is_dir() else "")
    matches = [(len(ending), i) for i, f in enumerate(FORMATS) for ending in f.endings if name.endswith(ending)]
    return FORMATS[max(matches)[1]] if matches else None


def readable_endings() -> tuple[str, ...]:
    """Return the endings of all files that can be read."""
    return tuple(ending for each in FORMATS for ending in each.endings if ending != FOLDER_ENDING)


def writable_endings() -> tuple[str, ...]:
    """Return the endings of all files that can be written."""
    return tuple(ending for each in FORMATS if each.write is not None for ending in each.endings)


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
    """Read a table from a file of any format in ``FORMATS``, or from a folder of images.

    Parameters
    ----------
    path : str or Path
        File or folder. The ending decides on the format; "-" reads delimited text from `stdin`.
    stdin : binary file, optional
        Stream used for "-"; the standard input by default.
    header : bool, optional
        Text: whether the first line has the column names; detected by default.
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
    path = Path(path)
    if not path.exists():
        raise TableError(f"There is no file {str(path)!r}. Check the path.")
    found = find_format(path)
    if found is None:
        if path.suffix.lower() in IMAGE_ENDINGS:
            raise TableError(f"{path.name!r} is a single image. Give the folder that contains the images.")
        raise TableError(
            f"{path.name!r} has an unknown ending. Files that can be read end in {', '.join(readable_endings())}."
        )
    given: dict[str, Any] = {"header": header, "delimiter": delimiter, "as_text": as_text}
    given |= {"image_size": image_size, "image_channels": image_channels, "on_progress": on_progress}
    try:
        return found.read(path, **{name: given[name] for name in found.options})
    except OSError as error:
        raise TableError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from error


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
    found = find_format(path)
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
