"""The one optimisation loop, resumable after any interruption; ``train`` is the entry point."""

from coterie.progress import Progress
from coterie.training.batches import generator_on, point_batches, task_batches, view_batches
from coterie.training.loop import TrainConfig, learning_rate_at, train

__all__ = [
    "Progress",
    "TrainConfig",
    "generator_on",
    "learning_rate_at",
    "point_batches",
    "task_batches",
    "train",
    "view_batches",
]
