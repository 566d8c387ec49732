"""MoCo (He et al., 2020), and k-means of what it has learned: rows are told apart, and clusters are where places crowd.

Every row is to be recognised in another view, among rows that were seen before. The other view is looked at by a twin,
which follows slowly. Nothing is learned of clusters: who trains the model says where they are, by ``begin_at``, and
says it again when places have moved, for prototypes stay where they are put.

Letters: N rows, D numbers of a row, E numbers of a place, K clusters.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import normalize

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.losses import spread_centres, told_apart
from coterie.tcc.model import ContrastiveModel, MemoryBank, Tower, TowerConfig, follow, twin_of


@final
@dataclass(frozen=True, slots=True)
class MocoConfig(TowerConfig):
    """Shape and variant of a MoCo model."""

    temperature: float = 0.5
    """Of the contrast of rows."""
    sharpness: float = 0.1
    """What cosines with prototypes are divided by before they become probabilities."""
    momentum: float = 0.99
    """Share of itself that the twin keeps in a step; published is 0.999."""
    memory: int = 2048
    """Rows that are remembered."""
    in_batch: bool = True
    """Whether rows are told apart from those of their own batch too; published is only from remembered ones."""

    def __post_init__(self) -> None:
        self.check_tower()
        self.check_room_for_prototypes()
        self.check_above_zero("temperature", "sharpness")
        self.check_at_least(memory=0)
        self.check_share("momentum")


@final
class MocoModel(ContrastiveModel):
    """A tower, its twin, what the twin saw, and where clusters were put."""

    Config: ClassVar[type[MocoConfig]] = MocoConfig
    config: MocoConfig
    begins_at_places: ClassVar[bool] = True
    prototypes: Float[Tensor, "K E"]
    """Unit vectors in the middle of clusters; far apart until they are put there."""

    def __init__(self, config: MocoConfig) -> None:
        super().__init__()
        self.config = config
        self.online = Tower(config)
        self.twin = twin_of(self.online, Tower(config))
        self.instances = MemoryBank(config.memory, (config.width,))
        self.register_buffer("prototypes", spread_centres(config.n_clusters, config.width))
        self._new: list[Tensor] = []

    @property
    def tower(self) -> Tower:
        """The one that learns."""
        return self.online

    def believed(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """By the angles of places with the prototypes."""
        place: Tensor = self.tower(x)
        return (place @ self.prototypes.mT / self.config.sharpness).softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (nothing is drawn)
        """Surprise at where the twin sees the other view."""
        config = self.config
        place: Tensor = self.online(batch.first)
        with torch.no_grad():
            known: Tensor = self.twin(batch.second)
        surprise = told_apart(place, known, self.instances.held(), config.temperature, in_batch=config.in_batch)
        self._new.append(known)
        return Loss(surprise.mean())

    def after_step(self) -> None:
        """Let the twin follow, and remember what it saw."""
        follow(self.twin, self.online, self.config.momentum)
        for known in self._new:
            self.instances.add(known)
        self._new.clear()

    @torch.no_grad()
    def begin_at(self, centres: Float[Tensor, "K E"]) -> None:
        """Put the prototypes where clusters of places are."""
        self.prototypes.copy_(normalize(centres, dim=1))
