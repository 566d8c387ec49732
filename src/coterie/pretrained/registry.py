"""Weights that ship with Coterie, by name; ``pretrained.toml`` lists them."""

import difflib
import hashlib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import Tensor

from coterie.checkpoint import load_checkpoint
from coterie.config import from_dict
from coterie.errors import WeightsError

PACKAGE = Path(__file__).parent
"""Folder that has the index and the weights."""
INDEX = "pretrained.toml"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@final
@dataclass(frozen=True, slots=True)
class Pretrained:
    """One entry of the index."""

    file: str
    """Name of the file among the weights."""
    sha256: str
    """Digest of the file's bytes; what a name stands for never changes."""
    method: str
    """Key of MODELS."""
    summary: str
    """What it is for, in a sentence."""


def load_pretrained(name_or_path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and card of weights that ship, or of a model file.

    Parameters
    ----------
    name_or_path : str or Path
        A registered name, such as ``pretrained_names`` lists, or else the path of a file. A file that is called like a
        registered name is reached as a ``Path``, or with its folder.

    Returns
    -------
    tensors : dict of str to Tensor
    card : dict

    Raises
    ------
    WeightsError
        If there is neither such a name nor such a file, or if the file is damaged.
    """
    return load_checkpoint(pretrained_path(name_or_path))


def pretrained_path(name_or_path: str | Path) -> Path:
    """File that holds the weights of that name, after its digest was checked, or else the path itself."""
    if isinstance(name_or_path, Path):
        return name_or_path
    entries = read_index(PACKAGE)
    if name_or_path in entries:
        return _checked(name_or_path, entries[name_or_path])
    if Path(name_or_path).exists() or is_path(name_or_path):
        return Path(name_or_path)
    raise _unknown(name_or_path, list(entries))


def pretrained_names(method: str | None = None) -> list[str]:
    """Names of all weights that ship, or of those for one method."""
    return [name for name, entry in read_index(PACKAGE).items() if method in {None, entry.method}]


def pretrained_card(name: str) -> dict[str, Any]:
    """What is known of weights that ship: how they were made, and how well they did."""
    entries = read_index(PACKAGE)
    if name not in entries:
        raise _unknown(name, list(entries))
    return load_checkpoint(_checked(name, entries[name]))[1]


def is_path(text: str) -> bool:
    """Whether a text can only be meant as a path: it has a separator or an ending, which no name has."""
    separators = {os.sep, os.altsep or os.sep}
    return bool(Path(text).suffix) or any(separator in text for separator in separators)


def is_name(text: str) -> bool:
    """Whether weights may be called so: small letters, digits, and hyphens between them."""
    return _NAME.fullmatch(text) is not None


def read_index(package: Path) -> dict[str, Pretrained]:
    """Entries of the index in that folder, by name."""
    content = tomllib.loads((package / INDEX).read_text(encoding="utf-8"))
    return {name: from_dict(Pretrained, content[name]) for name in sorted(content)}


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checked(name: str, entry: Pretrained) -> Path:
    path = PACKAGE / entry.file
    if not path.is_file():
        raise WeightsError(f"The weights {name!r} should be in {str(path)!r}, which is missing. Install Coterie again.")
    found = file_digest(path)
    if found != entry.sha256:
        raise WeightsError(
            f"The weights {name!r} were altered: {str(path)!r} has the SHA-256 {found}, and {entry.sha256} was "
            "shipped. Install Coterie again."
        )
    return path


def _unknown(name: str, known: list[str]) -> WeightsError:
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    names = ", ".join(map(repr, known)) or "none in this version"
    return WeightsError(f"No weights are called {name!r}.{hint} Known are: {names}. A file is named with its ending.")
