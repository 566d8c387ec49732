"""What was found, for people and for programs."""

import json
import math
import sys
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as TextTable

from coterie.cli.inputs import Writing
from coterie.cli.progress import Narrator
from coterie.errors import TableError
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.tables.table import Array

_WIDTH_OUTSIDE_TERMINALS = 100


@final
@dataclass(frozen=True)
class Verdict:
    """What a judge of clusterings thinks of the one that was taken, and of the next best."""

    confidence: float
    runner_up: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Return what goes into the JSON object."""
        other = self.runner_up
        return {
            "confidence": round(self.confidence, 4),
            "runner_up": None if other is None else {**other, "score": round(other["score"], 4)},
        }

    def in_words(self) -> str:
        """Say it in one line."""
        words = f"confidence {self.confidence:.2f} (agreement with the truth that the judge expects; 1 at best)"
        if self.runner_up is None:
            return words
        clusters, algorithm = _counted(self.runner_up["n_clusters"], "cluster"), self.runner_up["algorithm"]
        return f"{words}, runner-up: {clusters} by {algorithm}, {self.runner_up['score']:.2f}"


@final
@dataclass(frozen=True)
class Summary:
    """The outcome of a command."""

    source: str
    n_rows: int
    sizes: tuple[int, ...]
    seconds: float
    outliers: int | None = None
    """Rows that are in no cluster; None where they were not looked for."""
    traits: tuple[str, ...] = ()
    """What sets each cluster apart, in words; empty where it was not looked for."""
    silhouette: float | None = None
    """NaN where it is not defined, None where it was not looked for."""
    verdict: Verdict | None = None
    """Of the judge, where there was one."""
    scores: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    noun: str = "row"
    """What a row is to the reader."""

    def to_json(self) -> str:
        """Write all but the words as one JSON object."""
        content: dict[str, Any] = {
            "source": self.source,
            "n_rows": self.n_rows,
            "n_clusters": len(self.sizes),
            "sizes": list(self.sizes),
            "outliers": self.outliers or 0,
            "seconds": round(self.seconds, 3),
        }
        if self.silhouette is not None:
            content["silhouette"] = round(self.silhouette, 4) if math.isfinite(self.silhouette) else None
        if self.verdict is not None:
            content |= self.verdict.to_dict()
        if self.scores:
            content["scores"] = {name: round(score, 4) for name, score in self.scores.items()}
        content |= {"notes": list(self.notes), "files": self.files}
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)

    def show(self, *, on_stderr: bool) -> None:
        """Print a table of the clusters, and the scores below it."""
        console = Console(stderr=on_stderr, highlight=False, markup=False)
        if not console.is_terminal:
            console.width = _WIDTH_OUTSIDE_TERMINALS
        # A title of the table would be wrapped where that is narrow.
        console.print(self._headline(), style="bold", soft_wrap=True)
        table = TextTable(box=box.SIMPLE)
        for name in ("cluster", f"{self.noun}s", "share"):
            table.add_column(name, justify="right", no_wrap=True)
        if self.traits:
            table.add_column("what sets it apart")
        for cluster, size in enumerate(self.sizes):
            table.add_row(*self._cells(str(cluster), size), *self.traits[cluster : cluster + 1])
        if self.outliers is not None:
            table.add_row(*self._cells("outliers", self.outliers))
        console.print(table)
        if self.verdict is not None:
            console.print(self.verdict.in_words(), soft_wrap=True)
        if self.silhouette is not None and math.isfinite(self.silhouette):
            console.print(
                f"silhouette {self.silhouette:.3f} (1 at best; below 0.25 the clusters overlap much, or are not round)"
            )
        if self.scores:
            console.print(", ".join(f"{name} {score:.3f}" for name, score in self.scores.items()))

    def _cells(self, name: str, size: int) -> tuple[str, str, str]:
        return name, f"{size:,}", f"{size / self.n_rows:.1%}"

    def _headline(self) -> str:
        return f"{self.source}: {_counted(self.n_rows, self.noun)} in {_counted(len(self.sizes), 'cluster')}"


def _counted(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number:,} {noun}s"


def present(summary: Summary, writing: Writing, narrator: Narrator) -> None:
    """Print what was asked for, where it does not mix with the rows."""
    if writing.json:
        sys.stdout.write(summary.to_json() + "\n")
        return
    if writing.quiet:
        return
    for note in summary.notes:
        narrator.say(f"note: {note}")
    summary.show(on_stderr=writing.rows == "-")
    if summary.files:
        narrator.say(f"wrote {', '.join(summary.files.values())}")
    if writing.rows is None:
        narrator.say("the cluster of each row is written by -o OUT.csv")


def cluster_sizes(labels: Array, n_clusters: int) -> tuple[int, ...]:
    """Count the rows of each cluster; outliers are in none."""
    return tuple(np.bincount(labels[labels >= 0], minlength=n_clusters).tolist())


def known_groups(truth: Array | None, name: str) -> tuple[Array, Array, tuple[str, ...]]:
    """Return which rows have a known group, their groups as numbers, and a note where some rows have none."""
    if truth is None:
        return np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64), ()
    known = has_value(truth)
    if not known.any():
        raise TableError(f"no row has a value in the column {name!r}, which --truth names; choose another one")
    _, groups = np.unique([str(value) for value in truth[known].tolist()], return_inverse=True)
    missing = len(known) - int(known.sum())
    note = f"the scores leave out {missing} rows that have no value of {name!r}"
    return known, groups, (note,) if missing else ()


def has_value(column: Array) -> Array:
    """Return which rows of a column have a value."""
    return np.array([not _is_missing(value) for value in column.tolist()], dtype=np.bool_)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def scores_against(groups: Array, labels: Array) -> dict[str, float]:
    """Compare clusters with known groups; outliers count as a cluster of their own."""
    return {
        "ARI": adjusted_rand_index(groups, labels),
        "NMI": normalized_mutual_information(groups, labels),
        "accuracy": matched_accuracy(groups, labels),
    }
