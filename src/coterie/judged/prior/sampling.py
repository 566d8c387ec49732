"""Random numbers in the words that the prior needs, all of them from one generator."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


@final
@dataclass(frozen=True, slots=True)
class Dice:
    """A generator that speaks of ranges and chances."""

    generator: Generator

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers between two ends."""
        return low + (high - low) * torch.rand(shape, generator=self.generator)

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers between two positive ends whose logarithm is uniform."""
        return self.uniform(math.log(low), math.log(high), *shape).exp()

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator)

    def gamma(self, concentration: Tensor) -> Tensor:
        """Gamma numbers of rate one, one for each concentration."""
        return torch._standard_gamma(concentration, generator=self.generator)

    def student(self, freedom: Float[Tensor, " N"], width: int) -> Float[Tensor, "N D"]:
        """Rows from Student's t, each with its own degrees of freedom; the far tail is cut at eight."""
        scale = (self.gamma(freedom / 2) * 2 / freedom).clamp_min(1e-3).rsqrt()
        rows = self.normal(len(freedom), width) * scale.unsqueeze(1)
        length = rows.norm(dim=1, keepdim=True) / math.sqrt(width)
        shortened: Tensor = rows * (8 / length.clamp_min(8))
        return shortened

    def number(self, low: float, high: float) -> float:
        """One number between two ends."""
        return float(self.uniform(low, high))

    def log_number(self, low: float, high: float) -> float:
        """One number between two positive ends whose logarithm is uniform."""
        return float(self.log_uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        """One whole number, both ends included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers, both ends included."""
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def order(self, count: int) -> Int[Tensor, " N"]:
        """The numbers from 0 in random order."""
        return torch.randperm(count, generator=self.generator)

    def happens(self, chance: float) -> bool:
        """True with that probability."""
        return self.number(0.0, 1.0) < chance

    def pick(self, weights: Mapping[str, float]) -> str:
        """One of the names, by weight."""
        left = self.number(0.0, sum(weights.values()))
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        return next(reversed(list(weights)))

    def frames(self, count: int, height: int, width: int) -> Float[Tensor, "K H W"]:
        """Matrices whose columns are orthonormal, uniformly turned; there must be no more columns than rows."""
        turned: Tensor = torch.linalg.qr(self.normal(count, height, width))[0]
        return turned


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


CLEAR: Final = 0.97
TOLERANCE: Final = 0.03
DEGREES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"touching": (0.86, CLEAR), "overlapping": (0.7, 0.86), "hazy": (0.58, 0.7), "faint": (0.35, 0.58)}
)
"""Agreement at the two ends of each degree below clear."""


@final
@dataclass(frozen=True, slots=True)
class Clarity:
    """How clear sets of some family are."""

    degrees: Mapping[str, float]
    """Degrees, by how often."""
    tightest: float
    """Looseness at which the tightest of the clear sets start."""


SOFT: Final = Clarity(MappingProxyType({"clear": 0.45, "touching": 0.3, "overlapping": 0.25}), 0.6)
"""Clusters with a dense middle, which can be told apart even where they overlap."""
HARD: Final = Clarity(MappingProxyType({"clear": 0.75, "touching": 0.25}), 0.6)
"""Clusters of even density and curves, which are nothing but a patch of points once they overlap."""
JOINT: Final = Clarity(MappingProxyType({"clear": 0.8, "touching": 0.2}), 0.3)
"""Nested and interleaved clusters: the same, and the gap between them may be wide."""
CROSSING: Final = Clarity(MappingProxyType({"touching": 1.0}), 1.0)
"""Clusters that have some places in common."""
TABLE: Final = Clarity(
    MappingProxyType({"clear": 0.24, "touching": 0.22, "overlapping": 0.22, "hazy": 0.16, "faint": 0.16}), 0.3
)
"""Classes of tables, of all degrees."""


@final
@dataclass(frozen=True, slots=True)
class Wanted:
    """How well the truth of one set is to be seen."""

    low: float
    """Least agreement."""
    high: float
    """Most agreement."""
    start: float = 1.0
    """Looseness that is tried first."""


