"""Sets that somebody has sorted already."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.errors import InputError
from coterie.structures import TaskBatch

LEAST_SCALE = 1e-5
"""Standard deviation below which a feature counts as constant: what is left is rounding."""


@final
@dataclass(frozen=True, slots=True)
class ListedTasks:
    """Labelled sets in memory, of any sizes; every draw shows a set in another way.

    Of each set some clusters are left out and of the others some points, so that the number and the sizes of clusters
    vary; ``turned`` also turns the set around its mean, for features that have no meaning of their own, and
    ``standardised`` brings what is left to the scale that whole sets have.
    """

    sets: Sequence[tuple[Float[Tensor, "N D"], Int[Tensor, " N"]]]
    """Points, and the cluster of each."""
    max_points: int = 300
    """Most points of a set that are shown."""
    varied: bool = True
    """Whether clusters are left out."""
    turned: bool = True
    """Whether sets are turned."""
    standardised: bool = False
    """Whether what is shown has mean zero and standard deviation one in every feature that varies."""

    def __post_init__(self) -> None:
        if not self.sets or any(len(x) != len(labels) or len(x) == 0 for x, labels in self.sets):
            raise InputError("Every task needs at least one point, and one label for each point.")
        if self.max_points < 1:
            raise InputError(f"max_points={self.max_points} must be at least 1.")
        widths = sorted({x.shape[1] for x, _ in self.sets})
        if len(widths) > 1:
            raise InputError(
                f"The tasks have different numbers of features ({', '.join(map(str, widths))}). "
                "Give all of them the same columns."
            )

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets, the same one more than once if there are fewer."""
        picks = torch.randint(len(self.sets), (batch_size,), generator=generator)
        return padded([self._shown(int(pick), generator) for pick in picks])

    def _shown(self, pick: int, generator: Generator) -> tuple[Tensor, Tensor]:
        x, labels = self.sets[pick]
        names, labels = torch.unique(labels, return_inverse=True)
        if self.varied:
            kept = torch.rand(len(names), generator=generator) < torch.rand((), generator=generator)
            kept[torch.randint(len(names), (), generator=generator)] = True
            x, labels = x[kept[labels]], labels[kept[labels]]
        chosen = torch.randperm(len(x), generator=generator)[: self.max_points]
        x, labels = x[chosen], labels[chosen]
        if self.turned:
            turn, _ = torch.linalg.qr(torch.randn((x.shape[1], x.shape[1]), generator=generator))
            centre = x.mean(dim=0)
            x = (x - centre) @ turn + centre
        if self.standardised:
            scale = x.std(dim=0, correction=0)
            x = (x - x.mean(dim=0)) / torch.where(scale > LEAST_SCALE, scale, 1.0)
        return x, labels


def padded(tasks: Sequence[tuple[Float[Tensor, "N D"], Int[Tensor, " N"]]]) -> TaskBatch:
    """Sets of different sizes as one batch."""
    longest = max(len(labels) for _, labels in tasks)
    x = torch.zeros((len(tasks), longest, tasks[0][0].shape[1]))
    labels = torch.zeros((len(tasks), longest), dtype=torch.int64)
    valid = torch.zeros((len(tasks), longest), dtype=torch.bool)
    for row, (points, names) in enumerate(tasks):
        x[row, : len(points)] = points
        labels[row, : len(names)] = names
        valid[row, : len(names)] = True
    return TaskBatch(x, labels, valid)
