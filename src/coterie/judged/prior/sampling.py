"""What all kinds of task share: random numbers, cluster sizes, and how well labels can be recovered."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

Description = dict[str, float | str]


@final
@dataclass(frozen=True, slots=True)
class Rng:
    """Distributions that the prior samples from, all with one ``torch.Generator``."""

    generator: Generator

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Sample uniformly from an interval."""
        return low + (high - low) * torch.rand(shape, generator=self.generator)

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Sample positive numbers whose logarithm is uniform."""
        return self.uniform(math.log(low), math.log(high), *shape).exp()

    def normal(self, *shape: int) -> Tensor:
        """Sample from the standard normal distribution."""
        return torch.randn(shape, generator=self.generator)

    def gamma(self, concentration: Tensor) -> Tensor:
        """Sample from gamma distributions of rate one."""
        return torch._standard_gamma(concentration, generator=self.generator)

    def poisson(self, rate: Tensor) -> Tensor:
        """Sample counts from Poisson distributions."""
        return torch.poisson(rate, generator=self.generator)

    def student_t(self, freedom: Float[Tensor, " N"], n_features: int) -> Float[Tensor, "N D"]:
        """Sample rows from Student's t, each with its own degrees of freedom; norms are capped at 8 per column."""
        scale = (self.gamma(freedom / 2) * 2 / freedom).clamp_min(1e-3).rsqrt()
        rows = self.normal(len(freedom), n_features) * scale.unsqueeze(1)
        length = rows.norm(dim=1, keepdim=True) / math.sqrt(n_features)
        capped: Tensor = rows * (8 / length.clamp_min(8))
        return capped

    def scalar(self, low: float, high: float) -> float:
        """Sample one number uniformly from an interval."""
        return float(self.uniform(low, high))

    def log_scalar(self, low: float, high: float) -> float:
        """Sample one positive number whose logarithm is uniform."""
        return float(self.log_uniform(low, high))

    def integer(self, low: int, high: int) -> int:
        """Sample one integer; both ends are included."""
        return int(self.integers(low, high))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Sample integers; both ends are included."""
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def permutation(self, count: int) -> Int[Tensor, " N"]:
        """Sample a permutation of 0, 1, ... count - 1."""
        return torch.randperm(count, generator=self.generator)

    def bernoulli(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.scalar(0.0, 1.0) < probability

    def choice(self, weights: Mapping[str, float]) -> str:
        """Sample a key with probability proportional to its weight."""
        left = self.scalar(0.0, sum(weights.values()))
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        return next(reversed(list(weights)))

    def orthogonal(self, count: int, n_features: int) -> Float[Tensor, "K D D"]:
        """Sample orthogonal matrices."""
        matrices: Tensor = torch.linalg.qr(self.normal(count, n_features, n_features))[0]
        return matrices


MIN_CLUSTER_SIZE: Final = 5
SIZE_STYLES: Final = {"even": 0.35, "uneven": 0.45, "contrast": 0.2}  # distributions of sizes, with their weights


@final
@dataclass(frozen=True, slots=True)
class Memberships:
    """The cluster of each point; samples parameters of clusters."""

    labels: Int[Tensor, " N"]
    n_clusters: int
    shared: bool = False  # whether all clusters have the same parameters

    @property
    def n_points(self) -> int:
        """Number of points."""
        return len(self.labels)

    @property
    def n_distinct(self) -> int:
        """Number of clusters with parameters of their own."""
        return 1 if self.shared else self.n_clusters

    def per_point(self, values: Tensor) -> Tensor:
        """Repeat values of each cluster (K, ...), or of all (1, ...), for the points (N, ...)."""
        return values.expand(self.n_clusters, *values.shape[1:])[self.labels]

    def uniform(self, low: float, high: float, rng: Rng) -> Float[Tensor, " N"]:
        """Sample one number per cluster uniformly from an interval; return it for each point."""
        return self.per_point(rng.uniform(low, high, self.n_distinct))

    def rank(self) -> Int[Tensor, " N"]:
        """Return the position of each point among the points of its cluster, from 0."""
        order = torch.argsort(self.labels, stable=True)
        sizes = self.sizes()
        start = sizes.cumsum(0) - sizes
        rank = torch.empty_like(self.labels)
        rank[order] = torch.arange(self.n_points) - start[self.labels[order]]
        return rank

    def sizes(self) -> Int[Tensor, " K"]:
        """Return the number of points of each cluster."""
        return torch.bincount(self.labels, minlength=self.n_clusters)


def limit_clusters(n_points: int, max_clusters: int, per_cluster: int = 8) -> int:
    """Return the largest number of clusters that leaves ``per_cluster`` points for each, and at least 2."""
    return max(2, min(max_clusters, n_points // per_cluster))


def sample_proportions(
    n_clusters: int, rng: Rng, styles: Mapping[str, float] = SIZE_STYLES
) -> tuple[Float[Tensor, " K"], str]:
    """Sample the proportions of the clusters; return them and the name of their distribution."""
    style = rng.choice(styles)
    if style == "even":
        weights = torch.ones(n_clusters)
    elif style == "uneven":
        weights = rng.gamma(torch.full((n_clusters,), rng.log_scalar(1.5, 10.0))) + 1e-3
    else:
        large = rng.uniform(0, 1, n_clusters) < rng.scalar(0.15, 0.6)
        large[0], large[-1] = True, False
        weights = torch.where(large, rng.log_scalar(4.0, 20.0), 1.0)
    return weights / weights.sum(), style


def assign_points(n_points: int, proportions: Float[Tensor, " K"], rng: Rng, *, shared: bool = False) -> Memberships:
    """Assign points to clusters in random order, each cluster with its proportion and at least the minimum size."""
    n_clusters = len(proportions)
    floor = min(MIN_CLUSTER_SIZE, n_points // n_clusters)
    ends = ((n_points - floor * n_clusters) * proportions.cumsum(0)).round().long()
    ends[-1] = n_points - floor * n_clusters
    sizes = torch.diff(ends, prepend=ends.new_zeros(1)) + floor
    labels = torch.repeat_interleave(torch.arange(n_clusters), sizes)
    return Memberships(labels[rng.permutation(n_points)], n_clusters, shared)


def assign_few_clusters(n_points: int, max_clusters: int, rng: Rng) -> Memberships:
    """Assign points to between 2 and ``max_clusters`` clusters, with at least 20 points each on average."""
    n_clusters = rng.integer(2, limit_clusters(n_points, max_clusters, 20))
    return assign_points(n_points, sample_proportions(n_clusters, rng)[0], rng, shared=rng.bernoulli(0.5))


CLEAR: Final = 0.97
TOLERANCE: Final = 0.03
LEVELS: Final = {"touching": (0.86, CLEAR), "overlapping": (0.7, 0.86), "hazy": (0.58, 0.7), "faint": (0.35, 0.58)}
"""Lower and upper agreement of each level of overlap; "clear" is everything above."""


@final
@dataclass(frozen=True, slots=True)
class Difficulty:
    """How much the clusters of a family of sets overlap."""

    levels: Mapping[str, float]  # levels of overlap, with their weights
    min_spread: float  # smallest initial within-cluster spread of clear sets


PEAKED: Final = Difficulty({"clear": 0.45, "touching": 0.3, "overlapping": 0.25}, 0.6)
"""Clusters with a dense centre, which remain recognisable when they overlap."""
STANDARD: Final = Difficulty({"clear": 0.5, "touching": 0.25, "overlapping": 0.25}, 0.1)
"""Clusters with a dense centre, up to very far apart."""
UNIFORM: Final = Difficulty({"clear": 0.75, "touching": 0.25}, 0.6)
"""Curves and clusters of uniform density, which are unrecognisable when they overlap."""
INTERLEAVED: Final = Difficulty({"clear": 0.8, "touching": 0.2}, 0.3)  # nested or interleaved, maybe far apart
CROSSING: Final = Difficulty({"touching": 1.0}, 1.0)  # clusters that intersect
TABULAR: Final = Difficulty({"clear": 0.24, "touching": 0.22, "overlapping": 0.22, "hazy": 0.16, "faint": 0.16}, 0.3)
"""Classes of tables, at all levels."""
MIXED: Final = Difficulty({"clear": 0.32, "touching": 0.25, "overlapping": 0.2, "hazy": 0.13, "faint": 0.1}, 0.3)
"""Classes of tables of mixed columns."""


@final
@dataclass(frozen=True, slots=True)
class Target:
    """The agreement that a set must have."""

    low: float
    high: float
    start: float = 1.0  # within-cluster spread to try first


def sample_target(difficulty: Difficulty, rng: Rng) -> Target:
    """Sample the agreement that a set must have, and the spread to start from."""
    level = rng.choice(difficulty.levels)
    if level == "clear":
        # Agreement does not measure how wide a gap is: clear sets start with gaps of all widths.
        return Target(CLEAR, 1.0, rng.log_scalar(difficulty.min_spread, 1.1))
    middle = rng.scalar(*LEVELS[level])
    return Target(middle - TOLERANCE, middle + TOLERANCE)


N_NEIGHBOURS: Final = 8
MAX_QUERIES: Final = 256  # points whose neighbours vote: the first ones, which are a random sample
MAX_TRIALS: Final = 7  # spreads tried before a draft is dropped
MAX_SPREAD: Final = 8.0
MIN_SPREAD: Final = 0.02
CONSTANT_TOLERANCE: Final = 1e-6  # deviation below which a column is constant, as a fraction of its largest value
MIN_QUERIES: Final = 4  # query points that a cluster needs for its recall to count
MIN_RECALL: Final = 0.2  # recall, as a fraction of the least agreement, below which a cluster is hidden in others


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """A sampled set whose within-cluster spread is not fixed yet."""

    labels: Int[Tensor, " N"]
    build: Callable[[float], Float[Tensor, "N D"]]  # returns the points for a within-cluster spread; 1 is as sampled
    difficulty: Difficulty
    description: Mapping[str, float | str]
    categories: tuple[int, ...] = ()  # columns whose values are codes of levels


def standardise(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Scale columns to mean 0 and standard deviation 1; constant columns become 0."""
    centred = x - x.mean(dim=0)
    scale = centred.square().mean(dim=0).sqrt()
    return centred / torch.where(scale > CONSTANT_TOLERANCE * x.abs().amax(dim=0), scale, 1.0).clamp_min(1e-30)


