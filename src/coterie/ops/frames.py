"""A set's own frame: where its points are seen from so that only their arrangement matters, not where in space it is.

Letters: B sets, N points, E numbers of a point, C directions.
"""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

TINY = 1e-6
"""Share of the variance along the first direction, or of absolute third moments, below which all is rounding."""
ROUNDINGS = 4
"""Units of rounding that points which are all the same may seem to differ by."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """One for each set: its middle, and the directions in which it extends most, the longest first."""

    middle: Float[Tensor, "B E"]
    axes: Float[Tensor, "B E C"]
    """Of one length each, such that coordinates of the set are one on average, by their squares."""

    def coordinates(self, x: Float[Tensor, "B N E"]) -> Float[Tensor, "B N C"]:
        """Points as seen from the frame of their set."""
        return (x - self.middle.unsqueeze(1)) @ self.axes

    def mirrored(self, generator: Generator) -> "Frames":
        """The same, each axis in one of its two directions by chance."""
        draws = torch.randint(2, (len(self.axes), 1, self.axes.shape[2]), generator=generator, device=generator.device)
        return Frames(self.middle, self.axes * (2 * draws.to(self.axes) - 1))


@torch.no_grad()
def principal_frames(x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], count: int) -> Frames:
    """Frames of the principal directions of each set's valid points; those that a set has not got are zeros.

    An axis points to where the set is more stretched out (its third moment is positive), whatever the order of points;
    where it is as stretched out to both sides, the largest of the axis's own numbers is positive.
    """
    there = valid.unsqueeze(2).to(x.dtype)
    size = there.sum(dim=1, keepdim=True).clamp(min=1)
    middle = (x * there).sum(dim=1, keepdim=True) / size
    centred = (x - middle) * there
    # Points that differ by no more than their mean is rounded are all the same.
    rounding = ROUNDINGS * torch.finfo(x.dtype).eps * (x * there).abs().amax(dim=(1, 2), keepdim=True)
    centred = torch.where(centred.abs().amax(dim=(1, 2), keepdim=True) > rounding, centred, 0.0)
    axes = _directions(centred, count)
    seen = centred @ axes
    scale = (seen.square().sum(dim=(1, 2), keepdim=True) / (size * count)).sqrt()
    axes = axes / torch.where(scale > 0, scale, 1.0)
    third = seen.pow(3).sum(dim=1, keepdim=True)
    is_real = third.abs() > TINY * seen.abs().pow(3).sum(dim=1, keepdim=True)
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    axes = torch.where(torch.where(is_real, third, largest) < 0, -axes, axes)
    return Frames(middle.squeeze(1), axes)


def _directions(centred: Float[Tensor, "B N E"], count: int) -> Float[Tensor, "B E C"]:
    """Unit vectors along which variance is largest, by the smaller of the two matrices of products."""
    n_sets, n_points, width = centred.shape
    if width <= n_points:
        variance, axes = torch.linalg.eigh(centred.mT @ centred)
    else:
        variance, along = torch.linalg.eigh(centred @ centred.mT)
        axes = centred.mT @ along / variance.clamp(min=0).sqrt().unsqueeze(1).clamp(min=torch.finfo(centred.dtype).tiny)
    variance, axes = variance.flip(1)[:, :count], axes.flip(2)[:, :, :count]
    real = (variance > TINY * variance[:, :1]) & (variance > 0)
    axes = torch.where(real.unsqueeze(1), axes, 0.0)
    missing = centred.new_zeros((n_sets, width, count - axes.shape[2]))
    return torch.cat((axes, missing), dim=2)
