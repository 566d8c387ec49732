"""Model files are loaded completely or raise an error."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import save_file

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.clam.estimator import ClAM
from coterie.errors import OutputError, WeightsError
from coterie.methods import load
from coterie.nn.model import to_arrays, to_tensors
from coterie.pretrained.registry import pretrained_names, pretrained_path


def arrays() -> dict[str, npt.NDArray[Any]]:
    return {
        "weights": np.arange(12, dtype=np.float32).reshape(3, 4),
        "flags": np.array([True, False]),
        "count": np.array(7),
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "empty": np.zeros((0, 3)),
    }


CARD = {"method": "clam", "sizes": [1, 2], "text": "β ≤ ½", "nested": {"a": None, "b": 0.1}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, arrays(), CARD, force=False)
    return path


def rewrite_header(path: Path, **changes: str | None) -> None:
    """Change entries of the file's metadata only."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header["__metadata__"] | changes
    header["__metadata__"] = {name: value for name, value in metadata.items() if value is not None}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_load_returns_what_was_saved_in_any_order(saved: Path, tmp_path: Path) -> None:
    loaded, card = load_checkpoint(saved)
    assert card == CARD
    assert loaded.keys() == arrays().keys()
    for name, array in arrays().items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)
    again = tmp_path / "again.safetensors"
    save_checkpoint(again, dict(reversed(arrays().items())), dict(reversed(CARD.items())), force=False)
    assert again.read_bytes() == saved.read_bytes()


def test_tensors_are_restored_as_they_were(tmp_path: Path) -> None:
    state = {"weights": torch.arange(6.0).view(2, 3).T, "count": torch.tensor(7), "flags": torch.tensor([True, False])}
    save_checkpoint(tmp_path / "model.safetensors", to_arrays(state), {}, force=False)
    loaded = to_tensors(load_checkpoint(tmp_path / "model.safetensors")[0])
    assert loaded.keys() == state.keys()
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_files_are_written_byte_for_byte_as_ever(tmp_path: Path) -> None:
    for name in pretrained_names():
        shipped = pretrained_path(name)
        save_checkpoint(tmp_path / shipped.name, *load_checkpoint(shipped), force=False)
        assert (tmp_path / shipped.name).read_bytes() == shipped.read_bytes(), name


def test_existing_files_are_replaced_only_if_forced(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(OutputError):
        save_checkpoint(saved, {}, {}, force=False)
    assert saved.read_bytes() == before
    save_checkpoint(saved, {}, {}, force=True)
    assert load_checkpoint(saved) == ({}, {})
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_cards_contain_json_values_only(tmp_path: Path) -> None:
    for value in (float("nan"), {1, 2}):
        with pytest.raises((ValueError, TypeError)):
            save_checkpoint(tmp_path / "model.safetensors", {}, {"value": value}, force=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"card": '{"method": "other"}'}, "checksum"),
        ({"card": None}, "checksum"),
        ({"sha256": "0" * 64}, "checksum"),
        ({"sha256": None}, "checksum"),
        ({"format_version": "2"}, r"format version 2.*reads 1.*Install"),
    ],
)
def test_modified_headers_raise_an_error(saved: Path, changes: dict[str, str | None], message: str) -> None:
    rewrite_header(saved, **changes)
    with pytest.raises(WeightsError, match=message):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        *((lambda data, f=f: data[: int(f * len(data))], "damaged, truncated") for f in (0.0, 0.01, 0.3, 0.6, 0.99)),
        (lambda data: data + b"more", "damaged"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "checksum"),
    ],
)
def test_damaged_files_raise_an_error(saved: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(WeightsError, match=message):
        load_checkpoint(saved)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_files_of_other_programs_raise_an_error(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"bf16": torch.ones(2, dtype=torch.bfloat16)}, path, metadata=metadata)
    with pytest.raises(WeightsError, match="Coterie did not write"):
        load_checkpoint(path)


def test_pickles_text_and_missing_files_raise_an_error(tmp_path: Path) -> None:
    torch.save({"weights": torch.ones(2)}, tmp_path / "model.pt")
    (tmp_path / "model.csv").write_text("a,b\n1,2\n" * 20)
    for path in tmp_path.iterdir():
        with pytest.raises(WeightsError, match="not a safetensors file"):
            load_checkpoint(path)
    for path in (tmp_path, tmp_path / "absent.safetensors"):
        with pytest.raises(WeightsError, match="no model file"):
            load_checkpoint(path)


@pytest.mark.parametrize(
    ("read", "method", "message"),
    [
        (ClAM.load, "dream", "'dream', not 'clam'"),
        (load, "dream", r"unknown method 'dream'.*clam"),
        (ClAM.load, "clam", "lacks part of its model"),
        (load, "clam", "lacks part of its model"),
    ],
)
def test_files_of_other_methods_and_incomplete_files(tmp_path: Path, read: Any, method: str, message: str) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, {}, {"method": method}, force=False)
    with pytest.raises(WeightsError, match=message):
        read(path)
