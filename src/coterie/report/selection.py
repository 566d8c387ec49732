"""Why this answer: what a judge of many proposals thought of them, as plain values for the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import logit

from coterie.judged.assign import TOLERANCE
from coterie.judged.estimator import UNSURE
from coterie.report.findings import OUTLIER, Findings, some_rows
from coterie.report.formatting import count, percent
from coterie.report.sections import Axis, axis_over

SHORTLIST = 10
FAMILIES = {
    "k-means": "k-means",
    "Gaussian mixture": "mixture",
    "Gaussian mixture, diagonal": "mixture",
    "Gaussian mixture, shared shape": "mixture",
    "Ward linkage": "linkage",
    "average linkage": "linkage",
    "complete linkage": "linkage",
    "single linkage": "linkage",
    "Genie linkage": "linkage",
    "HDBSCAN": "density",
    "density peaks": "density",
    "density modes": "density",
    "spectral": "graph",
}
_OTHER = "other"
_COLUMNS = {
    "raw": "the columns as they are",
    "standardised": "standardised columns",
    "whitened": "whitened columns",
    "ranks": "ranks within columns",
}
_WORDS = ((0.75, "The judge is confident"), (0.5, "The judge is fairly confident"), (UNSURE, "The judge is unsure"))
# Closer than this, the runner-up deserves a look too.
_CLOSE = 0.05
# Space, in percent, beside the first and the last number of clusters, and between two that are written down.
_SIDE = 4.0
_TICK_APART = 6.0


@runtime_checkable
class JudgedClusterer(Protocol):
    """The further members of a fitted clusterer that chose among proposals."""

    @property
    def n_clusters_(self) -> int:
        """Return how many clusters there are."""

    @property
    def confidence_(self) -> float:
        """Return the agreement with the true groups that the judge expects."""

    @property
    def proposals_(self) -> Sequence[Mapping[str, Any]]:
        """Return who proposed what, and its score, the best first."""

    @property
    def levels_(self) -> Sequence[Mapping[str, Any]]:
        """Return the best proposal for each number of clusters, from few to many."""

    @property
    def chosen_(self) -> Mapping[str, Any] | None:
        """Return the proposal behind the answer, None if that is one group.

        It may have more clusters than the answer, in which those of outliers alone are dissolved.
        """

    @property
    def runner_up_(self) -> Mapping[str, Any] | None:
        """Return the best proposal that is really another one."""

    def alternative(self, n_clusters: int, X: Any, /) -> NDArray[np.int64]:
        """Return the cluster of each row in the best proposal of that number of clusters."""

    def shortlist(self, at_most: int, /) -> Sequence[Mapping[str, Any]]:
        """Return the best proposals that really differ, the one that was taken among them."""


@dataclass(frozen=True)
class Mark:
    """A proposal in the picture; places are in percent from the left and from below."""

    x: float
    y: float
    family: str
    tip: str


@dataclass(frozen=True)
class Ladder:
    """Score against number of clusters: all proposals, and a line through the best of each number."""

    marks: tuple[Mark, ...]
    families: tuple[str, ...]
    best: str
    taken: Mark | None
    x: Axis
    y: Axis
    guess_below: float


@dataclass(frozen=True)
class ProposalRow:
    """A proposal as a row of the table."""

    algorithm: str
    family: str
    columns: str
    n_clusters: int
    score: str
    bar: float
    taken: bool


@dataclass(frozen=True)
class Level:
    """The best proposal of one number of clusters, as a step of the dial."""

    n_clusters: int
    score: str
    bar: float
    taken: bool
    tip: str


@dataclass(frozen=True)
class Verdict:
    """How sure the judge is, in figures and in words; `warning` is empty unless the answer is a guess."""

    confidence: float
    measured: str
    words: str
    figure: str
    meaning: str
    warning: str = ""

    @property
    def caution(self) -> str:
        """Return what the head of the page has to say of it, if anything."""
        return f"{self.words}: {self.figure[0].lower()}{self.figure[1:]}" if self.warning else ""

    @property
    def bar(self) -> float:
        """Return the confidence as the length of a bar, in percent."""
        return 100 * min(max(self.confidence, 0.0), 1.0)


@dataclass(frozen=True)
class Judgement:
    """All that the page says of the choice."""

    verdict: Verdict
    ladder: Ladder | None
    rows: tuple[ProposalRow, ...]
    shown: str
    runner_up: str
    levels: tuple[Level, ...]
    guess_below: float = 100 * UNSURE


def judgement_of(model: object) -> Judgement | None:
    """Say why a clusterer answered as it did; None for those that do not choose among proposals."""
    if not isinstance(model, JudgedClusterer) or all(level["n_clusters"] == 1 for level in model.levels_):
        return None
    listed, taken = model.shortlist(SHORTLIST), model.chosen_
    return Judgement(
        verdict=_verdict(model),
        ladder=_ladder(model),
        rows=tuple(_row(proposal, taken) for proposal in listed),
        shown=_shown(len(listed), len(model.proposals_)),
        runner_up=_runner_up(model),
        levels=tuple(
            Level(
                n_clusters=level["n_clusters"],
                score=_score(level["score"]),
                bar=100 * level["score"],
                taken=level == taken,
                tip=described(level),
            )
            for level in model.levels_
        ),
    )


def described(proposal: Mapping[str, Any]) -> str:
    """Write a proposal in words."""
    return (
        f"{count(proposal['n_clusters'], 'cluster')} by {_proposer(proposal)} on "
        f"{_COLUMNS.get(proposal['columns'], proposal['columns'])}, score {_score(proposal['score'])}"
    )


def _score(value: float) -> str:
    return f"{value:.2f}"


def _verdict(model: JudgedClusterer) -> Verdict:
    confidence, taken = model.confidence_, model.chosen_
    if taken is None:
        return Verdict(
            confidence=confidence,
            measured="probability of one group",
            words="One group is the likeliest",
            figure=f"The judge takes it as {percent(confidence)} likely that the rows are one group.",
            meaning="So none of the proposals was taken; their scores hold for the case that there are groups.",
        )
    return Verdict(
        confidence=confidence,
        measured="expected agreement, 1 at best",
        words=next((words for least, words in _WORDS if confidence >= least), "Little more than a guess"),
        figure=f"The judge expects an agreement of {_score(confidence)} with the true groups.",
        meaning="1 would mean the very same groups, 0 no more than chance (adjusted Rand index)."
        + _fewer(taken, model.proposals_[0])
        + _dissolved(taken["n_clusters"] - model.n_clusters_),
        warning=_warning(model, taken) if confidence < UNSURE else "",
    )


def _fewer(taken: Mapping[str, Any], best: Mapping[str, Any]) -> str:
    """Say why it is not the highest score that was taken, if that is the reason."""
    highest, own = logit(np.clip([best["score"], taken["score"]], 1e-9, 1.0 - 1e-9))
    about_as_good = highest - own <= TOLERANCE
    if best["n_clusters"] <= taken["n_clusters"] or not about_as_good:
        return ""
    return f" Of proposals about as good as the highest ({described(best)}), the fewest clusters are taken."


def _dissolved(n: int) -> str:
    if n < 1:
        return ""
    clusters = "One cluster" if n == 1 else f"{n:,} clusters"
    return f" {clusters} of the proposal had outliers only and {'is' if n == 1 else 'are'} no more."


def _warning(model: JudgedClusterer, taken: Mapping[str, Any]) -> str:
    best = model.proposals_[0]
    if taken["score"] < UNSURE <= best["score"]:
        return f"The granularity that was asked for led away from what scores best: {described(best)}."
    return "There may be no groups in this table, or none that these columns show."


def _proposer(proposal: Mapping[str, Any]) -> str:
    return f"{proposal['algorithm']}{', refined' if proposal['refined'] else ''}"


def _family(proposal: Mapping[str, Any]) -> str:
    return FAMILIES.get(proposal["algorithm"], _OTHER)


def _row(proposal: Mapping[str, Any], taken: Mapping[str, Any] | None) -> ProposalRow:
    return ProposalRow(
        algorithm=_proposer(proposal),
        family=_family(proposal),
        columns=proposal["columns"],
        n_clusters=proposal["n_clusters"],
        score=_score(proposal["score"]),
        bar=100 * proposal["score"],
        taken=proposal == taken,
    )


def _shown(listed: int, proposed: int) -> str:
    if proposed == 1:
        return "There was one proposal only."
    if listed == proposed:
        return f"All {proposed} proposals, the best first."
    return f"The best of {proposed:,} proposals, without those that are nearly the same as a better one."


def _runner_up(model: JudgedClusterer) -> str:
    other = model.runner_up_
    if other is None:
        return "All proposals are nearly the same, so there is no runner-up."
    if model.chosen_ is None:
        return f"If there are groups, then perhaps {described(other)}."
    lead = model.chosen_["score"] - other["score"]
    closeness = "" if lead >= _CLOSE else ". It is hardly worse" if lead >= 0 else ". The judge likes it better"
    return f"The runner-up that really differs: {described(other)}{closeness}."


def _ladder(model: JudgedClusterer) -> Ladder | None:
    """Draw the proposals over a logarithmic axis; None if all have the same number of clusters."""
    numbers = [level["n_clusters"] for level in model.levels_]
    if len(numbers) < 2:
        return None
    low, high = np.log2(numbers[0]), np.log2(numbers[-1])
    top = min(1.0, np.ceil(10 * model.proposals_[0]["score"] + 0.5) / 10)

    def mark(proposal: Mapping[str, Any]) -> Mark:
        return Mark(
            x=_SIDE + (100 - 2 * _SIDE) * float((np.log2(proposal["n_clusters"]) - low) / (high - low)),
            y=100 * proposal["score"] / top,
            family=_family(proposal),
            tip=described(proposal),
        )

    best = [mark(level) for level in model.levels_]
    # The best proposals are drawn last, on top of the others.
    marks = tuple(mark(proposal) for proposal in reversed(model.proposals_))
    return Ladder(
        marks=marks,
        families=tuple(
            name for name in (*dict.fromkeys(FAMILIES.values()), _OTHER) if name in {m.family for m in marks}
        ),
        best=" ".join(f"{each.x:.2f},{100 - each.y:.2f}" for each in best),
        taken=None if model.chosen_ is None else mark(model.chosen_),
        x=_number_axis([each.x for each in best], numbers),
        y=axis_over(0.0, top, "score"),
        guess_below=min(100 * UNSURE / top, 100.0),
    )


def _number_axis(places: Sequence[float], numbers: Sequence[int]) -> Axis:
    """Write down as many of the numbers of clusters as there is room for."""
    ticks: list[tuple[float, str]] = []
    for place, number in zip(places, numbers, strict=True):
        if not ticks or place - ticks[-1][0] >= _TICK_APART:
            ticks.append((place, str(number)))
    return Axis("number of clusters", tuple(ticks))


ALTERNATIVES = 5
# How much of the score one doubling or halving of the number of clusters is worth: far alternatives are less of use.
_FAR = 0.1


@dataclass(frozen=True)
class Group:
    """A cluster of an alternative: the place of its colour, and its share of the rows that are drawn."""

    colour: int
    share: str


@dataclass(frozen=True)
class Alternative:
    """Another partition of the rows that the map shows; clusters go by the places of their colours."""

    n_clusters: int
    words: str
    labels: tuple[int, ...]
    groups: tuple[Group, ...]

    @property
    def n_colours(self) -> int:
        """Return how many colours the page needs for it."""
        return 1 + max((group.colour for group in self.groups), default=0)


def alternatives_of(model: object, found: Findings, rows: NDArray[np.int64]) -> tuple[Alternative, ...]:
    """Return other partitions of some rows, from few clusters to many; none for clusterers without proposals."""
    if not isinstance(model, JudgedClusterer):
        return ()
    table = some_rows(found.table, rows)
    return tuple(
        _alternative(level, found.labels[rows], np.asarray(model.alternative(level["n_clusters"], table)))
        for level in _nearest_levels(model)
    )


def _nearest_levels(model: JudgedClusterer) -> list[Mapping[str, Any]]:
    """Choose the best levels near the one that was taken, from few clusters to many."""
    number = model.n_clusters_ if model.chosen_ is None else model.chosen_["n_clusters"]

    def worth(level: Mapping[str, Any]) -> float:
        return float(level["score"] - _FAR * abs(np.log2(level["n_clusters"] / number)))

    others = [level for level in model.levels_ if level["n_clusters"] != number]
    best = sorted(others, key=worth, reverse=True)[:ALTERNATIVES]
    return sorted(best, key=lambda level: int(level["n_clusters"]))


def _alternative(level: Mapping[str, Any], taken: NDArray[np.int64], labels: NDArray[np.int64]) -> Alternative:
    colour_of = _colours(taken, labels, level["n_clusters"])
    sizes = np.bincount(labels[labels != OUTLIER], minlength=level["n_clusters"])
    order = np.argsort(-sizes, kind="stable")
    return Alternative(
        n_clusters=level["n_clusters"],
        words=described(level),
        labels=tuple(np.where(labels == OUTLIER, OUTLIER, colour_of[labels]).tolist()),
        groups=tuple(Group(int(colour_of[i]), percent(sizes[i] / len(labels))) for i in order),
    )


def _colours(taken: NDArray[np.int64], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Give each cluster the colour of the one in the answer that it shares most with, or else a new colour."""
    known = int(taken.max(initial=0)) + 1
    shared = np.zeros((n_clusters, known))
    both = (taken != OUTLIER) & (labels != OUTLIER)
    np.add.at(shared, (labels[both], taken[both]), 1.0)
    mine, theirs = linear_sum_assignment(shared, maximize=True)
    colours = np.full(n_clusters, OUTLIER, dtype=np.int64)
    colours[mine] = theirs
    new = np.flatnonzero(colours == OUTLIER)
    colours[new] = known + np.arange(len(new))
    return colours
