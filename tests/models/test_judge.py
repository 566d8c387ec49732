"""The judge of partitions: laws of the network, and that it learns what it is for."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.judged.judge import JudgeConfig, JudgeModel
from coterie.nn.model import JudgedBatch, build
from coterie.training.loop import TrainConfig, train

COLUMNS = 6


def judge(**settings: float) -> JudgeModel:
    config = JudgeConfig(COLUMNS, width=16, heads=2, **settings)  # type: ignore[arg-type]  # numbers of either kind
    return build(JudgeModel, config, Generator().manual_seed(0))


def batch(seed: int = 0, sets: int = 8) -> JudgedBatch:
    """The second column tells the score; in single sets the third is high throughout."""
    source = Generator().manual_seed(seed)
    columns = torch.randn((sets, 12, COLUMNS), generator=source)
    single = torch.rand(sets, generator=source) < 0.3
    columns[..., 2] += 4.0 * single.unsqueeze(1)
    valid = torch.arange(12) < torch.randint(3, 13, (sets, 1), generator=source)
    score = (columns[..., 1] * 2).sigmoid()
    return JudgedBatch(columns, score, torch.zeros_like(score), valid, single)


def test_permuting_proposals_permutes_scores() -> None:
    model, columns = judge().double(), torch.randn((2, 9, COLUMNS), dtype=torch.float64)
    order = torch.randperm(9)
    score, single = model(columns)
    permuted, same = model(columns[:, order])
    torch.testing.assert_close(permuted, score[:, order])
    torch.testing.assert_close(same, single)


def test_masking_equals_removal() -> None:
    model, columns = judge().double(), torch.randn((2, 9, COLUMNS), dtype=torch.float64)
    valid = (torch.arange(9) < 5).expand(2, -1)
    score, single = model(columns, valid)
    alone, same = model(columns[:, :5])
    torch.testing.assert_close(score[:, :5], alone)
    torch.testing.assert_close(single, same)


def test_a_perfect_prediction_has_no_error_and_a_sure_choice_no_regret() -> None:
    model, shown = judge(hidden_columns=0.0), batch()
    truth = shown.score.logit()
    model.members[0].forward = lambda *_: (truth, 100.0 * shown.single - 50.0)
    parts = model.loss(shown, Generator().manual_seed(0)).parts
    assert parts["error"] == pytest.approx(0.0, abs=1e-5)
    assert parts["single"] == pytest.approx(0.0, abs=1e-5)
    model.members[0].forward = lambda *_: (100.0 * truth, shown.single.float())
    assert model.loss(shown, Generator().manual_seed(0)).parts["regret"] == pytest.approx(0.0, abs=1e-4)


def test_scores_of_single_sets_count_for_nothing() -> None:
    model, shown = judge(), batch()
    assert shown.single.any()
    alone = shown.single.unsqueeze(1)
    other = replace(shown, score=torch.where(alone, 0.123, shown.score), doublings=torch.where(alone, 2.0, 0.0))
    first, second = (model.loss(each, Generator().manual_seed(0)).total for each in (shown, other))
    torch.testing.assert_close(first, second)


def test_a_wrong_number_of_clusters_makes_a_choice_worth_less() -> None:
    weight = 0.2
    model, shown = judge(hidden_columns=0.0, number_weight=weight), batch()
    sure = 100.0 * torch.nn.functional.one_hot(torch.zeros(8, dtype=torch.int64), 12).float()
    model.members[0].forward = lambda *_: (sure, shown.single.float())
    alike = replace(shown, score=torch.full_like(shown.score, 0.7))
    for doublings, lost in ((0.0, 0.0), (1.0, weight), (9.0, 3.0 * weight)):
        off = torch.zeros_like(shown.score)
        off[:, 0] = doublings  # the first is chosen; all others have the true number
        regret = model.loss(replace(alike, doublings=off), Generator().manual_seed(0)).parts["regret"]
        assert regret == pytest.approx(lost, abs=1e-5)


def test_the_judgement_is_the_mean_of_the_members() -> None:
    model, columns = judge(members=3).double(), torch.randn((2, 9, COLUMNS), dtype=torch.float64)
    score, single = model(columns)
    each = [member(columns, None) for member in model.members]
    torch.testing.assert_close(score, torch.stack([one for one, _ in each]).mean(dim=0))
    torch.testing.assert_close(single, torch.stack([one for _, one in each]).mean(dim=0))
    assert not torch.allclose(each[0][0], each[1][0])


def test_what_is_usual_is_learnt_from_the_columns() -> None:
    model = judge()
    columns = torch.randn((500, COLUMNS), generator=Generator().manual_seed(0)) * 7.0 + 3.0
    columns[:, 4] = 2.0  # the same everywhere
    model.accustom(columns)
    torch.testing.assert_close(model.centre, torch.tensor([3.0, 3, 3, 3, 2, 3]), atol=1.0, rtol=0)
    torch.testing.assert_close(model.spread, torch.tensor([7.0, 7, 7, 7, 1, 7]), atol=1.0, rtol=0)


def test_it_learns_to_choose() -> None:
    model = judge(hidden_columns=0.0)
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
    model = judge()
    model.loss(batch(), Generator().manual_seed(0)).total.backward()  # type: ignore[no-untyped-call]
    gradients: dict[str, Tensor | None] = {name: value.grad for name, value in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []


@pytest.mark.parametrize("setting", [{"width": 0}, {"depth": 0}, {"hidden_columns": 1.0}], ids=str)
def test_configurations_that_cannot_be_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        JudgeConfig(COLUMNS, **setting)  # type: ignore[arg-type]  # numbers of either kind
