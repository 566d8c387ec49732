"""Mixtures of Gaussians: their statistics, and the likelihood under their own parameters."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from scipy.stats import kstest
from torch import Generator, Tensor

from coterie.amortized.tasks.synthetic import MixturesOfGaussians, WarpedGaussians
from coterie.errors import ConfigError
from coterie.nn.model import TaskBatch
from coterie.ops.gaussian_mixtures import diagonal_log_prob


def oracle_log_likelihood(batch: TaskBatch, mean: Tensor, deviation: Tensor) -> Tensor:
    """Compute the mean log-likelihood of each set under its own components, weighted by label frequencies."""
    present = torch.nn.functional.one_hot(batch.labels, mean.shape[1]) * batch.valid.unsqueeze(2)
    proportions = present.sum(dim=1) / batch.valid.sum(dim=1, keepdim=True)
    joint = (proportions + 1e-10).log().unsqueeze(1) + diagonal_log_prob(batch.x, mean, deviation)
    return (joint.logsumexp(dim=2) * batch.valid).sum(dim=1) / batch.valid.sum(dim=1)


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def own(parameter: Tensor, labels: Tensor) -> Tensor:
    """Each point's component's row."""
    return parameter[torch.arange(len(labels)).unsqueeze(1), labels]


def assert_normal(values: Tensor, mean: float, deviation: float) -> None:
    assert kstest(values.flatten().double().numpy(), "norm", (mean, deviation)).pvalue > 1e-3


SAMPLERS = pytest.mark.parametrize(
    "make",
    [
        MixturesOfGaussians,
        partial(MixturesOfGaussians, copied=0.5),
        WarpedGaussians,
        partial(WarpedGaussians, paper_eq16=True),
    ],
    ids=["plain", "copied", "warped", "paper's warped"],
)


@SAMPLERS
def test_shapes_and_types(make: Any) -> None:
    sizes = set()
    for seed in range(60):
        batch = make(max_points=50, max_clusters=6).sample(3, generator(seed))
        assert batch.x.shape == (*batch.labels.shape, 2)
        assert (batch.x.dtype, batch.labels.dtype) == (torch.float32, torch.int64)
        assert batch.labels.shape[0] == 3
        assert batch.x.isfinite().all()
        assert 0 <= int(batch.labels.min()) <= int(batch.labels.max()) < 6
        assert batch.valid.all()
        sizes.add(batch.x.shape[1])
    assert min(sizes) >= 15
    assert max(sizes) <= 49
    assert len(sizes) > 20


def test_points_are_normal_around_the_means_of_their_clusters() -> None:
    batch, mean, deviation = MixturesOfGaussians().sample_with_parameters(20, generator())
    standard = (batch.x - own(mean, batch.labels)) / own(deviation, batch.labels)
    assert_normal(standard, 0.0, 1.0)
    rows = standard.flatten(0, 1)
    assert float((rows[:, 0] * rows[:, 1]).mean().abs()) < 4 / math.sqrt(len(rows))


def test_parameters_follow_their_distributions() -> None:
    for sampler in (
        MixturesOfGaussians(max_points=4),
        MixturesOfGaussians(max_points=4, spread=0.5, typical_deviation=2.0, varying_deviation=0.7, n_features=5),
    ):
        _, mean, deviation = sampler.sample_with_parameters(2000, generator())
        assert mean.shape == deviation.shape == (2000, sampler.max_clusters, sampler.n_features)
        assert_normal(mean, 0.0, sampler.spread)
        assert_normal(deviation.log(), math.log(sampler.typical_deviation), sampler.varying_deviation)


def test_nothing_has_to_vary() -> None:
    sampler = MixturesOfGaussians(max_points=30, spread=0.0, varying_deviation=0.0, typical_deviation=0.5)
    _, mean, deviation = sampler.sample_with_parameters(4, generator())
    assert not mean.any()
    torch.testing.assert_close(deviation, torch.full_like(deviation, 0.5))


@pytest.mark.parametrize(("max_points", "max_clusters", "published"), [(1000, 4, -0.693), (3000, 12, -1.527)])
def test_likelihood_and_cluster_number_are_as_published(max_points: int, max_clusters: int, published: float) -> None:
    """Sets of one batch share nothing but their number of points, which the likelihood hardly depends on."""
    sampler, source = MixturesOfGaussians(max_points, max_clusters), generator()
    likelihoods, present = [], []
    for _ in range(30):
        batch, mean, deviation = sampler.sample_with_parameters(20, source)
        likelihoods.append(oracle_log_likelihood(batch, mean, deviation))
        present.append(torch.nn.functional.one_hot(batch.labels, max_clusters).amax(dim=1).sum(dim=1))
    values, counts = torch.cat(likelihoods).double(), torch.cat(present).double()
    assert abs(float(values.mean()) - published) < 3 * float(values.std()) / math.sqrt(600)
    empty = 0.008 if max_clusters == 4 else 0.022  # kept, but without a point
    expected = (max_clusters + 1) / 2 - empty
    assert abs(float(counts.mean()) - expected) < 3 * float(counts.std()) / math.sqrt(600)


def test_other_concentrations_have_other_likelihoods() -> None:
    """What tells that the published sets were made with a concentration of one."""
    batch, mean, deviation = MixturesOfGaussians(concentration=5.0).sample_with_parameters(600, generator())
    likelihood = oracle_log_likelihood(batch, mean, deviation)
    assert float(likelihood.mean()) == pytest.approx(-0.843, abs=3 * float(likelihood.std()) / math.sqrt(600))


@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_a_fraction_of_the_sets_has_copies_of_one_feature(share: float) -> None:
    plain = MixturesOfGaussians(max_points=12, n_features=3)
    sampler = MixturesOfGaussians(max_points=12, n_features=3, copied=share)
    batch, mean, deviation = sampler.sample_with_parameters(3000, generator())
    other = plain.sample(3000, generator())
    copied = (batch.x == batch.x[..., :1]).flatten(1).all(dim=1)
    assert abs(float(copied.double().mean()) - share) <= 4 * math.sqrt(share * (1 - share) / 3000)
    assert torch.equal(batch.x[..., 0], other.x[..., 0])
    assert torch.equal(batch.x[~copied], other.x[~copied])
    assert torch.equal(batch.labels, other.labels)
    for parameter in (mean, deviation):
        assert torch.equal(parameter[copied], parameter[copied][..., :1].expand(-1, -1, 3))


def test_standardised_sets_are_the_same_on_another_scale() -> None:
    plain, mean, deviation = MixturesOfGaussians(max_points=60).sample_with_parameters(20, generator())
    sampler = MixturesOfGaussians(max_points=60, standardised=True)
    batch, own_mean, own_deviation = sampler.sample_with_parameters(20, generator())
    torch.testing.assert_close(batch.x.mean(dim=1), torch.zeros(20, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(batch.x.std(dim=1, correction=0), torch.ones(20, 2))
    assert torch.equal(batch.labels, plain.labels)
    scale = plain.x.std(dim=1, correction=0)
    torch.testing.assert_close(
        oracle_log_likelihood(batch, own_mean, own_deviation),
        oracle_log_likelihood(plain, mean, deviation) + scale.log().sum(dim=1),
        atol=1e-3,
        rtol=0,
    )


@SAMPLERS
@pytest.mark.usefixtures("untouched_random_state")
def test_the_generator_decides_everything(make: Any) -> None:
    sampler = make()
    first, again, other = (sampler.sample(4, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.labels, again.labels)
    assert first.x.shape != other.x.shape or not torch.equal(first.x, other.x)
    source = generator(3)
    assert torch.equal(sampler.sample(4, source).x, first.x)
    following = sampler.sample(4, source)
    assert following.x.shape != first.x.shape or not torch.equal(following.x, first.x)


@pytest.mark.parametrize(
    "values",
    [
        {"max_points": 1},
        {"max_clusters": 0},
        {"concentration": 0.0},
        {"n_features": 0},
        {"copied": -0.1},
        {"copied": 1.5},
        {"copied": math.nan},
        {"spread": -1.0},
        {"typical_deviation": 0.0},
        {"typical_deviation": math.nan},
        {"varying_deviation": -0.1},
    ],
    ids=str,
)
def test_impossible_settings_are_rejected(values: dict[str, Any]) -> None:
    ((name, value),) = values.items()
    kinds: list[Any] = [MixturesOfGaussians]
    if name in {"max_points", "max_clusters", "concentration"}:
        kinds.append(WarpedGaussians)
    for kind in kinds:
        with pytest.raises(ConfigError, match=f"{name}={value}"):
            kind(**values)
