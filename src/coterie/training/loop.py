"""The one optimisation loop. It knows neither models nor where batches come from."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Generator
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from coterie.config import to_dict
from coterie.errors import ConfigError, TrainingError
from coterie.nn.model import Trainable
from coterie.progress import Progress
from coterie.training.distributed import all_agree, average_gradients, mean_over_processes, share_weights
from coterie.training.state import Best, append_log, load_state, save_state, tidy

ONE_CYCLE_RISE = 0.1
"""Share of the steps over which a one-cycle rate rises."""
ONE_CYCLE_START = 0.04
"""Share of the largest rate that a one-cycle rate begins at."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How to optimise."""

    steps: int
    """Number of optimiser steps."""
    learning_rate: float = 1e-3
    """Largest rate of the schedule."""
    schedule: Literal["constant", "cosine", "one-cycle"] = "cosine"
    """What the rate does after the warm-up: stay, or fall to zero; "one-cycle" brings its own warm-up."""
    warmup: int = 0
    """Steps over which the rate rises from zero; not for "one-cycle"."""
    optimiser: Literal["adam", "adamw"] = "adam"
    """Whether the weights decay through the gradient or apart from it."""
    weight_decay: float = 0.0
    """Pull of the weights towards zero."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates."""
    epsilon: float = 1e-8
    """Adam's floor of the denominator."""
    clip_norm: float | None = None
    """Largest gradient norm; larger ones are scaled down."""
    accumulate: int = 1
    """Batches whose gradients make up one step."""
    evaluate_every: int = 0
    """Steps between evaluations, if the caller passes one; 0 for none but the last."""
    keep_best: str | None = None
    """Number of the evaluation by whose smallest value the weights are chosen in the end; None keeps the last ones."""
    patience: int | None = None
    """Evaluations without a better ``keep_best`` after which training ends early."""
    save_every: int = 200
    """Steps between saved states, if training has a folder."""

    def __post_init__(self) -> None:
        for name, smallest in _SMALLEST.items():
            value = getattr(self, name)
            if value is not None and not value >= smallest:
                raise ConfigError(f"{name}={value} must be at least {smallest}.")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm={self.clip_norm} must be above 0, or None for no limit.")
        if self.warmup and self.schedule == "one-cycle":
            raise ConfigError(f"warmup={self.warmup} has no place in schedule='one-cycle', which rises by itself.")
        if self.patience is not None and self.keep_best is None:
            raise ConfigError(f"patience={self.patience} needs keep_best, the number that should get smaller.")


_SMALLEST = {
    "steps": 0,
    "learning_rate": 0,
    "warmup": 0,
    "weight_decay": 0,
    "accumulate": 1,
    "evaluate_every": 0,
    "patience": 1,
    "save_every": 1,
}


def rate_at(step: int, config: TrainConfig) -> float:
    """Learning rate of a step (counted from 0)."""
    rise = config.steps * ONE_CYCLE_RISE if config.schedule == "one-cycle" else config.warmup
    if step < rise:
        if config.schedule == "one-cycle":
            risen = 0.5 * (1.0 - math.cos(math.pi * step / rise))
            return config.learning_rate * (ONE_CYCLE_START + (1.0 - ONE_CYCLE_START) * risen)
        return config.learning_rate * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - rise) / max(1, config.steps - rise)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))


Batch = TypeVar("Batch")


def train(
    model: Trainable[Batch],
    batches: Iterable[Batch],
    config: TrainConfig,
    *,
    generator: Generator,
    on_log: Callable[[Progress], None] | None = None,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    folder: Path | None = None,
) -> None:
    """Minimise the model's loss over the batches.

    With a folder, training can be stopped at any moment, by whatever means, and goes on when it is called again in the
    same way; it ends with the same weights as if it had not been stopped. For that, the batches must have no end, and
    each must be drawn from the generator when it is asked for, as those of ``task_batches`` are. Processes that
    ``torch.distributed`` joins train one model together, each on the batches of its own generator; the folder must be
    one that all of them can read.

    Parameters
    ----------
    model : Trainable
        What is trained, in place.
    batches : iterable
        ``config.accumulate`` for each of ``config.steps`` steps; training ends early if there are fewer.
    config : TrainConfig
        How to optimise.
    generator : torch.Generator
        The only source of randomness.
    on_log : callable, optional
        Called after every step.
    evaluate : callable, optional
        Called as often as ``config.evaluate_every`` says, and after the last of ``config.steps``; it must not draw from
        the generator.
    folder : Path, optional
        Where the state and the log, one JSON object a line, are kept.

    Raises
    ------
    TrainingError
        If the loss or its gradient is no longer a number (the message names the step and the parts), or if the folder
        holds a run of another model, with other settings, or of another number of processes.
    """
    if config.keep_best is not None and evaluate is None:
        raise ConfigError(
            f"keep_best={config.keep_best!r} needs an evaluation to choose the weights by; pass evaluate."
        )
    optimiser = _optimiser(model, config)
    best = Best()
    share_weights(model.state_dict().values())
    first = 0 if folder is None else _go_on(folder, model, optimiser, generator, best, config)
    stream = iter(batches)
    began = time.perf_counter()
    for step in range(first, config.steps):
        if config.patience is not None and best.misses >= config.patience:
            break
        portion = list(islice(stream, config.accumulate))
        if not all_agree(len(portion) == config.accumulate):
            break
        rate = rate_at(step, config)
        value, parts = _step(model, portion, optimiser, rate, generator, config, f"step {step + 1} of {config.steps}")
        done = step + 1
        evaluation = None
        if evaluate is not None and _evaluates_after(done, config):
            evaluation = mean_over_processes(evaluate())
            _keep_best(model, config, evaluation, best)
        progress = Progress(done, config.steps, value, time.perf_counter() - began, first, parts, evaluation)
        if folder is not None:
            append_log(folder, _log_line(progress, rate))
            if done % config.save_every == 0 or done == config.steps or evaluation is not None:
                save_state(folder, done, model.state_dict(), optimiser, generator, best, to_dict(config))
        if on_log is not None:
            on_log(progress)
    if best.weights:
        model.load_state_dict(best.weights)


