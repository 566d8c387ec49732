"""What attention does to sets, as the paper on attention-based clustering proves it, on our own blocks.

Section 5: attention alone contracts a set. Proposition 2 and Corollary 1: with a skip connection, two groups that
attend more to themselves than to each other move apart faster than either grows.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Generator, Tensor, nn

from coterie.nn.attention import MAB, AttentionConfig

SEEDS = st.integers(0, 2**31)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def bare_block(width: int, compatibility: Any = "multiplicative") -> MAB:
    """A block that is attention to the points themselves and a skip connection, and nothing else."""
    config = AttentionConfig(
        width, 1, layer_norm=False, scale="none", compatibility=compatibility, residual="input", feed_forward="linear"
    )
    block = MAB(width, width, config).double()
    with torch.no_grad():
        nn.init.eye_(block.value.weight)
        for unused in (block.value.bias, block.forward_map.weight, block.forward_map.bias):
            unused.zero_()
    return block


def attend(x: Tensor, compatibility: str, seed: int, gain: float) -> Tensor:
    """Attention without the skip connection, with random maps of queries and keys."""
    block = bare_block(x.shape[1], compatibility)
    with torch.no_grad():
        for i, part in enumerate((block.query, block.key)):
            part.weight.copy_(gain * normal(*part.weight.shape, seed=seed + i))
        if block.bend is not None:
            block.bend.copy_(gain * normal(x.shape[1], seed=seed + 2))
        moved: Tensor = block(x.unsqueeze(0), x.unsqueeze(0))[0] - x
    return moved


def diameter(x: Tensor) -> float:
    return float(torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").max())


@given(st.sampled_from(["multiplicative", "additive"]), st.integers(2, 12), st.integers(1, 4), st.floats(0, 3), SEEDS)
def test_attention_stays_in_the_convex_hull(compatibility: str, n: int, width: int, gain: float, seed: int) -> None:
    x = normal(n, width, seed=seed)
    result = attend(x, compatibility, seed, gain)
    corners = torch.cat([x.T, torch.ones((1, n), dtype=torch.float64)]).numpy()
    assert max(float(nnls(corners, np.append(point.numpy(), 1.0))[1]) for point in result) < 1e-8
    assert diameter(result) <= diameter(x) * (1 + 1e-12)


@pytest.mark.parametrize("compatibility", ["multiplicative", "additive"])
def test_repeated_attention_contracts_a_set_to_a_point(compatibility: str) -> None:
    """Which is why blocks need their skip connections."""
    x, diameters = normal(8, 3, seed=0), []
    for _ in range(31):
        diameters.append(diameter(x))
        x = attend(x, compatibility, 0, 0.3)
    assert all(later < earlier for earlier, later in pairwise(diameters) if earlier > 1e-12)
    assert diameters[-1] < 1e-3 * diameters[0]


class Groups:
    """Two groups of n and m points, and weights as in Proposition 2.

    Within the first group alpha, within the second beta, between them gamma, of each point to itself delta. As all rows
    sum to one, alpha and gamma leave no choice of the others.
    """

    def __init__(self, n: int, m: int, alpha: float, gamma: float, seed: int = 0) -> None:
        self.n, self.m, self.alpha, self.gamma = n, m, alpha, gamma
        self.delta = 1 - (n - 1) * alpha - m * gamma
        self.beta = (1 - self.delta - n * gamma) / (m - 1)
        self.x = normal(n + m, 3, seed=seed)

    def is_as_assumed(self) -> bool:
        """Whether all weights are positive, and the own one is the largest of a group."""
        return min(self.alpha, self.beta, self.gamma) > 1e-4 and self.delta > max(self.alpha, self.beta) + 1e-4

    def weights(self) -> Tensor:
        first = torch.arange(self.n + self.m) < self.n
        alpha, beta = torch.tensor([self.alpha, self.beta], dtype=torch.float64)
        within = torch.where(first, alpha, beta)
        weights = torch.where(first.unsqueeze(1) == first, within, self.gamma)
        return weights.masked_fill(torch.eye(self.n + self.m, dtype=torch.bool), self.delta)

    def moved(self, *, skip: bool) -> Tensor:
        """The points after a block that knows nothing but these weights, which it gets as an adjacency."""
        block = bare_block(3)
        with torch.no_grad():
            block.query.weight.zero_()
            block.query.bias.zero_()
            x = self.x.unsqueeze(0)
            result: Tensor = block(x, x, None, self.weights().unsqueeze(0))[0]
        return result if skip else result - self.x

    def differences(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Between the points of each group, and between the groups' centroids."""
        first, second = x[: self.n], x[self.n :]
        return (
            first.unsqueeze(0) - first.unsqueeze(1),
            second.unsqueeze(0) - second.unsqueeze(1),
            first.mean(dim=0) - second.mean(dim=0),
        )

    def factors(self, *, skip: bool) -> tuple[float, float, float]:
        """What Proposition 2 says that these differences are multiplied by."""
        more = 1 if skip else 0
        return (
            more + self.delta - self.alpha,
            more + self.delta - self.beta,
            more + 1 - (self.n + self.m) * self.gamma,
        )


