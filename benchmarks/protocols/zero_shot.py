"""Clustering with an unknown number of clusters: the default method and its peers.

Each method has a process of its own, one thread, and a limit of processor seconds (and of rows where it needs too much
memory); a set that it does not finish is recorded with the reason. ``seconds`` are processor seconds of one fit on a
machine that may be busy: an indication, not a benchmark of speed.

Rows that a method calls noise count as one cluster, as is usual; ``ari_assigned`` and ``nmi_assigned`` are with each of
them assigned to the cluster of its nearest clustered row. ``n_clusters`` does not count noise. A method that is given k
is run with the k of each reference and compared with that reference.
"""

import math
import multiprocessing
import resource
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from typing import Any, Final, TypeAlias

import numpy as np
from sklearn.datasets import make_blobs

from benchmarks.data.frames import Rows
from benchmarks.data.tables import NOISE, ReferenceSet, load_reference_set, reference_set_names
from benchmarks.lines import Labels, Line, Settings, library_versions, record
from benchmarks.methods.classical import FITS, Found, noise_to_nearest, split_confidence
from benchmarks.suite import Job, Spec, Suite
from coterie.base import one_thread
from coterie.errors import MissingExtraError

WARM_UP_COLUMNS: Final = (2, 8)
FAILURES: Final = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""How methods fail on data that they cannot handle."""
GivenK: TypeAlias = tuple[()] | tuple[int]  # what a fit gets beyond rows and seed: nothing, or k


@dataclass(frozen=True)
class Method:
    """A method of a suite file, and its limits."""

    name: str
    fit: str  # key of `FITS`
    given_k: bool = False
    settings: Settings = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    max_rows: int | None = None
    seconds: int = 120  # processor seconds after which a fit is stopped
    package: str = "scikit-learn"
    scales_columns: bool = False  # whether it gets the columns as they are where others get them standardised
    data: Sequence[str] = ("",)  # how the names of the sets begin that it is for

    @property
    def packages(self) -> dict[str, str]:
        """Name and version of its package, if installed."""
        try:
            return {self.package: version(self.package)}
        except PackageNotFoundError:
            return {}

    def is_for(self, name: str) -> bool:
        """Whether a set is one that it is for."""
        return name.startswith(tuple(self.data))

    def __call__(self, X: Rows, seed: int, *k: int) -> Found:
        """Fit."""
        return FITS[self.fit](X, seed, *k, **self.settings)

    def require_package(self) -> None:
        """Raise if its package is not installed."""
        if not self.packages:
            raise MissingExtraError(f"{self.name} needs the package {self.package}; pip install {self.package}")


def methods_of(specs: dict[str, Spec]) -> list[Method]:
    """Read the methods of a suite file."""
    return [Method(name, **spec) for name, spec in specs.items()]


@dataclass(frozen=True)
class Answer:
    """What a method returned: a partition for each k, or why there is none."""

    partitions: Sequence[Labels]
    seconds: float
    failure: str = ""
    confidence: float | None = None  # agreement that the method predicts for the first partition


@dataclass
class Worker:
    """The process of a method; started when it is first needed, and again after it was stopped."""

    method: Method
    _process: multiprocessing.process.BaseProcess | None = None
    _connection: Connection | None = None

    def ask(self, X: Rows, seed: int, given: Sequence[GivenK]) -> Answer:
        """Cluster the rows once for each k."""
        connection = self._connection or self._start()
        connection.send((X, seed, given))
        try:
            answer: Answer = connection.recv()
        except EOFError:
            return Answer([], 0.0, self._failure())
        return answer

    def stop(self) -> None:
        """Stop the process if it was started."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.join()
            self._process = None

    def _start(self) -> Connection:
        # Not forked: threads of libraries that are loaded here would be missing in a copy.
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.method), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the connection
        return self._connection

    def _failure(self) -> str:
        process = self._process
        self.stop()
        code = None if process is None else process.exitcode
        if code == -signal.SIGXCPU:
            return f"stopped after {self.method.seconds} processor seconds"
        return f"failed: its process ended with code {code}"


