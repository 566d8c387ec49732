"""Embedded pictures: which classes are for training and which for the test, and the sets that are drawn from them.

The classes of a collection are told apart by the last digit of their number, so that each part has all kinds of
things: Tiny-ImageNet's numbers follow WordNet, animals first. Features are those of a network that was trained to name
the thousand classes of ImageNet, which is where Tiny-ImageNet's are from; none of the parts is new to it.

Letters: M pictures, D features, E features after preparation, B sets, N pictures of a set, K clusters.
"""

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal, TypeAlias, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.data.images import EmbeddingName, load_embeddings
from coterie.amortized.tasks.classes import Catalogue, Instances
from coterie.nn.model import TaskBatch

Collection: TypeAlias = Literal["tiny-imagenet", "cifar100"]
Part: TypeAlias = Literal["training", "validation", "test"]

SOURCES: Final[dict[Collection, tuple[EmbeddingName, ...]]] = {
    "tiny-imagenet": ("tiny-imagenet",),
    "cifar100": ("cifar100-train", "cifar100-test"),
}
LAST_DIGITS: Final[dict[Part, tuple[int, ...]]] = {
    "training": (0, 1, 2, 3, 4, 5),
    "validation": (6,),
    "test": (7, 8, 9),
}
"""Of the numbers of the classes in each part."""
POINTS: Final[dict[Collection, tuple[int, int]]] = {"tiny-imagenet": (100, 300), "cifar100": (300, 300)}
"""Pictures of a set. Tiny-ImageNet has 50 of each class, so that 300 would never be fewer than six classes."""
CLUSTERS: Final = (2, 12)
SEEDS: Final[dict[Part, int]] = {"training": 0, "validation": 11, "test": 2020}
"""What sets are drawn with."""
WIDTH: Final = 128
"""E."""
WHITENING: Final = 0.25
"""Power of the variance along a direction that its coordinate is divided by: 0 leaves them, 0.5 makes all alike."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """A fixed map from features to fewer of them, on a sphere."""

    mean: Float[Tensor, " D"]
    directions: Float[Tensor, "D E"]

    @classmethod
    def of(cls, x: Float[Tensor, "M D"]) -> "Preparation":
        """Principal directions of the roots of features, those with much variance shortened."""
        roots = _roots(x).double()
        mean = roots.mean(dim=0)
        variance, directions = torch.linalg.eigh((roots - mean).T.cov())
        largest = slice(-WIDTH, None)
        return cls(mean.float(), (directions[:, largest] / variance[largest] ** WHITENING).flip(1).float())

    def __call__(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M E"]:
        """Roots of unit length, centred and turned, at unit length again, times the root of their number."""
        turned: Tensor = (_roots(x) - self.mean) @ self.directions
        return normalize(turned, dim=1) * math.sqrt(turned.shape[1])


@dataclass(frozen=True, eq=False)
class Features:
    """All pictures of a collection."""

    raw: Float[Tensor, "M D"]
    prepared: Float[Tensor, "M E"]
    classes: Int[Tensor, " M"]

    def of(self, *parts: Part) -> Bool[Tensor, " M"]:
        """Which pictures are in classes of these parts."""
        digits = [digit for part in parts for digit in LAST_DIGITS[part]]
        return torch.isin(self.classes % 10, torch.tensor(digits))


@cache
def features() -> dict[Collection, Features]:
    """Both collections, prepared by what the training classes of both are like."""
    loaded = {collection: _loaded(names) for collection, names in SOURCES.items()}
    digits = torch.tensor(LAST_DIGITS["training"])
    preparation = Preparation.of(torch.cat([x[torch.isin(y % 10, digits)] for x, y in loaded.values()]))
    return {collection: Features(x, preparation(x), y) for collection, (x, y) in loaded.items()}


@dataclass(frozen=True, eq=False)
class HeldOutSet:
    """One set to cluster, with its features as they are and prepared."""

    raw: Float[Tensor, "N D"]
    prepared: Float[Tensor, "N E"]
    labels: Int[Tensor, " N"]

    @property
    def n_clusters(self) -> int:
        """K."""
        return int(self.labels.max()) + 1


def held_out_sets(collection: Collection, part: Part, count: int) -> list[HeldOutSet]:
    """The first so many sets of a part; with fewer classes than clusters there can be, all classes are the most."""
    of_all = features()[collection]
    used = of_all.of(part)
    classes = of_all.classes[used]
    catalogue = Catalogue.of(classes, torch.zeros_like(classes))
    most = min(CLUSTERS[1], len(catalogue.count))
    instances = Instances(POINTS[collection], (CLUSTERS[0], most), "composition", 1.0)
    raw, prepared, generator = of_all.raw[used], of_all.prepared[used], Generator().manual_seed(SEEDS[part])
    draws = (instances.draw(catalogue, 1, generator) for _ in range(count))
    return [HeldOutSet(raw[draw.index[0]], prepared[draw.index[0]], draw.labels[0]) for draw in draws]


@final
@dataclass(frozen=True, eq=False)
class TrainingTasks:
    """Sets of classes that are trained on, each from one collection, and of classes that do not exist.

    There are few classes, and a network that knows them by heart is of no use for others. So in some sets each class
    is put elsewhere: its pictures keep their differences from its mean, but the mean becomes a random mixture of those
    of two other classes. And all features are blurred.
    """

    instances: Instances
    parts: tuple[Part, ...] = ("training",)
    """Whose classes they are."""
    moved: float = 0.5
    """Share of the sets whose classes are put elsewhere."""
    noise: float = 0.3
    """Deviation of what is added to each feature, whose mean square is one."""
    _drawn_from: tuple["_Classes", ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kept = tuple(
            _Classes.of(each.prepared[used], each.classes[used])
            for each in features().values()
            for used in [each.of(*self.parts)]
        )
        object.__setattr__(self, "_drawn_from", kept)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets, all from one collection."""
        classes = self._drawn_from[int(torch.randint(len(self._drawn_from), (), generator=generator))]
        draw = self.instances.draw(classes.catalogue, batch_size, generator)
        x = classes.x[draw.index]
        elsewhere = classes.mixtures((batch_size, int(draw.labels.max()) + 1), generator)
        changed = (
            x - classes.means[classes.place[draw.index]] + elsewhere[torch.arange(batch_size)[:, None], draw.labels]
        )
        is_moved = torch.rand((batch_size, 1, 1), generator=generator) < self.moved
        x = torch.where(is_moved, changed, x) + self.noise * torch.randn(x.shape, generator=generator)
        return TaskBatch(x, draw.labels, torch.ones_like(draw.labels, dtype=torch.bool))


