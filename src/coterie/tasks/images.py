"""Sets of images of several classes, such as characters of one alphabet."""

from dataclasses import dataclass, field
from typing import final

import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor

from coterie.errors import ConfigError, InputError
from coterie.ops.distortion import AMOUNTS, distorted
from coterie.structures import TaskBatch
from coterie.tasks.classes import Catalogue, Instances, Sizes

QUARTER_TURNS = 4
"""Ways to turn a square that leave it in its place."""


@final
@dataclass(frozen=True, slots=True)
class Distortion:
    """How much an image may change without becoming another: each is moved by random amounts of its own."""

    turn_by: float = 0.0
    """Most degrees that an image is turned by, to either side."""
    stretched: float = 0.0
    """Most that an image is stretched, shrunk or slanted along an axis, as a share of its size."""
    shifted: float = 0.0
    """Most that an image is shifted along an axis, as a share of its size."""

    def __post_init__(self) -> None:
        if not (0 <= self.turn_by <= 180 and 0 <= self.stretched < 1 and 0 <= self.shifted < 1):
            raise ConfigError(
                f"turn_by={self.turn_by} must be from 0 to 180, and stretched={self.stretched} and "
                f"shifted={self.shifted} from 0 to below 1."
            )

    def applied(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """All images, each turned, stretched, slanted and shifted; zeros come in from outside."""
        if not (self.turn_by or self.stretched or self.shifted):
            return images
        amounts = 2 * torch.rand((AMOUNTS, len(images)), generator=generator) - 1
        return distorted(images, amounts, turn_by=self.turn_by, stretched=self.stretched, shifted=self.shifted)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ImageTasks:
    """Sets of images, all of a set from classes of one group; every image may be distorted when it is drawn.

    A point is an image with its channels one after the other, from 0 to 1, or of zeros and ones.
    """

    images: UInt8[Tensor, "M C H W"]
    """All images."""
    classes: Int[Tensor, " M"]
    """Class of each."""
    groups: Int[Tensor, " M"]
    """Group of each; the same class in two groups is two classes."""
    points: tuple[int, int] = (100, 100)
    """Least and most images of a set; one batch, one number."""
    clusters: tuple[int, int] = (5, 35)
    """Least and most classes of a set."""
    sizes: Sizes = "composition"
    """How many images of each class: see Instances."""
    concentration: float = 5.0
    """Of the Dirichlet, where sizes are drawn so."""
    rotations: bool = False
    """Whether a class turned by 90, 180 or 270 degrees is another class of the same group."""
    turn_by: float = 0.0
    """Most degrees that an image is turned by, to either side."""
    stretched: float = 0.0
    """Most that an image is stretched, shrunk or slanted along an axis, as a share of its size."""
    shifted: float = 0.0
    """Most that an image is shifted along an axis, as a share of its size."""
    binarised: bool = False
    """Whether each pixel becomes 1 with the probability that is its grey value, and otherwise 0; anew at each draw."""
    mirrored: bool = False
    """Whether each image is mirrored, left to right, with probability one half."""
    _catalogue: Catalogue = field(init=False, repr=False)
    _instances: Instances = field(init=False, repr=False)
    _distortion: Distortion = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != torch.uint8 or len(self.images) != len(self.classes):
            raise InputError(
                f"images are {self.images.dtype} of shape {tuple(self.images.shape)} for {len(self.classes)} classes; "
                "give bytes of shape (M, C, H, W), and a class for each image."
            )
        height, width = self.images.shape[2:]
        if self.rotations and height != width:
            raise InputError(
                f"Images of {height} by {width} pixels do not keep their shape when turned by 90 degrees; "
                "set rotations to False, or make them square."
            )
        variants = QUARTER_TURNS if self.rotations else 1
        object.__setattr__(self, "_distortion", Distortion(self.turn_by, self.stretched, self.shifted))
        object.__setattr__(
            self, "_instances", Instances(self.points, self.clusters, self.sizes, self.concentration, variants)
        )
        object.__setattr__(self, "_catalogue", Catalogue.of(self.classes, self.groups))
        self._instances.check(self._catalogue)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets."""
        draw = self._instances.draw(self._catalogue, batch_size, generator)
        images = self.images[draw.index.flatten()]
        if self.rotations:
            images = _quarter_turned(images, draw.variant.flatten())
        x = self._distortion.applied(images.float() / 255, generator)
        if self.mirrored:
            turned_over = torch.rand((len(x), 1, 1, 1), generator=generator) < 0.5
            x = torch.where(turned_over, x.flip(3), x)
        if self.binarised:
            x = (torch.rand(x.shape, generator=generator) < x).to(x.dtype)
        return draw.filled(x.flatten(1))


def _quarter_turned(images: UInt8[Tensor, "M C H W"], quarters: Int[Tensor, " M"]) -> UInt8[Tensor, "M C H W"]:
    """Each square image turned by its own number of quarters."""
    turned = images.clone()
    for quarter in range(1, QUARTER_TURNS):
        these = (quarters == quarter).nonzero().squeeze(1)
        turned[these] = images[these].rot90(quarter, (2, 3))
    return turned
