"""Sets of hand-written characters clustered by DAC with a mixture of neural statisticians: Table 7 of its paper.

    python -m benchmarks.quality.emnist_suite --run-folder FOLDER [--methods dac,kmeans] [--sets 100] [--anew]

The network is trained on pictures of all classes, and every method clusters the same sets of other pictures of these,
one at a time, on one thread. Only k-means is told how many clusters there are. Training goes on where it stopped, and
what the results file has already is not measured again.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Final, TypeAlias

import torch
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.emnist_sets import (
    LARGE,
    N_PIXELS,
    SEEDS,
    SIDE,
    SMALL,
    UNMOVED,
    HeldOutSet,
    Part,
    Sizes,
    held_out_batches,
    held_out_sets,
    tasks,
)
from benchmarks.quality.networks import SEED, TRIAL_STEPS, n_parameters, one_cycle, scored
from benchmarks.quality.records import Settings, append_line, current_commit, keep_lines, library_versions, read_lines
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.classes import Distortion
from coterie.base import one_thread
from coterie.errors import InputError
from coterie.nn.density import StatisticianHead
from coterie.nn.model import build
from coterie.ops.partitions import Clustering
from coterie.progress import Progress
from coterie.recipes import held_out_loss
from coterie.training.batches import task_batches
from coterie.training.loop import TrainConfig, train

OUT: Final = Path("benchmarks/results/emnist.jsonl")
TEST_SETS: Final = {SMALL: 100, LARGE: 30}
STARTS: Final = 10
"""Of k-means."""
DRAWS: Final = 4
"""Of codes, over which the bound of a picture's log-likelihood is averaged."""
SAY_EVERY: Final = 100
"""Steps between lines about training."""

Solve: TypeAlias = Callable[[HeldOutSet], Clustering]
"""How a method clusters a set."""


@dataclass(frozen=True)
class Stage:
    """A part of training: on sets of which size, how often and how fast."""

    points: tuple[int, int]
    steps: int
    learning_rate: float
    moved: Distortion = UNMOVED
    """How much pictures are turned, stretched and shifted."""
    only_density: bool = False
    """Whether who belongs together is left as it was learned, and only the density and what describes it is trained."""
    batch_size: int = 10
    max_clusters: int = 4

    @property
    def optimisation(self) -> TrainConfig:
        """One cycle of AdamW."""
        return one_cycle(self.steps, self.learning_rate, evaluate_every=500)


CONFIG: Final = DacConfig(
    N_PIXELS,
    encoder="mlp",
    image=(1, SIDE, SIDE),
    channels=128,
    density="statistician",
    likelihood="bernoulli",
    width=128,
    depth=2,
    mask_depth=2,
    layer_norm=False,
)
STAGES: Final = (
    Stage((30, 100), steps=10_500, learning_rate=1e-3, moved=Distortion(turn_by=10.0, stretched=0.1, shifted=0.05)),
    # Pictures as they are, since densities are of these.
    Stage((90, 300), steps=900, learning_rate=3e-4),
    Stage((90, 300), steps=2200, learning_rate=1e-3, only_density=True),
)
WITH_DENSITY: Final = ("dac", "dac-faithful")
METHODS: Final = (*WITH_DENSITY, "kmeans", "kmeans-embedded")


@dataclass(frozen=True)
class EmnistRecord:
    """One line of the results file: a method on all sets of one size."""

    data: str
    part: Part
    method: str
    settings: Settings
    sets_seed: int
    metrics: Mapping[str, list[float]]
    """Numbers of each set: ari, nmi, k_true, k_found, n, and ll where there is a density."""
    seconds: list[float]
    """Processor seconds of each set."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What makes two runs the same run; settings follow from the method."""
        return (self.data, self.part, self.method, self.sets_seed, len(self.seconds))


def trained(run_folder: Path) -> DacModel:
    """The network after all stages; steps that the folder has are not taken again."""
    generator = Generator().manual_seed(SEED)
    model = build(DacModel, CONFIG, generator)
    for number, stage in enumerate(STAGES, start=1):
        generator = Generator().manual_seed(SEED + number)
        sampler = tasks("training", stage.points, stage.max_clusters, stage.moved)
        held_back = held_out_batches("validation", stage.points[1], stage.max_clusters, 4)
        _let_learn(model, stage)
        train(
            model,
            task_batches(sampler, batch_size=stage.batch_size, generator=generator),
            stage.optimisation,
            generator=generator,
            on_log=_say,
            evaluate=partial(held_out_loss, model, held_back),
            folder=run_folder / f"stage-{number}",
        )
    return model.eval()


def _let_learn(model: DacModel, stage: Stage) -> None:
    """Say which weights a stage may change."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not stage.only_density or name.startswith(("density.", "describe.")))


def log_likelihood(model: DacModel, one: HeldOutSet, found: Clustering) -> float:
    """Lower bound of the mean log-likelihood of a pixel: each picture is from a mixture of the clusters' densities.

    A cluster's density of a picture is bounded by the mean over some draws of its code, in nats.
    """
    if not isinstance(model.density, StatisticianHead):
        raise InputError(f"density={model.config.density!r} has no bound; use 'statistician'.")
    generator = Generator().manual_seed(SEED)
    context, log_share = found.extras["context"], found.extras["log_share"]
    with torch.no_grad():
        bounds = [
            torch.cat([model.density.bound(one.x.unsqueeze(0), each, generator) for each in torch.split(context, 1)])
            for _ in range(DRAWS)
        ]
    joint = torch.stack(bounds).mean(dim=0) + log_share.unsqueeze(1)
    return float(joint.logsumexp(dim=0).mean()) / N_PIXELS


def decoding_of(method: str, model: DacModel) -> DacConfig:
    """The network's settings as a method uses them."""
    if method != "dac-faithful":
        return model.config
    return replace(model.config, decoding="faithful", max_points=LARGE.max_points)


