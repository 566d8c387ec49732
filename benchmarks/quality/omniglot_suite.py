"""Characters of alphabets that were not trained on: the experiments of ABC (Table 5) and of DAC (Tables 3, 4 and 8).

    python -m benchmarks.quality.omniglot_suite --weights runs/abc-omniglot-v1.safetensors [--task whole] [--anew]

Instances are 100 images of 5 to 47 characters, or of 20, of one alphabet; "whole" is all images of one. With
``--held-back``, alphabets of the training part that no network saw take the place of the evaluation alphabets: what is
chosen is chosen there. Networks are trained first where they were not yet. What the results file has already is not run
again; ``--anew`` forgets it first. Seconds are of the processor, one thread; those of whole alphabets have all in them,
those of instances leave out what is made of each image alone.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, Final, get_args

import torch

from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.omniglot_methods import Method, Prepared, methods
from benchmarks.quality.omniglot_models import COPIES, add_base, load_base
from benchmarks.quality.omniglot_sets import SEEDS, Alphabet, Task, alphabets, sets_of
from benchmarks.quality.records import Settings, append_line, current_commit, keep_lines, library_versions, read_lines
from coterie.base import one_thread
from coterie.metrics import normalized_mutual_information

SUITE: Final = "omniglot"
DEFAULT_OUT: Final = Path("benchmarks/results/omniglot.jsonl")
N_SETS: Final = 100
EVALUATION: Final = "evaluation"
HELD_BACK: Final = "held back"


@dataclass(frozen=True)
class OmniglotRecord:
    """One line of the results file: one way to read clusters off what one method saw, on all sets of a task."""

    suite: str
    alphabets: str
    """Which: those of the evaluation, or those that were held back from training."""
    task: str
    n_sets: int
    """Of each alphabet."""
    sets_seed: int
    method: str
    reading: str
    told: bool
    """Whether it was told the number of clusters."""
    settings: Settings
    found: Settings
    """What was set by looking at alphabets that were held back."""
    nmi: Mapping[str, float]
    """Mean over the sets of each alphabet."""
    k_error: Mapping[str, float]
    """Mean absolute error in the number of clusters."""
    k_found: Mapping[str, float]
    """Mean number of clusters."""
    seconds: Mapping[str, float]
    """Processor seconds for one set."""
    commit: str
    versions: Mapping[str, str]

    @property
    def key(self) -> str:
        """What makes two runs the same run."""
        parts = [self.suite, self.alphabets, self.task, self.n_sets, self.sets_seed]
        return json.dumps([*parts, self.method, self.reading, self.settings], sort_keys=True)


@dataclass
class Tally:
    """What one reading did on one alphabet so far."""

    nmi: list[float]
    k_error: list[int]
    k_found: list[int]
    seconds: list[float]


def run(method: Method, task: Task, shown: Sequence[Alphabet], blank: OmniglotRecord, out: Path) -> Iterator[str]:
    """Measure all readings of a method that the file does not have yet, and write them down; say what came out."""
    known = {record.key for record in read_lines(out, OmniglotRecord)}
    blanks = {
        reading: replace(blank, method=method.name, reading=reading, told=told, settings=method.settings)
        for reading, told in method.readings.items()
        if told or task != "fixed"  # in the published task the number is given
    }
    pending = {reading: one for reading, one in blanks.items() if one.key not in known}
    if not pending or task not in method.tasks:
        return
    prepared = method.prepare()
    tallies = {alphabet.name: _measure(prepared, alphabet, task, blank.n_sets, list(pending)) for alphabet in shown}
    for reading, one in pending.items():
        of_alphabets = {name: tally[reading] for name, tally in tallies.items()}
        record = replace(
            one,
            found=prepared.found,
            nmi={name: round(mean(tally.nmi), 5) for name, tally in of_alphabets.items()},
            k_error={name: round(mean(tally.k_error), 3) for name, tally in of_alphabets.items()},
            k_found={name: round(mean(tally.k_found), 3) for name, tally in of_alphabets.items()},
            seconds={name: round(mean(tally.seconds), 4) for name, tally in of_alphabets.items()},
        )
        append_line(out, record)
        yield line(record)


def _measure(
    prepared: Prepared[Any], alphabet: Alphabet, task: Task, n_sets: int, readings: Sequence[str]
) -> dict[str, Tally]:
    """What each of the readings does on the sets of one alphabet."""
    began = time.process_time()
    looked = prepared.look(alphabet)
    looking = time.process_time() - began if task == "whole" else 0.0
    tallies = {reading: Tally([], [], [], []) for reading in readings}
    for one in sets_of(alphabet, task, n_sets):
        began = time.process_time()
        seen = prepared.gather(looked, one.index)
        before = looking + time.process_time() - began
        for reading, tally in tallies.items():
            began = time.process_time()
            labels = prepared.readings[reading].read(seen, one.n_clusters)
            tally.seconds.append(before + time.process_time() - began)
            tally.nmi.append(normalized_mutual_information(one.labels.numpy(), labels.numpy()))
            tally.k_found.append(len(torch.unique(labels)))
            tally.k_error.append(abs(tally.k_found[-1] - one.n_clusters))
    return tallies


def blank(which: str, task: Task, n_sets: int) -> OmniglotRecord:
    """A record of what nobody has done yet."""
    return OmniglotRecord(
        suite=SUITE,
        alphabets=which,
        task=task,
        n_sets=1 if task == "whole" else n_sets,
        sets_seed=SEEDS.get(task, 0),
        method="",
        reading="",
        told=False,
        settings={},
        found={},
        nmi={},
        k_error={},
        k_found={},
        seconds={},
        commit=current_commit(),
        versions=library_versions(),
    )


def forget(out: Path, which: str, tasks: Sequence[str], names: set[str]) -> None:
    """Take what the file has of some methods on some tasks out of it."""
    keep_lines(
        out,
        OmniglotRecord,
        lambda record: record.alphabets != which or record.task not in tasks or record.method not in names,
    )


def line(record: OmniglotRecord) -> str:
    """What a record comes to."""
    means = [mean(values.values()) for values in (record.nmi, record.k_error, record.seconds)]
    scores = "NMI {:.4f}, k off by {:.2f}, {:.3f} s".format(*means)
    return f"{record.alphabets}, {record.task}: {record.method}, {record.reading}: {scores} {dict(record.found)}"


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.omniglot_suite", description=__doc__)
    parser.add_argument("--task", choices=get_args(Task), help="(default: all)")
    parser.add_argument("--methods", help="comma-separated names (default: all)")
    parser.add_argument("--held-back", action="store_true", help="on alphabets that were held back from training")
    parser.add_argument("--sets", type=int, default=N_SETS, help="of each alphabet (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="of each network (default: its own number)")
    parser.add_argument("--copies", type=int, default=COPIES, help="of each training image (default: %(default)s)")
    parser.add_argument("--anew", action="store_true", help="forget what the file has of these")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    add_base(parser)
    options = parser.parse_args(arguments)
    which = HELD_BACK if options.held_back else EVALUATION
    tasks: Sequence[Task] = get_args(Task) if options.task is None else (options.task,)

    def work() -> None:
        base = load_base(options.weights)
        known = {method.name: method for method in methods(base, options.run_folder, options.steps, options.copies)}
        names = named(options.methods, known, "method") if options.methods else list(known)
        shown = base.held_back() if options.held_back else alphabets("evaluation")
        if options.anew:
            forget(options.out, which, tasks, set(names))
        for name in names:
            method = replace(known[name], prepare=cache(known[name].prepare))
            for task in tasks:
                for said in run(method, task, shown, blank(which, task, options.sets), options.out):
                    print(said, flush=True)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
