"""Who belongs to which cluster: frequencies against exact expectations."""

import math

import pytest
import torch
from scipy.special import gammaln
from scipy.stats import binom, chisquare
from torch import Generator, Tensor

from coterie.amortized.tasks.synthetic import check_sizes, sample_partitions, sample_set_size
from coterie.errors import ConfigError


def generator(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def n_present(labels: Tensor, max_clusters: int) -> Tensor:
    """Number of clusters of each set that have a point."""
    return torch.zeros(len(labels), max_clusters, dtype=torch.int64).scatter_(1, labels, 1).sum(dim=1)


def expected_present(n_points: int, max_clusters: int, concentration: float) -> float:
    """Mean number of clusters with a point: one and a binomial number are kept, and each may still be left empty.

    Counts are Dirichlet-multinomial, so the chance to stay empty is a ratio of beta functions.
    """
    total = 1.0 * binom.pmf(0, max_clusters - 1, 0.5)
    for kept in range(2, max_clusters + 1):
        rest = (kept - 1) * concentration
        log_empty = gammaln(rest + n_points) + gammaln(rest + concentration)
        log_empty -= gammaln(rest + concentration + n_points) + gammaln(rest)
        total += binom.pmf(kept - 1, max_clusters - 1, 0.5) * kept * (1 - math.exp(log_empty))
    return float(total)


def assert_mean(values: Tensor, expected: float) -> None:
    """The mean of independent values is within four of its standard errors."""
    error = float(values.double().std()) / math.sqrt(len(values))
    assert abs(float(values.double().mean()) - expected) < 4 * error


@pytest.mark.parametrize(
    ("n_points", "max_clusters", "concentration", "about"),
    [(650, 4, 1.0, 2.493), (1950, 12, 1.0, 6.480), (650, 4, 5.0, 2.5), (20, 6, 0.3, 2.348), (1, 5, 1.0, 1.0)],
)
def test_number_of_clusters_present(n_points: int, max_clusters: int, concentration: float, about: float) -> None:
    expected = expected_present(n_points, max_clusters, concentration)
    assert expected == pytest.approx(about, abs=0.01)
    labels = sample_partitions(2000, n_points, max_clusters, concentration, generator())
    present = n_present(labels, max_clusters)
    assert int(present.min()) >= 1
    if n_points > 1:
        assert_mean(present, expected)
    else:
        assert present.tolist() == [1] * 2000


def test_kept_clusters_are_one_and_a_binomial_number() -> None:
    """With a strong concentration and many points none of those kept stays empty."""
    present = n_present(sample_partitions(4000, 400, 5, 50.0, generator()), 5)
    seen = torch.bincount(present, minlength=6)[1:]
    assert chisquare(seen.numpy(), [250, 1000, 1500, 1000, 250]).pvalue > 1e-3


@pytest.mark.parametrize("concentration", [0.3, 1.0, 5.0])
def test_a_high_concentration_makes_sizes_equal(concentration: float) -> None:
    """Two points of one set share their cluster by the second moment of the Dirichlet."""
    labels = sample_partitions(40_000, 2, 3, concentration, generator())
    expected = sum(
        binom.pmf(kept - 1, 2, 0.5) * (concentration + 1) / (kept * concentration + 1) for kept in range(1, 4)
    )
    assert_mean((labels[:, 0] == labels[:, 1]).double(), expected)


def test_the_first_cluster_may_always_have_points() -> None:
    labels = sample_partitions(20_000, 1, 3, 1.0, generator())[:, 0]
    first = sum(binom.pmf(kept - 1, 2, 0.5) / kept for kept in range(1, 4))
    assert_mean((labels == 0).double(), first)
    assert_mean((labels == 1).double(), (1 - first) / 2)


@pytest.mark.parametrize("concentration", [1e-4, 1e6])
def test_extreme_concentrations_give_labels(concentration: float) -> None:
    labels = sample_partitions(200, 30, 4, concentration, generator())
    assert (labels.shape, labels.dtype) == ((200, 30), torch.int64)
    assert 0 <= int(labels.min()) <= int(labels.max()) < 4
    assert not sample_partitions(5, 10, 1, concentration, generator()).any()


@pytest.mark.parametrize(("max_points", "smallest"), [(1000, 300), (20, 6), (10, 3), (3, 1), (2, 1)])
def test_sizes_of_sets(max_points: int, smallest: int) -> None:
    source = generator()
    sizes = torch.tensor([sample_set_size(max_points, source) for _ in range(3000)])
    assert int(sizes.min()) >= smallest
    assert int(sizes.max()) <= max_points - 1
    if max_points <= 20:
        assert set(sizes.tolist()) == set(range(smallest, max_points))
    assert float(sizes.double().mean()) == pytest.approx((smallest + max_points - 1) / 2, rel=0.03)


@pytest.mark.usefixtures("untouched_random_state")
def test_the_generator_decides_everything() -> None:
    first, again, other = (sample_partitions(4, 50, 4, 1.0, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    source = generator(3)
    assert not torch.equal(sample_partitions(4, 50, 4, 1.0, source), sample_partitions(4, 50, 4, 1.0, source))


@pytest.mark.parametrize(
    ("max_points", "max_clusters", "concentration"),
    [(1, 4, 1.0), (-5, 4, 1.0), (10, 0, 1.0), (10, 4, 0.0), (10, 4, -1.0), (10, 4, math.nan), (10, 4, math.inf)],
)
def test_impossible_sizes_are_rejected(max_points: int, max_clusters: int, concentration: float) -> None:
    with pytest.raises(ConfigError, match=rf"max_points={max_points} must.*concentration={concentration} above"):
        check_sizes(max_points, max_clusters, concentration)
    check_sizes(2, 1, 1e-3)
