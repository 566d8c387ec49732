"""How the time of AMCP grows with points and clusters, beside DAC and ACT-ST, which also find these by themselves.

    python -m benchmarks.speed.amcp [--quick]

Run it on a quiet machine. All get the same mixtures of Gaussians, of exactly so many points and clusters, and one
thread. The first part is one clustering as the passes make it, all points in the network, so that nothing but the
method's own cost counts; the second is the estimators as they come, which filter a sample of the points and put the
clusters right afterwards. Weights and decodings are those of the quality suites.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import torch
from torch import Generator, Tensor

from benchmarks.baselines.set_transformer import ActStModel
from benchmarks.quality import dac_methods
from benchmarks.quality.amcp_suite import WEIGHTS
from benchmarks.quality.dac_methods import NO_LIMIT, load_model
from benchmarks.quality.dac_sets import LabelledSet
from benchmarks.quality.dac_suite import ACT_ST_WEIGHTS, MIXTURE_WEIGHTS
from benchmarks.quality.records import current_commit, library_versions
from coterie.amortized.amcp.estimator import AMCP
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.estimator import DAC
from coterie.amortized.dac.network import DacModel
from coterie.base import one_thread
from coterie.files import write_atomically
from coterie.metrics import adjusted_rand_index

OUT: Final = Path("benchmarks/results/speed_amcp.jsonl")
SEED: Final = 0
SIZES: Final = (1_000, 3_000, 10_000, 30_000)
CLUSTERS: Final = (2, 4, 8, 16)
TYPICAL_SIZE: Final = 3_000
TYPICAL_CLUSTERS: Final = 8
REPEATS: Final = 3
DEVIATION: Final = 0.25
SPREAD: Final = 3.0

Cluster: TypeAlias = Callable[[Tensor], Tensor]


def passes(kind: type[AmcpModel] | type[DacModel], weights: str) -> Cluster:
    """A filtering method whose passes see all points, and are left as they are."""
    model = load_model(kind, weights, decoding="faithful", max_points=NO_LIMIT)
    return lambda x: model.cluster(x, Generator().manual_seed(SEED)).labels


def one_pass() -> Cluster:
    """ACT-ST."""
    solve = dac_methods.act_st_solver(load_model(ActStModel, ACT_ST_WEIGHTS))
    return lambda x: solve(LabelledSet(x, torch.zeros(len(x), dtype=torch.int64), None)).labels


def estimator(model: AMCP | DAC) -> Cluster:
    """An estimator as it comes."""
    return lambda x: torch.from_numpy(model.fit_predict(x.numpy()))


METHODS: Final[dict[str, Callable[[], Cluster]]] = {
    "AMCP, passes": lambda: passes(AmcpModel, WEIGHTS),
    "DAC, passes": lambda: passes(DacModel, MIXTURE_WEIGHTS),
    "ACT-ST": one_pass,
    "AMCP": lambda: estimator(AMCP(WEIGHTS, random_state=SEED)),
    "DAC": lambda: estimator(DAC(MIXTURE_WEIGHTS, random_state=SEED)),
}


def blobs(n_points: int, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Points of so many Gaussians of equal size, with means as far apart as in training."""
    generator = Generator().manual_seed(SEED)
    means = SPREAD * torch.randn((n_clusters, 2), generator=generator)
    labels = torch.arange(n_points) % n_clusters
    return means[labels] + DEVIATION * torch.randn((n_points, 2), generator=generator), labels


def measure(method: str, n_points: int, n_clusters: int, repeats: int) -> dict[str, Any]:
    """Median seconds of some clusterings of one set, and how good the last one is."""
    x, truth = blobs(n_points, n_clusters)
    cluster = METHODS[method]()
    cluster(x[:200])  # reads weights, and whatever else is done once
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        labels = cluster(x)
        seconds.append(time.perf_counter() - began)
    return {
        "method": method,
        "n": n_points,
        "k": n_clusters,
        "seconds": round(median(seconds), 4),
        "k_found": len(torch.unique(labels)),
        "ari": round(adjusted_rand_index(truth.numpy(), labels.numpy()), 4),
    }


def growth(seconds: Sequence[tuple[int, float]]) -> float:
    """Exponent of the growth from the first to the last: 1 where twice as many take twice as long."""
    (first, before), (last, after) = seconds[0], seconds[-1]
    return math.log(after / before) / math.log(last / first)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all anew, in one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two small sizes only, to see that it works")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    by_size = [(n, TYPICAL_CLUSTERS) for n in SIZES]
    shapes = [*by_size, *((TYPICAL_SIZE, k) for k in CLUSTERS if k != TYPICAL_CLUSTERS)]
    about = {"suite": "speed-amcp", "seed": SEED, "commit": current_commit(), "versions": library_versions()}
    lines = []
    for n_points, n_clusters in [(100, 2), (200, 2)] if options.quick else shapes:
        for method in METHODS:
            lines.append(measure(method, n_points, n_clusters, 1 if options.quick else REPEATS) | about)
            print(lines[-1], flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(options.out, "".join(json.dumps(line) + "\n" for line in lines).encode(), force=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
