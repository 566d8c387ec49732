"""How many clusters, how many points in each, and which points these are."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from coterie.tasks.universal.dice import Dice

LEAST_MEMBERS: Final = 5
"""No cluster has fewer points."""
SHARES: Final[Mapping[str, float]] = MappingProxyType({"even": 0.35, "uneven": 0.45, "contrast": 0.2})
"""How points are shared out among clusters, by how often."""


@final
@dataclass(frozen=True, slots=True)
class Members:
    """Which cluster each point belongs to, with parameters drawn once per cluster."""

    owner: Int[Tensor, " N"]
    """Cluster of each point."""
    n_clusters: int
    """K."""
    alike: bool = False
    """Whether all clusters share one value of every parameter."""

    @property
    def n_points(self) -> int:
        """N."""
        return len(self.owner)

    def spread(self, values: Tensor) -> Tensor:
        """Values of the clusters (K, ...) as values of their points (N, ...)."""
        return values[self.owner]

    def each(self, low: float, high: float, dice: Dice) -> Float[Tensor, " N"]:
        """One number between two ends per cluster, given to its points."""
        count = 1 if self.alike else self.n_clusters
        return self.spread(dice.uniform(low, high, count).expand(self.n_clusters))

    def rank(self) -> Int[Tensor, " N"]:
        """How many points of the same cluster come before each point."""
        order = torch.argsort(self.owner, stable=True)
        counts = torch.bincount(self.owner, minlength=self.n_clusters)
        start = counts.cumsum(0) - counts
        rank = torch.empty_like(self.owner)
        rank[order] = torch.arange(self.n_points) - start[self.owner[order]]
        return rank

    def counts(self) -> Int[Tensor, " K"]:
        """Points of each cluster."""
        return torch.bincount(self.owner, minlength=self.n_clusters)


def most_clusters(n_points: int, max_clusters: int, per_cluster: int = 8) -> int:
    """The most clusters that so many points are enough for."""
    return max(2, min(max_clusters, n_points // per_cluster))


def draw_shares(n_clusters: int, dice: Dice, styles: Mapping[str, float] = SHARES) -> tuple[Float[Tensor, " K"], str]:
    """Relative sizes of clusters, and the name of how they were drawn."""
    style = dice.pick(styles)
    if style == "even":
        weights = torch.ones(n_clusters)
    elif style == "uneven":
        weights = dice.gamma(torch.full((n_clusters,), dice.log_number(1.5, 10.0))) + 1e-3
    else:
        large = dice.uniform(0, 1, n_clusters) < dice.number(0.15, 0.6)
        large[0], large[-1] = True, False
        weights = torch.where(large, dice.log_number(4.0, 20.0), 1.0)
    return weights / weights.sum(), style


def share_out(n_points: int, shares: Float[Tensor, " K"], dice: Dice, *, alike: bool = False) -> Members:
    """Points in random order, as many of each cluster as its share says and never fewer than the least."""
    n_clusters = len(shares)
    floor = min(LEAST_MEMBERS, n_points // n_clusters)
    ends = ((n_points - floor * n_clusters) * shares.cumsum(0)).round().long()
    ends[-1] = n_points - floor * n_clusters
    counts = torch.diff(ends, prepend=ends.new_zeros(1)) + floor
    owner = torch.repeat_interleave(torch.arange(n_clusters), counts)
    return Members(owner[dice.order(n_points)], n_clusters, alike)


def few_members(n_points: int, most: int, dice: Dice) -> Members:
    """From two clusters to the most that is named, fewer if points are few, with shares of some style."""
    n_clusters = dice.integer(2, most_clusters(n_points, most, 20))
    return share_out(n_points, draw_shares(n_clusters, dice)[0], dice, alike=dice.happens(0.5))
