"""What makes a matrix look like a real table: skew, steps, codes, categories, units."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.tasks.universal.dice import Dice
from coterie.tasks.universal.recoverable import standardised

Change = Callable[[Float[Tensor, "N C"], Float[Tensor, " C"]], Float[Tensor, "N C"]]
CHANGES: Final[Mapping[str, Change]] = MappingProxyType(
    {
        "exponential": lambda x, strength: ((0.4 + strength) * x).exp(),
        "power": lambda x, strength: (x + 2.5).clamp_min(0) ** (2 + 2 * strength),
        "squashed": lambda x, strength: ((1 + 2 * strength) * x).sigmoid(),
        "heavy": lambda x, strength: ((0.5 + strength) * x.clamp(-8, 8)).sinh(),
        "whole": lambda x, strength: ((1 + 6 * strength) * (x + 3)).round(),
        "ordinal": lambda x, strength: ((0.6 + strength) * x + 2 * strength).round().clamp(-2, 2),
        "binary": lambda x, strength: (x > 2 * strength - 1).to(x.dtype),
        "zeros": lambda x, strength: (x - 1.5 * strength + 0.5).clamp_min(0),
    }
)
"""What can become of single columns, about standard normal before, by strengths from 0 to 1."""
KINDS: Final = ("plain", *CHANGES, "category")
"""Kinds of column; a category takes several, one for each of its levels."""
STYLES: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "plain": {"plain": 1},
        "skewed": {"plain": 2, "exponential": 3, "power": 1, "squashed": 0.5, "heavy": 1, "zeros": 0.5},
        "measured": {"plain": 3, "exponential": 1, "whole": 2, "heavy": 0.5},
        "mixed": dict.fromkeys(KINDS, 1.0) | {"plain": 3},
        "coded": {"ordinal": 2, "binary": 2, "category": 2, "whole": 0.5},
    }
)
"""Kinds of table, by the kinds of column that they have."""
STYLE_WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {"plain": 0.25, "skewed": 0.22, "measured": 0.18, "mixed": 0.2, "coded": 0.15}
)


@final
@dataclass(frozen=True, slots=True)
class Dress:
    """What becomes of each column of a matrix of about standard normal columns."""

    style: str
    """Kind of table."""
    kinds: tuple[str, ...]
    """Kind of each column."""
    strength: Float[Tensor, " D"]
    """From 0 to 1: how skewed, how fine, how rare."""
    blocks: tuple[tuple[int, int], ...]
    """First column and one past the last of each category."""
    scale: Float[Tensor, " D"]
    """Unit of each column."""
    offset: Float[Tensor, " D"]
    """Added to each column, in its unit."""

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """The matrix as a table."""
        x = standardised(x)
        for kind in sorted(set(self.kinds) - {"plain", "category"}):
            chosen = torch.tensor([one == kind for one in self.kinds])
            x[:, chosen] = CHANGES[kind](x[:, chosen], self.strength[chosen])
        for start, stop in self.blocks:
            levels = x[:, start:stop].argmax(dim=1)
            x[:, start:stop] = torch.nn.functional.one_hot(levels, stop - start).to(x.dtype)
        return (x + self.offset) * self.scale


def draw_dress(width: int, dice: Dice, style: str | None = None) -> Dress:
    """Kinds, strengths and units of columns, in the style that is named or in any."""
    style = style or dice.pick(STYLE_WEIGHTS)
    weights = STYLES[style]
    kinds: list[str] = []
    blocks: list[tuple[int, int]] = []
    while len(kinds) < width:
        kind = dice.pick(weights)
        span = min(dice.integer(2, 6), width - len(kinds)) if kind == "category" else 1
        if kind == "category" and span < 2:
            kind = "binary"
        if kind == "category":
            blocks.append((len(kinds), len(kinds) + span))
        kinds += [kind] * span
    units = dice.pick({"one": 0.35, "some": 0.35, "wild": 0.3})
    scale = {
        "one": torch.ones(width),
        "some": dice.log_uniform(0.1, 10, width),
        "wild": dice.log_uniform(1e-3, 1e4, width),
    }
    codes = torch.tensor([kind in {"ordinal", "binary", "category"} for kind in kinds])
    offset = torch.where(codes, 0.0, dice.number(0, 4) * dice.normal(width))
    return Dress(
        style, tuple(kinds), dice.uniform(0, 1, width), tuple(blocks), torch.where(codes, 1.0, scale[units]), offset
    )
