"""Images of any size -> those that a network was trained for, and sorted images -> what it is trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from coterie.errors import InputError
from coterie.tables.table import ImageShape, Table, size_in_words

AT_ONCE = 1 << 24
"""Pixels that are brought to another size at once."""
GREY = torch.tensor([0.299, 0.587, 0.114])
"""How bright red, green and blue seem."""


@final
@dataclass(frozen=True, slots=True)
class PictureMatch:
    """How the rows of a table, images of one shape, become those that a network takes."""

    wanted: tuple[int, int, int]
    """Channels, height and width of what the network takes."""
    given: ImageShape
    """Height, width and channels of the rows."""
    white: float
    """The value that is brightest, 0 being darkest."""
    inverted: bool
    """Whether the images are dark on bright, which is turned around."""

    @classmethod
    def of(cls, table: Table, wanted: tuple[int, int, int]) -> tuple["PictureMatch", tuple[str, ...]]:
        """Look how images are to be changed, and say it in sentences.

        Whether they are dark on bright is told by their edges: those of most images, where the network takes grey ones.
        """
        channels, height, width = wanted
        given = _shape(table, wanted)
        pixels = _block(table)
        white = _white(pixels)
        edge = _edges(pixels.reshape(-1, *given))
        inverted = channels == 1 and float(np.median(edge)) > white / 2
        notes = []
        if given[:2] != (height, width):
            notes.append(f"the network takes images of {height}x{width}: those of {size_in_words(given)} are resized")
        if channels == 1 and given[2] > 1:
            notes.append("the network takes grey images: colours are left out")
        if inverted:
            notes.append("the network takes bright strokes on a dark ground: the images are inverted")
        return cls(wanted, given, white, inverted), tuple(notes)

    def __call__(self, table: Table) -> Float[Tensor, "N D"]:
        """Images as the network takes them: from 0 to 1, channels first, flattened."""
        if (shape := _shape(table, self.wanted)) != self.given:
            raise InputError(
                f"X has images of {size_in_words(shape)} with {shape[2]} channels, but the model was fitted on those "
                f"of {size_in_words(self.given)} with {self.given[2]}. Resize them."
            )
        pixels = _block(table)
        step = max(1, AT_ONCE // pixels.shape[1])
        return torch.cat([self._prepared(pixels[start : start + step]) for start in range(0, len(pixels), step)])

    def to_card(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)

    @classmethod
    def from_card(cls, card: Mapping[str, Any]) -> "PictureMatch":
        """Undo ``to_card``."""
        return cls(tuple(card["wanted"]), tuple(card["given"]), float(card["white"]), bool(card["inverted"]))

    def _prepared(self, pixels: npt.NDArray[Any]) -> Tensor:
        images = torch.from_numpy(pixels.astype(np.float32)).reshape(-1, *self.given).permute(0, 3, 1, 2)
        images = (images / self.white).clamp(0.0, 1.0)
        channels, *size = self.wanted
        if channels == 1 and images.shape[1] > 1:
            images = torch.einsum("nchw,c->nhw", images, GREY).unsqueeze(1)
        elif images.shape[1] < channels:
            images = images.expand(-1, channels, -1, -1)
        if list(images.shape[2:]) != size:
            images = interpolate(images, size, mode="bilinear", antialias=True, align_corners=False).clamp(0.0, 1.0)
        return (1.0 - images if self.inverted else images).flatten(1)


def sorted_pictures(
    tables: Sequence[Table], wanted: tuple[int, int, int]
) -> tuple[UInt8[Tensor, "M C H W"], Int[Tensor, " M"]]:
    """Images of all tables in the shape that is wanted, as bytes, and the table of each."""
    images, group = [], []
    for place, table in enumerate(tables):
        match, _ = PictureMatch.of(table, wanted)
        images.append((match(table) * 255).round().to(torch.uint8).reshape(-1, *wanted))
        group.append(torch.full((table.n_rows,), place))
    return torch.cat(images), torch.cat(group)


def _shape(table: Table, wanted: tuple[int, int, int]) -> ImageShape:
    """Shape of the rows as images; rows with as many columns as a grey image has pixels are such images."""
    if table.image is not None:
        return table.image
    channels, height, width = wanted
    if channels == 1 and table.n_columns == height * width:
        return height, width, 1
    raise InputError(
        f"These weights are for images of {height}x{width}, but X is a table of {table.n_columns} columns. "
        "Give images as an array (n, height, width) or (n, height, width, channels), or other weights."
    )


def _block(table: Table) -> npt.NDArray[Any]:
    pixels = table.block
    if pixels is None or pixels.dtype.kind not in "iufb" or not np.isfinite(pixels).all():
        raise InputError("Images must be numbers, none of them missing or infinite. Look for what is not.")
    if pixels.min(initial=0) < 0:
        raise InputError(
            f"A pixel has the value {float(pixels.min()):g}; give images from 0 to 1, or from 0 to 255 or 65,535."
        )
    return pixels


def _white(pixels: npt.NDArray[Any]) -> float:
    """The brightest that such pixels can be: 1, or what one byte or two can hold."""
    if pixels.dtype.kind == "b":
        return 1.0
    if pixels.dtype == np.uint8:
        return 255.0
    largest = float(pixels.max(initial=0))
    return next((bound for bound in (1.0, 255.0, 65535.0) if largest <= bound), largest)


def _edges(images: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Mean of the outermost pixels of each image."""
    rows, columns = images[:, [0, -1]], images[:, :, [0, -1]]
    parts = [rows.reshape(len(images), -1), columns.reshape(len(images), -1)]
    means: npt.NDArray[np.float64] = np.concatenate(parts, axis=1).mean(axis=1, dtype=np.float64)
    return means
