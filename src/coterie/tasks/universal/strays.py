"""Points that belong to no cluster."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from coterie.tasks.universal.dice import Dice


def add_strays(
    x: Float[Tensor, "N D"], labels: Int[Tensor, " N"], count: int, dice: Dice
) -> tuple[Float[Tensor, "M D"], Int[Tensor, " M"]]:
    """The set with so many points labelled -1 among its own: all over its range, or some way outside it."""
    if count == 0:
        return x, labels
    low, high = x.amin(dim=0), x.amax(dim=0)
    room = 0.05 if dice.happens(0.7) else 0.4
    strays = low + (high - low) * dice.uniform(-room, 1 + room, count, x.shape[1])
    order = dice.order(len(x) + count)
    return torch.cat((x, strays))[order], torch.cat((labels, labels.new_full((count,), -1)))[order]
