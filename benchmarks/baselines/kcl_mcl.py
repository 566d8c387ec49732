"""KCL and MCL: a cluster network that is trained anew for every set, on what a predictor says of its pairs.

Both come from transfer learning of clusters: something that was trained on other classes says which pairs of elements
are of one class, and a small network with as many outputs as there may be clusters is trained to agree with it. KCL
(Hsu, Lv & Kira, 2018) compares the outputs of a pair by their divergence, MCL (Hsu et al., 2019) by their inner
product, which is the chance to be together. Several networks are trained side by side from different starts, and the
one with the least loss counts.

Letters: N elements of a set, D features, K outputs, R networks.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy

MARGIN: Final = 2.0
"""Divergence beyond which KCL leaves elements of different clusters alone."""
WIDTH: Final = 256
HIDDEN: Final = 2
"""Layers before the one that gives the outputs: three in all."""
RATE: Final = 1e-3
SAME_FROM: Final = 0.5
"""Predicted probability from which a pair counts as being together."""

Objective: TypeAlias = Literal["kcl", "mcl"]
Predictor: TypeAlias = Callable[[Float[Tensor, "N D"]], Float[Tensor, "N N"]]
"""From the elements of a set to the probability of each pair to be of one class."""


@dataclass(frozen=True)
class PairwiseClusters:
    """Clusters that training found."""

    labels: Int[Tensor, " N"]
    """Of each element; of the outputs, only those that won an element are numbers here."""
    loss: float
    """Of the network that was taken."""
    seconds: float
    """Processor seconds, the predictor's included."""


def kcl_loss(chances: Float[Tensor, "R N K"], same: Bool[Tensor, "N N"]) -> Float[Tensor, " R"]:
    """Divergence of pairs that are together, both ways, and what others lack to the margin; each with itself is out."""
    logs = chances.clamp(min=torch.finfo(chances.dtype).tiny).log()
    divergence = (chances * logs).sum(dim=2, keepdim=True) - chances @ logs.mT
    cost = torch.where(same, divergence, (MARGIN - divergence).clamp(min=0.0))
    return _mean_over_pairs(cost + cost.mT)


def mcl_loss(chances: Float[Tensor, "R N K"], same: Bool[Tensor, "N N"]) -> Float[Tensor, " R"]:
    """Cross-entropy of the chance to be together, the inner product of the outputs; each with itself is out."""
    together = (chances @ chances.mT).clamp(0.0, 1.0)
    target = same.to(chances.dtype).expand_as(together)
    return _mean_over_pairs(binary_cross_entropy(together, target, reduction="none"))


LOSSES: Final[dict[Objective, Callable[[Tensor, Tensor], Tensor]]] = {"kcl": kcl_loss, "mcl": mcl_loss}


def cluster_pairwise(
    elements: Float[Tensor, "N D"],
    predictor: Predictor,
    max_clusters: int,
    objective: Objective,
    generator: Generator,
    *,
    epochs: int = 300,
    restarts: int = 5,
) -> PairwiseClusters:
    """Train cluster networks on one set, which is one batch, and read its clusters off the best.

    Parameters
    ----------
    elements : tensor (N, D)
        What the predictor and the networks see.
    predictor : callable
        Says of each pair how probably it is of one class; from one half on, it counts as such.
    max_clusters : int
        Outputs of the networks.
    objective : {"kcl", "mcl"}
        Loss.
    generator : Generator
        Where the weights begin.
    epochs : int
        Steps, each with all pairs.
    restarts : int
        Networks that are trained side by side.
    """
    began = time.process_time()
    same = predictor(elements) >= SAME_FROM
    same = same | same.mT
    weights = _start(elements.shape[1], max_clusters, restarts, generator)
    loss_of = LOSSES[objective]
    optimiser = torch.optim.Adam([part for layer in weights for part in layer], RATE)
    for _ in range(epochs):
        optimiser.zero_grad()
        loss_of(_chances(elements, weights), same).sum().backward()  # type: ignore[no-untyped-call]  # torch's
        optimiser.step()
    with torch.no_grad():
        chances = _chances(elements, weights)
        losses = loss_of(chances, same)
        best = int(losses.argmin())
        _, labels = torch.unique(chances[best].argmax(dim=1), return_inverse=True)
    return PairwiseClusters(labels, float(losses[best]), time.process_time() - began)


def _start(n_features: int, n_outputs: int, restarts: int, generator: Generator) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases of each layer, for all networks at once; uniform within what torch's own layers begin with."""
    widths = (n_features, *[WIDTH] * HIDDEN, n_outputs)
    layers = []
    for before, after in pairwise(widths):
        drawn = 2.0 * torch.rand((restarts, before + 1, after), generator=generator) - 1.0
        weight, bias = (before**-0.5 * drawn).split([before, 1], dim=1)
        layers.append((weight.clone().requires_grad_(), bias.clone().requires_grad_()))
    return layers


def _chances(elements: Float[Tensor, "N D"], weights: list[tuple[Tensor, Tensor]]) -> Float[Tensor, "R N K"]:
    """What each network says of each element."""
    hidden = elements.expand(len(weights[0][0]), -1, -1)
    for place, (weight, bias) in enumerate(weights):
        hidden = torch.baddbmm(bias, hidden if place == 0 else hidden.relu(), weight)
    return hidden.softmax(dim=2)


def _mean_over_pairs(cost: Float[Tensor, "R N N"]) -> Float[Tensor, " R"]:
    """Mean over the pairs of different elements; zero where there is but one."""
    n = cost.shape[1]
    apart = cost.sum(dim=(1, 2)) - cost.diagonal(dim1=1, dim2=2).sum(dim=1)
    return apart / max(1, n * (n - 1))
