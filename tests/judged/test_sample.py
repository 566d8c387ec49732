"""Several subsamples of a large table vote: each scores the choices of the others, and one wins."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit
from sklearn.metrics import adjusted_rand_score

from coterie import Coterie
from coterie.errors import InputError
from coterie.judged.candidates.registry import Candidate, Effort, generate_candidates
from coterie.judged.judge import GRANULARITY_BONUS, Judge
from coterie.judged.preparation import Preparation
from coterie.judged.sample import (
    MAX_SAMPLES,
    POOL_ROWS,
    SAMPLE_ROWS,
    Samples,
    SubsampleVote,
    VoteResult,
    count_votes,
    disjoint_subsamples,
    subsample_indices,
)
from coterie.judged.space import Space
from coterie.tables.table import as_table
from tests.judged.sets import blobs, candidate
from tests.judged.test_judge import judge_by

Floats = npt.NDArray[np.float64]
ROWS = 60
MANY = 7_000


def vote(judge: Judge | None = None, effort: Effort = "fast", n_clusters: int | None = None) -> SubsampleVote:
    return SubsampleVote(judge or Judge.load("judge-v2"), effort, n_clusters, 50, 0.0, seed=0)


def fitted(X: Floats, **settings: Any) -> Coterie:
    return Coterie(effort="fast", random_state=0, **settings).fit(X)


@pytest.fixture
def three_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few rows and little effort, so that tests are quick."""
    monkeypatch.setitem(MAX_SAMPLES, "fast", 3)
    monkeypatch.setitem(SAMPLE_ROWS, "fast", ROWS)


def samples_of(X: npt.ArrayLike, effort: Effort) -> Samples:
    table = as_table(np.asarray(X, dtype=np.float64).reshape(len(np.asarray(X)), -1))
    preparation = Preparation.fit(table, np.arange(table.n_rows))
    return Samples.take(preparation, preparation.encode(table), effort, seed=0)


def test_rows_and_effort_limit_the_number_of_samples() -> None:
    cases: tuple[tuple[Effort, int, int], ...] = (
        ("balanced", 50, 1),
        ("balanced", 2_999, 1),
        ("balanced", 3_000, 2),
        ("balanced", 4_500, 3),
        ("balanced", 90_000, 3),
        ("fast", 90_000, 1),
    )
    for effort, n, samples in cases:
        taken = samples_of(np.arange(n) % 97, effort)
        assert [len(each) for each in taken.indices] == [min(n, SAMPLE_ROWS[effort])] * samples
        assert [len(each.x) for each in taken.spaces] == [len(each) for each in taken.indices]
        assert (taken.noise, taken.spaces[0].noise) == (None, 0.0)
    pool = subsample_indices(90_000, POOL_ROWS, 0)
    np.testing.assert_array_equal(taken.indices[0], pool[subsample_indices(len(pool), SAMPLE_ROWS["fast"], 0)])


def test_background_noise_is_in_no_sample() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([0.01 * rng.normal(size=(1200, 2)) + 0.5, rng.random((300, 2))])
    taken = samples_of(X, "fast")
    assert taken.noise is not None
    assert 0.1 < taken.spaces[0].noise < 0.25
    (chosen,) = taken.indices
    assert (chosen < 1200).mean() > 0.95
    rows = taken.reference.transform(taken.spaces[0].x)
    assert not taken.noise.find(rows).any()


def test_no_row_is_in_two_samples() -> None:
    samples = disjoint_subsamples(40, 12, 3, seed=5)
    assert len(np.unique(np.concatenate(samples))) == 36
    assert all((np.diff(each) > 0).all() for each in samples)
    assert all((one == other).all() for one, other in zip(samples, disjoint_subsamples(40, 12, 3, seed=5), strict=True))


def test_one_sample_chooses_what_the_judge_chooses() -> None:
    effort: Effort = "balanced"
    rows = blobs(40, spread=2.0)[0]
    judge = Judge.load("judge-v2")
    scored = judge.score(rows, generate_candidates(rows, effort=effort, seed=0))
    result = vote(judge, effort).run([Space(rows)])
    assert result.scored is not None
    np.testing.assert_array_equal(result.scored.logits, scored.logits)
    assert result.confidence == scored.scores[scored.choose()]
    assert result.describe_sampling(40) == []
    assert result.describe_sampling(900) == [
        "Clusters were found in a random sample of 40 rows; the other 860 were assigned to them."
    ]


@pytest.mark.usefixtures("three_samples", "untouched_random_state")
def test_three_samples_find_the_blobs() -> None:
    X, truth = blobs(MANY)
    stages: list[str] = []
    model = fitted(X, callback=lambda progress: stages.append(progress.stage))
    assert adjusted_rand_score(truth, model.labels_) > 0.99
    assert model.notes_[0] == (
        "Clusters were found in 3 random samples of 60 of the 7,000 rows, which then voted: the others agree with the "
        "winner to 1.00 (adjusted Rand index). All rows were assigned to its clusters."
    )
    for sample in (1, 2, 3):
        assert f"sample {sample} of 3: k-means, standardised columns" in stages
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), model.probabilities_)
    assert model.chosen_ in model.candidates_
    assert model.chosen_ is not None
    assert model.chosen_["score"] == pytest.approx(model.confidence_)
    assert model.runner_up_ is None or model.runner_up_["score"] < model.confidence_
    assert len(model.alternative(2, X)) == MANY


