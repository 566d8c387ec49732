"""The map of the report as a matplotlib plot."""

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.base import BaseClusterer, FitDescription
from coterie.errors import InputError, import_extra
from coterie.reporting.data import OUTLIER, ClusteringData, collect_data, sample_rows
from coterie.reporting.formatting import cluster_colours, shorten
from coterie.reporting.profile import describe_clusters, feature_statistics
from coterie.reporting.projection import HEIGHT, MAP_ROWS, WIDTH, build_map
from coterie.reporting.sections import Axis
from coterie.tables.table import unknown_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEGEND_CLUSTERS = 12
_TITLE_WIDTH = 60  # characters per line
_NOISE = "#9a9a9a"
_DPI_SCALE = 6.0  # area of a point in points, from its diameter on the page


def plot_clusters(
    model: BaseClusterer, ax: "Axes | None" = None, X: Any = None, columns: tuple[str, str] | None = None
) -> "Axes":
    """Draw the plot of ``BaseClusterer.plot``."""
    import_extra("matplotlib", extra="plot", purpose="plot needs matplotlib")
    shown, rows = model.rows_to_show(X)
    description = shown.describe_fit(rows.table)
    data = collect_data(shown, rows.table, None, description)
    if ax is None:
        pyplot = import_extra("matplotlib.pyplot", extra="plot", purpose="plot needs matplotlib")
        ax = pyplot.subplots(layout="constrained")[1]
    axes: Axes = ax
    if columns is None:
        _draw_map(axes, shown, data, description)
    else:
        _draw_columns(axes, data, columns)
    if data.n_clusters <= _LEGEND_CLUSTERS:
        _add_legend(axes, data, description)
    return axes


def _draw_map(ax: "Axes", model: BaseClusterer, data: ClusteringData, description: FitDescription) -> None:
    drawn = build_map(data, model, description, cluster_colours(data.n_clusters))
    to_percent = np.array([100.0 / WIDTH, -100.0 / HEIGHT])  # the page counts y from the top
    _scatter(ax, data, drawn.rows, drawn.points * to_percent + [0.0, 100.0], drawn.point_size)
    for cluster, (x, y) in enumerate(drawn.prototypes * to_percent + [0.0, 100.0]):
        box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
        ax.annotate(str(cluster), (x, y), ha="center", va="center", fontweight="bold", bbox=box)
    _set_ticks(ax, drawn.x, drawn.y)


def _set_ticks(ax: "Axes", x: Axis, y: Axis) -> None:
    """Label the axes as the page does; an axis without a title has no meaning, and no ticks."""
    ticks = [(axis.ticks if axis.title else ()) for axis in (x, y)]
    ax.set_xticks([at for at, _ in ticks[0]], [text for _, text in ticks[0]])
    ax.set_yticks([at for at, _ in ticks[1]], [text for _, text in ticks[1]])
    ax.set_xlabel(_text(x.title), fontsize="small")
    ax.set_ylabel(_text(y.title), fontsize="small")


def _text(name: str) -> str:
    """Break a long title into lines; dollar signs would start formulas."""
    return fill(name, _TITLE_WIDTH).replace("$", r"\$")


def _draw_columns(ax: "Axes", data: ClusteringData, columns: tuple[str, str]) -> None:
    rows = np.random.default_rng(0).permutation(sample_rows(len(data.labels), MAP_ROWS))
    _scatter(ax, data, rows, [_plain_values(data, name)[rows] for name in columns], 5.0)
    ax.set_xlabel(_text(columns[0]))
    ax.set_ylabel(_text(columns[1]))


def _plain_values(data: ClusteringData, name: str) -> NDArray[Any]:
    """Return a column that has an order."""
    if name not in data.table.names:
        raise unknown_column(data.table, str(name))
    values = data.table.column(data.table.names.index(name))
    if values.dtype.kind == "O":
        raise InputError(f"columns has {name!r}, which is a category. Give two columns of numbers, booleans or dates.")
    return values


def _scatter(ax: "Axes", data: ClusteringData, rows: NDArray[np.int64], points: Any, size: float) -> None:
    """Draw the rows in the order that they come in, so that no cluster covers the others."""
    x, y = points if isinstance(points, list) else points.T
    palette = np.array([*(colour.light for colour in cluster_colours(data.n_clusters)), _NOISE])
    ax.scatter(x, y, c=palette[data.labels[rows]].tolist(), s=size * _DPI_SCALE / 2, alpha=0.8, linewidths=0)


def _add_legend(ax: "Axes", data: ClusteringData, description: FitDescription) -> None:
    lines = import_extra("matplotlib.lines", extra="plot", purpose="plot needs matplotlib")
    has_columns = data.table.image is None and description.columns_meaningful
    names = [f"cluster {cluster}" for cluster in range(data.n_clusters)]
    if has_columns:
        profiles = describe_clusters(data, feature_statistics(data))
        names = [f"{profile.number}: {shorten(profile.name, 40)}" for profile in profiles]
    entries = list(zip(names, (colour.light for colour in cluster_colours(data.n_clusters)), strict=True))
    entries += [("noise", _NOISE)] if (data.labels == OUTLIER).any() else []
    handles = [
        lines.Line2D([], [], marker="o", linestyle="", color=colour, label=_text(name)) for name, colour in entries
    ]
    ax.legend(handles=handles, fontsize="small")
