"""Clusters of images: each prototype and the members nearest to it, as pictures."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InputError
from coterie.report.findings import Findings, FittedClusterer
from coterie.report.png import grey_png

MEMBERS = 8


@dataclass(frozen=True)
class Pictures:
    """Addresses of pictures for each cluster: first the prototype, then at most `members` rows."""

    of_cluster: tuple[tuple[str, ...], ...]
    members: int


def draw_pictures(found: Findings, model: FittedClusterer, shape: tuple[int, int]) -> Pictures:
    """Draw each row of the table as an image of `shape`, height by width."""
    if shape[0] * shape[1] != found.table.n_columns:
        raise InputError(
            f"`images` is {shape}, which makes {shape[0] * shape[1]:,} pixels, but the table has "
            f"{found.table.n_columns:,} columns; give the height and the width whose product is that number."
        )
    nearest = [_nearest(found, cluster) for cluster in range(found.n_clusters)]
    rows = _pixels(found, np.concatenate(nearest))
    prototypes = _prototype_pixels(found, model)
    finite = rows[np.isfinite(rows)]
    low, high = float(finite.min(initial=np.inf)), float(finite.max(initial=-np.inf))
    pictures, begin = [], 0
    for cluster, members in enumerate(nearest):
        own = [prototypes[cluster], *rows[begin : begin + len(members)]]
        begin += len(members)
        pictures.append(tuple(grey_png(pixels.reshape(shape), low, high) for pixels in own))
    return Pictures(tuple(pictures), MEMBERS)


def _nearest(found: Findings, cluster: int) -> NDArray[np.int64]:
    members = np.flatnonzero(found.labels == cluster)
    distances = ((found.encoded[members] - found.prototypes[cluster]) ** 2).sum(axis=1)
    return members[np.argsort(distances, kind="stable")[:MEMBERS]]


def _pixels(found: Findings, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    if found.table.block is not None:
        return np.asarray(found.table.block[rows], dtype=np.float64)
    return np.column_stack([column[rows].astype(np.float64) for column in found.table.columns])


def _prototype_pixels(found: Findings, model: FittedClusterer) -> NDArray[np.float64]:
    """Return the prototypes as pixels; a column that the encoder left out keeps its first value."""
    pixels = np.repeat(_pixels(found, np.array([0])), found.n_clusters, axis=0)
    place_of = {name: place for place, name in enumerate(found.table.names)}
    in_units = model.table_.inverse(found.prototypes)
    for place, feature in enumerate(found.features):
        pixels[:, place_of[feature.column]] = in_units[:, place]
    return pixels
