"""``coterie learn`` from a folder of images that somebody has sorted: one sub-folder for each class."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from coterie.cli.methods import check_seed
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import Narrator, time_in_words
from coterie.cli.requests import IMAGE_STEPS, LearnRequest
from coterie.cli.runs import followed
from coterie.data.image_files import ImageClasses, read_image_classes
from coterie.errors import InputError
from coterie.estimators.amortized import EVALUATIONS
from coterie.estimators.attention_based import AttentionBasedClustering
from coterie.estimators.lessons import SIDE
from coterie.recipes import seconds_trained
from coterie.training import TrainConfig
from coterie.training.state import claim

_FROM_NOTHING = "none"
_SETS_AT_ONCE = 4
_MOST_IMAGES = 150
"""Images of a set."""


def learn_from_images(request: LearnRequest, narrator: Narrator) -> None:
    """Train on the images of a folder, and say how well images of classes that were held out are sorted afterwards."""
    writing = request.writing
    seed, steps = request.seed or 0, IMAGE_STEPS if request.steps is None else request.steps
    model_path = _check(request, seed, steps)
    outputs = check_outputs(writing, [])
    with narrator.phase(f"Reading {request.reading.file}"):
        sorted_images = read_image_classes(request.reading.file, size=(SIDE, SIDE))
    for note in sorted_images.notes:
        narrator.say(f"note: {note}")
    weights = {None: "auto", _FROM_NOTHING: None}.get(request.weights, request.weights)
    folder = model_path.with_suffix(".run") if request.folder is None else Path(request.folder)
    claim(folder, {"images": _digest(sorted_images), "seed": seed, "steps": steps, "start": weights})
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
        took = time_in_words(seconds_trained(folder))
        outcome = _outcome(model.evaluation_, len(sorted_images.names))
        sys.stdout.write(f"{model_path.stem}: {steps:,} steps in {took}\n{outcome}\n")
    narrator.say(f"wrote {model_path}")
    narrator.say(f"another folder is sorted by: coterie cluster FOLDER --method {model.method} --weights {model_path}")


def _check(request: LearnRequest, seed: int, steps: int) -> Path:
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


def _digest(sorted_images: ImageClasses) -> str:
    digest = hashlib.sha256(sorted_images.images.tobytes())
    digest.update("\n".join(sorted_images.files).encode())
    return digest.hexdigest()


def _outcome(evaluation: Mapping[str, float], n_classes: int) -> str:
    agreement = f"adjusted Rand index {evaluation['adjusted_rand_index']:.3f}"
    held_out = int(evaluation["held_out_tasks"])
    if held_out == 0:
        return f"none of the {n_classes} classes was held out, they are too few; on those learned from: {agreement}"
    return f"on images of {held_out} of the {n_classes} classes, which were held out: {agreement}"
