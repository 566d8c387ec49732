"""The sections of the page as plain values, which the template only writes down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.base import FitDescription
from coterie.metrics import row_silhouettes
from coterie.reporting.data import OUTLIER, ClusteringData, format_cell, format_mean, sample_rows
from coterie.reporting.formatting import Colour, format_number, plural, shorten
from coterie.reporting.images import image_png
from coterie.reporting.profile import ClusterProfile, FeatureStatistics, rank_features

SILHOUETTE_ROWS = 2_000
_BINS = 20


@dataclass(frozen=True)
class Axis:
    """Positions of the ticks, in percent from the low end, and their labels."""

    title: str
    ticks: tuple[tuple[float, str], ...]


def axis_over(low: float, high: float, title: str = "", wanted: int = 5) -> Axis:
    """Return an axis with ticks at round numbers."""
    span = high - low
    raw = span / wanted
    power = 10.0 ** np.floor(np.log10(raw))
    step = power * min((m for m in (1, 2, 5, 10) if m * power >= raw), default=10)
    first = np.ceil(low / step)
    values = [float((first + i) * step) for i in range(int(np.floor(high / step) - first) + 1)]
    return Axis(title, tuple((100 * (value - low) / span, _tick(value, float(step))) for value in values))


def _tick(value: float, step: float) -> str:
    """Format a tick with the decimals that distinguish it from the next."""
    if step < 1e-4 or abs(value) >= 1e9:
        return format_number(value)
    decimals = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    return f"{value:,.{decimals}f}".replace("-", "−") if value else "0"


@dataclass(frozen=True)
class ClusterSilhouettes:
    """The sorted silhouettes of the rows of one cluster, as an SVG path."""

    cluster: int
    path: str
    mean: float
    middle: float
    height: float


@dataclass(frozen=True)
class Silhouettes:
    """Silhouettes of a sample of rows; positions are in percent."""

    clusters: tuple[ClusterSilhouettes, ...]
    mean: float
    zero_at: float
    mean_at: float
    axis: Axis
    n_rows: int


def measure_silhouettes(data: ClusteringData) -> Silhouettes | None:
    """Measure the silhouettes of a sample of rows without outliers; None if they are undefined."""
    inside = np.flatnonzero(data.inside)
    rows = inside[sample_rows(len(inside), SILHOUETTE_ROWS)]
    labels = data.labels[rows]
    present = np.unique(labels)
    if not 2 <= len(present) < len(rows):
        return None
    scores = row_silhouettes(data.encoded[rows], labels)
    low = min(-0.1, float(np.floor(10 * scores.min()) / 10))
    gap = 0.12 / len(present)
    scale = 100 / (len(rows) * (1 + gap * (len(present) - 1)))
    top = 0.0
    shapes = []
    for cluster in present:
        own = np.sort(scores[labels == cluster])[::-1]
        bottom = top + len(own) * scale
        shapes.append(
            ClusterSilhouettes(
                cluster=int(cluster),
                path=_silhouette_path(100 * (own - low) / (1 - low), 100 * (0 - low) / (1 - low), top, bottom),
                mean=float(own.mean()),
                middle=(top + bottom) / 2,
                height=bottom - top,
            )
        )
        top = bottom + gap * len(rows) * scale
    mean = float(scores.mean())
    at = [100 * (value - low) / (1 - low) for value in (0.0, mean)]
    return Silhouettes(tuple(shapes), mean, at[0], at[1], axis_over(low, 1.0, "silhouette"), len(rows))


def _silhouette_path(reach: NDArray[np.float64], zero: float, top: float, bottom: float) -> str:
    edges = np.linspace(top, bottom, len(reach) + 1)
    steps = "".join(f"V{edge:.3f}H{x:.2f}" for x, edge in zip(reach[1:], edges[1:-1], strict=True))
    return f"M{zero:.2f} {top:.3f}H{reach[0]:.2f}{steps}V{bottom:.3f}H{zero:.2f}Z"


def membership_histogram(data: ClusteringData) -> tuple[list[tuple[float, float, str]], int]:
    """Count the rows by their membership in their own cluster.

    Returns position, height (in percent of the tallest bar) and label of each bar, and the rows of the tallest.
    """
    own = np.clip(data.own_membership[data.inside], 0, 1)
    counts, edges = np.histogram(own, bins=_BINS, range=(0, 1))
    tallest = int(counts.max())
    bars = [
        (100 * i / _BINS, 100 * n / max(tallest, 1), f"{edges[i]:.0%} to {edges[i + 1]:.0%}: {plural(n, data.noun)}")
        for i, n in enumerate(counts.tolist())
    ]
    return bars, tallest


def training_curve(losses: Sequence[float]) -> dict[str, Any] | None:
    """Plot the loss per epoch, on a logarithmic scale if it falls by a factor of ten; None for less than two."""
    loss = np.asarray(losses, dtype=np.float64)
    epochs = np.flatnonzero(np.isfinite(loss))
    if len(epochs) < 2:
        return None
    shown = loss[epochs]
    logarithmic = bool(shown.min() > 0 and shown.max() > 10 * shown.min())
    heights = np.log10(shown) if logarithmic else shown
    low, high = float(heights.min()), float(heights.max())
    pad = 0.04 * (high - low) or 0.5 * max(abs(high), 1e-6)
    low, high = low - pad, high + pad
    x = 100 * (epochs - epochs[0]) / (epochs[-1] - epochs[0])
    y = 100 * (high - heights) / (high - low)
    return {
        "path": " ".join(f"{a:.2f},{b:.2f}" for a, b in zip(x, y, strict=True)),
        "x": axis_over(int(epochs[0]) + 1, int(epochs[-1]) + 1, "epoch"),
        "y": _logarithmic_axis(low, high) if logarithmic else axis_over(low, high, "loss", wanted=4),
        "first": format_number(float(shown[0])),
        "last": format_number(float(shown[-1])),
    }


def _logarithmic_axis(low: float, high: float) -> Axis:
    """Return ticks at powers of ten, and at 2 and 5 times these if there are few."""
    powers = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    between = (1, 2, 5) if high - low < 3 else (1,)
    values = [m * 10.0**power for power in powers for m in between if low <= np.log10(m) + power <= high]
    return Axis(
        "loss (logarithmic)",
        tuple((float(100 * (np.log10(value) - low) / (high - low)), format_number(value)) for value in values),
    )


HEAT_COLUMNS = 16
CLASSES = 40
RUNS = 10
_CELLS_PER_ROW = 5
_LONGEST_TEXT = 120
_FULL_COLOUR_AT = 2.0
# A stronger shade would make the numbers in the cells hard to read.
_STRONGEST_MIX = 72.0


def typical_cells(data: ClusteringData, profile: ClusterProfile, best_columns: Sequence[str]) -> list[tuple[str, str]]:
    """Return columns and values of the typical row of a cluster: its traits first, then the best columns."""
    if not best_columns:
        return []
    wanted = [*(trait.column for trait in profile.traits), *best_columns]
    # The texts themselves say more than their components.
    columns = list(dict.fromkeys(data.text_components.get(name, name) for name in wanted))[:_CELLS_PER_ROW]
    cells = []
    for name in columns:
        if name in data.table.names:
            cells.append((data.short[name], row_texts(data, [name], profile.typical)[0]))
        elif name in data.table.extra_columns:
            text = data.table.extra_columns[name][profile.typical]
            cells.append((shorten(name), "missing" if text is None else shorten(str(text), _LONGEST_TEXT)))
    return cells


def row_texts(data: ClusteringData, columns: Sequence[str], row: int) -> list[str]:
    """Format the values of one row in some columns."""
    return [format_cell(data.table, data.table.names.index(name), row) for name in columns]


def heat_map(data: ClusteringData, statistics: FeatureStatistics) -> dict[str, Any] | None:
    """Return a table of clusters by the features that separate them best; None if no feature does."""
    independent = data.independent_features
    ranked = rank_features(statistics, len(data.features)).tolist()
    indices = [i for i in ranked if i in independent][:HEAT_COLUMNS]
    if data.n_clusters < 2 or not indices:
        return None
    z_scores = statistics.z_scores
    rows = [
        {
            "label": data.label(i),
            "full": data.features[i].name,
            "cells": [
                _heat_cell(float(z), format_mean(data.features[i], float(mean), float(statistics.spread[i])))
                for z, mean in zip(z_scores[:, i], statistics.means[:, i], strict=True)
            ],
        }
        for i in indices
    ]
    total = len(independent)
    shown = "Columns that separate the clusters best come first." if total > 1 else ""
    if len(indices) < total:
        shown = f"The {len(indices)} columns and levels that separate the clusters best are shown, of {total:,}."
    return {"rows": rows, "shown": shown}


def _heat_cell(z: float, mean: str) -> tuple[str, int, str, str]:
    """Return the text of a cell, its percentage of colour, the kind of colour, and a tip."""
    if not np.isfinite(z):
        return "–", 0, "high", "missing"
    mix = round(_STRONGEST_MIX * min(abs(z) / _FULL_COLOUR_AT, 1.0))
    text = f"{z:+.1f}".replace("-", "−") if abs(z) >= 0.05 else "0"
    return text, mix, "high" if z > 0 else "low", mean


def confusion_table(data: ClusteringData, classes: NDArray[Any], members: NDArray[np.int64]) -> dict[str, Any]:
    """Count the rows of each known class in each cluster, with the outliers in the last column if there are any."""
    counts = np.zeros((len(classes), data.n_clusters + (data.n_outliers > 0)), dtype=np.int64)
    np.add.at(counts, (members, np.where(data.inside, data.labels, data.n_clusters)), 1)
    totals = counts.sum(axis=1)
    # Classes are in the order of the clusters that hold most of them, so that a good match is a diagonal.
    largest = np.argsort(-totals, kind="stable")[:CLASSES]
    order = largest[np.argsort(counts[largest].argmax(axis=1), kind="stable")]
    rows = [
        {
            "label": shorten(str(classes[i]), 32),
            "full": str(classes[i]),
            "cells": [(f"{n:,}" if n else "·", round(_STRONGEST_MIX * n / totals[i])) for n in counts[i].tolist()],
            "total": f"{totals[i]:,}",
        }
        for i in order
    ]
    shown = f"The {CLASSES} largest of {len(classes):,} classes are shown." if len(classes) > CLASSES else ""
    return {"rows": rows, "shown": shown}


def run_table(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a table of the training runs: the chosen one first, then the others by silhouette."""

    def rank(run: Mapping[str, Any]) -> tuple[bool, float]:
        silhouette = _finite(run.get("silhouette"))
        return not run.get("chosen"), np.inf if silhouette is None else -silhouette

    names = tuple(name for name in dict.fromkeys(key for run in runs for key in run) if name != "chosen")
    best = sorted(runs, key=rank)[:RUNS]
    shown = "The chosen run comes first, then the others by silhouette."
    if len(runs) > RUNS:
        shown = f"{RUNS} of {len(runs):,} runs are shown. {shown}"
    return {
        "names": [name.replace("_", " ") for name in names],
        "rows": [(bool(run.get("chosen")), [_run_cell(run.get(name)) for name in names]) for run in best],
        "shown": shown,
        "count": plural(len(runs), "run"),
    }