@dataclass(frozen=True, eq=False)
class _Classes:
    """Pictures with their classes, and what these are like."""

    x: Float[Tensor, "M E"]
    place: Int[Tensor, " M"]
    """Class of each, 0..C-1."""
    means: Float[Tensor, "C E"]
    catalogue: Catalogue

    @classmethod
    def of(cls, x: Float[Tensor, "M E"], classes: Int[Tensor, " M"]) -> "_Classes":
        _, place, count = torch.unique(classes, return_inverse=True, return_counts=True)
        sums = torch.zeros((len(count), x.shape[1])).index_add(0, place, x)
        return cls(x, place, sums / count.unsqueeze(1), Catalogue.of(place, torch.zeros_like(place)))

    def mixtures(self, shape: tuple[int, int], generator: Generator) -> Float[Tensor, "B K E"]:
        """Means of classes that do not exist, about as far from the mean of all as those that do."""
        middle = self.means.mean(dim=0)
        pair = torch.randint(len(self.means), (*shape, 2), generator=generator)
        share = torch.randn((*shape, 2, 1), generator=generator)
        return middle + ((self.means[pair] - middle) * normalize(share, dim=2)).sum(dim=2)


def _loaded(names: tuple[EmbeddingName, ...]) -> tuple[Float[Tensor, "M D"], Int[Tensor, " M"]]:
    """Features and classes of one or several files."""
    files = [load_embeddings(name) for name in names]
    x = np.concatenate([each.codes.astype(np.float32) * np.float32(each.scale) for each in files])
    return torch.from_numpy(x), torch.from_numpy(np.concatenate([each.classes for each in files]))


def _roots(x: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """Roots of features that are not negative, of unit length."""
    return normalize(x.sqrt(), dim=1)
