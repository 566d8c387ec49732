"""Sets of images of classes that nothing was trained on: how collections are split, and how sets are sampled.

Letters: M images, N images of a set, D numbers of an image, K clusters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Generator, Tensor

from benchmarks.data import data_folder
from benchmarks.data.images import Bytes, load_embeddings, load_images
from benchmarks.data.tables import load_fashion_mnist
from benchmarks.data.tasks import select_names
from coterie.amortized.tasks.classes import Catalogue, Distortion, ImageTasks, Instances, fewest_classes
from coterie.amortized.tasks.synthetic import sample_set_size
from coterie.errors import InputError
from coterie.nn.model import TaskBatch

Part: TypeAlias = Literal["training", "validation", "test"]
SPLIT_SEED: Final = 0


@final
@dataclass(frozen=True, eq=False)
class Images:
    """Images with their classes."""

    images: UInt8[Tensor, "M C H W"]
    classes: Int[Tensor, " M"]

    def where(self, here: Bool[Tensor, " M"]) -> "Images":
        """Return some of them."""
        return Images(self.images[here], self.classes[here])


@final
@dataclass(frozen=True, eq=False)
class ImageSet:
    """One set to cluster; pixels are copied only when needed, since a thousand sets would not fit into memory."""

    source: UInt8[Tensor, "M C H W"]
    index: Int[Tensor, " N"]
    labels: Int[Tensor, " N"]  # cluster of each, 0..K-1, none empty

    @property
    def x(self) -> Float[Tensor, "N D"]:
        """Flat images in [0, 1]."""
        return self.source[self.index].flatten(1).float() / 255

    @property
    def n_clusters(self) -> int:
        """K."""
        return int(self.labels.max()) + 1


def channels_first(images: Bytes) -> UInt8[Tensor, "M C H W"]:
    """Return colour images as tensors."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def rank_within_class(classes: Int[Tensor, " M"]) -> Int[Tensor, " M"]:
    """Count the images of the same class before each image."""
    order = classes.argsort(stable=True)
    _, count = torch.unique(classes, return_counts=True)
    rank = torch.empty_like(classes)
    rank[order] = torch.arange(len(classes)) - (count.cumsum(0) - count).repeat_interleave(count)
    return rank


def mirror_half(images: UInt8[Tensor, "M C H W"], generator: Generator) -> UInt8[Tensor, "M C H W"]:
    """Mirror each image with probability one half."""
    mirrored = torch.rand((len(images), 1, 1, 1), generator=generator) < 0.5
    return torch.where(mirrored, images.flip(3), images)


# CIFAR-100, for ABC. The last ten classes are for the test, as published; of the others every tenth is for validation.

CIFAR_IMAGE: Final = (3, 32, 32)
CIFAR_DISTORTION: Final = Distortion(max_degrees=10.0, max_stretch=0.1, max_shift=0.1)


@cache
def cifar100(part: Part) -> Images:
    """Load the images of one part of CIFAR-100, 100 of each class."""
    loaded = load_images("cifar100")
    classes = torch.from_numpy(loaded.classes)
    test, validation = classes >= 90, classes % 10 == 5
    here = test if part == "test" else ~test & (validation if part == "validation" else ~validation)
    return Images(channels_first(loaded.images), classes).where(here)


def cifar100_tasks(instances: Instances) -> ImageTasks:
    """Sample training sets, each image distorted and perhaps mirrored whenever it is sampled."""
    shown = cifar100("training")
    return ImageTasks(
        shown.images,
        shown.classes,
        torch.zeros_like(shown.classes),
        instances.points,
        instances.clusters,
        instances.sizes,
        instances.concentration,
        max_degrees=CIFAR_DISTORTION.max_degrees,
        max_stretch=CIFAR_DISTORTION.max_stretch,
        max_shift=CIFAR_DISTORTION.max_shift,
        mirrored=True,
    )


