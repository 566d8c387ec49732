"""Data that clustering without being told k is measured on, and how a partition of it is scored.

Four groups, all under the folder that COTERIE_DATA names:

- ``batteries``: fcps, graves and sipu of Gagolewski's suite, as they are. They are for looking at: nothing is tuned on
  them. A set may have several reference partitions; it is scored against the one that agrees best. Rows that a
  reference calls noise are clustered like all others, but do not count in the score against that reference.
- ``tables`` (the folder ``tabular``) and ``highdim``: real tables, whose classes are the one reference. Peers get
  standardised columns, since most of them need it; ours gets the columns as they are.
- ``embeddings``: features of images by a frozen network, as they are; ten classes drawn by seed 0, with all their rows.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from sklearn.preprocessing import StandardScaler

from benchmarks.data.tables import load_benchmark
from benchmarks.quality.records import Floats, Labels
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index, normalized_mutual_information

GROUPS: Final = ("batteries", "tables", "highdim", "embeddings")
BATTERIES: Final = ("fcps", "graves", "sipu")
BATTERIES_FOLDER: Final = "clustering-data-v1"
EMBEDDINGS_PREFIX: Final = "emb_lite0_"
EMBEDDED_CLASSES: Final = 10
EMBEDDED_SEED: Final = 0
STANDARDISED: Final = ("tables", "highdim")
NOISE: Final = -1


@dataclass(frozen=True)
class Score:
    """Agreement of a partition with the reference that it agrees with best."""

    ari: float
    nmi: float
    k: int
    """Clusters of that reference."""


@dataclass(frozen=True, eq=False)
class BenchmarkSet:
    """Rows to be clustered, and one or more partitions (-1 for noise) that would be right."""

    name: str
    group: str
    X: Floats
    """Columns in the units of the file."""
    references: tuple[Labels, ...]

    @property
    def columns_for_peers(self) -> Floats:
        """What methods get that do not choose a scaling themselves."""
        if self.group in STANDARDISED:
            scaled: Floats = StandardScaler().fit_transform(self.X)
            return scaled
        return self.X

    @property
    def ks(self) -> tuple[int, ...]:
        """Number of clusters of each reference, noise left out."""
        return tuple(len(np.unique(reference[reference != NOISE])) for reference in self.references)

    def score(self, partitions: Sequence[Labels]) -> Score:
        """The best agreement of the partitions, one for each reference, with their references.

        A method that is not told k has the same partition for all; one that is told has the one for that reference's k.
        """
        scores = []
        for reference, k, labels in zip(self.references, self.ks, partitions, strict=True):
            counted = reference != NOISE
            truth, found = reference[counted], labels[counted]
            scores.append(Score(adjusted_rand_index(truth, found), normalized_mutual_information(truth, found), k))
        return max(scores, key=lambda score: score.ari)


def data_folder() -> Path:
    """The folder that COTERIE_DATA names."""
    root = os.environ.get("COTERIE_DATA")
    if not root:
        raise InputError("COTERIE_DATA is not set. Set it to the folder that has the data sets.")
    return Path(root)


def names(group: str) -> list[str]:
    """Every set of a group, such as "fcps/atom", "tabular/wdbc" or "embeddings/cifar100_test"."""
    root = data_folder()
    if group == "batteries":
        paths = (
            path for battery in BATTERIES for path in sorted((root / BATTERIES_FOLDER / battery).glob("*.data.gz"))
        )
        return [f"{path.parent.name}/{path.name.removesuffix('.data.gz')}" for path in paths]
    if group == "embeddings":
        files = sorted(root.glob(f"{EMBEDDINGS_PREFIX}*.npz"))
        return [f"embeddings/{path.stem.removeprefix(EMBEDDINGS_PREFIX)}" for path in files]
    folder = {"tables": "tabular", "highdim": "highdim"}[group]
    return [f"{folder}/{path.stem}" for path in sorted((root / folder).glob("*.npz"))]


@cache
def load(group: str, name: str) -> BenchmarkSet:
    """Read one set of a group; kept, since every method asks for it."""
    if group == "embeddings":
        return _load_embeddings(name)
    dataset = load_benchmark(name)
    references = _all_references(name) if group == "batteries" else (dataset.y,)
    return BenchmarkSet(name, group, dataset.X.astype(np.float64), references)


def _all_references(name: str) -> tuple[Labels, ...]:
    battery, _, stem = name.partition("/")
    paths = sorted((data_folder() / BATTERIES_FOLDER / battery).glob(f"{stem}.labels*.gz"))
    # The suite counts clusters from 1 and calls noise 0.
    return tuple(np.loadtxt(path, dtype=np.int64, ndmin=1) - 1 for path in paths)


def _load_embeddings(name: str) -> BenchmarkSet:
    stem = name.partition("/")[2]
    with np.load(data_folder() / f"{EMBEDDINGS_PREFIX}{stem}.npz", allow_pickle=False) as archive:
        y = archive["y"].astype(np.int64)
        drawn = np.random.default_rng(EMBEDDED_SEED).choice(np.unique(y), EMBEDDED_CLASSES, replace=False)
        rows = np.isin(y, drawn)
        X = archive["Xq"][rows] * np.float64(archive["scale"])
    return BenchmarkSet(name, "embeddings", X, (y[rows],))
