"""The part of docs/results.md that is about DAC; what was not run is a dash, or is said not to have been."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

from benchmarks.quality.dac_networks import NetworkRecord
from benchmarks.quality.dac_sets import SETS_PER_BATCH, TABLES, published
from benchmarks.quality.dac_suite import SPECTRAL_BATCHES, SetsRecord
from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import read_lines

DASH: Final = "–"
TITLES: Final = {
    "mog-1000-4": "(1000, 4)",
    "mog-3000-12": "(3000, 12)",
    "warped-1000-4": "(1000, 4)",
    "warped-3000-12": "(3000, 12)",
}
METHODS: Final = {
    "true-parameters": "true parameters",
    "dac": "DAC",
    "dac-faithful-decoding": "DAC, published decoding",
    "amcp": "AMCP",
    "amcp-star": "AMCP*",
    "amcp-faithful-decoding": "AMCP, as the passes made it",
    "amcp-star-faithful-decoding": "AMCP*, as the passes made it",
    "act-st": "ACT-ST",
    "vbdpm": "VBDPM",
    "vbdpm-informed": "VBDPM, told the generator's widths",
    "refined-seeds": "our refinement from k-means++",
    "ncp-1": "NCP, S = 1",
    "ncp-10": "NCP, S = 10",
    "ncp-50": "NCP, S = 50",
    "spectral-nearest-neighbors": "spectral, neighbours, true k",
    "spectral-rbf": "spectral, Gaussian, true k",
}
SPECTRALS: Final = ("spectral-nearest-neighbors", "spectral-rbf")
RUNNERS: Final = {
    "dac": "DAC",
    "bayesian-mixture": "Bayesian mixture",
    "spectral-nearest-neighbors": "spectral, neighbours",
    "spectral-rbf": "spectral, Gaussian",
    "kmeans-search": "k-means search",
}
METRICS: Final = ("ll", "gap", "ari", "nmi", "k_error", "seconds")
HEAD: Final = ("LL", "below the truth", "ARI", "NMI", "k-MAE", "s")
DIGITS: Final = {"ll": 3, "gap": 3, "ari": 3, "nmi": 3, "k_error": 3, "seconds": 3}
FLOWS: Final = ("warped-3000-12", "fitted-flows")
TYPICAL_SIZE: Final = 3_000
LARGE_SIZE: Final = 30_000
TYPICAL_CLUSTERS: Final = 12


@dataclass(frozen=True)
class Target:
    """What was aimed at for DAC in one of the tables."""

    table: int
    sets: str
    metric: str
    words: str
    limit: float
    at_least: bool

    def verdict(self, value: float | None) -> str:
        """Whether it was reached, in a line."""
        aim = f"{'at least' if self.at_least else 'at most'} {number(self.limit, _digits(self.limit))}"
        start = f"- {TITLES[self.sets]}, {self.words} {aim}: "
        if value is None:
            return start + "not run."
        reached = value >= self.limit if self.at_least else value <= self.limit
        return f"{start}{'reached' if reached else '**not reached**'} ({number(value)})."


TARGETS: Final = (
    Target(1, "mog-1000-4", "ari", "ARI", 0.98, at_least=True),
    Target(1, "mog-1000-4", "k_error", "k-MAE", 0.06, at_least=False),
    Target(1, "mog-1000-4", "gap", "LL below that of the true parameters by", 0.02, at_least=False),
    Target(1, "mog-3000-12", "ari", "ARI", 0.955, at_least=True),
    Target(1, "mog-3000-12", "k_error", "k-MAE", 0.4, at_least=False),
    Target(1, "mog-3000-12", "gap", "LL below that of the true parameters by", 0.05, at_least=False),
    Target(6, "warped-1000-4", "nmi", "NMI", 0.96, at_least=True),
    Target(6, "warped-3000-12", "ari", "ARI", 0.9, at_least=True),
)
SPEED_TARGETS: Final = (
    ("bayesian-mixture", TYPICAL_SIZE, 3),
    ("spectral-nearest-neighbors", TYPICAL_SIZE, 20),
    ("spectral-rbf", TYPICAL_SIZE, 20),
    ("kmeans-search", TYPICAL_SIZE, 20),
    ("bayesian-mixture", LARGE_SIZE, 10),
)
"""Method, points, and how many times faster than it DAC was to be."""


class DacPage:
    """All records of DAC's suite, and the sections made of them."""

    def __init__(self, folder: Path, *files: str) -> None:
        self.records = [record for file in files or ("dac.jsonl",) for record in read_lines(folder / file, SetsRecord)]
        speed = folder / "speed_dac.jsonl"
        lines = speed.read_text(encoding="utf-8").splitlines() if speed.is_file() else []
        self.speed: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.equal_time = read_lines(folder / "dac_networks.jsonl", NetworkRecord)

    def chosen(self, of_table: int, sets: str, method: str, batches: int | None = None) -> list[SetsRecord]:
        """Newest records of a method on sets as they are drawn today; only the first batches if so asked."""
        seeds = {each.name: each.seed for each in TABLES[of_table]}
        found = {
            record.batch: record
            for record in self.records
            if (record.table, record.sets, record.method, record.sets_seed) == (of_table, sets, method, seeds[sets])
            and (batches is None or record.batch < batches)
        }
        return [found[batch] for batch in sorted(found)]

    def values(self, of_table: int, sets: str, method: str, metric: str, batches: int | None = None) -> list[float]:
        """One number for each set."""
        records = self.chosen(of_table, sets, method, batches)
        if metric == "seconds":
            return [value for record in records for value in record.seconds if value is not None]
        if metric == "k_error":
            pairs = (_pairs(record.metrics["k_true"], record.metrics["k_found"]) for record in records)
            return [abs(found - true) for each in pairs for true, found in each]
        if metric == "gap":
            truths = {record.batch: record for record in self.chosen(of_table, sets, "true-parameters")}
            both = (
                _pairs(truths[record.batch].metrics["ll"], record.metrics["ll"])
                for record in records
                if record.batch in truths
            )
            return [true - found for each in both for true, found in each]
        return [value for record in records for value in record.metrics[metric] if value is not None]

    def mean(self, of_table: int, sets: str, method: str, metric: str) -> float | None:
        """Mean over the sets; None if there are none."""
        values = self.values(of_table, sets, method, metric)
        return mean(values) if values else None

    def row(
        self, of_table: int, sets: str, method: str, metrics: Sequence[str], batches: int | None = None
    ) -> list[str]:
        """One row: name, number of sets, and for each metric ours with its standard error, and the published value."""
        n_sets = sum(len(record.seconds) for record in self.chosen(of_table, sets, method, batches))
        kind = "spectral" if method in SPECTRALS else method
        printed = published()[str(of_table)][sets].get(kind, {}) if batches is None else {}
        cells = [
            _cell(self.values(of_table, sets, method, metric, batches), printed.get(metric), DIGITS[metric])
            for metric in metrics
        ]
        return [METHODS[method], f"{n_sets:,}" if n_sets else "not run", *cells]

    def table_1(self) -> str:
        """Mixtures of Gaussians."""
        methods = (
            "true-parameters",
            "dac",
            "dac-faithful-decoding",
            "act-st",
            "vbdpm",
            "vbdpm-informed",
            "refined-seeds",
        )
        parts = []
        for sets in TABLES[1]:
            rows = [self.row(1, sets.name, method, METRICS) for method in methods]
            printed = published()["1"][sets.name].get("unattributed")
            if printed is not None:
                cells = (f"/ {number(printed[metric])}" if metric in printed else DASH for metric in METRICS)
                rows.append(["published, ACT-ST or DAC", DASH, *cells])
            parts.append(f"{TITLES[sets.name]}:\n\n" + table(["method", "sets", *HEAD], rows))
        return "\n\n".join(parts)

    def network_brings(self) -> str:
        """What DAC has above the same refinement without a network, which both tables show, set by set."""
        lines = []
        for sets in TABLES[1]:
            start = f"- {TITLES[sets.name]}, DAC less our refinement from k-means++, set by set: "
            parts = []
            for metric, words in (("ari", "ARI"), ("k_error", "k-MAE")):
                both = [self.values(1, sets.name, method, metric) for method in ("dac", "refined-seeds")]
                if all(both):
                    gains = [ours - theirs for ours, theirs in zip(*both, strict=False)]
                    parts.append(f"{words} {_cell(gains, None, 3)}")
            lines.append(start + (", ".join(parts) or "not run") + ".")
        return "\n".join(lines)

    def networks(self) -> str:
        """Networks that were trained for the same time."""
        if not self.equal_time:
            return "Not run."
        kinds = list(self.equal_time[0].metrics)
        head = ["network", "parameters", "steps", "loss"]
        head += [f"{TITLES[kind]} {words}" for kind in kinds for words in ("ARI", "k-MAE", "s")]
        rows = [
            [
                one.network,
                f"{one.parameters:,}",
                f"{one.steps:,}",
                number(one.loss),
                *(number(one.metrics[kind][metric]) for kind in kinds for metric in ("ari", "k_error", "seconds")),
            ]
            for one in self.equal_time
        ]
        return f"{self.equal_time[0].minutes:g} minutes each:\n\n" + table(head, rows)

    def table_5(self) -> str:
        """DAC and NCP."""
        methods = ("true-parameters", "dac", "ncp-1", "ncp-10", "ncp-50")
        metrics = ("ll", "ari", "nmi", "k_error", "seconds")
        rows = [self.row(5, TABLES[5][0].name, method, metrics) for method in methods]
        return table(["method", "sets", "LL", "ARI", "NMI", "k-MAE", "s"], rows)

    def table_6(self) -> str:
        """Arcs."""
        metrics = ("ll", "ari", "nmi", "k_error", "seconds")
        parts = []
        for sets in TABLES[6]:
            rows = [self.row(6, sets.name, method, metrics) for method in ("dac", "dac-faithful-decoding")]
            batches = SPECTRAL_BATCHES[sets.name]
            same = self.row(6, sets.name, "dac", metrics, batches)
            rows.append([f"DAC, the first {batches * SETS_PER_BATCH} sets", *same[1:]])
            for method in SPECTRALS:
                row = self.row(6, sets.name, method, metrics)
                row[metrics.index("k_error") + 2] = DASH  # it is told
                rows.append(row)
            parts.append(
                f"{TITLES[sets.name]}:\n\n" + table(["method", "sets", "LL", "ARI", "NMI", "k-MAE", "s"], rows)
            )
        return "\n\n".join(parts)

    def density(self) -> str:
        """Flows that were trained on each set, beside DAC's."""
        sets, method = FLOWS
        fitted = self.values(6, sets, method, "ll")
        if not fitted:
            return "Flows trained on each set: not run."
        batches = len(self.chosen(6, sets, method))
        ours = self.values(6, sets, "dac", "ll", batches)
        printed = published()["6"]["density"]
        return (
            f"LL of flows that were trained on each set: {number(mean(fitted))} on the first {len(fitted)} sets of "
            f"{TITLES[sets]}, where DAC's is {number(mean(ours) if ours else None)}; published, on 100 sets: "
            f"{number(printed[method]['ll'])} and {number(printed['dac']['ll'])}."
        )

    def verdict(self, of_table: int) -> str:
        """Which of the aims of a table were reached."""
        wanted = (target for target in TARGETS if target.table == of_table)
        return "\n".join(
            target.verdict(self.mean(target.table, target.sets, "dac", target.metric)) for target in wanted
        )

    def measured(self, method: str, n_points: int, max_clusters: int) -> dict[str, Any] | None:
        """What the speed benchmark has of a method at a size."""
        wanted = (method, n_points, max_clusters)
        return next((one for one in self.speed if (one["method"], one["n"], one["max_clusters"]) == wanted), None)

    def speeds(self) -> str:
        """Seconds, memory and agreement, in growth."""
        if not self.speed:
            return "Not run."
        sizes = sorted({one["n"] for one in self.speed if one["max_clusters"] == TYPICAL_CLUSTERS})
        clusters = sorted({one["max_clusters"] for one in self.speed if one["n"] == TYPICAL_SIZE})
        by_size = [[f"{n:,}", *self._speed_cells(n, TYPICAL_CLUSTERS)] for n in sizes]
        by_clusters = [[str(k), *self._speed_cells(TYPICAL_SIZE, k)] for k in clusters]
        return table(["points", *RUNNERS.values()], by_size) + "\n\n" + table(["k_max", *RUNNERS.values()], by_clusters)

    def _speed_cells(self, n_points: int, max_clusters: int) -> Iterable[str]:
        for method in RUNNERS:
            one = self.measured(method, n_points, max_clusters)
            if one is None or one["seconds"] is None:
                yield "not run"
            else:
                seconds = f"{one['seconds']:.3f} s ({one['median_seconds']:.3f})"
                yield f"{seconds}, {one['peak_mb']:.0f} MB, {number(one['ari'])}"

    def speed_verdict(self) -> str:
        """How many times faster DAC is."""
        lines = []
        for method, n_points, aim in SPEED_TARGETS:
            start = f"- {n_points:,} points, at least {aim} times faster than {RUNNERS[method]}: "
            theirs, ours = (self.measured(name, n_points, TYPICAL_CLUSTERS) for name in (method, "dac"))
            if theirs is None or ours is None or theirs["seconds"] is None:
                lines.append(start + "not run.")
                continue
            ratio, of_medians = (theirs[each] / ours[each] for each in ("seconds", "median_seconds"))
            reached = "reached" if ratio >= aim else "**not reached**"
            lines.append(f"{start}{reached} ({ratio:.1f} times; {of_medians:.1f} by the medians).")
        return "\n".join(lines)


def sections(folder: Path) -> dict[str, Callable[[], str]]:
    """Parts of the page by their names in the template."""
    page = DacPage(folder)
    return {
        "dac_table_1": page.table_1,
        "dac_verdict_1": lambda: page.verdict(1) + "\n" + page.network_brings(),
        "dac_networks": page.networks,
        "dac_table_5": page.table_5,
        "dac_table_6": page.table_6,
        "dac_density": page.density,
        "dac_verdict_6": lambda: page.verdict(6),
        "dac_speeds": page.speeds,
        "dac_speed_verdict": page.speed_verdict,
    }


def _pairs(first: Sequence[float | None], second: Sequence[float | None]) -> list[tuple[float, float]]:
    return [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]


def _digits(limit: float) -> int:
    """Digits that a limit is written with."""
    return len(f"{limit:g}".partition(".")[2])


def _cell(values: Sequence[float], printed: float | None, digits: int) -> str:
    """Mean and standard error of ours, and the published value after a slash if there is one."""
    text = DASH
    if values:
        text = number(mean(values), digits)
        if len(values) > 1:
            text += f" ± {number(stdev(values) / math.sqrt(len(values)), digits)}"
    return text if printed is None else f"{text} / {number(printed, digits)}"
