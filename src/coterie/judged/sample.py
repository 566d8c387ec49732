"""Samples of a large table -> what each of them would take -> the one choice that all of them together prefer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from scipy.special import expit

from coterie.errors import InputError
from coterie.judged.assign import Floats, Integers, Opinions, Partitioner, drawn, preferred
from coterie.judged.candidates.candidate import Proposal, by_size
from coterie.judged.candidates.registry import Effort, propose
from coterie.judged.features.table import rand_indices
from coterie.judged.judge import JUDGED_ROWS, REFINING_ROUNDS, Hearing, Judge, Refining

VOTERS: dict[Effort, int] = {"fast": 1, "balanced": 1, "thorough": 3}
"""Samples that a table is looked at by, if it has rows enough."""

OnProgress = Callable[[str], None]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Election:
    """What is taken: the choice of one sample, and what became of it in the others."""

    rows: Floats
    """Of the sample whose choice it is."""
    opinions: Opinions | None
    """Of the proposals for these rows; None if there are none."""
    confidence: float
    """Agreement with the truth that the judge expects, by the mean of its votes."""
    agreement: Floats
    """What is taken with the choice of each sample that voted, among the rows of that sample (adjusted Rand index)."""

    def sampling(self, n: int, another: float) -> list[str]:
        """How many of n rows were looked at, in a sentence; none if all were.

        Choices that agree by less than a bound are different ones.
        """
        few, voters = len(self.rows), len(self.agreement)
        if few == n:
            return []
        if voters < 2:
            return [f"{few:,} of the {n:,} rows, drawn by chance, were clustered; what was found takes the others"]
        same = int((self.agreement >= another).sum()) - 1
        who = {voters - 1: "all", 0: "none of the others"}.get(same, f"{same} of the other {voters - 1}")
        each = f"{voters} samples of {few:,} rows each, drawn by chance from {n:,}"
        return [f"{each}, voted, and {who} found much the same; what won takes all rows"]


@final
@dataclass(frozen=True, eq=False)
class Candidate:
    """What a sample would take."""

    rows: Floats
    proposal: Proposal

    def among(self, rows: Floats) -> Proposal:
        """The same for the rows of any sample."""
        if rows is self.rows:
            return self.proposal
        labels, n_clusters = by_size(self._rule.memberships(rows).argmax(axis=1))
        return replace(self.proposal, labels=labels, n_clusters=n_clusters)

    @cached_property
    def _rule(self) -> Partitioner:
        return Partitioner.of(self.rows, self.proposal)


@final
@dataclass(frozen=True, slots=True)
class Voting:
    """How samples are looked at, and how they come to one choice."""

    judge: Judge
    effort: Effort
    n_clusters: int | None
    """If given, whatever is taken has exactly as many."""
    max_clusters: int
    granularity: float
    seed: int

    def samples(self, n: int) -> list[Integers]:
        """Places of the rows of each sample: one, or several if n rows are enough for them."""
        at_most = JUDGED_ROWS[self.effort]
        voters = 1 if self.n_clusters == 1 else min(VOTERS[self.effort], n // at_most)
        return disjoint(n, at_most, max(1, voters), self.seed)

    def election(self, samples: Sequence[Floats], on_progress: OnProgress | None = None) -> Election:
        """Look at the rows of each sample, and let all of them vote; those without proposals abstain."""
        told = [_of_sample(place, len(samples), on_progress) for place in range(len(samples))]
        heard = [self.hearing(rows, tell) for rows, tell in zip(samples, told, strict=True)]
        if hearings := [hearing for hearing in heard if hearing is not None]:
            return self.tally(hearings)
        if self.n_clusters is not None and self.n_clusters > 1:
            raise InputError(
                f"n_clusters={self.n_clusters}, but the {sum(map(len, samples)):,} rows that are looked at have fewer "
                "distinct values. Ask for fewer clusters."
            )
        return Election(samples[0], None, 1.0, np.empty(0))

    def hearing(self, rows: Floats, on_progress: OnProgress | None = None) -> Hearing | None:
        """What is proposed for the rows of a sample, judged and refined; None if nothing is."""
        proposals = propose(
            rows,
            effort=self.effort,
            max_clusters=self.max_clusters,
            n_clusters=self.n_clusters,
            seed=self.seed,
            on_progress=on_progress,
        )
        rounds, keep_number = REFINING_ROUNDS[self.effort], self.n_clusters is not None
        refining = Refining(rounds, self.granularity, self.max_clusters, keep_number)
        return self.judge.hearing(rows, proposals, refining) if proposals else None

    def tally(self, hearings: Sequence[Hearing]) -> Election:
        """Have the choice of each sample, of which there is at least one, judged among the proposals of all others."""
        opinions = [hearing.opinions for hearing in hearings]
        chosen = [each.proposals[each.choice(self.granularity)] for each in opinions]
        candidates = [Candidate(each.rows, proposal) for each, proposal in zip(opinions, chosen, strict=True)]
        seen = [[self._unless_lost(one.among(each.rows)) for one in candidates] for each in opinions]
        votes = np.stack([self._votes(hearing, here) for hearing, here in zip(hearings, seen, strict=True)])
        winner, vote = tallied(votes, np.array([each.n_clusters for each in chosen]), self.granularity)
        agreement = [_agreement(own, here[winner]) for own, here in zip(chosen, seen, strict=True)]
        return Election(opinions[winner].rows, opinions[winner], float(expit(vote)), np.array(agreement))

    def _unless_lost(self, proposal: Proposal) -> Proposal | None:
        """None in place of a candidate too many of whose clusters have no row in a sample."""
        enough = proposal.n_clusters >= 2 if self.n_clusters is None else proposal.n_clusters == self.n_clusters
        return proposal if enough else None

    def _votes(self, hearing: Hearing, candidates: Sequence[Proposal | None]) -> Floats:
        """What a sample thinks of each candidate, as a logit; nan for those that are lost there."""
        places = {each.labels.tobytes(): place for place, each in enumerate(hearing.case.proposals)}
        new: list[Proposal] = []
        for each in candidates:  # one that some algorithm proposed here too is there already
            if each is not None and (key := each.labels.tobytes()) not in places:
                places[key] = len(hearing.case.proposals) + len(new)
                new.append(each)
        logits = (self.judge.joined(hearing, new) if new else hearing).opinions.logits
        return np.array([np.nan if each is None else logits[places[each.labels.tobytes()]] for each in candidates])


def disjoint(n: int, at_most: int, samples: int, seed: int) -> list[Integers]:
    """Places of the rows of so many samples, each of at most so many rows in rising order; no row is in two."""
    left, found = np.arange(n), []
    for place in range(samples):
        taken = drawn(len(left), at_most, seed + place)
        found.append(left[taken])
        left = np.delete(left, taken)
    return found


def tallied(votes: Floats, n_clusters: Integers, granularity: float = 0.0) -> tuple[int, float]:
    """Place of the candidate that wins, and its mean vote.

    Of those that most samples could judge, since what is lost in a sample was peculiar to another, the one with the
    highest mean wins, by the rule that proposals are chosen by.

    Parameters
    ----------
    votes : float64 array (V, C)
        What each sample thinks of each candidate, as a logit; nan if it could not judge it. Each has some vote.
    n_clusters : int64 array (C,)
        How many clusters each candidate has.
    granularity : float
        Above 0 to favour many clusters.
    """
    judges = np.isfinite(votes).sum(axis=0)
    eligible = np.flatnonzero(judges == judges.max())
    means = np.nanmean(votes[:, eligible], axis=0)
    winner = preferred(means, n_clusters[eligible], granularity)
    return int(eligible[winner]), float(means[winner])


def _agreement(own: Proposal, taken: Proposal | None) -> float:
    """Of the choice of a sample with what is taken; none if that is lost there."""
    return 0.0 if taken is None else float(rand_indices(np.stack([own.labels, taken.labels]))[0, 1])


def _of_sample(place: int, samples: int, on_progress: OnProgress | None) -> OnProgress | None:
    """Let what is told say which sample it is about, if there are several."""
    if on_progress is None or samples == 1:
        return on_progress
    return lambda words: on_progress(f"sample {place + 1} of {samples}: {words}")