def cifar100_augment(images: UInt8[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
    """Distort images as in the training sets."""
    return CIFAR_DISTORTION.apply(mirror_half(images, generator).float() / 255, generator)


def cifar100_sets(part: Part, instances: Instances, count: int, seed: int) -> list[ImageSet]:
    """Sample sets by ABC's Algorithm 1; the first do not depend on how many there are."""
    shown = cifar100(part)
    catalogue = Catalogue.of(shown.classes, torch.zeros_like(shown.classes))
    instances.check(catalogue)
    generator = Generator().manual_seed(seed)
    samples = (instances.sample(catalogue, 1, generator) for _ in range(count))
    return [ImageSet(shown.images, sample.index[0], sample.labels[0]) for sample in samples]


# EMNIST, for DAC. All classes are in all parts, as published; of every ten images of a class, 7 are for training.

EMNIST_PARTS: Final[tuple[Part, ...]] = ("training", "validation", "test")
EMNIST_PART_OF_RANK: Final = (0, 0, 0, 1, 2, 0, 0, 0, 0, 2)
UNDISTORTED: Final = Distortion()


@final
@dataclass(frozen=True, eq=False)
class FeatureSet:
    """One set of features to cluster."""

    x: Float[Tensor, "N D"]
    labels: Int[Tensor, " N"]

    @property
    def n_clusters(self) -> int:
        """Clusters that have at least one element."""
        return len(torch.unique(self.labels))


@cache
def emnist(part: Part) -> Images:
    """Load the characters of one part."""
    loaded = load_images("emnist")
    classes = torch.from_numpy(loaded.classes)
    part_of = torch.tensor(EMNIST_PART_OF_RANK)[rank_within_class(classes) % 10]
    return Images(torch.from_numpy(loaded.images).unsqueeze(1), classes).where(part_of == EMNIST_PARTS.index(part))


def emnist_tasks(
    part: Part, points: tuple[int, int], max_clusters: int, distortion: Distortion = UNDISTORTED
) -> ImageTasks:
    """Sample sets as DAC does, pixels binarised anew each time; classes with too few images repeat some."""
    shown = emnist(part)
    return ImageTasks(
        shown.images,
        shown.classes,
        torch.zeros_like(shown.classes),
        points=points,
        clusters=(1, max_clusters),
        sizes="dirichlet",
        concentration=5.0,
        binarised=True,
        max_degrees=distortion.max_degrees,
        max_stretch=distortion.max_stretch,
        max_shift=distortion.max_shift,
    )


def emnist_sets(part: Part, max_points: int, max_clusters: int, count: int) -> list[FeatureSet]:
    """Sample sets of a part; each has three tenths of the largest number of images at least, as published."""
    generator = Generator().manual_seed(EMNIST_PARTS.index(part))
    sets = []
    for _ in range(count):
        n_points = sample_set_size(max_points, generator)
        batch = emnist_tasks(part, (n_points, n_points), max_clusters).sample(1, generator)
        sets.append(FeatureSet(batch.x[0], batch.labels[0]))
    return sets


def emnist_validation(points: int, max_clusters: int, count: int) -> list[TaskBatch]:
    """Sample batches of ten validation sets, for the loss."""
    generator = Generator().manual_seed(EMNIST_PARTS.index("validation"))
    sampler = emnist_tasks("validation", (points, points), max_clusters)
    return [sampler.sample(10, generator) for _ in range(count)]


# Omniglot, for ABC and DAC.

OmniglotTask: TypeAlias = Literal["varying", "fixed", "whole"]
"""Sets of 100 images of 5 to 47 characters, of 20 characters, and all images of an alphabet."""
OMNIGLOT_POINTS: Final = (100, 100)
OMNIGLOT_CLUSTERS: Final = (5, 47)
OMNIGLOT_FIXED: Final = 20


@final
@dataclass(frozen=True, eq=False)
class Alphabet:
    """All images of the characters of one alphabet."""

    name: str
    number: int  # index among all fifty
    images: UInt8[Tensor, "M 1 H W"]
    labels: Int[Tensor, " M"]  # character of each, 0..C-1

    @property
    def n_classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    @property
    def pixels(self) -> Float[Tensor, "M D"]:
        """Flat images in [0, 1]."""
        return self.images.flatten(1).float() / 255


def alphabets(part: Literal["background", "evaluation"], only: Sequence[str] = ()) -> list[Alphabet]:
    """Load the alphabets of a part, all of them or those named."""
    loaded = load_images("omniglot")
    of_part = np.unique(loaded.groups[loaded.parts == loaded.part_names.index(part)])
    found = []
    for name in select_names([loaded.group_names[group] for group in of_part], only, ()):
        number = loaded.group_names.index(name)
        here = loaded.groups == number
        _, labels = np.unique(loaded.classes[here], return_inverse=True)
        found.append(
            Alphabet(name, number, torch.from_numpy(loaded.images[here]).unsqueeze(1), torch.from_numpy(labels))
        )
    return found


@final
@dataclass(frozen=True, eq=False)
class CharacterSet:
    """Some images of an alphabet."""

    index: Int[Tensor, " N"]
    labels: Int[Tensor, " N"]
    n_clusters: int


def character_sets(alphabet: Alphabet, task: str, n_sets: int, seed: int) -> list[CharacterSet]:
    """Sample sets of an alphabet by ABC's Algorithm 1, or return all its images as one set."""
    if task == "whole":
        return [CharacterSet(torch.arange(len(alphabet.labels)), alphabet.labels, alphabet.n_classes)]
    fixed = min(OMNIGLOT_FIXED, alphabet.n_classes)
    clusters = OMNIGLOT_CLUSTERS if task == "varying" else (fixed, fixed)
    instances = Instances(OMNIGLOT_POINTS, clusters, "composition", 1.0)
    catalogue = Catalogue.of(alphabet.labels, torch.zeros_like(alphabet.labels))
    instances.check(catalogue)
    sample = instances.sample(catalogue, n_sets, Generator().manual_seed(seed + alphabet.number))
    pairs = zip(sample.index, sample.labels, strict=True)
    return [CharacterSet(index, labels, int(labels.max()) + 1) for index, labels in pairs]


# MNIST, CIFAR-10 and Tiny-ImageNet, for AMCP. Half of the classes are for training and half for the test. A tenth of
# what is for training is held out for choices: of five classes none can be spared, so that it is a tenth of each one's
# images, and validation sets are of training classes; of Tiny-ImageNet's hundred it is ten classes.

HALF_OF_TEN: Final = (0, 2, 4, 6, 8)
"""Training classes in the order in which smaller trainings use them: even digits; airplane, bird, deer, frog, ship."""
HOLDS_OUT_CLASSES: Final = frozenset({"tiny-imagenet", "tiny-imagenet-embedded"})
MNIST_FILES: Final = tuple(
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
SIZES_CONCENTRATION: Final = 5.0  # of the Dirichlet distribution of cluster sizes
AMCP_SEEDS: Final[dict[Part, int]] = {"validation": 11, "test": 2020}


def training_classes(collection: str) -> tuple[int, ...]:
    """Return the classes of a collection that may be trained on."""
    return tuple(range(100)) if collection in HOLDS_OUT_CLASSES else HALF_OF_TEN


@cache
def mnist() -> Images:
    """Load all 70,000 digits from the four published files, in the folder ``mnist`` of COTERIE_DATA."""
    folder = data_folder("MNIST") / "mnist"
    missing = [name for name in MNIST_FILES if not ((folder / name).exists() or (folder / f"{name}.gz").exists())]
    if missing:
        names = ", ".join(f"{name}.gz" for name in missing)
        raise InputError(f"There is no {names} in {str(folder)!r}; put MNIST's four files there as they are published.")
    (x, y), (more_x, more_y) = load_fashion_mnist(folder, "train"), load_fashion_mnist(folder, "test")
    images = np.concatenate([x, more_x]).reshape(-1, 1, 28, 28)
    return Images(torch.from_numpy(images), torch.from_numpy(np.concatenate([y, more_y])))


@cache
def cifar10() -> Images:
    """Load all 60,000 images if COTERIE_DATA has ``cifar10.npz``, and otherwise the 10,000 of the test set."""
    path = data_folder("cifar10.npz") / "cifar10.npz"
    if not path.is_file():
        loaded = load_images("cifar10")
        return Images(channels_first(loaded.images), torch.from_numpy(loaded.classes))
    with np.load(path, allow_pickle=False) as archive:
        if lacking := {"images", "y"} - set(archive.files):
            raise InputError(f"{path.name} has no array {min(lacking)!r}, only {archive.files}. Make the file again.")
        return Images(channels_first(archive["images"]), torch.from_numpy(archive["y"].astype(np.int64)))


@cache
def tiny_imagenet() -> Images:
    """Load the 10,000 validation images, each square of four pixels averaged: 32 by 32."""
    loaded = load_images("tiny-imagenet")
    n_images, height, width, channels = loaded.images.shape
    squares = loaded.images.reshape(n_images, height // 2, 2, width // 2, 2, channels)
    halved = ((squares.sum(axis=(2, 4), dtype=np.uint16) + 2) // 4).astype(np.uint8)
    return Images(channels_first(halved), torch.from_numpy(loaded.classes))


@cache
def tiny_imagenet_embedded() -> Images:
    """Load embeddings of the same images, each feature as a channel of one pixel."""
    loaded = load_embeddings("tiny-imagenet")
    return Images(torch.from_numpy(loaded.codes)[:, :, None, None], torch.from_numpy(loaded.classes))


COLLECTIONS: Final[dict[str, Callable[[], Images]]] = {
    "mnist": mnist,
    "cifar10": cifar10,
    "tiny-imagenet": tiny_imagenet,
    "tiny-imagenet-embedded": tiny_imagenet_embedded,
}


@cache
def images_of(collection: str, part: Part) -> Images:
    """Load the images of one part of a collection."""
    everything = COLLECTIONS[collection]()
    classes = everything.classes
    trained = torch.isin(classes, torch.tensor(training_classes(collection)))
    if part == "test":
        return everything.where(~trained)
    number = classes if collection in HOLDS_OUT_CLASSES else rank_within_class(classes)
    held_out = number % 10 == 9
    return everything.where(trained & (held_out if part == "validation" else ~held_out))


def image_sets(collection: str, part: Part, n_points: int, count: int, clusters: Sequence[int]) -> list[ImageSet]:
    """Sample sets of a part, the same whenever they are sampled; `clusters` are the smallest and largest K."""
    shown = images_of(collection, part)
    catalogue = Catalogue.of(shown.classes, torch.zeros_like(shown.classes))
    most = min(clusters[1], len(catalogue.count))
    least = max(clusters[0], fewest_classes(catalogue.count, n_points))
    if not least <= most <= n_points:
        raise InputError(
            f"n_points={n_points} cannot be divided among {clusters[0]} to {most} classes of the {part} part of "
            f"{collection}, the smallest of which has {int(catalogue.count.min())} images; choose another number."
        )
    generator = Generator().manual_seed(AMCP_SEEDS[part])
    return [_image_set(shown, catalogue, (least, most), n_points, generator) for _ in range(count)]


def _image_set(
    shown: Images, catalogue: Catalogue, clusters: tuple[int, int], n_points: int, generator: Generator
) -> ImageSet:
    n_clusters = int(torch.randint(clusters[0], clusters[1] + 1, (), generator=generator))
    classes = torch.randperm(len(catalogue.count), generator=generator)[:n_clusters]
    sizes = _cluster_sizes(catalogue.count[classes], n_points, generator)
    members = [
        catalogue.order[catalogue.start[each] + torch.randperm(int(catalogue.count[each]), generator=generator)[:size]]
        for each, size in zip(classes.tolist(), sizes.tolist(), strict=True)
    ]
    order = torch.randperm(n_points, generator=generator)
    labels = torch.arange(n_clusters).repeat_interleave(sizes)
    return ImageSet(shown.images, torch.cat(members)[order], labels[order])


def _cluster_sizes(available: Int[Tensor, " K"], n_points: int, generator: Generator) -> Int[Tensor, " K"]:
    """Sample sizes of at least one, the rest by Dirichlet proportions; what a class lacks, others supply."""
    proportions = torch._standard_gamma(torch.full((len(available),), SIZES_CONCENTRATION), generator=generator)
    sizes = torch.ones_like(available)
    while (left := n_points - int(sizes.sum())) > 0:
        # What a round leaves over was for a class that it used up, so that there are fewer rounds than classes.
        weight = (proportions + torch.finfo(proportions.dtype).tiny) * (sizes < available)
        sampled = torch.multinomial(weight, left, replacement=True, generator=generator)
        sizes = torch.minimum(sizes + torch.bincount(sampled, minlength=len(sizes)), available)
    return sizes


# Training classes of AMCP's networks. Five classes are too few to learn what makes a class: a network memorises them.
# So images are composed of two halves, each of a class as it is or rotated by 90 degrees to either side: fifteen kinds
# of halves make 225 classes. An encoder learns to classify those made of an upper and a lower half; the clustering
# network is trained on classes that the encoder has not seen either, made of a left and a right half. No half is
# rotated by 180 degrees: a six would become a nine, which is a test class.

ROTATIONS: Final = (0, 1, 3)  # quarter turns of a half
COMPOSED_PER_CLASS: Final = 200
CALIBRATION_EVERY: Final = 10  # one class in ten is kept for calibration
COMPOSED_DISTORTION: Final = Distortion(max_degrees=10.0, max_stretch=0.1, max_shift=0.05)


@final
@dataclass(frozen=True, eq=False)
class TrainingImages:
    """Images of classes that are not those of the test: for the encoder, for the network, and for its calibration."""

    encoder: Images
    network: Images
    calibration: Images


@cache
def training_images(collection: str, n_classes: int | None = None) -> TrainingImages:
    """Compose training classes from the first training classes of a collection, all by default."""
    shown = images_of(collection, "training")
    available = [number for number in training_classes(collection) if bool((shown.classes == number).any())]
    if n_classes is not None and not 2 <= n_classes <= len(available):
        raise InputError(f"n_classes={n_classes} must be from 2 to {len(available)}, which {collection} trains on.")
    used = available[:n_classes]
    if collection in HOLDS_OUT_CLASSES:
        first, second = (shown.where(torch.isin(shown.classes, torch.tensor(used[start::2]))) for start in (0, 1))
    else:
        first, second = (_compose(shown, used, side_by_side=side_by_side) for side_by_side in (False, True))
    number = torch.unique(second.classes, return_inverse=True)[1]
    kept = number % CALIBRATION_EVERY == CALIBRATION_EVERY - 1
    return TrainingImages(first, second.where(~kept), second.where(kept))


def _compose(shown: Images, classes: list[int], *, side_by_side: bool) -> Images:
    """Compose images of two halves: left and right, of different kinds, or upper and lower, whole images included."""
    generator = Generator().manual_seed(SPLIT_SEED)
    kinds = list(product(classes, ROTATIONS))
    composed = []
    for first, second in product(kinds, kinds):
        if first == second and side_by_side:
            continue  # a whole image, which the encoder is trained on
        ones = _rotated(shown, first, generator)
        others = ones if first == second else _rotated(shown, second, generator)
        axis = 3 if side_by_side else 2
        middle = ones.shape[axis] // 2
        halves = (ones.narrow(axis, 0, middle), others.narrow(axis, middle, ones.shape[axis] - middle))
        composed.append(torch.cat(halves, dim=axis))
    return Images(torch.cat(composed), torch.arange(len(composed)).repeat_interleave(COMPOSED_PER_CLASS))


def _rotated(shown: Images, kind: tuple[int, int], generator: Generator) -> UInt8[Tensor, "M C H W"]:
    number, quarters = kind
    members = (shown.classes == number).nonzero().squeeze(1)
    sample = members[torch.randint(len(members), (COMPOSED_PER_CLASS,), generator=generator)]
    return shown.images[sample].rot90(quarters, (2, 3))


def composed_augment(images: UInt8[Tensor, "M C H W"], generator: Generator) -> Float[Tensor, "M C H W"]:
    """Distort images a little; colour images are mirrored with probability one half."""
    if images.shape[1] > 1:
        images = mirror_half(images, generator)
    return COMPOSED_DISTORTION.apply(images.float() / 255, generator)


# Test images of ten classes, for TCC: 10,000 of 70,000 or 60,000, a scale-down.


@final
@dataclass(frozen=True, eq=False)
class PixelImages:
    """Images of ten classes in [0, 1], channels first."""

    x: Float[Tensor, "N C H W"]
    y: Any

    @property
    def bytes(self) -> Bytes:
        """Images as users have them: bytes, channels last if there are several."""
        pixels: Bytes = (self.x * 255).round().byte().permute(0, 2, 3, 1).numpy()
        return pixels if pixels.shape[3] > 1 else pixels[..., 0]


@cache
def test_images(collection: str) -> PixelImages:
    """Load the test images of mnist, fashion-mnist or cifar10."""
    if collection == "mnist":
        everything, n_test = mnist(), 10_000
        return PixelImages(everything.images[-n_test:].float() / 255, everything.classes[-n_test:].numpy())
    if collection == "fashion-mnist":
        x, y = load_fashion_mnist(data_folder("Fashion-MNIST") / "fashion-mnist", "test")
        return PixelImages(torch.tensor(x).reshape(-1, 1, 28, 28).float() / 255, y)
    loaded = load_images("cifar10")
    return PixelImages(torch.from_numpy(loaded.images).permute(0, 3, 1, 2).float().contiguous() / 255, loaded.classes)
