"""SwAV (Caron et al., 2020) with one prototype per cluster.

The assignment of one view of a row is predicted from the other view. All rows of a batch are assigned jointly, in equal
parts to the prototypes, so that these cannot collapse. Multi-crop is left out, and so is the queue that SwAV uses to
assign a small batch to many prototypes: there are few prototypes here.

Letters: N rows, D numbers of a row, E numbers of an embedding, K clusters.
"""

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

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
        **EncoderConfig.CONSTRAINTS,
        "temperature": POSITIVE,
        "epsilon": POSITIVE,
        "sinkhorn_steps": Integer(0),
        "frozen_steps": Integer(0),
    }

    temperature: float = 0.1  # softmax temperature of predictions
    epsilon: float = 0.05  # temperature of assignments
    sinkhorn_steps: int = 3
    frozen_steps: int = 100
    """Steps before prototypes are trained, since first embeddings mean little; published is one epoch."""


@final
class SwavModel(ContrastiveModel):
    """An embedding network and unit prototypes."""

    Config: ClassVar[type[SwavConfig]] = SwavConfig
    config: SwavConfig
    kmeans_init: ClassVar[bool] = False
    steps: Int[Tensor, ""]  # steps so far; a buffer, so that resumed training knows when to train the prototypes

    def __init__(self, config: SwavConfig) -> None:
        super().__init__()
        self.config = config
        self.online = EmbeddingNetwork(config)
        self.prototypes = nn.Parameter(max_mahalanobis_centres(config.n_clusters, config.embedding_dim))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @property
    def network(self) -> EmbeddingNetwork:
        """The embedding network."""
        return self.online

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute a softmax of the cosines with the prototypes."""
        embedding: Tensor = self.network(x)
        return (embedding @ self.prototypes.mT / self.config.temperature).softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Compute the swapped prediction loss of both views."""
        frozen = int(self.steps) < self.config.frozen_steps
        prototypes = self.prototypes.detach() if frozen else self.prototypes
        first, second = (self.network(view) @ prototypes.mT for view in (batch.first, batch.second))
        return Loss((self._cross_entropy(first, second) + self._cross_entropy(second, first)) / 2)

    def _cross_entropy(self, scores: Float[Tensor, "N K"], other: Float[Tensor, "N K"]) -> Float[Tensor, ""]:
        codes = sinkhorn_codes(other, self.config.epsilon, self.config.sinkhorn_steps)
        return cross_entropy(scores / self.config.temperature, codes)

    @torch.no_grad()
    def after_step(self) -> None:
        """Normalise the prototypes and count the step."""
        self.prototypes.copy_(normalize(self.prototypes, dim=1))
        self.steps.add_(1)
