"""The optimisation loop on a small linear model, its schedules and its settings."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from coterie.errors import ConfigError, TrainingError
from coterie.nn.model import Loss
from coterie.progress import Progress
from coterie.training.loop import TrainConfig, learning_rate_at, train


class Line(nn.Module):
    """Fits y = w x and records its weights."""

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


def test_training_is_adam_or_adamw_with_decay() -> None:
    config = TrainConfig(10, learning_rate=0.1, warmup=3, betas=(0.8, 0.9), epsilon=1e-6)
    check_against(torch.optim.Adam, config, betas=(0.8, 0.9), eps=1e-6)
    decayed = TrainConfig(10, learning_rate=0.1, schedule="one-cycle", optimiser="adamw", weight_decay=0.3)
    check_against(torch.optim.AdamW, decayed, weight_decay=0.3)
    check_against(torch.optim.Adam, replace(decayed, optimiser="adam"), weight_decay=0.3)


def check_against(kind: Callable[..., torch.optim.Optimizer], config: TrainConfig, **options: Any) -> None:
    """Require the same weights after every step as with torch's optimiser alone."""
    model, by_hand = Line(), Line()
    train(model, batches(10), config, generator=generator())
    optimiser = kind([by_hand.w], lr=1.0, **options)
    for step, batch in enumerate(batches(10)):
        optimiser.param_groups[0]["lr"] = learning_rate_at(step, config)
        optimiser.zero_grad()
        by_hand.loss(batch, generator()).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimiser.step()
        by_hand.after_step()
    assert torch.equal(torch.stack(model.path), torch.stack(by_hand.path))
    assert torch.equal(model.frozen, torch.ones(1))


def test_training_converges_and_decay_shrinks_the_weights() -> None:
    model = Line()
    train(model, batches(300), TrainConfig(300, learning_rate=0.2), generator=generator())
    torch.testing.assert_close(model.w.detach(), torch.full((2,), 3.0), atol=1e-2, rtol=0)
    model = Line()
    nn.init.ones_(model.w)
    config = TrainConfig(4, learning_rate=0.1, schedule="constant", optimiser="adamw", weight_decay=0.5)
    train(model, [torch.zeros(8, 2)] * 4, config, generator=generator())
    torch.testing.assert_close(model.w.detach(), torch.full((2,), 0.95**4))


def test_only_as_many_batches_are_used_as_complete_steps_need() -> None:
    taken = itertools.count()

    def infinite() -> Iterator[Tensor]:
        for batch in itertools.cycle(batches(3)):
            next(taken)
            yield batch

    model = Line()
    train(model, infinite(), TrainConfig(7), generator=generator())
    assert len(model.path) == 7
    assert next(taken) == 7
    model = Line()
    train(model, batches(8), TrainConfig(10, accumulate=3), generator=generator())
    assert len(model.path) == 2


