"""Reading files of every format, damaged files included, and writing them atomically."""

import csv
import gzip
import io
import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_wine

from coterie.errors import InputError, OutputError, TableError
from coterie.files import write_atomically
from coterie.tables.readers import FORMATS, Format, delimited, example_path, find_format, read_table, write_table
from coterie.tables.table import Table, as_table, text_column
from coterie.tables.values import MISSING_MARKERS


def read_text(text: str | bytes, **options: Any) -> Table:
    data = text if isinstance(text, bytes) else text.encode()
    return read_table("-", stdin=io.BytesIO(data), **options)


def values(table: Table, name: str) -> list[object]:
    return list(table.column(table.names.index(name)).tolist())


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", " "])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_delimiter_and_header_are_detected(delimiter: str, newline: str) -> None:
    rows = [["height", "weight", "size"], ["1.5", "60", "3"], ["1.75", "70", "4"], ["2", "8e1", "-5"]]
    table = read_text(newline.join(delimiter.join(row) for row in rows) + newline)
    assert table.names == ("height", "weight", "size")
    assert table.named
    assert values(table, "weight") == [60.0, 70.0, 80.0]


@pytest.mark.parametrize("text", ["1,2\n3,4\n", "1 2\n3 4", "  1   2 \n  3   4 \n", "1,2\n\n3,4\n\n"])
def test_numbers_without_header(text: str) -> None:
    table = read_text(text)
    assert table.names == ("column_1", "column_2")
    assert not table.named
    assert table.block is not None
    assert table.block.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert any("no header" in note for note in table.notes)


@pytest.mark.parametrize(
    ("text", "has_header"),
    [
        ("name,colour\nann,red\nbob,blue\n", True),
        ("p,x\ne,x\np,b\n", False),  # first line repeats below
        ("a,1\nb,2\n", False),
        (",x,y\n0,1,2\n1,3,4\n", True),  # an index without a name, as pandas writes it
        ("when,x\n2020-01-01,red\n2020-01-02,blue\n", True),
        ("2020-01-01,red\n2020-01-02,blue\n", False),
        ("?,?\n1,2\n3,4\n", False),
        ("x\n1\n2\n", True),
        ("x,x\n1,2\n3,4\n", True),
        ("name,note\nann,\nbob,\n", True),
        ("x y class\n1 2 setosa\n3 4 virginica\n", True),
        ("full name\nJohn Smith\nMary Jones\n", True),
    ],
)
def test_headers_are_distinguished_from_values(text: str, has_header: bool) -> None:
    assert read_text(text).named == has_header


def test_header_and_delimiter_can_be_given() -> None:
    assert read_text("a,1\nb,2\n", header=True).names == ("a", "1")
    assert read_text("a,b\nc,1\n", header=False).n_rows == 2
    assert read_text("a,b;c\n1,2;3\n", delimiter=",").names == ("a", "b;c")
    assert read_text("a\tb,c\n1\t2\n", delimiter="tab").names == ("a", "b,c")
    with pytest.raises(TableError, match="one character"):
        read_text("a,b\n1,2\n", delimiter="::")


def test_every_type_of_column() -> None:
    table = read_text(
        "n,text,day,flag,gap\n1,red,2020-01-01,true,NA\n?,  blue ,2020-01-02T12:30:00Z,false,\n-,N/A,,true,null\n"
    )
    assert table.kinds == ("number", "category", "date", "boolean", "number")
    assert values(table, "n")[0] == 1.0
    assert np.isnan(table.column(0)[1:]).all()
    assert values(table, "text") == ["red", "blue", None]
    assert table.column(2)[1] == np.datetime64("2020-01-02T12:30:00")
    assert np.isnat(table.column(2)[2])
    assert values(table, "flag") == [True, False, True]
    assert np.isnan(table.column(4)).all()


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        ("a;b\n1,5;x\n2,25;y\n", [1.5, 2.25], "decimal"),  # as semicolons separate
        ('a,b\n"x, ""y""\nz",1\nw,2\n', ['x, "y"\nz', "w"], ""),
        ("a,x\nJosé,1\nZoë,2\n".encode("latin-1"), ["José", "Zoë"], "Latin-1"),
        ("a,x\nJosé,1\n".encode("utf-16"), ["José"], "UTF-16"),
        ("\ufeffa,b\n1,2\n3,4\n", [1.0, 3.0], ""),
    ],
)
def test_decimal_commas_quotes_and_encodings(text: str | bytes, expected: list[object], note: str) -> None:
    table = read_text(text)
    assert values(table, "a") == expected
    assert note in "".join(table.notes)


