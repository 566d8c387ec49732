"""Delimited text (CSV, TSV, ...): detect the encoding, the delimiter and the header, then the type of each column."""

import codecs
import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from coterie.errors import TableError
from coterie.tables.table import Array, Table, column_position, text_column, to_utc, unique_names

if TYPE_CHECKING:
    from _csv import Reader

# Cells that stand for a missing value; surrounding spaces are ignored.
MISSING_MARKERS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?", "-"})
DELIMITERS = ("\t", ";", "|", ",", " ")  # in the order in which they are tried; a space stands for any run of spaces
_DELIMITER_NAMES = {"\t": "tab", " ": "space"}
_ROWS_FOR_DELIMITER = 200
_ROWS_FOR_HEADER = 1000
_CELLS_PER_BATCH = 500_000
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_ISO_DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+(?:[eE][+-]?\d+)?", re.ASCII)
_CONTROL_CHARACTERS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))


@final
@dataclass(frozen=True)
class _Text:
    """The bytes of a text table, its encoding and its delimiter."""

    data: bytes
    source: str
    encoding: str
    delimiter: str = ","

    def lines(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(io.BytesIO(self.data), encoding=self.encoding, newline="")

    def reader(self) -> "Reader":
        lines = (line.strip() for line in self.lines()) if self.delimiter == " " else self.lines()
        return csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True, strict=True)

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of each row except blank lines; an unbalanced quote raises an error with its line number."""
        reader = self.reader()
        try:
            yield from filter(None, reader)
        except csv.Error as error:
            raise TableError(
                f"{self.source}, line {reader.line_num}: {error}. Check whether a quote is missing or superfluous."
            ) from error


def read_delimited(
    path: Path, header: bool | None = None, delimiter: str | None = None, as_text: Sequence[str] = ()
) -> Table:
    """Read a text file, which may be gzipped; .tsv files are separated by tabs."""
    data = path.read_bytes()
    if path.suffix.lower() == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise TableError(f"{path.name} is not a complete gzip file: {error}.") from error
    if delimiter is None and path.name.lower().endswith((".tsv", ".tsv.gz")):
        delimiter = "\t"
    return parse_delimited(data, source=path.name, header=header, delimiter=delimiter, as_text=as_text)


def parse_delimited(
    data: bytes, *, source: str, header: bool | None = None, delimiter: str | None = None, as_text: Sequence[str] = ()
) -> Table:
    """Parse a text table; the table's notes say what was detected."""
    encoding, notes = _detect_encoding(data, source)
    text = _Text(data, source, encoding)
    text = replace(text, delimiter=_detect_delimiter(text) if delimiter is None else _parse_delimiter(delimiter))
    sample = list(islice(text.rows(), _ROWS_FOR_HEADER))
    if not sample:
        raise TableError(f"{source} is empty. A table needs at least one row.")
    has_header = _has_header(sample) if header is None else header
    if has_header and len(sample) == 1:
        raise TableError(f"{source} has a header and no rows below it. If its only line is data, use --no-header.")
    width = len(sample[0])
    names, naming = unique_names(sample[0]) if has_header else (numbered_names(width), ())
    if not has_header and header is None:
        naming = ("no header was found; the columns are numbered from column_1",)
    if text.delimiter != "," and delimiter is None:
        naming = (f"the columns are separated by {_DELIMITER_NAMES.get(text.delimiter, text.delimiter)}", *naming)
    table = Table(names, (np.empty(0),) * width, named=has_header, notes=(*notes, *naming), source=source)
    kept_as_text = {position for name in as_text if (position := column_position(table, name)) is not None}
    block = None if kept_as_text else _parse_numbers(text, width, has_header=has_header)
    if block is not None:
        return replace(table, columns=(), block=block)
    columns, column_notes = _parse_columns(text, names, kept_as_text, has_header=has_header)
    return replace(table, columns=columns, notes=(*table.notes, *column_notes))


