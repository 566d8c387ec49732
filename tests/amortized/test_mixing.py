"""Mixing and coupling: what attention is a case of, EM by hand, and what order, padding and empty clusters change."""

import math
from typing import Any, TypeVar

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from coterie.amortized.amcp.mixing import (
    LEAST_TEMPERATURE,
    Coupled,
    InterClusterCoupling,
    IntraClusterMixing,
    Membership,
    Mixed,
    PairwiseScores,
    e_step,
    evidence_bound,
    m_step,
    quadratic_scores,
)
from coterie.errors import ConfigError
from coterie.nn.attention import ISAB, AttentionConfig
from coterie.ops.sinkhorn import transport_plan

WIDTH, HIDDEN = 5, 7
KINDS: dict[str, dict[str, Any]] = {
    f"{kernel} {references}": {"kernel": kernel, "references": references}
    for kernel in ("quadratic", "linear", "neural")
    for references in ("means", "decoded")
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
EACH_E_STEP = pytest.mark.parametrize("transport_steps", [0, 4], ids=["regular", "transport"])
Module = TypeVar("Module", bound=nn.Module)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def known(module: Module, seed: int = 0) -> Module:
    """The same module in double precision, with weights that do not depend on torch's own random state."""
    source = seeded(seed)
    module.double()
    with torch.no_grad():
        for value in module.parameters():
            if value.dim() > 1:
                value.copy_(torch.randn(value.shape, generator=source) / math.sqrt(value.shape[1]))
    return module


def make_mixing(**settings: Any) -> IntraClusterMixing:
    usual: dict[str, Any] = {
        "kernel": "quadratic",
        "references": "means",
        "rate": 0.5,
        "prior_strength": 1.0,
        "dropout": 0.0,
    }
    return known(IntraClusterMixing(WIDTH, **(usual | settings)))


def make_coupling(seed: int = 0, **settings: Any) -> InterClusterCoupling:
    usual: dict[str, Any] = {"references": "means", "anchored": False}
    return known(InterClusterCoupling(WIDTH, HIDDEN, **(usual | settings)), seed)


def points(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)


def a_coupled(sets: int = 2, k: int = 3, seed: int = 3) -> Coupled:
    return Coupled(
        reference=points(sets, k, WIDTH, seed=seed),
        proportion=points(sets, k + 1, seed=seed + 1).softmax(dim=1),
        background=points(sets, 1, WIDTH, seed=seed + 2),
        level=points(sets, 1, seed=seed + 3),
        state=points(sets, HIDDEN, seed=seed + 4),
    )


def assert_same(left: Coupled | Mixed, right: Coupled | Mixed) -> None:
    torch.testing.assert_close(left._asdict(), right._asdict(), atol=1e-9, rtol=1e-9)


def test_the_inducing_half_of_an_isab_is_transport_with_one_constraint() -> None:
    """AMCP's appendix, Eq. 20 to 25: linear kernel, references that each get 1/k, and a temperature of √d."""
    n, k = 9, 4
    x, reference = points(1, n, WIDTH), points(1, k, WIDTH, seed=2)
    kernel = known(PairwiseScores(WIDTH, "linear"))
    assert kernel.map is not None
    with torch.no_grad():
        kernel.log_temperature.fill_(math.log(math.sqrt(WIDTH) - LEAST_TEMPERATURE))
        mapped = kernel.map(x)
        plan = transport_plan(kernel(x, reference), None, torch.full((1, k), 1 / k, dtype=torch.float64))
    moved = k * plan.mT @ mapped
    weight = ((reference @ mapped.mT) / math.sqrt(WIDTH)).exp()
    by_hand = weight / weight.sum(dim=2, keepdim=True) @ mapped
    torch.testing.assert_close(moved, by_hand, atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(moved, m_step(mapped, plan, reference, 0.0), atol=1e-12, rtol=1e-10)
    theirs = scaled_dot_product_attention(reference, mapped, mapped)
    torch.testing.assert_close(moved, theirs, atol=1e-12, rtol=1e-10)

    # The block that DAC is made of, when queries are as they are, and keys and values are one.
    isab = known(ISAB(WIDTH, AttentionConfig(WIDTH, 1, k, layer_norm=False, scale="model", feed_forward="linear")))
    block = isab.pool.block
    with torch.no_grad():
        isab.pool.seeds.copy_(reference[0])
        for layer, value in ((block.query, torch.eye(WIDTH)), (block.key, kernel.map.weight)):
            layer.weight.copy_(value)
        block.value.weight.copy_(kernel.map.weight)
        block.forward_map.weight.zero_()
        for layer in (block.query, block.key, block.value, block.forward_map):
            layer.bias.zero_()
        pooled = isab.pool(x)
    torch.testing.assert_close(pooled - reference, moved, atol=1e-6, rtol=1e-6)


@EACH_KIND
@EACH_E_STEP
def test_without_steps_references_stay_where_coupling_put_them(kind: dict[str, Any], transport_steps: int) -> None:
    mixing, coupled, x = make_mixing(**kind), a_coupled(), points(2, 9, WIDTH)
    with torch.no_grad():
        mixed = mixing(x, torch.ones(2, 9, dtype=torch.bool), coupled, steps=0, transport_steps=transport_steps)
        torch.testing.assert_close(mixed.mean, mixing.decode(coupled.reference), atol=0, rtol=0)
    if not transport_steps:
        torch.testing.assert_close(mixed.offset, coupled.proportion[:, :-1].log())
        torch.testing.assert_close(mixed.level, coupled.level + coupled.proportion[:, -1:].log())
    assert mixed.state is coupled.state


@EACH_E_STEP
def test_steps_are_those_of_expectation_and_maximisation(transport_steps: int) -> None:
    mixing = make_mixing(prior_strength=0.7)
    coupled, x = a_coupled(), points(2, 9, WIDTH)
    with torch.no_grad():
        mixing.pair_scores.log_temperature.fill_(0.3)
        flatness = math.log1p(math.exp(float(mixing.flatness)))
        mean, mass = coupled.reference, torch.ones(2, 9, dtype=torch.float64)
        for step in range(4):
            near = quadratic_scores(x, mean) / (math.exp(0.3) + LEAST_TEMPERATURE)
            broad = flatness * quadratic_scores(x, coupled.background) + coupled.level.unsqueeze(2)
            belonging, offset = e_step(torch.cat((near, broad), dim=2), mass, coupled.proportion, transport_steps)
            if step < 3:
                mean = m_step(x, belonging[..., :-1], coupled.reference, 0.7)
        mixed = mixing(x, mass.bool(), coupled, steps=3, transport_steps=transport_steps)
        asked = mixing.pair_logits(x, mixed).softmax(dim=2)
    torch.testing.assert_close(mixed.mean, mean)
    torch.testing.assert_close(mixed.offset, offset[:, :-1])
    torch.testing.assert_close(mixed.level, coupled.level + offset[:, -1:])
    torch.testing.assert_close(asked, belonging)  # what is kept is enough to ask about any points


def test_more_steps_never_lower_the_bound() -> None:
    coupled, x = a_coupled(), 2 * points(2, 30, WIDTH)
    everyone = torch.ones(2, 30, dtype=torch.bool)
    mixing, bounds = make_mixing(prior_strength=1e-9), []
    with torch.no_grad():
        for steps in range(7):
            mixed = mixing(x, everyone, coupled, steps=steps, transport_steps=0)
            plain = mixed._replace(offset=torch.zeros_like(mixed.offset), level=coupled.level)
            bounds.append(
                evidence_bound(
                    mixing.pair_logits(x, plain), coupled.proportion, mixing.pair_logits(x, mixed).softmax(2)
                )
            )
    gain = torch.stack(bounds).diff(dim=0)
    assert (gain >= -1e-8).all()
    assert (gain[0] > 1e-3).all()


@EACH_KIND
@EACH_E_STEP
def test_neither_order_nor_masked_points_nor_empty_clusters_matter(kind: dict[str, Any], transport_steps: int) -> None:
    coupling, mixing = make_coupling(references=kind["references"]), make_mixing(**kind)
    membership = known(Membership(WIDTH, HIDDEN, coupling.state_width))
    x, found = points(1, 12, WIDTH), points(1, 3, WIDTH, seed=2)
    there = torch.tensor([[True, False, True] * 4])
    x[~there] = 100.0
    left = there & (torch.arange(12) > 3)
    share = torch.tensor([[0.25, 0.0, 0.3]], dtype=torch.float64)
    steps = {"steps": 2, "transport_steps": transport_steps}
    with torch.no_grad():
        coupled = coupling(x, left, found, share, None)
        mixed = mixing(x, there, coupled, **steps)
        logits = membership(x, mixing.pair_logits(x, mixed), mixed)

        order, kept = torch.tensor([9, 0, 5, 2, 11, 8, 3, 6]), [2, 0]
        fewer = x[:, order]
        alone = coupling(fewer, left[:, order], found[:, kept], share[:, kept], None)
        other = mixing(fewer, torch.ones(1, 8, dtype=torch.bool), alone, **steps)
        asked = membership(fewer, mixing.pair_logits(fewer, other), other)
    torch.testing.assert_close(coupled.proportion[:, [0, 3, 1, 4]], alone.proportion, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(coupled.state, alone.state, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(mixed.mean[:, [0, 3, 1]], other.mean, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(logits[:, order], asked, atol=1e-9, rtol=1e-9)


def test_found_clusters_keep_their_proportions_and_the_rest_is_divided() -> None:
    coupling = make_coupling()
    share = torch.tensor([[0.2, 0.5], [0.0, 0.0], [0.6, 0.4]], dtype=torch.float64)
    remaining = torch.ones(3, 6, dtype=torch.bool)
    with torch.no_grad():
        coupled = coupling(points(3, 6, WIDTH), remaining, points(3, 2, WIDTH, seed=2), share, None)
    torch.testing.assert_close(coupled.proportion.sum(dim=1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(coupled.proportion[:, 1:3], share)
    assert (coupled.proportion[:2, [0, 3]] > 0).all()
    torch.testing.assert_close(coupled.proportion[2, [0, 3]], torch.zeros(2, dtype=torch.float64))


def test_what_is_proposed_lies_among_the_points_that_are_left_or_is_the_anchor() -> None:
    x, share = points(2, 6, WIDTH), torch.zeros(2, 1, dtype=torch.float64)
    only = torch.zeros(2, 6, dtype=torch.bool)
    only[:, 2] = True
    found = torch.zeros(2, 1, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        picked = make_coupling()(x, only, found, share, None)
        shown = make_coupling(anchored=True)(x, torch.ones_like(only), found, share, x[:, 3:4])
    torch.testing.assert_close(picked.reference[:, 0], x[:, 2])
    torch.testing.assert_close(shown.reference[:, 0], x[:, 3])


def test_coupling_by_anchors_needs_anchors() -> None:
    x, everyone = points(2, 6, WIDTH), torch.ones(2, 6, dtype=torch.bool)
    with pytest.raises(ConfigError, match="an anchor for each set"):
        make_coupling(anchored=True)(x, everyone, x[:, :1], torch.zeros(2, 1, dtype=torch.float64), None)


def test_membership_begins_as_responsibility() -> None:
    """Without the network that puts it right, the logit is that of the new cluster's responsibility."""
    mixing, membership = make_mixing(), known(Membership(WIDTH, HIDDEN, HIDDEN))
    last = membership.rest[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.zero_()
        x = points(2, 9, WIDTH)
        mixed = mixing(x, torch.ones(2, 9, dtype=torch.bool), a_coupled(), steps=2, transport_steps=0)
        pair_logits = mixing.pair_logits(x, mixed)
        chance = membership(x, pair_logits, mixed).sigmoid()
    torch.testing.assert_close(chance, pair_logits.softmax(dim=2)[..., 0])


def test_scores_are_over_a_temperature_and_the_neural_kernel_adds_to_the_distance() -> None:
    x, mean = points(2, 6, WIDTH), points(2, 3, WIDTH, seed=2)
    plain, neural = known(PairwiseScores(WIDTH, "quadratic")), known(PairwiseScores(WIDTH, "neural"))
    assert neural.bend is not None
    with torch.no_grad():
        assert not torch.allclose(neural(x, mean), plain(x, mean))
        neural.bend.weight.zero_()
        torch.testing.assert_close(neural(x, mean), plain(x, mean))
        plain.log_temperature.fill_(math.log(4.0))
        torch.testing.assert_close(plain(x, mean), quadratic_scores(x, mean) / (4 + LEAST_TEMPERATURE))
