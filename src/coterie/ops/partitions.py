"""What a partition of points amounts to, and how its clusters are numbered."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import one_hot


@dataclass(frozen=True, slots=True)
class Clustering:
    """What a model found."""

    labels: Int[Tensor, " N"]
    """Cluster of each point, 0..K-1."""
    n_clusters: int
    """How many clusters there are."""
    probabilities: Float[Tensor, "N K"] | None = None
    """Soft memberships, rows summing to one."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """What only some methods have, such as prototypes."""


def cluster_means(x: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Mean (K, D) of the points of each cluster; the overall mean where a cluster has none."""
    sizes = torch.bincount(labels, minlength=clusters).unsqueeze(1)
    sums = torch.zeros(clusters, x.shape[1], dtype=torch.float64, device=x.device)
    sums.index_add_(0, labels, x.double())
    overall = x.double().mean(dim=0)
    return torch.where(sizes > 0, sums / sizes.clamp_min(1), overall).to(x.dtype)


def by_size(labels: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """Rename clusters, any numbers from 0, to 0, 1, ... from the largest down, ties by their first member."""
    sizes = labels.bincount()
    place = torch.arange(len(labels), device=labels.device)
    first = torch.full_like(sizes, len(labels)).scatter_reduce_(0, labels, place, "amin")
    by_first = first.argsort()
    order = by_first[sizes[by_first].argsort(descending=True, stable=True)]
    return order.argsort()[labels]


def members_of(labels: Int[Tensor, "B N"], valid: Bool[Tensor, "B N"], dtype: torch.dtype) -> Float[Tensor, "B N K"]:
    """One where a point is of a cluster; there is always at least one cluster, be it empty."""
    known = valid & (labels >= 0)
    return one_hot(labels.clamp(min=0)).to(dtype) * known.unsqueeze(2)


def summed_up(
    h: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], member: Float[Tensor, "B N K"]
) -> tuple[Float[Tensor, "B K E"], Float[Tensor, "B K"]]:
    """Mean of the members of each cluster, and their share of all points."""
    count = member.sum(dim=1)
    mean = member.mT @ h / count.clamp(min=1).unsqueeze(2)
    return mean, count / valid.sum(dim=1, keepdim=True).clamp(min=1)


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


LLOYD_STEPS = 20


def normal_start(runs: int, clusters: int, features: int, generator: Generator) -> Tensor:
    """ClAM's own start, N(0.1, 0.1^2), whatever the data. Shape (R, K, D)."""
    noise = torch.randn(runs, clusters, features, generator=generator, device=generator.device)
    return 0.1 + 0.1 * noise


def data_start(x: Tensor, runs: int, clusters: int, generator: Generator) -> Tensor:
    """Rows drawn without replacement (with, where there are too few). Shape (R, K, D)."""
    odds = torch.ones(runs, len(x), device=x.device)
    return x[torch.multinomial(odds, clusters, replacement=len(x) < clusters, generator=generator)]


def spread_start(
    x: Tensor, runs: int, clusters: int, generator: Generator, *, power: float = 1.0, trials: int = 1
) -> Tensor:
    """Rows drawn one after another, each with odds of its squared distance to those drawn, to a power.

    Power 1 is k-means++; large powers approach the farthest-point rule. With several trials, the drawn row that lowers
    the sum of squared distances most is kept (greedy k-means++). Shape (R, K, D).
    """
    squares = x.square().sum(dim=1)
    chosen = torch.randint(len(x), (runs,), generator=generator, device=x.device)
    centres = [x[chosen]]
    nearest = _distances_from(x, squares, chosen.unsqueeze(1)).squeeze(1)
    for _ in range(clusters - 1):
        largest = nearest.amax(dim=1, keepdim=True)
        # Where every row is already a centre any row will do, hence the floor.
        odds = (nearest / largest.clamp_min(torch.finfo(x.dtype).tiny)).pow_(power).clamp_min_(1e-30)
        drawn = torch.multinomial(odds, trials, replacement=True, generator=generator)
        candidates = torch.minimum(nearest.unsqueeze(1), _distances_from(x, squares, drawn))  # (R, trials, N)
        best = candidates.sum(dim=2).min(dim=1).indices
        everyone = torch.arange(runs, device=x.device)
        nearest = candidates[everyone, best]
        centres.append(x[drawn[everyone, best]])
    return torch.stack(centres, dim=1)


def _distances_from(x: Tensor, squares: Tensor, rows: Tensor) -> Tensor:
    """Squared distances (R, trials, N) of all rows from the given ones (R, trials)."""
    distances = squares + squares[rows].unsqueeze(2) - 2.0 * x[rows] @ x.T
    # Rounding must not make a drawn row drawable again.
    return distances.clamp_min_(0.0).scatter_(2, rows.unsqueeze(2), 0.0)


def k_means_start(x: Tensor, runs: int, clusters: int, generator: Generator) -> Tensor:
    """A few steps of k-means from greedy k-means++. Shape (R, K, D)."""
    trials = 2 + int(math.log(clusters))  # as many as scikit-learn takes
    return lloyd(x, spread_start(x, runs, clusters, generator, trials=trials))


def lloyd(x: Tensor, centres: Tensor, steps: int = LLOYD_STEPS) -> Tensor:
    """A few steps of k-means from each of several starts at once. Shape (R, K, D)."""
    clusters = centres.shape[1]
    for _ in range(steps):
        scores = centres.square().sum(dim=2, keepdim=True) - 2.0 * centres @ x.T  # (R, K, N)
        members = torch.nn.functional.one_hot(scores.min(dim=1).indices, clusters).to(x.dtype)  # (R, N, K)
        sizes = members.sum(dim=1).unsqueeze(2)
        means = members.transpose(1, 2) @ x / sizes.clamp_min(1.0)
        centres = torch.where(sizes > 0, means, centres)
    return centres
