"""The one abstraction: a module that can be trained on batches and can cluster points."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from coterie.structures import Clustering, Loss, TaskBatch

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
