"""Other numbers of clusters for the same rows, to colour the map by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from coterie.report.findings import OUTLIER, Findings, some_rows
from coterie.report.judgement import JudgedClusterer, described
from coterie.report.wording import percent

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
