"""What a benchmark run leaves behind: one JSON line, and the labels of the best run of each method.

A suite describes what it wants as `Experiment`s and hands them to `Results.run`. Whatever the
results file already holds is not run again, so an interrupted suite goes on where it stopped.
"""

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.metrics import pairwise_distances, silhouette_score

from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Line = TypeVar("Line")
Setting: TypeAlias = str | int | float | bool | None
Settings: TypeAlias = Mapping[str, Setting]
Metrics: TypeAlias = Mapping[str, float | int | None]
Labels: TypeAlias = npt.NDArray[np.integer]
Floats: TypeAlias = npt.NDArray[np.floating]

MAX_SILHOUETTE_ROWS: Final = 10_000
SILHOUETTE_SEED: Final = 0
REPOSITORY: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class LabelledTable:
    """A data set ready to be clustered: standardised features, reference labels, number of clusters."""

    name: str
    X: Floats
    y: Labels
    n_clusters: int

    @cached_property
    def silhouette_rows(self) -> Labels:
        """Rows that the silhouette is computed on: all of them, or a fixed sample when there are many."""
        n = len(self.X)
        if n <= MAX_SILHOUETTE_ROWS:
            return np.arange(n)
        sample = np.random.default_rng(SILHOUETTE_SEED).choice(n, MAX_SILHOUETTE_ROWS, replace=False)
        return np.sort(sample)

    @cached_property
    def silhouette_distances(self) -> Floats:
        """Euclidean distances between the silhouette rows, computed once for all partitions."""
        distances: Floats = pairwise_distances(self.X[self.silhouette_rows])
        return distances

    def silhouette_settings(self) -> dict[str, Setting]:
        """Say how the silhouette was sampled; empty if it was not."""
        if len(self.X) <= MAX_SILHOUETTE_ROWS:
            return {}
        return {"silhouette_rows": MAX_SILHOUETTE_ROWS, "silhouette_seed": SILHOUETTE_SEED}

    def silhouette(self, labels: Labels) -> float | None:
        """Mean silhouette, or None where it is not defined (one cluster, or each row its own)."""
        sampled = labels[self.silhouette_rows]
        if not 2 <= len(np.unique(sampled)) < len(sampled):
            return None
        return float(silhouette_score(self.silhouette_distances, sampled, metric="precomputed"))

    def inertia(self, labels: Labels) -> float:
        """Sum of squared distances to the cluster means, which is what k-means minimises."""
        members = (self.X[labels == label] for label in np.unique(labels))
        return float(sum(np.square(rows - rows.mean(axis=0)).sum() for rows in members))

    def metrics(self, labels: Labels) -> dict[str, float | int | None]:
        """All scores of a partition; `n_clusters` counts the clusters that hold at least one row."""
        scores = {
            "silhouette": self.silhouette(labels),
            "nmi": normalized_mutual_information(self.y, labels),
            "ari": adjusted_rand_index(self.y, labels),
            "acc": matched_accuracy(self.y, labels),
            "inertia": self.inertia(labels),
        }
        rounded = {name: None if score is None else round(score, 6) for name, score in scores.items()}
        return {**rounded, "n_clusters": len(np.unique(labels))}


@dataclass(frozen=True)
class Record:
    """One line of a results file; `metrics` is empty and `note` says why where nothing was run."""

    suite: str
    data: str
    method: str
    seed: int
    settings: Settings
    metrics: Metrics
    seconds: float
    n: int
    d: int
    k: int
    commit: str
    versions: Mapping[str, str]
    note: str = ""

    @property
    def key(self) -> str:
        """What makes two runs the same run."""
        return json.dumps([self.suite, self.data, self.method, self.seed, self.settings], sort_keys=True)

    @property
    def rank(self) -> tuple[bool, float]:
        """Order by silhouette, but a run that fills all k clusters comes before one that does not.

        Without that, a method that lumps all rows but a few outliers together would be the best.
        """
        silhouette = self.metrics.get("silhouette")
        return self.metrics.get("n_clusters") == self.k, -1.0 if silhouette is None else silhouette


@dataclass(frozen=True)
class Experiment:
    """One setting of one method, to be run for several seeds.

    `fit` receives the seeds still wanted and returns one partition for each, so that a method may
    train its restarts side by side; the time is then shared out equally.
    """

    method: str
    settings: Settings
    fit: Callable[[Sequence[int]], Iterable[Labels]]
    seeds: Sequence[int] = (0,)


