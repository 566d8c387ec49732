"""Random sizes of a given number of classes that add up to a given number of points (ABC, Algorithm 1)."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.errors import InputError

_TRIES = 64
"""Draws that are made at once, and looked through for one that fits, before all ways are weighed."""


def fewest_classes(available: Int[Tensor, " C"], n_points: int) -> int:
    """Smallest number of classes any choice of which has that many members; one more than there are if none has."""
    total = available.sort().values.cumsum(0)
    return int(torch.searchsorted(total, n_points)) + 1


def sample_composition(available: Int[Tensor, " K"], n_points: int, generator: Generator) -> Int[Tensor, " K"]:
    """Draw sizes of classes that add up to the number of points, at least one each and none more than is available.

    What is left after one point for each class is cut at places drawn uniformly, each independent of the others, and
    drawn again until no class gets more than it has. The law of the sizes is that of these repeated draws, however rare
    a draw that fits: after some misses, sizes are drawn from that law directly.
    """
    n_classes = len(available)
    if not 0 < n_classes <= n_points <= int(available.sum()) or int(available.min()) < 1:
        raise InputError(
            f"{n_points} points cannot be shared out among {n_classes} classes of {available.tolist()} members with at "
            "least one for each; ask for another number of points or of classes."
        )
    rest, spare = n_points - n_classes, available - 1
    cuts = torch.randint(rest + 1, (_TRIES, n_classes - 1), generator=generator).sort(dim=1).values
    edges = torch.nn.functional.pad(torch.nn.functional.pad(cuts, (1, 0)), (0, 1), value=rest)
    parts = edges.diff(dim=1)
    fits = (parts <= spare).all(dim=1)
    if fits.any():
        return parts[fits.nonzero()[0, 0]] + 1
    return _constrained_parts(spare, rest, generator) + 1


def _constrained_parts(spare: Int[Tensor, " K"], rest: int, generator: Generator) -> Int[Tensor, " K"]:
    """Draw the parts between random cuts given that none is above its limit, by weighing all ways to go on.

    A way to cut is worth 1 / (m1! m2! ...) where m cuts fall on the same place, as so many orders of the draws have the
    same result. Walking from cut to cut, the next place and the number of cuts on it are drawn by the worth of all that
    may follow.
    """
    n_cuts = len(spare) - 1
    inverse_factorial = torch.exp(-torch.lgamma(torch.arange(n_cuts + 1, dtype=torch.float64) + 1))
    worth = _worth_of_going_on(spare, rest, inverse_factorial)
    cuts: list[int] = []
    here = 0
    weight = inverse_factorial * worth[:, 0]  # how many cuts fall on the very beginning
    cuts += [0] * int(torch.multinomial(weight, 1, generator=generator))
    while len(cuts) < n_cuts:
        placed = len(cuts)
        furthest = min(rest, here + int(spare[placed]))
        weight = inverse_factorial[1 : n_cuts - placed + 1, None] * worth[placed + 1 :, here + 1 : furthest + 1]
        pick = int(torch.multinomial(weight.flatten(), 1, generator=generator))
        more, step = divmod(pick, weight.shape[1])
        here += step + 1
        cuts += [here] * (more + 1)
    return torch.tensor([0, *cuts, rest]).diff()


def _worth_of_going_on(
    spare: Int[Tensor, " K"], rest: int, inverse_factorial: Float[Tensor, " K"]
) -> Float[Tensor, "K R"]:
    """Worth of all that may follow when so many cuts are placed, the last of them at each place."""
    n_cuts = len(spare) - 1
    places = torch.arange(rest + 1)
    step = places - places.unsqueeze(1)
    worth = torch.zeros((n_cuts + 1, rest + 1), dtype=torch.float64)
    worth[n_cuts] = (rest - places <= spare[n_cuts]).double()
    for placed in range(n_cuts - 1, -1, -1):
        onwards = inverse_factorial[1 : n_cuts - placed + 1] @ worth[placed + 1 :]
        # Differences of running totals would be quicker, and lose what is worth little but may be the only way.
        within_reach = (step > 0) & (step <= spare[placed])
        worth[placed] = within_reach.double() @ onwards
    return worth
