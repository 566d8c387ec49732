"""DAC that learns from sorted sets: what it takes, what it keeps, how it goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from coterie import DAC
from coterie.amortized import estimator as amortized
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.errors import InputError, TrainingError, WeightsError
from coterie.nn.model import TaskBatch
from coterie.progress import Progress
from tests.estimators.test_dac import assert_sound, write_weights

Task = tuple[npt.NDArray[np.float64], npt.NDArray[Any]]
QUICK: dict[str, Any] = {"steps": 4, "batch_size": 3, "max_points": 25}


def make_task(seed: int, columns: int = 2) -> Task:
    rng = np.random.default_rng(seed)
    truth = rng.integers(2 + seed % 2, size=30 + seed)
    names = np.array(["red", "green", "blue"])[truth]
    return 8.0 * rng.normal(size=(3, columns))[truth] + rng.normal(size=(len(truth), columns)), names


TASKS = [make_task(seed) for seed in range(6)]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "start.safetensors")


@pytest.fixture(scope="module")
def learned(start: Path) -> DAC:
    return DAC(start, random_state=0).learn(TASKS, **QUICK)


def test_what_was_learned_clusters_new_sets(learned: DAC) -> None:
    X, _ = make_task(9)
    assert_sound(learned.fit(X), X, len(X))
    assert learned.evaluation_.keys() == {"loss", "adjusted_rand_index", "held_out_tasks"}
    assert learned.evaluation_["held_out_tasks"] == 1
    assert -1.0 <= learned.evaluation_["adjusted_rand_index"] <= 1.0


def test_learning_changes_the_weights_and_not_the_file(start: Path) -> None:
    before = start.read_bytes()
    X, _ = make_task(9)
    model = DAC(start, random_state=0).learn(TASKS, **QUICK).fit(X)
    assert start.read_bytes() == before
    assert not np.array_equal(model.score_samples(X), DAC(start, random_state=0).fit(X).score_samples(X))


@pytest.mark.usefixtures("untouched_random_state")
def test_the_same_seed_learns_the_same(start: Path, learned: DAC) -> None:
    X, _ = make_task(9)
    again = DAC(start, random_state=0).learn(TASKS, **QUICK).fit(X)
    np.testing.assert_array_equal(again.score_samples(X), learned.fit(X).score_samples(X))
    assert again.evaluation_ == learned.evaluation_


def test_learning_from_nothing_has_the_network_that_is_asked_for() -> None:
    model = DAC(None, density="gaussian", filtering="anchored", random_state=0)
    model.learn(TASKS[:3], steps=1, batch_size=2, max_points=10).fit(TASKS[0][0])
    assert isinstance(model.model_, DacModel)
    assert model.model_.config.density == "gaussian"
    assert model.model_.config.filtering == "anchored"
    assert model.evaluation_["held_out_tasks"] == 0  # of so few


def test_weights_for_another_number_of_features_are_no_start(start: Path) -> None:
    tasks = [make_task(seed, columns=3) for seed in range(2)]
    model = DAC(start, random_state=0, density="none").learn(tasks, steps=1, batch_size=2, max_points=10)
    assert isinstance(model.fit(tasks[0][0]).model_, DacModel)
    assert model.model_.config.n_features == 3
    assert model.notes_ == ()


def test_training_is_where_it_is_asked_for(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def look(model: DacModel, batches: Iterator[TaskBatch], *_: object, **__: object) -> None:
        batch = next(batches)
        devices.extend(part.device.type for part in (*model.parameters(), batch.x, batch.labels, batch.valid))
        raise KeyboardInterrupt

    monkeypatch.setattr(amortized, "train", look)
    # The only other device that is everywhere: it has shapes, no numbers, and so no generator either.
    monkeypatch.setattr(amortized, "generator_on", lambda _, generator: generator)
    for device in ("cpu", "meta"):
        with pytest.raises(KeyboardInterrupt):
            DAC(start, random_state=0, device=device).learn(TASKS, **QUICK)
        assert set(devices) == {device}
        devices.clear()


def test_a_learner_is_not_fitted(start: Path) -> None:
    model = DAC(start, random_state=0).fit(TASKS[0][0])
    model.learn(TASKS, **QUICK)
    with pytest.raises(NotFittedError):
        model.predict(TASKS[0][0])
    assert "labels_" not in vars(model)


def test_what_was_learned_survives_a_file(learned: DAC, tmp_path: Path) -> None:
    X, _ = make_task(9)
    fresh = DAC(learned.weights, random_state=0).learn(TASKS, **QUICK)
    fresh.save(tmp_path / "learned.safetensors")
    for loaded in (DAC.load(tmp_path / "learned.safetensors"), DAC(tmp_path / "learned.safetensors", random_state=0)):
        np.testing.assert_array_equal(loaded.fit(X).score_samples(X), fresh.fit(X).score_samples(X))


def test_a_stopped_run_goes_on(start: Path, learned: DAC, tmp_path: Path) -> None:
    X, _ = make_task(9)

    def stop(progress: Progress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    steps_seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        DAC(start, random_state=0, on_progress=stop).learn(TASKS, folder=tmp_path / "run", **QUICK)
    model = DAC(start, random_state=0, on_progress=lambda progress: steps_seen.append(progress.step))
    model.learn(TASKS, folder=tmp_path / "run", **QUICK)
    assert steps_seen == [3, 4]
    np.testing.assert_array_equal(model.fit(X).score_samples(X), learned.fit(X).score_samples(X))
    with pytest.raises(TrainingError, match="run"):
        DAC(start, random_state=0).learn(TASKS, folder=tmp_path / "run", **(QUICK | {"steps": 9}))


def test_a_run_that_can_go_on_needs_a_seed(start: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="whole number as random_state, which is None"):
        DAC(start).learn(TASKS, folder=tmp_path, **QUICK)


def test_learning_from_a_sampler(start: Path) -> None:
    model = DAC(start, random_state=0).learn(MixturesOfGaussians(max_points=30), steps=2, batch_size=3)
    assert model.evaluation_.keys() == {"loss"}
    X, _ = make_task(9)
    assert model.fit(X).table_.scaling == "none"


def test_columns_that_vary_in_some_tasks_only() -> None:
    tasks = []
    for seed in range(3):
        X, y = make_task(seed, columns=3)
        X[:, seed] = 5.0
        tasks.append((np.column_stack([np.full(len(X), 1.0), X]), y))
    model = DAC(None, density="none", random_state=0).learn(tasks, steps=1, batch_size=2, max_points=10)
    for X, _ in tasks:
        assert_sound(model.fit(X), X, len(X))
        assert model.model_.config.n_features == 3  # what never varies is no feature
        assert "without a say, since each has one value here: 'x" in model.notes_[0]


def test_frames_are_learned_by_name() -> None:
    frames = [(pd.DataFrame(X, columns=["a", "b"]), y) for X, y in TASKS[:2]]
    frames = [(X.assign(kind=np.where(y == "red", "x", "y")), pd.Series(y)) for X, y in frames]  # type: ignore[misc]  # a Series now
    frames[1] = (frames[1][0][["kind", "b", "a"]], frames[1][1])
    model = DAC(None, density="none", random_state=0).learn(frames, steps=1, batch_size=2, max_points=10)
    first = model.fit(frames[0][0])
    assert first.notes_ == ()
    labels = first.labels_
    swapped = model.fit(frames[0][0][["kind", "b", "a"]])
    assert swapped.notes_ == ()
    np.testing.assert_array_equal(swapped.labels_, labels)


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([], "at least one task"),
        (None, "takes a list of pairs"),
        ([np.zeros((3, 2))], "Task 0 is not a pair"),
        ([TASKS[0], 7], "Task 1 is not a pair .* but a int"),
        ([(np.zeros((3, 2)), [0, 1])], r"Task 0 has 3 rows, and its clusters have the shape \(2,\)"),
        ([(np.zeros((3, 2)), [[0], [1], [1]])], r"shape \(3, 1\)"),
        ([(np.zeros((3, 2)), [0.0, np.nan, 1.0])], "Row 1 of task 0 has no cluster"),
        ([(np.zeros((2, 2)), ["a", None])], "Row 1 of task 0 has no cluster"),
        ([TASKS[0], make_task(1, columns=3)], "Task 1 has the columns 'x0', 'x1', 'x2', and task 0 has"),
        ([(np.zeros((0, 2)), [])], "0 sample"),
    ],
)
def test_tasks_that_cannot_be_learned_are_refused(tasks: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        DAC(None, random_state=0).learn(tasks, **QUICK)


@pytest.mark.parametrize(
    "setting",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"max_points": 0},
        {"held_out": 1.0},
        {"held_out": -0.1},
        {"learning_rate": -1.0},
    ],
    ids=str,
)
def test_settings_of_learning_that_cannot_be_are_refused(setting: dict[str, Any], start: Path) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        DAC(start, random_state=0).learn(TASKS, **(QUICK | setting))


@pytest.mark.parametrize("setting", [{"density": "other"}, {"filtering": "other"}, {"decoding": "other"}], ids=str)
def test_networks_that_cannot_be_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        DAC(None, random_state=0).set_params(**setting).learn(TASKS, **QUICK)


def test_a_start_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no model file"):
        DAC(tmp_path / "absent.safetensors", random_state=0).learn(TASKS, **QUICK)


@pytest.mark.parametrize("held_out", [0.0, 0.5, 0.9])
def test_the_share_that_is_held_out(held_out: float, start: Path) -> None:
    model = DAC(start, random_state=0).learn(TASKS, held_out=held_out, **QUICK)
    assert model.evaluation_["held_out_tasks"] == {0.0: 0, 0.5: 3, 0.9: 5}[held_out]


@pytest.mark.slow
def test_learning_teaches_something() -> None:
    """In a few seconds, what a group of points in the plane is."""
    generator = torch.Generator().manual_seed(0)
    tasks = []
    for _ in range(24):
        batch = MixturesOfGaussians(max_points=120, max_clusters=3).sample(1, generator)
        tasks.append((batch.x[0].numpy(), batch.labels[0].numpy()))
    few, many = (
        DAC(None, density="gaussian", random_state=0).learn(tasks, steps=steps, batch_size=6, max_points=40)
        for steps in (1, 80)
    )
    assert many.evaluation_["loss"] < few.evaluation_["loss"] - 0.5
    assert many.evaluation_["adjusted_rand_index"] > 0.6