def test_large_gradients_are_clipped() -> None:
    """Adam is invariant to the scale of constant gradients; here the scale changes."""
    wild = [batch * (100.0 if i == 0 else 1.0) for i, batch in enumerate(batches(5))]
    free, clipped, same = Line(), Line(), Line()
    train(free, wild, TrainConfig(5), generator=generator())
    train(clipped, wild, TrainConfig(5, clip_norm=0.1), generator=generator())
    train(same, wild, TrainConfig(5, clip_norm=1e9), generator=generator())
    assert clipped.w.grad is not None
    assert float(clipped.w.grad.norm()) <= 0.1 + 1e-6
    assert not torch.equal(clipped.w, free.w)
    assert torch.equal(same.w, free.w)


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_accumulated_batches_equal_one_large_batch(clip_norm: float | None) -> None:
    config = TrainConfig(4, learning_rate=0.1, clip_norm=clip_norm)
    small = batches(12)
    large = [torch.cat(small[first : first + 3]) for first in range(0, 12, 3)]
    seen: dict[int, list[Progress]] = {1: [], 3: []}
    models = {1: Line(), 3: Line()}
    for accumulate, given in ((1, large), (3, small)):
        settings = replace(config, accumulate=accumulate)
        train(models[accumulate], given, settings, generator=generator(), callback=seen[accumulate].append)
    torch.testing.assert_close(torch.stack(models[3].path), torch.stack(models[1].path))
    for one, three in zip(seen[1], seen[3], strict=True):
        assert three.loss == pytest.approx(one.loss)
        assert three.parts["error"] == pytest.approx(three.loss)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_training(bad: float) -> None:
    broken = batches(5)
    broken[2] = torch.full((8, 2), bad)
    model = Line()
    with pytest.raises(TrainingError, match=r"step 3 of 5 \(error = (nan|inf)\).*Lower the learning rate"):
        train(model, broken, TrainConfig(5), generator=generator())
    assert len(model.path) == 2
    assert torch.isfinite(model.w).all()


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_a_gradient_that_is_not_finite_stops_training_before_the_step(clip_norm: float | None) -> None:
    """The square root of zero is finite, its derivative is not."""

    class Root(Line):
        def loss(self, batch: Tensor, generator: Generator) -> Loss:
            smooth = super().loss(batch, generator).total * 0.0
            rough = smooth + (self.w * batch[0, 0]).abs().sqrt().sum()
            return Loss(rough, {"rough": float(rough.detach())})

    model = Root()
    nn.init.ones_(model.w)
    broken = [torch.ones(8, 2), torch.ones(8, 2), torch.zeros(8, 2)]
    with pytest.raises(TrainingError, match=r"gradient norm became nan at step 3 of 3 \(rough = 0\)"):
        train(model, broken, TrainConfig(3, clip_norm=clip_norm), generator=generator())
    assert len(model.path) == 2
    assert torch.isfinite(model.w).all()


@pytest.mark.parametrize(
    ("evaluate_every", "expected"), [(0, [7]), (1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6, 7]), (7, [7]), (9, [7])]
)
def test_evaluations_follow_the_right_steps(evaluate_every: int, expected: list[int]) -> None:
    model = Line()
    seen: list[Progress] = []
    config = TrainConfig(7, evaluate_every=evaluate_every)

    def evaluate() -> dict[str, float]:
        return {"done": len(model.path), "w": float(model.w.detach()[0])}

    train(model, batches(7), config, generator=generator(), callback=seen.append, evaluate=evaluate)
    evaluated = {progress.step: progress.evaluation for progress in seen if progress.evaluation is not None}
    assert list(evaluated) == expected
    for step, evaluation in evaluated.items():
        assert evaluation == {"done": step, "w": float(model.path[step - 1][0])}


@pytest.mark.parametrize(
    ("values", "patience", "last", "kept"),
    [
        ([5, 4, 4, 6, 3, 2], 2, 8, 4),  # equal is not better
        ([5, 4, 4, 6, 3, 2], 3, 12, 12),
        ([5, 4, 4, 6, 3, 9], None, 12, 10),
        ([1, 2, 3, 4, 5, 6], 1, 4, 2),
        ([math.nan, 2, math.nan, 1, 5, 6], 2, 12, 8),
        ([math.nan] * 6, None, 12, 12),  # never better
    ],
)
def test_the_best_weights_and_patience(values: list[float], patience: int | None, last: int, kept: int) -> None:
    model = Line()
    errors = iter(values)
    config = TrainConfig(12, evaluate_every=2, keep_best="error", patience=patience)
    train(model, batches(12), config, generator=generator(), evaluate=lambda: {"error": next(errors), "other": 0.0})
    assert len(model.path) == last
    assert torch.equal(model.w, model.path[kept - 1])


def test_keep_best_must_be_evaluated() -> None:
    config = TrainConfig(3, keep_best="ari")
    with pytest.raises(TrainingError, match=r"keep_best='ari' must be one of what is evaluated: error, loss"):
        train(Line(), batches(3), config, generator=generator(), evaluate=lambda: {"error": 1.0, "loss": 2.0})
    with pytest.raises(ConfigError, match=r"keep_best='ari' needs an evaluation"):
        train(Line(), batches(3), config, generator=generator())


