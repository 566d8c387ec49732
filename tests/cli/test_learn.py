"""``coterie learn``: from recipes, from tables of labelled data sets, and from folders of labelled images."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator

from coterie import recipes
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.estimator import DAC
from coterie.amortized.dac.network import DacModel
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.cli import training as learning
from coterie.config import to_dict
from coterie.methods import load
from coterie.nn.model import build, to_arrays
from coterie.progress import Progress
from coterie.recipes import Recipe, run_recipe
from tests.cli.conftest import Command, Outcome

RECIPE = """
name = "toy-v1"
summary = "For tests."
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
LEARN = ("learn", "labelled.csv", "--set", "drawing", "--truth", "stroke", "--weights", "tiny.safetensors")
_TINY = DacConfig(2, density="gaussian", width=8, heads=2, inducing=2, depth=1, mask_depth=1)


def drawings(n_sets: int = 6, rows: int = 12) -> str:
    """Return drawings of two strokes each, as points in the plane."""
    rng = np.random.default_rng(2)
    lines = ["drawing,x,stroke,y"]
    for drawing in range(n_sets):
        for row in range(rows):
            x, y = rng.normal(4.0 * (row % 2), 0.3, size=2) * (drawing + 1)
            lines.append(f"{drawing:03d},{x:.3f},{'ab'[row % 2]},{y:.3f}")
    return "\n".join(lines) + "\n"


def save_weights(path: Path) -> None:
    """Write untrained weights."""
    model = build(DacModel, _TINY, Generator().manual_seed(0))
    card = {"method": "dac", "model": to_dict(_TINY), "scaling": "standard"}
    save_checkpoint(path, to_arrays(model.state_dict()), card, force=False)


@pytest.fixture(autouse=True)
def inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a recipe, a table of labelled data sets, and untrained weights."""
    monkeypatch.setattr(recipes, "EVALUATION_BATCHES", 2)
    Path("toy.toml").write_text(RECIPE, encoding="utf-8")
    Path("labelled.csv").write_text(drawings())
    save_weights(Path("tiny.safetensors"))


def stop_at(step: int) -> Callable[..., Path]:
    """Return a ``run_recipe`` that is interrupted after some steps."""

    def run(recipe: Recipe, folder: Path, *, callback: Callable[[Progress], None]) -> Path:
        def stop(progress: Progress) -> None:
            callback(progress)
            if progress.step == step:
                raise KeyboardInterrupt

        return run_recipe(recipe, folder, callback=stop)

    return run


def test_recipe_to_model(command: Command) -> None:
    threads = torch.get_num_threads()
    outcome = command("learn", "toy.toml")
    assert outcome.out.startswith("toy-v1: 6 steps in ")
    assert "held-out data sets: " in outcome.out
    assert "adjusted rand index" in outcome.out
    assert outcome.err.splitlines() == [
        "the run is saved in toy-v1.run; if you stop it, the same command resumes it",
        "wrote toy-v1.safetensors",
    ]
    assert load_checkpoint("toy-v1.safetensors")[1]["steps"] == 6
    assert torch.get_num_threads() == threads


def test_folder_and_model_path_can_be_chosen(command: Command) -> None:
    Path("mine.safetensors").write_text("old")
    arguments = ("learn", "toy.toml", "--folder", "runs/toy", "-o", "mine.safetensors", "--force", "--quiet")
    assert command(*arguments) == Outcome(0, "", "")
    assert load_checkpoint("mine.safetensors")[1]["name"] == "toy-v1"
    assert Path("runs", "toy", "log.jsonl").exists()
    assert not Path("toy-v1.run").exists()


def test_stopped_recipe_resumes(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(learning, "run_recipe", stop_at(3))
        stopped = command("learn", "toy.toml", code=130)
    assert stopped.out == ""
    last = "stopped; the same command resumes from the state in toy-v1.run, at most 2 steps back"
    assert stopped.err.splitlines()[-1] == last
    assert not Path("toy-v1.safetensors").exists()
    resumed = command("learn", "toy.toml")
    assert "resuming after step 2 of 6, from toy-v1.run" in resumed.err
    command("learn", "toy.toml", "--folder", "whole", "-o", "whole.safetensors", "-q")
    assert Path("toy-v1.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


class Writer:
    """Records what TensorBoard's writer receives."""

    created: list["Writer"]

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.closed = folder, purge_step, False
        self.scalars: list[tuple[str, int]] = []
        self.created.append(self)

    def add_scalar(self, name: str, _: float, step: int) -> None:
        self.scalars.append((name, step))

    def close(self) -> None:
        self.closed = True


