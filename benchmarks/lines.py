"""Results files: one JSON object per line, appended as soon as it is measured."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError

Line: TypeAlias = dict[str, Any]  # one line of a results file
Settings: TypeAlias = Mapping[str, str | int | float | bool | None]
Labels: TypeAlias = npt.NDArray[np.integer]
Floats: TypeAlias = npt.NDArray[np.floating]

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"


def read_lines(path: Path) -> list[Line]:
    """Read every line of a results file, in the order of writing; a missing file is empty."""
    if not path.is_file():
        return []
    lines = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {number} is not JSON ({error}). Delete that line.") from error
    return lines


def append_line(path: Path, line: Line) -> None:
    """Append with a single write, so that an interruption does not leave half a line behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Replace a results file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    unfinished.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    unfinished.replace(path)


def keep_lines(path: Path, keep: Callable[[Line], bool]) -> None:
    """Remove every line except those to keep."""
    if path.is_file():
        write_lines(path, [line for line in read_lines(path) if keep(line)])


def key_of(line: Line, fields: Sequence[str]) -> str:
    """Return what identifies a run: the values of these fields; ``len:x`` stands for the length of field x."""
    values = [len(line[name[4:]]) if name.startswith("len:") else line.get(name) for name in fields]
    return json.dumps(values, sort_keys=True)


def record(
    suite: str, data: str, method: str, seed: int, settings: Settings, *, n: int = 0, d: int = 0, k: int = 0
) -> Line:
    """Start a line about one method on one data set, without results."""
    about = {"suite": suite, "data": data, "method": method, "seed": seed, "settings": dict(settings)}
    return {**about, "metrics": {}, "seconds": 0.0, "n": n, "d": d, "k": k, **stamp(), "note": ""}


def stamp() -> Line:
    """Return the commit and the library versions, which end most lines."""
    return {"commit": current_commit(), "versions": library_versions()}


@cache
def current_commit() -> str:
    """Return the short hash of the current commit, with ``-dirty`` after uncommitted changes."""
    commit = _git("rev-parse", "--short", "HEAD")
    # Results that are being written do not change the code that is measured.
    changes = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    if commit is None or changes is None:
        return "unknown"
    return f"{commit}-dirty" if changes else commit


def _git(*arguments: str) -> str | None:
    """Ask git about this repository; None without git or repository."""
    git = shutil.which("git")
    if git is None:
        return None
    # S603 warns of any command that is not one literal; both callers pass literals only.
    done = subprocess.run([git, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    libraries = ("numpy", "scipy", "scikit-learn", "torch")
    return {"python": platform.python_version()} | {name: version(name) for name in libraries}
