"""Where prototypes begin: several starts at once, on a leading axis of runs."""

import math

import torch
from torch import Generator, Tensor

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