def solver(method: str, model: DacModel) -> Solve:
    """How a method clusters a set."""
    if method == "kmeans":
        return lambda one: _told(one, one.x)
    if method == "kmeans-embedded":
        return lambda one: _told(one, _embedded(model, one))
    network = DacModel(decoding_of(method, model)).eval()
    network.load_state_dict(model.state_dict())

    return lambda one: network.cluster(one.x, Generator().manual_seed(SEED))


@torch.no_grad()
def _embedded(model: DacModel, one: HeldOutSet) -> Tensor:
    return model.embedded(one.x.unsqueeze(0), torch.ones((1, len(one.x)), dtype=torch.bool))[0]


def _told(one: HeldOutSet, x: Tensor) -> Clustering:
    labels = KMeans(one.n_clusters, n_init=STARTS, random_state=SEED).fit_predict(x.numpy())
    return Clustering(torch.from_numpy(labels.astype("int64")), one.n_clusters)


def measure(
    sizes: Sizes, part: Part, sets: Sequence[HeldOutSet], method: str, settings: Settings, model: DacModel
) -> EmnistRecord:
    """Cluster all sets, one after the other."""
    solve, found = solver(method, model), dict[int, Clustering]()

    def labels(one: HeldOutSet) -> Tensor:
        found[id(one)] = solve(one)
        return found[id(one)].labels

    scores = scored(sets, labels)
    metrics = scores.metrics | {"n": [float(len(one.labels)) for one in sets]}
    if method in WITH_DENSITY:
        metrics["ll"] = [round(log_likelihood(model, one, found[id(one)]), 6) for one in sets]
    return EmnistRecord(
        data=sizes.name,
        part=part,
        method=method,
        settings=settings,
        sets_seed=SEEDS[part],
        metrics=metrics,
        seconds=scores.seconds,
        commit=current_commit(),
        versions=library_versions(),
    )


def settings_of(method: str, model: DacModel, minutes: float) -> Settings:
    """What is written down of a method, and of the network and its training if it uses them."""
    if method == "kmeans":
        return {"n_init": STARTS}
    return {
        **{f"model.{key}": json.dumps(value) for key, value in asdict(decoding_of(method, model)).items()},
        **{f"stage-{number}": json.dumps(asdict(stage)) for number, stage in enumerate(STAGES, start=1)},
        "parameters": n_parameters(model),
        "minutes": minutes,
    }


def _minutes() -> float:
    """Processor time that training takes, from some of its steps, without what is slow only at first."""
    total = 0.0
    for stage in STAGES:
        times: list[float] = []
        generator = Generator().manual_seed(SEED)
        model = build(DacModel, CONFIG, generator)
        _let_learn(model, stage)
        sampler = tasks("training", stage.points, stage.max_clusters, stage.moved)
        batches = task_batches(sampler, batch_size=stage.batch_size, generator=generator)
        few = replace(stage.optimisation, steps=2 * TRIAL_STEPS)
        train(model, batches, few, generator=generator, on_log=partial(_note_time, times))
        total += (times[-1] - times[TRIAL_STEPS - 1]) / TRIAL_STEPS * stage.steps
    return round(total / 60, 1)


def _note_time(times: list[float], progress: Progress) -> None:
    del progress
    times.append(time.process_time())


def _say(progress: Progress) -> None:
    if progress.step % SAY_EVERY == 0 or progress.evaluation is not None:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in progress.parts.items())
        held_back = "" if progress.evaluation is None else f", held back {progress.evaluation['loss']:.4f}"
        left = progress.seconds_left / 60
        print(f"step {progress.step}: {progress.loss:.4f} ({parts}){held_back}, {left:.0f} min left", flush=True)


def run(methods: Sequence[str], run_folder: Path, part: Part, most: int | None, out: Path) -> None:
    """Measure what the file does not have yet, on so many sets of each size at most."""
    known = {record.key for record in read_lines(out, EmnistRecord)}
    counts = {sizes: count if most is None else min(count, most) for sizes, count in TEST_SETS.items()}
    pending = [
        (sizes, method)
        for sizes, count in counts.items()
        for method in methods
        if (sizes.name, part, method, SEEDS[part], count) not in known
    ]
    if not pending:
        return
    model = trained(run_folder)
    minutes = _minutes()
    for sizes, count in counts.items():
        sets = held_out_sets(part, sizes, count)
        for method in (each for size, each in pending if size == sizes):
            record = measure(sizes, part, sets, method, settings_of(method, model, minutes), model)
            append_line(out, record)
            print(
                f"{sizes.name:16} {method:16} ARI {mean(record.metrics['ari']):.3f}, {mean(record.seconds):.2f} s",
                flush=True,
            )


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.emnist_suite", description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="names (default: %(default)s)")
    parser.add_argument("--run-folder", type=Path, required=True, help="where training is kept, to go on from")
    parser.add_argument("--part", choices=("validation", "test"), default="test", help="(default: %(default)s)")
    parser.add_argument("--sets", type=int, help="most sets of each size (default: 100 of the small, 30 of the large)")
    parser.add_argument("--train-only", action="store_true", help="measure nothing")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def work() -> None:
        wanted = named(options.methods, METHODS, "method")
        if options.train_only:
            trained(options.run_folder)
            return
        if options.anew:
            keep_lines(options.out, EmnistRecord, lambda record: record.method not in wanted)
        run(wanted, options.run_folder, options.part, options.sets, options.out)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
