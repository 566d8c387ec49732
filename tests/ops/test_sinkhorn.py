"""Transport plans: masses that come out as asked, another program's plans, closed forms, and masses of none."""

import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from coterie.ops.sinkhorn import LOG_ZERO, column_potentials, log_mass, transport_plan

ENOUGH = 200
"""Steps after which the plans of these tests hardly change any more."""
MANY = 3000
"""Steps for plans with little entropy, which settle slowly."""
SIZES = {"n": st.integers(1, 9), "k": st.integers(1, 6), "seed": st.integers(0, 1000)}


def problem(n: int, k: int, seed: int = 0, sets: tuple[int, ...] = ()) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, and masses of points and references that both sum to one; in double precision."""
    source = Generator().manual_seed(seed)
    scores = torch.randn((*sets, n, k), generator=source, dtype=torch.float64)
    rows, columns = (torch.rand((*sets, size), generator=source, dtype=torch.float64) + 0.1 for size in (n, k))
    return scores, rows / rows.sum(dim=-1, keepdim=True), columns / columns.sum(dim=-1, keepdim=True)


@given(steps=st.integers(0, 6), **SIZES)
def test_points_have_their_masses_after_any_number_of_steps(n: int, k: int, seed: int, steps: int) -> None:
    scores, rows, columns = problem(n, k, seed, (2,))
    plan = transport_plan(scores, rows, columns, steps)
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum(dim=2), rows, atol=1e-15, rtol=1e-14)


@given(**SIZES)
def test_every_step_brings_references_closer_to_their_masses(n: int, k: int, seed: int) -> None:
    scores, rows, columns = problem(n, k, seed)
    plans = [transport_plan(scores, rows, columns, steps) for steps in (0, 1, 2, 5, 10, 50, ENOUGH)]
    missing = torch.stack([(plan.sum(dim=0) - columns).abs().sum() for plan in plans])
    assert (missing.diff() <= 1e-14).all()
    assert missing[-1] < 1e-9


def test_the_default_number_of_steps_is_enough_for_scores_of_usual_size() -> None:
    scores, rows, columns = problem(200, 5, sets=(8,))
    assert (transport_plan(scores, rows, columns).sum(dim=1) - columns).abs().max() < 1e-3


@pytest.mark.parametrize("regularisation", [0.3, 1.0, 5.0])
@pytest.mark.parametrize(("n", "k"), [(6, 3), (3, 6), (40, 5), (1, 4), (4, 1)])
def test_plans_are_those_of_python_optimal_transport(n: int, k: int, regularisation: float) -> None:
    similarity, rows, columns = problem(n, k)
    plan = transport_plan(similarity / regularisation, rows, columns, MANY)
    masses, cost = (rows.numpy(), columns.numpy()), -similarity.numpy()
    theirs = ot.sinkhorn(*masses, cost, regularisation, method="sinkhorn_log", numItermax=MANY, stopThr=1e-13)
    torch.testing.assert_close(plan, torch.from_numpy(theirs), atol=1e-10, rtol=1e-8)


def test_with_little_entropy_the_plan_is_that_of_linear_programming() -> None:
    similarity, rows, columns = problem(7, 4)
    plan = transport_plan(similarity / 0.02, rows, columns, MANY)
    theirs = torch.from_numpy(ot.emd(rows.numpy(), columns.numpy(), -similarity.numpy()))
    torch.testing.assert_close(plan, theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_steps_are_those_of_matrix_scaling(steps: int) -> None:
    """The appendix of AMCP, Eq. 2 and 3, with the transpose that is missing there."""
    scores, rows, columns = problem(6, 3)
    kernel, v = scores.exp(), columns
    for _ in range(steps):
        u = rows / (kernel @ v)
        v = columns / (kernel.T @ u)
    torch.testing.assert_close(column_potentials(scores, rows, columns, steps).exp(), v)
    u = rows / (kernel @ v)
    torch.testing.assert_close(transport_plan(scores, rows, columns, steps), u.unsqueeze(1) * kernel * v)


@given(size=st.floats(1e-4, 1e-2), **SIZES)
def test_no_plan_with_these_masses_does_better(n: int, k: int, seed: int, size: float) -> None:
    scores, rows, columns = problem(n, k, seed)

    def worth(plan: Tensor) -> Tensor:
        gained: Tensor = scores * plan - torch.special.xlogy(plan, plan)
        return gained.sum()

    plan = transport_plan(scores, rows, columns, ENOUGH)
    change = torch.randn((n, k), generator=Generator().manual_seed(seed + 1), dtype=torch.float64)
    change = change - change.mean(dim=0) - (change - change.mean(dim=0)).mean(dim=1, keepdim=True)
    other = plan + size * plan.min() * change / change.abs().max().clamp(min=1e-12)
    assert worth(other) <= worth(plan) + 1e-10


@given(**SIZES)
def test_with_one_side_free_plans_have_a_closed_form(n: int, k: int, seed: int) -> None:
    scores, rows, columns = problem(n, k, seed, (3,))
    kernel = scores.exp()
    by_rows = rows.unsqueeze(2) * kernel / kernel.sum(dim=2, keepdim=True)
    by_columns = columns.unsqueeze(1) * kernel / kernel.sum(dim=1, keepdim=True)
    torch.testing.assert_close(transport_plan(scores, rows, None), by_rows)
    torch.testing.assert_close(transport_plan(scores, None, columns), by_columns)
    torch.testing.assert_close(transport_plan(scores, None, None), kernel)


@given(steps=st.integers(1, 20), **SIZES)
def test_a_mass_of_zero_is_the_same_as_leaving_out(n: int, k: int, seed: int, steps: int) -> None:
    scores, rows, columns = problem(n, k, seed)
    more, more_rows, more_columns = (
        part.new_zeros([size + 2 for size in part.shape]) for part in (scores, rows, columns)
    )
    more += 3 * torch.randn(more.shape, generator=Generator().manual_seed(seed), dtype=more.dtype)
    point = torch.tensor([*range(1, n), n + 1])  # masses of none come before, between and after
    reference = torch.tensor([0, *range(2, k + 1)])
    more[point.unsqueeze(1), reference] = scores
    more_rows[point], more_columns[reference] = rows, columns
    plan = transport_plan(more, more_rows, more_columns, steps)
    torch.testing.assert_close(
        plan[point.unsqueeze(1), reference], transport_plan(scores, rows, columns, steps), atol=1e-12, rtol=1e-9
    )
    assert not plan[more_rows == 0].any()
    assert not plan[:, more_columns == 0].any()


def test_gradients_pass_gradcheck_beside_zero_masses() -> None:
    scores, rows, columns = problem(5, 4)
    rows[1] = columns[2] = 0.0
    rows, columns = rows / rows.sum(), columns / columns.sum()
    assert torch.autograd.gradcheck(lambda part: transport_plan(part, rows, columns, 3), scores.requires_grad_())


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_gradients_are_finite_whatever_scores_and_masses_are(size: float) -> None:
    scores, rows, columns = (part.float() for part in problem(12, 4, sets=(3,)))
    rows[0, 3:], columns[1, 0] = 0.0, 0.0
    rows[2], columns[2] = 0.0, 0.0  # a set of no points
    inputs = (size * scores).requires_grad_(), rows.requires_grad_(), columns.requires_grad_()
    plan = transport_plan(*inputs, steps=10)
    slopes = torch.autograd.grad((plan * torch.randn(plan.shape, generator=Generator().manual_seed(1))).sum(), inputs)
    assert plan.isfinite().all()
    torch.testing.assert_close(plan.sum(dim=2), rows)
    assert all(slope.isfinite().all() for slope in slopes)
    assert not slopes[0][0, 3:].any()  # points without mass


def test_the_logarithm_of_no_mass_is_finite_and_flat() -> None:
    mass = torch.tensor([0.0, 1.0, 0.5], requires_grad=True)
    logarithm = log_mass(mass)
    torch.testing.assert_close(logarithm, torch.tensor([LOG_ZERO, 0.0, -0.6931472]))
    (slope,) = torch.autograd.grad(logarithm.sum(), mass)
    assert slope.tolist() == [0.0, 1.0, 2.0]
