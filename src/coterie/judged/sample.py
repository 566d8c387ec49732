"""Subsamples of a large table: each chooses a candidate, and all of them vote on the choices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self, final

import numpy as np
from scipy.special import expit

from coterie.errors import InputError
from coterie.judged.assign import Assigner
from coterie.judged.candidates.registry import Candidate, Effort, generate_candidates, order_by_size
from coterie.judged.cosine import CosineSpace, direction_units
from coterie.judged.features.partitions import rand_indices
from coterie.judged.judge import Judge, ScoredCandidates, choose
from coterie.judged.noise import NoiseModel
from coterie.judged.preparation import Preparation
from coterie.judged.space import Floats, Integers, Labels, Singles, Space
from coterie.judged.views import AnyView, CosineView

SAMPLE_ROWS: dict[Effort, int] = {"fast": 1000, "balanced": 1500}  # rows of a subsample
MAX_SAMPLES: dict[Effort, int] = {"fast": 1, "balanced": 3}  # subsamples of a table with enough rows
COSINE_ROWS: dict[Effort, int] = {"fast": 2000, "balanced": 4000}  # rows of the only subsample of embeddings
POOL_ROWS = 20_000  # rows that noise is looked for among, and that subsamples are taken from

OnStage = Callable[[str, str], None]  # called with the phase, such as "candidates", and the stage that begins


@final
@dataclass(frozen=True, slots=True, eq=False)
class VoteResult:
    """The choice of one subsample, and how much the others agree with it."""

    space: Space  # rows of the subsample whose choice won
    scored: ScoredCandidates | None  # its candidates; None if there are none
    confidence: float  # expected adjusted Rand index of the choice, from the mean of the votes
    agreement: Floats  # adjusted Rand index of the winner with the choice of each subsample that voted, on its rows

    def describe_sampling(self, n: int) -> list[str]:
        """Say in a sentence how many of n rows were clustered; nothing if all were."""
        few, voters = len(self.space.x), len(self.agreement)
        if few == n:
            return []
        if voters < 2:
            sampled = f"Clusters were found in a random sample of {few:,} rows"
            return [f"{sampled}; the other {n - few:,} were assigned to them."]
        others = np.delete(self.agreement, self.agreement.argmax()).mean()
        sampled = f"Clusters were found in {voters} random samples of {few:,} of the {n:,} rows, which then voted"
        agreement = f"the others agree with the winner to {others:.2f} (adjusted Rand index)"
        return [f"{sampled}: {agreement}. All rows were assigned to its clusters."]


@final
@dataclass(frozen=True, slots=True)
class SubsampleVote:
    """How rows are subsampled and candidates scored, and how subsamples agree on one choice."""

    judge: Judge
    effort: Effort
    n_clusters: int | None  # if given, the number of clusters of the choice
    max_clusters: int | Literal["auto"]
    granularity: float
    seed: int
    n_jobs: int | None = None  # threads that generate candidates

    def run(self, spaces: Sequence[Space], on_stage: OnStage | None = None) -> VoteResult:
        """Score the candidates of each subsample and let all of them vote; those without candidates abstain."""
        stages = [_name_sample(index, len(spaces), on_stage) for index in range(len(spaces))]
        scored = [self.score(space, stage) for space, stage in zip(spaces, stages, strict=True)]
        if voters := [each for each in scored if each is not None]:
            return self.vote(voters)
        if self.n_clusters is not None and self.n_clusters > 1:
            raise InputError(
                f"n_clusters={self.n_clusters} is more than the distinct rows among the "
                f"{sum(len(space.x) for space in spaces):,} rows that are clustered. Ask for fewer clusters."
            )
        return VoteResult(spaces[0], None, 1.0, np.empty(0))

    def score(self, space: Space, on_stage: OnStage | None = None) -> ScoredCandidates | None:
        """Generate and score the candidates of a subsample; None if there are none with the number that was given.

        Candidates with other numbers are scored too: the judge compares, and was trained on many numbers at once.
        """
        candidates = generate_candidates(
            space,
            effort=self.effort,
            max_clusters=self.max_clusters,
            n_clusters=self.n_clusters,
            seed=self.seed,
            n_jobs=self.n_jobs,
            on_stage=None if on_stage is None else partial(on_stage, "candidates"),
        )
        wanted = [each for each in candidates if self.n_clusters in {None, each.n_clusters}]
        return self.judge.score(space, candidates, on_stage) if wanted else None

    def vote(self, scored: Sequence[ScoredCandidates]) -> VoteResult:
        """Have the choice of each subsample, of which there is at least one, scored by all others."""
        chosen = [each.candidates[self.choose(each)] for each in scored]
        choices = [(each.space, candidate) for each, candidate in zip(scored, chosen, strict=True)]
        applied = [[self.apply(candidate, own, each.space) for own, candidate in choices] for each in scored]
        votes = np.stack([self.vote_of(each, here) for each, here in zip(scored, applied, strict=True)])
        winner, logit = count_votes(votes, np.array([each.n_clusters for each in chosen]), self.granularity)
        agreement = np.array([_agreement(own, here[winner]) for own, here in zip(chosen, applied, strict=True)])
        # The other subsamples change the score of the choice: those of its alternatives change alike.
        own = scored[winner]
        shift = logit - own.logits[self.choose(own)]
        single = float(np.mean([each.single_probability for each in scored]))
        own = replace(own, logits=own.logits + shift, single_probability=single)
        own = own if self.n_clusters is None else own.having(self.n_clusters)
        return VoteResult(own.space, own, float(expit(logit)), agreement)

    def choose(self, scored: ScoredCandidates) -> int:
        """Return the index of the candidate that a subsample chooses."""
        return scored.choose(self.granularity, self.n_clusters)

    def apply(self, candidate: Candidate, own: Space, space: Space) -> Candidate | None:
        """Assign the rows of `space` to the clusters of a candidate of `own`; None if clusters get lost."""
        if space is own:
            return candidate
        labels, k = order_by_size(Assigner.fit(own, candidate).memberships(space.x).argmax(axis=1))
        enough = k >= 2 if self.n_clusters is None else k == self.n_clusters
        return replace(candidate, labels=labels, n_clusters=k) if enough else None

    def vote_of(self, scored: ScoredCandidates, choices: Sequence[Candidate | None]) -> Floats:
        """Return the logit that a subsample gives to each choice; nan for lost ones."""
        index = {each.labels.tobytes(): position for position, each in enumerate(scored.candidates)}
        new: list[Candidate] = []
        for each in choices:  # one that was generated here too is scored already
            if each is not None and (key := each.labels.tobytes()) not in index:
                index[key] = len(scored.candidates) + len(new)
                new.append(each)
        logits = (self.judge.extend(scored, new) if new else scored).logits
        return np.array([np.nan if each is None else logits[index[each.labels.tobytes()]] for each in choices])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Subsamples of the rows of a table, without background noise."""

    indices: tuple[Labels, ...]  # rows of each subsample, ascending
    spaces: tuple[Space, ...]  # the same rows as they are clustered
    reference: AnyView  # the view in which noise was looked for
    noise: NoiseModel | None  # how noise is recognised; None if there is none
    pool: Labels  # rows that the subsamples are from, without background noise, ascending

    @classmethod
    def take_directions(cls, preparation: Preparation, encoded: Singles, effort: Effort, seed: int) -> Self:
        """Take one subsample of embeddings, among which no noise is looked for; rows are in the encoding."""
        pool = subsample_indices(len(encoded), POOL_ROWS, seed)
        chosen = pool[subsample_indices(len(pool), COSINE_ROWS[effort], seed)]
        rows = encoded[chosen]
        view = CosineView.fit(rows, *direction_units(preparation, encoded))
        return cls((chosen,), (CosineSpace(rows, preparation.columns, view),), view, None, pool)

    @classmethod
    def take(cls, preparation: Preparation, encoded: Singles, effort: Effort, seed: int) -> Self:
        """Look for noise among at most 20,000 rows, and take one subsample of the others, or several if they suffice.

        Rows are in the encoding of the preparation.
        """
        size = SAMPLE_ROWS[effort]
        pool = subsample_indices(len(encoded), POOL_ROWS, seed)
        x = preparation.scale(encoded[pool])
        first = Space(x[subsample_indices(len(x), size, seed)], preparation.columns)
        reference = first.views[0]
        rows = reference.transform(x)
        noise = NoiseModel.fit(rows)
        clean = np.arange(len(pool)) if noise is None else np.flatnonzero(~noise.find(rows))
        samples = max(1, min(MAX_SAMPLES[effort], len(clean) // size))
        chosen = [clean[taken] for taken in disjoint_subsamples(len(clean), size, samples, seed)]
        left_out = 1.0 - len(clean) / len(pool)
        # Without noise, the first subsample is the one whose views are known already.
        known = [] if left_out else [first]
        spaces = (*known, *(Space(x[taken], preparation.columns, noise=left_out) for taken in chosen[len(known) :]))
        return cls(tuple(pool[taken] for taken in chosen), spaces, reference, noise, pool[clean])


def subsample_indices(n: int, at_most: int, seed: int) -> Labels:
    """Return at most that many random row indices, in ascending order."""
    if n <= at_most:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, at_most, replace=False))


