"""The nouns that pass between modules: batches, results, losses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import Parameter

Batch_contra = TypeVar("Batch_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Some rows of one data set."""

    x: Float[Tensor, "N D"]
    """The rows."""
    index: Int[Tensor, " N"]
    """Where the rows stand in the data set."""
    weight: Float[Tensor, " N"] | None = None
    """How much each row counts; all alike if not given."""
    ends_epoch: bool = False
    """True for the last batch of a pass over the data."""


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """Some rows of one data set, each seen twice."""

    first: Float[Tensor, "N D"]
    """One view of each row."""
    second: Float[Tensor, "N D"]
    """Another."""
    index: Int[Tensor, " N"]
    """Where the rows stand in the data set."""


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Several labelled sets of points, padded to one length."""

    x: Float[Tensor, "B N D"]
    """The points."""
    labels: Int[Tensor, "B N"]
    """Cluster of each point, 0..K-1, not necessarily all in use; of no meaning where there is no point."""
    valid: Bool[Tensor, "B N"]
    """True where a point exists."""

    def to(self, device: str | torch.device) -> "TaskBatch":
        """The same sets on that device."""
        return TaskBatch(self.x.to(device), self.labels.to(device), self.valid.to(device))


@dataclass(frozen=True, slots=True)
class JudgedBatch:
    """Proposed partitions of several sets whose truth is known, padded to one number of proposals."""

    columns: Float[Tensor, "B R C"]
    """What is known about each proposal."""
    score: Float[Tensor, "B R"]
    """Adjusted Rand index of each with the truth; of no meaning where the truth is one cluster."""
    doublings: Float[Tensor, "B R"]
    """How often the true number of clusters must be doubled or halved to be that of each."""
    valid: Bool[Tensor, "B R"]
    """True where there is a proposal."""
    single: Bool[Tensor, " B"]
    """True where the truth is one cluster."""


@dataclass(frozen=True, slots=True)
class Clustering:
    """What a model found."""

    labels: Int[Tensor, " N"]
    """Cluster of each point, 0..K-1."""
    n_clusters: int
    """How many clusters there are."""
    probabilities: Float[Tensor, "N K"] | None = None
    """Soft memberships, rows summing to one."""
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    """What only some methods have, such as prototypes."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What training minimises, and its parts for the log."""

    total: Float[Tensor, ""]
    """The scalar that is differentiated."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Named numbers for the log."""


@runtime_checkable
class TaskSampler(Protocol):
    """Where labelled sets come from."""

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets; all randomness comes from the generator."""


class Trainable(Protocol[Batch_contra]):
    """What the training loop needs of a model."""

    def parameters(self) -> Iterator[Parameter]:
        """Yield the tensors to optimise."""

    def loss(self, batch: Batch_contra, generator: Generator) -> Loss:
        """Loss of one batch."""

    def after_step(self) -> None:
        """Do what the method does after each optimiser step."""

    def state_dict(self) -> dict[str, Tensor]:
        """All tensors that make up the model."""

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> object:
        """Become the model that the tensors describe."""
