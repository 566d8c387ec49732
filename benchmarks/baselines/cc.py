"""CC: contrastive clustering (Li et al., 2021).

A network computes embeddings and assignment probabilities of two views. Rows of the first are contrasted, and columns
of the second: a cluster is represented by its probabilities over the batch. A balance term prevents collapse.

Shapes: N rows, D input features, F encoder features, K clusters.
"""

from collections.abc import Mapping
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


@final
@dataclass(frozen=True, slots=True)
class CcConfig(EncoderConfig):
    """Configuration of a CC model, with the published temperatures."""

    CONSTRAINTS: ClassVar[Mapping[str, Constraints]] = EncoderConfig.CONSTRAINTS | {
        "temperature": POSITIVE,
        "cluster_temperature": POSITIVE,
    }
    HAS_PROTOTYPES: ClassVar[bool] = False

    temperature: float = 0.5
    """Temperature of the instance-level loss."""
    cluster_temperature: float = 1.0
    """Temperature of the cluster-level loss."""


def nt_xent(first: Float[Tensor, "N E"], second: Float[Tensor, "N E"], temperature: float) -> Float[Tensor, ""]:
    """Compute SimCLR's NT-Xent loss: InfoNCE of both views of all rows among all other views, averaged."""
    both = torch.cat((first, second))
    # A row's own two views are masked: one is the query itself, the other is the key.
    masked = torch.eye(len(first), dtype=torch.bool, device=first.device).repeat(1, 2)
    forth = info_nce(first, second, both, temperature, masked)
    back = info_nce(second, first, both, temperature, masked)
    return (forth + back).mean() / 2


@final
class CcModel(ContrastiveModel):
    """Encoder with a projection head and a cluster head."""

    Config: ClassVar[type[CcConfig]] = CcConfig
    config: CcConfig
    kmeans_init: ClassVar[bool] = False

    def __init__(self, config: CcConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = EmbeddingNetwork(config)
        self.cluster_head = projection_head(
            self.backbone.encoder.out_width, config.projection_hidden, config.n_clusters
        )

    @property
    def network(self) -> EmbeddingNetwork:
        """The only encoder."""
        return self.backbone

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Apply the cluster head."""
        return self._assign(self.network.encode(x))

    def _assign(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N K"]:
        logits: Tensor = self.cluster_head(features)
        return logits.softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Sum the instance-level, cluster-level and balance losses of both views."""
        features = [self.network.encode(view) for view in (batch.first, batch.second)]
        first, second = (self.network.project(each) for each in features)
        pi, other_pi = (self._assign(each) for each in features)
        column, other_column = (normalize(each.mT, dim=1) for each in (pi, other_pi))
        parts = {
            "instance": nt_xent(first, second, self.config.temperature),
            "cluster": nt_xent(column, other_column, self.config.cluster_temperature),
            "balance": balance_loss(pi) + balance_loss(other_pi),
        }
        return Loss(
            torch.stack(list(parts.values())).sum(), {name: float(part.detach()) for name, part in parts.items()}
        )

    def after_step(self) -> None:
        """No-op."""
