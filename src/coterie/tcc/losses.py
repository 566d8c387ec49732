"""Contrast of instances and of clusters: what TCC, MoCo, MiCE, CC and SwAV put their losses together from.

Temperatures are above 0, as the configurations of models see to. Rows are compared by their inner product; who wants
cosines gives rows of length one.

Letters: B kinds of descriptions that are compared apart, N rows, M rows that others are told apart from, K clusters, E
numbers that describe a row or a cluster.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.ops.sinkhorn import NEVER, log_mass, transport_plan


def info_nce(
    query: Float[Tensor, "*B N E"],
    key: Float[Tensor, "*B N E"],
    others: Float[Tensor, "*B M E"],
    temperature: float,
    masked: Bool[Tensor, "N M"] | None = None,
) -> Float[Tensor, "*B N"]:
    """How surprising it is that each query's key is the one of all candidates that goes with it.

    Candidates are its own key and the others, save those masked for it: keys of other queries are none unless they are
    among the others.
    """
    against = query @ others.mT
    if masked is not None:
        against = against.masked_fill(masked, -torch.inf)
    logits = torch.cat(((query * key).sum(dim=-1, keepdim=True), against), dim=-1)
    return -(logits / temperature).log_softmax(dim=-1)[..., 0]


def told_apart(
    query: Float[Tensor, "*B N E"],
    key: Float[Tensor, "*B N E"],
    remembered: Float[Tensor, "*B M E"],
    temperature: float,
    *,
    in_batch: bool,
) -> Float[Tensor, "*B N"]:
    """How surprising each query's key is among remembered ones, and among the other keys if these count (MoCo)."""
    if not in_batch:
        return info_nce(query, key, remembered, temperature)
    others = torch.cat((key, remembered), dim=-2)
    own = torch.eye(key.shape[-2], others.shape[-2], dtype=torch.bool, device=key.device)
    return info_nce(query, key, others, temperature, own)


def nt_xent(first: Float[Tensor, "N E"], second: Float[Tensor, "N E"], temperature: float) -> Float[Tensor, ""]:
    """Mean over both views of all rows of how surprising the other view is among all views but this one (SimCLR)."""
    both = torch.cat((first, second))
    # Of the 2N candidates a row's own two views are left out: one is the query itself, the other comes as the key.
    masked = torch.eye(len(first), dtype=torch.bool, device=first.device).repeat(1, 2)
    forth = info_nce(first, second, both, temperature, masked)
    back = info_nce(second, first, both, temperature, masked)
    return (forth + back).mean() / 2


def gumbel_softmax(log_prob: Float[Tensor, "N K"], temperature: float, generator: Generator) -> Float[Tensor, "N K"]:
    """One draw of a cluster for each row, relaxed; the lower the temperature, the nearer to a single cluster.

    The largest share falls to each cluster with its probability, whatever the temperature.
    """
    waits = torch.empty(log_prob.shape, dtype=log_prob.dtype, device=generator.device).exponential_(generator=generator)
    # The logarithm of an exponential variable is a Gumbel's, negated; a draw of zero would be infinite.
    noisy = log_prob - waits.to(log_prob.device).clamp(min=torch.finfo(log_prob.dtype).tiny).log()
    # Softmax does not see what all have in common; taken off before the division, nothing becomes infinite by it.
    return ((noisy - noisy.detach().amax(dim=1, keepdim=True)) / temperature).softmax(dim=1)


def cluster_representations(weight: Float[Tensor, "N K"], features: Float[Tensor, "N E"]) -> Float[Tensor, "K E"]:
    """Sum of the features of each cluster's rows, by their weights in it, brought to length one (TCC).

    Zeros, and flat, for a cluster without rows, or whose rows cancel each other.
    """
    total = weight.mT @ features
    length = torch.linalg.vector_norm(total, dim=1, keepdim=True)
    # Squares of what is shorter vanish, and so would the length.
    some = length > math.sqrt(torch.finfo(total.dtype).tiny)
    return torch.where(some, total / torch.where(some, length, 1.0), 0.0)


def spread_centres(n_clusters: int, width: int) -> Float[Tensor, "K E"]:
    """Centres as far from each other as can be: unit vectors whose cosines are all -1 / (K - 1) (max-Mahalanobis).

    The corners of a simplex around the origin, always the same; features beyond the first K - 1 are zero.
    """
    if n_clusters < 1 or width < max(n_clusters - 1, 1):
        raise ConfigError(
            f"{n_clusters} centres cannot be equally far apart with {width} features: give at least 1 cluster, and "
            f"width at least {max(n_clusters - 1, 1)}."
        )
    centres = torch.zeros((n_clusters, width), dtype=torch.float64)
    if n_clusters == 1:
        centres[0, 0] = 1.0
    else:
        corners, cosine = n_clusters - 1, -1 / (n_clusters - 1)
        products = torch.full((corners, corners), cosine, dtype=torch.float64).fill_diagonal_(1.0)
        centres[:-1, :corners] = torch.linalg.cholesky(products)
        centres[-1] = -centres[:-1].sum(dim=0)  # corners of a simplex add up to nothing
    return centres.to(torch.get_default_dtype())


def kl_to_uniform(log_prob: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """Kullback-Leibler divergence of each row's probabilities from all clusters alike: zero there, log K at most."""
    held = log_prob.clamp(min=NEVER)  # what has probability zero adds nothing, not zero times infinity
    return (held.exp() * (held + math.log(log_prob.shape[1]))).sum(dim=1)


def balance(prob: Float[Tensor, "N K"]) -> Float[Tensor, ""]:
    """How far the clusters are from having equal shares of all rows: log K minus the entropy of their shares (CC)."""
    return kl_to_uniform(log_mass(prob.mean(dim=0, keepdim=True))).squeeze(0)


def swapped_codes(scores: Float[Tensor, "N K"], epsilon: float, steps: int) -> Float[Tensor, "N K"]:
    """Memberships that share all rows out equally among the clusters, for another view to predict (SwAV).

    Each row's sum to one exactly; each cluster's sum to N / K up to what the steps leave. Epsilon is the temperature of
    the scores. As targets, they let no gradient through.
    """
    rows, clusters = scores.shape
    return transport_plan(
        scores.detach() / epsilon, scores.new_ones(rows), scores.new_full((clusters,), rows / clusters), steps
    )
