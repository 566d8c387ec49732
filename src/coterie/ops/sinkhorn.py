"""Entropic optimal transport between the points of sets and a few references, in the log domain.

Of all plans that give every point and every reference its mass, the one is sought that makes ⟨scores, plan⟩ plus the
plan's entropy largest. Scores are similarities over the temperature: what the field writes as minus cost over epsilon.

Letters: B sets, N points, K references.
"""

import torch
from jaxtyping import Float
from torch import Tensor

NEVER = -1e4
"""Logarithm of a mass that is none: finite, since differences of infinities are undefined; its exponential is zero."""


def log_mass(mass: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Logarithm of masses, finite and with a gradient even where there is none."""
    some = mass > 0
    return torch.where(some, torch.where(some, mass, 1.0).log(), NEVER)


def column_potentials(
    scores: Float[Tensor, "*B N K"], rows: Float[Tensor, "*B N"], columns: Float[Tensor, "*B K"], steps: int
) -> Float[Tensor, "*B K"]:
    """What must be added to the scores of each reference so that softmax over references shares all points out.

    Sinkhorn's algorithm with a fixed number of steps, all of them differentiable. Both kinds of masses must have the
    same sum; a mass of zero is the same as leaving the point or the reference out.
    """
    log_rows, log_columns = log_mass(rows).unsqueeze(-1), log_mass(columns).unsqueeze(-2)
    potential = log_columns
    for _ in range(steps):
        of_points = log_rows - (scores + potential).logsumexp(dim=-1, keepdim=True)
        potential = log_columns - (scores + of_points).logsumexp(dim=-2, keepdim=True)
    return potential.squeeze(-2)


def transport_plan(
    scores: Float[Tensor, "*B N K"],
    rows: Float[Tensor, "*B N"] | None,
    columns: Float[Tensor, "*B K"] | None,
    steps: int = 10,
) -> Float[Tensor, "*B N K"]:
    """Mass that goes from each point to each reference.

    With None one side is free, and the plan has a closed form; with neither, it is the exponential of the scores. With
    both, references have their masses up to what the steps leave, and points have theirs exactly.
    """
    if columns is None:
        return scores.exp() if rows is None else rows.unsqueeze(-1) * scores.softmax(dim=-1)
    if rows is None:
        return columns.unsqueeze(-2) * scores.softmax(dim=-2)
    offset = column_potentials(scores, rows, columns, steps).unsqueeze(-2)
    return rows.unsqueeze(-1) * (scores + offset).softmax(dim=-1)
