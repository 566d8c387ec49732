"""``coterie learn``: train as a recipe says or on sorted sets, and go on where an earlier run was stopped."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, final

import numpy as np

from coterie.amortized.abc.estimator import AttentionBasedClustering
from coterie.amortized.amcp.estimator import AMCP
from coterie.amortized.dac.estimator import DAC
from coterie.amortized.estimator import EVALUATIONS
from coterie.amortized.features import encode_tasks
from coterie.amortized.tasks.labelled import SIDE
from coterie.base import one_thread
from coterie.checkpoint import load_checkpoint
from coterie.cli.cluster import check_seed
from coterie.cli.inputs import IMAGE_STEPS, STEPS, LearnRequest, Loaded, load
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import Narrator, OnProgress
from coterie.cli.summary import has_value
from coterie.errors import InputError, MissingExtraError, TableError, WeightsError
from coterie.images.folders import ImageClasses, read_image_classes
from coterie.pretrained.registry import file_digest, load_pretrained, pretrained_path
from coterie.progress import Progress, format_seconds
from coterie.recipes import Recipe, read_recipe, run_recipe, seconds_trained
from coterie.tables.table import Array, Table
from coterie.training.loop import TrainConfig
from coterie.training.state import claim


@contextmanager
def followed(
    what: str, folder: Path, narrator: Narrator, *, save_every: int, tensorboard: str | None
) -> Iterator[OnProgress]:
    """Lend a function to call after every step, which tells how a run in that folder goes on."""
    try:
        with _board(tensorboard) as on_board, narrator.training(what) as on_progress:

            def on_log(progress: Progress) -> None:
                if progress.step == progress.resumed_at + 1:
                    narrator.say(_beginning(progress, folder))
                on_progress(progress)
                on_board(progress)

            yield on_log
    except KeyboardInterrupt:
        back = "1 step" if save_every == 1 else f"{save_every:,} steps"
        narrator.say(f"stopped; the same command goes on from the state in {folder}, at most {back} back")
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


_IMAGES_FROM_NOTHING = "none"
_SETS_AT_ONCE = 4
_MOST_IMAGES = 150
"""Images of a set."""


def learn_from_images(request: LearnRequest, narrator: Narrator) -> None:
    """Train on the images of a folder, and say how well images of classes that were held out are sorted afterwards."""
    writing = request.writing
    seed, steps = request.seed or 0, IMAGE_STEPS if request.steps is None else request.steps
    model_path = _check_images(request, seed, steps)
    outputs = check_outputs(writing, [])
    with narrator.phase(f"Reading {request.reading.file}"):
        sorted_images = read_image_classes(request.reading.file, size=(SIDE, SIDE))
    for note in sorted_images.notes:
        narrator.say(f"note: {note}")
    weights = {None: "auto", _IMAGES_FROM_NOTHING: None}.get(request.weights, request.weights)
    folder = model_path.with_suffix(".run") if request.folder is None else Path(request.folder)
    claim(folder, {"images": _images_digest(sorted_images), "seed": seed, "steps": steps, "start": weights})
    save_every = min(TrainConfig(steps).save_every, max(1, steps // EVALUATIONS))
    what = f"Learning {model_path.stem}"
    with followed(what, folder, narrator, save_every=save_every, tensorboard=request.tensorboard) as on_log:
        model = AttentionBasedClustering(weights=weights, random_state=seed, on_progress=on_log).learn(
            [(sorted_images.images, sorted_images.classes)],
            steps=steps,
            batch_size=_SETS_AT_ONCE,
            max_points=_MOST_IMAGES,
            folder=folder,
        )
    with narrator.phase("Writing"), outputs.staged() as staged:
        if staged.model is not None:
            model.save(staged.model)
    if not writing.quiet:
        took = format_seconds(seconds_trained(folder))
        outcome = _images_outcome(model.evaluation_, len(sorted_images.names))
        sys.stdout.write(f"{model_path.stem}: {steps:,} steps in {took}\n{outcome}\n")
    narrator.say(f"wrote {model_path}")
    narrator.say(f"another folder is sorted by: coterie cluster FOLDER --method {model.method} --weights {model_path}")


def _check_images(request: LearnRequest, seed: int, steps: int) -> Path:
    """Refuse options that are not for images, and wrong values; return where the model goes."""
    given = {
        "--set": request.sets,
        "--truth": request.reading.truth,
        "--columns": request.reading.columns or None,
        "--drop": request.reading.drop or None,
        "--header/--no-header": request.reading.header,
        "--delimiter": request.reading.delimiter,
    }
    named = [option for option, value in given.items() if value is not None]
    if named:
        raise InputError(
            f"{', '.join(named)} {'is' if len(named) == 1 else 'are'} for tables, and {request.reading.file!r} is a "
            "folder, whose sub-folders are the classes of the images in them; leave it out"
        )
    if request.method not in {None, AttentionBasedClustering.method}:
        raise InputError(
            f"--method {request.method} does not learn from folders of images; there is "
            f"{AttentionBasedClustering.method}"
        )
    if steps < 1:
        raise InputError(f"--steps must be at least 1; got {steps}")
    check_seed(seed)
    if request.writing.model is None:
        raise InputError("where to write what was learned is not said; add -o MODEL.safetensors")
    return Path(request.writing.model)


def _images_digest(sorted_images: ImageClasses) -> str:
    digest = hashlib.sha256(sorted_images.images.tobytes())
    digest.update("\n".join(sorted_images.files).encode())
    return digest.hexdigest()


def _images_outcome(evaluation: Mapping[str, float], n_classes: int) -> str:
    agreement = f"adjusted Rand index {evaluation['adjusted_rand_index']:.3f}"
    held_out = int(evaluation["held_out_tasks"])
    if held_out == 0:
        return f"none of the {n_classes} classes was held out, they are too few; on those learned from: {agreement}"
    return f"on images of {held_out} of the {n_classes} classes, which were held out: {agreement}"


_LEARNERS: dict[str, type[DAC] | type[AMCP]] = {"dac": DAC, "amcp": AMCP}
_SETS_FROM_NOTHING = "none"


@final
@dataclass(frozen=True, eq=False)
class SortedSets:
    """Sets with the cluster of every row."""

    tasks: list[tuple[Table, Array]]
    n_features: int
    digest: str
    """Of all names and values."""
    notes: tuple[str, ...]


def learn_from_sets(request: LearnRequest, narrator: Narrator) -> None:
    """Train on the sets of a table, and say how well sets that were held out are sorted afterwards."""
    reading, writing = request.reading, request.writing
    seed, steps = request.seed or 0, STEPS if request.steps is None else request.steps
    model_path = _check_sets(request, seed, steps)
    outputs = check_outputs(writing, [reading.file])
    with narrator.phase(f"Reading {reading.file}"):
        sets = _split(load(replace(reading, ids=request.sets)))
    for note in sets.notes:
        narrator.say(f"note: {note}")
    learner = _LEARNERS[request.method or "dac"]
    start = _start(learner, request.weights, sets.n_features, narrator)
    folder = model_path.with_suffix(".run") if request.folder is None else Path(request.folder)
    claim(
        folder,
        {"method": learner.method, "sets": sets.digest, "seed": seed, "steps": steps, "start": _digest_of(start)},
    )
    what = f"Learning {model_path.stem}"
    save_every = min(TrainConfig(steps).save_every, max(1, steps // EVALUATIONS))
    with followed(what, folder, narrator, save_every=save_every, tensorboard=request.tensorboard) as on_log:
        model = learner(start, random_state=seed, on_progress=on_log).learn(sets.tasks, steps=steps, folder=folder)
    with narrator.phase("Writing"), outputs.staged() as staged:
        if staged.model is not None:
            model.save(staged.model)
    if not writing.quiet:
        took = format_seconds(seconds_trained(folder))
        sys.stdout.write(f"{model_path.stem}: {steps:,} steps in {took}\n{_sets_outcome(model.evaluation_, sets)}\n")
    narrator.say(f"wrote {model_path}")
    narrator.say(f"another set is clustered by: coterie cluster FILE --method {learner.method} --weights {model_path}")


def _check_sets(request: LearnRequest, seed: int, steps: int) -> Path:
    """Refuse what lacks an option or has a wrong one; return where the model goes."""
    file = request.reading.file
    if request.sets is None or request.reading.truth is None:
        missing = [name for name, value in (("--set", request.sets), ("--truth", request.reading.truth)) if not value]
        raise InputError(
            f"{file!r} is not a recipe (.toml), so it is read as a table of sorted sets, for which "
            f"{' and '.join(missing)} must be given: which set a row belongs to (--set COL), and which cluster of it "
            "(--truth COL)"
        )
    if request.method not in {None, *_LEARNERS}:
        raise InputError(f"--method {request.method} does not learn from sorted sets; there is {', '.join(_LEARNERS)}")
    if steps < 1:
        raise InputError(f"--steps must be at least 1; got {steps}")
    check_seed(seed)
    if request.writing.model is None:
        raise InputError("where to write what was learned is not said; add -o MODEL.safetensors")
    return Path(request.writing.model)


def _split(loaded: Loaded) -> SortedSets:
    """Part the rows of a table by their set, and make sure that there is something to learn from them."""
    chosen, source = loaded.chosen, loaded.source.name
    if chosen.ids is None or chosen.truth is None or chosen.ids_name == chosen.truth_name:
        raise InputError(f"--set and --truth both name the column {chosen.truth_name!r}; they must be two columns")
    known = np.flatnonzero(has_value(chosen.ids) & has_value(chosen.truth))
    if not len(known):
        raise TableError(f"no row of {source} has values of both {chosen.ids_name!r} and {chosen.truth_name!r}")
    names, members = np.unique([str(value) for value in chosen.ids[known].tolist()], return_inverse=True)
    _, clusters = np.unique([str(value) for value in chosen.truth[known].tolist()], return_inverse=True)
    sizes = np.bincount(members)
    if len(names) < 2:
        raise TableError(
            f"the column {chosen.ids_name!r} of {source} has one set only, {str(names[0])!r}; "
            "learning takes at least 2, better dozens"
        )
    if sizes.max() == 1:
        raise TableError(
            f"each of the {len(names):,} sets that {chosen.ids_name!r} tells apart has one row; "
            "let --set name a column in which the rows of a set are equal"
        )
    rows_of_sets = np.split(np.argsort(members, kind="stable"), np.cumsum(sizes)[:-1])
    tasks = [
        (_rows(chosen.features, known[rows], f"set {str(name)!r} of {source}"), clusters[rows])
        for name, rows in zip(names, rows_of_sets, strict=True)
    ]
    if all(len(np.unique(groups)) == 1 for _, groups in tasks):
        raise TableError(
            f"no set of {source} has more than one cluster in the column {chosen.truth_name!r}, so there is nothing to "
            "tell apart; choose another column (--truth)"
        )
    missing = chosen.features.n_rows - len(known)
    note = f"left out: {missing:,} rows without a value of {chosen.ids_name!r} or {chosen.truth_name!r}"
    _, features = encode_tasks(tasks, "standard")
    notes = (*chosen.features.notes, note) if missing else chosen.features.notes
    return SortedSets(tasks, len(features), _sets_digest(tasks), notes)


def _rows(table: Table, rows: Array, source: str) -> Table:
    if table.block is not None:
        return replace(table, block=table.block[rows], side={}, source=source)
    return replace(table, columns=tuple(column[rows] for column in table.columns), side={}, source=source)


def _start(learner: type[DAC] | type[AMCP], weights: str | None, n_features: int, narrator: Narrator) -> str | None:
    """Weights to begin from; None for nothing."""
    if weights == _SETS_FROM_NOTHING:
        return None
    named = str(learner().weights) if weights is None else weights
    _, card = load_pretrained(named)
    if card.get("method") != learner.method:
        raise WeightsError(f"--weights {named} are for the method {card.get('method')!r}; name others, or none")
    taken = card["model"]["n_features"]
    if taken == n_features:
        return named
    if weights is not None:
        raise WeightsError(
            f"--weights {named} take {taken} features, and the sets have {n_features}; name others, or none"
        )
    narrator.say(f"note: begun from nothing, since {named} takes {taken} features, and the sets have {n_features}")
    return None


def _sets_digest(tasks: list[tuple[Table, Array]]) -> str:
    digest = hashlib.sha256()
    for table, clusters in tasks:
        columns = [table.column(i).tolist() for i in range(table.n_columns)]
        digest.update(json.dumps([table.names, columns, clusters.tolist()], default=str).encode())
    return digest.hexdigest()


def _digest_of(start: str | None) -> str | None:
    return None if start is None else file_digest(pretrained_path(start))


def _sets_outcome(evaluation: Mapping[str, float], sets: SortedSets) -> str:
    agreement = f"adjusted Rand index {evaluation['adjusted_rand_index']:.3f}"
    held_out = int(evaluation["held_out_tasks"])
    if held_out == 0:
        return f"none of the {len(sets.tasks)} sets was held out, they are too few; on those learned from: {agreement}"
    return f"on {held_out} of the {len(sets.tasks)} sets, which were held out: {agreement}"


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
        sys.stdout.write(_recipe_outcome(trained, seconds_trained(folder)))
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


def _recipe_outcome(trained: Path, seconds: float) -> str:
    _, card = load_checkpoint(trained)
    scores = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in card["evaluation"].items())
    return f"{card['name']}: {card['steps']:,} steps in {format_seconds(seconds)}\non held-out sets: {scores}\n"
