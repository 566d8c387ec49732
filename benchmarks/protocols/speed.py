"""Speed: how long methods take and how that grows, relative to peers or to the machine's own limit.

Run these suites on a quiet machine. Each function `measure_*` makes one line, most in a process of its own.
"""

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import count, islice
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pandas as pd
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits
from torch import Generator, Tensor

from benchmarks.data.synthetic import SyntheticSet, mixture_of_size
from benchmarks.data.tables import NOISE, load_table
from benchmarks.lines import Floats, Labels, Line, library_versions, read_lines, record, stamp
from benchmarks.methods.classical import cluster_given_k, split_confidence
from benchmarks.methods.sets import NO_LIMIT, load_model, solve_by_act_st
from benchmarks.protocols.zero_shot import Method, methods_of
from benchmarks.suite import Job, Spec, Suite
from coterie import AMCP, DAC, ClAM
from coterie.base import one_thread
from coterie.clam.model import ClamConfig, ClamModel
from coterie.metrics import adjusted_rand_index, silhouettes
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train

SEED: Final = 0


def in_own_process(measure: Callable[..., Line], threads: int | None, *arguments: Any) -> Line:
    """Call a function in a fresh process, so that peak memory is its own; without `threads`, on one thread."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_limited, (measure, threads, arguments))


def _limited(measure: Callable[..., Line], threads: int | None, arguments: Sequence[Any]) -> Line:
    if threads is None:
        with one_thread():
            return measure(*arguments)
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        return measure(*arguments)


def _about(suite: Suite) -> Line:
    return {"suite": suite["suite"], "seed": SEED}


# ClAM against k-means and against the machine's matrix products, all on one thread.


def clam(suite: Suite) -> Iterator[Job]:
    """Derive one job per line: fits by size, epochs by shape, the released grid, and Table 3 of the paper."""
    for job in suite["jobs"]:
        part, arguments = job["part"], {key: value for key, value in job.items() if key != "part"}
        yield Job([job], partial(_measure_clam, suite, CLAM_PARTS[part], tuple(arguments.values())))


def _measure_clam(
    suite: Suite, measure: Callable[..., Line], arguments: Sequence[Any], _: Sequence[Line]
) -> list[Line]:
    return [in_own_process(measure, None, *arguments) | _about(suite) | stamp()]


def overlapping_blobs(rows: int, features: int, clusters: int) -> Floats:
    """Sample overlapping Gaussian groups of unequal size."""
    rng = np.random.default_rng(SEED)
    centres = rng.normal(0.0, 1.5, (clusters, features))
    sizes = rng.dirichlet(np.full(clusters, 5.0))
    labels = rng.choice(clusters, rows, p=sizes)
    return (centres[labels] + rng.normal(size=(rows, features))).astype(np.float32)


def measure_fit(method: str, rows: int, features: int, clusters: int) -> Line:
    """Measure seconds, peak memory above the data, and silhouette of one fit."""
    x = overlapping_blobs(rows, features, clusters)
    estimators: dict[str, Any] = {
        "kmeans": KMeans(clusters, n_init=10, random_state=SEED),
        "minibatch-kmeans": MiniBatchKMeans(clusters, n_init=10, random_state=SEED),
        "clam": ClAM(clusters, scaling="standard", random_state=SEED),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    labels = estimators[method].fit(x).labels_
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scored = np.random.default_rng(SEED).choice(rows, min(rows, 5_000), replace=False)
    score = silhouettes(x[scored], labels[scored][None])[0]
    return {
        "part": "fit",
        "method": method,
        "n": rows,
        "d": features,
        "k": clusters,
        "seconds": round(seconds, 3),
        "peak_mb_above_data": round((peak - before) / 1024, 1),
        "silhouette": round(float(score), 4),
        "silhouette_rows": len(scored),
    }


def _matrix_product_rate(size: int = 2048, repeats: int = 10) -> float:
    """Multiplications and additions per second of a large matrix product."""
    a = torch.randn(size, size, generator=Generator().manual_seed(SEED))
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - began)
    return 2.0 * size**3 / float(np.median(times))


def measure_epoch(rows: int, features: int, clusters: int, batch_size: int = 2_048, epochs: int = 3) -> Line:
    """Measure the fraction of the machine's rate of matrix products that a training epoch reaches.

    Only products are counted (per row: two projections on the prototypes and, in each step, one Gram product forward;
    twice that backward), not softmax or Adam. ``literal`` counts what the recursion in feature space would need.
    """
    generator = Generator().manual_seed(SEED)
    x = torch.from_numpy(overlapping_blobs(rows, features, clusters))
    model = ClamModel(ClamConfig(features, clusters, 1, steps=5, rows_per_mask=batch_size))
    with torch.no_grad():
        model.prototypes.copy_(x[:clusters].expand(1, -1, -1))
        model.beta.fill_(4.0 / features)
    steps = -(-rows // batch_size)
    times = []
    for _ in range(epochs):
        batches = point_batches(x, batch_size=batch_size, epochs=1, generator=generator)
        began = time.perf_counter()
        train(model, batches, TrainConfig(steps=steps, learning_rate=1.0), generator=generator)
        times.append(time.perf_counter() - began)
    seconds = float(np.median(times))
    taken = model.config.steps
    done = rows * (2 * 4 * clusters * features + (taken - 1) * 6 * clusters**2 + 4 * clusters**2)
    literal = rows * taken * 12 * clusters * features
    limit = _matrix_product_rate()
    return {
        "part": "epoch",
        "n": rows,
        "d": features,
        "k": clusters,
        "runs": 1,
        "batch_size": batch_size,
        "seconds": round(seconds, 4),
        "gflops_of_products": round(done / seconds / 1e9, 2),
        "gflops_of_literal_recursion": round(literal / seconds / 1e9, 2),
        "gflops_of_machine": round(limit / 1e9, 2),
        "share_of_machine": round(done / seconds / limit, 4),
        "share_of_machine_literal": round(literal / seconds / limit, 4),
    }


def measure_small_table(name: str) -> Line:
    """Measure k-means with 1,000 starts and ClAM on one of the paper's data sets (Table 3)."""
    files = {"movlib": "movement_libras"}
    table = load_table(f"clam/{files.get(name, name)}")
    began = time.perf_counter()
    kmeans = KMeans(table.n_clusters, n_init=1000, max_iter=1000, random_state=SEED).fit(table.X).labels_
    middle = time.perf_counter()
    ours = ClAM(table.n_clusters, scaling="standard", random_state=SEED).fit(table.X).labels_
    end = time.perf_counter()
    return {
        "part": "table3",
        "data": name,
        "kmeans_seconds": round(middle - began, 2),
        "clam_seconds": round(end - middle, 2),
        "kmeans_silhouette": table.silhouette(kmeans),
        "clam_silhouette": table.silhouette(ours),
    }