@st.composite
def groups(draw: st.DrawFn) -> Groups:
    n, m = draw(st.integers(2, 7)), draw(st.integers(2, 7))
    gamma = draw(st.floats(0.001, 1 / (n + m)))
    alpha = draw(st.floats(0.001, 1 / n))
    found = Groups(n, m, alpha, gamma, draw(SEEDS))
    assume(found.is_as_assumed())
    return found


@given(groups(), st.booleans())
def test_proposition_2(one: Groups, skip: bool) -> None:
    """With the skip connection; without it each factor is less by one (Appendix A.2)."""
    torch.testing.assert_close(one.weights().sum(dim=1), torch.ones(one.n + one.m, dtype=torch.float64))
    before, after = one.differences(one.x), one.differences(one.moved(skip=skip))
    for earlier, later, factor in zip(before, after, one.factors(skip=skip), strict=True):
        torch.testing.assert_close(later, factor * earlier, atol=1e-10, rtol=1e-10)


@given(groups())
def test_with_a_skip_all_differences_grow_and_without_it_all_shrink(one: Groups) -> None:
    """If groups attend more to themselves than to each other."""
    assume(one.gamma < min(one.alpha, one.beta))
    assert all(factor > 1 for factor in one.factors(skip=True))
    first, second, centroids = one.factors(skip=False)
    assert 0 < min(first, second) <= max(first, second) < centroids < 1


@given(groups())
def test_the_coefficient_of_the_second_centroid(one: Groups) -> None:
    """The last step of the proof, in which the paper has a slip.

    It prints c_1' - c_2' = (1 + delta + (n - 1) alpha - n gamma) c_1 - (1 + delta + (m - 1) beta - n gamma) c_2. The
    second coefficient must have m gamma instead, as the second group has m points. Only then are both coefficients
    2 - (n + m) gamma, as the proof goes on to say; with n gamma they are not, unless n = m.
    """
    first, second = one.x[: one.n].mean(dim=0), one.x[one.n :].mean(dim=0)
    of_first = 1 + one.delta + (one.n - 1) * one.alpha - one.n * one.gamma
    of_second = 1 + one.delta + (one.m - 1) * one.beta - one.m * one.gamma
    as_printed = 1 + one.delta + (one.m - 1) * one.beta - one.n * one.gamma
    right = one.differences(one.moved(skip=True))[2]
    torch.testing.assert_close(right, of_first * first - of_second * second, atol=1e-10, rtol=1e-10)
    assert of_first == pytest.approx(of_second)
    assert of_first == pytest.approx(2 - (one.n + one.m) * one.gamma)
    assert as_printed - of_second == pytest.approx((one.m - one.n) * one.gamma)


@given(groups())
def test_corollary_1(one: Groups) -> None:
    """The first group grows more slowly than the centroids part, if and only if alpha is above gamma; so the second."""
    grows_first, grows_second, parts = one.factors(skip=True)
    ratio = (2 - one.n * one.alpha - one.m * one.gamma) / (2 - one.n * one.gamma - one.m * one.gamma)
    assert grows_first / parts == pytest.approx(ratio)
    assume(min(abs(one.alpha - one.gamma), abs(one.beta - one.gamma)) > 1e-6)
    assert (grows_first < parts) == (one.alpha > one.gamma)
    assert (grows_second < parts) == (one.beta > one.gamma)
    before, after = one.differences(one.x), one.differences(one.moved(skip=True))
    first, second, centroids = (float(late.norm() / early.norm()) for early, late in zip(before, after, strict=True))
    assert (first < centroids) == (one.alpha > one.gamma)
    assert (second < centroids) == (one.beta > one.gamma)


def test_repeated_blocks_separate_the_groups() -> None:
    one, apart = Groups(4, 6, 0.12, 0.03), []
    assert one.delta == pytest.approx(0.46)
    assert one.beta == pytest.approx(0.084)
    for _ in range(20):
        first, _, centroids = one.differences(one.x)
        apart.append(float(centroids.norm()) / float(first.norm(dim=2).max()))
        one.x = one.moved(skip=True)
    assert all(later > 1.2 * earlier for earlier, later in pairwise(apart))
