"""Bad input: each kind is refused with one line that says what to do, and nothing is left behind."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from coterie.__main__ import main

_HEADER = "person,height,group"
_PEOPLE = _HEADER + "\n1,180,tall\n2,182,tall\n3,160,small\n4,161,small\n5,163,small\n"


def _cells(n: int) -> np.ndarray[tuple[int, int], np.dtype[Any]]:
    cells = np.empty((n, 2), dtype=object)
    for i in range(2 * n):
        cells.flat[i] = np.arange(3)
    return cells


_FILES: dict[str, bytes] = {
    "people.csv": _PEOPLE.encode(),
    "empty.csv": b"",
    "header.csv": _HEADER.encode() + b"\n",
    "ragged.csv": b"a,b\n1,2\n3,4,5\n",
    "texts.csv": b"name,x\n" + b"".join(b"someone %d,%d\n" % (i, i) for i in range(60)),
    "missing.csv": b"a,b\nNA,NA\nNA,\n",
    "binary.csv": bytes(range(256)) * 4,
    "binary.parquet": b"\0\1garbage",
    "binary.npz": b"\0\1garbage",
    "quote.csv": b'a,b\n"1,2\n',
    "table.xyz": b"a,b\n1,2\n",
    "few.csv": b"a,b\n1,2\n3,4\n5,9\n",
    "no_truth.csv": b"a,b,t\n1,2,\n3,4,\n5,9,\n",
    "exists.csv": b"mine",
    "texts_for_numbers.csv": b"a,b\nred,1\nblue,2\n",
    "garbage.safetensors": b"garbage",
}

_REFUSALS: list[tuple[Sequence[str], str]] = [
    (["cluster", "absent.csv"], "there is no file 'absent.csv'"),
    (["cluster", "folder"], "is a folder"),
    (["cluster", "empty.csv"], "is empty"),
    (["cluster", "header.csv"], "no rows below"),
    (["cluster", "ragged.csv"], "line 3 has 3 cells"),
    (["cluster", "quote.csv"], "quote"),
    (["cluster", "texts.csv"], "60 different texts"),
    (["cluster", "missing.csv", "--header"], "every value of every column is missing"),
    (["cluster", "binary.csv"], "binary data"),
    (["cluster", "binary.parquet"], "binary.parquet"),
    (["cluster", "binary.npz"], "binary.npz"),
    (["cluster", "cells.mat"], "cells.mat"),
    (["cluster", "table.xyz"], "ending"),
    (["cluster", "-"], "standard input is empty"),
    (["cluster", "example:beer"], "'wine'"),
    (["cluster", "people.csv", "--columns", "hieght"], "did you mean 'height'"),
    (["cluster", "people.csv", "--id", "nobody"], "no column is called 'nobody'"),
    (["cluster", "people.csv", "--truth", "grp"], "did you mean 'group'"),
    (["cluster", "people.csv", "--drop", _HEADER], "no column is left"),
    (["cluster", "no_truth.csv", "--truth", "t"], "no row has a value in the column 't'"),
    (["cluster", "people.csv", "-k", "0"], "got '0'"),
    (["cluster", "people.csv", "-k", "-3"], "got '-3'"),
    (["cluster", "people.csv", "-k", "many"], "got 'many'"),
    (["cluster", "people.csv", "-k", "2.5"], "got '2.5'"),
    (["cluster", "few.csv", "-k", "4"], "few.csv has 3 rows"),
    (["cluster", "people.csv", "--method", "magic"], "there is no method 'magic'; there is coterie, clam, dac"),
    (["cluster", "people.csv", "--method", "clam", "--scaling", "huge"], "robust, standard, none"),
    (["cluster", "people.csv", "--seed", "-1"], "--seed"),
    (["cluster", "people.csv", "--seed", "x"], "--seed"),
    (["cluster", "people.csv", "--delimiter", "::"], "one character"),
    (["cluster", "people.csv", "--image", "2x2"], "--report"),
    (["cluster", "people.csv", "--report", "p.html", "--image", "2by2"], "28x28"),
    (["cluster", "people.csv", "--report", "p.html", "--image", "2x2"], "4 pixels"),
    (["cluster", "people.csv", "-o", "out.xls"], "ends in '.xls'"),
    (["cluster", "people.csv", "-o", "out"], "no ending"),
    (["cluster", "people.csv", "--report", "page.pdf"], "ends in '.pdf'"),
    (["cluster", "people.csv", "--save", "model.pkl"], "ends in '.pkl'"),
    (["cluster", "people.csv", "-o", "exists.csv"], "exists already"),
    (["cluster", "people.csv", "-o", "folder.csv"], "is a folder"),
    (["cluster", "people.csv", "-o", "absent/out.csv"], "folder 'absent' does not exist"),
    (["cluster", "people.csv", "-o", f"{'x' * 240}.csv"], "too long"),
    (["cluster", "people.csv", "-o", "people.csv", "--force"], "read from"),
    (["cluster", "few.csv", "-o", "link/few.csv", "--force"], "read from"),
    (["cluster", "people.csv", "-o", "pipe.csv"], "not a plain file"),
    (["cluster", "people.csv", "-o", "-", "--json"], "both"),
    (["cluster", "people.csv", "--append"], "-o OUT"),
    (["cluster"], "FILE"),
    (["cluster", "people.csv", "--colums", "a"], "--columns"),
    (["clutser", "people.csv"], "cluster"),
    (["predict", "absent.safetensors", "people.csv"], "no model file"),
    (["predict", "garbage.safetensors", "people.csv"], "damaged"),
    (["predict", "damaged.safetensors", "few.csv"], "altered"),
    (["predict", "cut.safetensors", "few.csv"], "damaged"),
    (["predict", "model.safetensors", "people.csv"], "missing: 'a'"),
    (["predict", "model.safetensors", "texts_for_numbers.csv"], "convert it"),
    (["predict", "model.safetensors", "few.csv", "-o", "model.safetensors", "--force"], "ends in '.safetensors'"),
]


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    table = path.with_name("few.csv")
    table.write_bytes(_FILES["few.csv"])
    assert main(["cluster", str(table), "-k", "2", "--save", str(path), "--quiet"]) == 0
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_model: bytes) -> Path:
    """Work in a folder that has a bit of everything, with nothing on the standard input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    for name, data in _FILES.items():
        Path(name).write_bytes(data)
    savemat("cells.mat", {"X": _cells(4)})
    Path("model.safetensors").write_bytes(small_model)
    Path("damaged.safetensors").write_bytes(small_model[:-1] + bytes([small_model[-1] ^ 0xFF]))
    Path("cut.safetensors").write_bytes(small_model[:-40])
    Path("folder").mkdir()
    Path("folder.csv").mkdir()
    Path("link").symlink_to(".")
    os.mkfifo("pipe.csv")
    return tmp_path


@pytest.mark.parametrize(("arguments", "told"), _REFUSALS, ids=lambda value: " ".join(value)[:60])
def test_bad_input_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: Sequence[str], told: str
) -> None:
    before = _contents(folder)
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1
    assert told in err
    assert _contents(folder) == before


def _contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
