"""MiCE: mixture of contrastive experts (Tsai et al., 2021), from the paper and its authors' code.

Each cluster has an expert with an embedding of its own, in which rows are contrasted. A gate predicts the expert of a
row. A row belongs to the expert of the largest posterior: gate probability times the expert's likelihood of recognising
the row in another view. Keys of the other view come from a momentum encoder, the teacher, and are queued.

Published are three views of each row. Here are two: the gate sees the view that the experts see. Rows of the same batch
are negatives unless ``in_batch_negatives`` is False: a queue starts empty here, not with random entries, and without
any negative the loss of a row is zero.

Letters: N rows, D numbers of a row, E numbers of an embedding, K clusters.
"""

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
from coterie.validation import BOOLEAN, FRACTION, Constraints, Integer


@final
@dataclass(frozen=True, slots=True)
class MiceConfig(EncoderConfig):
    """Configuration of a MiCE model."""

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
        **EncoderConfig.CONSTRAINTS,
        "temperature": POSITIVE,
        "gate_temperature": POSITIVE,
        "momentum": FRACTION,
        "queue_size": Integer(0),
        "in_batch_negatives": BOOLEAN,
        "refreshed_every": Integer(1),
    }

    temperature: float = 1.0  # temperature of the experts' InfoNCE loss
    gate_temperature: float = 1.0  # softmax temperature of the gate
    momentum: float = 0.99  # decay of the teacher; published is 0.999
    queue_size: int = 1024  # past keys, each of all experts, that serve as negatives; published is 16,384
    in_batch_negatives: bool = True
    """Whether the other keys of the batch are negatives too; published is the queue only."""
    refreshed_every: int = 100  # steps between updates of the prototypes; published is one epoch


class SideOutput(NamedTuple):
    """What student or teacher computes of rows."""

    embedding: Float[Tensor, "N E"]  # input of the gate
    expert: Float[Tensor, "N K E"]  # A unit embedding of each expert


class Side(nn.Module):
    """Student or teacher: an embedding network, whose projection is for the gate, and experts beside it."""

    def __init__(self, config: MiceConfig) -> None:
        super().__init__()
        self.network = EmbeddingNetwork(config)
        self.shape = (config.n_clusters, config.embedding_dim)
        self.experts = nn.Linear(self.network.encoder.out_width, config.n_clusters * config.embedding_dim)

    def forward(self, x: Float[Tensor, "N D"]) -> SideOutput:
        """Embed rows."""
        features = self.network.encode(x)
        expert = normalize(self.experts(features).unflatten(1, self.shape), dim=2)
        return SideOutput(self.network.project(features), expert)


@final
class MiceModel(ContrastiveModel):
    """Student, teacher, gate, and a prototype of each cluster in its expert's embedding."""

    Config: ClassVar[type[MiceConfig]] = MiceConfig
    config: MiceConfig
    kmeans_init: ClassVar[bool] = False
    gate: Float[Tensor, "K E"]  # ω: fixed prototypes of the gate, as far apart as possible
    sums: Float[Tensor, "K E"]
    """Sums of the teacher's embeddings of each expert's own rows since the last update of the prototypes."""
    steps: Int[Tensor, ""]  # steps so far; a buffer, so that resumed training updates at the right steps

    def __init__(self, config: MiceConfig) -> None:
        super().__init__()
        self.config = config
        self.online = Side(config)
        self.teacher = as_momentum_copy(Side(config), self.online)
        self.queue = MemoryBank(config.queue_size, (config.n_clusters, config.embedding_dim))
        self.prototypes = nn.Parameter(max_mahalanobis_centres(config.n_clusters, config.embedding_dim))
        """μ: normalised where they are used."""
        self.register_buffer("gate", max_mahalanobis_centres(config.n_clusters, config.embedding_dim))
        self.register_buffer("sums", torch.zeros(config.n_clusters, config.embedding_dim))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self._new_keys: list[tuple[Tensor, Tensor]] = []

    @property
    def network(self) -> EmbeddingNetwork:
        """The student's; its embeddings are the gate's input."""
        return self.online.network

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute the posterior with the same view as key and the queue as negatives; the gate's if that is empty."""
        return self.log_joint(self.online(x), self.teacher(x).expert, in_batch_negatives=False).softmax(dim=1)

    def log_joint(
        self, output: SideOutput, key: Float[Tensor, "N K E"], *, in_batch_negatives: bool
    ) -> Float[Tensor, "N K"]:
        """Compute the log of the gate's probability of each expert times the expert's likelihood of the row."""
        config = self.config
        log_gate = (output.embedding @ self.gate.mT / config.gate_temperature).log_softmax(dim=1)
        query = output.expert + normalize(self.prototypes, dim=1)
        # Experts come first: each compares its own embeddings.
        query, key, queue = (each.transpose(0, 1) for each in (query, key, self.queue.contents()))
        loss = instance_info_nce(query, key, queue, config.temperature, in_batch_negatives=in_batch_negatives)
        return log_gate - loss.mT

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Compute the negative log-likelihood.

        The published bound is a mean over the posterior, through which its gradient flows too. The sum of the joint
        probabilities is the same number and has the same gradient.
        """
        output: SideOutput = self.online(batch.first)
        with torch.no_grad():
            key: SideOutput = self.teacher(batch.second)
        log_joint = self.log_joint(output, key.expert, in_batch_negatives=self.config.in_batch_negatives)
        self._new_keys.append((key.expert, log_joint.detach().argmax(dim=1)))
        return Loss(-log_joint.logsumexp(dim=1).mean())

    @torch.no_grad()
    def after_step(self) -> None:
        """Update the teacher and the queue, and at intervals the prototypes."""
        ema_update(self.teacher, self.online, self.config.momentum)
        for expert, label in self._new_keys:
            self.queue.enqueue(expert)
            self.sums.add_(torch.einsum("nk,nke->ke", one_hot(label, self.config.n_clusters).to(expert), expert))
        self._new_keys.clear()
        self.steps.add_(1)
        if int(self.steps) % self.config.refreshed_every == 0:
            some = self.sums.any(dim=1, keepdim=True)  # a cluster without rows keeps its prototype
            self.prototypes.copy_(torch.where(some, normalize(self.sums, dim=1), self.prototypes))
            self.sums.zero_()