@dataclass(frozen=True)
class Results:
    """A JSONL file of records, and beside it `labels/` with the best partition of each method."""

    path: Path
    suite: str
    keep_labels: bool = True
    _keys: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        self._keys.update(record.key for record in read_records(self.path))

    def append(self, record: Record) -> None:
        """Add a line."""
        append_line(self.path, record)
        self._keys.add(record.key)

    def labels_path(self, data: str, method: str) -> Path:
        """Where the labels of the method's best run on this data are kept."""
        return self.path.parent / "labels" / f"{data}-{method}.npz"

    def run(self, table: LabelledTable, experiment: Experiment) -> list[Record]:
        """Run the seeds that are not yet in the file; return the new records.

        A method whose linear algebra breaks down is recorded as failed, since grids reach into such corners.
        """
        blank = self._blank(table, experiment.method, experiment.settings)
        pending = [seed for seed in experiment.seeds if replace(blank, seed=seed).key not in self._keys]
        if not pending:
            return []
        start = time.perf_counter()
        try:
            partitions = list(experiment.fit(pending))
        except np.linalg.LinAlgError as error:
            return [self._append_failure(replace(blank, seed=seed), error) for seed in pending]
        seconds = round((time.perf_counter() - start) / len(pending), 4)
        added = []
        for seed, labels in zip(pending, partitions, strict=True):
            record = replace(blank, seed=seed, metrics=table.metrics(labels), seconds=seconds)
            # Labels before the line: if we stop between the two, the run is simply done again.
            if self.keep_labels:
                self._keep_if_best(record, labels)
            self.append(record)
            added.append(record)
        return added

    def _append_failure(self, blank: Record, error: Exception) -> Record:
        failure = replace(blank, note=f"failed: {error}")
        self.append(failure)
        return failure

    def note_not_run(self, table: LabelledTable, method: str, reason: str) -> None:
        """Record that a method was left out on this data, and why."""
        record = replace(self._blank(table, method, {}), note=reason)
        if record.key not in self._keys:
            self.append(record)

    def best_labels(self, data: str, method: str) -> Labels:
        """Labels of the best run so far, as kept in `labels/`."""
        path = self.labels_path(data, method)
        if not path.is_file():
            raise InputError(f"No labels of {method} on {data} at {path}. Run the suite that writes them first.")
        with np.load(path, allow_pickle=False) as kept:
            labels: Labels = kept["labels"]
        return labels

    def _blank(self, table: LabelledTable, method: str, settings: Settings) -> Record:
        n, d = table.X.shape
        return Record(
            suite=self.suite,
            data=table.name,
            method=method,
            seed=0,
            settings={**settings, **table.silhouette_settings()},
            metrics={},
            seconds=0.0,
            n=n,
            d=d,
            k=table.n_clusters,
            commit=current_commit(),
            versions=library_versions(),
        )

    def _keep_if_best(self, record: Record, labels: Labels) -> None:
        path = self.labels_path(record.data, record.method)
        fills_all, silhouette = record.rank
        if path.is_file():
            with np.load(path, allow_pickle=False) as kept:
                if (bool(kept["fills_all"]), float(kept["silhouette"])) >= (fills_all, silhouette):
                    return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".partial.npz")
        np.savez_compressed(
            unfinished,
            labels=labels.astype(np.min_scalar_type(int(labels.max()))),
            silhouette=np.float64(silhouette),
            fills_all=np.bool_(fills_all),
            run=np.array(record.key),
        )
        unfinished.replace(path)


def append_line(path: Path, record: "DataclassInstance") -> None:
    """Add a record with a single write, so that an interruption leaves no half of a line behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, kind: Callable[..., Line]) -> list[Line]:
    """All records of that kind in a file, in the order of writing; none if there is no such file."""
    if not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            records.append(kind(**json.loads(line)))
        except (json.JSONDecodeError, TypeError) as error:
            raise InputError(f"{path}, line {number} is not a record ({error}). Delete that line.") from error
    return records


def keep_lines(path: Path, kind: Callable[..., "DataclassInstance"], keep: Callable[[Any], bool]) -> None:
    """Take out of a file, if there is one, all records but those to keep."""
    if not path.is_file():
        return
    lines = [json.dumps(asdict(record)) + "\n" for record in read_lines(path, kind) if keep(record)]
    unfinished = path.with_suffix(".partial")
    unfinished.write_text("".join(lines), encoding="utf-8")
    unfinished.replace(path)


def read_records(path: Path) -> list[Record]:
    """All records of a results file about data sets, in the order of writing; none if there is no such file."""
    return read_lines(path, Record)


def best_record(
    records: Iterable[Record], data: str, method: str, *, by_silhouette_alone: bool = False
) -> Record | None:
    """Find the best run of a method on a data set; None if it never ran.

    Parameters
    ----------
    records
        Records to choose from, usually from `read_records`.
    data, method
        Names as in the records.
    by_silhouette_alone
        Also admit runs that left some of the k clusters empty, on equal terms.
    """
    ran = [r for r in records if (r.data, r.method) == (data, method) and r.metrics]
    if by_silhouette_alone:
        return max(ran, key=lambda record: record.rank[1], default=None)
    return max(ran, key=lambda record: record.rank, default=None)


@cache
def current_commit() -> str:
    """Short hash of the commit that is measured, with `-dirty` if its files were changed since."""
    commit = _git("rev-parse", "--short", "HEAD")
    # Results that are being written are no change of what is measured.
    changes = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    if commit is None or changes is None:
        return "unknown"
    return f"{commit}-dirty" if changes else commit


def _git(*arguments: str) -> str | None:
    """Answer of git about this repository; None where there is no git or no repository."""
    git = shutil.which("git")
    if git is None:
        return None
    # S603 warns of any command that is not one literal; both callers pass literals only.
    done = subprocess.run([git, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def library_versions() -> dict[str, str]:
    """Versions of what the results depend on."""
    libraries = ("numpy", "scipy", "scikit-learn", "torch")
    return {"python": platform.python_version()} | {name: version(name) for name in libraries}
