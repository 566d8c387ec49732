"""One look for all pictures: colours, fonts, and grids of panels."""

from pathlib import Path
from typing import Any, Final

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.quality.records import Floats

COLOURS: Final = ("#4477aa", "#ee8866", "#44aa99", "#aa4499", "#ddcc77")
INK: Final = "#222222"
FAINT: Final = "#999999"
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
