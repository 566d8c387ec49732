"""Pictures of classes that no network was trained on, as in AMCP's experiments: MNIST, CIFAR-10 and Tiny-ImageNet.

    python -m benchmarks.quality.amcp_pictures [--collections mnist] [--methods amcp,kmeans] --runs FOLDER [--anew]

An encoder learns to name classes that are put together of the training classes (`amcp_lessons`), and stays as it is.
All networks of a collection are then trained for the same processor time, on one thread, on sets of what it sees of
other such classes, and find out the number of clusters by themselves. k-means, spectral clustering and mixtures of
Gaussians are told it, and have principal components of the set: of its pixels or, "encoded", of what the encoder sees.
Training goes on where it stopped, and what the results file has already is not measured again.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, Final, final, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.baselines.ncp import NcpModel
from benchmarks.data.tasks import VectorTasks
from benchmarks.quality import amcp_baselines
from benchmarks.quality.amcp_baselines import BASELINES, Solve, ToldSet
from benchmarks.quality.amcp_data import (
    CONCENTRATION,
    POINTS,
    Collection,
    HeldOutSet,
    Pictures,
    test_sets,
    validation_sets,
)
from benchmarks.quality.amcp_lessons import lessons, moved
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.naming import NamedPictures, Naming, encoder_that_names
from benchmarks.quality.networks import SEED, Network, one_cycle, scored, seconds_per_step, trained
from benchmarks.quality.records import Settings, append_line, current_commit, keep_lines, library_versions, read_lines
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.classes import Instances
from coterie.base import one_thread
from coterie.files import write_atomically
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.nn.model import SetModel, TaskBatch
from coterie.nn.vision import ElementEncoder, Encoder

OUT: Final = Path("benchmarks/results/amcp_pictures.jsonl")
COLLECTIONS: Final[tuple[Collection, ...]] = get_args(Collection)
IMAGES: Final[Mapping[Collection, tuple[int, int, int]]] = MappingProxyType(
    {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "tiny-imagenet": (3, 32, 32), "tiny-imagenet-embedded": (1280, 1, 1)}
)
NAMINGS: Final[Mapping[Encoder, Naming]] = MappingProxyType(
    {
        "strided": Naming(64, 1000, 128, encoder="strided", by_direction=True),
        "mlp": Naming(64, 3000, 128, encoder="mlp", by_direction=True),
    }
)
"""How the encoders learn."""
MINUTES: Final = 3.0
"""Processor time that a network is trained for, once there is an encoder."""
TRAINING_POINTS: Final = (40, 150)
MOST_CLUSTERS: Final[Mapping[Collection, int]] = MappingProxyType(
    {"mnist": 6, "cifar10": 6, "tiny-imagenet": 20, "tiny-imagenet-embedded": 20}
)
"""Of a set to train on: as many as of a test set, or one more where these are few."""
BATCH_SIZE: Final = 16
LEARNING_RATE: Final = 2e-3
ENCODED_AT_ONCE: Final = 1000
TEST_SETS: Final[Mapping[int, int]] = MappingProxyType({100: 100, 500: 50, 1000: 100, 5000: 20})
"""How many sets, by their size."""
VALIDATION_SETS: Final = 20
VALIDATION_POINTS: Final[Mapping[Collection, int]] = MappingProxyType(
    {"mnist": 500, "cifar10": 500, "tiny-imagenet": 100, "tiny-imagenet-embedded": 100}
)
ANCHORED: Final[dict[str, Any]] = {"filtering": "anchored", "density": "none", "principal": 8}
COMPARED: Final[dict[str, Any]] = {"anchor_position": "latent", "anchoring": "compared", "anchors": 8}
ENCODED: Final = "-encoded"
"""End of the names of methods that are told the number of clusters and see what the encoder sees."""


@final
@dataclass(frozen=True, eq=False)
class Eyes:
    """What looks at the pictures of a collection: an encoder, or nothing where they come as features."""

    encoder: ElementEncoder | None
    minutes: float
    """Processor time that it was trained for."""

    @torch.no_grad()
    def features(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Directions, since only these mean something to it."""
        if self.encoder is None:
            return normalize(x, dim=1)
        parts = [self.encoder(part.unsqueeze(0))[0] for part in torch.split(x, ENCODED_AT_ONCE)]
        return normalize(torch.cat(parts), dim=1)