def test_numbers_and_dates_of_a_german_export() -> None:
    table = read_text(
        "Kunde;Umsatz;Rabatt;seit;PLZ;Uhrzeit\n"
        "A;1.234,50 €;5 %;31.12.2023;01067;14:30\n"
        "B;-2,00 €;k.A.;01.02.2024;80331;8:05\n".encode("cp1252")
    )
    assert table.kinds == ("category", "number", "number", "date", "category", "date")
    assert values(table, "Umsatz") == [1234.5, -2.0]
    assert values(table, "PLZ") == ["01067", "80331"]
    assert table.notes == (
        "the file is not in UTF-8; it was read as Windows-1252",
        "the columns are separated by ;",
        "column 'Umsatz': the comma was read as the decimal point; '€' and the thousands separator '.' were left out",
        "column 'Rabatt': '%' was left out; 1 of 2 values is missing ('k.A.')",
        "column 'seit': dates were read with the day before the month",
        "column 'PLZ': kept as text, since its numbers have leading zeros",
        "column 'Uhrzeit': read as times of the day",
    )


def test_lines_above_the_table_are_left_out() -> None:
    rows = "".join(f"{day:02d}-Jan-24,shop {day},{day}.50 DR\n" for day in range(1, 30))
    statement = f"Account: 12-34\n\nPeriod: January\nDate,Description,Amount\n{rows}"
    padded = f"Statement,,\nPeriod:,,\n,,\nDate,Description,Amount\n{rows}"
    for text, n_lines in ((statement, 3), (padded, 3), (statement.replace("\n", "\r\n"), 3)):
        table = read_text(text)
        for same in (text.replace("\n", "\r"), f"\ufeff{text}"):
            assert read_text(same).names == table.names
        assert (table.names, table.n_rows) == (("Date", "Description", "Amount"), 29)
        assert table.kinds == ("date", "category", "number")
        assert f"{n_lines} lines above the table were left out" in table.notes
    with pytest.raises(TableError, match="line 34 has 2 cells where line 4 has 3"):
        read_text(f"{statement}30-Jan-24,shop\n")


@pytest.mark.parametrize("text", ["b,c\nx,1,2\ny,3,4\n", "name\nx,1\ny,2\n"])
def test_a_header_with_too_few_names_is_an_error(text: str) -> None:
    with pytest.raises(TableError, match="cells where line 1 has"):
        read_text(text)


@pytest.mark.parametrize("text", ["a,,\nx,1,2\ny,3,4\n", "1,,\n2,5,6\n3,7,8\n"])
def test_first_rows_with_gaps_are_rows(text: str) -> None:
    table = read_text(text)
    assert not any("above the table" in note for note in table.notes)
    assert table.n_rows >= 2


def test_empty_rows_at_the_end_are_left_out() -> None:
    table = read_text("a;b;c\n1;2;3\n;5;\n;;\n;;\n\n")
    assert values(table, "b") == [2, 5]
    assert table.notes[-1] == "2 empty rows below the table left out"
    assert read_text("a,b\n1,x\n,\n2,y\n").n_rows == 3
    assert read_text("a,b\n,\n").n_rows == 1


def test_equal_notes_of_several_columns_are_one() -> None:
    table = read_text("a;b;c\n1,5;2,5;3\n2,5;3,5;4\n")
    assert table.notes[1:] == ("columns 'a', 'b': the comma was read as the decimal point",)
    assert table.block is not None


