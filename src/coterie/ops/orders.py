"""Orders of the points of sets that depend on nothing but their values."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor


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
