"""Densities of clusters: laws of all heads, and what is special in each."""

import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import pytest
import torch
from scipy.stats import norm
from torch import Generator, Tensor, nn
from torch.func import jacrev

from coterie.errors import ConfigError
from coterie.nn.density import DensityHead, FlowHead, GaussianHead, StatisticianHead

Head = TypeVar("Head", bound=nn.Module)
HEADS: dict[str, Callable[[int], DensityHead]] = {
    "gaussian": GaussianHead,
    "flow": lambda n_features: FlowHead(n_features, context_width=5, hidden=16),
    "statistician": lambda n_features: StatisticianHead(n_features, context_width=5, latent=3, hidden=16),
    "statistician of bits": lambda n_features: StatisticianHead(
        n_features, context_width=5, latent=1, hidden=16, likelihood="bernoulli"
    ),
}


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def with_weights(head: Head, seed: int = 0, deviation: float = 0.3) -> Head:
    """Give a head weights that are large enough for points and contexts to matter, in double precision."""
    source = generator(seed)
    for parameter in head.double().parameters():
        nn.init.normal_(parameter, std=deviation, generator=source)
    return head


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


@pytest.fixture(params=HEADS)
def make(request: pytest.FixtureRequest) -> Callable[[int], DensityHead]:
    return HEADS[request.param]


def test_gradient_reaches_every_parameter_and_the_context(make: Callable[[int], DensityHead]) -> None:
    head = with_weights(make(2))
    context = normal(3, head.context_width).requires_grad_()
    value = head.log_prob(normal(3, 7, 2), context, generator()).sum()
    names = [name for name, _ in head.named_parameters()]
    of_context, *of_weights = torch.autograd.grad(value, (context, *head.parameters()))
    assert (of_context != 0).all()
    assert [name for name, gradient in zip(names, of_weights, strict=True) if not gradient.any()] == []


@pytest.mark.usefixtures("untouched_random_state")
def test_randomness_is_the_generators(make: Callable[[int], DensityHead]) -> None:
    with torch.random.fork_rng():
        head = with_weights(make(2))
    x, context = normal(3, 7, 2), normal(3, head.context_width)
    first, again = (head.log_prob(x, context, generator(5)) for _ in range(2))
    assert torch.equal(first, again)
    draws = isinstance(head, StatisticianHead)
    assert torch.equal(first, head.log_prob(x, context, generator(6))) is not draws


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["gaussian", "flow"])
def test_density_integrates_to_one(name: str, seed: int) -> None:
    head = with_weights(HEADS[name](2), seed)
    axis = torch.linspace(-15, 15, 401, dtype=torch.float64)
    cell = float(axis[1] - axis[0]) ** 2
    with torch.no_grad():
        values = head.log_prob(torch.cartesian_prod(axis, axis)[None], normal(1, head.context_width), generator())
    assert float(values.exp().sum()) * cell == pytest.approx(1.0, abs=1e-2)


def test_gaussian_is_scipys() -> None:
    head = GaussianHead(2)
    x, context = normal(2, 5, 2), normal(2, 4)
    mean, deviation = head.parameters_of(context)
    assert torch.equal(mean, context[:, :2])
    torch.testing.assert_close(deviation, context[:, 2:].exp().log1p() + 1e-6)
    expected = torch.as_tensor(norm.logpdf(x.numpy(), mean[:, None].numpy(), deviation[:, None].numpy()))
    torch.testing.assert_close(head.log_prob(x, context, generator()), expected.sum(dim=2))
    assert all(part.shape == (4, 3, 2) for part in head.parameters_of(normal(4, 3, 4)))


def test_gaussian_survives_a_width_of_zero() -> None:
    context = torch.tensor([[0.0, 0.0, -1000.0, -1000.0]], requires_grad=True)
    value = GaussianHead(2).log_prob(torch.zeros(1, 1, 2), context, generator())
    assert float(value.detach()) == pytest.approx(-math.log(2 * math.pi) - 2 * math.log(1e-6))
    (gradient,) = torch.autograd.grad(value.sum(), context)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("n_features", [1, 2, 5])
