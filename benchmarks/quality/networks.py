"""Networks that are compared: what is trained, on which sets, for how long; and how clusterings of sets are scored.

A suite describes each of its networks as a `Network`, says where labelled sets come from, and has `trained` do the
rest: first weights, sets and steps all follow from one seed, training goes on where it stopped, and what can be
calibrated is calibrated on sets that were held back.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import torch
from torch import Generator, Tensor

from benchmarks.quality.records import Setting
from coterie.amortized.tasks.classes import Instances
from coterie.errors import ConfigError
from coterie.metrics import adjusted_rand_index, normalized_mutual_information
from coterie.nn.model import Score, SetModel, TaskBatch, TaskSampler, build
from coterie.progress import Progress
from coterie.recipes import held_out_loss
from coterie.training.batches import task_batches
from coterie.training.loop import TrainConfig, train

SEED: Final = 0
"""Of first weights, of the sets that are trained on, and of whatever a method draws for a set."""
SAY_EVERY: Final = 250
"""Steps between lines about training."""
TRIAL_STEPS: Final = 20
"""Steps that are timed to know how long training takes, after as many that are not."""

Model = TypeVar("Model", bound=SetModel)
Model_co = TypeVar("Model_co", bound=SetModel, covariant=True)


def one_cycle(steps: int, learning_rate: float = 1e-3, *, evaluate_every: int = 0) -> TrainConfig:
    """One cycle of AdamW, as most networks here are trained."""
    return TrainConfig(
        steps,
        learning_rate=learning_rate,
        schedule="one-cycle",
        optimiser="adamw",
        weight_decay=0.01,
        clip_norm=1.0,
        evaluate_every=evaluate_every,
    )


@dataclass(frozen=True)
class Network(Generic[Model_co]):
    """What is trained, on which sets, and for how long."""

    kind: type[Model_co]
    config: Any
    """Settings of that kind of model."""
    training: TrainConfig
    batch_size: int
    """Sets in a step."""
    instances: Instances | None = None
    """How its sets are drawn, where they are of things that are sorted into classes."""

    def checked_instances(self) -> Instances:
        """How its sets are drawn, which must be known."""
        if self.instances is None:
            raise ConfigError(f"The network has instances=None; say how its sets are drawn ({self.config}).")
        return self.instances

    def with_steps(self, steps: int | None) -> "Network[Model_co]":
        """The same with another number of steps, if one is given."""
        return self if steps is None else replace(self, training=replace(self.training, steps=steps))

    def settings(self, model: SetModel) -> dict[str, Setting]:
        """What is written down of it, once a model was trained as it says."""
        of_sets = {} if self.instances is None else asdict(self.instances)
        return {
            **{f"model.{key}": json.dumps(value) for key, value in asdict(model.config).items()},
            **{f"sets.{key}": json.dumps(value) for key, value in of_sets.items()},
            "parameters": n_parameters(model),
            "batch_size": self.batch_size,
            "steps": self.training.steps,
            "learning_rate": self.training.learning_rate,
        }


def trained(
    name: str,
    network: Network[Model],
    tasks: TaskSampler,
    folder: Path | None = None,
    *,
    held_back: Sequence[TaskBatch] = (),
    score: Score = normalized_mutual_information,
    start: Mapping[str, Tensor] | None = None,
    on_log: Callable[[Progress], None] | None = None,
    watch: Callable[[Model], dict[str, float]] | None = None,
) -> Model:
    """A network after all its steps, calibrated if there is something to calibrate with.

    Parameters
    ----------
    name : str
        What lines about training begin with.
    network : Network
        What is trained.
    tasks : TaskSampler
        Where its sets come from.
    folder : Path, optional
        Where training is kept; steps that it has are not taken again.
    held_back : sequence of TaskBatch
        Sets to calibrate with. How large the loss is on them is said as often as ``evaluate_every`` has it.
    score : callable
        What calibration makes large: of true labels and those that were found.
    start : mapping, optional
        Weights to begin with, by name; the others are random.
    on_log : callable, optional
        Called after every step instead of printing lines.
    watch : callable, optional
        What is measured of the network as often as ``evaluate_every`` has it, instead of the loss on those sets.
    """
    generator = Generator().manual_seed(SEED)
    model = build(network.kind, network.config, generator)
    if start is not None:
        model.load_state_dict({**model.state_dict(), **start})
    batches = task_batches(tasks, batch_size=network.batch_size, generator=generator)
    evaluate: Callable[[], dict[str, float]] | None = None
    if watch is not None:
        evaluate = partial(watch, model)
    elif held_back and network.training.evaluate_every:
        evaluate = partial(held_out_loss, model, held_back)
    train(
        model,
        batches,
        network.training,
        generator=generator,
        on_log=partial(_say, name) if on_log is None else on_log,
        evaluate=evaluate,
        folder=folder,
    )
    model.eval()
    if held_back:
        with torch.no_grad():
            model.config = model.calibrated(held_back, score)
    return model


def seconds_per_step(network: Network[SetModel], tasks: TaskSampler) -> float:
    """Processor seconds, without what is slow only at first."""
    times: list[float] = []
    few = network.with_steps(2 * TRIAL_STEPS)
    trained("", few, tasks, on_log=lambda _: times.append(time.process_time()))
    return (times[-1] - times[TRIAL_STEPS - 1]) / TRIAL_STEPS


def minutes(network: Network[SetModel], tasks: TaskSampler) -> float:
    """Processor time that training takes, from some of its steps."""
    return round(seconds_per_step(network, tasks) * network.training.steps / 60, 1)


def n_parameters(model: SetModel) -> int:
    """Numbers that are learned."""
    return sum(parameter.numel() for parameter in model.parameters())


def _say(name: str, progress: Progress) -> None:
    if progress.step % SAY_EVERY and progress.evaluation is None:
        return
    parts = "".join(f", {part} {value:.3f}" for part, value in progress.parts.items())
    held_back = "".join(f", held back {part} {value:.4f}" for part, value in (progress.evaluation or {}).items())
    left = progress.seconds_left / 60
    print(
        f"{name}, step {progress.step} of {progress.steps}: loss {progress.loss:.4f}{parts}{held_back}, "
        f"{left:.0f} min left",
        flush=True,
    )


class Labelled(Protocol):
    """A set whose clusters are known."""

    @property
    def labels(self) -> Tensor:
        """Cluster of each point, 0..K-1, all in use."""
        ...


One = TypeVar("One", bound=Labelled)


@dataclass(frozen=True)
class Scores:
    """How a method did on sets, set by set."""

    metrics: dict[str, list[float]]
    """ari, nmi, k_true and k_found."""
    seconds: list[float]
    """Processor seconds."""


def scored(sets: Sequence[One], solve: Callable[[One], Tensor]) -> Scores:
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
        metrics["k_true"].append(int(one.labels.max()) + 1)
        metrics["k_found"].append(len(torch.unique(labels)))
    return Scores(metrics, seconds)


class Scored(Protocol):
    """A record of how a method did on sets, one number for each."""

    @property
    def metrics(self) -> Mapping[str, list[float]]:
        """Among others k_true and k_found."""
        ...

    @property
    def seconds(self) -> list[float]:
        """Processor seconds."""
        ...


def values_of(record: Scored | None, metric: str) -> list[float]:
    """One number for each set, "seconds" and "k_error" among the metrics; none if there is no record or no metric."""
    if record is None:
        return []
    if metric == "seconds":
        return record.seconds
    if metric == "k_error":
        pairs = zip(record.metrics["k_true"], record.metrics["k_found"], strict=True)
        return [abs(found - true) for true, found in pairs]
    return record.metrics.get(metric, [])


def as_batch(x: Tensor, labels: Tensor) -> TaskBatch:
    """One set, to calibrate with."""
    return TaskBatch(x.unsqueeze(0), labels.unsqueeze(0), torch.ones((1, len(labels)), dtype=torch.bool))