AWKWARD = {
    "number": ["1", "2.5", "-3e5", ".5", "7.", "inf", "-Infinity", " 8 "],
    "plus": ["+1", "2"],
    "long plus": ["+4930123456", "+4930123457"],
    "gaps": ["1", "", "NA", " NA ", "nan", "-nan", "NAN", "<NA>", "NaT", "2"],
    "placeholders": [*map(str, range(30)), "n/a", "?", "-", "#DIV/0!", "unknown"],
    "more placeholders": ["1", "unknown", "missing"],
    "only placeholders": ["?", "-", "N/A"],
    "typos": [*map(str, range(30)), "abc"],
    "leading zeros": ["007", "012"],
    "some leading zeros": ["0", "5", "00", *map(str, range(100, 140))],
    "zero and a point": ["0.5", "00.5", "0"],
    "hexadecimal": ["0x10", "1"],
    "underscore": ["1_000", "2"],
    "thousands": ["1,234", "5"],
    "thousands or decimals": ["1.234", "980"],
    "money": ["$1,234.50", "(3)"],
    "decimal comma": ["1,5", "2"],
    "large": ["12345678901234567890", "1e400"],
    "strange nan": ["nan(1)", "2"],
    "digits": ["\u0661", "2"],
    "text": ["a", " b ", "", "NA", "n/a", "x, y", 'a "b" c', "two\nlines", "NaT"],
    "boolean": ["true", "False"],
    "date": ["2020-01-01", "", "2020-01-02T10:00:00Z"],
    "day": ["31.12.2024", "01.02.2024"],
    "created_at": ["1714746605", "1714746606", "NA"],
    "late text": [*["1"] * 60, "A12"],
    "late gap": [*["1.5"] * 60, "n/a"],
    "late zeros": [*["12"] * 60, "07"],
}


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("name", AWKWARD)
def test_large_files_are_read_like_small_ones(name: str, delimiter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = AWKWARD[name] * (60 // len(AWKWARD[name]) + 1)
    content = io.StringIO()
    rows = csv.writer(content, delimiter=delimiter, lineterminator="\n")
    rows.writerow([name, "row"])
    rows.writerows((cell, i) for i, cell in enumerate(cells))
    expected = read_text(content.getvalue(), delimiter=delimiter, header=True)
    monkeypatch.setattr(delimited, "_BYTES_FOR_ARROW", 0)
    monkeypatch.setattr(delimited, "_read_by_python", None)  # must not be needed
    for n_bytes in (100, 2**20):
        monkeypatch.setattr(delimited, "_BYTES_PER_BLOCK", n_bytes)
        table = read_text(content.getvalue(), delimiter=delimiter, header=True)
        assert (table.names, table.kinds, table.notes) == (expected.names, expected.kinds, expected.notes)
        for i in range(2):
            np.testing.assert_array_equal(table.column(i), expected.column(i))
        assert (table.block is None) == (expected.block is None)


@pytest.mark.parametrize(
    "text",
    [
        'a,b\n1,"2\n3,4\n',
        'a,b\n"x"y,2\n',
        'a,b\n5" tube,2\n',
        'a,b\n1, "x, y"\n',
        'a,b\n"x""y",2\n"",""\n',
        '\ufeff"a","b"\n"x","y"\n',
        "a,b\n1,2\n3\n",
        "a,b\n1,2\n\n3,4\n",
        "a,b\r1,2\r3,4\r",
        "a b\n1  2\n 3 4 \n",
        'a b\n1  "2 3"\n4 5\n',
        "a§b\n1§2\n",
        "x\n\n1\n  \n2\n",
        "1,2\n3,4\n",
        "a,b\nJosé,1\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_large_files_are_split_and_rejected_like_small_ones(
    text: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> tuple[Any, ...]:
        delimiter = "§" if "§" in text else None
        try:
            table = read_text(text.lstrip("\ufeff" * (encoding != "utf-8")).encode(encoding), delimiter=delimiter)
        except TableError as error:
            return (str(error),)
        return table.names, table.notes, [str(table.column(i).tolist()) for i in range(table.n_columns)]

    expected = outcome()
    monkeypatch.setattr(delimited, "_BYTES_FOR_ARROW", 0)
    assert outcome() == expected


@pytest.mark.parametrize("as_text", [[], ["text", "x"]])
def test_a_large_file_is_read_in_blocks(as_text: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_read_by_python", None)
    monkeypatch.setattr(delimited, "_BYTES_PER_CHUNK", 2**14)
    rng = np.random.default_rng(0)
    n = 40_000
    x, y = rng.normal(size=n), np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 1000, n))
    text = text_column(rng.choice(["red", 'dark "blue"', "gr,ey"], n).tolist())
    path = tmp_path / "large.csv"
    write_table(path, ["x", "text", "y"], [x, text, y], force=False)
    assert path.stat().st_size > delimited._BYTES_FOR_ARROW
    table = read_table(path, as_text=as_text)
    np.testing.assert_array_equal(table.column(0), text_column([str(value) for value in x]) if as_text else x)
    assert table.column(1).tolist() == text.tolist()
    np.testing.assert_array_equal(table.column(2), y)
    path.write_bytes(gzip.compress(path.read_bytes()))
    compressed = path.rename(tmp_path / "large.csv.gz")
    np.testing.assert_array_equal(read_table(compressed, as_text=as_text).column(2), y)


def test_rows_may_become_much_shorter_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_BYTES_FOR_ARROW", 0)
    monkeypatch.setattr(delimited, "_BYTES_PER_BLOCK", 2**12)
    numbers = [*np.random.default_rng(0).normal(size=1500).tolist(), *[1.0] * 9000]
    table = read_text("x,y\n" + "\n".join(f"{value!r},2" if value != 1 else "1,2" for value in numbers))
    assert table.block is not None
    assert table.column(0).tolist() == numbers
    assert table.column(1).tolist() == [2.0] * len(numbers)


@pytest.mark.skipif(os.name == "nt", reason="needs named pipes")
def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=["a,b\n1,2\n3,4\n"])
    writer.start()
    assert read_table(path).n_rows == 2
    writer.join()


def test_ids_stay_text_and_names_become_unique() -> None:
    table = read_text("id,x\n007,1\n008,2\n", as_text=["id", "absent"])
    assert values(table, "id") == ["007", "008"]
    table = read_text("a,a,a_2,\n1,2,3,4\n5,6,7,8\n")
    assert (table.names, len(table.notes)) == (("a", "a_3", "a_2", "column_4"), 2)
    table = read_text("code,day\n1_0,2020-13-45\n2_0,2020-01-01\n")
    assert table.kinds == ("category", "category")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a,b,c\n", "no rows"),
        ("a,b\n1,2\n3\n", "line 3 has 1 cells where line 1 has 2"),
        ("1,2\n3,4\n\n5,6,7\n", "line 4 has 3"),
        ('a,b\n1,"2\n3,4\n', "quote"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        (bytes(range(1, 256)) * 4, "binary"),
    ],
)
def test_text_that_is_no_table_raises_an_error(text: str | bytes, message: str) -> None:
    with pytest.raises(TableError, match=message):
        read_text(text)


def test_a_ragged_line_far_down_is_reported() -> None:
    lines = ["a,b", *["1,x"] * 300_000, "1,x,extra"]
    with pytest.raises(TableError, match="line 300002 has 3"):
        read_text("\n".join(lines))


def test_missing_files_empty_folders_and_unknown_endings_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="There is no file"):
        read_table(tmp_path / "absent.csv")
    with pytest.raises(TableError, match="folder"):
        read_table(tmp_path)
    (tmp_path / "letter.docx").write_bytes(b"PK")
    with pytest.raises(TableError, match=r"\.parquet"):
        read_table(tmp_path / "letter.docx")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user who may not read every file")
