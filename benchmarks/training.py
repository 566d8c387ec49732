"""Train the networks that suites compare: one loop for all, at a number of steps or at an equal processor time."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar, final

import torch
from jaxtyping import Float, Int, UInt8
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from benchmarks.baselines.ncp import NcpModel
from benchmarks.baselines.set_transformer import ActStModel
from benchmarks.suite import Spec
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.classes import Instances
from coterie.config import from_dict
from coterie.errors import ConfigError
from coterie.metrics import adjusted_rand_index, normalized_mutual_information
from coterie.nn.model import Score, SetModel, TaskBatch, TaskSampler, build
from coterie.nn.vision import ElementEncoder, Encoder
from coterie.progress import Progress
from coterie.recipes import evaluate_loss
from coterie.training.batches import task_batches
from coterie.training.loop import TrainConfig, train

SEED: Final = 0  # of initial weights, of training sets, and of the randomness of a method on each set
LOG_EVERY: Final = 250
TRIAL_STEPS: Final = 20
"""Steps that are timed to estimate how long training takes, after the same number of untimed ones."""
MODELS: Final[dict[str, type[SetModel]]] = {
    "abc": AttentionBasedModel,
    "act-st": ActStModel,
    "amcp": AmcpModel,
    "dac": DacModel,
    "ncp": NcpModel,
}
ONE_CYCLE: Final = {"schedule": "one-cycle", "optimiser": "adamw", "weight_decay": 0.01, "clip_norm": 1.0}
"""Optimisation of a network whose suite names no optimiser."""


@dataclass(frozen=True)
class Network:
    """What is trained, on which sets, and how."""

    kind: type[SetModel]
    config: Any
    training: TrainConfig
    batch_size: int
    instances: Instances | None = None  # how sets are sampled from labelled elements, where they are

    @classmethod
    def of(cls, spec: Spec, **config: Any) -> "Network":
        """Read a table of a suite file: model, config, train, batch_size and instances; `config` adds to its config."""
        kind = MODELS[spec["model"]]
        settings = {**config, **spec.get("config", {})}
        # A published configuration decides more than one setting, so that it is a constructor of the class.
        made = kind.Config.faithful(**settings) if spec.get("faithful") else from_dict(kind.Config, settings)
        optimisation = spec.get("train", {})
        shared = {} if "optimiser" in optimisation else ONE_CYCLE
        training = from_dict(TrainConfig, {"steps": 1, "learning_rate": 1e-3, **shared, **optimisation})
        instances = from_dict(Instances, spec["instances"]) if "instances" in spec else None
        return cls(kind, made, training, spec["batch_size"], instances)

    @property
    def sampling(self) -> Instances:
        """How sets are sampled, which must be declared."""
        if self.instances is None:
            raise ConfigError(f"A network of the suite has no instances; declare how its sets are sampled. {self}")
        return self.instances

    def with_steps(self, steps: int) -> "Network":
        """Return the same with another number of steps."""
        return replace(self, training=replace(self.training, steps=steps))

    def settings(self, model: SetModel) -> dict[str, Any]:
        """Return what is recorded of it, given the trained and calibrated model."""
        instances = {} if self.instances is None else asdict(self.instances)
        return {
            **{f"model.{key}": json.dumps(value) for key, value in asdict(model.config).items()},
            **{f"sets.{key}": json.dumps(value) for key, value in instances.items()},
            "parameters": n_parameters(model),
            "batch_size": self.batch_size,
            "steps": self.training.steps,
            "learning_rate": self.training.learning_rate,
        }


def train_network(
    name: str,
    network: Network,
    tasks: TaskSampler,
    folder: Path | None = None,
    *,
    held_out: Sequence[TaskBatch] = (),
    score: Score = normalized_mutual_information,
    start: Mapping[str, Tensor] | None = None,
    callback: Callable[[Progress], None] | None = None,
    evaluate: Callable[[Any], dict[str, float]] | None = None,
) -> Any:
    """Train a network for all its steps, then calibrate it on held-out sets if there are any.

    Parameters
    ----------
    name : str
        How log lines start.
    network : Network
        What to train.
    tasks : TaskSampler
        Training sets.
    folder : Path, optional
        Where training is kept; steps that it has are not repeated.
    held_out : sequence of TaskBatch
        Sets for calibration; their loss is logged every ``evaluate_every`` steps.
    score : callable
        What calibration maximises, given true and found labels.
    start : mapping, optional
        Initial weights by name; the others are random.
    callback : callable, optional
        Called after every step instead of printing.
    evaluate : callable, optional
        What to measure every ``evaluate_every`` steps instead of the loss on held-out sets.
    """
    generator = Generator().manual_seed(SEED)
    model = build(network.kind, network.config, generator)
    if start is not None:
        model.load_state_dict({**model.state_dict(), **start})
    batches = task_batches(tasks, batch_size=network.batch_size, generator=generator)
    measure: Callable[[], dict[str, float]] | None = None
    if evaluate is not None:
        measure = partial(evaluate, model)
    elif held_out and network.training.evaluate_every:
        measure = partial(evaluate_loss, model, held_out)
    train(
        model,
        batches,
        network.training,
        generator=generator,
        callback=partial(log_progress, name) if callback is None else callback,
        evaluate=measure,
        folder=folder,
    )
    model.eval()
    if held_out:
        with torch.no_grad():
            model.config = model.calibrate(held_out, score)
    return model


def seconds_per_step(network: Network, tasks: TaskSampler) -> float:
    """Processor seconds of a step, after the first ones, which are slower."""
    times: list[float] = []
    train_network("", network.with_steps(2 * TRIAL_STEPS), tasks, callback=lambda _: times.append(time.process_time()))
    return (times[-1] - times[TRIAL_STEPS - 1]) / TRIAL_STEPS


def steps_within(minutes: float, network: Network, tasks: TaskSampler) -> int:
    """Return the number of steps that fit into a processor time."""
    return max(20, int(60 * minutes / seconds_per_step(network, tasks)))


def training_minutes(network: Network, tasks: TaskSampler) -> float:
    """Estimate the processor time of training from some of its steps."""
    return round(seconds_per_step(network, tasks) * network.training.steps / 60, 1)


def n_parameters(model: nn.Module) -> int:
    """Count the parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def with_config(model: SetModel, **changes: Any) -> Any:
    """Return a model with the same weights and other settings."""
    other = type(model)(replace(model.config, **changes)).eval()
    other.load_state_dict(model.state_dict())
    return other


