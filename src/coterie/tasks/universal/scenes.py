"""Clusters that only make sense together: interleaved, nested, linked, sharing an edge."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.curves import CURVES, progress
from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.members import Members, draw_shares, few_members, most_clusters, share_out
from coterie.tasks.universal.wanted import CROSSING, JOINT, Clarity


@final
@dataclass(frozen=True, slots=True)
class Scene:
    """Points as places and what is added to them, more or less of it."""

    members: Members
    places: Float[Tensor, "N E"]
    """In two or three dimensions."""
    fuzz: Float[Tensor, "N E"]
    """Steps away from the places, as long as drawn."""
    clarity: Clarity = JOINT
    """How well the truth of such scenes is to be seen."""


SceneMaker = Callable[[int, int, int, Dice], Scene]
"""A scene of so many points, with at most so many clusters, in at most so many dimensions."""


def _polar(radius: Tensor, angle: Tensor) -> Float[Tensor, "N 2"]:
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)


def _fuzz(members: Members, width: int, dice: Dice, low: float = 0.02, high: float = 0.1) -> Float[Tensor, "N E"]:
    return members.each(low, high, dice).unsqueeze(1) * dice.normal(members.n_points, width)


def moons(n_points: int, _: int, __: int, dice: Dice) -> Scene:
    """Two half rings, one hooked into the other."""
    members = few_members(n_points, 2, dice)
    angle = 0.5 * math.pi * (1 + progress(members, dice)) * dice.number(0.8, 1.15)
    second = members.owner == 1
    angle = torch.where(second, angle + math.pi, angle)
    places = _polar(torch.where(second, dice.number(0.7, 1.2), 1.0), angle)
    offset = torch.tensor([dice.number(0.7, 1.2), dice.number(-0.1, 0.6)])
    return Scene(members, places + second.unsqueeze(1) * offset, _fuzz(members, 2, dice))


def spirals(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Two to four arms that wind around each other."""
    members = few_members(n_points, min(most, 4), dice)
    along = (0.5 + 0.5 * progress(members, dice)).sqrt()
    # With few points more turns would only be a cloud: the steps along an arm must be shorter than those between arms.
    turns = dice.number(0.4, max(0.5, min(2.0, 0.25 * math.sqrt(n_points) / members.n_clusters)))
    angle = 2 * math.pi * (turns * along + members.owner / members.n_clusters)
    return Scene(members, _polar(0.1 + 0.9 * along, angle), _fuzz(members, 2, dice, 0.01, 0.05))


