"""One look for all pictures: colours, fonts, and grids of panels."""

import math
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix

from benchmarks.quality.records import Floats, Labels

COLOURS: Final = ("#4477aa", "#ee8866", "#44aa99", "#aa4499", "#ddcc77")
# Twelve colours that stay apart, and lighter ones at the end for surplus clusters.
PALETTE: Final = (
    *("#4477aa", "#ee8866", "#44aa99", "#aa4499", "#ddaa33", "#882255", "#66ccee", "#117733", "#cc6677", "#332288"),
    *("#999933", "#777777", "#bbccee", "#ffccbb", "#ccddaa", "#eeccdd"),
)
INK: Final = "#222222"
FAINT: Final = "#999999"
MARGIN: Final = 2
"""Pixels between pictures of a montage."""
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "savefig.dpi": 130,
    "savefig.facecolor": "white",
    "legend.frameon": False,
}


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a picture and forget it."""
    figure.savefig(folder / name, bbox_inches="tight", pad_inches=0.06)
    plt.close(figure)


def panels(rows: int, columns: int, *, width: float = 2.1, height: float = 2.1, **options: Any) -> tuple[Figure, Any]:
    """A figure with a grid (rows, columns) of axes."""
    return plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **options
    )


def dots(axis: Axes, points: Floats, **options: Any) -> None:
    """Draw points (N, 2)."""
    axis.scatter(points[:, 0], points[:, 1], **options)


def montage(pictures: Floats, per_row: int, least_rows: int = 1, *, channels: int = 1) -> Floats:
    """Square pictures (M, C * H * H), from 0 to 1, in rows on white, with room for so many rows at least.

    Grey ones are drawn dark on white, colours as they are.
    """
    length = math.isqrt(pictures.shape[1] // channels)
    pitch = length + MARGIN
    n_rows = max(least_rows, -(-len(pictures) // per_row))
    sheet = np.ones((n_rows * pitch + MARGIN, per_row * pitch + MARGIN, channels))
    for place, picture in enumerate(pictures.reshape(-1, channels, length, length).transpose(0, 2, 3, 1)):
        top, left = (MARGIN + pitch * turn for turn in divmod(place, per_row))
        sheet[top : top + length, left : left + length] = 1 - picture if channels == 1 else picture
    return sheet[..., 0] if channels == 1 else sheet


def show_montage(axis: Axes, pictures: Floats, per_row: int, least_rows: int = 1, *, channels: int = 1) -> None:
    """Draw such a sheet, at the top of its panel."""
    sheet = montage(pictures, per_row, least_rows, channels=channels)
    axis.imshow(sheet, cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
    axis.set(xticks=[], yticks=[])
    axis.set_anchor("N")


def matched_colours(truth: Labels, labels: Labels) -> list[str]:
    """Colour of each point by its cluster, which has that of the true cluster it has most in common with."""
    true_index = np.unique(truth, return_inverse=True)[1]
    index = np.unique(labels, return_inverse=True)[1]
    rows, columns = linear_sum_assignment(contingency_matrix(true_index, index), maximize=True)
    matched = dict(zip(columns.tolist(), rows.tolist(), strict=True))
    surplus = [cluster for cluster in range(int(index.max()) + 1) if cluster not in matched]
    matched |= {cluster: -1 - place % len(PALETTE) for place, cluster in enumerate(surplus)}
    return [PALETTE[matched[cluster]] for cluster in index.tolist()]
