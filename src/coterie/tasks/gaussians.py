"""Mixtures of Gaussians with diagonal covariances (DAC, Eq. 13), and what their own parameters say of the points."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.ops.mixture import diagonal_log_prob
from coterie.structures import TaskBatch
from coterie.tasks.partitions import check_sizes, sample_partitions, sample_set_size


@final
@dataclass(frozen=True, slots=True)
class MixturesOfGaussians:
    """Sets drawn from mixtures whose number of components, shares, means and widths all vary."""

    max_points: int = 1000
    """Sets have from three tenths of this number to one below it; one batch, one number."""
    max_clusters: int = 4
    """Components; each but the first is present with probability one half."""
    n_features: int = 2
    """D."""
    concentration: float = 1.0
    """Of the Dirichlet that the shares are from."""
    spread: float = 3.0
    """Standard deviation of the means around the origin."""
    typical_deviation: float = 0.25
    """Median standard deviation of a component along a feature."""
    varying_deviation: float = 0.1
    """Standard deviation of the logarithm of that."""
    copied: float = 0.0
    """Share of the sets whose features are all copies of their first, as when one column is fitted to more."""
    standardised: bool = False
    """Whether each set is brought to mean zero and standard deviation one in every feature."""

    def __post_init__(self) -> None:
        check_sizes(self.max_points, self.max_clusters, self.concentration)
        if self.n_features < 1 or not 0 <= self.copied <= 1:
            raise ConfigError(
                f"n_features={self.n_features} must be at least 1, and copied={self.copied} between 0 and 1."
            )
        if not (self.spread >= 0 and self.typical_deviation > 0 and self.varying_deviation >= 0):
            raise ConfigError(
                f"typical_deviation={self.typical_deviation} must be above 0, and spread={self.spread} and "
                f"varying_deviation={self.varying_deviation} at least 0."
            )

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        return self.sample_with_parameters(batch_size, generator)[0]

    def sample_with_parameters(
        self, batch_size: int, generator: Generator
    ) -> tuple[TaskBatch, Float[Tensor, "B K D"], Float[Tensor, "B K D"]]:
        """Draw sets, and say the means and the standard deviations of their components."""
        n_points = sample_set_size(self.max_points, generator)
        labels = sample_partitions(batch_size, n_points, self.max_clusters, self.concentration, generator)
        shape = (batch_size, self.max_clusters, self.n_features)
        mean = self.spread * torch.randn(shape, generator=generator)
        exponent = math.log(self.typical_deviation) + self.varying_deviation * torch.randn(shape, generator=generator)
        deviation = exponent.exp()
        noise = torch.randn((batch_size, n_points, self.n_features), generator=generator)
        if self.copied:
            copied = torch.rand((batch_size, 1, 1), generator=generator) < self.copied
            mean, deviation, noise = (
                torch.where(copied, part[..., :1].expand_as(part), part) for part in (mean, deviation, noise)
            )
        member = labels.unsqueeze(2).expand(-1, -1, self.n_features)
        x = mean.gather(1, member) + deviation.gather(1, member) * noise
        if self.standardised:
            centre, scale = x.mean(dim=1, keepdim=True), x.std(dim=1, keepdim=True, correction=0)
            scale = torch.where(scale > 0, scale, 1.0)  # one point does not vary
            x, mean, deviation = (x - centre) / scale, (mean - centre) / scale, deviation / scale
        return TaskBatch(x, labels, torch.ones_like(labels, dtype=torch.bool)), mean, deviation


def oracle_log_likelihood(
    batch: TaskBatch, mean: Float[Tensor, "B K D"], deviation: Float[Tensor, "B K D"]
) -> Float[Tensor, " B"]:
    """Mean log-likelihood of each set's points under their own components, weighted by the labels' frequencies."""
    present = torch.nn.functional.one_hot(batch.labels, mean.shape[1]) * batch.valid.unsqueeze(2)
    shares = present.sum(dim=1) / batch.valid.sum(dim=1, keepdim=True)
    joint = (shares + 1e-10).log().unsqueeze(1) + diagonal_log_prob(batch.x, mean, deviation)
    return (joint.logsumexp(dim=2) * batch.valid).sum(dim=1) / batch.valid.sum(dim=1)
