"""Expectation and maximisation: rows that sum to one, shares that are kept, and a bound that never falls."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from coterie.amortized.amcp.mixing import e_step, evidence_bound, gradient_m_step, m_step, quadratic_scores

ENOUGH = 200
"""Steps of transport after which hardly anything changes any more."""
SIZES = {"n": st.integers(1, 12), "k": st.integers(1, 5), "d": st.integers(1, 4), "seed": st.integers(0, 1000)}
PRESENT = 1e-12
"""Strength of a prior that is as good as none, but keeps references without points where they are."""


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def shares(*shape: int, seed: int = 0) -> Tensor:
    return (0.7 * normal(*shape, seed=seed)).softmax(dim=-1)


def everyone(scores: Tensor) -> Tensor:
    return torch.ones_like(scores[..., 0])


def bound_of(x: Tensor, mean: Tensor, share: Tensor, responsibility: Tensor) -> Tensor:
    return evidence_bound(quadratic_scores(x, mean), share, responsibility)


@given(**SIZES)
def test_scores_are_half_the_squared_distances(n: int, k: int, d: int, seed: int) -> None:
    x, mean = normal(2, n, d, seed=seed), normal(2, k, d, seed=seed + 1)
    distance = torch.cdist(x, mean, compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(quadratic_scores(x, mean), -0.5 * distance.square(), atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("far", [0.0, 1e2, 1e4, 1e6])
def test_far_from_the_origin_scores_are_as_good_as_near_it(far: float) -> None:
    # Eighths stay exact so far out, so that only what the function itself loses is seen.
    x, mean = ((8 * normal(*shape)).round() / 8 for shape in ((30, 3), (4, 3)))
    exact = -0.5 * (x.unsqueeze(1) - mean).square().sum(dim=2)
    scores = quadratic_scores((x + far).float(), (mean + far).float())
    torch.testing.assert_close(scores.double(), exact, atol=1e-5 + 1e-6 * far, rtol=1e-5)


@given(**SIZES)
def test_the_regular_e_step_is_a_softmax_of_scores_and_proportions(n: int, k: int, d: int, seed: int) -> None:
    scores, share = d * normal(2, n, k, seed=seed), shares(2, k, seed=seed + 1)
    mass = (normal(2, n, seed=seed + 2) > -0.5).double()
    responsibility, offset = e_step(scores, mass, share, 0)
    torch.testing.assert_close(offset, share.log())
    likelihood = scores.exp() * share.unsqueeze(1)
    expected = likelihood / likelihood.sum(dim=2, keepdim=True) * mass.unsqueeze(2)
    torch.testing.assert_close(responsibility, expected)
    torch.testing.assert_close(responsibility.sum(dim=2), mass)


@pytest.mark.parametrize("transport_steps", [0, 10])
def test_zero_mass_or_proportion_gives_no_responsibility(transport_steps: int) -> None:
    scores, share = 50 * normal(2, 9, 4), shares(2, 4)
    share[0, 1] = 0.0
    share = share / share.sum(dim=1, keepdim=True)
    mass = torch.ones(2, 9, dtype=torch.float64)
    mass[1, ::2] = 0.0
    responsibility, offset = e_step(scores, mass, share, transport_steps)
    assert offset.isfinite().all()
    assert not responsibility[0, :, 1].any()
    assert not responsibility[1, ::2].any()
    torch.testing.assert_close(responsibility.sum(dim=2), mass)
    alone, alone_offset = e_step(scores[1:, 1::2], mass[1:, 1::2], share[1:], transport_steps)
    torch.testing.assert_close(responsibility[1:, 1::2], alone)
    torch.testing.assert_close(offset[1:], alone_offset)


@given(**SIZES)
def test_transport_gives_references_their_proportions(n: int, k: int, d: int, seed: int) -> None:
    scores, share = normal(n, d, seed=seed) @ normal(d, k, seed=seed + 1), shares(k, seed=seed + 2)
    responsibility, offset = e_step(scores, everyone(scores), share, ENOUGH)
    torch.testing.assert_close(responsibility.mean(dim=0), share, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(responsibility.sum(dim=1), everyone(scores))
    # What was added is all that it takes to ask about a point.
    torch.testing.assert_close(responsibility, (scores + offset).softmax(dim=1))


def test_points_count_by_their_masses() -> None:
    scores, share = normal(6, 3), shares(3)
    mass = torch.tensor([1.0, 2.0, 0.5, 0.0, 1.0, 3.0], dtype=torch.float64)
    responsibility, _ = e_step(scores, mass, share, ENOUGH)
    torch.testing.assert_close(mass @ responsibility / mass.sum(), share)
    twice = torch.tensor([0, 1, 1, 4, 5, 5, 5])  # the same with masses of one
    again, _ = e_step(scores[twice], torch.ones(7, dtype=torch.float64), share, ENOUGH)
    whole = torch.tensor([1.0, 2.0, 0.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    torch.testing.assert_close(again, e_step(scores, whole, share, ENOUGH)[0][twice])


@given(**SIZES)
def test_the_bound_is_the_likelihood_after_a_regular_step_and_never_more(n: int, k: int, d: int, seed: int) -> None:
    x, mean, share = normal(n, d, seed=seed), normal(k, d, seed=seed + 1), shares(k, seed=seed + 2)
    scores = quadratic_scores(x, mean)
    mass = everyone(scores)
    mass[n // 2 + 1 :] = 0.0
    likelihood = ((scores.exp() @ share).log() * mass).sum()
    best = evidence_bound(scores, share, e_step(scores, mass, share, 0)[0])
    torch.testing.assert_close(best, likelihood)
    constrained = e_step(scores, mass, share, 10)[0]
    anything = normal(n, k, seed=seed + 3).softmax(dim=1) * mass.unsqueeze(1)
    for other in (constrained, anything):
        assert evidence_bound(scores, share, other) <= likelihood + 1e-9


@given(**SIZES)
def test_expectation_and_maximisation_never_lower_the_bound(n: int, k: int, d: int, seed: int) -> None:
    x, mean, share = 2 * normal(n, d, seed=seed), normal(k, d, seed=seed + 1), shares(k, seed=seed + 2)
    bounds = []
    for _ in range(5):
        scores = quadratic_scores(x, mean)
        responsibility, _ = e_step(scores, everyone(scores), share, 0)
        bounds.append(evidence_bound(scores, share, responsibility))
        mean = m_step(x, responsibility, mean, PRESENT)
        bounds.append(bound_of(x, mean, share, responsibility))
    assert (torch.stack(bounds).diff() >= -1e-8).all()


def test_means_are_those_of_the_points_and_of_the_prior() -> None:
    x, prior = normal(2, 7, 3), normal(2, 2, 3, seed=1)
    weight = torch.zeros(2, 7, 2, dtype=torch.float64)
    weight[:, :4, 0] = 1.0
    mean = m_step(x, weight, prior, 2.0)
    torch.testing.assert_close(mean[:, 0], torch.cat((x[:, :4], prior[:, :1], prior[:, :1]), dim=1).mean(dim=1))
    torch.testing.assert_close(mean[:, 1], prior[:, 1])  # nobody's


def decoder(seed: int = 0) -> torch.nn.Module:
    """A network from three numbers to two, in double precision."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    for place, value in enumerate(network.parameters()):
        value.data = normal(*value.shape, seed=seed + place)
    return network