def _serve(connection: Connection, method: Method) -> None:
    """Cluster what arrives until the connection ends."""
    warnings.simplefilter("ignore")  # non-convergence and disconnected graphs show in the score
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for columns in WARM_UP_COLUMNS:  # the first call may be slower
        rows, _ = make_blobs(200, columns, random_state=0)
        with suppress(*FAILURES):
            method(rows, 0, *((3,) if method.given_k else ()))
    while True:
        try:
            X, seed, given = connection.recv()
        except EOFError:
            return
        began = time.process_time()
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(began + method.seconds), most))
        try:
            with one_thread():
                found = [split_confidence(method(X, seed, *k)) for k in given]
        except FAILURES as error:
            connection.send(Answer([], 0.0, f"failed: {type(error).__name__}: {error}"[:300]))
        else:
            seconds = (time.process_time() - began) / len(given)
            connection.send(Answer([labels for labels, _ in found], seconds, confidence=found[0][1]))


def fits(suite: Suite) -> Iterator[Job]:
    """Derive one job per method, over all sets and seeds."""
    options = suite.get("embeddings", {})
    batteries = suite.get("batteries", ())
    sets = [(group, name) for group in suite["groups"] for name in reference_set_names(group, batteries)]
    for method in methods_of(suite.methods):
        lines = [
            record(suite["suite"], name, method.name, seed, _settings(group, method))
            for group, name in sets
            if method.is_for(name)
            for seed in method.seeds
        ]
        yield Job(lines, partial(_measure, method, partial(load_reference_set, **options)))


def _settings(group: str, method: Method) -> dict[str, Any]:
    return {"group": group, "given_k": method.given_k, **method.settings}


def _measure(method: Method, load: Callable[[str, str], ReferenceSet], pending: Sequence[Line]) -> Iterator[Line]:
    method.require_package()
    worker = Worker(method)
    try:
        for blank in pending:
            one = load(blank["settings"]["group"], blank["data"])
            yield fit_set(blank, one, method, worker.ask)
    finally:
        worker.stop()


def fit_set(
    blank: Line,
    one: ReferenceSet,
    method: Method,
    ask: Callable[..., Answer],
    examine: Callable[[ReferenceSet, Labels], dict[str, float]] = lambda *_: {},
) -> Line:
    """Cluster a set; `ask` takes rows, seed and the values of k, as `Worker.ask`; `examine` adds metrics of its own."""
    n, d = one.X.shape
    blank = blank | {"n": n, "d": d, "k": one.ks[0], "versions": library_versions() | method.packages}
    if method.max_rows is not None and n > method.max_rows:
        return blank | {"note": f"not run: more than {method.max_rows:,} rows"}
    scaled = one.scaled
    ks = sorted(set(one.ks))
    given: list[GivenK] = [(k,) for k in ks] if method.given_k else [()]
    answer = ask(one.X if method.scales_columns else scaled, blank["seed"], given)
    if answer.failure:
        return blank | {"note": answer.failure}
    partitions = [answer.partitions[ks.index(k) if method.given_k else 0] for k in one.ks]
    score = one.agreement(partitions)
    labels = partitions[one.ks.index(score.k)]
    assigned = one.agreement([noise_to_nearest(scaled, each, one.metric) for each in partitions])
    metrics = {
        "ari": round(score.ari, 6),
        "nmi": round(score.nmi, 6),
        "ari_assigned": round(assigned.ari, 6),
        "nmi_assigned": round(assigned.nmi, 6),
        "n_clusters": len(np.unique(labels[labels != NOISE])),
        "noise_share": round(float(np.mean(labels == NOISE)), 6),
        "references": len(one.references),
    }
    if answer.confidence is not None:
        metrics["confidence"] = round(answer.confidence, 6)
    metrics |= examine(one, labels)
    return blank | {"metrics": metrics, "k": score.k, "seconds": round(answer.seconds, 4)}
