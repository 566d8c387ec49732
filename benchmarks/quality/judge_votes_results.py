"""The part of docs/results.md about several samples that vote."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.quality.judge_calibration_results import of_newest_judge
from benchmarks.quality.judge_votes import OUT
from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import Floats, Record, read_records


def section(folder: Path) -> str:
    """The section, from a heading on; nothing if nothing was measured."""
    records = of_newest_judge(read_records(folder / OUT.name))
    both = {record.data for record in records if record.settings["voters"] != 1}
    alone, voted = (
        sorted((r for r in records if r.data in both and (r.settings["voters"] == 1) is one), key=lambda r: r.data)
        for one in (True, False)
    )
    if not both:
        return ""
    one = voted[-1]
    text = (
        f"{len(both)} fresh sets of the [universal prior](universal.md) of {one.n:,} rows each (seed {one.seed}, which "
        f"nothing is trained with; thirty were planned, and time was up"
        f"), judge `{one.settings['judge']}`, effort {one.settings['effort']}: one sample of "
        f"{one.settings['rows']:,} rows against {one.settings['voters']} that vote, the first of them the same. What "
        "is taken then takes all rows; ARI of all rows with the truth, with standard errors. Seconds are of the "
        "processor, in the median, on a machine that was busy with other work."
    )
    head = ["who decides", "ARI", "error in k", "confidence off by", "s"]
    lines = [_row(alone[0].method, alone), _row(one.method, voted)]
    return "\n\n".join(
        ["\n\n## Coterie: samples that vote", text, table(head, lines), _compared(alone, voted)],
    )


def _row(name: str, records: Sequence[Record]) -> list[str]:
    ari = _column(records, "ari")
    wrong = [abs((record.metrics["n_clusters"] or 0) - record.k) for record in records]
    return [
        name,
        f"{number(float(ari.mean()))} ± {number(_standard_error(ari))}",
        f"{np.mean(wrong):.2f}",
        number(float(np.abs(_column(records, "confidence") - ari).mean())),
        f"{np.median([record.seconds for record in records]):.0f}",
    ]


def _compared(alone: Sequence[Record], voted: Sequence[Record]) -> str:
    """Set by set, with the first sample and with all of them."""
    ari = _column(voted, "ari")
    changed = sum(int(record.metrics["changed"] or 0) for record in voted)
    gains = (ari - _column(alone, "ari"), ari - _column(voted, "mean_alone"), _column(voted, "best_alone") - ari)
    first, usual, missed = (f"{gain.mean():+.3f} ± {_standard_error(gain):.3f}" for gain in gains)
    return (
        f"Set by set, the vote gains {first} over the first sample, and {usual} over what the samples have on average "
        f"if each decides alone. On {changed} of {len(voted)} sets it took what another sample than the first had "
        f"found. Whoever knew the truth and took the best of the samples would gain {missed} more."
    )


def _column(records: Sequence[Record], name: str) -> Floats:
    return np.array([record.metrics[name] for record in records], dtype=np.float64)


def _standard_error(values: Floats) -> float:
    return float(values.std() / np.sqrt(len(values)))
