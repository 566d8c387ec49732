"""The nouns that pass between modules: batches, results, losses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from jaxtyping import Float, Int
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


class Trainable(Protocol[Batch_contra]):
    """What the training loop needs of a model."""

    def parameters(self) -> Iterator[Parameter]:
        """Yield the tensors to optimise."""

    def loss(self, batch: Batch_contra, generator: Generator) -> Loss:
        """Loss of one batch."""

    def after_step(self) -> None:
        """Do what the method does after each optimiser step."""
