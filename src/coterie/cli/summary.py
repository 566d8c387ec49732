"""The result of a command, printed for people or as JSON."""

import json
import math
import sys
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as TextTable

from coterie.base import BaseClusterer, Selection
from coterie.cli.options import Writing
from coterie.cli.progress import ProgressDisplay
from coterie.errors import TableError
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.reporting.formatting import plural
from coterie.tables.table import Array

_WIDTH_OUTSIDE_TERMINALS = 100


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
    selection: Selection | None = None  # the candidates that the result was chosen from, if there were any
    scores: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
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
        content |= {"notes": list(self.notes), "files": self.files}
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
        if self.silhouette is not None and math.isfinite(self.silhouette):
            console.print(
                f"silhouette {self.silhouette:.3f} (1 = perfect; below 0.25 clusters overlap or are not round)"
            )
        if self.scores:
            console.print(", ".join(f"{name} {score:.3f}" for name, score in self.scores.items()))


def _describe_selection(selection: Selection) -> str:
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
        return
    if writing.quiet:
        return
    for note in summary.notes:
        display.say(f"note: {note}")
    summary.show(on_stderr=writing.rows == "-")
    if summary.files:
        display.say(f"wrote {', '.join(summary.files.values())}")
    if writing.rows is None:
        display.say("to write the cluster of each row, add -o OUT.csv")


def cluster_sizes(labels: Array, n_clusters: int) -> tuple[int, ...]:
    """Count the rows of each cluster, without outliers."""
    return tuple(np.bincount(labels[labels >= 0], minlength=n_clusters).tolist())


def count_outliers(model: BaseClusterer, labels: Array) -> int | None:
    """Count the rows in no cluster; None if the model was not asked to detect any."""
    outliers = int((labels < 0).sum())
    return outliers if outliers or model.get_params().get("noise") else None


def known_classes(truth: Array | None, name: str) -> tuple[Array, Array, tuple[str, ...]]:
    """Return which rows have a known class, these classes as numbers, and a note if some rows have none."""
    if truth is None:
        return np.empty(0, dtype=np.bool_), np.empty(0, dtype=np.int64), ()
    known = has_value(truth)
    if not known.any():
        raise TableError(f"Column {name!r}, given by --truth, has no values. Choose another column.")
    _, classes = np.unique([str(value) for value in truth[known].tolist()], return_inverse=True)
    missing = len(known) - int(known.sum())
    note = f"the scores exclude {missing} rows without a value in {name!r}"
    return known, classes, (note,) if missing else ()


def has_value(column: Array) -> Array:
    """Return which rows of a column have a value."""
    missing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in column.tolist()]
    return ~np.array(missing, dtype=np.bool_)


def score_against(classes: Array, labels: Array) -> dict[str, float]:
    """Compare clusters with known classes; outliers count as one more cluster."""
    return {
        "ARI": adjusted_rand_index(classes, labels),
        "NMI": normalized_mutual_information(classes, labels),
        "accuracy": matched_accuracy(classes, labels),
    }