def draw_wanted(clarity: Clarity, dice: Dice) -> Wanted:
    """Bounds of the agreement that a set is to have, and how loose it is at first."""
    degree = dice.pick(clarity.degrees)
    if degree == "clear":
        # Agreement says little of how wide a gap is, so that sets which are clear start with gaps of all widths.
        return Wanted(CLEAR, 1.0, dice.log_number(clarity.tightest, 1.1))
    middle = dice.number(*DEGREES[degree])
    return Wanted(middle - TOLERANCE, middle + TOLERANCE)


NEIGHBOURS: Final = 8
MOST_ASKED: Final = 256
"""Points whose neighbours are looked at; rows are in random order, so the first ones are as good as any."""
STEPS: Final = 7
"""Trials of one draft before it is given up."""
LOOSEST: Final = 8.0
TIGHTEST: Final = 0.02
LEAST_SPREAD: Final = 1e-6
FEW: Final = 4
"""Points of a cluster that must be asked before it can count as hidden."""
HIDDEN: Final = 0.2
"""A cluster of which a smaller share of what is wanted is told is hidden in others."""


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """A set that is drawn but for how loose its clusters are."""

    labels: Int[Tensor, " N"]
    """Cluster of each point, rows in random order."""
    build: Callable[[float], Float[Tensor, "N D"]]
    """The points, given by how much clusters are spread about their places; 1 is as drawn."""
    clarity: Clarity
    """How well the truth of such sets is to be seen."""
    story: Mapping[str, float | str]
    """What was drawn."""


def standardised(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Columns of mean zero and standard deviation one; what is constant stays zero."""
    centred = x - x.mean(dim=0)
    scale = centred.square().mean(dim=0).sqrt()
    return centred / torch.where(scale > LEAST_SPREAD * x.abs().amax(dim=0), scale, 1.0).clamp_min(1e-30)


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """How well neighbours tell the labels of a set."""

    agreement: float
    """Cohen's kappa of the labels and what neighbours vote for: 1 if all are told, 0 if neighbours say nothing."""
    worst: float
    """Share of its points that are told, of the cluster that fares worst."""


def look(x: Float[Tensor, "N D"], labels: Int[Tensor, " N"]) -> Seen:
    """Let the nearest points of each point vote on its label.

    Columns are standardised first, a point has no vote on itself, and nearer neighbours weigh more: one over one, two,
    three ... Of many points only the first are asked, and only clusters with several of these can be the worst.
    """
    x = standardised(x)
    asked, truth = x[:MOST_ASKED], labels[:MOST_ASKED]
    # Of (a - b)², the square of the point that asks is the same for all its neighbours.
    distance = torch.addmm(x.square().sum(dim=1), asked, x.T, alpha=-2)
    distance.fill_diagonal_(torch.inf)
    count = min(NEIGHBOURS, len(x) - 1)
    near = labels[distance.topk(count, dim=1, largest=False).indices]
    n_clusters = int(labels.max()) + 1
    weight = 1 / torch.arange(1, count + 1)
    votes = torch.zeros(len(asked), n_clusters).scatter_add_(1, near, weight.expand(len(asked), -1))
    voted = votes.argmax(dim=1)
    right, said, true = (
        torch.bincount(one, minlength=n_clusters) / len(asked) for one in (truth[voted == truth], voted, truth)
    )
    by_chance = float((said * true).sum())
    agreement = (float(right.sum()) - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
    counted = true * len(asked) >= FEW
    worst = float((right / true)[counted].min()) if bool(counted.any()) else 0.0
    return Seen(agreement, worst)


def settle(draft: Draft, wanted: Wanted) -> tuple[Float[Tensor, "N D"], float] | None:
    """Points of a draft whose agreement is as wanted and that hide no cluster, and the agreement; or None.

    The looser the clusters, the less neighbours tell: the looseness is doubled or halved, and then bisected. After a
    few trials the draft is given up.
    """
    too_tight, too_loose = TIGHTEST, LOOSEST
    looseness, step = wanted.start, 2.0
    for _ in range(STEPS):
        x = draft.build(looseness)
        seen = look(x, draft.labels)
        hidden = seen.worst < HIDDEN * wanted.low
        if wanted.low <= seen.agreement <= wanted.high and not hidden:
            return x, seen.agreement
        if hidden or seen.agreement < wanted.low:
            too_loose = looseness
            looseness = max(looseness / step, (too_tight * too_loose) ** 0.5)
        else:
            too_tight = looseness
            looseness = min(looseness * step, (too_tight * too_loose) ** 0.5)
    return None


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
