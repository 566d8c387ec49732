"""``coterie learn``: train as a recipe says, and go on where an earlier run was stopped."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from coterie.checkpoint import load_checkpoint
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import Narrator, OnProgress, time_in_words
from coterie.cli.requests import LearnRequest
from coterie.errors import MissingExtraError
from coterie.estimators.base import one_thread
from coterie.recipes import Recipe, read_recipe, run_recipe, seconds_trained
from coterie.training import Progress


def run(request: LearnRequest) -> None:
    """Do what was asked; whatever can be refused is refused before the training."""
    narrator = Narrator(quiet=request.writing.quiet)
    recipe = read_recipe(request.recipe)
    writing = replace(request.writing, model=request.writing.model or f"{recipe.name}.safetensors")
    outputs = check_outputs(writing, [request.recipe])
    folder = Path(request.folder or f"{recipe.name}.run")
    with _board(request.tensorboard) as on_board:
        trained = _train(recipe, folder, narrator, on_board)
    with narrator.phase("Writing"), outputs.staged() as staged:
        if staged.model is not None:
            shutil.copyfile(trained, staged.model)
    if not writing.quiet:
        sys.stdout.write(_outcome(trained, seconds_trained(folder)))
    narrator.say(f"wrote {writing.model}")


def _train(recipe: Recipe, folder: Path, narrator: Narrator, on_board: OnProgress) -> Path:
    """Train, or go on; the number of threads is fixed, since it would show in the last digits of the weights."""
    try:
        with one_thread(), narrator.training(f"Learning {recipe.name}") as on_progress:

            def on_log(progress: Progress) -> None:
                if progress.step == progress.resumed_at + 1:
                    narrator.say(_beginning(progress, folder))
                on_progress(progress)
                on_board(progress)

            return run_recipe(recipe, folder, on_log=on_log)
    except KeyboardInterrupt:
        narrator.say(
            f"stopped; the same command goes on from the state in {folder}, "
            f"at most {recipe.train.save_every:,} steps back"
        )
        raise


def _beginning(progress: Progress, folder: Path) -> str:
    if progress.resumed_at:
        return f"going on after step {progress.resumed_at:,} of {progress.steps:,}, from {folder}"
    return f"the run is kept in {folder}; it can be stopped, and the same command goes on with it"


@contextmanager
def _board(folder: str | None) -> Iterator[OnProgress]:
    """Lend a function that writes progress for TensorBoard; one that does nothing if no folder is given."""
    if folder is None:
        yield lambda _: None
        return
    try:
        board: Any = import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise MissingExtraError(
            "--tensorboard needs the library tensorboard, which is not installed; pip install 'coterie[board]'"
        ) from error
    writer: Any = None

    def log(progress: Progress) -> None:
        nonlocal writer
        if writer is None:  # what an earlier run has logged beyond the state that it left is hidden
            writer = board.SummaryWriter(folder, purge_step=progress.step)
        writer.add_scalar("loss", progress.loss, progress.step)
        for name, value in progress.parts.items():
            writer.add_scalar(f"parts/{name}", value, progress.step)
        for name, value in (progress.evaluation or {}).items():
            writer.add_scalar(f"held_out/{name}", value, progress.step)

    try:
        yield log
    finally:
        if writer is not None:
            writer.close()


def _outcome(trained: Path, seconds: float) -> str:
    _, card = load_checkpoint(trained)
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in card["evaluation"].items())
    return f"{card['name']}: {card['steps']:,} steps in {time_in_words(seconds)}\non held-out sets: {scores}\n"
