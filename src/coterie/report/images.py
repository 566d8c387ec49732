"""Clusters of images: for each its mean, its most typical members and its most doubtful ones, as pictures."""

import base64
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.report.findings import Findings
from coterie.report.formatting import count, percent, shorten
from coterie.tables.table import ImageShape

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


TYPICAL = 12
DOUBTFUL = 8
MOST_BYTES = 1_500_000
"""Of all pictures of a page together."""
_BEYOND_DOUBT = 0.95
_LONGEST_SIDE = 64
_SHORTEST_SIDE = 8
# Pictures of each cluster that there must be room for, even if none can be compressed; base64 makes 4 bytes of 3.
_LEAST_PICTURES = 5
_BYTES_PER_PIXEL = 4 / 3
_BYTES_BESIDE_PIXELS = 150
_ROWS_AT_ONCE = 256
# From this size on, what is enlarged looks better smoothed than as squares.
_SMOOTH_FROM = 40


@dataclass(frozen=True)
class Picture:
    """One image on the page; the membership, and the next likely cluster, are told below those that are in doubt."""

    address: str
    title: str
    membership: str = ""
    other: int | None = None


@dataclass(frozen=True)
class Sheet:
    """The pictures of one cluster."""

    mean: Picture
    typical: tuple[Picture, ...]
    doubtful: tuple[Picture, ...]
    shown: str


@dataclass(frozen=True)
class Pictures:
    """A sheet for each cluster, and a sentence on how many of all images are on them."""

    sheets: tuple[Sheet, ...]
    shown: str
    smooth: bool

    @property
    def any_doubtful(self) -> bool:
        """Return whether there are images in doubt in any cluster."""
        return any(sheet.doubtful for sheet in self.sheets)


@dataclass(frozen=True)
class _Ink:
    """How pixels become a picture: their shape, how many are averaged into one, and what is black and white."""

    shape: ImageShape
    factor: int
    low: float
    high: float

    def draw(self, pixels: NDArray[np.float64]) -> str:
        """Return the address of a picture of one image."""
        image = pixels.reshape(self.shape)
        for axis in (0, 1):
            image = _averaged(image, self.factor, axis)
        return image_png(image, self.low, self.high)


def draw_pictures(found: Findings) -> Pictures:
    """Draw some images of each cluster, as many as there is room for on a page of bounded size."""
    shape = found.table.image
    if shape is None:
        raise InputError("the table has no images to draw; give it their shape (height, width, channels)")
    block = _block(found)
    means = [_mean(block, found.labels == cluster) for cluster in range(found.n_clusters)]
    chosen = [_members(found, cluster) for cluster in range(found.n_clusters)]
    rows = [int(row) for of_cluster in chosen for group in of_cluster for row in group]
    ink = _Ink(shape, _factor(shape, found.n_clusters), *_scale(block, rows))
    addresses = [ink.draw(mean) for mean in means]
    drawn: dict[int, str] = {}
    room = MOST_BYTES - sum(map(len, addresses))
    for of_round in _rounds(chosen):
        pictures = {row: ink.draw(block[row].astype(np.float64)) for row in of_round}
        room -= sum(map(len, pictures.values()))
        if room < 0:
            break
        drawn |= pictures
    sheets = tuple(
        _sheet(found, cluster, addresses[cluster], typical, doubtful, drawn)
        for cluster, (typical, doubtful) in enumerate(chosen)
    )
    n = len(found.labels)
    shown = f"{len(drawn):,} of {count(n, 'image')} are shown." if len(drawn) < n else f"All {n:,} images are shown."
    return Pictures(sheets, shown, smooth=max(shape[:2]) >= _SMOOTH_FROM)


def _block(found: Findings) -> NDArray[Any]:
    table = found.table
    if set(table.kinds) - {"number", "boolean"}:
        raise InputError("images are drawn from columns of numbers, and this table has others; choose the pixels only")
    return table.block if table.block is not None else np.column_stack([c.astype(np.float64) for c in table.columns])


