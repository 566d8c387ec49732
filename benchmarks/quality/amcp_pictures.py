"""Pictures of classes that no network was trained on, as in AMCP's experiments: MNIST, CIFAR-10 and Tiny-ImageNet.

    python -m benchmarks.quality.amcp_pictures [--collections mnist] [--methods amcp,kmeans] --runs FOLDER [--anew]

All networks of a collection are trained for the same processor time, on one thread, on sets of the training classes,
and find out the number of clusters by themselves. k-means, spectral clustering and mixtures of Gaussians are told it,
and have principal components of the set. Training goes on where it stopped, and what the results file has already is
not measured again.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, Final, get_args

import torch
from torch import Generator, Tensor

from benchmarks.quality import amcp_baselines
from benchmarks.quality.amcp_baselines import BASELINES, Solve
from benchmarks.quality.amcp_data import POINTS, Collection, HeldOutSet, test_sets, training_tasks, validation_sets
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.networks import SEED, Network, as_batch, one_cycle, scored, seconds_per_step, trained
from benchmarks.quality.records import Settings, append_line, current_commit, keep_lines, library_versions, read_lines
from coterie.data.files import write_atomically
from coterie.estimators.base import one_thread
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.models.amcp import AmcpModel
from coterie.models.base import SetModel
from coterie.models.dac import DacModel
from coterie.models.ncp import NcpModel
from coterie.tasks.images import Distortion, ImageTasks

OUT: Final = Path("benchmarks/results/amcp_pictures.jsonl")
COLLECTIONS: Final[tuple[Collection, ...]] = get_args(Collection)
IMAGES: Final[Mapping[Collection, tuple[int, int, int]]] = MappingProxyType(
    {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "tiny-imagenet": (3, 32, 32), "tiny-imagenet-embedded": (1280, 1, 1)}
)
MINUTES: Final[Mapping[Collection, float]] = MappingProxyType(
    {"mnist": 4.0, "cifar10": 4.0, "tiny-imagenet": 4.0, "tiny-imagenet-embedded": 2.0}
)
"""Processor time that a network is trained for."""
TRAINING_POINTS: Final = (50, 150)
BATCH_SIZE: Final = 4
TEST_SETS: Final[Mapping[int, int]] = MappingProxyType({100: 100, 500: 50, 1000: 100, 5000: 20})
"""How many sets, by their size."""
VALIDATION_SETS: Final = 20
VALIDATION_POINTS: Final[Mapping[Collection, int]] = MappingProxyType(
    {"mnist": 500, "cifar10": 500, "tiny-imagenet": 100, "tiny-imagenet-embedded": 100}
)
MOVED: Final = Distortion(turn_by=10.0, stretched=0.1, shifted=0.05)
ANCHORED: Final[dict[str, Any]] = {"filtering": "anchored", "density": "none"}
COMPARED: Final[dict[str, Any]] = {"anchor_position": "latent", "anchoring": "compared", "anchors": 8}


@dataclass(frozen=True)
class Contender:
    """A kind of network, its settings besides the pictures', and the sets that it is trained on."""

    kind: type[SetModel]
    config: Mapping[str, Any]
    n_classes: int | None = None
    """Training classes that are used; None for all."""
    turned: bool = False
    """Whether a class that is turned by a quarter, a half or three quarters is another class."""
    decoded: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are changed once it is trained, where the weights are those of another contender."""
    weights_of: str | None = None
    """That one."""

    def network(self, collection: Collection) -> Network[SetModel]:
        """What is trained, of one step."""
        image = IMAGES[collection]
        n_features = image[0] * image[1] * image[2]
        config = dict(self.config)
        if image[1:] == (1, 1):
            config["encoder"] = "mlp"
        of_image = {} if config["encoder"] == "mlp" else {"image": image}
        made = self.kind.Config(n_features, **config, **of_image)
        return Network(self.kind, made, one_cycle(1), BATCH_SIZE)

    def tasks(self, collection: Collection) -> ImageTasks:
        """Where its training sets come from."""
        are_pictures = IMAGES[collection][1:] != (1, 1)
        return training_tasks(
            collection,
            TRAINING_POINTS,
            n_classes=self.n_classes,
            moved=MOVED if are_pictures else Distortion(),
            mirrored=are_pictures and collection != "mnist",
            turned=self.turned and are_pictures,
        )


AMCP_SETTINGS: Final[dict[str, Any]] = {**ANCHORED, "encoder": "strided", "moments": 4}
CONTENDERS: Final[Mapping[str, Contender]] = MappingProxyType(
    {
        "amcp": Contender(AmcpModel, AMCP_SETTINGS),
        "amcp-star": Contender(
            AmcpModel, AMCP_SETTINGS, decoded=MappingProxyType({"update_previous": True}), weights_of="amcp"
        ),
        "amcp-turned": Contender(AmcpModel, AMCP_SETTINGS, turned=True),
        "amcp-mlp": Contender(AmcpModel, AMCP_SETTINGS | {"encoder": "mlp"}),
        "dac": Contender(
            DacModel,
            {**ANCHORED, **COMPARED, "encoder": "strided", "decoding": "kernel", "depth": 1, "mask_depth": 1},
        ),
        "ncp": Contender(NcpModel, {"encoder": "strided"}),
        **{f"amcp-{count}-classes": Contender(AmcpModel, AMCP_SETTINGS, n_classes=count) for count in (2, 3, 4)},
    }
)
OF_COLLECTIONS: Final[Mapping[Collection, tuple[str, ...]]] = MappingProxyType(
    {
        "mnist": (*CONTENDERS, *BASELINES),
        "cifar10": ("amcp", "amcp-star", "dac", *BASELINES),
        "tiny-imagenet": ("amcp", "amcp-star", *BASELINES),
        "tiny-imagenet-embedded": ("amcp", "amcp-star", "dac", *BASELINES),
    }
)
"""Methods that are measured on each."""
METHODS: Final = (*CONTENDERS, *BASELINES)


@dataclass(frozen=True)
class PictureRecord:
    """One line of the results file: a method on all sets of one size."""

    data: Collection
    n_points: int
    method: str
    settings: Settings
    metrics: Mapping[str, list[float]]
    """Numbers of each set: acc, ari, nmi over the geometric mean of entropies, k_true, k_found."""
    seconds: list[float]
    """Processor seconds of each set."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> tuple[str, int, str, int]:
        """What makes two runs the same run; settings follow from the method."""
        return (self.data, self.n_points, self.method, len(self.seconds))


