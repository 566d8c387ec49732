"""Several samples of a large table vote: each judges what the others would take, and one choice wins."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import expit
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from coterie import Coterie
from coterie.errors import InputError
from coterie.judged.assign import PULL, TOLERANCE, drawn
from coterie.judged.candidates.candidate import Proposal, by_size
from coterie.judged.candidates.registry import Effort, propose
from coterie.judged.judge import JUDGED_ROWS, REFINING_ROUNDS, Judge, Refining
from coterie.judged.sample import VOTERS, Candidate, Election, Voting, disjoint, tallied
from coterie.methods import load
from tests.estimators.test_coterie_judge import by
from tests.proposals.sets import blobs

Floats = npt.NDArray[np.float64]
ROWS = 60
MANY = 7_000


def voting(judge: Judge | None = None, effort: Effort = "fast", n_clusters: int | None = None) -> Voting:
    return Voting(judge or Judge.called("judge-v2"), effort, n_clusters, 50, 0.0, seed=0)


def fitted(X: Floats, **settings: Any) -> Coterie:
    return Coterie(effort="fast", random_state=0, **settings).fit(X)


@pytest.fixture
def three_voters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows and little effort, so that tests are quick."""
    monkeypatch.setitem(VOTERS, "fast", 3)
    monkeypatch.setitem(JUDGED_ROWS, "fast", ROWS)


@pytest.fixture(scope="module")
def many() -> tuple[Floats, npt.NDArray[np.int64]]:
    return blobs(MANY)


def test_there_are_as_many_samples_as_rows_and_effort_allow() -> None:
    cases: tuple[tuple[Effort, int, int], ...] = (
        ("thorough", 50, 1),
        ("thorough", 3_999, 1),
        ("thorough", 4_000, 2),
        ("thorough", 6_000, 3),
        ("thorough", 90_000, 3),
        ("balanced", 90_000, 1),
        ("fast", 90_000, 1),
    )
    for effort, n, samples in cases:
        found = voting(effort=effort).samples(n)
        assert [len(each) for each in found] == [min(n, JUDGED_ROWS[effort])] * samples
        np.testing.assert_array_equal(found[0], drawn(n, JUDGED_ROWS[effort], 0))


def test_no_row_is_in_two_samples() -> None:
    samples = disjoint(40, 12, 3, seed=5)
    assert len(np.unique(np.concatenate(samples))) == 36
    assert all((np.diff(each) > 0).all() for each in samples)
    assert all((one == other).all() for one, other in zip(samples, disjoint(40, 12, 3, seed=5), strict=True))


def test_one_voter_takes_what_the_judge_takes() -> None:
    effort: Effort = "balanced"
    rows = blobs(40, spread=2.0)[0]
    judge = Judge.called("judge-v2")
    refining = Refining(REFINING_ROUNDS[effort], 0.0, 50, keep_number=False)
    opinions = judge.opinions(rows, propose(rows, effort=effort, seed=0), refining)
    election = voting(judge, effort).election([rows])
    assert election.opinions is not None
    np.testing.assert_array_equal(election.opinions.logits, opinions.logits)
    assert election.confidence == opinions.scores[opinions.choice()]
    assert election.sampling(40, 0.9) == []
    assert election.sampling(900, 0.9) == [
        "40 of the 900 rows, drawn by chance, were clustered; what was found takes the others"
    ]


@pytest.mark.usefixtures("three_voters", "untouched_random_state")
def test_three_voters_find_what_is_there(many: tuple[Floats, npt.NDArray[np.int64]], tmp_path: Path) -> None:
    X, truth = many
    told: list[str] = []
    model = fitted(X, on_progress=told.append)
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    assert model.notes_[0] == (
        "3 samples of 60 rows each, drawn by chance from 7,000, voted, and all found much the same; "
        "what won takes all rows"
    )
    for sample in (1, 2, 3):
        assert f"sample {sample} of 3: k-means, standardised columns" in told
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_array_equal(model.predict_proba(X), model.probabilities_)
    assert model.chosen_ in model.proposals_
    assert len(model.alternative(2, X)) == MANY
    model.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert isinstance(loaded, Coterie)
    np.testing.assert_array_equal(loaded.predict(X), model.labels_)
    assert (loaded.confidence_, loaded.notes_) == (model.confidence_, model.notes_)
    assert loaded.proposals_ == model.proposals_


@pytest.mark.usefixtures("three_voters")
def test_same_seed_same_vote_whatever_the_threads() -> None:
    X = blobs(190, spread=2.5)[0]
    first, before = fitted(X), torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with threadpool_limits(2):
            again = fitted(X)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(again.probabilities_, first.probabilities_)
    assert (again.proposals_, again.confidence_, again.notes_) == (first.proposals_, first.confidence_, first.notes_)


@pytest.mark.usefixtures("three_voters")
@pytest.mark.parametrize("k", [1, 3, 7])
def test_a_number_that_is_asked_for_is_honoured(k: int) -> None:
    X = blobs(400, spread=1.5)[0]
    model = fitted(X, n_clusters=k)
    assert model.n_clusters_ == k
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert {each["n_clusters"] for each in model.proposals_} <= {k}
    assert ("voted" in model.notes_[0]) == (k > 1)


