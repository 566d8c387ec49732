"""The memory bank: first in, first out; saved as it is; nothing in it moves what was computed before."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import ConfigError
from coterie.tcc.model import MemoryBank


def counted(first: int, count: int, shape: tuple[int, ...]) -> Tensor:
    """Entries that are their own numbers."""
    numbers = torch.arange(first, first + count, dtype=torch.float32)
    return numbers.reshape(-1, *[1] * len(shape)).expand(-1, *shape)


@given(
    length=st.integers(0, 7),
    sizes=st.lists(st.integers(0, 16), max_size=8),
    shape=st.sampled_from([(), (2,), (3, 2)]),
)
def test_the_newest_are_held_with_the_oldest_first(length: int, sizes: list[int], shape: tuple[int, ...]) -> None:
    bank = MemoryBank(length, shape)
    total = 0
    for size in sizes:
        bank.add(counted(total, size, shape))
        total += size
        count = min(total, length)
        assert torch.equal(bank.held(), counted(total - count, count, shape))
        assert int(bank.filled) == count


def test_nothing_is_held_at_first_or_without_length() -> None:
    assert MemoryBank(5, (3,)).held().shape == (0, 3)
    none = MemoryBank(0, (4, 3))
    none.add(torch.ones(2, 4, 3))
    assert none.held().shape == (0, 4, 3)


def test_rounds_of_clusters_keep_their_order_when_they_are_flattened() -> None:
    clusters = 4
    bank = MemoryBank(3, (clusters, 2))
    for step in range(5):
        entry = torch.stack((torch.full((clusters,), float(step)), torch.arange(clusters).float()), dim=1)
        bank.add(entry.unsqueeze(0))
    rows = bank.held().flatten(0, 1)
    assert rows[:, 0].tolist() == [2.0] * 4 + [3.0] * 4 + [4.0] * 4
    assert torch.equal(rows[:, 1], torch.arange(12) % clusters)


def test_no_gradient_enters_and_nothing_is_a_parameter() -> None:
    bank = MemoryBank(4, (2,))
    bank.add(torch.ones(3, 2, requires_grad=True) * 2)
    assert not bank.held().requires_grad
    assert not list(bank.parameters())


def test_what_was_held_can_be_differentiated_after_more_is_added() -> None:
    bank = MemoryBank(2, (2,))
    bank.add(torch.ones(2, 2))
    query = torch.ones(2, requires_grad=True)
    held = bank.held()
    loss = (held @ query).sum()
    bank.add(torch.full((2, 2), 7.0))
    (slope,) = torch.autograd.grad(loss, query)
    assert slope.tolist() == [2.0, 2.0]
    assert torch.equal(held, torch.ones(2, 2))


def test_what_was_added_may_be_changed_afterwards() -> None:
    bank = MemoryBank(2, (2,))
    new = torch.ones(2, 2)
    bank.add(new)
    new.zero_()
    assert torch.equal(bank.held(), torch.ones(2, 2))


@pytest.mark.parametrize("length", [0, 5])
def test_a_bank_goes_on_from_its_file(tmp_path: Path, length: int) -> None:
    bank = MemoryBank(length, (3,))
    bank.add(counted(0, 7, (3,)))
    save_checkpoint(tmp_path / "bank.safetensors", bank.state_dict(), {}, force=False)
    other = MemoryBank(length, (3,))
    other.load_state_dict(load_checkpoint(tmp_path / "bank.safetensors")[0])
    for each in (bank, other):
        each.add(counted(7, 2, (3,)))
    assert torch.equal(other.held(), bank.held())
    assert len(other.held()) == length


def test_entries_take_the_kind_of_the_bank() -> None:
    bank = MemoryBank(3, (2,)).double()
    bank.add(torch.ones(1, 2))
    assert bank.held().dtype == torch.float64
    assert bank.place.dtype == bank.filled.dtype == torch.int64


@pytest.mark.parametrize(("length", "shape"), [(-1, (3,)), (2, (0,)), (2, (3, -1))])
def test_banks_that_cannot_be_are_refused(length: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=rf"length={length} must be at least 0, and all of shape=\("):
        MemoryBank(length, shape)


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (2, 1, 3)])
def test_entries_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"do not fit a memory of entries of shape \(3,\)"):
        MemoryBank(2, (3,)).add(torch.ones(shape))
