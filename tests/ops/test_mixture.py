"""Densities of diagonal Gaussians, against other programs' and in bad conditions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch import Generator, Tensor
from torch.distributions import Normal

from coterie.ops.mixture import diagonal_log_prob


def case(shape: tuple[int, ...], n: int, k: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Points, means and deviations, in double precision."""
    source = Generator().manual_seed(seed)
    x, mean = (3 * torch.randn((*shape, rows, d), generator=source, dtype=torch.float64) for rows in (n, k))
    deviation = (0.5 * torch.randn((*shape, k, d), generator=source, dtype=torch.float64)).exp()
    return x, mean, deviation


def by_torch(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """The same by differences."""
    each: Tensor = Normal(mean.unsqueeze(-3), deviation.unsqueeze(-3)).log_prob(x.unsqueeze(-2))  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return each.sum(dim=-1)


@given(
    shape=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    n=st.integers(0, 5),
    k=st.integers(1, 4),
    d=st.integers(1, 6),
    seed=st.integers(0, 100),
)
def test_densities_are_torchs(shape: tuple[int, ...], n: int, k: int, d: int, seed: int) -> None:
    x, mean, deviation = case(shape, n, k, d, seed)
    density = diagonal_log_prob(x, mean, deviation)
    assert density.shape == (*shape, n, k)
    torch.testing.assert_close(density, by_torch(x, mean, deviation), atol=1e-9, rtol=1e-10)


def test_densities_are_scipys() -> None:
    x, mean, deviation = case((), 7, 3, 4)
    density = diagonal_log_prob(x, mean, deviation)
    for j in range(3):
        theirs = multivariate_normal(mean[j].numpy(), torch.diag(deviation[j].square()).numpy()).logpdf(x.numpy())
        torch.testing.assert_close(density[:, j], torch.from_numpy(theirs))


def test_sets_of_a_batch_do_not_see_each_other() -> None:
    x, mean, deviation = case((3,), 5, 2, 4)
    together = diagonal_log_prob(x, mean, deviation)
    for i in range(3):
        torch.testing.assert_close(together[i], diagonal_log_prob(x[i], mean[i], deviation[i]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [0.0, 10.0, 1e3, 1e5])
def test_far_from_the_origin_the_error_is_that_of_the_squares(far: float, dtype: torch.dtype) -> None:
    """Products of matrices cancel: what is lost is the rounding of (x/deviation)², not of the density itself."""
    x, mean, deviation = (part.to(dtype) for part in case((), 40, 3, 4))
    x, mean = x + far, mean + far
    density = diagonal_log_prob(x, mean, deviation)
    exact = by_torch(x.double(), mean.double(), deviation.double())
    scale = (x.square().sum(dim=1, keepdim=True) + mean.square().sum(dim=1)) / deviation.square().amin(dim=1)
    assert ((density - exact).abs() <= 4 * torch.finfo(dtype).eps * (scale + 10)).all()


def test_no_density_exceeds_that_of_the_mean() -> None:
    """Cancellation far away must not make a square negative."""
    mean = torch.full((1, 3), 1e4)
    deviation = torch.full((1, 3), 0.01)
    x = mean + 1e-3 * torch.randn((50, 3), generator=Generator().manual_seed(0))
    highest = float(by_torch(mean, mean, deviation))
    assert float(diagonal_log_prob(x, mean, deviation).max()) <= highest + 1e-5


def test_gradients_are_torchs() -> None:
    parts = [part.requires_grad_() for part in case((2,), 5, 3, 2)]
    ours = torch.autograd.grad(diagonal_log_prob(*parts).square().sum(), parts)
    theirs = torch.autograd.grad(by_torch(*parts).square().sum(), parts)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other)
