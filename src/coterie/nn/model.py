"""The one abstraction: a module that can be trained on batches and can cluster points."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn import Parameter

from coterie.ops.partitions import Clustering

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


Batch = TypeVar("Batch")
Model = TypeVar("Model", bound=nn.Module)
Score = Callable[[Tensor, Tensor], float]


class ClusterModel(nn.Module, ABC, Generic[Batch]):
    """Base of all models. Built from its ``Config``; final subclasses implement the three methods."""

    Config: ClassVar[type[Any]]
    config: Any
    """What the model was built from."""

    @abstractmethod
    def loss(self, batch: Batch, generator: Generator) -> Loss:
        """Loss of one batch; all randomness comes from the generator."""

    @abstractmethod
    def cluster(self, x: Tensor, generator: Generator) -> Clustering:
        """Clusters of the rows of x."""

    @abstractmethod
    def after_step(self) -> None:
        """Do what the method does after each optimiser step."""


class SetModel(ClusterModel[TaskBatch], ABC):
    """Base of the models that are trained on labelled sets, once, and then cluster sets that they have not seen."""

    @abstractmethod
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Clusters of the valid points of each set; labels of the others are -1."""

    @abstractmethod
    def memberships(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """How much any points belong to the clusters that were found in some set; rows sum to one."""

    def cluster(self, x: Float[Tensor, "N D"], generator: Generator) -> Clustering:
        """Clusters of one set."""
        return self.cluster_sets(x.unsqueeze(0), torch.ones((1, len(x)), dtype=torch.bool, device=x.device), generator)[
            0
        ]

    def calibrated(self, batches: Sequence[TaskBatch], score: Score) -> Any:  # noqa: ARG002  (most have nothing to set)
        """The configuration with what is best set by looking at sets that were not trained on.

        A score compares true labels with those that were found; larger is better.
        """
        return self.config

    def after_step(self) -> None:
        """Nothing: the gradient says it all."""


def build(kind: type[Model], config: Any, generator: Generator) -> Model:
    """Make a model whose first weights come from the generator; torch's global random state is left as it was."""
    with drawing_from(generator):
        return kind(config)


@contextmanager
def drawing_from(generator: Generator) -> Iterator[None]:
    """Let whatever draws from torch's global random state draw from the generator; the global one is left as it was."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    accelerators = [generator.device] if generator.device.type == "cuda" else []
    with torch.random.fork_rng(devices=accelerators):
        torch.random.set_rng_state(Generator().manual_seed(seed).get_state())
        for device in accelerators:
            torch.cuda.set_rng_state(Generator(device).manual_seed(seed).get_state(), device)
        yield


@contextmanager
def settled(model: nn.Module) -> Iterator[None]:
    """Let a model be as it is after training, not noting what it sees, for as long as this lasts."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)
