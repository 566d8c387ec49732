"""CIFAR-100: which classes are for training, for choices and for the test, and the sets that are drawn from them.

There are 100 pictures of each class at hand. The last ten classes are for the test, as published; every tenth of the
others is held back from training, so that there is something to choose and to calibrate with.

Letters: M pictures, N pictures of a set, D numbers of a picture, K clusters.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator, Tensor

from benchmarks.data.images import load_pictures
from coterie.amortized.tasks.classes import Catalogue, ImageTasks, Instances

Part: TypeAlias = Literal["training", "validation", "test"]

IMAGE: Final = (3, 32, 32)
"""Channels, height and width."""
TEST_FROM: Final = 90
"""First of the classes that the test is about, which are the last."""
VALIDATION_DIGIT: Final = 5
"""Last digit of the classes below that are held back."""
N_POINTS: Final = 128
CLUSTERS: Final = (2, 10)
SEEDS: Final[dict[Part, int]] = {"training": 0, "validation": 11, "test": 2020}
"""What sets are drawn with."""
TURNED, STRETCHED, SHIFTED = 10.0, 0.1, 0.1
"""Most degrees, and shares of the size, by which pictures are moved while networks are trained."""


@final
@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures of some classes."""

    images: UInt8[Tensor, "M C H W"]
    classes: Int[Tensor, " M"]


def is_of(part: Part, classes: Int[Tensor, " M"]) -> Bool[Tensor, " M"]:
    """Which classes belong to a part."""
    tested = classes >= TEST_FROM
    if part == "test":
        return tested
    held_back = classes % 10 == VALIDATION_DIGIT
    return ~tested & (held_back if part == "validation" else ~held_back)


@cache
def pictures(part: Part) -> Pictures:
    """All pictures of a part."""
    loaded = load_pictures("cifar100")
    classes = torch.from_numpy(loaded.classes)
    here = is_of(part, classes)
    images = torch.from_numpy(np.ascontiguousarray(loaded.images.transpose(0, 3, 1, 2)))
    return Pictures(images[here], classes[here])


def training_tasks(instances: Instances) -> ImageTasks:
    """Sets of training classes, each picture moved and perhaps mirrored whenever it is drawn."""
    shown = pictures("training")
    return ImageTasks(
        shown.images,
        shown.classes,
        torch.zeros_like(shown.classes),
        instances.points,
        instances.clusters,
        instances.sizes,
        instances.concentration,
        turn_by=TURNED,
        stretched=STRETCHED,
        shifted=SHIFTED,
        mirrored=True,
    )


@final
@dataclass(frozen=True, eq=False)
class HeldOutSet:
    """One set to cluster."""

    images: UInt8[Tensor, "N C H W"]
    labels: Int[Tensor, " N"]

    @property
    def pixels(self) -> Float[Tensor, "N D"]:
        """The pictures as networks are trained on them: flat, from 0 to 1."""
        return self.images.flatten(1).float() / 255

    @property
    def n_clusters(self) -> int:
        """K."""
        return int(self.labels.max()) + 1


def held_out_sets(part: Part, count: int) -> list[HeldOutSet]:
    """The first so many sets of a part, by ABC's Algorithm 1; of fewer than ten classes, all are the most."""
    shown = pictures(part)
    catalogue = Catalogue.of(shown.classes, torch.zeros_like(shown.classes))
    instances = Instances((N_POINTS, N_POINTS), CLUSTERS, "composition", 1.0)
    instances.check(catalogue)
    generator = Generator().manual_seed(SEEDS[part])
    draws = (instances.draw(catalogue, 1, generator) for _ in range(count))
    return [HeldOutSet(shown.images[draw.index[0]], draw.labels[0]) for draw in draws]
