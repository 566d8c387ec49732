"""Reading tables and views of databases, without changing them."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pytest

from coterie.errors import MissingExtraError, TableError
from coterie.tables.readers import find_format, read_table, split_table
from coterie.tables.table import Table

EVIL = 'x"; DROP TABLE kunden; --'
SCRIPT = """
CREATE TABLE kunden (id INTEGER PRIMARY KEY, "Straße" TEXT, umsatz REAL, seit DATE, bild BLOB, aktiv BOOLEAN);
INSERT INTO kunden VALUES (9007199254740993, 'Hauptstraße 5', 12.5, '2024-01-31', x'ff00', 1);
INSERT INTO kunden VALUES (2, NULL, NULL, '2023-05-03', NULL, 0);
INSERT INTO kunden VALUES (3, 'Am Weiher', 3, NULL, x'00', 1);
"""


def values(table: Table, name: str) -> list[object]:
    return list(table.column(table.names.index(name)).tolist())


def create(path: Path, *scripts: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for script in scripts or (SCRIPT,):
            connection.executescript(script)
    return path


@pytest.mark.parametrize("ending", ["db", "sqlite", "sqlite3"])
def test_the_only_table(tmp_path: Path, ending: str) -> None:
    path = create(tmp_path / f"laden.{ending}")
    before = path.read_bytes()
    table = read_table(path)
    assert table.names == ("id", "Straße", "umsatz", "seit", "aktiv")
    assert values(table, "id") == [2, 3, 9007199254740993]
    assert values(table, "Straße") == [None, "Am Weiher", "Hauptstraße 5"]
    np.testing.assert_array_equal(table.column(2), [np.nan, 3, 12.5])
    assert table.notes == (
        "the table 'kunden' was read",
        "left out, since bytes are neither numbers nor text: 'bild'",
    )
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_tables_and_views_by_name(tmp_path: Path) -> None:
    quoted = '"' + EVIL.replace('"', '""') + '"'
    script = [
        SCRIPT,
        "CREATE TABLE bestellungen (betrag); INSERT INTO bestellungen VALUES (1), (2);",
        "CREATE VIEW aktive AS SELECT id, umsatz FROM kunden WHERE aktiv;",
        f"CREATE TABLE {quoted} (a, b); INSERT INTO {quoted} VALUES (1, 2);",  # noqa: S608  (quoted, as the reader must)
        "CREATE TABLE leer (a);",
    ]
    path = create(tmp_path / "laden.db", *script)
    with pytest.raises(TableError, match=r"has 4 tables: 'kunden', 'bestellungen'.*such as laden.db::kunden"):
        read_table(path)
    assert read_table(f"{path}::Bestellungen").n_rows == 2
    assert read_table(path, table="aktive").names == ("id", "umsatz")
    assert read_table(f"{path}::{EVIL}").names == ("a", "b")
    for wrong in ("kunde", "", 'kunden"; DROP TABLE kunden; --', "sqlite_master"):
        with pytest.raises(TableError, match="has no table"):
            read_table(path, table=wrong)
    with pytest.raises(TableError, match="no rows"):
        read_table(f"{path}::leer")
    assert read_table(f"{path}::kunden").n_rows == 3


def test_a_table_and_views_of_it(tmp_path: Path) -> None:
    path = create(tmp_path / "l.db", SCRIPT, "CREATE VIEW v AS SELECT * FROM kunden;")
    assert read_table(path).notes[0] == "the table 'kunden' was read; the file also has the views 'v'"


def test_values_of_mixed_types(tmp_path: Path) -> None:
    script = "CREATE TABLE t (x, y); INSERT INTO t VALUES (1, 'a'), ('k.A.', 2), (2.5, CAST(x'fe' AS TEXT));"
    table = read_table(create(tmp_path / "t.db", script))
    assert values(table, "y") == ["a", "2", "\ufffd"]
    assert table.n_rows == 3


@pytest.mark.parametrize("name", ["x.db", "x.sqlite", "x.duckdb"])
def test_damaged_databases(tmp_path: Path, name: str) -> None:
    whole = create(tmp_path / "whole.db").read_bytes()
    for content in (b"", b"no database at all" * 99, whole[:100] + bytes(len(whole) - 100), whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=name):
            read_table(tmp_path / name)
    with pytest.raises(TableError, match="There is no file"):
        read_table(tmp_path / "absent.db::kunden")
    assert not (tmp_path / "absent.db").exists()


@pytest.mark.parametrize("name", ["l.duckdb", "l.db"])
def test_duckdb(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute(
            "CREATE TABLE kunden AS SELECT i AS id, i * 1.5 AS umsatz, 'Köln ' || i AS ort, [i] AS liste, "
            "DATE '2024-01-01' + CAST(i AS INT) AS tag, i % 2 = 0 AS aktiv FROM range(4) t(i)"
        )
    before = path.read_bytes()
    table = read_table(path)
    assert (table.names, table.kinds) == (
        ("id", "umsatz", "ort", "tag", "aktiv"),
        ("number", "number", "category", "date", "boolean"),
    )
    assert table.column(3)[3] == np.datetime64("2024-01-04")
    assert any("'liste' (list)" in note for note in table.notes)
    assert path.read_bytes() == before


def test_duckdb_by_name_and_without_reach(tmp_path: Path) -> None:
    path, secret = tmp_path / "l.duckdb", tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with closing(duckdb.connect(str(path))) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
        connection.execute("CREATE SCHEMA s")
        connection.execute('CREATE TABLE s."ta""b" AS SELECT 2 AS y')
        connection.execute(f"CREATE VIEW v AS FROM read_csv('{secret}')")
    with pytest.raises(TableError, match=r"'t', 'v', 's.ta"):
        read_table(path)
    assert read_table(f'{path}::s.ta"b').names == ("y",)
    with pytest.raises(TableError, match="cannot be read as a DuckDB database"):
        read_table(f"{path}::v")


def test_missing_duckdb_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.duckdb").write_bytes(b"x" * 99)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"coterie\[duckdb\]"):
        read_table(tmp_path / "x.duckdb")


def test_names_of_tables_are_split_from_files(tmp_path: Path) -> None:
    assert split_table("a/b.db::t::u") == (Path("a/b.db"), "t::u")
    assert split_table("a::b.csv") == (Path("a::b.csv"), None)
    (tmp_path / "a::b.csv").write_text("x,y\n1,2\n3,4\n")
    assert read_table(tmp_path / "a::b.csv").n_rows == 2
    with pytest.raises(TableError, match=r"There is no file .*c.csv::t"):
        read_table(tmp_path / "c.csv::t")
    for path, table in ((tmp_path / "a::b.csv", "t"), (tmp_path / "c.csv::t", None)):
        (tmp_path / "c.csv").touch()
        with pytest.raises(TableError, match="only one table"):
            read_table(path, table=table)
    found = find_format("shop.db::orders.csv")
    assert found is not None
    assert found.description == "SQLite or DuckDB"
