"""Orders of points that depend on nothing but their values, and choices among points and clusters by chance."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import one_hot


def by_value(x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Int[Tensor, "B N"]:
    """Order the points of each set by their first feature, ties by the second and so on; padding comes last."""
    order = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    for keys in [*x.unbind(dim=2)[::-1], (~valid).to(x.dtype)]:
        order = order.gather(1, keys.gather(1, order).argsort(dim=1, stable=True))
    return order


def at_most(most: int, valid: Bool[Tensor, "B N"], generator: Generator) -> Bool[Tensor, "B N"]:
    """All points of each set, or that many of them by chance; padding must come last.

    Which ones depends on the number of points and on the generator alone, not on the other sets; one number is drawn.
    """
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    chosen = valid.clone()
    for row, size in enumerate(valid.sum(dim=1).tolist()):
        if size > most:
            drawn = torch.randperm(size, generator=Generator().manual_seed(seed))[:most]
            chosen[row] = False
            chosen[row, drawn.to(valid.device)] = True
    return chosen


def picked(remaining: Bool[Tensor, "B N"], uniform: Float[Tensor, ""]) -> Int[Tensor, " B"]:
    """One of the points that are left in each set, by a number between 0 and 1."""
    count = remaining.sum(dim=1)
    wanted = (uniform * count).long().minimum(count - 1)
    return (remaining.cumsum(dim=1) > wanted.unsqueeze(1)).byte().argmax(dim=1)


def order_of_clusters(true: Int[Tensor, "B N"], generator: Generator) -> Int[Tensor, "B K"]:
    """Place of each cluster in a random order of those that a set has; -1 for one that it has not."""
    member = one_hot(true.clamp(min=0)) * (true >= 0).unsqueeze(2)
    present = member.sum(dim=1) > 0
    draws = torch.rand(present.shape, generator=generator, device=generator.device).to(true.device)
    return draws.masked_fill(~present, 2.0).argsort(dim=1).argsort(dim=1).masked_fill(~present, -1)
