"""Delimited text (CSV, TSV, ...): detect the encoding, the delimiter and the header, then the type of each column.

Large files are split into cells by pyarrow, block by block, so that neither the file nor a string for each cell is
held in memory. Small files, and those that pyarrow may misread, are split by Python, which also finds what is wrong
with a file. What texts mean is decided in ``coterie.tables.values``.
"""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, final

import numpy as np

from coterie.errors import TableError
from coterie.tables.readers.compression import is_compressed, read_bytes
from coterie.tables.table import Array, Table, column_position, from_columns, take_rows, unique_names
from coterie.tables.values import (
    MISSING_MARKERS,
    PLACEHOLDERS,
    UNTOLD_MARKERS,
    Codes,
    TypedColumn,
    infer_levels,
    is_value,
    keep_text,
    read_epochs,
    tell_gaps,
)

if TYPE_CHECKING:
    from _csv import Reader

DELIMITERS = ("\t", ";", "|", ",", " ")  # in the order in which they are tried; a space stands for any run of spaces
_DELIMITER_NAMES = {"\t": "tab", " ": "space"}
_ROWS_FOR_DELIMITER = 200
_ROWS_FOR_HEADER = 1000
_MIN_WIDTH_BELOW_TITLES = 3  # columns that a table needs for the lines above it to be recognised
_MOST_ROWS_ABOVE = 30
_CELLS_PER_BATCH = 500_000
_BYTES_FOR_ARROW = 2**20  # smaller files are read before pyarrow is imported
_BYTES_PER_BLOCK = 2**22
_BYTES_PER_CHUNK = 2**20
_LONGEST_QUOTE = 2**26
_CONTROL_CHARACTERS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))
_ASCII = bytes(range(0x80))
_WINDOWS_CHARACTERS = bytes(range(0x80, 0xA0))  # characters of Windows-1252, but control codes of Latin-1
_ONLY_LATIN_1 = b"\x81\x8d\x8f\x90\x9d"


@final
@dataclass(frozen=True)
class _Text:
    """The bytes of a text table, their encoding and delimiter."""

    open: Callable[[], IO[bytes]]
    n_bytes: int
    source: str
    encoding: str = "utf-8-sig"
    delimiter: str = ","
    has_quotes: bool = True  # False if it is known to have none
    n_skipped: int = 0  # lines above the table, which `open` leaves out

    def chunks(self) -> Iterator[bytes]:
        with self.open() as file:
            while chunk := file.read(_BYTES_PER_CHUNK):
                yield chunk

    def lines(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self.open(), encoding=self.encoding, newline="")

    def reader(self, lines: io.TextIOWrapper) -> "Reader":
        stripped = (line.strip() for line in lines) if self.delimiter == " " else lines
        return csv.reader(stripped, delimiter=self.delimiter, skipinitialspace=True, strict=True)

    def rows(self) -> Iterator[list[str]]:
        """Yield the cells of each row except blank lines; an unbalanced quote raises an error with its line number."""
        with self.lines() as lines:
            reader = self.reader(lines)
            try:
                yield from filter(None, reader)
            except csv.Error as error:
                raise TableError(
                    f"{self.source}, line {self.n_skipped + reader.line_num}: {error}. "
                    "Check whether a quote is missing or superfluous."
                ) from error


def read_delimited(
    path: Path, header: bool | None = None, delimiter: str | None = None, as_text: Sequence[str] = ()
) -> Table:
    """Read a text file, which may be compressed; .tsv files are separated by tabs."""
    if delimiter is None and ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]:
        delimiter = "\t"
    if is_compressed(path) or not path.is_file():  # a pipe can be read only once
        return parse_delimited(read_bytes(path), source=path.name, header=header, delimiter=delimiter, as_text=as_text)
    text = _Text(lambda: path.open("rb"), path.stat().st_size, path.name)
    return _parse(text, header=header, delimiter=delimiter, as_text=as_text)


def parse_delimited(
    data: bytes, *, source: str, header: bool | None = None, delimiter: str | None = None, as_text: Sequence[str] = ()
) -> Table:
    """Parse a text table; the table's notes say what was detected."""
    text = _Text(partial(io.BytesIO, data), len(data), source)
    return _parse(text, header=header, delimiter=delimiter, as_text=as_text)


