"""What the models share that describe a set by a mixture of Gaussians.

Letters: B sets, N points, D features, K components.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from coterie.models.base import SetModel
from coterie.ops.mixture import Mixtures, joint_of
from coterie.structures import Clustering


class MixtureModel(SetModel, ABC):
    """Base of the models that make one mixture of each set; each component that wins points is a cluster."""

    @abstractmethod
    def find(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Mixtures:
        """Mixture that each set is described by."""

    @torch.no_grad()
    def cluster_sets(
        self,
        x: Float[Tensor, "B N D"],
        valid: Bool[Tensor, "B N"],
        generator: Generator,  # noqa: ARG002  (nothing is drawn)
    ) -> list[Clustering]:
        """Give each point to its most probable component; components without points are dropped."""
        return self.find(x, valid).clusterings(x, valid)

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Posterior probabilities of the components that were kept."""
        return joint_of(x, found.extras).softmax(dim=1)


def mean_surprise(mixtures: Mixtures, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, ""]:
    """Minus the log-likelihood of a point, on average over the points of a set and then over the sets."""
    log_density = mixtures.joint(x.masked_fill(~valid.unsqueeze(2), 0.0)).logsumexp(dim=2) * valid
    return -(log_density.sum(dim=1) / valid.sum(dim=1).clamp(min=1)).mean()
