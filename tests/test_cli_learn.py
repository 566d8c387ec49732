"""``coterie learn``, from a recipe to its file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coterie import recipes
from coterie.__main__ import main
from coterie.checkpoint import load_checkpoint
from coterie.cli import learn as learning
from coterie.progress import Progress
from coterie.recipes import Recipe, run_recipe

_TOY = """
name = "toy-v1"
summary = "Too small for anything but tests."
seed = 3
batch_size = 2

[model]
method = "dac"
n_features = 2
width = 8
heads = 2
inducing = 2
depth = 1
mask_depth = 1

[tasks]
kind = "gaussians"
max_points = 12
max_clusters = 2

[train]
steps = 6
save_every = 2
evaluate_every = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Work in a folder that has toy.toml only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recipes, "EVALUATION_BATCHES", 2)  # the time is for training
    Path("toy.toml").write_text(_TOY, encoding="utf-8")
    yield tmp_path
    assert [path.name for path in tmp_path.rglob(".*")] == [], "something temporary was left behind"


def interrupted_at(step: int) -> Callable[..., Path]:
    def run(recipe: Recipe, folder: Path, *, on_log: Callable[[Progress], None]) -> Path:
        def stop(progress: Progress) -> None:
            on_log(progress)
            if progress.step == step:
                raise KeyboardInterrupt

        return run_recipe(recipe, folder, on_log=stop)

    return run


@pytest.mark.usefixtures("folder")
def test_from_a_recipe_to_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    assert main(["learn", "toy.toml"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("toy-v1: 6 steps in ")
    assert "on held-out sets: " in out
    assert "adjusted rand index" in out
    assert err.splitlines() == [
        "the run is kept in toy-v1.run; it can be stopped, and the same command goes on with it",
        "wrote toy-v1.safetensors",
    ]
    assert load_checkpoint("toy-v1.safetensors")[1]["steps"] == 6
    assert sorted(path.name for path in Path().iterdir()) == ["toy-v1.run", "toy-v1.safetensors", "toy.toml"]
    assert torch.get_num_threads() == threads


@pytest.mark.usefixtures("folder")
def test_places_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.safetensors").write_text("old")
    assert main(["learn", "toy.toml", "--folder", "runs/toy", "-o", "mine.safetensors", "--force", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert load_checkpoint("mine.safetensors")[1]["name"] == "toy-v1"
    assert Path("runs", "toy", "log.jsonl").exists()
    assert not Path("toy-v1.run").exists()


@pytest.mark.usefixtures("folder")
def test_stopped_and_taken_up_again(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(learning, "run_recipe", interrupted_at(3))
        assert main(["learn", "toy.toml"]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == (
        "stopped; the same command goes on from the state in toy-v1.run, at most 2 steps back"
    )
    assert not Path("toy-v1.safetensors").exists()
    assert main(["learn", "toy.toml"]) == 0
    assert "going on after step 2 of 6, from toy-v1.run" in capsys.readouterr().err
    assert main(["learn", "toy.toml", "--folder", "whole", "-o", "whole.safetensors", "-q"]) == 0
    assert Path("toy-v1.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "change", "told"),
    [
        (["absent.toml"], ("", ""), "There is no recipe file 'absent.toml'"),
        (["toy.toml", "-o", "toy.pkl"], ("", ""), "ends in '.pkl'"),
        (["toy.toml", "-o", "absent/toy.safetensors"], ("", ""), "folder 'absent' does not exist"),
        (["toy.toml", "-o", "exists.safetensors"], ("", ""), "exists already"),
        (["toy.toml", "--folder", "toy.toml"], ("", ""), "cannot be a folder"),
        (["toy.toml", "--tensorboard", "board"], ("", ""), "pip install 'coterie[board]'"),
        (["toy.toml", "--steps", "3"], ("", ""), "--steps"),
        ([], ("", ""), "RECIPE.toml"),
        (["toy.toml"], ("steps = 6", "steps ="), "is not a TOML file"),
        (["toy.toml"], ("steps = 6", "steps = 'six'"), "steps = 'six'; give it a whole number"),
        (["toy.toml"], ("seed = 3", "sead = 3"), "has no setting 'sead'"),
        (["toy.toml"], ('"dac"', '"magic"'), "[model] has method = 'magic'; known are: "),
        (["toy.toml"], ("n_features = 2", "n_features = 3"), "have 2 features"),
        (["toy.toml"], ("seed = 3", "seed = 3\nstart = 'zebra'"), "No weights are called 'zebra'"),
        (["toy.toml", "--folder", "other"], ("", ""), "holds another run; they differ in "),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str],
    change: tuple[str, str],
    told: str,
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    Path("toy.toml").write_text(_TOY.replace(*change), encoding="utf-8")
    Path("exists.safetensors").touch()
    Path("other").mkdir()
    Path("other", "recipe.json").write_text('{"seed": 1}')
    before = sorted(Path().rglob("*"))
    assert main(["learn", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1
    assert told in err
    assert sorted(Path().rglob("*")) == before


class Writer:
    """What TensorBoard's writer would be told."""

    made: list["Writer"]

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.closed = folder, purge_step, False
        self.scalars: list[tuple[str, int]] = []
        self.made.append(self)

    def add_scalar(self, name: str, _: float, step: int) -> None:
        self.scalars.append((name, step))

    def close(self) -> None:
        self.closed = True


@pytest.mark.usefixtures("folder")
def test_progress_is_written_for_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", library)
    Writer.made = []
    with monkeypatch.context() as patch:
        patch.setattr(learning, "run_recipe", interrupted_at(3))
        assert main(["learn", "toy.toml", "-q", "--tensorboard", "board"]) == 130
    assert main(["learn", "toy.toml", "-q", "--tensorboard", "board"]) == 0
    first, second = Writer.made
    assert (first.folder, first.purge_step, first.closed) == ("board", 1, True)
    assert (second.folder, second.purge_step, second.closed) == ("board", 3, True)
    assert [step for name, step in second.scalars if name == "loss"] == [3, 4, 5, 6]
    assert ("parts/membership", 3) in second.scalars
    assert [step for name, step in second.scalars if name == "held_out/loss"] == [5, 6]