def test_unreadable_files_raise_an_error(tmp_path: Path) -> None:
    path = tmp_path / "secret.csv"
    path.write_text("a\n1\n")
    path.chmod(0)
    with pytest.raises(TableError, match="cannot be read"):
        read_table(path)


def test_gzip_and_tsv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    assert read_table(path).names == ("a", "b")
    path.write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n" * 99)[:40])
    with pytest.raises(TableError, match="gzip"):
        read_table(path)
    path = tmp_path / "t.TSV"
    path.write_text("name\nDoe, Jane\nRoe, Rick\n")
    assert read_table(path).n_columns == 1


def test_npy_and_npz(tmp_path: Path) -> None:
    X, path = np.arange(6.0).reshape(3, 2), tmp_path / "x.npz"
    np.save(tmp_path / "x.npy", X)
    assert read_table(tmp_path / "x.npy").names == ("column_1", "column_2")
    np.savez(path, X=X, other=X.T, y=np.array([0, 1, 1]), feature_names=np.array(["a", "b"]))
    table = read_table(path)
    assert (table.names, table.named, list(table.extra_columns)) == (("a", "b"), True, ["y"])
    np.savez(path, only=X, y=np.zeros(3))
    assert read_table(path).n_columns == 2
    np.savez(path, X=np.ones((5, 2)), images=np.ones((5, 4, 4)))
    assert read_table(path).image is None


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 4)])
def test_npz_without_a_distinct_table_raises_an_error(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", first=np.ones(shape), second=np.ones(shape))
    with pytest.raises(TableError, match="array called X or images"):
        read_table(tmp_path / "two.npz")


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.mat", "x.parquet", "x.arrow", "x.feather"])
def test_damaged_binary_files(tmp_path: Path, name: str) -> None:
    if name.endswith(("parquet", "arrow", "feather")):
        pytest.importorskip("pyarrow")
    for content in (b"", b"not what the ending says" * 20):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=name):
            read_table(tmp_path / name)


