"""Running the command as its console script does."""

import csv
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from coterie.__main__ import main


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of the command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """Return the CSV table on the standard output."""
        return list(csv.DictReader(io.StringIO(self.out)))


Command: TypeAlias = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in an empty folder, and check that no temporary files are left."""
    monkeypatch.chdir(tmp_path)
    yield
    assert [path.name for path in tmp_path.rglob(".*")] == []


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs the command."""

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return Outcome(main(arguments), *capsys.readouterr())

    return run


def read_rows(path: str, delimiter: str = ",") -> list[dict[str, str]]:
    """Read a table that the command wrote."""
    return list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8")), delimiter=delimiter))
