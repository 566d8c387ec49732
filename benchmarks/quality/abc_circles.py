"""Attention-based clustering of points on circles: Figures 1 and 2 of its paper.

    python -m benchmarks.quality.abc_circles [--networks additive,pairwise] [--run-folder runs]

Networks are trained on sets of 20 points on four circles, and measured on longer and shorter ones, where circles may or
must cross. Training can be stopped and goes on when it is called again; what the results file has already is not
measured again. All on one thread.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch
from sklearn.cluster import SpectralClustering
from torch import Generator, Tensor

from benchmarks.quality import networks
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.networks import SEED, Network
from benchmarks.quality.records import Settings, append_line, current_commit, library_versions, read_lines
from coterie.amortized.abc.network import AttentionBasedConfig, AttentionBasedModel, Compatibility
from coterie.amortized.tasks.synthetic import CircleTasks
from coterie.base import one_thread
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import TaskBatch, build
from coterie.training.loop import TrainConfig

SUITE: Final = "abc-circles"
DEFAULT_OUT: Final = Path("benchmarks/results/abc_circles.jsonl")
RUN_FOLDER: Final = Path(tempfile.gettempdir()) / "coterie-abc-circles"
CIRCLES: Final = 4
TRAINED_LENGTH: Final = 20
"""Points of the sets that are learned from."""
BATCH_SIZE: Final = 128
PUBLISHED_STEPS: Final = 7812
"""One pass over a million sets."""
FEWER_STEPS: Final = 2500
"""Where compatibility is additive, of which a step costs three times as much."""
LENGTHS: Final = (10, 20, 30, 50, 70, 100)
"""Points of the sets that are measured on."""
N_SETS: Final = 200
SETS_SEEDS: Final = MappingProxyType({"any": 7000, "crossing": 8000})
"""To which the length is added: of sets whose circles may cross, as trained on, and of those where each does."""
SETS_AT_ONCE: Final = 50
"""Sets whose kernels are computed together."""
SPECTRAL: Final = "spectral"
KNOWN: Final = "k known"


def _published(compatibility: Compatibility, depth: int, steps: int) -> Network[AttentionBasedModel]:
    """The published network for circles: one head, no map after it, and no scale where additive; Adam as published."""
    config = AttentionBasedConfig(
        2,
        heads=1,
        depth=depth,
        compatibility=compatibility,
        scale="none" if compatibility == "additive" else "model",
        feed_forward="linear",
        output_map=False,
        offset=False,
        decode="eigengap",
    )
    training = TrainConfig(steps, learning_rate=1e-3, schedule="constant")
    return Network(AttentionBasedModel, config, training, BATCH_SIZE)


NETWORKS: Final[Mapping[str, Network[AttentionBasedModel]]] = MappingProxyType(
    {
        "multiplicative": _published("multiplicative", 2, PUBLISHED_STEPS),
        "additive": _published("additive", 2, FEWER_STEPS),
        "pairwise": _published("additive", 0, FEWER_STEPS),
    }
)
DECODINGS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        KNOWN: {"decode": "eigengap", "n_clusters": CIRCLES},
        "eigengap": {"decode": "eigengap"},
        "linkage": {"decode": "linkage"},
    }
)
"""Ways to read clusters off a kernel: spectrally, told how many; as published, not told; as by default, not told."""


@dataclass(frozen=True)
class CirclesRecord:
    """One line of the results file: a method on all sets of one length."""

    suite: str
    sets: str
    """Kind of sets."""
    sets_seed: int
    length: int
    method: str
    decoding: str
    settings: Settings
    ari: list[float]
    """Of each set."""
    k_found: list[int]
    seconds: float
    """Processor seconds from the points to the clusters of all sets."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> str:
        """What makes two runs the same run."""
        parts = [self.suite, self.sets, self.sets_seed, self.length, self.method, self.decoding, self.settings]
        return json.dumps([*parts, len(self.ari)], sort_keys=True)


@dataclass(frozen=True)
class Plan:
    """How much is to be done."""

    steps: int | None = None
    """Of training; None for those of each network."""
    n_sets: int = N_SETS
    lengths: Sequence[int] = LENGTHS
    run_folder: Path = RUN_FOLDER


def circles(kind: str, length: int, n_sets: int) -> TaskBatch:
    """The sets of one kind and length."""
    tasks = CircleTasks(length, CIRCLES, overlapping=kind == "crossing")
    return tasks.sample(n_sets, Generator().manual_seed(SETS_SEEDS[kind] + length))


