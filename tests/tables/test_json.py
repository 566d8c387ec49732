"""Reading records in JSON."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coterie.errors import TableError
from coterie.tables.readers import read_table
from coterie.tables.table import Table

RECORDS: list[dict[str, object]] = [
    {
        "id": 1234567890123456789,
        "größe": 1.5,
        "ort": {"name": "Ulm", "geo": {"lat": 48.4}},
        "tags": ["a"],
        "aktiv": True,
    },
    {"id": 1234567890123456790, "größe": None, "ort": {"name": "Köln", "plz": "50667"}, "aktiv": False},
    {"id": 1234567890123456791, "ort": None, "notiz": "später \u2028 mehr", "aktiv": True},
]


def values(table: Table, name: str) -> list[object]:
    return list(table.column(table.names.index(name)).tolist())


def lines(records: list[dict[str, object]]) -> bytes:
    return "\n".join(json.dumps(record, ensure_ascii=False) for record in records).encode()


@pytest.mark.parametrize(
    "name", ["e.jsonl", "e.ndjson", "e.json", "liste.json", "liste.jsonl", "e.jsonl.gz", "e.jsonl.zst"]
)
def test_records(tmp_path: Path, name: str) -> None:
    content = json.dumps(RECORDS, indent=1).encode() if name.startswith("liste") else lines(RECORDS)
    if name.endswith(".gz"):
        content = gzip.compress(content)
    if name.endswith(".zst"):
        content = pa.compress(content, codec="zstd", asbytes=True)
    (tmp_path / name).write_bytes(content)
    table = read_table(tmp_path / name)
    assert table.names == ("id", "größe", "ort.name", "aktiv", "ort.plz", "notiz")
    assert table.column(0).dtype == np.int64
    assert values(table, "id")[0] == 1234567890123456789
    assert values(table, "ort.name") == ["Ulm", "Köln", None]
    assert values(table, "notiz") == [None, None, "später \u2028 mehr"]
    assert values(table, "aktiv") == [True, False, True]
    np.testing.assert_array_equal(table.column(1), [1.5, np.nan, np.nan])
    assert list(table.notes) == [
        "nested objects became columns of their own: 'ort'",
        "left out, since lists and deeper objects are not read: 'ort.geo', 'tags'",
    ]


def test_lists_of_as_many_numbers_become_columns(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [
        {"v": [1, 2.5], "w": [1, 2], "u": [1], "t": [True, False], "a": 1},
        {"v": None, "w": [1], "u": [2], "t": [True, True], "a": 2},
        {"v": [3, 4], "w": [1, 2], "u": [3], "t": [True, True], "a": 3},
    ]
    (tmp_path / "e.jsonl").write_bytes(lines(records))
    table = read_table(tmp_path / "e.jsonl")
    assert table.names == ("v.0", "v.1", "a")
    np.testing.assert_array_equal(table.column(1), [2.5, np.nan, 4])
    assert table.notes == (
        "lists of numbers became columns such as 'v.0': 'v'",
        "left out, since lists and deeper objects are not read: 'w', 'u', 't'",
    )


def test_mixed_values_keep_their_rows(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [
        {"x": 1, "y": "a"},
        {"x": "k.A.", "y": {"z": 2}},
        {"x": 2.5, "y": None},
        {"y": 7},
    ]
    (tmp_path / "m.jsonl").write_bytes(lines(records))
    table = read_table(tmp_path / "m.jsonl")
    assert (table.names, table.n_rows) == (("x", "y", "y.z"), 4)
    assert values(table, "y") == ["a", None, None, "7"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no records"),
        ("\n \n", "no records"),
        ("[]", "no records"),
        ('{"a": 1}\n\n{"a": 2\n{"a": 3}', "line 3 is not valid JSON"),
        ('[{"a": 1},\n{"a": }]', "line 2 is not valid JSON"),
        ('{"a": 1}\n[1, 2]\n', r"line 2 is \[1, 2\], but each row must be an object"),
        ('[{"a": 1}, 5]', "element 2 of the list in x.jsonl is 5"),
        ("[1, 2]\n[3, 4]\n", "line 1 is"),
        ('{"data": [{"a": 1}]}', "lists and deeper objects are not read: 'data'"),
        ("{}\n{}\n", "no values"),
        ('{"a": 1' + "0" * 400 + "}\n", "too large"),
        ('{"a": ' + "1" * 5000 + "}\n", "line 1 is not valid"),
        ("[" * 100_000, "x.jsonl"),
        ('{"a": ' + "[" * 100_000, "x.jsonl, line 1"),
    ],
)
def test_invalid_json(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / "x.jsonl")


def test_encodings(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines(RECORDS))
    assert read_table(path).names[0] == "id"
    path.write_bytes('{"ort": "Köln"}'.encode("latin-1"))
    with pytest.raises(TableError, match="UTF-8"):
        read_table(path)


def test_every_row_with_keys_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(f'{{"k{i}": {i}}}' for i in range(20_000)))
    with pytest.raises(TableError, match="20,000 different keys"):
        read_table(path)
