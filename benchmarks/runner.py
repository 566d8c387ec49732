"""Run a suite: measure what its results file lacks, and append each line as soon as it is known."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from statistics import mean
from typing import Any

from benchmarks.lines import Line, append_line, keep_lines, key_of, read_lines, stamp
from benchmarks.suite import Job, Suite
from coterie.base import one_thread
from coterie.errors import InputError, MissingExtraError, WeightsError


def run(suite: Suite, only: Sequence[str] = (), *, again: bool = False, dry_run: bool = False) -> int:
    """Measure what is not recorded yet; return the number of jobs that could not run.

    Parameters
    ----------
    suite : Suite
        What to measure.
    only : sequence of str
        Names of methods and of data sets; all by default.
    again : bool
        Whether to remove recorded lines of the chosen methods and data sets first.
    dry_run : bool
        Only print what would be measured.
    """
    # Jobs are derived twice, since they may hold large arrays once they have been measured.
    pairs = {(suite.set_of(line), suite.method_of(line)) for job in suite.jobs() for line in job.lines}
    chosen = _selection(suite, pairs, only)
    if again and not dry_run:
        keep_lines(suite.results, lambda line: (suite.set_of(line), suite.method_of(line)) not in chosen)
    known = set() if again else {key_of(line, suite.key) for line in read_lines(suite.results)}
    failures = 0
    # Some suites time what users get, or give each measurement a process of its own.
    with one_thread() if suite.get("one_thread", True) else nullcontext():
        for job, pending in _pending(suite, chosen, known):
            if dry_run:
                for line in pending:
                    print(f"to do: {suite.set_of(line)} {suite.method_of(line)}", flush=True)
                continue
            try:
                for line in job.measure(pending):
                    append_line(suite.results, line if "commit" in line else line | stamp())
                    print(describe(suite, line), flush=True)
            except (WeightsError, MissingExtraError) as error:
                print(f"not run: {suite.method_of(pending[0])}: {error}", file=sys.stderr)
                failures += 1
    return failures


def _pending(suite: Suite, chosen: set[tuple[str, str]], known: set[str]) -> Iterator[tuple[Job, list[Line]]]:
    for job in suite.jobs():
        lines = [line for line in job.lines if (suite.set_of(line), suite.method_of(line)) in chosen]
        pending = [line for line in lines if key_of(line, suite.key) not in known]
        if pending:
            yield job, pending


def _selection(suite: Suite, pairs: set[tuple[str, str]], only: Sequence[str]) -> set[tuple[str, str]]:
    """Return the pairs of data set and method that the names choose: methods named, if any, on sets named, if any."""
    sets, methods = {data for data, _ in pairs}, {method for _, method in pairs}
    unknown = sorted(set(only) - methods - sets)
    if unknown:
        raise InputError(
            f"{suite.name} has no method or data set {unknown[0]!r}. Methods: {', '.join(sorted(methods))}. "
            f"Data sets: {', '.join(sorted(sets))}."
        )
    some_sets, some_methods = sets.intersection(only) or sets, methods.intersection(only) or methods
    return {(data, method) for data, method in pairs if data in some_sets and method in some_methods}


def describe(suite: Suite, line: Line) -> str:
    """Summarise a line for the terminal: means of the scores that the suite names."""
    metrics: dict[str, Any] = {**line, **(line.get("metrics") or {})}
    scores = []
    for name in suite.get("scores", ["ari"]):
        value = metrics.get(name)
        values = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if numbers := [number for number in values if number is not None]:
            scores.append(f"{name} {mean(numbers):.3f}")
    return f"{suite.set_of(line)} {suite.method_of(line)}: {line.get('note') or ', '.join(scores)}"
