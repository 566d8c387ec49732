"""Compressed text files."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coterie.errors import TableError
from coterie.tables.readers import find_format, read_table

TEXT = "id;Straße;Größe\n001;Hauptstraße 5;1,5\n002;Am Weiher;\n".encode()


def compress(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize("name", ["t.csv.zst", "T.CSV.ZST", "t.txt.zst"])
def test_zstandard(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(compress(TEXT))
    table = read_table(tmp_path / name, as_text=["id"])
    assert (table.names, table.source) == (("id", "Straße", "Größe"), name)
    assert table.column(0).tolist() == ["001", "002"]
    np.testing.assert_array_equal(table.column(2), [1.5, np.nan])
    found = find_format(name)
    assert found is not None
    assert found.is_text


def test_frames_and_members_are_joined(tmp_path: Path) -> None:
    (tmp_path / "t.tsv.zst").write_bytes(compress(b"a, b\tc\n1\t2\n") + compress(b"3\t4\n"))
    assert read_table(tmp_path / "t.tsv.zst").names == ("a, b", "c")
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n') + gzip.compress(b'{"a": 2}\n'))
    assert read_table(tmp_path / "t.jsonl.gz").n_rows == 2


@pytest.mark.parametrize("name", ["t.csv.zst", "t.jsonl.zst", "t.jsonl.gz", "t.mtx.gz"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    data = TEXT * 99
    whole = compress(data) if name.endswith("zst") else gzip.compress(data)
    for content in (whole[: len(whole) // 2], b"not compressed at all" * 9):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=f"{name} is not a complete"):
            read_table(tmp_path / name)
