"""CC: contrastive clustering (Li et al., 2021).

A network computes embeddings and cluster probabilities of two views of each row. Rows are contrasted by their
embeddings, and clusters by their columns of probabilities. A balance loss keeps all rows from joining one cluster.

Letters: N rows, D numbers of a row, F features of the encoder, E numbers of an embedding, K clusters.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import normalize

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.config import POSITIVE, EncoderConfig
from coterie.tcc.losses import balance_loss, info_nce
from coterie.tcc.model import ContrastiveModel, EmbeddingNetwork, projection_head
from coterie.validation import Constraints


def nt_xent(first: Float[Tensor, "N E"], second: Float[Tensor, "N E"], temperature: float) -> Float[Tensor, ""]:
    """Compute SimCLR's loss: InfoNCE in both directions, with both views of all other rows as negatives."""
    both = torch.cat((first, second))
    # A row's own two views are not negatives: one is the query itself, the other is the key.
    masked = torch.eye(len(first), dtype=torch.bool, device=first.device).repeat(1, 2)
    forward = info_nce(first, second, both, temperature, masked)
    backward = info_nce(second, first, both, temperature, masked)
    return (forward + backward).mean() / 2


@final
@dataclass(frozen=True, slots=True)
class CcConfig(EncoderConfig):
    """Configuration of a CC model; temperatures are as published."""

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
        **EncoderConfig.CONSTRAINTS,
        "temperature": POSITIVE,
        "cluster_temperature": POSITIVE,
    }
    HAS_PROTOTYPES: ClassVar[bool] = False

    temperature: float = 0.5  # temperature of the instance-level loss
    cluster_temperature: float = 1.0  # temperature of the cluster-level loss


@final
class CcModel(ContrastiveModel):
    """An embedding network with a second head for clusters."""

    Config: ClassVar[type[CcConfig]] = CcConfig
    config: CcConfig
    kmeans_init: ClassVar[bool] = False

    def __init__(self, config: CcConfig) -> None:
        super().__init__()
        self.config = config
        self.online = EmbeddingNetwork(config)
        self.clusters = projection_head(self.online.encoder.out_width, config.projection_hidden, config.n_clusters)

    @property
    def network(self) -> EmbeddingNetwork:
        """The embedding network."""
        return self.online

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Apply the cluster head to the encoded batch."""
        return self._probabilities(self.network.encode(x))

    def _probabilities(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N K"]:
        logits: Tensor = self.clusters(features)
        return logits.softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Sum the instance-level, cluster-level and balance losses."""
        features = [self.network.encode(view) for view in (batch.first, batch.second)]
        embedding, other_embedding = (self.network.project(each) for each in features)
        prob, other_prob = (self._probabilities(each) for each in features)
        column, other_column = (normalize(each.mT, dim=1) for each in (prob, other_prob))
        parts = {
            "instance": nt_xent(embedding, other_embedding, self.config.temperature),
            "cluster": nt_xent(column, other_column, self.config.cluster_temperature),
            "balance": balance_loss(prob) + balance_loss(other_prob),
        }
        return Loss(
            torch.stack(list(parts.values())).sum(), {name: float(part.detach()) for name, part in parts.items()}
        )

    def after_step(self) -> None:
        """No-op."""
