"""Clustering without being told k: the zero-shot default and its peers, on batteries, tables, and embeddings.

    python -m benchmarks.quality.zero_shot_suite [--group batteries] [--methods genie,evoc] [--anew]

What the results file has already is not run again, so that an interrupted run goes on; ``--anew`` forgets it first.
Each method has a process of its own, one thread, and a limit of processor seconds (of rows, too, where its memory would
not do); a set that it does not finish is recorded with the reason. ``seconds`` are processor seconds of one fit, on a
machine that may be busy: an indication, no benchmark of speed.

Rows that a method calls noise count as one cluster of their own, as is usual; ``ari_assigned`` and ``nmi_assigned`` are
with each of them given to the cluster of its nearest clustered row. ``n_clusters`` does not count the noise. A method
that is told k is run with the k of each reference and scored against that reference.
"""

import argparse
import json
import math
import multiprocessing
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from sklearn.datasets import make_blobs

from benchmarks.quality.records import (
    Floats,
    Labels,
    Metrics,
    Record,
    append_line,
    current_commit,
    library_versions,
    read_records,
)
from benchmarks.quality.zero_shot_data import GROUPS, NOISE, BenchmarkSet, load, names
from benchmarks.quality.zero_shot_peers import METHODS, Method, choose, in_two, noise_to_nearest
from coterie.base import one_thread

SUITE: Final = "zero-shot"
DEFAULT_OUT: Final = Path("benchmarks/results/zero_shot.jsonl")
WARMING_COLUMNS: Final = (2, 8)
BREAKDOWNS: Final = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""How methods fail on data that they cannot cope with."""
Told: TypeAlias = tuple[()] | tuple[int]
"""What a fit gets beyond rows and seed: nothing, or k."""


@dataclass(frozen=True)
class Answer:
    """What came back from a method: a partition for each fit asked for, or why there is none."""

    partitions: Sequence[Labels]
    seconds: float
    failure: str = ""
    confidence: float | None = None
    """Agreement that the method expects of the first partition."""


@dataclass
class Worker:
    """The process of a method, which is begun when it is first needed, and again after it was stopped."""

    method: Method
    _process: multiprocessing.process.BaseProcess | None = None
    _connection: Connection | None = None

    def ask(self, X: Floats, seed: int, told: Sequence[Told]) -> Answer:
        """Have the method cluster the rows once for each thing told."""
        connection = self._connection or self._begin()
        connection.send((X, seed, told))
        try:
            answer: Answer = connection.recv()
        except EOFError:
            return Answer([], 0.0, self._why_it_ended())
        return answer

    def end(self) -> None:
        """Stop the process if it was begun."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.join()
            self._process = None

    def _begin(self) -> Connection:
        # Not forked: threads of libraries that are loaded here would be missing in a copy.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.method), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        return self._connection

    def _why_it_ended(self) -> str:
        process = self._process
        self.end()
        code = None if process is None else process.exitcode
        if code == -signal.SIGXCPU:
            return f"stopped after {self.method.seconds} processor seconds"
        return f"failed: its process ended with code {code}"


def _serve(connection: Connection, method: Method) -> None:
    """Cluster what comes in until the connection ends."""
    warnings.simplefilter("ignore")  # steps that ran out, graphs that fall apart: the score tells what they did
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for columns in WARMING_COLUMNS:  # what is only slow the first time is no part of the time
        rows, _ = make_blobs(200, columns, random_state=0)
        with suppress(*BREAKDOWNS):
            method.fit(rows, 0, *((3,) if method.given_k else ()))
    while True:
        try:
            X, seed, told = connection.recv()
        except EOFError:
            return
        began = time.process_time()
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(began + method.seconds), most))
        try:
            with one_thread():
                found = [in_two(method.fit(X, seed, *each)) for each in told]
        except BREAKDOWNS as error:
            connection.send(Answer([], 0.0, f"failed: {type(error).__name__}: {error}"[:300]))
        else:
            seconds = (time.process_time() - began) / len(told)
            connection.send(Answer([labels for labels, _ in found], seconds, confidence=found[0][1]))


