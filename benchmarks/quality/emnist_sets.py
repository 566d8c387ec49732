"""Sets of hand-written letters and digits, each picture of ink or no ink, as in DAC's experiment with EMNIST."""

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from benchmarks.data.images import Numbers, load_pictures
from coterie.amortized.tasks.classes import Distortion, ImageTasks
from coterie.amortized.tasks.synthetic import sample_set_size
from coterie.nn.model import TaskBatch

Part = Literal["training", "validation", "test"]

SIDE: Final = 28
N_PIXELS: Final = SIDE * SIDE
SEEDS: Final[dict[Part, int]] = {"training": 0, "validation": 1, "test": 2}
CONCENTRATION: Final = 5.0
"""Of the Dirichlet that shares are from, as published."""
UNMOVED: Final = Distortion()


@dataclass(frozen=True)
class Sizes:
    """Most pictures and most classes of a set; it has three tenths of the pictures at least, as published."""

    max_points: int
    max_clusters: int

    @property
    def name(self) -> str:
        """As it stands in the results file."""
        return f"emnist-{self.max_points}-{self.max_clusters}"


SMALL: Final = Sizes(1000, 4)
LARGE: Final = Sizes(3000, 12)


@dataclass(frozen=True)
class HeldOutSet:
    """One set, and the class of each picture in it."""

    x: Float[Tensor, "N D"]
    labels: Int[Tensor, " N"]

    @property
    def n_clusters(self) -> int:
        """Classes that have at least one picture."""
        return len(torch.unique(self.labels))


def part_of(classes: Numbers) -> Numbers:
    """Part of each picture, by its place within its class: of every ten, 7 for training, 1 for choices, 2 for the test.

    All classes are in all parts, as published; pictures are in one.
    """
    order = np.argsort(classes, kind="stable")
    _, start, count = np.unique(classes[order], return_index=True, return_counts=True)
    place = np.empty_like(classes)
    place[order] = np.arange(len(classes)) - np.repeat(start, count)
    return np.array((0, 0, 0, 1, 2, 0, 0, 0, 0, 2), dtype=np.int64)[place % 10]


@cache
def pictures(part: Part) -> tuple[Tensor, Tensor]:
    """Pictures (M, 1, 28, 28) of one part, and their classes."""
    everything = load_pictures("emnist")
    these = part_of(everything.classes) == list(SEEDS).index(part)
    return torch.from_numpy(everything.images[these]).unsqueeze(1), torch.from_numpy(everything.classes[these])


def tasks(part: Part, points: tuple[int, int], max_clusters: int, moved: Distortion = UNMOVED) -> ImageTasks:
    """Sets of pictures of one part, drawn DAC's way; where a class has too few, some are taken again.

    Whoever is shown again has its pixels drawn anew.
    """
    images, classes = pictures(part)
    return ImageTasks(
        images,
        classes,
        torch.zeros_like(classes),
        points=points,
        clusters=(1, max_clusters),
        sizes="dirichlet",
        concentration=CONCENTRATION,
        binarised=True,
        turn_by=moved.turn_by,
        stretched=moved.stretched,
        shifted=moved.shifted,
    )


def held_out_sets(part: Part, sizes: Sizes, count: int) -> list[HeldOutSet]:
    """The first so many sets of a part, the same whenever they are asked for."""
    generator = Generator().manual_seed(SEEDS[part])
    return [_one(part, sizes, generator) for _ in range(count)]


def held_out_batches(part: Part, points: int, max_clusters: int, count: int) -> list[TaskBatch]:
    """That many batches of ten sets, to look at the loss."""
    generator = Generator().manual_seed(SEEDS[part])
    sampler = tasks(part, (points, points), max_clusters)
    return [sampler.sample(10, generator) for _ in range(count)]


def _one(part: Part, sizes: Sizes, generator: Generator) -> HeldOutSet:
    n_points = sample_set_size(sizes.max_points, generator)
    batch = tasks(part, (n_points, n_points), sizes.max_clusters).sample(1, generator)
    return HeldOutSet(batch.x[0], batch.labels[0])
