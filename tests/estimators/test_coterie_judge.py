"""The judge improves what it prefers by small steps, and only as long as it prefers the result."""

from typing import cast, final

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn

from coterie import Coterie
from coterie.judged.assign import TOLERANCE, Opinions
from coterie.judged.candidates.candidate import Proposal, by_size
from coterie.judged.features.table import BRIEF
from coterie.judged.judge import Judge, JudgeModel, Refining


@final
class OneColumn(nn.Module):
    """A judge that goes by one number about a proposal."""

    def __init__(self, name: str, sign: float) -> None:
        super().__init__()
        self.place, self.sign = BRIEF.index(name), sign

    def forward(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        return self.sign * columns[..., self.place], torch.zeros(len(columns))


def by(name: str, sign: float = 1.0) -> Judge:
    """Differences are made large, so that none is about as good as the best."""
    return Judge(cast(JudgeModel, OneColumn(name, 1000.0 * sign)), 1.0, 0.0)


def refining(rounds: int, *, keep_number: bool = False, max_clusters: int = 50) -> Refining:
    return Refining(rounds, 0.0, max_clusters, keep_number)


def proposed(labels: np.ndarray) -> Proposal:
    return Proposal(*by_size(labels), "Ward linkage", "standardised", "neighbours")


def apart() -> tuple[np.ndarray, np.ndarray]:
    """Four groups of rows, far from each other."""
    truth = np.arange(160) % 4
    places = np.array([[0.0, 0.0, 0.0], [30.0, 0.0, 0.0], [0.0, 30.0, 0.0], [0.0, 0.0, 30.0]])
    return places[truth] + np.random.default_rng(0).normal(size=(160, 3)), truth


@pytest.fixture
def cut_in_two() -> tuple[np.ndarray, np.ndarray, Proposal]:
    """Four blobs, one of which is given as two clusters."""
    x, truth = apart()
    return x, truth, proposed(np.where((truth == 0) & (x[:, 0] > np.median(x[truth == 0, 0])), 4, truth))


def test_a_cluster_in_two_is_made_one(cut_in_two: tuple[np.ndarray, np.ndarray, Proposal]) -> None:
    x, truth, wrong = cut_in_two
    opinions = by("silhouette").opinions(x, [wrong], refining(2))
    best = opinions.proposals[opinions.choice()]
    assert best.refined
    assert adjusted_rand_score(truth, best.labels) == 1.0
    assert opinions.proposals[0] is wrong


def test_each_round_is_one_step() -> None:
    x, truth = apart()
    found = []
    for rounds in (0, 1, 2):
        opinions = by("log_clusters", -1.0).opinions(x, [proposed(truth)], refining(rounds))
        found.append(opinions.proposals[opinions.choice()].n_clusters)
    assert found == [4, 3, 2]


def test_what_is_not_preferred_leaves_no_trace() -> None:
    x, truth = apart()
    right = proposed(truth)
    opinions = by("silhouette").opinions(x, [right], refining(3))
    assert opinions.proposals == [right]


@pytest.mark.parametrize(("keep_number", "max_clusters"), [(True, 50), (False, 5)])
def test_limits_on_the_number_hold(
    keep_number: bool, max_clusters: int, cut_in_two: tuple[np.ndarray, np.ndarray, Proposal]
) -> None:
    x, _, wrong = cut_in_two
    many = by("log_clusters").opinions(x, [wrong], refining(3, keep_number=keep_number, max_clusters=max_clusters))
    assert {each.n_clusters for each in many.proposals} == {5}


def test_a_number_that_was_asked_for_is_kept_at_every_effort() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    for effort in ("balanced", "thorough"):
        model = Coterie(n_clusters=5, effort=effort, random_state=0).fit(x)
        assert model.n_clusters_ == 5
        np.testing.assert_array_equal(model.predict(x), model.labels_)


def test_it_is_said_what_was_refined(
    monkeypatch: pytest.MonkeyPatch, cut_in_two: tuple[np.ndarray, np.ndarray, Proposal]
) -> None:
    x, _, wrong = cut_in_two
    monkeypatch.setattr("coterie.judged.sample.propose", lambda *_, **__: [wrong])
    monkeypatch.setattr("coterie.judged.estimator.Judge.called", lambda _: by("silhouette"))
    model = Coterie(random_state=0).fit(x)
    assert model.n_clusters_ == 4
    assert model.chosen_ is not None
    assert model.chosen_["refined"]
    assert model.notes_[0].endswith("Ward linkage on standardised columns was taken, refined")
    assert [each["refined"] for each in model.proposals_].count(False) == 1


def thought(logits: list[float], numbers: list[int]) -> Opinions:
    """Opinions of proposals with these numbers of clusters; what the proposals are does not matter."""
    proposals = [Proposal(np.arange(12) % k, k, "k-means", "standardised", "centres") for k in numbers]
    return Opinions(np.zeros((12, 1)), proposals, np.array(logits), 0.0)


def test_of_what_is_about_as_good_the_fewest_clusters_are_taken() -> None:
    near, far = 0.9 * TOLERANCE, 1.1 * TOLERANCE
    assert thought([1.0, 1.0 - near, 1.0 - far], [6, 4, 2]).choice() == 1
    assert thought([1.0 - near, 1.0, 1.0 - near / 2], [4, 6, 4]).choice() == 2
    assert thought([1.0, 1.0 - near], [4, 6]).choice() == 0


def test_the_dial_outweighs_that() -> None:
    opinions = thought([0.0, 0.0, 0.0], [2, 4, 8])
    assert [opinions.choice(dial) for dial in (-1.0, 0.0, 1.0, 1e6)] == [0, 0, 2, 2]
