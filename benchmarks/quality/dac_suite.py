"""DAC's synthetic experiments: Tables 1, 5 and 6 of its paper.

    python -m benchmarks.quality.dac_suite --table 1 [--methods dac,vbdpm] [--anew]

Sets are taken one at a time, on one thread. Each line of the results file has what one method did on one batch of sets;
what is there already is not run again, so that an interrupted run goes on; ``--anew`` forgets it first, as it must be
after a change of what is measured.
"""

import argparse
import json
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from benchmarks.quality import dac_methods
from benchmarks.quality.dac_methods import Method, Solve
from benchmarks.quality.dac_sets import SETS_PER_BATCH, TABLES, LabelledSet, Sets
from benchmarks.quality.records import Settings, append_line, current_commit, library_versions, read_lines
from coterie.errors import WeightsError
from coterie.estimators.base import one_thread
from coterie.metrics import adjusted_rand_index, normalized_mutual_information

SUITE: Final = "dac"
DEFAULT_OUT: Final = Path("benchmarks/results/dac.jsonl")
MIXTURE_WEIGHTS: Final = "dac-mog2d-v2"
WARPED_WEIGHTS: Final = "dac-warped2d-v2"
ACT_ST_WEIGHTS: Final = "act-st-mog2d-v1"
NCP_WEIGHTS: Final = "ncp-mog2d-v1"
TIMED_SETS: Final = 50
"""Sets, the first of each kind, whose seconds are kept."""
SLOW_NCP: Final = 50
"""Labellings of which NCP takes only the first few batches."""
SLOW_NCP_BATCHES: Final = 3
SPECTRAL_BATCHES: Final = {"warped-1000-4": 20, "warped-3000-12": 5}
FLOW_BATCHES: Final = {"warped-1000-4": 0, "warped-3000-12": 1}


