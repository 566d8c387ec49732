"""MiCE: mixture of contrastive experts (Tsai et al., 2021), from the paper and its authors' code.

Each cluster has an expert, which sees all rows in its own way and tells them apart. A gate says which expert is to be
asked about a row. A row belongs to the expert that the gate names and that recognises the row in another view: the
posterior, which the likelihood of recognising it is made of. The other view is looked at by a twin, the teacher, whose
sights of earlier rows are remembered.

Published are three views of each row. There are two here: the gate sees the one that the experts see. Rows of the same
batch count among those that an expert tells a row apart from, unless ``in_batch`` is False: a memory begins empty here,
and not with random entries, and without anything to tell it apart from a row is no surprise, and teaches nothing.

Letters: N rows, D numbers of a row, E numbers of a place or of an expert's sight, K clusters.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize, one_hot

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.losses import spread_centres, told_apart
from coterie.tcc.model import ContrastiveModel, MemoryBank, Tower, TowerConfig, follow, twin_of


@final
@dataclass(frozen=True, slots=True)
class MiceConfig(TowerConfig):
    """Shape and variant of a MiCE model."""

    temperature: float = 1.0
    """Of the experts' contrast of rows."""
    gate_temperature: float = 1.0
    """What the gate's cosines are divided by before they become probabilities."""
    momentum: float = 0.99
    """Share of itself that the teacher keeps in a step; published is 0.999."""
    memory: int = 1024
    """Rows that are remembered, each as all experts see it; published is 16,384."""
    in_batch: bool = True
    """Whether rows are told apart from those of their own batch too; published is only from remembered ones."""
    refreshed_every: int = 100
    """Steps after which the middles of clusters are made anew; published is one epoch."""

    def __post_init__(self) -> None:
        self.check_tower()
        self.check_room_for_prototypes()
        self.check_above_zero("temperature", "gate_temperature")
        self.check_at_least(memory=0, refreshed_every=1)
        self.check_share("momentum")


class Seen(NamedTuple):
    """What one side makes of rows."""

    place: Float[Tensor, "N E"]
    """Which the gate goes by."""
    sights: Float[Tensor, "N K E"]
    """One unit vector of each expert."""


class Side(nn.Module):
    """Student or teacher: a tower, whose projection is for the gate, and experts beside it."""

    def __init__(self, config: MiceConfig) -> None:
        super().__init__()
        self.tower = Tower(config)
        self.shape = (config.n_clusters, config.width)
        self.experts = nn.Linear(self.tower.encoder.out_width, config.n_clusters * config.width)

    def forward(self, x: Float[Tensor, "N D"]) -> Seen:
        """Look at rows."""
        features = self.tower.encoded(x)
        sights = normalize(self.experts(features).unflatten(1, self.shape), dim=2)
        return Seen(self.tower.projected(features), sights)


@final
class MiceModel(ContrastiveModel):
    """Student and teacher, a gate, and the middles of clusters as their experts see them."""

    Config: ClassVar[type[MiceConfig]] = MiceConfig
    config: MiceConfig
    begins_at_places: ClassVar[bool] = False
    gate: Float[Tensor, "K E"]
    """ω: prototypes of the gate, as far apart as can be, and always the same."""
    sums: Float[Tensor, "K E"]
    """Of what each expert's teacher saw of the rows that were its own, since middles were made anew."""
    steps: Int[Tensor, ""]
    """That were made; saved with the model like the sums, so that training which goes on refreshes at its time."""

    def __init__(self, config: MiceConfig) -> None:
        super().__init__()
        self.config = config
        self.online = Side(config)
        self.twin = twin_of(self.online, Side(config))
        self.instances = MemoryBank(config.memory, (config.n_clusters, config.width))
        self.middles = nn.Parameter(spread_centres(config.n_clusters, config.width))
        """μ: of each cluster, as its expert sees it; of length one where they are used."""
        self.register_buffer("gate", spread_centres(config.n_clusters, config.width))
        self.register_buffer("sums", torch.zeros(config.n_clusters, config.width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._new: list[tuple[Tensor, Tensor]] = []

    @property
    def tower(self) -> Tower:
        """The student's; places are those that the gate goes by."""
        return self.online.tower

    def believed(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """The posterior, with a teacher that sees the same and what is remembered; if that is nothing, the gate's."""
        return self.log_joint(self.online(x), self.twin(x).sights, in_batch=False).softmax(dim=1)

    def log_joint(self, seen: Seen, known: Float[Tensor, "N K E"], *, in_batch: bool) -> Float[Tensor, "N K"]:
        """Logarithm of how likely the gate is to name each expert, times how likely this one is to know the row."""
        config = self.config
        log_gate = (seen.place @ self.gate.mT / config.gate_temperature).log_softmax(dim=1)
        sought = seen.sights + normalize(self.middles, dim=1)
        # Experts come first: each compares what it sees itself.
        query, key, remembered = (each.transpose(0, 1) for each in (sought, known, self.instances.held()))
        return log_gate - told_apart(query, key, remembered, config.temperature, in_batch=in_batch).mT

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (nothing is drawn)
        """What is lost to the bound on the likelihood; with the exact posterior, it is the likelihood itself.

        The published bound is a mean over the posterior, through which its gradient flows too. The sum of the joint
        probabilities is the same number, and has the same gradient.
        """
        seen: Seen = self.online(batch.first)
        with torch.no_grad():
            known: Seen = self.twin(batch.second)
        log_joint = self.log_joint(seen, known.sights, in_batch=self.config.in_batch)
        self._new.append((known.sights, log_joint.detach().argmax(dim=1)))
        return Loss(-log_joint.logsumexp(dim=1).mean())

    @torch.no_grad()
    def after_step(self) -> None:
        """Let the teacher follow, remember what it saw, and now and then make the middles of clusters anew."""
        follow(self.twin, self.online, self.config.momentum)
        for sights, label in self._new:
            self.instances.add(sights)
            self.sums.add_(torch.einsum("nk,nke->ke", one_hot(label, self.config.n_clusters).to(sights), sights))
        self._new.clear()
        self.steps.add_(1)
        if int(self.steps) % self.config.refreshed_every == 0:
            some = self.sums.any(dim=1, keepdim=True)  # a cluster without rows stays where it is
            self.middles.copy_(torch.where(some, normalize(self.sums, dim=1), self.middles))
            self.sums.zero_()