def disjoint_subsamples(n: int, size: int, samples: int, seed: int) -> list[Labels]:
    """Return the row indices of that many subsamples of at most `size` rows, ascending; no row is in two."""
    left, found = np.arange(n), []
    for index in range(samples):
        taken = subsample_indices(len(left), size, seed + index)
        found.append(left[taken])
        left = np.delete(left, taken)
    return found


def count_votes(votes: Floats, n_clusters: Integers, granularity: float = 0.0) -> tuple[int, float]:
    """Return the index of the choice that wins, and its mean vote.

    `votes` (V, C) are the logits that subsamples give to choices, nan where a choice is lost. Of the choices that most
    subsamples could score, the one with the highest mean wins. A choice that is lost in a subsample was peculiar to
    another one.
    """
    counts = np.isfinite(votes).sum(axis=0)
    eligible = np.flatnonzero(counts == counts.max())
    means = np.nanmean(votes[:, eligible], axis=0)
    winner = choose(means, n_clusters[eligible], granularity)
    return int(eligible[winner]), float(means[winner])


def _agreement(own: Candidate, winner: Candidate | None) -> float:
    return 0.0 if winner is None else float(rand_indices(np.stack([own.labels, winner.labels]))[0, 1])


def _name_sample(index: int, samples: int, on_stage: OnStage | None) -> OnStage | None:
    """Let stages name the subsample, if there are several."""
    if on_stage is None or samples == 1:
        return on_stage
    return lambda phase, stage: on_stage(phase, f"sample {index + 1} of {samples}: {stage}")
