"""Learning rates of every schedule, and settings that make no sense."""

import math
from typing import Any

import pytest
import torch

from coterie.errors import ConfigError
from coterie.training.loop import TrainConfig, rate_at


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


def test_a_cosine_falls_to_zero() -> None:
    config = TrainConfig(100, learning_rate=2.0)
    for step in range(100):
        assert rate_at(step, config) == pytest.approx(1.0 + math.cos(math.pi * step / 100))


@pytest.mark.parametrize("steps", [10, 55, 1000])
def test_one_cycle_rises_for_a_tenth_and_falls_to_zero(steps: int) -> None:
    config = TrainConfig(steps, learning_rate=3.0, schedule="one-cycle")
    rates = [rate_at(step, config) for step in range(steps)]
    top = math.ceil(steps / 10)
    assert rates[0] == pytest.approx(0.04 * 3.0)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert max(rates) == pytest.approx(3.0, rel=0.01)
    assert rate_at(steps, config) == pytest.approx(0.0, abs=1e-12)


def test_one_cycle_is_torchs_but_for_the_last_rate() -> None:
    """Torch counts its steps so that the last one has the last rate; ours is so after the last."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight])
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        0.7,
        total_steps=1001,
        pct_start=101 / 1001,
        div_factor=25,
        final_div_factor=1e9,
        cycle_momentum=False,
    )
    config = TrainConfig(1000, learning_rate=0.7, schedule="one-cycle")
    for step in range(1000):
        assert rate_at(step, config) == pytest.approx(theirs.get_last_lr()[0], rel=1e-6, abs=1e-8)
        optimiser.step()
        theirs.step()


def test_short_runs_have_rates() -> None:
    for steps in (1, 2, 3):
        config = TrainConfig(steps, learning_rate=1.0, schedule="one-cycle")
        assert all(0 < rate_at(step, config) <= 1 for step in range(steps))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"steps": -1}, "steps=-1 must be at least 0"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1 must be at least 0"),
        ({"learning_rate": math.nan}, "learning_rate=nan must be at least 0"),
        ({"warmup": -3}, "warmup=-3 must be at least 0"),
        ({"weight_decay": -1.0}, "weight_decay=-1.0 must be at least 0"),
        ({"accumulate": 0}, "accumulate=0 must be at least 1"),
        ({"evaluate_every": -1}, "evaluate_every=-1 must be at least 0"),
        ({"save_every": 0}, "save_every=0 must be at least 1"),
        ({"keep_best": "loss", "patience": 0}, "patience=0 must be at least 1"),
        ({"clip_norm": 0.0}, "clip_norm=0.0 must be above 0"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0 must be above 0"),
        ({"schedule": "one-cycle", "warmup": 5}, "warmup=5 has no place"),
        ({"patience": 3}, "patience=3 needs keep_best"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        TrainConfig(**{"steps": 10, **values})
