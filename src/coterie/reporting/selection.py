"""Scored candidates: why this result was chosen, and alternatives to show on the map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from coterie.base import Selection
from coterie.reporting.data import OUTLIER, ClusteringData
from coterie.reporting.formatting import format_percent, plural
from coterie.reporting.sections import Axis, axis_over
from coterie.reporting.verdict import CLOSE
from coterie.tables.table import take_rows

SHORTLIST = 10
# Family, and so colour, of an algorithm by a word in its name; others are of the family "other".
FAMILIES = {"k-means": "k-means", "mixture": "mixture", "linkage": "linkage"}
FAMILIES |= {"HDBSCAN": "density", "density": "density", "spectral": "graph", "communities": "graph", "tree": "linkage"}
_OTHER = "other"
_COLUMNS = {
    "raw": "the original columns",
    "standardised": "standardised columns",
    "whitened": "whitened columns",
    "ranks": "rank-transformed columns",
    "power": "standardised columns, heavy tails shortened",
    "unweighted": "standardised columns of equal weight",
    "factors": "what the columns share",
    "cosine": "directions of the rows",
}
# Space, in percent, beside the first and the last number of clusters, and between two tick labels.
_MARGIN = 4.0
_TICK_DISTANCE = 6.0
ALTERNATIVES = 5
# Score that one doubling or halving of the number of clusters costs when alternatives are ranked.
_DISTANCE_COST = 0.1

Candidate = Mapping[str, Any]


@dataclass(frozen=True)
class Mark:
    """A candidate in the chart; positions are in percent from the left and from below."""

    x: float
    y: float
    family: str
    tip: str


@dataclass(frozen=True)
class ScoreChart:
    """Scores by number of clusters: all candidates, and a line through the best of each number."""

    marks: tuple[Mark, ...]
    families: tuple[str, ...]
    best: str
    chosen: Mark | None
    x: Axis
    y: Axis
    low_confidence: float


@dataclass(frozen=True)
class Confidence:
    """The confidence as a number, and what it means; the verdict says it in words."""

    value: float
    unit: str
    meaning: str


@dataclass(frozen=True)
class SelectionSection:
    """What the page says about the choice among candidates."""

    confidence: Confidence
    chart: ScoreChart | None
    shortlist: Sequence[Candidate]
    shown: str
    choice: str
    runner_up: str


def selection_section(selection: Selection | None, n_clusters: int) -> SelectionSection | None:
    """Explain the choice among candidates; None if there were none with several clusters."""
    if selection is None or all(level["n_clusters"] == 1 for level in selection.levels):
        return None
    shortlist, n = selection.shortlist(SHORTLIST), len(selection.candidates)
    shown = "There was only one candidate." if n == 1 else f"All {n:,} candidates, best first."
    if len(shortlist) != n:
        shown = "Near duplicates are left out."
    return SelectionSection(
        confidence=_confidence(selection, n_clusters),
        chart=_score_chart(selection),
        shortlist=shortlist,
        shown=shown,
        choice=_describe_choice(selection),
        runner_up=_describe_runner_up(selection),
    )


def describe_candidate(candidate: Candidate) -> str:
    """Describe a candidate in words."""
    return (
        f"{plural(candidate['n_clusters'], 'cluster')} by {candidate['algorithm']} on "
        f"{_name_columns(candidate)}, score {candidate['score']:.2f}"
    )


def _confidence(selection: Selection, n_clusters: int) -> Confidence:
    value, chosen = selection.confidence, selection.chosen
    if chosen is None:
        return Confidence(
            value=value,
            unit="probability of one cluster",
            meaning="This is the estimated probability that all rows form one cluster. So no candidate was chosen; "
            "their scores assume that there are clusters.",
        )
    meaning = "This is the expected adjusted Rand index with the true clusters: 1 means the same, 0 a random partition."
    removed = chosen["n_clusters"] - n_clusters
    if removed > 0:
        were = "was" if removed == 1 else "were"
        meaning += f" {plural(removed, 'cluster')} of the candidate had only outliers and {were} removed."
    return Confidence(value=value, unit="expected adjusted Rand index, 1 = perfect", meaning=meaning)


def family_of(candidate: Candidate) -> str:
    """Return the family of the algorithm."""
    return next((family for word, family in FAMILIES.items() if word in candidate["algorithm"]), _OTHER)


def _describe_choice(selection: Selection) -> str:
    n, chosen = len(selection.candidates), selection.chosen
    if chosen is None:
        return f"{plural(n, 'candidate')} {'was' if n == 1 else 'were'} scored, and none was chosen."
    return f"Chosen from {plural(n, 'candidate')}: {chosen['algorithm']} on {_name_columns(chosen)}."


def _name_columns(candidate: Candidate) -> str:
    return _COLUMNS.get(candidate["columns"], str(candidate["columns"]))


def _describe_runner_up(selection: Selection) -> str:
    other = selection.runner_up
    if other is None:
        return "All candidates are nearly identical, so there is no runner-up."
    if selection.chosen is None:
        return f"If there are clusters, the best candidate is: {describe_candidate(other)}."
    lead = selection.chosen["score"] - other["score"]
    closeness = "" if lead >= CLOSE else ". It is nearly as good" if lead >= 0 else ". Its score is higher"
    return f"Runner-up: {describe_candidate(other)}{closeness}."


def _score_chart(selection: Selection) -> ScoreChart | None:
    """Plot the candidates over a logarithmic axis; None if all have the same number of clusters."""
    numbers = [level["n_clusters"] for level in selection.levels]
    if len(numbers) < 2:
        return None
    low, high = np.log2(numbers[0]), np.log2(numbers[-1])
    top = min(1.0, np.ceil(10 * selection.candidates[0]["score"] + 0.5) / 10)

    def mark(candidate: Candidate) -> Mark:
        return Mark(
            x=_MARGIN + (100 - 2 * _MARGIN) * float((np.log2(candidate["n_clusters"]) - low) / (high - low)),
            y=100 * candidate["score"] / top,
            family=family_of(candidate),
            tip=describe_candidate(candidate),
        )

    best = [mark(level) for level in selection.levels]
    ticks: list[tuple[float, str]] = []  # as many of the numbers of clusters as there is room for
    for each, number in zip(best, numbers, strict=True):
        if not ticks or each.x - ticks[-1][0] >= _TICK_DISTANCE:
            ticks.append((each.x, f"{number:,}"))
    # The best candidates are drawn last, on top of the others.
    marks = tuple(mark(candidate) for candidate in reversed(selection.candidates))
    used = {each.family for each in marks}
    return ScoreChart(
        marks=marks,
        families=tuple(name for name in dict.fromkeys((*FAMILIES.values(), _OTHER)) if name in used),
        best=" ".join(f"{each.x:.2f},{100 - each.y:.2f}" for each in best),
        chosen=None if selection.chosen is None else mark(selection.chosen),
        x=Axis("number of clusters", tuple(ticks)),
        y=axis_over(0.0, top, "score"),
        low_confidence=min(100 * selection.low_confidence / top, 100.0),
    )


@dataclass(frozen=True)
class Alternative:
    """Another partition of the rows on the map; its labels are the numbers of the clusters' colours."""

    n_clusters: int
    description: str
    labels: tuple[int, ...]
    clusters: dict[int, str]  # percentage of the shown rows by colour, the largest first


