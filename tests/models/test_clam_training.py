"""How ClAM's model learns: runs side by side, rates of their own, the authors' masks and plateau rule."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.clam.model import ClamConfig, ClamModel
from coterie.nn.model import PointBatch
from coterie.training.batches import point_batches
from coterie.training.loop import TrainConfig, train


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def rows(count: int = 50, features: int = 5, seed: int = 3) -> Tensor:
    return torch.randn(count, features, generator=seeded(seed))


def make_model(*, runs: int = 3, features: int = 5, **settings: Any) -> ClamModel:
    """Runs that differ in prototypes, beta, rate, mask rate and fill."""
    model = ClamModel(ClamConfig(n_features=features, n_prototypes=4, n_runs=runs, **settings))
    with torch.no_grad():
        model.prototypes.copy_(rows(runs * 4, features, seed=1).view(runs, 4, features))
        model.beta.copy_(torch.linspace(0.3, 1.5, runs))
        model.rate.copy_(torch.logspace(-1, -3, runs))
        model.mask_rate.copy_(torch.tensor([0.15, 0.4, 0.15, 0.6])[:runs])
        model.fill.copy_(rows(runs, features, seed=2))
    return model


def learn(
    model: ClamModel, x: Tensor, *, epochs: int = 4, schedule: Any = "cosine", weight: Tensor | None = None
) -> None:
    batches = point_batches(x, batch_size=16, epochs=epochs, generator=seeded(4), weight=weight)
    steps = epochs * -(-len(x) // 16)
    train(model, batches, TrainConfig(steps, learning_rate=1.0, schedule=schedule), generator=seeded(5))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
@pytest.mark.parametrize("weighting", ["equal", "learned"])
def test_runs_learn_together_as_they_do_alone(metric: str, weighting: str) -> None:
    settings: Any = {"metric": metric, "weighting": weighting, "rows_per_mask": 4}
    together = make_model(**settings)
    alone = [make_model(**settings).take(torch.tensor([run])) for run in range(3)]
    before = together.prototypes.detach().clone()
    learn(together, rows())
    for run, model in enumerate(alone):
        learn(model, rows())
        torch.testing.assert_close(model.prototypes[0], together.prototypes[run], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.log_weights[0], together.log_weights[run], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.stack(model.history)[:, 0], torch.stack(together.history)[:, run])
    assert (together.prototypes != before).all()


def test_each_run_has_a_rate_of_its_own() -> None:
    """A unit step shortened by ``after_step`` is Adam at the run's rate."""
    model = make_model(weighting="learned")
    learn(model, rows(), schedule="constant")
    for run, rate in enumerate(torch.logspace(-1, -3, 3).tolist()):
        expected = make_model(weighting="learned").take(torch.tensor([run]))
        optimiser = torch.optim.Adam([expected.prototypes, expected.log_weights], lr=rate)
        generator = seeded(5)
        for batch in point_batches(rows(), batch_size=16, epochs=4, generator=seeded(4)):
            optimiser.zero_grad()
            expected.row_losses(batch.x, generator).mean().backward()  # type: ignore[no-untyped-call]  # torch's own
            optimiser.step()
        torch.testing.assert_close(model.prototypes[run], expected.prototypes[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(model.log_weights[run], expected.log_weights[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan", "mahalanobis"])
@pytest.mark.parametrize("objective", ["masked", "unmasked"])
def test_training_lowers_the_loss(metric: Any, objective: Any) -> None:
    x = torch.cat([rows(30) * 0.1 + 2, rows(30) * 0.1 - 2])
    model = make_model(runs=1, metric=metric, objective=objective)
    model.fill.zero_()
    learn(model, x, epochs=30)
    assert len(model.history) == 30
    assert float(model.history[-1]) < 0.7 * float(model.history[0])


def test_absent_prototypes_never_move() -> None:
    model = make_model(weighting="learned")
    model.present[1, 2:] = False
    before = model.prototypes.detach().clone()
    learn(model, rows())
    assert torch.equal(model.prototypes[1, 2:], before[1, 2:])
    assert (model.prototypes[1, :2] != before[1, :2]).all()


def test_equal_row_weights_change_nothing() -> None:
    plain, weighted = make_model(), make_model()
    learn(plain, rows())
    learn(weighted, rows(), weight=torch.full((50,), 3.0))
    torch.testing.assert_close(weighted.prototypes, plain.prototypes)


def test_rows_of_weight_zero_are_as_if_absent() -> None:
    """With one mask for the batch, since a row less would shift the masks of the others."""
    x, weight = rows(10), torch.tensor([1.0, 2.0] * 3 + [0.0] * 4)
    model = make_model(rows_per_mask=32)
    weighted = model.loss(PointBatch(x, torch.arange(10), weight), seeded())
    only = model.loss(PointBatch(x[:6], torch.arange(6), weight[:6]), seeded())
    torch.testing.assert_close(weighted.total, only.total)


def test_a_batch_without_any_weight_teaches_nothing() -> None:
    model = make_model()
    before = model.prototypes.detach().clone()
    learn(model, rows(), weight=torch.zeros(50).index_fill(0, torch.tensor([7]), 1.0))
    assert torch.isfinite(model.prototypes).all()
    assert not torch.equal(model.prototypes, before)


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.6])
def test_masks_hide_the_wanted_share_and_at_least_one_feature(rate: float) -> None:
    model = make_model(runs=1, features=40, rows_per_mask=1)
    model.mask_rate.fill_(rate)
    hidden = model._draw_masks(2000, seeded())
    assert hidden.shape == (1, 2000, 40)
    assert set(hidden.flatten().tolist()) == {0.0, 1.0}
    assert (hidden.sum(dim=2) >= 1).all()
    assert float(hidden.mean()) == pytest.approx(rate, abs=0.01)


def test_a_higher_mask_rate_hides_what_a_lower_one_does_and_more() -> None:
    model = make_model(runs=3)
    model.mask_rate.copy_(torch.tensor([0.5, 0.1, 0.3]))
    hidden = model._draw_masks(200, seeded())
    assert (hidden.diff(dim=0) >= 0).all()
    assert model._rate_index().tolist() == [2, 0, 1]


def test_legacy_masks() -> None:
    model = make_model(runs=1, features=20, legacy_mask=True, rows_per_mask=1)
    model.mask_rate.fill_(0.3)
    shared = []
    for epoch in range(6):
        model.history = [torch.zeros(1)] * epoch
        hidden = model._draw_masks(64, seeded(epoch))
        shared.append(hidden.shape[1] == 1)
        assert (hidden[:, :, 0] == 0).all(), "the first feature is never hidden"
        counts = hidden.sum(dim=2)
        assert (counts <= 6).all()  # int(20 * 0.3) draws, of which some coincide
        assert (counts >= 1).all()
    assert shared == [False, False, True, False, False, True]
    model.history = []
    hidden = model._draw_masks(3000, seeded())[0]
    assert (hidden[:, 1:].mean(dim=0) - (1 - (18 / 19) ** 6)).abs().max() < 0.05


def end_epoch(model: ClamModel, losses: Sequence[float]) -> None:
    """Let an epoch end with these losses, without moving a prototype."""
    model._before_step = [model.prototypes.detach().clone()]
    model._batch_loss = torch.tensor(losses)
    model._ends_epoch = True
    model.after_step()


def test_plateau_rule() -> None:
    """A mean over 10 epochs that gains less than 0.001 in 5 epochs on end costs a fifth of the rate."""
    model = make_model(runs=3, plateau=True)
    model.rate.fill_(0.1)
    rates = []
    for epoch in range(25):
        slowly = 10.0 - 0.0009 * epoch
        steadily = 10.0 - 0.01 * epoch
        late = 10.0 if epoch < 13 else 9.0 - 0.5 * epoch
        end_epoch(model, (slowly, steadily, late))
        rates.append(model.rate.tolist())
    slow, steady, late_rates = (torch.tensor(rates)[:, run] for run in range(3))
    cuts = (torch.nonzero(slow.diff() < 0).flatten() + 1).tolist()
    assert cuts == [14, 19, 24], "the first mean of 10 to compare with ends the tenth epoch"
    torch.testing.assert_close(slow[-1], torch.tensor(0.1 * 0.8**3))
    assert (steady == 0.1).all()
    assert (late_rates == 0.1).all(), "three stalled epochs are forgiven once the loss falls again"


def test_a_run_whose_rate_has_shrunk_to_nothing_stops() -> None:
    model = make_model(runs=2, plateau=True)
    model.rate.copy_(torch.tensor([1.1e-6, 0.1]))
    for _ in range(15):
        end_epoch(model, (1.0, 1.0))
    assert float(model.rate[0]) == 0.0
    torch.testing.assert_close(float(model.rate[1]), 0.08, rtol=1e-5, atol=0)


def test_prototypes_of_the_best_epoch_come_back() -> None:
    model = make_model(runs=2, plateau=True)
    losses = [(3.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
    for epoch, pair in enumerate(losses):
        with torch.no_grad():
            model.prototypes.fill_(epoch)
        end_epoch(model, pair)
    model.restore_best()
    assert (model.prototypes[0] == 1).all()
    assert (model.prototypes[1] == 0).all()


def test_weights_of_the_best_epoch_come_back_too() -> None:
    model = make_model(runs=1, plateau=True, weighting="learned")
    for epoch, loss in enumerate((1.0, 2.0)):
        with torch.no_grad():
            model.log_weights.fill_(epoch)
        model._before_step = [model.prototypes.detach().clone(), model.log_weights.detach().clone()]
        model._batch_loss, model._ends_epoch = torch.tensor([loss]), True
        model.after_step()
    model.restore_best()
    assert (model.log_weights == 0).all()


def test_the_best_epoch_is_looked_for_anew_in_each_round() -> None:
    """A later round sees more rows, so that all of its sums may be larger than those of an earlier one."""
    model = make_model(runs=2, plateau=True)
    end_epoch(model, (1.0, 1.0))
    model = model.take(torch.tensor([1]))
    for epoch, loss in enumerate((5.0, 4.0, 6.0)):
        with torch.no_grad():
            model.prototypes.fill_(epoch)
        end_epoch(model, (loss,))
    model.restore_best()
    assert (model.prototypes == 1).all()


def test_taking_runs_keeps_all_that_belongs_to_them() -> None:
    model = make_model(metric="mahalanobis")
    learn(model, rows())
    taken = model.take(torch.tensor([2, 0]))
    assert torch.equal(taken.prototypes, model.prototypes[[2, 0]])
    assert torch.equal(taken.beta, model.beta[[2, 0]])
    assert torch.equal(taken.fill, model.fill[[2, 0]])
    assert torch.equal(torch.stack(taken.history), torch.stack(model.history)[:, [2, 0]])
    assert torch.equal(taken.assign(rows()), model.assign(rows())[[2, 0]])
