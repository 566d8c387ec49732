"""Weights that ship with Coterie, by name; ``pretrained.toml`` lists them."""

import difflib
import hashlib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy.typing as npt

from coterie.checkpoint import load_checkpoint
from coterie.config import from_dict
from coterie.errors import WeightsError

PACKAGE = Path(__file__).parent  # folder of the index and the weights
INDEX = "pretrained.toml"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@final
@dataclass(frozen=True, slots=True)
class Pretrained:
    """An entry of the index."""

    file: str  # name of the weight file
    sha256: str  # digest of the file; the weights behind a name never change
    method: str  # key of ``coterie.methods.METHODS``, or "judge"
    summary: str  # what the weights are for, in one sentence


def load_pretrained(name_or_path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Load the arrays and the card of weights that ship with Coterie, by name, or of a model file.

    A file with the same name as shipped weights can be given as a ``Path``, or with its folder.
    """
    return load_checkpoint(pretrained_path(name_or_path))


def pretrained_path(name_or_path: str | Path) -> Path:
    """Return the file of shipped weights, after verifying its digest; a path is returned unchanged."""
    if isinstance(name_or_path, Path):
        return name_or_path
    is_file = Path(name_or_path).exists() or is_path(name_or_path)
    return Path(name_or_path) if is_file and name_or_path not in read_index(PACKAGE) else _verified_path(name_or_path)


def pretrained_names(method: str | None = None) -> list[str]:
    """Return the names of all shipped weights, or of those of one method."""
    return [name for name, entry in read_index(PACKAGE).items() if method in {None, entry.method}]


def pretrained_card(name: str) -> dict[str, Any]:
    """Return the card of shipped weights: how they were trained, and their evaluation."""
    return load_checkpoint(_verified_path(name))[1]


def is_path(text: str) -> bool:
    """Return whether a string can only be a path: it has a separator or an ending, unlike names of weights."""
    return bool(Path(text).suffix) or os.sep in text or (os.altsep or os.sep) in text


def is_name(text: str) -> bool:
    """Return whether a string is a valid name of weights: lower-case letters, digits and single hyphens."""
    return _NAME.fullmatch(text) is not None


def read_index(package: Path) -> dict[str, Pretrained]:
    """Read the index in a folder; entries by name, sorted."""
    content = tomllib.loads((package / INDEX).read_text(encoding="utf-8"))
    return {name: from_dict(Pretrained, content[name]) for name in sorted(content)}


def file_digest(path: Path) -> str:
    """Compute the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verified_path(name: str) -> Path:
    entries = read_index(PACKAGE)
    if name not in entries:
        close = difflib.get_close_matches(name.lower(), entries, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join(map(repr, entries)) or "none in this version"
        raise WeightsError(
            f"No weights are called {name!r}.{hint} Available: {known}. A file needs its ending, such as .safetensors."
        )
    path = PACKAGE / entries[name].file
    if not path.is_file():
        raise WeightsError(f"The file {str(path)!r} of the weights {name!r} is missing. Install Coterie again.")
    found = file_digest(path)
    if found != entries[name].sha256:
        raise WeightsError(
            f"The weights {name!r} were modified: {str(path)!r} has the SHA-256 {found} instead of "
            f"{entries[name].sha256}. Install Coterie again."
        )
    return path
