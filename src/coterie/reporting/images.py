"""Images of each cluster: its mean, typical and borderline members, as PNG data URLs."""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.reporting.data import ClusteringData
from coterie.reporting.formatting import format_percent, plural, shorten
from coterie.tables.table import ImageShape

_GREY, _COLOUR, _INDEXED = 0, 2, 3
_NONE, _FROM_LEFT, _FROM_ABOVE = 0, 1, 2


def image_png(pixels: NDArray[np.float64], low: float, high: float) -> str:
    """Encode pixels (height, width, channels) as a data URL; `low` and NaN are black, `high` is white."""
    span = high - low if high > low else 1.0
    levels = np.rint(255 * np.clip((np.nan_to_num(pixels, nan=low) - low) / span, 0, 1)).astype(np.uint8)
    return _data_url(levels, _GREY if levels.shape[2] == 1 else _COLOUR, b"")


def indexed_png(indices: NDArray[np.int64], colours: Sequence[str | None]) -> str:
    """Encode an image whose pixels are indices into a list of `#rrggbb` colours as a data URL; None is transparent."""
    # A PNG palette holds 256 colours; beyond that they repeat.
    table = b"".join(bytes.fromhex((colour or "#000000")[1:]) for colour in colours[:256])
    opacity = bytes(0 if colour is None else 255 for colour in colours[:256])
    chunks = _chunk(b"PLTE", table) + (_chunk(b"tRNS", opacity) if None in colours[:256] else b"")
    return _data_url((indices % 256).astype(np.uint8)[..., None], _INDEXED, chunks)


def _data_url(levels: NDArray[np.uint8], colour_type: int, palette: bytes) -> str:
    height, width, _ = levels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    filters = (_NONE,) if colour_type == _INDEXED else (_NONE, _FROM_LEFT, _FROM_ABOVE)
    pixels = min((zlib.compress(_scan_lines(levels, each), 9) for each in filters), key=len)
    body = b"".join([_chunk(b"IHDR", header), palette, _chunk(b"IDAT", pixels), _chunk(b"IEND", b"")])
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def _scan_lines(levels: NDArray[np.uint8], filtered: int) -> bytes:
    """Return the filtered scan lines, each after the number of its filter: pixels, or differences of neighbours."""
    # Differences of bytes wrap around, as the format requires.
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
BORDERLINE = 8
MOST_BYTES = 1_500_000  # limit for all images of a page
_CERTAIN = 0.95
_LONGEST_SIDE = 64
_SHORTEST_SIDE = 8
# Images per cluster that must fit even if they do not compress; base64 turns 3 bytes into 4.
_LEAST_IMAGES = 5
_BYTES_PER_PIXEL = 4 / 3
_BYTES_BESIDE_PIXELS = 150
_BATCH_ROWS = 256
# Enlarged images of at least this size look better smoothed.
_SMOOTH_FROM = 40


@dataclass(frozen=True)
class Thumbnail:
    """One image on the page; a borderline one has its membership and the next likely cluster below it."""

    url: str
    title: str
    membership: str = ""
    other: int | None = None


@dataclass(frozen=True)
class ClusterImages:
    """The images of one cluster."""

    mean: Thumbnail
    typical: list[Thumbnail]
    borderline: list[Thumbnail]
    shown: str


@dataclass(frozen=True)
class Gallery:
    """Images of all clusters, and how many of all images these are."""

    clusters: tuple[ClusterImages, ...]
    shown: str
    smooth: bool


def build_gallery(data: ClusteringData) -> Gallery:
    """Render images of each cluster, as far as the size limit of the page allows."""
    shape = data.table.image
    if shape is None:
        raise InputError("The table has no images to show. Give their shape (height, width, channels).")
    if set(data.table.kinds) - {"number", "boolean"}:
        raise InputError("Images need columns of numbers, and this table has others. Choose the pixels only.")
    pixels = data.table.block
    if pixels is None:
        pixels = np.column_stack([column.astype(np.float64) for column in data.table.columns])
    means = [_mean(pixels, data.labels == cluster) for cluster in range(data.n_clusters)]
    chosen = [_choose_members(data, cluster) for cluster in range(data.n_clusters)]
    rows = [int(row) for of_cluster in chosen for group in of_cluster for row in group]
    factor, (low, high) = _reduction(shape, data.n_clusters), _value_range(pixels, rows)

    def render(row: NDArray[Any]) -> str:
        image = row.astype(np.float64).reshape(shape)
        return image_png(_downsample(_downsample(image, factor, 0), factor, 1), low, high)

    mean_urls = [render(mean) for mean in means]
    urls: dict[int, str] = {}
    left = MOST_BYTES - sum(map(len, mean_urls))
    # One more typical and one more borderline image of every cluster at a time, so that all get equal room.
    for candidates in zip_longest(*(group.tolist() for of_cluster in chosen for group in of_cluster)):
        rendered = {row: render(pixels[row]) for row in candidates if row is not None}
        left -= sum(map(len, rendered.values()))
        if left < 0:
            break
        urls |= rendered
    clusters = tuple(
        _cluster_images(data, cluster, mean_urls[cluster], typical, borderline, urls)
        for cluster, (typical, borderline) in enumerate(chosen)
    )
    n = len(data.labels)
    shown = f"{len(urls):,} of {plural(n, 'image')} are shown." if len(urls) < n else f"All {n:,} images are shown."
    return Gallery(clusters, shown, smooth=max(shape[:2]) >= _SMOOTH_FROM)


