"""Pictures of AMCP's experiments: which classes are for training and which for the test, and the sets drawn from them.

MNIST's even digits are trained on and the odd ones tested; five classes of CIFAR-10 and the other five; the first
hundred of Tiny-ImageNet and the other hundred, in the order of their WordNet numbers, with 50 pictures of each at hand
instead of 550. All CIFAR-10 is used where the folder has it, and otherwise its 10,000 test pictures.

A tenth of what is for training is held back for choices. Of five classes none can be spared, so that it is a tenth of
each one's pictures, and validation sets are of classes that were trained on; of Tiny-ImageNet's hundred, it is ten
classes.

Letters: M pictures, N pictures of a set, D numbers of a picture, K clusters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeAlias, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator, Tensor

from benchmarks.data.images import Bytes, load_embeddings, load_pictures
from benchmarks.data.tables import data_folder, load_fashion_mnist
from coterie.amortized.tasks.classes import Catalogue, fewest_classes
from coterie.errors import InputError

Collection: TypeAlias = Literal["mnist", "cifar10", "tiny-imagenet", "tiny-imagenet-embedded"]
Part: TypeAlias = Literal["training", "validation", "test"]

TRAINING_CLASSES: Final[dict[Collection, tuple[int, ...]]] = {
    "mnist": (0, 2, 4, 6, 8),
    "cifar10": (0, 2, 4, 6, 8),
    "tiny-imagenet": tuple(range(100)),
    "tiny-imagenet-embedded": tuple(range(100)),
}
"""In the order in which they are left out of smaller trainings, last first. CIFAR-10's are airplane, bird, deer, frog
and ship."""
HOLDS_BACK_CLASSES: Final[frozenset[Collection]] = frozenset({"tiny-imagenet", "tiny-imagenet-embedded"})
"""Those of which whole classes are held back from training, and not some pictures of each."""
HELD_BACK_DIGIT: Final = 9
"""Last digit of the numbers of what is held back: of pictures within their class, or of classes."""
CLUSTERS: Final[dict[Collection, tuple[int, int]]] = {
    "mnist": (2, 5),
    "cifar10": (2, 5),
    "tiny-imagenet": (2, 20),
    "tiny-imagenet-embedded": (2, 20),
}
"""Of a set; of one to train on, there may also be one alone."""
POINTS: Final[dict[Collection, tuple[int, ...]]] = {
    "mnist": (1000, 5000),
    "cifar10": (1000, 5000),
    "tiny-imagenet": (100, 500),
    "tiny-imagenet-embedded": (100, 500),
}
"""Pictures of a test set, as published where there are enough: 20 classes of Tiny-ImageNet have 1000 in all."""
CONCENTRATION: Final = 5.0
"""Of the Dirichlet that shares are from."""
SEEDS: Final[dict[Part, int]] = {"training": 0, "validation": 11, "test": 2020}
"""What sets are drawn with."""
MNIST_FILES: Final = tuple(
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)


@final
@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures of some classes."""

    images: UInt8[Tensor, "M C H W"]
    classes: Int[Tensor, " M"]

    @property
    def n_pictures(self) -> int:
        """M."""
        return len(self.classes)

    def only(self, here: Bool[Tensor, " M"]) -> "Pictures":
        """Some of them."""
        return Pictures(self.images[here], self.classes[here])


@cache
def mnist() -> Pictures:
    """All 70,000 digits, from the four files as they are published, in the folder ``mnist`` of COTERIE_DATA."""
    folder = data_folder("MNIST") / "mnist"
    missing = [name for name in MNIST_FILES if not ((folder / name).exists() or (folder / f"{name}.gz").exists())]
    if missing:
        raise InputError(
            f"There is no {', '.join(f'{name}.gz' for name in missing)} in {str(folder)!r}; put MNIST's four files "
            "there as they are published, packed or not."
        )
    # Fashion-MNIST has the names and the format of MNIST's files, so that what reads the one reads the other.
    (x, y), (more_x, more_y) = load_fashion_mnist(folder, "train"), load_fashion_mnist(folder, "test")
    images = np.concatenate([x, more_x]).reshape(-1, 1, 28, 28)
    return Pictures(torch.from_numpy(images), torch.from_numpy(np.concatenate([y, more_y])))


@cache
def cifar10() -> Pictures:
    """All 60,000 pictures if COTERIE_DATA has ``cifar10.npz``, and otherwise the 10,000 of the test set."""
    path = data_folder("cifar10.npz") / "cifar10.npz"
    if not path.is_file():
        tested = load_pictures("cifar10")
        return Pictures(_channels_first(tested.images), torch.from_numpy(tested.classes))
    with np.load(path, allow_pickle=False) as archive:
        if lacking := {"images", "y"} - set(archive.files):
            raise InputError(f"{path.name} has no array {min(lacking)!r}, only {archive.files}. Make the file again.")
        return Pictures(_channels_first(archive["images"]), torch.from_numpy(archive["y"].astype(np.int64)))


