"""Streams of batches: minibatches of rows, pairs of augmented rows, and labelled tasks."""

from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor

from coterie.nn.model import PointBatch, TaskBatch, TaskSampler, ViewBatch


def point_batches(
    x: Tensor, *, batch_size: int, epochs: int, generator: Generator, weight: Tensor | None = None
) -> Iterator[PointBatch]:
    """Yield minibatches of the rows of x, shuffled every epoch; the last one of an epoch may be smaller."""
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator, device=generator.device)
        batches = torch.split(order, batch_size)
        for position, index in enumerate(batches, start=1):
            yield PointBatch(
                x[index], index, None if weight is None else weight[index], ends_epoch=position == len(batches)
            )


def view_batches(
    x: Tensor, augment: Callable[[Tensor, Generator], Tensor], *, batch_size: int, generator: Generator
) -> Iterator[ViewBatch]:
    """Yield two augmented views of random rows of x, forever; rows do not repeat within a batch.

    Each batch is sampled when it is requested, so the state of the generator determines all following batches.
    """
    while True:
        index = torch.randperm(len(x), generator=generator, device=generator.device)[:batch_size]
        rows = x[index]
        yield ViewBatch(augment(rows, generator), augment(rows, generator), index)


def task_batches(
    sampler: TaskSampler, *, batch_size: int, generator: Generator, device: str | torch.device = "cpu"
) -> Iterator[TaskBatch]:
    """Yield labelled tasks, forever; each is sampled on the CPU when it is requested, and moved to the device."""
    while True:
        yield sampler.sample(batch_size, generator_on("cpu", generator)).to(device)


def generator_on(device: str | torch.device, generator: Generator) -> Generator:
    """Return the generator if it is on that type of device, otherwise a new one there that is seeded from it."""
    if generator.device.type == torch.device(device).type:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return Generator(device).manual_seed(seed)