def steps_within(name: str, collection: Collection, runs: Path) -> int:
    """Steps that fit into the collection's minutes; measured once, so that training can go on."""
    kept = runs / f"{collection}-{name}.steps.json"
    if kept.is_file():
        return int(json.loads(kept.read_text(encoding="utf-8")))
    contender = CONTENDERS[name]
    taken = seconds_per_step(contender.network(collection), contender.tasks(collection))
    steps = max(20, int(60 * MINUTES[collection] / taken))
    runs.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, json.dumps(steps).encode(), force=True)
    return steps


def network_of(name: str, collection: Collection, runs: Path) -> tuple[SetModel, Settings]:
    """The network of that name, trained as far as it is not yet, and what is written down of it."""
    contender = CONTENDERS[name]
    trained_as = contender.weights_of or name
    steps = steps_within(trained_as, collection, runs)
    network = contender.network(collection).with_steps(steps)
    held_back = [
        as_batch(one.x, one.labels)
        for one in validation_sets(collection, VALIDATION_POINTS[collection], VALIDATION_SETS)
    ]
    model = trained(
        trained_as,
        network,
        contender.tasks(collection),
        runs / f"{collection}-{trained_as}",
        held_back=held_back,
        score=adjusted_rand_index,
    )
    if contender.decoded:
        model.config = replace(model.config, **contender.decoded)
    settings = {
        **network.settings(model),
        "minutes": MINUTES[collection],
        "n_classes": contender.n_classes,
        "turned": contender.turned,
    }
    return model, settings


def prepared(method: str, collection: Collection, runs: Path) -> tuple[Settings, Solve]:
    """A method, ready; of a baseline's settings, those that do best on the validation sets."""
    if method in CONTENDERS:
        model, settings = network_of(method, collection, runs)

        def solve(one: HeldOutSet) -> Tensor:
            with torch.no_grad():
                return model.cluster(one.x, Generator().manual_seed(SEED)).labels

        return settings, solve
    shown = validation_sets(collection, VALIDATION_POINTS[collection], VALIDATION_SETS)
    candidates = [(settings, amcp_baselines.solver(method, settings)) for settings in BASELINES[method]]
    if len(candidates) == 1:
        return candidates[0]
    scores = [mean(scored(shown, solve).metrics["ari"]) for _, solve in candidates]
    return candidates[scores.index(max(scores))]


def measure(collection: Collection, n_points: int, method: str, settings: Settings, solve: Solve) -> PictureRecord:
    """Cluster all sets of one size, one after the other."""
    sets = test_sets(collection, n_points, TEST_SETS[n_points])
    accuracies: list[float] = []
    shared: list[float] = []

    def noted(one: HeldOutSet) -> Tensor:
        labels = solve(one)
        accuracies.append(round(matched_accuracy(one.labels.numpy(), labels.numpy()), 5))
        information = normalized_mutual_information(one.labels.numpy(), labels.numpy(), mean="geometric")
        shared.append(round(information, 5))
        return labels

    scores = scored(sets, noted)
    # The first set is clustered twice, the first time so that nothing is slow only at first.
    metrics = scores.metrics | {"acc": accuracies[1:], "nmi": shared[1:]}
    return PictureRecord(
        data=collection,
        n_points=n_points,
        method=method,
        settings=settings,
        metrics=metrics,
        seconds=scores.seconds,
        commit=current_commit(),
        versions=library_versions(),
    )


def run(collection: Collection, method: str, runs: Path, out: Path) -> None:
    """Measure a method on the sizes of sets that the file does not have yet."""
    known = {record.key for record in read_lines(out, PictureRecord)}
    sizes = POINTS[collection]
    if method == "ncp":
        sizes = sizes[:1]  # it goes from picture to picture
    pending = [size for size in sizes if (collection, size, method, TEST_SETS[size]) not in known]
    if not pending:
        return
    settings, solve = prepared(method, collection, runs)
    for n_points in pending:
        record = measure(collection, n_points, method, settings, solve)
        append_line(out, record)
        print(f"{collection:24} {n_points:5} {method:16} ACC {mean(record.metrics['acc']):.3f}", flush=True)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.amcp_pictures", description=__doc__)
    parser.add_argument("--collections", default=",".join(COLLECTIONS), help="names (default: %(default)s)")
    parser.add_argument("--methods", default=",".join(METHODS), help="names (default: %(default)s)")
    parser.add_argument("--runs", type=Path, required=True, help="folder where training is kept, to go on from")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods")
    parser.add_argument("--out", type=Path, default=OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)

    def work() -> None:
        wanted = named(options.methods, METHODS, "method")
        collections = named(options.collections, COLLECTIONS, "collection")
        if options.anew:
            keep_lines(
                options.out,
                PictureRecord,
                lambda record: record.data not in collections or record.method not in wanted,
            )
        for collection in COLLECTIONS:
            for method in OF_COLLECTIONS[collection]:
                if collection in collections and method in wanted:
                    run(collection, method, options.runs, options.out)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
