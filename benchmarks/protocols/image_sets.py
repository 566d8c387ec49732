"""Sets of images, or of their embeddings, of classes that no network was trained on.

Whatever can be chosen is chosen on validation sets of other classes. Sets are clustered one at a time, on one thread.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from statistics import mean
from typing import Any, Final, TypeAlias

import torch
from jaxtyping import Float
from sklearn.decomposition import PCA
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.data.embedding_sets import WIDTH, EmbeddedSet, EmbeddingTrainingTasks, embedded_sets
from benchmarks.data.image_sets import (
    CIFAR_IMAGE,
    EMNIST_PARTS,
    SIZES_CONCENTRATION,
    FeatureSet,
    Images,
    ImageSet,
    cifar100,
    cifar100_augment,
    cifar100_sets,
    cifar100_tasks,
    composed_augment,
    emnist_sets,
    emnist_tasks,
    emnist_validation,
    image_sets,
    training_images,
)
from benchmarks.data.tasks import VectorTasks
from benchmarks.lines import Line, stamp
from benchmarks.methods.classical import cluster_given_k
from benchmarks.methods.kernels import GIVEN_K, kernel_decoders
from benchmarks.suite import Job, Spec, Suite
from benchmarks.training import (
    SEED,
    TRIAL_STEPS,
    ClassifiedImages,
    EncoderTraining,
    Network,
    as_batch,
    log_progress,
    n_parameters,
    score_sets,
    steps_within,
    train_encoder,
    train_network,
    training_minutes,
    with_config,
)
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.classes import Distortion, Instances
from coterie.config import from_dict
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.nn.density import StatisticianHead
from coterie.nn.model import build
from coterie.nn.vision import ElementEncoder
from coterie.ops.partitions import Clustering
from coterie.recipes import evaluate_loss
from coterie.training.batches import task_batches
from coterie.training.loop import TrainConfig, train

Solve: TypeAlias = Callable[[Any], Tensor]  # from a set to labels
Prepared: TypeAlias = tuple[Mapping[str, Any], Solve]  # recorded settings, and how sets are clustered


def score_line(blank: Line, sets: Sequence[Any], settings: Mapping[str, Any], solve: Solve) -> Line:
    """Cluster all sets and complete a line."""
    scores = score_sets(sets, solve)
    return blank | {"settings": dict(settings), "metrics": scores.metrics, "seconds": scores.seconds}


def solve_given_k(settings: Mapping[str, Any], features: Callable[[Any], Tensor]) -> Solve:
    """Cluster features of a set by k-means (ten starts), spectral clustering or a Gaussian mixture, given k."""
    if "neighbours" in settings:
        # A graph of all pairs would be too large for sets of 5000.
        method, options = "spectral", {"affinity": "nearest_neighbors", "n_neighbors": settings["neighbours"]}
    elif "covariance" in settings:
        method, options = "gmm", {"covariance_type": settings["covariance"], "n_init": 10, "max_iter": 500}
    else:
        method, options = "kmeans", {"n_init": 10}

    @torch.no_grad()
    def solve(one: Any) -> Tensor:
        return torch.from_numpy(cluster_given_k(method, features(one).numpy(), one.n_clusters, SEED, **options))

    return solve


# Embeddings of CIFAR-100 and Tiny-ImageNet: the counterparts of DAC's Table 2 and ABC's Table 3.


def embeddings(suite: Suite) -> Iterator[Job]:
    """Derive one job per method: networks are calibrated on validation classes, then trained again on these too."""
    for name, spec in suite.methods.items():
        lines = [_embeddings_line(suite, data, "test", name, suite["test_sets"]) for data in suite["sets"]]
        yield Job(lines, partial(_measure_embeddings, suite, name, spec))


def _embeddings_line(suite: Suite, data: str, part: Any, method: str, count: int) -> Line:
    line = {"data": data, "part": part, "method": method, "settings": {}, "sets_seed": suite["sets_seeds"][part]}
    return {**line, "metrics": {}, "seconds": [0.0] * count, **stamp()}


def _embedded_sets(suite: Suite, data: str, part: Any, count: int) -> list[EmbeddedSet]:
    return embedded_sets(data, part, count, **suite["sets"][data], seed=suite["sets_seeds"][part])


def _measure_embeddings(suite: Suite, name: str, spec: Spec, pending: Sequence[Line]) -> Iterator[Line]:
    validated: list[Line] = []

    def validate(settings: Mapping[str, Any], solve: Solve) -> float:
        """Score a method on the validation sets; the lines are recorded too."""
        lines = []
        for data in suite["sets"]:
            blank = _embeddings_line(suite, data, "validation", name, suite["validation_sets"])
            sets = _embedded_sets(suite, data, "validation", suite["validation_sets"])
            lines.append(score_line(blank, sets, settings, solve))
        validated.extend(lines)
        return float(mean(mean(line["metrics"]["ari"]) for line in lines))

    if "model" in spec:
        settings, solve = _embeddings_network(suite, name, spec, validate)
    else:
        settings, solve = best(_features_candidates(spec), validate)
    yield from validated
    for blank in pending:
        sets = _embedded_sets(suite, blank["data"], "test", len(blank["seconds"]))
        yield score_line(blank, sets, settings, solve)


def _features_candidates(spec: Spec) -> Iterator[Prepared]:
    for settings in spec["settings"]:
        yield settings, solve_given_k(settings, attrgetter(settings["features"]))


def best(candidates: Iterable[Prepared], validate: Callable[[Mapping[str, Any], Solve], float]) -> Prepared:
    """Choose the settings that do best on validation sets."""
    tried = list(candidates)
    scores = [validate(*candidate) for candidate in tried]
    return tried[scores.index(max(scores))]


def _embeddings_network(suite: Suite, name: str, spec: Spec, validate: Callable[..., float]) -> Prepared:
    network = Network.of(spec, n_features=WIDTH)
    shown = [
        one for data in suite["sets"] for one in _embedded_sets(suite, data, "validation", suite["validation_sets"])
    ]
    held_out = [as_batch(one.prepared, one.labels) for one in shown]
    tasks = EmbeddingTrainingTasks(network.sampling)
    folder = suite.run_folder
    # By ARI, since NMI is large for very many clusters, whatever they are.
    model = train_network(name, network, tasks, folder / name, held_out=held_out, score=adjusted_rand_index)

    def solver(trained: Any) -> Solve:
        return lambda one: trained.cluster(one.prepared, Generator().manual_seed(SEED)).labels

    settings = {**network.settings(model), "minutes": training_minutes(network, tasks)}
    validate(settings, solver(model))
    tasks = EmbeddingTrainingTasks(network.sampling, parts=("training", "validation"))
    final = train_network(f"{name}, all classes", network, tasks, folder / f"{name}-all")
    final.config = model.config
    return settings, solver(final)


# CIFAR-100 from pixels: ABC's Table 4. The paper's score is NMI, which is high for many small clusters, even for one
# per image, which is measured too; so the cut of linkage is calibrated by ARI, which is then zero.

ONE_WAY: Final = "as it comes"  # decoding of methods that have only one


def cifar(suite: Suite) -> Iterator[Job]:
    """Derive one job per method; networks are decoded in several ways."""
    for name, spec in suite.methods.items():
        decodings = suite["decodings"] if "model" in spec else [ONE_WAY]
        given = {decoding: GIVEN_K.get(decoding, "settings" in spec) for decoding in decodings}
        lines = [_cifar_line(suite, "test", name, *pair, suite["test_sets"]) for pair in given.items()]
        yield Job(lines, partial(_measure_cifar, suite, name, spec))


def _cifar_line(suite: Suite, part: str, method: str, decoding: str, given_k: bool, count: int) -> Line:
    line = {"part": part, "method": method, "reading": decoding, "told": given_k, "settings": {}}
    return {**line, "sets_seed": suite["sets_seeds"][part], "metrics": {}, "seconds": [0.0] * count, **stamp()}


def _cifar_sets(suite: Suite, part: Any, count: int) -> list[ImageSet]:
    return cifar100_sets(part, from_dict(Instances, suite["sets"]), count, suite["sets_seeds"][part])


def _measure_cifar(suite: Suite, name: str, spec: Spec, pending: Sequence[Line]) -> Iterator[Line]:
    sets = _cifar_sets(suite, "validation", suite["validation_sets"])
    network = _cifar_network(suite, name) if "model" in spec else None
    prepared: list[tuple[Line, Prepared]] = []
    for blank in pending:
        line = partial(_cifar_line, suite, "validation", name, blank["reading"], blank["told"], len(sets))
        if network is not None:
            ready: Prepared = network[0], _decode(network[1], blank["reading"])
            yield score_line(line(), sets, *ready)
        elif "settings" in spec:
            validated: list[Line] = []

            def validate(settings: Mapping[str, Any], solve: Solve) -> float:
                validated.append(score_line(line(), sets, settings, solve))  # noqa: B023  # called in this turn only
                return float(mean(validated[-1]["metrics"]["nmi"]))  # noqa: B023

            ready = best(_cifar_candidates(suite, name, spec), validate)
            yield from validated
        else:
            ready = ({}, lambda one: torch.arange(len(one.labels)))
        prepared.append((blank, ready))
    for blank, ready in prepared:
        yield score_line(blank, _cifar_sets(suite, "test", len(blank["seconds"])), *ready)


def _cifar_encoder(suite: Suite) -> tuple[Mapping[str, Tensor], float]:
    """Return the weights that all networks start from, and the minutes they took."""
    training = from_dict(EncoderTraining, suite["encoder"])

    def images() -> ClassifiedImages:
        shown = cifar100("training")
        return ClassifiedImages(shown.images, shown.classes, cifar100_augment)

    return train_encoder(training, images, suite.run_folder / f"named-{training.channels}-{training.steps}.safetensors")


def _cifar_network(suite: Suite, name: str) -> tuple[Mapping[str, Any], AttentionBasedModel]:
    """Train a network end to end from the shared encoder; return its recorded settings too."""
    n_features = CIFAR_IMAGE[0] * CIFAR_IMAGE[1] * CIFAR_IMAGE[2]
    network = Network.of(suite.methods[name], n_features=n_features, image=CIFAR_IMAGE)
    validation = _cifar_sets(suite, "validation", suite["validation_sets"])
    tasks, (start, minutes) = cifar100_tasks(network.sampling), _cifar_encoder(suite)
    model: AttentionBasedModel = train_network(
        name,
        network,
        tasks,
        suite.run_folder / f"{name}-{network.training.steps}",
        held_out=[as_batch(one.x, one.labels) for one in validation],
        score=adjusted_rand_index,
        start=start,
    )
    encoder = asdict(from_dict(EncoderTraining, suite["encoder"]))
    settings = {**network.settings(model), "minutes": training_minutes(network, tasks)}
    return settings | {f"shared.{key}": value for key, value in encoder.items()} | {"shared.minutes": minutes}, model


def _decode(model: AttentionBasedModel, decoding: str) -> Solve:
    decode = kernel_decoders(model.config.threshold)[decoding]

    @torch.no_grad()
    def solve(one: ImageSet) -> Tensor:
        return decode(model.kernel(one.x.unsqueeze(0))[0], one.n_clusters)

    return solve


def _cifar_candidates(suite: Suite, name: str, spec: Spec) -> Iterator[Prepared]:
    """Baselines that are given k, on pixels or on features of a trained network's encoder."""
    model = _cifar_network(suite, suite["embeddings_of"])[1] if name.endswith("embeddings") else None

    def features(one: ImageSet, scaling: str) -> Tensor:
        x = one.x if model is None else model.encoder(one.x.unsqueeze(0))[0]
        return normalize(x - x.mean(dim=0), dim=1) if scaling == "unit" else x

    for settings in spec["settings"]:
        yield settings, solve_given_k(settings, partial(features, scaling=settings["scaling"]))


