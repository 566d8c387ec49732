"""Training in several processes, as ``torchrun`` starts them; everything also works in a single process.

Call ``torch.distributed.init_process_group`` first, with a backend for CPU tensors such as gloo (torch's default has
one).
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Generator, Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from coterie.nn.model import Loss, Trainable


def world_size() -> int:
    """Return the number of processes that train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Return the index of this process; the process of rank 0 writes the files."""
    return distributed.get_rank() if world_size() > 1 else 0


def barrier() -> None:
    """Wait until all processes have reached this line."""
    if world_size() > 1:
        distributed.barrier()


def reduce_mean(numbers: Mapping[str, float]) -> dict[str, float]:
    """Average numbers over the processes, which must all have the same keys."""
    if world_size() == 1 or not numbers:
        return dict(numbers)
    total = torch.tensor([numbers[name] for name in sorted(numbers)], dtype=torch.float64)
    distributed.all_reduce(total)
    means = dict(zip(sorted(numbers), (total / world_size()).tolist(), strict=True))
    return {name: means[name] for name in numbers}


def all_gather(row: Tensor) -> Tensor:
    """Stack the tensors of all processes, by rank."""
    if world_size() == 1:
        return row.unsqueeze(0)
    rows = [torch.empty_like(row) for _ in range(world_size())]
    distributed.all_gather(rows, row)
    return torch.stack(rows)


class LossModule(nn.Module):
    """The loss of a model as ``forward``, which is what ``DistributedDataParallel`` wraps."""

    def __init__(self, model: Trainable[Any]) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Any, generator: Generator) -> Loss:
        """Return the loss of a batch."""
        return self.model.loss(batch, generator)


def data_parallel(model: Trainable[Any]) -> LossModule | DistributedDataParallel:
    """Return a module that computes the loss; in several processes, its gradients are averaged in ``backward``.

    All processes start with the weights of rank 0. Batches may leave parameters unused.
    """
    module = LossModule(model)
    if world_size() == 1:
        return module
    # Buffers, such as a queue of past embeddings, belong to each process and are not synchronised after the start.
    return DistributedDataParallel(module, find_unused_parameters=True, broadcast_buffers=False)


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which ``backward`` accumulates gradients without averaging them over the processes."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()