def find_alternatives(
    selection: Selection | None, data: ClusteringData, rows: NDArray[np.int64]
) -> tuple[Alternative, ...]:
    """Return other partitions of some rows, in ascending order of the number of clusters."""
    if selection is None:
        return ()
    table = take_rows(data.table, rows)
    return tuple(
        _alternative(level, data.labels[rows], np.asarray(selection.alternative(level["n_clusters"], table)))
        for level in _nearest_levels(selection, data.n_clusters)
    )


def _nearest_levels(selection: Selection, n_clusters: int) -> list[Candidate]:
    """Choose good levels near the chosen one, in ascending order of the number of clusters."""
    number = n_clusters if selection.chosen is None else selection.chosen["n_clusters"]

    def worth(level: Candidate) -> float:
        return float(level["score"] - _DISTANCE_COST * abs(np.log2(level["n_clusters"] / number)))

    others = [level for level in selection.levels if level["n_clusters"] != number]
    best = sorted(others, key=worth, reverse=True)[:ALTERNATIVES]
    return sorted(best, key=lambda level: int(level["n_clusters"]))


def _alternative(level: Candidate, result: NDArray[np.int64], labels: NDArray[np.int64]) -> Alternative:
    colours = _match_colours(result, labels, level["n_clusters"])
    sizes = np.bincount(labels[labels != OUTLIER], minlength=level["n_clusters"])
    order = np.argsort(-sizes, kind="stable")
    return Alternative(
        n_clusters=level["n_clusters"],
        description=describe_candidate(level),
        labels=tuple(np.where(labels == OUTLIER, OUTLIER, colours[labels]).tolist()),
        clusters={int(colours[i]): format_percent(sizes[i] / len(labels)) for i in order},
    )


def _match_colours(result: NDArray[np.int64], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Give each cluster the colour of the best matching cluster of the result, or else a new colour."""
    n_result = int(result.max(initial=0)) + 1
    overlap = np.zeros((n_clusters, n_result))
    both = (result != OUTLIER) & (labels != OUTLIER)
    np.add.at(overlap, (labels[both], result[both]), 1.0)
    own, matched = linear_sum_assignment(overlap, maximize=True)
    colours = np.full(n_clusters, OUTLIER, dtype=np.int64)
    colours[own] = matched
    new = np.flatnonzero(colours == OUTLIER)
    colours[new] = n_result + np.arange(len(new))
    return colours
