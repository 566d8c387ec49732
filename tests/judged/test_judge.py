"""The judge: laws of its network, and the choice among scored candidates."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast, final

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.judged.candidates.registry import Candidate
from coterie.judged.features.table import CandidateFeatures
from coterie.judged.judge import Judge, JudgeConfig, JudgeNetwork, ScoredCandidates
from coterie.judged.network import JudgedBatch, JudgeModel
from coterie.judged.space import Space
from coterie.nn.model import build, to_arrays, to_tensors
from coterie.training.loop import TrainConfig, train

COLUMNS = 6


def network(**settings: float) -> JudgeModel:
    config = JudgeConfig(COLUMNS, width=16, heads=2, **settings)  # type: ignore[arg-type]  # numbers of either kind
    return build(JudgeModel, config, Generator().manual_seed(0))


def batch(seed: int = 0, sets: int = 8) -> JudgedBatch:
    """The second column determines the score; in sets of one cluster the third is high throughout."""
    source = Generator().manual_seed(seed)
    columns = torch.randn((sets, 12, COLUMNS), generator=source)
    single = torch.rand(sets, generator=source) < 0.3
    columns[..., 2] += 4.0 * single.unsqueeze(1)
    valid = torch.arange(12) < torch.randint(3, 13, (sets, 1), generator=source)
    score = (columns[..., 1] * 2).sigmoid()
    return JudgedBatch(columns, score, torch.zeros_like(score), valid, single)


def test_permuting_candidates_permutes_scores_and_masking_equals_removal() -> None:
    model, columns = network().double(), torch.randn((2, 9, COLUMNS), dtype=torch.float64)
    order = torch.randperm(9)
    score, single = model(columns)
    permuted, same = model(columns[:, order])
    torch.testing.assert_close(permuted, score[:, order])
    torch.testing.assert_close(same, single)
    model, columns = network().double(), torch.randn((2, 9, COLUMNS), dtype=torch.float64)
    valid = (torch.arange(9) < 5).expand(2, -1)
    score, single = model(columns, valid)
    alone, same = model(columns[:, :5])
    torch.testing.assert_close(score[:, :5], alone)
    torch.testing.assert_close(single, same)


def test_a_perfect_prediction_has_no_error_and_a_sure_choice_no_regret() -> None:
    model, shown = network(column_dropout=0.0), batch()
    truth = shown.score.logit().masked_fill(shown.single.unsqueeze(1), -50.0)  # no partition of one cluster is right
    model.members[0].forward = lambda *_: (truth, 100.0 * shown.single - 50.0)
    parts = model.loss(shown, Generator().manual_seed(0)).parts
    assert parts["error"] == pytest.approx(0.0, abs=1e-5)
    assert parts["single"] == pytest.approx(0.0, abs=1e-5)
    model.members[0].forward = lambda *_: (100.0 * truth, shown.single.float())
    assert model.loss(shown, Generator().manual_seed(0)).parts["regret"] == pytest.approx(0.0, abs=1e-4)


def test_scores_of_sets_of_one_cluster_have_no_effect() -> None:
    model, shown = network(), batch()
    assert shown.single.any()
    alone = shown.single.unsqueeze(1)
    other = replace(
        shown, score=torch.where(alone, 0.123, shown.score), doublings=torch.where(alone, 2.0, shown.doublings)
    )
    first, second = (model.loss(each, Generator().manual_seed(0)).total for each in (shown, other))
    torch.testing.assert_close(first, second)


def test_a_wrong_number_of_clusters_adds_to_the_regret() -> None:
    weight = 0.2
    model, shown = network(column_dropout=0.0, number_weight=weight), batch()
    sure = 100.0 * torch.nn.functional.one_hot(torch.zeros(8, dtype=torch.int64), 12).float()
    model.members[0].forward = lambda *_: (sure, shown.single.float())
    alike = replace(shown, score=torch.full_like(shown.score, 0.7))
    for doublings, lost in ((0.0, 0.0), (1.0, weight), (9.0, 3.0 * weight)):
        off = torch.zeros_like(shown.score)
        off[:, 0] = doublings  # the first is chosen; all others have the true number
        regret = model.loss(replace(alike, doublings=off), Generator().manual_seed(0)).parts["regret"]
        assert regret == pytest.approx(lost, abs=1e-5)


def test_logits_are_the_mean_over_the_members() -> None:
    # Within the limits at which the ensemble clips columns, which its members do not.
    model, columns = network(members=3).double(), 4.0 * torch.rand((2, 9, COLUMNS), dtype=torch.float64) - 2.0
    score, single = model(columns)
    each = [member(columns, None) for member in model.members]
    torch.testing.assert_close(score, torch.stack([one for one, _ in each]).mean(dim=0))
    torch.testing.assert_close(single, torch.stack([one for _, one in each]).mean(dim=0))
    assert not torch.allclose(each[0][0], each[1][0])


def test_normalisation_is_robust_and_leaves_constant_columns() -> None:
    model = network()
    columns = torch.randn((500, COLUMNS), generator=Generator().manual_seed(0)) * 7.0 + 3.0
    columns[:, 4] = 2.0  # the same everywhere
    model.fit_normalisation(columns)
    torch.testing.assert_close(model.centre, torch.tensor([3.0, 3, 3, 3, 2, 3]), atol=1.0, rtol=0)
    torch.testing.assert_close(model.spread, torch.tensor([7.0, 7, 7, 7, 1, 7]), atol=1.0, rtol=0)


def test_it_learns_to_choose_the_best() -> None:
    model = network(column_dropout=0.0)
    train(
        model,
        (batch(seed, 16) for seed in range(1, 200)),
        TrainConfig(150, learning_rate=3e-3, schedule="one-cycle"),
        generator=Generator().manual_seed(0),
    )
    parts = model.loss(batch(999, 64), Generator().manual_seed(0)).parts
    assert parts["regret"] < 0.05
    assert parts["error"] < 0.05
    assert parts["single"] < 0.3


def test_every_parameter_gets_a_gradient() -> None:
    model = network()
    model.loss(batch(), Generator().manual_seed(0)).total.backward()  # type: ignore[no-untyped-call]
    gradients: dict[str, Tensor | None] = {name: value.grad for name, value in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


@pytest.mark.parametrize("setting", [{"width": 0}, {"depth": 0}, {"heads": 5}, {"column_dropout": 1.0}], ids=str)
def test_invalid_configurations_are_rejected(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        JudgeConfig(COLUMNS, **setting)  # type: ignore[arg-type]  # numbers of either kind


def with_random_weights() -> JudgeNetwork:
    """Random normalisation and biases too, which are neutral in a new network."""
    source = Generator().manual_seed(1)
    state = network(members=2, depth=3).state_dict()
    changed = {name: value + 0.3 * torch.randn(value.shape, generator=source).abs() for name, value in state.items()}
    return JudgeNetwork(JudgeConfig(COLUMNS, width=16, heads=2, members=2, depth=3), to_arrays(changed))


@pytest.mark.parametrize("make", [with_random_weights, lambda: Judge.read("judge-v2").network], ids=["random", "v2"])
@pytest.mark.parametrize("n_candidates", [1, 2, 40, 400])
def test_numpy_computes_what_torch_does(make: Callable[[], JudgeNetwork], n_candidates: int) -> None:
    computed = make()
    model = build(JudgeModel, computed.config, Generator())
    model.load_state_dict(to_tensors(computed.weights))
    deviations = np.random.default_rng(0).normal(0.0, 3.0, (n_candidates, computed.config.n_columns))
    columns = (computed.centre + deviations * computed.weights["spread"]).astype(np.float32)
    logits, single = computed(columns)
    with torch.no_grad():
        expected, expected_single = model(torch.from_numpy(columns).unsqueeze(0))
    np.testing.assert_allclose(logits, expected[0].numpy(), rtol=1e-5, atol=1e-5)
    assert single == pytest.approx(float(expected_single), rel=1e-5, abs=1e-5)


def test_weights_of_another_configuration_are_rejected() -> None:
    arrays = to_arrays(network().state_dict())
    for changed in (
        {name: value for name, value in arrays.items() if name != "spread"},
        arrays | {"more": arrays["spread"]},
    ):
        with pytest.raises(ConfigError, match=r"spread|more"):
            JudgeNetwork(JudgeConfig(COLUMNS, width=16, heads=2), changed)


@final
class OneColumn:
    """A network that scores candidates by one column."""

    def __init__(self, factor: float) -> None:
        self.factor, self.centre = factor, np.zeros(1)

    def __call__(self, columns: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], float]:
        return self.factor * columns[:, 0], 0.0


def judge_by(name: str, sign: float = 1.0) -> Judge:
    """Differences are large, so that none is within the tolerance of the best."""
    return Judge(cast(JudgeNetwork, OneColumn(1000.0 * sign)), (name,), 1.0, 0.0)


def four_groups() -> tuple[np.ndarray, np.ndarray]:
    truth = np.arange(160) % 4
    centres = np.array([[0.0, 0.0, 0.0], [30.0, 0.0, 0.0], [0.0, 30.0, 0.0], [0.0, 0.0, 30.0]])
    return centres[truth] + np.random.default_rng(0).normal(size=(160, 3)), truth


def scored_candidates(logits: Sequence[float], numbers: Sequence[int]) -> ScoredCandidates:
    candidates = tuple(Candidate(np.arange(12) % k, k, "k-means", "standardised", "centres") for k in numbers)
    features = CandidateFeatures(
        Space(np.zeros((12, 1))), candidates, np.zeros((len(numbers), 0), dtype=np.float32), np.eye(len(numbers))
    )
    return ScoredCandidates(features, np.array(logits), 0.0)


def test_the_highest_score_is_chosen_unless_granularity_decides() -> None:
    assert scored_candidates([1.0, 0.9, 1.1], [6, 4, 2]).choose() == 2
    scored = scored_candidates([0.0, 0.0, 0.0], [2, 4, 8])
    assert [scored.choose(granularity) for granularity in (-1.0, 0.0, 1.0, 1e6)] == [0, 0, 2, 2]


def test_the_best_with_a_number_is_chosen_and_keeps_its_score() -> None:
    scored = scored_candidates([1.0, 0.2, 0.9, 0.5], [2, 3, 4, 3])
    assert scored.choose(n_clusters=3) == 3
    kept = scored.having(3)
    assert [each.n_clusters for each in kept.candidates] == [3, 3]
    assert kept.logits.tolist() == [0.2, 0.5]
    assert (kept.choose(), kept.features.agreement.shape) == (1, (2, 2))
