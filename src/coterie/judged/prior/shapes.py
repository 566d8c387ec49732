"""Kinds of cluster that fill space: what one looks like by itself, of radius about one around the origin."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.judged.prior.sampling import Dice, Members

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


Path = Callable[[Members, Float[Tensor, " N"], Dice], Float[Tensor, "N 2"]]
"""Places on the curve of each point's cluster, from how far along (-1 to 1) the points are."""


def _at(first: Tensor, second: Tensor) -> Float[Tensor, "N 2"]:
    return torch.stack((first, second), dim=1)


def line(members: Members, along: Float[Tensor, " N"], dice: Dice) -> Float[Tensor, "N 2"]:
    """Straight lines."""
    return _at(along * members.each(0.6, 1, dice), torch.zeros_like(along))


def circle(_: Members, along: Float[Tensor, " N"], __: Dice) -> Float[Tensor, "N 2"]:
    """Whole circles."""
    return _at((math.pi * along).cos(), (math.pi * along).sin())


def arc(members: Members, along: Float[Tensor, " N"], dice: Dice) -> Float[Tensor, "N 2"]:
    """Parts of circles."""
    angle = members.each(0.6, 2.6, dice) * along
    return _at(angle.cos(), angle.sin())


def spiral(members: Members, along: Float[Tensor, " N"], dice: Dice) -> Float[Tensor, "N 2"]:
    """Spirals of one to two and a half turns."""
    progress = ((along + 1) / 2).sqrt()
    angle = members.each(1, 2.5, dice) * 2 * math.pi * progress
    return _at(progress * angle.cos(), progress * angle.sin())


def parabola(members: Members, along: Float[Tensor, " N"], dice: Dice) -> Float[Tensor, "N 2"]:
    """Parabolas."""
    return _at(along, members.each(0.6, 2, dice) * (along.square() - 0.4))


def zigzag(members: Members, along: Float[Tensor, " N"], dice: Dice) -> Float[Tensor, "N 2"]:
    """Lines with two to five corners."""
    phase = members.each(1, 3, dice) * (along + 1)
    return _at(along, members.each(0.3, 0.6, dice) * (2 * (phase % 2 - 1).abs() - 1))


def wave(members: Members, along: Float[Tensor, " N"], dice: Dice) -> Float[Tensor, "N 2"]:
    """Sine waves of half a period to two."""
    return _at(along, members.each(0.2, 0.5, dice) * (members.each(1.5, 6, dice) * along).sin())


def worm(members: Members, along: Float[Tensor, " N"], dice: Dice) -> Float[Tensor, "N 2"]:
    """Smooth curves that wander."""
    place = _at(0.8 * along, torch.zeros_like(along))
    for frequency in (1, 2, 3):
        angle = frequency * math.pi * along / 2 + members.each(0, 2 * math.pi, dice)
        strength = 0.5 / frequency
        sideways = _at(members.each(-1, 1, dice), members.each(-1, 1, dice))
        place = place + strength * sideways * angle.sin().unsqueeze(1)
    return place


CURVES: Final[Mapping[str, Path]] = MappingProxyType(
    {
        "line": line,
        "circle": circle,
        "arc": arc,
        "spiral": spiral,
        "parabola": parabola,
        "zigzag": zigzag,
        "wave": wave,
        "worm": worm,
    }
)
"""Curves by name."""


def progress(members: Members, dice: Dice) -> Float[Tensor, " N"]:
    """How far along (-1 to 1) the points are: at random, at even steps, or denser towards one end."""
    even = dice.uniform(0, 1, members.n_points)
    if dice.happens(0.4):
        even = (members.rank() + even) / members.spread(members.counts())
    if dice.happens(0.25):
        even = even ** members.each(0.5, 2, dice)
    return 2 * even - 1


def thin(name: str, members: Members, dice: Dice) -> Float[Tensor, "N 2"]:
    """Curves of that name with a thickness of their own."""
    place = CURVES[name](members, progress(members, dice), dice)
    return place + members.each(0.015, 0.09, dice).unsqueeze(1) * dice.normal(members.n_points, 2)
