"""Tables and views of SQLite and DuckDB databases, which are opened for reading only."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from coterie.errors import EmptyTableError, TableError, import_extra
from coterie.tables.readers.arrow import from_arrow
from coterie.tables.readers.objects import from_objects
from coterie.tables.table import Table, format_list

_DUCKDB_MAGIC = slice(8, 12), b"DUCK"
# What a database stores is not trusted: its views must not reach other files, nor change anything.
_SQLITE_SAFEGUARDS = ("PRAGMA query_only = ON", "PRAGMA trusted_schema = OFF")
_DUCKDB_SAFEGUARDS = {"enable_external_access": "false", "lock_configuration": "true"}


def read_database(path: Path, table: str | None = None) -> Table:
    """Read a table of an SQLite or DuckDB file, which are distinguished by their content."""
    with path.open("rb") as file:
        where, magic = _DUCKDB_MAGIC
        is_duckdb = file.read(16)[where] == magic
    return read_duckdb(path, table) if is_duckdb else read_sqlite(path, table)


def read_sqlite(path: Path, table: str | None = None) -> Table:
    """Read a table of an SQLite file; by default its only one."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            for statement in _SQLITE_SAFEGUARDS:
                connection.execute(statement)
            entries = connection.execute(
                "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') "
                "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
            ).fetchall()
            name, notes = _choose({name: kind == "view" for name, kind in entries}, table, path.name)
            cursor = connection.execute(f"SELECT * FROM {_quote(name)}")  # noqa: S608  (quoted, and the name of a table)
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
    except (sqlite3.Error, UnicodeError) as error:
        raise TableError(f"{path.name} cannot be read as an SQLite database: {error}.") from error
    if not rows:
        raise EmptyTableError(
            f"The table {name!r} of {path.name} has no rows. Choose another one, as {path.name}::NAME."
        )
    return from_objects(names, list(zip(*rows, strict=True)), source=path.name, notes=notes)


def read_duckdb(path: Path, table: str | None = None) -> Table:
    """Read a table of a DuckDB file; by default its only one."""
    duckdb = import_extra("duckdb", extra="duckdb", purpose="DuckDB files need duckdb")
    try:
        with closing(duckdb.connect(str(path), read_only=True, config=_DUCKDB_SAFEGUARDS)) as connection:
            entries = connection.execute(
                "SELECT table_schema, table_name, table_type FROM information_schema.tables "
                "WHERE table_catalog = current_database() ORDER BY table_schema, table_name"
            ).fetchall()
            parts = {name if schema == "main" else f"{schema}.{name}": (schema, name) for schema, name, _ in entries}
            views = dict(zip(parts, (kind == "VIEW" for *_, kind in entries), strict=True))
            name, notes = _choose(views, table, path.name)
            quoted = ".".join(map(_quote, parts[name]))
            content = connection.sql(f"SELECT * FROM {quoted}").to_arrow_table()  # noqa: S608  (quoted, as above)
    except duckdb.Error as error:
        raise TableError(f"{path.name} cannot be read as a DuckDB database: {_first_line(error)}") from error
    return from_arrow(content, path.name, notes)


def _choose(views: Mapping[str, bool], given: str | None, source: str) -> tuple[str, Sequence[str]]:
    """Return the name of the table to read, and a note if it was not given; ``views`` says which tables are views."""
    if not views:
        raise TableError(f"{source} has no tables. Check that it is the right file.")
    if given is not None:
        by_case = {name.casefold(): name for name in views}  # as in SQL, case does not matter
        name = given if given in views else by_case.get(given.casefold())
        if name is None:
            raise TableError(f"{source} has no table {given!r}. It has {format_list(list(views), 30)}.")
        return name, ()
    stored = [name for name, is_view in views.items() if not is_view]
    candidates = stored or list(views)
    if len(candidates) > 1:
        raise TableError(
            f"{source} has {len(candidates)} tables: {format_list(list(views), 30)}. "
            f"Choose one, such as {source}::{candidates[0]}."
        )
    others = [name for name in views if name != candidates[0]]
    also = f"; the file also has the views {format_list(others)}" if others else ""
    return candidates[0], (f"the table {candidates[0]!r} was read{also}",)


def _quote(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> Any:
    return str(error).partition("\n")[0]
