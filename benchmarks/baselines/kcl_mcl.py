"""KCL and MCL: a cluster network that is trained on each set anew, from predicted pairwise similarities.

A predictor that was trained on other classes tells which pairs of elements are of one class, and a small network with
one output per possible cluster is trained to agree with it. KCL (Hsu, Lv & Kira, 2018) compares the outputs of a pair
by their divergence, MCL (Hsu et al., 2019) by their inner product, the probability of the same cluster. Several
networks are trained in parallel from random initial weights, and the one with the smallest loss is used.

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

MARGIN: Final = 2.0  # divergence from which pairs of different clusters have no loss
WIDTH: Final = 256
HIDDEN: Final = 2  # hidden layers
RATE: Final = 1e-3
SAME_FROM: Final = 0.5  # predicted probability from which a pair counts as similar

Objective: TypeAlias = Literal["kcl", "mcl"]
Predictor: TypeAlias = Callable[[Float[Tensor, "N D"]], Float[Tensor, "N N"]]
"""From the elements of a set to the probability that each pair is of one class."""


@dataclass(frozen=True)
class PairwiseClusters:
    """Result of training on one set."""

    labels: Int[Tensor, " N"]  # cluster of each element; outputs without elements are not counted
    loss: float  # loss of the best network
    seconds: float  # processor seconds, including the predictor


def kcl_loss(probabilities: Float[Tensor, "R N K"], same: Bool[Tensor, "N N"]) -> Float[Tensor, " R"]:
    """Compute the symmetric divergence of similar pairs and the hinge loss of the others."""
    logs = probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()
    divergence = (probabilities * logs).sum(dim=2, keepdim=True) - probabilities @ logs.mT
    cost = torch.where(same, divergence, (MARGIN - divergence).clamp(min=0.0))
    return _mean_over_pairs(cost + cost.mT)


def mcl_loss(probabilities: Float[Tensor, "R N K"], same: Bool[Tensor, "N N"]) -> Float[Tensor, " R"]:
    """Compute the cross-entropy of the inner products of the outputs."""
    together = (probabilities @ probabilities.mT).clamp(0.0, 1.0)
    target = same.to(probabilities.dtype).expand_as(together)
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
    """Train cluster networks on one set, as one batch, and return the clusters of the best.

    Parameters
    ----------
    elements : tensor (N, D)
        Input of the predictor and of the networks.
    predictor : callable
        Probability that each pair is of one class.
    max_clusters : int
        Outputs of the networks.
    objective : {"kcl", "mcl"}
        Loss.
    generator : Generator
        Source of the initial weights.
    epochs : int
        Steps, each with all pairs.
    restarts : int
        Networks that are trained in parallel.
    """
    began = time.process_time()
    same = predictor(elements) >= SAME_FROM
    same = same | same.mT
    weights = _initial_weights(elements.shape[1], max_clusters, restarts, generator)
    loss_of = LOSSES[objective]
    optimiser = torch.optim.Adam([part for layer in weights for part in layer], RATE)
    for _ in range(epochs):
        optimiser.zero_grad()
        loss_of(_probabilities(elements, weights), same).sum().backward()  # type: ignore[no-untyped-call]  # torch's
        optimiser.step()
    with torch.no_grad():
        probabilities = _probabilities(elements, weights)
        losses = loss_of(probabilities, same)
        best = int(losses.argmin())
        _, labels = torch.unique(probabilities[best].argmax(dim=1), return_inverse=True)
    return PairwiseClusters(labels, float(losses[best]), time.process_time() - began)


def _initial_weights(
    n_features: int, n_outputs: int, restarts: int, generator: Generator
) -> list[tuple[Tensor, Tensor]]:
    """Sample weights and biases of all networks, with the range of torch's own layers."""
    widths = (n_features, *[WIDTH] * HIDDEN, n_outputs)
    layers = []
    for before, after in pairwise(widths):
        uniform = 2.0 * torch.rand((restarts, before + 1, after), generator=generator) - 1.0
        weight, bias = (before**-0.5 * uniform).split([before, 1], dim=1)
        layers.append((weight.clone().requires_grad_(), bias.clone().requires_grad_()))
    return layers


def _probabilities(elements: Float[Tensor, "N D"], weights: list[tuple[Tensor, Tensor]]) -> Float[Tensor, "R N K"]:
    """Compute the cluster probabilities of each network."""
    hidden = elements.expand(len(weights[0][0]), -1, -1)
    for index, (weight, bias) in enumerate(weights):
        hidden = torch.baddbmm(bias, hidden if index == 0 else hidden.relu(), weight)
    return hidden.softmax(dim=2)


def _mean_over_pairs(cost: Float[Tensor, "R N N"]) -> Float[Tensor, " R"]:
    """Average over pairs of different elements; zero for a single element."""
    n = cost.shape[1]
    apart = cost.sum(dim=(1, 2)) - cost.diagonal(dim1=1, dim2=2).sum(dim=1)
    return apart / max(1, n * (n - 1))
