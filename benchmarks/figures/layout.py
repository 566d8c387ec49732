"""One look for all figures: colours, fonts, grids of panels and of images."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix
from torch import Tensor

from benchmarks.lines import Floats, Labels

COLOURS: Final = ("#4477aa", "#ee8866", "#44aa99", "#aa4499", "#ddcc77")
# Twelve distinct colours, and lighter ones at the end for surplus clusters.
PALETTE: Final = (
    *("#4477aa", "#ee8866", "#44aa99", "#aa4499", "#ddaa33", "#882255", "#66ccee", "#117733", "#cc6677", "#332288"),
    *("#999933", "#777777", "#bbccee", "#ffccbb", "#ccddaa", "#eeccdd"),
)
INK: Final = "#222222"
FAINT: Final = "#999999"
MARGIN: Final = 2  # pixels between images of a montage
PER_ROW: Final = 8  # images in a row of a montage
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
    """Write a figure and close it."""
    figure.savefig(folder / name, bbox_inches="tight", pad_inches=0.06)
    plt.close(figure)


def panels(rows: int, columns: int, *, width: float = 2.1, height: float = 2.1, **options: Any) -> tuple[Figure, Any]:
    """Make a figure with a grid (rows, columns) of axes."""
    return plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **options
    )


def dots(axis: Axes, points: Floats, **options: Any) -> None:
    """Draw points (N, 2)."""
    axis.scatter(points[:, 0], points[:, 1], **options)


def show_montage(axis: Axes, images: Floats, per_row: int, least_rows: int = 1, *, channels: int = 1) -> None:
    """Draw square images (M, C * H * H) in [0, 1] in rows at the top of a panel; grey ones are dark on white."""
    length = math.isqrt(images.shape[1] // channels)
    pitch = length + MARGIN
    n_rows = max(least_rows, -(-len(images) // per_row))
    sheet = np.ones((n_rows * pitch + MARGIN, per_row * pitch + MARGIN, channels))
    for index, image in enumerate(images.reshape(-1, channels, length, length).transpose(0, 2, 3, 1)):
        top, left = (MARGIN + pitch * offset for offset in divmod(index, per_row))
        sheet[top : top + length, left : left + length] = 1 - image if channels == 1 else image
    axis.imshow(sheet[..., 0] if channels == 1 else sheet, cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
    axis.set(xticks=[], yticks=[])
    axis.set_anchor("N")


def show_clusters(
    rows: Any,
    sets: Iterable[Any],
    cluster: Callable[[Any], Tensor],
    score: tuple[str, Callable[..., float]],
    least: int,
) -> None:
    """Draw a row of panels per set, with the images of one found cluster in each."""
    name, measure = score
    for part, one in zip(rows, sets, strict=True):
        labels = cluster(one)
        n_found = len(torch.unique(labels))
        value = measure(one.labels.numpy(), labels.numpy())
        part.suptitle(f"{n_found} clusters found of {one.n_clusters}, {name} {value:.2f}", fontsize=9)
        largest = -(-int(labels.bincount().max()) // PER_ROW)
        x = one.x
        channels = 3 if x.shape[1] % 3 == 0 and x.shape[1] > 784 else 1
        for number, axis in enumerate(part.subplots(1, max(least, n_found))):
            if number < n_found:
                show_montage(axis, x[labels == number].numpy(), PER_ROW, largest, channels=channels)
            else:
                axis.set_axis_off()


def square_around(x: Tensor, margin: float) -> dict[str, tuple[float, float]]:
    """Limits of a square around the points of a plane."""
    low, high = x.amin(dim=0), x.amax(dim=0)
    half = margin * float((high - low).max())
    sides = [(middle - half, middle + half) for middle in ((low + high) / 2).tolist()]
    return {"xlim": sides[0], "ylim": sides[1]}


def matched_colours(truth: Labels, labels: Labels) -> list[str]:
    """Colour each point by its cluster; a cluster has the colour of the true cluster that it matches best."""
    true_index = np.unique(truth, return_inverse=True)[1]
    index = np.unique(labels, return_inverse=True)[1]
    rows, columns = linear_sum_assignment(contingency_matrix(true_index, index), maximize=True)
    matched = dict(zip(columns.tolist(), rows.tolist(), strict=True))
    surplus = [cluster for cluster in range(int(index.max()) + 1) if cluster not in matched]
    matched |= {cluster: -1 - number % len(PALETTE) for number, cluster in enumerate(surplus)}
    return [PALETTE[matched[cluster]] for cluster in index.tolist()]