def test_progress_is_reported_after_every_step() -> None:
    seen: list[Progress] = []
    train(Line(), batches(6), TrainConfig(6), generator=generator(), callback=seen.append)
    assert [(progress.step, progress.steps) for progress in seen] == [(step, 6) for step in range(1, 7)]
    assert [progress.seconds for progress in seen] == sorted(progress.seconds for progress in seen)
    assert seen[-1].seconds_left == 0.0
    assert Progress(step=2, steps=6, loss=0.0, seconds=1.0).seconds_left == 2.0


@pytest.mark.usefixtures("untouched_random_state")
def test_the_generator_is_the_only_source_of_randomness() -> None:
    ends = []
    for seed in (1, 1, 2):
        model = Line()
        model.noise = 0.5
        train(model, batches(5), TrainConfig(5, learning_rate=0.1), generator=generator(seed))
        ends.append(model.w.detach())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_the_learning_rate_rises_and_falls() -> None:
    config = TrainConfig(12, learning_rate=2.0, warmup=2)
    rates = [learning_rate_at(step, config) for step in range(12)]
    assert rates[:3] == [1.0, 2.0, 2.0]
    assert rates[7] == pytest.approx(1.0)
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert 0 < rates[-1] < 0.1


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TrainConfig(5, learning_rate=0.3, schedule="constant"), [0.3] * 5),
        (TrainConfig(2, learning_rate=1.0, warmup=4), [0.25, 0.5]),  # ends within the warm-up
        (TrainConfig(100, learning_rate=2.0), [1.0 + math.cos(math.pi * step / 100) for step in range(100)]),
    ],
)
def test_learning_rates_by_schedule(config: TrainConfig, expected: list[float]) -> None:
    assert [learning_rate_at(step, config) for step in range(config.steps)] == pytest.approx(expected)


@pytest.mark.parametrize("steps", [10, 55, 1000])
def test_one_cycle_rises_for_a_tenth_and_falls_to_zero(steps: int) -> None:
    config = TrainConfig(steps, learning_rate=3.0, schedule="one-cycle")
    rates = [learning_rate_at(step, config) for step in range(steps)]
    top = math.ceil(steps / 10)
    assert rates[0] == pytest.approx(0.04 * 3.0)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert max(rates) == pytest.approx(3.0, rel=0.01)
    assert learning_rate_at(steps, config) == pytest.approx(0.0, abs=1e-12)


def test_one_cycle_is_that_of_torch_and_works_for_short_runs() -> None:
    """Torch reaches zero at the last step, we do after it."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight])
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 0.7, total_steps=1001, pct_start=101 / 1001, final_div_factor=1e9, cycle_momentum=False
    )
    config = TrainConfig(1000, learning_rate=0.7, schedule="one-cycle")
    for step in range(1000):
        assert learning_rate_at(step, config) == pytest.approx(scheduler.get_last_lr()[0], rel=1e-6, abs=1e-8)
        optimiser.step()
        scheduler.step()
    for steps in (1, 2, 3):
        config = TrainConfig(steps, learning_rate=1.0, schedule="one-cycle")
        assert all(0 < learning_rate_at(step, config) <= 1 for step in range(steps))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": -1}, "steps=-1 must be an integer of at least 0"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1 must be a finite number of at least 0"),
        ({"learning_rate": math.nan}, "learning_rate=nan must be"),
        ({"warmup": -3}, "warmup=-3 must be"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0 must be"),
        ({"accumulate": 0}, "accumulate=0 must be"),
        ({"evaluate_every": -1}, "evaluate_every=-1 must be"),
        ({"save_every": 0}, "save_every=0 must be"),
        ({"keep_best": "loss", "patience": 0}, "patience=0 must be"),
        ({"clip_norm": 0.0}, "clip_norm=0.0 must be a finite number above 0"),
        ({"schedule": "one-cycle", "warmup": 5}, "warmup=5 cannot be combined"),
        ({"patience": 3}, "patience=3 needs keep_best"),
    ],
    ids=str,
)
def test_invalid_settings_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**{"steps": 10, **values})
