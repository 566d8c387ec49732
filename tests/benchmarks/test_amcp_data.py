"""Pictures of unseen classes: files are read, parts share no picture, sets are as they should be, baselines work."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.data.images import PictureSet
from benchmarks.quality import amcp_data
from benchmarks.quality.amcp_baselines import BASELINES, principal_components, solver
from benchmarks.quality.amcp_data import (
    LOADERS,
    MNIST_FILES,
    POINTS,
    TRAINING_CLASSES,
    Collection,
    Part,
    Pictures,
    is_of,
    pictures,
    validation_sets,
)
from coterie.errors import InputError
from coterie.metrics import matched_accuracy

PARTS: tuple[Part, ...] = ("training", "validation", "test")
MEMBERS = 60
needs_data = pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="COTERIE_DATA, the folder of benchmark data, is not set"
)


def pretended(n_classes: int, members: int = MEMBERS, shape: tuple[int, int, int] = (1, 6, 6)) -> Pictures:
    """Classes that are easy to tell apart, their pictures mixed."""
    source = np.random.default_rng(0)
    classes = source.permutation(np.repeat(np.arange(n_classes), members))
    centres = source.integers(0, 200, (n_classes, *shape))
    images = centres[classes] + source.integers(0, 50, (len(classes), *shape))
    return Pictures(torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(classes))


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    digits, things = pretended(10), pretended(200, members=10)
    features = pretended(200, members=10, shape=(12, 1, 1))
    pretend = {
        "mnist": lambda: digits,
        "cifar10": lambda: digits,
        "tiny-imagenet": lambda: things,
        "tiny-imagenet-embedded": lambda: features,
    }
    monkeypatch.setattr(amcp_data, "LOADERS", pretend)
    pictures.cache_clear()
    yield
    pictures.cache_clear()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty folder of data."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    for load in (amcp_data.mnist, amcp_data.cifar10, amcp_data.tiny_imagenet):
        load.cache_clear()
    yield tmp_path
    for load in (amcp_data.mnist, amcp_data.cifar10, amcp_data.tiny_imagenet):
        load.cache_clear()


@pytest.mark.parametrize("collection", LOADERS)
def test_parts_share_no_picture_and_leave_none_out(collection: Collection) -> None:
    n_classes = 2 * len(TRAINING_CLASSES[collection])
    classes = torch.arange(n_classes).repeat(20)
    training, validation, test = (is_of(collection, part, classes) for part in PARTS)
    assert torch.stack([training, validation, test]).sum(dim=0).eq(1).all()
    assert int(test.sum()) == len(classes) // 2
    assert int(validation.sum()) == len(classes) // 20
    shared = set(classes[training].tolist()) & set(classes[validation].tolist())
    assert shared == (set(TRAINING_CLASSES[collection]) if n_classes == 10 else set())


def test_test_classes_are_those_that_were_published() -> None:
    assert torch.arange(10)[is_of("mnist", "test", torch.arange(10))].tolist() == [1, 3, 5, 7, 9]
    assert torch.arange(200)[is_of("tiny-imagenet", "test", torch.arange(200))].tolist() == list(range(100, 200))


@pytest.mark.usefixtures("in_memory")
def test_held_out_sets_are_without_repetition_and_the_same_however_many_are_drawn() -> None:
    few, many = amcp_data.test_sets("mnist", 100, 3), amcp_data.test_sets("mnist", 100, 60)
    assert all(torch.equal(one.index, other.index) for one, other in zip(few, many, strict=False))
    assert {one.n_clusters for one in many} == {2, 3, 4, 5}
    for one in many:
        assert one.x.shape == (100, 36)
        assert one.x.dtype == torch.float32
        assert 0 <= float(one.x.min()) <= float(one.x.max()) <= 1
        assert len(torch.unique(one.index)) == 100
        assert one.labels.bincount().gt(0).all()
        classes = one.drawn_from.classes[one.index]
        assert set(classes.tolist()) <= {1, 3, 5, 7, 9}
        pairs = torch.stack([classes, one.labels], dim=1)
        assert len(torch.unique(pairs, dim=0)) == len(torch.unique(classes)) == one.n_clusters


@pytest.mark.usefixtures("in_memory")
def test_classes_that_are_small_leave_only_sets_of_many() -> None:
    assert {one.n_clusters for one in amcp_data.test_sets("mnist", 200, 40)} == {4, 5}
    whole = amcp_data.test_sets("mnist", 300, 2)
    assert all(one.labels.bincount().tolist() == [MEMBERS] * 5 for one in whole)
    for refused in (301, 4):
        with pytest.raises(InputError, match=f"n_points={refused} .* 60 pictures"):
            amcp_data.test_sets("mnist", refused, 1)
    assert {one.n_clusters for one in amcp_data.test_sets("tiny-imagenet", 100, 60)} >= {10, 20}


@pytest.mark.usefixtures("in_memory")
def test_validation_sets_are_of_what_is_held_back() -> None:
    for one in validation_sets("mnist", 20, 5):
        assert set(one.drawn_from.classes.tolist()) == {0, 2, 4, 6, 8}
        assert one.drawn_from.n_pictures == 5 * MEMBERS // 10
    for one in validation_sets("tiny-imagenet", 50, 5):
        assert set(one.drawn_from.classes.tolist()) == set(range(9, 100, 10))


@pytest.mark.usefixtures("in_memory")
@pytest.mark.parametrize("method", BASELINES)
def test_baselines_find_what_is_easy_to_find(method: str) -> None:
    for settings in BASELINES[method]:
        solve = solver(method, settings)
        for one in amcp_data.test_sets("mnist", 100, 3):
            labels = solve(one)
            assert torch.equal(labels, solve(one))
            assert len(torch.unique(labels)) == one.n_clusters
            assert matched_accuracy(one.labels.numpy(), labels.numpy()) > 0.9


@pytest.mark.usefixtures("in_memory")
def test_components_are_no_more_than_there_are() -> None:
    one = amcp_data.test_sets("mnist", 20, 1)[0]
    assert principal_components(one, 50).shape == (20, 20)
    assert principal_components(one, 7).shape == (20, 7)
    with pytest.raises(InputError, match="Unknown baseline 'dbscan'"):
        solver("dbscan", {})


def write_mnist(folder: Path, counts: tuple[int, int]) -> None:
    """Files such as MNIST's, pictures of which have their label in each pixel."""
    folder.mkdir()
    for part, count in zip(("train", "t10k"), counts, strict=True):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = np.broadcast_to(labels[:, None, None], (count, 28, 28))
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes()
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))


