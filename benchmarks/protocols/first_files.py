"""Generated tables as people have them: the default method and its peers, told k or not.

A line has the scores of the suite ``zero_shot`` (ARI without the rows that are noise in truth) and what went wrong:

- ``single``: the answer is one cluster, or noise only.
- ``noise_recall``, ``noise_precision``: of rows that are noise in truth, and of rows that are called noise.
- ``column_ami``: adjusted mutual information of the answer with the most similar column of few values; ``repeats`` if
  it is .95 or more.
- ``gap_clusters``: clusters that consist of the rows with a gap in one column.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_mutual_info_score

from benchmarks.data.first_files import FILES, load_file
from benchmarks.data.tables import NOISE, ReferenceSet
from benchmarks.lines import Labels, Line, record
from benchmarks.protocols.zero_shot import Method, Worker, fit_set, methods_of
from benchmarks.suite import Job, Suite

FEW_VALUES: Final = 20
REPEATED: Final = 0.95  # adjusted mutual information at and above which an answer repeats a column
GAP_SHARE: Final = 0.8  # of the rows of a cluster that gaps made
USUAL_GAPS: Final = 0.5  # share of gaps in a column above which they are nothing special


def fits(suite: Suite) -> Iterator[Job]:
    """Derive one job per method, over all files and seeds; files and fits have the same seed."""
    names = [name for name in FILES if name.startswith(tuple(suite["files"]))]
    for method in methods_of(suite.methods):
        lines = [
            record(suite["suite"], name, method.name, seed, _settings(name, method))
            for name in names
            if method.is_for(name)
            for seed in suite["seeds"]
        ]
        yield Job(lines, partial(_measure, method, suite.get("max_rows")))


def _settings(name: str, method: Method) -> dict[str, Any]:
    # Variants of a family share rows, so that they can be compared seed by seed.
    kind, family, variant = [*name.split("/"), ""][:3]
    return {"kind": kind, "family": family, "variant": variant, "given_k": method.given_k, **method.settings}


def _measure(method: Method, max_rows: int | None, pending: Sequence[Line]) -> Iterator[Line]:
    method.require_package()
    worker = Worker(method)
    try:
        for blank in pending:
            file = load_file(blank["data"], blank["seed"])
            frame, y = file.frame.iloc[:max_rows], file.y[:max_rows]
            one = ReferenceSet(blank["data"], blank["settings"]["kind"], frame, (y,))
            yield fit_set(blank, one, method, worker.ask, examine)
    finally:
        worker.stop()


def examine(one: ReferenceSet, labels: Labels) -> dict[str, float]:
    """Compute the metrics that only this suite has."""
    frame = pd.DataFrame(one.X)
    similar = [_column_ami(frame[name], labels) for name in frame if 2 <= frame[name].nunique() <= FEW_VALUES]
    ami = max(similar, default=0.0)
    metrics = {
        "single": int(len(np.unique(labels[labels != NOISE])) <= 1),
        "column_ami": round(ami, 6),
        "repeats": int(ami >= REPEATED),
        "gap_clusters": _gap_clusters(frame, labels),
    }
    noise, called = one.references[0] == NOISE, labels == NOISE
    if noise.any():
        metrics["noise_recall"] = round(float(called[noise].mean()), 6)
    if called.any():
        metrics["noise_precision"] = round(float(noise[called].mean()), 6)
    return metrics


def _column_ami(column: "pd.Series[Any]", labels: Labels) -> float:
    present = column.notna().to_numpy()
    return float(adjusted_mutual_info_score(pd.factorize(column[present])[0], labels[present]))


def _gap_clusters(frame: pd.DataFrame, labels: Labels) -> int:
    """Count clusters of which most rows have a gap in one column that has few."""
    gaps = frame.isna()
    gaps = gaps.loc[:, (gaps.mean() > 0) & (gaps.mean() < USUAL_GAPS)]
    return int((gaps.groupby(labels).mean() >= GAP_SHARE).any(axis=1).sum()) if gaps.shape[1] else 0
