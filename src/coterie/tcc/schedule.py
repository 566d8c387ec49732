"""How models that learn from views are trained: first rows are told apart, then clusters of them as well."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
import torch
from torch import Generator, Tensor

from coterie.config import to_dict
from coterie.nn.model import build
from coterie.ops.partitions import k_means_start
from coterie.progress import Progress
from coterie.tcc.augmentations import Views, feature_view
from coterie.tcc.model import ContrastiveModel
from coterie.training.batches import view_batches
from coterie.training.loop import TrainConfig, train
from coterie.training.state import claim, logged

STARTS = 8
"""Of k-means, which says where prototypes begin."""
LOOKED_AT = 2000
"""Rows by which the clusters are watched during training."""
WATCHES = 20
"""How often that is."""
SAVED_EVERY = 200
"""Most steps between states from which training could go on."""
WEIGHT_DECAY = 1e-4
DROPOUT, NOISE, MIXED = 0.5, 0.5, 0.3
"""How views of rows that are no images differ."""

History = dict[str, list[float]]
Model = TypeVar("Model", bound=ContrastiveModel)


@final
@dataclass(frozen=True, slots=True)
class Course:
    """How long training takes, how fast it goes, what it looks at, and where it is kept."""

    batch_size: int
    epoch: int
    """Steps that take all rows through once."""
    steps: int
    warm_up: float
    """Share of the steps after which clusters are begun; if it is 0, clusters are left where the model has them."""
    beginnings: int
    """How often clusters are begun anew in what is left, at equal intervals: what was learned may tell them better."""
    learning_rate: float
    views: Views | None
    """How views of images differ; None is what suits them."""
    folder: Path | None

    def parts(self) -> list[tuple[str, int]]:
        """Names of the parts of the course, and how many steps each has."""
        first = round(self.warm_up * self.steps)
        left = self.steps - first
        # Where nothing is left, clusters are begun all the same, once: then that is where they are. And where they are
        # not begun at all, there is nothing to do again.
        again = min(self.beginnings, max(1, left)) if self.warm_up else 1
        ends = [left * part // again for part in range(again + 1)]
        clusters = [(f"clusters-{part}", end - begin) for part, (begin, end) in enumerate(pairwise(ends), start=1)]
        return [("rows", first), *clusters]


def learned(
    kind: type[Model],
    x: Tensor,
    config: Any,
    course: Course,
    generator: Generator,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    watch: Callable[[int, Model], None] | None = None,
) -> tuple[Model, History]:
    """A model that was trained on all rows, and the course of its training.

    Who wants to watch is shown the model after every step, with the number of steps so far, and must not change it.
    """
    if course.folder is not None:
        claim(course.folder, _run(x, kind, config, course, generator))
    model = build(kind, config, generator).to(x.device).train()
    some = x[torch.randperm(len(x), generator=generator, device=generator.device)[:LOOKED_AT]]
    losses, health, before = list[float](), History(empty=[], uneven=[]), 0

    def show(progress: Progress) -> None:
        done = replace(
            progress, step=progress.step + before, steps=course.steps, resumed_at=progress.resumed_at + before
        )
        if on_progress is not None:
            on_progress(done)
        if watch is not None:
            watch(done.step, model)

    for name, steps in course.parts():
        model.learn_rows_alone(name == "rows")
        evaluate = None
        if name != "rows":
            evaluate = partial(model.health, some)
            if model.begins_at_places and course.warm_up > 0:
                model.begin_at(_centres(model.places(x), config.n_clusters, generator))
        for loss, signs in _part(name, steps, model, x, course, generator, show, evaluate):
            losses.append(loss)
            for key, value in signs.items():
                health[key].append(value)
        before += steps
    return model, {"loss": _by_epoch(losses, course.epoch), **health}


def _part(
    name: str,
    steps: int,
    model: ContrastiveModel,
    x: Tensor,
    course: Course,
    generator: Generator,
    show: Callable[[Progress], None],
    evaluate: Callable[[], dict[str, float]] | None,
) -> list[tuple[float, Mapping[str, float]]]:
    """Train for a part of the course; return the loss of each step, and what the evaluation said."""
    if steps == 0:
        return []
    folder = None if course.folder is None else course.folder / name
    interval = max(1, course.steps // WATCHES)
    seen = list[tuple[float, Mapping[str, float]]]()

    def on_log(progress: Progress) -> None:
        seen.append((progress.loss, progress.evaluation or {}))
        show(progress)

    train(
        model,
        view_batches(x, _views_of(model.config.image, course.views), batch_size=course.batch_size, generator=generator),
        TrainConfig(
            steps,
            learning_rate=course.learning_rate,
            schedule="one-cycle",
            optimiser="adamw",
            weight_decay=WEIGHT_DECAY,
            evaluate_every=0 if evaluate is None else interval,
            save_every=min(interval, SAVED_EVERY),
        ),
        generator=generator,
        on_log=on_log,
        evaluate=evaluate,
        folder=folder,
    )
    if folder is None:
        return seen
    # A run that went on has seen only the end of it itself.
    return [(line["loss"], line.get("evaluation", {})) for line in logged(folder)]


def _views_of(image: tuple[int, int, int] | None, views: Views | None) -> Callable[[Tensor, Generator], Tensor]:
    """What makes another view of each row."""
    if image is None:
        return lambda rows, generator: feature_view(rows, generator, dropout=DROPOUT, noise=NOISE, mixed=MIXED)
    chosen = views or (Views.for_grey() if image[0] == 1 else Views.for_colour())
    return lambda rows, generator: chosen.applied(rows.reshape(-1, *image), generator).flatten(1)


def _run(
    x: Tensor, kind: type[ContrastiveModel], config: Any, course: Course, generator: Generator
) -> dict[str, object]:
    """All that decides what is computed, as JSON holds it."""
    return {
        "rows": hashlib.sha256(x.cpu().numpy().tobytes()).hexdigest(),
        "kind": kind.__name__,
        "seed": generator.initial_seed(),
        "batch_size": course.batch_size,
        "steps": course.steps,
        "warm_up": course.warm_up,
        "beginnings": course.beginnings,
        "learning_rate": course.learning_rate,
        "views": None if course.views is None else to_dict(course.views),
        "model": to_dict(config),
    }


def _centres(places: Tensor, n_clusters: int, generator: Generator) -> Tensor:
    """Middles of clusters, those of the best of several runs of k-means."""
    runs = k_means_start(places, STARTS, n_clusters, generator)
    nearest = torch.stack([torch.cdist(places, centres).amin(dim=1).square().sum() for centres in runs])
    return runs[int(nearest.argmin())]


def _by_epoch(losses: list[float], epoch: int) -> list[float]:
    """Means over the steps of each epoch."""
    return [float(np.mean(losses[start : start + epoch])) for start in range(0, len(losses), epoch)]
