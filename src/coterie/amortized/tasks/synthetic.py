"""Synthetic tasks: mixtures of Gaussians (DAC, Eq. 13), warped Gaussians (Eq. 16), and circles (ABC)."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.nn.model import TaskBatch


def rotate(x: Float[Tensor, "*B 2"], angle: Float[Tensor, "*B"]) -> Float[Tensor, "*B 2"]:
    """Rotate points counterclockwise, each by its angle."""
    first, second = x.unbind(-1)
    return torch.stack((angle.cos() * first - angle.sin() * second, angle.sin() * first + angle.cos() * second), dim=-1)


def rotations_of(x: Float[Tensor, "*B 2"], count: int) -> list[Float[Tensor, "*B 2"]]:
    """Return the points rotated by equally spaced angles, first unrotated."""
    angles = [x.new_tensor(2 * math.pi * step / count).expand(x.shape[:-1]) for step in range(1, count)]
    return [x, *(rotate(x, angle) for angle in angles)]


def sample_set_size(max_points: int, generator: Generator) -> int:
    """Sample a number of points, uniformly from three tenths of the largest to one below it."""
    smallest = max(1, int(0.3 * max_points))
    return int(torch.randint(smallest, max(max_points, smallest + 1), (), generator=generator))


def sample_partitions(
    batch_size: int, n_points: int, max_clusters: int, concentration: float, generator: Generator
) -> Int[Tensor, "B N"]:
    """Sample the labels of several sets, each with its own number of clusters.

    Proportions are from a Dirichlet distribution; every cluster except the first is dropped with probability one half,
    so that their number is one plus a binomial; labels are then independent given the remaining proportions.
    """
    proportions = torch._standard_gamma(torch.full((batch_size, max_clusters), concentration), generator=generator)
    kept = torch.rand((batch_size, max_clusters), generator=generator) < 0.5
    kept[:, 0] = True
    proportions = (proportions + torch.finfo(proportions.dtype).tiny) * kept
    return torch.multinomial(proportions, n_points, replacement=True, generator=generator)


def check_sizes(max_points: int, max_clusters: int, concentration: float) -> None:
    """Reject settings with which no set can be sampled."""
    if max_points < 2 or max_clusters < 1 or not 0 < concentration < math.inf:
        raise ConfigError(
            f"max_points={max_points} must be at least 2, max_clusters={max_clusters} at least 1, and "
            f"concentration={concentration} above 0 and finite."
        )


@final
@dataclass(frozen=True, slots=True)
class MixturesOfGaussians:
    """Sets from mixtures whose number of components, weights, means and deviations all vary."""

    max_points: int = 1000
    """Sets have from three tenths of this number of points to one below it, the same in one batch."""
    max_clusters: int = 4  # components; each except the first is present with probability one half
    n_features: int = 2  # D
    concentration: float = 1.0  # concentration of the Dirichlet distribution of the proportions
    spread: float = 3.0  # standard deviation of the means around the origin
    typical_deviation: float = 0.25  # median standard deviation of a component along a feature
    varying_deviation: float = 0.1  # standard deviation of its logarithm
    copied: float = 0.0
    """Fraction of the sets whose features are all copies of the first, as when one column is mapped to several."""
    standardised: bool = False
    """Whether each set is standardised: mean zero and standard deviation one in every feature."""

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
        """Sample that many sets."""
        return self.sample_with_parameters(batch_size, generator)[0]

    def sample_with_parameters(
        self, batch_size: int, generator: Generator
    ) -> tuple[TaskBatch, Float[Tensor, "B K D"], Float[Tensor, "B K D"]]:
        """Sample sets with the means and standard deviations of their components."""
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
            scale = torch.where(scale > 0, scale, 1.0)  # a single point has no spread
            x, mean, deviation = (x - centre) / scale, (mean - centre) / scale, deviation / scale
        return TaskBatch(x, labels, torch.ones_like(labels, dtype=torch.bool)), mean, deviation


ANGLE_PER_UNIT = 0.8 * math.pi  # radians per unit of the one-dimensional mixture that is bent into arcs
NOISE_DEVIATION = 0.1
FARTHEST_SHIFT = 4.0


@final
@dataclass(frozen=True, slots=True)
class Arcs:
    """Parameters of warped clusters."""

    position: Float[Tensor, "B K"]  # mean of the cluster on the line that is bent
    deviation: Float[Tensor, "B K"]  # standard deviation of the cluster on that line
    axes: Float[Tensor, "B K 2"]  # half-axes of the ellipse, of either sign
    rotation: Float[Tensor, "B K"]  # rotation of the ellipse
    shift: Float[Tensor, "B K 2"]  # centre of the ellipse


@final
@dataclass(frozen=True, slots=True)
class WarpedGaussians:
    """Sets of arcs: one-dimensional Gaussians bent around rotated and shifted ellipses, in the plane."""

    max_points: int = 1000
    """Sets have from three tenths of this number of points to one below it, the same in one batch."""
    max_clusters: int = 4  # arcs; each except the first is present with probability one half
    concentration: float = 5.0  # concentration of the Dirichlet distribution of the proportions
    paper_eq16: bool = False
    """Whether to use the formula as printed instead of the authors' code, which made the published sets.

    As printed, the half-axes have standard deviation √2 instead of 2; the step away from the ellipse is divided by
    √(a² + b²) instead of its own length; that step is 0.1 for every point instead of normal with this standard
    deviation; and the centres have mean min(k, 4) and unit variance instead of mean 0 and standard deviation min(K, 4),
    where k counts the clusters of the set that have a point and K is ``max_clusters``.
    """

    def __post_init__(self) -> None:
        check_sizes(self.max_points, self.max_clusters, self.concentration)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample that many sets."""
        return self.sample_with_parameters(batch_size, generator)[0]

    def sample_with_parameters(self, batch_size: int, generator: Generator) -> tuple[TaskBatch, Arcs]:
        """Sample sets with the parameters of their arcs."""
        n_points = sample_set_size(self.max_points, generator)
        labels = sample_partitions(batch_size, n_points, self.max_clusters, self.concentration, generator)
        arcs = self._sample_arcs(torch.nn.functional.one_hot(labels, self.max_clusters).amax(dim=1), generator)
        position, deviation, rotation = (
            part.gather(1, labels) for part in (arcs.position, arcs.deviation, arcs.rotation)
        )
        axes, shift = (part.gather(1, labels.unsqueeze(2).expand(-1, -1, 2)) for part in (arcs.axes, arcs.shift))
        along, away = torch.randn((2, batch_size, n_points), generator=generator)
        angle = ANGLE_PER_UNIT * (position + deviation * along)
        if self.paper_eq16:
            x = around_ellipse(angle, axes, torch.full_like(angle, NOISE_DEVIATION), axes.norm(dim=2))
        else:
            x = around_ellipse(angle, axes, NOISE_DEVIATION * away)
        return TaskBatch(rotate(x, rotation) + shift, labels, torch.ones_like(labels, dtype=torch.bool)), arcs

    def _sample_arcs(self, present: Tensor, generator: Generator) -> Arcs:
        """Sample an arc for every cluster (B, K), present or not."""
        numbers = torch.randn((6, *present.shape), generator=generator)
        rotation = 2 * math.pi * torch.rand(present.shape, generator=generator)
        shift = numbers[4:].movedim(0, 2)
        if self.paper_eq16:
            shift = shift + present.sum(dim=1).clamp(max=FARTHEST_SHIFT)[:, None, None]
        else:
            shift = shift * min(self.max_clusters, FARTHEST_SHIFT)
        return Arcs(
            position=3.0 * numbers[0],
            deviation=(math.log(0.25) + 0.1 * numbers[1]).exp(),
            axes=(math.sqrt(2.0) if self.paper_eq16 else 2.0) * numbers[2:4].movedim(0, 2),
            rotation=rotation,
            shift=shift,
        )


