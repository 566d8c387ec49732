"""Sets of embedded pictures of classes that no clusterer was trained on: the likes of DAC's Table 2 and ABC's Table 3.

    python -m benchmarks.quality.embeddings_suite [--methods abc,kmeans] --runs FOLDER [--sets 200] [--anew]

DAC and ABC are trained on some classes, and all that can be chosen is chosen on others; then they are trained again, on
both. Each method clusters the same sets of the test classes, one at a time, on one thread. k-means and spectral
clustering are told the number of clusters. Training goes on where it stopped, and what the results file has already is
not measured again.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Final, TypeAlias

import torch
from sklearn.cluster import KMeans, SpectralClustering
from torch import Generator, Tensor

from benchmarks.quality import networks
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.embeddings_data import SEEDS, WIDTH, Collection, HeldOutSet, Part, TrainingTasks, held_out_sets
from benchmarks.quality.networks import SEED, Network, as_batch, minutes, one_cycle, scored
from benchmarks.quality.records import (
    Setting,
    Settings,
    append_line,
    current_commit,
    keep_lines,
    library_versions,
    read_lines,
)
from coterie.amortized.abc.network import AttentionBasedConfig, AttentionBasedModel
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.classes import Instances
from coterie.base import one_thread
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import SetModel

OUT: Final = Path("benchmarks/results/embeddings.jsonl")
COLLECTIONS: Final[tuple[Collection, ...]] = ("tiny-imagenet", "cifar100")
TEST_SETS: Final = 200
VALIDATION_SETS: Final = 60
STARTS: Final = 10
"""Of k-means."""

Solve: TypeAlias = Callable[[HeldOutSet], Tensor]
"""From a set to labels."""


FOR_DAC: Final = Instances((30, 100), (1, 4), "dirichlet", 5.0)
"""As published: fewer points and clusters than at the test."""
FOR_ABC: Final = Instances((100, 200), (2, 12), "composition", 1.0)
"""As many clusters as at the test, as published; fewer points, since pairs are quadratic in them."""
FOR_MANY_FEATURES: Final[dict[str, Any]] = {"width": 128, "depth": 1, "mask_depth": 1}
"""Of DAC. With several layers, filtering learned nothing in the first minutes."""
COMPARED: Final[dict[str, Any]] = {"anchor_position": "latent", "anchoring": "compared", "anchors": 8}
"""Of anchored filtering. As published, where anchors are only shown, it learned next to nothing."""
ANCHORED: Final = DacConfig(
    WIDTH, filtering="anchored", density="none", decoding="kernel", **COMPARED, **FOR_MANY_FEATURES
)
FRAMED: Final = replace(ANCHORED, principal=32, principal_beside=True)
"""The same, which sees a set's pictures from the set's own principal directions too."""
NETWORKS: Final[dict[str, Network[SetModel]]] = {
    "abc": Network(AttentionBasedModel, AttentionBasedConfig(WIDTH), one_cycle(8000), 8, FOR_ABC),
    "dac-anchored": Network(DacModel, ANCHORED, one_cycle(6000), 4, FOR_DAC),
    "dac-anchored-12": Network(DacModel, ANCHORED, one_cycle(8000), 4, FOR_ABC),
    "dac-anchored-12-short": Network(DacModel, ANCHORED, one_cycle(4000), 4, FOR_ABC),
    "dac-framed": Network(DacModel, FRAMED, one_cycle(6000), 4, FOR_DAC),
    "dac-framed-12": Network(DacModel, FRAMED, one_cycle(4000), 4, FOR_ABC),
    "dac-min-loss": Network(
        DacModel, DacConfig(WIDTH, density="none", **FOR_MANY_FEATURES), one_cycle(6000), 8, FOR_DAC
    ),
}
_SETTINGS: Final[dict[str, tuple[dict[str, Setting], ...]]] = {
    "kmeans": tuple({"features": features} for features in ("raw", "prepared")),
    "spectral": tuple(
        {"features": features, "neighbours": neighbours} for features in ("raw", "prepared") for neighbours in (10, 20)
    ),
}
BASELINES: Final[dict[str, tuple[dict[str, Setting], ...]]] = {
    **_SETTINGS,
    **{
        f"{method}-raw": tuple(each for each in settings if each["features"] == "raw")
        for method, settings in _SETTINGS.items()
    },
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
    if method.startswith("kmeans"):
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
    scores = scored(sets, solve)
    return EmbeddingsRecord(
        data=collection,
        part=part,
        method=method,
        settings=settings,
        sets_seed=SEEDS[part],
        metrics=scores.metrics,
        seconds=scores.seconds,
        commit=current_commit(),
        versions=library_versions(),
    )


def calibrated(name: str, runs: Path) -> SetModel:
    """The network of that name, trained on the training classes and calibrated on the validation sets."""
    network = NETWORKS[name]
    shown = [one for collection in COLLECTIONS for one in held_out_sets(collection, "validation", VALIDATION_SETS)]
    held_back = [as_batch(one.prepared, one.labels) for one in shown]
    tasks = TrainingTasks(network.checked_instances())
    # By this score, since the other one is large for very many clusters, whatever they are.
    return networks.trained(name, network, tasks, runs / name, held_back=held_back, score=adjusted_rand_index)


def trained(name: str, runs: Path, config: Any) -> SetModel:
    """The network of that name, trained on all classes but those of the test, as it was calibrated before."""
    network = NETWORKS[name]
    tasks = TrainingTasks(network.checked_instances(), parts=("training", "validation"))
    model = networks.trained(f"{name}, all classes", network, tasks, runs / f"{name}-all")
    model.config = config
    return model


def prepared(name: str, runs: Path, out: Path) -> tuple[Settings, Solve]:
    """The method as the validation sets want it; how it does on them is written down."""
    if name in NETWORKS:
        network, model = NETWORKS[name], calibrated(name, runs)
        taken = minutes(network, TrainingTasks(network.checked_instances()))
        settings: Settings = {**network.settings(model), "minutes": taken}
        _validated(name, settings, solver(name, settings, model), out)
        return settings, solver(name, settings, trained(name, runs, model.config))
    candidates = [(settings, solver(name, settings, None)) for settings in BASELINES[name]]
    scores = [_validated(name, settings, solve, out) for settings, solve in candidates]
    return candidates[scores.index(max(scores))]


def _validated(name: str, settings: Settings, solve: Solve, out: Path) -> float:
    """Mean score of a method on the validation sets, which is written down."""
    records = [
        measure(each, "validation", held_out_sets(each, "validation", VALIDATION_SETS), name, settings, solve)
        for each in COLLECTIONS
    ]
    for record in records:
        append_line(out, record)
    return mean(mean(record.metrics["ari"]) for record in records)


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


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.embeddings_suite", description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="names (default: %(default)s)")
    parser.add_argument("--runs", type=Path, required=True, help="folder where training is kept, to go on from")
    parser.add_argument(
        "--sets", type=int, default=TEST_SETS, help="test sets of each collection (default: %(default)s)"
    )
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def work() -> None:
        wanted = named(options.methods, METHODS, "method")
        if options.anew:
            keep_lines(options.out, EmbeddingsRecord, lambda record: record.method not in wanted)
        for method in wanted:
            run(method, options.runs, options.sets, options.out)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
