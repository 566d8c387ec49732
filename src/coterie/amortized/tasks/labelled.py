"""Labelled tasks of the user: tables, images or folders, split into training and held-out tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from coterie.amortized.features import encode_tasks, read_tasks
from coterie.amortized.tasks.classes import ImageTasks
from coterie.errors import InputError
from coterie.images import resize_labelled_images
from coterie.nn.model import TaskBatch, TaskSampler
from coterie.tables.encoder import Scaling
from coterie.tables.readers.images import read_image_classes
from coterie.tables.table import Table

LEAST_SCALE = 1e-5  # standard deviation below which a feature is constant up to rounding


@final
@dataclass(frozen=True, slots=True)
class ListedTasks:
    """Labelled sets in memory, of any sizes, augmented whenever they are sampled.

    Some clusters of a set are left out, and some points of the others, so that the number and sizes of clusters vary;
    ``random_rotations`` also rotates the set around its mean, for features without a meaning of their own, and
    ``standardised`` standardises what is left.
    """

    sets: Sequence[tuple[Float[Tensor, "_ D"], Int[Tensor, " _"]]]  # points and the cluster of each
    max_points: int = 300  # largest number of points of a sampled set
    drop_clusters: bool = True  # whether some clusters are left out
    random_rotations: bool = True  # whether sets are rotated
    standardised: bool = False
    """Whether sampled sets have mean zero and standard deviation one in every feature that varies."""

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
        """Sample that many sets, some of them repeatedly if there are fewer."""
        picks = torch.randint(len(self.sets), (batch_size,), generator=generator)
        return pad_tasks([self._sample_one(int(pick), generator) for pick in picks])

    def _sample_one(self, pick: int, generator: Generator) -> tuple[Tensor, Tensor]:
        x, labels = self.sets[pick]
        names, labels = torch.unique(labels, return_inverse=True)
        if self.drop_clusters:
            kept = torch.rand(len(names), generator=generator) < torch.rand((), generator=generator)
            kept[torch.randint(len(names), (), generator=generator)] = True
            x, labels = x[kept[labels]], labels[kept[labels]]
        chosen = torch.randperm(len(x), generator=generator)[: self.max_points]
        x, labels = x[chosen], labels[chosen]
        if self.random_rotations:
            rotation, _ = torch.linalg.qr(torch.randn((x.shape[1], x.shape[1]), generator=generator))
            centre = x.mean(dim=0)
            x = (x - centre) @ rotation + centre
        if self.standardised:
            scale = x.std(dim=0, correction=0)
            x = (x - x.mean(dim=0)) / torch.where(scale > LEAST_SCALE, scale, 1.0)
        return x, labels


def pad_tasks(tasks: Sequence[tuple[Float[Tensor, "_ D"], Int[Tensor, " _"]]]) -> TaskBatch:
    """Pad sets of different sizes to one batch."""
    longest = max(len(labels) for _, labels in tasks)
    x = torch.zeros((len(tasks), longest, tasks[0][0].shape[1]))
    labels = torch.zeros((len(tasks), longest), dtype=torch.int64)
    valid = torch.zeros((len(tasks), longest), dtype=torch.bool)
    for row, (points, names) in enumerate(tasks):
        x[row, : len(points)] = points
        labels[row, : len(names)] = names
        valid[row, : len(names)] = True
    return TaskBatch(x, labels, valid)


HELD_OUT_BATCHES = 4  # batches of held-out sets for the loss
MIN_TASKS = 5  # least number of tasks for which some are held out
MIN_CLASSES = 10  # least number of image classes for which some are held out
IMAGE_SIZE = 28  # height and width of training images
# Largest distortion of training images; the latter two as fractions of the size.
DISTORTION: dict[str, Any] = {"max_degrees": 10.0, "max_stretch": 0.1, "max_shift": 0.05}

Tasks = TaskSampler | str | Path | Sequence[tuple[Any, npt.ArrayLike] | str | Path]
"""Input of ``learn``: a sampler of sets, labelled sets, or folders of labelled images."""


@final
@dataclass(frozen=True, slots=True)
class LabelledTasks:
    """Training tasks of the user, and those for evaluation."""

    training: TaskSampler
    fixed: Sequence[TaskBatch]  # sets for the loss during training
    whole: Sequence[TaskBatch]  # whole sets for the final evaluation; empty for a sampler
    held_out: int | None  # number of held-out tasks, or classes of images; None for a sampler
    scaling: Scaling  # scaling of columns
    features: list[str] | None = None  # names of the features
    image: tuple[int, int, int] | None = None  # channels, height and width, if the points are images

    @property
    def has_held_out(self) -> bool:
        """Whether the fixed sets are not trained on."""
        return self.held_out != 0


def load_labelled_tasks(
    tasks: Tasks,
    *,
    batch_size: int,
    max_points: int,
    held_out: float,
    random_rotations: bool,
    scaling: Scaling,
    generator: Generator,
) -> LabelledTasks:
    """Load the tasks of the user: a sampler, labelled tables, or labelled images, which are resized."""
    if not 0 <= held_out < 1:
        raise InputError(f"held_out={held_out} must be a fraction of the tasks: at least 0 and below 1.")
    if isinstance(tasks, TaskSampler):
        return LabelledTasks(tasks, _sample_fixed(tasks, batch_size, generator), (), None, "none")
    sets = read_tasks(_read_folders(tasks))
    if all(table.image is not None for table, _ in sets):
        training, testing, n_held_out = _split_images(sets, max_points, held_out, generator)
        fixed = _sample_fixed(testing or training, batch_size, generator)
        channels, height, width = training.images.shape[1:]
        return LabelledTasks(training, fixed, fixed, n_held_out, "none", image=(channels, height, width))
    pairs, features = encode_tasks(sets, scaling)
    listed = ListedTasks(
        pairs, max_points=max_points, random_rotations=random_rotations, standardised=scaling == "standard"
    )
    taught, tested = _split(listed, held_out, generator)
    shown = tested or taught
    fixed = _sample_fixed(shown, batch_size, generator)
    whole = [pad_tasks([one]) for one in shown.sets]
    return LabelledTasks(taught, fixed, whole, 0 if tested is None else len(tested.sets), scaling, features)


def _read_folders(tasks: Any) -> Any:
    """Replace folders by their images and classes, one sub-folder per class."""
    if isinstance(tasks, str | Path):
        tasks = [tasks]
    if not isinstance(tasks, Iterable):
        return tasks
    sets = list(tasks)
    for position, folder in enumerate(sets):
        if isinstance(folder, str | Path):
            read = read_image_classes(folder, size=(IMAGE_SIZE, IMAGE_SIZE))
            sets[position] = read.images, read.classes
    return sets


def _sample_fixed(tasks: TaskSampler, batch_size: int, generator: Generator) -> list[TaskBatch]:
    return [tasks.sample(batch_size, generator) for _ in range(HELD_OUT_BATCHES)]


def _split(tasks: ListedTasks, held_out: float, generator: Generator) -> tuple[ListedTasks, ListedTasks | None]:
    """Split tasks into training and held-out ones; None if they are few."""
    count = len(tasks.sets)
    order = torch.randperm(count, generator=generator).tolist()
    n_held_out = min(count - 1, max(1, round(held_out * count))) if count >= MIN_TASKS and held_out > 0 else 0
    training, testing = [tasks.sets[i] for i in order[n_held_out:]], [tasks.sets[i] for i in order[:n_held_out]]
    tested = replace(tasks, sets=testing, drop_clusters=False, random_rotations=False) if testing else None
    return replace(tasks, sets=training), tested


def _split_images(
    pairs: Sequence[tuple[Table, Tensor]], max_points: int, held_out: float, generator: Generator
) -> tuple[ImageTasks, ImageTasks | None, int]:
    """Split images by class into training and held-out tasks (None if there are few); count the held-out classes."""
    tables = [table for table, _ in pairs]
    colours = max(1 if table.image is None else table.image[2] for table in tables)
    images, group = resize_labelled_images(tables, (colours, IMAGE_SIZE, IMAGE_SIZE))
    names, start = [], 0
    for _, labels in pairs:
        names.append(labels + start)
        start += int(labels.max()) + 1
    classes = torch.cat(names)
    order = torch.randperm(start, generator=generator)
    n_held_out = min(start - 2, max(2, round(held_out * start))) if start >= MIN_CLASSES and held_out > 0 else 0
    tested = torch.isin(classes, order[:n_held_out])
    training = _image_tasks(images[~tested], classes[~tested], group[~tested], max_points, distort=True)
    if not n_held_out:
        return training, None, 0
    # Held-out classes of all groups are tested together: those of one group may be too few for a set.
    one_group = torch.zeros_like(group)[tested]
    testing = _image_tasks(images[tested], classes[tested], one_group, max_points, distort=False)
    return training, testing, n_held_out


def _image_tasks(images: Tensor, classes: Tensor, group: Tensor, max_points: int, *, distort: bool) -> ImageTasks:
    counts = torch.bincount(group)
    most_points = min(max_points, int(counts[counts > 0].min()))
    n_classes = [len(torch.unique(classes[group == one])) for one in torch.unique(group)]
    if min(n_classes) < 2:
        raise InputError("A task of images has only one class; give images of at least two classes in each task.")
    points, clusters = (max(2, most_points // 2), most_points), (2, max(n_classes))
    largest = DISTORTION if distort else {}
    return ImageTasks(images, classes, group, points=points, clusters=clusters, **largest)
