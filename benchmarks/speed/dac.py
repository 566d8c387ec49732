"""How fast DAC is: against other ways to cluster without being told how many clusters there are.

    python -m benchmarks.speed.dac [--quick] [--anew]

Run it on a quiet machine; what the results file has already is not measured again. All methods get the same sets,
mixtures of Gaussians with at least two clusters, and may use two threads; DAC uses one. Each row of results has its own
process, so that peak memory is its own.
"""

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.mixture import BayesianGaussianMixture
from threadpoolctl import threadpool_limits

from benchmarks.quality.dac_methods import vbdpm_settings
from benchmarks.quality.dac_sets import LabelledSet, exact_set
from benchmarks.quality.dac_suite import MIXTURE_WEIGHTS
from benchmarks.quality.records import Floats, Labels, current_commit, library_versions
from coterie.amortized.dac.estimator import DAC
from coterie.metrics import adjusted_rand_index

OUT: Final = Path("benchmarks/results/speed_dac.jsonl")
SEED: Final = 0
THREADS: Final = 2
SETS: Final = 10
LONGEST_SECONDS: Final = 60.0
"""Seconds per set beyond which a method is not run; expected from the next smaller size, by the square."""
LONGEST_TOTAL: Final = 60.0
"""Seconds after which no further set of the same size is begun."""
SIZES: Final = (300, 1_000, 3_000, 10_000, 30_000)
CLUSTERS: Final = (2, 4, 8, 16)
TYPICAL_SIZE: Final = 3_000
TYPICAL_CLUSTERS: Final = 12
Cluster: TypeAlias = Callable[[Floats, int], Labels]
"""Labels of the rows, given also the true number of clusters."""


def dac(_: int) -> Cluster:
    """DAC's estimator."""
    model = DAC(MIXTURE_WEIGHTS, random_state=SEED)
    return lambda x, _: model.fit_predict(x)


def bayesian_mixture(max_clusters: int) -> Cluster:
    """Variational inference with the settings of the quality suite."""
    model = BayesianGaussianMixture(**vbdpm_settings(max_clusters))
    return lambda x, _: model.fit_predict(x)


def spectral(affinity: str) -> Callable[[int], Cluster]:
    """Spectral clustering, which is told the number of clusters."""

    def prepare(_: int) -> Cluster:
        return lambda x, n_clusters: SpectralClustering(n_clusters, affinity=affinity, random_state=SEED).fit_predict(x)

    return prepare


def kmeans_search(max_clusters: int) -> Cluster:
    """k-means for every number of clusters up to twice the largest, of which the best silhouette is taken."""

    def cluster(x: Floats, _: int) -> Labels:
        partitions = [KMeans(k, random_state=SEED).fit_predict(x) for k in range(2, 2 * max_clusters + 1)]
        best: Labels = max(partitions, key=lambda labels: silhouette_score(x, labels))
        return best

    return cluster


METHODS: Final[dict[str, Callable[[int], Cluster]]] = {
    "dac": dac,
    "bayesian-mixture": bayesian_mixture,
    "spectral-nearest-neighbors": spectral("nearest_neighbors"),
    "spectral-rbf": spectral("rbf"),
    "kmeans-search": kmeans_search,
}
QUADRATIC: Final = frozenset({"spectral-nearest-neighbors", "spectral-rbf", "kmeans-search"})
"""Methods that are not run where they would take too long."""


def sets(n_points: int, max_clusters: int, n_sets: int) -> list[LabelledSet]:
    """Sets of exactly that size that have two clusters at least, since the search cannot find one."""
    drawn = (exact_set(n_points, max_clusters, seed) for seed in count(SEED))
    return list(islice((one for one in drawn if one.n_clusters > 1), n_sets))


def measure(method: str, n_points: int, max_clusters: int, n_sets: int) -> dict[str, Any]:
    """Seconds, peak memory above the data, and agreement with the truth."""
    drawn = sets(n_points, max_clusters, n_sets)
    cluster = METHODS[method](max_clusters)
    warm_up = exact_set(200, max_clusters, SEED)
    seconds: list[float] = []
    scores: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        cluster(warm_up.x.numpy(), 2)  # reads weights, and whatever else is done once
        before = reset_peak_memory()
        for one in drawn:
            if sum(seconds) > LONGEST_TOTAL:
                break
            began = time.perf_counter()
            labels = cluster(one.x.numpy(), one.n_clusters)
            seconds.append(time.perf_counter() - began)
            scores.append(adjusted_rand_index(one.y.numpy(), labels))
    return {
        "sets": len(seconds),
        "seconds": round(float(np.mean(seconds)), 4),
        "median_seconds": round(float(np.median(seconds)), 4),
        "peak_mb": round(peak_memory("VmHWM") - before, 1),
        "ari": round(float(np.mean(scores)), 4),
    }


def reset_peak_memory() -> float:
    """Megabytes in use, from which on the peak counts."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_memory("VmRSS")


def peak_memory(field: str) -> float:
    """Megabytes that Linux says this process has or had."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) / 1024
    raise OSError(f"/proc/self/status has no {field}. Peak memory is measured on Linux only.")


def in_own_process(*arguments: Any) -> dict[str, Any]:
    """Measure in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_threads, arguments)


def _with_threads(*arguments: Any) -> dict[str, Any]:
    torch.set_num_threads(THREADS)
    with threadpool_limits(THREADS):
        return measure(*arguments)


def would_take(method: str, n_points: int, done: Sequence[dict[str, Any]]) -> float:
    """Seconds that a set is expected to take, by the largest smaller size that was measured or expected."""
    smaller = [one for one in done if (one["method"], one["max_clusters"]) == (method, TYPICAL_CLUSTERS)]
    if method not in QUADRATIC or not smaller:
        return 0.0
    last = max(smaller, key=lambda one: one["n"])
    known: float = last["expected_seconds"] if last["seconds"] is None else last["seconds"]
    growth: float = n_points / last["n"]
    return known * growth * growth


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the results file does not have yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one small size only, to see that it works")
    parser.add_argument("--anew", action="store_true", help="forget what the file has")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    if options.anew:
        options.out.unlink(missing_ok=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    known = options.out.read_text(encoding="utf-8").splitlines() if options.out.is_file() else []
    lines: list[dict[str, Any]] = [json.loads(line) for line in known]
    shapes = [(n, TYPICAL_CLUSTERS) for n in SIZES] + [(TYPICAL_SIZE, k) for k in CLUSTERS]
    for n_points, max_clusters in [(150, 2)] if options.quick else shapes:
        for method in METHODS:
            shape: dict[str, Any] = {"method": method, "n": n_points, "max_clusters": max_clusters}
            if any(line.items() >= shape.items() for line in lines):
                continue
            expected = would_take(method, n_points, lines) if max_clusters == TYPICAL_CLUSTERS else 0.0
            if expected > LONGEST_SECONDS:
                found: dict[str, Any] = {"seconds": None, "expected_seconds": round(expected, 1)}
            else:
                found = in_own_process(method, n_points, max_clusters, 1 if options.quick else SETS)
            print(shape | found, flush=True)
            lines.append(shape | found | _circumstances())
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    return 0


def _circumstances() -> dict[str, Any]:
    return {
        "suite": "speed-dac",
        "seed": SEED,
        "threads": THREADS,
        "commit": current_commit(),
        "versions": library_versions(),
    }


if __name__ == "__main__":
    sys.exit(main())
