"""How fast the zero-shot default is, and how much memory it takes, beside k-means and peers that find k themselves.

    python -m benchmarks.speed.zero_shot [--methods coterie,kmeans-1] [--quick] [--anew]

Run it on a quiet machine; what the results file has already is not measured again. Each measurement has a process of
its own, which makes the table, warms up on another one, and then fits: three times up to 10,000 rows, once above. All
may use two threads; the zero-shot default uses one. Memory is the largest that the process ever had resident, nothing
subtracted: the interpreter, the libraries (the same ones for all methods) and the table are in it. A method that does
not finish a fit within its limit is stopped, recorded as such, and not run on more rows.
"""

import argparse
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks.quality.records import (
    Floats,
    Labels,
    Record,
    append_line,
    current_commit,
    library_versions,
    read_records,
)
from benchmarks.quality.zero_shot_data import NOISE
from benchmarks.quality.zero_shot_peers import JUDGE, Method, choose, coterie, in_two
from coterie.metrics import adjusted_rand_index

OUT: Final = Path("benchmarks/results/speed_zero_shot.jsonl")
SUITE: Final = "speed-zero-shot"
SEED: Final = 0
THREADS: Final = 2
COLUMNS: Final = 10
CLUSTERS: Final = 10
SPREAD: Final = 2.0
"""Deviation of the centres; that of the rows about their centre is 1."""
SIZES: Final = (1_000, 10_000, 100_000, 1_000_000)
MANY_ROWS: Final = 10_000
"""Above, a fit is timed once only."""
RUNS: Final = 3
WARMING_ROWS: Final = 1_000
PREPARING_SECONDS: Final = 900
"""Within which a process must be ready: some libraries compile themselves."""
TOO_LONG: Final = "more than"
"""How the note begins that says that a method was stopped."""
BLOCK: Final = 1 << 16


def kmeans_once(X: Floats, seed: int, k: int) -> Labels:
    """k-means from one start."""
    labels: Labels = KMeans(k, n_init=1, random_state=seed).fit_predict(X)
    return labels


METHODS: Final = (
    *choose(("coterie-fast", "coterie")),
    Method(
        "coterie-thorough",
        partial(coterie, effort="thorough"),
        settings={"effort": "thorough", "judge": JUDGE},
        max_rows=100_000,
        package="coterie",
    ),
    Method("kmeans-1", kmeans_once, given_k=True, settings={"n_init": 1}),
    *choose(("kmeans", "hdbscan-5", "fast-hdbscan", "evoc")),
)


@dataclass(frozen=True)
class Measured:
    """What one process found."""

    seconds: Sequence[float]
    """Of each fit."""
    before_mb: float
    """Resident just before the first fit that counts."""
    peak_mb: float
    ari: float
    n_clusters: int


def blobs(rows: int, seed: int) -> tuple[Floats, Labels]:
    """Gaussian groups of about equal size, made with hardly more memory than they take."""
    rng = np.random.default_rng(seed)
    centres, labels = rng.normal(0.0, SPREAD, (CLUSTERS, COLUMNS)), rng.integers(CLUSTERS, size=rows)
    X = rng.standard_normal((rows, COLUMNS))
    for start in range(0, rows, BLOCK):
        X[start : start + BLOCK] += centres[labels[start : start + BLOCK]]
    return X, labels


def measure(method: Method, rows: int, runs: int, on_fit: Callable[[], None]) -> Measured:
    """Fit as often as asked for; `on_fit` is called before the first fit, and after each."""
    told = (CLUSTERS,) if method.given_k else ()
    X, truth = blobs(rows, SEED)
    method.fit(blobs(min(rows, WARMING_ROWS), SEED + 1)[0], SEED, *told)
    seconds: list[float] = []
    before = resident_mb()
    on_fit()
    for _ in range(runs):
        began = time.perf_counter()
        labels, _ = in_two(method.fit(X, SEED, *told))
        seconds.append(time.perf_counter() - began)
        on_fit()
    return Measured(
        seconds=seconds,
        before_mb=before,
        # Linux counts in two ways that differ a little; it passes on the peak of the parent, which has no table.
        peak_mb=max(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
        ari=adjusted_rand_index(truth, labels),
        n_clusters=len(np.unique(labels[labels != NOISE])),
    )


def resident_mb() -> float:
    """Megabytes that this process has in memory now, as Linux says."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def in_own_process(method: Method, rows: int, runs: int) -> Measured | str:
    """Measure in a fresh process; a sentence if it did not come to an end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, method, rows, runs), daemon=True)
    process.start()
    theirs.close()  # so that the end of the process is the end of the connection
    try:
        within = PREPARING_SECONDS
        while ours.poll(within):
            message: Measured | None = ours.recv()
            if message is not None:
                return message
            within = method.seconds
        return f"{TOO_LONG} {within} s"
    except EOFError:
        process.join()  # for its exit code
        return f"failed: its process ended with code {process.exitcode}"
    finally:
        process.kill()
        process.join()
        ours.close()


