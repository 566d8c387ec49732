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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from benchmarks.quality import dac_methods
from benchmarks.quality.dac_methods import Method, Solve
from benchmarks.quality.dac_sets import SETS_PER_BATCH, TABLES, LabelledSet, Sets
from benchmarks.quality.records import Settings, append_line, current_commit, keep_lines, library_versions, read_lines
from coterie.base import one_thread
from coterie.errors import WeightsError
from coterie.metrics import adjusted_rand_index, normalized_mutual_information

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


@dataclass(frozen=True)
class Suite:
    """Methods on the sets of one or more tables, and the file that what they did is written to."""

    name: str
    out: Path
    """Where results go unless told otherwise."""
    tables: Mapping[int, tuple[Sets, ...]]
    """Sets of each table."""
    plan: Callable[[int, Sets], Iterable[tuple[Method, int]]]
    """Methods of a table on some sets, and how many batches each takes."""

    def run(self, table: int, sets: Sets, method: Method, batches: int, out: Path) -> Generator[SetsRecord]:
        """Run a method on the batches that the file does not have yet, and write each down."""
        known = {record.key for record in read_lines(out, SetsRecord)}
        blanks = [self._blank(table, sets, method, index) for index in range(batches)]
        pending = {blank.batch: blank for blank in blanks if blank.key not in known}
        if not pending:
            return
        solve = method.prepare()
        for index, drawn in enumerate(sets.draw()):
            if index > max(pending):
                break
            if index in pending:
                if index == 0:
                    solve(drawn[0])  # what is only slow the first time is no part of the time
                metrics, seconds = measured(drawn, solve)
                timed = max(0, TIMED_SETS - index * SETS_PER_BATCH)
                kept = [spent if position < timed else None for position, spent in enumerate(seconds)]
                record = replace(pending[index], n_points=len(drawn[0].x), metrics=metrics, seconds=kept)
                append_line(out, record)
                yield record

    def _blank(self, table: int, sets: Sets, method: Method, index: int) -> SetsRecord:
        return SetsRecord(
            suite=self.name,
            table=table,
            sets=sets.name,
            sets_seed=sets.seed,
            batch=index,
            n_points=0,
            method=method.name,
            settings=method.settings,
            metrics={},
            seconds=[],
            commit=current_commit(),
            versions=library_versions(),
        )

    def run_all(self, table: int, wanted: Sequence[str] | None, out: Path, *, anew: bool) -> int:
        """Run the wanted methods, or all, on all sets of a table; return the exit status."""
        known = {method.name for sets in self.tables[table] for method, _ in self.plan(table, sets)}
        if wanted is not None and not known.issuperset(wanted):
            print(f"error: Unknown among {', '.join(wanted)}. Known are: {', '.join(sorted(known))}.", file=sys.stderr)
            return 2
        chosen = known if wanted is None else set(wanted)
        if anew:
            keep_lines(out, SetsRecord, lambda record: record.table != table or record.method not in chosen)
        missing = False
        for sets in self.tables[table]:
            for method, batches in self.plan(table, sets):
                if method.name not in chosen:
                    continue
                began, done = time.perf_counter(), 0
                try:
                    for record in self.run(table, sets, method, batches, out):
                        done += len(record.seconds)
                except WeightsError as error:
                    print(f"not run: {method.name} on {sets.name}: {error}", file=sys.stderr)
                    missing = True
                    continue
                print(f"{time.perf_counter() - began:8.1f} s  {sets.name:15} {method.name:22} {done} sets", flush=True)
        return int(missing)


def measured(drawn: Sequence[LabelledSet], solve: Solve) -> tuple[dict[str, list[float | None]], list[float]]:
    """Numbers of each set, as records have them, and the processor seconds that it took."""
    metrics: dict[str, list[float | None]] = {name: [] for name in ("ll", "ari", "nmi", "k_true", "k_found")}
    seconds: list[float] = []
    for one in drawn:
        # Processor seconds, since others may be at work on the machine.
        began = time.process_time()
        answer = solve(one)
        seconds.append(round(time.process_time() - began, 5))
        likelihood = None if answer.log_likelihood is None else round(float(answer.log_likelihood()), 5)
        metrics["ll"].append(likelihood)
        metrics["ari"].append(round(adjusted_rand_index(one.y.numpy(), answer.labels.numpy()), 5))
        metrics["nmi"].append(round(normalized_mutual_information(one.y.numpy(), answer.labels.numpy()), 5))
        metrics["k_true"].append(one.n_clusters)
        metrics["k_found"].append(len(torch.unique(answer.labels)))
    return metrics, seconds


def parser_of(suite: Suite, module: str, description: str | None) -> argparse.ArgumentParser:
    """What a suite's command understands, apart from the table."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--methods", type=lambda text: text.split(","), help="comma-separated names (default: all)")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these methods")
    parser.add_argument("--out", type=Path, default=suite.out, help="results file (default: %(default)s)")
    return parser


SUITE: Final = Suite("dac", Path("benchmarks/results/dac.jsonl"), TABLES, plan)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = parser_of(SUITE, "benchmarks.quality.dac_suite", __doc__)
    parser.add_argument("--table", type=int, choices=SUITE.tables, required=True)
    options = parser.parse_args(arguments)
    return SUITE.run_all(options.table, options.methods, options.out, anew=options.anew)


if __name__ == "__main__":
    sys.exit(main())