@pytest.mark.usefixtures("three_voters")
def test_samples_without_proposals_abstain() -> None:
    model = voting(n_clusters=3)
    rows, equal = blobs(60)[0], np.ones((60, 3))
    election = model.election([equal, rows])
    assert election.rows is rows
    assert len(election.agreement) == 1
    with pytest.raises(InputError, match="n_clusters=3, but the 120 rows that are looked at have fewer distinct"):
        model.election([equal, equal.copy()])
    nothing = voting().election([equal, equal.copy()])
    assert (nothing.opinions, nothing.confidence) == (None, 1.0)
    assert fitted(np.ones((400, 2))).n_clusters_ == 1


def proposed(labels: npt.NDArray[np.int64]) -> Proposal:
    return Proposal(*by_size(labels), "Ward linkage", "standardised", "neighbours", refined=True)


def along(x: Floats, *cuts: float) -> Proposal:
    """Clusters between cuts of the first column."""
    return proposed(np.searchsorted(cuts, x[:, 0]).astype(np.int64))


@pytest.fixture
def pairs() -> Callable[[int], Floats]:
    """Make samples of two groups of rows."""

    def sample(seed: int) -> Floats:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(60, 2))
        x[::2, 0] += 12.0
        return x

    return sample


def test_what_is_bad_in_another_sample_loses(pairs: Callable[[int], Floats]) -> None:
    judge = replace(by("silhouette"), slope=0.01)
    peculiar, usual = pairs(0), pairs(1)
    peculiar[:30, 1] += 40.0  # half of its rows, of both groups
    chosen = [proposed((peculiar[:, 1] > 20.0).astype(np.int64)), along(usual, 6.0)]
    hearings = [judge.hearing(x, [one]) for x, one in zip((peculiar, usual), chosen, strict=True)]
    elsewhere = Candidate(usual, chosen[1]).among(peculiar)
    opinions = judge.joined(hearings[0], [elsewhere]).opinions
    assert opinions.choice() == 0, "each sample likes its own best"
    election = voting(judge).tally(hearings)
    assert election.opinions is hearings[1].opinions
    assert election.confidence == expit((opinions.logits[1] + hearings[1].opinions.logits[0]) / 2)
    assert election.agreement[0] < 0.1
    assert election.agreement[1] == 1.0


def test_a_candidate_keeps_its_name_in_other_samples(pairs: Callable[[int], Floats]) -> None:
    here, there = pairs(0), pairs(1)
    candidate = Candidate(here, along(here, 6.0))
    seen = candidate.among(there)
    np.testing.assert_array_equal(seen.labels, along(there, 6.0).labels)
    assert (seen.n_clusters, seen.algorithm, seen.view, seen.rule, seen.refined) == (
        2,
        "Ward linkage",
        "standardised",
        "neighbours",
        True,
    )
    assert candidate.among(here) is candidate.proposal


def test_what_was_proposed_there_too_is_judged_once(pairs: Callable[[int], Floats]) -> None:
    judge = by("silhouette")
    hearings = [judge.hearing(each, [along(each, 6.0), along(each, 0.0, 6.0)]) for each in (pairs(0), pairs(1))]
    votes = voting(judge)._votes(hearings[0], [hearings[0].case.proposals[0], along(pairs(0), 6.0), None])
    np.testing.assert_array_equal(votes, [*hearings[0].opinions.logits[[0, 0]], np.nan])
    joined = voting(judge)._votes(hearings[0], [along(pairs(0), 12.0), along(pairs(0), -1.0), along(pairs(0), 12.0)])
    larger = judge.joined(hearings[0], [along(pairs(0), 12.0), along(pairs(0), -1.0)]).opinions.logits
    np.testing.assert_array_equal(joined, larger[[2, 3, 2]])


def test_the_highest_mean_wins() -> None:
    assert tallied(np.array([[5.0, 2.0], [-9.0, 1.0]]), np.array([3, 3])) == (1, 1.5)
    assert tallied(np.array([[0.25]]), np.array([2])) == (0, 0.25)


def test_about_equal_means_lean_as_proposals_do() -> None:
    near, far = 0.9 * TOLERANCE, 1.1 * TOLERANCE
    numbers = np.array([6, 4])
    assert tallied(np.array([[1.0, 1.0 - near]]), numbers)[0] == 1
    assert tallied(np.array([[1.0, 1.0 - far]]), numbers)[0] == 0
    dial = 1.1 * (TOLERANCE - near) / (PULL * np.log2(6 / 4))
    assert tallied(np.array([[1.0, 1.0 - near]]), numbers, dial)[0] == 0
    assert tallied(np.array([[1.0, 1.0 - near]]), numbers, dial)[1] == 1.0


def test_what_is_lost_in_a_sample_gives_way() -> None:
    votes = np.array([[9.0, 1.0, 0.0], [np.nan, 0.5, 3.0], [9.0, 0.0, np.nan]])
    assert tallied(votes, np.array([3, 3, 3])) == (1, 0.5)
    alone = np.array([[1.0, np.nan], [np.nan, 2.0]])
    assert tallied(alone, np.array([4, 4])) == (1, 2.0)


def test_it_is_said_who_agrees() -> None:
    rows = blobs(60)[0]
    for agreement, said in (
        ([1.0, 0.95, 0.9], "and all found"),
        ([0.5, 1.0, 0.95], "and 1 of the other 2 found"),
        ([0.5, 0.0, 1.0], "and none of the others found"),
    ):
        (sentence,) = Election(rows, None, 0.5, np.array(agreement)).sampling(200, 0.9)
        assert said in sentence