def _serve(connection: Connection, method: Method, rows: int, runs: int) -> None:
    os.environ["NUMBA_NUM_THREADS"] = str(THREADS)  # read when it is imported, which is later
    warnings.simplefilter("ignore")
    torch.set_num_threads(THREADS)
    with threadpool_limits(THREADS):
        connection.send(measure(method, rows, runs, lambda: connection.send(None)))


def record_of(method: Method, rows: int, runs: int, done: Iterable[Record]) -> Record:
    """Measure, unless that is hopeless, and write down what came of it."""
    blank = _blank(method, rows, runs)
    if method.max_rows is not None and rows > method.max_rows:
        return replace(blank, note=f"not run: more than {method.max_rows:,} rows")
    for one in done:
        if one.method == method.name and one.n < rows and one.note.startswith(TOO_LONG):
            return replace(blank, note=f"not run: {one.note} at {one.n:,} rows")
    found = in_own_process(method, rows, runs)
    if isinstance(found, str):
        return replace(blank, note=found)
    metrics = {
        "longest": round(max(found.seconds), 4),
        "peak_mb": round(found.peak_mb, 1),
        "before_mb": round(found.before_mb, 1),
        "ari": round(found.ari, 6),
        "n_clusters": found.n_clusters,
    }
    return replace(blank, metrics=metrics, seconds=round(median(found.seconds), 4))


def _blank(method: Method, rows: int, runs: int) -> Record:
    package = {} if method.installed_version is None else {method.package: method.installed_version}
    return Record(
        suite=SUITE,
        data=f"blobs-{rows}",
        method=method.name,
        seed=SEED,
        settings={**method.settings, "threads": THREADS, "runs": runs, "limit_seconds": method.seconds},
        metrics={},
        seconds=0.0,
        n=rows,
        d=COLUMNS,
        k=CLUSTERS,
        commit=current_commit(),
        versions=library_versions() | package,
    )


def run(methods: Iterable[Method], sizes: Sequence[int], out: Path) -> Iterator[Record]:
    """Measure what the file does not have yet, the small sizes first."""
    done = read_records(out)
    known = {record.key for record in done}
    for rows in sizes:
        for method in methods:
            runs = RUNS if rows <= MANY_ROWS else 1
            if _blank(method, rows, runs).key not in known:
                done.append(record_of(method, rows, runs, done))
                append_line(out, done[-1])
                yield done[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return the exit status."""
    names = ",".join(method.name for method in METHODS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.zero_shot")
    parser.add_argument("--methods", default=names, help="comma-separated (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one small size, to see that it works; kept nowhere")
    parser.add_argument("--anew", action="store_true", help="forget what the file has")
    parser.add_argument("--out", type=Path, help=f"results file (default: {OUT})")
    options = parser.parse_args(arguments)
    try:
        methods = choose(options.methods.split(","), METHODS)
    except KeyError as error:
        print(f"error: Unknown: {error}. Known are: {names}.", file=sys.stderr)
        return 2
    for method in (method for method in methods if method.installed_version is None):
        print(f"not run: {method.name}, since the package {method.package} is not installed", file=sys.stderr)
    installed = [method for method in methods if method.installed_version is not None]
    with TemporaryDirectory() as spare:
        out = options.out or (Path(spare) / OUT.name if options.quick else OUT)
        if options.anew:
            out.unlink(missing_ok=True)
        for record in run(installed, (300,) if options.quick else SIZES, out):
            print(f"{record.method:18} {record.n:>9,}", record.note or (record.seconds, record.metrics), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
