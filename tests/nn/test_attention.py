"""Attention: laws that all blocks obey in every published flavour, and the formulae by hand."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Generator, Tensor, nn

from coterie.errors import ConfigError
from coterie.nn.attention import ISAB, MAB, PMA, SAB, AttentionConfig, ISABStack

WIDTH, INDUCING = 12, 5
FLAVOURS = {
    "default": AttentionConfig(WIDTH, 4, INDUCING),
    "dac": AttentionConfig(WIDTH, 4, INDUCING, layer_norm=False, scale="model"),
    "attention-based": AttentionConfig(
        WIDTH, 3, INDUCING, residual="input", feed_forward="linear", output_map=True, scale="model"
    ),
    "additive": AttentionConfig(
        WIDTH, 3, INDUCING, compatibility="additive", residual="input", feed_forward="linear", scale="none"
    ),
    "additive, projected": AttentionConfig(WIDTH, 2, INDUCING, compatibility="additive", output_map=True),
    "gated": AttentionConfig(WIDTH, 4, INDUCING, residual="gated", output_map=True),
    "unscaled": AttentionConfig(WIDTH, 4, INDUCING, scale="none"),
}
EACH_FLAVOUR = pytest.mark.parametrize("config", FLAVOURS.values(), ids=FLAVOURS.keys())
Block = TypeVar("Block", bound=nn.Module)
Encode = Callable[[Tensor, Tensor | None], Tensor]


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def built(make: Callable[[], Block], seed: int = 0) -> Block:
    """A block in double precision with known weights; torch's own random state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(generator(seed).get_state())
        return make().double()


