"""The AM recursion: the energy decreases, and prototype coefficients give the same positions."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.clam.model import am_recursion, recursion_coefficients, residual

seeds = st.integers(0, 10_000)
steps_taken = st.sampled_from([1, 2, 3, 5, 10])
betas = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def coin(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, generator=generator, dtype=torch.float64) < 0.4).double()


@dataclass(frozen=True)
class Memory:
    """Logits -beta |rho - v|^2 + log eps, or beta <rho, v> on the sphere."""

    prototypes: Tensor
    beta: float
    log_weights: Tensor
    spherical: bool = False

    def logits(self, v: Tensor) -> Tensor:
        if self.spherical:
            return self.log_weights + self.beta * v @ self.prototypes.transpose(1, 2)
        return self.log_weights - self.beta * torch.cdist(v, self.prototypes).square()

    def energy(self, v: Tensor) -> Tensor:
        return -torch.logsumexp(self.logits(v), dim=-1) / self.beta


def make_memory(seed: int, beta: float, *, spherical: bool = False, clusters: int = 4) -> Memory:
    prototypes = normal(2, clusters, 5, seed=seed)
    if spherical:
        prototypes = torch.nn.functional.normalize(prototypes, dim=2)
    return Memory(prototypes, beta, normal(clusters, seed=seed + 1), spherical)


@given(seeds, betas, steps_taken, st.booleans())
def test_energy_never_rises(seed: int, beta: float, steps: int, masked: bool) -> None:
    memory = make_memory(seed, beta)
    moving = coin(7, 5, seed=seed) if masked else None
    path = am_recursion(normal(2, 7, 5, seed=seed + 2), memory.prototypes, memory.logits, steps, moving=moving)
    assert len(path) == steps + 1
    for before, after in pairwise(path):
        assert (memory.energy(after) <= memory.energy(before) + 1e-9).all()


@given(seeds, betas, steps_taken)
def test_spherical_iterates_have_unit_norm_and_their_energy_never_rises(seed: int, beta: float, steps: int) -> None:
    memory = make_memory(seed, beta, spherical=True)
    start = torch.nn.functional.normalize(normal(2, 7, 5, seed=seed + 2), dim=2)
    path = am_recursion(start, memory.prototypes, memory.logits, steps, spherical=True)
    for before, after in pairwise(path):
        torch.testing.assert_close(after.norm(dim=2), torch.ones(2, 7, dtype=torch.float64))
        assert (memory.energy(after) <= memory.energy(before) + 1e-9).all()


@given(seeds, steps_taken)
def test_one_prototype_has_a_closed_form(seed: int, steps: int) -> None:
    memory = make_memory(seed, 2.0, clusters=1)
    start = normal(2, 7, 5, seed=seed + 2)
    end = am_recursion(start, memory.prototypes, memory.logits, steps)[-1]
    torch.testing.assert_close(end - memory.prototypes, (1 - 1 / steps) ** steps * (start - memory.prototypes))


@given(seeds, betas)
def test_fixed_coordinates_do_not_change(seed: int, beta: float) -> None:
    memory = make_memory(seed, beta)
    moving = coin(7, 5, seed=seed)
    start = normal(2, 7, 5, seed=seed + 2)
    held = moving.expand(2, 7, 5) == 0
    for position in am_recursion(start, memory.prototypes, memory.logits, 6, moving=moving):
        assert torch.equal(position[held], start[held])


@given(seeds, betas, steps_taken)
def test_iterates_stay_in_the_convex_hull(seed: int, beta: float, steps: int) -> None:
    memory = make_memory(seed, beta)
    start = normal(2, 7, 5, seed=seed + 2)
    directions = normal(5, 50, seed=seed + 3)
    corners = torch.cat([start.unsqueeze(2), memory.prototypes.unsqueeze(1).expand(2, 7, 4, 5)], dim=2) @ directions
    for position in am_recursion(start, memory.prototypes, memory.logits, steps):
        along = position @ directions
        assert (along <= corners.amax(dim=2) + 1e-9).all()
        assert (along >= corners.amin(dim=2) - 1e-9).all()


@dataclass(frozen=True)
class MaskedGroups:
    """Points in several groups, each with its own mask, under several runs."""

    x: Tensor  # (G, N, D)
    hidden: Tensor  # (G, D)
    fill: Tensor  # (R, D)
    beta: Tensor  # (R,)
    prototypes: Tensor  # (R, K, D)

    def end_by_coefficients(self, steps: int) -> Tensor:
        """Compute x^T from coefficients. Shape (R, G, N, D)."""
        twice_beta = 2.0 * self.beta.view(-1, 1, 1, 1)
        masked = self.prototypes.unsqueeze(1) * self.hidden.unsqueeze(1)  # (R, G, K, D)
        visible = self.x * (1 - self.hidden.unsqueeze(1))
        offsets = -self.beta.view(-1, 1) * self.prototypes.square().sum(dim=2)
        fixed = twice_beta * torch.einsum("rkd,gnd->rgkn", self.prototypes, visible) + offsets[:, None, :, None]
        fading = twice_beta * torch.einsum("rgkd,rd->rgk", masked, self.fill).unsqueeze(3)
        gram = twice_beta * masked @ masked.transpose(2, 3)
        coefficients = recursion_coefficients(fixed, fading, gram, steps)
        filled = self.fill.unsqueeze(1) * self.hidden  # (R, G, D)
        return visible + residual(steps) * filled.unsqueeze(2) + coefficients.transpose(2, 3) @ masked

    def end_by_recursion(self, steps: int) -> Tensor:
        """Compute x^T in feature space."""
        ends = []
        for points, hidden in zip(self.x, self.hidden, strict=True):
            start = torch.where(hidden.bool(), self.fill.unsqueeze(1), points)

            def logits(v: Tensor) -> Tensor:
                return -self.beta.view(-1, 1, 1) * (v.unsqueeze(2) - self.prototypes.unsqueeze(1)).square().sum(dim=3)

            ends.append(am_recursion(start, self.prototypes, logits, steps, moving=hidden.expand_as(points))[-1])
        return torch.stack(ends, dim=1)


@pytest.mark.parametrize("steps", [1, 2, 5, 12])
@pytest.mark.parametrize("hidden", ["some", "all", "none"])
@pytest.mark.parametrize("filled", [True, False])
def test_coefficients_give_the_positions_and_gradients_of_the_recursion(steps: int, hidden: str, filled: bool) -> None:
    masks = {"some": coin(3, 5, seed=1), "all": torch.ones(3, 5).double(), "none": torch.zeros(3, 5).double()}
    prototypes = normal(2, 4, 5, seed=2).requires_grad_()
    groups = MaskedGroups(
        x=normal(3, 6, 5, seed=3),
        hidden=masks[hidden],
        fill=normal(2, 5, seed=4) * filled,
        beta=torch.tensor([0.3, 2.0]).double(),
        prototypes=prototypes,
    )
    probe = normal(2, 3, 6, 5, seed=5)
    ends, literal = groups.end_by_coefficients(steps), groups.end_by_recursion(steps)
    torch.testing.assert_close(ends, literal)
    gradient, literal_gradient = (
        torch.autograd.grad((end * probe).sum(), prototypes, allow_unused=True)[0] for end in (ends, literal)
    )
    torch.testing.assert_close(gradient, literal_gradient)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(
    ("fixed_shape", "fading_shape"),
    [
        ((2, 3, 4, 6), None),
        ((2, 3, 4, 6), (2, 3, 4, 6)),
        ((2, 3, 4, 6), (2, 3, 4, 1)),
        ((2, 3, 4, 6), (1, 1, 4, 6)),
        ((2, 1, 4, 1), (2, 3, 4, 6)),
    ],
)
def test_gradient_equals_finite_differences(
    steps: int, fixed_shape: tuple[int, ...], fading_shape: tuple[int, ...] | None
) -> None:
    fixed = normal(*fixed_shape, seed=1).requires_grad_()
    fading = None if fading_shape is None else normal(*fading_shape, seed=2).requires_grad_()
    gram = normal(2, 3, 4, 4, seed=3).requires_grad_()  # the backward pass must not rely on symmetry
    if fading is None:
        assert torch.autograd.gradcheck(lambda a, c: recursion_coefficients(a, None, c, steps), (fixed, gram))
    else:
        assert torch.autograd.gradcheck(lambda a, b, c: recursion_coefficients(a, b, c, steps), (fixed, fading, gram))


@given(seeds, steps_taken)
def test_coefficients_and_residual_sum_to_one(seed: int, steps: int) -> None:
    gram = normal(2, 3, 4, 4, seed=seed)
    coefficients = recursion_coefficients(normal(2, 3, 4, 6, seed=seed + 1), None, gram @ gram.transpose(2, 3), steps)
    assert (coefficients >= 0).all()
    torch.testing.assert_close(coefficients.sum(dim=2) + residual(steps), torch.ones(2, 3, 6).double())


@pytest.mark.parametrize("size", [1e-30, 1e3, 1e20, 1e30])
def test_logits_of_any_size_give_finite_results(size: float) -> None:
    fixed = (normal(1, 1, 4, 6, seed=1) * size).float().requires_grad_()
    gram = normal(1, 1, 4, 4, seed=2).float().requires_grad_()
    coefficients = recursion_coefficients(fixed, None, gram, 5)
    coefficients.square().sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for value in (coefficients, fixed.grad, gram.grad):
        assert value is not None
        assert torch.isfinite(value).all()


def test_absent_prototypes_have_no_weight() -> None:
    fixed = normal(1, 1, 4, 6, seed=1)
    fixed[:, :, 3] = -torch.inf
    fixed.requires_grad_()
    coefficients = recursion_coefficients(fixed, None, normal(1, 1, 4, 4, seed=2), 5)
    assert (coefficients[:, :, 3] == 0).all()
    (gradient,) = torch.autograd.grad(coefficients.square().sum(), fixed)
    assert torch.isfinite(gradient).all()
    assert (gradient[:, :, 3] == 0).all()


def test_results_hold_no_denormal_numbers() -> None:
    logits = -torch.linspace(0.0, 100.0, 600).view(1, 1, 1, 600) * torch.arange(4.0).view(1, 1, 4, 1)
    coefficients = recursion_coefficients(logits, None, torch.zeros(1, 1, 4, 4), 3)
    assert not ((coefficients > 0) & (coefficients < torch.finfo(torch.float32).tiny)).any()
