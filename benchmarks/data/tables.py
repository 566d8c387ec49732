"""Benchmark tables, read from the folder that the environment variable COTERIE_DATA names."""

import csv
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import is_numeric_dtype
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import pairwise_distances, silhouette_score
from sklearn.preprocessing import StandardScaler, normalize

from benchmarks.data import data_folder
from benchmarks.data.frames import Rows, encode_frame
from benchmarks.data.images import load_images
from benchmarks.lines import Floats, Labels
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.tables.readers import read_table
from coterie.tables.table import format_list

_NPZ_FOLDERS = ("clam", "tabular", "highdim")
_BATTERIES = "clustering-data-v1"
_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_IDX_UINT8 = b"\x00\x00\x08"
_EMBEDDINGS = "emb_lite0_"
_TEXTS: Final = ("banking77", "bbc", "dblp")
_TEXT_EMBEDDINGS = "emb_minilm_"
_IMAGE_CLASSES: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    "cifar100": ("cifar100_test", (5, 10, 20, 30, 50, 100)),
    "tinyimagenet": ("tinyimagenet_val", (10, 50, 200)),
}
"""File and numbers of classes of each collection of images."""
_DRAWS: Final = (0, 1)  # seeds that classes are sampled by, where not all are taken
_LSA: Final = "lsa-banking77"
_LSA_COLUMNS: Final = 100
_PIXELS: Final[Mapping[str, str]] = {"usps_test": "clam/usps_test", "mnist_t10k": "clam/mnist_t10k"}
_MAX_PIXEL_ROWS: Final = 4_000
_PHOTOS: Final = ("tinyimagenet-10-0", "tinyimagenet-10-1")  # the images of these sets of "image-classes", as pixels
DIRECTIONAL: Final = frozenset({"texts", "image-classes", "other-encoders", "photos"})
"""Groups of wide rows in units of their own, whose directions matter."""
_INDEX = "INDEX.csv"  # describes the tables beside it
_MAX_LEVELS = 50  # of text columns
NOISE: Final = -1


@final
@dataclass(frozen=True, eq=False)
class Dataset:
    """A benchmark: points `X` (n, D), true groups `y` (0..K-1, -1 for noise), and their names and source."""

    X: npt.NDArray[np.floating[Any]]
    y: npt.NDArray[np.int64]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    source: str


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
        raise InputError(
            f"no benchmark is called {name!r} in COTERIE_DATA={folder}; it has {format_list(list(known), 200)}"
        )
    path = known[matches[0]]
    return _from_npz(path, matches[0]) if path.suffix == ".npz" else _from_battery(path, matches[0])


