"""Clusters that are no Gaussians: noisy arcs of ellipses (DAC, Eq. 16)."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from coterie.ops.turns import rotate
from coterie.structures import TaskBatch
from coterie.tasks.partitions import check_sizes, sample_partitions, sample_set_size

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