@pytest.mark.parametrize("sparse", [False, True])
def test_archives_with_damaged_members(tmp_path: Path, sparse: bool) -> None:
    path, rng = tmp_path / "x.npz", np.random.default_rng(0)
    X = rng.poisson(0.5, (60, 20)).astype(float)
    if sparse:
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(X))
    else:
        np.savez_compressed(path, X=X)
    whole = path.read_bytes()
    failed = 0
    for _ in range(200):
        content = bytearray(whole)
        content[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            read_table(path)
        except TableError:
            failed += 1
    assert failed > 50


def test_objects_in_npy_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(TableError, match="not a plain"):
        read_table(tmp_path / "x.npy")


def test_matlab_files_and_advice_for_those_of_version_7_3(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "x.mat", {"fea": np.eye(3), "gnd": np.array([1, 2, 2])})
    table = read_table(tmp_path / "x.mat")
    assert (table.n_columns, table.extra_columns["gnd"].tolist()) == (3, [1, 2, 2])
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    (tmp_path / "x.mat").write_bytes(header + b"\x89HDF\r\n\x1a\n" + bytes(512))
    with pytest.raises(TableError, match=r"-v7"):
        read_table(tmp_path / "x.mat")


@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather", "ipc"])
def test_arrow_files(tmp_path: Path, ending: str) -> None:
    pa = pytest.importorskip("pyarrow")
    data = pa.table({"n": [1, None, 3], "t": ["a", None, "b"], "f": [True, False, True]})
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(data, path)
    elif ending == "ipc":
        with pa.ipc.new_stream(path, data.schema) as stream:
            stream.write_table(data)
    else:
        pytest.importorskip("pyarrow.feather").write_feather(data, path)
    table = read_table(path)
    assert (table.kinds, table.source) == (("number", "category", "boolean"), path.name)
    assert values(table, "t") == ["a", None, "b"]


NUMBERS = st.floats(allow_nan=False, width=64)
CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8).map(str.strip)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_numbers_survive_a_round_trip_exactly(rows: list[tuple[float, float]]) -> None:
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    out = io.BytesIO()
    write_table("-", ["first", "second"], columns, force=False, stdout=out)
    fast = read_text(out.getvalue())
    assert fast.names == ("first", "second")
    # Keeping one column as text takes the other through the parser for mixed tables.
    mixed = read_text(out.getvalue(), as_text=["first"])
    for position, written in enumerate(columns):
        np.testing.assert_array_equal(fast.column(position), written)
    np.testing.assert_array_equal(mixed.column(1), columns[1])


@given(st.lists(CELLS, min_size=2, max_size=20))
def test_texts_survive_a_round_trip(cells: list[str]) -> None:
    out = io.BytesIO()
    write_table("-", ["text", "number"], [text_column(cells), np.arange(len(cells))], force=False, stdout=out)
    table = read_text(out.getvalue(), header=True, delimiter=",", as_text=["text"])
    assert values(table, "text") == [None if cell in MISSING_MARKERS else cell for cell in cells]


