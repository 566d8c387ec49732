"""What twin-contrast clustering and its relatives are compared on: images, and embeddings of images.

Of MNIST and Fashion-MNIST these are the 10,000 test images, and of CIFAR-10 too: a scale-down of the 70,000 and 60,000
that are there. What was chosen, was chosen on 10,000 training images of the first two. Embeddings are drawn sets of ten
classes each, from features of a network that was trained to name the classes of ImageNet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.data.images import EmbeddingName, load_embeddings, load_pictures
from benchmarks.data.tables import data_folder, load_fashion_mnist
from benchmarks.quality.amcp_data import mnist
from benchmarks.quality.records import Labels

Collection: TypeAlias = Literal["mnist", "fashion-mnist", "cifar10"]
TEST_IMAGES: Final = 10_000
N_CLASSES: Final = 10
EMBEDDED: Final[dict[str, tuple[EmbeddingName, ...]]] = {
    "cifar100": ("cifar100-train", "cifar100-test"),
    "tiny-imagenet": ("tiny-imagenet",),
}
"""Files of each collection of embeddings."""


@dataclass(frozen=True, eq=False)
class Images:
    """Images of ten classes, as numbers from 0 to 1, channels first."""

    x: Float[Tensor, "N C H W"]
    y: Labels


def _mnist() -> Images:
    everything = mnist()
    return Images(
        everything.images[-TEST_IMAGES:].float() / 255, everything.classes[-TEST_IMAGES:].numpy().astype(np.int64)
    )


def _fashion_mnist() -> Images:
    x, y = load_fashion_mnist(data_folder("Fashion-MNIST") / "fashion-mnist", "test")
    return Images(torch.tensor(x).reshape(-1, 1, 28, 28).float() / 255, y)


def _cifar10() -> Images:
    loaded = load_pictures("cifar10")
    return Images(torch.from_numpy(loaded.images).permute(0, 3, 1, 2).float().contiguous() / 255, loaded.classes)


LOADERS: Final[dict[Collection, Callable[[], Images]]] = {
    "mnist": _mnist,
    "fashion-mnist": _fashion_mnist,
    "cifar10": _cifar10,
}


@cache
def images(collection: Collection) -> Images:
    """The images of a collection."""
    return LOADERS[collection]()


@dataclass(frozen=True, eq=False)
class EmbeddedSet:
    """All rows of ten classes that were drawn."""

    x: Float[Tensor, "N D"]
    y: Labels


def embedded_sets(collection: str, count: int, seed: int) -> list[EmbeddedSet]:
    """So many draws of ten classes of a collection; the first are the same however many there are."""
    files = [load_embeddings(name) for name in EMBEDDED[collection]]
    x = np.concatenate([each.codes.astype(np.float32) * np.float32(each.scale) for each in files])
    classes = np.concatenate([each.classes for each in files])
    source = np.random.default_rng(seed)
    drawn = [source.choice(np.unique(classes), N_CLASSES, replace=False) for _ in range(count)]
    of_each = [np.isin(classes, chosen) for chosen in drawn]
    return [EmbeddedSet(torch.from_numpy(x[these]), classes[these]) for these in of_each]
