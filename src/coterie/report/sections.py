"""The parts of the page as plain values: what the template writes down without deciding anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.report.findings import Findings, cell_text, mean_text
from coterie.report.profile import ClusterProfile, FeatureStatistics, Trait, telling_features
from coterie.report.wording import count, number, percent, shorten

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
