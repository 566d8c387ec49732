"""Tables whose columns are of one sort: embeddings, spectra, sparse counts and intensities."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.members import Members

Builder = Callable[[float], Float[Tensor, "N D"]]
Signal = Callable[[Members, int, Dice], Builder]


def embedding(members: Members, width: int, dice: Dice) -> Builder:
    """Unit vectors around directions that are themselves more or less alike."""
    rank = dice.integer(min(3, width), min(24, width))
    basis = dice.normal(rank, width) / math.sqrt(rank)
    common = dice.number(0, 1) * dice.normal(width)
    places = members.spread(dice.normal(members.n_clusters, rank) @ basis + common)
    topics = dice.normal(members.n_points, rank) @ basis
    deviations = dice.number(0.3, 0.8) * topics + dice.number(0.2, 0.7) * dice.normal(members.n_points, width)
    deviations = deviations * members.each(0.6, 1.4, dice).unsqueeze(1)
    return lambda looseness: torch.nn.functional.normalize(places + looseness * deviations, dim=1)


def _smooth(rows: int, width: int, dice: Dice, sharpness: float) -> Float[Tensor, "R D"]:
    """Random curves along the columns, sums of waves of falling strength."""
    frequency = torch.arange(1, 9)
    strength = dice.normal(rows, 8, 2) / (1 + frequency / sharpness).unsqueeze(1) ** 2
    angle = math.pi * frequency.unsqueeze(1) * torch.linspace(0, 1, width)
    return strength[:, :, 0] @ angle.cos() + strength[:, :, 1] @ angle.sin()


def spectra(members: Members, width: int, dice: Dice) -> Builder:
    """Smooth curves: each class has its mean curve, each row its strength, level and own smooth deviation."""
    sharpness = dice.number(1, 5)
    common = dice.number(0, 3) * _smooth(1, width, dice, sharpness)
    places = members.spread(_smooth(members.n_clusters, width, dice, sharpness) + common)
    few = dice.integer(2, 5)
    deviations = dice.number(0.1, 0.35) * dice.normal(members.n_points, few) @ _smooth(few, width, dice, sharpness)
    level, gain = 0.2 * dice.number(0, 1) * dice.normal(members.n_points, 1), 0.1 * dice.normal(members.n_points, 1)
    noise = dice.number(0.1, 0.5) * dice.normal(members.n_points, width)
    positive = dice.happens(0.5)
    scale = dice.log_number(0.01, 100.0)

    def build(looseness: float) -> Float[Tensor, "N D"]:
        x = places * (looseness * gain).exp() + looseness * (deviations + level + noise)
        return scale * (torch.nn.functional.softplus(x) if positive else x)

    return build


def sparse(members: Members, width: int, dice: Dice) -> Builder:
    """Non-negative columns that are mostly zero, as of images or counts of words."""
    lit = dice.number(0.15, 0.5)
    templates = dice.gamma(torch.full((members.n_clusters, width), 1.0))
    templates = templates * (dice.uniform(0, 1, members.n_clusters, width) < lit)
    common = dice.gamma(torch.full((width,), 0.5)) * (dice.uniform(0, 1, width) < lit)
    places = members.spread(templates + dice.number(0, 1) * common)
    gain = 0.4 * dice.normal(members.n_points, 1)
    deviations = dice.number(0.4, 1.0) * dice.normal(members.n_points, width)
    counted, step = dice.happens(0.4), dice.uniform(0, 1, members.n_points, width)
    scale = dice.log_number(2.0, 100.0)

    def build(looseness: float) -> Float[Tensor, "N D"]:
        x = (places * (looseness * gain).exp() + looseness * deviations - 0.3).clamp_min(0)
        return (2 * x + step).floor() if counted else scale * x

    return build


SIGNALS: Final[Mapping[str, Signal]] = MappingProxyType({"embedding": embedding, "spectra": spectra, "sparse": sparse})
"""Sorts of table that have columns of one sort, by name."""