def load_fashion_mnist(
    folder: str | Path = _FASHION_MNIST, part: Literal["train", "test"] = "train"
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Load Fashion-MNIST (or MNIST, whose files have the same names) from its idx files, with or without .gz.

    Parameters
    ----------
    folder : str or Path
        Where the files are; by default, where the Debian package dataset-fashion-mnist puts them.
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
    y = _battery_labels(labels_path)
    names = tuple(f"x{i}" for i in range(X.shape[1]))
    return Dataset(X, y, names, tuple(str(label) for label in sorted(set(y.tolist()) - {-1})), source)


def _battery_labels(path: Path) -> npt.NDArray[np.int64]:
    # Files count groups from 1 and call noise 0.
    return np.loadtxt(path, dtype=np.int64, ndmin=1) - 1


def _read_idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.exists():
        data = plain.read_bytes()
    elif packed.exists():
        data = gzip.decompress(packed.read_bytes())
    else:
        raise InputError(f"there is no {name}(.gz) in {str(folder)!r}; put the file there as it is published")
    n_dimensions = data[3] if len(data) > 3 else 0
    start = 4 + 4 * n_dimensions
    shape = np.frombuffer(data[4:start], dtype=">u4").astype(int)
    if not data.startswith(_IDX_UINT8) or len(data) - start != shape.prod():
        raise InputError(f"{name} in {str(folder)!r} is not a whole idx file of bytes; install it again")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


@dataclass(frozen=True)
class LabelledTable:
    """A table ready to be clustered: standardised features, true labels, number of clusters."""

    name: str
    X: Floats
    y: Labels
    n_clusters: int

    MAX_SILHOUETTE_ROWS = 10_000
    SILHOUETTE_SEED = 0

    @cached_property
    def silhouette_rows(self) -> Labels:
        """Rows that silhouettes are computed on: all, or a fixed sample of a large table."""
        n = len(self.X)
        if n <= self.MAX_SILHOUETTE_ROWS:
            return np.arange(n)
        sample = np.random.default_rng(self.SILHOUETTE_SEED).choice(n, self.MAX_SILHOUETTE_ROWS, replace=False)
        return np.sort(sample)

    @cached_property
    def silhouette_distances(self) -> Floats:
        """Euclidean distances between those rows, computed once for all partitions."""
        distances: Floats = pairwise_distances(self.X[self.silhouette_rows])
        return distances

    @property
    def silhouette_settings(self) -> dict[str, int]:
        """What is recorded about the sample; empty without one."""
        sampled = len(self.X) > self.MAX_SILHOUETTE_ROWS
        settings = {"silhouette_rows": self.MAX_SILHOUETTE_ROWS, "silhouette_seed": self.SILHOUETTE_SEED}
        return settings if sampled else {}

    def silhouette(self, labels: Labels) -> float | None:
        """Mean silhouette; None where it is undefined (one cluster, or each row its own)."""
        sampled = labels[self.silhouette_rows]
        if not 2 <= len(np.unique(sampled)) < len(sampled):
            return None
        return float(silhouette_score(self.silhouette_distances, sampled, metric="precomputed"))

    def metrics(self, labels: Labels) -> dict[str, float | int | None]:
        """All scores of a partition; empty clusters do not count in `n_clusters`."""
        members = (self.X[labels == label] for label in np.unique(labels))
        scores = {
            "silhouette": self.silhouette(labels),
            "nmi": normalized_mutual_information(self.y, labels),
            "ari": adjusted_rand_index(self.y, labels),
            "acc": matched_accuracy(self.y, labels),
            "inertia": float(sum(np.square(rows - rows.mean(axis=0)).sum() for rows in members)),
        }
        rounded = {name: None if score is None else round(score, 6) for name, score in scores.items()}
        return {**rounded, "n_clusters": len(np.unique(labels))}


@cache
def load_table(name: str) -> LabelledTable:
    """Load a standardised table: "clam/zoo", "tabular/wdbc", or "fashion-mnist" for its 60,000 training images."""
    if name == "fashion-mnist":
        own = data_folder("Fashion-MNIST") / name
        X, labels = load_fashion_mnist(own if own.is_dir() else _FASHION_MNIST)
        raw: Floats = X.astype(np.float32)  # single precision halves time and memory
    else:
        dataset = load_benchmark(name)
        raw, labels = dataset.X, dataset.y
        if name.startswith("clam/"):
            raw = raw.astype(np.float64)
    # A constant column has no scale; StandardScaler leaves it at zero.
    return LabelledTable(name, StandardScaler().fit_transform(raw), labels, len(np.unique(labels)))


def table_names(*folders: str) -> list[str]:
    """Every table of some folders, as `load_table` takes it."""
    root = data_folder("the tables")
    return [f"{folder}/{path.stem}" for folder in folders for path in sorted((root / folder).glob("*.npz"))]


@dataclass(frozen=True)
class Agreement:
    """Agreement of a partition with the reference partition that it agrees with best."""

    ari: float
    nmi: float
    k: int  # clusters of that reference


@dataclass(frozen=True, eq=False)
class ReferenceSet:
    """Rows to be clustered, and one or more partitions (-1 for noise) that are correct."""

    name: str
    group: str
    X: Rows  # columns in the units of the file; a frame if there are categories or gaps
    references: tuple[Labels, ...]

    @property
    def scaled(self) -> Floats:
        """What methods get that do not scale columns themselves: encoded or standardised tables, all else as it is."""
        if isinstance(self.X, pd.DataFrame):
            return encode_frame(self.X)
        if self.group in {"tables", "highdim"}:
            scaled: Floats = StandardScaler().fit_transform(self.X)
            return scaled
        return self.X

    @property
    def metric(self) -> Literal["cosine", "euclidean"]:
        """How to find the row that is nearest to another one."""
        return "cosine" if self.group in DIRECTIONAL else "euclidean"

    @property
    def ks(self) -> tuple[int, ...]:
        """Number of clusters of each reference, without noise."""
        return tuple(len(np.unique(reference[reference != NOISE])) for reference in self.references)

    def agreement(self, partitions: Sequence[Labels]) -> Agreement:
        """Compare each partition with its reference, and return the best agreement.

        A method that is not given k has the same partition for all references. Rows that a reference calls noise are
        clustered like all others, but do not count against that reference.
        """
        scores = []
        for reference, k, labels in zip(self.references, self.ks, partitions, strict=True):
            counted = reference != NOISE
            truth, found = reference[counted], labels[counted]
            scores.append(Agreement(adjusted_rand_index(truth, found), normalized_mutual_information(truth, found), k))
        return max(scores, key=lambda score: score.ari)


def reference_set_names(group: str, batteries: Sequence[str] = ()) -> list[str]:
    """Every set of a group, such as "fcps/atom", "tabular/wdbc", "texts/bbc" or "image-classes/cifar100-10-0"."""
    root = data_folder(f"the group {group!r}")
    if group in DIRECTIONAL:
        return [f"{group}/{name}" for name in _NAMES[group]()]
    if group == "batteries":
        paths = (path for name in batteries for path in sorted((root / _BATTERIES / name).glob("*.data.gz")))
        return [f"{path.parent.name}/{path.name.removesuffix('.data.gz')}" for path in paths]
    if group == "embeddings":
        return [f"embeddings/{p.stem.removeprefix(_EMBEDDINGS)}" for p in sorted(root.glob(f"{_EMBEDDINGS}*.npz"))]
    if group == "mixed":
        return [f"mixed/{path.stem}" for path in sorted((root / group).glob("*.csv")) if path.name != _INDEX]
    return table_names({"tables": "tabular", "highdim": "highdim"}[group])


@cache
def load_reference_set(group: str, name: str, n_classes: int = 10, seed: int = 0) -> ReferenceSet:
    """Load one set of a group; of "embeddings", that many classes sampled by the seed, with all their rows."""
    folder, _, stem = name.partition("/")
    if group in DIRECTIONAL:
        X, y = _LOADERS[group](stem)
        return ReferenceSet(name, group, X.astype(np.float32, copy=False), (y,))
    if group == "embeddings":
        X, y = _sample_classes(stem, n_classes, seed)
        return ReferenceSet(name, group, X, (y,))
    if group == "mixed":
        return _read_mixed(data_folder(name) / f"{name}.csv", name)
    dataset = load_benchmark(name)
    references: tuple[Labels, ...] = (dataset.y,)
    if group == "batteries":
        paths = sorted((data_folder(name) / _BATTERIES / folder).glob(f"{stem}.labels*.gz"))
        references = tuple(_battery_labels(path) for path in paths)
    return ReferenceSet(name, group, dataset.X.astype(np.float64), references)


def _sample_classes(stem: str, n_classes: int, seed: int) -> tuple[Floats, Labels]:
    """Read all rows of that many classes of embedded images."""
    with np.load(data_folder(stem) / f"{_EMBEDDINGS}{stem}.npz", allow_pickle=False) as archive:
        y = archive["y"].astype(np.int64)
        chosen = np.random.default_rng(seed).choice(np.unique(y), n_classes, replace=False)
        rows = np.isin(y, chosen)
        return archive["Xq"][rows] * np.float64(archive["scale"]), y[rows]


def _image_class_names() -> Iterator[str]:
    """Name collections with the numbers of classes and the seeds that sample them, such as "cifar100-10-0"."""
    for name, (stem, numbers) in _IMAGE_CLASSES.items():
        with np.load(data_folder(name) / f"{_EMBEDDINGS}{stem}.npz", allow_pickle=False) as archive:
            available = len(np.unique(archive["y"]))
        for number in numbers:
            if number <= available:
                yield from (f"{name}-{number}-{draw}" for draw in (_DRAWS if number < available else _DRAWS[:1]))


def _load_texts(name: str) -> tuple[Floats, Labels]:
    """Read embedded texts."""
    with np.load(data_folder(name) / f"{_TEXT_EMBEDDINGS}{name}.npz", allow_pickle=False) as archive:
        return archive["X"], archive["y"].astype(np.int64)


def _load_image_classes(name: str) -> tuple[Floats, Labels]:
    collection, number, draw = name.rsplit("-", 2)
    return _sample_classes(_IMAGE_CLASSES[collection][0], int(number), int(draw))


def _load_other_encoders(name: str) -> tuple[Floats, Labels]:
    """Embed texts by latent semantic analysis, or read pixels."""
    if name == _LSA:
        with gzip.open(data_folder(name) / "banking77_test.csv.gz", "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        counts = TfidfVectorizer().fit_transform([row["text"] for row in rows])
        X: Floats = normalize(TruncatedSVD(_LSA_COLUMNS, random_state=0).fit_transform(counts))
        return X, np.unique([row["category"] for row in rows], return_inverse=True)[1].astype(np.int64)
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, y.astype(np.int64)
    dataset = load_benchmark(_PIXELS[name])
    return dataset.X[:_MAX_PIXEL_ROWS], dataset.y[:_MAX_PIXEL_ROWS]


def _load_photos(name: str) -> tuple[Floats, Labels]:
    """Read the pixels of images of some classes, in rows of height, width and colour."""
    _, number, draw = name.rsplit("-", 2)
    images = load_images("tiny-imagenet")
    chosen = np.random.default_rng(int(draw)).choice(np.unique(images.classes), int(number), replace=False)
    rows = np.isin(images.classes, chosen)
    return images.images[rows].reshape(int(rows.sum()), -1).astype(np.float32), images.classes[rows]


_NAMES: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    "texts": lambda: _TEXTS,
    "image-classes": _image_class_names,
    "other-encoders": lambda: (_LSA, "digits", *_PIXELS),
    "photos": lambda: _PHOTOS,
}
"""Names of the sets of these groups."""
_LOADERS: Final[Mapping[str, Callable[[str], tuple[Floats, Labels]]]] = {
    "texts": _load_texts,
    "image-classes": _load_image_classes,
    "other-encoders": _load_other_encoders,
    "photos": _load_photos,
}
"""From the name of a set of these groups to rows and labels."""


def _read_mixed(path: Path, name: str) -> ReferenceSet:
    """Read a table with text columns and gaps as the command does; the last column has the classes.

    Text columns with many levels, such as names, are left out for all methods: ours asks for it.
    """
    table = read_table(path)
    frame = pd.DataFrame({column: pd.Series(table.column(i)) for i, column in enumerate(table.names)})
    # The reader may take a class such as "-" for a gap.
    classes = pd.factorize(frame.pop(table.names[-1]), use_na_sentinel=False)[0]
    names = [column for column in frame if is_numeric_dtype(frame[column]) or frame[column].nunique() <= _MAX_LEVELS]
    return ReferenceSet(name, "mixed", frame[names], (classes,))
