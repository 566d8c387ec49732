"""How many rows Coterie must look at, and what refining brings: large synthetic sets that nothing was trained on.

    python -m benchmarks.quality.judge_rows [--sets 60] [--quick] [--anew]

Of each set some rows are drawn, proposed for and judged as by ``Coterie(effort="balanced")``, and what is chosen takes
all rows, with refining and without. Agreement is that of all rows with the truth. What the results file has already is
not made again.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from torch import Generator

from benchmarks.quality.records import Record, append_line, current_commit, library_versions, read_records
from benchmarks.quality.zero_shot_peers import JUDGE
from coterie.estimators.base import one_thread
from coterie.estimators.coterie_choice import Partitioner, drawn
from coterie.estimators.coterie_judge import REFINING_ROUNDS, Judge, Refining
from coterie.metrics import adjusted_rand_index
from coterie.proposals import Effort, Proposal, propose
from coterie.tasks.universal import DrawnSet, UniversalTasks

OUT: Final = Path("benchmarks/results/judge_rows.jsonl")
SUITE: Final = "judge-rows"
SEED: Final = 20_262
"""Nothing is trained with it."""
STRIDE: Final = 1_000_003
SETS: Final = 60
POINTS: Final = 3_000
ROWS: Final = (300, 1_000, 1_500, 2_000)
EFFORT: Final[Effort] = "balanced"
MAX_CLUSTERS: Final = 50
QUICK_SETS: Final = 2
QUICK_POINTS: Final = 120
QUICK_ROWS: Final = (40, 80)


def measured(place: int, points: int, rows: int) -> Iterator[Record]:
    """A line without refining, and one with it, for a set of which so many rows are looked at."""
    one = UniversalTasks(min_points=points, max_points=points).draw(Generator().manual_seed(SEED * STRIDE + place))
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
                "ari": round(_agreement(one, some, chosen), 6),
                "n_clusters": chosen.n_clusters,
                "changed": int(chosen.refined),
            },
            seconds=round(seconds, 3),
        )


def _agreement(one: DrawnSet, some: np.ndarray, chosen: Proposal) -> float:
    """Of all rows with the truth, when what was chosen for some takes all."""
    labels = Partitioner.of(some, chosen).memberships(one.x.double().numpy()).argmax(axis=1)
    told = one.labels.numpy() >= 0
    return adjusted_rand_index(one.labels.numpy()[told], labels[told])


def _blank(place: int, points: int, rows: int, rounds: int) -> Record:
    return Record(
        suite=SUITE,
        data=f"universal/{place}",
        method=f"{rows} rows{', refined' if rounds else ''}",
        seed=SEED,
        settings={"effort": EFFORT, "judge": JUDGE, "rows": rows, "rounds": rounds},
        metrics={},
        seconds=0.0,
        n=points,
        d=0,
        k=0,
        commit=current_commit(),
        versions=library_versions(),
    )


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the results file does not have yet."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.judge_rows")
    parser.add_argument("--sets", type=int, default=SETS, help="how many (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a few small sets, kept nowhere")
    parser.add_argument("--anew", action="store_true", help="forget what the file has")
    parser.add_argument("--out", type=Path, help=f"results file (default: {OUT})")
    options = parser.parse_args(arguments)
    sets, points, numbers = (QUICK_SETS, QUICK_POINTS, QUICK_ROWS) if options.quick else (options.sets, POINTS, ROWS)
    with TemporaryDirectory() as spare:
        out = options.out or (Path(spare) / OUT.name if options.quick else OUT)
        if options.anew:
            out.unlink(missing_ok=True)
        known = {record.key for record in read_records(out)}
        for place in range(sets):
            for rows in numbers:
                if _blank(place, points, rows, REFINING_ROUNDS[EFFORT]).key in known:
                    continue
                for record in measured(place, points, rows):
                    append_line(out, record)
                    print(f"{record.data:14} {record.method:20} {dict(record.metrics)} {record.seconds} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
