"""How many rows Coterie must look at, and what refining brings: large synthetic sets that nothing was trained on.

    python -m benchmarks.quality.judge_rows [--sets 60] [--quick] [--anew]

Of each set some rows are drawn, proposed for and judged as by ``Coterie(effort="balanced")``, and what is chosen takes
all rows, with refining and without. Agreement is that of all rows with the truth. What the results file has already is
not made again.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.quality.records import Record, Settings, append_line
from benchmarks.quality.synthetic_sets import SyntheticSuite, agreement_of_all
from benchmarks.quality.zero_shot_peers import JUDGE
from coterie.base import one_thread
from coterie.judged.assign import drawn
from coterie.judged.candidates.registry import Effort, propose
from coterie.judged.judge import REFINING_ROUNDS, Judge, Refining
from coterie.judged.prior.universal import UniversalTasks

SUITE: Final = SyntheticSuite("judge-rows", seed=20_262, sets=60, quick_sets=2)
OUT: Final = SUITE.out
POINTS: Final = 3_000
ROWS: Final = (300, 1_000, 1_500, 2_000)
EFFORT: Final[Effort] = "balanced"
MAX_CLUSTERS: Final = 50
QUICK_POINTS: Final = 120
QUICK_ROWS: Final = (40, 80)


def measured(place: int, points: int, rows: int) -> Iterator[Record]:
    """A line without refining, and one with it, for a set of which so many rows are looked at."""
    one = UniversalTasks(min_points=points, max_points=points).draw(SUITE.generator(place))
    x = one.x.double().numpy()
    some = x[drawn(len(x), rows, place)]
    began = time.process_time()
    proposals = propose(some, effort=EFFORT, max_clusters=MAX_CLUSTERS, seed=place)
    before = time.process_time() - began
    for rounds in (0, REFINING_ROUNDS[EFFORT]):
        refining = Refining(rounds, 0.0, MAX_CLUSTERS, keep_number=False)
        began = time.process_time()
        opinions = Judge.called(JUDGE).opinions(some, proposals, refining)
        seconds = before + time.process_time() - began
        chosen = opinions.proposals[opinions.choice()]
        yield replace(
            _blank(place, points, rows, rounds),
            k=len(np.unique(one.labels[one.labels >= 0])),
            d=x.shape[1],
            metrics={
                "ari": round(agreement_of_all(one, some, chosen), 6),
                "n_clusters": chosen.n_clusters,
                "changed": int(chosen.refined),
            },
            seconds=round(seconds, 3),
        )


def _blank(place: int, points: int, rows: int, rounds: int) -> Record:
    method = f"{rows} rows{', refined' if rounds else ''}"
    settings: Settings = {"effort": EFFORT, "judge": JUDGE, "rows": rows, "rounds": rounds}
    return SUITE.blank(place, method, settings, n=points)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the results file does not have yet."""
    with SUITE.asked(arguments) as asked:
        points, numbers = (QUICK_POINTS, QUICK_ROWS) if asked.quick else (POINTS, ROWS)
        known = asked.known()
        for place in range(asked.sets):
            for rows in numbers:
                if _blank(place, points, rows, REFINING_ROUNDS[EFFORT]).key in known:
                    continue
                for record in measured(place, points, rows):
                    append_line(asked.out, record)
                    print(f"{record.data:14} {record.method:20} {dict(record.metrics)} {record.seconds} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
