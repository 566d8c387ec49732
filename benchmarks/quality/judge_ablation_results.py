"""The part of docs/results.md about what makes the judge choose well."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.quality.judge_ablations import OUT, AblationRecord
from benchmarks.quality.judge_workshop import TREES
from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import read_lines

HEADS: Final = {
    "sets": "sets to learn from",
    "evidence": "not told",
    "kind": "another judge",
    "rule": "no judge: the largest",
    "proposers": "without proposals",
}
"""Of the first column of each part's table."""
NAMES: Final = {
    "log_calinski_harabasz": "Calinski-Harabasz index",
    "normal_bic": "likelihood of normal clouds, less Schwarz's penalty",
    "agreement_mean": "mean agreement with the other proposals",
    "the judge, proposals apart": "per-proposal network, no attention",
    "trees": f"{TREES} boosted trees, per proposal",
}


def section(folder: Path) -> str:
    """The section, from a heading on; nothing if the judge itself was not measured."""
    records = comparable(read_lines(folder / OUT.name, AblationRecord))
    judge = next((record for record in records if record.part == "whole"), None)
    if judge is None:
        return ""
    parts = ["\n\n## Coterie: what the judge needs", _introduction(judge)]
    for part, head in HEADS.items():
        inside = [record for record in records if record.part == part]
        if inside:
            # Of the numbers of sets, all of them is the last one.
            rows = [*inside, judge] if part == "sets" else [judge, *inside]
            heads = [head, "ARI", "less than the judge", "best possible", "error in k"]
            parts.append(table(heads, [_row(record, judge) for record in rows]))
    return "\n\n".join(parts)


def comparable(records: Sequence[AblationRecord]) -> list[AblationRecord]:
    """The last line of each variant, of those that were trained and measured with the same sets as the last of all."""
    return list(
        {
            (record.part, record.variant): record
            for record in records
            if record.circumstances == records[-1].circumstances
        }.values()
    )


def _introduction(judge: AblationRecord) -> str:
    return (
        f"Judges trained for {judge.steps} steps each on {judge.training_sets:,} judged sets (the one that ships was "
        "trained for many more) of the [universal "
        f"prior](universal.md) or the first of them, and measured on {len(judge.scores):,} others that have more than "
        "one cluster. Best possible: ARI of the best proposal. After ± stands the standard error; that of the "
        "difference from the judge is of the differences set by set. What a judge is not told always has its usual "
        "value, in training and after; ranks of evidence go with it. Without proposals: at the choice only, by the "
        "same judge. What several algorithms propose alike is the first one's, so that more is lost than if it had not "
        "run; where nothing is left, ARI is 0."
    )


def _row(record: AblationRecord, judge: AblationRecord) -> list[str]:
    title = f"{record.training_sets:,}" if record.part == "sets" else NAMES.get(record.variant, record.variant)
    if record is judge:
        title, difference = f"**{judge.variant}**: all {judge.training_sets:,} sets, all evidence", "–"
    else:
        lost = np.array(judge.scores) - np.array(record.scores)
        difference = f"{number(float(lost.mean()))} ± {number(float(lost.std() / np.sqrt(len(lost))))}"
    return [
        title,
        f"{number(record.metrics['ari'])} ± {number(record.metrics['ari_se'])}",
        difference,
        f"{number(record.metrics['best'])} ± {number(record.metrics['best_se'])}",
        f"{record.metrics['k_error']:.2f} ± {record.metrics['k_error_se']:.2f}",
    ]