def trained(name: str, plan: Plan) -> AttentionBasedModel:
    """A network after all its steps; those that the run's folder has are not taken again."""
    network = NETWORKS[name].with_steps(plan.steps)
    folder = plan.run_folder / f"{name}-{network.training.steps}"
    return networks.trained(name, network, CircleTasks(TRAINED_LENGTH, CIRCLES), folder)


def kernels(model: AttentionBasedModel, x: Tensor) -> Tensor:
    """Kernel of each set."""
    with torch.no_grad():
        return torch.cat([model.kernel(part) for part in torch.split(x, SETS_AT_ONCE)])


def decoded(model: AttentionBasedModel, decoding: str, found: Tensor) -> list[Tensor]:
    """Clusters of each of several kernels, read off in one of the ways."""
    # Settings of ours that the paper leaves open, such as the cut, are as they come.
    reader = build(AttentionBasedModel, replace(model.config, **DECODINGS[decoding]), Generator().manual_seed(SEED))
    return [reader.read_off(kernel, Generator().manual_seed(SEED)) for kernel in found]


def spectral(x: Tensor) -> list[Tensor]:
    """Clusters by scikit-learn's spectral clustering as it comes, told how many."""
    method = SpectralClustering(CIRCLES, random_state=SEED)
    return [torch.from_numpy(method.fit_predict(points.double().numpy())).long() for points in x]


def run(name: str, plan: Plan, out: Path) -> Iterator[CirclesRecord]:
    """Measure a method wherever the file does not have it yet, and write that down."""
    known = {record.key for record in read_lines(out, CirclesRecord)}
    blanks = [
        _blank(name, kind, length, decoding, plan)
        for kind in SETS_SEEDS
        for length in plan.lengths
        for decoding in ([KNOWN] if name == SPECTRAL else DECODINGS)
    ]
    pending = [blank for blank in blanks if blank.key not in known]
    model = trained(name, plan) if pending and name != SPECTRAL else None
    for blank in pending:
        batch = circles(blank.sets, blank.length, plan.n_sets)
        began = time.process_time()
        labels = spectral(batch.x) if model is None else decoded(model, blank.decoding, kernels(model, batch.x))
        seconds = time.process_time() - began
        pairs = zip(batch.labels, labels, strict=True)
        record = replace(
            blank,
            ari=[round(adjusted_rand_index(truth.numpy(), own.numpy()), 4) for truth, own in pairs],
            k_found=[len(torch.unique(own)) for own in labels],
            seconds=round(seconds, 2),
        )
        append_line(out, record)
        yield record


def _blank(name: str, kind: str, length: int, decoding: str, plan: Plan) -> CirclesRecord:
    settings: dict[str, str | int | float | bool | None] = {}
    if name != SPECTRAL:
        network = NETWORKS[name].with_steps(plan.steps)
        settings = {
            "steps": network.training.steps,
            "batch_size": network.batch_size,
            "trained_length": TRAINED_LENGTH,
            "schedule": network.training.schedule,
            "seed": SEED,
        }
    return CirclesRecord(
        suite=SUITE,
        sets=kind,
        sets_seed=SETS_SEEDS[kind],
        length=length,
        method=name,
        decoding=decoding,
        settings=settings,
        ari=[0.0] * plan.n_sets,
        k_found=[],
        seconds=0.0,
        commit=current_commit(),
        versions=library_versions(),
    )


def add_plan(parser: argparse.ArgumentParser) -> None:
    """Let a command be told how much to do."""
    parser.add_argument("--steps", type=int, help="of training (default: those of each network)")
    parser.add_argument(
        "--run-folder", type=Path, default=RUN_FOLDER, help="where training is kept (default: %(default)s)"
    )


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Train and measure what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.abc_circles", description=__doc__)
    parser.add_argument("--networks", default=",".join((SPECTRAL, *NETWORKS)), help="names (default: %(default)s)")
    parser.add_argument("--sets", type=int, default=N_SETS, help="of each length and kind (default: %(default)s)")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="of the sets (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    add_plan(parser)
    options = parser.parse_args(arguments)
    plan = Plan(options.steps, options.sets, tuple(map(int, options.lengths.split(","))), options.run_folder)

    def work() -> None:
        for name in named(options.networks, (SPECTRAL, *NETWORKS), "network"):
            for one in run(name, plan, options.out):
                mean = sum(one.ari) / len(one.ari)
                print(f"{name}, {one.decoding}, {one.sets} {one.length}: ARI {mean:.3f}", flush=True)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
