"""What a partition of points amounts to, and how its clusters are numbered."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot


def cluster_means(x: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Mean (K, D) of the points of each cluster; the overall mean where a cluster has none."""
    sizes = torch.bincount(labels, minlength=clusters).unsqueeze(1)
    sums = torch.zeros(clusters, x.shape[1], dtype=torch.float64, device=x.device)
    sums.index_add_(0, labels, x.double())
    overall = x.double().mean(dim=0)
    return torch.where(sizes > 0, sums / sizes.clamp_min(1), overall).to(x.dtype)


def by_size(labels: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
    """Rename clusters, any numbers from 0, to 0, 1, ... from the largest down, ties by their first member."""
    sizes = labels.bincount()
    place = torch.arange(len(labels), device=labels.device)
    first = torch.full_like(sizes, len(labels)).scatter_reduce_(0, labels, place, "amin")
    by_first = first.argsort()
    order = by_first[sizes[by_first].argsort(descending=True, stable=True)]
    return order.argsort()[labels]


def members_of(labels: Int[Tensor, "B N"], valid: Bool[Tensor, "B N"], dtype: torch.dtype) -> Float[Tensor, "B N K"]:
    """One where a point is of a cluster; there is always at least one cluster, be it empty."""
    known = valid & (labels >= 0)
    return one_hot(labels.clamp(min=0)).to(dtype) * known.unsqueeze(2)


def summed_up(
    h: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], member: Float[Tensor, "B N K"]
) -> tuple[Float[Tensor, "B K E"], Float[Tensor, "B K"]]:
    """Mean of the members of each cluster, and their share of all points."""
    count = member.sum(dim=1)
    mean = member.mT @ h / count.clamp(min=1).unsqueeze(2)
    return mean, count / valid.sum(dim=1, keepdim=True).clamp(min=1)
