"""Kinds of cluster that are thin curves in the plane, of radius about one around the origin."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.members import Members

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
