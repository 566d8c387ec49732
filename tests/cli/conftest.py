"""Running the command as its console script does."""

import csv
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

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
    """Return a function that runs the command and checks its exit code."""

    def run(*arguments: str, stdin: bytes = b"", code: int = 0) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        outcome = Outcome(main(arguments), *capsys.readouterr())
        assert outcome.code == code, outcome.err
        return outcome

    return run


def stop_fit(monkeypatch: pytest.MonkeyPatch, estimator: type[Any]) -> list[Any]:
    """Interrupt fits, and return a list to which the estimators are added."""
    fitted: list[Any] = []

    def stop(self: object, _: object) -> None:
        fitted.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(estimator, "fit", stop)
    return fitted


def read_rows(path: str, delimiter: str = ",") -> list[dict[str, str]]:
    """Read a table that the command wrote."""
    return list(csv.DictReader(io.StringIO(Path(path).read_text(encoding="utf-8")), delimiter=delimiter))