def _finite(value: object) -> float | None:
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value):
        return float(value)
    return None


def _run_cell(value: object) -> str:
    finite = _finite(value)
    if finite is not None:
        return format_number(finite)
    return str(value) if isinstance(value, str | bool) else "–"


SIDE = 280  # most rows of the kernel that are shown, one pixel each
STRIP = 5  # width in pixels of the strips that show the clusters
_BLUE = np.array([37.0, 82.0, 130.0]) / 255
_ORANGE = np.array([201.0, 88.0, 32.0]) / 255


def kernel_panels(
    description: FitDescription, data: ClusteringData, classes: NDArray[np.int64] | None, colours: list[Colour]
) -> tuple[dict[str, str], str] | None:
    """Render the kernel, and if classes are known, theirs and the difference, with rows sorted by cluster.

    Returns the data URL of each image by its title, and a sentence on which rows are shown; None without a kernel.
    """
    if description.kernel is None or description.kernel_rows is None:
        return None
    rows = description.kernel_rows
    # The most certain rows of a cluster come first, so that uncertainty shows at the edges of a block.
    order = np.lexsort((-data.own_membership[rows], data.labels[rows]))
    order = order[sample_rows(len(order), SIDE)]
    kernel = description.kernel[np.ix_(order, order)].astype(np.float64)
    cluster = data.labels[rows][order]
    panels = {"predicted": _with_strips(1 - kernel[..., None] * (1 - _BLUE), cluster, colours)}
    if classes is not None:
        known = classes[rows][order]
        truth = (known[:, None] == known).astype(np.float64)
        missed, wrong = np.clip(truth - kernel, 0, 1), np.clip(kernel - truth, 0, 1)
        difference = 1 - missed[..., None] * (1 - _ORANGE) - wrong[..., None] * (1 - _BLUE)
        panels["known classes"] = _with_strips(1 - truth[..., None] * (1 - _BLUE), cluster, colours)
        panels["difference"] = _with_strips(difference, cluster, colours)
    shown, n = len(order), len(data.labels)
    return panels, "" if shown == n else f"{shown:,} of {n:,} {data.noun}s are shown."


def _with_strips(pixels: NDArray[np.float64], cluster: NDArray[np.int64], colours: list[Colour]) -> str:
    """Add strips in the colours of the clusters along the top and the left side."""
    shades = np.array([list(bytes.fromhex(colour.light[1:])) for colour in colours]).reshape(-1, 3) / 255
    strip = np.where((cluster == OUTLIER)[:, None], 0.6, shades[np.clip(cluster, 0, None)])
    size = len(cluster) + STRIP + 1
    framed = np.ones((size, size, 3))
    framed[STRIP + 1 :, STRIP + 1 :] = pixels
    framed[:STRIP, STRIP + 1 :] = strip
    framed[STRIP + 1 :, :STRIP] = strip[:, None]
    return image_png(framed, 0.0, 1.0)