@final
@dataclass(frozen=True, eq=False)
class SeenSet:
    """A set as the encoder sees it."""

    x: Float[Tensor, "N E"]
    n_clusters: int


@cache
def eyes(collection: Collection, kind: Encoder, n_classes: int | None, runs: Path) -> Eyes:
    """The encoder of that kind that named what is put together of so many training classes."""
    image = IMAGES[collection]
    if image[1:] == (1, 1):
        return Eyes(None, 0.0)
    naming = NAMINGS[kind]

    def shown() -> NamedPictures:
        learned = lessons(collection, n_classes).named
        return NamedPictures(learned.images, learned.classes, moved)

    path = runs / f"{collection}-{kind}-{n_classes or 'all'}-{naming.steps}.safetensors"
    weights, minutes = encoder_that_names(naming, shown, path)
    encoder = ElementEncoder(kind, image[0] * image[1] * image[2], image, naming.channels).eval()
    encoder.load_state_dict({name.removeprefix("encoder."): value for name, value in weights.items()})
    return Eyes(encoder, minutes)


@dataclass(frozen=True)
class Contender:
    """A kind of network, its settings besides the number of features, and what it sees."""

    kind: type[SetModel]
    config: Mapping[str, Any]
    encoder: Encoder = "strided"
    n_classes: int | None = None
    """Training classes that are used; None for all."""
    decoded: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are changed once it is trained, where the weights are those of another contender."""
    weights_of: str | None = None
    """That one."""

    def eyes(self, collection: Collection, runs: Path) -> Eyes:
        """What it sees with."""
        return eyes(collection, self.encoder, self.n_classes, runs)

    def tasks(self, collection: Collection, runs: Path, *, held_back: bool = False) -> VectorTasks:
        """Where its training sets come from, or those to calibrate with, which are of other classes."""
        learned = lessons(collection, self.n_classes)
        return _sets_of(collection, learned.held_back if held_back else learned.sorted, self.eyes(collection, runs))

    def network(self, n_features: int) -> Network[SetModel]:
        """What is trained, of one step."""
        made = self.kind.Config(n_features, **self.config)
        return Network(self.kind, made, one_cycle(1, LEARNING_RATE), BATCH_SIZE)


def _sets_of(collection: Collection, shown: Pictures, seen_with: Eyes) -> VectorTasks:
    """Sets of what is seen of pictures, each of them moved a little."""
    if seen_with.encoder is None:
        pixels = shown.images.float() / 255
    else:
        generator = Generator().manual_seed(SEED)
        pixels = torch.cat([moved(part, generator) for part in torch.split(shown.images, ENCODED_AT_ONCE)])
    instances = Instances(TRAINING_POINTS, (1, MOST_CLUSTERS[collection]), "dirichlet", CONCENTRATION)
    return VectorTasks(seen_with.features(pixels.flatten(1)), 1.0, shown.classes, instances)


AMCP_SETTINGS: Final[dict[str, Any]] = {**ANCHORED, "moments": 0}
CONTENDERS: Final[Mapping[str, Contender]] = MappingProxyType(
    {
        "amcp": Contender(AmcpModel, AMCP_SETTINGS),
        "amcp-star": Contender(
            AmcpModel, AMCP_SETTINGS, decoded=MappingProxyType({"update_previous": True}), weights_of="amcp"
        ),
        "amcp-transport": Contender(AmcpModel, AMCP_SETTINGS | {"e_step": "transport"}),
        "amcp-unframed": Contender(AmcpModel, AMCP_SETTINGS | {"principal": 0}),
        "amcp-mlp": Contender(AmcpModel, AMCP_SETTINGS, encoder="mlp"),
        "dac": Contender(DacModel, {**ANCHORED, **COMPARED, "decoding": "kernel", "depth": 1, "mask_depth": 1}),
        "ncp": Contender(NcpModel, {}),
        **{f"amcp-{count}-classes": Contender(AmcpModel, AMCP_SETTINGS, n_classes=count) for count in (2, 3, 4)},
    }
)
TOLD: Final = (*BASELINES, f"kmeans{ENCODED}", f"spectral{ENCODED}")
OF_COLLECTIONS: Final[Mapping[Collection, tuple[str, ...]]] = MappingProxyType(
    {
        "mnist": (*CONTENDERS, *TOLD),
        "cifar10": ("amcp", "amcp-star", "dac", *TOLD),
        "tiny-imagenet": ("amcp", "amcp-star", *TOLD),
        "tiny-imagenet-embedded": ("amcp", "amcp-star", "dac", *BASELINES),
    }
)
"""Methods that are measured on each."""
METHODS: Final = (*CONTENDERS, *TOLD)


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
    """Steps that fit into the minutes; measured once, so that training can go on."""
    kept = runs / f"{collection}-{name}.steps.json"
    if kept.is_file():
        return int(json.loads(kept.read_text(encoding="utf-8")))
    contender = CONTENDERS[name]
    tasks = contender.tasks(collection, runs)
    taken = seconds_per_step(contender.network(tasks.codes.shape[1]), tasks)
    steps = max(20, int(60 * MINUTES / taken))
    runs.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, json.dumps(steps).encode(), force=True)
    return steps


def network_of(name: str, collection: Collection, runs: Path) -> tuple[SetModel, Settings]:
    """The network of that name, trained as far as it is not yet, and what is written down of it."""
    contender = CONTENDERS[name]
    trained_as = contender.weights_of or name
    steps = steps_within(trained_as, collection, runs)
    tasks = contender.tasks(collection, runs)
    network = contender.network(tasks.codes.shape[1]).with_steps(steps)
    model = trained(
        trained_as,
        network,
        tasks,
        runs / f"{collection}-{trained_as}",
        held_back=_held_back(contender, collection, runs),
        score=adjusted_rand_index,
    )
    if contender.decoded:
        model.config = replace(model.config, **contender.decoded)
    settings = {
        **network.settings(model),
        "minutes": MINUTES,
        "encoder": contender.encoder,
        "encoder_minutes": contender.eyes(collection, runs).minutes,
        "n_classes": contender.n_classes,
    }
    return model, settings


def _held_back(contender: Contender, collection: Collection, runs: Path) -> list[TaskBatch]:
    """Sets to calibrate with, as large as those that other choices are made on."""
    tasks = contender.tasks(collection, runs, held_back=True)
    size = VALIDATION_POINTS[collection]
    tasks = replace(tasks, instances=replace(tasks.instances, points=(size, size)))
    generator = Generator().manual_seed(SEED)
    return [tasks.sample(1, generator) for _ in range(VALIDATION_SETS)]


def prepared(method: str, collection: Collection, runs: Path) -> tuple[Settings, Solve]:
    """A method, ready; of a baseline's settings, those that do best on the validation sets."""
    if method in CONTENDERS:
        model, settings = network_of(method, collection, runs)
        seen_with = CONTENDERS[method].eyes(collection, runs)

        def solve(one: ToldSet) -> Tensor:
            with torch.no_grad():
                return model.cluster(seen_with.features(one.x), Generator().manual_seed(SEED)).labels

        return settings, solve
    shown = validation_sets(collection, VALIDATION_POINTS[collection], VALIDATION_SETS)
    plain = method.removesuffix(ENCODED)
    looking = eyes(collection, "strided", None, runs) if method.endswith(ENCODED) else None
    candidates = [(settings, seeing(looking, amcp_baselines.solver(plain, settings))) for settings in BASELINES[plain]]
    if len(candidates) == 1:
        return candidates[0]
    scores = [mean(scored(shown, solve).metrics["ari"]) for _, solve in candidates]
    return candidates[scores.index(max(scores))]


def seeing(seen_with: Eyes | None, solve: Solve) -> Solve:
    """The same method on what an encoder sees, if there is one."""
    if seen_with is None:
        return solve
    return lambda one: solve(SeenSet(seen_with.features(one.x), one.n_clusters))


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
