"""Sheets of Excel and OpenDocument files: find the table between titles, empty rows and remarks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeAlias, final

from coterie.errors import EmptyTableError, TableError, import_extra
from coterie.tables.readers.delimited import numbered_names
from coterie.tables.readers.objects import from_objects
from coterie.tables.table import Table, format_list

Cell: TypeAlias = object  # a number, text, boolean, date or time; None if it is empty
Row: TypeAlias = list[Cell]

_YEARS = range(1900, 2101)  # numbers that may be the names of columns
_ENOUGH_ROWS = 2  # a sheet with two columns and this many rows is taken without looking at the others


class _Merged(NamedTuple):
    """A range of merged cells: its first and last row and column. Only the first cell has a value."""

    top: int
    left: int
    bottom: int
    right: int


@final
@dataclass(frozen=True)
class _Sheet:
    """The cells of a sheet, between its first and its last row and column that have any."""

    rows: list[Row]
    merged: list[_Merged]

    @property
    def width(self) -> int:
        return len(self.rows[0]) if self.rows else 0

    def groups(self, row: int) -> list[_Merged]:
        """Return the ranges that start in a row and span several columns, but not all of them."""
        return [each for each in self.merged if each.top == row and 0 < each.right - each.left < self.width - 1]


@final
@dataclass(frozen=True)
class _Found:
    """A table in a sheet: the names of its columns, None without a header, and its rows."""

    names: tuple[str, ...] | None
    rows: list[Row]
    notes: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.rows[0])


def read_workbook(path: Path, header: bool | None = None, table: str | None = None) -> Table:
    """Read a sheet of a workbook, by default the first one that has a table.

    Formula errors such as #N/A are gaps. Titles above the table and remarks below it are skipped with a note.
    """
    calamine = import_extra("python_calamine", extra="excel", purpose="Excel files need python-calamine")
    try:
        with calamine.CalamineWorkbook.from_path(path) as workbook:
            found, notes = _read_sheet(workbook, path.name, header, table)
    except calamine.PasswordError as error:
        raise TableError(f"{path.name} is protected by a password. Save it without one.") from error
    except BaseException as error:
        # The library stops by an exception of Rust, which is no Exception, at what it does not expect.
        if not isinstance(error, calamine.CalamineError) and type(error).__name__ != "PanicException":
            raise
        raise TableError(f"{path.name} cannot be read as a workbook: {error}. Save it again as .xlsx.") from error
    names = numbered_names(found.width) if found.names is None else found.names
    if found.names is None and header is None:
        notes = (*notes, "no header was found; the columns are numbered from column_1")
    columns = list(zip(*found.rows, strict=True))
    result = from_objects(names, columns, source=path.name, notes=(*notes, *found.notes))
    return replace(result, named=found.names is not None)


def _read_sheet(workbook: Any, source: str, header: bool | None, given: str | None) -> tuple[_Found, Sequence[str]]:
    """Return the table of a sheet, and a note about the others if the sheet was not given."""
    sheets = [each for each in workbook.sheets_metadata if str(each.typ).endswith("WorkSheet")]
    visible = [each.name for each in sheets if str(each.visible).endswith("Visible")]
    names = visible or [each.name for each in sheets]
    if given is not None:
        by_case = {each.name.casefold(): each.name for each in sheets}
        name = by_case.get(given.casefold())
        if name is None:
            raise TableError(f"{source} has no sheet {given!r}. It has {format_list(names, 30)}.")
        found = _find_table(_load(workbook, name), header)
        if found is None:
            raise EmptyTableError(f"The sheet {name!r} of {source} has no rows below a header. Choose another sheet.")
        return found, ()
    small: tuple[str, _Found] | None = None
    for name in names:
        found = _find_table(_load(workbook, name), header)
        if found is not None and found.width > 1 and len(found.rows) >= _ENOUGH_ROWS:
            return found, _name_others(name, names, source)
        if found is not None and small is None:
            small = name, found
    if small is None:
        raise EmptyTableError(f"{source} has no sheet with rows below a header. Its sheets are {format_list(names)}.")
    return small[1], _name_others(small[0], names, source)


def _name_others(name: str, names: Sequence[str], source: str) -> Sequence[str]:
    others = [other for other in names if other != name]
    if not others:
        return ()
    return (f"the sheet {name!r} was read; others are chosen by name, such as '{source}::{others[0]}'",)


def _load(workbook: Any, name: str) -> _Sheet:
    sheet = workbook.get_sheet_by_name(name)
    top, left = sheet.start or (0, 0)
    merged = [
        _Merged(first[0] - top, first[1] - left, last[0] - top, last[1] - left)
        for first, last in sheet.merged_cell_ranges or ()
    ]
    return _Sheet([[_clean(cell) for cell in row] for row in sheet.to_python(skip_empty_area=True)], merged)


def _clean(cell: object) -> Cell:
    if isinstance(cell, str):
        return cell.strip() or None
    return cell.total_seconds() if isinstance(cell, timedelta) else cell


def _find_table(sheet: _Sheet, header: bool | None) -> _Found | None:
    """Find the rows of the table in a sheet; None if there are none."""
    rows = sheet.rows
    limits = _find_limits([sum(cell is not None for cell in row) for row in rows])
    if limits is None:
        return None
    top, bottom = limits
    names, start, end = _find_header(sheet, top, bottom, header)
    headings = _fill_merged(sheet, end, bottom)
    kept = [i for i in range(end, bottom) if i not in headings and any(cell is not None for cell in rows[i])]
    body = [rows[i] for i in kept]
    if not body:
        return None
    used = [i for i in range(sheet.width) if (names and names[i]) or any(row[i] is not None for row in body)]
    empty = bottom - end - len(kept) - len(headings)
    notes = [
        _describe("above the table", rows[:start]),
        _describe("between the rows", [rows[i] for i in sorted(headings)]),
        _describe("below the table", rows[bottom:]),
        f"{empty:,} empty {'row was' if empty == 1 else 'rows were'} skipped" if empty else "",
    ]
    return _Found(
        None if names is None else tuple(names[i] for i in used),
        [[row[i] for i in used] for row in body],
        tuple(filter(None, notes)),
    )


def _describe(where: str, rows: Sequence[Row]) -> str:
    texts = [_to_name(cell) for row in rows for cell in row if cell is not None]
    return f"skipped {where}: {format_list(texts, 3)}" if texts else ""


def _find_limits(counts: Sequence[int]) -> tuple[int, int] | None:
    """Return the first row of a table and the row after its last, from the number of cells in each row.

    Rows between empty rows are a block. The block with most cells is part of the table, and others that are as wide;
    narrower ones are titles and remarks.
    """
    blocks = [
        [i for i, _ in group] for filled, group in groupby(enumerate(counts), key=lambda each: each[1] > 0) if filled
    ]
    if not blocks:
        return None
    widths = [median(counts[i] for i in block) for block in blocks]
    largest = max(range(len(blocks)), key=lambda number: sum(counts[i] for i in blocks[number]))
    typical = widths[largest]
    first = next(block for block, width in zip(blocks, widths, strict=True) if width >= 0.75 * typical)
    wide = [block for block, width in zip(blocks, widths, strict=True) if width > typical / 2]
    return next(i for i in first if counts[i] > typical / 2), wide[-1][-1] + 1


def _find_header(sheet: _Sheet, top: int, bottom: int, header: bool | None) -> tuple[list[str] | None, int, int]:
    """Return the names of the columns, the first row of the header, and the first row of the data."""
    rows = sheet.rows
    if header is False or not (header or _has_names(rows[top])):
        return None, top, top
    start = top - 1 if top > 0 and sheet.groups(top - 1) else top
    end = top + 1
    if start == top and sheet.groups(top) and end < bottom and _has_names(rows[end]):
        end += 1
    for each in sheet.merged:
        if start <= each.top < end:
            _fill(rows, each._replace(bottom=min(each.bottom, end - 1)))
    names = []
    for i in range(sheet.width):
        texts = [_to_name(rows[row][i]) for row in range(start, end) if rows[row][i] is not None]
        names.append(" ".join(dict.fromkeys(texts)))
    return names, start, end


def _has_names(row: Row) -> bool:
    """Return whether a row has names of columns: texts, or texts and distinct years or days."""
    cells = [cell for cell in row if cell is not None]
    others = [cell for cell in cells if not isinstance(cell, str)]
    if not others:
        return True
    moments = all(isinstance(cell, date) or (isinstance(cell, int | float) and cell in _YEARS) for cell in others)
    # The column of row names may have none.
    return moments and len(set(others)) == len(others) and (len(others) < len(cells) or row[0] is None)


def _to_name(cell: Cell) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime) and cell.time() == time():
        return cell.date().isoformat()
    return " ".join(str(cell).split())


def _fill_merged(sheet: _Sheet, start: int, end: int) -> set[int]:
    """Repeat the value of cells that are merged over several rows; return the rows that are headings between others."""
    headings = set()
    for each in sheet.merged:
        if not start <= each.top < end:
            continue
        if each.bottom > each.top:
            _fill(sheet.rows, each)
        elif each.right - each.left + 1 > sheet.width / 2:
            headings.add(each.top)
    return headings


def _fill(rows: list[Row], merged: _Merged) -> None:
    value = rows[merged.top][merged.left]
    for row in rows[merged.top : merged.bottom + 1]:
        row[merged.left : merged.right + 1] = [value] * (min(merged.right + 1, len(row)) - merged.left)