def test_flow_comes_back(n_features: int) -> None:
    head = with_weights(FlowHead(n_features, 5, hidden=16))
    x, transform = normal(3, 7, n_features), head.transform(normal(3, 5))
    torch.testing.assert_close(transform.inv(transform(x)), x)


@pytest.mark.parametrize("n_features", [1, 3])
def test_flow_knows_its_volume(n_features: int) -> None:
    transform = with_weights(FlowHead(n_features, 5, hidden=16)).transform(normal(1, 5))
    x = normal(1, 1, n_features)
    noise, log_determinant = transform.call_and_ladj(x)
    matrix = jacrev(transform)(x).reshape(n_features, n_features)
    torch.testing.assert_close(log_determinant.squeeze(), matrix.det().abs().log())
    torch.testing.assert_close(noise, transform(x))


@pytest.mark.parametrize("block", range(4))
def test_a_block_of_the_flow_is_autoregressive_and_the_order_turns(block: int) -> None:
    head = with_weights(FlowHead(4, 5, hidden=16))
    matrix = jacrev(head.blocks[block](normal(1, 5)))(normal(1, 1, 4)).reshape(4, 4)
    lower, upper = matrix.tril(-1), matrix.triu(1)
    used, unused = (upper, lower) if block % 2 else (lower, upper)
    assert (used != 0).sum() == 6
    assert not unused.any()
    assert (matrix.diagonal() > 0).all()


@pytest.mark.parametrize("n_features", [1, 2, 4])
def test_context_moves_every_coordinate_of_every_block(n_features: int) -> None:
    head = with_weights(FlowHead(n_features, 5, hidden=16))
    x = normal(1, 1, n_features)
    for block in head.blocks:
        change = jacrev(lambda context, block=block: block(context)(x))(normal(1, 5))
        assert (change.reshape(n_features, 5) != 0).all()


@pytest.mark.usefixtures("untouched_random_state")
def test_flow_samples_follow_its_density() -> None:
    with torch.random.fork_rng():
        head = with_weights(FlowHead(2, 5, hidden=16), deviation=0.2)
    context = normal(2, 5)
    with torch.no_grad():
        points = head.sample(context, 20_000, generator())
        assert torch.equal(points, head.sample(context, 20_000, generator()))
        axis = torch.linspace(-15, 15, 301, dtype=torch.float64)
        grid = torch.cartesian_prod(axis, axis).expand(2, -1, -1)
        weight = head.log_prob(grid, context, generator()).softmax(dim=1)
    mean = (weight[:, :, None] * grid).sum(dim=1)
    deviation = (weight[:, :, None] * (grid - mean[:, None]).square()).sum(dim=1).sqrt()
    assert points.shape == (2, 20_000, 2)
    assert ((points.mean(dim=1) - mean) / deviation).abs().max() < 0.03
    assert (points.std(dim=1) / deviation - 1).abs().max() < 0.03


def test_flow_stays_finite_far_away() -> None:
    head = with_weights(FlowHead(2, 5, hidden=16), deviation=5.0).float()
    context = torch.full((1, 5), 100.0, requires_grad=True)
    value = head.log_prob(torch.tensor([[[1e4, -1e4], [0.0, 0.0]]]), context, generator())
    assert value.isfinite().all()
    (gradient,) = torch.autograd.grad(value.sum(), context)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_statisticians_bound_is_below_the_likelihood_and_unbiased(likelihood: Literal["gaussian", "bernoulli"]) -> None:
    """With a code of one number, the likelihood is an integral over a line, and the mean of the bound's exponential."""
    head = StatisticianHead(3, 5, latent=1, hidden=8, likelihood=likelihood, per_feature=False)
    with_weights(head, deviation=0.1)
    with_weights(head.decoder)
    # A posterior that is narrower than the prior would need more draws than there is time for.
    *_, last_bias = head.encoder.parameters()
    nn.init.constant_(last_bias[1:], 2.0)
    x, context = (normal(4, 1, 3) > 0).double(), normal(4, 5)
    code = torch.linspace(-40, 40, 20_001, dtype=torch.float64)[None, :, None].expand(4, -1, -1)
    with torch.no_grad():
        joint = head.decoded_log_prob(x, code, context) + head.prior.log_prob(code, context, generator())
        exact = joint.logsumexp(dim=1) + math.log(80 / 20_000)
        bounds = head.log_prob(x.expand(-1, 50_000, -1), context, generator())
    assert (bounds.mean(dim=1) < exact).all()
    ratio = (bounds - exact.unsqueeze(1)).exp()
    standard_error = ratio.std(dim=1) / math.sqrt(50_000)
    assert standard_error.max() < 0.02
    assert ((ratio.mean(dim=1) - 1).abs() < 4 * standard_error).all()