@dataclass(frozen=True)
class SetsRecord:
    """One line of the results file: a method on one batch of sets."""

    suite: str
    table: int
    sets: str
    """Name of the sets."""
    sets_seed: int
    batch: int
    n_points: int
    method: str
    settings: Settings
    metrics: Mapping[str, list[float | None]]
    """Numbers of each set: ll, ari, nmi, k_true, k_found."""
    seconds: list[float | None]
    """Processor seconds of each set, where they were taken."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> str:
        """What makes two runs the same run."""
        parts = [self.suite, self.table, self.sets, self.sets_seed, self.batch, self.method, self.settings]
        return json.dumps(parts, sort_keys=True)


def plan(table: int, sets: Sets) -> Iterator[tuple[Method, int]]:
    """Methods of a table, and how many batches each takes."""
    max_clusters = sets.tasks.max_clusters
    if table in {1, 5}:
        yield dac_methods.true_parameters(), sets.batches
        yield dac_methods.dac(MIXTURE_WEIGHTS), sets.batches
    if table == 1:
        yield dac_methods.vbdpm(max_clusters), sets.batches
        yield dac_methods.vbdpm_informed(max_clusters), sets.batches
        yield dac_methods.refined_seeds(max_clusters), sets.batches
        yield dac_methods.dac_faithful_decoding(MIXTURE_WEIGHTS), sets.batches
        yield dac_methods.act_st(ACT_ST_WEIGHTS), sets.batches
    if table == 5:
        for n_samples in (1, 10, SLOW_NCP):
            method = dac_methods.ncp(NCP_WEIGHTS, n_samples)
            yield method, SLOW_NCP_BATCHES if n_samples == SLOW_NCP else sets.batches
    if table == 6:
        yield dac_methods.dac(WARPED_WEIGHTS), sets.batches
        yield dac_methods.dac_faithful_decoding(WARPED_WEIGHTS), sets.batches
        for affinity in ("nearest_neighbors", "rbf"):
            yield dac_methods.spectral(affinity), SPECTRAL_BATCHES[sets.name]
        yield dac_methods.fitted_flows(), FLOW_BATCHES[sets.name]


def run(table: int, sets: Sets, method: Method, batches: int, out: Path) -> Generator[SetsRecord]:
    """Run a method on the batches that the file does not have yet, and write each down."""
    known = {record.key for record in read_lines(out, SetsRecord)}
    pending = [index for index in range(batches) if _record(table, sets, method, index, 0, {}, []).key not in known]
    if not pending:
        return
    solve = method.prepare()
    for index, drawn in enumerate(sets.draw()):
        if index > pending[-1]:
            break
        if index in pending:
            record = _measure(table, sets, method, index, drawn, solve)
            append_line(out, record)
            yield record


def _measure(
    table: int, sets: Sets, method: Method, index: int, drawn: Sequence[LabelledSet], solve: Solve
) -> SetsRecord:
    metrics: dict[str, list[float | None]] = {name: [] for name in ("ll", "ari", "nmi", "k_true", "k_found")}
    seconds: list[float | None] = []
    if index == 0:
        solve(drawn[0])  # what is only slow the first time is no part of the time
    for position, one in enumerate(drawn):
        # Processor seconds, since others may be at work on the machine.
        began = time.process_time()
        answer = solve(one)
        spent = time.process_time() - began
        seconds.append(round(spent, 5) if index * SETS_PER_BATCH + position < TIMED_SETS else None)
        likelihood = None if answer.log_likelihood is None else round(float(answer.log_likelihood()), 5)
        metrics["ll"].append(likelihood)
        metrics["ari"].append(round(adjusted_rand_index(one.y.numpy(), answer.labels.numpy()), 5))
        metrics["nmi"].append(round(normalized_mutual_information(one.y.numpy(), answer.labels.numpy()), 5))
        metrics["k_true"].append(one.n_clusters)
        metrics["k_found"].append(len(torch.unique(answer.labels)))
    return _record(table, sets, method, index, len(drawn[0].x), metrics, seconds)


def _record(
    table: int,
    sets: Sets,
    method: Method,
    index: int,
    n_points: int,
    metrics: Mapping[str, list[float | None]],
    seconds: list[float | None],
) -> SetsRecord:
    return SetsRecord(
        suite=SUITE,
        table=table,
        sets=sets.name,
        sets_seed=sets.seed,
        batch=index,
        n_points=n_points,
        method=method.name,
        settings=method.settings,
        metrics=metrics,
        seconds=seconds,
        commit=current_commit(),
        versions=library_versions(),
    )


def forget(out: Path, table: int, methods: set[str]) -> None:
    """Take what the file has of some methods of a table out of it."""
    kept = [record for record in read_lines(out, SetsRecord) if record.table != table or record.method not in methods]
    unfinished = out.with_suffix(".partial")
    unfinished.write_text("".join(json.dumps(asdict(record)) + "\n" for record in kept), encoding="utf-8")
    unfinished.replace(out)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.dac_suite", description=__doc__)
    parser.add_argument("--table", type=int, choices=TABLES, required=True)
    parser.add_argument("--methods", help="comma-separated names (default: all of the table)")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)
    wanted = options.methods.split(",") if options.methods else None
    known = {method.name for sets in TABLES[options.table] for method, _ in plan(options.table, sets)}
    if wanted is not None and not known.issuperset(wanted):
        print(f"error: Unknown among {', '.join(wanted)}. Known are: {', '.join(sorted(known))}.", file=sys.stderr)
        return 2
    if options.anew:
        forget(options.out, options.table, known if wanted is None else set(wanted))
    missing = False
    for sets in TABLES[options.table]:
        for method, batches in plan(options.table, sets):
            if wanted is not None and method.name not in wanted:
                continue
            began, done = time.perf_counter(), 0
            try:
                for record in run(options.table, sets, method, batches, options.out):
                    done += len(record.seconds)
            except WeightsError as error:
                print(f"not run: {method.name} on {sets.name}: {error}", file=sys.stderr)
                missing = True
                continue
            print(f"{time.perf_counter() - began:8.1f} s  {sets.name:15} {method.name:22} {done} sets", flush=True)
    return int(missing)


if __name__ == "__main__":
    sys.exit(main())
