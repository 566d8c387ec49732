"""Whether DAC and ClAM would be worth asking for proposals: what they add to the best that is proposed already.

    python -m benchmarks.quality.more_proposers [--sets 60] [--quick] [--anew]

On synthetic sets of two columns, which DAC's weights are for: the best agreement with the truth among the proposals of
``Coterie(effort="balanced")``, that of DAC, and that of ClAM, which is even told the true number of clusters.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import Record, append_line, read_records
from benchmarks.quality.synthetic_sets import SyntheticSuite
from coterie import DAC, ClAM
from coterie.base import one_thread
from coterie.judged.candidates.registry import propose
from coterie.judged.prior.universal import UniversalTasks
from coterie.metrics import adjusted_rand_index

SUITE: Final = SyntheticSuite("more-proposers", seed=20_263, sets=60, quick_sets=2)
OUT: Final = SUITE.out
MAX_POINTS: Final = 600
QUICK_POINTS: Final = 60


def measured(place: int, max_points: int) -> Record:
    """The best of what is proposed for a set, and the answers of DAC and ClAM."""
    generator = SUITE.generator(place)
    tasks = UniversalTasks(max_points=max_points, max_features=2)
    drawn = tasks.draw(generator)
    while drawn.x.shape[1] != 2:
        drawn = tasks.draw(generator)
    x, truth = drawn.x.double().numpy(), drawn.labels.numpy()
    told, k = truth >= 0, int(truth.max()) + 1
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)

    def timed(answer: Callable[[], Any]) -> tuple[float, float]:
        began = time.process_time()
        labels = np.asarray(answer().labels_)
        return adjusted_rand_index(truth[told], labels[told]), time.process_time() - began

    began = time.process_time()
    proposals = propose(x, effort="balanced", seed=place)
    seconds = time.process_time() - began
    dac, dac_seconds = timed(lambda: DAC(random_state=0).fit(scaled))
    clam, clam_seconds = timed(lambda: ClAM(k, random_state=0).fit(scaled))
    metrics = {
        "best": max(adjusted_rand_index(truth[told], each.labels[told]) for each in proposals),
        "dac": dac,
        "clam": clam,
        "dac_seconds": dac_seconds,
        "clam_seconds": clam_seconds,
    }
    rounded = {name: round(value, 6) for name, value in metrics.items()}
    return replace(_blank(place, max_points), metrics=rounded, seconds=round(seconds, 4), n=len(x), k=k)


def _blank(place: int, max_points: int) -> Record:
    return SUITE.blank(place, "balanced proposals, DAC, ClAM told k", {"max_points": max_points}, d=2)


def section(folder: Path) -> str:
    """The section of the results page, from a heading on; nothing if nothing was measured."""
    records = read_records(folder / OUT.name)
    if not records:
        return ""
    columns = {
        name: np.array([record.metrics[name] for record in records], dtype=np.float64) for name in records[0].metrics
    }
    rows = [
        [
            title,
            number(float(columns[name].mean())),
            number(float(np.maximum(columns[name], columns["best"]).mean()), 4),
            f"{seconds:.2f}",
        ]
        for title, name, seconds in (
            ("all proposals", "best", float(np.mean([record.seconds for record in records]))),
            ("DAC", "dac", float(columns["dac_seconds"].mean())),
            ("ClAM, told k", "clam", float(columns["clam_seconds"].mean())),
        )
    ]
    text = (
        f"{len(records)} fresh synthetic sets of two columns (seed {records[0].seed}). The best of what is proposed at "
        "balanced effort, an upper bound for any judge, and what it would be if DAC or ClAM proposed too. That is why "
        "they do not."
    )
    head = ["who", "mean ARI", "ARI of the best with it", "s"]
    return "\n\n".join(["\n\n## Coterie: would DAC and ClAM add to the proposals?", text, table(head, rows)])


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the results file does not have yet."""
    with SUITE.asked(arguments) as asked:
        max_points = QUICK_POINTS if asked.quick else MAX_POINTS
        known = asked.known()
        for place in range(asked.sets):
            if _blank(place, max_points).key not in known:
                record = measured(place, max_points)
                append_line(asked.out, record)
                print(record.data, dict(record.metrics), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