def log_progress(name: str, progress: Progress) -> None:
    """Print a line now and then."""
    if progress.step % LOG_EVERY and progress.evaluation is None:
        return
    parts = "".join(f", {part} {value:.3f}" for part, value in progress.parts.items())
    held_out = "".join(f", held-out {part} {value:.4f}" for part, value in (progress.evaluation or {}).items())
    print(f"{name}, {progress}{parts}{held_out}", flush=True)


class LabelledSet(Protocol):
    """A set whose clusters are known."""

    @property
    def labels(self) -> Tensor:
        """Cluster of each element, 0..K-1, none empty."""
        ...


Set = TypeVar("Set", bound=LabelledSet)


@dataclass(frozen=True)
class Scores:
    """What a method reached on each set."""

    metrics: dict[str, list[Any]]  # lists ari, nmi, k_true and k_found
    seconds: list[float]  # processor seconds


def score_sets(sets: Sequence[Set], cluster: Callable[[Set], Tensor], *, warm_up: bool = True) -> Scores:
    """Cluster sets one after the other and compare with the truth."""
    metrics: dict[str, list[Any]] = {name: [] for name in ("ari", "nmi", "k_true", "k_found")}
    seconds = []
    if warm_up:
        cluster(sets[0])  # the first call may be slower
    for one in sets:
        # Processor seconds, since the machine may be busy with other work.
        began = time.process_time()
        labels = cluster(one)
        seconds.append(round(time.process_time() - began, 5))
        metrics["ari"].append(round(adjusted_rand_index(one.labels.numpy(), labels.numpy()), 5))
        metrics["nmi"].append(round(normalized_mutual_information(one.labels.numpy(), labels.numpy()), 5))
        metrics["k_true"].append(int(one.labels.max()) + 1)
        metrics["k_found"].append(len(torch.unique(labels)))
    return Scores(metrics, seconds)


