"""The data sets and the published numbers of the ClAM paper (Saha et al., ICML 2023).

Features are standardised and k is the number of classes, as in the paper. Of its ten data sets one,
GCM, is missing here.
"""

import gzip
import os
import tomllib
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.quality.records import Floats, LabelledTable, Labels
from coterie.errors import InputError

_FILES: Final = MappingProxyType(
    {
        "zoo": "zoo",
        "yale": "yale",
        "ecoli": "ecoli",
        "movlib": "movement_libras",
        "micepe": "mice_protein",
        "ctg": "ctg",
        "segment": "segment",
        "usps": "usps_test",
        "fmnist-10k": "fashion_mnist_t10k",
    }
)
_FMNIST: Final = "fmnist"
# Where Debian's package dataset-fashion-mnist puts the files of Fashion-MNIST.
_DEBIAN_FMNIST: Final = Path("/usr/share/datasets/fashion-mnist")

NAMES: Final = (*_FILES, _FMNIST)
"""Names of the data sets, in the order of the work that they make."""


def load(name: str) -> LabelledTable:
    """Load one data set by its name in `NAMES`, standardised."""
    if name == _FMNIST:
        raw, y = _read_fashion_mnist()
    elif name in _FILES:
        raw, y = _read_npz(_data_folder() / "clam" / f"{_FILES[name]}.npz")
    else:
        raise InputError(f"Unknown data set {name!r}. Known are: {', '.join(NAMES)}.")
    # A constant column has no scale; StandardScaler leaves it at zero.
    X: Floats = StandardScaler().fit_transform(raw)
    return LabelledTable(name=name, X=X, y=y, n_clusters=len(np.unique(y)))


@cache
def published() -> dict[str, Any]:
    """Numbers printed in the paper: see `clam_published.toml` for what each table holds."""
    return tomllib.loads(Path(__file__).with_name("clam_published.toml").read_text(encoding="utf-8"))


def _data_folder() -> Path:
    folder = os.environ.get("COTERIE_DATA")
    if not folder:
        raise InputError("The data of this suite are not shipped. Set COTERIE_DATA to the folder that has clam/*.npz.")
    return Path(folder)


def _read_npz(path: Path) -> tuple[Floats, Labels]:
    if not path.is_file():
        raise InputError(f"There is no {path}. Put the data set there, or set COTERIE_DATA to the folder that has it.")
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.int64)


def _read_fashion_mnist() -> tuple[Floats, Labels]:
    """Read the 60,000 training images, in single precision to halve time and memory."""
    own = os.environ.get("COTERIE_DATA")
    folders = [Path(own) / "fashion-mnist"] if own else []
    for folder in (*folders, _DEBIAN_FMNIST):
        images, labels = (folder / f"train-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1"))
        if images.is_file() and labels.is_file():
            X = np.frombuffer(gzip.decompress(images.read_bytes()), dtype=np.uint8, offset=16)
            y = np.frombuffer(gzip.decompress(labels.read_bytes()), dtype=np.uint8, offset=8)
            return X.reshape(len(y), -1).astype(np.float32), y.astype(np.int64)
    raise InputError(
        "Fashion-MNIST was not found. Install Debian's package dataset-fashion-mnist, or put its two "
        "train-*.gz files in a folder fashion-mnist under COTERIE_DATA."
    )