def test_progress_is_written_for_tensorboard(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", library)
    Writer.created = []
    with monkeypatch.context() as patch:
        patch.setattr(learning, "run_recipe", stop_at(3))
        command("learn", "toy.toml", "-q", "--tensorboard", "board", code=130)
    command("learn", "toy.toml", "-q", "--tensorboard", "board")
    first, second = Writer.created
    assert (first.folder, first.purge_step, first.closed) == ("board", 1, True)
    assert (second.folder, second.purge_step, second.closed) == ("board", 3, True)
    assert [step for name, step in second.scalars if name == "loss"] == [3, 4, 5, 6]
    assert ("parts/membership", 3) in second.scalars
    assert [step for name, step in second.scalars if name == "held_out/loss"] == [5, 6]


def test_table_to_model(command: Command) -> None:
    outcome = command(*LEARN, "-o", "mine.safetensors", "--steps", "3")
    first, second = outcome.out.splitlines()
    assert first.startswith("mine: 3 steps in ")
    assert second.startswith("1 of 6 data sets were held out: adjusted Rand index ")
    assert outcome.err.splitlines() == [
        "the run is saved in mine.run; if you stop it, the same command resumes it",
        "wrote mine.safetensors",
        "use it with: coterie cluster FILE --method dac --weights mine.safetensors",
    ]
    card = load_checkpoint("mine.safetensors")[1]
    assert (card["method"], card["steps"], card["start"], card["scaling"]) == ("dac", 3, "tiny.safetensors", "standard")
    assert card["model"] == to_dict(_TINY)
    assert isinstance(load("mine.safetensors"), DAC)
    points = ("cluster", "labelled.csv", "--columns", "x,y", "--method", "dac", "--weights", "mine.safetensors")
    command(*points, "-q")


def test_table_gives_the_weights_of_the_library(command: Command) -> None:
    Path("labelled.csv").write_text(drawings(3))
    outcome = command(*LEARN, "-o", "mine.safetensors", "--steps", "2", "--seed", "5", "--folder", "runs/a")
    assert "none of the 3 data sets were held out, because there are too few; training data: adj" in outcome.out
    assert Path("runs", "a", "log.jsonl").exists()
    rows = [line.split(",") for line in drawings(3).splitlines()[1:]]
    tasks = [
        ([[float(x), float(y)] for s, x, _, y in rows if s == name], [t for s, _, t, _ in rows if s == name])
        for name in ("000", "001", "002")
    ]
    DAC(weights="tiny.safetensors", random_state=5).learn(tasks, steps=2).save("same.safetensors")
    theirs, ours = (load_checkpoint(f"{name}.safetensors")[0] for name in ("same", "mine"))
    assert theirs.keys() == ours.keys()
    assert all(np.array_equal(theirs[name], ours[name]) for name in ours)


def test_training_starts_from_random_weights_on_request_or_need(command: Command) -> None:
    arguments = [*LEARN[:-1], "none", "--columns", "x", "-o", "mine.safetensors", "--steps", "1", "--quiet"]
    assert command(*arguments) == Outcome(0, "", "")
    card = load_checkpoint("mine.safetensors")[1]
    assert (card["start"], card["model"]["n_features"]) == (None, 1)
    outcome = command(*LEARN[:-2], "--drop", "y", "-o", "other.safetensors", "--steps", "1")
    start = f"note: training starts from random weights, because {DAC().weights} expects 2 features and the data sets"
    assert outcome.err.startswith(start)


def test_arrays_and_rows_without_a_data_set_or_a_class(command: Command) -> None:
    Path("labelled.csv").write_text(drawings().replace("000,", ",", 1).replace(",a,", ",NA,", 2))
    outcome = command(*LEARN, "-o", "mine.safetensors", "--steps", "1")
    assert "note: ignored 2 rows without a value in 'drawing' or 'stroke'" in outcome.err
    X = np.random.default_rng(0).normal(size=(40, 2))
    np.savez("labelled.npz", X=X, drawing=np.repeat(np.arange(4), 10), stroke=np.tile([0, 1], 20))
    arguments = ["learn", "labelled.npz", *LEARN[2:], "-o", "other.safetensors", "--steps", "1", "-q"]
    assert command(*arguments) == Outcome(0, "", "")


@pytest.mark.parametrize(
    ("table", "start", "features"),
    [
        ("drawing,x,y,stroke\na,1,2,p\na,2,2,q\nb,2,4,q\nb,3,5,p\n", "tiny.safetensors", ["x", "y"]),
        (
            "drawing,x,y,stroke\na,1,red,p\na,2,blue,q\nb,2,green,q\nb,3,blue,p\n",
            "none",
            ["x", "y=blue", "y=red", "y=green"],
        ),
    ],
    ids=["one value in one data set", "different levels in each data set"],
)
def test_columns_need_not_vary_in_every_data_set(command: Command, table: str, start: str, features: list[str]) -> None:
    Path("labelled.csv").write_text(table)
    outcome = command(*LEARN[:-1], start, "-o", "mine.safetensors", "--steps", "1", "-q")
    assert outcome.err == ""
    assert load_checkpoint("mine.safetensors")[1]["features"] == features


def test_stopped_training_on_a_table_resumes(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    learn = DAC.learn

    def stopping(self: DAC, *given: Any, **settings: Any) -> DAC:
        callback = self.callback

        def stop(progress: Progress) -> None:
            assert callback is not None
            callback(progress)
            if progress.step == 2:
                raise KeyboardInterrupt

        self.callback = stop
        return learn(self, *given, **settings)

    arguments = [*LEARN, "--steps", "4"]
    with monkeypatch.context() as patch:
        patch.setattr(DAC, "learn", stopping)
        stopped = command(*arguments, "-o", "mine.safetensors", code=130)
    assert stopped.out == ""
    last = "stopped; the same command resumes from the state in mine.run, at most 1 step back"
    assert stopped.err.splitlines()[-1] == last
    assert not Path("mine.safetensors").exists()
    resumed = command(*arguments, "-o", "mine.safetensors")
    assert "resuming after step 2 of 4, from mine.run" in resumed.err
    command(*arguments, "-o", "whole.safetensors", "-q")
    assert Path("mine.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("more", "change", "difference"),
    [
        (["--steps", "2"], ("", ""), "steps"),
        (["--seed", "1"], ("", ""), "seed"),
        ([], ("000,", "001,"), "sets"),
        (["--weights", "other.safetensors"], ("", ""), "start"),
    ],
)
def test_one_run_per_folder(command: Command, more: Sequence[str], change: tuple[str, str], difference: str) -> None:
    command(*LEARN, "-o", "mine.safetensors", "--steps", "1", "-q")
    Path("labelled.csv").write_text(drawings().replace(*change, 1))
    Path("mine.safetensors").rename("other.safetensors")
    outcome = command(*LEARN, "-o", "mine.safetensors", "--steps", "1", *more, code=2)
    assert outcome.out == ""
    assert "'mine.run'" in outcome.err
    assert difference in outcome.err
    (Path("mine.run") / "recipe.json").unlink()
    assert "recipe.json" in command(*LEARN, "-o", "mine.safetensors", "--steps", "1", code=2).err


def test_folder_of_images_to_model(command: Command) -> None:
    rng = np.random.default_rng(0)
    for one in range(10):
        folder = Path("bars", f"class {one}")
        folder.mkdir(parents=True)
        for number in range(4):
            image = rng.integers(0, 30, (20, 20), dtype=np.uint8)
            image[2 * one : 2 * one + 2] = 255
            Image.fromarray(image).save(folder / f"{number}.png")
    trained = command("learn", "bars", "-o", "bars.safetensors", "--steps", "2", "--weights", "none")
    assert "2 of 10 classes were held out: adjusted Rand index" in trained.out
    assert "coterie cluster FOLDER --method attention-based --weights bars.safetensors" in trained.err
    outcome = command("cluster", "bars", "--method", "attention-based", "--weights", "bars.safetensors")
    assert "bars: 40 images in" in outcome.out
