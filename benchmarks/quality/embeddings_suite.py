"""Sets of embedded pictures of classes that no clusterer was trained on: the likes of DAC's Table 2 and ABC's Table 3.

    python -m benchmarks.quality.embeddings_suite [--methods abc,kmeans] --runs FOLDER [--sets 200] [--anew]

DAC and ABC are trained on some classes, and all that can be chosen is chosen on others; then each method clusters the
same sets of the test classes, one at a time, on one thread. k-means and spectral clustering are told the number of
clusters. Training goes on where it stopped, and what the results file has already is not measured again.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Final, TypeAlias

import torch
from sklearn.cluster import KMeans, SpectralClustering
from torch import Generator, Tensor

from benchmarks.quality.embeddings_data import (
    SEEDS,
    WIDTH,
    Collection,
    HeldOutSet,
    Part,
    TrainingTasks,
    held_out_sets,
)
from benchmarks.quality.records import Setting, Settings, append_line, current_commit, library_versions, read_lines
from coterie.estimators.base import one_thread
from coterie.metrics import adjusted_rand_index, normalized_mutual_information
from coterie.models.attention_based import AttentionBasedConfig, AttentionBasedModel
from coterie.models.base import SetModel, build
from coterie.models.dac import DacConfig, DacModel
from coterie.structures import TaskBatch
from coterie.tasks.classes import Instances
from coterie.training import Progress, TrainConfig, task_batches, train

OUT: Final = Path("benchmarks/results/embeddings.jsonl")
COLLECTIONS: Final[tuple[Collection, ...]] = ("tiny-imagenet", "cifar100")
TEST_SETS: Final = 200
VALIDATION_SETS: Final = 60
SEED: Final = 0
STARTS: Final = 10
"""Of k-means."""
TRIAL_STEPS: Final = 20
"""Steps that are timed to know how long training takes, after as many that are not."""
SAY_EVERY: Final = 200
"""Steps between lines about training."""

Solve: TypeAlias = Callable[[HeldOutSet], Tensor]
"""From a set to labels."""


@dataclass(frozen=True)
class Network:
    """What is trained, on which sets, and for how long."""

    kind: type[SetModel]
    config: Any
    instances: Instances
    batch_size: int
    steps: int
    learning_rate: float = 1e-3

    @property
    def optimisation(self) -> TrainConfig:
        """One cycle of AdamW."""
        return TrainConfig(
            self.steps,
            learning_rate=self.learning_rate,
            schedule="one-cycle",
            optimiser="adamw",
            weight_decay=0.01,
            clip_norm=1.0,
        )


FOR_DAC: Final = Instances((30, 100), (1, 4), "dirichlet", 5.0)
"""As published: fewer points and clusters than at the test."""
FOR_ABC: Final = Instances((100, 200), (2, 12), "composition", 1.0)
"""As many clusters as at the test, as published; fewer points, since pairs are quadratic in them."""
FOR_MANY_FEATURES: Final[dict[str, Any]] = {"width": 128, "depth": 1, "mask_depth": 1, "layer_norm": False}
"""Of DAC. With normalisation, or several layers, anchored filtering learned nothing in the first minutes."""
NETWORKS: Final[dict[str, Network]] = {
    "abc": Network(AttentionBasedModel, AttentionBasedConfig(WIDTH), FOR_ABC, batch_size=8, steps=8000),
    "dac-anchored": Network(
        DacModel,
        DacConfig(WIDTH, filtering="anchored", anchor_position="latent", density="none", **FOR_MANY_FEATURES),
        FOR_DAC,
        batch_size=16,
        steps=12_000,
    ),
    "dac-min-loss": Network(
        DacModel, DacConfig(WIDTH, density="none", **FOR_MANY_FEATURES), FOR_DAC, batch_size=16, steps=12_000
    ),
}
BASELINES: Final[dict[str, tuple[dict[str, Setting], ...]]] = {
    "kmeans": tuple({"features": features} for features in ("raw", "prepared")),
    "spectral": tuple(
        {"features": features, "neighbours": neighbours} for features in ("raw", "prepared") for neighbours in (10, 20)
    ),
}
"""Settings of the methods that are told the number of clusters, of which the validation sets choose one."""
METHODS: Final = (*BASELINES, *NETWORKS)


@dataclass(frozen=True)
class EmbeddingsRecord:
    """One line of the results file: a method on all sets of a collection."""

    data: Collection
    part: Part
    method: str
    settings: Settings
    sets_seed: int
    metrics: Mapping[str, list[float]]
    """Numbers of each set: ari, nmi, k_true, k_found."""
    seconds: list[float]
    """Processor seconds of each set."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """What makes two runs the same run; settings follow from the method."""
        return (self.data, self.part, self.method, self.sets_seed, len(self.seconds))


def solver(method: str, settings: Settings, model: SetModel | None) -> Solve:
    """How a method with its settings clusters a set."""
    if model is not None:
        network = model
        return lambda one: network.cluster(one.prepared, Generator().manual_seed(SEED)).labels
    if method == "kmeans":
        return lambda one: _told(one, settings, KMeans(one.n_clusters, n_init=STARTS, random_state=SEED))

    def spectral(one: HeldOutSet) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Graph is not fully connected")  # clusters apart are what is looked for
            graph = {"affinity": "nearest_neighbors", "n_neighbors": settings["neighbours"]}
            return _told(one, settings, SpectralClustering(one.n_clusters, random_state=SEED, **graph))

    return spectral


def _told(one: HeldOutSet, settings: Settings, model: KMeans | SpectralClustering) -> Tensor:
    x = one.raw if settings["features"] == "raw" else one.prepared
    return torch.from_numpy(model.fit_predict(x.numpy()).astype("int64"))


def measure(
    collection: Collection, part: Part, sets: Sequence[HeldOutSet], method: str, settings: Settings, solve: Solve
) -> EmbeddingsRecord:
    """Cluster all sets, one after the other."""
    metrics: dict[str, list[float]] = {name: [] for name in ("ari", "nmi", "k_true", "k_found")}
    seconds = []
    solve(sets[0])  # what is only slow the first time is no part of the time
    for one in sets:
        # Processor seconds, since others may be at work on the machine.
        began = time.process_time()
        labels = solve(one)
        seconds.append(round(time.process_time() - began, 5))
        metrics["ari"].append(round(adjusted_rand_index(one.labels.numpy(), labels.numpy()), 5))
        metrics["nmi"].append(round(normalized_mutual_information(one.labels.numpy(), labels.numpy()), 5))
        metrics["k_true"].append(one.n_clusters)
        metrics["k_found"].append(len(torch.unique(labels)))
    return EmbeddingsRecord(
        data=collection,
        part=part,
        method=method,
        settings=settings,
        sets_seed=SEEDS[part],
        metrics=metrics,
        seconds=seconds,
        commit=current_commit(),
        versions=library_versions(),
    )


def trained(name: str, runs: Path) -> SetModel:
    """The network of that name, trained as far as it is not yet, and calibrated on the validation sets."""
    network = NETWORKS[name]
    generator = Generator().manual_seed(SEED)
    model = build(network.kind, network.config, generator)
    batches = task_batches(TrainingTasks(network.instances), batch_size=network.batch_size, generator=generator)
    train(model, batches, network.optimisation, generator=generator, on_log=_say, folder=runs / name)
    model.eval()
    shown = [one for collection in COLLECTIONS for one in held_out_sets(collection, "validation", VALIDATION_SETS)]
    with torch.no_grad():
        model.config = model.calibrated([_as_batch(one) for one in shown], normalized_mutual_information)
    return model


def prepared(name: str, runs: Path, out: Path) -> tuple[Settings, Solve]:
    """The method as the validation sets want it; how it does on them is written down."""
    if name in NETWORKS:
        model = trained(name, runs)
        settings = _settings(NETWORKS[name], model)
        candidates = [(settings, solver(name, settings, model))]
    else:
        candidates = [(settings, solver(name, settings, None)) for settings in BASELINES[name]]
    scores = []
    for settings, solve in candidates:
        records = [
            measure(each, "validation", held_out_sets(each, "validation", VALIDATION_SETS), name, settings, solve)
            for each in COLLECTIONS
        ]
        for record in records:
            append_line(out, record)
        scores.append(mean(mean(record.metrics["ari"]) for record in records))
    return candidates[scores.index(max(scores))]


def _settings(network: Network, model: SetModel) -> Settings:
    """What is written down of a network."""
    return {
        **{f"model.{key}": json.dumps(value) for key, value in asdict(model.config).items()},
        **{f"sets.{key}": json.dumps(value) for key, value in asdict(network.instances).items()},
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "batch_size": network.batch_size,
        "steps": network.steps,
        "learning_rate": network.learning_rate,
        "minutes": _minutes(network),
    }


def _as_batch(one: HeldOutSet) -> TaskBatch:
    everyone = torch.ones((1, len(one.labels)), dtype=torch.bool)
    return TaskBatch(one.prepared.unsqueeze(0), one.labels.unsqueeze(0), everyone)


def _minutes(network: Network) -> float:
    """Processor time that training takes, from some of its steps, without what is slow only at first."""
    times: list[float] = []
    generator = Generator().manual_seed(SEED)
    model = build(network.kind, network.config, generator)
    batches = task_batches(TrainingTasks(network.instances), batch_size=network.batch_size, generator=generator)
    few = replace(network.optimisation, steps=2 * TRIAL_STEPS)
    train(model, batches, few, generator=generator, on_log=lambda _: times.append(time.process_time()))
    return round((times[-1] - times[TRIAL_STEPS - 1]) / TRIAL_STEPS * network.steps / 60, 1)


def _say(progress: Progress) -> None:
    if progress.step % SAY_EVERY == 0:
        parts = ", ".join(f"{name} {value:.3f}" for name, value in progress.parts.items())
        left = progress.seconds_left / 60
        print(
            f"step {progress.step} of {progress.steps}: {progress.loss:.4f} ({parts}), {left:.0f} min left", flush=True
        )


def run(method: str, runs: Path, count: int, out: Path) -> None:
    """Measure a method on the test sets that the file does not have yet."""
    known = {record.key for record in read_lines(out, EmbeddingsRecord)}
    pending = [each for each in COLLECTIONS if (each, "test", method, SEEDS["test"], count) not in known]
    if not pending:
        return
    settings, solve = prepared(method, runs, out)
    for collection in pending:
        record = measure(collection, "test", held_out_sets(collection, "test", count), method, settings, solve)
        append_line(out, record)
        print(f"{method:14} {collection:14} ARI {mean(record.metrics['ari']):.3f}", flush=True)


def forget(out: Path, methods: Sequence[str]) -> None:
    """Take what the file has of some methods out of it."""
    kept = [record for record in read_lines(out, EmbeddingsRecord) if record.method not in methods]
    unfinished = out.with_suffix(".partial")
    unfinished.write_text("".join(json.dumps(asdict(record)) + "\n" for record in kept), encoding="utf-8")
    unfinished.replace(out)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.embeddings_suite", description=__doc__)
    parser.add_argument("--methods", help=f"comma-separated, of {', '.join(METHODS)} (default: all)")
    parser.add_argument("--runs", type=Path, required=True, help="folder where training is kept, to go on from")
    parser.add_argument(
        "--sets", type=int, default=TEST_SETS, help="test sets of each collection (default: %(default)s)"
    )
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)
    wanted = options.methods.split(",") if options.methods else list(METHODS)
    if not set(METHODS).issuperset(wanted):
        print(f"error: Unknown among {', '.join(wanted)}. Known are: {', '.join(METHODS)}.", file=sys.stderr)
        return 2
    if options.anew:
        forget(options.out, wanted)
    for method in wanted:
        run(method, options.runs, options.sets, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
