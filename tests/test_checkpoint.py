"""Model files: whole or refused."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.clam.estimator import ClAM
from coterie.errors import OutputError, WeightsError
from coterie.methods import load


def tensors() -> dict[str, Tensor]:
    return {
        "weights": torch.arange(12.0).view(3, 4),
        "flags": torch.tensor([True, False]),
        "count": torch.tensor(7),
        "turned": torch.arange(6.0).view(2, 3).T,
        "nothing": torch.zeros(0, 3),
    }


CARD = {"method": "clam", "sizes": [1, 2], "text": "β ≤ ½", "nested": {"a": None, "b": 0.1}}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, tensors(), CARD, force=False)
    return path


def rewrite_header(path: Path, **changes: str | None) -> None:
    """Change entries of the file's metadata and nothing else."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header["__metadata__"] | changes
    header["__metadata__"] = {name: value for name, value in metadata.items() if value is not None}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def test_what_was_saved_is_loaded(saved: Path) -> None:
    loaded, card = load_checkpoint(saved)
    assert card == CARD
    assert loaded.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_the_order_of_tensors_and_values_is_of_no_matter(tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    backwards: dict[str, Any] = dict(reversed(CARD.items()))
    save_checkpoint(again, dict(reversed(tensors().items())), backwards, force=False)
    loaded, card = load_checkpoint(again)
    assert card == CARD
    assert loaded.keys() == tensors().keys()
    once_more = tmp_path / "once_more.safetensors"
    save_checkpoint(once_more, tensors(), CARD, force=False)
    assert once_more.read_bytes() == again.read_bytes()


def test_files_are_replaced_only_by_force(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(OutputError):
        save_checkpoint(saved, {}, {}, force=False)
    assert saved.read_bytes() == before
    save_checkpoint(saved, {}, {}, force=True)
    assert load_checkpoint(saved) == ({}, {})
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_card_holds_json_values_only(tmp_path: Path) -> None:
    for value in (float("nan"), {1, 2}):
        with pytest.raises((ValueError, TypeError)):
            save_checkpoint(tmp_path / "model.safetensors", {}, {"value": value}, force=False)
    assert list(tmp_path.iterdir()) == []


def test_an_altered_tensor_is_noticed(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[-1] ^= 1
    saved.write_bytes(data)
    with pytest.raises(WeightsError, match="checksum"):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    "changes", [{"card": '{"method": "other"}'}, {"sha256": "0" * 64}, {"sha256": None}, {"card": None}]
)
def test_an_altered_header_is_noticed(saved: Path, changes: dict[str, str | None]) -> None:
    rewrite_header(saved, **changes)
    with pytest.raises(WeightsError, match="checksum"):
        load_checkpoint(saved)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.99])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(share * len(data))])
    with pytest.raises(WeightsError, match="damaged, cut short"):
        load_checkpoint(saved)


def test_appended_bytes_are_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + b"more")
    with pytest.raises(WeightsError):
        load_checkpoint(saved)


def test_a_newer_version_is_refused(saved: Path) -> None:
    rewrite_header(saved, format_version="2")
    with pytest.raises(WeightsError, match=r"format version 2.*reads 1.*Install"):
        load_checkpoint(saved)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_another_programs_file_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"bf16": torch.ones(2, dtype=torch.bfloat16)}, path, metadata=metadata)
    with pytest.raises(WeightsError, match="not one that Coterie wrote"):
        load_checkpoint(path)


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"weights": torch.ones(2)}, path)
    with pytest.raises(WeightsError, match="not a safetensors file"):
        load_checkpoint(path)


def test_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("a,b\n1,2\n" * 20)
    with pytest.raises(WeightsError, match="not a safetensors file"):
        load_checkpoint(path)


def test_no_file_and_directories_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.safetensors"):
        with pytest.raises(WeightsError, match="no model file"):
            load_checkpoint(path)


def test_estimators_refuse_files_of_other_methods(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, {}, {"method": "dream"}, force=False)
    with pytest.raises(WeightsError, match="'dream', not 'clam'"):
        ClAM.load(path)
    with pytest.raises(WeightsError, match=r"unknown method 'dream'.*clam"):
        load(path)


def test_estimators_refuse_files_that_lack_a_part(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, {}, {"method": "clam"}, force=False)
    for read in (ClAM.load, load):
        with pytest.raises(WeightsError, match="lacks part of its model"):
            read(path)
