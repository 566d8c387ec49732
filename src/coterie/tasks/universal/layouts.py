"""Where clusters lie that have a body each: scattered, touching, on a grid, in groups of groups."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.dice import Dice

TRIED: Final = 16
"""Spots tried for each cluster."""
RADII: Final[Mapping[str, float]] = MappingProxyType({"equal": 0.35, "varied": 0.4, "contrast": 0.25})
"""How different clusters are in extent, by how often."""
Layout = Callable[[Float[Tensor, " K"], int, Dice], Float[Tensor, "K D"]]
"""Centres of clusters, given by their radii and the number of features."""


def draw_radii(n_clusters: int, dice: Dice) -> tuple[Float[Tensor, " K"], str]:
    """Extents of clusters, and the name of how they were drawn."""
    style = dice.pick(RADII)
    if style == "equal":
        return torch.ones(n_clusters), style
    if style == "varied":
        return dice.log_uniform(0.5, 1.6, n_clusters), style
    large = dice.uniform(0, 1, n_clusters) < dice.number(0.1, 0.5)
    large[0] = True
    return torch.where(large, dice.log_number(2.5, 8.0), 1.0), style


def grow(radii: Float[Tensor, " K"], width: int, gaps: Float[Tensor, " K"], dice: Dice) -> Float[Tensor, "K D"]:
    """One cluster after the other beside one that is there, as far off as its gap says: 1 is where two would touch."""
    count = len(radii)
    centres = torch.zeros(count, width)
    directions = torch.nn.functional.normalize(dice.normal(count, TRIED, width), dim=2)
    beside = dice.uniform(0, 1, count, TRIED)
    for place in range(1, count):
        anchor = (beside[place] * place).long()
        reach = gaps[place] * (radii[anchor] + radii[place])
        spots = centres[anchor] + directions[place] * reach.unsqueeze(1)
        apart = torch.cdist(spots, centres[:place]) / (radii[:place] + radii[place])
        free = apart.amin(dim=1).clamp(max=float(gaps[place]))
        # Of the spots that are free, the one closest to the first cluster keeps the whole compact.
        best = (free - 1e-3 * spots.norm(dim=1) / reach.amax()).argmax()
        centres[place] = spots[best]
    return centres


def scattered(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """Apart from each other, some more than others."""
    return grow(radii, width, dice.number(1.1, 1.6) * dice.log_uniform(1, 2.5, len(radii)), dice)


def packed(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """Side by side, touching or nearly so."""
    return grow(radii, width, torch.full((len(radii),), dice.number(0.75, 1.15)), dice)


def grid(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """On a square or shifted grid, a circle or a line, more or less exactly."""
    count, pitch = len(radii), 2 * float(radii.max()) * dice.number(0.8, 1.6)
    form = dice.pick({"square": 0.5, "shifted": 0.25, "circle": 0.15, "line": 0.1})
    place = torch.arange(count)
    if form == "circle":
        angle = 2 * math.pi * place / count
        flat = torch.stack((angle.cos(), angle.sin()), dim=1) / (2 * math.sin(math.pi / count))
    else:
        columns = count if form == "line" else max(2, math.ceil(math.sqrt(count) * dice.number(0.8, 1.25)))
        row, column = torch.div(place, columns, rounding_mode="floor"), place % columns
        shift = 0.5 * (row % 2) if form == "shifted" else 0.0
        flat = torch.stack((column + shift, row * (math.sqrt(0.75) if form == "shifted" else 1.0)), dim=1)
    centres = torch.zeros(count, width)
    centres[:, : min(width, 2)] = pitch * flat[:, : min(width, 2)]
    if width == 1:
        centres[:, 0] = pitch * place
    if width > 2 and form == "square":
        corner = max(2, math.ceil(count ** (1 / 3)))
        powers = torch.tensor([1, corner, corner**2])
        centres[:, :3] = pitch * (torch.div(place.unsqueeze(1), powers, rounding_mode="floor") % corner)
        centres[:, 2] = pitch * torch.div(place, corner**2, rounding_mode="floor")
    return centres + pitch * dice.number(0, 0.15) * dice.normal(count, width)


def grouped(radii: Float[Tensor, " K"], width: int, dice: Dice) -> Float[Tensor, "K D"]:
    """Groups of clusters: close within a group, groups far from each other."""
    count = len(radii)
    n_groups = max(2, min(6, round(count / dice.number(2.0, 4.0))))
    group = torch.arange(count) % n_groups
    centres = torch.zeros(count, width)
    gap = dice.number(0.85, 1.4)
    extent = torch.zeros(n_groups)
    for one in range(n_groups):
        inside = group == one
        placed = grow(radii[inside], width, torch.full((int(inside.sum()),), gap), dice)
        placed = placed - placed.mean(dim=0)
        extent[one] = float((placed.norm(dim=1) + radii[inside]).max())
        centres[inside] = placed
    return centres + grow(extent, width, gap * dice.log_uniform(1.3, 2.5, n_groups), dice)[group]


LAYOUTS: Final[Mapping[str, Layout]] = MappingProxyType(
    {"scattered": scattered, "packed": packed, "grid": grid, "grouped": grouped}
)
"""Layouts of clusters that have a body each, by name."""
