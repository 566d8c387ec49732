"""ClAM as it comes against k-means as it comes, both given the number of classes, on real tables.

    python -m benchmarks.quality.tables_suite

All tables of the folders ``tabular`` and ``highdim`` under COTERIE_DATA, standardised. Silhouettes are computed on the
standardised rows (all of them), for both methods alike.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from benchmarks.data.tables import load_benchmark
from benchmarks.quality.records import Experiment, LabelledTable, Labels, Results
from coterie.base import one_thread
from coterie.clam.estimator import ClAM
from coterie.errors import InputError

SUITE: Final = "tables"
DEFAULT_OUT: Final = Path("benchmarks/results/tables.jsonl")
FOLDERS: Final = ("tabular", "highdim")


def names() -> list[str]:
    """Every table of the folders, as ``load_benchmark`` takes it."""
    root = os.environ.get("COTERIE_DATA")
    if not root:
        raise InputError("COTERIE_DATA is not set. Set it to the folder that has the data sets.")
    return [f"{folder}/{path.stem}" for folder in FOLDERS for path in sorted(Path(root, folder).glob("*.npz"))]


def load(name: str) -> LabelledTable:
    """A standardised table."""
    dataset = load_benchmark(name)
    return LabelledTable(name, StandardScaler().fit_transform(dataset.X), dataset.y, len(np.unique(dataset.y)))


def experiments(table: LabelledTable) -> list[Experiment]:
    """Three columns of the comparison."""

    def kmeans(seeds: Sequence[int]) -> list[Labels]:
        return [KMeans(table.n_clusters, n_init=10, random_state=seed).fit(table.X).labels_ for seed in seeds]

    def clam(seeds: Sequence[int]) -> list[Labels]:
        return [ClAM(table.n_clusters, random_state=seed).fit(table.X).labels_ for seed in seeds]

    def clam_standard(seeds: Sequence[int]) -> list[Labels]:
        return [ClAM(table.n_clusters, scaling="standard", random_state=seed).fit(table.X).labels_ for seed in seeds]

    return [
        Experiment("kmeans", {"n_init": 10}, kmeans),
        Experiment("clam", {}, clam),
        Experiment("clam-standard", {"scaling": "standard"}, clam_standard),
    ]


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not in the results file yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args(arguments)
    results = Results(options.out, SUITE, keep_labels=False)
    for name in names():
        table = load(name)
        for experiment in experiments(table):
            for record in results.run(table, experiment):
                print(
                    f"{name:30} {record.method:14} silhouette {record.metrics['silhouette']} "
                    f"ari {record.metrics['ari']:.3f} {record.seconds:.1f} s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
