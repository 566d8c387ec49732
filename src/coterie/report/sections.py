"""The parts of the page as plain values: what the template writes down without deciding anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import silhouette_samples

from coterie.report.findings import OUTLIER, Findings, cell_text, mean_text, thinned
from coterie.report.formatting import Colour, count, number, percent, shorten
from coterie.report.images import image_png
from coterie.report.profile import ClusterProfile, FeatureStatistics, Trait, telling_features

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


HEAT_COLUMNS = 16
CLASSES = 40
RUNS = 10
_CELLS_PER_ROW = 5
# Bars end here; a longer effect is told by the figures beside it.
_WIDEST_EFFECT = 3.0
_FULL_COLOUR_AT = 2.0
# More than this would make the figures in the cells hard to read.
_STRONGEST_MIX = 72.0


@dataclass(frozen=True)
class Bar:
    """A trait as a bar that leaves the middle to the left or to the right, in percent."""

    label: str
    left: float
    width: float
    inside: str
    overall: str
    tip: str


@dataclass(frozen=True)
class CellText:
    """One value of a row beside the name of its column."""

    column: str
    text: str


@dataclass(frozen=True)
class TypicalRow:
    """The row that stands for its cluster."""

    id: str
    cells: tuple[CellText, ...]


@dataclass(frozen=True)
class BorderRow:
    """A row between two clusters."""

    id: str
    here: str
    other: int
    there: str


@dataclass(frozen=True)
class Card:
    """All that the page says of one cluster."""

    profile: ClusterProfile
    size: str
    rows: str
    share: str
    bar: float
    traits: tuple[Bar, ...]
    typical: TypicalRow | None
    borderline: tuple[BorderRow, ...]


@dataclass(frozen=True)
class Shade:
    """A cell of a table, shaded by `mix` percent of a colour."""

    text: str
    mix: int
    side: str = "one"
    tip: str = ""


@dataclass(frozen=True)
class ShadedRow:
    """A row of a shaded table."""

    label: str
    full: str
    cells: tuple[Shade, ...]
    total: str = ""


@dataclass(frozen=True)
class ShadedTable:
    """A table of shaded cells, and a sentence on what of it is shown."""

    rows: tuple[ShadedRow, ...]
    shown: str


@dataclass(frozen=True)
class RunRow:
    """One training run."""

    chosen: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class RunTable:
    """The runs from which the result was chosen."""

    names: tuple[str, ...]
    rows: tuple[RunRow, ...]
    shown: str
    count: str


def cluster_cards(found: Findings, profiles: Sequence[ClusterProfile], telling: NDArray[np.int64]) -> tuple[Card, ...]:
    """Return the card of each cluster; without cells where no column is `telling`."""
    largest = max(1, found.n_outliers, *(profile.size for profile in profiles))
    usual = [found.features[place].column for place in telling]
    return tuple(
        Card(
            profile=profile,
            size=f"{profile.size:,}",
            rows=count(profile.size, found.noun),
            share=percent(profile.share),
            bar=100 * profile.size / largest,
            traits=tuple(_bar(trait) for trait in profile.traits),
            typical=_typical_row(found, profile, usual),
            borderline=tuple(
                BorderRow(shorten(found.ids[row.row], 40), percent(row.here), row.other, percent(row.there))
                for row in profile.borderline
            ),
        )
        for profile in profiles
    )


def _bar(trait: Trait) -> Bar:
    width = 50 * min(abs(trait.effect) / _WIDEST_EFFECT, 1.0)
    return Bar(
        label=trait.label,
        left=50.0 if trait.effect > 0 else 50.0 - width,
        width=width,
        inside=trait.inside,
        overall=trait.overall,
        tip=f"{trait.column}: effect {trait.effect:+.2f}".replace("-", "−"),
    )


def _typical_row(found: Findings, profile: ClusterProfile, usual: Sequence[str]) -> TypicalRow | None:
    if profile.typical < 0:
        return None
    own = [trait.column for trait in profile.traits] if usual else []
    columns = list(dict.fromkeys([*own, *usual]))[:_CELLS_PER_ROW]
    cells = row_texts(found, columns, profile.typical)
    return TypicalRow(
        shorten(found.ids[profile.typical], 40),
        tuple(CellText(found.short[name], text) for name, text in zip(columns, cells, strict=True)),
    )


def row_texts(found: Findings, columns: Sequence[str], row: int) -> list[str]:
    """Write the values of one row in some columns."""
    return [cell_text(found.table, found.table.names.index(name), row) for name in columns]


def heat_map(found: Findings, statistics: FeatureStatistics) -> ShadedTable | None:
    """Return clusters against the columns that tell them apart best; None if there is nothing to tell."""
    distinct = found.unmirrored
    telling = telling_features(statistics, len(found.features)).tolist()
    places = [place for place in telling if place in distinct][:HEAT_COLUMNS]
    if found.n_clusters < 2 or not places:
        return None
    z = statistics.z_scores
    rows = tuple(
        ShadedRow(
            label=found.label(place),
            full=found.features[place].name,
            cells=tuple(
                _heat_cell(
                    float(z[cluster, place]),
                    mean_text(
                        found.features[place],
                        float(statistics.means[cluster, place]),
                        float(statistics.spread[place]),
                    ),
                )
                for cluster in range(found.n_clusters)
            ),
        )
        for place in places
    )
    total = len(distinct)
    shown = (
        f"Of {total:,} columns and levels, the {len(places)} that tell the clusters apart best are shown."
        if len(places) < total
        else "The column that tells the clusters apart best comes first."
        if total > 1
        else ""
    )
    return ShadedTable(rows, shown)


def _heat_cell(z: float, mean: str) -> Shade:
    if not np.isfinite(z):
        return Shade("–", 0, "high", "missing")
    mix = round(_STRONGEST_MIX * min(abs(z) / _FULL_COLOUR_AT, 1.0))
    text = f"{z:+.1f}".replace("-", "−") if abs(z) >= 0.05 else "0"
    return Shade(text, mix, "high" if z > 0 else "low", mean)


def confusion_table(found: Findings, classes: NDArray[Any], members: NDArray[np.int64]) -> ShadedTable:
    """Count the rows of each known class (largest first) in each cluster, and last the outliers, if there are any."""
    counts = np.zeros((len(classes), found.n_clusters + (found.n_outliers > 0)), dtype=np.int64)
    np.add.at(counts, (members, np.where(found.inside, found.labels, found.n_clusters)), 1)
    totals = counts.sum(axis=1)
    # Classes stand in the order of the clusters that hold most of them, so that a good match is a diagonal.
    largest = np.argsort(-totals, kind="stable")[:CLASSES]
    order = largest[np.argsort(counts[largest].argmax(axis=1), kind="stable")]
    rows = tuple(
        ShadedRow(
            label=shorten(str(classes[i]), 32),
            full=str(classes[i]),
            cells=tuple(
                Shade(f"{n:,}" if n else "·", round(_STRONGEST_MIX * n / totals[i])) for n in counts[i].tolist()
            ),
            total=f"{totals[i]:,}",
        )
        for i in order
    )
    shown = f"The {CLASSES} largest of {len(classes):,} classes are shown." if len(classes) > CLASSES else ""
    return ShadedTable(rows, shown)


def run_table(runs: Sequence[Mapping[str, Any]]) -> RunTable:
    """Return the chosen run and the best of the others by silhouette."""

    def rank(run: Mapping[str, Any]) -> tuple[bool, float]:
        silhouette = _finite(run.get("silhouette"))
        return not run.get("chosen"), np.inf if silhouette is None else -silhouette

    names = tuple(name for name in dict.fromkeys(key for run in runs for key in run) if name != "chosen")
    best = sorted(runs, key=rank)[:RUNS]
    shown = "The chosen run comes first, the others by their silhouette."
    if len(runs) > RUNS:
        shown = f"{RUNS} of {len(runs):,} runs are shown. {shown}"
    return RunTable(
        names=tuple(name.replace("_", " ") for name in names),
        rows=tuple(RunRow(bool(run.get("chosen")), tuple(_run_cell(run.get(name)) for name in names)) for run in best),
        shown=shown,
        count=count(len(runs), "run"),
    )


def _finite(value: object) -> float | None:
    if isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value):
        return float(value)
    return None


def _run_cell(value: object) -> str:
    finite = _finite(value)
    if finite is not None:
        return number(finite)
    return str(value) if isinstance(value, str | bool) else "–"


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
