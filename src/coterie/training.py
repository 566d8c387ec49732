"""The one optimisation loop. It knows neither models nor where batches come from."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Generator, Tensor

from coterie.errors import TrainingError
from coterie.structures import PointBatch, Trainable

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """How to optimise."""

    steps: int
    """Number of optimiser steps."""
    learning_rate: float = 1e-3
    """Largest rate of the schedule."""
    schedule: Literal["constant", "cosine"] = "cosine"
    """What the rate does after the warm-up: stay, or fall to zero."""
    warmup: int = 0
    """Steps over which the rate rises from zero."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates."""
    epsilon: float = 1e-8
    """Adam's floor of the denominator."""
    clip_norm: float | None = None
    """Largest gradient norm; larger ones are scaled down."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where training stands, for logs and progress bars."""

    step: int
    steps: int
    loss: float
    seconds: float

    @property
    def seconds_left(self) -> float:
        """Time that the remaining steps will take at the pace so far."""
        return self.seconds / self.step * (self.steps - self.step)


def rate_at(step: int, config: TrainConfig) -> float:
    """Learning rate of a step (counted from 0)."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup) / max(1, config.steps - config.warmup)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))


def train(
    model: Trainable[Batch],
    batches: Iterable[Batch],
    config: TrainConfig,
    *,
    generator: Generator,
    on_log: Callable[[Progress], None] | None = None,
) -> None:
    """Minimise the model's loss over the batches, one optimiser step each.

    Parameters
    ----------
    model : Trainable
        What is trained, in place.
    batches : iterable
        At least ``config.steps`` batches.
    config : TrainConfig
        How to optimise.
    generator : torch.Generator
        The only source of randomness.
    on_log : callable, optional
        Called after every step.

    Raises
    ------
    TrainingError
        If the loss is no longer a number; the message names the step and the parts.
    """
    optimiser = torch.optim.Adam(
        [value for value in model.parameters() if value.requires_grad],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
    )
    parameters = optimiser.param_groups[0]["params"]
    began = time.perf_counter()
    for step, batch in zip(range(config.steps), batches, strict=False):
        optimiser.param_groups[0]["lr"] = rate_at(step, config)
        optimiser.zero_grad(set_to_none=True)
        loss = model.loss(batch, generator)
        value = float(loss.total.detach())
        if not math.isfinite(value):
            parts = ", ".join(f"{name} = {part:g}" for name, part in loss.parts.items())
            raise TrainingError(
                f"The loss became {value} at step {step + 1} of {config.steps} ({parts}). "
                "Lower the learning rate, or look for extreme values in the data."
            )
        loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        optimiser.step()
        model.after_step()
        if on_log is not None:
            on_log(Progress(step + 1, config.steps, value, time.perf_counter() - began))


def point_batches(
    x: Tensor, *, batch_size: int, epochs: int, generator: Generator, weight: Tensor | None = None
) -> Iterator[PointBatch]:
    """Minibatches of the rows of x, shuffled anew every epoch; the last of an epoch may be smaller."""
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator, device=generator.device)
        batches = torch.split(order, batch_size)
        for position, index in enumerate(batches, start=1):
            yield PointBatch(
                x[index], index, None if weight is None else weight[index], ends_epoch=position == len(batches)
            )
