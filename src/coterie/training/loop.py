"""The optimisation loop, for any model and any stream of batches."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Generator, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from coterie.config import to_dict
from coterie.errors import ConfigError, TrainingError
from coterie.nn.model import Trainable
from coterie.progress import Callback, Progress
from coterie.training.distributed import data_parallel, no_sync, reduce_mean
from coterie.training.state import Best, TrainingState, append_log, clean_up
from coterie.validation import NONE, Constraints, Integer, Number, check_parameters

ONE_CYCLE_WARMUP = 0.1  # fraction of the steps in which a one-cycle learning rate rises
ONE_CYCLE_START = 0.04  # initial one-cycle learning rate, as a fraction of the largest
_CONSTRAINTS: Mapping[str, Constraints] = {
    "steps": Integer(0),
    "learning_rate": Number(0),
    "warmup": Integer(0),
    "weight_decay": Number(0),
    "clip_norm": (Number(0, exclusive=True), NONE),
    "accumulate": Integer(1),
    "evaluate_every": Integer(0),
    "patience": (Integer(1), NONE),
    "save_every": Integer(1),
}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Settings of the optimiser."""

    steps: int  # number of optimiser steps
    learning_rate: float = 1e-3  # largest learning rate of the schedule
    schedule: Literal["constant", "cosine", "one-cycle"] = "cosine"
    """Learning rate after the warm-up: constant, or falling to zero; "one-cycle" has a warm-up of its own."""
    warmup: int = 0  # steps in which the learning rate rises linearly from zero; not for "one-cycle"
    optimiser: Literal["adam", "adamw"] = "adam"
    weight_decay: float = 0.0  # as part of the gradient ("adam"), or decoupled from it ("adamw")
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8  # added to Adam's denominator
    clip_norm: float | None = None  # largest gradient norm; larger gradients are scaled down
    accumulate: int = 1  # batches per step, whose gradients are averaged
    evaluate_every: int = 0  # steps between evaluations; 0 evaluates after the last step only
    keep_best: str | None = None
    """Key of the evaluation to minimise: training ends with the best weights; None ends with the last."""
    patience: int | None = None  # evaluations without improvement of ``keep_best`` after which training stops
    save_every: int = 200  # steps between saved states, if training has a folder

    def __post_init__(self) -> None:
        check_parameters(self, _CONSTRAINTS, ConfigError)
        if self.warmup and self.schedule == "one-cycle":
            raise ConfigError(f"warmup={self.warmup} cannot be combined with schedule='one-cycle'; set it to 0.")
        if self.patience is not None and self.keep_best is None:
            raise ConfigError(f"patience={self.patience} needs keep_best, the key of the evaluation to minimise.")


def learning_rate_at(step: int, config: TrainConfig) -> float:
    """Return the learning rate of a step, counted from 0."""
    warmup = config.steps * ONE_CYCLE_WARMUP if config.schedule == "one-cycle" else config.warmup
    if step < warmup:
        if config.schedule == "one-cycle":
            risen = 0.5 * (1.0 - math.cos(math.pi * step / warmup))
            return config.learning_rate * (ONE_CYCLE_START + (1.0 - ONE_CYCLE_START) * risen)
        return config.learning_rate * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - warmup) / max(1, config.steps - warmup)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))


Batch = TypeVar("Batch")


