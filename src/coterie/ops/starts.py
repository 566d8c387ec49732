"""Where prototypes begin: several starts at once, on a leading axis of runs."""

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


def spread_start(x: Tensor, runs: int, clusters: int, generator: Generator, *, power: float = 1.0) -> Tensor:
    """Rows drawn one after another, each with odds of its squared distance to those drawn, to a power.

    Power 1 is k-means++; large powers approach the farthest-point rule. Shape (R, K, D).
    """
    everyone = torch.arange(runs, device=x.device)
    squares = x.square().sum(dim=1)
    chosen = torch.randint(len(x), (runs,), generator=generator, device=x.device)
    centres = [x[chosen]]
    nearest = torch.full((runs, len(x)), torch.inf, device=x.device, dtype=x.dtype)
    for _ in range(clusters - 1):
        latest = centres[-1]
        distances = squares + latest.square().sum(dim=1, keepdim=True) - 2.0 * latest @ x.T
        nearest = torch.minimum(nearest, distances.clamp_min_(0.0))
        nearest[everyone, chosen] = 0.0  # rounding must not make a drawn row drawable again
        largest = nearest.amax(dim=1, keepdim=True)
        # Where every row is already a centre any row will do, hence the floor.
        odds = (nearest / largest.clamp_min(torch.finfo(x.dtype).tiny)).pow_(power).clamp_min_(1e-30)
        chosen = torch.multinomial(odds, 1, generator=generator).squeeze(1)
        centres.append(x[chosen])
    return torch.stack(centres, dim=1)


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
