"""A learned kernel as pictures: how probably each two rows are in one cluster, beside what is known of them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coterie.report.findings import OUTLIER, Findings, thinned
from coterie.report.palette import Colour
from coterie.report.png import image_png

SIDE = 280
"""Rows that are drawn at most, a pixel for each."""
STRIP = 5
"""Pixels of the strip that tells the clusters."""
_INK = np.array([37.0, 82.0, 130.0]) / 255
_WARM = np.array([201.0, 88.0, 32.0]) / 255


@runtime_checkable
class KernelClusterer(Protocol):
    """The members of a clusterer that learned a kernel."""

    @property
    def kernel_(self) -> NDArray[np.float32]:
        """Return the probability (M, M) of each two of some rows to be in one cluster."""

    @property
    def kernel_rows_(self) -> NDArray[np.int64]:
        """Return which rows these are."""


@dataclass(frozen=True)
class Panel:
    """One matrix."""

    title: str
    picture: str


@dataclass(frozen=True)
class KernelPictures:
    """Matrices side by side: what was predicted, and if classes are known, these and how far off it was."""

    panels: tuple[Panel, ...]
    shown: str


def kernel_pictures(
    model: object, found: Findings, classes: NDArray[np.int64] | None, colours: list[Colour]
) -> KernelPictures | None:
    """Draw a clusterer's kernel, rows in the order of their clusters; None for those that have none."""
    if not isinstance(model, KernelClusterer):
        return None
    rows = model.kernel_rows_
    # Within a cluster the most certain rows come first, so that doubt shows at the edges of a block.
    order = np.lexsort((-found.top_membership[rows], found.labels[rows]))
    order = order[thinned(len(order), SIDE)]
    kernel = model.kernel_[np.ix_(order, order)].astype(np.float64)
    cluster = found.labels[rows][order]
    panels = [Panel("predicted", _drawn(_shaded(kernel, _INK), cluster, colours))]
    if classes is not None:
        known = classes[rows][order]
        truth = (known[:, None] == known).astype(np.float64)
        missed, wrong = np.clip(truth - kernel, 0, 1), np.clip(kernel - truth, 0, 1)
        difference = 1 - missed[..., None] * (1 - _WARM) - wrong[..., None] * (1 - _INK)
        panels.append(Panel("known classes", _drawn(_shaded(truth, _INK), cluster, colours)))
        panels.append(Panel("difference", _drawn(difference, cluster, colours)))
    drawn, n = len(order), len(found.labels)
    return KernelPictures(tuple(panels), "" if drawn == n else f"{drawn:,} of the {n:,} {found.noun}s are drawn.")


def _shaded(values: NDArray[np.float64], ink: NDArray[np.float64]) -> NDArray[np.float64]:
    """White for zero, ink for one."""
    return 1 - values[..., None] * (1 - ink)


def _drawn(pixels: NDArray[np.float64], cluster: NDArray[np.int64], colours: list[Colour]) -> str:
    """Put strips in the colours of the clusters along the top and the left side."""
    codes = [bytes.fromhex(colour.light[1:]) for colour in colours]
    shades = np.array([list(code) for code in codes], dtype=np.float64).reshape(-1, 3) / 255
    strip = np.where((cluster == OUTLIER)[:, None], 0.6, shades[np.clip(cluster, 0, None)])
    size = len(cluster) + STRIP + 1
    framed = np.ones((size, size, 3))
    framed[STRIP + 1 :, STRIP + 1 :] = pixels
    framed[:STRIP, STRIP + 1 :] = strip
    framed[STRIP + 1 :, :STRIP] = strip[:, None]
    return image_png(framed, 0.0, 1.0)
