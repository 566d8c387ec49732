"""Sets of features that a network made of pictures of several classes."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from coterie.data.pictures import EmbeddingName, load_embeddings
from coterie.errors import InputError
from coterie.structures import TaskBatch
from coterie.tasks.classes import Catalogue, Instances, Sizes, chosen


@final
@dataclass(frozen=True, slots=True, eq=False)
class VectorTasks:
    """Sets of vectors in memory, of any classes."""

    codes: UInt8[Tensor, "M D"] | Float[Tensor, "M D"]
    """All vectors, as multiples of the scale."""
    scale: float
    """What a code of 1 stands for."""
    classes: Int[Tensor, " M"]
    """Class of each."""
    instances: Instances
    """How sets are drawn."""
    _catalogue: Catalogue = field(init=False, repr=False)

    def __post_init__(self) -> None:
        is_number = self.codes.dtype == torch.uint8 or self.codes.is_floating_point()
        if self.codes.ndim != 2 or not is_number or len(self.codes) != len(self.classes):
            raise InputError(
                f"codes are {self.codes.dtype} of shape {tuple(self.codes.shape)} for {len(self.classes)} classes; "
                "give bytes or floats of shape (M, D), and a class for each vector."
            )
        object.__setattr__(self, "_catalogue", Catalogue.of(self.classes, torch.zeros_like(self.classes)))
        self.instances.check(self._catalogue)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        draw = self.instances.draw(self._catalogue, batch_size, generator)
        return draw.filled(self.codes[draw.index.flatten()].float() * self.scale)


@final
@dataclass(frozen=True)
class EmbeddingTasks:
    """Sets of embedded pictures of any classes, loaded when first needed."""

    source: EmbeddingName = "cifar100-train"
    """Which pictures."""
    only: tuple[int, ...] = ()
    """Numbers of the classes that are used; all if there are none."""
    without: tuple[int, ...] = ()
    """Numbers of classes that are held back."""
    points: tuple[int, int] = (300, 300)
    """Least and most pictures of a set; one batch, one number."""
    clusters: tuple[int, int] = (2, 12)
    """Least and most classes of a set."""
    sizes: Sizes = "composition"
    """How many pictures of each class: see Instances."""
    concentration: float = 5.0
    """Of the Dirichlet, where sizes are drawn so."""

    def __post_init__(self) -> None:
        self._instances()  # what is wrong whatever the pictures are is told before they are loaded

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        return self._vectors.sample(batch_size, generator)

    def _instances(self) -> Instances:
        return Instances(self.points, self.clusters, self.sizes, self.concentration)

    @cached_property
    def _vectors(self) -> VectorTasks:
        embeddings = load_embeddings(self.source)
        wanted = chosen(np.unique(embeddings.classes).tolist(), self.only, self.without)
        used = np.isin(embeddings.classes, wanted)
        codes, classes = torch.from_numpy(embeddings.codes[used]), torch.from_numpy(embeddings.classes[used])
        return VectorTasks(codes, embeddings.scale, classes, self._instances())