def measure_zoo_grid() -> Line:
    """Measure the released configuration on Zoo: 360 runs of 200 epochs."""
    table = load_table("clam/zoo")
    began = time.perf_counter()
    model = ClAM.faithful(table.n_clusters, random_state=SEED).fit(table.X)
    seconds = round(time.perf_counter() - began, 1)
    line = {"part": "zoo-grid", "runs": len(model.runs_), "seconds": seconds}
    return {**line, "silhouette": model.silhouette_, "clusters": model.n_clusters_}


CLAM_PARTS: Final[dict[str, Callable[..., Line]]] = {
    "fit": measure_fit,
    "epoch": measure_epoch,
    "table3": measure_small_table,
    "zoo-grid": measure_zoo_grid,
}


# DAC against other ways to find an unknown number of clusters. All may use two threads; DAC uses one.

Cluster = Callable[[Floats, int], Labels]  # labels of rows, given also the true number of clusters


def _dac_cluster(method: str, spec: Spec, max_clusters: int) -> Cluster:
    if method == "dac":
        model = DAC(weights=spec["weights"], random_state=SEED)
        return lambda x, _: model.fit_predict(x)
    if method == "bayesian-mixture":
        mixture = BayesianGaussianMixture(n_components=2 * max_clusters, random_state=SEED, **spec["options"])
        return lambda x, _: mixture.fit_predict(x)
    if method == "kmeans-search":
        return partial(_kmeans_search, max_clusters)
    return lambda x, k: cluster_given_k("spectral", x, k, SEED, affinity=spec["affinity"])


def _kmeans_search(max_clusters: int, x: Floats, _: int) -> Labels:
    """k-means for every number of clusters up to twice the largest, of which the best silhouette is taken."""
    partitions = [KMeans(k, random_state=SEED).fit_predict(x) for k in range(2, 2 * max_clusters + 1)]
    best: Labels = max(partitions, key=lambda labels: silhouette_score(x, labels))
    return best


