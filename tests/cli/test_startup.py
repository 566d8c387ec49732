"""What a command does not import: errors and help must not wait for libraries that they do not need."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coterie.tables.adapt import adapt_table
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import Table, choose_columns
from tests.cli.test_listings import NAMED_SHELL

_SCRIPT = """
import json, sys
from coterie.__main__ import main
libraries = ("numpy", "narwhals", "pandas", "scipy", "sklearn", "torch", "joblib", "jinja2")
for arguments in json.loads(sys.argv[1]):
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    print("imported", code, *(name for name in libraries if name in sys.modules), file=sys.stderr)
"""
_NOTHING: list[Sequence[str]] = [
    ["--version"],
    ["--help"],
    ["--show-completion", "bash"],
    ["methods"],
    ["cluster"],
    ["cluster", "few.csv", "--bad"],
    ["cluster", "few.csv", "-k", "0"],
    ["cluster", "few.csv", "-k", "many"],
    ["cluster", "few.csv", "-k", "3", "--method", "dac"],
    ["cluster", "few.csv", "--method", "magic"],
    ["cluster", "few.csv", "--method", "tcc"],
    ["cluster", "few.csv", "--method", "clam", "--effort", "fast"],
    ["cluster", "few.csv", "--effort", "huge"],
    ["cluster", "few.csv", "--granularity", "nan"],
    ["cluster", "few.csv", "--weight", "a"],
    ["cluster", "few.csv", "--seed", "-1"],
    ["cluster", "few.csv", "--image", "2x2"],
    ["cluster", "few.csv", "--image-size", "8"],
    ["cluster", "few.csv", "-o", "-", "--json"],
    ["cluster", "few.csv", "--append"],
    ["learn", "few.csv", "--steps", "0"],
    ["cluster", "absent.csv"],
    ["clutser"],
]
_LIGHT: list[Sequence[str]] = [
    ["cluster", "--help"],
    ["weights"],
    ["info", "dac-plane-v1"],
    ["info", "absent"],
    ["cluster", "few.xyz"],
    ["cluster", "example:beer"],
    ["cluster", "few.csv", "-o", "few.xls"],
    ["cluster", "few.csv", "-o", "few.csv"],
    ["cluster", "few.csv", "-o", "absent/out.csv"],
    ["cluster", "few.csv", "--method", "dac", "--weights", "zebra"],
    ["cluster", "few.csv", "--method", "tcc", "--recipe", "absent.toml"],
    ["cluster", "few.csv", "-k", "9"],
    ["cluster", "few.csv", "--columns", "c"],
    ["cluster", "few.csv", "--id", "c"],
    ["cluster", "few.csv", "--drop", "a,b"],
    ["cluster", "empty.csv"],
    ["cluster", "ragged.csv"],
    ["predict", "absent.safetensors", "few.csv"],
    ["predict", "few.csv", "few.csv"],
    ["learn", "absent.csv", "--set", "a", "--truth", "b", "-o", "m.safetensors"],
    ["learn", "few.csv", "--set", "a", "--truth", "c", "-o", "m.safetensors"],
    ["learn", "few.csv", "--set", "a", "--truth", "b"],
]


def run_all(commands: Sequence[Sequence[str]], folder: Path) -> list[tuple[int, set[str]]]:
    """Run commands in one new process; return their exit codes, and the libraries that are imported by then."""
    (folder / "few.csv").write_text("a,b\n1,2\n3,4\n5,9\n")
    (folder / "few.xyz").write_text("a")
    (folder / "empty.csv").write_text("")
    (folder / "ragged.csv").write_text("a,b\n1,2\n3,4,5\n")
    script = [sys.executable, "-c", _SCRIPT, json.dumps(commands)]
    environment = {**os.environ, NAMED_SHELL: "1"}
    done = subprocess.run(script, cwd=folder, capture_output=True, text=True, check=True, env=environment)
    lines = [line.split()[1:] for line in done.stderr.splitlines() if line.startswith("imported ")]
    return [(int(code), set(names)) for code, *names in lines]


def test_options_alone_need_no_library(tmp_path: Path) -> None:
    for arguments, (code, names) in zip(_NOTHING, run_all(_NOTHING, tmp_path), strict=True):
        good = arguments[0] in {"--version", "--help", "--show-completion", "methods"}
        assert (code, names) == (0 if good else 2, set()), arguments


def test_files_need_neither_scikit_learn_nor_scipy(tmp_path: Path) -> None:
    for arguments, (code, names) in zip(_LIGHT, run_all(_LIGHT, tmp_path), strict=True):
        good = arguments[-1] in {"--help", "weights", "dac-plane-v1"}
        assert code == (0 if good else 2), arguments
        assert names <= {"numpy", "narwhals"}, arguments


class Names(tuple[str, ...]):
    """Names that must not be searched one after the other."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        raise AssertionError(f"all names were searched for {name!r}")

    def index(self, *_: object) -> int:
        raise AssertionError("all names were searched")


def test_columns_are_found_without_searching_all_names() -> None:
    names = Names(f"gene {i}" for i in range(50))
    table = Table(names, block=np.arange(150.0).reshape(3, 50))
    chosen = choose_columns(table, columns=names[10:], drop=names[20:30], ids="gene 5", truth="gene 40")
    assert chosen.features.n_columns == 29
    assert (chosen.ids_name, chosen.truth_name) == ("gene 5", "gene 40")
    assert table.kinds is table.kinds, "computed once: it is asked for once per column"
    encoder = TableEncoder("standard", names=Names(names[::2]), named=True)
    adapted = adapt_table(encoder, table)
    assert adapted.table.names == names[::2]
    assert adapted.notes[0].startswith("ignored because the model does not use them: 'gene 1', 'gene 3'")
