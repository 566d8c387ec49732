"""Mixing of the points of sets with references: expectation and maximisation for a mixture of unit Gaussians.

The expectation step is a transport plan from points to references. Without a say about how much each reference gets it
is the usual one; with it, the step is optimal transport. Either way who belongs to whom is a softmax of scores plus one
number for each reference, so that points which took no part can be asked about too.

Letters: B sets, N points, K references, E numbers that describe a point, R numbers that a reference is made from.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from coterie.ops.sinkhorn import column_potentials, log_mass


def quadratic_scores(x: Float[Tensor, "*B N E"], mean: Float[Tensor, "*B K E"]) -> Float[Tensor, "*B N K"]:
    """Minus half the squared distance of every point and reference, without an (N, K, E) tensor."""
    # Around the references, since squares of numbers far from zero would leave no digits for their differences.
    centre = mean.mean(dim=-2, keepdim=True)
    x, mean = x - centre, mean - centre
    squares = x.square().sum(dim=-1, keepdim=True) + mean.square().sum(dim=-1).unsqueeze(-2)
    return (x @ mean.mT - 0.5 * squares).clamp(max=0.0)


def expectation(
    scores: Float[Tensor, "*B N K"], mass: Float[Tensor, "*B N"], share: Float[Tensor, "*B K"], transport_steps: int
) -> tuple[Float[Tensor, "*B N K"], Float[Tensor, "*B K"]]:
    """Responsibilities of the references for the points, and what was added to the scores of each reference for them.

    A point counts by its mass and, if it has some, its responsibilities sum to one. Shares sum to one; without steps of
    transport they are only what is expected beforehand, with some they are what the references must get.
    """
    offset = log_mass(share)
    if transport_steps:
        whole = mass.sum(dim=-1, keepdim=True)
        offset = column_potentials(scores, mass, share * whole, transport_steps)
    return (scores + offset.unsqueeze(-2)).softmax(dim=-1) * (mass > 0).unsqueeze(-1), offset


def weighted_means(
    x: Float[Tensor, "*B N E"],
    weight: Float[Tensor, "*B N K"],
    prior: Float[Tensor, "*B K E"],
    strength: float,
) -> Float[Tensor, "*B K E"]:
    """The maximisation step in closed form; the prior counts as so many points."""
    total = weight.sum(dim=-2).unsqueeze(-1)
    return (weight.mT @ x + strength * prior) / (total + strength)


def gradient_step(
    decode: Callable[[Tensor], Tensor],
    reference: Float[Tensor, "*B K R"],
    x: Float[Tensor, "*B N E"],
    weight: Float[Tensor, "*B N K"],
    rate: float,
) -> Float[Tensor, "*B K R"]:
    """The maximisation step where means are decoded from references: one step uphill in the likelihood of the points.

    The gradient of each reference is divided by the weight that it has, and is itself differentiable.
    """
    mean: Tensor
    mean, pulled_back = torch.func.vjp(decode, reference)  # type: ignore[misc]  # typed as if it gave more
    total = weight.sum(dim=-2).unsqueeze(-1)
    residual = (weight.mT @ x - total * mean) / total.clamp(min=torch.finfo(total.dtype).tiny)
    (uphill,) = pulled_back(residual)
    moved: Tensor = reference + rate * uphill
    return moved


def evidence_bound(
    scores: Float[Tensor, "*B N K"], share: Float[Tensor, "*B K"], responsibility: Float[Tensor, "*B N K"]
) -> Float[Tensor, "*B"]:
    """Jensen's lower bound on the log-likelihood of the points that anyone is responsible for."""
    joint = scores + log_mass(share).unsqueeze(-2)
    bound: Tensor = responsibility * joint - torch.special.xlogy(responsibility, responsibility)
    return bound.sum(dim=(-2, -1))
