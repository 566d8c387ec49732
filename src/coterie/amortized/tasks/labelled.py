"""Sets that somebody has sorted already."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.amortized.features import encode_tasks, pairs_of
from coterie.amortized.tasks.classes import ImageTasks
from coterie.errors import InputError
from coterie.tables.readers.images import read_image_classes
from coterie.images import resize_labelled_images
from coterie.nn.model import TaskBatch, TaskSampler
from coterie.tables.encoder import Scaling
from coterie.tables.table import Table

LEAST_SCALE = 1e-5
"""Standard deviation below which a feature counts as constant: what is left is rounding."""


@final
@dataclass(frozen=True, slots=True)
class ListedTasks:
    """Labelled sets in memory, of any sizes; every draw shows a set in another way.

    Of each set some clusters are left out and of the others some points, so that the number and the sizes of clusters
    vary; ``turned`` also turns the set around its mean, for features that have no meaning of their own, and
    ``standardised`` brings what is left to the scale that whole sets have.
    """

    sets: Sequence[tuple[Float[Tensor, "N D"], Int[Tensor, " N"]]]
    """Points, and the cluster of each."""
    max_points: int = 300
    """Most points of a set that are shown."""
    varied: bool = True
    """Whether clusters are left out."""
    turned: bool = True
    """Whether sets are turned."""
    standardised: bool = False
    """Whether what is shown has mean zero and standard deviation one in every feature that varies."""

    def __post_init__(self) -> None:
        if not self.sets or any(len(x) != len(labels) or len(x) == 0 for x, labels in self.sets):
            raise InputError("Every task needs at least one point, and one label for each point.")
        if self.max_points < 1:
            raise InputError(f"max_points={self.max_points} must be at least 1.")
        widths = sorted({x.shape[1] for x, _ in self.sets})
        if len(widths) > 1:
            raise InputError(
                f"The tasks have different numbers of features ({', '.join(map(str, widths))}). "
                "Give all of them the same columns."
            )

    def sample(self, batch_size: int, generator: Generator) -> TaskBatch:
        """Draw that many sets, the same one more than once if there are fewer."""
        picks = torch.randint(len(self.sets), (batch_size,), generator=generator)
        return padded([self._shown(int(pick), generator) for pick in picks])

    def _shown(self, pick: int, generator: Generator) -> tuple[Tensor, Tensor]:
        x, labels = self.sets[pick]
        names, labels = torch.unique(labels, return_inverse=True)
        if self.varied:
            kept = torch.rand(len(names), generator=generator) < torch.rand((), generator=generator)
            kept[torch.randint(len(names), (), generator=generator)] = True
            x, labels = x[kept[labels]], labels[kept[labels]]
        chosen = torch.randperm(len(x), generator=generator)[: self.max_points]
        x, labels = x[chosen], labels[chosen]
        if self.turned:
            turn, _ = torch.linalg.qr(torch.randn((x.shape[1], x.shape[1]), generator=generator))
            centre = x.mean(dim=0)
            x = (x - centre) @ turn + centre
        if self.standardised:
            scale = x.std(dim=0, correction=0)
            x = (x - x.mean(dim=0)) / torch.where(scale > LEAST_SCALE, scale, 1.0)
        return x, labels


def padded(tasks: Sequence[tuple[Float[Tensor, "N D"], Int[Tensor, " N"]]]) -> TaskBatch:
    """Sets of different sizes as one batch."""
    longest = max(len(labels) for _, labels in tasks)
    x = torch.zeros((len(tasks), longest, tasks[0][0].shape[1]))
    labels = torch.zeros((len(tasks), longest), dtype=torch.int64)
    valid = torch.zeros((len(tasks), longest), dtype=torch.bool)
    for row, (points, names) in enumerate(tasks):
        x[row, : len(points)] = points
        labels[row, : len(names)] = names
        valid[row, : len(names)] = True
    return TaskBatch(x, labels, valid)


HELD_OUT_BATCHES = 4
"""Batches of held-out sets that the loss is evaluated on."""
FEWEST_TASKS = 5
"""Of fewer tasks none is held out."""
FEWEST_CLASSES = 10
"""Of fewer classes of images none is held out."""
SIDE = 28
"""Pixels along the sides of images to learn from."""
TURNED_BY, STRETCHED, SHIFTED = 10.0, 0.1, 0.05
"""How much images are turned, stretched and shifted, in degrees and shares of their size, whenever they are shown."""


Tasks = TaskSampler | str | Path | Sequence[tuple[Any, npt.ArrayLike] | str | Path]
"""What ``learn`` takes: something to draw sets from, sorted sets, or folders of sorted images."""


@final
@dataclass(frozen=True, slots=True)
class Lessons:
    """Where the training sets come from, and those that tell how good the network is."""

    training: TaskSampler
    fixed: Sequence[TaskBatch]
    """Sets whose loss is followed."""
    whole: Sequence[TaskBatch]
    """Sets, one in each batch or more, on which agreement is measured in the end; none if nothing is known of them."""
    held_out: int | None
    """How many tasks, or classes of images, these are of that are not trained on; None for sets without end."""
    scaling: Scaling
    """Of columns."""
    features: list[str] | None = None
    """Names of the columns."""
    image: tuple[int, int, int] | None = None
    """Channels, height and width, if the points are images."""

    @property
    def are_apart(self) -> bool:
        """Whether the fixed sets show something that was not trained on."""
        return self.held_out != 0


def lessons_from(
    tasks: Tasks,
    *,
    batch_size: int,
    max_points: int,
    held_out: float,
    turned: bool,
    scaling: Scaling,
    generator: Generator,
) -> Lessons:
    """Make lessons of what a user has: a sampler, sorted tables, or sorted images, which are brought to one size."""
    if not 0 <= held_out < 1:
        raise InputError(f"held_out={held_out} must be a share of the tasks, from 0 to below 1.")
    if isinstance(tasks, TaskSampler):
        return Lessons(tasks, _drawn(tasks, batch_size, generator), (), None, "none")
    sets = pairs_of(_read(tasks))
    if all(table.image is not None for table, _ in sets):
        training, testing, apart = _of_images(sets, max_points, held_out, generator)
        fixed = _drawn(testing or training, batch_size, generator)
        channels, height, width = training.images.shape[1:]
        return Lessons(training, fixed, fixed, apart, "none", image=(channels, height, width))
    pairs, features = encode_tasks(sets, scaling)
    varied = ListedTasks(pairs, max_points=max_points, turned=turned, standardised=scaling == "standard")
    taught, kept = _split(varied, held_out, generator)
    shown = kept or taught
    fixed = _drawn(shown, batch_size, generator)
    whole = [padded([one]) for one in shown.sets]
    return Lessons(taught, fixed, whole, 0 if kept is None else len(kept.sets), scaling, features)


def _read(tasks: Any) -> Any:
    """The same with the images that are in folders, one sub-folder for each class, in place of these."""
    if isinstance(tasks, str | Path):
        tasks = [tasks]
    if not isinstance(tasks, Iterable):
        return tasks
    sets = list(tasks)
    for place, folder in enumerate(sets):
        if isinstance(folder, str | Path):
            read = read_image_classes(folder, size=(SIDE, SIDE))
            sets[place] = read.images, read.classes
    return sets


def _drawn(tasks: TaskSampler, batch_size: int, generator: Generator) -> list[TaskBatch]:
    return [tasks.sample(batch_size, generator) for _ in range(HELD_OUT_BATCHES)]


def _split(tasks: ListedTasks, held_out: float, generator: Generator) -> tuple[ListedTasks, ListedTasks | None]:
    """Tasks to train on, and tasks to test on unless they are few."""
    count = len(tasks.sets)
    order = torch.randperm(count, generator=generator).tolist()
    apart = min(count - 1, max(1, round(held_out * count))) if count >= FEWEST_TASKS and held_out > 0 else 0
    training, testing = [tasks.sets[i] for i in order[apart:]], [tasks.sets[i] for i in order[:apart]]
    if not testing:
        return replace(tasks, sets=training), None
    return replace(tasks, sets=training), replace(tasks, sets=testing, varied=False, turned=False)


def _of_images(
    pairs: Sequence[tuple[Table, Tensor]],
    max_points: int,
    held_out: float,
    generator: Generator,
) -> tuple[ImageTasks, ImageTasks | None, int]:
    """Images to train on, images of other classes to test on unless there are few, and how many classes these are."""
    tables = [table for table, _ in pairs]
    colours = max(1 if table.image is None else table.image[2] for table in tables)
    images, group = resize_labelled_images(tables, (colours, SIDE, SIDE))
    names, start = [], 0
    for _, labels in pairs:
        names.append(labels + start)
        start += int(labels.max()) + 1
    classes = torch.cat(names)
    order = torch.randperm(start, generator=generator)
    apart = min(start - 2, max(2, round(held_out * start))) if start >= FEWEST_CLASSES and held_out > 0 else 0
    tested = torch.isin(classes, order[:apart])
    training = _image_tasks(images[~tested], classes[~tested], group[~tested], max_points, moved=True)
    if not apart:
        return training, None, 0
    # Classes of several groups are tested together: those of one group that are held out may be too few for a set.
    alone = torch.zeros_like(group)[tested]
    return training, _image_tasks(images[tested], classes[tested], alone, max_points, moved=False), apart


def _image_tasks(images: Tensor, classes: Tensor, group: Tensor, max_points: int, *, moved: bool) -> ImageTasks:
    counts = torch.bincount(group)
    fewest_images = int(counts[counts > 0].min())
    most_points = min(max_points, fewest_images)
    n_classes = [len(torch.unique(classes[group == one])) for one in torch.unique(group)]
    if min(n_classes) < 2:
        raise InputError("A task of images shows one class only; give images of at least two classes in each.")
    return ImageTasks(
        images,
        classes,
        group,
        points=(max(2, most_points // 2), most_points),
        clusters=(2, max(n_classes)),
        turn_by=TURNED_BY if moved else 0.0,
        stretched=STRETCHED if moved else 0.0,
        shifted=SHIFTED if moved else 0.0,
    )