# MNIST, CIFAR-10 and Tiny-ImageNet: AMCP's experiments. An encoder is trained to classify composed classes and then
# frozen; networks are trained for the same processor time on sets of what it sees of other composed classes.

ENCODED: Final = "-encoded"  # end of the names of methods that are given k and features of the encoder
ENCODED_AT_ONCE: Final = 1000


@dataclass(frozen=True, eq=False)
class FrozenEncoder:
    """Maps images to unit features; without an encoder, normalises what are features already."""

    encoder: ElementEncoder | None
    minutes: float  # processor time of its training

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Encode flat images."""
        if self.encoder is None:
            return normalize(x, dim=1)
        parts = [self.encoder(part.unsqueeze(0))[0] for part in torch.split(x, ENCODED_AT_ONCE)]
        return normalize(torch.cat(parts), dim=1)


def amcp(suite: Suite) -> Iterator[Job]:
    """Derive one job per collection and method; each line is about sets of one size."""
    for data, collection in suite["sets"].items():
        for name in collection["methods"]:
            sizes = collection["points"][: suite.methods[name].get("first_sizes")]
            lines = [
                {"data": data, "n_points": size, "method": name, "settings": {}, "metrics": {}}
                | {"seconds": [0.0] * suite["test_sets"][str(size)], **stamp()}
                for size in sizes
            ]
            yield Job(lines, partial(_measure_amcp, suite, data, name))


def _measure_amcp(suite: Suite, data: str, name: str, pending: Sequence[Line]) -> Iterator[Line]:
    settings, solve = prepare_amcp(suite, data, name)
    for blank in pending:
        sets = image_sets(data, "test", blank["n_points"], len(blank["seconds"]), suite["sets"][data]["clusters"])
        found: list[Tensor] = []

        def noted(one: ImageSet) -> Tensor:
            found.append(solve(one))  # noqa: B023  # called in this turn only
            return found[-1]  # noqa: B023

        line = score_line(blank, sets, settings, noted)
        # The first set is clustered twice, the first time as a warm-up.
        pairs = [(one.labels.numpy(), labels.numpy()) for one, labels in zip(sets, found[1:], strict=True)]
        line["metrics"] |= {
            "acc": [round(matched_accuracy(*pair), 5) for pair in pairs],
            "nmi": [round(normalized_mutual_information(*pair, mean="geometric"), 5) for pair in pairs],
        }
        yield line


def frozen_encoder(suite: Suite, data: str, kind: str, n_classes: int | None) -> FrozenEncoder:
    """Train or read the encoder of a collection."""
    image: tuple[int, int, int] = tuple(suite["sets"][data]["image"])
    if image[1:] == (1, 1):
        return FrozenEncoder(None, 0.0)
    training = from_dict(EncoderTraining, suite["encoders"][kind])

    def images() -> ClassifiedImages:
        shown = training_images(data, n_classes).encoder
        return ClassifiedImages(shown.images, shown.classes, composed_augment)

    path = suite.run_folder / f"{data}-{kind}-{n_classes or 'all'}-{training.steps}.safetensors"
    weights, minutes = train_encoder(training, images, path)
    encoder = ElementEncoder(training.encoder, image[0] * image[1] * image[2], image, training.channels).eval()
    encoder.load_state_dict({name.removeprefix("encoder."): value for name, value in weights.items()})
    return FrozenEncoder(encoder, minutes)


def prepare_amcp(suite: Suite, data: str, name: str) -> Prepared:
    """Prepare a method: a trained network, or a baseline with the settings that do best on validation sets."""
    spec = suite.methods[name]
    collection = suite["sets"][data]
    if "model" in spec:
        return _amcp_network(suite, data, name, spec)
    encoder = frozen_encoder(suite, data, "strided", None) if name.endswith(ENCODED) else None

    def components(one: ImageSet, count: int) -> Tensor:
        """Principal components of the set itself: a method sees nothing else."""
        x = (one.x if encoder is None else encoder(one.x)).numpy()
        return torch.from_numpy(PCA(min(count, *x.shape), random_state=SEED).fit_transform(x))

    candidates = [
        (settings, solve_given_k(settings, partial(components, count=settings["components"])))
        for settings in spec["settings"]
    ]
    if len(candidates) == 1:
        return candidates[0]
    sets = image_sets(
        data, "validation", collection["validation_points"], suite["validation_sets"], collection["clusters"]
    )
    return best(candidates, lambda _, solve: mean(score_sets(sets, solve).metrics["ari"]))


def _amcp_network(suite: Suite, data: str, name: str, spec: Spec) -> Prepared:
    kind, n_classes = spec.get("encoder", "strided"), spec.get("n_classes")
    encoder = frozen_encoder(suite, data, kind, n_classes)
    shown = training_images(data, n_classes)
    tasks = _encoded_tasks(suite, data, shown.network, encoder)
    network = Network.of(suite["training"] | spec, n_features=tasks.codes.shape[1])
    weights = spec.get("weights_of", name)
    network = network.with_steps(_steps(suite, f"{data}-{weights}", network, tasks))
    size = suite["sets"][data]["validation_points"]
    calibration = _encoded_tasks(suite, data, shown.calibration, encoder)
    calibration = replace(calibration, instances=replace(calibration.instances, points=(size, size)))
    generator = Generator().manual_seed(SEED)
    model = train_network(
        weights,
        network,
        tasks,
        suite.run_folder / f"{data}-{weights}",
        held_out=[calibration.sample(1, generator) for _ in range(suite["validation_sets"])],
        score=adjusted_rand_index,
    )
    if "decoded" in spec:
        model.config = replace(model.config, **spec["decoded"])
    settings = {
        **network.settings(model),
        "minutes": suite["minutes"],
        "encoder": kind,
        "encoder_minutes": encoder.minutes,
        "n_classes": n_classes,
    }

    def solve(one: Any) -> Tensor:
        with torch.no_grad():
            labels: Tensor = model.cluster(encoder(one.x), Generator().manual_seed(SEED)).labels
            return labels

    return settings, solve


def _encoded_tasks(suite: Suite, data: str, shown: Images, encoder: FrozenEncoder) -> VectorTasks:
    """Sample sets of encoded images, each image distorted once."""
    if encoder.encoder is None:
        pixels = shown.images.float() / 255
    else:
        generator = Generator().manual_seed(SEED)
        pixels = torch.cat([composed_augment(part, generator) for part in torch.split(shown.images, ENCODED_AT_ONCE)])
    points: tuple[int, int] = tuple(suite["training"]["points"])
    instances = Instances(points, (1, suite["sets"][data]["trained_clusters"]), "dirichlet", SIZES_CONCENTRATION)
    return VectorTasks(encoder(pixels.flatten(1)), 1.0, shown.classes, instances)


def _steps(suite: Suite, name: str, network: Network, tasks: VectorTasks) -> int:
    """Return the steps that fit into the minutes; measured once, so that training can be resumed."""
    kept = suite.run_folder / f"{name}.steps.json"
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(steps_within(suite["minutes"], network, tasks)), encoding="utf-8")
    return int(json.loads(kept.read_text(encoding="utf-8")))


# EMNIST: DAC with a mixture of neural statisticians, Table 7 of its paper.

WITH_DENSITY: Final = ("dac", "dac-faithful")


@dataclass(frozen=True)
class Stage:
    """A stage of training."""

    points: tuple[int, int]
    steps: int
    learning_rate: float
    moved: Distortion  # distortion of images
    only_density: bool = False  # whether only the density and what describes it is trained
    batch_size: int = 10
    max_clusters: int = 4

    @property
    def optimisation(self) -> TrainConfig:
        """One cycle of AdamW."""
        return Network.of(
            {"model": "dac", "batch_size": self.batch_size, "config": {"n_features": 1}}
            | {"train": {"steps": self.steps, "learning_rate": self.learning_rate, "evaluate_every": 500}}
        ).training


def emnist(suite: Suite) -> Iterator[Job]:
    """Derive one job for all methods, which share one network; each line is about sets of one size."""
    lines = [
        {
            "data": f"emnist-{sets['max_points']}-{sets['max_clusters']}",
            "part": suite["part"],
            "method": name,
            "settings": {},
            "sets_seed": EMNIST_PARTS.index(suite["part"]),
            "metrics": {},
            "seconds": [0.0] * sets["count"],
            **stamp(),
        }
        for sets in suite["sets"]
        for name in suite.methods
    ]
    yield Job(lines, partial(_measure_emnist, suite))


def _measure_emnist(suite: Suite, pending: Sequence[Line]) -> Iterator[Line]:
    model, minutes = train_emnist(suite), _emnist_minutes(suite)
    for blank in pending:
        _, max_points, max_clusters = blank["data"].split("-")
        sets = emnist_sets(blank["part"], int(max_points), int(max_clusters), len(blank["seconds"]))
        solve, found = _emnist_solver(suite, blank["method"], model), dict[int, Clustering]()

        def noted(one: FeatureSet) -> Tensor:
            found[id(one)] = solve(one)  # noqa: B023  # called in this turn only
            return found[id(one)].labels  # noqa: B023

        line = score_line(blank, sets, _emnist_settings(suite, blank["method"], model, minutes), noted)
        line["metrics"]["n"] = [float(len(one.labels)) for one in sets]
        if blank["method"] in WITH_DENSITY:
            likelihoods = [_log_likelihood(model, one, found[id(one)], suite["code_samples"]) for one in sets]
            line["metrics"]["ll"] = [round(value, 6) for value in likelihoods]
        yield line


def _stages(suite: Suite) -> list[Stage]:
    return [
        Stage(**{**stage, "points": tuple(stage["points"]), "moved": Distortion(**stage.get("moved", {}))})
        for stage in suite["stages"]
    ]


def train_emnist(suite: Suite) -> DacModel:
    """Train the network through all stages, or resume from the run folder."""
    model = build(DacModel, from_dict(DacConfig, suite["network"]), Generator().manual_seed(SEED))
    for number, stage in enumerate(_stages(suite), start=1):
        generator = Generator().manual_seed(SEED + number)
        validation = emnist_validation(stage.points[1], stage.max_clusters, 4)
        _freeze(model, stage)
        train(
            model,
            task_batches(_stage_tasks(stage), batch_size=stage.batch_size, generator=generator),
            stage.optimisation,
            generator=generator,
            callback=partial(log_progress, f"stage {number}"),
            evaluate=partial(evaluate_loss, model, validation),
            folder=suite.run_folder / f"stage-{number}",
        )
    return model.eval()


def _stage_tasks(stage: Stage) -> Any:
    return emnist_tasks("training", stage.points, stage.max_clusters, stage.moved)


def _freeze(model: DacModel, stage: Stage) -> None:
    """Choose the weights that a stage may change."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not stage.only_density or name.startswith(("density.", "describe.")))


