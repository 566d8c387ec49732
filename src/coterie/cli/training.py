"""The training of ``coterie learn``, after all checks. Needs torch."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from coterie.amortized.estimator import EVALUATIONS
from coterie.amortized.features import encode_tasks
from coterie.amortized.tasks.labelled import IMAGE_SIZE
from coterie.base import one_thread
from coterie.checkpoint import load_checkpoint
from coterie.cli.learn import NO_WEIGHTS, Tasks
from coterie.cli.options import IMAGE_STEPS, TABLE_STEPS, LearnRequest
from coterie.cli.outputs import Outputs
from coterie.cli.progress import ProgressDisplay
from coterie.errors import WeightsError, import_extra
from coterie.methods import Method
from coterie.pretrained.registry import file_digest, load_pretrained, pretrained_path
from coterie.progress import Callback, Progress, format_seconds
from coterie.recipes import Recipe, read_recipe, run_recipe, training_seconds
from coterie.tables.readers.images import read_image_classes
from coterie.training.loop import TrainConfig
from coterie.training.state import open_run

Training = Callable[[Callback], "Trained"]


@final
@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training run."""

    save: Callable[[Path], object]
    steps: int
    outcome: str  # held-out scores, in one line
    hint: str = ""  # how to use the model


def learn(
    request: LearnRequest,
    method: Method | None,
    tasks: Tasks,
    outputs: Outputs,
    folder: Path,
    display: ProgressDisplay,
) -> None:
    """Train the method on the tasks, or on a folder of images if there are none; without a method, from a recipe."""
    if method is None:
        recipe = read_recipe(request.file)
        name, train, save_every = recipe.name, _prepare_recipe(recipe, folder), recipe.train.save_every
    else:
        name = Path(str(request.save)).stem
        steps = request.steps or (TABLE_STEPS if tasks else IMAGE_STEPS)
        if tasks:
            train = _prepare_table(method, tasks, request, steps, folder, display)
        else:
            train = _prepare_images(method, request, steps, folder, display)
        save_every = min(TrainConfig(steps).save_every, max(1, steps // EVALUATIONS))
    with _monitored(f"Learning {name}", folder, display, save_every, request.tensorboard) as callback:
        trained = train(callback)
    with display.status("Writing"), outputs.staged() as staged:
        if staged.model is not None:
            trained.save(staged.model)
    if not request.quiet:
        took = format_seconds(training_seconds(folder))
        sys.stdout.write(f"{name}: {trained.steps:,} steps in {took}\n{trained.outcome}\n")
    display.say(f"wrote {outputs.model}")
    if trained.hint:
        display.say(trained.hint.format(model=outputs.model))


def _prepare_recipe(recipe: Recipe, folder: Path) -> Training:
    def train(callback: Callback) -> Trained:
        with one_thread():  # the number of threads would change the last digits of the weights
            path = run_recipe(recipe, folder, callback=callback)
        _, card = load_checkpoint(path)
        scores = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in card["evaluation"].items())
        return Trained(lambda target: shutil.copyfile(path, target), card["steps"], f"held-out data sets: {scores}")

    return train


def _prepare_images(
    method: Method, request: LearnRequest, steps: int, folder: Path, display: ProgressDisplay
) -> Training:
    with display.status(f"Reading {request.file}"):
        classes = read_image_classes(request.file, size=(IMAGE_SIZE, IMAGE_SIZE))
    for note in classes.notes:
        display.say(f"note: {note}")
    start = request.weights or method.build_estimator().get_params()["weights"]
    start = None if start == NO_WEIGHTS else start
    digest = hashlib.sha256(classes.images.tobytes())
    digest.update("\n".join(classes.files).encode())
    identity = {"images": digest.hexdigest(), "seed": request.seed or 0, "steps": steps, "start": start}
    open_run(folder, identity)
    model = method.build_estimator(weights=start, random_state=request.seed or 0)
    tasks = [(classes.images, classes.classes)]
    settings = {"steps": steps, "folder": folder, "batch_size": 4, "max_points": 150}
    return partial(_train, model, tasks, settings, f"{len(classes.names)} classes", "FOLDER")


def _prepare_table(
    method: Method, tasks: Tasks, request: LearnRequest, steps: int, folder: Path, display: ProgressDisplay
) -> Training:
    n_features = len(encode_tasks(tasks, "standard")[1])
    start = _initial_weights(method, request.weights, n_features, display)
    digest = hashlib.sha256()
    for table, clusters in tasks:
        columns = [table.column(i).tolist() for i in range(table.n_columns)]
        digest.update(json.dumps([table.names, columns, clusters.tolist()], default=str).encode())
    identity = {"method": method.name, "sets": digest.hexdigest(), "seed": request.seed or 0, "steps": steps}
    open_run(folder, identity | {"start": None if start is None else file_digest(pretrained_path(start))})
    model = method.build_estimator(weights=start, random_state=request.seed or 0)
    return partial(_train, model, tasks, {"steps": steps, "folder": folder}, f"{len(tasks)} data sets", "FILE")


def _train(
    model: Any, tasks: Any, settings: Mapping[str, Any], trained_on: str, source: str, callback: Callback
) -> Trained:
    """Train on the tasks; `trained_on` names the data in messages, and `source` the data that the model clusters."""
    model.set_params(callback=callback).learn(tasks, **settings)
    index = f"adjusted Rand index {model.evaluation_['adjusted_rand_index']:.3f}"
    held_out = int(model.evaluation_["held_out_tasks"])
    outcome = f"{held_out} of {trained_on} were held out: {index}"
    if held_out == 0:
        outcome = f"none of the {trained_on} were held out, because there are too few; training data: {index}"
    hint = f"use it with: coterie cluster {source} --method {model.method} --weights {{model}}"
    return Trained(model.save, settings["steps"], outcome, hint)


def _initial_weights(method: Method, weights: str | None, n_features: int, display: ProgressDisplay) -> str | None:
    """Return the weights to start from, None for random ones; the default ones only if they fit the data."""
    if weights == NO_WEIGHTS:
        return None
    name = str(method.build_estimator().get_params()["weights"]) if weights is None else weights
    _, card = load_pretrained(name)
    expected = card["model"]["n_features"]
    if expected == n_features:
        return name
    if weights is not None:
        raise WeightsError(
            f"--weights {name} expect {expected} features, but the data sets have {n_features}. Give others, or none."
        )
    display.say(
        f"note: training starts from random weights, because {name} expects {expected} features and the data sets have "
        f"{n_features}"
    )
    return None


@contextmanager
def _monitored(
    activity: str, folder: Path, display: ProgressDisplay, save_every: int, tensorboard: str | None
) -> Iterator[Callback]:
    """Yield a callback that displays and logs the progress of a run in that folder."""
    try:
        with _tensorboard(tensorboard) as log, display.progress(activity) as show:

            def callback(progress: Progress) -> None:
                if progress.step == progress.resumed_at + 1:
                    display.say(
                        f"resuming after step {progress.resumed_at:,} of {progress.steps:,}, from {folder}"
                        if progress.resumed_at
                        else f"the run is saved in {folder}; if you stop it, the same command resumes it"
                    )
                show(progress)
                log(progress)

            yield callback
    except KeyboardInterrupt:
        lost = "1 step" if save_every == 1 else f"{save_every:,} steps"
        display.say(f"stopped; the same command resumes from the state in {folder}, at most {lost} back")
        raise


@contextmanager
def _tensorboard(folder: str | None) -> Iterator[Callback]:
    """Yield a callback that writes to TensorBoard; one that does nothing if no folder is given."""
    if folder is None:
        yield lambda _: None
        return
    board = import_extra("torch.utils.tensorboard", extra="board", purpose="--tensorboard needs tensorboard")
    writer: Any = None

    def log(progress: Progress) -> None:
        nonlocal writer
        if writer is None:  # hides steps that an earlier run logged after its last saved state
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