def test_a_step_is_along_the_gradient_of_the_likelihood() -> None:
    x, reference, weight = normal(2, 8, 2), normal(2, 3, 3, seed=1).requires_grad_(), shares(2, 8, 3, seed=2)
    weight[1, :, 0] = 0.0
    decode = decoder()
    moved = gradient_m_step(decode, reference, x, weight, 0.1)
    scores = quadratic_scores(x, decode(reference))
    (slope,) = torch.autograd.grad((weight * scores).sum(), reference)
    total = weight.sum(dim=1).unsqueeze(2)
    torch.testing.assert_close(moved, reference + torch.where(total > 0, 0.1 * slope / total, 0.0))
    assert torch.equal(moved[1, 0], reference[1, 0])  # without weight it stays


@given(seed=st.integers(0, 1000))
def test_small_gradient_steps_do_not_lower_the_bound(seed: int) -> None:
    x, reference, share = normal(12, 2, seed=seed), normal(3, 3, seed=seed + 1), shares(3, seed=seed + 2)
    decode, bounds = decoder(seed + 3), []
    for _ in range(4):
        scores = quadratic_scores(x, decode(reference))
        responsibility, _ = e_step(scores, everyone(scores), share, 0)
        bounds.append(evidence_bound(scores, share, responsibility))
        reference = gradient_m_step(decode, reference, x, responsibility, 1e-3)
        bounds.append(bound_of(x, decode(reference), share, responsibility))
    assert (torch.stack(bounds).diff() >= -1e-9).all()


@pytest.mark.parametrize("transport_steps", [0, 3])
def test_gradients_through_em_pass_gradcheck(transport_steps: int) -> None:
    mass = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)

    def unrolled(x: Tensor, prior: Tensor, share: Tensor) -> Tensor:
        mean = prior
        for _ in range(2):
            responsibility, _ = e_step(quadratic_scores(x, mean), mass, share, transport_steps)
            mean = m_step(x, responsibility, prior, 1.0)
        return mean

    inputs = (normal(6, 2), normal(3, 2, seed=1), shares(3, seed=2))
    assert torch.autograd.gradcheck(unrolled, [part.requires_grad_() for part in inputs])


def test_gradients_of_one_step_pass_gradcheck() -> None:
    decode = decoder()
    step = partial(gradient_m_step, decode, rate=0.5)
    inputs = (
        normal(2, 3).requires_grad_(),
        normal(5, 2, seed=1).requires_grad_(),
        shares(5, 2, seed=2).requires_grad_(),
    )
    assert torch.autograd.gradcheck(step, inputs)
    slopes = torch.autograd.grad(step(*inputs).sum(), list(decode.parameters()), allow_unused=True)
    # A constant that is added to all means moves the residuals, hence it has a gradient as well.
    assert all(slope is not None and slope.isfinite().all() and slope.any() for slope in slopes)


def test_no_tensor_has_points_times_references_times_features() -> None:
    sizes: list[int] = []

    def note(value: Tensor) -> Tensor:
        sizes.append(value.numel())
        return value

    x, mean = normal(30, 16).requires_grad_(), normal(20, 16, seed=1).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        quadratic_scores(x, mean)
    assert max(sizes) <= 30 * 20