def _emnist_minutes(suite: Suite) -> float:
    """Estimate the processor time of all stages from some of their steps."""
    total = 0.0
    for stage in _stages(suite):
        times: list[float] = []
        generator = Generator().manual_seed(SEED)
        model = build(DacModel, from_dict(DacConfig, suite["network"]), generator)
        _freeze(model, stage)
        batches = task_batches(_stage_tasks(stage), batch_size=stage.batch_size, generator=generator)
        few = replace(stage.optimisation, steps=2 * TRIAL_STEPS)
        train(model, batches, few, generator=generator, callback=lambda _: times.append(time.process_time()))  # noqa: B023
        total += (times[-1] - times[TRIAL_STEPS - 1]) / TRIAL_STEPS * stage.steps
    return round(total / 60, 1)


def _emnist_solver(suite: Suite, method: str, model: DacModel) -> Callable[[FeatureSet], Clustering]:
    spec = suite.methods[method]
    if "decoding" in spec:
        network = with_config(model, **spec["decoding"])
        return lambda one: network.cluster(one.x, Generator().manual_seed(SEED))

    @torch.no_grad()
    def solve(one: FeatureSet) -> Clustering:
        x = one.x
        if spec["embedded"]:
            x = model.encode(x.unsqueeze(0), torch.ones((1, len(x)), dtype=torch.bool))[0]
        labels = cluster_given_k("kmeans", x.numpy(), one.n_clusters, SEED, n_init=spec["n_init"])
        return Clustering(torch.from_numpy(labels), one.n_clusters)

    return solve