def _parse(text: _Text, *, header: bool | None, delimiter: str | None, as_text: Sequence[str]) -> Table:
    text, notes = _detect_encoding(text)
    text = replace(text, delimiter=_detect_delimiter(text) if delimiter is None else _parse_delimiter(delimiter))
    sample = list(islice(text.rows(), _ROWS_FOR_HEADER))
    if header is not False and (n_above := _count_rows_above(sample)):
        text = _skip_rows(text, n_above)
        sample = sample[n_above:]
        notes = (*notes, f"{text.n_skipped} lines above the table were left out")
    source = text.source
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
    nothing = Table(names, (np.empty(0),) * width, named=has_header, source=source)
    kept_as_text = {position for name in as_text if (position := column_position(nothing, name)) is not None}
    row_bytes = sum(len(cell) + 1 for row in sample for cell in row) / len(sample)
    columns, block = _read_columns(text, _Layout(names, frozenset(kept_as_text), has_header, row_bytes))
    table = from_columns(names, columns, named=has_header, source=source)
    table = replace(table, notes=(*notes, *naming, *table.notes))
    if block is not None:
        table = replace(table, columns=(), block=block)
    n_empty = _count_empty_rows_below(text)
    if not 0 < n_empty < table.n_rows:
        return table
    table = take_rows(table, np.arange(table.n_rows - n_empty))
    what = "an empty row" if n_empty == 1 else f"{n_empty:,} empty rows"
    return replace(table, notes=(*table.notes, f"{what} below the table left out"))


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


def _detect_encoding(text: _Text) -> tuple[_Text, tuple[str, ...]]:
    """Return the text with its encoding, and notes; UTF-16 is converted to UTF-8."""
    with text.open() as file:
        head = file.read(2**16)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with text.open() as file:
            data = file.read()
        try:
            converted = data.decode("utf-16").encode()
        except UnicodeDecodeError:
            pass
        else:
            text = replace(text, open=partial(io.BytesIO, converted), n_bytes=len(converted))
            return text, ("the file is in UTF-16",)
    if b"\0" in head or len(head.translate(None, _CONTROL_CHARACTERS)) < 0.98 * len(head):
        raise TableError(f"{text.source} is not a text table: it contains binary data. Check its ending.")
    is_utf_8, has_quotes = _scan(text)
    if not is_utf_8:
        found = {byte for chunk in text.chunks() for byte in set(chunk.translate(None, _ASCII))}
        if found.intersection(_WINDOWS_CHARACTERS) and not found.intersection(_ONLY_LATIN_1):
            return replace(text, encoding="cp1252"), ("the file is not in UTF-8; it was read as Windows-1252",)
        return replace(text, encoding="latin-1"), ("the file is not in UTF-8; it was read as Latin-1",)
    return replace(text, has_quotes=has_quotes), ()


def _scan(text: _Text) -> tuple[bool, bool]:
    """Return whether a text is in UTF-8, and whether it has quotes."""
    decoder, has_quotes = codecs.getincrementaldecoder("utf-8")(), False
    try:
        for chunk in text.chunks():
            has_quotes = has_quotes or b'"' in chunk
            if decoder.getstate()[0] or not chunk.isascii():
                decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False, True
    return True, has_quotes


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
    if any(map(is_value, first)):
        return False
    if all(cell in MISSING_MARKERS for cell in first):
        return False
    if len(sample) == 1:
        return True
    for i, name in enumerate(first):
        values = [cell for cell in _cells_below(sample, i) if cell not in MISSING_MARKERS]
        if name not in MISSING_MARKERS and values and sum(map(is_value, values)) > 0.5 * len(values):
            return True
    # In a table of texts, names are distinct, and none is a value of its own column.
    distinct = len(set(first)) == len(first)
    return distinct and all(name not in _cells_below(sample, i) for i, name in enumerate(first))


