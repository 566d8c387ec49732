"""Contrastive losses and the parts that TCC combines them from.

Similarities are inner products; normalise the vectors to get cosines.
Shapes: B independent problems, N rows, M negatives, K clusters, E embedding dimensions.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.ops.sinkhorn import LOG_ZERO, log_mass, transport_plan


def info_nce(
    query: Float[Tensor, "*B N E"],
    key: Float[Tensor, "*B N E"],
    negatives: Float[Tensor, "*B M E"],
    temperature: float,
    masked: Bool[Tensor, "N M"] | None = None,
) -> Float[Tensor, "*B N"]:
    """Compute the InfoNCE loss of each query against its own key and the negatives that are not masked."""
    similarity = query @ negatives.mT
    if masked is not None:
        similarity = similarity.masked_fill(masked, -torch.inf)
    logits = torch.cat(((query * key).sum(dim=-1, keepdim=True), similarity), dim=-1)
    return -(logits / temperature).log_softmax(dim=-1)[..., 0]


def instance_info_nce(
    query: Float[Tensor, "*B N E"],
    key: Float[Tensor, "*B N E"],
    queue: Float[Tensor, "*B M E"],
    temperature: float,
    *,
    in_batch_negatives: bool,
) -> Float[Tensor, "*B N"]:
    """Compute MoCo's InfoNCE loss of each query; negatives are the queue and, optionally, the other keys."""
    if not in_batch_negatives:
        return info_nce(query, key, queue, temperature)
    negatives = torch.cat((key, queue), dim=-2)
    own = torch.eye(key.shape[-2], negatives.shape[-2], dtype=torch.bool, device=key.device)
    return info_nce(query, key, negatives, temperature, own)


def gumbel_softmax(log_pi: Float[Tensor, "N K"], temperature: float, generator: Generator) -> Float[Tensor, "N K"]:
    """Sample relaxed cluster assignments c; at any temperature, the largest entry is k with probability pi(k)."""
    noise = torch.empty(log_pi.shape, dtype=log_pi.dtype, device=generator.device).exponential_(generator=generator)
    # The negative logarithm of an exponential variable is a Gumbel variable; the clamp avoids log(0).
    logits = log_pi - noise.to(log_pi.device).clamp(min=torch.finfo(log_pi.dtype).tiny).log()
    # Subtracting the maximum before the division prevents overflow and does not change the softmax.
    return ((logits - logits.detach().amax(dim=1, keepdim=True)) / temperature).softmax(dim=1)


def cluster_representations(weight: Float[Tensor, "N K"], embedding: Float[Tensor, "N E"]) -> Float[Tensor, "K E"]:
    """Compute r_k = normalise(sum_i weight_ik f(x_i)) (Eq. 6); zero, without a gradient, if the sum vanishes."""
    total = weight.mT @ embedding
    length = torch.linalg.vector_norm(total, dim=1, keepdim=True)
    # Squares of shorter vectors underflow.
    valid = length > math.sqrt(torch.finfo(total.dtype).tiny)
    return torch.where(valid, total / torch.where(valid, length, 1.0), 0.0)


def max_mahalanobis_centres(n_clusters: int, dim: int) -> Float[Tensor, "K E"]:
    """Return K unit vectors with pairwise cosines -1 / (K - 1), the corners of a regular simplex."""
    if n_clusters < 1 or dim < max(n_clusters - 1, 1):
        raise ConfigError(
            f"n_clusters={n_clusters} equidistant centres need at least 1 cluster and {max(n_clusters - 1, 1)} "
            f"dimensions; got dim={dim}."
        )
    centres = torch.zeros((n_clusters, dim), dtype=torch.float64)
    if n_clusters == 1:
        centres[0, 0] = 1.0
    else:
        corners, cosine = n_clusters - 1, -1 / (n_clusters - 1)
        gram = torch.full((corners, corners), cosine, dtype=torch.float64).fill_diagonal_(1.0)
        centres[:-1, :corners] = torch.linalg.cholesky(gram)
        centres[-1] = -centres[:-1].sum(dim=0)  # the corners sum to zero
    return centres.to(torch.get_default_dtype())


def kl_to_uniform(log_pi: Float[Tensor, "N K"]) -> Float[Tensor, " N"]:
    """Compute KL(pi || 1/K) of each row (Eq. 2): between 0 and log K."""
    finite = log_pi.clamp(min=LOG_ZERO)  # avoids 0 * inf
    return (finite.exp() * (finite + math.log(log_pi.shape[1]))).sum(dim=1)


def balance_loss(pi: Float[Tensor, "N K"]) -> Float[Tensor, ""]:
    """Compute KL(mean_i pi_i || 1/K), which is zero if all clusters have the same mass (CC)."""
    return kl_to_uniform(log_mass(pi.mean(dim=0, keepdim=True))).squeeze(0)


def sinkhorn_codes(scores: Float[Tensor, "N K"], epsilon: float, steps: int) -> Float[Tensor, "N K"]:
    """Compute balanced assignments (SwAV) without a gradient; rows sum to one, columns approximately to N / K."""
    rows, clusters = scores.shape
    return transport_plan(
        scores.detach() / epsilon, scores.new_ones(rows), scores.new_full((clusters,), rows / clusters), steps
    )
