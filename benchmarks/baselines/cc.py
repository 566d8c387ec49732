"""CC: contrastive clustering (Li et al., 2021).

Of each of two views of a batch, a network makes two tables: places on a sphere, and probabilities of clusters. Rows of
the first are told apart, and so are columns of the second: a cluster is how probable it is for each row of the batch,
and is to be recognised in what the other view makes of it. Shares of clusters are to be even, lest all rows join one.

Letters: N rows, D numbers of a row, F features of the encoder, K clusters.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import normalize

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.losses import balance, nt_xent
from coterie.tcc.model import ContrastiveModel, Tower, TowerConfig, head


@final
@dataclass(frozen=True, slots=True)
class CcConfig(TowerConfig):
    """Shape of a CC model, and its temperatures as published."""

    temperature: float = 0.5
    """Of the contrast of rows."""
    cluster_temperature: float = 1.0
    """Of the contrast of clusters."""

    def __post_init__(self) -> None:
        self.check_tower()
        self.check_above_zero("temperature", "cluster_temperature")


@final
class CcModel(ContrastiveModel):
    """A tower, and beside its projection another head, for clusters."""

    Config: ClassVar[type[CcConfig]] = CcConfig
    config: CcConfig
    begins_at_places: ClassVar[bool] = False

    def __init__(self, config: CcConfig) -> None:
        super().__init__()
        self.config = config
        self.network = Tower(config)
        self.clusters = head(self.network.encoder.out_width, config.hidden, config.n_clusters)

    @property
    def tower(self) -> Tower:
        """The only one."""
        return self.network

    def believed(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """By the head for clusters."""
        return self._assigned(self.tower.encoded(x))

    def _assigned(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N K"]:
        logits: Tensor = self.clusters(features)
        return logits.softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (nothing is drawn)
        """Surprise at rows and at clusters, and uneven shares, of both views."""
        features = [self.tower.encoded(view) for view in (batch.first, batch.second)]
        place, other_place = (self.tower.projected(each) for each in features)
        prob, other_prob = (self._assigned(each) for each in features)
        column, other_column = (normalize(each.mT, dim=1) for each in (prob, other_prob))
        parts = {
            "instance": nt_xent(place, other_place, self.config.temperature),
            "cluster": nt_xent(column, other_column, self.config.cluster_temperature),
            "uneven": balance(prob) + balance(other_prob),
        }
        return Loss(
            torch.stack(list(parts.values())).sum(), {name: float(part.detach()) for name, part in parts.items()}
        )

    def after_step(self) -> None:
        """Nothing: the gradient says it all."""
