"""`TCC` as it is called by users, with its defaults: on images, and on embeddings beside methods that are told k too.

    python -m benchmarks.quality.tcc_estimator [--data mnist,cifar100] [--seeds 3] [--sets 10] [--anew]

Images are all those of a collection, once for each seed, by TCC's defaults and without a memory. Embeddings are sets of
ten classes; the seed is a set's place. k-means and mixtures of Gaussians (diagonal) have five starts, spectral
clustering ten neighbours; all have standardised columns, as TCC has. What the results file has already is not measured
again.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.records import (
    Floats,
    Labels,
    append_line,
    current_commit,
    keep_lines,
    library_versions,
    read_lines,
)
from benchmarks.quality.tcc_data import EMBEDDED, LOADERS, N_CLASSES, Images, embedded_sets, images
from benchmarks.quality.tcc_suite import SEEDS, STARTS, scores
from coterie import TCC

OUT: Final = Path("benchmarks/results/tcc_estimator.jsonl")
SETS: Final = 10
SETS_SEED: Final = 77
NEIGHBOURS: Final = 10
Solve: TypeAlias = Callable[[Any, int], tuple[Labels, Mapping[str, float]]]
"""From rows and a seed to labels, and what else is to be told."""


@dataclass(frozen=True)
class EstimatorRecord:
    """One line of the results file: a method on some rows, with one seed."""

    data: str
    method: str
    seed: int
    """Of the method; of embeddings, the place of the set as well."""
    n: int
    d: int
    seconds: float
    """By the clock."""
    metrics: Mapping[str, float]
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes two runs the same run."""
        return (self.data, self.method, self.seed)


def _tcc(x: Floats, seed: int, **settings: Any) -> tuple[Labels, Mapping[str, float]]:
    model = TCC(N_CLASSES, settings=settings, random_state=seed).fit(x)
    return model.labels_, {"epochs": float(len(model.history_["loss"])), "n_clusters": float(model.n_clusters_)}


def _k_means(x: Floats, seed: int) -> tuple[Labels, Mapping[str, float]]:
    return KMeans(N_CLASSES, n_init=STARTS, random_state=seed).fit_predict(_scaled(x)), {}


def _mixture(x: Floats, seed: int) -> tuple[Labels, Mapping[str, float]]:
    model = GaussianMixture(N_CLASSES, covariance_type="diag", n_init=STARTS, reg_covar=1e-3, random_state=seed)
    return model.fit_predict(_scaled(x).astype(float)), {}


def _spectral(x: Floats, seed: int) -> tuple[Labels, Mapping[str, float]]:
    model = SpectralClustering(N_CLASSES, affinity="nearest_neighbors", n_neighbors=NEIGHBOURS, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")  # clusters apart are what is looked for
        return model.fit_predict(_scaled(x)), {}


def _scaled(x: Floats) -> Floats:
    scaled: Floats = StandardScaler().fit_transform(x)
    return scaled


WITHOUT_MEMORY: Final = "tcc, no memory, momentum 0.9"
ON_IMAGES: Final[Mapping[str, Solve]] = {"tcc": _tcc, WITHOUT_MEMORY: partial(_tcc, memory=0, momentum=0.9)}
ON_EMBEDDINGS: Final[Mapping[str, Solve]] = {
    "tcc": _tcc,
    "k-means": _k_means,
    "spectral": _spectral,
    "mixture": _mixture,
}


def measured(data: str, method: str, solve: Solve, seed: int, x: npt.NDArray[Any], y: Labels) -> EstimatorRecord:
    """Cluster some rows."""
    began = time.perf_counter()
    labels, told = solve(x, seed)
    seconds = time.perf_counter() - began
    return EstimatorRecord(
        data=data,
        method=method,
        seed=seed,
        n=len(x),
        d=int(x[0].size),
        seconds=round(seconds, 2),
        metrics={**scores(y, labels), **told},
        commit=current_commit(),
        versions=library_versions(),
    )


def pixels_of(shown: Images) -> npt.NDArray[np.uint8]:
    """Images as users have them: bytes, channels last if there are several."""
    pixels: npt.NDArray[np.uint8] = (shown.x * 255).round().byte().permute(0, 2, 3, 1).numpy()
    return pixels if pixels.shape[3] > 1 else pixels[..., 0]


def _records(data: str, seeds: int, sets: int, known: set[tuple[str, str, int]]) -> Iterator[EstimatorRecord]:
    """Measure what is not known yet of a collection."""
    if data in LOADERS:
        for method, solve in ON_IMAGES.items():
            for seed in range(seeds):
                if (data, method, seed) not in known:
                    shown = images(data)
                    yield measured(data, method, solve, seed, pixels_of(shown), shown.y)
        return
    for place, one in enumerate(embedded_sets(data, sets, SETS_SEED)):
        for method, solve in ON_EMBEDDINGS.items():
            if (data, method, place) not in known:
                yield measured(data, method, solve, place, one.x.numpy(), one.y)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the file does not have yet; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.tcc_estimator", description=__doc__)
    known_data = (*LOADERS, *EMBEDDED)
    parser.add_argument("--data", default=",".join(known_data), help="collections (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="on images, from 0 on (default: %(default)s)")
    parser.add_argument("--sets", type=int, default=SETS, help="of embeddings (default: %(default)s)")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these data")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def work() -> None:
        wanted = named(options.data, known_data, "data")
        if options.anew:
            keep_lines(options.out, EstimatorRecord, lambda record: record.data not in wanted)
        known = {record.key for record in read_lines(options.out, EstimatorRecord)}
        for data in wanted:
            for record in _records(data, options.seeds, options.sets, known):
                append_line(options.out, record)
                told = f"ACC {record.metrics['acc']:.3f}, {record.seconds:.0f} s"
                print(f"{data}, {record.method}, {record.seed}: {told}", flush=True)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
