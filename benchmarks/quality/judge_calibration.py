"""Whether the judge's confidence is what it says: predicted and true agreement on synthetic sets that it never saw.

    python -m benchmarks.quality.judge_calibration [--sets 400] [--quick] [--anew]

Sets are drawn from the universal prior, from a seed that nothing is trained with. Every second one gets the proposals
of "balanced" effort, the others those of "fast"; some are one cluster of a larger set, for the question whether there
are clusters at all. Of each set a line is written: what the shipped judge chose, the agreement that it expects of it,
and the one that it has. What the results file has already is not made again. ``judge_calibration_figure`` draws it.
"""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from typing import Final

import numpy as np
import torch

from benchmarks.quality.records import Record, Settings, append_line
from benchmarks.quality.synthetic_sets import Asked, SyntheticSuite
from benchmarks.quality.zero_shot_peers import JUDGE
from coterie.base import one_thread
from coterie.judged.candidates.registry import Effort, propose
from coterie.judged.judge import Judge
from coterie.judged.prior.universal import UniversalTasks
from coterie.judged.training import largest_alone
from coterie.metrics import adjusted_rand_index

SUITE: Final = SyntheticSuite("judge-calibration", seed=20_261, sets=400, quick_sets=4)
OUT: Final = SUITE.out
SINGLE: Final = 0.15
"""Share of the sets that are one cluster, as in the judge's training."""
PART: Final = 10
"""Sets that a process makes before they are written down."""
MAX_POINTS: Final = 1_000
"""Of a set, as in the judge's training."""
QUICK_POINTS: Final = 60


def effort_of(place: int) -> Effort:
    """Every second set is looked at with more effort."""
    return "balanced" if place % 2 else "fast"


@one_thread()
def judged_part(places: Sequence[int], max_points: int) -> list[Record]:
    """A line for each of some sets."""
    return [judged_set(place, max_points) for place in places]


def judged_set(place: int, max_points: int) -> Record:
    """Draw a set, have it proposed for and judged, and compare what is chosen with the truth."""
    generator = SUITE.generator(place)
    drawn = UniversalTasks(max_points=max_points).draw(generator)
    if float(torch.rand((), generator=generator)) < SINGLE:
        drawn = largest_alone(drawn)
    x, truth = drawn.x.double().numpy(), drawn.labels.numpy()
    told = truth >= 0
    began = time.process_time()
    proposals = propose(x, effort=effort_of(place), seed=place)
    n, d = x.shape
    record = replace(_blank(place, max_points), n=n, d=d, k=len(np.unique(truth[told])))
    if not proposals:
        return replace(record, note="nothing was proposed")
    opinions = Judge.called(JUDGE).opinions(x, proposals)
    seconds = time.process_time() - began
    chosen = opinions.choice()
    scores = [adjusted_rand_index(truth[told], each.labels[told]) for each in proposals]
    metrics = {
        "confidence": round(float(opinions.scores[chosen]), 6),
        "ari": round(scores[chosen], 6),
        "best": round(max(scores), 6),
        "n_clusters": proposals[chosen].n_clusters,
        "proposals": len(proposals),
        "single": round(opinions.single, 6),
    }
    return replace(record, metrics=metrics, seconds=round(seconds, 4))


def _blank(place: int, max_points: int) -> Record:
    effort = effort_of(place)
    settings: Settings = {"effort": effort, "judge": JUDGE, "max_points": max_points, "single_share": SINGLE}
    return SUITE.blank(place, f"coterie-{effort}", settings)


def missing_parts(asked: Asked, max_points: int) -> list[Sequence[int]]:
    """Places of the sets that the file does not have, in portions."""
    known = asked.known()
    places = [place for place in range(asked.sets) if _blank(place, max_points).key not in known]
    return [places[start : start + PART] for start in range(0, len(places), PART)]


def judged_parts(parts: Sequence[Sequence[int]], max_points: int) -> Iterator[list[Record]]:
    """The parts as they are finished, made on all processors."""
    # Not forked: threads of libraries that are loaded here would be missing in a copy.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(judged_part, part, max_points) for part in parts]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge what the results file does not have yet."""
    with SUITE.asked(arguments) as asked:
        max_points = QUICK_POINTS if asked.quick else MAX_POINTS
        parts = missing_parts(asked, max_points)
        found = (judged_part(part, max_points) for part in parts) if asked.quick else judged_parts(parts, max_points)
        for done, part in enumerate(found, start=1):
            for record in part:
                append_line(asked.out, record)
                print(_line(record), flush=True)
            print(f"{done} of {len(parts)} parts", flush=True)
    return 0


def _line(record: Record) -> str:
    start = f"{record.data:14} {record.method:17} {record.n:5} × {record.d:<3} {record.k:2} clusters  "
    return start + (record.note or f"{dict(record.metrics)} {record.seconds:.1f} s")


if __name__ == "__main__":
    sys.exit(main())
