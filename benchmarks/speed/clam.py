"""How fast ClAM is: against k-means, against the machine's matrix products, and in growth.

    python -m benchmarks.speed.clam [--quick]

Run it on a quiet machine. Everything is on one thread, since ClAM is. Each row of results has its own process, so that
peak memory is its own.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from sklearn.cluster import KMeans, MiniBatchKMeans

from benchmarks.quality import clam_data
from benchmarks.quality.records import Floats, current_commit, library_versions
from coterie.base import one_thread
from coterie.clam.estimator import ClAM
from coterie.clam.model import ClamConfig, ClamModel
from coterie.metrics import silhouettes
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train

OUT: Final = Path("benchmarks/results/speed.jsonl")
SEED: Final = 0
SCORED_ROWS: Final = 5_000
EPOCH_BATCH: Final = 2_048


def blobs(rows: int, features: int, clusters: int) -> Floats:
    """Overlapping Gaussian groups of unequal size."""
    rng = np.random.default_rng(SEED)
    centres = rng.normal(0.0, 1.5, (clusters, features))
    sizes = rng.dirichlet(np.full(clusters, 5.0))
    labels = rng.choice(clusters, rows, p=sizes)
    return (centres[labels] + rng.normal(size=(rows, features))).astype(np.float32)


def measure_fit(method: str, rows: int, features: int, clusters: int) -> dict[str, Any]:
    """Seconds, peak memory above the data, and silhouette of one fit."""
    x = blobs(rows, features, clusters)
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
    scored = np.random.default_rng(SEED).choice(rows, min(rows, SCORED_ROWS), replace=False)
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


def measure_matmul(size: int = 2048, repeats: int = 10) -> float:
    """Multiplications and additions per second of a large matrix product."""
    a = torch.randn(size, size, generator=torch.Generator().manual_seed(SEED))
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - began)
    return 2.0 * size**3 / float(np.median(times))


def measure_epoch(rows: int, features: int, clusters: int, runs: int = 1, epochs: int = 3) -> dict[str, Any]:
    """Share of the machine's rate of matrix products that a training epoch reaches.

    Only products are counted (per row: two projections on the prototypes and, in each step, one Gram product forward;
    twice that backward), not softmax or Adam. ``literal`` counts what the recursion in feature space would need.
    """
    generator = torch.Generator().manual_seed(SEED)
    x = torch.from_numpy(blobs(rows, features, clusters))
    model = ClamModel(ClamConfig(features, clusters, runs, steps=5, rows_per_mask=EPOCH_BATCH))
    with torch.no_grad():
        model.prototypes.copy_(x[:clusters].expand(runs, -1, -1))
        model.beta.fill_(4.0 / features)
    steps = -(-rows // EPOCH_BATCH)
    times = []
    for _ in range(epochs):
        batches = point_batches(x, batch_size=EPOCH_BATCH, epochs=1, generator=generator)
        began = time.perf_counter()
        train(model, batches, TrainConfig(steps=steps, learning_rate=1.0), generator=generator)
        times.append(time.perf_counter() - began)
    seconds = float(np.median(times))
    taken = model.config.steps
    done = runs * rows * (2 * 4 * clusters * features + (taken - 1) * 6 * clusters**2 + 4 * clusters**2)
    literal = runs * rows * taken * 12 * clusters * features
    limit = measure_matmul()
    return {
        "part": "epoch",
        "n": rows,
        "d": features,
        "k": clusters,
        "runs": runs,
        "batch_size": EPOCH_BATCH,
        "seconds": round(seconds, 4),
        "gflops_of_products": round(done / seconds / 1e9, 2),
        "gflops_of_literal_recursion": round(literal / seconds / 1e9, 2),
        "gflops_of_machine": round(limit / 1e9, 2),
        "share_of_machine": round(done / seconds / limit, 4),
        "share_of_machine_literal": round(literal / seconds / limit, 4),
    }


def measure_small(name: str) -> dict[str, Any]:
    """Table 3 of the paper: seconds of k-means with 1,000 starts, and of ClAM, on one of its data sets."""
    table = clam_data.load(name)
    began = time.perf_counter()
    kmeans = KMeans(table.n_clusters, n_init=1000, max_iter=1000, random_state=SEED).fit(table.X).labels_
    middle = time.perf_counter()
    clam = ClAM(table.n_clusters, scaling="standard", random_state=SEED).fit(table.X).labels_
    end = time.perf_counter()
    return {
        "part": "table3",
        "data": name,
        "kmeans_seconds": round(middle - began, 2),
        "clam_seconds": round(end - middle, 2),
        "kmeans_silhouette": table.silhouette(kmeans),
        "clam_silhouette": table.silhouette(clam),
    }


def measure_zoo_grid() -> dict[str, Any]:
    """The released configuration of Zoo: 360 runs of 200 epochs."""
    table = clam_data.load("zoo")
    began = time.perf_counter()
    model = ClAM.faithful(table.n_clusters, random_state=SEED).fit(table.X)
    return {
        "part": "zoo-grid",
        "runs": len(model.runs_),
        "seconds": round(time.perf_counter() - began, 1),
        "silhouette": model.silhouette_,
        "clusters": model.n_clusters_,
    }


def in_own_process(measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Measure in a process of its own, on one thread."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_on_one_thread, (measure, arguments))


def _on_one_thread(measure: Callable[..., dict[str, Any]], arguments: Sequence[Any]) -> dict[str, Any]:
    with one_thread():
        return measure(*arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything anew and replace the results file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes only, to see that it works")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    sizes = (1_000,) if options.quick else (1_000, 10_000, 100_000, 1_000_000)
    jobs: list[tuple[Callable[..., dict[str, Any]], tuple[Any, ...]]] = [
        (measure_fit, (method, rows, 16, 10)) for rows in sizes for method in ("kmeans", "minibatch-kmeans", "clam")
    ]
    if options.quick:
        jobs += [(measure_epoch, (2_000, 64, 64))]
    else:
        jobs += [(measure_epoch, (100_000, 64, 64)), (measure_epoch, (200_000, 64, 64))]
        jobs += [(measure_epoch, (100_000, 128, 64)), (measure_epoch, (100_000, 64, 128))]
        jobs += [(measure_zoo_grid, ()), *((measure_small, (name,)) for name in ("zoo", "ecoli", "movlib", "yale"))]
    lines = []
    for measure, values in jobs:
        record = in_own_process(measure, *values)
        record |= {"suite": "speed", "seed": SEED, "commit": current_commit(), "versions": library_versions()}
        print(
            {name: value for name, value in record.items() if name not in {"versions", "commit", "suite"}}, flush=True
        )
        lines.append(json.dumps(record))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