def dac(suite: Suite) -> Iterator[Job]:
    """Derive one job per size and method; quadratic methods are not run where they would take too long."""
    typical = suite["typical"]
    shapes = [(n, typical["max_clusters"]) for n in suite["sizes"]] + [(typical["n"], k) for k in suite["clusters"]]
    for n, max_clusters in shapes:
        for method, spec in suite.methods.items():
            line = {"method": method, "n": n, "max_clusters": max_clusters}
            yield Job([line], partial(_measure_dac, suite, spec))


def _measure_dac(suite: Suite, spec: Spec, pending: Sequence[Line]) -> list[Line]:
    (shape,) = pending
    expected = _expected_seconds(suite, spec, shape, read_lines(suite.results))
    if expected > suite["longest_seconds"]:
        found: Line = {"seconds": None, "expected_seconds": round(expected, 1)}
    else:
        arguments = (shape["method"], spec, shape["n"], shape["max_clusters"], suite["n_sets"], suite["longest_total"])
        found = in_own_process(measure_sets, suite["threads"], *arguments)
    return [shape | found | _about(suite) | {"threads": suite["threads"], **stamp()}]


def _expected_seconds(suite: Suite, spec: Spec, shape: Line, done: Iterable[Line]) -> float:
    """Extrapolate quadratically from the largest smaller size."""
    typical = suite["typical"]["max_clusters"]
    smaller = [line for line in done if (line["method"], line["max_clusters"]) == (shape["method"], typical)]
    if not spec.get("quadratic") or not smaller or shape["max_clusters"] != typical:
        return 0.0
    last = max(smaller, key=lambda line: line["n"])
    known: float = last["expected_seconds"] if last["seconds"] is None else last["seconds"]
    growth: float = shape["n"] / last["n"]
    return known * growth * growth


def measure_sets(method: str, spec: Spec, n: int, max_clusters: int, n_sets: int, longest: float) -> Line:
    """Measure seconds, peak memory above the data, and agreement with the truth on sets of one size."""
    # At least two clusters, since the search cannot find one.
    candidates = (mixture_of_size(n, max_clusters, seed) for seed in count(SEED))
    sets = list(islice((one for one in candidates if one.n_clusters > 1), n_sets))
    cluster = _dac_cluster(method, spec, max_clusters)
    seconds: list[float] = []
    scores: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        cluster(mixture_of_size(200, max_clusters, SEED).x.numpy(), 2)  # reads weights, for example
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
        before = _memory_mb("VmRSS")
        for one in sets:
            if sum(seconds) > longest:
                break
            began = time.perf_counter()
            labels = cluster(one.x.numpy(), one.n_clusters)
            seconds.append(time.perf_counter() - began)
            scores.append(adjusted_rand_index(one.y.numpy(), labels))
    return {
        "sets": len(seconds),
        "seconds": round(float(np.mean(seconds)), 4),
        "median_seconds": round(float(np.median(seconds)), 4),
        "peak_mb": round(_memory_mb("VmHWM") - before, 1),
        "ari": round(float(np.mean(scores)), 4),
    }


