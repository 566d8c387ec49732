"""How an anchored network says of every pair of points whether they are together: each point is the anchor once.

Letters: N points, E features, K clusters, A anchors, B sets.
"""

from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

ANCHORED_POINTS = 1 << 15
"""Pairs of an anchor and a point that are asked about at once."""


class Found(Protocol):
    """What is used of what filtering finds."""

    @property
    def logits(self) -> Float[Tensor, "R N"]:
        """Positive where a point is with the anchor of the row."""


class AnchoredNetwork(Protocol):
    """What the kernel asks of the network."""

    def filter_around(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"] | None, anchors: Int[Tensor, "B A"] | None
    ) -> Found:
        """Find the clusters of several anchors of each set."""


def pair_kernel(network: AnchoredNetwork, x: Float[Tensor, "N E"]) -> Float[Tensor, "N N"]:
    """Probability of each pair to be together, from the mean of the log-odds that each has around the other."""
    anchors = torch.arange(len(x), device=x.device)
    few = torch.split(anchors, max(1, ANCHORED_POINTS // len(x)))
    logits = torch.cat([network.filter_around(x.unsqueeze(0), None, part.unsqueeze(0)).logits for part in few])
    return torch.sigmoid((logits + logits.T) / 2)


def medoids(kernel: Float[Tensor, "N N"], cluster: Int[Tensor, " N"]) -> Int[Tensor, " K"]:
    """The point of each cluster that is most probably with the others of it; the first of equals."""
    members = one_hot(cluster).to(kernel.dtype)
    belonging = (kernel @ members) / members.sum(dim=0)
    return belonging.masked_fill(members == 0, -1.0).argmax(dim=0)