def _go_on(
    folder: Path,
    model: Trainable[Batch],
    optimiser: torch.optim.Optimizer,
    generator: Generator,
    best: Best,
    config: TrainConfig,
) -> int:
    """Put in place what the folder holds, and return the number of steps that are done."""
    folder.mkdir(parents=True, exist_ok=True)
    saved = load_state(folder, model.state_dict(), optimiser, generator, best, to_dict(config))
    first = 0 if saved is None else saved[0]
    if mean_over_processes({"first": first})["first"] != first:
        raise TrainingError(
            f"{str(folder)!r} holds {first} steps for this process, and not as many for another. "
            "Use a folder that all processes can read."
        )
    if saved is not None:
        model.load_state_dict(saved[1])
    tidy(folder, first)
    return first


def _optimiser(model: Trainable[Batch], config: TrainConfig) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(
        [value for value in model.parameters() if value.requires_grad],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
    )


def _step(
    model: Trainable[Batch],
    portion: list[Batch],
    optimiser: torch.optim.Optimizer,
    rate: float,
    generator: Generator,
    config: TrainConfig,
    where: str,
) -> tuple[float, dict[str, float]]:
    """Follow the mean gradient of the batches; return the mean loss and its parts."""
    optimiser.param_groups[0]["lr"] = rate
    optimiser.zero_grad(set_to_none=True)
    value, parts = _accumulate(model, portion, generator)
    _refuse_broken("loss", value, parts, where)
    parameters = optimiser.param_groups[0]["params"]
    average_gradients(parameters)
    norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    # A loss can be finite where its gradient is not; then the weights would be lost, and saved so.
    _refuse_broken("gradient's norm", float(norm), parts, where)
    if config.clip_norm is not None:
        clip_grads_with_norm_(parameters, config.clip_norm, norm)
    optimiser.step()
    model.after_step()
    return value, parts


def _accumulate(model: Trainable[Batch], portion: list[Batch], generator: Generator) -> tuple[float, dict[str, float]]:
    """Leave the mean gradient of the process's batches in the parameters; return all processes' mean loss and parts."""
    value, parts = 0.0, dict[str, float]()
    for batch in portion:
        loss = model.loss(batch, generator)
        value += float(loss.total.detach()) / len(portion)
        for name, part in loss.parts.items():
            parts[name] = parts.get(name, 0.0) + part / len(portion)
        (loss.total / len(portion)).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return mean_over_processes({"loss": value})["loss"], mean_over_processes(parts)


def _refuse_broken(what: str, value: float, parts: Mapping[str, float], where: str) -> None:
    """Stop at what is not a number."""
    if not math.isfinite(value):
        named = ", ".join(f"{name} = {part:g}" for name, part in parts.items())
        raise TrainingError(
            f"The {what} became {value} at {where} ({named}). "
            "Lower the learning rate, or look for extreme values in the data."
        )


def _evaluates_after(done: int, config: TrainConfig) -> bool:
    return done == config.steps or (config.evaluate_every > 0 and done % config.evaluate_every == 0)


def _keep_best(model: Trainable[Batch], config: TrainConfig, evaluation: Mapping[str, float], best: Best) -> None:
    """Remember the weights if they are the best so far."""
    if config.keep_best is None:
        return
    if config.keep_best not in evaluation:
        raise TrainingError(f"keep_best={config.keep_best!r} is not among what is evaluated: {', '.join(evaluation)}.")
    value = evaluation[config.keep_best]
    if value < best.value:
        best.value, best.misses = value, 0
        best.weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    else:
        best.misses += 1


def _log_line(progress: Progress, rate: float) -> dict[str, Any]:
    line = {
        "step": progress.step,
        "loss": progress.loss,
        "rate": rate,
        "seconds": round(progress.seconds, 3),
        "parts": _as_json(progress.parts),
    }
    return line if progress.evaluation is None else line | {"evaluation": _as_json(progress.evaluation)}


def _as_json(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """The numbers, with null for those that JSON has no word for."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