def to_csv(names: Sequence[str], columns: Sequence[Array], delimiter: str = ",") -> bytes:
    """Format columns as CSV in UTF-8; None, NaN and NaT become empty cells."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*(_format_cells(column) for column in columns), strict=True))
    return out.getvalue().encode("utf-8")


def _format_cells(column: Array) -> list[Any]:
    column = np.asarray(column)
    if column.dtype.kind == "M":
        return ["" if np.isnat(moment) else str(moment) for moment in column]
    if column.dtype.kind == "f":
        return ["" if missing else value for missing, value in zip(np.isnan(column), column.tolist(), strict=True)]
    return ["" if value is None else value for value in column.tolist()]


def numbered_names(width: int) -> tuple[str, ...]:
    """Return column_1, column_2, ..."""
    return tuple(f"column_{number}" for number in range(1, width + 1))


def _detect_encoding(data: bytes, source: str) -> tuple[str, tuple[str, ...]]:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with suppress(UnicodeDecodeError):
            data.decode("utf-16")
            return "utf-16", ("the file is in UTF-16",)
    head = data[:65536]
    if b"\0" in head or len(head.translate(None, _CONTROL_CHARACTERS)) < 0.98 * len(head):
        raise TableError(f"{source} is not a text table: it contains binary data. Check its ending.")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return "latin-1", ("the file is not in UTF-8; it was read as Latin-1",)
    return "utf-8-sig", ()


def _parse_delimiter(delimiter: str) -> str:
    character = {"tab": "\t", "\\t": "\t", "space": " "}.get(delimiter, delimiter)
    if len(character) != 1 or character in '\r\n"':
        raise TableError(f"delimiter={delimiter!r} must be one character, 'tab' or 'space'.")
    return character


def _detect_delimiter(text: _Text) -> str:
    """Return the first delimiter that splits the largest fraction of lines into the same number of cells."""
    best, best_fraction = ",", 0.0
    for delimiter in DELIMITERS:
        try:
            rows = list(islice(replace(text, delimiter=delimiter).rows(), _ROWS_FOR_DELIMITER))
        except TableError:
            continue
        widths = Counter(map(len, rows))
        width, count = widths.most_common(1)[0] if widths else (1, 0)
        if width == 1 or count / len(rows) <= best_fraction:
            continue
        cells = [cell for row in rows[1:] or rows for cell in row]
        # Spaces also separate words: only rows that are mostly numbers are split at spaces.
        if delimiter != " " or sum(map(_is_number, cells)) > 0.5 * len(cells):
            best, best_fraction = delimiter, count / len(rows)
    return best


def _has_header(sample: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has names: no numbers or dates, and unlike the values below it."""
    first = [cell.strip() for cell in sample[0]]
    if any(_is_number(cell) or _ISO_DATE.fullmatch(cell) for cell in first):
        return False
    if all(cell in MISSING_MARKERS for cell in first):
        return False
    if len(sample) == 1:
        return True
    for i, name in enumerate(first):
        values = [cell for cell in _cells_below(sample, i) if cell not in MISSING_MARKERS]
        typed = sum(_is_number(cell) or _ISO_DATE.fullmatch(cell) is not None for cell in values)
        if name not in MISSING_MARKERS and values and typed > 0.5 * len(values):
            return True
    # In a table of texts, names are distinct, and none is a value of its own column.
    distinct = len(set(first)) == len(first)
    return distinct and all(name not in _cells_below(sample, i) for i, name in enumerate(first))


