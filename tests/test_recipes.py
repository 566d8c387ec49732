"""Recipes: reading and running them, resuming, and reproducible checkpoints."""

import json
import multiprocessing
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, distributed

import coterie
from benchmarks.data.tasks import OmniglotTasks
from coterie import recipes
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import ConfigError, InputError, OutputError, TrainingError, WeightsError
from coterie.judged.prior.embeddings import EmbeddingPrior
from coterie.judged.prior.universal import SyntheticPrior
from coterie.nn.model import TaskBatch, to_tensors
from coterie.pretrained import registry
from coterie.progress import Progress
from coterie.recipes import Recipe, parse_recipe, read_recipe, run_recipe, training_seconds
from recipes.register import register
from tests.conftest import MODELS
from tests.training.toy import in_process, join_all

_SHIPPED = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))
_WEIGHTS = [path for path in _SHIPPED if not path.stem.startswith("tcc-")]  # recipes that make weights
TOY: dict[str, Any] = {
    "name": "toy-v1",
    "summary": "For tests.",
    "seed": 3,
    "batch_size": 2,
    "model": {
        "method": "dac", "n_features": 2, "width": 8, "heads": 2, "inducing": 2, "depth": 1, "mask_depth": 1,
    },
    "tasks": {"kind": "gaussians", "max_points": 12, "max_clusters": 2},
    "train": {"steps": 6, "save_every": 2, "evaluate_every": 5},
}  # fmt: skip


def toy(**changes: Any) -> Recipe:
    """Return the toy recipe with changed settings; None removes one."""
    return parse_recipe(_changed(TOY, changes))