def points(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def some_valid(sets: int, count: int, seed: int = 2) -> Tensor:
    """Other points in every set, and other numbers of them."""
    valid = torch.rand((sets, count), generator=generator(seed)) < torch.linspace(0.3, 0.8, sets).unsqueeze(1)
    valid[:, 1] = True
    return valid


def encoders(config: AttentionConfig) -> dict[str, Encode]:
    """All blocks that give every point of a set something."""
    sab, isab = built(lambda: SAB(WIDTH, config)), built(lambda: ISAB(WIDTH, config))
    untied, tied = built(lambda: ISABStack(WIDTH, 3, config)), built(lambda: ISABStack(WIDTH, 3, config, tied=True))
    return {
        "SAB": sab,
        "ISAB": lambda x, valid: isab(x, isab.pool(x, valid)),
        "ISABStack": lambda x, valid: untied(x, valid)[0],
        "tied ISABStack": lambda x, valid: tied(x, valid)[0],
    }


def poolers(config: AttentionConfig) -> dict[str, Encode]:
    """All blocks that summarise a set."""
    pma, isab = built(lambda: PMA(WIDTH, 3, config)), built(lambda: ISAB(WIDTH, config))
    stack = built(lambda: ISABStack(WIDTH, 3, config))
    return {"PMA": pma, "ISAB": isab.pool, "ISABStack": lambda x, valid: torch.cat(stack(x, valid)[1], dim=1)}


def after_attention(block: MAB, query: Tensor, attended: Tensor | None) -> Tensor:
    """What a block makes of the result of attention, written out; None if there was nothing to attend to."""
    config = block.config
    start = block.query(query) if config.residual == "projected" else query
    if attended is None:
        hidden = start
    elif block.gate is None:
        hidden = start + attended
    else:
        share = 1 / (1 + (-block.gate(query)).exp())
        hidden = share * attended + (1 - share) * query
    if config.layer_norm:
        hidden = normalised(hidden)
    change = hidden @ block.forward_map.weight.T + block.forward_map.bias
    hidden = hidden + (change.clamp(min=0) if config.feed_forward == "relu" else change)
    return normalised(hidden) if config.layer_norm else hidden


def normalised(hidden: Tensor) -> Tensor:
    """Layer norm before it has learned anything."""
    spread = hidden.var(dim=2, correction=0, keepdim=True) + 1e-5
    return (hidden - hidden.mean(dim=2, keepdim=True)) / spread.sqrt()


def assert_same(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, atol=1e-11, rtol=1e-11)


@EACH_FLAVOUR
@pytest.mark.parametrize("masked", [False, True])
def test_permuting_points_permutes_results(config: AttentionConfig, masked: bool) -> None:
    x = points(3, 9, WIDTH)
    valid = some_valid(3, 9) if masked else None
    order = torch.randperm(9, generator=generator())
    shuffled = None if valid is None else valid[:, order]
    for encode in encoders(config).values():
        assert_same(encode(x[:, order], shuffled), encode(x, valid)[:, order])
    for pool in poolers(config).values():
        assert_same(pool(x[:, order], shuffled), pool(x, valid))


@EACH_FLAVOUR
def test_permuting_queries_permutes_results_and_the_order_of_keys_does_not_matter(config: AttentionConfig) -> None:
    block = built(lambda: MAB(WIDTH, 7, config))
    x, y, valid = points(2, 4, WIDTH), points(2, 6, 7, seed=3), some_valid(2, 6)
    queries, keys = torch.randperm(4, generator=generator()), torch.randperm(6, generator=generator())
    assert_same(block(x[:, queries], y[:, keys], valid[:, keys]), block(x, y, valid)[:, queries])


@EACH_FLAVOUR
def test_masking_is_removal(config: AttentionConfig) -> None:
    """Whatever the masked values are; a mask that hides nothing equals none."""
    x, valid = points(4, 11, WIDTH), some_valid(4, 11)
    valid[3] = True
    other = torch.where(valid.unsqueeze(2), x, torch.full_like(x, -1e8))
    for encode in encoders(config).values():
        assert torch.equal(encode(other, valid)[valid], encode(x, valid)[valid])
        for result, own, there in zip(encode(x, valid), x, valid, strict=True):
            assert_same(result[there], encode(own[there].unsqueeze(0), None)[0])
    for pool in poolers(config).values():
        assert torch.equal(pool(other, valid), pool(x, valid))
        for result, own, there in zip(pool(x, valid), x, valid, strict=True):
            assert_same(result, pool(own[there].unsqueeze(0), None)[0])


@EACH_FLAVOUR
def test_without_a_key_attention_adds_nothing(config: AttentionConfig) -> None:
    """Also where keys are hidden in one set alone, and where there is none to hide."""
    block = built(lambda: MAB(WIDTH, 7, config))
    x, y = points(2, 4, WIDTH).requires_grad_(), points(2, 6, 7, seed=3).requires_grad_()
    valid = torch.stack([torch.ones(6, dtype=torch.bool), torch.zeros(6, dtype=torch.bool)])
    result = block(x, y, valid)
    assert_same(result[0], block(x, y)[0])
    assert_same(result[1], after_attention(block, x, None)[1])
    assert_same(block(x, y[:, :0], valid[:, :0]), after_attention(block, x, None))
    result[1].square().sum().backward()
    for name, value in {"x": x, "y": y, **dict(block.named_parameters())}.items():
        assert value.grad is not None
        assert value.grad.isfinite().all(), name
    assert y.grad is not None
    assert not y.grad.any()


@EACH_FLAVOUR
def test_sets_without_a_point_are_finite(config: AttentionConfig) -> None:
    x, valid = points(2, 6, WIDTH), torch.zeros(2, 6, dtype=torch.bool)
    sab, stack = built(lambda: SAB(WIDTH, config)), built(lambda: ISABStack(WIDTH, 3, config))
    given = x.clone().requires_grad_()
    result = stack(sab(given, valid), valid)[0]
    result.square().sum().backward()
    assert result.isfinite().all()
    for value in (given, *sab.parameters(), *stack.parameters()):
        assert value.grad is not None
        assert value.grad.isfinite().all()


@EACH_FLAVOUR
def test_attention_to_a_single_key_adds_its_value(config: AttentionConfig) -> None:
    block = built(lambda: MAB(WIDTH, 7, config))
    x, y = points(2, 4, WIDTH), points(2, 1, 7, seed=3)
    expected = after_attention(block, x, block.mix(block.value(y)))
    assert_same(block(x, y), expected)
    nn.init.zeros_(block.key.weight)
    assert_same(block(x, y), expected)
    if config is FLAVOURS["dac"]:
        hidden = block.query(x) + block.value(y)
        assert_same(block(x, y), hidden + block.forward_map(hidden).relu())


@EACH_FLAVOUR
def test_attention_by_hand(config: AttentionConfig) -> None:
    block = built(lambda: MAB(WIDTH, 7, config))
    x, y, valid = points(2, 4, WIDTH), points(2, 6, 7, seed=3), some_valid(2, 6)
    query, key, value = block.query(x), block.key(y), block.value(y)
    part = WIDTH // config.heads
    heads = []
    for first in range(0, WIDTH, part):
        columns = slice(first, first + part)
        if block.bend is None:
            logits = query[..., columns] @ key[..., columns].mT
        else:
            sums = query[..., columns].unsqueeze(2) + key[..., columns].unsqueeze(1)
            logits = (sums.tanh() * block.bend).sum(dim=3)
        logits = logits / math.sqrt({"model": WIDTH, "head": part, "none": 1}[config.scale])
        weights = logits.exp() * valid.unsqueeze(1)
        heads.append(weights / weights.sum(dim=2, keepdim=True) @ value[..., columns])
    assert_same(block(x, y, valid), after_attention(block, x, block.mix(torch.cat(heads, dim=2))))


@pytest.mark.parametrize("tied", [False, True])
@EACH_FLAVOUR
def test_points_can_attend_to_summaries_made_before(config: AttentionConfig, tied: bool) -> None:
    stack = built(lambda: ISABStack(WIDTH, 3, config, tied=tied))
    x, valid = points(2, 6, WIDTH), some_valid(2, 6)
    encoded, summaries = stack(x, valid)
    assert len(summaries) == 3
    assert all(summary.shape == (2, INDUCING, WIDTH) for summary in summaries)
    assert_same(stack.attend(x, summaries), encoded)
    new = torch.cat([points(2, 5, WIDTH, seed=9), x], dim=1)
    assert_same(stack.attend(new, summaries)[:, 5:], encoded)
    with pytest.raises(ValueError, match="shorter"):
        stack.attend(x, summaries[:2])


def test_tied_layers_are_one_block_used_again() -> None:
    config = FLAVOURS["default"]
    stack = built(lambda: ISABStack(3, 4, config, tied=True))
    x = points(2, 6, 3)
    hidden = x
    for block in (stack.blocks[0], *[stack.blocks[1]] * 3):
        assert isinstance(block, ISAB)
        hidden = block(hidden, block.pool(hidden))
    assert_same(stack(x)[0], hidden)
    names = {name.split(".")[1] for name in stack.state_dict()}
    assert names == {"0", "1"}


@pytest.mark.parametrize(
    "values", [{"width": 10, "heads": 4}, {"width": 0}, {"heads": 0}, {"heads": -2}, {"inducing": 0}], ids=str
)
def test_impossible_sizes_are_rejected(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must"):
        AttentionConfig(**values)


@pytest.mark.parametrize("name", ["attention-based", "gated"])
def test_residuals_of_another_width_are_rejected(name: str) -> None:
    config = FLAVOURS[name]
    for make in (lambda: MAB(3, WIDTH, config), lambda: SAB(3, config), lambda: ISABStack(3, 2, config)):
        with pytest.raises(ConfigError, match=r"queries of width 3; embed"):
            make()
    PMA(3, 2, config)  # its queries are its own


def test_an_empty_stack_changes_nothing_and_a_negative_depth_is_rejected() -> None:
    x = points(2, 6, 3)
    assert torch.equal(ISABStack(3, 0, FLAVOURS["default"])(x)[0], x)
    with pytest.raises(ConfigError, match="depth=-1"):
        ISABStack(3, -1, FLAVOURS["default"])


def test_memory_is_linear_in_the_number_of_points() -> None:
    """Logits between all pairs of these points would take 160 gigabytes."""
    with torch.no_grad():
        encoded, _ = ISABStack(2, 2, AttentionConfig(8, 4, 4))(torch.randn(1, 100_000, 2, generator=generator()))
    assert encoded.shape == (1, 100_000, 8)
    assert encoded.isfinite().all()
