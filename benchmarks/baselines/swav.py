"""SwAV (Caron et al., 2020) with as many prototypes as there are clusters.

What one view of a row is assigned to is to be foreseen from the other view. All rows of a batch are assigned together,
and shared out equally among the prototypes: so these cannot all become one.

Left out are small crops beside the two views, and the memory that lets a small batch be shared out among many
prototypes: there are few prototypes here, one for each cluster.

Letters: N rows, D numbers of a row, E numbers of a place, K clusters.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.losses import spread_centres, swapped_codes
from coterie.tcc.model import ContrastiveModel, Tower, TowerConfig


@final
@dataclass(frozen=True, slots=True)
class SwavConfig(TowerConfig):
    """Shape and variant of a SwAV model."""

    temperature: float = 0.1
    """What cosines with prototypes are divided by before they become probabilities."""
    epsilon: float = 0.05
    """What they are divided by before they become assignments."""
    sinkhorn_steps: int = 3
    """In which assignments come near to equal shares."""
    frozen_steps: int = 100
    """Steps before prototypes begin to move, since places make little sense at first; published is one epoch."""

    def __post_init__(self) -> None:
        self.check_tower()
        self.check_room_for_prototypes()
        self.check_above_zero("temperature", "epsilon")
        self.check_at_least(sinkhorn_steps=0, frozen_steps=0)


@final
class SwavModel(ContrastiveModel):
    """A tower, and prototypes of length one."""

    Config: ClassVar[type[SwavConfig]] = SwavConfig
    config: SwavConfig
    begins_at_places: ClassVar[bool] = False
    steps: Int[Tensor, ""]
    """That were made; saved with the model, so that training which goes on knows when prototypes may move."""

    def __init__(self, config: SwavConfig) -> None:
        super().__init__()
        self.config = config
        self.network = Tower(config)
        self.prototypes = nn.Parameter(spread_centres(config.n_clusters, config.width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @property
    def tower(self) -> Tower:
        """The only one."""
        return self.network

    def believed(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """By the angles of places with the prototypes."""
        place: Tensor = self.tower(x)
        return (place @ self.prototypes.mT / self.config.temperature).softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (nothing is drawn)
        """Surprise at what the other view is assigned to, of both views."""
        frozen = int(self.steps) < self.config.frozen_steps
        prototypes = self.prototypes.detach() if frozen else self.prototypes
        first, second = (self.tower(view) @ prototypes.mT for view in (batch.first, batch.second))
        return Loss((self._surprise(first, second) + self._surprise(second, first)) / 2)

    def _surprise(self, seen: Float[Tensor, "N K"], assigned: Float[Tensor, "N K"]) -> Float[Tensor, ""]:
        codes = swapped_codes(assigned, self.config.epsilon, self.config.sinkhorn_steps)
        return cross_entropy(seen / self.config.temperature, codes)

    @torch.no_grad()
    def after_step(self) -> None:
        """Bring the prototypes back to length one, and count the step."""
        self.prototypes.copy_(normalize(self.prototypes, dim=1))
        self.steps.add_(1)