def _changed(old: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    new = dict(old)
    for name, value in changes.items():
        if value is None:
            del new[name]
        else:
            new[name] = _changed(old[name], value) if isinstance(value, dict) else value
    return new


@pytest.fixture(scope="module", autouse=True)
def few_held_out() -> Iterator[None]:
    """Save time on evaluation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "EVALUATION_BATCHES", 2)
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint of the toy recipe by an uninterrupted run."""
    return run_recipe(toy(), tmp_path_factory.mktemp("run"))


def same(first: Path, second: Path) -> bool:
    return first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("path", _WEIGHTS, ids=lambda path: path.stem)
def test_every_shipped_recipe_runs(path: Path, tmp_path: Path) -> None:
    recipe = read_recipe(path)
    assert recipe.name == path.stem or recipe.name.startswith(f"{path.stem}-v")  # a former version names its file
    if isinstance(recipe.tasks, OmniglotTasks) and not os.environ.get("COTERIE_DATA"):
        pytest.skip("COTERIE_DATA, the folder of benchmark data, is not set")
    short = replace(recipe, batch_size=1, train=replace(recipe.train, steps=2))
    if recipe.candidates is not None:  # scoring all its sets takes hours
        short = replace(_with_few_sets(short), more=tuple(map(_with_few_sets, recipe.more)))
    _, card = load_checkpoint(run_recipe(short, tmp_path))
    assert card["steps"] == 2
    assert card["recipe"] == tomllib.loads(path.read_text(encoding="utf-8"))


def _with_few_sets(recipe: Recipe) -> Recipe:
    """Return the recipe of a judge with few and small sets."""
    assert recipe.candidates is not None
    few = replace(recipe.candidates, sets=2, held_out=1, balanced=0.0)
    if isinstance(recipe.tasks, EmbeddingPrior):
        small = EmbeddingPrior(min_points=60, max_points=80, max_clusters=4, structureless=0.0)
        return replace(recipe, candidates=few, tasks=small)
    tiny = SyntheticPrior(max_points=60, max_features=3, max_clusters=3, weights={"geometric": 1.0})
    return replace(recipe, candidates=few, tasks=tiny)


def test_names_of_recipes_are_unique() -> None:
    names = [tomllib.loads(path.read_text(encoding="utf-8"))["name"] for path in _SHIPPED]
    assert len(set(names)) == len(names) > len(_WEIGHTS) > 0


def test_the_card_describes_the_origin_of_the_weights(tmp_path: Path) -> None:
    path = run_recipe(toy(), tmp_path / "run")
    assert path == tmp_path / "run" / "toy-v1.safetensors"
    arrays, card = load_checkpoint(path)
    assert (card["recipe"], card["model"]["width"]) == (TOY, 8)
    assert (card["method"], card["name"], card["summary"]) == ("dac", "toy-v1", TOY["summary"])
    assert (card["coterie"], card["licence"]) == (coterie.__version__, "BSD-3-Clause")
    assert (card["steps"], card["start"]) == (6, None)
    evaluation = card["evaluation"]
    assert evaluation["loss"] == pytest.approx(evaluation["membership"] + evaluation["nll"])
    assert -1 <= evaluation["adjusted_rand_index"] <= 1
    assert 0 <= evaluation["right_number_of_clusters"] <= 1
    MODELS["dac"](toy().model).load_state_dict(to_tensors(arrays))


@pytest.mark.usefixtures("untouched_random_state")
def test_the_same_recipe_gives_the_same_checkpoint(uninterrupted: Path, tmp_path: Path) -> None:
    assert same(uninterrupted, run_recipe(toy(), tmp_path / "again"))
    assert not same(uninterrupted, run_recipe(toy(seed=4), tmp_path / "other"))


@pytest.mark.parametrize("stops", [[1], [3], [3, 4], [6]])
def test_interrupted_runs_end_with_the_same_checkpoint(uninterrupted: Path, tmp_path: Path, stops: list[int]) -> None:
    steps = []
    for stop in stops:

        def interrupt(progress: Progress, stop: int = stop) -> None:
            steps.append(progress.step)
            if progress.step == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_recipe(toy(), tmp_path / "stopped", callback=interrupt)
    finished = run_recipe(toy(), tmp_path / "stopped", callback=lambda progress: steps.append(progress.step))
    assert sorted(set(steps)) == [1, 2, 3, 4, 5, 6]
    assert same(finished, uninterrupted)


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first = run_recipe(toy(), tmp_path)
    before = first.read_bytes()
    steps: list[Progress] = []
    assert run_recipe(toy(), tmp_path, callback=steps.append) == first
    assert steps == []
    assert first.read_bytes() == before


@dataclass(frozen=True)
class RecordingTasks:
    """A sampler that records what was sampled."""

    tasks: Any
    sums: list[float] = field(default_factory=list)

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        batch: TaskBatch = self.tasks.sample(batch_size, generator)
        self.sums.append(float(batch.x.sum()))
        return batch


def run_together(rank: int, folder: Path, meeting: Path) -> None:
    """Run as one of two processes; write the sampled tasks and the digest of the checkpoint."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=2)
    recording = RecordingTasks(toy().tasks)
    path = run_recipe(replace(toy(), tasks=recording), folder)
    meeting.with_suffix(f".{rank}").write_text(json.dumps([recording.sums, registry.file_digest(path)]))
    distributed.destroy_process_group()


@pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="processes start too slowly here"
)
def test_processes_that_train_together_sample_their_own_tasks(tmp_path: Path) -> None:
    meeting, steps = tmp_path / "meeting", TOY["train"]["steps"]
    join_all([in_process(run_together, rank, tmp_path / "run", meeting) for rank in (0, 1)])
    first, second = (json.loads(meeting.with_suffix(f".{rank}").read_text()) for rank in (0, 1))
    alone = RecordingTasks(toy().tasks)
    run_recipe(replace(toy(), tasks=alone), tmp_path / "alone")
    assert first[0][-steps:] == alone.sums[-steps:]
    assert first[0][:-steps] == second[0][:-steps]  # the held-out tasks
    assert len({*first[0], *second[0][-steps:]}) == len(first[0]) + steps
    assert first[1] == second[1]
    assert load_checkpoint(tmp_path / "run" / "toy-v1.safetensors")[1]["steps"] == steps


def test_time_is_summed_over_resumptions_in_a_folder_of_one_recipe(tmp_path: Path) -> None:
    lines = [{"step": step, "seconds": seconds} for step, seconds in enumerate([1.0, 2.5, 0.5, 1.0, 0.25], start=1)]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert training_seconds(tmp_path) == 2.5 + 1.0 + 0.25
    run_recipe(toy(), tmp_path)
    with pytest.raises(TrainingError, match=r"holds another run; they differ in model\.width, seed\. Use"):
        run_recipe(toy(seed=4, model={"width": 16}), tmp_path)
    run_recipe(toy(name="toy-v2", summary="Without effect."), tmp_path)
    assert (tmp_path / "toy-v2.safetensors").exists()


def test_runs_need_a_folder_and_their_settings(tmp_path: Path) -> None:
    run_recipe(toy(), tmp_path)
    (tmp_path / "recipe.json").unlink()
    with pytest.raises(TrainingError, match=r"holds a run, but no recipe\.json with its settings\. Use another"):
        run_recipe(toy(), tmp_path)
    (tmp_path / "state.safetensors").unlink()
    run_recipe(toy(), tmp_path)
    assert (tmp_path / "recipe.json").exists()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="for the run cannot be created"):
        run_recipe(toy(), tmp_path / "file")


def _toml(path: Path, source: Mapping[str, Any]) -> Path:
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in source.items() if not isinstance(value, dict)]
    for section, values in source.items():
        if isinstance(values, dict):
            lines += [f"[{section}]\n", *(f"{name} = {json.dumps(value)}\n" for name, value in values.items())]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_training_can_start_from_a_file_beside_the_recipe(tmp_path: Path) -> None:
    first = run_recipe(toy(), tmp_path / "first")
    first.rename(tmp_path / "first.safetensors")
    still = TOY | {"start": "first.safetensors", "train": {"steps": 1, "learning_rate": 0}}
    recipe = read_recipe(_toml(tmp_path / "second.toml", still))
    arrays, card = load_checkpoint(run_recipe(recipe, tmp_path / "second"))
    weights, _ = load_checkpoint(tmp_path / "first.safetensors")
    assert all(np.array_equal(arrays[name], weights[name]) for name in weights)
    assert (card["start"]["name"], len(card["start"]["sha256"])) == ("toy-v1", 64)
    assert card["recipe"]["start"] == "first.safetensors"
    with pytest.raises(TrainingError, match=r"differ in start\.name, start\.sha256\."):
        run_recipe(
            toy(train={"steps": 1, "learning_rate": 0, "save_every": None, "evaluate_every": None}), tmp_path / "second"
        )


def test_training_can_start_from_registered_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PACKAGE", tmp_path)
    (tmp_path / "pretrained.toml").touch()
    first = run_recipe(toy(), tmp_path / "first")
    register(first, tmp_path)
    second = run_recipe(toy(name="toy-v2", start="toy-v1"), tmp_path / "second")
    assert load_checkpoint(second)[1]["start"] == {"name": "toy-v1", "sha256": registry.file_digest(first)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": None}, "lacks the setting 'seed'"),
        ({"colour": "red"}, "has no setting 'colour'"),
        ({"name": 3}, "name=3 must be a string"),
        ({"name": "../toy"}, r"name = '\.\./toy' must consist of lower-case letters"),
        ({"summary": 1}, "summary=1 must be a string"),
        ({"seed": -1}, "seed = -1 must be at least 0"),
        ({"batch_size": 0}, "batch_size = 0 at least 1"),
        ({"batch_size": 1.5}, "batch_size=1.5 must be an integer"),
        ({"start": 1}, "start=1 must be a string, or None"),
        ({"model": 1}, "model=1 must be a table of settings"),
        ({"model": {"method": None}}, r"\[model\] lacks the setting 'method'"),
        ({"model": {"method": "clam"}}, r"\[model\] has method = 'clam'; choose one of: .*dac"),
        ({"model": {"method": ["dac"]}}, r"\[model\] has method = \['dac'\]"),
        ({"model": {"width": "wide"}}, "DacConfig.width='wide' must be an integer"),
        ({"model": {"n_features": None}}, "DacConfig lacks the setting 'n_features'"),
        ({"model": {"density": "dense"}}, "must be one of 'gaussian'"),
        ({"tasks": {"kind": None}}, r"\[tasks\] lacks the setting 'kind'"),
        ({"tasks": {"kind": "cubes"}}, r"\[tasks\] has kind = 'cubes'; choose one of: .*gaussians"),
        ({"tasks": {"max_clusters": 0}}, "max_clusters=0"),
        ({"train": {"steps": None}}, "TrainConfig lacks the setting 'steps'"),
        ({"train": {"steps": 0}}, "steps = 0; it must be at least 1"),
        ({"train": {"learning_rate": "1e-3"}}, "learning_rate='1e-3' must be a finite number"),
        ({"train": {"schedule": "linear"}}, "must be one of 'constant', 'cosine', 'one-cycle'"),
    ],
)
def test_errors_in_a_recipe_are_explained(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        toy(**changes)


def test_start_weights_and_tasks_must_fit_the_network(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"n_features = 3, but the points of \[tasks\] have 2 features"):
        run_recipe(toy(model={"n_features": 3}), tmp_path / "run")
    wide = run_recipe(toy(model={"width": 16}), tmp_path / "wide")
    with pytest.raises(WeightsError, match=r"does not fit the recipe's \[model\].*'width': 16"):
        run_recipe(toy(start=str(wide)), tmp_path / "run")
    other = tmp_path / "other.safetensors"
    save_checkpoint(other, {}, {"method": "clam"}, force=False)
    with pytest.raises(WeightsError, match="the method 'clam', but the recipe is for 'dac'"):
        run_recipe(toy(start=str(other)), tmp_path / "run")
    with pytest.raises(WeightsError, match="There is no model file"):
        run_recipe(toy(start="absent.safetensors"), tmp_path / "run")
    with pytest.raises(WeightsError, match="No weights are called 'zebra'"):
        run_recipe(toy(start="zebra"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_files_that_are_not_recipes_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no recipe file '.*absent\.toml'"):
        read_recipe(tmp_path / "absent.toml")
    path = tmp_path / "recipe.toml"
    for data in (b"name = ", b"\xff\xfe"):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r"recipe\.toml' is not a TOML file"):
            read_recipe(path)
    with pytest.raises(ConfigError, match=r"Recipe '.*recipe\.toml': RecipeFile lacks the setting 'name'"):
        read_recipe(_toml(path, _changed(TOY, {"name": None})))


@pytest.mark.parametrize("path", sorted(set(_SHIPPED) - set(_WEIGHTS)), ids=lambda path: path.stem)
def test_recipes_for_tcc_name_their_command(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'.*': it has \[parameters\].*coterie cluster FOLDER --method tcc --recipe"):
        read_recipe(path)
