"""Mixtures of diagonal Gaussians: densities against other programs', and what becomes of components."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Generator, Tensor
from torch.distributions import Normal

from coterie.ops import gaussian_mixtures


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
    density = gaussian_mixtures.diagonal_log_prob(x, mean, deviation)
    assert density.shape == (*shape, n, k)
    torch.testing.assert_close(density, by_torch(x, mean, deviation), atol=1e-9, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("far", [0.0, 10.0, 1e3, 1e5])
def test_far_from_the_origin_the_error_is_that_near_it(far: float, dtype: torch.dtype) -> None:
    """Products of matrices cancel: what is lost is the rounding of ((x - centre)/deviation)², wherever it is."""
    x, mean, deviation = (part.to(dtype) for part in case((), 40, 3, 4))
    x, mean = x + far, mean + far
    density = gaussian_mixtures.diagonal_log_prob(x, mean, deviation)
    exact = by_torch(x.double(), mean.double(), deviation.double())
    near_x, near_mean = x - mean.mean(dim=0), mean - mean.mean(dim=0)
    scale = (near_x.square().sum(dim=1, keepdim=True) + near_mean.square().sum(dim=1)) / deviation.square().amin(dim=1)
    # The centre is rounded, too, to the digits that numbers so far out have: then differences are exact but for that.
    assert ((density - exact).abs() <= 8 * torch.finfo(dtype).eps * (scale + 10 + far * scale.sqrt())).all()


def test_no_density_exceeds_that_of_the_mean() -> None:
    """Cancellation far away must not make a square negative."""
    mean = torch.full((1, 3), 1e4)
    deviation = torch.full((1, 3), 0.01)
    x = mean + 1e-3 * torch.randn((50, 3), generator=Generator().manual_seed(0))
    highest = float(by_torch(mean, mean, deviation))
    assert float(gaussian_mixtures.diagonal_log_prob(x, mean, deviation).max()) <= highest + 1e-5


def two_groups(gap: float, n: int = 200, dtype: torch.dtype = torch.float64) -> Tensor:
    source = Generator().manual_seed(3)
    x = torch.randn((2 * n, 2), generator=source, dtype=torch.float64)
    x[n:, 0] += gap
    return x.to(dtype)


def mixture_at(
    *means: tuple[float, float], trust: float = 10.0, dtype: torch.dtype = torch.float64
) -> gaussian_mixtures.Mixture:
    """Equal shares and unit deviations."""
    mean = torch.tensor(means, dtype=dtype)
    width = torch.ones_like(mean)
    return gaussian_mixtures.Mixture(torch.full((len(mean),), 1 / len(mean), dtype=dtype), mean, width, width, trust)


def likelihood(x: Tensor, mixture: gaussian_mixtures.Mixture) -> float:
    return float(mixture.joint(x).logsumexp(dim=1).sum())


@given(seed=st.integers(0, 50), k=st.integers(1, 4), steps=st.integers(1, 3))
def test_refining_never_lowers_the_likelihood(seed: int, k: int, steps: int) -> None:
    x, mean, deviation = case((), 60, k, 2, seed)
    mixture = gaussian_mixtures.Mixture(torch.full((k,), 1 / k, dtype=x.dtype), mean, deviation, deviation, trust=0.0)
    before = likelihood(x, mixture)
    for _ in range(steps):
        mixture = gaussian_mixtures.run_em(x, mixture, 1)
        after = likelihood(x, mixture)
        assert after >= before - 1e-8 * abs(before)
        before = after
    torch.testing.assert_close(mixture.share.sum().item(), 1.0)


def test_one_component_has_the_moments_of_the_points() -> None:
    x = two_groups(gap=5.0)
    fitted = gaussian_mixtures.run_em(x, mixture_at((0.0, 0.0), trust=0.0), 1)
    torch.testing.assert_close(fitted.mean[0], x.mean(dim=0))
    torch.testing.assert_close(fitted.deviation[0], x.std(dim=0, correction=0))
    pulled = gaussian_mixtures.run_em(x, mixture_at((0.0, 0.0), trust=400.0), 1)  # as many points as there are
    torch.testing.assert_close(pulled.deviation[0].square(), 0.5 * (x.var(dim=0, correction=0) + 1.0))


@pytest.mark.parametrize("far", [0.0, 1e3, 1e5])
def test_refining_far_from_the_origin(far: float) -> None:
    x = two_groups(gap=12.0)
    near = gaussian_mixtures.run_em(x, mixture_at((0.0, 0.0), (12.0, 0.0)), 5)
    single = mixture_at((far, far), (12.0 + far, far), dtype=torch.float32)
    there = gaussian_mixtures.run_em((x + far).float(), single, 5)
    torch.testing.assert_close(there.deviation.double(), near.deviation, rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(there.mean.double() - far, near.mean, rtol=0, atol=2e-2)


def test_two_halves_of_one_gaussian_become_one() -> None:
    x = two_groups(gap=0.0)
    halves = gaussian_mixtures.run_em(x, mixture_at((-0.5, 0.0), (0.5, 0.0)), 5)
    whole = gaussian_mixtures.simplify(x, halves, steps=5)
    assert len(whole.share) == 1
    torch.testing.assert_close(whole.mean[0], x.mean(dim=0))


def test_separate_groups_stay() -> None:
    x = two_groups(gap=8.0)
    start = mixture_at((-0.5, 0.5), (0.5, 0.0), (8.0, -1.0), (9.0, 1.0))
    found = gaussian_mixtures.simplify(x, gaussian_mixtures.run_em(x, start, 5), steps=5)
    assert len(found.share) == 2
    first, second = found.mean[:, 0].sort().values.tolist()
    assert first == pytest.approx(0.0, abs=0.3)
    assert second == pytest.approx(8.0, abs=0.3)


def test_a_component_in_the_tail_of_another_is_dropped() -> None:
    x = two_groups(gap=0.0)
    share = torch.tensor([0.995, 0.005], dtype=torch.float64)
    tail = mixture_at((0.0, 0.0), (3.0, 0.0))
    found = gaussian_mixtures.simplify(
        x, gaussian_mixtures.Mixture(share, tail.mean, tail.deviation, tail.expected, tail.trust), steps=5
    )
    assert len(found.share) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [20, 500, 2000])
def test_a_single_point_far_away_stays_by_itself(n: int, dtype: torch.dtype) -> None:
    """However many others there are, and though its responsibility rounds to one."""
    x = torch.cat([two_groups(gap=0.0, n=n, dtype=dtype), torch.tensor([[60.0, -40.0]], dtype=dtype)])
    start = mixture_at((0.0, 0.0), (60.0, -40.0), dtype=dtype)
    found = gaussian_mixtures.simplify(x, gaussian_mixtures.run_em(x, start, 5), steps=5)
    assert len(found.share) == 2
    assert float(found.share.min()) == pytest.approx(1 / len(x), rel=1e-3)


def test_needed_components_are_those_that_bring_more_than_they_cost() -> None:
    x = two_groups(gap=8.0)
    joint = mixture_at((0.0, 0.0), (0.1, 0.0), (8.0, 0.0), (500.0, 0.0)).joint(x)
    kept = gaussian_mixtures.prune_components(joint, gaussian_mixtures.component_cost(x)).tolist()
    assert len(kept) == 2
    assert kept[0] in (0, 1)
    assert kept[1] == 2
    assert gaussian_mixtures.prune_components(joint[:, :1], 1e9).tolist() == [0]


def test_points_of_clusters_as_sets() -> None:
    x = torch.arange(10.0).reshape(5, 2)
    sets, valid = gaussian_mixtures.group_by_label(x, torch.tensor([1, 0, 1, 1, 0]))
    assert valid.tolist() == [[True, True, False], [True, True, True]]
    assert torch.equal(sets[0, :2], x[[1, 4]])
    assert torch.equal(sets[1], x[[0, 2, 3]])


@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_what_a_component_explains(d: int) -> None:
    """All but about one point in a million, in any number of dimensions."""
    distance = math.sqrt(float(chi2.isf(1e-6, d)))
    point = torch.zeros((2, d), dtype=torch.float64)
    point[:, 0] = torch.tensor([0.9, 1.15]) * distance * 3.0  # of deviations of 3
    width = torch.full((1, d), 3.0, dtype=torch.float64)
    mixture = gaussian_mixtures.Mixture(torch.ones(1, dtype=torch.float64), torch.zeros_like(width), width, width, 10.0)
    assert gaussian_mixtures.is_explained(point, mixture).tolist() == [True, False]


def test_added_components_take_weight_from_the_others() -> None:
    mixture = mixture_at((0.0, 0.0), (8.0, 0.0))
    more = mixture.with_more(mixture_at((4.0, 4.0)), 0.2)
    torch.testing.assert_close(more.share, torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64))
    torch.testing.assert_close(more.keep(torch.tensor([0, 1])).share, mixture.share)
    assert (more.expected[2] == mixture.deviation[0]).all()
