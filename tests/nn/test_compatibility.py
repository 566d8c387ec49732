"""Additive compatibility: the plain formula, its gradient, and how much is held at once."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from coterie.nn import attention as compatibility
from coterie.nn.attention import additive_compatibility


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def plain(query: Tensor, key: Tensor, weight: Tensor) -> Tensor:
    """All sums q + k at once."""
    return (torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) * weight).sum(dim=-1)


def gradients(function: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Of a sum in which every entry counts differently."""
    given_ones = [value.clone().requires_grad_() for value in inputs]
    result = function(*given_ones)
    counts = normal(*result.shape, seed=9)
    return torch.autograd.grad((result * counts).sum(), given_ones)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sums q + k there were at once, each time that some were made."""
    sizes: list[int] = []
    make = compatibility._tanh

    def noted(query: Tensor, key: Tensor) -> Tensor:
        bent = make(query, key)
        sizes.append(bent.numel())
        return bent

    monkeypatch.setattr(compatibility, "_tanh", noted)
    return sizes


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 1, 2)], ids=str)
def test_it_is_the_plain_formula_with_any_leading_sizes(leading: tuple[int, ...]) -> None:
    query, key, weight = normal(*leading, 4, 3), normal(*leading, 6, 3, seed=1), normal(3, seed=2)
    result = additive_compatibility(query, key, weight)
    assert result.shape == (*leading, 4, 6)
    torch.testing.assert_close(result, plain(query, key, weight))
    for ours, expected in zip(
        gradients(additive_compatibility, query, key, weight), gradients(plain, query, key, weight), strict=True
    ):
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("block", [1, 50, 1 << 21])
def test_gradients_pass_gradcheck(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "BLOCK_ELEMENTS", block)
    inputs = (normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(4, seed=2))
    assert torch.autograd.gradcheck(additive_compatibility, [value.requires_grad_() for value in inputs])


@given(st.integers(1, 400), st.integers(1, 9), st.integers(1, 7))
def test_how_much_is_taken_at_once_does_not_matter(block: int, n: int, keys: int) -> None:
    inputs = (normal(2, n, 3), normal(2, keys, 3, seed=1), normal(3, seed=2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compatibility, "BLOCK_ELEMENTS", block)
        result, slopes = additive_compatibility(*inputs), gradients(additive_compatibility, *inputs)
    torch.testing.assert_close(result, plain(*inputs))
    for ours, expected in zip(slopes, gradients(plain, *inputs), strict=True):
        torch.testing.assert_close(ours, expected)


def test_only_the_inputs_are_saved_for_the_backward_pass() -> None:
    saved: list[Tensor] = []
    inputs = [value.requires_grad_() for value in (normal(2, 30, 8), normal(2, 20, 8, seed=1), normal(8, seed=2))]
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda value: value):
        additive_compatibility(*inputs)
    assert [value.numel() for value in saved] == [value.numel() for value in inputs]


def test_queries_times_keys_times_width_are_never_held(held: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    sets, n, width = 3, 40, 16
    two_rows = sets * n * width * 2
    monkeypatch.setattr(compatibility, "BLOCK_ELEMENTS", two_rows)
    gradients(additive_compatibility, normal(sets, n, width), normal(sets, n, width, seed=1), normal(width, seed=2))
    assert held == [two_rows] * (n // 2) * 2  # forwards, and backwards again


@pytest.mark.parametrize(("n", "keys", "sets"), [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_nothing_goes_with_nothing(n: int, keys: int, sets: int) -> None:
    inputs = (normal(sets, n, 4), normal(sets, keys, 4, seed=1), normal(4, seed=2))
    assert additive_compatibility(*inputs).shape == (sets, n, keys)
    for slope, value in zip(gradients(additive_compatibility, *inputs), inputs, strict=True):
        assert slope.shape == value.shape
        assert not slope.any()
