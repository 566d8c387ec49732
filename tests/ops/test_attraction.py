"""The recursion: laws of the energy, and coefficients against the literal positions."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from coterie.clam.model import attract, descend, fade

seeds = st.integers(0, 10_000)
steps_taken = st.sampled_from([1, 2, 3, 5, 10])
betas = st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def coin(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*shape, generator=generator, dtype=torch.float64) < 0.4).double()


@dataclass(frozen=True)
class Pull:
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


def make_pull(seed: int, beta: float, *, spherical: bool = False, clusters: int = 4) -> Pull:
    prototypes = normal(2, clusters, 5, seed=seed)
    if spherical:
        prototypes = torch.nn.functional.normalize(prototypes, dim=2)
    return Pull(prototypes, beta, normal(clusters, seed=seed + 1), spherical)


@given(seeds, betas, steps_taken, st.booleans())
def test_energy_never_rises(seed: int, beta: float, steps: int, masked: bool) -> None:
    pull = make_pull(seed, beta)
    moving = coin(7, 5, seed=seed) if masked else None
    path = descend(normal(2, 7, 5, seed=seed + 2), pull.prototypes, pull.logits, steps, moving=moving)
    assert len(path) == steps + 1
    for before, after in pairwise(path):
        assert (pull.energy(after) <= pull.energy(before) + 1e-9).all()


@given(seeds, betas, steps_taken)
def test_spherical_iterates_have_unit_norm_and_their_energy_never_rises(seed: int, beta: float, steps: int) -> None:
    pull = make_pull(seed, beta, spherical=True)
    start = torch.nn.functional.normalize(normal(2, 7, 5, seed=seed + 2), dim=2)
    path = descend(start, pull.prototypes, pull.logits, steps, normalise=True)
    for before, after in pairwise(path):
        torch.testing.assert_close(after.norm(dim=2), torch.ones(2, 7, dtype=torch.float64))
        assert (pull.energy(after) <= pull.energy(before) + 1e-9).all()


@given(seeds, steps_taken)
def test_one_prototype_has_a_closed_form(seed: int, steps: int) -> None:
    pull = make_pull(seed, 2.0, clusters=1)
    start = normal(2, 7, 5, seed=seed + 2)
    end = descend(start, pull.prototypes, pull.logits, steps)[-1]
    torch.testing.assert_close(end - pull.prototypes, (1 - 1 / steps) ** steps * (start - pull.prototypes))


@given(seeds, betas, steps_taken)
def test_each_step_goes_one_part_in_steps_of_the_way(seed: int, beta: float, steps: int) -> None:
    pull = make_pull(seed, beta)
    start = normal(2, 7, 5, seed=seed + 2)
    first = descend(start, pull.prototypes, pull.logits, steps)[1]
    target = torch.softmax(pull.logits(start), dim=2) @ pull.prototypes
    torch.testing.assert_close(steps * (first - start), target - start)


@given(seeds, betas)
def test_held_coordinates_keep_every_bit(seed: int, beta: float) -> None:
    pull = make_pull(seed, beta)
    moving = coin(7, 5, seed=seed)
    start = normal(2, 7, 5, seed=seed + 2)
    held = moving.expand(2, 7, 5) == 0
    for position in descend(start, pull.prototypes, pull.logits, 6, moving=moving):
        assert torch.equal(position[held], start[held])


@given(seeds, betas, steps_taken)
def test_iterates_stay_in_the_convex_hull(seed: int, beta: float, steps: int) -> None:
    pull = make_pull(seed, beta)
    start = normal(2, 7, 5, seed=seed + 2)
    directions = normal(5, 50, seed=seed + 3)
    corners = torch.cat([start.unsqueeze(2), pull.prototypes.unsqueeze(1).expand(2, 7, 4, 5)], dim=2) @ directions
    for position in descend(start, pull.prototypes, pull.logits, steps):
        along = position @ directions
        assert (along <= corners.amax(dim=2) + 1e-9).all()
        assert (along >= corners.amin(dim=2) - 1e-9).all()


@dataclass(frozen=True)
class Case:
    """Points of several groups, each group with a mask of its own, under several runs."""

    x: Tensor  # (G, N, D)
    hidden: Tensor  # (G, D)
    fill: Tensor  # (R, D)
    beta: Tensor  # (R,)
    prototypes: Tensor  # (R, K, D)

    def by_coefficients(self, steps: int) -> Tensor:
        """Where the points end, from ``attract``. Shape (R, G, N, D)."""
        twice_beta = 2.0 * self.beta.view(-1, 1, 1, 1)
        masked = self.prototypes.unsqueeze(1) * self.hidden.unsqueeze(1)  # (R, G, K, D)
        visible = self.x * (1 - self.hidden.unsqueeze(1))
        offsets = -self.beta.view(-1, 1) * self.prototypes.square().sum(dim=2)
        fixed = twice_beta * torch.einsum("rkd,gnd->rgkn", self.prototypes, visible) + offsets[:, None, :, None]
        fading = twice_beta * torch.einsum("rgkd,rd->rgk", masked, self.fill).unsqueeze(3)
        gram = twice_beta * masked @ masked.transpose(2, 3)
        moved = attract(fixed, fading, gram, steps)
        filled = self.fill.unsqueeze(1) * self.hidden  # (R, G, D)
        return visible + fade(steps) * filled.unsqueeze(2) + moved.transpose(2, 3) @ masked

    def literally(self, steps: int) -> Tensor:
        """Where the points end, from ``descend``."""
        groups = []
        for points, hidden in zip(self.x, self.hidden, strict=True):
            start = torch.where(hidden.bool(), self.fill.unsqueeze(1), points)

            def logits(v: Tensor) -> Tensor:
                return -self.beta.view(-1, 1, 1) * (v.unsqueeze(2) - self.prototypes.unsqueeze(1)).square().sum(dim=3)

            groups.append(descend(start, self.prototypes, logits, steps, moving=hidden.expand_as(points))[-1])
        return torch.stack(groups, dim=1)


@pytest.mark.parametrize("steps", [1, 2, 5, 12])
@pytest.mark.parametrize("hidden", ["some", "all", "none"])
@pytest.mark.parametrize("filled", [True, False])
def test_coefficients_give_the_literal_positions_and_gradients(steps: int, hidden: str, filled: bool) -> None:
    masks = {"some": coin(3, 5, seed=1), "all": torch.ones(3, 5).double(), "none": torch.zeros(3, 5).double()}
    prototypes = normal(2, 4, 5, seed=2).requires_grad_()
    case = Case(
        x=normal(3, 6, 5, seed=3),
        hidden=masks[hidden],
        fill=normal(2, 5, seed=4) * filled,
        beta=torch.tensor([0.3, 2.0]).double(),
        prototypes=prototypes,
    )
    probe = normal(2, 3, 6, 5, seed=5)
    ends, literal = case.by_coefficients(steps), case.literally(steps)
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
        assert torch.autograd.gradcheck(lambda a, c: attract(a, None, c, steps), (fixed, gram))
    else:
        assert torch.autograd.gradcheck(lambda a, b, c: attract(a, b, c, steps), (fixed, fading, gram))


@given(seeds, steps_taken)
def test_coefficients_and_fade_sum_to_one(seed: int, steps: int) -> None:
    gram = normal(2, 3, 4, 4, seed=seed)
    coefficients = attract(normal(2, 3, 4, 6, seed=seed + 1), None, gram @ gram.transpose(2, 3), steps)
    assert (coefficients >= 0).all()
    torch.testing.assert_close(coefficients.sum(dim=2) + fade(steps), torch.ones(2, 3, 6).double())


@given(seeds)
def test_permuting_prototypes_permutes_coefficients(seed: int) -> None:
    order = torch.randperm(4, generator=torch.Generator().manual_seed(seed))
    fixed, fading = normal(2, 3, 4, 6, seed=seed + 1), normal(2, 3, 4, 6, seed=seed + 2)
    gram = normal(2, 3, 4, 4, seed=seed + 3)
    permuted = attract(fixed[:, :, order], fading[:, :, order], gram[:, :, order][:, :, :, order], 5)
    torch.testing.assert_close(permuted, attract(fixed, fading, gram, 5)[:, :, order])


@pytest.mark.parametrize("size", [1e-30, 1e3, 1e20, 1e30])
def test_no_size_of_logits_gives_nan(size: float) -> None:
    fixed = (normal(1, 1, 4, 6, seed=1) * size).float().requires_grad_()
    gram = normal(1, 1, 4, 4, seed=2).float().requires_grad_()
    coefficients = attract(fixed, None, gram, 5)
    coefficients.square().sum().backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    for value in (coefficients, fixed.grad, gram.grad):
        assert value is not None
        assert torch.isfinite(value).all()


def test_absent_prototypes_get_nothing() -> None:
    fixed = normal(1, 1, 4, 6, seed=1)
    fixed[:, :, 3] = -torch.inf
    fixed.requires_grad_()
    coefficients = attract(fixed, None, normal(1, 1, 4, 4, seed=2), 5)
    assert (coefficients[:, :, 3] == 0).all()
    (gradient,) = torch.autograd.grad(coefficients.square().sum(), fixed)
    assert torch.isfinite(gradient).all()
    assert (gradient[:, :, 3] == 0).all()


def test_results_hold_no_denormal_numbers() -> None:
    logits = -torch.linspace(0.0, 100.0, 600).view(1, 1, 1, 600) * torch.arange(4.0).view(1, 1, 4, 1)
    coefficients = attract(logits, None, torch.zeros(1, 1, 4, 4), 3)
    assert not ((coefficients > 0) & (coefficients < torch.finfo(torch.float32).tiny)).any()


@pytest.mark.parametrize(("steps", "left"), [(1, 0.0), (2, 0.25), (4, 0.31640625)])
def test_fade(steps: int, left: float) -> None:
    assert fade(steps) == left
