"""SwAV (Caron et al., 2020) with one prototype per cluster.

Balanced assignments of one view, computed by Sinkhorn's algorithm over the batch, are predicted from the other view.
Multi-crop and the queue are left out: there are few prototypes here.

Shapes: N rows, D input features, E embedding dimensions, K clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.config import POSITIVE, EncoderConfig
from coterie.tcc.losses import max_mahalanobis_centres, sinkhorn_codes
from coterie.tcc.model import ContrastiveModel, EmbeddingNetwork
from coterie.validation import Constraints, Integer


@final
@dataclass(frozen=True, slots=True)
class SwavConfig(EncoderConfig):
    """Configuration of a SwAV model."""

    CONSTRAINTS: ClassVar[Mapping[str, Constraints]] = EncoderConfig.CONSTRAINTS | {
        "temperature": POSITIVE,
        "epsilon": POSITIVE,
        "sinkhorn_steps": Integer(0),
        "frozen_steps": Integer(0),
    }

    temperature: float = 0.1
    """Softmax temperature of the predictions."""
    epsilon: float = 0.05
    """Temperature of the codes."""
    sinkhorn_steps: int = 3
    """Iterations of Sinkhorn's algorithm."""
    frozen_steps: int = 100
    """Steps before the prototypes are trained; published is one epoch."""


@final
class SwavModel(ContrastiveModel):
    """Encoder, projection head and unit prototypes."""

    Config: ClassVar[type[SwavConfig]] = SwavConfig
    config: SwavConfig
    kmeans_init: ClassVar[bool] = False
    steps: Int[Tensor, ""]
    """Steps so far; part of the state dict, so that a resumed run knows whether the prototypes are frozen."""

    def __init__(self, config: SwavConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = EmbeddingNetwork(config)
        self.prototypes = nn.Parameter(max_mahalanobis_centres(config.n_clusters, config.embedding_dim))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @property
    def network(self) -> EmbeddingNetwork:
        """The only encoder."""
        return self.backbone

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute a softmax over the cosines with the prototypes."""
        embedding: Tensor = self.network(x)
        return (embedding @ self.prototypes.mT / self.config.temperature).softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Compute the mean cross-entropy with the codes of the other view, over both views."""
        frozen = int(self.steps) < self.config.frozen_steps
        prototypes = self.prototypes.detach() if frozen else self.prototypes
        first, second = (self.network(view) @ prototypes.mT for view in (batch.first, batch.second))
        return Loss((self._swapped_loss(first, second) + self._swapped_loss(second, first)) / 2)

    def _swapped_loss(self, predicted: Float[Tensor, "N K"], target: Float[Tensor, "N K"]) -> Float[Tensor, ""]:
        codes = sinkhorn_codes(target, self.config.epsilon, self.config.sinkhorn_steps)
        return cross_entropy(predicted / self.config.temperature, codes)

    @torch.no_grad()
    def after_step(self) -> None:
        """Normalise the prototypes, and count the step."""
        self.prototypes.copy_(normalize(self.prototypes, dim=1))
        self.steps.add_(1)
