"""Reading sheets of workbooks as people make them: titles, empty rows, merged cells, several sheets."""

import datetime as dt
import math
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pytest

from coterie.errors import MissingExtraError, TableError
from coterie.tables.readers import find_format, read_table
from coterie.tables.table import Table

DAY = dt.date(2024, 1, 31)
NOON = dt.datetime.fromisoformat("2023-05-03T12:00")
CUSTOMERS: list[list[object]] = [
    ["Kunden-Nr.", "Straße", "Umsatz (€)", "Fläche", "Eintritt", "Newsletter"],
    [1001, "Hauptstraße 5", 1250.5, 80, DAY, True],
    [1002, "Am Weiher 1", "#N/A", None, NOON, False],
    [1003, None, 310, 120.25, None, True],
]


def write(path: Path, **sheets: Sequence[Any]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    book.save(path)
    return path


def change(path: Path, edit: Any) -> Path:
    book = openpyxl.load_workbook(path)
    edit(book)
    book.save(path)
    return path


def values(table: Table, name: str) -> list[object]:
    return list(table.column(table.names.index(name)).tolist())


def test_a_sheet_of_customers(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "kunden.xlsx", Kunden=CUSTOMERS))
    assert table.names == tuple(map(str, CUSTOMERS[0]))
    assert table.kinds == ("number", "category", "number", "number", "date", "boolean")
    assert (table.source, table.named, table.notes) == ("kunden.xlsx", True, ())
    assert values(table, "Kunden-Nr.") == [1001, 1002, 1003]
    assert values(table, "Straße") == ["Hauptstraße 5", "Am Weiher 1", None]
    np.testing.assert_array_equal(table.column(2), [1250.5, math.nan, 310])
    assert table.column(4)[0] == np.datetime64("2024-01-31")
    assert table.column(4)[1] == np.datetime64("2023-05-03T12:00")
    assert np.isnat(table.column(4)[2])


def test_titles_remarks_and_empty_rows_and_columns_are_skipped(tmp_path: Path) -> None:
    shifted = [[None, None, *row] for row in CUSTOMERS]
    rows: list[list[object]] = [
        [],
        [None, None, "Umsatzbericht 2024"],
        [None, None, "Stand", DAY],
        [],
        *shifted[:2],
        [],
        *shifted[2:],
        [],
        [None, None, "Quelle: eigene Erhebung"],
    ]
    table = read_table(write(tmp_path / "bericht.xlsx", Bericht=rows))
    plain = read_table(write(tmp_path / "plain.xlsx", Kunden=CUSTOMERS))
    assert (table.names, table.kinds, table.n_rows) == (plain.names, plain.kinds, 3)
    assert list(table.notes) == [
        "skipped above the table: 'Umsatzbericht 2024', 'Stand', '2024-01-31'",
        "skipped below the table: 'Quelle: eigene Erhebung'",
        "1 empty row was skipped",
    ]


def test_the_first_sheet_with_a_table_or_the_named_one(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mappe.xlsx",
        Leer=[],
        Deckblatt=[["Umsatzbericht"], ["von Ann"]],
        Kunden=CUSTOMERS,
        Filialen=[["Ort", "Plätze"], ["Ulm", 10], ["Köln", 20]],
    )
    table = read_table(path)
    assert table.n_columns == 6
    assert "'Kunden' was read" in table.notes[0]
    assert "mappe.xlsx::Leer" in table.notes[0]
    assert read_table(f"{path}::Filialen").names == ("Ort", "Plätze")
    assert read_table(path, table="filialen").n_rows == 2
    assert read_table(f"{path}::Deckblatt").n_columns == 1
    with pytest.raises(TableError, match=r"no sheet 'Kasse'. It has 'Leer', 'Deckblatt', 'Kunden', 'Filialen'"):
        read_table(f"{path}::Kasse")
    with pytest.raises(TableError, match=r"'Leer'.*no rows"):
        read_table(f"{path}::Leer")


def test_hidden_sheets_are_read_only_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "m.xlsx", Alt=CUSTOMERS, Neu=[["a", "b"], [1, 2], [3, 4]])
    change(path, lambda book: setattr(book["Alt"], "sheet_state", "hidden"))
    table = read_table(path)
    assert (table.names, table.notes) == (("a", "b"), ())
    assert read_table(f"{path}::Alt").n_columns == 6


def test_merged_cells(tmp_path: Path) -> None:
    rows: list[Any] = [
        ["Absatz nach Region", None, None, None, None, None],
        ["Region", "Ort", 2023, None, 2024, None],
        [None, None, "Q1", "Q2", "Q1", "Q2"],
        ["Süd", "Ulm", 1, 2, 3, 4],
        [None, "Wangen", 5, 6, 7, 8],
        ["nur Filialen", None, None, None, None, None],
        ["Nord", "Kiel", 9, 1, 2, 3],
    ]
    path = write(tmp_path / "m.xlsx", Absatz=rows)

    def merge(book: Any) -> None:
        for cells in ("A1:F1", "A2:A3", "B2:B3", "C2:D2", "E2:F2", "A4:A5", "A6:F6"):
            book["Absatz"].merge_cells(cells)

    table = read_table(change(path, merge))
    assert table.names == ("Region", "Ort", "2023 Q1", "2023 Q2", "2024 Q1", "2024 Q2")
    assert values(table, "Region") == ["Süd", "Süd", "Nord"]
    assert values(table, "2023 Q2") == [2, 6, 1]
    assert "skipped above the table: 'Absatz nach Region'" in table.notes
    assert "skipped between the rows: 'nur Filialen'" in table.notes


