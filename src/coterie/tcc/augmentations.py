"""Random views: images and embeddings changed in ways that leave what they show the same.

Letters: M images of C channels, H by W pixels; N rows of D features.
"""

import math
from dataclasses import dataclass, fields
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.nn.vision import distorted

CROP_ASPECT = 4 / 3
"""Most that a crop's width is of its height, both as shares of the image, and the reverse."""
ERASED_AREA = (0.02, 0.2)
ERASED_ASPECT = 3.0
YIQ = ((0.299, 0.587, 0.114), (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))
"""From red, green and blue to brightness and two numbers for colour: hue is their angle, saturation their length."""
MOST = {"turn_by": 180.0, "hue": 0.5, "noise": math.inf}
"""Largest values of settings; of the others it is one."""


@final
@dataclass(frozen=True, slots=True)
class Views:
    """How much the view of an image may differ from it; nothing is changed unless it is asked for."""

    smallest: float = 1.0
    """Least share of its area that is cut out of an image, to be stretched to its full size; with 1 none is cut."""
    turn_by: float = 0.0
    """Most degrees that an image is turned by, to either side; zeros come in from outside."""
    mirrored: bool = False
    """Whether an image is mirrored, left to right, with probability one half."""
    brightness: float = 0.0
    """Most that all values are raised or lowered by, as a share of them."""
    contrast: float = 0.0
    """Most that differences from the image's mean brightness are raised or lowered by, as a share of them."""
    saturation: float = 0.0
    """Most that colours are strengthened or weakened, as a share; of colour images only, as are the next two."""
    hue: float = 0.0
    """Most that colours are turned by, to either side, as a share of the circle of hues."""
    grey: float = 0.0
    """Probability that an image loses its colours."""
    noise: float = 0.0
    """Standard deviation of what is added to each value."""
    erased: float = 0.0
    """Probability that a rectangle is set to zero."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, most = getattr(self, field.name), MOST.get(field.name, 1.0)
            if not 0 <= value <= most or math.isinf(value):
                upper = "finite" if math.isinf(most) else f"at most {most:g}"
                raise ConfigError(f"{field.name}={value} must be at least 0 and {upper}.")
        if self.smallest == 0:
            raise ConfigError("smallest=0 leaves nothing of an image; give a share above 0, or 1 to cut nothing.")

    @classmethod
    def for_grey(cls) -> "Views":
        """Views of characters and the like, which mean something else when they are mirrored.

        Contrast is left alone: around a middle brightness it would make the empty ground of a character grey.
        """
        return cls(smallest=0.4, turn_by=15.0, brightness=0.4)

    @classmethod
    def for_colour(cls) -> "Views":
        """Views of photographs, much as MoCo and CC take them."""
        return cls(smallest=0.2, mirrored=True, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grey=0.2)

    def applied(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """One view of each image, by draws of its own; values are from 0 to 1 before and after."""
        if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
            raise ConfigError(
                f"Views are of images of shape (M, C, H, W), with 1 or 3 channels, as numbers from 0 to 1; "
                f"got {images.dtype} of shape {tuple(images.shape)}."
            )
        if self == Views() or len(images) == 0:
            return images
        if self.smallest < 1 or self.turn_by or self.mirrored:
            images = self._moved(images, generator)
        if self.brightness or self.contrast:
            images = self._lit(images, generator)
        if images.shape[1] == 3 and (self.saturation or self.hue or self.grey):
            images = self._coloured(images, generator)
        if self.noise:
            noise = torch.randn(images.shape, generator=generator, device=generator.device)
            images = images + self.noise * noise.to(images)
        images = images.clamp(0, 1)
        if self.erased:
            images = images.masked_fill(self._holes(images, generator), 0.0)
        return images

    def _moved(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """Cut out, turned and mirrored, in one go."""
        area, aspect, right, down, turn, side = _uniform(6, images, generator).unbind()
        width, height = torch.ones_like(area), torch.ones_like(area)
        if self.smallest < 1:
            width, height = _sides(self.smallest + (1 - self.smallest) * area, aspect, CROP_ASPECT)
        # Beyond the middles of the outermost pixels zeros would come in.
        room = 1 - 1 / torch.tensor([images.shape[3], images.shape[2]]).to(images)
        right, down = (right - 0.5) * (1 - width) * room[0], (down - 0.5) * (1 - height) * room[1]
        facing = torch.where(side < 0.5, -1.0, 1.0) if self.mirrored else 1.0
        straight = torch.zeros_like(area)
        amounts = torch.stack([facing * width - 1, height - 1, straight, straight, right, down, 2 * turn - 1])
        return distorted(images, amounts, turn_by=self.turn_by, stretched=1.0, shifted=1.0)

    def _lit(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """In another light: brightness, then contrast."""
        bright, clear = (2 * _uniform(2, images, generator) - 1).reshape(2, -1, 1, 1, 1).unbind()
        images = images * (1 + self.brightness * bright)
        share = torch.tensor(YIQ[0]).to(images) if images.shape[1] == 3 else images.new_ones(1)
        middle = (images.mean(dim=(2, 3)) @ share).reshape(-1, 1, 1, 1)
        return middle + (1 + self.contrast * clear) * (images - middle)

    def _coloured(self, images: Float[Tensor, "M 3 H W"], generator: Generator) -> Float[Tensor, "M 3 H W"]:
        """In other colours of the same brightness: saturation, hue, or no colour at all."""
        strong, turn, lost = _uniform(3, images, generator).unbind()
        strength = torch.where(lost < self.grey, 0.0, 1 + self.saturation * (2 * strong - 1))
        angle = 2 * math.pi * self.hue * (2 * turn - 1)
        along, across, none = strength * angle.cos(), strength * angle.sin(), torch.zeros_like(angle)
        change = torch.stack([none + 1, none, none, none, along, -across, none, across, along], dim=1)
        apart = torch.tensor(YIQ, dtype=torch.float64)
        matrix: Tensor = torch.linalg.inv(apart).to(images) @ change.reshape(-1, 3, 3) @ apart.to(images)
        return (matrix @ images.flatten(2)).reshape(images.shape)

    def _holes(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Bool[Tensor, "M 1 H W"]:
        """Rectangles to erase; of images that are spared, empty ones."""
        chance, area, aspect, left, top = _uniform(5, images, generator).unbind()
        least, most = ERASED_AREA
        width, height = _sides(least + (most - least) * area, aspect, ERASED_ASPECT)
        width = torch.where(chance < self.erased, width, 0.0)
        across = _between(left * (1 - width), width, images.shape[3])
        along = _between(top * (1 - height), height, images.shape[2])
        return (along.unsqueeze(2) & across.unsqueeze(1)).unsqueeze(1)


def feature_view(
    x: Float[Tensor, "N D"], generator: Generator, dropout: float, noise: float, mixed: float
) -> Float[Tensor, "N D"]:
    """One view of each row of embeddings, which are best centred.

    First a share of another row is mixed in, from none to ``mixed``; then noise is added, of so many standard
    deviations of each feature over the batch; then features are set to zero with probability ``dropout``, and the
    others raised such that the mean stays.
    """
    if not (0 <= dropout < 1 and 0 <= noise < math.inf and 0 <= mixed <= 1):
        raise ConfigError(
            f"dropout={dropout} must be from 0 to below 1, noise={noise} at least 0 and finite, "
            f"and mixed={mixed} from 0 to 1."
        )
    rows = len(x)
    if rows == 0:
        return x
    spread = x.detach().std(dim=0, correction=0)
    if mixed and rows > 1:
        share = mixed * _uniform(1, x, generator).reshape(-1, 1)
        step = torch.randint(1, rows, (rows,), generator=generator, device=generator.device).to(x.device)
        x = x + share * (x[(torch.arange(rows, device=x.device) + step) % rows] - x)
    if noise:
        x = x + noise * spread * torch.randn(x.shape, generator=generator, device=generator.device).to(x)
    if dropout:
        kept = torch.rand(x.shape, generator=generator, device=generator.device) >= dropout
        x = x * kept.to(x) / (1 - dropout)
    return x


def _uniform(count: int, like: Float[Tensor, "M ..."], generator: Generator) -> Float[Tensor, "count M"]:
    """So many numbers from 0 to 1 for each image or row."""
    return torch.rand((count, len(like)), generator=generator, device=generator.device).to(like)


def _sides(
    area: Float[Tensor, " M"], aspect: Float[Tensor, " M"], longest: float
) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"]]:
    """Width and height of rectangles, as shares; one side is at most so many times the other, by a number 0 to 1."""
    ratio = longest ** (aspect - 0.5)  # the root of the aspect, that is
    return (area.sqrt() * ratio).clamp(max=1), (area.sqrt() / ratio).clamp(max=1)


def _between(begin: Float[Tensor, " M"], size: Float[Tensor, " M"], pixels: int) -> Bool[Tensor, "M pixels"]:
    """Which pixels of a side have their middle in a stretch of it."""
    middle = (torch.arange(pixels, device=begin.device) + 0.5) / pixels
    return (middle >= begin.unsqueeze(1)) & (middle < (begin + size).unsqueeze(1))
