"""Arrow tables with columns that have no place in a table, and with geometries."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from coterie.errors import TableError
from coterie.tables.readers import read_table
from coterie.tables.table import Table


def write(path: Path, content: Any) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(content, path)
    else:
        pyarrow.feather.write_feather(content, path)
    return path


def read(tmp_path: Path, content: Any) -> Table:
    return read_table(write(tmp_path / "t.parquet", content))


NESTED = {
    "liste": pa.array([[1, 2], [3]]),
    "x": pa.array([1.5, None]),
    "satz": pa.array([{"a": 1}, None]),
    "karte": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    "bild": pa.array([b"\xff\x00", b"\xfe"]),
    "uuid": pa.array([b"0123456789abcdef"] * 2, pa.binary(16)),
    "fest": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
    "ort": pa.array(["Köln", "Ulm"]).dictionary_encode(),
}


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_nested_columns_are_left_out(tmp_path: Path, ending: str) -> None:
    table = read_table(write(tmp_path / f"t.{ending}", pa.table(NESTED)))
    assert table.names == ("x", "fest.0", "fest.1", "ort")
    assert table.kinds == ("number", "number", "number", "category")
    vectors, note = table.notes
    assert vectors == "lists of numbers became columns such as 'fest.0': 'fest'"
    assert note == (
        "left out, since they are neither numbers, texts nor dates: 'liste' (list), 'satz' (struct), 'karte' (map), "
        "'bild' (binary), 'uuid' (fixed_size_binary[16])"
    )


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.int64()), pa.list_(pa.float64(), 3)])
def test_lists_of_as_many_numbers_become_columns(tmp_path: Path, kind: pa.DataType) -> None:
    content = {"a": [1, 2, 3], "v": pa.array([[1, 2, 3], None, [4, 5, 6]], kind), "b": ["x", "y", "x"]}
    table = read(tmp_path, pa.table(content))
    assert table.names == ("a", "v.0", "v.1", "v.2", "b")
    np.testing.assert_array_equal(table.column(2), [2, np.nan, 5])
    taken = read(tmp_path, pa.table({**content, "v.0": [7, 8, 9]}))
    assert taken.names == ("a", "b", "v.0")


def test_texts_that_are_stored_as_bytes(tmp_path: Path) -> None:
    table = read(tmp_path, pa.table({"ort": pa.array(["Köln".encode(), None, b"Ulm"])}))
    assert (table.column(0).tolist(), table.notes) == (["Köln", None, "Ulm"], ())


def test_tables_without_usable_columns_or_rows(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"no column of numbers, texts or dates. It has 'liste' \(list\)"):
        read(tmp_path, pa.table({"liste": [[1], [2]]}))
    with pytest.raises(TableError, match="no rows"):
        read(tmp_path, pa.table({"x": pa.array([], pa.int64())}))


def point(x: float, y: float, kind: int = 1, order: str = "<", rest: bytes = b"") -> bytes:
    return bytes([order == "<"]) + struct.pack(f"{order}Idd", kind, x, y) + rest


def geo(values: Any, described: Any, **others: Any) -> Any:
    metadata = {b"geo": json.dumps({"version": "1.1.0", "columns": {"geometry": described}}).encode()}
    return pa.table({"name": ["a", "b", "c"], **others, "geometry": values}).replace_schema_metadata(metadata)


POINTS = [point(9.99, 48.4), None, point(6.96, 50.94)]
UTM = {"type": "ProjectedCRS", "name": "ETRS89 / UTM zone 32N"}


@pytest.mark.parametrize(
    "values",
    [
        POINTS,
        [point(9.99, 48.4, order=">"), None, point(6.96, 50.94, kind=1001, rest=bytes(8))],
        [
            b"\1" + struct.pack("<IIdd", 0x20000001, 4326, 9.99, 48.4),
            None,
            point(6.96, 50.94, 0x80000001, rest=bytes(8)),
        ],
    ],
)
def test_points_become_longitude_and_latitude(tmp_path: Path, values: Any) -> None:
    table = read(tmp_path, geo(values, {"encoding": "WKB", "geometry_types": ["Point"]}))
    assert table.names == ("name", "lon", "lat")
    np.testing.assert_array_equal(table.column(1), [9.99, np.nan, 6.96])
    np.testing.assert_array_equal(table.column(2), [48.4, np.nan, 50.94])
    assert table.notes == ("the points 'geometry' became the columns 'lon' and 'lat'",)


def test_points_in_the_encoding_of_arrow(tmp_path: Path) -> None:
    table = read(tmp_path, geo([{"x": 9.99, "y": 48.4}, None, {"x": 6.96, "y": 50.94}], {"encoding": "point"}))
    np.testing.assert_array_equal(table.column(1), [9.99, np.nan, 6.96])


def test_projected_points_and_names_that_are_taken(tmp_path: Path) -> None:
    table = read(tmp_path, geo(POINTS, {"encoding": "WKB", "crs": UTM}, x=[1, 2, 3]))
    assert table.names == ("name", "x", "geometry_x", "geometry_y")
    assert "in the coordinates of ETRS89 / UTM zone 32N" in table.notes[0]


@pytest.mark.parametrize(
    ("value", "encoding", "reason"),
    [
        (point(0, 0, kind=3), "WKB", "polygons"),
        (b"\1" + struct.pack("<II", 2, 0), "WKB", "lines"),
        (b"\1\1\0", "WKB", "damaged geometries"),
        (b"", "WKB", "damaged geometries"),
        (point(0, 0, kind=99), "WKB", "geometries of the unknown type 99"),
        (point(0, 0), "polygon", "the encoding 'polygon'"),
    ],
)
def test_other_geometries_are_left_out(tmp_path: Path, value: bytes, encoding: str, reason: str) -> None:
    table = read(tmp_path, geo([point(1, 2), None, value], {"encoding": encoding}))
    assert table.names == ("name",)
    assert table.notes == (f"the geometry 'geometry' was left out: it has {reason}, and only points can be clustered",)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"columns": []}', b'{"columns": {"x": 5}}', b"\xff"])
def test_invalid_metadata_is_ignored(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, pa.table({"x": [1, 2]}).replace_schema_metadata({b"geo": content})).names == ("x",)


def test_geometries_that_only_the_column_declares(tmp_path: Path) -> None:
    field = pa.field("ort", pa.binary(), metadata={b"ARROW:extension:name": b"geoarrow.wkb"})
    table = read(tmp_path, pa.Table.from_arrays([pa.array(POINTS)], schema=pa.schema([field])))
    assert table.names == ("lon", "lat")
