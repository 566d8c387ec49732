"""Mixtures of Gaussians with diagonal covariances (DAC, Eq. 13), and what their own parameters say of the points."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.nn.model import TaskBatch
from coterie.ops.gaussian_mixtures import diagonal_log_prob


def rotate(x: Float[Tensor, "*B 2"], angle: Float[Tensor, "*B"]) -> Float[Tensor, "*B 2"]:
    """Points turned by an angle each, counterclockwise."""
    first, second = x.unbind(-1)
    return torch.stack((angle.cos() * first - angle.sin() * second, angle.sin() * first + angle.cos() * second), dim=-1)


def turned(x: Float[Tensor, "*B 2"], turns: int) -> list[Float[Tensor, "*B 2"]]:
    """The points as they are seen from so many sides, equally far apart; first as they are."""
    sides = [x.new_tensor(2 * math.pi * side / turns).expand(x.shape[:-1]) for side in range(1, turns)]
    return [x, *(rotate(x, angle) for angle in sides)]


def sample_set_size(max_points: int, generator: Generator) -> int:
    """Number of points, uniform from three tenths of the largest to one below it."""
    smallest = max(1, int(0.3 * max_points))
    return int(torch.randint(smallest, max(max_points, smallest + 1), (), generator=generator))


def sample_partitions(
    batch_size: int, n_points: int, max_clusters: int, concentration: float, generator: Generator
) -> Int[Tensor, "B N"]:
    """Labels of the points of several sets, each with its own number of clusters.

    Shares are drawn from a Dirichlet; every cluster but the first is dropped with probability one half, so that one
    more than a binomial number of them stays; the labels are then independent draws by the shares that are left.
    """
    shares = torch._standard_gamma(torch.full((batch_size, max_clusters), concentration), generator=generator)
    kept = torch.rand((batch_size, max_clusters), generator=generator) < 0.5
    kept[:, 0] = True
    shares = (shares + torch.finfo(shares.dtype).tiny) * kept
    return torch.multinomial(shares, n_points, replacement=True, generator=generator)


def check_sizes(max_points: int, max_clusters: int, concentration: float) -> None:
    """Refuse settings that no set can be drawn with."""
    if max_points < 2 or max_clusters < 1 or not 0 < concentration < math.inf:
        raise ConfigError(
            f"max_points={max_points} must be at least 2, max_clusters={max_clusters} at least 1, and "
            f"concentration={concentration} above 0 and finite."
        )


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


ANGLE_PER_UNIT = 0.8 * math.pi
"""Radians per unit of the one-dimensional mixture that is bent into arcs."""
NOISE_DEVIATION = 0.1
FARTHEST_SHIFT = 4.0


@final
@dataclass(frozen=True, slots=True)
class Arcs:
    """What the points of warped clusters are drawn from."""

    position: Float[Tensor, "B K"]
    """Middle of the cluster on the line that is bent."""
    deviation: Float[Tensor, "B K"]
    """Standard deviation of the cluster on that line."""
    axes: Float[Tensor, "B K 2"]
    """Half-axes of the ellipse, of either sign."""
    rotation: Float[Tensor, "B K"]
    """Angle that the ellipse is turned by."""
    shift: Float[Tensor, "B K 2"]
    """Centre of the ellipse."""


@final
@dataclass(frozen=True, slots=True)
class WarpedGaussians:
    """Sets of arcs: one-dimensional Gaussians that are bent around ellipses, turned and moved; always two features."""

    max_points: int = 1000
    """Sets have from three tenths of this number to one below it; one batch, one number."""
    max_clusters: int = 4
    """Arcs; each but the first is present with probability one half."""
    concentration: float = 5.0
    """Of the Dirichlet that the shares are from."""
    paper_eq16: bool = False
    """Whether to take the published formula literally instead of the released program's, which made the published sets.

    Literally, the half-axes have standard deviation √2 instead of 2; the step away from the ellipse is divided by
    √(a² + b²) instead of its own length; that step is 0.1 for every point instead of normal with this standard
    deviation; and the centres have the mean min(k, 4) and unit variance instead of the mean 0 and the standard
    deviation min(K, 4), where k counts the clusters of the set that have a point and K is ``max_clusters``.
    """

    def __post_init__(self) -> None:
        check_sizes(self.max_points, self.max_clusters, self.concentration)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        return self.sample_with_parameters(batch_size, generator)[0]

    def sample_with_parameters(self, batch_size: int, generator: Generator) -> tuple[TaskBatch, Arcs]:
        """Draw sets, and say which arcs they are from."""
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
        """Arcs of every cluster (B, K), whether or not it is present."""
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
    """Points a step away from an ellipse at an angle; the step is at a right angle to the ellipse.

    It has the length given, or that times the length of (b cos, a sin) over the divisor if there is one.
    """
    on_circle = torch.stack((angle.cos(), angle.sin()), dim=-1)
    direction = axes.flip(-1) * on_circle
    length = direction.norm(dim=-1) if divisor is None else divisor
    # An ellipse without extent has no direction: its points stay where they are.
    ratio = step / length.clamp(min=torch.finfo(length.dtype).tiny)
    return axes * on_circle + ratio.unsqueeze(-1) * direction


_SPREAD = 0.5
"""Radius of the disc that centres lie in."""
_RADIUS, _VARYING_RADIUS = 0.3, 0.1
_LEAST_RADIUS, _MOST_RADIUS = 0.2, 0.4


@final
@dataclass(frozen=True, slots=True)
class CircleTasks:
    """Sets of points that lie exactly on circles, at least one on each, spread around it."""

    n_points: int = 20
    """Points of a set."""
    n_circles: int = 4
    """Circles of a set."""
    overlapping: bool = False
    """Whether every circle crosses another one: circles are drawn again until it does."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_circles <= self.n_points:
            raise ConfigError(
                f"n_circles={self.n_circles} must be at least 1, and at most n_points={self.n_points}, as each has a "
                "point."
            )
        if self.overlapping and self.n_circles == 1:
            raise ConfigError("n_circles=1 leaves nothing to cross; set overlapping to False, or ask for 2 or more.")

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        return self.sample_with_circles(batch_size, generator)[0]

    def sample_with_circles(
        self, batch_size: int, generator: Generator
    ) -> tuple[TaskBatch, Float[Tensor, "B K 2"], Float[Tensor, "B K"]]:
        """Draw sets, and say the centres and the radii of their circles."""
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
        wanting = torch.arange(batch_size)
        while len(wanting) > 0:
            shape = (len(wanting), self.n_circles)
            distance = _SPREAD * torch.rand(shape, generator=generator).sqrt()
            angle = 2 * math.pi * torch.rand(shape, generator=generator)
            centre[wanting] = distance.unsqueeze(2) * torch.stack([angle.cos(), angle.sin()], dim=2)
            drawn = _RADIUS + _VARYING_RADIUS * torch.randn(shape, generator=generator)
            radius[wanting] = drawn.clamp(_LEAST_RADIUS, _MOST_RADIUS)
            good = crossing(centre[wanting], radius[wanting]).any(dim=2).all(dim=1) | (not self.overlapping)
            wanting = wanting[~good]
        return centre, radius

    def _labels(self, batch_size: int, generator: Generator) -> Int[Tensor, "B N"]:
        """Circle of each point, in order: one point for each, and the others at random."""
        first = torch.arange(self.n_circles).expand(batch_size, -1)
        others = torch.randint(self.n_circles, (batch_size, self.n_points - self.n_circles), generator=generator)
        return torch.cat([first, others], dim=1).sort(dim=1).values


def crossing(centre: Float[Tensor, "B K 2"], radius: Float[Tensor, "B K"]) -> Bool[Tensor, "B K K"]:
    """Which circles meet in two points."""
    apart = (centre.unsqueeze(2) - centre.unsqueeze(1)).square().sum(dim=3).sqrt()
    first, second = radius.unsqueeze(2), radius.unsqueeze(1)
    return ((first - second).abs() < apart) & (apart < first + second)


def _spread_angles(labels: Int[Tensor, "B N"], n_circles: int, generator: Generator) -> Float[Tensor, "B N"]:
    """Angles around each circle, one within each of as many equal arcs as it has points; labels are sorted."""
    count = torch.zeros((len(labels), n_circles), dtype=torch.int64).scatter_add_(1, labels, torch.ones_like(labels))
    rank = torch.arange(labels.shape[1]) - (count.cumsum(1) - count).gather(1, labels)
    return 2 * math.pi * (rank + torch.rand(labels.shape, generator=generator)) / count.gather(1, labels)