def _memory_mb(field: str) -> float:
    """Megabytes of this process according to Linux."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    raise OSError(f"/proc/self/status has no {field}. Peak memory is measured on Linux only.")


# AMCP beside DAC and ACT-ST, which also find points and clusters by themselves.


def amcp(suite: Suite) -> Iterator[Job]:
    """Derive one job per shape and method: passes alone with all points in the network, and estimators."""
    typical = suite["typical"]
    shapes = [(n, typical["k"]) for n in suite["sizes"]]
    shapes += [(typical["n"], k) for k in suite["clusters"] if k != typical["k"]]
    prepare = cache(partial(_amcp_cluster, suite))
    for n, k in shapes:
        for method in suite.methods:
            yield Job([{"method": method, "n": n, "k": k}], partial(_measure_amcp, suite, prepare))


def _amcp_cluster(suite: Suite, method: str) -> Callable[[Tensor], Tensor]:
    spec = suite.methods[method]
    if spec["model"] == "act-st":
        solve = solve_by_act_st(load_model("act-st", spec["weights"]))
        return lambda x: solve(SyntheticSet(x, torch.zeros(len(x), dtype=torch.int64))).labels
    if spec.get("passes"):
        model = load_model(spec["model"], spec["weights"], decoding="faithful", max_points=NO_LIMIT)
        return lambda x: model.cluster(x, Generator().manual_seed(SEED)).labels
    kind = AMCP if spec["model"] == "amcp" else DAC
    estimator = kind(weights=spec["weights"], random_state=SEED)
    return lambda x: torch.from_numpy(estimator.fit_predict(x.numpy()))


def _measure_amcp(
    suite: Suite, prepare: Callable[[str], Callable[[Tensor], Tensor]], pending: Sequence[Line]
) -> list[Line]:
    (shape,) = pending
    generator = Generator().manual_seed(SEED)
    means = 3.0 * torch.randn((shape["k"], 2), generator=generator)  # as far apart as in training
    truth = torch.arange(shape["n"]) % shape["k"]
    x = means[truth] + 0.25 * torch.randn((shape["n"], 2), generator=generator)
    cluster = prepare(shape["method"])
    cluster(x[:200])  # reads weights, for example
    seconds = []
    for _ in range(suite["repeats"]):
        began = time.perf_counter()
        labels = cluster(x)
        seconds.append(time.perf_counter() - began)
    ari = round(adjusted_rand_index(truth.numpy(), labels.numpy()), 4)
    found = {"seconds": round(median(seconds), 4), "k_found": len(torch.unique(labels)), "ari": ari}
    return [shape | found | _about(suite) | stamp()]


# The default method beside k-means and peers. Each measurement has a process of its own, which makes the table, warms
# up on another one, and then fits. Memory is the largest resident set, nothing subtracted: the interpreter, the
# libraries (the same for all) and the table are in it.

TOO_LONG: Final = "more than"  # start of the note of a method that was stopped
PREPARING_SECONDS: Final = 900  # for a process to be ready: some libraries compile themselves
BLOCK: Final = 1 << 16
EMBEDDING_BLOCK: Final = 1 << 12  # smaller, since peak memory counts what is needed to make wide rows
INTRINSIC: Final = 30  # dimensions that random embeddings have beside noise
SPREAD: Final = 0.8  # standard deviation of embeddings of a group in each of these; that of the groups' centres is 1


@dataclass(frozen=True)
class Measured:
    """What one process found."""

    seconds: Sequence[float]
    before_mb: float  # resident before the first timed fit
    peak_mb: float
    ari: float
    n_clusters: int


def zero_shot(suite: Suite) -> Iterator[Job]:
    """Derive one job per size and method; a method that took too long is not run on more rows of the kind.

    The suite states the sizes, columns and clusters of blobs, or of several kinds of rows as ``tables``.
    """
    for table in suite.get("tables", [suite.spec]):
        kind = table.get("rows", "blobs")
        for rows in table["sizes"]:
            for method in methods_of(suite.methods):
                name = f"{kind}-{rows}"
                if not method.is_for(name):
                    continue
                runs = suite["runs"] if rows <= suite["many_rows"] else 1
                limits = {"threads": suite["threads"], "runs": runs, "limit_seconds": method.seconds}
                shape = {"n": rows, "d": table["columns"], "k": table["clusters"]}
                line = record(suite["suite"], name, method.name, SEED, {**method.settings, **limits}, **shape)
                yield Job([line], partial(_measure_zero_shot, suite, method))
    for name, command in suite.get("commands", {}).items():
        settings = {"arguments": " ".join(command["arguments"]), "threads": suite["threads"], "runs": command["runs"]}
        line = record(suite["suite"], command["data"], name, SEED, settings)
        yield Job([line], partial(_measure_command, command["arguments"]))


def _measure_command(arguments: Sequence[str], pending: Sequence[Line]) -> list[Line]:
    """Measure the seconds from the start to the end of a command, once it has been run before."""
    (blank,) = pending
    threads = str(blank["settings"]["threads"])
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(blank["settings"]["runs"] + 1):
            began = time.perf_counter()
            # S603 warns of any command that is not one literal; those of suite files are our own.
            subprocess.run(  # noqa: S603
                [sys.executable, "-m", "coterie", *arguments],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": threads},
                capture_output=True,
                check=True,
            )
            seconds.append(time.perf_counter() - began)
    measured = seconds[1:]
    return [blank | {"metrics": {"longest": round(max(measured), 4)}, "seconds": round(median(measured), 4)}]


def _measure_zero_shot(suite: Suite, method: Method, pending: Sequence[Line]) -> list[Line]:
    method.require_package()
    (blank,) = pending
    rows = blank["n"]
    blank = blank | {"versions": library_versions() | method.packages}
    if method.max_rows is not None and rows > method.max_rows:
        return [blank | {"note": f"not run: more than {method.max_rows:,} rows"}]
    for line in read_lines(suite.results):
        alike = [(one["method"], one["d"], one["k"]) for one in (line, blank)]
        if alike[0] == alike[1] and line["n"] < rows and line["note"].startswith(TOO_LONG):
            return [blank | {"note": f"not run: {line['note']} at {line['n']:,} rows"}]
    found = _fit_in_own_process(suite, method, blank)
    if isinstance(found, str):
        return [blank | {"note": found}]
    metrics = {
        "longest": round(max(found.seconds), 4),
        "peak_mb": round(found.peak_mb, 1),
        "before_mb": round(found.before_mb, 1),
        "ari": round(found.ari, 6),
        "n_clusters": found.n_clusters,
    }
    return [blank | {"metrics": metrics, "seconds": round(median(found.seconds), 4)}]


def _fit_in_own_process(suite: Suite, method: Method, blank: Line) -> Measured | str:
    """Measure in a fresh process; return a sentence if it did not finish."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    options = {name: suite[name] for name in ("threads", "warm_up_rows")}
    options |= {"rows": blank["data"].rpartition("-")[0], "columns": blank["d"], "clusters": blank["k"]}
    arguments = (theirs, method, blank["n"], blank["settings"]["runs"], options)
    process = context.Process(target=_serve, args=arguments, daemon=True)
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


