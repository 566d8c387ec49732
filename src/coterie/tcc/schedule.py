"""Training schedule of contrastive models: warm-up, k-means initialisation of the prototypes and its restarts.

The warm-up trains the instance-level loss only. Then the prototypes are set to the k-means centres of the embeddings,
and all losses are trained; this is repeated a few times, since better embeddings give better centres.
"""

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
from coterie.progress import Callback, Progress
from coterie.tcc.augmentations import Augmentations, augment_features
from coterie.tcc.model import ContrastiveModel
from coterie.training.batches import view_batches
from coterie.training.loop import TrainConfig, train
from coterie.training.state import open_run, read_log

K_MEANS_RESTARTS = 8  # restarts of the k-means that initialises the prototypes
EVALUATION_ROWS = 2000  # rows on which the collapse metrics are computed
EVALUATIONS = 20  # evaluations of the collapse metrics per run
MAX_SAVE_INTERVAL = 200  # most steps between saved states
WEIGHT_DECAY = 1e-4
MIXUP, NOISE, DROPOUT = 0.3, 0.5, 0.5  # augmentations of rows that are not images
WARM_UP = "warm-up"  # name of the first stage

History = dict[str, list[float]]
Model = TypeVar("Model", bound=ContrastiveModel)


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """Length, learning rate and stages of the training of a contrastive model."""

    batch_size: int
    epoch_steps: int  # steps per pass over the rows
    steps: int  # steps in total
    warm_up: float  # fraction of the steps before the first k-means initialisation; with 0 there is none
    restarts: int  # k-means initialisations after the warm-up, at equal intervals
    learning_rate: float
    augmentations: Augmentations | None  # augmentations of images; None for the default
    folder: Path | None  # where states are saved; None to save none

    def stages(self) -> list[tuple[str, int]]:
        """Return name and number of steps of each stage."""
        warm_up = round(self.warm_up * self.steps)
        remaining = self.steps - warm_up
        # With warm_up=1 the prototypes are still initialised once; with warm_up=0 they never are.
        restarts = min(self.restarts, max(1, remaining)) if self.warm_up else 1
        ends = [remaining * number // restarts for number in range(restarts + 1)]
        clusters = [(f"clusters-{number}", end - start) for number, (start, end) in enumerate(pairwise(ends), start=1)]
        return [(WARM_UP, warm_up), *clusters]

    def augmentation(self, image: tuple[int, int, int] | None) -> Callable[[Tensor, Generator], Tensor]:
        """Return the function that makes a view of each row."""
        if image is None:
            return partial(augment_features, mixup=MIXUP, noise=NOISE, dropout=DROPOUT)
        default = Augmentations.for_grayscale() if image[0] == 1 else Augmentations.for_colour()
        augment = self.augmentations or default
        return lambda rows, generator: augment(rows.reshape(-1, *image), generator).flatten(1)


def train_contrastive(
    kind: type[Model],
    x: Tensor,
    config: Any,
    schedule: Schedule,
    generator: Generator,
    *,
    callback: Callback | None = None,
    on_step: Callable[[int, Model], None] | None = None,
) -> tuple[Model, History]:
    """Build a contrastive model and train it on all rows (N, D).

    ``on_step`` is called after every step with the number of steps and the model, which it must not change. The history
    has the mean "loss" per epoch, and the collapse metrics "empty_clusters" and "imbalance".
    """
    if schedule.folder is not None:
        # Everything that determines the result; a folder is resumed only if it is the same.
        description = {
            "rows": hashlib.sha256(x.cpu().numpy().tobytes()).hexdigest(),
            "kind": kind.__name__,
            "seed": generator.initial_seed(),
            "schedule": to_dict(replace(schedule, folder=None)),
            "model": to_dict(config),
        }
        open_run(schedule.folder, description)
    model = build(kind, config, generator).to(x.device).train()
    evaluated = x[torch.randperm(len(x), generator=generator, device=generator.device)[:EVALUATION_ROWS]]
    losses, metrics, done = list[float](), History(empty_clusters=[], imbalance=[]), 0

    def report(progress: Progress) -> None:
        step = progress.step + done
        if callback is not None:
            callback(replace(progress, step=step, steps=schedule.steps, resumed_at=progress.resumed_at + done))
        if on_step is not None:
            on_step(step, model)

    for stage, steps in schedule.stages():
        model.cluster_loss_enabled = stage != WARM_UP
        evaluate = None
        if model.cluster_loss_enabled:
            evaluate = partial(model.collapse_metrics, evaluated)
            if model.kmeans_init and schedule.warm_up > 0:
                model.set_prototypes(_k_means_centres(model.embeddings(x), config.n_clusters, generator))
        for loss, evaluation in _train_stage(stage, steps, model, x, schedule, generator, report, evaluate):
            losses.append(loss)
            for name, value in evaluation.items():
                metrics[name].append(value)
        done += steps
    size = schedule.epoch_steps
    epoch_losses = [float(np.mean(losses[start : start + size])) for start in range(0, len(losses), size)]
    return model, {"loss": epoch_losses, **metrics}


def _train_stage(
    stage: str,
    steps: int,
    model: ContrastiveModel,
    x: Tensor,
    schedule: Schedule,
    generator: Generator,
    report: Callback,
    evaluate: Callable[[], dict[str, float]] | None,
) -> list[tuple[float, Mapping[str, float]]]:
    """Train for one stage; return the loss and the evaluation, if any, of each step."""
    if steps == 0:
        return []
    folder = None if schedule.folder is None else schedule.folder / stage
    interval = max(1, schedule.steps // EVALUATIONS)
    log = list[tuple[float, Mapping[str, float]]]()

    def record(progress: Progress) -> None:
        log.append((float(progress.loss or 0.0), progress.evaluation or {}))
        report(progress)

    augment = schedule.augmentation(model.config.image)
    train(
        model,
        view_batches(x, augment, batch_size=schedule.batch_size, generator=generator),
        TrainConfig(
            steps,
            learning_rate=schedule.learning_rate,
            schedule="one-cycle",
            optimiser="adamw",
            weight_decay=WEIGHT_DECAY,
            evaluate_every=0 if evaluate is None else interval,
            save_every=min(interval, MAX_SAVE_INTERVAL),
        ),
        generator=generator,
        callback=record,
        evaluate=evaluate,
        folder=folder,
    )
    if folder is None:
        return log
    # A resumed run has recorded only its own steps; the file has all.
    return [(line["loss"], line.get("evaluation", {})) for line in read_log(folder)]


def _k_means_centres(embeddings: Tensor, n_clusters: int, generator: Generator) -> Tensor:
    """Return the centres of the best of several runs of k-means."""
    runs = k_means_start(embeddings, K_MEANS_RESTARTS, n_clusters, generator)
    inertia = torch.stack([torch.cdist(embeddings, centres).amin(dim=1).square().sum() for centres in runs])
    return runs[int(inertia.argmin())]
