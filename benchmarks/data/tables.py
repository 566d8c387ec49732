"""Benchmark tables, read from the folder COTERIE_DATA."""

import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError
from coterie.tables.table import listed

_NPZ_FOLDERS = ("clam", "tabular", "highdim")
_BATTERIES = "clustering-data-v1"
_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_IDX_UINT8 = b"\x00\x00\x08"


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """A benchmark: points `X` (n, D), known groups `y` (0..K-1, -1 for noise), and where it came from."""

    X: npt.NDArray[np.floating[Any]]
    y: npt.NDArray[np.int64]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    source: str


def data_folder(wanted: str) -> Path:
    """Return the folder that COTERIE_DATA names; what is wanted from it is said if there is none."""
    folder = os.environ.get("COTERIE_DATA")
    if not folder:
        raise InputError(f"{wanted} is looked for in the folder COTERIE_DATA, which is not set")
    return Path(folder)


def load_benchmark(name: str) -> Dataset:
    """Load a benchmark from the folder that the environment variable COTERIE_DATA names.

    Parameters
    ----------
    name : str
        Such as "zoo", or with its folder, "tabular/segment" or "fcps/atom", where two have the same name.

    Returns
    -------
    Dataset
        Of `clam/<name>.npz`, `tabular/<name>.npz`, `highdim/<name>.npz`, or
        `clustering-data-v1/<battery>/<name>.data.gz` with its first labels, whichever comes first.

    Raises
    ------
    InputError
        When COTERIE_DATA is not set, or has no such file.
    """
    folder = data_folder(f"the benchmark {name!r}")
    known = dict(_benchmarks(folder))
    matches = [key for key in known if name in {key, key.partition("/")[2]}]
    if not matches:
        raise InputError(f"no benchmark is called {name!r} in COTERIE_DATA={folder}; it has {listed(list(known), 200)}")
    path = known[matches[0]]
    return _from_npz(path, matches[0]) if path.suffix == ".npz" else _from_battery(path, matches[0])


def load_fashion_mnist(
    folder: str | Path = _FASHION_MNIST, part: Literal["train", "test"] = "train"
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Load Fashion-MNIST from its idx files, as in the Debian package dataset-fashion-mnist.

    Parameters
    ----------
    folder : str or Path
        Where the files are, with or without .gz.
    part : {"train", "test"}
        60,000 or 10,000 images.

    Returns
    -------
    X : array (n, 784) of uint8
    y : array (n,) of int64
    """
    prefix = {"train": "train", "test": "t10k"}[part]
    images = _read_idx(Path(folder), f"{prefix}-images-idx3-ubyte")
    labels = _read_idx(Path(folder), f"{prefix}-labels-idx1-ubyte")
    return images.reshape(len(images), -1), labels.astype(np.int64)


def _benchmarks(folder: Path) -> Iterator[tuple[str, Path]]:
    for group in _NPZ_FOLDERS:
        for path in sorted((folder / group).glob("*.npz")):
            yield f"{group}/{path.stem}", path
    for path in sorted((folder / _BATTERIES).glob("*/*.data.gz")):
        yield f"{path.parent.name}/{path.name.removesuffix('.data.gz')}", path


def _from_npz(path: Path, source: str) -> Dataset:
    with np.load(path, allow_pickle=False) as archive:
        X, y = archive["X"], archive["y"].astype(np.int64)
        given_names = archive["feature_names"].tolist() if "feature_names" in archive else None
        classes = archive["classes"].tolist() if "classes" in archive else sorted(set(y.tolist()))
    X = X if X.dtype == np.float64 else X.astype(np.float32)
    names = given_names or [f"x{i}" for i in range(X.shape[1])]
    return Dataset(X, y, tuple(names), tuple(map(str, classes)), source)


def _from_battery(path: Path, source: str) -> Dataset:
    X = np.loadtxt(path, ndmin=2)
    labels_path = path.with_name(path.name.replace(".data.gz", ".labels0.gz"))
    if not labels_path.exists():
        raise InputError(f"{source} has no labels; {labels_path.name} is missing beside {path.name}")
    # The suite counts groups from 1 and calls noise 0.
    y = np.loadtxt(labels_path, dtype=np.int64, ndmin=1) - 1
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    return Dataset(X, y, names, tuple(str(label) for label in sorted(set(y.tolist()) - {-1})), source)


def _read_idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.exists():
        data = plain.read_bytes()
    elif packed.exists():
        data = gzip.decompress(packed.read_bytes())
    else:
        raise InputError(f"there is no {name}(.gz) in {str(folder)!r}; apt-get install dataset-fashion-mnist")
    n_dimensions = data[3] if len(data) > 3 else 0
    start = 4 + 4 * n_dimensions
    shape = np.frombuffer(data[4:start], dtype=">u4").astype(int)
    if not data.startswith(_IDX_UINT8) or len(data) - start != shape.prod():
        raise InputError(f"{name} in {str(folder)!r} is not a whole idx file of bytes; install it again")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
