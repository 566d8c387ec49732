"""Geometry columns of GeoParquet and of GeoArrow: points -> two columns of coordinates."""

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_POINT = 1
_OTHERS = {2: "lines", 3: "polygons", 4: "multipoints", 5: "multilines", 6: "multipolygons", 7: "collections"}
_HAS_SRID = 0x20000000
_EXTENSIONS = {b"geoarrow.wkb": "WKB", b"ogc.wkb": "WKB", b"geoarrow.point": "point"}


class _Geometry(NamedTuple):
    """A geometry column: how it is stored, and the name of its coordinates if they are not degrees."""

    name: str
    encoding: str
    projected: str | None


def expand_points(content: Any) -> tuple[Any, tuple[str, ...]]:
    """Replace geometry columns of points by two number columns, and remove other geometries; notes say which.

    The coordinates are called lon and lat, or x and y if they are not in degrees.
    """
    notes = []
    for geometry in _find_geometries(content.schema):
        name = geometry.name
        found = _read_points(content.column(name), geometry.encoding)
        content = content.drop_columns([name])
        if isinstance(found, str):
            notes.append(f"the geometry {name!r} was left out: it has {found}, and only points can be clustered")
            continue
        new = ("lon", "lat") if geometry.projected is None else ("x", "y")
        if set(new) & set(content.column_names):
            new = (f"{name}_{new[0]}", f"{name}_{new[1]}")
        for column, values in zip(new, found, strict=True):
            content = content.append_column(column, [values])
        unit = "" if geometry.projected is None else f", in the coordinates of {geometry.projected}"
        notes.append(f"the points {name!r} became the columns {new[0]!r} and {new[1]!r}{unit}")
    return content, tuple(notes)


def _find_geometries(schema: Any) -> Iterator[_Geometry]:
    """Yield what the metadata of GeoParquet, or of the columns, says are geometries."""
    try:
        described = json.loads((schema.metadata or {}).get(b"geo", b"{}"))["columns"]
    except (ValueError, KeyError, TypeError):
        described = {}
    for column in schema:
        entry = described.get(column.name) if isinstance(described, dict) else None
        extension = getattr(column.type, "extension_name", "").encode()
        extension = (column.metadata or {}).get(b"ARROW:extension:name", extension)
        if isinstance(entry, dict):
            yield _Geometry(column.name, str(entry.get("encoding")), _projection(entry.get("crs")))
        elif extension in _EXTENSIONS:
            yield _Geometry(column.name, _EXTENSIONS[extension], None)


def _projection(crs: object) -> str | None:
    """Return the name of a projected coordinate system; None for degrees, as GeoParquet has by default."""
    if isinstance(crs, dict) and str(crs.get("type")).startswith("Projected"):
        return str(crs.get("name", "a projection"))
    return None


def _read_points(column: Any, encoding: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | str:
    """Return the coordinates of points, NaN where they are missing; or what the geometries are instead."""
    values = column.to_pylist()
    if encoding == "point":
        pairs = [(None, None) if each is None else tuple(_coordinates(each)) for each in values]
        xy = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        return xy[:, 0], xy[:, 1]
    if encoding != "WKB":
        return f"the encoding {encoding!r}"
    xy = np.full((len(values), 2), np.nan)
    for row, value in enumerate(values):
        if value is None:
            continue
        found = _parse_point(value)
        if isinstance(found, str):
            return found
        xy[row] = found
    return xy[:, 0], xy[:, 1]


def _coordinates(point: Any) -> Sequence[float | None]:
    return (point["x"], point["y"]) if isinstance(point, dict) else point[:2]


def _parse_point(value: object) -> tuple[float, float] | str:
    """Parse a point in well-known binary (WKB), also with heights; otherwise return what it is."""
    if not isinstance(value, bytes):
        return "no binary geometries"
    try:
        order = "<" if value[0] else ">"
        (kind,) = struct.unpack_from(f"{order}I", value, 1)
        number = (kind & 0xFFFFFFF) % 1000  # a thousand is added for heights by ISO; PostGIS sets high bits
        if number != _POINT:
            return _OTHERS.get(number, f"geometries of the unknown type {number}")
        x, y = struct.unpack_from(f"{order}dd", value, 9 if kind & _HAS_SRID else 5)
    except (struct.error, IndexError):
        return "damaged geometries"
    return x, y
