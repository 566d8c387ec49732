"""Training tasks that recipes of benchmarks use: sets of Omniglot characters, and sets of embedded images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, TypeVar, final

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from benchmarks.data.images import EmbeddingName, load_embeddings, load_images
from coterie.amortized.tasks.classes import Catalogue, Distortion, ImageTasks, Instances, Sizes
from coterie.errors import ConfigError, InputError
from coterie.nn.model import TaskBatch

Name = TypeVar("Name", str, int)


def select_names(known: Sequence[Name], only: Sequence[Name], without: Sequence[Name]) -> list[Name]:
    """Return the known names in ``only``, or all if it is empty, except those in ``without``."""
    unknown = [name for name in (*only, *without) if name not in known]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is not one of: {', '.join(map(str, known))}.")
    taken = [name for name in only or known if name not in without]
    if not taken:
        raise ConfigError(f"only={list(only)} and without={list(without)} leave nothing.")
    return taken


@final
@dataclass(frozen=True)
class OmniglotTasks:
    """Sets of characters of one alphabet each, sampled by ``ImageTasks``; images are loaded when first needed."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "turn_by": "max_degrees",
        "stretched": "max_stretch",
        "shifted": "max_shift",
    }
    """Former names, which cards of weights have."""

    part: Literal["background", "evaluation"] = "background"  # thirty alphabets for training, or twenty others
    only: tuple[str, ...] = ()  # names of the alphabets to use; all of the part by default
    without: tuple[str, ...] = ()  # names of held-out alphabets
    points: tuple[int, int] = (100, 100)  # smallest and largest number of images of a set; the same in one batch
    clusters: tuple[int, int] = (5, 35)  # smallest and largest number of characters of a set
    sizes: Sizes = "composition"  # how cluster sizes are sampled
    concentration: float = 5.0  # concentration of the Dirichlet distribution, for ``sizes="dirichlet"``
    rotations: bool = False
    """Whether a character rotated by 90, 180 or 270 degrees is another character of the same alphabet."""
    max_degrees: float = 0.0  # largest rotation in degrees, to either side
    max_stretch: float = 0.0  # largest stretch or shear along an axis, as a fraction of the size
    max_shift: float = 0.0  # largest shift along an axis, as a fraction of the size

    def __post_init__(self) -> None:
        # These raise if a setting is wrong, before any image is loaded.
        Instances(self.points, self.clusters, self.sizes, self.concentration)
        Distortion(self.max_degrees, self.max_stretch, self.max_shift)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample sets."""
        return self._images.sample(batch_size, generator)

    @cached_property
    def _images(self) -> ImageTasks:
        loaded = load_images("omniglot")
        in_part = loaded.parts == loaded.part_names.index(self.part)
        known = [loaded.group_names[group] for group in np.unique(loaded.groups[in_part])]
        wanted = [loaded.group_names.index(name) for name in select_names(known, self.only, self.without)]
        used = in_part & np.isin(loaded.groups, wanted)
        return ImageTasks(
            torch.from_numpy(loaded.images[used]).unsqueeze(1),
            torch.from_numpy(loaded.classes[used]),
            torch.from_numpy(loaded.groups[used]),
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

    codes: UInt8[Tensor, "M D"] | Float[Tensor, "M D"]  # all vectors, as multiples of the scale
    scale: float  # value of a code of 1
    classes: Int[Tensor, " M"]  # class of each
    instances: Instances  # how sets are sampled
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
        """Sample sets."""
        sample = self.instances.sample(self._catalogue, batch_size, generator)
        return sample.to_batch(self.codes[sample.index.flatten()].float() * self.scale)


@final
@dataclass(frozen=True)
class EmbeddingTasks:
    """Sets of embedded images of any classes, loaded when first needed."""

    source: EmbeddingName = "cifar100-train"  # which images
    only: tuple[int, ...] = ()  # numbers of the classes to use; all by default
    without: tuple[int, ...] = ()  # numbers of held-out classes
    points: tuple[int, int] = (300, 300)  # smallest and largest number of images of a set; the same in one batch
    clusters: tuple[int, int] = (2, 12)  # smallest and largest number of classes of a set
    sizes: Sizes = "composition"  # how cluster sizes are sampled
    concentration: float = 5.0  # concentration of the Dirichlet distribution, for ``sizes="dirichlet"``

    def __post_init__(self) -> None:
        self._instances()  # raises if a setting is wrong, before anything is loaded

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample sets."""
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
