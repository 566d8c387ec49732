"""Models and what they are trained on: batches, losses, and the protocol that the training loop needs.

A ``ClusterModel`` is a module that is trained on batches and clusters points. A model that does something else, such as
scoring partitions (``coterie.judged.network.JudgeModel``), only has to satisfy ``Trainable``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn import Parameter

from coterie.ops.partitions import Clustering

Batch = TypeVar("Batch")
Batch_contra = TypeVar("Batch_contra", contravariant=True)
Model = TypeVar("Model", bound=nn.Module)
Score = Callable[[Tensor, Tensor], float]  # compares true labels with those of a clustering; larger is better


@dataclass(frozen=True, slots=True)
class PointBatch:
    """Some rows of one data set."""

    x: Float[Tensor, "N D"]  # the rows
    index: Int[Tensor, " N"]  # their indices in the data set
    weight: Float[Tensor, " N"] | None = None  # sample weights; equal if not given
    ends_epoch: bool = False  # true for the last batch of a pass over the data


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """Two augmented views of some rows of one data set."""

    first: Float[Tensor, "N D"]  # one view of each row
    second: Float[Tensor, "N D"]  # another view of each row
    index: Int[Tensor, " N"]  # their indices in the data set


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Several labelled sets of points, padded to one length."""

    x: Float[Tensor, "B N D"]  # the points
    labels: Int[Tensor, "B N"]  # cluster of each point, 0..K-1, not necessarily all in use; meaningless in padding
    valid: Bool[Tensor, "B N"]  # false in padding

    def to(self, device: str | torch.device) -> "TaskBatch":
        """Return the batch on a device."""
        return TaskBatch(self.x.to(device), self.labels.to(device), self.valid.to(device))


@dataclass(frozen=True, slots=True)
class Loss:
    """A training loss and its terms."""

    total: Float[Tensor, ""]  # the scalar that is minimised
    parts: Mapping[str, float] = field(default_factory=dict)  # named terms for the log


@runtime_checkable
class TaskSampler(Protocol):
    """A source of labelled sets."""

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample that many sets; all randomness comes from the generator."""


class Trainable(Protocol[Batch_contra]):
    """What the training loop needs of a model."""

    def parameters(self) -> Iterator[Parameter]:
        """Yield the tensors to optimise."""

    def loss(self, batch: Batch_contra, generator: Generator) -> Loss:
        """Compute the loss of one batch."""

    def after_step(self) -> None:
        """Update whatever the optimiser does not."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors of the model."""

    def load_state_dict(self, state_dict: dict[str, Tensor]) -> object:
        """Set all tensors of the model."""


class ClusterModel(nn.Module, ABC, Generic[Batch]):
    """A module built from a ``Config`` that is trained on batches and clusters points.

    A subclass sets ``Config`` and implements ``loss`` and ``cluster``.
    """

    Config: ClassVar[type[Any]]
    config: Any  # the configuration that the model was built from

    @abstractmethod
    def loss(self, batch: Batch, generator: Generator) -> Loss:
        """Compute the loss of one batch; all randomness comes from the generator."""

    @abstractmethod
    def cluster(self, x: Tensor, generator: Generator) -> Clustering:
        """Cluster the rows of x."""

    def after_step(self) -> None:
        """Update whatever the optimiser does not, after each of its steps; no-op by default."""


class SetModel(ClusterModel[TaskBatch], ABC):
    """A model that is trained on labelled sets and then clusters sets it has never seen.

    A subclass sets ``Config`` and implements ``loss``, ``cluster_sets`` and ``memberships``.
    """

    @abstractmethod
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Cluster the valid points of each set; labels in padding are -1."""

    @abstractmethod
    def memberships(self, x: Float[Tensor, "N D"], clustering: Clustering) -> Float[Tensor, "N K"]:
        """Compute the memberships of any points in the clusters of some set; rows sum to one."""

    def cluster(self, x: Float[Tensor, "N D"], generator: Generator) -> Clustering:
        """Cluster one set."""
        valid = torch.ones((1, len(x)), dtype=torch.bool, device=x.device)
        return self.cluster_sets(x.unsqueeze(0), valid, generator)[0]

    def calibrate(self, batches: Sequence[TaskBatch], score: Score) -> Any:  # noqa: ARG002  (not all have settings)
        """Return the configuration with the decoding settings that score best on held-out sets."""
        return self.config


def build(kind: type[Model], config: Any, generator: Generator) -> Model:
    """Construct a model whose initial weights come from the generator, not from torch's global random state."""
    with seeded_from(generator):
        return kind(config)


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    """Convert named tensors, such as the state of a model, to what a model file holds."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
    """Convert named arrays, such as those of a model file, to tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@contextmanager
def seeded_from(generator: Generator) -> Iterator[None]:
    """Seed torch's global random state from the generator, and restore it afterwards."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    accelerators = [generator.device] if generator.device.type == "cuda" else []
    with torch.random.fork_rng(devices=accelerators):
        torch.random.set_rng_state(Generator().manual_seed(seed).get_state())
        for device in accelerators:
            torch.cuda.set_rng_state(Generator(device).manual_seed(seed).get_state(), device)
        yield


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation mode, and back to its former mode afterwards."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)