def test_statisticians_bound_is_divided_by_the_features() -> None:
    whole = with_weights(StatisticianHead(4, 5, hidden=16, per_feature=False))
    divided = with_weights(StatisticianHead(4, 5, hidden=16))
    x, context = normal(2, 7, 4), normal(2, 5)
    torch.testing.assert_close(
        whole.log_prob(x, context, generator()) / 4, divided.log_prob(x, context, generator()), rtol=0, atol=0
    )


def test_the_deterministic_bound_is_over_all_features() -> None:
    whole = with_weights(StatisticianHead(4, 5, latent=2, hidden=16, per_feature=False))
    divided = with_weights(StatisticianHead(4, 5, latent=2, hidden=16))
    x, context = normal(2, 7, 4), normal(2, 5)
    settled = divided.deterministic_log_prob(x, context)
    torch.testing.assert_close(settled, whole.deterministic_log_prob(x, context), rtol=0, atol=0)
    code, deviation = divided.posterior(x, context)
    # With the code at the posterior's mean, nothing is drawn: each term can be written down.
    own = -(deviation.log() + 0.5 * math.log(2 * math.pi)).sum(dim=2)
    expected = divided.decoded_log_prob(x, code, context) + divided.prior.log_prob(code, context, generator()) - own
    torch.testing.assert_close(settled, expected)


@pytest.mark.usefixtures("untouched_random_state")
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_statistician_decodes_samples_of_its_prior(likelihood: Literal["gaussian", "bernoulli"]) -> None:
    with torch.random.fork_rng():
        head = with_weights(StatisticianHead(6, 5, latent=2, hidden=16, likelihood=likelihood))
    context = normal(3, 5)
    with torch.no_grad():
        drawn = head.sample(context, 40, generator())
        assert drawn.shape == (3, 40, 6)
        assert torch.equal(drawn, head.sample(context, 40, generator()))
        assert not torch.equal(drawn, head.sample(context, 40, generator(1)))
        decoded = head.decoder(head.prior.sample(context, 40, generator()), context)
        alone = head.sample(context[1:2], 40, generator())
    if likelihood == "bernoulli":
        assert ((drawn > 0) & (drawn < 1)).all()
        torch.testing.assert_close(drawn, decoded.sigmoid())
    else:
        torch.testing.assert_close(drawn, decoded[..., :6])
    assert alone.shape == (1, 40, 6)
    assert not torch.allclose(drawn[0], drawn[2]), "what is drawn depends on the context"


def test_sizes_and_names_are_checked() -> None:
    with pytest.raises(ConfigError, match="n_features=0 must be at least 1"):
        GaussianHead(0)
    with pytest.raises(ConfigError, match="blocks=0"):
        FlowHead(2, blocks=0)
    with pytest.raises(ConfigError, match="context_width=-1"):
        StatisticianHead(2, -1)
    unknown: Any = "poisson"
    with pytest.raises(ConfigError, match="likelihood='poisson' must be 'gaussian' or 'bernoulli'"):
        StatisticianHead(2, 5, likelihood=unknown)
