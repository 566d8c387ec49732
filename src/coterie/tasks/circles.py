"""Points on a few circles of the plane that may cross (ABC's toy sets)."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.structures import TaskBatch

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
