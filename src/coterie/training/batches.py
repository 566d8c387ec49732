"""Streams of batches: rows of one data set for some epochs, or views of them or labelled sets without end."""

from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor

from coterie.nn.model import PointBatch, TaskBatch, TaskSampler, ViewBatch


def point_batches(
    x: Tensor, *, batch_size: int, epochs: int, generator: Generator, weight: Tensor | None = None
) -> Iterator[PointBatch]:
    """Minibatches of the rows of x, shuffled anew every epoch; the last of an epoch may be smaller."""
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator, device=generator.device)
        batches = torch.split(order, batch_size)
        for position, index in enumerate(batches, start=1):
            yield PointBatch(
                x[index], index, None if weight is None else weight[index], ends_epoch=position == len(batches)
            )


def view_batches(
    x: Tensor, look: Callable[[Tensor, Generator], Tensor], *, batch_size: int, generator: Generator
) -> Iterator[ViewBatch]:
    """Two views of some rows of x without end, the rows of a batch all different.

    Every batch is drawn when it is asked for: the generator's state says what will follow.
    """
    while True:
        index = torch.randperm(len(x), generator=generator, device=generator.device)[:batch_size]
        rows = x[index]
        yield ViewBatch(look(rows, generator), look(rows, generator), index)


def task_batches(
    sampler: TaskSampler, *, batch_size: int, generator: Generator, device: str | torch.device = "cpu"
) -> Iterator[TaskBatch]:
    """Labelled sets without end, each drawn when it is asked for: the generator's state says what will follow.

    They are drawn on the CPU, wherever the generator is, and then put on the device.
    """
    while True:
        yield sampler.sample(batch_size, generator_on("cpu", generator)).to(device)


def generator_on(device: str | torch.device, generator: Generator) -> Generator:
    """The generator itself, if it is on that kind of device; otherwise one that is, seeded by a draw from it."""
    if generator.device.type == torch.device(device).type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return Generator(device).manual_seed(seed)
