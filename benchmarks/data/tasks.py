"""Sets of hand-written characters of one alphabet, from Omniglot."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, final

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from benchmarks.data.images import EmbeddingName, load_embeddings, load_images
from coterie.amortized.tasks.classes import Catalogue, Distortion, ImageTasks, Instances, Sizes, select_names
from coterie.errors import InputError
from coterie.nn.model import TaskBatch


@final
@dataclass(frozen=True)
class OmniglotTasks:
    """Sets of characters of one alphabet each, as ``ImageTasks`` draws them; images are loaded when first needed."""

    part: Literal["background", "evaluation"] = "background"
    """Thirty alphabets to learn from, or twenty others."""
    only: tuple[str, ...] = ()
    """Names of the alphabets that are used; all of the part if there are none."""
    without: tuple[str, ...] = ()
    """Names of alphabets that are held back."""
    points: tuple[int, int] = (100, 100)
    """Least and most images of a set; one batch, one number."""
    clusters: tuple[int, int] = (5, 35)
    """Least and most characters of a set."""
    sizes: Sizes = "composition"
    """How many images of each character: see Instances."""
    concentration: float = 5.0
    """Of the Dirichlet, where sizes are drawn so."""
    rotations: bool = False
    """Whether a character turned by 90, 180 or 270 degrees is another one of the same alphabet."""
    max_degrees: float = 0.0
    """Most degrees that an image is turned by, to either side."""
    max_stretch: float = 0.0
    """Most that an image is stretched, shrunk or slanted along an axis, as a share of its size."""
    max_shift: float = 0.0
    """Most that an image is shifted along an axis, as a share of its size."""

    def __post_init__(self) -> None:
        # What is wrong whatever the images are is told before they are loaded.
        Instances(self.points, self.clusters, self.sizes, self.concentration)
        Distortion(self.max_degrees, self.max_stretch, self.max_shift)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        return self._images.sample(batch_size, generator)

    @cached_property
    def _images(self) -> ImageTasks:
        pictures = load_images("omniglot")
        in_part = pictures.parts == pictures.part_names.index(self.part)
        known = [pictures.group_names[group] for group in np.unique(pictures.groups[in_part])]
        wanted = [pictures.group_names.index(name) for name in select_names(known, self.only, self.without)]
        used = in_part & np.isin(pictures.groups, wanted)
        return ImageTasks(
            torch.from_numpy(pictures.images[used]).unsqueeze(1),
            torch.from_numpy(pictures.classes[used]),
            torch.from_numpy(pictures.groups[used]),
            points=self.points,
            clusters=self.clusters,
            sizes=self.sizes,
            concentration=self.concentration,
            rotations=self.rotations,
            max_degrees=self.max_degrees,
            max_stretch=self.max_stretch,
            max_shift=self.max_shift,
        )


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
        draw = self.instances.sample(self._catalogue, batch_size, generator)
        return draw.to_batch(self.codes[draw.index.flatten()].float() * self.scale)


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
        wanted = select_names(np.unique(embeddings.classes).tolist(), self.only, self.without)
        used = np.isin(embeddings.classes, wanted)
        codes, classes = torch.from_numpy(embeddings.codes[used]), torch.from_numpy(embeddings.classes[used])
        return VectorTasks(codes, embeddings.scale, classes, self._instances())
