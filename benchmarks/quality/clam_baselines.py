"""The baselines of the ClAM paper's Tables 1 and 9, run again.

    python -m benchmarks.quality.clam_baselines --data zoo,yale --out results.jsonl

What is in the results file already is not run again. At the end the best silhouette of each method is printed
beside the published one.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.baselines import dec
from benchmarks.quality import baselines, clam_data
from benchmarks.quality.records import Experiment, LabelledTable, Record, Results, best_record, read_records
from coterie.errors import InputError

SUITE: Final = "clam-baselines"
METHODS: Final = ("kmeans", "agglomerative", "dec", "dec-random", "spectral")
DEFAULT_OUT: Final = Path("benchmarks/results/clam_baselines.jsonl")


@dataclass(frozen=True)
class Effort:
    """How much of the paper's search is made on one data set, and what is left out for which reason."""

    kmeans_n_init: int = 1000
    kmeans_seeds: Sequence[int] = range(5)
    spectral_n_init: int = 50
    eigen_solver: str = "arpack"
    gammas: Sequence[float] = baselines.GAMMAS
    dec_seeds: Sequence[int] = range(10)
    dec_max_iter: int = 20_000
    not_run: dict[str, str] = field(default_factory=dict)


FULL_EFFORT: Final = Effort()
OTHER_EFFORTS: Final = {
    # A thousand starts do not find the least inertia here, so the result depends on the seed.
    "yale": Effort(kmeans_seeds=range(20)),
    "movlib": Effort(kmeans_seeds=range(20)),
    "usps": Effort(kmeans_seeds=range(2), dec_seeds=range(5)),
    # Beyond gamma 0.01 the affinity of most pairs of images vanishes.
    "fmnist-10k": Effort(
        kmeans_n_init=50,
        kmeans_seeds=(0,),
        spectral_n_init=10,
        eigen_solver="lobpcg",
        gammas=(0.001, 0.01),
        dec_seeds=range(3),
        dec_max_iter=1000,
    ),
    "fmnist": Effort(
        kmeans_n_init=10,
        kmeans_seeds=(0,),
        spectral_n_init=10,
        eigen_solver="lobpcg",
        gammas=(),
        dec_seeds=range(3),
        dec_max_iter=1000,
        not_run={"agglomerative": "60,000 rows have 14 GB of pairwise distances; fmnist-10k stands in"},
    ),
}


def experiments(table: LabelledTable, method: str, results: Results) -> Iterator[Experiment]:
    """All runs of one method on one data set; DEC starts from the best k-means that ran before it."""
    effort = OTHER_EFFORTS.get(table.name, FULL_EFFORT)
    if method == "kmeans":
        yield baselines.kmeans(table, effort.kmeans_n_init, effort.kmeans_seeds)
    elif method == "agglomerative":
        yield from baselines.agglomerative(table)
    elif method == "dec":
        yield from dec.dec(table, lambda: results.best_labels(table.name, "kmeans"), effort.dec_max_iter)
    elif method == "dec-random":
        yield from dec.dec_random(table, effort.dec_seeds, effort.dec_max_iter)
    elif method == "spectral":
        yield from baselines.spectral(table, effort.spectral_n_init, effort.eigen_solver, effort.gammas)
    else:
        raise InputError(f"Unknown method {method!r}. Known are: {', '.join(METHODS)}.")


def run(name: str, methods: Sequence[str], results: Results) -> None:
    """Run what is missing on one data set."""
    table = clam_data.load(name)
    not_run = OTHER_EFFORTS.get(name, FULL_EFFORT).not_run
    for method in methods:
        if method in not_run:
            results.note_not_run(table, method, not_run[method])
            continue
        for experiment in experiments(table, method, results):
            for record in results.run(table, experiment):
                print(describe(record), flush=True)


def describe(record: Record) -> str:
    """One line about a run for whoever watches."""
    found = record.note or f"{record.metrics['n_clusters']}/{record.k} clusters"
    settings = " ".join(f"{name}={value}" for name, value in record.settings.items())
    return (
        f"{record.data} {record.method} {record.seed}: silhouette {_number(record)}, {found}, "
        f"{record.seconds:.1f} s ({settings})"
    )


def comparison(records: Sequence[Record]) -> Iterator[str]:
    """Lines of a table of silhouettes, ours / published."""
    yield "data".ljust(11) + "".join(method.rjust(30) for method in METHODS)
    for name in clam_data.NAMES:
        printed = clam_data.published()["silhouette"].get(name, {})
        cells = [
            f"{median_of_seeds(records, name) if method == 'kmeans' else best_of_grid(records, name, method)}"
            f" / {printed.get(method, '-')}"
            for method in METHODS
        ]
        yield name.ljust(11) + "".join(cell.rjust(30) for cell in cells)


def median_of_seeds(records: Sequence[Record], data: str) -> str:
    """Median and range of k-means, which the paper ran once: the best of our seeds would flatter it."""
    found = [
        score
        for record in records
        if (record.data, record.method) == (data, "kmeans") and (score := record.metrics.get("silhouette")) is not None
    ]
    if not found:
        return "-"
    low, middle, high = (f"{score:.4f}" for score in (min(found), median(found), max(found)))
    return middle if low == high else f"{middle} ({low}-{high})"


def best_of_grid(records: Sequence[Record], data: str, method: str) -> str:
    """Best run that fills all clusters; in brackets, a better one with fewer clusters."""
    best, loosest = (best_record(records, data, method, by_silhouette_alone=alone) for alone in (False, True))
    return _number(best) if best is loosest else f"{_number(best)} [{_number(loosest)}]"


def _number(record: Record | None) -> str:
    silhouette = None if record is None else record.metrics.get("silhouette")
    return "-" if silhouette is None else f"{silhouette:.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.clam_baselines", description=__doc__)
    parser.add_argument("--data", default=",".join(clam_data.NAMES), help="comma-separated names (default: all)")
    parser.add_argument("--methods", default=",".join(METHODS), help="comma-separated names (default: all)")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        results = Results(options.out, SUITE)
        for name in options.data.split(","):
            run(name.strip().lower(), options.methods.split(","), results)
        for line in comparison(read_records(options.out)):
            print(line)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
