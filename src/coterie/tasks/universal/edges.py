"""Clusters that touch along an edge or at a corner: tiles, slices, stripes, wings, a flame."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import torch

from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.members import few_members
from coterie.tasks.universal.scenes import Scene, SceneMaker


def tiles(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Squares or diamonds with a corner or an edge in common."""
    members = few_members(n_points, min(most, 6), dice)
    owner = members.owner
    inside = dice.uniform(-1, 1, n_points, 2)
    per_row = dice.integer(2, 3)
    spot = torch.stack((owner % per_row, torch.div(owner, per_row, rounding_mode="floor")), dim=1).float()
    if dice.happens(0.5):  # corner to corner, as on a chessboard
        spot = torch.stack((owner, owner % 2 if dice.happens(0.5) else owner), dim=1).float()
    if dice.happens(0.3):
        inside = inside.sign() * inside.abs() ** 1.5  # denser in the middle
    return Scene(members, 2 * spot * dice.number(1.03, 1.25), inside)


def slices(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """A disc cut like a cake, the pieces drawn apart a little."""
    members = few_members(n_points, min(most, 6), dice)
    owner = members.owner
    count = members.n_clusters
    middle = 2 * math.pi * owner / count
    angle = middle + (math.pi / count) * dice.uniform(-1, 1, n_points)
    radius = dice.uniform(0, 1, n_points).sqrt()
    inside = torch.stack((radius * angle.cos(), radius * angle.sin()), dim=1)
    apart = torch.stack((middle.cos(), middle.sin()), dim=1) * dice.number(0.06, 0.3)
    outwards = torch.stack((middle.cos(), middle.sin()), dim=1) * (0.6 if count > 2 else 0.42)
    return Scene(members, apart + outwards, inside - outwards)


def stripes(n_points: int, most: int, _: int, dice: Dice) -> Scene:
    """Bands side by side, each of its own length, thickness and density."""
    members = few_members(n_points, min(most, 6), dice)
    owner = members.owner
    count = members.n_clusters
    thickness = dice.log_uniform(0.15, 0.6, count)
    gap = dice.number(0.05, 0.3)
    start = (thickness + gap * thickness.mean()).cumsum(0)
    middle = torch.stack((dice.uniform(-0.2, 0.2, count), start - thickness / 2), dim=1)[owner]
    inside = (
        dice.uniform(-1, 1, n_points, 2) * torch.stack((dice.uniform(0.7, 1.2, count), thickness / 2), dim=1)[owner]
    )
    return Scene(members, middle, inside)


def wings(n_points: int, _: int, __: int, dice: Dice) -> Scene:
    """Two plates whose dense sides face each other's, shifted."""
    members = few_members(n_points, 2, dice)
    owner = members.owner
    side = 2.0 * owner - 1
    inside = dice.uniform(0, 1, n_points, 2)
    inside[:, 0] = inside[:, 0] ** dice.number(1.2, 2.5)  # dense at the edge that is shared
    gap, shift = dice.number(0.03, 0.2), dice.number(0.2, 0.7)
    places = torch.stack((side * (gap + 0.5), side * shift), dim=1)
    fuzz = torch.stack((side * (inside[:, 0] - 0.5), 2 * inside[:, 1] - 1), dim=1)
    return Scene(members, places, fuzz)


def flame(n_points: int, _: int, __: int, dice: Dice) -> Scene:
    """A round cluster that rests in a bowl."""
    members = few_members(n_points, 2, dice)
    owner = members.owner
    angle = math.pi * (1.5 + dice.number(0.3, 0.55) * dice.uniform(-1, 1, n_points))
    bowl = torch.stack((angle.cos(), angle.sin()), dim=1)
    middle = torch.tensor([0.0, dice.number(-0.15, 0.3)])
    disc = torch.nn.functional.normalize(dice.normal(n_points, 2), dim=1) * dice.uniform(0, 1, n_points, 1).sqrt()
    thick = dice.number(0.08, 0.2) * torch.tensor([1.0, 0.8]) * dice.normal(n_points, 2).clamp(-2, 2)
    in_bowl = (owner == 0).unsqueeze(1)
    return Scene(
        members, torch.where(in_bowl, bowl, middle), torch.where(in_bowl, thick, dice.number(0.45, 0.65) * disc)
    )


EDGES: Final[Mapping[str, SceneMaker]] = MappingProxyType(
    {"tiles": tiles, "slices": slices, "stripes": stripes, "wings": wings, "flame": flame}
)
"""Scenes of clusters with a common edge or corner, by name."""
