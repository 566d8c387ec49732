"""Sets of hand-written characters of one alphabet, from Omniglot."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
import torch
from torch import Generator

from coterie.data.pictures import load_pictures
from coterie.structures import TaskBatch
from coterie.tasks.classes import Instances, Sizes, chosen
from coterie.tasks.images import Distortion, ImageTasks


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
    turn_by: float = 0.0
    """Most degrees that an image is turned by, to either side."""
    stretched: float = 0.0
    """Most that an image is stretched, shrunk or slanted along an axis, as a share of its size."""
    shifted: float = 0.0
    """Most that an image is shifted along an axis, as a share of its size."""

    def __post_init__(self) -> None:
        # What is wrong whatever the images are is told before they are loaded.
        Instances(self.points, self.clusters, self.sizes, self.concentration)
        Distortion(self.turn_by, self.stretched, self.shifted)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        return self._images.sample(batch_size, generator)

    @cached_property
    def _images(self) -> ImageTasks:
        pictures = load_pictures("omniglot")
        in_part = pictures.parts == pictures.part_names.index(self.part)
        known = [pictures.group_names[group] for group in np.unique(pictures.groups[in_part])]
        wanted = [pictures.group_names.index(name) for name in chosen(known, self.only, self.without)]
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
            turn_by=self.turn_by,
            stretched=self.stretched,
            shifted=self.shifted,
        )
