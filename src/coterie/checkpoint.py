"""Model files: one safetensors file with the arrays and, in its header, a JSON card. No pickle is involved."""

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from coterie.errors import WeightsError
from coterie.files import write_atomically

FORMAT = "coterie"
FORMAT_VERSION = 1


def save_checkpoint(
    path: str | Path, arrays: Mapping[str, npt.NDArray[Any]], card: Mapping[str, Any], *, force: bool
) -> None:
    """Write arrays and a card, which has everything else that the model needs as JSON values, to one file.

    Writing is atomic; `force` allows to replace an existing file.
    """
    arrays = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    text = json.dumps(dict(card), sort_keys=True, allow_nan=False)
    header = {"format": FORMAT, "format_version": str(FORMAT_VERSION), "card": text, "sha256": _digest(arrays, text)}
    write_atomically(path, _sort_metadata(save(arrays, metadata=header)), force=force)


def load_checkpoint(path: str | Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read the arrays and the card of a file that ``save_checkpoint`` wrote, and verify its checksum.

    A file that is missing, truncated, modified, of another program or of a newer version raises a ``WeightsError``.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"There is no model file {str(path)!r}. Check the path.")
    try:
        with safe_open(path, framework="np") as file:
            header = file.metadata() or {}
            ours = header.get("format") == FORMAT  # other files may have types of numbers that numpy lacks
            arrays = {name: file.get_tensor(name) for name in file.keys()} if ours else {}  # noqa: SIM118  (not a mapping)
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(
            f"{str(path)!r} cannot be read as a model ({error}): it is damaged, truncated, or not a safetensors file. "
            "Save the model again."
        ) from error
    if not ours:
        raise WeightsError(
            f"{str(path)!r} is a safetensors file that Coterie did not write. Load it with the program that wrote it."
        )
    if header.get("format_version") != str(FORMAT_VERSION):
        raise WeightsError(
            f"{str(path)!r} has format version {header.get('format_version')}, but this version of Coterie reads "
            f"{FORMAT_VERSION}. Install the version of Coterie that wrote it."
        )
    text = header.get("card", "")
    if _digest(arrays, text) != header.get("sha256"):
        raise WeightsError(f"{str(path)!r} was modified after saving: its checksum does not match. Save it again.")
    card: dict[str, Any] = json.loads(text)
    return arrays, card


def _sort_metadata(data: bytes) -> bytes:
    """Sort the metadata, which safetensors writes in random order, so that equal models give equal bytes."""
    end = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays start at a multiple of 8
    return struct.pack("<Q", len(text)) + text + data[end:]


def _digest(arrays: Mapping[str, npt.NDArray[Any]], card: str) -> str:
    digest = hashlib.sha256(card.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} torch.{array.dtype} {array.shape}".encode())  # torch's names of types, as ever
        digest.update(array.tobytes())
    return digest.hexdigest()
