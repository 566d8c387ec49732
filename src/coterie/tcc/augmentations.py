"""Random augmentations of images and of feature vectors, which make the two views of contrastive learning.

Shapes: M images of C channels and H x W pixels; N rows of D features.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.nn.vision import distort
from coterie.validation import BOOLEAN, FRACTION, Constraints, Number, check_parameters

CROP_ASPECT = 4 / 3  # largest ratio of the sides of a crop, relative to the sides of the image
ERASED_AREA, ERASED_ASPECT = (0.02, 0.2), 3.0
# From RGB to brightness and two chroma coordinates, whose angle is the hue and whose length is the saturation.
YIQ = ((0.299, 0.587, 0.114), (0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))


@final
@dataclass(frozen=True, slots=True)
class Augmentations:
    """Strength of each image augmentation; the defaults change nothing.

    Examples
    --------
    >>> import torch
    >>> augment = Augmentations(min_crop_area=0.5, horizontal_flip=True)
    >>> augment(torch.rand(2, 3, 8, 8), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 8, 8])
    """

    RENAMED: ClassVar[Mapping[str, str]] = {
        "smallest": "min_crop_area", "turn_by": "max_rotation", "mirrored": "horizontal_flip",
        "grey": "grayscale", "erased": "erasing",
    }  # fmt: skip
    CONSTRAINTS: ClassVar[Mapping[str, Constraints]] = {
        "min_crop_area": Number(1e-6, 1.0),
        "max_rotation": Number(0.0, 180.0),
        "horizontal_flip": BOOLEAN,
        **dict.fromkeys(("brightness", "contrast", "saturation", "grayscale", "erasing"), FRACTION),
        "hue": Number(0.0, 0.5),
        "noise": Number(0.0),
    }

    min_crop_area: float = 1.0  # smallest area of a random crop, as a fraction of the image; 1 disables cropping
    max_rotation: float = 0.0  # largest rotation in degrees, to either side; the corners are filled with zeros
    horizontal_flip: bool = False  # whether to flip images with probability 1/2
    brightness: float = 0.0  # largest relative change of all values
    contrast: float = 0.0  # largest relative change of the differences from the mean brightness
    saturation: float = 0.0  # largest relative change of the saturation; like the next two, for colour images only
    hue: float = 0.0  # largest rotation of the hue to either side, as a fraction of the colour circle
    grayscale: float = 0.0  # probability of a conversion to grey
    noise: float = 0.0  # standard deviation of additive Gaussian noise
    erasing: float = 0.0  # probability that a random rectangle is set to zero

    def __post_init__(self) -> None:
        check_parameters(self, self.CONSTRAINTS, ConfigError)

    @classmethod
    def for_grayscale(cls) -> "Augmentations":
        """Return the default for grey images; a change of contrast would turn the background of characters grey."""
        return cls(min_crop_area=0.4, max_rotation=15.0, brightness=0.4)

    @classmethod
    def for_colour(cls) -> "Augmentations":
        """Return the default for colour images, similar to those of MoCo and CC."""
        return cls(0.2, horizontal_flip=True, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grayscale=0.2)

    def __call__(self, images: Tensor, generator: Generator) -> Float[Tensor, "M C H W"]:
        """Augment each image (M, C, H, W) independently; values are from 0 to 1 before and after."""
        if images.ndim != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
            raise ConfigError(
                f"Images must be floating-point numbers of shape (M, 1 or 3, H, W); got {images.dtype} of shape "
                f"{tuple(images.shape)}."
            )
        if self == Augmentations() or len(images) == 0:
            return images
        if self.min_crop_area < 1 or self.max_rotation or self.horizontal_flip:
            images = self._transform_geometry(images, generator)
        if self.brightness or self.contrast:
            images = self._change_brightness(images, generator)
        if images.shape[1] == 3 and (self.saturation or self.hue or self.grayscale):
            images = self._change_colours(images, generator)
        if self.noise:
            noise = torch.randn(images.shape, generator=generator, device=generator.device)
            images = images + self.noise * noise.to(images)
        images = images.clamp(0, 1)
        if self.erasing:
            images = images.masked_fill(self._erased_rectangles(images, generator), 0.0)
        return images

    def _transform_geometry(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """Crop, rotate and flip with one interpolation."""
        area, aspect, right, down, angle, flip = _uniform(6, images, generator).unbind()
        width = height = torch.ones_like(area)
        if self.min_crop_area < 1:
            width, height = _rectangle_sides(self.min_crop_area + (1 - self.min_crop_area) * area, aspect, CROP_ASPECT)
        # Beyond the centres of the outermost pixels, interpolation would mix in zeros.
        room = 1 - 1 / torch.tensor([images.shape[3], images.shape[2]]).to(images)
        right, down = (right - 0.5) * (1 - width) * room[0], (down - 0.5) * (1 - height) * room[1]
        sign = torch.where(flip < 0.5, -1.0, 1.0) if self.horizontal_flip else 1.0
        zero = torch.zeros_like(area)
        amounts = torch.stack([sign * width - 1, height - 1, zero, zero, right, down, 2 * angle - 1])
        return distort(images, amounts, max_degrees=self.max_rotation, max_stretch=1.0, max_shift=1.0)

    def _change_brightness(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
        """Change the brightness, then the contrast."""
        brightness, contrast = (2 * _uniform(2, images, generator) - 1).reshape(2, -1, 1, 1, 1).unbind()
        images = images * (1 + self.brightness * brightness)
        luma = torch.tensor(YIQ[0]).to(images) if images.shape[1] == 3 else images.new_ones(1)
        mean = (images.mean(dim=(2, 3)) @ luma).reshape(-1, 1, 1, 1)
        return mean + (1 + self.contrast * contrast) * (images - mean)

    def _change_colours(self, images: Float[Tensor, "M 3 H W"], generator: Generator) -> Float[Tensor, "M 3 H W"]:
        """Change saturation and hue, or remove the colour; the brightness stays."""
        saturation, hue, gray = _uniform(3, images, generator).unbind()
        scale = torch.where(gray < self.grayscale, 0.0, 1 + self.saturation * (2 * saturation - 1))
        angle = 2 * math.pi * self.hue * (2 * hue - 1)
        cos, sin, zero = scale * angle.cos(), scale * angle.sin(), torch.zeros_like(angle)
        change = torch.stack([zero + 1, zero, zero, zero, cos, -sin, zero, sin, cos], dim=1)
        to_yiq = torch.tensor(YIQ, dtype=torch.float64)
        matrix: Tensor = torch.linalg.inv(to_yiq).to(images) @ change.reshape(-1, 3, 3) @ to_yiq.to(images)
        return (matrix @ images.flatten(2)).reshape(images.shape)

    def _erased_rectangles(self, images: Float[Tensor, "M C H W"], generator: Generator) -> Bool[Tensor, "M 1 H W"]:
        """Sample a mask of the pixels to erase; it is empty for images that are not selected."""
        selected, area, aspect, left, top = _uniform(5, images, generator).unbind()
        smallest, largest = ERASED_AREA
        width, height = _rectangle_sides(smallest + (largest - smallest) * area, aspect, ERASED_ASPECT)
        width = torch.where(selected < self.erasing, width, 0.0)
        columns = _pixels_between(left * (1 - width), width, images.shape[3])
        rows = _pixels_between(top * (1 - height), height, images.shape[2])
        return (rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1)


def augment_features(
    x: Float[Tensor, "N D"], generator: Generator, *, mixup: float, noise: float, dropout: float
) -> Float[Tensor, "N D"]:
    """Augment a batch of feature vectors, which should be centred.

    ``mixup`` is the largest weight of another row, ``noise`` the standard deviation of additive noise relative to that
    of each feature, ``dropout`` the probability that a feature is set to zero; the others are scaled up.
    """
    if not (0 <= dropout < 1 and 0 <= noise < math.inf and 0 <= mixup <= 1):
        raise ConfigError(
            f"dropout={dropout} must be from 0 to below 1, noise={noise} finite and at least 0, and mixup={mixup} from "
            "0 to 1."
        )
    rows = len(x)
    if rows == 0:
        return x
    spread = x.detach().std(dim=0, correction=0)
    if mixup and rows > 1:
        weight = mixup * _uniform(1, x, generator).reshape(-1, 1)
        step = torch.randint(1, rows, (rows,), generator=generator, device=generator.device).to(x.device)
        x = x + weight * (x[(torch.arange(rows, device=x.device) + step) % rows] - x)
    if noise:
        x = x + noise * spread * torch.randn(x.shape, generator=generator, device=generator.device).to(x)
    if dropout:
        kept = torch.rand(x.shape, generator=generator, device=generator.device) >= dropout
        x = x * kept.to(x) / (1 - dropout)
    return x


def _uniform(count: int, like: Float[Tensor, "M ..."], generator: Generator) -> Float[Tensor, "count M"]:
    """Sample uniform numbers from 0 to 1 for each image or row."""
    return torch.rand((count, len(like)), generator=generator, device=generator.device).to(like)


def _rectangle_sides(
    area: Float[Tensor, " M"], aspect: Float[Tensor, " M"], max_aspect: float
) -> tuple[Float[Tensor, " M"], Float[Tensor, " M"]]:
    """Return width and height of rectangles as fractions of the image; ``aspect`` from 0 to 1 selects their ratio."""
    ratio = max_aspect ** (aspect - 0.5)  # square root of the ratio
    return (area.sqrt() * ratio).clamp(max=1), (area.sqrt() / ratio).clamp(max=1)


def _pixels_between(start: Float[Tensor, " M"], length: Float[Tensor, " M"], n_pixels: int) -> Bool[Tensor, "M P"]:
    """Return which pixels of a side have their centre in an interval."""
    centre = (torch.arange(n_pixels, device=start.device) + 0.5) / n_pixels
    return (centre >= start.unsqueeze(1)) & (centre < (start + length).unsqueeze(1))
