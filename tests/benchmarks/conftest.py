"""A folder like COTERIE_DATA with tiny random files, for smoke tests of the suites."""

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

Array = npt.NDArray[np.generic]


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a tiny file of every kind that suites read."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    _write_tables(folder, rng)
    _write_idx(folder / "mnist", rng, ("train", "t10k"))
    _write_idx(folder / "fashion-mnist", rng, ("train", "t10k"))
    _write_images(folder, rng)
    for name, n_classes in (("cifar100_train100", 20), ("cifar100_test", 20), ("tinyimagenet_val", 200)):
        y = np.repeat(np.arange(n_classes), 20)
        codes = rng.integers(0, 256, (len(y), 160), dtype=np.uint8)
        np.savez(folder / f"emb_lite0_{name}.npz", Xq=codes, scale=np.float32(0.01), y=y)
    _write_texts(folder, rng)
    return folder


def _write_texts(folder: Path, rng: np.random.Generator) -> None:
    y = np.repeat(np.arange(3), 20)
    X = rng.normal(size=(60, 40)) + 2.0 * rng.normal(size=(3, 40))[y]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for name in ("banking77", "bbc", "dblp"):
        np.savez(folder / f"emb_minilm_{name}.npz", X=X.astype(np.float16), y=y.astype(np.int16))
    with gzip.open(folder / "banking77_test.csv.gz", "wt", encoding="utf-8") as file:
        texts = (" ".join(f"word{word}" for word in rng.integers(200, size=8)) for _ in y)
        file.write(
            "\n".join(["text,category", *(f'"{text}, please",{group}' for text, group in zip(texts, y, strict=True))])
        )


def _write_tables(folder: Path, rng: np.random.Generator) -> None:
    y = np.repeat(np.arange(3), 10)
    X = rng.normal(size=(30, 4)) + 5.0 * y[:, None]
    files = ("zoo", "yale", "ecoli", "movement_libras", "mice_protein", "ctg", "segment", "usps_test", "mnist_t10k")
    for group, names in (("clam", (*files, "fashion_mnist_t10k")), ("tabular", ("tiny",)), ("highdim", ("wide",))):
        (folder / group).mkdir(parents=True)
        for name in names:
            np.savez(folder / group / f"{name}.npz", X=X, y=y)
    (folder / "mixed").mkdir()
    rows = [
        f"{value:.2f},{'' if number % 5 == 0 else 'ab'[number % 2]},{y[number]}" for number, value in enumerate(X[:, 0])
    ]
    (folder / "mixed" / "tiny.csv").write_text("\n".join(["size,colour,class", *rows]))
    battery = folder / "clustering-data-v1" / "fcps"
    battery.mkdir(parents=True)
    with gzip.open(battery / "tiny.data.gz", "wt") as file:
        np.savetxt(file, X)
    with gzip.open(battery / "tiny.labels0.gz", "wt") as file:
        np.savetxt(file, y + 1, fmt="%d")


def _write_idx(folder: Path, rng: np.random.Generator, parts: tuple[str, ...]) -> None:
    folder.mkdir()
    for part in parts:
        y = np.tile(np.arange(10, dtype=np.uint8), 200 if part == "train" else 20)
        images = rng.integers(0, 256, (len(y), 28, 28), dtype=np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", y)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (folder / f"{part}-{name}-ubyte").write_bytes(header + array.tobytes())


def _write_images(folder: Path, rng: np.random.Generator) -> None:
    def images(count: int, *shape: int) -> Array:
        return rng.integers(0, 256, (count, *shape), dtype=np.uint8)

    ten, hundred = np.repeat(np.arange(10), 20), np.repeat(np.arange(100), 4)
    names = np.array([str(number) for number in range(100)])
    np.savez(folder / "emnist47_cap1000.npz", images=images(200, 28, 28), y=ten, classes=names[:10])
    np.savez(folder / "cifar10_test.npz", images=images(200, 32, 32, 3), y=ten, names=names[:10])
    coarse: dict[str, Any] = {"y_coarse": hundred // 5, "coarse_names": names[:20], "fine_names": names}
    np.savez(folder / "cifar100_test.npz", images=images(400, 32, 32, 3), y=hundred, **coarse)
    packed = []
    for image in images(20, 64, 64, 3):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG")
        packed.append(np.frombuffer(buffer.getvalue(), dtype=np.uint8))
    offsets = np.cumsum([0, *map(len, packed)])
    jpeg: dict[str, Any] = {"jpeg": np.concatenate(packed), "offsets": offsets, "names": names[:10]}
    np.savez(folder / "tiny_imagenet_val_jpeg.npz", y=np.repeat(np.arange(10), 2), **jpeg)
    # The held-out alphabets of the shipped weights, one that is trained on, and one of the evaluation part.
    held_out = ["Balinese", "Early_Aramaic", "Inuktitut_(Canadian_Aboriginal_Syllabics)", "Mkhedruli_(Georgian)"]
    alphabets = [*held_out, "Tifinagh", "Latin", "Tengwar"]
    character = np.repeat(np.arange(8 * len(alphabets)), 16)
    alphabet = character // 8
    np.savez(
        folder / "omniglot28.npz",
        images=images(len(character), 28, 28),
        character=character,
        alphabet=alphabet,
        alphabet_names=np.array(alphabets),
        char_in_alphabet=character % 8,
        split=(alphabet == len(alphabets) - 1).astype(np.int64),
    )