def _emnist_settings(suite: Suite, method: str, model: DacModel, minutes: float) -> dict[str, Any]:
    spec = suite.methods[method]
    if method == "kmeans":
        return {"n_init": spec["n_init"]}
    config = replace(model.config, **spec.get("decoding", {}))
    return {
        **{f"model.{key}": json.dumps(value) for key, value in asdict(config).items()},
        **{f"stage-{number}": json.dumps(asdict(stage)) for number, stage in enumerate(_stages(suite), start=1)},
        "parameters": n_parameters(model),
        "minutes": minutes,
    }


def _log_likelihood(model: DacModel, one: FeatureSet, found: Clustering, samples: int) -> float:
    """Lower bound of the mean log-likelihood of a pixel, in nats: each image is from a mixture of cluster densities.

    A cluster's density of an image is bounded by the mean over some samples of its code.
    """
    if not isinstance(model.density, StatisticianHead):
        raise InputError(f"density={model.config.density!r} has no bound; use 'statistician'.")
    generator = Generator().manual_seed(SEED)
    context, log_proportion = found.extras["context"], found.extras["log_share"]
    with torch.no_grad():
        bounds = [
            torch.cat([model.density.bound(one.x.unsqueeze(0), each, generator) for each in torch.split(context, 1)])
            for _ in range(samples)
        ]
    joint = torch.stack(bounds).mean(dim=0) + log_proportion.unsqueeze(1)
    return float(joint.logsumexp(dim=0).mean()) / one.x.shape[1]
