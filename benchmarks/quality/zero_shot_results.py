"""The part of docs/results.md about clustering without being told k, from what the zero-shot suite wrote.

    python -m benchmarks.quality.zero_shot_results [--store]

Prints the section. ``--store`` first takes the best methods of ``peer_scores.csv``, which COTERIE_DATA has, into a
small file beside the results, so that the section can be made where that folder is not.
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Final

from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import REPOSITORY, Record, read_records
from benchmarks.quality.zero_shot_data import BATTERIES, BATTERIES_FOLDER, data_folder, names

RESULTS: Final = REPOSITORY / "benchmarks" / "results"
RECORDS: Final = "zero_shot.jsonl"
STORED: Final = "zero_shot_stored.json"
STORED_METHODS: Final = 5
"""Methods of `peer_scores.csv` that are shown of each block: those of the best mean ARI."""
FEW_ROWS: Final = 10_000
INTRODUCTION: Final = """\
Means over sets, of each set over its seeds first (three for k-means and Gaussian mixtures, except up to k = 50; else
one). A set that has several references is scored against the one that agrees best, and a method that is told k is run
with the k of each; rows that a reference calls noise do not count. Rows that a method calls noise count as one
cluster, or, under "noise to the nearest", as members of the cluster of the nearest row that has one; they are no
cluster where clusters are counted. Batteries and embeddings come in their own units; of tables, peers get
standardised columns, ours the columns as they are. k-means and mixtures that look for k do so on at most 5,000 rows.
EVoC goes by angles and is made for embeddings; on fewer than four columns, where its own initialisation fails, it
starts at random. Seconds are processor seconds of one fit on one thread of a busy machine (median over sets): an
indication only. "Stored": from the results that come with the batteries, each method told k; the five of the best
mean ARI that have all sets."""
TITLES: Final = {
    "coterie": "**Coterie**",
    "coterie-fast": "**Coterie, fast**",
    "kmeans-silhouette": "k-means, silhouette, k ≤ 20",
    "kmeans-silhouette-50": "k-means, silhouette, k ≤ 50",
    "gmm-bic": "Gaussian mixture, BIC, k ≤ 20",
    "gmm-bic-50": "Gaussian mixture, BIC, k ≤ 50",
    "hdbscan-5": "HDBSCAN, size 5",
    "hdbscan-15": "HDBSCAN, size 15",
    "fast-hdbscan": "fast_hdbscan, size 5",
    "evoc": "EVoC",
    "mean-shift": "mean shift",
    "affinity-propagation": "affinity propagation",
    "kmeans": "k-means",
    "gmm": "Gaussian mixture",
    "ward": "Ward",
    "spectral": "spectral, neighbours",
    "genie": "Genie",
}


@dataclass(frozen=True)
class Block:
    """Sets that are averaged over."""

    title: str
    holds: Callable[[str, int], bool]
    """Whether a set belongs to it, by its name and number of rows."""


def _of(*folders: str) -> Callable[[str, int], bool]:
    return lambda name, _: name.partition("/")[0] in folders


BLOCKS: Final = (
    Block("fcps", _of("fcps")),
    Block("graves", _of("graves")),
    Block("sipu", _of("sipu")),
    Block(f"sipu, sets of up to {FEW_ROWS:,} rows", lambda name, n: name.startswith("sipu/") and n <= FEW_ROWS),
    Block("fcps, graves and sipu", _of(*BATTERIES)),
    Block("tables", _of("tabular")),
    Block("few rows, many columns", _of("highdim")),
    Block("embeddings", _of("embeddings")),
)


@dataclass(frozen=True)
class StoredMean:
    """Means of a method of `peer_scores.csv` over a block."""

    method: str
    sets: int
    ari: float
    nmi: float


@dataclass(frozen=True)
class Summary:
    """Means of a method over the sets that it finished, of each set over its seeds first."""

    method: str
    sets: int
    ari: float
    ari_assigned: float
    nmi: float
    k_error: float
    k_exact: float
    """Share of sets with exactly as many clusters as the reference that is agreed with best."""
    noise_share: float
    seconds: float
    """Median, not mean."""


def summarise(method: str, records: Iterable[Record]) -> Summary | None:
    """Numbers of one method; None if it finished no set."""
    by_set: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.method == method and record.metrics:
            by_set[record.data].append(record)
    if not by_set:
        return None

    def over_sets(value: Callable[[Record], float]) -> list[float]:
        return [mean(map(value, runs)) for runs in by_set.values()]

    return Summary(
        method=method,
        sets=len(by_set),
        ari=mean(over_sets(lambda record: _metric(record, "ari"))),
        ari_assigned=mean(over_sets(lambda record: _metric(record, "ari_assigned"))),
        nmi=mean(over_sets(lambda record: _metric(record, "nmi"))),
        k_error=mean(over_sets(lambda record: abs(_metric(record, "n_clusters") - record.k))),
        k_exact=mean(over_sets(lambda record: float(record.metrics["n_clusters"] == record.k))),
        noise_share=mean(over_sets(lambda record: _metric(record, "noise_share"))),
        seconds=median(over_sets(lambda record: record.seconds)),
    )


def _metric(record: Record, name: str) -> float:
    value = record.metrics[name]
    return 0.0 if value is None else value


def newest(records: Iterable[Record]) -> list[Record]:
    """The last record of each method, set and seed: a change of settings makes a new run, and the old line stays."""
    return list({(record.method, record.data, record.seed): record for record in records}.values())


def block_tables(block: Block, records: Sequence[Record], stored: Sequence[StoredMean]) -> str:
    """Two tables of a block: methods that find k, and methods that are told it."""
    inside = [record for record in records if block.holds(record.data, record.n)]
    if not inside:
        return f"### {block.title}\n\nNot run."
    total = len({record.data for record in inside})
    free, told = (
        _ranked(summarise(method, inside) for method in _methods(inside, given_k=given_k)) for given_k in (False, True)
    )
    head = ["k not given", "sets", "ARI", "noise to the nearest", "NMI", "error in k", "k exact", "noise", "s"]
    rows = [
        [
            TITLES.get(one.method, one.method),
            _count(one.sets, total),
            number(one.ari),
            number(one.ari_assigned),
            number(one.nmi),
            f"{one.k_error:.1f}",
            f"{100 * one.k_exact:.0f} %",
            f"{100 * one.noise_share:.0f} %",
            f"{one.seconds:.2f}",
        ]
        for one in free
    ]
    told_rows = [
        [
            TITLES.get(one.method, one.method),
            _count(one.sets, total),
            number(one.ari),
            number(one.nmi),
            f"{one.seconds:.2f}",
        ]
        for one in told
    ]
    told_rows += [
        [f"{one.method}, stored", _count(one.sets, total), number(one.ari), number(one.nmi), "–"] for one in stored
    ]
    told_head = ["k given", "sets", "ARI", "NMI", "s"]
    return f"### {block.title}: {total} sets\n\n{table(head, rows)}\n\n{table(told_head, told_rows)}"


def _methods(records: Iterable[Record], *, given_k: bool) -> list[str]:
    return sorted({record.method for record in records if record.settings["given_k"] == given_k})


def _ranked(summaries: Iterable[Summary | None]) -> list[Summary]:
    return sorted((one for one in summaries if one is not None), key=lambda one: -one.ari)


def _count(sets: int, total: int) -> str:
    return str(sets) if sets == total else f"{sets} of {total}"


def section(folder: Path = RESULTS) -> str:
    """All blocks as Markdown, from the files in a folder."""
    records = newest(read_records(folder / RECORDS))
    path = folder / STORED
    stored = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    parts = [INTRODUCTION]
    for block in BLOCKS:
        means = [StoredMean(**one) for one in stored.get(block.title, [])]
        parts.append(block_tables(block, records, means))
    return "\n\n".join([*parts, unfinished(records)])


def unfinished(records: Iterable[Record]) -> str:
    """What was not run, or not to the end, and why."""
    sets: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        if not record.metrics:
            sets[record.method, record.note].add(record.data)
    lines = [
        f"- {TITLES.get(method, method)}, {note}: {', '.join(sorted(data))}."
        for (method, note), data in sorted(sets.items())
    ]
    return "### Not finished\n\n" + ("\n".join(lines) or "All was.")


def best_stored(rows: Iterable[Mapping[str, str]], sets: Iterable[str]) -> dict[str, list[StoredMean]]:
    """Of each block the methods of the best mean ARI, among those that were run on every set of it.

    Parameters
    ----------
    rows
        Lines of `peer_scores.csv`: one for each method and reference, the method given that reference's k.
    sets
        Names of the sets whose data we have; others do not count.
    """
    known = set(sets)
    sizes: dict[str, int] = {}
    best: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for row in rows:
        name = f"{row['battery']}/{row['dataset']}"
        if name in known:
            sizes[name] = int(row["n"])
            # As for the others, the reference that is agreed with best counts, and its NMI with it.
            scores = best[row["method"]]
            scores[name] = max(scores.get(name, (-1.0, 0.0)), (float(row["ARI"]), float(row["NMI"])))
    digest = {}
    for block in BLOCKS:
        wanted = [name for name, n in sizes.items() if block.holds(name, n)]
        means = [
            StoredMean(
                method,
                len(wanted),
                round(mean(scores[name][0] for name in wanted), 6),
                round(mean(scores[name][1] for name in wanted), 6),
            )
            for method, scores in best.items()
            if wanted and scores.keys() >= set(wanted)
        ]
        if means:
            digest[block.title] = sorted(means, key=lambda one: -one.ari)[:STORED_METHODS]
    return digest


def store(folder: Path = RESULTS) -> None:
    """Write down the best of `peer_scores.csv`."""
    with (data_folder() / BATTERIES_FOLDER / "peer_scores.csv").open(encoding="utf-8", newline="") as file:
        best = best_stored(csv.DictReader(file), names("batteries"))
    digest = {title: [asdict(one) for one in means] for title, means in best.items()}
    (folder / STORED).write_text(json.dumps(digest, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the section."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.zero_shot_results")
    parser.add_argument("--store", action="store_true", help="take the best of peer_scores.csv anew first")
    if parser.parse_args(arguments).store:
        store()
    print(section())
    return 0


if __name__ == "__main__":
    sys.exit(main())
