"""Sets of embedded images: classes are split by the last digit of their number, so that each part has all kinds.

Features are those of a network that was trained to classify ImageNet, whose classes include those of Tiny-ImageNet.

Letters: M images, D features, E features after preparation, B sets, N images of a set, K clusters, C classes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.data.image_sets import FeatureSet, Part
from benchmarks.data.images import EmbeddingName, load_embeddings
from coterie.amortized.tasks.classes import Catalogue, Instances
from coterie.nn.model import TaskBatch

FILES: Final[Mapping[str, tuple[EmbeddingName, ...]]] = {
    "tiny-imagenet": ("tiny-imagenet",),
    "cifar100": ("cifar100-train", "cifar100-test"),
}
LAST_DIGITS: Final[Mapping[Part, tuple[int, ...]]] = {
    "training": (0, 1, 2, 3, 4, 5),
    "validation": (6,),
    "test": (7, 8, 9),
}
WIDTH: Final = 128  # E
WHITENING: Final = 0.25
"""Power of the variance that a coordinate is divided by: 0 leaves coordinates as they are, 0.5 whitens them."""


@dataclass(frozen=True, eq=False)
class Preparation:
    """A fixed map from features to fewer features on a sphere."""

    mean: Float[Tensor, " D"]
    directions: Float[Tensor, "D E"]

    @classmethod
    def of(cls, x: Float[Tensor, "M D"]) -> "Preparation":
        """Partially whitened principal directions of the square roots of features."""
        roots = _roots(x).double()
        mean = roots.mean(dim=0)
        variance, directions = torch.linalg.eigh((roots - mean).T.cov())
        largest = slice(-WIDTH, None)
        return cls(mean.float(), (directions[:, largest] / variance[largest] ** WHITENING).flip(1).float())

    def __call__(self, x: Float[Tensor, "M D"]) -> Float[Tensor, "M E"]:
        """Project unit square roots, normalise, and scale to a mean square of one."""
        projected: Tensor = (_roots(x) - self.mean) @ self.directions
        return normalize(projected, dim=1) * math.sqrt(projected.shape[1])


def _roots(x: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """Square roots of non-negative features, at unit length."""
    return normalize(x.sqrt(), dim=1)


@dataclass(frozen=True, eq=False)
class Features:
    """All images of a collection."""

    raw: Float[Tensor, "M D"]
    prepared: Float[Tensor, "M E"]
    classes: Int[Tensor, " M"]

    def of(self, *parts: Part) -> Bool[Tensor, " M"]:
        """Which images are in classes of these parts."""
        return _in_parts(self.classes, *parts)


def _in_parts(classes: Int[Tensor, " M"], *parts: Part) -> Bool[Tensor, " M"]:
    return torch.isin(classes % 10, torch.tensor([digit for part in parts for digit in LAST_DIGITS[part]]))


@cache
def load_features(collection: str) -> tuple[Float[Tensor, "M D"], Int[Tensor, " M"]]:
    """Load features and classes of one or several files."""
    files = [load_embeddings(name) for name in FILES[collection]]
    x = np.concatenate([each.codes.astype(np.float32) * np.float32(each.scale) for each in files])
    return torch.from_numpy(x), torch.from_numpy(np.concatenate([each.classes for each in files]))


@cache
def features() -> dict[str, Features]:
    """Load both collections, with a preparation that is fitted to the training classes of both."""
    loaded = {collection: load_features(collection) for collection in FILES}
    preparation = Preparation.of(torch.cat([x[_in_parts(y, "training")] for x, y in loaded.values()]))
    return {collection: Features(x, preparation(x), y) for collection, (x, y) in loaded.items()}


@dataclass(frozen=True, eq=False)
class EmbeddedSet:
    """One set to cluster, with raw and prepared features."""

    raw: Float[Tensor, "N D"]
    prepared: Float[Tensor, "N E"]
    labels: Int[Tensor, " N"]

    @property
    def n_clusters(self) -> int:
        """K."""
        return int(self.labels.max()) + 1


def embedded_sets(
    collection: str, part: Part, count: int, *, points: Sequence[int], clusters: Sequence[int], seed: int
) -> list[EmbeddedSet]:
    """Sample sets of a part; the first do not depend on how many there are."""
    every = features()[collection]
    used = every.of(part)
    classes = every.classes[used]
    catalogue = Catalogue.of(classes, torch.zeros_like(classes))
    most = min(clusters[1], len(catalogue.count))
    instances = Instances((points[0], points[1]), (clusters[0], most), "composition", 1.0)
    raw, prepared, generator = every.raw[used], every.prepared[used], Generator().manual_seed(seed)
    samples = (instances.sample(catalogue, 1, generator) for _ in range(count))
    return [EmbeddedSet(raw[one.index[0]], prepared[one.index[0]], one.labels[0]) for one in samples]


def sets_of_ten_classes(collection: str, count: int, seed: int) -> list[FeatureSet]:
    """Sample ten classes of a collection, with all their rows, as often as asked."""
    x, classes = load_features(collection)
    rng = np.random.default_rng(seed)
    sampled = [rng.choice(np.unique(classes.numpy()), 10, replace=False) for _ in range(count)]
    members = [torch.isin(classes, torch.from_numpy(chosen)) for chosen in sampled]
    return [FeatureSet(x[these], classes[these]) for these in members]


@final
@dataclass(frozen=True, eq=False)
class EmbeddingTrainingTasks:
    """Sets of training classes, each from one collection, some of them with artificial class means.

    There are few classes, and a network that memorises them is of no use for others. So in some sets the members of a
    class keep their differences from its mean, but the mean becomes a random mixture of the means of two other classes.
    Noise is added to all features.
    """

    instances: Instances
    parts: tuple[Part, ...] = ("training",)
    moved: float = 0.5  # fraction of the sets with artificial means
    noise: float = 0.3  # standard deviation of the noise; features have a mean square of one
    _classes: tuple["_Classes", ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        kept = tuple(
            _Classes.of(each.prepared[used], each.classes[used])
            for each in features().values()
            for used in [each.of(*self.parts)]
        )
        object.__setattr__(self, "_classes", kept)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Sample sets, all from one collection."""
        classes = self._classes[int(torch.randint(len(self._classes), (), generator=generator))]
        sample = self.instances.sample(classes.catalogue, batch_size, generator)
        x = classes.x[sample.index]
        means = classes.mixtures((batch_size, int(sample.labels.max()) + 1), generator)
        own = classes.means[classes.number[sample.index]]
        changed = x - own + means[torch.arange(batch_size)[:, None], sample.labels]
        is_moved = torch.rand((batch_size, 1, 1), generator=generator) < self.moved
        x = torch.where(is_moved, changed, x) + self.noise * torch.randn(x.shape, generator=generator)
        return TaskBatch(x, sample.labels, torch.ones_like(sample.labels, dtype=torch.bool))


@dataclass(frozen=True, eq=False)
class _Classes:
    """Images with their classes and the means of these."""

    x: Float[Tensor, "M E"]
    number: Int[Tensor, " M"]  # class of each, 0..C-1
    means: Float[Tensor, "C E"]
    catalogue: Catalogue

    @classmethod
    def of(cls, x: Float[Tensor, "M E"], classes: Int[Tensor, " M"]) -> "_Classes":
        _, number, count = torch.unique(classes, return_inverse=True, return_counts=True)
        sums = torch.zeros((len(count), x.shape[1])).index_add(0, number, x)
        return cls(x, number, sums / count.unsqueeze(1), Catalogue.of(number, torch.zeros_like(number)))

    def mixtures(self, shape: tuple[int, int], generator: Generator) -> Float[Tensor, "B K E"]:
        """Sample artificial class means, about as far from the overall mean as real ones."""
        middle = self.means.mean(dim=0)
        pair = torch.randint(len(self.means), (*shape, 2), generator=generator)
        weight = torch.randn((*shape, 2, 1), generator=generator)
        return middle + ((self.means[pair] - middle) * normalize(weight, dim=2)).sum(dim=2)