def test_groups_of_columns_above_a_full_header(tmp_path: Path) -> None:
    rows: list[Any] = [
        [None, "Maße", None, "Preis", None],
        ["Artikel", "Höhe", "Breite", "netto", "brutto"],
        ["A", 1, 2, 3, 4],
        ["B", 2, 3, 4, 5],
    ]
    path = write(tmp_path / "m.xlsx", S=rows)
    table = read_table(change(path, lambda book: [book["S"].merge_cells(cells) for cells in ("B1:C1", "D1:E1")]))
    assert table.names == ("Artikel", "Maße Höhe", "Maße Breite", "Preis netto", "Preis brutto")
    assert table.n_rows == 2


def test_headers_with_gaps_repetitions_years_and_line_breaks(tmp_path: Path) -> None:
    rows: list[Any] = [[None, "Wert\n(mm)", "Wert (mm)", 2023, None], ["a", 1, 2, 3, None], ["b", 2, 3, 4, 5]]
    table = read_table(write(tmp_path / "h.xlsx", S=rows))
    assert table.names == ("column_1", "Wert (mm)", "Wert (mm)_2", "2023", "column_5")
    assert len(table.notes) == 2


def test_sheets_without_header(tmp_path: Path) -> None:
    path = write(tmp_path / "n.xlsx", S=[["a", 1.5, DAY], ["b", 2.5, DAY], ["c", 3.5, DAY]])
    table = read_table(path)
    assert (table.names, table.named, table.n_rows) == (("column_1", "column_2", "column_3"), False, 3)
    assert "no header was found" in table.notes[0]
    assert read_table(path, header=True).names == ("a", "1.5", "2024-01-31")
    path = write(tmp_path / "t.xlsx", S=[["a", "b"], ["c", "d"]])
    assert read_table(path).n_rows == 1
    assert (read_table(path, header=False).n_rows, read_table(path, header=False).notes) == (2, ())


def test_times_durations_and_texts_that_are_not_numbers(tmp_path: Path) -> None:
    rows: list[Any] = [
        ["Beginn", "Dauer", "PLZ", "Menge"],
        [dt.time(14, 30), dt.timedelta(hours=30), "01067", 1],
        [None, None, "70173", "k.A."],
    ]
    table = read_table(write(tmp_path / "z.xlsx", S=rows))
    assert values(table, "Dauer")[0] == 30 * 3600
    assert table.column(0)[0] is not None
    assert table.n_rows == 2


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "x.xlsx"), (b"PK\3\4 not a workbook" * 9, "x.xlsx"), (b"a;b\n1;2\n", "x.xlsx")]
)
def test_damaged_workbooks(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.xlsx").write_bytes(content)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "x.xlsx")


def test_truncated_workbooks(tmp_path: Path) -> None:
    whole = write(tmp_path / "x.xlsx", Kunden=CUSTOMERS).read_bytes()
    for length in range(1, len(whole), len(whole) // 40):
        (tmp_path / "x.xlsx").write_bytes(whole[:length])
        with pytest.raises(TableError, match=r"x\.xlsx"):
            read_table(tmp_path / "x.xlsx")


def test_panics_of_the_library_are_errors_and_interrupts_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x.xlsx", Kunden=CUSTOMERS)
    for raised, expected in ((type("PanicException", (BaseException,), {}), TableError), (KeyboardInterrupt,) * 2):

        def fail(*_: Any, raised: Any = raised) -> None:
            raise raised("range start index 7 out of range")

        monkeypatch.setattr("coterie.tables.readers.spreadsheets._read_sheet", fail)
        with pytest.raises(expected, match="out of range"):
            read_table(path)


def test_workbooks_without_any_table(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="'Leer'"):
        read_table(write(tmp_path / "x.xlsx", Leer=[]))
    with pytest.raises(TableError, match=r"no sheet with rows"):
        read_table(write(tmp_path / "x.xlsx", Kopf=[["a", "b", "c"]]))


def test_opendocument(tmp_path: Path) -> None:
    def cell(value: object) -> str:
        if isinstance(value, str):
            return f'<table:table-cell office:value-type="string"><text:p>{value}</text:p></table:table-cell>'
        if isinstance(value, dt.date):
            return f'<table:table-cell office:value-type="date" office:date-value="{value}"/>'
        return f'<table:table-cell office:value-type="float" office:value="{value}"/>'

    rows: list[Any] = [["Ort", "Plätze", "Tag"], ["Ulm", 10, DAY], ["Köln", 2.5, DAY]]
    body = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in rows)
    urn = "urn:oasis:names:tc:opendocument:xmlns:"
    spaces = " ".join(f'xmlns:{name}="{urn}{name}:1.0"' for name in ("office", "table", "text"))
    with zipfile.ZipFile(tmp_path / "f.ods", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", '<manifest:manifest xmlns:manifest="urn:m"/>')
        archive.writestr(
            "content.xml",
            f'<?xml version="1.0"?><office:document-content {spaces}><office:body><office:spreadsheet>'
            f'<table:table table:name="Filialen">{body}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
    table = read_table(tmp_path / "f.ods")
    assert (table.names, table.kinds) == (("Ort", "Plätze", "Tag"), ("category", "number", "date"))
    assert values(table, "Ort") == ["Ulm", "Köln"]


def test_missing_calamine_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.xlsx", S=CUSTOMERS)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(MissingExtraError, match=r"coterie\[excel\]"):
        read_table(path)


def test_endings_with_a_sheet() -> None:
    for name in ("a.XLSX", "a.xlsm::Blatt 1", "a.xls", "a.b.ods::x::y"):
        found = find_format(name)
        assert found is not None
        assert found.has_tables
