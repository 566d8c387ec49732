"""Text tables (CSV and kin): find encoding, delimiter and header, then give every column its type."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, final

import numpy as np

from coterie.errors import TableError
from coterie.tables.table import Array, Table, column_position, unique_names

if TYPE_CHECKING:
    from _csv import Reader

#: Cells that say "no value", spaces around them aside.
MISSING_MARKERS = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?", "-"})
#: In the order in which they are tried; a space stands for any run of spaces.
DELIMITERS = ("\t", ";", "|", ",", " ")

_NAMES = {"\t": "tab", " ": "space"}
_ROWS_TO_CUT = 200
_ROWS_TO_TELL_HEADER = 1000
_CELLS_AT_ONCE = 500_000
_TRUTH_VALUES = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_ISO_DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,?\d+(?:[eE][+-]?\d+)?", re.ASCII)
_CONTROL_CHARACTERS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))


@final
@dataclass(frozen=True)
class _Layout:
    """A text table whose encoding and delimiter are known."""

    data: bytes
    source: str
    encoding: str
    delimiter: str = ","

    def lines(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(io.BytesIO(self.data), encoding=self.encoding, newline="")

    def reader(self) -> "Reader":
        spaced = self.delimiter == " "
        lines = (line.strip() for line in self.lines()) if spaced else self.lines()
        return csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True, strict=True)

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of each row, blank lines left out; a broken quote is refused with its line."""
        reader = self.reader()
        try:
            yield from filter(None, reader)
        except csv.Error as error:
            raise TableError(
                f"{self.source}, line {reader.line_num}: {error}; is a quote missing, or one too many?"
            ) from error


def parse_delimited(
    data: bytes,
    *,
    source: str,
    header: bool | None = None,
    delimiter: str | None = None,
    as_text: Sequence[str] = (),
) -> Table:
    """Read a text table; what is not given is found out and told in the table's notes."""
    encoding, notes = _encoding(data, source)
    layout = _Layout(data, source, encoding)
    layout = replace(layout, delimiter=_delimiter(layout) if delimiter is None else _one_character(delimiter))
    sample = list(islice(layout.rows(), _ROWS_TO_TELL_HEADER))
    if not sample:
        raise TableError(f"{source} is empty; a table needs at least one row")
    has_header = _has_header(sample) if header is None else header
    if has_header and len(sample) == 1:
        raise TableError(f"{source} has a header and no rows below it; if its one line is data, say so (no header)")
    width = len(sample[0])
    names, naming = unique_names(sample[0]) if has_header else (numbered_names(width), ())
    if not has_header and header is None:
        naming = ("no header was found; the columns are numbered from column_1",)
    if layout.delimiter != "," and delimiter is None:
        naming = (f"the columns are separated by {_NAMES.get(layout.delimiter, layout.delimiter)}", *naming)
    table = Table(names, (np.empty(0),) * width, named=has_header, notes=(*notes, *naming), source=source)
    kept_as_text = {position for name in as_text if (position := column_position(table, name)) is not None}
    block = None if kept_as_text else _numeric_block(layout, width, has_header=has_header)
    if block is not None:
        return replace(table, columns=(), block=block)
    columns, typing_notes = _columns(layout, names, kept_as_text, has_header=has_header)
    return replace(table, columns=columns, notes=(*table.notes, *typing_notes))


def numbered_names(width: int) -> tuple[str, ...]:
    """Name columns by their number, counting from 1."""
    return tuple(f"column_{number}" for number in range(1, width + 1))


def _encoding(data: bytes, source: str) -> tuple[str, tuple[str, ...]]:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and _decodes(data, "utf-16"):
        return "utf-16", ("the file is in UTF-16",)
    head = data[:65536]
    if b"\0" in head or len(head.translate(None, _CONTROL_CHARACTERS)) < 0.98 * len(head):
        raise TableError(f"{source} is not a text table: it holds binary data. Is its ending right?")
    if _decodes(data, "utf-8"):
        return "utf-8-sig", ()
    return "latin-1", ("the file is not in UTF-8; it was read as Latin-1",)


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _one_character(delimiter: str) -> str:
    character = {**{name: char for char, name in _NAMES.items()}, "\\t": "\t"}.get(delimiter, delimiter)
    if len(character) != 1 or character in '\r\n"':
        raise TableError(f"a delimiter is one character, or 'tab' or 'space'; got {delimiter!r}")
    return character


def _delimiter(layout: _Layout) -> str:
    """Take the first delimiter that cuts all lines into equally many cells, or else most of them."""
    best, best_share = ",", 0.0
    for delimiter in DELIMITERS:
        try:
            rows = list(islice(replace(layout, delimiter=delimiter).rows(), _ROWS_TO_CUT))
        except TableError:
            continue
        widths = Counter(map(len, rows))
        width, count = widths.most_common(1)[0] if widths else (1, 0)
        # Words are separated by spaces too: only rows of mostly numbers are cut at spaces.
        if width > 1 and (delimiter != " " or _share_of_numbers(rows[1:] or rows) > 0.5):
            share = count / len(rows)
            if share > best_share:
                best, best_share = delimiter, share
    return best


