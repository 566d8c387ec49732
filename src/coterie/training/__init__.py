"""The one optimisation loop: how fast, for how long, over which batches, and how to go on after an interruption."""

from coterie.progress import Progress
from coterie.training.batches import generator_on, point_batches, task_batches, view_batches
from coterie.training.loop import TrainConfig, rate_at, train

__all__ = [
    "Progress",
    "TrainConfig",
    "generator_on",
    "point_batches",
    "rate_at",
    "task_batches",
    "train",
    "view_batches",
]