def _serve(connection: Connection, method: Method, rows: int, runs: int, options: Spec) -> None:
    os.environ["NUMBA_NUM_THREADS"] = str(options["threads"])  # read when it is imported, which is later
    warnings.simplefilter("ignore")
    torch.set_num_threads(options["threads"])
    with threadpool_limits(options["threads"]):
        connection.send(measure_peer(method, rows, runs, options, lambda: connection.send(None)))


def measure_peer(method: Method, rows: int, runs: int, options: Spec, on_fit: Callable[[], None]) -> Measured:
    """Fit repeatedly; `on_fit` is called before the first fit and after each."""
    k = (options["clusters"],) if method.given_k else ()
    sample = ROWS[options["rows"]]
    X, truth = sample(rows, SEED, options)
    method(sample(min(rows, options["warm_up_rows"]), SEED + 1, options)[0], SEED, *k)
    seconds: list[float] = []
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    before = pages * resource.getpagesize() / 1e6
    on_fit()
    for _ in range(runs):
        began = time.perf_counter()
        labels, _ = split_confidence(method(X, SEED, *k))
        seconds.append(time.perf_counter() - began)
        on_fit()
    return Measured(
        seconds=seconds,
        before_mb=before,
        # Linux counts in two ways that differ a little, and passes on the peak of the parent, which has no table.
        peak_mb=max(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6),
        ari=adjusted_rand_index(truth, labels),
        n_clusters=len(np.unique(labels[labels != NOISE])),
    )


# Reading tables, beside pandas. Both may use two threads; pandas uses one.

READERS: Final = {
    "coterie": "from coterie.tables.readers import read_table as read",
    "pandas": "from pandas import read_csv as read",
}
"""How the function that reads a file is imported, by method."""
_READ = """
import sys, time
{}
read(sys.argv[2])
began = time.perf_counter()
table = read(sys.argv[1])
seconds = time.perf_counter() - began
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(peak) * 1024 / 1e6)
"""


def reading(suite: Suite) -> Iterator[Job]:
    """Derive one job per file: all methods read it in turn, so that they are measured on the same machine."""
    for table in suite["tables"]:
        settings = {"threads": suite["threads"], "runs": suite["runs"]}
        name = f"{table['rows']}-{table['n']}"
        lines = [record(suite["suite"], name, method, SEED, settings, n=table["n"]) for method in suite.methods]
        yield Job(lines, partial(_measure_reading, FILES[table["rows"]]))


def _measure_reading(
    columns: Callable[[int, np.random.Generator], pd.DataFrame], pending: Sequence[Line]
) -> Iterator[Line]:
    settings, n = pending[0]["settings"], pending[0]["n"]
    found: dict[str, list[tuple[float, float]]] = {line["method"]: [] for line in pending}
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory() as folder:
        path, warm_up = Path(folder, "table.csv"), Path(folder, "warm_up.csv")
        columns(BLOCK, rng).to_csv(warm_up, index=False)
        with path.open("w", encoding="utf-8") as file:
            for start in range(0, n, BLOCK):
                frame = columns(min(BLOCK, n - start), rng)
                frame.to_csv(file, index=False, header=start == 0)
        size = path.stat().st_size / 1e6
        for _ in range(settings["runs"]):
            for method, measured in found.items():
                measured.append(_read_in_own_process(method, path, warm_up, settings["threads"]))
    for line in pending:
        seconds, peaks = zip(*found[line["method"]], strict=True)
        metrics = {"longest": round(max(seconds), 4), "peak_mb": round(max(peaks), 1), "file_mb": round(size, 1)}
        yield line | {"metrics": metrics, "seconds": round(median(seconds), 4), "d": len(frame.columns)}


