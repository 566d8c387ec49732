"""Geometry of the charts: everything is a number or a path here, and becomes markup in the template."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import silhouette_samples

from coterie.report.findings import Findings, thinned
from coterie.report.wording import count, number

SILHOUETTE_ROWS = 4_000
_BINS = 20


@dataclass(frozen=True)
class Axis:
    """Where the ticks stand, in percent from the low end, and what they say."""

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
    """Write a tick with just the decimals that tell it from the next."""
    if step < 1e-4 or abs(value) >= 1e9:
        return number(value)
    decimals = max(0, -int(np.floor(np.log10(step) + 1e-9)))
    return f"{value:,.{decimals}f}".replace("-", "−") if value else "0"


@dataclass(frozen=True)
class Knife:
    """The silhouettes of one cluster's rows, sorted, as one shape."""

    cluster: int
    path: str
    mean: float
    middle: float
    height: float


@dataclass(frozen=True)
class Silhouettes:
    """The silhouette of each drawn row; places are in percent."""

    knives: tuple[Knife, ...]
    mean: float
    zero_at: float
    mean_at: float
    axis: Axis
    drawn: int


def silhouettes(found: Findings) -> Silhouettes | None:
    """Measure how much nearer each row is to its own cluster than to the next, outliers left out; None if undefined."""
    inside = np.flatnonzero(found.inside)
    rows = inside[thinned(len(inside), SILHOUETTE_ROWS)]
    labels = found.labels[rows]
    present = np.unique(labels)
    if not 2 <= len(present) < len(rows):
        return None
    scores = np.asarray(silhouette_samples(found.encoded[rows], labels), dtype=np.float64)
    low = min(-0.1, float(np.floor(10 * scores.min()) / 10))
    gap = 0.12 / len(present)
    scale = 100 / (len(rows) * (1 + gap * (len(present) - 1)))
    top = 0.0
    knives = []
    for cluster in present:
        own = np.sort(scores[labels == cluster])[::-1]
        bottom = top + len(own) * scale
        knives.append(
            Knife(
                cluster=int(cluster),
                path=_knife_path(100 * (own - low) / (1 - low), 100 * (0 - low) / (1 - low), top, bottom),
                mean=float(own.mean()),
                middle=(top + bottom) / 2,
                height=bottom - top,
            )
        )
        top = bottom + gap * len(rows) * scale
    mean = float(scores.mean())
    at = [100 * (value - low) / (1 - low) for value in (0.0, mean)]
    return Silhouettes(tuple(knives), mean, at[0], at[1], axis_over(low, 1.0, "silhouette"), len(rows))


def _knife_path(reach: NDArray[np.float64], zero: float, top: float, bottom: float) -> str:
    edges = np.linspace(top, bottom, len(reach) + 1)
    steps = "".join(f"V{edge:.3f}H{x:.2f}" for x, edge in zip(reach[1:], edges[1:-1], strict=True))
    return f"M{zero:.2f} {top:.3f}H{reach[0]:.2f}{steps}V{bottom:.3f}H{zero:.2f}Z"


@dataclass(frozen=True)
class Histogram:
    """Shares of rows in equal bins from 0 to 1; heights are in percent of the fullest bin."""

    bars: tuple[tuple[float, float, str], ...]
    fullest: int


def membership_histogram(found: Findings) -> Histogram:
    """Count the rows by how strongly they belong to their own cluster."""
    own = np.clip(found.top_membership[found.inside], 0, 1)
    counts, edges = np.histogram(own, bins=_BINS, range=(0, 1))
    fullest = int(counts.max())
    bars = tuple(
        (100 * i / _BINS, 100 * n / max(fullest, 1), f"{edges[i]:.0%} to {edges[i + 1]:.0%}: {count(n, found.noun)}")
        for i, n in enumerate(counts.tolist())
    )
    return Histogram(bars, fullest)


@dataclass(frozen=True)
class Curve:
    """The loss over the epochs as a path in a picture of 100 by 100."""

    path: str
    x: Axis
    y: Axis
    logarithmic: bool
    first: str
    last: str


def training_curve(losses: Sequence[float]) -> Curve | None:
    """Draw the loss per epoch, on a logarithmic scale if it falls by a factor of ten; None for no epochs."""
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
    points = " ".join(f"{a:.2f},{b:.2f}" for a, b in zip(x, y, strict=True))
    axis = axis_over(low, high, "loss", wanted=4)
    if logarithmic:
        axis = _logarithmic_axis(low, high)
    first_epoch, last_epoch = int(epochs[0]) + 1, int(epochs[-1]) + 1
    return Curve(
        path=points,
        x=axis_over(first_epoch, last_epoch, "epoch"),
        y=axis,
        logarithmic=logarithmic,
        first=number(float(shown[0])),
        last=number(float(shown[-1])),
    )


def _logarithmic_axis(low: float, high: float) -> Axis:
    """Tick at powers of ten, and between them at 2 and 5 where few powers are in sight."""
    powers = range(int(np.floor(low)), int(np.ceil(high)) + 1)
    between = (1, 2, 5) if high - low < 3 else (1,)
    values = [m * 10.0**power for power in powers for m in between if low <= np.log10(m) + power <= high]
    return Axis(
        "loss (logarithmic)",
        tuple((float(100 * (np.log10(value) - low) / (high - low)), number(value)) for value in values),
    )
