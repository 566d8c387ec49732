"""MiCE: mixture of contrastive experts (Tsai et al., 2021), after the paper and its authors' code.

Each cluster has an expert that embeds all rows. A gate assigns a row to experts; the posterior multiplies the gate's
probability by the expert's probability of recognising the row in the momentum encoder's embedding of another view.

Published are three views per row; here are two, and the gate uses that of the experts. Other rows of the batch are
negatives too, unless ``in_batch_negatives`` is False, since the queue starts empty here instead of random.

Shapes: N rows, D input features, E embedding dimensions, K clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize, one_hot

from coterie.nn.model import Loss, ViewBatch
from coterie.tcc.config import POSITIVE, EncoderConfig
from coterie.tcc.losses import instance_info_nce, max_mahalanobis_centres
from coterie.tcc.model import ContrastiveModel, EmbeddingNetwork, MemoryBank, as_momentum_copy, ema_update
from coterie.validation import FRACTION, Constraints, Integer


@final
@dataclass(frozen=True, slots=True)
class MiceConfig(EncoderConfig):
    """Configuration of a MiCE model."""

    CONSTRAINTS: ClassVar[Mapping[str, Constraints]] = EncoderConfig.CONSTRAINTS | {
        "temperature": POSITIVE,
        "gate_temperature": POSITIVE,
        "momentum": FRACTION,
        "queue_size": Integer(0),
        "refresh_steps": Integer(1),
    }

    temperature: float = 1.0
    """Temperature of the experts' InfoNCE."""
    gate_temperature: float = 1.0
    """Softmax temperature of the gate."""
    momentum: float = 0.99
    """Decay of the momentum encoder; published is 0.999."""
    queue_size: int = 1024
    """Past keys of all experts that serve as negatives; published is 16,384."""
    in_batch_negatives: bool = True
    """Whether the other rows of the batch are negatives too; published is the queue only."""
    refresh_steps: int = 100
    """Steps between updates of the expert prototypes; published is one epoch."""


class ExpertOutput(NamedTuple):
    """What a branch computes from a view."""

    gate_embedding: Float[Tensor, "N E"]
    expert_embeddings: Float[Tensor, "N K E"]
    """One unit vector per expert."""


class ExpertBranch(nn.Module):
    """Encoder with a gate head (the projection head) and K expert heads."""

    def __init__(self, config: MiceConfig) -> None:
        super().__init__()
        self.network = EmbeddingNetwork(config)
        self.shape = (config.n_clusters, config.embedding_dim)
        self.experts = nn.Linear(self.network.encoder.out_width, config.n_clusters * config.embedding_dim)

    def forward(self, x: Float[Tensor, "N D"]) -> ExpertOutput:
        """Compute the embeddings of the gate and of all experts."""
        features = self.network.encode(x)
        embeddings = normalize(self.experts(features).unflatten(1, self.shape), dim=2)
        return ExpertOutput(self.network.project(features), embeddings)


@final
class MiceModel(ContrastiveModel):
    """Online and momentum branch, gate prototypes and expert prototypes."""

    Config: ClassVar[type[MiceConfig]] = MiceConfig
    config: MiceConfig
    kmeans_init: ClassVar[bool] = False
    gate_prototypes: Float[Tensor, "K E"]
    """omega: equidistant and fixed."""
    sums: Float[Tensor, "K E"]
    """Sums of each expert's momentum embeddings of its rows since the last update of mu."""
    steps: Int[Tensor, ""]
    """Steps so far; part of the state dict, like the sums, so that a resumed run updates mu at the same time."""

    def __init__(self, config: MiceConfig) -> None:
        super().__init__()
        self.config = config
        self.online = ExpertBranch(config)
        self.momentum_branch = as_momentum_copy(ExpertBranch(config), self.online)
        self.queue = MemoryBank(config.queue_size, (config.n_clusters, config.embedding_dim))
        self.expert_prototypes = nn.Parameter(max_mahalanobis_centres(config.n_clusters, config.embedding_dim))
        """mu; normalised where they are used."""
        self.register_buffer("gate_prototypes", max_mahalanobis_centres(config.n_clusters, config.embedding_dim))
        self.register_buffer("sums", torch.zeros(config.n_clusters, config.embedding_dim))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._new_keys: list[tuple[Tensor, Tensor]] = []

    @property
    def network(self) -> EmbeddingNetwork:
        """The online encoder; embeddings are those of the gate."""
        return self.online.network

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute the posterior with the queue as negatives; with an empty queue it is the gate's probability."""
        key = self.momentum_branch(x).expert_embeddings
        return self.log_joint(self.online(x), key, in_batch_negatives=False).softmax(dim=1)

    def log_joint(
        self, output: ExpertOutput, key: Float[Tensor, "N K E"], *, in_batch_negatives: bool
    ) -> Float[Tensor, "N K"]:
        """Compute the log-probability of each expert times that of its recognising the row."""
        config = self.config
        log_gate = (output.gate_embedding @ self.gate_prototypes.mT / config.gate_temperature).log_softmax(dim=1)
        query = output.expert_embeddings + normalize(self.expert_prototypes, dim=1)
        # Experts first: each compares its own embeddings.
        query, key, queue = (each.transpose(0, 1) for each in (query, key, self.queue.contents()))
        loss = instance_info_nce(query, key, queue, config.temperature, in_batch_negatives=in_batch_negatives)
        return log_gate - loss.mT

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Compute the negative log-likelihood.

        The published evidence lower bound with the exact posterior has the same value and the same gradient.
        """
        query: ExpertOutput = self.online(batch.first)
        with torch.no_grad():
            key: ExpertOutput = self.momentum_branch(batch.second)
        log_joint = self.log_joint(query, key.expert_embeddings, in_batch_negatives=self.config.in_batch_negatives)
        self._new_keys.append((key.expert_embeddings, log_joint.detach().argmax(dim=1)))
        return Loss(-log_joint.logsumexp(dim=1).mean())

    @torch.no_grad()
    def after_step(self) -> None:
        """Update the momentum branch and the queue, and every ``refresh_steps`` the expert prototypes."""
        ema_update(self.momentum_branch, self.online, self.config.momentum)
        for key, label in self._new_keys:
            self.queue.enqueue(key)
            self.sums.add_(torch.einsum("nk,nke->ke", one_hot(label, self.config.n_clusters).to(key), key))
        self._new_keys.clear()
        self.steps.add_(1)
        if int(self.steps) % self.config.refresh_steps == 0:
            has_rows = self.sums.any(dim=1, keepdim=True)
            self.expert_prototypes.copy_(torch.where(has_rows, normalize(self.sums, dim=1), self.expert_prototypes))
            self.sums.zero_()
