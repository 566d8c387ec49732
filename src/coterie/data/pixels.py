"""Images as rows of a table: each column is a pixel, row by row, with the channels of a pixel side by side."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from coterie.errors import TableError

Array: TypeAlias = npt.NDArray[Any]
ImageShape: TypeAlias = tuple[int, int, int]
"""Height, width and channels: 1 for grey, 3 for red, green and blue."""

_COLOUR = 3
_WITH_ALPHA = 4
_NUMBERS_AT_ONCE = 2**22
_LAST_PIXEL = re.compile(r"pixel (\d+),(\d+)(?:,(\d+))?")


@lru_cache(maxsize=16)
def pixel_names(shape: ImageShape) -> tuple[str, ...]:
    """Name the columns of images: `pixel 3,7` is in the fourth row from the top; a third number is the channel."""
    counted = shape[:2] if shape[2] == 1 else shape
    return tuple("pixel " + ",".join(map(str, place)) for place in product(*map(range, counted)))


def image_shape(names: Sequence[str]) -> ImageShape | None:
    """Return the shape of the images whose columns `pixel_names` named; None for other columns."""
    last = _LAST_PIXEL.fullmatch(names[-1]) if names else None
    if last is None:
        return None
    height, width, channels = (1 + int(number or 0) for number in last.groups())
    shape = height, width, channels
    # The number of columns is compared first: a name may claim an image of any size.
    fits = height * width * channels == len(names) and pixel_names(shape) == tuple(names)
    return shape if fits else None


def size_in_words(shape: Sequence[int]) -> str:
    """Write height and width as the command's options take them."""
    return f"{shape[0]}x{shape[1]}"


def as_pixels(images: Array) -> tuple[Array, ImageShape]:
    """Lay out images as rows of pixels.

    Parameters
    ----------
    images : array (n, height, width) or (n, height, width, channels)
        Numbers; 1, 3 or 4 channels, of which the fourth is opacity: such images are put on white.

    Returns
    -------
    block : array (n, pixels)
        Uncopied where possible.
    shape : (height, width, channels)
        Without opacity.

    Raises
    ------
    TableError
        When the last of four dimensions has another size, as that of images whose channels come first.
    """
    if images.ndim == 3:
        images = images[..., None]
    height, width, channels = images.shape[1:]
    if channels not in {1, _COLOUR, _WITH_ALPHA}:
        raise TableError(_channels_elsewhere(images))
    if channels == _WITH_ALPHA:
        images, channels = _on_white(images), _COLOUR
    return images.reshape(len(images), height * width * channels), (height, width, channels)


def _channels_elsewhere(images: Array) -> str:
    seen = f"Found array with dim 4 (shape={images.shape}), which is read as images (n, height, width, channels)"
    if images.shape[1] in {1, _COLOUR}:
        return (
            f"{seen}, but here the channels come first. Bring them to the end: X.transpose(0, 2, 3, 1), "
            "or X.permute(0, 2, 3, 1) of a tensor."
        )
    return f"{seen} with 1, 3 or 4 channels. Bring it into this form, or flatten each sample: X.reshape(len(X), -1)."


def _on_white(images: Array) -> Array:
    """Blend colours (n, height, width, 4) with white by their opacity, a few images at a time."""
    white = _brightest(images)
    opaque = np.empty((*images.shape[:3], _COLOUR), dtype=images.dtype)
    step = max(1, _NUMBERS_AT_ONCE // max(1, int(np.prod(images.shape[1:]))))
    for start in range(0, len(images), step):
        some = images[start : start + step].astype(np.float64)
        share = some[..., _COLOUR:] / white
        blended = some[..., :_COLOUR] * share + white * (1 - share)
        opaque[start : start + step] = blended if images.dtype.kind == "f" else np.rint(blended)
    return opaque


def _brightest(images: Array) -> float:
    """Return what white is: 1 where no fraction or truth value is above it, else the most that a byte, or two, hold."""
    if images.dtype.kind == "b" or (images.dtype.kind == "f" and not (images > 1).any()):
        return 1.0
    return 65535.0 if images.dtype == np.uint16 else 255.0