@pytest.mark.usefixtures("three_samples")
@pytest.mark.parametrize("k", [1, 3, 7])
def test_the_given_number_of_clusters_is_found(k: int) -> None:
    X = blobs(400, spread=1.5)[0]
    model = fitted(X, n_clusters=k)
    assert model.n_clusters_ == k
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert {each["n_clusters"] for each in model.candidates_} <= {k}
    assert ("voted" in model.notes_[0]) == (k > 1)


@pytest.mark.usefixtures("three_samples")
def test_samples_without_candidates_abstain() -> None:
    model = vote(n_clusters=3)
    rows, equal = Space(blobs(60)[0]), Space(np.ones((60, 3)))
    result = model.run([equal, rows])
    assert result.space is rows
    assert len(result.agreement) == 1
    with pytest.raises(InputError, match="n_clusters=3 is more than the distinct rows among the 120 rows"):
        model.run([equal, equal])
    nothing = vote().run([equal, equal])
    assert (nothing.scored, nothing.confidence) == (None, 1.0)
    assert fitted(np.ones((400, 2))).n_clusters_ == 1


def along(space: Space, *cuts: float) -> Candidate:
    """Cut the first column into clusters."""
    return candidate(np.searchsorted(cuts, space.x[:, 0]))


@pytest.fixture
def pairs() -> Callable[[int], Space]:
    """Make samples of two groups of rows."""

    def sample(seed: int) -> Space:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(60, 2))
        x[::2, 0] += 12.0
        return Space(x)

    return sample


def test_a_choice_that_is_bad_in_another_sample_loses(pairs: Callable[[int], Space]) -> None:
    judge = replace(judge_by("silhouette"), slope=0.01)
    peculiar, usual = pairs(0), pairs(1)
    peculiar.x[:30, 1] += 40.0  # half of its rows, of both groups
    chosen = [candidate(peculiar.x[:, 1] > 20.0), along(usual, 6.0)]
    scored = [judge.score(space, [one]) for space, one in zip((peculiar, usual), chosen, strict=True)]
    applied = vote(judge).apply(chosen[1], usual, peculiar)
    assert applied is not None
    extended = judge.extend(scored[0], [applied])
    assert extended.choose() == 0, "each sample prefers its own choice"
    result = vote(judge).vote(scored)
    assert result.scored is not None
    assert result.space is scored[1].space
    assert result.scored.scores.tolist() == [pytest.approx(result.confidence)]
    assert result.confidence == expit((extended.logits[1] + scored[1].logits[0]) / 2)
    assert result.agreement[0] < 0.1
    assert result.agreement[1] == 1.0


def test_a_choice_is_applied_to_other_samples(pairs: Callable[[int], Space]) -> None:
    here, there = pairs(0), pairs(1)
    choice = along(here, 6.0)
    applied = vote().apply(choice, here, there)
    assert applied is not None
    np.testing.assert_array_equal(applied.labels, along(there, 6.0).labels)
    assert (applied.n_clusters, str(applied)) == (2, "Ward linkage on standardised columns")
    assert vote().apply(choice, here, here) is choice
    assert vote(n_clusters=2).apply(along(here, 6.0, 99.0), here, there) is not None
    assert vote(n_clusters=3).apply(choice, here, there) is None


def test_choices_that_a_sample_generated_itself_are_scored_once(pairs: Callable[[int], Space]) -> None:
    judge, space = judge_by("silhouette"), pairs(0)
    scored = judge.score(space, [along(space, 6.0), along(space, 0.0, 6.0)])
    votes = vote(judge).vote_of(scored, [scored.candidates[0], along(space, 6.0), None])
    np.testing.assert_array_equal(votes, [*scored.logits[[0, 0]], np.nan])
    votes = vote(judge).vote_of(scored, [along(space, 12.0), along(space, -1.0), along(space, 12.0)])
    extended = judge.extend(scored, [along(space, 12.0), along(space, -1.0)]).logits
    np.testing.assert_array_equal(votes, extended[[2, 3, 2]])


def test_the_highest_mean_of_choices_that_no_sample_lost_wins() -> None:
    three = np.array([3, 3, 3])
    assert count_votes(np.array([[5.0, 2.0], [-9.0, 1.0]]), three[:2]) == (1, 1.5)
    assert count_votes(np.array([[0.25]]), three[:1]) == (0, 0.25)
    assert count_votes(np.array([[9.0, 1.0, 0.0], [np.nan, 0.5, 3.0], [9.0, 0.0, np.nan]]), three) == (1, 0.5)
    assert count_votes(np.array([[1.0, np.nan], [np.nan, 2.0]]), three[:2]) == (1, 2.0)


def test_granularity_decides_between_close_votes() -> None:
    votes, numbers = np.array([[0.9, 1.0]]), np.array([6, 4])
    assert count_votes(votes, numbers) == (1, 1.0)
    granularity = 1.1 * 0.1 / (GRANULARITY_BONUS * np.log2(6 / 4))
    assert count_votes(votes, numbers, granularity) == (0, 0.9)


def test_notes_say_how_many_samples_agree() -> None:
    rows = blobs(60)[0]
    for agreement, said in (
        ([1.0, 0.95, 0.9], "the others agree with the winner to 0.93"),
        ([0.5, 1.0, 0.95], "the others agree with the winner to 0.72"),
        ([0.5, 0.0, 1.0], "the others agree with the winner to 0.25"),
    ):
        (sentence,) = VoteResult(Space(rows), None, 0.5, np.array(agreement)).describe_sampling(200)
        assert said in sentence