def around_ellipse(
    angle: Float[Tensor, "*B"],
    axes: Float[Tensor, "*B 2"],
    step: Float[Tensor, "*B"],
    divisor: Float[Tensor, "*B"] | None = None,
) -> Float[Tensor, "*B 2"]:
    """Return points a step away from an ellipse at an angle, perpendicular to the ellipse.

    With a divisor, the step is multiplied by the length of (b cos, a sin) over the divisor.
    """
    on_circle = torch.stack((angle.cos(), angle.sin()), dim=-1)
    direction = axes.flip(-1) * on_circle
    length = direction.norm(dim=-1) if divisor is None else divisor
    # An ellipse without extent has no direction: its points stay in place.
    ratio = step / length.clamp(min=torch.finfo(length.dtype).tiny)
    return axes * on_circle + ratio.unsqueeze(-1) * direction


_SPREAD = 0.5  # radius of the disc of centres
_RADIUS, _VARYING_RADIUS = 0.3, 0.1
_LEAST_RADIUS, _MOST_RADIUS = 0.2, 0.4


@final
@dataclass(frozen=True, slots=True)
class CircleTasks:
    """Sets of points that lie exactly on circles, at least one on each, spread around it."""

    n_points: int = 20  # points of a set
    n_circles: int = 4  # circles of a set
    overlapping: bool = False  # whether every circle crosses another one; circles are rejected until it does

    def __post_init__(self) -> None:
        if not 1 <= self.n_circles <= self.n_points:
            raise ConfigError(
                f"n_circles={self.n_circles} must be between 1 and n_points={self.n_points}, since each has a point."
            )
        if self.overlapping and self.n_circles == 1:
            raise ConfigError("overlapping=True needs n_circles of at least 2.")

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample that many sets."""
        return self.sample_with_circles(batch_size, generator)[0]

    def sample_with_circles(
        self, batch_size: int, generator: Generator
    ) -> tuple[TaskBatch, Float[Tensor, "B K 2"], Float[Tensor, "B K"]]:
        """Sample sets with the centres and radii of their circles."""
        centre, radius = self._circles(batch_size, generator)
        labels = self._labels(batch_size, generator)
        angle = _spread_angles(labels, self.n_circles, generator)
        direction = torch.stack([angle.cos(), angle.sin()], dim=2)
        own_centre = centre.gather(1, labels.unsqueeze(2).expand(-1, -1, 2))
        x = own_centre + radius.gather(1, labels).unsqueeze(2) * direction
        order = torch.rand(labels.shape, generator=generator).argsort(dim=1)
        x, labels = x.gather(1, order.unsqueeze(2).expand(-1, -1, 2)), labels.gather(1, order)
        return TaskBatch(x, labels, torch.ones_like(labels, dtype=torch.bool)), centre, radius

    def _circles(self, batch_size: int, generator: Generator) -> tuple[Float[Tensor, "B K 2"], Float[Tensor, "B K"]]:
        centre = torch.empty((batch_size, self.n_circles, 2))
        radius = torch.empty((batch_size, self.n_circles))
        missing = torch.arange(batch_size)
        while len(missing) > 0:
            shape = (len(missing), self.n_circles)
            distance = _SPREAD * torch.rand(shape, generator=generator).sqrt()
            angle = 2 * math.pi * torch.rand(shape, generator=generator)
            centre[missing] = distance.unsqueeze(2) * torch.stack([angle.cos(), angle.sin()], dim=2)
            sampled = _RADIUS + _VARYING_RADIUS * torch.randn(shape, generator=generator)
            radius[missing] = sampled.clamp(_LEAST_RADIUS, _MOST_RADIUS)
            good = crossing(centre[missing], radius[missing]).any(dim=2).all(dim=1) | (not self.overlapping)
            missing = missing[~good]
        return centre, radius

    def _labels(self, batch_size: int, generator: Generator) -> Int[Tensor, "B N"]:
        """Return the circle of each point, in order: one point each, and the others at random."""
        first = torch.arange(self.n_circles).expand(batch_size, -1)
        others = torch.randint(self.n_circles, (batch_size, self.n_points - self.n_circles), generator=generator)
        return torch.cat([first, others], dim=1).sort(dim=1).values


def crossing(centre: Float[Tensor, "B K 2"], radius: Float[Tensor, "B K"]) -> Bool[Tensor, "B K K"]:
    """Return which pairs of circles intersect in two points."""
    apart = (centre.unsqueeze(2) - centre.unsqueeze(1)).square().sum(dim=3).sqrt()
    first, second = radius.unsqueeze(2), radius.unsqueeze(1)
    return ((first - second).abs() < apart) & (apart < first + second)


def _spread_angles(labels: Int[Tensor, "B N"], n_circles: int, generator: Generator) -> Float[Tensor, "B N"]:
    """Sample angles around each circle, one in each of as many equal arcs as it has points; labels are sorted."""
    count = torch.zeros((len(labels), n_circles), dtype=torch.int64).scatter_add_(1, labels, torch.ones_like(labels))
    rank = torch.arange(labels.shape[1]) - (count.cumsum(1) - count).gather(1, labels)
    return 2 * math.pi * (rank + torch.rand(labels.shape, generator=generator)) / count.gather(1, labels)