def parallel(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """The same curve several times, side by side."""
    members = replace(few_members(n_points, min(most, 6), dice), alike=True)
    name = dice.pick({"line": 1, "wave": 1, "parabola": 1, "zigzag": 1, "arc": 1, "worm": 1})
    places = CURVES[name](members, progress(members, dice), dice)
    aside = dice.number(0.25, 0.6) * members.owner + dice.uniform(-0.05, 0.05, members.n_clusters)[members.owner]
    direction = torch.tensor([0.0, 1.0] if name != "arc" else [1.0, 0.0])
    slip = 0.4 if name == "line" else 0.1
    lengthwise = dice.uniform(-slip, slip, members.n_clusters)[members.owner]
    moved = places + aside.unsqueeze(1) * direction + lengthwise.unsqueeze(1) * direction.flip(0)
    return Scene(members, moved, _fuzz(members, 2, dice, 0.02, 0.08))


def rays(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Lines or needles that leave one point in different directions."""
    members = few_members(n_points, min(most, 7), dice)
    along = dice.number(0.0, 0.3) + dice.uniform(0, 1, n_points)
    angle = 2 * math.pi * (members.owner / members.n_clusters) + 0.3 * dice.normal(members.n_clusters)[members.owner]
    return Scene(members, _polar(along, angle), _fuzz(members, 2, dice, 0.02, 0.08))


def crossing(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Curves that run across each other."""
    members = few_members(n_points, min(most, 4), dice)
    name = dice.pick({"line": 2, "wave": 1, "worm": 1, "arc": 1})
    places = CURVES[name](members, progress(members, dice), dice)
    angle = math.pi * (torch.arange(members.n_clusters) + dice.uniform(-0.2, 0.2, members.n_clusters))
    angle = (angle / members.n_clusters)[members.owner]
    turn = torch.stack((_polar(torch.ones(n_points), angle), _polar(torch.ones(n_points), angle + math.pi / 2)), dim=1)
    shift = 0.3 * dice.normal(members.n_clusters, 2)[members.owner]
    return Scene(
        members, torch.einsum("ne,nef->nf", places, turn) + shift, _fuzz(members, 2, dice, 0.01, 0.05), CROSSING
    )


def rings(n_points: int, most: int, space: int, dice: Dice) -> Scene:
    """Circles or spheres around each other, and perhaps a filled core."""
    n_clusters = dice.integer(2, most_clusters(n_points, min(most, 4), 20))
    radii = dice.uniform(0.5, 1.2, n_clusters)
    cored = dice.happens(0.7)
    radii[0] = 0.0 if cored else radii[0]
    radii = radii.cumsum(0)
    shares = radii + 0.4 if dice.happens(0.6) else draw_shares(n_clusters, dice)[0]
    members = share_out(n_points, shares / shares.sum(), dice)
    if space > 2 and dice.happens(0.6):
        direction = torch.nn.functional.normalize(dice.normal(n_points, 3), dim=1)
    else:
        direction = _polar(torch.ones(n_points), math.pi * progress(members, dice))
    fuzz = _fuzz(members, direction.shape[1], dice, 0.02, 0.1)
    core = cored * (members.owner == 0).unsqueeze(1) * dice.number(0.5, 3)
    return Scene(members, members.spread(radii).unsqueeze(1) * direction, fuzz * (1 + core))


def enclosed(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Some clusters inside a large ring, arc or frame."""
    members = few_members(n_points, min(most, 6), dice)
    angle = math.pi * dice.number(0.6, 1.0) * progress(members, dice)
    outline = _polar(torch.ones(n_points), angle)
    if dice.happens(0.3):
        outline = outline / outline.abs().amax(dim=1, keepdim=True)
    inside = max(1, members.n_clusters - 1)
    spot = 2 * math.pi * (torch.arange(members.n_clusters) / inside + dice.number(0, 1))
    away = dice.uniform(0.35, 0.6, members.n_clusters) if inside > 1 else dice.uniform(0, 0.3, members.n_clusters)
    centre = _polar(away, spot)[members.owner]
    first = (members.owner == 0).unsqueeze(1)
    body = members.each(0.05, 0.16, dice).unsqueeze(1) * dice.normal(n_points, 2)
    return Scene(members, torch.where(first, outline, centre), torch.where(first, _fuzz(members, 2, dice), body))


def halos(n_points: int, most: int, space: int, dice: Dice) -> Scene:
    """Dense cores, each within a thin cloud that is a cluster of its own: atoms."""
    pairs = 1 if dice.happens(0.6) or most < 4 or n_points < 100 else 2
    shares = dice.uniform(0.3, 0.7, 2 * pairs)
    members = share_out(n_points, shares / shares.sum(), dice)
    width = 3 if space > 2 and dice.happens(0.8) else 2
    direction = torch.nn.functional.normalize(dice.normal(n_points, width), dim=1)
    outer = (members.owner % 2 == 1).unsqueeze(1)
    inner_edge, outer_edge = dice.number(0.2, 0.8), dice.number(0.9, 1.4)
    radius = dice.uniform(inner_edge, outer_edge, n_points, 1)
    places = torch.zeros(n_points, width)
    places[:, 0] = 2.4 * outer_edge * torch.div(members.owner, 2, rounding_mode="floor")
    core = dice.number(0.02, 0.25) * dice.normal(n_points, width)
    return Scene(members, places + outer * radius * direction, torch.where(outer, 0.05 * core, core))


def links(n_points: int, most: int, space: int, dice: Dice) -> Scene:
    """Rings that hang in each other as in a chain, in space, or that cross in the plane."""
    members = few_members(n_points, min(most, 4), dice)
    angle = math.pi * progress(members, dice)
    ring = _polar(torch.ones(n_points), angle)
    along = dice.number(0.9, 1.3) * members.owner
    if space > 2:
        even = members.owner % 2 == 0
        second = torch.where(even, ring[:, 1], 0.0)
        places = torch.stack((ring[:, 0] + along, second, torch.where(even, 0.0, ring[:, 1])), dim=1)
    else:
        places = torch.stack((ring[:, 0] + 1.3 * along, ring[:, 1] + 0.7 * (members.owner % 2)), dim=1)
    clarity = JOINT if space > 2 else CROSSING
    return Scene(members, places, _fuzz(members, places.shape[1], dice, 0.02, 0.12), clarity)


SCENES: Final[Mapping[str, SceneMaker]] = MappingProxyType(
    {
        "moons": moons,
        "spirals": spirals,
        "parallel": parallel,
        "rays": rays,
        "crossing": crossing,
        "rings": rings,
        "enclosed": enclosed,
        "halos": halos,
        "links": links,
    }
)
"""Scenes by name; those of clusters that share an edge are in ``edges``."""