def encode_categories(x: Float[Tensor, "N D"], categories: tuple[int, ...]) -> Float[Tensor, "N E"]:
    """Scale columns without gaps; a category becomes a one-hot block with the variance of one column."""
    if not categories:
        return standardise(x)
    numbers = [position for position in range(x.shape[1]) if position not in categories]
    parts = [standardise(x[:, numbers])]
    for position in categories:
        block = torch.nn.functional.one_hot(x[:, position].long()).to(x.dtype)
        block = block - block.mean(dim=0)
        parts.append(block / block.square().mean(dim=0).sum().sqrt().clamp_min(CONSTANT_TOLERANCE))
    return torch.cat(parts, dim=1)


class Recoverability(NamedTuple):
    """How well nearest neighbours predict the labels of a set."""

    agreement: float  # Cohen's kappa of the true and the predicted labels: 1 is perfect, 0 is chance
    worst_recall: float  # recall of the cluster that is predicted worst


def measure_recoverability(
    x: Float[Tensor, "N D"], labels: Int[Tensor, " N"], categories: tuple[int, ...] = ()
) -> Recoverability:
    """Predict labels by a weighted vote of the nearest other points, in standardised columns and one-hot categories.

    The weight of the i-th neighbour is 1 / i. Only the first ``MAX_QUERIES`` points are predicted.
    """
    x = encode_categories(x, categories)
    queries, truth = x[:MAX_QUERIES], labels[:MAX_QUERIES]
    # The squared norm of the query is the same for all its neighbours and is left out.
    distance = torch.addmm(x.square().sum(dim=1), queries, x.T, alpha=-2)
    distance.fill_diagonal_(torch.inf)
    count = min(N_NEIGHBOURS, len(x) - 1)
    near = labels[distance.topk(count, dim=1, largest=False).indices]
    n_clusters = int(labels.max()) + 1
    weight = 1 / torch.arange(1, count + 1)
    votes = torch.zeros(len(queries), n_clusters).scatter_add_(1, near, weight.expand(len(queries), -1))
    predicted = votes.argmax(dim=1)
    correct, said, true = (
        torch.bincount(one, minlength=n_clusters) / len(queries)
        for one in (truth[predicted == truth], predicted, truth)
    )
    chance = float((said * true).sum())
    agreement = (float(correct.sum()) - chance) / (1 - chance) if chance < 1 else 0.0
    counted = true * len(queries) >= MIN_QUERIES
    worst = float((correct / true)[counted].min()) if bool(counted.any()) else 0.0
    return Recoverability(agreement, worst)


