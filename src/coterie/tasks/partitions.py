"""How many points a set has, and which cluster each belongs to."""

import math

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from coterie.errors import ConfigError


def sample_set_size(max_points: int, generator: Generator) -> int:
    """Number of points, uniform from three tenths of the largest to one below it."""
    smallest = max(1, int(0.3 * max_points))
    return int(torch.randint(smallest, max(max_points, smallest + 1), (), generator=generator))


def sample_partitions(
    batch_size: int, n_points: int, max_clusters: int, concentration: float, generator: Generator
) -> Int[Tensor, "B N"]:
    """Labels of the points of several sets, each with its own number of clusters.

    Shares are drawn from a Dirichlet; every cluster but the first is dropped with probability one half, so that one
    more than a binomial number of them stays; the labels are then independent draws by the shares that are left.
    """
    shares = torch._standard_gamma(torch.full((batch_size, max_clusters), concentration), generator=generator)
    kept = torch.rand((batch_size, max_clusters), generator=generator) < 0.5
    kept[:, 0] = True
    shares = (shares + torch.finfo(shares.dtype).tiny) * kept
    return torch.multinomial(shares, n_points, replacement=True, generator=generator)


def check_sizes(max_points: int, max_clusters: int, concentration: float) -> None:
    """Refuse settings that no set can be drawn with."""
    if max_points < 2 or max_clusters < 1 or not 0 < concentration < math.inf:
        raise ConfigError(
            f"max_points={max_points} must be at least 2, max_clusters={max_clusters} at least 1, and "
            f"concentration={concentration} above 0 and finite."
        )