def _read_in_own_process(method: str, path: Path, warm_up: Path, threads: int) -> tuple[float, float]:
    """Return the seconds after a warm-up on another file, and the peak memory of the process in MB."""
    # S603 warns of any command that is not one literal; this one is our own.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _READ.format(READERS[method]), str(path), str(warm_up)],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds, peak = map(float, done.stdout.split())
    return seconds, peak


def _plain_columns(n: int, rng: np.random.Generator) -> pd.DataFrame:
    numbers = rng.normal(size=(n, 10)) * [1, 10, 100, 1000, 1, 1, 1, 5, 5, 5]
    frame = pd.DataFrame(numbers.round(4)).add_prefix("x")
    cities = np.array([f"city{i}" for i in range(40)])
    return frame.assign(plan=rng.choice(["basic", "plus", "family"], n), city=rng.choice(cities, n))


def _written_columns(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Columns as people write them: amounts, dates, percentages with gaps, German numbers, times and categories."""
    days = np.datetime64("2020-01-01") + rng.integers(0, 2000, n)
    amounts, rates = rng.normal(0, 5000, n), rng.random(n) * 100
    german = [f"{value:,.2f}".translate({44: ".", 46: ","}) for value in amounts[::-1]]
    return pd.DataFrame(
        {
            "date": pd.Series(days).dt.strftime("%d/%m/%Y"),
            "amount": [f"${value:,.2f}" if value > 0 else f"(${-value:,.2f})" for value in amounts],
            "rate": [f"{value:.1f}%" if value > 5 else "n/a" for value in rates],
            "total": german,
            "time": [f"{minute // 60:02}:{minute % 60:02}" for minute in rng.integers(0, 1440, n).tolist()],
            "plan": rng.choice(["basic", "plus", "family"], n),
        }
    )


FILES: Final[dict[str, Callable[[int, np.random.Generator], pd.DataFrame]]] = {
    "plain": _plain_columns,
    "written": _written_columns,
}
"""Samplers of the rows of a file by the name of their kind."""


def equal_blobs(rows: int, seed: int, options: Spec, *, spread: float = 2.0) -> tuple[Floats, Labels]:
    """Sample Gaussian groups of about equal size, with little more memory than they need.

    `spread` is the standard deviation of their centres, over that of each group.
    """
    rng = np.random.default_rng(seed)
    clusters, columns = options["clusters"], options["columns"]
    centres, labels = rng.normal(0.0, spread, (clusters, columns)), rng.integers(clusters, size=rows)
    X = rng.standard_normal((rows, columns))
    for start in range(0, rows, BLOCK):
        X[start : start + BLOCK] += centres[labels[start : start + BLOCK]]
    return X, labels


def random_embeddings(rows: int, seed: int, options: Spec) -> tuple[Floats, Labels]:
    """Sample rows of length one in groups of about equal size; most of their variance is in few dimensions."""
    rng = np.random.default_rng(seed)
    clusters, columns = options["clusters"], options["columns"]
    centres, labels = rng.standard_normal((clusters, INTRINSIC)), rng.integers(clusters, size=rows)
    axes = rng.standard_normal((INTRINSIC, columns))
    X = np.empty((rows, columns), dtype=np.float32)
    for start in range(0, rows, EMBEDDING_BLOCK):
        own = labels[start : start + EMBEDDING_BLOCK]
        block = (centres[own] + SPREAD * rng.standard_normal((len(own), INTRINSIC))) @ axes
        block += rng.standard_normal(block.shape)
        X[start : start + len(own)] = block / np.linalg.norm(block, axis=1, keepdims=True)
    return X, labels


ROWS: Final[dict[str, Callable[[int, int, Spec], tuple[Floats, Labels]]]] = {
    "blobs": equal_blobs,
    "blobs-apart": partial(equal_blobs, spread=4.0),
    "embeddings": random_embeddings,
}
"""Samplers of rows and their groups by the name of the kind."""
