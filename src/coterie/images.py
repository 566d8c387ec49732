"""ImageResizer: images of any size and brightness -> the input of a network that was trained on images of one shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from coterie.errors import InputError
from coterie.tables.table import ImageShape, Table, format_size

_PIXELS_PER_BATCH = 1 << 24
_LUMA = torch.tensor([0.299, 0.587, 0.114])  # weights of red, green and blue in grey (ITU-R BT.601)


@final
@dataclass(frozen=True, slots=True)
class ImageResizer:
    """Converts the rows of a table, images of one shape, to the input of a network."""

    target: tuple[int, int, int]  # channels, height and width of the network's input
    source: ImageShape  # height, width and channels of the rows
    white: float  # value of white; black is 0
    inverted: bool  # whether the images are dark on a bright background, and are inverted

    @classmethod
    def fit(cls, table: Table, target: tuple[int, int, int]) -> tuple["ImageResizer", tuple[str, ...]]:
        """Decide how to convert the images of a table; return the resizer, and notes about the conversion.

        For networks of grey images, images count as dark on bright if the borders of most of them are bright.
        """
        channels, height, width = target
        source = _image_shape(table, target)
        pixels = _check_pixels(table)
        white = _white_level(pixels)
        images = pixels.reshape(-1, *source)
        border = [images[:, [0, -1]].reshape(len(images), -1), images[:, :, [0, -1]].reshape(len(images), -1)]
        brightness = np.median(np.concatenate(border, axis=1).mean(axis=1, dtype=np.float64))
        inverted = channels == 1 and bool(brightness > white / 2)
        notes = []
        if source[:2] != (height, width):
            notes.append(f"images were resized from {format_size(source)} to {height}x{width}, the network's input")
        if channels == 1 and source[2] > 1:
            notes.append("images were converted to grey, the network's input")
        if inverted:
            notes.append("images were inverted: the network expects bright strokes on a dark background")
        return cls(target, source, white, inverted), tuple(notes)

    def __call__(self, table: Table) -> Float[Tensor, "N D"]:
        """Convert images to the network's input: values from 0 to 1, channels first, flattened."""
        if (shape := _image_shape(table, self.target)) != self.source:
            raise InputError(
                f"X has images of {format_size(shape)} with {shape[2]} channels, but the model was fitted on images of "
                f"{format_size(self.source)} with {self.source[2]}. Resize them."
            )
        pixels = _check_pixels(table)
        step = max(1, _PIXELS_PER_BATCH // pixels.shape[1])
        return torch.cat([self._convert(pixels[start : start + step]) for start in range(0, len(pixels), step)])

    def to_card(self) -> dict[str, Any]:
        """Return the resizer as JSON values; the keys are those of format version 1."""
        return {"wanted": self.target, "given": self.source, "white": self.white, "inverted": self.inverted}

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> "ImageResizer":
        """Return the resizer that ``to_card`` wrote."""
        return cls(tuple(card["wanted"]), tuple(card["given"]), float(card["white"]), bool(card["inverted"]))

    def _convert(self, pixels: npt.NDArray[Any]) -> Tensor:
        images = torch.from_numpy(pixels.astype(np.float32)).reshape(-1, *self.source).permute(0, 3, 1, 2)
        images = (images / self.white).clamp(0.0, 1.0)
        channels, *size = self.target
        if channels == 1 and images.shape[1] > 1:
            images = torch.einsum("nchw,c->nhw", images, _LUMA).unsqueeze(1)
        elif images.shape[1] < channels:
            images = images.expand(-1, channels, -1, -1)
        if list(images.shape[2:]) != size:
            images = interpolate(images, size, mode="bilinear", antialias=True, align_corners=False).clamp(0.0, 1.0)
        return (1.0 - images if self.inverted else images).flatten(1)


def resize_labelled_images(
    tables: Sequence[Table], target: tuple[int, int, int]
) -> tuple[UInt8[Tensor, "M C H W"], Int[Tensor, " M"]]:
    """Convert the images of several tables to one shape, as bytes; return them, and the index of each one's table."""
    images, groups = [], []
    for i, table in enumerate(tables):
        resizer, _ = ImageResizer.fit(table, target)
        images.append((resizer(table) * 255).round().to(torch.uint8).reshape(-1, *target))
        groups.append(torch.full((table.n_rows,), i))
    return torch.cat(images), torch.cat(groups)


def _image_shape(table: Table, target: tuple[int, int, int]) -> ImageShape:
    """Return the shape of the rows as images; rows with the columns of a grey image of the target size are images."""
    if table.image is not None:
        return table.image
    channels, height, width = target
    if channels == 1 and table.n_columns == height * width:
        return height, width, 1
    raise InputError(
        f"These weights are for images of {height}x{width}, but X is a table of {table.n_columns} columns. "
        "Give images as an array (n, height, width) or (n, height, width, channels), or use other weights."
    )


def _check_pixels(table: Table) -> npt.NDArray[Any]:
    pixels = table.block
    if pixels is None or pixels.dtype.kind not in "iufb" or not np.isfinite(pixels).all():
        raise InputError("Images must be finite numbers. Replace missing and infinite values.")
    if pixels.min(initial=0) < 0:
        raise InputError(
            f"A pixel has the value {float(pixels.min()):g}. Pixels must be from 0 to 1, 0 to 255 or 0 to 65,535."
        )
    return pixels


def _white_level(pixels: npt.NDArray[Any]) -> float:
    """Return the value of white: 1, or the maximum of one or two bytes."""
    if pixels.dtype.kind == "b":
        return 1.0
    if pixels.dtype == np.uint8:
        return 255.0
    largest = float(pixels.max(initial=0))
    return next((bound for bound in (1.0, 255.0, 65535.0) if largest <= bound), largest)
