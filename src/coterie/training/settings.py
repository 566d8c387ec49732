"""How to optimise, and the learning rate of every step."""

import math
from dataclasses import dataclass
from typing import Literal

from coterie.errors import ConfigError

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
