"""What a partition of points amounts to."""

import torch
from torch import Tensor


def cluster_means(x: Tensor, labels: Tensor, clusters: int) -> Tensor:
    """Mean (K, D) of the points of each cluster; the overall mean where a cluster has none."""
    sizes = torch.bincount(labels, minlength=clusters).unsqueeze(1)
    sums = torch.zeros(clusters, x.shape[1], dtype=torch.float64, device=x.device)
    sums.index_add_(0, labels, x.double())
    overall = x.double().mean(dim=0)
    return torch.where(sizes > 0, sums / sizes.clamp_min(1), overall).to(x.dtype)
