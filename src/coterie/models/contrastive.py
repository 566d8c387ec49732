"""What methods share that learn from two views of every row: places of rows on a sphere, and probabilities of clusters.

Letters: N rows, D numbers of a row, E numbers of a place, K clusters.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from coterie.models.base import ClusterModel, settled
from coterie.nn.towers import Tower, TowerConfig
from coterie.ops.contrast import balance
from coterie.structures import Clustering, ViewBatch

BLOCK_ROWS = 1024
"""Rows that are looked at together once training is over."""


class ContrastiveModel(ClusterModel[ViewBatch], ABC):
    """Base of the models whose clusters are learned together with what rows look like, or begun where rows are."""

    config: TowerConfig
    begins_at_places: ClassVar[bool]
    """Whether clusters are begun in the middle of clusters of places, once rows alone have been learned from."""

    @property
    @abstractmethod
    def tower(self) -> Tower:
        """What looks at rows."""

    @abstractmethod
    def believed(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Probability of each cluster for each row, of some rows at once."""

    def learn_rows_alone(self, alone: bool) -> None:
        """Learn from rows alone from now on, or from clusters as well; the same for those that know no difference."""

    def begin_at(self, centres: Float[Tensor, "K E"]) -> None:
        """Put clusters where clusters of places are."""
        raise NotImplementedError(f"{type(self).__name__} begins its clusters by itself.")

    @torch.no_grad()
    def places(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Where rows are on the sphere."""
        with settled(self):
            return torch.cat([self.tower(part) for part in torch.split(x, BLOCK_ROWS)])

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Probability of each cluster for each row."""
        with settled(self):
            return torch.cat([self.believed(part) for part in torch.split(x, BLOCK_ROWS)])

    @torch.no_grad()
    def cluster(self, x: Float[Tensor, "N D"], generator: Generator) -> Clustering:  # noqa: ARG002  (nothing is drawn)
        """The likeliest cluster of each row; some may have none."""
        probabilities = self.memberships(x)
        return Clustering(probabilities.argmax(dim=1), self.config.n_clusters, probabilities)

    @torch.no_grad()
    def health(self, x: Float[Tensor, "N D"]) -> dict[str, float]:
        """Signs of a collapse: clusters without a row, and how far from even the shares of the others are."""
        probabilities = self.memberships(x)
        empty = self.config.n_clusters - len(torch.unique(probabilities.argmax(dim=1)))
        return {"empty": float(empty), "uneven": float(balance(probabilities))}
