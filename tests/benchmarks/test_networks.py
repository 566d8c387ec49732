"""Networks that are compared: training that goes on, what is written down, and how clusterings are scored."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.quality import networks
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.kernel_readings import TOLD, kernel_readings
from benchmarks.quality.networks import Network, as_batch, minutes, one_cycle, scored, seconds_per_step, trained
from coterie.amortized.abc.network import AttentionBasedConfig, AttentionBasedModel
from coterie.amortized.tasks.classes import Instances
from coterie.amortized.tasks.synthetic import CircleTasks
from coterie.errors import ConfigError, InputError

SMALL = Network(
    AttentionBasedModel, AttentionBasedConfig(2, width=8, heads=2, depth=1), one_cycle(3, evaluate_every=2), 2
)
TASKS = CircleTasks(8, 2)


@dataclass(frozen=True)
class Line:
    """Numbers, of which those that are near each other belong together."""

    x: Tensor
    labels: Tensor


def test_training_goes_on_and_is_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = TASKS.sample(3, Generator().manual_seed(1))
    held_back = [as_batch(x, labels) for x, labels in zip(drawn.x, drawn.labels, strict=True)]
    first = trained("small", SMALL, TASKS, tmp_path / "run", held_back=held_back)
    said = capsys.readouterr().out
    assert said.startswith("small, step 2 of 3: loss ")
    assert "held back" in said
    again = trained("small", SMALL, TASKS, tmp_path / "run", held_back=held_back)
    assert capsys.readouterr().out == ""
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), again.parameters(), strict=True))
    assert first.config == again.config
    assert 0 < first.config.cut < 1
    assert not first.training


def test_weights_to_begin_with_take_the_place_of_random_ones() -> None:
    plain = trained("none", SMALL.with_steps(0), TASKS)
    given = {"query.weight": torch.ones_like(plain.query.weight)}
    begun = trained("none", SMALL.with_steps(0), TASKS, start=given)
    assert torch.equal(begun.query.weight, given["query.weight"])
    assert torch.equal(begun.key.weight, plain.key.weight)
    assert begun.config == SMALL.config  # nothing to calibrate with


def test_what_is_written_down() -> None:
    network = Network(SMALL.kind, SMALL.config, SMALL.training, 2, Instances((8, 8), (2, 3), "composition", 1.0))
    model = trained("none", network.with_steps(0), TASKS)
    settings = network.with_steps(7).settings(model)
    assert list(settings)[-4:] == ["parameters", "batch_size", "steps", "learning_rate"]
    assert (settings["steps"], settings["batch_size"], settings["model.depth"]) == (7, 2, "1")
    assert settings["sets.points"] == "[8, 8]"
    assert SMALL.with_steps(None) is SMALL
    assert not any(key.startswith("sets.") for key in SMALL.settings(model))
    assert network.checked_instances() is network.instances
    with pytest.raises(ConfigError, match="instances=None"):
        SMALL.checked_instances()


def test_time_is_that_of_all_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(networks, "TRIAL_STEPS", 1)
    assert seconds_per_step(SMALL, TASKS) > 0
    assert minutes(SMALL.with_steps(100_000), TASKS) > 0
    assert capsys.readouterr().out == ""


def test_clusterings_are_scored_set_by_set() -> None:
    sets = [Line(torch.tensor([0.0, 0.1, 5.0, 5.1]), torch.tensor(labels)) for labels in ([0, 0, 1, 1], [0, 1, 2, 2])]
    scores = scored(sets, lambda one: (one.x > 2).long())
    assert scores.metrics["ari"][0] == scores.metrics["nmi"][0] == 1
    assert scores.metrics["ari"][1] < 1
    assert scores.metrics["k_true"] == [2, 3]
    assert scores.metrics["k_found"] == [2, 2]
    assert len(scores.seconds) == 2


def test_all_readings_find_clean_blocks() -> None:
    truth = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    kernel = torch.where(truth[:, None] == truth, 0.95, 0.05)
    readings = kernel_readings(0.5)
    assert {name: reading.told for name, reading in readings.items()} == TOLD
    for reading in readings.values():
        labels = reading.read(kernel, 2)
        assert torch.equal(labels[:, None] == labels, truth[:, None] == truth)


def test_commands_say_what_they_do_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert named("b,a", {"a": 1, "b": 2}, "network") == ["b", "a"]

    def refused() -> None:
        named("a,c", ["a", "b"], "network")

    with pytest.raises(InputError, match="Unknown network 'c'"):
        refused()
    assert exit_status(refused) == 2
    assert "error: Unknown network 'c'. Known are: a, b." in capsys.readouterr().err
    assert exit_status(lambda: None) == 0
