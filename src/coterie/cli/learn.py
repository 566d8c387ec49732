"""``coterie learn``: train from a recipe, on a table of labelled data sets, or on a folder of labelled images.

A run keeps its state in a folder; the same command resumes it.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from coterie.amortized.estimator import EVALUATIONS
from coterie.amortized.features import encode_tasks
from coterie.amortized.tasks.labelled import IMAGE_SIZE
from coterie.base import one_thread
from coterie.checkpoint import load_checkpoint
from coterie.cli.cluster import check_seed
from coterie.cli.inputs import Loaded, load_table
from coterie.cli.options import IMAGE_STEPS, TABLE_STEPS, LearnRequest
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import ProgressDisplay
from coterie.cli.summary import has_value
from coterie.errors import InputError, TableError, WeightsError, import_extra
from coterie.methods import Method, get_methods
from coterie.pretrained.registry import file_digest, load_pretrained, pretrained_path
from coterie.progress import Callback, Progress, format_seconds
from coterie.recipes import Recipe, read_recipe, run_recipe, training_seconds
from coterie.tables.readers.images import read_image_classes
from coterie.tables.table import Array, Table, take_rows
from coterie.training.loop import TrainConfig
from coterie.training.state import open_run

_NO_WEIGHTS = "none"

Kind = Literal["recipe", "table", "folder"]
Training = Callable[[Callback], "Trained"]

# Options that have no effect on each kind of FILE, and the fields of the request that hold them.
_FOR_TABLES = {"--set": "sets", "--truth": "truth", "--columns": "columns", "--drop": "drop"}
_FOR_TABLES |= {"--header/--no-header": "header", "--delimiter": "delimiter"}
_FOR_DATA = {"--method": "method", "--weights": "weights", "--steps": "steps", "--seed": "seed"}
_UNUSED: dict[Kind, dict[str, str]] = {"recipe": _FOR_TABLES | _FOR_DATA, "folder": _FOR_TABLES, "table": {}}


@final
@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training run."""

    save: Callable[[Path], object]
    steps: int
    outcome: str  # held-out scores, in one line
    hint: str = ""  # how to use the model


