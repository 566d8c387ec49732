"""How TCC is trained: first rows are told apart, then clusters of them as well."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Generator, Tensor

from coterie.config import to_dict
from coterie.models.base import build
from coterie.models.tcc import TccConfig, TccModel
from coterie.ops.starts import k_means_start
from coterie.ops.views import Views, feature_view
from coterie.training import Progress, TrainConfig, train, view_batches
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
DROPOUT, NOISE, MIXED = 0.1, 0.1, 0.3
"""How views of rows that are no images differ."""

History = dict[str, list[float]]


@final
@dataclass(frozen=True, slots=True)
class Course:
    """How long training takes, how fast it goes, what it looks at, and where it is kept."""

    batch_size: int
    epoch: int
    """Steps that take all rows through once."""
    steps: int
    warm_up: float
    """Share of the steps after which clusters are begun."""
    learning_rate: float
    views: Views | None
    """How views of images differ; None is what suits them."""
    folder: Path | None

    @property
    def first(self) -> int:
        """Steps before clusters are begun."""
        return round(self.warm_up * self.steps)


def learned(
    x: Tensor,
    config: TccConfig,
    course: Course,
    generator: Generator,
    on_progress: Callable[[Progress], None] | None,
) -> tuple[TccModel, History]:
    """A model that was trained on all rows, and the course of its training."""
    if course.folder is not None:
        claim(course.folder, _run(x, config, course, generator))
    model = build(TccModel, config, generator).to(x.device).train()
    watched = x[torch.randperm(len(x), generator=generator, device=generator.device)[:LOOKED_AT]]
    model.config = replace(config, cluster_weight=0.0, even_weight=0.0, assigned_weight=0.0)
    losses, _ = _phase("rows", model, x, course, generator, on_progress)
    model.config = config
    model.begin_at(_centres(model.places(x), config.n_clusters, generator))
    later, health = _phase("clusters", model, x, course, generator, on_progress, watched)
    return model, {"loss": _by_epoch(losses + later, course.epoch), **health}


def _phase(
    name: str,
    model: TccModel,
    x: Tensor,
    course: Course,
    generator: Generator,
    on_progress: Callable[[Progress], None] | None,
    watched: Tensor | None = None,
) -> tuple[list[float], History]:
    """Train for one of the two parts of the course; return the loss of each step, and what was watched."""
    before, steps = (0, course.first) if watched is None else (course.first, course.steps - course.first)
    folder = None if course.folder is None else course.folder / name
    interval = max(1, course.steps // WATCHES)
    losses, health = list[float](), History(empty=[], uneven=[])

    def note(loss: float, evaluation: dict[str, float]) -> None:
        losses.append(loss)
        for key, value in evaluation.items():
            health[key].append(value)

    def on_log(progress: Progress) -> None:
        if folder is None:
            note(progress.loss, dict(progress.evaluation or {}))
        if on_progress is not None:
            done, resumed_at = progress.step + before, progress.resumed_at + before
            on_progress(replace(progress, step=done, steps=course.steps, resumed_at=resumed_at))

    train(
        model,
        view_batches(x, _views_of(model.config.image, course.views), batch_size=course.batch_size, generator=generator),
        TrainConfig(
            steps,
            learning_rate=course.learning_rate,
            schedule="one-cycle",
            optimiser="adamw",
            weight_decay=WEIGHT_DECAY,
            evaluate_every=0 if watched is None else interval,
            save_every=min(interval, SAVED_EVERY),
        ),
        generator=generator,
        on_log=on_log,
        evaluate=None if watched is None else lambda: model.health(watched),
        folder=folder,
    )
    # A run that went on has seen only the end of it itself.
    for line in () if folder is None else logged(folder):
        note(line["loss"], line.get("evaluation", {}))
    return losses, health


def _views_of(image: tuple[int, int, int] | None, views: Views | None) -> Callable[[Tensor, Generator], Tensor]:
    """What makes another view of each row."""
    if image is None:
        return lambda rows, generator: feature_view(rows, generator, dropout=DROPOUT, noise=NOISE, mixed=MIXED)
    chosen = views or (Views.for_grey() if image[0] == 1 else Views.for_colour())
    return lambda rows, generator: chosen.applied(rows.reshape(-1, *image), generator).flatten(1)


def _run(x: Tensor, config: TccConfig, course: Course, generator: Generator) -> dict[str, object]:
    """All that decides what is computed, as JSON holds it."""
    return {
        "rows": hashlib.sha256(x.cpu().numpy().tobytes()).hexdigest(),
        "seed": generator.initial_seed(),
        "batch_size": course.batch_size,
        "steps": course.steps,
        "warm_up": course.warm_up,
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
