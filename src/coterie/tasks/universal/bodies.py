"""Kinds of cluster that fill space: what one looks like by itself, of radius about one around the origin."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.members import Members

Solid = Callable[[Members, int, Dice], Float[Tensor, "N D"]]
Flat = Callable[[Members, Dice], Float[Tensor, "N 2"]]


def _stretch(members: Members, width: int, dice: Dice, strongest: float) -> Float[Tensor, "N D"]:
    """Lengths of the axes of each point's cluster, the longest of them one."""
    count = 1 if members.alike else members.n_clusters
    thinness = dice.log_uniform(1.0, strongest, count, 1) ** dice.uniform(0, 1, count, width)
    lengths = 1 / thinness
    return members.spread((lengths / lengths.amax(dim=1, keepdim=True)).expand(members.n_clusters, -1))


def ball_gaussian(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Spherical Gaussians."""
    return dice.normal(members.n_points, width) * (1 / (1 + math.sqrt(width)))


def gaussian(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Gaussians with axes of different lengths."""
    return ball_gaussian(members, width, dice) * _stretch(members, width, dice, 6.0)


def student(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Heavy tails."""
    rows = dice.student(members.each(2.0, 6.0, dice), width)
    return rows * (0.8 / (1 + math.sqrt(width))) * _stretch(members, width, dice, 3.0)


def ball(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Uniform discs and balls, some of them flattened."""
    radius = dice.uniform(0, 1, members.n_points, 1) ** (1 / width)
    return radius * _directions(members, width, dice) * _stretch(members, width, dice, 3.0)


def box(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Uniform boxes."""
    return 0.85 * dice.uniform(-1, 1, members.n_points, width) * _stretch(members, width, dice, 5.0)


def shell(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Thick rings and shells."""
    thickness = members.each(0.05, 0.4, dice)
    radius = 1 - thickness * dice.uniform(0, 1, members.n_points)
    return radius.unsqueeze(1) * _directions(members, width, dice)


def peaked(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Balls that are dense in the middle and thin out."""
    radius = dice.uniform(0, 1, members.n_points) ** members.each(0.8, 2.5, dice)
    return radius.unsqueeze(1) * _directions(members, width, dice)


def skewed(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    """Gamma distributed along every axis: a dense corner with a tail."""
    shape = members.each(0.8, 4.0, dice).unsqueeze(1).expand(-1, width)
    return (dice.gamma(shape.contiguous()) - shape) / (shape.sqrt() * (1 + math.sqrt(width)))


def _directions(members: Members, width: int, dice: Dice) -> Float[Tensor, "N D"]:
    return torch.nn.functional.normalize(dice.normal(members.n_points, width), dim=1)


def triangle(members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Uniform triangles."""
    corners = torch.tensor([[0.0, 1.0], [-0.87, -0.5], [0.87, -0.5]])
    parts = -dice.uniform(1e-6, 1, members.n_points, 3).log()
    flat = (parts / parts.sum(dim=1, keepdim=True)) @ corners
    return flat * torch.stack((members.each(0.5, 1, dice), members.each(0.7, 1.2, dice)), dim=1)


def sector(members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Thick parts of rings."""
    angle = members.each(0.5, 2.6, dice) * dice.uniform(-1, 1, members.n_points)
    inner = members.each(0.3, 0.8, dice)
    radius = (inner**2 + (1 - inner**2) * dice.uniform(0, 1, members.n_points)).sqrt()
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)


def frame(members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Outlines of rectangles."""
    along = dice.uniform(-1, 1, members.n_points)
    across = 1 - members.each(0.05, 0.3, dice) * dice.uniform(0, 1, members.n_points)
    side = dice.integers(0, 3, members.n_points)
    across = torch.where(side % 2 == 0, across, -across)
    upright = side < 2
    flat = torch.stack((torch.where(upright, along, across), torch.where(upright, across, along)), dim=1)
    return 0.85 * flat * torch.stack((torch.ones(members.n_points), members.each(0.5, 1, dice)), dim=1)


def lobed(members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Filled outlines that bulge here and there."""
    angle = dice.uniform(-math.pi, math.pi, members.n_points)
    edge = torch.full((members.n_points,), 0.75)
    for wave in (1, 2, 3, 4):
        strength = members.each(0, 0.3 / math.sqrt(wave), dice)
        edge = edge + strength * torch.cos(wave * angle + members.each(0, 2 * math.pi, dice))
    radius = edge * dice.uniform(0, 1, members.n_points).sqrt()
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)


def banana(members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Gaussians bent along a parabola."""
    along, across = 0.45 * dice.normal(2, members.n_points)
    bent = members.each(0.5, 1.6, dice) * (along.square() - 0.2)
    return torch.stack((along, bent + members.each(0.15, 0.5, dice) * across), dim=1)


def cross(members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Two bars across each other, or at a corner."""
    offset = torch.where(members.each(0, 1, dice) < 0.5, 0.0, 0.8)
    along = dice.uniform(-1, 1, members.n_points)
    across = members.each(0.05, 0.2, dice) * dice.uniform(-1, 1, members.n_points) - offset
    upright = dice.uniform(0, 1, members.n_points) < 0.5
    return torch.stack((torch.where(upright, along, across), torch.where(upright, across, along)), dim=1)


def lattice(members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Points in rows and columns, shaken a little: an even filling."""
    side = members.spread(members.counts().sqrt().ceil())
    rank = members.rank()
    flat = torch.stack((rank % side, torch.div(rank, side, rounding_mode="floor")), dim=1)
    shaken = flat + members.each(0, 0.5, dice).unsqueeze(1) * dice.uniform(-1, 1, members.n_points, 2)
    return 0.85 * (2 * (shaken + 0.5) / side.unsqueeze(1) - 1)


SOLIDS: Final[Mapping[str, Solid]] = MappingProxyType(
    {
        "ball-gaussian": ball_gaussian,
        "gaussian": gaussian,
        "student": student,
        "ball": ball,
        "box": box,
        "shell": shell,
        "peaked": peaked,
        "skewed": skewed,
    }
)
"""Kinds that exist for any number of features."""
FLATS: Final[Mapping[str, Flat]] = MappingProxyType(
    {
        "triangle": triangle,
        "sector": sector,
        "frame": frame,
        "lobed": lobed,
        "banana": banana,
        "cross": cross,
        "lattice": lattice,
    }
)
"""Kinds that are drawn in the plane."""
