"""``coterie learn``: train as a recipe says or on sorted sets, and go on where an earlier run was stopped."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from coterie.checkpoint import load_checkpoint
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import Narrator, time_in_words
from coterie.cli.requests import LearnRequest
from coterie.cli.runs import followed
from coterie.cli.sorted_images import learn_from_images
from coterie.cli.sorted_sets import learn_from_sets
from coterie.errors import InputError
from coterie.estimators.base import one_thread
from coterie.recipes import Recipe, read_recipe, run_recipe, seconds_trained


def run(request: LearnRequest) -> None:
    """Do what was asked; whatever can be refused is refused before the training."""
    narrator = Narrator(quiet=request.writing.quiet)
    if Path(request.reading.file).is_dir():
        learn_from_images(request, narrator)
        return
    if not request.reading.file.lower().endswith(".toml"):
        learn_from_sets(request, narrator)
        return
    _refuse_options_of_tables(request)
    recipe = read_recipe(request.reading.file)
    writing = replace(request.writing, model=request.writing.model or f"{recipe.name}.safetensors")
    outputs = check_outputs(writing, [request.reading.file])
    folder = Path(request.folder or f"{recipe.name}.run")
    trained = _train(recipe, folder, narrator, request.tensorboard)
    with narrator.phase("Writing"), outputs.staged() as staged:
        if staged.model is not None:
            shutil.copyfile(trained, staged.model)
    if not writing.quiet:
        sys.stdout.write(_outcome(trained, seconds_trained(folder)))
    narrator.say(f"wrote {writing.model}")


def _refuse_options_of_tables(request: LearnRequest) -> None:
    reading = request.reading
    given = {
        "--set": request.sets,
        "--truth": reading.truth,
        "--columns": reading.columns or None,
        "--drop": reading.drop or None,
        "--method": request.method,
        "--weights": request.weights,
        "--steps": request.steps,
        "--seed": request.seed,
        "--header/--no-header": reading.header,
        "--delimiter": reading.delimiter,
    }
    named = [option for option, value in given.items() if value is not None]
    if named:
        raise InputError(
            f"{', '.join(named)} {'is' if len(named) == 1 else 'are'} for tables of sorted sets, and {reading.file!r} "
            "is a recipe, which says all that by itself; change it there"
        )


def _train(recipe: Recipe, folder: Path, narrator: Narrator, tensorboard: str | None) -> Path:
    """Train, or go on; the number of threads is fixed, since it would show in the last digits of the weights."""
    save_every = recipe.train.save_every
    with (
        one_thread(),
        followed(f"Learning {recipe.name}", folder, narrator, save_every=save_every, tensorboard=tensorboard) as on_log,
    ):
        return run_recipe(recipe, folder, on_log=on_log)


def _outcome(trained: Path, seconds: float) -> str:
    _, card = load_checkpoint(trained)
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in card["evaluation"].items())
    return f"{card['name']}: {card['steps']:,} steps in {time_in_words(seconds)}\non held-out sets: {scores}\n"
