"""The one abstraction: a module that can be trained on batches and can cluster points."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from torch import Generator, Tensor, nn

from coterie.structures import Clustering, Loss

Batch = TypeVar("Batch")


class ClusterModel(nn.Module, ABC, Generic[Batch]):
    """Base of all models. Built from its ``Config``; final subclasses implement the three methods."""

    Config: ClassVar[type[Any]]

    @abstractmethod
    def loss(self, batch: Batch, generator: Generator) -> Loss:
        """Loss of one batch; all randomness comes from the generator."""

    @abstractmethod
    def cluster(self, x: Tensor, generator: Generator) -> Clustering:
        """Clusters of the rows of x."""

    @abstractmethod
    def after_step(self) -> None:
        """Do what the method does after each optimiser step."""