def as_batch(x: Tensor, labels: Tensor) -> TaskBatch:
    """Return one set as a batch, to calibrate with."""
    return TaskBatch(x.unsqueeze(0), labels.unsqueeze(0), torch.ones((1, len(labels)), dtype=torch.bool))


# Pairs are a weak supervision for an encoder with random weights: most are of two classes, and after some minutes a
# network that compares pairs still answered that to all of them. Classifying the same images is quicker.
CLASSIFIER_LOG_EVERY: Final = 100
DIRECTION_SCALE: Final = 16.0  # factor of unit features before they are classified

Augment: TypeAlias = Callable[[UInt8[Tensor, "M C H W"], Generator], Float[Tensor, "M C H W"]]
"""From stored images to randomly distorted images in [0, 1]."""


@final
@dataclass(frozen=True)
class EncoderTraining:
    """How an encoder is trained as part of a classifier."""

    channels: int
    steps: int
    batch_size: int
    encoder: Encoder = "vgg"
    by_direction: bool = False  # whether to classify unit features, for methods that compare features by angle
    learning_rate: float = 2e-3
    smoothing: float = 0.1  # label smoothing


@final
@dataclass(frozen=True)
class ClassifiedImages:
    """What an encoder is trained on."""

    images: UInt8[Tensor, "M C H W"]
    classes: Int[Tensor, " M"]
    augment: Augment


@dataclass(frozen=True)
class _ClassifierConfig:
    training: EncoderTraining
    image: tuple[int, int, int]
    n_classes: int


class _Classifier(nn.Module):
    def __init__(self, config: _ClassifierConfig) -> None:
        super().__init__()
        training, image = config.training, config.image
        self.by_direction = training.by_direction
        self.encoder = ElementEncoder(training.encoder, image[0] * image[1] * image[2], image, training.channels)
        self.head = nn.Linear(self.encoder.out_width, config.n_classes)

    def forward(self, images: Float[Tensor, "M C H W"]) -> Float[Tensor, "M N"]:
        features = self.encoder(images.flatten(1).unsqueeze(0))[0]
        scaled = DIRECTION_SCALE * normalize(features, dim=1) if self.by_direction else torch.relu(features)
        logits: Tensor = self.head(scaled)
        return logits


def train_encoder(
    training: EncoderTraining, images: Callable[[], ClassifiedImages], path: Path
) -> tuple[Mapping[str, Tensor], float]:
    """Return the weights of a classifier's encoder, with names that start with ``encoder.``, and the minutes it took.

    If the file exists, it is read, and the images are not loaded.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        weights, minutes = _train_classifier(training, images())
        unfinished = path.with_suffix(".partial")
        save_file({**weights, "minutes": torch.tensor(minutes)}, unfinished)
        unfinished.replace(path)
    weights = load_file(path)
    return weights, round(float(weights.pop("minutes")), 1)


def _train_classifier(training: EncoderTraining, given: ClassifiedImages) -> tuple[dict[str, Tensor], float]:
    generator = Generator().manual_seed(SEED)
    classes, target = torch.unique(given.classes, return_inverse=True)
    channels, height, width = given.images.shape[1:]
    model = build(_Classifier, _ClassifierConfig(training, (channels, height, width), len(classes)), generator)
    optimiser = torch.optim.AdamW(model.parameters(), training.learning_rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, training.learning_rate, training.steps)
    began = time.process_time()
    accuracy = 0.0
    for step in range(1, training.steps + 1):
        index = torch.randint(len(target), (training.batch_size,), generator=generator)
        logits = model(given.augment(given.images[index], generator))
        loss = cross_entropy(logits, target[index], label_smoothing=training.smoothing)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        schedule.step()
        accuracy += float((logits.argmax(dim=1) == target[index]).float().mean()) / CLASSIFIER_LOG_EVERY
        if step % CLASSIFIER_LOG_EVERY == 0:
            print(
                f"encoder, step {step} of {training.steps}: loss {float(loss):.3f}, accuracy {accuracy:.3f}", flush=True
            )
            accuracy = 0.0
    weights = {f"encoder.{name}": value.contiguous() for name, value in model.encoder.state_dict().items()}
    return weights, (time.process_time() - began) / 60
