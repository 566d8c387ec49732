"""Loading the images and embeddings of benchmarks."""

import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.data import images as module
from benchmarks.data.images import load_embeddings, load_images
from coterie.errors import InputError, MissingExtraError

needs_data = pytest.mark.skipif(
    not os.environ.get("COTERIE_DATA"), reason="COTERIE_DATA, the folder of benchmark data, is not set"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    return tmp_path


def write_jpegs(path: Path) -> None:
    """Write a red image, and a grey one with one channel."""
    files = []
    for colour, mode in (((250, 0, 0), "RGB"), (90, "L")):
        file = BytesIO()
        Image.new(mode, (8, 8), colour).save(file, "JPEG")
        files.append(file.getvalue())
    np.savez(
        path,
        jpeg=np.frombuffer(b"".join(files), dtype=np.uint8),
        offsets=np.cumsum([0, *map(len, files)]),
        y=np.array([1, 0], dtype=np.uint8),
        names=np.array(["grey", "red"]),
    )


def test_jpegs_are_decoded(folder: Path) -> None:
    write_jpegs(folder / "tiny_imagenet_val_jpeg.npz")
    loaded = load_images("tiny-imagenet")
    assert loaded.images.shape == (2, 8, 8, 3)
    assert loaded.images.dtype == np.uint8
    assert np.abs(loaded.images[0].astype(int) - [250, 0, 0]).max() < 8
    assert np.abs(loaded.images[1].astype(int) - 90).max() < 4
    assert [loaded.class_names[label] for label in loaded.classes] == ["red", "grey"]


def test_missing_pillow_raises_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_jpegs(folder / "tiny_imagenet_val_jpeg.npz")

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(module, "import_module", missing)
    with pytest.raises(MissingExtraError, match="pip install pillow"):
        load_images("tiny-imagenet")


def test_embeddings_are_read(folder: Path) -> None:
    codes = np.array([[0, 2], [4, 6]], dtype=np.uint8)
    y = np.array([3, 1], dtype=np.uint8)
    np.savez(folder / "emb_lite0_cifar100_test.npz", Xq=codes, scale=np.float32(0.25), y=y, yc=y + np.uint8(1))
    loaded = load_embeddings("cifar100-test")
    assert (loaded.codes * loaded.scale).tolist() == [[0.0, 0.5], [1.0, 1.5]]
    assert (loaded.classes.tolist(), loaded.groups.tolist()) == ([3, 1], [4, 2])


def test_missing_data_raises_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no images are called 'mnist'; there are .*omniglot"):
        load_images("mnist")
    name: Any = "mnist"
    with pytest.raises(InputError, match=r"no embeddings are called 'mnist'; there are .*tiny-imagenet"):
        load_embeddings(name)
    with pytest.raises(InputError, match=r"no cifar10_test.npz in COTERIE_DATA="):
        load_images("cifar10")
    np.savez(folder / "cifar10_test.npz", images=np.zeros((1, 2, 2, 3), dtype=np.uint8), y=np.zeros(1))
    with pytest.raises(InputError, match=r"cifar10_test.npz has no array 'names'; it has .*images"):
        load_images("cifar10")
    np.savez(folder / "emb_lite0_tinyimagenet_val.npz", Xq=np.zeros((1, 2), dtype=np.uint8), y=np.zeros(1))
    with pytest.raises(InputError, match="no array 'scale'"):
        load_embeddings("tiny-imagenet")
    monkeypatch.delenv("COTERIE_DATA")
    with pytest.raises(InputError, match=r"omniglot28.npz is read from the folder COTERIE_DATA, which is not set"):
        load_images("omniglot")


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "n_classes", "n_groups"),
    [
        ("omniglot", (32460, 28, 28), 1623, 50),
        ("emnist", (44723, 28, 28), 47, 1),
        ("cifar100", (10000, 32, 32, 3), 100, 20),
        ("cifar10", (10000, 32, 32, 3), 10, 1),
        ("tiny-imagenet", (10000, 64, 64, 3), 200, 1),
    ],
)
def test_images_have_the_published_shapes(name: str, shape: tuple[int, ...], n_classes: int, n_groups: int) -> None:
    loaded = load_images(name)
    assert loaded.images.shape == shape
    assert loaded.images.dtype == np.uint8
    assert np.unique(loaded.classes).tolist() == list(range(n_classes))
    assert np.unique(loaded.groups).tolist() == list(range(n_groups))
    assert (len(loaded.class_names), len(loaded.group_names)) == (n_classes, n_groups)
    assert np.unique(loaded.parts).tolist() == list(range(len(loaded.part_names)))
    if name == "omniglot":
        assert [len(np.unique(loaded.classes[loaded.parts == part])) for part in (0, 1)] == [964, 659]
        assert loaded.class_names[0] == "Alphabet_of_the_Magi/01"


@needs_data
@pytest.mark.parametrize("name", ["cifar100-train", "cifar100-test", "tiny-imagenet"])
def test_embeddings_have_the_published_shapes(name: Any) -> None:
    loaded = load_embeddings(name)
    assert loaded.codes.shape == (10000, 1280)
    assert len(np.unique(loaded.classes)) == (200 if name == "tiny-imagenet" else 100)
