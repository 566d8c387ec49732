"""Entropic optimal transport between the points of sets and a few references, in the log domain.

Among all plans with the given row and column masses, it maximises ⟨scores, plan⟩ plus the entropy of the plan. Scores
are similarities over the temperature, usually written as minus cost over epsilon.

Letters: B sets, N points, K references.
"""

import torch
from jaxtyping import Float
from torch import Tensor

LOG_ZERO = -1e4
"""Logarithm of mass zero: finite, since differences of infinities are undefined; its exponential is zero."""


def log_mass(mass: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Compute the logarithm of masses, finite and with a gradient even where a mass is zero."""
    positive = mass > 0
    return torch.where(positive, torch.where(positive, mass, 1.0).log(), LOG_ZERO)


def column_potentials(
    scores: Float[Tensor, "*B N K"], rows: Float[Tensor, "*B N"], columns: Float[Tensor, "*B K"], steps: int
) -> Float[Tensor, "*B K"]:
    """Compute the offset of each reference for which a softmax over references yields the column masses.

    Sinkhorn's algorithm with a fixed number of iterations, all differentiable. Rows and columns must have the same
    total mass; a mass of zero leaves the point or the reference out.
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
    """Compute the mass that goes from each point to each reference.

    With None one side is unconstrained and the plan has a closed form; with neither side constrained it is exp(scores).
    With both, points have their masses exactly and references approximately, up to the convergence of the iterations.
    """
    if columns is None:
        return scores.exp() if rows is None else rows.unsqueeze(-1) * scores.softmax(dim=-1)
    if rows is None:
        return columns.unsqueeze(-2) * scores.softmax(dim=-2)
    offset = column_potentials(scores, rows, columns, steps).unsqueeze(-2)
    return rows.unsqueeze(-1) * (scores + offset).softmax(dim=-1)