def run(request: LearnRequest) -> None:
    """Run the command; all errors that can be foreseen are raised before the training."""
    display = ProgressDisplay(quiet=request.quiet)
    file = request.file
    kind: Kind = "folder" if Path(file).is_dir() else "recipe" if file.lower().endswith(".toml") else "table"
    _check_options(request, kind)
    recipe = read_recipe(file) if kind == "recipe" else None
    model = request.save or (None if recipe is None else f"{recipe.name}.safetensors")
    if model is None:
        raise InputError("Missing output path: pass -o MODEL.safetensors.")
    name = Path(model).stem if recipe is None else recipe.name
    outputs = check_outputs(replace(request, save=model), [] if kind == "folder" else [file])
    folder = Path(request.folder or (Path(model).with_suffix(".run") if recipe is None else f"{name}.run"))
    if recipe is not None:
        train, save_every = _prepare_recipe(recipe, folder), recipe.train.save_every
    else:
        steps = request.steps or (IMAGE_STEPS if kind == "folder" else TABLE_STEPS)
        prepare = _prepare_images if kind == "folder" else _prepare_table
        train = prepare(request, steps, folder, display)
        save_every = min(TrainConfig(steps).save_every, max(1, steps // EVALUATIONS))
    with _monitored(f"Learning {name}", folder, display, save_every, request.tensorboard) as callback:
        trained = train(callback)
    with display.status("Writing"), outputs.staged() as staged:
        if staged.model is not None:
            trained.save(staged.model)
    if not request.quiet:
        took = format_seconds(training_seconds(folder))
        sys.stdout.write(f"{name}: {trained.steps:,} steps in {took}\n{trained.outcome}\n")
    display.say(f"wrote {model}")
    if trained.hint:
        display.say(trained.hint.format(model=model))


def _check_options(request: LearnRequest, kind: Kind) -> None:
    unused = [option for option, name in _UNUSED[kind].items() if getattr(request, name) not in (None, [])]
    if unused:
        advice = "Edit the recipe instead." if kind == "recipe" else "The sub-folders are the classes."
        raise InputError(f"{', '.join(unused)} cannot be used with a {kind}, and {request.file!r} is one. {advice}")
    missing = [option for option in ("--set", "--truth") if getattr(request, _FOR_TABLES[option]) is None]
    if kind == "table" and missing:
        raise InputError(
            f"{request.file!r} is not a recipe (.toml), so it is read as a table of labelled data sets, which needs "
            f"{' and '.join(missing)}: --set COL has the data set of each row, --truth COL its class."
        )
    if request.steps is not None and request.steps < 1:
        raise InputError(f"--steps {request.steps} must be at least 1.")
    check_seed(request.seed)


def _find_learner(request: LearnRequest, data: Literal["tables", "images"]) -> Method:
    """Return the method to train; by default the first that learns from such data."""
    learners = {method.name: method for method in get_methods() if data in method.learns_from}
    if request.method is None:
        return next(iter(learners.values()))
    if request.method not in learners:
        raise InputError(f"--method {request.method} does not learn from {data}. Choose one of: {', '.join(learners)}.")
    return learners[request.method]


def _prepare_recipe(recipe: Recipe, folder: Path) -> Training:
    def train(callback: Callback) -> Trained:
        with one_thread():  # the number of threads would change the last digits of the weights
            path = run_recipe(recipe, folder, callback=callback)
        _, card = load_checkpoint(path)
        scores = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in card["evaluation"].items())
        return Trained(lambda target: shutil.copyfile(path, target), card["steps"], f"held-out data sets: {scores}")

    return train


def _prepare_images(request: LearnRequest, steps: int, folder: Path, display: ProgressDisplay) -> Training:
    method = _find_learner(request, "images")
    with display.status(f"Reading {request.file}"):
        classes = read_image_classes(request.file, size=(IMAGE_SIZE, IMAGE_SIZE))
    for note in classes.notes:
        display.say(f"note: {note}")
    start = request.weights or method.build_estimator().get_params()["weights"]
    start = None if start == _NO_WEIGHTS else start
    digest = hashlib.sha256(classes.images.tobytes())
    digest.update("\n".join(classes.files).encode())
    identity = {"images": digest.hexdigest(), "seed": request.seed or 0, "steps": steps, "start": start}
    open_run(folder, identity)
    model = method.build_estimator(weights=start, random_state=request.seed or 0)
    tasks = [(classes.images, classes.classes)]
    settings = {"steps": steps, "folder": folder, "batch_size": 4, "max_points": 150}
    return partial(_train, model, tasks, settings, f"{len(classes.names)} classes", "FOLDER")


def _prepare_table(request: LearnRequest, steps: int, folder: Path, display: ProgressDisplay) -> Training:
    method = _find_learner(request, "tables")
    with display.status(f"Reading {request.file}"):
        loaded = load_table(replace(request, ids=request.sets))
        tasks, notes = _split_tasks(loaded)
    for note in notes:
        display.say(f"note: {note}")
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


def _split_tasks(loaded: Loaded) -> tuple[list[tuple[Table, Array]], tuple[str, ...]]:
    """Split the rows of a table by data set, check that there is something to learn, and return notes."""
    chosen, source = loaded.chosen, loaded.source.name
    if chosen.ids is None or chosen.truth is None or chosen.ids_name == chosen.truth_name:
        raise InputError(f"--set and --truth both name the column {chosen.truth_name!r}. Give two different columns.")
    known = np.flatnonzero(has_value(chosen.ids) & has_value(chosen.truth))
    if not len(known):
        raise TableError(f"No row of {source} has values in both {chosen.ids_name!r} and {chosen.truth_name!r}.")
    names, members = np.unique([str(value) for value in chosen.ids[known].tolist()], return_inverse=True)
    _, clusters = np.unique([str(value) for value in chosen.truth[known].tolist()], return_inverse=True)
    sizes = np.bincount(members)
    if len(names) < 2:
        raise TableError(
            f"Column {chosen.ids_name!r} of {source} has only one data set, {str(names[0])!r}. At least 2 are needed, "
            "preferably dozens."
        )
    if sizes.max() == 1:
        raise TableError(
            f"Each of the {len(names):,} data sets in {chosen.ids_name!r} has one row. Give a column with --set that "
            "has the same value for all rows of a data set."
        )
    rows_of_sets = np.split(np.argsort(members, kind="stable"), np.cumsum(sizes)[:-1])
    tasks = [
        (replace(take_rows(chosen.features, known[rows]), source=f"data set {str(name)!r} of {source}"), clusters[rows])
        for name, rows in zip(names, rows_of_sets, strict=True)
    ]
    if all(len(np.unique(groups)) == 1 for _, groups in tasks):
        raise TableError(
            f"No data set of {source} has more than one class in {chosen.truth_name!r}, so there is nothing to learn. "
            "Choose another column with --truth."
        )
    missing = chosen.features.n_rows - len(known)
    note = f"ignored {missing:,} rows without a value in {chosen.ids_name!r} or {chosen.truth_name!r}"
    return tasks, (*chosen.features.notes, note) if missing else chosen.features.notes


def _initial_weights(method: Method, weights: str | None, n_features: int, display: ProgressDisplay) -> str | None:
    """Return the weights to start from, None for random ones; the default ones only if they fit the data."""
    if weights == _NO_WEIGHTS:
        return None
    name = str(method.build_estimator().get_params()["weights"]) if weights is None else weights
    _, card = load_pretrained(name)
    if card.get("method") != method.name:
        raise WeightsError(f"--weights {name} are for the method {card.get('method')!r}. Give others, or none.")
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
