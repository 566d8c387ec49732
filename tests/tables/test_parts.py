"""Several files as one table: folders, patterns, partitions, and files that do not fit."""

import datetime as dt
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from PIL import Image

from coterie.errors import TableError
from coterie.tables.readers import find_format, read_table
from coterie.tables.table import Table

YEARS = (2022, 2023, 2024)


def values(table: Table, name: str) -> list[object]:
    return list(table.column(table.names.index(name)).tolist())


def write_texts(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def columns(year: int) -> dict[str, Sequence[object]]:
    return {"größe": [year + 0.5, None], "ort": ["Köln", "Ulm"], "tag": [dt.date(year, 1, 1), None]}


def write_part(path: Path, year: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = columns(year)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.table(content), path)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(pa.table(content), path)
    elif path.suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in [tuple(content), *zip(*content.values(), strict=True)]:
            book.active.append(row)
        book.save(path)
    elif path.suffix == ".jsonl":
        rows = zip(content["größe"], content["ort"], strict=True)
        path.write_text("\n".join(json.dumps({"größe": a, "ort": b, "tag": None}) for a, b in rows))
    else:
        text = f"größe;ort;tag\n{year},5;Köln;{year}-01-01\n;Ulm;\n".encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".feather", ".xlsx", ".jsonl"])
@pytest.mark.parametrize("pattern", ["", "*", "umsatz-*{ending}", "umsatz-202[234]{ending}"])
def test_files_are_put_below_each_other(tmp_path: Path, ending: str, pattern: str) -> None:
    for year in YEARS:
        write_part(tmp_path / "daten" / f"umsatz-{year}{ending}", year)
    path = tmp_path / "daten" / pattern.format(ending=ending) if pattern else tmp_path / "daten"
    table = read_table(path)
    assert (table.names, table.n_rows) == (("größe", "ort", "tag"), 6)
    assert table.kinds[:2] == ("number", "category")
    np.testing.assert_array_equal(table.column(0), [2022.5, np.nan, 2023.5, np.nan, 2024.5, np.nan])
    assert values(table, "ort") == ["Köln", "Ulm"] * 3
    assert table.notes[0].startswith("3 files were read as one table of 6 rows: 'umsatz-2022")
    assert table.source == path.name
    one = find_format(tmp_path / "daten" / f"umsatz-2022{ending}")
    assert find_format(path) == one


def test_natural_order(tmp_path: Path) -> None:
    write_texts(tmp_path, {f"teil-{i}.csv": f"x,y\n{i},1\n" for i in (10, 9, 2, 1)})
    assert values(read_table(tmp_path), "x") == [1, 2, 9, 10]
    assert read_table(tmp_path).block is not None


def test_columns_are_matched_by_name(tmp_path: Path) -> None:
    write_texts(tmp_path, {"a.csv": "x,y,z\n1,2,a\n", "b.csv": "z,x,y\nb,3,4\n"})
    table = read_table(tmp_path)
    assert (values(table, "x"), values(table, "y"), values(table, "z")) == ([1, 3], [2, 4], ["a", "b"])
    write_texts(tmp_path / "n", {"a.csv": "1,2\n3,4\n", "b.csv": "5,6\n7,8\n"})
    assert read_table(tmp_path / "n").n_rows == 4


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("x,y\n1,2\n", r"'b.csv' lacks the columns 'ort', compared with 'a.csv'"),
        ("x,y,ort,neu,alt\n1,2,Ulm,3,4\n", "'b.csv' has the additional columns 'neu', 'alt'"),
        ("x,Y,ort\n1,2,Ulm\n", "'b.csv' lacks the columns 'y' and has the additional columns 'Y'"),
        (
            "x,y,ort\nsehr groß,2,Ulm\n",
            r"Column 'x' has texts in 'b.csv' \(such as 'sehr groß'\), but numbers in 'a.csv'",
        ),
        ("x,y,ort\n2024-01-01,2,Ulm\n", "Column 'x' has dates in 'b.csv', but numbers in 'a.csv'"),
        ("1,2,3\n4,5,6\n", "No header was found in 'b.csv'"),
        ("x,y,ort\n1,2,Ulm\n3,4\n", "b.csv, line 3"),
    ],
)
def test_files_that_differ(tmp_path: Path, second: str, message: str) -> None:
    write_texts(tmp_path, {"a.csv": "x,y,ort\n1,2,Ulm\n", "b.csv": second})
    with pytest.raises(TableError, match=message):
        read_table(tmp_path)


def test_the_type_of_a_column_without_values_does_not_count(tmp_path: Path) -> None:
    write_texts(
        tmp_path,
        {"a.csv": "x,ort,tag,ja\n,,,true\n", "b.csv": "x,ort,tag,ja\n1,Ulm,2024-01-01,false\n2,Ulm,2024-01-02,true\n"},
    )
    table = read_table(tmp_path)
    assert table.kinds == ("number", "category", "date", "boolean")
    assert (values(table, "ort"), values(table, "ja")) == ([None, "Ulm", "Ulm"], [True, False, True])
    assert np.isnat(table.column(2)[0])


