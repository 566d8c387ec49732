"""Deep embedded clustering as the ClAM paper ran it: without a network.

Only the cluster centres are learned, on the standardised features themselves: Student-t soft assignment,
a sharpened target that is refreshed at intervals, and the divergence between the two as the loss. Equation
numbers are those of Xie et al., ICML 2016. Restarts are trained side by side, as a leading dimension R.
"""

from dataclasses import dataclass
from itertools import cycle
from typing import Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.lines import Labels

UPDATE_INTERVALS: Final = (1, 10, 50, 100, 200)


@dataclass(frozen=True)
class DecConfig:
    """Settings of the training; the defaults are the ClAM paper's (its released code: 1000 and 1e-4)."""

    update_interval: int
    max_iter: int = 20_000
    tol: float = 1e-3
    batch_size: int = 256
    learning_rate: float = 1e-3


def soft_assignment(z: Tensor, centres: Tensor, alpha: float = 1.0) -> Tensor:
    """Student-t memberships q (R, N, K) of points z (N, D) in centres (R, K, D): Eq. 1."""
    weight = student_kernel(z, centres, alpha) ** ((alpha + 1) / 2)
    return weight / weight.sum(dim=-1, keepdim=True)


def student_kernel(z: Tensor, centres: Tensor, alpha: float = 1.0) -> Tensor:
    """Student-t kernel 1 / (1 + ||z - centre||² / alpha), as (R, N, K)."""
    squared = z.square().sum(-1)[:, None] - 2 * z @ centres.mT + centres.square().sum(-1)[:, None, :]
    # Rounding may make the expanded square slightly negative.
    return 1 / (1 + squared.clamp(min=0) / alpha)


def target_distribution(q: Tensor) -> Tensor:
    """Sharpened memberships p, each cluster divided by its soft size: Eq. 3."""
    weight = q.square() / q.sum(dim=-2, keepdim=True)
    return weight / weight.sum(dim=-1, keepdim=True)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) of each restart, averaged over the points: Eq. 2."""
    return torch.xlogy(p, p / q).sum(dim=-1).mean(dim=-1)


def train(z: Tensor, centres: Tensor, config: DecConfig) -> Tensor:
    """Train the centres (R, K, D) of all restarts; return the labels (R, N).

    At every refresh of the target, a restart whose labels changed on less than `tol` of the points is
    finished: its labels are kept, while the other restarts train on.
    """
    trained = centres.clone().requires_grad_()
    # Keras's epsilon, since that is what the published runs used.
    optimizer = torch.optim.Adam([trained], lr=config.learning_rate, eps=1e-7)
    batches = cycle(torch.split(torch.arange(len(z)), config.batch_size))
    final = torch.full((len(centres), len(z)), -1)
    finished = torch.zeros(len(centres), dtype=torch.bool)
    labels = final
    for iteration in range(config.max_iter):
        if iteration % config.update_interval == 0:
            with torch.no_grad():
                q = soft_assignment(z, trained)
                target = target_distribution(q)
            previous, labels = labels, q.argmax(dim=-1)
            if iteration > 0:
                converged = ((labels != previous).double().mean(dim=-1) < config.tol) & ~finished
                final[converged] = labels[converged]
                finished |= converged
                if finished.all():
                    return final
        rows = next(batches)
        # A sum over restarts: none of them sees the gradient of another.
        loss = divergence(target[:, rows], soft_assignment(z[rows], trained)).sum()
        (trained.grad,) = torch.autograd.grad(loss, trained)
        optimizer.step()
    with torch.no_grad():
        labels = soft_assignment(z, trained).argmax(dim=-1)
    return torch.where(finished[:, None], final, labels)


def random_centres(n_clusters: int, n_features: int, seed: int) -> Tensor:
    """Sample centres from N(0.1, 0.1²), whatever the data."""
    generator = torch.Generator().manual_seed(seed)
    return 0.1 + 0.1 * torch.randn(n_clusters, n_features, generator=generator, dtype=torch.float64)


def mean_centres(z: Tensor, labels: Labels) -> Tensor:
    """Mean of each cluster, which is where k-means leaves its centres."""
    return torch.stack([z[torch.from_numpy(labels == label)].mean(dim=0) for label in np.unique(labels)])