def _share_of_numbers(rows: Sequence[Sequence[str]]) -> float:
    cells = [cell for row in rows for cell in row]
    return sum(map(_is_number, cells)) / len(cells)


def _has_header(sample: Sequence[Sequence[str]]) -> bool:
    """Tell names from values: no number or date among them, and unlike the column below."""
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
    # A table of texts only: names are all different, and none is a value of its own column.
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


def _numeric_block(layout: _Layout, width: int, *, has_header: bool) -> Array | None:
    """Read a table of nothing but numbers by numpy's fast parser; None where it is not one."""
    try:
        block = np.loadtxt(
            layout.lines(),
            delimiter=None if layout.delimiter == " " else layout.delimiter,
            skiprows=int(has_header),
            comments=None,
            quotechar='"',
            ndmin=2,
        )
    except (ValueError, UnicodeError):
        return None
    return block if block.shape[1] == width and len(block) else None


def _columns(
    layout: _Layout, names: Sequence[str], kept_as_text: set[int], *, has_header: bool
) -> tuple[tuple[Array, ...], tuple[str, ...]]:
    """Read columns of any type: numbers in a first pass, the texts of all others in a second.

    Two passes, since a cell costs far less memory as a number than as a text.
    """
    width = len(names)
    numbers: dict[int, list[Array]] = {i: [] for i in range(width) if i not in kept_as_text}
    for rows in _batches(layout, width, has_header=has_header):
        cells = list(zip(*rows, strict=True))
        for i in list(numbers):
            values = _as_numbers(cells[i])
            if values is None:
                del numbers[i]
            else:
                numbers[i].append(values)
    texts: dict[int, list[str]] = {i: [] for i in range(width) if i not in numbers}
    if texts:
        for rows in _batches(layout, width, has_header=has_header):
            for i, column in texts.items():
                column.extend(row[i].strip() for row in rows)
    columns: dict[int, Array] = {i: np.concatenate(parts) for i, parts in numbers.items()}
    notes = []
    for i, column in texts.items():
        columns[i], note = (_text(column), "") if i in kept_as_text else _typed(column, layout.delimiter)
        if note:
            notes.append(f"column {names[i]!r}: {note}")
    return tuple(columns[i] for i in range(width)), tuple(notes)


def _batches(layout: _Layout, width: int, *, has_header: bool) -> Iterator[list[list[str]]]:
    rows = layout.rows()
    if has_header:
        next(rows)
    while batch := list(islice(rows, max(1, _CELLS_AT_ONCE // width))):
        if set(map(len, batch)) != {width}:
            raise TableError(_ragged(layout, width))
        yield batch


def _ragged(layout: _Layout, width: int) -> str:
    """Find the first line of another length than the first one."""
    reader = layout.reader()
    length = next(len(row) for row in reader if row and len(row) != width)
    name = _NAMES.get(layout.delimiter, layout.delimiter)
    return (
        f"{layout.source}, line {reader.line_num} has {length} cells where the first line has {width} "
        f"(separated by {name!r}); mend the line, quote cells that contain the separator, or name another one"
    )


def _as_numbers(cells: Sequence[str]) -> Array | None:
    """Convert cells to float64, missing markers to NaN; None where a cell is no number."""
    if "_" in "".join(cells):  # Python, unlike any table, reads 1_000 as a number
        return None
    for convert in (float, _number_or_missing):
        try:
            return np.array(list(map(convert, cells)), dtype=np.float64)
        except ValueError:
            continue
    return None


def _number_or_missing(cell: str) -> float:
    return np.nan if cell.strip() in MISSING_MARKERS else float(cell)


def _typed(cells: Sequence[str], delimiter: str) -> tuple[Array, str]:
    """Read cells that are not all numbers as booleans, dates, numbers with a decimal comma, or texts."""
    if all(cell in _TRUTH_VALUES for cell in cells):
        return np.array([_TRUTH_VALUES[cell] for cell in cells]), ""
    present = [cell for cell in cells if cell not in MISSING_MARKERS]
    if all(map(_ISO_DATE.fullmatch, present)):
        dates = _dates(cells)
        if dates is not None:
            return dates, ""
    # Where a semicolon separates, a comma inside of numbers is the decimal point of many countries.
    if delimiter == ";" and all(map(_DECIMAL_COMMA.fullmatch, present)):
        numbers = _as_numbers([cell.replace(",", ".") for cell in cells])
        if numbers is not None:
            return numbers, "the comma was read as the decimal point"
    return _text(cells), ""


def _text(cells: Sequence[str]) -> Array:
    column = np.empty(len(cells), dtype=object)
    column[:] = [None if cell in MISSING_MARKERS else cell for cell in cells]
    return column


def _dates(cells: Sequence[str]) -> Array | None:
    moments: list[datetime | None] = []
    for cell in cells:
        if cell in MISSING_MARKERS:
            moments.append(None)
            continue
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError:  # such as the 31st of June
            return None
        moments.append(moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None))
    return np.array(moments, dtype="datetime64[us]")