def test_booleans_with_gaps_in_some_files(tmp_path: Path) -> None:
    for name, flags in {"a": [True, False], "b": [True, None], "c": [None, None]}.items():
        pyarrow.parquet.write_table(pa.table({"f": flags, "x": [1, 2]}), tmp_path / f"{name}.parquet")
    np.testing.assert_array_equal(read_table(tmp_path).column(0), [1, 0, 1, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("pattern", ["", "*/*/*.parquet", "**/*.parquet", "jahr=*"])
def test_partitions_become_columns(tmp_path: Path, pattern: str) -> None:
    for folder, year in [("jahr=2023/land=Baden%20W", 2023), ("jahr=2024/land=__HIVE_DEFAULT_PARTITION__", 2024)]:
        write_part(tmp_path / folder / "part-0.parquet", year)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet.crc").write_bytes(b"crc")
    table = read_table(tmp_path / pattern)
    assert table.names == ("größe", "ort", "tag", "jahr", "land")
    assert values(table, "jahr") == [2023, 2023, 2024, 2024]
    assert values(table, "land") == ["Baden W", "Baden W", None, None]
    assert table.notes[-1] == "columns that are the names of folders: 'jahr', 'land'"


def test_what_is_no_table_is_ignored_and_told(tmp_path: Path) -> None:
    write_texts(
        tmp_path, {"a.csv": "x,y\n1,2\n", "README.txt": "About", "meta.json": "{}", "run.sh": "", "leer.csv": ""}
    )
    table = read_table(tmp_path)
    assert (table.names, table.n_rows) == (("x", "y"), 1)
    assert "ignored, since they are no tables or describe others: 'README.txt', 'meta.json', 'run.sh'" in table.notes
    assert "1 file without rows was skipped: 'leer.csv'" in table.notes


def test_parts_without_rows_are_skipped(tmp_path: Path) -> None:
    for number, rows in enumerate([[1, 2], [], [3]]):
        pyarrow.parquet.write_table(pa.table({"x": pa.array(rows, pa.int64())}), tmp_path / f"{number}.parquet")
    assert values(read_table(tmp_path), "x") == [1, 2, 3]
    for number in (0, 2):
        (tmp_path / f"{number}.parquet").unlink()
    with pytest.raises(TableError, match="None of the 1 files"):
        read_table(tmp_path)


def test_files_of_several_formats(tmp_path: Path) -> None:
    write_part(tmp_path / "a.csv", 2022)
    write_part(tmp_path / "a.parquet", 2022)
    with pytest.raises(TableError, match=r"1 comma-separated text, 1 Parquet.*\*.csv"):
        read_table(tmp_path)
    assert read_table(tmp_path / "*.csv").n_rows == 2
    write_part(tmp_path / "texts" / "a.csv", 2022)
    write_part(tmp_path / "texts" / "b.csv.gz", 2022)
    assert read_table(tmp_path / "texts").n_rows == 4


def test_a_folder_with_images_is_a_folder_of_images(tmp_path: Path) -> None:
    (tmp_path / "katzen").mkdir()
    for name in ("a.png", "katzen/b.png"):
        Image.new("L", (4, 4)).save(tmp_path / name)
    write_texts(tmp_path, {"labels.csv": "x,y\n1,2\n"})
    assert read_table(tmp_path).image == (4, 4, 1)
    found = find_format(tmp_path)
    assert found is not None
    assert found.is_images


def test_patterns_that_match_nothing(tmp_path: Path) -> None:
    write_texts(tmp_path, {"a.docx": "", "b.png": ""})
    for pattern in ("*.csv", "*", "fehlt/*.csv"):
        with pytest.raises(TableError, match="No table matches"):
            read_table(tmp_path / pattern)
    assert find_format("result[1].csv") == find_format("result.csv")
    (tmp_path / "a[1].csv").write_text("x,y\n1,2\n3,4\n")
    assert read_table(tmp_path / "a[1].csv").notes == ()


def test_delta_tables_are_not_read_as_files(tmp_path: Path) -> None:
    write_part(tmp_path / "part-0.parquet", 2022)
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(TableError, match="Delta Lake"):
        read_table(tmp_path)


def test_errors_name_the_file_in_its_folder(tmp_path: Path) -> None:
    write_part(tmp_path / "jahr=2022" / "part-0.parquet", 2022)
    (tmp_path / "jahr=2023").mkdir()
    (tmp_path / "jahr=2023" / "part-0.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(TableError, match=r"jahr=2023/part-0.parquet: "):
        read_table(tmp_path)


def test_sheets_and_texts_are_read_with_the_same_options(tmp_path: Path) -> None:
    for year in YEARS:
        write_part(tmp_path / f"{year}.xlsx", year)
    assert read_table(f"{tmp_path}/*.xlsx::Sheet").n_rows == 6
    with pytest.raises(TableError, match="no sheet 'Blatt'"):
        read_table(f"{tmp_path}/*.xlsx::Blatt")
    write_texts(tmp_path, {"a.csv": "id|x\n007|1\n", "b.csv": "id|x\n008|2\n"})
    assert values(read_table(tmp_path / "*.csv", as_text=["id"], delimiter="|"), "id") == ["007", "008"]


def test_notes_name_the_files_that_they_are_about(tmp_path: Path) -> None:
    write_texts(tmp_path, {"a.csv": "x;y\n1;2\n", "b.csv": "x;y\n3;4\n", "c.csv": "x,y\n3,4\n"})
    assert "'a.csv', 'b.csv': the columns are separated by ;" in read_table(tmp_path).notes
    (tmp_path / "c.csv").unlink()
    assert "the columns are separated by ;" in read_table(tmp_path).notes


def test_labels_beside_arrays_are_kept(tmp_path: Path) -> None:
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", X=np.full((2, 3), number), y=np.array([number, number]))
    assert read_table(tmp_path).extra_columns["y"].tolist() == [0, 0, 1, 1]
