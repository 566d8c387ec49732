"""learn(): what it takes, what it keeps, and how it is resumed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from coterie import AMCP, DAC, AttentionBasedClustering
from coterie.amortized import estimator as amortized
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.errors import InputError, TrainingError, WeightsError
from coterie.nn.model import TaskBatch
from coterie.progress import Progress
from tests.amortized.test_filtering_estimators import assert_consistent, write_weights

Task = tuple[npt.NDArray[np.float64], npt.NDArray[Any]]
QUICK: dict[str, Any] = {"steps": 4, "batch_size": 3, "max_points": 25}


def make_task(seed: int, columns: int = 2) -> Task:
    rng = np.random.default_rng(seed)
    truth = rng.integers(2 + seed % 2, size=30 + seed)
    names = np.array(["red", "green", "blue"])[truth]
    return 8.0 * rng.normal(size=(3, columns))[truth] + rng.normal(size=(len(truth), columns)), names


TASKS = [make_task(seed) for seed in range(6)]
NEW = make_task(9)[0]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "start.safetensors")


@pytest.fixture(scope="module")
def learned(start: Path) -> DAC:
    return DAC(weights=start, random_state=0).learn(TASKS, **QUICK)


def test_a_learned_network_clusters_new_sets_and_the_file_stays(learned: DAC, start: Path) -> None:
    assert_consistent(learned.fit(NEW), NEW, len(NEW))
    assert learned.evaluation_.keys() == {"loss", "adjusted_rand_index", "held_out_tasks"}
    assert learned.evaluation_["held_out_tasks"] == 1
    assert -1.0 <= learned.evaluation_["adjusted_rand_index"] <= 1.0
    before = start.read_bytes()
    untrained = DAC(weights=start, random_state=0).fit(NEW).score_samples(NEW)
    assert not np.array_equal(learned.fit(NEW).score_samples(NEW), untrained)
    assert start.read_bytes() == before


@pytest.mark.usefixtures("untouched_random_state")
def test_the_same_seed_learns_the_same(start: Path, learned: DAC, tmp_path: Path) -> None:
    again = DAC(weights=start, random_state=0).fit(NEW).learn(TASKS, **QUICK)
    assert "labels_" not in vars(again)
    with pytest.raises(NotFittedError):
        again.predict(NEW)
    assert again.evaluation_ == learned.evaluation_
    again.save(tmp_path / "learned.safetensors")
    expected = learned.fit(NEW).score_samples(NEW)
    loaded = DAC.load(tmp_path / "learned.safetensors")
    as_weights = DAC(weights=tmp_path / "learned.safetensors", random_state=0)
    for model in (again, loaded, as_weights):
        np.testing.assert_array_equal(model.fit(NEW).score_samples(NEW), expected)


def test_a_new_network_has_the_requested_settings() -> None:
    model = DAC(weights=None, density="gaussian", filtering="anchored", random_state=0)
    model.learn(TASKS[:3], steps=1, batch_size=2, max_points=10).fit(NEW)
    assert (model.model_.config.density, model.model_.config.filtering) == ("gaussian", "anchored")
    assert model.evaluation_["held_out_tasks"] == 0  # too few tasks


@pytest.mark.parametrize("estimator", [DAC, AMCP, AttentionBasedClustering])
def test_the_published_network_is_learned_on_request(estimator: Any) -> None:
    model = estimator.faithful(random_state=0).learn(TASKS[:3], steps=1, batch_size=1, max_points=8)
    assert model.fit(NEW).labels_.shape == (len(NEW),)
    published = estimator.model_class.Config.faithful(2)
    assert {name: value.shape for name, value in model.model_.state_dict().items()} == {
        name: value.shape for name, value in estimator.model_class(published).state_dict().items()
    }


def test_weights_for_other_features_are_not_a_start(start: Path) -> None:
    tasks = [make_task(seed, columns=3) for seed in range(2)]
    model = DAC(weights=start, random_state=0, density="none").learn(tasks, steps=1, batch_size=2, max_points=10)
    assert (model.fit(tasks[0][0]).model_.config.n_features, model.notes_) == (3, ())


def test_training_runs_on_the_device(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []

    def record(model: DacModel, batches: Iterator[TaskBatch], *_: object, **__: object) -> None:
        batch = next(batches)
        devices.extend(part.device.type for part in (*model.parameters(), batch.x, batch.labels, batch.valid))
        raise KeyboardInterrupt

    monkeypatch.setattr(amortized, "train", record)
    # The only other device that exists everywhere has shapes but no numbers, and so no generator.
    monkeypatch.setattr(amortized, "generator_on", lambda _, generator: generator)
    for device in ("cpu", "meta"):
        with pytest.raises(KeyboardInterrupt):
            DAC(weights=start, random_state=0, device=device).learn(TASKS, **QUICK)
        assert set(devices) == {device}
        devices.clear()


def test_an_interrupted_run_is_resumed(start: Path, learned: DAC, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    steps: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        DAC(weights=start, random_state=0, callback=stop).learn(TASKS, folder=tmp_path / "run", **QUICK)
    model = DAC(weights=start, random_state=0, callback=lambda progress: steps.append(progress.step))
    model.learn(TASKS, folder=tmp_path / "run", **QUICK)
    assert steps == [3, 4]
    np.testing.assert_array_equal(model.fit(NEW).score_samples(NEW), learned.fit(NEW).score_samples(NEW))
    with pytest.raises(TrainingError, match="run"):
        DAC(weights=start, random_state=0).learn(TASKS, folder=tmp_path / "run", **(QUICK | {"steps": 9}))
    with pytest.raises(InputError, match="integer as random_state, not None"):
        DAC(weights=start).learn(TASKS, folder=tmp_path, **QUICK)


def test_learning_from_a_sampler(start: Path) -> None:
    model = DAC(weights=start, random_state=0).learn(MixturesOfGaussians(max_points=30), steps=2, batch_size=3)
    assert model.evaluation_.keys() == {"loss"}
    assert model.fit(NEW).table_.scaling == "none"


@pytest.mark.parametrize("estimator", [DAC, AMCP])
def test_learning_from_images(estimator: Any) -> None:
    source = np.random.default_rng(0)
    classes = np.repeat(np.arange(6), 8)
    images = (source.integers(0, 200, (6, 16, 16))[classes] + source.integers(0, 50, (48, 16, 16))).astype(np.uint8)
    model = estimator(weights=None, random_state=0).learn([(images, classes)], steps=1, batch_size=1)
    assert (model.fit(images).labels_.shape, model.model_.config.encoder) == ((48,), "strided")


def test_columns_that_vary_in_some_tasks_only() -> None:
    tasks = []
    for seed in range(3):
        X, y = make_task(seed, columns=3)
        X[:, seed] = 5.0
        tasks.append((np.column_stack([np.full(len(X), 1.0), X]), y))
    model = DAC(weights=None, density="none", random_state=0).learn(tasks, steps=1, batch_size=2, max_points=10)
    for X, _ in tasks:
        assert_consistent(model.fit(X), X, len(X))
        assert model.model_.config.n_features == 3  # a column that never varies is not a feature
        assert "ignored, since they are constant here: 'x" in model.notes_[0]


def test_columns_of_dataframes_are_matched_by_name() -> None:
    frames = [(pd.DataFrame(X, columns=["a", "b"]), y) for X, y in TASKS[:2]]
    tasks = [(X.assign(kind=np.where(y == "red", "x", "y")), pd.Series(y)) for X, y in frames]
    tasks[1] = (tasks[1][0][["kind", "b", "a"]], tasks[1][1])
    model = DAC(weights=None, density="none", random_state=0).learn(tasks, steps=1, batch_size=2, max_points=10)
    labels = model.fit_predict(tasks[0][0])
    assert model.notes_ == ()
    np.testing.assert_array_equal(model.fit_predict(tasks[0][0][["kind", "b", "a"]]), labels)
    assert model.notes_ == ()


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "at least one task"),
        (None, "takes a list of pairs"),
        ([np.zeros((3, 2))], "Task 0 must be a pair"),
        ([TASKS[0], 7], "Task 1 must be a pair .* not a int"),
        ([(np.zeros((3, 2)), [0, 1])], r"Task 0 has 3 rows, and its labels have the shape \(2,\)"),
        ([(np.zeros((3, 2)), [[0], [1], [1]])], r"shape \(3, 1\)"),
        ([(np.zeros((3, 2)), [0.0, np.nan, 1.0])], "Row 1 of task 0 has no label"),
        ([(np.zeros((2, 2)), ["a", None])], "Row 1 of task 0 has no label"),
        ([TASKS[0], make_task(1, columns=3)], "Task 1 has the columns 'x0', 'x1', 'x2', but task 0 has"),
        ([(np.zeros((0, 2)), [])], "0 sample"),
    ],
)
def test_invalid_tasks_are_rejected(tasks: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        DAC(weights=None, random_state=0).learn(tasks, **QUICK)


@pytest.mark.parametrize(
    "setting",
    [
        {"steps": 0},
        {"steps": True},
        {"batch_size": 2.5},
        {"max_points": 0},
        {"held_out": 1.0},
        {"held_out": -0.1},
        {"learning_rate": -1.0},
        {"random_rotations": 1},
    ],
    ids=str,
)
def test_invalid_arguments_are_rejected_by_name(setting: dict[str, Any], start: Path) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        DAC(weights=start, random_state=0).learn(TASKS, **(QUICK | setting))


@pytest.mark.parametrize("setting", [{"density": "other"}, {"filtering": "other"}, {"decoding": "other"}], ids=str)
def test_parameters_are_checked_before_training(setting: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=next(iter(setting))):
        DAC(weights=None, random_state=0).set_params(**setting).learn(TASKS, **QUICK)
    with pytest.raises(WeightsError, match="absent"):
        DAC(weights=tmp_path / "absent.safetensors", random_state=0).learn(TASKS, **QUICK)


@pytest.mark.parametrize(("held_out", "count"), [(0.0, 0), (0.5, 3), (0.9, 5)])
def test_a_fraction_of_the_tasks_is_held_out(held_out: float, count: int, start: Path) -> None:
    model = DAC(weights=start, random_state=0).learn(TASKS, held_out=held_out, **QUICK)
    assert model.evaluation_["held_out_tasks"] == count


@pytest.mark.slow
def test_learning_lowers_the_loss_and_finds_clusters() -> None:
    generator = torch.Generator().manual_seed(0)
    tasks = []
    for _ in range(24):
        batch = MixturesOfGaussians(max_points=120, max_clusters=3).sample(1, generator)
        tasks.append((batch.x[0].numpy(), batch.labels[0].numpy()))
    few, many = (
        DAC(weights=None, density="gaussian", random_state=0).learn(tasks, steps=steps, batch_size=6, max_points=40)
        for steps in (1, 80)
    )
    assert many.evaluation_["loss"] < few.evaluation_["loss"] - 0.5
    assert many.evaluation_["adjusted_rand_index"] > 0.6