def run(one: BenchmarkSet, method: Method, seed: int, cluster: Callable[..., Answer]) -> Record:
    """Have a method cluster a set; `cluster` takes rows, seed and what is told, as `Worker.ask`."""
    blank = _blank(one, method, seed)
    if method.max_rows is not None and len(one.X) > method.max_rows:
        return replace(blank, note=f"not run: more than {method.max_rows:,} rows")
    X = one.X if method.scales_itself else one.columns_for_peers
    ks = sorted(set(one.ks))
    told: list[Told] = [(k,) for k in ks] if method.given_k else [()]
    answer = cluster(X, seed, told)
    if answer.failure:
        return replace(blank, note=answer.failure)
    chosen = [answer.partitions[ks.index(k) if method.given_k else 0] for k in one.ks]
    metrics, k = _measure(one, X, chosen)
    if answer.confidence is not None:
        metrics = {**metrics, "confidence": round(answer.confidence, 6)}
    return replace(blank, metrics=metrics, k=k, seconds=round(answer.seconds, 4))


def _measure(one: BenchmarkSet, X: Floats, partitions: Sequence[Labels]) -> tuple[Metrics, int]:
    """Scores of the partitions (one for each reference), and the k of the reference that is agreed with best."""
    score = one.score(partitions)
    labels = partitions[one.ks.index(score.k)]
    completed = one.score([noise_to_nearest(X, each) for each in partitions])
    return {
        "ari": round(score.ari, 6),
        "nmi": round(score.nmi, 6),
        "ari_assigned": round(completed.ari, 6),
        "nmi_assigned": round(completed.nmi, 6),
        "n_clusters": len(np.unique(labels[labels != NOISE])),
        "noise_share": round(float(np.mean(labels == NOISE)), 6),
        "references": len(one.references),
    }, score.k


def _blank(one: BenchmarkSet, method: Method, seed: int) -> Record:
    n, d = one.X.shape
    package = {} if method.installed_version is None else {method.package: method.installed_version}
    return Record(
        suite=SUITE,
        data=one.name,
        method=method.name,
        seed=seed,
        settings={"group": one.group, "given_k": method.given_k, **method.settings},
        metrics={},
        seconds=0.0,
        n=n,
        d=d,
        k=one.ks[0],
        commit=current_commit(),
        versions=library_versions() | package,
    )


def run_method(method: Method, groups: Sequence[str], out: Path) -> Generator[Record]:
    """Run a method on all that the file does not have yet, and write each down."""
    known = {record.key for record in read_records(out)}
    worker = Worker(method)
    try:
        for group in groups:
            for name in names(group):
                one = load(group, name)
                for seed in method.seeds:
                    if _blank(one, method, seed).key in known:
                        continue
                    record = run(one, method, seed, worker.ask)
                    append_line(out, record)
                    yield record
    finally:
        worker.end()


def forget(out: Path, groups: Sequence[str], methods: Sequence[Method]) -> None:
    """Take what the file has of some methods on some groups out of it."""
    forgotten = {method.name for method in methods}
    kept = [r for r in read_records(out) if r.method not in forgotten or r.settings["group"] not in groups]
    unfinished = out.with_suffix(".partial")
    unfinished.write_text("".join(json.dumps(asdict(record)) + "\n" for record in kept), encoding="utf-8")
    unfinished.replace(out)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.zero_shot_suite")
    parser.add_argument("--group", choices=GROUPS, help="(default: all)")
    parser.add_argument("--methods", help=f"comma-separated (default: all): {', '.join(m.name for m in METHODS)}")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)
    groups = GROUPS if options.group is None else (options.group,)
    try:
        methods = choose(options.methods.split(",") if options.methods else None)
    except KeyError as error:
        print(f"error: Unknown: {error}. Known are: {', '.join(m.name for m in METHODS)}.", file=sys.stderr)
        return 2
    if options.anew:
        forget(options.out, groups, methods)
    for method in methods:
        if method.installed_version is None:
            print(f"not run: {method.name} needs the package {method.package}, which is not installed", file=sys.stderr)
            continue
        for record in run_method(method, groups, options.out):
            print(_line(record), flush=True)
    return 0


def _line(record: Record) -> str:
    start = f"{record.method:22} {record.data:30} seed {record.seed}  "
    if not record.metrics:
        return start + record.note
    return (
        f"{start}ari {record.metrics['ari']:.3f}  nmi {record.metrics['nmi']:.3f}  "
        f"{record.metrics['n_clusters']} of {record.k} clusters  {record.seconds:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
