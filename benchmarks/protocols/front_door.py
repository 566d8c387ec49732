"""The command on files as people keep them, without any option but the name of the file, or with those of the suite."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from benchmarks.data.front_door import WRITERS
from benchmarks.data.tables import NOISE
from benchmarks.lines import Line, record
from benchmarks.suite import Job, Suite
from coterie.metrics import adjusted_rand_index

FAILED = -1.0  # the score of a file that the command rejects


def files(suite: Suite) -> Iterator[Job]:
    """Derive one job per file and seed; a line has the score, the seconds and what the command said."""
    runs = [(name, "") for name in suite.get("files", list(WRITERS))]
    for name, options in [*runs, *suite.get("options", {}).items()]:
        method = f"coterie cluster {options}".strip()
        for seed in suite["seeds"]:
            line = record(suite["suite"], name, method, seed, {})
            yield Job([line], partial(_measure, name, seed, options.split()))


def _measure(name: str, seed: int, options: Sequence[str], pending: Sequence[Line]) -> Iterator[Line]:
    (blank,) = pending
    with TemporaryDirectory() as folder:
        path, y = WRITERS[name](Path(folder), seed)
        out = Path(folder) / "clusters.csv"
        began = time.perf_counter()
        # S603 warns of any command that is not one literal: this one is our own, on a file that was just written.
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "coterie", "cluster", str(path), "--json", "-o", str(out), *options],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - began
        found = blank | {"n": len(y), "k": len(np.unique(y[y != NOISE])), "seconds": round(seconds, 3)}
        if done.returncode:
            yield found | {"metrics": {"ari": FAILED, "failed": 1}, "note": done.stderr.strip()}
            return
        summary, rows = json.loads(done.stdout), pd.read_csv(out)
        inside = y != NOISE
        metrics = {
            "ari": round(adjusted_rand_index(y[inside], rows["cluster"].to_numpy()[inside]), 6),
            "n_clusters": summary["n_clusters"],
            "confidence": summary.get("confidence"),
            "failed": 0,
        }
        yield found | {"metrics": metrics, "said": summary["notes"], "rows_named_by": rows.columns[0]}