def _mean(pixels: NDArray[Any], members: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Average the members in batches; NaN where all values are missing."""
    rows = np.flatnonzero(members)
    sums, counts = np.zeros(pixels.shape[1]), np.zeros(pixels.shape[1])
    for start in range(0, len(rows), _BATCH_ROWS):
        batch = pixels[rows[start : start + _BATCH_ROWS]].astype(np.float64)
        present = np.isfinite(batch)
        sums += np.where(present, batch, 0.0).sum(axis=0)
        counts += present.sum(axis=0)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _choose_members(data: ClusteringData, cluster: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Choose the members nearest to the prototype, and those of the farthest third with the lowest membership."""
    members = np.flatnonzero(data.labels == cluster)
    distances = np.concatenate(
        [
            ((data.encoded[rows] - data.prototypes[cluster]) ** 2).sum(axis=1)
            for rows in np.array_split(members, 1 + len(members) // _BATCH_ROWS)
        ]
    )
    nearest = members[np.argsort(distances, kind="stable")]
    # Only a third, so that most members of a small cluster are shown as typical.
    farthest = np.sort(nearest[len(members) - len(members) // 3 :])
    memberships = data.own_membership[farthest]
    order = np.argsort(memberships, kind="stable")
    borderline = farthest[order][memberships[order] < _CERTAIN][:BORDERLINE]
    return nearest[~np.isin(nearest, borderline)][:TYPICAL], borderline


def _value_range(pixels: NDArray[Any], rows: list[int]) -> tuple[float, float]:
    """Return the values of black and white: fixed for bytes, fractions and booleans, else the extremes."""
    if pixels.dtype == np.uint8:
        return 0.0, 255.0
    low, high = math.inf, -math.inf
    for row in rows:
        finite = pixels[row][np.isfinite(pixels[row])].astype(np.float64)
        low, high = min(low, finite.min(initial=np.inf)), max(high, finite.max(initial=-np.inf))
    return (0.0, 1.0) if 0 <= low <= high <= 1 else (low, high)


def _reduction(shape: ImageShape, n_clusters: int) -> int:
    """Return the factor by which images are reduced so that each, and all together, are small enough."""
    height, width, channels = shape
    factor = math.ceil(max(height, width) / _LONGEST_SIDE)
    while max(height, width) / factor > _SHORTEST_SIDE:
        pixels = math.ceil(height / factor) * math.ceil(width / factor) * channels
        each = _BYTES_PER_PIXEL * pixels + _BYTES_BESIDE_PIXELS
        if n_clusters * _LEAST_IMAGES * each <= MOST_BYTES:
            break
        factor += 1
    return factor


def _downsample(image: NDArray[np.float64], factor: int, axis: int) -> NDArray[np.float64]:
    """Average each group of `factor` neighbours along an axis; the last group may be smaller."""
    if factor == 1:
        return image
    starts = np.arange(0, image.shape[axis], factor)
    lengths = np.diff(np.append(starts, image.shape[axis]))
    other_axes = tuple(other for other in range(image.ndim) if other != axis)
    means: NDArray[np.float64] = np.add.reduceat(image, starts, axis=axis) / np.expand_dims(lengths, other_axes)
    return means


def _cluster_images(
    data: ClusteringData,
    cluster: int,
    mean_url: str,
    typical: NDArray[np.int64],
    borderline: NDArray[np.int64],
    urls: dict[int, str],
) -> ClusterImages:
    near, far = [], []
    for row in [*typical.tolist(), *borderline.tolist()]:
        if row not in urls:
            continue
        elsewhere = data.memberships[row].copy()
        elsewhere[cluster] = -1.0
        here, other = format_percent(float(data.memberships[row, cluster])), int(elsewhere.argmax())
        title = f"image {shorten(data.ids[row], 80)}: {here} here"
        if row in typical:
            near.append(Thumbnail(urls[row], title))
        else:
            title += f", {format_percent(float(elsewhere[other]))} in cluster {other}"
            far.append(Thumbnail(urls[row], title, here, other))
    size = int(data.sizes[cluster])
    shown = f"{len(near) + len(far):,} of {size:,}" if len(near) + len(far) < size else f"all {size:,}"
    return ClusterImages(Thumbnail(mean_url, f"Mean of {plural(size, 'image')}"), near, far, shown)
