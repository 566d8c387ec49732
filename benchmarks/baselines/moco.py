"""MoCo (He et al., 2020), followed by k-means of the embeddings.

Each row is contrasted with rows of earlier batches, whose keys come from a momentum encoder. Clusters are not trained:
``set_prototypes`` is called with k-means centres, again whenever embeddings have changed.

Letters: N rows, D numbers of a row, E numbers of an embedding, K clusters.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import normalize

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.config import POSITIVE, EncoderConfig
from coterie.tcc.losses import instance_info_nce, max_mahalanobis_centres
from coterie.tcc.model import ContrastiveModel, EmbeddingNetwork, MemoryBank, as_momentum_copy, ema_update
from coterie.validation import BOOLEAN, FRACTION, Constraints, Integer


@final
@dataclass(frozen=True, slots=True)
class MocoConfig(EncoderConfig):
    """Configuration of a MoCo model."""

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
        **EncoderConfig.CONSTRAINTS,
        "temperature": POSITIVE,
        "assignment_temperature": POSITIVE,
        "momentum": FRACTION,
        "queue_size": Integer(0),
        "in_batch_negatives": BOOLEAN,
    }

    temperature: float = 0.5  # temperature of the InfoNCE loss
    assignment_temperature: float = 0.1  # softmax temperature of cluster probabilities
    momentum: float = 0.99  # decay of the momentum encoder; published is 0.999
    queue_size: int = 2048  # past keys that serve as negatives
    in_batch_negatives: bool = True
    """Whether the other keys of the batch are negatives too; published is the queue only."""


@final
class MocoModel(ContrastiveModel):
    """Online encoder, momentum encoder, queue, and prototypes that are not trained."""

    Config: ClassVar[type[MocoConfig]] = MocoConfig
    config: MocoConfig
    kmeans_init: ClassVar[bool] = True
    prototypes: Float[Tensor, "K E"]  # unit vectors; far apart until they are set

    def __init__(self, config: MocoConfig) -> None:
        super().__init__()
        self.config = config
        self.online = EmbeddingNetwork(config)
        self.momentum_encoder = as_momentum_copy(EmbeddingNetwork(config), self.online)
        self.queue = MemoryBank(config.queue_size, (config.embedding_dim,))
        self.register_buffer("prototypes", max_mahalanobis_centres(config.n_clusters, config.embedding_dim))
        self._new_keys: list[Tensor] = []

    @property
    def network(self) -> EmbeddingNetwork:
        """The online encoder."""
        return self.online

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute a softmax of the cosines with the prototypes."""
        embedding: Tensor = self.network(x)
        return (embedding @ self.prototypes.mT / self.config.assignment_temperature).softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Compute the InfoNCE loss."""
        config = self.config
        query: Tensor = self.online(batch.first)
        with torch.no_grad():
            key: Tensor = self.momentum_encoder(batch.second)
        queue, in_batch = self.queue.contents(), config.in_batch_negatives
        loss = instance_info_nce(query, key, queue, config.temperature, in_batch_negatives=in_batch)
        self._new_keys.append(key)
        return Loss(loss.mean())

    def after_step(self) -> None:
        """Update the momentum encoder and the queue."""
        ema_update(self.momentum_encoder, self.online, self.config.momentum)
        for key in self._new_keys:
            self.queue.enqueue(key)
        self._new_keys.clear()

    @torch.no_grad()
    def set_prototypes(self, centres: Float[Tensor, "K E"]) -> None:
        """Set the prototypes to normalised centres."""
        self.prototypes.copy_(normalize(centres, dim=1))
