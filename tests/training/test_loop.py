"""The optimisation loop, on a model that is not one of ours."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Generator, Tensor, nn

from coterie.errors import TrainingError
from coterie.structures import Loss
from coterie.training import Progress, TrainConfig, point_batches, rate_at, train


class Line(nn.Module):
    """Fits y = w x; remembers what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.path: list[Tensor] = []
        self.noise = 0.0

    def loss(self, batch: Tensor, generator: Generator) -> Loss:
        noise = self.noise * torch.randn(2, generator=generator)
        error = (batch @ (self.w + noise) - 3.0 * batch.sum(dim=1)).square().mean()
        return Loss(error, {"error": float(error.detach())})

    def after_step(self) -> None:
        self.path.append(self.w.detach().clone())


def batches(count: int, seed: int = 0) -> list[Tensor]:
    generator = Generator().manual_seed(seed)
    return [torch.randn(8, 2, generator=generator) for _ in range(count)]


def generator(seed: int = 1) -> Generator:
    return Generator().manual_seed(seed)


def test_rates_rise_then_fall() -> None:
    config = TrainConfig(12, learning_rate=2.0, warmup=2)
    rates = [rate_at(step, config) for step in range(12)]
    assert rates[:3] == [1.0, 2.0, 2.0]
    assert rates[7] == pytest.approx(1.0)
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert 0 < rates[-1] < 0.1


def test_a_constant_rate_stays() -> None:
    config = TrainConfig(5, learning_rate=0.3, schedule="constant")
    assert [rate_at(step, config) for step in range(5)] == [0.3] * 5


def test_a_run_of_warm_up_alone_has_rates() -> None:
    assert [rate_at(step, TrainConfig(2, learning_rate=1.0, warmup=4)) for step in range(2)] == [0.25, 0.5]


def test_training_is_adam_at_the_scheduled_rates() -> None:
    config = TrainConfig(10, learning_rate=0.1, warmup=3, betas=(0.8, 0.9), epsilon=1e-6)
    model, by_hand = Line(), Line()
    train(model, batches(10), config, generator=generator())
    optimiser = torch.optim.Adam([by_hand.w], lr=1.0, betas=(0.8, 0.9), eps=1e-6)
    for step, batch in enumerate(batches(10)):
        optimiser.param_groups[0]["lr"] = rate_at(step, config)
        optimiser.zero_grad()
        by_hand.loss(batch, generator()).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        by_hand.after_step()
    assert torch.equal(torch.stack(model.path), torch.stack(by_hand.path))
    assert torch.equal(model.frozen, torch.ones(1))


def test_training_finds_the_answer() -> None:
    model = Line()
    train(model, batches(300), TrainConfig(300, learning_rate=0.2), generator=generator())
    torch.testing.assert_close(model.w.detach(), torch.full((2,), 3.0), atol=1e-2, rtol=0)


def test_endless_batches_are_taken_only_as_needed() -> None:
    taken = itertools.count()

    def endless() -> Iterator[Tensor]:
        for batch in itertools.cycle(batches(3)):
            next(taken)
            yield batch

    model = Line()
    train(model, endless(), TrainConfig(7), generator=generator())
    assert len(model.path) == 7
    assert next(taken) == 7


def test_large_gradients_are_clipped() -> None:
    """Adam forgets the size of constant gradients, so the effect shows where sizes change."""
    wild = [batch * (100.0 if i == 0 else 1.0) for i, batch in enumerate(batches(5))]
    free, clipped, same = Line(), Line(), Line()
    train(free, wild, TrainConfig(5), generator=generator())
    train(clipped, wild, TrainConfig(5, clip_norm=0.1), generator=generator())
    train(same, wild, TrainConfig(5, clip_norm=1e9), generator=generator())
    assert clipped.w.grad is not None
    assert float(clipped.w.grad.norm()) <= 0.1 + 1e-6
    assert not torch.equal(clipped.w, free.w)
    assert torch.equal(same.w, free.w)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_training(bad: float) -> None:
    spoilt = batches(5)
    spoilt[2] = torch.full((8, 2), bad)
    model = Line()
    with pytest.raises(TrainingError, match=r"step 3 of 5 \(error = (nan|inf)\).*Lower the learning rate"):
        train(model, spoilt, TrainConfig(5), generator=generator())
    assert len(model.path) == 2
    assert torch.isfinite(model.w).all()


def test_progress_is_reported_after_every_step() -> None:
    seen: list[Progress] = []
    train(Line(), batches(6), TrainConfig(6), generator=generator(), on_log=seen.append)
    assert [(progress.step, progress.steps) for progress in seen] == [(step, 6) for step in range(1, 7)]
    assert [progress.seconds for progress in seen] == sorted(progress.seconds for progress in seen)
    assert seen[-1].seconds_left == 0.0
    assert Progress(step=2, steps=6, loss=0.0, seconds=1.0).seconds_left == 2.0


@pytest.mark.usefixtures("untouched_random_state")
def test_all_randomness_is_the_generators() -> None:
    ends = []
    for seed in (1, 1, 2):
        model = Line()
        model.noise = 0.5
        train(model, batches(5), TrainConfig(5, learning_rate=0.1), generator=generator(seed))
        ends.append(model.w.detach())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


@pytest.mark.parametrize(("count", "batch_size", "per_epoch"), [(10, 4, 3), (8, 4, 2), (3, 10, 1), (1, 1, 1)])
def test_every_epoch_sees_every_row_once(count: int, batch_size: int, per_epoch: int) -> None:
    x = torch.arange(count).float().unsqueeze(1)
    made = list(point_batches(x, batch_size=batch_size, epochs=3, generator=generator(), weight=x[:, 0] * 2))
    assert len(made) == 3 * per_epoch
    assert [batch.ends_epoch for batch in made] == ([False] * (per_epoch - 1) + [True]) * 3
    for epoch in range(3):
        part = made[epoch * per_epoch : (epoch + 1) * per_epoch]
        assert torch.cat([batch.index for batch in part]).sort().values.tolist() == list(range(count))
    for batch in made:
        assert torch.equal(batch.x[:, 0], batch.index.float())
        assert batch.weight is not None
        assert torch.equal(batch.weight, batch.index.float() * 2)


def test_epochs_are_shuffled_anew() -> None:
    orders = [
        b.index.tolist() for b in point_batches(torch.zeros(30, 1), batch_size=30, epochs=2, generator=generator())
    ]
    assert orders[0] != orders[1]
    assert next(iter(point_batches(torch.zeros(3, 1), batch_size=3, epochs=1, generator=generator()))).weight is None
