"""The result of a command, printed for people or as JSON."""

import json
import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as TextTable

from coterie.cli.options import Writing
from coterie.cli.progress import ProgressDisplay
from coterie.errors import TableError
from coterie.reporting.formatting import plural
from coterie.tables.table import Array

if TYPE_CHECKING:  # both import scikit-learn, which errors about the input need not wait for
    from coterie.base import BaseClusterer, Selection

_WIDTH_OUTSIDE_TERMINALS = 100
_SHOWN_NOTES = 8  # on the table; what the fit decided is always shown


@final
@dataclass(frozen=True, slots=True, eq=False)
class KnownClasses:
    """The rows whose class is known, to compare clusters with."""

    rows: Array  # positions of these rows
    classes: Array  # their classes, as numbers
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class Summary:
    """The result of a command."""

    source: str
    n_rows: int
    sizes: tuple[int, ...]
    seconds: float
    outliers: int | None = None  # number of rows in no cluster; None if the method does not detect outliers
    descriptions: tuple[str, ...] = ()  # distinguishing features of each cluster; empty if they were not computed
    silhouette: float | None = None  # NaN if it is undefined, None if it was not computed
    selection: "Selection | None" = None  # the candidates that the result was chosen from, if there were any
    scores: dict[str, float] = field(default_factory=dict)
    table_notes: tuple[str, ...] = ()  # what was done to the table
    fit_notes: tuple[str, ...] = ()  # what the fit decided
    files: dict[str, str] = field(default_factory=dict)
    noun: str = "row"  # "row" or "image"

    def to_json(self) -> str:
        """Return the summary as a JSON object."""
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
        if self.selection is not None:
            runner_up = self.selection.runner_up
            content["confidence"] = round(self.selection.confidence, 4)
            content["runner_up"] = None if runner_up is None else {**runner_up, "score": round(runner_up["score"], 4)}
        if self.scores:
            content["scores"] = {name: round(score, 4) for name, score in self.scores.items()}
        content |= {"notes": [*self.table_notes, *self.fit_notes], "files": self.files}
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)

    def show(self, *, on_stderr: bool) -> None:
        """Print a table of the clusters, and the scores below it."""
        console = Console(stderr=on_stderr, highlight=False, markup=False)
        if not console.is_terminal:
            console.width = _WIDTH_OUTSIDE_TERMINALS
        # A title of the table would be wrapped where that is narrow.
        headline = f"{self.source}: {plural(self.n_rows, self.noun)} in {plural(len(self.sizes), 'cluster')}"
        console.print(headline, style="bold", soft_wrap=True)
        table = TextTable(box=box.SIMPLE)
        for name in ("cluster", f"{self.noun}s", "percent"):
            table.add_column(name, justify="right", no_wrap=True)
        if self.descriptions:
            table.add_column("distinguishing features")
        rows = [(str(i), size, self.descriptions[i : i + 1]) for i, size in enumerate(self.sizes)]
        if self.outliers is not None:
            rows.append(("noise", self.outliers, ()))
        for name, size, text in rows:
            table.add_row(name, f"{size:,}", f"{size / self.n_rows:.1%}", *text)
        console.print(table)
        if self.selection is not None:
            console.print(_describe_selection(self.selection), soft_wrap=True)
        # Beside a confidence, it would be a second measure that knows less.
        if self.selection is None and self.silhouette is not None and math.isfinite(self.silhouette):
            console.print(
                f"silhouette {self.silhouette:.3f} (1 = perfect; below 0.25 clusters overlap or are not round)"
            )
        if self.scores:
            console.print(", ".join(f"{name} {score:.3f}" for name, score in self.scores.items()))


def _describe_selection(selection: "Selection") -> str:
    meaning = "expected adjusted Rand index; 1 = perfect"
    if selection.chosen is None:
        meaning = "probability of a single cluster; 1 = certain"
    text = f"confidence {selection.confidence:.2f} ({meaning})"
    other = selection.runner_up
    if other is None:
        return text
    return f"{text}, runner-up: {plural(other['n_clusters'], 'cluster')} by {other['algorithm']}, {other['score']:.2f}"


def print_summary(summary: Summary, writing: Writing, display: ProgressDisplay) -> None:
    """Print the summary in the requested form, where it does not mix with the rows."""
    if writing.json:
        sys.stdout.write(summary.to_json() + "\n")
    elif not writing.quiet:
        _print_for_people(summary, writing, display)
    display.show_profile()


def _print_for_people(summary: Summary, writing: Writing, display: ProgressDisplay) -> None:
    notes = summary.table_notes
    n_shown = len(notes) if len(notes) <= _SHOWN_NOTES + 1 else _SHOWN_NOTES
    for note in notes[:n_shown]:
        display.say(f"note: {note}")
    if rest := len(notes) - n_shown:
        display.say(f"note: {rest} more notes on the table are listed with --json")
    for note in summary.fit_notes:
        display.say(f"note: {note}")
    summary.show(on_stderr=writing.rows == "-")
    if summary.files:
        display.say(f"wrote {', '.join(summary.files.values())}")
    if writing.rows is None:
        display.say("to write the cluster of each row, add -o OUT.csv")


def cluster_sizes(labels: Array, n_clusters: int) -> tuple[int, ...]:
    """Count the rows of each cluster, without outliers."""
    return tuple(np.bincount(labels[labels >= 0], minlength=n_clusters).tolist())


def count_outliers(model: "BaseClusterer", labels: Array) -> int | None:
    """Count the rows in no cluster; None if the model was not asked to detect any."""
    outliers = int((labels < 0).sum())
    return outliers if outliers or model.get_params().get("noise") else None


def known_classes(truth: Array | None, name: str) -> KnownClasses:
    """Return the rows that have a known class, and a note if some rows have none."""
    if truth is None:
        return KnownClasses(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    known = np.flatnonzero(has_value(truth))
    if not len(known):
        raise TableError(f"Column {name!r}, given by --truth, has no values. Choose another column.")
    _, classes = np.unique([str(value) for value in truth[known].tolist()], return_inverse=True)
    missing = len(truth) - len(known)
    note = f"the scores exclude {missing} rows without a value in {name!r}"
    return KnownClasses(known, classes, (note,) if missing else ())


def has_value(column: Array) -> Array:
    """Return which rows of a column have a value."""
    missing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in column.tolist()]
    return ~np.array(missing, dtype=np.bool_)
