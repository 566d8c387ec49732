"""Labelled images, and embeddings of images, read from the folder COTERIE_DATA."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from benchmarks.data import data_folder
from coterie.errors import InputError, MissingExtraError
from coterie.tables.table import format_list

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]

EmbeddingName = Literal["cifar100-train", "cifar100-test", "tiny-imagenet"]
"""Files of embeddings: 100 training images of each class of CIFAR-100, and two test sets."""

_EMBEDDING_FILES: dict[EmbeddingName, str] = {
    "cifar100-train": "emb_lite0_cifar100_train100.npz",
    "cifar100-test": "emb_lite0_cifar100_test.npz",
    "tiny-imagenet": "emb_lite0_tinyimagenet_val.npz",
}


@final
@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images of one size with their classes; each class belongs to a group."""

    images: Bytes  # shape (n, H, W), or (n, H, W, 3) in colour
    classes: Numbers  # class of each, 0..C-1
    groups: Numbers  # group of each, 0..G-1: an alphabet, a coarse class; 0 where there are no groups
    parts: Numbers  # part of the data that each belongs to, an index of the part names
    class_names: tuple[str, ...]
    group_names: tuple[str, ...]
    part_names: tuple[str, ...]
    source: str  # the file


@final
@dataclass(frozen=True, eq=False)
class EmbeddingSet:
    """Features (n, D) of images, ``codes * scale``, stored as bytes, with class and group of each."""

    codes: Bytes
    scale: float
    classes: Numbers
    groups: Numbers
    source: str


def load_images(name: str) -> LabelledImages:
    """Load images from the folder that the environment variable COTERIE_DATA names.

    Parameters
    ----------
    name : {"omniglot", "emnist", "cifar100", "cifar10", "tiny-imagenet"}
        Groups are Omniglot's alphabets and the twenty coarse classes of CIFAR-100. Parts are Omniglot's "background"
        and "evaluation"; the others have one, "test".

    Raises
    ------
    InputError
        If there is no such set, COTERIE_DATA is not set, or the file is missing or lacks an array.
    MissingExtraError
        If images are JPEG files ("tiny-imagenet") and Pillow is not installed.
    """
    if name not in _IMAGE_FILES:
        raise InputError(f"no images are called {name!r}; there are {format_list(list(_IMAGE_FILES))}")
    file, read = _IMAGE_FILES[name]
    arrays = _arrays(file)
    try:
        return read(arrays, file)
    except KeyError as error:
        raise InputError(
            f"{file} has no array {error}; it has {format_list(list(arrays))}. Get the file again"
        ) from error


def load_embeddings(name: EmbeddingName) -> EmbeddingSet:
    """Load features of images from the folder that the environment variable COTERIE_DATA names.

    Parameters
    ----------
    name : {"cifar100-train", "cifar100-test", "tiny-imagenet"}
        Which images. Groups are the twenty coarse classes of CIFAR-100; Tiny-ImageNet has none.

    Raises
    ------
    InputError
        If there is no such set, COTERIE_DATA is not set, or the file is missing or lacks an array.
    """
    if name not in _EMBEDDING_FILES:
        raise InputError(f"no embeddings are called {name!r}; there are {format_list(list(_EMBEDDING_FILES))}")
    file = _EMBEDDING_FILES[name]
    arrays = _arrays(file)
    if missing := {"Xq", "scale", "y"} - set(arrays):
        raise InputError(
            f"{file} has no array {min(missing)!r}; it has {format_list(list(arrays))}. Get the file again"
        )
    classes = arrays["y"].astype(np.int64)
    groups = arrays["yc"].astype(np.int64) if "yc" in arrays else np.zeros_like(classes)
    return EmbeddingSet(arrays["Xq"], float(arrays["scale"]), classes, groups, file)


def _arrays(file: str) -> Arrays:
    """Read all arrays of a file in the folder."""
    folder = data_folder(file)
    if not (folder / file).is_file():
        raise InputError(f"there is no {file} in COTERIE_DATA={folder}; put it there, or name another folder")
    with np.load(folder / file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _omniglot(arrays: Arrays, source: str) -> LabelledImages:
    alphabets = tuple(map(str, arrays["alphabet_names"]))
    classes, groups = arrays["character"].astype(np.int64), arrays["alphabet"].astype(np.int64)
    _, first = np.unique(classes, return_index=True)
    names = [f"{alphabets[groups[i]]}/{arrays['char_in_alphabet'][i]:02d}" for i in first]
    parts = arrays["split"].astype(np.int64)
    return LabelledImages(
        arrays["images"], classes, groups, parts, tuple(names), alphabets, ("background", "evaluation"), source
    )


def _emnist(arrays: Arrays, source: str) -> LabelledImages:
    return _test_images(arrays["images"], arrays["y"], arrays["classes"], source)


def _cifar10(arrays: Arrays, source: str) -> LabelledImages:
    return _test_images(arrays["images"], arrays["y"], arrays["names"], source)


def _cifar100(arrays: Arrays, source: str) -> LabelledImages:
    coarse = arrays["y_coarse"].astype(np.int64), tuple(map(str, arrays["coarse_names"]))
    return _test_images(arrays["images"], arrays["y"], arrays["fine_names"], source, coarse)


def _tiny_imagenet(arrays: Arrays, source: str) -> LabelledImages:
    offsets, packed = arrays["offsets"], arrays["jpeg"]
    decoder = _jpeg_decoder()
    images = [decoder(packed[start:end].tobytes()) for start, end in pairwise(offsets)]
    return _test_images(np.stack(images), arrays["y"], arrays["names"], source)


def _test_images(
    images: Bytes,
    classes: npt.NDArray[Any],
    names: npt.NDArray[Any],
    source: str,
    coarse: tuple[Numbers, tuple[str, ...]] | None = None,
) -> LabelledImages:
    """Make a set whose images all belong to one part."""
    zeros = np.zeros(len(classes), dtype=np.int64)
    groups, group_names = coarse or (zeros, ("all",))
    return LabelledImages(
        images, classes.astype(np.int64), groups, zeros, tuple(map(str, names)), group_names, ("test",), source
    )


def _jpeg_decoder() -> Callable[[bytes], Bytes]:
    """Return the function that decodes a JPEG file to RGB; grey images get three equal channels."""
    try:
        pillow = import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise MissingExtraError("JPEG images need Pillow, which is not installed; pip install pillow") from error

    def decode(data: bytes) -> Bytes:
        with pillow.open(BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))

    return decode


_IMAGE_FILES: dict[str, tuple[str, Callable[[Arrays, str], LabelledImages]]] = {
    "omniglot": ("omniglot28.npz", _omniglot),
    "emnist": ("emnist47_cap1000.npz", _emnist),
    "cifar100": ("cifar100_test.npz", _cifar100),
    "cifar10": ("cifar10_test.npz", _cifar10),
    "tiny-imagenet": ("tiny_imagenet_val_jpeg.npz", _tiny_imagenet),
}
