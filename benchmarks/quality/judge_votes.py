"""What it brings that several samples of a large table vote: large synthetic sets that nothing was trained on.

    python -m benchmarks.quality.judge_votes [--sets 9] [--quick] [--anew]

Of each set as many samples are drawn, proposed for and judged as by ``Coterie(effort="thorough")``. What the first of
them chooses alone takes all rows, and so does what all of them elect. Agreement is that of all rows with the truth,
time is the processor's. What the results file has already is not made again.
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
from coterie.judged.candidates.candidate import Proposal
from coterie.judged.candidates.registry import Effort
from coterie.judged.judge import JUDGED_ROWS, Judge
from coterie.judged.prior.universal import DrawnSet, UniversalTasks
from coterie.judged.sample import VOTERS, Election, Voting, disjoint

SUITE: Final = SyntheticSuite("judge-votes", seed=20_264, sets=9, quick_sets=2)
OUT: Final = SUITE.out
POINTS: Final = 8_000
EFFORT: Final[Effort] = "thorough"
MAX_CLUSTERS: Final = 50
QUICK_POINTS: Final = 160
QUICK_ROWS: Final = 50


def measured(place: int, points: int, rows: int) -> Iterator[Record]:
    """A line for the first sample alone, and one for all that vote."""
    one = UniversalTasks(min_points=points, max_points=points).draw(SUITE.generator(place))
    x = one.x.double().numpy()
    voting = Voting(Judge.called(JUDGE), EFFORT, None, MAX_CLUSTERS, 0.0, seed=place)
    hearings, seconds = [], []
    for kept in disjoint(len(x), rows, VOTERS[EFFORT], place):
        began = time.process_time()
        hearing = voting.hearing(x[kept])
        seconds.append(time.process_time() - began)
        if hearing is not None:
            hearings.append(hearing)
    alone = [voting.tally([hearing]) for hearing in hearings]
    began = time.process_time()
    together = voting.tally(hearings)
    seconds_of_vote = time.process_time() - began
    agreements = [_agreement(one, each) for each in alone]
    for voters, election, spent in (
        (1, alone[0], seconds[0]),
        (VOTERS[EFFORT], together, sum(seconds) + seconds_of_vote),
    ):
        yield replace(
            _blank(place, points, rows, voters),
            k=len(np.unique(one.labels[one.labels >= 0])),
            d=x.shape[1],
            metrics={
                "ari": round(_agreement(one, election), 6),
                "n_clusters": _chosen(election).n_clusters,
                "confidence": round(election.confidence, 6),
                "changed": int(election.rows is not alone[0].rows),
                "least_agreement": round(float(election.agreement.min()), 6),
                "mean_alone": round(float(np.mean(agreements)), 6),
                "best_alone": round(max(agreements), 6),
            },
            seconds=round(spent, 3),
        )


def _chosen(election: Election) -> Proposal:
    if election.opinions is None:
        raise AssertionError("sets of the universal prior have clusters, so something is proposed for them")
    return election.opinions.proposals[election.opinions.choice()]


def _agreement(one: DrawnSet, election: Election) -> float:
    return agreement_of_all(one, election.rows, _chosen(election))


def _blank(place: int, points: int, rows: int, voters: int) -> Record:
    settings: Settings = {"effort": EFFORT, "judge": JUDGE, "rows": rows, "voters": voters}
    return SUITE.blank(place, "one sample" if voters == 1 else f"{voters} samples", settings, n=points)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the results file does not have yet."""
    with SUITE.asked(arguments) as asked:
        points, rows = (QUICK_POINTS, QUICK_ROWS) if asked.quick else (POINTS, JUDGED_ROWS[EFFORT])
        known = asked.known()
        for place in range(asked.sets):
            if _blank(place, points, rows, VOTERS[EFFORT]).key in known:
                continue
            for record in measured(place, points, rows):
                append_line(asked.out, record)
                print(f"{record.data:14} {record.method:12} {dict(record.metrics)} {record.seconds} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
