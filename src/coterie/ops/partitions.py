"""The result of a clustering, and operations on the clusters and points of sets: means, orders, samples, k-means."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import one_hot


@dataclass(frozen=True, slots=True)
class Clustering:
    """A clustering of one set of points."""

    labels: Int[Tensor, " N"]  # cluster of each point, 0..K-1
    n_clusters: int  # number of clusters
    probabilities: Float[Tensor, "N K"] | None = None  # membership probabilities; rows sum to one
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors that only some methods have, such as prototypes."""


def cluster_means(x: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Compute the mean (K, D) of each cluster; the overall mean for an empty one."""
    sizes = torch.bincount(labels, minlength=clusters).unsqueeze(1)
    sums = torch.zeros(clusters, x.shape[1], dtype=torch.float64, device=x.device)
    sums.index_add_(0, labels, x.double())
    overall = x.double().mean(dim=0)
    return torch.where(sizes > 0, sums / sizes.clamp_min(1), overall).to(x.dtype)


def relabel_by_size(labels: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """Renumber clusters from the largest down, ties by their first member."""
    sizes = labels.bincount()
    position = torch.arange(len(labels), device=labels.device)
    first = torch.full_like(sizes, len(labels)).scatter_reduce_(0, labels, position, "amin")
    by_first = first.argsort()
    order = by_first[sizes[by_first].argsort(descending=True, stable=True)]
    return order.argsort()[labels]


def lexicographic_order(x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Int[Tensor, "B N"]:
    """Sort the points of each set by their first feature, ties by the second and so on; padding comes last."""
    order = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    for keys in [*x.unbind(dim=2)[::-1], (~valid).to(x.dtype)]:
        order = order.gather(1, keys.gather(1, order).argsort(dim=1, stable=True))
    return order


def subsample(max_points: int, valid: Bool[Tensor, "B N"], generator: Generator) -> Bool[Tensor, "B N"]:
    """Choose at most ``max_points`` of each set at random; padding must come last.

    The choice depends on the size of the set and on the generator, from which one number is taken, not on the other
    sets.
    """
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    chosen = valid.clone()
    for row, size in enumerate(valid.sum(dim=1).tolist()):
        if size > max_points:
            sample = torch.randperm(size, generator=Generator().manual_seed(seed))[:max_points]
            chosen[row] = False
            chosen[row, sample.to(valid.device)] = True
    return chosen


LLOYD_STEPS = 20


def normal_start(runs: int, clusters: int, features: int, generator: Generator) -> Tensor:
    """Sample ClAM's published initialisation, N(0.1, 0.1^2), shape (R, K, D)."""
    noise = torch.randn(runs, clusters, features, generator=generator, device=generator.device)
    return 0.1 + 0.1 * noise


def data_start(x: Tensor, runs: int, clusters: int, generator: Generator) -> Tensor:
    """Sample rows without replacement (with, if there are too few), shape (R, K, D)."""
    probabilities = torch.ones(runs, len(x), device=x.device)
    return x[torch.multinomial(probabilities, clusters, replacement=len(x) < clusters, generator=generator)]


def spread_start(
    x: Tensor, runs: int, clusters: int, generator: Generator, *, power: float = 1.0, trials: int = 1
) -> Tensor:
    """Sample rows one by one, in proportion to a power of their squared distance to the rows sampled before.

    Power 1 is k-means++; large powers approach the farthest-point rule. With several trials, the row that lowers the
    sum of squared distances most is kept (greedy k-means++). Shape (R, K, D).
    """
    squares = x.square().sum(dim=1)
    chosen = torch.randint(len(x), (runs,), generator=generator, device=x.device)
    centres = [x[chosen]]
    nearest = _distances_from(x, squares, chosen.unsqueeze(1)).squeeze(1)
    for _ in range(clusters - 1):
        largest = nearest.amax(dim=1, keepdim=True)
        # Where every row is a centre already, any row will do, hence the floor.
        weights = (nearest / largest.clamp_min(torch.finfo(x.dtype).tiny)).pow_(power).clamp_min_(1e-30)
        sampled = torch.multinomial(weights, trials, replacement=True, generator=generator)
        candidates = torch.minimum(nearest.unsqueeze(1), _distances_from(x, squares, sampled))  # (R, trials, N)
        best = candidates.sum(dim=2).min(dim=1).indices
        run = torch.arange(runs, device=x.device)
        nearest = candidates[run, best]
        centres.append(x[sampled[run, best]])
    return torch.stack(centres, dim=1)


def _distances_from(x: Tensor, squares: Tensor, rows: Tensor) -> Tensor:
    """Compute the squared distances (R, trials, N) of all rows from the given ones (R, trials)."""
    distances = squares + squares[rows].unsqueeze(2) - 2.0 * x[rows] @ x.T
    # Rounding must not give a sampled row a positive probability.
    return distances.clamp_min_(0.0).scatter_(2, rows.unsqueeze(2), 0.0)


def k_means_start(x: Tensor, runs: int, clusters: int, generator: Generator) -> Tensor:
    """Run a few steps of k-means from greedy k-means++. Shape (R, K, D)."""
    trials = 2 + int(math.log(clusters))  # the number of trials of scikit-learn
    return lloyd(x, spread_start(x, runs, clusters, generator, trials=trials))


def lloyd(x: Tensor, centres: Tensor, steps: int = LLOYD_STEPS) -> Tensor:
    """Run a few steps of k-means from each of several starts at once. Shape (R, K, D)."""
    clusters = centres.shape[1]
    for _ in range(steps):
        scores = centres.square().sum(dim=2, keepdim=True) - 2.0 * centres @ x.T  # (R, K, N)
        members = one_hot(scores.min(dim=1).indices, clusters).to(x.dtype)  # (R, N, K)
        sizes = members.sum(dim=1).unsqueeze(2)
        means = members.transpose(1, 2) @ x / sizes.clamp_min(1.0)
        centres = torch.where(sizes > 0, means, centres)
    return centres