@given(st.binary(max_size=300))
def test_any_bytes_give_a_table_or_a_clear_error(data: bytes) -> None:
    try:
        table = read_text(data)
    except TableError:
        return
    assert table.n_rows >= 1
    assert len(table.kinds) == len(set(table.names))


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_write_table(tmp_path: Path, ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out.{ending}"
    texts = text_column(["a", None, "c,\t d"])
    dates = np.array(["2020-01-01", "NaT", "2021-05-05"], dtype="datetime64[us]")
    columns = [texts, np.array([1, 2, 3]), np.array([0.1, math.nan, 1e300]), dates]
    write_table(path, ["t", "i", "f", "d"], columns, force=False)
    table = read_table(path)
    assert values(table, "t") == ["a", None, "c,\t d"]
    np.testing.assert_array_equal(table.column(2), columns[2])
    np.testing.assert_array_equal(table.column(3), dates)
    with pytest.raises(OutputError, match="exists already"):
        write_table(path, ["t"], [texts], force=False)
    write_table(path, ["t"], [texts], force=True)
    assert read_table(path, header=True).n_columns == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_failed_writes_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        write_atomically(tmp_path / "absent" / "x.txt", "x", force=True)
    with pytest.raises(OutputError, match="folder"):
        write_atomically(tmp_path, "x", force=True)
    with pytest.raises(OutputError, match=r"\.csv, \.tsv, \.parquet"):
        write_table(tmp_path / "x.doc", ["a"], [np.ones(2)], force=True)

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OutputError, match="No space left"):
        write_atomically(tmp_path / "x.txt", b"x", force=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="needs symbolic links and /dev/null")
def test_links_are_followed_and_devices_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    write_atomically(tmp_path / "link.txt", "new", force=True)
    assert (tmp_path / "real.txt").read_text() == "new"
    assert (tmp_path / "link.txt").is_symlink()
    write_atomically("/dev/null", "gone", force=True)
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["X", "images"])
def test_npz_of_images(name: str, tmp_path: Path) -> None:
    images = np.arange(5 * 4 * 4 * 3, dtype=np.uint8).reshape(5, 4, 4, 3)
    arrays: dict[str, Any] = {name: images, "y": np.arange(5), "names": np.array(["a", "b"])}
    np.savez(tmp_path / "set.npz", **arrays)
    table = read_table(tmp_path / "set.npz")
    assert (table.image, table.source, list(table.extra_columns)) == ((4, 4, 3), "set.npz", ["y"])
    assert table.names[-1] == "pixel 3,3,2"
    np.save(tmp_path / "set.npy", images)
    np.testing.assert_array_equal(read_table(tmp_path / "set.npy").column(7), images.reshape(5, -1)[:, 7])


def test_a_registered_format_is_read_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_json(path: Path, header: bool | None = None) -> Table:
        assert header is True
        return as_table(json.loads(path.read_text()))

    def to_json(_: Any, columns: Any) -> bytes:
        return json.dumps(np.column_stack(columns).tolist()).encode()

    entry = Format("JSON", (".json",), read_json, ("header",), to_json)
    monkeypatch.setattr("coterie.tables.readers.FORMATS", [*FORMATS, entry])
    path = tmp_path / "x.JSON"
    write_table(path, ["a"], [np.arange(3.0)], force=False)
    assert read_table(path, header=True, delimiter=";").column(0).tolist() == [0.0, 1.0, 2.0]
    (tmp_path / "x.xml").touch()
    with pytest.raises(TableError, match=r"\.mat, \.json\."):
        read_table(tmp_path / "x.xml")


@pytest.mark.parametrize(
    ("name", "description", "is_text"),
    [
        ("a.CSV", "comma-separated text", True),
        ("a.tsv.gz", "delimited text", True),
        ("a.b.parquet", "Parquet", False),
        (".", "folder of images", False),
    ],
)
def test_formats_are_found_by_the_ending(name: str, description: str, is_text: bool) -> None:
    found = find_format(name)
    assert found is not None
    assert (found.description, found.is_text) == (description, is_text)


def test_no_ending_is_registered_twice() -> None:
    endings = [ending for each in FORMATS for ending in each.endings]
    assert len(endings) == len(set(endings))
    assert all(ending == ending.lower() for ending in endings)
    assert find_format("csv") is None


def test_the_wine_example_equals_scikit_learns() -> None:
    with pytest.raises(InputError, match="wine"):
        example_path("beer")
    table = read_table(example_path("wine"))
    wine = load_wine()
    assert table.names == (*wine.feature_names, "cultivar")
    np.testing.assert_array_equal(np.column_stack(table.columns[:-1]), wine.data)
    assert table.columns[-1].tolist() == ["ABC"[label] for label in wine.target]
