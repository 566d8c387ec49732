"""The command on files of every format, in several files, and on tables in files."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse

from tests.cli.conftest import Command

NAMES = ["Kunden-Nr.", "Fläche", "Umsatz", "Ort"]


def rows() -> list[tuple[str, float, float, str]]:
    rng = np.random.default_rng(0)
    centres = np.repeat([[20.0, 500.0], [90.0, 100.0]], 12, axis=0)
    values = rng.normal(centres, [2.0, 10.0]).round(2).tolist()
    return [(f"{i:04}", x, y, "Ulm" if i % 2 else "Köln") for i, (x, y) in enumerate(values)]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    book = openpyxl.Workbook()
    book.active.append(["Kunden der Filialen"])
    book.active.append([])
    for row in [NAMES, *rows()]:
        book.active.append(row)
    book.save("kunden.xlsx")
    lines = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in rows()]
    Path("kunden.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with closing(sqlite3.connect("laden.db")) as connection:
        connection.execute("CREATE TABLE kunden (nr TEXT, fläche REAL, umsatz REAL, ort TEXT)")
        connection.executemany("INSERT INTO kunden VALUES (?, ?, ?, ?)", rows())
        connection.execute("CREATE TABLE artikel AS SELECT 1 AS a")
        connection.commit()
    for number, start in enumerate(range(0, 24, 8)):
        part = Path("teile", f"jahr={2020 + number}", "part-0.parquet")
        part.parent.mkdir(parents=True)
        columns = zip(*rows()[start : start + 8], strict=True)
        pyarrow.parquet.write_table(pa.table(dict(zip(NAMES, columns, strict=True))), part)
        text = "\n".join([";".join(NAMES), *(";".join(map(str, row)) for row in rows()[start : start + 8])])
        Path(f"kunden-{number}.csv").write_text(text, encoding="utf-8")
    scipy.sparse.save_npz("matrix.npz", scipy.sparse.csr_array(np.array([row[1:3] for row in rows()])))


@pytest.mark.parametrize(
    ("file", "source", "note"),
    [
        ("kunden.xlsx", "kunden.xlsx", "skipped above the table: 'Kunden der Filialen'"),
        ("kunden.xlsx::Sheet", "kunden.xlsx::Sheet", ""),
        ("kunden.jsonl", "kunden.jsonl", ""),
        ("laden.db::kunden", "laden.db::kunden", ""),
        ("teile", "teile", "3 files were read as one table of 24 rows"),
        ("kunden-*.csv", "kunden-*.csv", "3 files were read as one table of 24 rows"),
        ("matrix.npz", "matrix.npz", "the matrix is sparse"),
    ],
)
def test_files_are_clustered(command: Command, file: str, source: str, note: str) -> None:
    drop = () if file == "matrix.npz" else ("--id", "1", "--drop", "4")
    outcome = command("cluster", file, *drop, "-k", "2", "--effort", "fast", "--json", "-o", "rows.csv", "--append")
    result = json.loads(outcome.out)
    assert (result["source"], result["sizes"]) == (source, [12, 12])
    assert note in outcome.err + " ".join(result["notes"])
    assert len(Path("rows.csv").read_text().splitlines()) == 25


def test_a_folder_without_images_has_no_image_size(command: Command) -> None:
    assert "--image-size is for folders of images" in command("cluster", "teile", "--image-size", "8x8", code=2).err


def test_new_rows_in_another_format(command: Command) -> None:
    command("cluster", "kunden.xlsx", "--drop", "1,4", "-k", "2", "--effort", "fast", "--save", "m.safetensors")
    predicted = [
        [row["cluster"] for row in command("predict", "m.safetensors", file, "-o", "-").rows]
        for file in ("kunden.xlsx", "kunden.jsonl", "kunden-*.csv", "teile")
    ]
    assert predicted[0] == predicted[1] == predicted[2] == predicted[3]
    assert len(set(predicted[0])) == 2


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("laden.db", "laden.db has 2 tables: 'kunden', 'artikel'. Choose one, such as laden.db::kunden."),
        ("laden.db::kunde", "laden.db has no table 'kunde'"),
        ("kunden.xlsx::Tabelle1", "kunden.xlsx has no sheet 'Tabelle1'. It has 'Sheet'."),
        ("kunden.jsonl::x", "'kunden.jsonl' has only one table"),
        ("fehlt-*.csv", "No table matches 'fehlt-*.csv'"),
        (".", "'.' stands for files of several formats"),
    ],
)
def test_errors_are_one_line(command: Command, file: str, message: str) -> None:
    outcome = command("cluster", file, code=2)
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
