"""The part of docs/results.md about the seconds and the memory of the zero-shot default."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import Record, read_records
from benchmarks.quality.zero_shot_results import newest
from benchmarks.speed.zero_shot import MANY_ROWS, METHODS, OUT, RUNS, WARMING_ROWS

TITLES: Final = {
    "coterie-fast": "**Coterie, fast**",
    "coterie": "**Coterie, balanced**",
    "coterie-thorough": "**Coterie, thorough**",
    "kmeans-1": "k-means, one start",
    "kmeans": "k-means, ten starts",
    "hdbscan-5": "HDBSCAN, size 5",
    "fast-hdbscan": "fast_hdbscan, size 5",
    "evoc": "EVoC",
}
YARDSTICKS: Final = {"kmeans-1": "× one start", "kmeans": "× ten starts"}


@dataclass(frozen=True)
class Target:
    """What we set out to reach."""

    method: str
    rows: int
    measure: str
    """ "seconds", or a metric of the record."""
    most: float
    unit: str

    def verdict(self, records: Iterable[Record]) -> str:
        """A line that says whether it is met."""
        aim = f"- {TITLES[self.method].strip('*')}, {self.rows:,} rows within {self.most:,.0f} {self.unit}: "
        ours = [record for record in records if (record.method, record.n) == (self.method, self.rows)]
        if not ours:
            return aim + "not measured."
        record = ours[-1]
        if not record.metrics:
            return f"{aim}**not met** ({record.note})."
        found = record.seconds if self.measure == "seconds" else record.metrics[self.measure] or 0.0
        exact = f"{found:,.2f}" if self.measure == "seconds" else f"{found:,.0f}"
        return f"{aim}{'met' if found <= self.most else '**not met**'} ({exact} {self.unit})."


TARGETS: Final = (
    Target("coterie-fast", 1_000, "seconds", 1.0, "s"),
    Target("coterie", 1_000, "seconds", 5.0, "s"),
    Target("coterie", 100_000, "seconds", 20.0, "s"),
    Target("coterie", 1_000_000, "peak_mb", 2_000.0, "MB"),
)


def section(folder: Path) -> str:
    """The section, from a heading on; nothing if nothing was measured."""
    records = newest(read_records(folder / OUT.name))
    if not records:
        return ""
    parts = ["\n\n## Coterie: speed and memory", _introduction(records)]
    parts += [_size_table(rows, records) for rows in sorted({record.n for record in records})]
    parts += ["Our aims:\n\n" + "\n".join(target.verdict(records) for target in TARGETS)]
    missing = {method.name for method in METHODS} - {record.method for record in records}
    if missing:
        parts.append(f"Not measured: {'; '.join(TITLES[name] for name in sorted(missing))}.")
    return "\n\n".join(parts)


def _introduction(records: Sequence[Record]) -> str:
    one = records[0]
    return (
        f"Tables of {one.d} columns, Gaussian groups about {one.k} centres, seed {one.seed}, on a quiet machine. Each "
        f"line has a process of its own, with {one.settings['threads']} threads to use, of which Coterie uses one. "
        f"Seconds are those of a fit after a warm-up on another table of {WARMING_ROWS:,} rows: the median of {RUNS} "
        f"up to {MANY_ROWS:,} rows, one above. MB is the largest memory that the process had resident, nothing "
        "subtracted: interpreter, libraries (the same for all) and table are in it; in brackets what was resident just "
        "before the fit. k-means is told k, the others are not. A fit is stopped after "
        f"{one.settings['limit_seconds']} s. The last two columns are seconds over those of k-means on the same table."
    )


def _size_table(rows: int, records: Sequence[Record]) -> str:
    inside = {record.method: record for record in records if record.n == rows}
    lines = []
    for name, title in TITLES.items():
        record = inside.get(name)
        if record is None:
            continue
        if not record.metrics:
            lines.append([title, record.note, "–", "–", "–", *("–" for _ in YARDSTICKS)])
            continue
        lines.append(
            [
                title,
                f"{record.seconds:.2f}",
                f"{record.metrics['peak_mb']:,.0f} ({record.metrics['before_mb']:,.0f})",
                number(record.metrics["ari"]),
                str(record.metrics["n_clusters"]),
                *(_ratio(record, inside.get(yardstick)) for yardstick in YARDSTICKS),
            ]
        )
    return table([f"{rows:,} rows", "s", "MB", "ARI", "clusters", *YARDSTICKS.values()], lines)


def _ratio(record: Record, yardstick: Record | None) -> str:
    if yardstick is None or not yardstick.seconds:
        return "–"
    ratio = record.seconds / yardstick.seconds
    return f"{ratio:,.2f}" if ratio < 10 else f"{ratio:,.0f}"
