"""Small pictures inside the page: a PNG writer on the standard library."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GREY, _COLOUR, _INDEXED = 0, 2, 3
_NONE, _FROM_LEFT, _FROM_ABOVE = 0, 1, 2


def image_png(pixels: NDArray[np.float64], low: float, high: float) -> str:
    """Return a data address of a picture in which `low` is black and `high` is white.

    Parameters
    ----------
    pixels : array (height, width, channels)
        One channel for grey, or red, green and blue; NaN is black.
    low, high : float
        The ends of the scale; what lies beyond is cut off.
    """
    span = high - low if high > low else 1.0
    levels = np.rint(255 * np.clip((np.nan_to_num(pixels, nan=low) - low) / span, 0, 1)).astype(np.uint8)
    return _data_address(levels, _GREY if levels.shape[2] == 1 else _COLOUR, b"")


def indexed_png(indices: NDArray[np.int64], colours: Sequence[str | None]) -> str:
    """Return a data address of a picture whose pixels are places in a list of `#rrggbb` colours, None for no colour."""
    # A PNG's list holds 256 colours; beyond that they repeat, which no eye could tell from a new one.
    table = b"".join(bytes.fromhex((colour or "#000000")[1:]) for colour in colours[:256])
    opacity = bytes(0 if colour is None else 255 for colour in colours[:256])
    chunks = _chunk(b"PLTE", table) + (_chunk(b"tRNS", opacity) if None in colours[:256] else b"")
    return _data_address((indices % 256).astype(np.uint8)[..., None], _INDEXED, chunks)


def _data_address(levels: NDArray[np.uint8], colour_type: int, palette: bytes) -> str:
    height, width, _ = levels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    filters = (_NONE,) if colour_type == _INDEXED else (_NONE, _FROM_LEFT, _FROM_ABOVE)
    pixels = min((zlib.compress(_lines(levels, each), 9) for each in filters), key=len)
    body = b"".join([_chunk(b"IHDR", header), palette, _chunk(b"IDAT", pixels), _chunk(b"IEND", b"")])
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def _lines(levels: NDArray[np.uint8], filtered: int) -> bytes:
    """Return the lines of a picture, each after the number of its filter: pixels, or differences between neighbours."""
    # Differences of bytes wrap around, which is what the format asks for.
    differences = levels.copy()
    if filtered == _FROM_LEFT:
        differences[:, 1:] -= levels[:, :-1]
    elif filtered == _FROM_ABOVE:
        differences[1:] -= levels[:-1]
    flat = differences.reshape(len(levels), -1)
    return np.hstack([np.full((len(flat), 1), filtered, np.uint8), flat]).tobytes()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