def fit_spread(draft: Draft, target: Target) -> tuple[Float[Tensor, "N D"], float] | None:
    """Adjust the within-cluster spread of a draft until its agreement is on target and no cluster is hidden.

    Agreement falls as spread grows: the spread is doubled or halved, then bisected on a log scale. Return the points
    and their agreement, or None after ``MAX_TRIALS`` trials.
    """
    low, high = MIN_SPREAD, MAX_SPREAD
    spread = target.start
    for _ in range(MAX_TRIALS):
        x = draft.build(spread)
        found = measure_recoverability(x, draft.labels, draft.categories)
        hidden = found.worst_recall < MIN_RECALL * target.low
        if target.low <= found.agreement <= target.high and not hidden:
            return x, found.agreement
        if hidden or found.agreement < target.low:
            high = spread
            spread = max(spread / 2.0, (low * high) ** 0.5)
        else:
            low = spread
            spread = min(spread * 2.0, (low * high) ** 0.5)
    return None


def add_outliers(
    x: Float[Tensor, "N D"], labels: Int[Tensor, " N"], count: int, rng: Rng
) -> tuple[Float[Tensor, "M D"], Int[Tensor, " M"]]:
    """Insert points labelled -1 at random positions, uniform over the range of the set or a larger one."""
    if count == 0:
        return x, labels
    low, high = x.amin(dim=0), x.amax(dim=0)
    margin = 0.05 if rng.bernoulli(0.7) else 0.4
    outliers = low + (high - low) * rng.uniform(-margin, 1 + margin, count, x.shape[1])
    order = rng.permutation(len(x) + count)
    return torch.cat((x, outliers))[order], torch.cat((labels, labels.new_full((count,), -1)))[order]