@cache
def tiny_imagenet() -> Pictures:
    """The 10,000 pictures of the validation set, each square of four pixels averaged: 32 by 32."""
    loaded = load_pictures("tiny-imagenet")
    n_pictures, height, width, channels = loaded.images.shape
    squares = loaded.images.reshape(n_pictures, height // 2, 2, width // 2, 2, channels)
    halved = ((squares.sum(axis=(2, 4), dtype=np.uint16) + 2) // 4).astype(np.uint8)
    return Pictures(_channels_first(halved), torch.from_numpy(loaded.classes))


@cache
def tiny_imagenet_embedded() -> Pictures:
    """What a network makes of the same pictures, each feature as a channel of one pixel."""
    loaded = load_embeddings("tiny-imagenet")
    return Pictures(torch.from_numpy(loaded.codes)[:, :, None, None], torch.from_numpy(loaded.classes))


LOADERS: Final[dict[Collection, Callable[[], Pictures]]] = {
    "mnist": mnist,
    "cifar10": cifar10,
    "tiny-imagenet": tiny_imagenet,
    "tiny-imagenet-embedded": tiny_imagenet_embedded,
}


def is_of(collection: Collection, part: Part, classes: Int[Tensor, " M"]) -> Bool[Tensor, " M"]:
    """Which of all pictures of a collection, in their order, belong to a part."""
    trained = torch.isin(classes, torch.tensor(TRAINING_CLASSES[collection]))
    if part == "test":
        return ~trained
    number = classes if collection in HOLDS_BACK_CLASSES else _place_within_class(classes)
    held_back = number % 10 == HELD_BACK_DIGIT
    return trained & (held_back if part == "validation" else ~held_back)


@cache
def pictures(collection: Collection, part: Part) -> Pictures:
    """All pictures of a part."""
    everything = LOADERS[collection]()
    return everything.only(is_of(collection, part, everything.classes))


@final
@dataclass(frozen=True, eq=False)
class HeldOutSet:
    """One set to cluster; its pictures stay where they are until asked for, since a thousand sets would be many."""

    drawn_from: Pictures
    index: Int[Tensor, " N"]
    """Which of those pictures, all different."""
    labels: Int[Tensor, " N"]
    """Cluster of each, 0..K-1, all in use."""

    @property
    def x(self) -> Float[Tensor, "N D"]:
        """The pictures, channels one after the other, from 0 to 1."""
        return self.drawn_from.images[self.index].flatten(1).float() / 255

    @property
    def n_clusters(self) -> int:
        """K."""
        return int(self.labels.max()) + 1


def test_sets(collection: Collection, n_points: int, count: int) -> list[HeldOutSet]:
    """The first so many sets of classes that nothing was trained on, the same whenever they are asked for."""
    return _held_out_sets(collection, "test", n_points, count)


def validation_sets(collection: Collection, n_points: int, count: int) -> list[HeldOutSet]:
    """Such sets of what is held back for choices."""
    return _held_out_sets(collection, "validation", n_points, count)


def _held_out_sets(collection: Collection, part: Part, n_points: int, count: int) -> list[HeldOutSet]:
    shown = pictures(collection, part)
    catalogue = Catalogue.of(shown.classes, torch.zeros_like(shown.classes))
    most = min(CLUSTERS[collection][1], len(catalogue.count))
    least = max(CLUSTERS[collection][0], fewest_classes(catalogue.count, n_points))
    if not least <= most <= n_points:
        raise InputError(
            f"n_points={n_points} cannot be shared out among {CLUSTERS[collection][0]} to {most} classes of the {part} "
            f"part of {collection}, the smallest of which has {int(catalogue.count.min())} pictures; ask for another "
            "number."
        )
    generator = Generator().manual_seed(SEEDS[part])
    return [_one(shown, catalogue, (least, most), n_points, generator) for _ in range(count)]


def _one(
    shown: Pictures, catalogue: Catalogue, clusters: tuple[int, int], n_points: int, generator: Generator
) -> HeldOutSet:
    """A set with a number of clusters that is uniform among those for which any choice of classes has enough."""
    n_clusters = int(torch.randint(clusters[0], clusters[1] + 1, (), generator=generator))
    chosen = torch.randperm(len(catalogue.count), generator=generator)[:n_clusters]
    sizes = _sizes(catalogue.count[chosen], n_points, generator)
    members = [
        catalogue.order[catalogue.start[each] + torch.randperm(int(catalogue.count[each]), generator=generator)[:size]]
        for each, size in zip(chosen.tolist(), sizes.tolist(), strict=True)
    ]
    order = torch.randperm(n_points, generator=generator)
    labels = torch.arange(n_clusters).repeat_interleave(sizes)
    return HeldOutSet(shown, torch.cat(members)[order], labels[order])


def _sizes(available: Int[Tensor, " K"], n_points: int, generator: Generator) -> Int[Tensor, " K"]:
    """At least one of each class, the rest by shares from a Dirichlet; what a class has not got, others give."""
    shares = torch._standard_gamma(torch.full((len(available),), CONCENTRATION), generator=generator)
    sizes = torch.ones_like(available)
    while (left := n_points - int(sizes.sum())) > 0:
        # Whatever a round leaves over was for a class that it used up, so that rounds are fewer than classes.
        weight = (shares + torch.finfo(shares.dtype).tiny) * (sizes < available)
        drawn = torch.multinomial(weight, left, replacement=True, generator=generator)
        sizes = torch.minimum(sizes + torch.bincount(drawn, minlength=len(sizes)), available)
    return sizes


def _place_within_class(classes: Int[Tensor, " M"]) -> Int[Tensor, " M"]:
    """How many pictures of its class come before each."""
    order = classes.argsort(stable=True)
    _, count = torch.unique(classes, return_counts=True)
    place = torch.empty_like(classes)
    place[order] = torch.arange(len(classes)) - (count.cumsum(0) - count).repeat_interleave(count)
    return place


def _channels_first(images: Bytes) -> UInt8[Tensor, "M C H W"]:
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