def test_both_parts_of_mnist_are_read(folder: Path) -> None:
    write_mnist(folder / "mnist", (30, 20))
    loaded = amcp_data.mnist()
    assert loaded.images.shape == (50, 1, 28, 28)
    assert torch.equal(loaded.images[:, 0, 3, 5].long(), loaded.classes)
    assert loaded.classes[30:].tolist() == [*range(10), *range(10)]


def test_missing_files_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError) as refused:
        amcp_data.mnist()
    assert all(f"{name}.gz" in str(refused.value) for name in MNIST_FILES)
    write_mnist(folder / "mnist", (10, 10))
    (folder / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(InputError, match=r"There is no t10k-labels-idx1-ubyte\.gz in"):
        amcp_data.mnist()
    with pytest.raises(InputError, match=r"cifar10_test\.npz"):
        amcp_data.cifar10()
    monkeypatch.delenv("COTERIE_DATA")
    with pytest.raises(InputError, match="COTERIE_DATA, which is not set"):
        amcp_data.mnist()


def test_all_of_cifar10_comes_before_its_test_set(folder: Path) -> None:
    names, y = np.array(list("abcdefghij")), np.arange(10, dtype=np.uint8)
    images = np.arange(10 * 32 * 32 * 3).reshape(10, 32, 32, 3).astype(np.uint8)
    np.savez(folder / "cifar10_test.npz", images=images, y=y, names=names)
    assert amcp_data.cifar10().n_pictures == 10
    amcp_data.cifar10.cache_clear()
    np.savez(folder / "cifar10.npz", images=np.concatenate([images, images]), y=np.concatenate([y, y]))
    loaded = amcp_data.cifar10()
    assert loaded.n_pictures == 20
    assert loaded.images.shape == (20, 3, 32, 32)
    assert loaded.images[3, :, 4, 5].tolist() == images[3, 4, 5].tolist()
    amcp_data.cifar10.cache_clear()
    np.savez(folder / "cifar10.npz", images=images)
    with pytest.raises(InputError, match=r"cifar10\.npz has no array 'y'"):
        amcp_data.cifar10()


def test_tiny_imagenet_is_halved(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    images = np.zeros((1, 64, 64, 3), dtype=np.uint8)
    images[0, 2:4, 6:8, 1] = [[255, 255], [255, 252]]
    nothing = np.zeros(1, dtype=np.int64)
    one = PictureSet(images, nothing, nothing, nothing, ("a",), ("all",), ("test",), str(folder))
    monkeypatch.setattr(amcp_data, "load_pictures", lambda _: one)
    halved = amcp_data.tiny_imagenet().images
    assert halved.shape == (1, 3, 32, 32)
    assert int(halved[0, 1, 1, 3]) == 254
    assert int(halved.sum()) == 254


@needs_data
@pytest.mark.parametrize(
    ("collection", "n_pictures", "n_numbers"),
    [
        ("mnist", {70_000}, 784),
        ("cifar10", {10_000, 60_000}, 3072),
        ("tiny-imagenet", {10_000}, 3072),
        ("tiny-imagenet-embedded", {10_000}, 1280),
    ],
)
def test_published_pictures(collection: Collection, n_pictures: set[int], n_numbers: int) -> None:
    try:
        everything = LOADERS[collection]()
    except InputError as absent:
        pytest.skip(str(absent))
    assert everything.n_pictures in n_pictures
    for n_points in POINTS[collection]:
        one = amcp_data.test_sets(collection, n_points, 1)[0]
        assert one.x.shape == (n_points, n_numbers)
        assert len(torch.unique(one.index)) == n_points
