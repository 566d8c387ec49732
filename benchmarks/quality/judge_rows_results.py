"""The part of docs/results.md about rows that are looked at, and about refining."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.quality.judge_calibration_results import of_newest_judge
from benchmarks.quality.judge_rows import OUT
from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import Record, read_records


def section(folder: Path) -> str:
    """The section, from a heading on; nothing if nothing was measured."""
    records = of_newest_judge(read_records(folder / OUT.name))
    if not records:
        return ""
    numbers = sorted({int(record.settings["rows"] or 0) for record in records})
    # Only sets that all have, with refining and without, so that all lines are about the same.
    sets = set.intersection(*({r.data for r in records if r.method == way} for way in {r.method for r in records}))
    lines = [_row(rows, [r for r in records if r.settings["rows"] == rows and r.data in sets]) for rows in numbers]
    one = records[-1]
    text = (
        f"{len(sets)} fresh sets of the [universal prior](universal.md) of {one.n:,} rows each (seed {one.seed}, which "
        f"nothing is trained with), judge `{one.settings['judge']}`, effort {one.settings['effort']}. So many rows "
        "were drawn, proposed for and judged; what was chosen then took all rows. ARI of all rows with the truth, "
        "without and with refining; the difference with its standard error, set by set; choices that refining changed."
    )
    head = ["rows looked at", "ARI", "ARI, refined", "difference", "changed", "error in k", "error in k, refined", "s"]
    return "\n\n".join(["\n\n## Coterie: rows that are looked at, and refining", text, table(head, lines)])


def _row(rows: int, records: Sequence[Record]) -> list[str]:
    plain, refined = (
        sorted((r for r in records if bool(r.settings["rounds"]) is on), key=lambda r: r.data) for on in (False, True)
    )
    ari = [np.array([record.metrics["ari"] for record in half], dtype=np.float64) for half in (plain, refined)]
    wrong = [np.mean([abs((r.metrics["n_clusters"] or 0) - r.k) for r in half]) for half in (plain, refined)]
    gained = ari[1] - ari[0]
    return [
        f"{rows:,}",
        number(float(ari[0].mean())),
        number(float(ari[1].mean())),
        f"{gained.mean():+.3f} ± {gained.std() / np.sqrt(len(gained)):.3f}",
        f"{sum(int(record.metrics['changed'] or 0) for record in refined)}",
        *(f"{each:.2f}" for each in wrong),
        f"{np.median([record.seconds for record in refined]):.1f}",
    ]