def train(
    model: Trainable[Batch],
    batches: Iterable[Batch],
    config: TrainConfig,
    *,
    generator: Generator,
    callback: Callback | None = None,
    evaluate: Callable[[], Mapping[str, float]] | None = None,
    folder: Path | None = None,
) -> None:
    """Minimise the model's loss over the batches.

    With a folder, training can be killed at any time; called again in the same way, it resumes and ends with the same
    weights as an uninterrupted run. For this the stream of batches must be infinite, and each batch must be sampled
    from the generator when it is requested, as ``task_batches`` does. Processes joined by ``torch.distributed`` train
    one model together, each on its own batches; all must see the same folder.

    Parameters
    ----------
    model : Trainable
        The model, trained in place.
    batches : iterable
        ``config.accumulate`` batches are used per step; training ends early if there are too few.
    config : TrainConfig
        Settings of the optimiser.
    generator : torch.Generator
        The only source of randomness.
    callback : callable, optional
        Called with a ``Progress`` after every step.
    evaluate : callable, optional
        Returns named numbers; called every ``config.evaluate_every`` steps and after the last. It must not use the
        generator.
    folder : Path, optional
        Where to save the state and the log, which has one JSON object per line.

    Raises
    ------
    TrainingError
        If the loss or its gradient is not finite, or if the folder holds the run of another model, of other settings
        or of another number of processes.
    """
    if config.keep_best is not None and evaluate is None:
        raise ConfigError(f"keep_best={config.keep_best!r} needs an evaluation; pass evaluate.")
    optimiser = _make_optimiser(model, config)
    best = Best()
    state = None if folder is None else TrainingState(folder, model, optimiser, generator, best, to_dict(config))
    first = 0 if state is None else _resume(state)
    compute_loss = data_parallel(model)
    stream = iter(batches)
    started = time.perf_counter()
    for step in range(first, config.steps):
        if config.patience is not None and best.misses >= config.patience:
            break
        portion = list(islice(stream, config.accumulate))
        if reduce_mean({"enough": len(portion) == config.accumulate})["enough"] < 1.0:
            break
        rate = learning_rate_at(step, config)
        done = step + 1
        optimiser.param_groups[0]["lr"] = rate
        loss, parts = _step(compute_loss, portion, optimiser, generator, config, f"step {done} of {config.steps}")
        model.after_step()
        evaluation = None
        due = done == config.steps or (config.evaluate_every > 0 and done % config.evaluate_every == 0)
        if evaluate is not None and due:
            evaluation = reduce_mean(evaluate())
            _update_best(model, config, evaluation, best)
        progress = Progress(done, config.steps, loss, time.perf_counter() - started, first, parts, evaluation)
        if state is not None:
            append_log(state.folder, _log_line(progress, rate))
            if done % config.save_every == 0 or done == config.steps or evaluation is not None:
                state.save(done)
        if callback is not None:
            callback(progress)
    if best.weights:
        model.load_state_dict(best.weights)


def _resume(state: TrainingState) -> int:
    """Restore the state in the folder, and return the number of steps done."""
    state.folder.mkdir(parents=True, exist_ok=True)
    first = state.load()
    if reduce_mean({"first": first})["first"] != first:
        raise TrainingError(
            f"{str(state.folder)!r} holds {first} steps for this process and another number for others. "
            "Use a folder that all processes can read."
        )
    clean_up(state.folder, first)
    return first


def _make_optimiser(model: Trainable[Batch], config: TrainConfig) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(
        [value for value in model.parameters() if value.requires_grad],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
    )


def _step(
    compute_loss: nn.Module,
    portion: list[Batch],
    optimiser: torch.optim.Optimizer,
    generator: Generator,
    config: TrainConfig,
    where: str,
) -> tuple[float, dict[str, float]]:
    """Take one optimiser step; return the mean loss and its parts."""
    optimiser.zero_grad(set_to_none=True)
    total, parts = 0.0, dict[str, float]()
    for position, batch in enumerate(portion, start=1):
        with nullcontext() if position == len(portion) else no_sync(compute_loss):
            loss = compute_loss(batch, generator)
            total += float(loss.total.detach()) / len(portion)
            for name, part in loss.parts.items():
                parts[name] = parts.get(name, 0.0) + part / len(portion)
            (loss.total / len(portion)).backward()
    total, parts = reduce_mean({"loss": total})["loss"], reduce_mean(parts)
    _check_finite("loss", total, parts, where)
    parameters = optimiser.param_groups[0]["params"]
    norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    # The gradient of a finite loss can be infinite; a step would destroy the weights.
    _check_finite("gradient norm", float(norm), parts, where)
    if config.clip_norm is not None:
        clip_grads_with_norm_(parameters, config.clip_norm, norm)
    optimiser.step()
    return total, parts


def _check_finite(what: str, value: float, parts: Mapping[str, float], where: str) -> None:
    if not math.isfinite(value):
        named = ", ".join(f"{name} = {part:g}" for name, part in parts.items())
        raise TrainingError(
            f"The {what} became {value} at {where} ({named}). "
            "Lower the learning rate, or look for extreme values in the data."
        )


def _update_best(model: Trainable[Batch], config: TrainConfig, evaluation: Mapping[str, float], best: Best) -> None:
    """Keep a copy of the weights if they are the best so far."""
    if config.keep_best is None:
        return
    if config.keep_best not in evaluation:
        raise TrainingError(
            f"keep_best={config.keep_best!r} must be one of what is evaluated: {', '.join(evaluation)}."
        )
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
        "parts": _json_numbers(progress.parts),
    }
    return line if progress.evaluation is None else line | {"evaluation": _json_numbers(progress.evaluation)}


def _json_numbers(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Replace NaN and infinity by null, since JSON has neither."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