def _mean(block: NDArray[Any], members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Average the members, some at a time; a pixel that none of them has is NaN."""
    rows = np.flatnonzero(members)
    sums, counts = np.zeros(block.shape[1]), np.zeros(block.shape[1])
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = block[rows[start : start + _ROWS_AT_ONCE]].astype(np.float64)
        present = np.isfinite(some)
        sums += np.where(present, some, 0.0).sum(axis=0)
        counts += present.sum(axis=0)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _members(found: Findings, cluster: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose members nearest to what stands for a cluster, and of the farthest third those that belong to it least."""
    members = np.flatnonzero(found.labels == cluster)
    distances = np.concatenate(
        [
            ((found.encoded[rows] - found.prototypes[cluster]) ** 2).sum(axis=1)
            for rows in np.array_split(members, 1 + len(members) // _ROWS_AT_ONCE)
        ]
    )
    nearest = members[np.argsort(distances, kind="stable")]
    # Of a small cluster, too, most members are shown as what is typical of it.
    farther = np.sort(nearest[len(members) - len(members) // 3 :])
    memberships = found.top_membership[farther]
    order = np.argsort(memberships, kind="stable")
    doubtful = farther[order][memberships[order] < _BEYOND_DOUBT][:DOUBTFUL]
    return nearest[~np.isin(nearest, doubtful)][:TYPICAL], doubtful


def _scale(block: NDArray[Any], rows: list[int]) -> tuple[float, float]:
    """Return what is black and what is white: fixed for bytes, fractions and truth values, else what is found."""
    if block.dtype == np.uint8:
        return 0.0, 255.0
    low, high = math.inf, -math.inf
    for row in rows:
        finite = block[row][np.isfinite(block[row])].astype(np.float64)
        low, high = min(low, finite.min(initial=np.inf)), max(high, finite.max(initial=-np.inf))
    return (0.0, 1.0) if 0 <= low <= high <= 1 else (low, high)


def _factor(shape: ImageShape, n_clusters: int) -> int:
    """Return how many pixels along a side become one, so that no picture, and not all together, are too large."""
    height, width, channels = shape
    factor = math.ceil(max(height, width) / _LONGEST_SIDE)
    while max(height, width) / factor > _SHORTEST_SIDE:
        pixels = math.ceil(height / factor) * math.ceil(width / factor) * channels
        each = _BYTES_PER_PIXEL * pixels + _BYTES_BESIDE_PIXELS
        if n_clusters * _LEAST_PICTURES * each <= MOST_BYTES:
            break
        factor += 1
    return factor


def _averaged(image: NDArray[np.float64], factor: int, axis: int) -> NDArray[np.float64]:
    """Put the mean of so many neighbours along an axis in their place; of fewer at the end."""
    if factor == 1:
        return image
    starts = np.arange(0, image.shape[axis], factor)
    lengths = np.diff(np.append(starts, image.shape[axis]))
    beside = tuple(other for other in range(image.ndim) if other != axis)
    means: NDArray[np.float64] = np.add.reduceat(image, starts, axis=axis) / np.expand_dims(lengths, beside)
    return means


def _rounds(chosen: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Iterator[list[int]]:
    """Yield a next typical and a next doubtful member of every cluster, so that room is shared out evenly."""
    columns = [group.tolist() for of_cluster in chosen for group in of_cluster]
    for of_round in zip_longest(*columns):
        yield [row for row in of_round if row is not None]


def _sheet(
    found: Findings,
    cluster: int,
    mean: str,
    typical: NDArray[np.int64],
    doubtful: NDArray[np.int64],
    drawn: dict[int, str],
) -> Sheet:
    near = tuple(_picture(found, cluster, row, drawn[row]) for row in typical.tolist() if row in drawn)
    far = tuple(_doubted(found, cluster, row, drawn[row]) for row in doubtful.tolist() if row in drawn)
    size = int(found.sizes[cluster])
    shown = f"{len(near) + len(far):,} of {size:,}" if len(near) + len(far) < size else f"all {size:,}"
    return Sheet(Picture(mean, f"Mean of {count(size, 'image')}"), near, far, shown)


def _picture(found: Findings, cluster: int, row: int, address: str) -> Picture:
    return Picture(address, f"{_name(found, row)}: {percent(float(found.memberships[row, cluster]))} here")


def _doubted(found: Findings, cluster: int, row: int, address: str) -> Picture:
    elsewhere = found.memberships[row].copy()
    elsewhere[cluster] = -1.0
    other = int(elsewhere.argmax())
    here, there = percent(float(found.memberships[row, cluster])), percent(float(elsewhere[other]))
    return Picture(address, f"{_name(found, row)}: {here} here, {there} in cluster {other}", here, other)


def _name(found: Findings, row: int) -> str:
    return f"image {shorten(found.ids[row], 80)}"
