"""The part of docs/results.md about confidence: what the judge expects of its choice, and what comes true."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.quality.judge_calibration import OUT
from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import REPOSITORY, Floats, Record, read_records
from benchmarks.quality.zero_shot_results import RECORDS, newest

BINS: Final = 10
PICTURE: Final = "judge-calibration.png"
FIGURES: Final = REPOSITORY / "docs" / "figures"
REAL_GROUPS: Final = ("tables", "batteries")
OURS: Final = ("coterie", "coterie-fast")


@dataclass(frozen=True)
class Point:
    """What was predicted of one set, and what was so."""

    kind: str
    """The effort, or "real"."""
    predicted: float
    true: float


@dataclass(frozen=True)
class Bin:
    """Sets of about the same prediction."""

    low: float
    high: float
    sets: int
    predicted: float
    """Mean."""
    true: float
    """Mean."""
    error: float
    """Standard error of the true mean."""


def choices(records: Iterable[Record]) -> list[Point]:
    """Predicted and true agreement of the sets of several clusters."""
    several = (record for record in records if record.metrics and record.k > 1)
    return [
        Point(str(record.settings["effort"]), record.metrics["confidence"] or 0.0, record.metrics["ari"] or 0.0)
        for record in several
    ]


def singles(records: Iterable[Record]) -> list[Point]:
    """Predicted probability of one cluster, and 1 where there is one."""
    judged = (record for record in records if record.metrics)
    return [
        Point(str(record.settings["effort"]), record.metrics["single"] or 0.0, float(record.k == 1))
        for record in judged
    ]


def real(folder: Path) -> list[Point]:
    """The same of real tables and batteries, as far as the zero-shot suite has written the confidence down."""
    return [
        Point("real", confidence, record.metrics["ari"] or 0.0)
        for record in newest(read_records(folder / RECORDS))
        if record.method in OURS and record.settings["group"] in REAL_GROUPS
        if (confidence := record.metrics.get("confidence")) is not None
    ]


def of_newest_judge(records: Sequence[Record]) -> list[Record]:
    """Lines about the judge that the last line is about."""
    return [record for record in records if record.settings["judge"] == records[-1].settings["judge"]]


def bins(points: Sequence[Point]) -> list[Bin]:
    """Points by their prediction, in steps of equal width; none where there are no points."""
    edges = np.linspace(0.0, 1.0, BINS + 1)
    predicted, true = _columns(points)
    places = np.clip(np.digitize(predicted, edges) - 1, 0, BINS - 1)
    found = []
    for place in np.unique(places).tolist():
        inside = places == place
        count = int(inside.sum())
        error = float(true[inside].std(ddof=1) / np.sqrt(count)) if count > 1 else 0.0
        means = float(predicted[inside].mean()), float(true[inside].mean())
        found.append(Bin(float(edges[place]), float(edges[place + 1]), count, *means, error))
    return found


def calibration_error(points: Sequence[Point]) -> float:
    """Mean distance of predicted and true means of the bins, by their numbers of points (ECE)."""
    return sum(one.sets * abs(one.predicted - one.true) for one in bins(points)) / len(points)


def correlation(points: Sequence[Point]) -> float | None:
    """Of predicted and true values (Pearson); None where one of them is always the same."""
    predicted, true = _columns(points)
    if len(points) < 2 or predicted.std() == 0 or true.std() == 0:
        return None
    return float(np.corrcoef(predicted, true)[0, 1])


def _columns(points: Sequence[Point]) -> tuple[Floats, Floats]:
    return np.array([one.predicted for one in points]), np.array([one.true for one in points])


def section(folder: Path, figures: Path = FIGURES) -> str:
    """The section, from a heading on; nothing if nothing was measured."""
    records = of_newest_judge(read_records(folder / OUT.name))
    chosen, alone, measured = choices(records), singles(records), real(folder)
    if not chosen:
        return ""
    parts = ["\n\n## Coterie: is its confidence right?", _introduction(records, measured)]
    if (figures / PICTURE).is_file():
        parts.append(f"![Predicted against true agreement, one dot a set, and means of bins](figures/{PICTURE})")
    parts += [_summaries(chosen, measured), _bin_table(chosen, "ARI expected", "mean expected", "mean true")]
    parts += [_single_text(alone), _bin_table(alone, "one cluster, probability", "mean probability", "frequency")]
    return "\n\n".join(parts)


def _introduction(records: Sequence[Record], measured: Sequence[Point]) -> str:
    one = records[-1]
    text = (
        f"`confidence_` is the ARI that the judge expects of its choice. Here, for `{one.settings['judge']}`, beside "
        f"the ARI that it has, on {len(records)} fresh sets of the [universal prior](universal.md) (seed {one.seed}, "
        "which nothing is trained with), half with the proposals of each effort. Sets that are one cluster count only "
        "in the last table. ECE: mean distance of the expected and the true mean in ten bins, weighted by their sets. "
        "After ± stands the standard error."
    )
    return text + (" Real: the batteries and tables of above, once with each effort." if measured else "")


def _summaries(chosen: Sequence[Point], measured: Sequence[Point]) -> str:
    groups = {
        "synthetic": chosen,
        "synthetic, fast": [point for point in chosen if point.kind == "fast"],
        "synthetic, balanced": [point for point in chosen if point.kind == "balanced"],
        "real": measured,
    }
    rows = [
        [
            title,
            str(len(points)),
            *(number(float(column.mean())) for column in _columns(points)),
            number(calibration_error(points)),
            number(correlation(points)),
        ]
        for title, points in groups.items()
        if points
    ]
    return table(["sets", "number", "mean expected", "mean true", "ECE", "correlation"], rows)


def _bin_table(points: Sequence[Point], *titles: str) -> str:
    first, predicted, true = titles
    rows = [
        [
            f"{one.low:.1f} to {one.high:.1f}",
            str(one.sets),
            number(one.predicted),
            f"{number(one.true)} ± {number(one.error)}",
        ]
        for one in bins(points)
    ]
    return table([first, "sets", predicted, true], rows)


def _single_text(points: Sequence[Point]) -> str:
    alone = [point.predicted > 0.5 for point in points if point.true]
    others = [point.predicted > 0.5 for point in points if not point.true]
    return (
        "Whether there is one cluster only, which counts if `allow_single` is set: of "
        f"{len(alone)} sets of one cluster {sum(alone)} are called so, and of {len(others)} others {sum(others)}. ECE "
        f"{number(calibration_error(points))}."
    )