def _cells_below(sample: Sequence[Sequence[str]], position: int) -> list[str]:
    return [row[position].strip() for row in sample[1:] if position < len(row)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _parse_numbers(text: _Text, width: int, *, has_header: bool) -> Array | None:
    """Parse a table of numbers only with numpy's fast parser; None if a cell is not a number."""
    separator = None if text.delimiter == " " else text.delimiter
    try:
        block = np.loadtxt(
            text.lines(), delimiter=separator, skiprows=int(has_header), comments=None, quotechar='"', ndmin=2
        )
    except (ValueError, UnicodeError):
        return None
    return block if block.shape[1] == width and len(block) else None


def _parse_columns(
    text: _Text, names: Sequence[str], kept_as_text: set[int], *, has_header: bool
) -> tuple[tuple[Array, ...], tuple[str, ...]]:
    """Parse columns of any type: first numbers, then all others, since a number takes less memory than a string."""
    width = len(names)
    numbers: dict[int, list[Array]] = {i: [] for i in range(width) if i not in kept_as_text}
    for rows in _batches(text, width, has_header=has_header):
        cells = list(zip(*rows, strict=True))
        for i in list(numbers):
            values = _to_numbers(cells[i])
            if values is None:
                del numbers[i]
            else:
                numbers[i].append(values)
    texts: dict[int, list[str]] = {i: [] for i in range(width) if i not in numbers}
    if texts:
        for rows in _batches(text, width, has_header=has_header):
            for i, column in texts.items():
                column.extend(row[i].strip() for row in rows)
    columns: dict[int, Array] = {i: np.concatenate(parts) for i, parts in numbers.items()}
    notes = []
    for i, column in texts.items():
        columns[i], note = (_to_text(column), "") if i in kept_as_text else _to_typed(column, text.delimiter)
        if note:
            notes.append(f"column {names[i]!r}: {note}")
    return tuple(columns[i] for i in range(width)), tuple(notes)


def _batches(text: _Text, width: int, *, has_header: bool) -> Iterator[list[list[str]]]:
    rows = text.rows()
    if has_header:
        next(rows)
    while batch := list(islice(rows, max(1, _CELLS_PER_BATCH // width))):
        if set(map(len, batch)) != {width}:
            reader = text.reader()
            length = next(len(row) for row in reader if row and len(row) != width)
            name = _DELIMITER_NAMES.get(text.delimiter, text.delimiter)
            raise TableError(
                f"{text.source}, line {reader.line_num} has {length} cells where the first line has {width} (separated "
                f"by {name!r}). Fix the line, quote cells that contain the delimiter, or set another --delimiter."
            )
        yield batch


def _to_numbers(cells: Sequence[str]) -> Array | None:
    """Convert cells to float64, missing markers to NaN; None if a cell is not a number."""
    if "_" in "".join(cells):  # Python parses 1_000 as a number
        return None
    try:
        return np.array([np.nan if cell.strip() in MISSING_MARKERS else float(cell) for cell in cells])
    except ValueError:
        return None


def _to_typed(cells: Sequence[str], delimiter: str) -> tuple[Array, str]:
    """Convert cells that are not all numbers to booleans, dates, numbers with a decimal comma, or strings."""
    if all(cell in _BOOLEANS for cell in cells):
        return np.array([_BOOLEANS[cell] for cell in cells]), ""
    present = [cell for cell in cells if cell not in MISSING_MARKERS]
    if all(map(_ISO_DATE.fullmatch, present)):
        with suppress(ValueError):  # such as the 31st of June
            moments = [None if cell in MISSING_MARKERS else to_utc(datetime.fromisoformat(cell)) for cell in cells]
            return np.array(moments, dtype="datetime64[us]"), ""
    # Where semicolons separate columns, a comma inside a number is the decimal point of many countries.
    if delimiter == ";" and all(map(_DECIMAL_COMMA.fullmatch, present)):
        numbers = [np.nan if cell in MISSING_MARKERS else float(cell.replace(",", ".")) for cell in cells]
        return np.array(numbers), "the comma was read as the decimal point"
    return _to_text(cells), ""


def _to_text(cells: Sequence[str]) -> Array:
    return text_column([None if cell in MISSING_MARKERS else cell for cell in cells])
