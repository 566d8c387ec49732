"""The published network beside ours, each trained for the same processor time.

    python -m benchmarks.quality.dac_networks [--minutes 6]

All see the same kind of sets, fewer than 300 points of up to four Gaussians, 24 in a step, on one thread. How many
steps fit into the time is measured first, so that the learning rate can fall to zero at its end. Clusters are found
with the published decoding, since ours would hide what a network lacks.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import torch
from torch import Generator

from benchmarks.quality.dac_sets import LabelledSet, mixtures
from benchmarks.quality.networks import SEED, Network, n_parameters, one_cycle, seconds_per_step, trained
from benchmarks.quality.records import append_line, current_commit, library_versions
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.base import one_thread
from coterie.metrics import adjusted_rand_index
from coterie.training.loop import TrainConfig

OUT: Final = Path("benchmarks/results/dac_networks.jsonl")
SETS_SEED: Final = 3001
"""Of the sets that the networks are compared on, which no table has."""
SIZES: Final = {"mog-1000-4": (1000, 4), "mog-3000-12": (3000, 12)}
"""Largest numbers of points and of clusters of these sets."""
BATCHES: Final = 10
BATCH_SIZE: Final = 24
MAX_POINTS: Final = 300
AS_PUBLISHED: Final = TrainConfig(1, learning_rate=5e-4, schedule="cosine", optimiser="adam", clip_norm=10.0)
OURS: Final = one_cycle(1)


def _network(config: DacConfig, training: TrainConfig) -> Network[DacModel]:
    return Network(DacModel, config, training, BATCH_SIZE)


NETWORKS: Final[dict[str, Network[DacModel]]] = {
    "published": _network(DacConfig.faithful(2), AS_PUBLISHED),
    "published, our optimiser": _network(DacConfig.faithful(2), OURS),
    "ours": _network(DacConfig(2), OURS),
    "ours, as it ships": _network(DacConfig(2, width=48, depth=2, mask_depth=1), OURS),
}


@dataclass(frozen=True)
class NetworkRecord:
    """One line of the results file: a network after its time was over."""

    network: str
    parameters: int
    minutes: float
    """Processor time that it was given."""
    steps: int
    """How many steps fitted into it."""
    loss: float
    """Mean of the last twentieth of the steps."""
    metrics: Mapping[str, Mapping[str, float]]
    """For each kind of sets: ari, k_error, and seconds per set."""
    n_sets: int
    seed: int
    commit: str
    versions: Mapping[str, str]


@one_thread()
def run(name: str, minutes: float) -> NetworkRecord:
    """Train one network for that long, and cluster with it."""
    network = NETWORKS[name]
    tasks = MixturesOfGaussians(max_points=MAX_POINTS, max_clusters=4)
    steps = max(20, int(60 * minutes / seconds_per_step(network, tasks)))
    losses: list[float] = []
    model = trained(name, network.with_steps(steps), tasks, on_log=lambda progress: losses.append(progress.loss))
    tail = losses[-max(1, steps // 20) :]
    kinds = {kind: list(mixtures(*size, SETS_SEED, BATCHES).draw()) for kind, size in SIZES.items()}
    decoding = DacModel(replace(network.config, decoding="faithful", max_points=1_000_000)).eval()
    decoding.load_state_dict(model.state_dict())
    return NetworkRecord(
        network=name,
        parameters=n_parameters(model),
        minutes=minutes,
        steps=steps,
        loss=round(sum(tail) / len(tail), 4),
        metrics={kind: _measure(decoding, [one for batch in sets for one in batch]) for kind, sets in kinds.items()},
        n_sets=sum(len(batch) for batch in next(iter(kinds.values()))),
        seed=SEED,
        commit=current_commit(),
        versions=library_versions(),
    )


def _measure(model: DacModel, sets: Sequence[LabelledSet]) -> dict[str, float]:
    scores, errors = [], []
    began = time.process_time()
    for one in sets:
        labels = model.cluster(one.x, Generator().manual_seed(SEED)).labels
        scores.append(adjusted_rand_index(one.y.numpy(), labels.numpy()))
        errors.append(abs(len(torch.unique(labels)) - one.n_clusters))
    seconds = time.process_time() - began
    return {
        "ari": round(sum(scores) / len(sets), 4),
        "k_error": round(sum(errors) / len(sets), 4),
        "seconds": round(seconds / len(sets), 4),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and measure all networks anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=6.0, help="processor time for each network")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    records = []
    for name in NETWORKS:
        records.append(run(name, options.minutes))
        print(asdict(records[-1]), flush=True)
    options.out.unlink(missing_ok=True)
    for record in records:
        append_line(options.out, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
