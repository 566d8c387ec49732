"""The verdict: how much the clusters can be trusted, in words that the whole page keeps to.

The level comes from the confidence (expected adjusted Rand index) and from how well subsamples agree with the result.
The fraction of rows that are expected to be in the right cluster comes from the memberships, which contain the same
confidence, so that the two cannot contradict each other. The silhouette has no part in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, final

from coterie.base import Selection
from coterie.reporting.formatting import format_percent, plural

Level: TypeAlias = Literal["high", "moderate", "limited", "low", "single", "none"]

HIGH: Final = 0.75  # expected adjusted Rand index from which the confidence is high
MODERATE: Final = 0.5  # and moderate; below it is limited, and below `Selection.low_confidence` it is low
CLOSE: Final = 0.05  # lead of the result over a different candidate below which both are nearly as good
NOTES_SAID_HERE: Final = ("Low confidence: ", "All rows form one cluster", "Chosen from ")
"""How notes of a fit start that the verdict, or the choice among candidates, replaces."""
_HEADLINES: Final[dict[Level, str]] = {
    "high": "High confidence",
    "moderate": "Moderate confidence",
    "limited": "Limited confidence",
    "low": "Low confidence",
    "none": "",
}
_MATCHES: Final = ((HIGH, "closely match"), (MODERATE, "largely match"), (0.25, "partly match"), (-1.0, "do not match"))


@final
@dataclass(frozen=True)
class Evidence:
    """What is known of how right a clustering is."""

    n_rows: int
    n_clusters: int
    n_outliers: int
    noun: str
    selection: Selection | None
    expected_right: float  # mean membership of the rows in their own cluster
    one_requested: bool = False  # whether one cluster was asked for
    truth_index: float | None = None  # adjusted Rand index with known classes


@final
@dataclass(frozen=True)
class Verdict:
    """One statement about the result, and what else is to be said of it."""

    level: Level
    headline: str
    sentence: str
    remarks: tuple[str, ...] = ()

    @property
    def is_warning(self) -> bool:
        """Whether the result should not be relied on."""
        return self.level == "low"


def level_of(confidence: float, agreement: Sequence[float], low_confidence: float) -> Level:
    """Return the level of a confidence, not above that of the agreement of the other subsamples.

    Disagreement alone does not make the confidence low: that word means the same here as in the notes of the fit.
    """
    if confidence < low_confidence:
        return "low"
    least = min(confidence, agreement_of_others(agreement))
    return "high" if least >= HIGH else "moderate" if least >= MODERATE else "limited"


def agreement_of_others(agreement: Sequence[float]) -> float:
    """Return the mean agreement of the subsamples with the winner, except its own; 1 if there are no others."""
    others = sorted(agreement)[:-1]
    return sum(others) / len(others) if others else 1.0


def judge_result(evidence: Evidence) -> Verdict:
    """Return the verdict on a clustering."""
    selection = evidence.selection
    if selection is not None and selection.chosen is None:
        verdict = _single(selection, evidence.noun)
    elif evidence.n_clusters == 1 and selection is None:
        asked = "One cluster was asked for." if evidence.one_requested else f"All {evidence.noun}s are in one cluster."
        verdict = Verdict("none", "", asked)
    elif selection is None:
        sentence = "This method does not estimate how close its clusters are to true groups."
        verdict = Verdict("none", "", sentence)
    else:
        verdict = _judged(evidence, selection)
    return replace(verdict, remarks=(*verdict.remarks, *_general_remarks(evidence)))


def _single(selection: Selection, noun: str) -> Verdict:
    probability = format_percent(selection.confidence)
    headline = "No separate groups were found" if selection.confidence >= HIGH else "Probably no separate groups"
    return Verdict("single", headline, f"The probability that all {noun}s form one cluster is {probability}.")


def _judged(evidence: Evidence, selection: Selection) -> Verdict:
    level = level_of(selection.confidence, selection.agreement, selection.low_confidence)
    noun = evidence.noun
    right = format_percent(evidence.expected_right)
    about = f"More than {right[1:]}" if right.startswith(">") else f"About {right}"
    sentence = f"{about} of the {noun}s are expected to be in the right cluster"
    if level == "low":
        guess = format_percent(1 / evidence.n_clusters)
        sentence += f"; if each were put into a random cluster, it would be {guess}."
    else:
        sentence += {
            "high": ".",
            "moderate": ": the groups are there, but their borders are uncertain.",
            "limited": ": take the clusters as a first sketch.",
        }[level]
    return Verdict(level, _HEADLINES[level], sentence, tuple(_remarks(level, evidence, selection)))


def _remarks(level: Level, evidence: Evidence, selection: Selection) -> list[str]:
    chosen, other = selection.chosen, selection.runner_up
    remarks = []
    agreement = agreement_of_others(selection.agreement)
    if agreement < HIGH:
        remarks.append(
            f"Other random samples of the {evidence.noun}s gave different clusters: their adjusted Rand index with "
            f"these is {agreement:.2f}, where 1 means the same."
        )
    best = selection.candidates[0]
    if level == "low":
        if chosen is not None and best["score"] >= selection.low_confidence:
            described = f"{plural(best['n_clusters'], 'cluster')} and a score of {best['score']:.2f}"
            remarks.append(f"What was asked for led away from the best candidate, which has {described}.")
        else:
            remarks.append("There may be no clusters in this table, or none that these columns show.")
    elif chosen is not None and other is not None and chosen["score"] - other["score"] < CLOSE:
        remarks.append(
            f"A different clustering is nearly as good: {plural(other['n_clusters'], 'cluster')} by "
            f"{other['algorithm']}, with a score of {other['score']:.2f}."
        )
    return remarks


def _general_remarks(evidence: Evidence) -> list[str]:
    remarks = []
    if evidence.n_outliers > evidence.n_rows / 2:
        remarks.append(f"More than half of the {evidence.noun}s are outliers, in no cluster.")
    if evidence.truth_index is not None:
        remarks.append(_compare(evidence.truth_index))
    return remarks


def _compare(index: float) -> str:
    how = next(words for least, words in _MATCHES if index >= least)
    value = f"{index:.2f}".replace("-", "−")
    return f"The clusters {how} the known classes: the adjusted Rand index is {value}."