def _count_rows_above(sample: Sequence[Sequence[str]]) -> int:
    """Count the rows above the header: titles and remarks, which have few cells, as programs write them.

    A header of one cell less than the rows below it is none of these: the first column may have no name.
    """
    width = Counter(map(len, sample)).most_common(1)[0][0] if sample else 0
    if width < _MIN_WIDTH_BELOW_TITLES:
        return 0
    written = [sum(bool(cell.strip()) for cell in row) for row in sample]
    start = next((i for i, n in enumerate(written) if n > width // 2), 0)
    if not 0 < start < len(sample) - 1 or start > _MOST_ROWS_ABOVE:
        return 0
    header = [cell.strip() for cell in sample[start]]
    # Rows with missing values, unlike titles, have the cells of the others.
    are_titles = any(len(row) < width for row in sample[:start])
    is_header = all(header) and not any(map(is_value, header))
    return start if len(header) == width and (are_titles or is_header) else 0


def _skip_rows(text: _Text, n_rows: int) -> _Text:
    """Return a text without its first rows."""
    with text.lines() as lines:
        reader = text.reader(lines)
        n_lines = 0
        for row in reader:  # blank lines are no rows
            n_rows -= bool(row)
            if n_rows < 0:
                break
            n_lines = reader.line_num
    encoding = "utf-8" if text.encoding == "utf-8-sig" else text.encoding
    with text.open() as file, text.lines() as lines:
        mark = len(codecs.BOM_UTF8) if file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8 else 0
        n_bytes = mark + sum(len(line.encode(encoding)) for line in islice(lines, n_lines))

    def open_below(opened: Callable[[], IO[bytes]] = text.open) -> IO[bytes]:
        file = opened()
        file.seek(n_bytes)
        return file

    return replace(text, open=open_below, n_bytes=text.n_bytes - n_bytes, n_skipped=n_lines)


def _count_empty_rows_below(text: _Text) -> int:
    """Count the rows at the end that have delimiters only, as spreadsheets write them."""
    with text.open() as file:
        file.seek(max(0, text.n_bytes - _BYTES_PER_CHUNK), io.SEEK_CUR)
        lines = file.read().splitlines()
    n_empty = 0
    for line in reversed(lines):
        if line.strip(text.delimiter.encode() + b' "'):
            break
        n_empty += bool(line.strip())
    return n_empty


def _cells_below(sample: Sequence[Sequence[str]], position: int) -> list[str]:
    return [row[position].strip() for row in sample[1:] if position < len(row)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


# Columns


@final
@dataclass(frozen=True)
class _Layout:
    """What is known of a text table before its rows are read."""

    names: tuple[str, ...]
    kept_as_text: frozenset[int]
    has_header: bool
    row_bytes: float  # about, according to the first rows

    @property
    def width(self) -> int:
        return len(self.names)


def _read_columns(text: _Text, layout: _Layout) -> tuple[list[TypedColumn], Array | None]:
    """Return the columns, and all as one block if they are numbers."""
    decimal_comma = True if text.delimiter == ";" else None  # as in the exports of many countries
    cells, block = _read_by_arrow(text, layout) or (_read_by_python(text, layout), None)
    columns = []
    for i, name in enumerate(layout.names):
        each, cells[i] = cells[i], _Cells()  # to free its memory
        if each.numbers is not None:
            epochs = read_epochs(each.numbers, name) or TypedColumn(each.numbers)
            columns.append(TypedColumn(epochs.values, (*each.describe_gaps(), *epochs.notes)))
        elif i in layout.kept_as_text:
            columns.append(keep_text(*each.texts()))
        else:
            columns.append(infer_levels(*each.texts(), name=name, decimal_comma=decimal_comma))
    if any(column.values.dtype != np.float64 for column in columns):
        return columns, None
    if block is None or not all(np.may_share_memory(column.values, block) for column in columns):
        block = np.column_stack([column.values for column in columns])
    return columns, block


def _no_texts() -> tuple[list[str], Codes]:
    return [], np.empty(0, dtype=np.int32)


@final
@dataclass
class _Cells:
    """The cells of one column: numbers, or the distinct texts and which of them each cell has."""

    numbers: Array | None = None
    gaps: Counter[str] = field(default_factory=Counter)  # placeholders among the numbers
    texts: Callable[[], tuple[list[str], Codes]] = _no_texts

    def describe_gaps(self) -> list[str]:
        told = {text: count for text, count in self.gaps.items() if text not in UNTOLD_MARKERS}
        n_numbers = 0 if self.numbers is None else len(self.numbers) - int(np.isnan(self.numbers).sum())
        return tell_gaps(n_numbers, told)


def _read_by_python(text: _Text, layout: _Layout) -> list[_Cells]:
    positions: list[dict[str, int]] = [{} for _ in layout.names]
    codes: list[list[Codes]] = [[] for _ in layout.names]
    for rows in _batches(text, layout):
        for known, parts, cells in zip(positions, codes, zip(*rows, strict=True), strict=True):
            found = (known.setdefault(cell, len(known)) for cell in cells)
            parts.append(np.fromiter(found, dtype=np.int32, count=len(cells)))
    return [_Cells(texts=partial(_join_codes, *both)) for both in zip(positions, codes, strict=True)]


def _join_codes(positions: dict[str, int], codes: list[Codes]) -> tuple[list[str], Codes]:
    return list(positions), np.concatenate(codes)


def _batches(text: _Text, layout: _Layout) -> Iterator[list[list[str]]]:
    rows, width = text.rows(), layout.width
    if layout.has_header:
        next(rows)
    while batch := list(islice(rows, max(1, _CELLS_PER_BATCH // width))):
        if set(map(len, batch)) != {width}:
            with text.lines() as lines:
                reader = text.reader(lines)
                length = next(len(row) for row in reader if row and len(row) != width)
            name = _DELIMITER_NAMES.get(text.delimiter, text.delimiter)
            raise TableError(
                f"{text.source}, line {text.n_skipped + reader.line_num} has {length} cells where line "
                f"{text.n_skipped + 1} has {width} (separated "
                f"by {name!r}). Fix the line, quote cells that contain the delimiter, or set another --delimiter."
            )
        yield batch


# Large files


def _read_by_arrow(text: _Text, layout: _Layout) -> tuple[list[_Cells], Array] | None:
    """Read the cells by pyarrow, and the array that has those of numbers.

    None if the file is small, or if pyarrow may split it in another way than Python.
    """
    if text.n_bytes < _BYTES_FOR_ARROW or len(text.delimiter.encode()) > 1:
        return None
    if text.has_quotes and (text.delimiter == " " or not _quotes_are_regular(text)):
        return None
    if text.delimiter == " ":
        text = _squeeze_spaces(text)
    import pyarrow as pa  # noqa: PLC0415  (slow to import, and small files do not need it)

    collected = _Collected(layout, int(1.02 * text.n_bytes / layout.row_bytes) + 1)
    try:
        for columns in _read_ahead(_arrow_blocks(text, layout, range(layout.width))):
            collected.add(columns)
        if again := collected.unclear(text.delimiter):
            for columns in _arrow_blocks(text, layout, again):
                collected.add_texts(again, columns)
    except pa.ArrowInvalid:  # Python finds out what is wrong, and where
        return None
    return collected.cells(), collected.block


def _read_ahead(blocks: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """Yield blocks, the next of which is split into cells by a thread while one is converted."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, blocks, None)
        while (block := following.result()) is not None:
            following = thread.submit(next, blocks, None)
            yield block


@final
class _Collected:
    """Columns that are read block by block: plain numbers in one array, the others as texts with a dictionary."""

    def __init__(self, layout: _Layout, n_rows: int) -> None:
        self._block = np.empty((n_rows, layout.width), order="F")  # columns that are not written take no memory
        self._n_rows = 0
        self._gaps = [Counter[str]() for _ in layout.names]
        self._texts: dict[int, list[Any]] = {i: [] for i in layout.kept_as_text}
        self._lost = set[int]()  # columns that were numbers until a text was found
        self._may_be_codes = set(range(layout.width))  # columns of integers, which may be postcodes, for example

    def add(self, columns: Sequence[Any]) -> None:
        """Add the next rows."""
        start, self._n_rows = self._n_rows, self._n_rows + len(columns[0])
        if self._n_rows > len(self._block):
            self._enlarge(start)
        for i, column in enumerate(columns):
            if i in self._texts:
                self.add_texts([i], [column])
            elif i not in self._lost:
                numbers = self._to_numbers(i, column)
                if numbers is not None:
                    self._block[start : self._n_rows, i] = numbers
                elif start:
                    self._lost.add(i)
                else:
                    self.add_texts([i], [column])

    def _to_numbers(self, i: int, column: Any) -> Array | None:
        numbers = _to_numbers(column, self._gaps[i])
        if numbers is None or i not in self._may_be_codes:
            return numbers
        if (numbers != np.rint(numbers)).sum() > np.isnan(numbers).sum():
            self._may_be_codes.remove(i)
            return numbers
        return None if _may_be_codes(column) else numbers

    def add_texts(self, positions: Sequence[int], columns: Sequence[Any]) -> None:
        """Add the next rows of some columns as texts."""
        for i, column in zip(positions, columns, strict=True):
            self._texts.setdefault(i, []).append(column.dictionary_encode())

    def unclear(self, delimiter: str) -> list[int]:
        """Return the columns that must be read again, as texts, to decide what they mean."""
        return [
            i
            for i, gaps in enumerate(self._gaps)
            if i not in self._texts
            and (i in self._lost or _is_unclear(self.block[:, i], gaps, semicolons=delimiter == ";"))
        ]

    @property
    def block(self) -> Array:
        """The array that has all columns of numbers."""
        return self._block[: self._n_rows]

    def cells(self) -> list[_Cells]:
        """Return all columns."""
        return [
            _Cells(texts=partial(_join_dictionaries, self._texts[i]))
            if i in self._texts
            else _Cells(self.block[:, i], gaps)
            for i, gaps in enumerate(self._gaps)
        ]

    def _enlarge(self, n_rows: int) -> None:
        smaller = self._block
        self._block = np.empty((max(self._n_rows, len(smaller) * 3 // 2), smaller.shape[1]), order="F")
        for i in set(range(smaller.shape[1])) - self._texts.keys() - self._lost:
            self._block[:n_rows, i] = smaller[:n_rows, i]


def _is_unclear(numbers: Array, gaps: Counter[str], *, semicolons: bool) -> bool:
    """Return whether cells that are plain numbers may mean something else."""
    n_placeholders = sum(count for text, count in gaps.items() if text not in MISSING_MARKERS)
    if n_placeholders and n_placeholders > len(numbers) - np.isnan(numbers).sum():
        return True
    if not semicolons:
        return False
    # There, 1.234 may be a thousand: whether all numbers could be that.
    thousandfold = 1000 * np.abs(numbers[np.isfinite(numbers)])
    return bool((thousandfold < 1e6).all() and (np.abs(thousandfold - np.rint(thousandfold)) < 1e-6).all())


def _arrow_blocks(text: _Text, layout: _Layout, wanted: Sequence[int]) -> Iterator[list[Any]]:
    """Yield blocks of rows as Arrow arrays of strings, one per wanted column; missing markers of programs are null."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv as arrow_csv  # noqa: PLC0415

    names = [str(i) for i in range(layout.width)]
    encoding = "utf8" if text.encoding == "utf-8-sig" else text.encoding
    with text.open() as file:
        batches = arrow_csv.open_csv(
            file,
            arrow_csv.ReadOptions(
                column_names=names, block_size=_BYTES_PER_BLOCK, encoding=encoding, use_threads=False
            ),
            arrow_csv.ParseOptions(delimiter=text.delimiter, newlines_in_values=text.has_quotes),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[names[i] for i in wanted],
                null_values=sorted(UNTOLD_MARKERS & MISSING_MARKERS),
                strings_can_be_null=True,
                check_utf8=False,  # that was done when the encoding was detected
            ),
        )
        n_skipped = int(layout.has_header)
        for batch in batches:
            rows = batch.slice(n_skipped)
            n_skipped = max(0, n_skipped - len(batch))
            yield rows.columns


def _to_numbers(column: Any, gaps: Counter[str]) -> Array | None:
    """Convert plain numbers, and count placeholders among them; None if a cell may have another meaning."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import compute  # noqa: PLC0415

    numbers: Array | None = None
    with suppress(pa.ArrowInvalid):
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if numbers is None or np.isnan(numbers).sum() > column.null_count:
        column = compute.utf8_trim_whitespace(column)
        is_gap = compute.is_in(column, pa.array(sorted(PLACEHOLDERS | MISSING_MARKERS)))
        found = column.filter(is_gap).to_pylist()
        column = compute.if_else(is_gap, None, column)
        try:
            numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None
        gaps.update(found)
    return None if np.isnan(numbers).sum() > column.null_count else numbers


def _may_be_codes(part: Any) -> bool:
    """Return whether a cell begins with a plus, or a zero and one more digit, as phone numbers and postcodes do."""
    _, offsets, data = part.buffers()
    if data is None or not len(part):
        return False
    edges = np.frombuffer(offsets, dtype=np.int32)[part.offset : part.offset + len(part) + 1]
    text = np.frombuffer(data, dtype=np.uint8)
    starts = edges[:-1][np.diff(edges) > 1]
    first, second = text[starts], text[starts + 1]
    return bool(((first == ord("+")) | ((first == ord("0")) & (second >= ord("0")) & (second <= ord("9")))).any())


def _join_dictionaries(parts: list[Any]) -> tuple[list[str], Codes]:
    """Return the distinct texts of dictionary arrays, and the position of each cell's text; -1 is null."""
    import pyarrow as pa  # noqa: PLC0415

    chunks = pa.chunked_array(parts).unify_dictionaries().chunks
    parts.clear()
    codes = np.concatenate([chunk.indices.fill_null(-1).to_numpy() for chunk in chunks])
    return chunks[0].dictionary.to_pylist(), codes.astype(np.int32, copy=False)


def _quotes_are_regular(text: _Text) -> bool:
    """Return whether each quoted cell begins and ends where cells do; else Python and pyarrow may differ."""
    if _quotes_alternate(text):
        return True
    edge = re.escape(text.delimiter).encode() + rb"\r\n"
    # Quotes inside a cell that is not quoted mean themselves; after a space, Python lets them begin a quoted cell.
    regular = re.compile(
        rb'(?:[^"]++|(?<=[' + edge + rb'])"(?:[^"]++|"")*+"(?=[' + edge + rb"])|(?<![ " + edge + rb'])")*+'
    )
    rest = b"\n"  # what is not checked yet, after the character before it
    for chunk in chain(text.chunks(), [b"\n"]):
        if len(rest) == 1 and b'"' not in chunk:
            rest = chunk[-1:]
            continue
        rest += chunk.removeprefix(codecs.BOM_UTF8)
        match = regular.match(rest, 1)
        rest = rest[match.end() - 1 :] if match else rest
        if len(rest) > _LONGEST_QUOTE:
            break
    return len(rest) == 1


def _quotes_alternate(text: _Text) -> bool:
    """Return whether quotes open where cells begin and close where they end, in turn: a quick check of most files."""
    is_edge = np.zeros(256, dtype=np.bool_)
    is_edge[[ord("\r"), ord("\n"), ord(text.delimiter)]] = True
    rest, n_quotes = b"\n", 0  # the last two bytes: the neighbour of one that is not checked yet
    for chunk in chain(text.chunks(), [b"\n\n"]):
        data = np.frombuffer(rest + chunk.removeprefix(codecs.BOM_UTF8), dtype=np.uint8)
        quotes = np.flatnonzero(data[1:-1] == ord('"')) + 1
        opening, closing = quotes[n_quotes % 2 :: 2], quotes[1 - n_quotes % 2 :: 2]
        if not (is_edge[data[opening - 1]].all() and is_edge[data[closing + 1]].all()):
            return False
        n_quotes += len(quotes)
        rest = data[-2:].tobytes()
    return n_quotes % 2 == 0


def _squeeze_spaces(text: _Text) -> _Text:
    """Return the text with one space between cells, and none around lines."""
    data = re.sub(rb" {2,}", b" ", b"".join(text.chunks()))
    data = re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)", b"", data)
    return replace(text, open=partial(io.BytesIO, data), n_bytes=len(data))
