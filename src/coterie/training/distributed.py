"""Several processes that train one model together, as ``torchrun`` starts them; one process is the common case.

They are several once ``torch.distributed.init_process_group`` was called, with a backend that takes tensors of the
CPU, as gloo and torch's own default do.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, distributed
from torch.nn import Parameter


def n_processes() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Place of this process among those that train together."""
    return distributed.get_rank() if n_processes() > 1 else 0


def leads() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def wait_for_all() -> None:
    """Go on once every process has come as far."""
    if n_processes() > 1:
        distributed.barrier()


def share_weights(tensors: Iterable[Tensor]) -> None:
    """Begin everywhere with the weights of the leading process."""
    if n_processes() > 1:
        for tensor in tensors:
            distributed.broadcast(tensor.data, src=0)


def average_gradients(parameters: Iterable[Parameter]) -> None:
    """Give every process the mean gradient; a parameter that no process has a gradient of is left without one."""
    if n_processes() == 1:
        return
    values = list(parameters)
    own = [torch.zeros_like(value) if value.grad is None else value.grad for value in values]
    used = torch.tensor([value.grad is not None for value in values], device=values[0].device)
    # One sum of one long vector: the time of many small ones is all waiting.
    total = torch.cat([*(gradient.flatten() for gradient in own), used])
    distributed.all_reduce(total)
    sizes = [value.numel() for value in values]
    *means, used = torch.split(total / n_processes(), [*sizes, len(values)])
    for value, mean, use in zip(values, means, used, strict=True):
        if use:
            value.grad = mean.view_as(value).to(value.dtype)


def mean_over_processes(numbers: Mapping[str, float]) -> dict[str, float]:
    """Mean of every number, equal in all processes, so that they decide alike; all must name the same ones."""
    if n_processes() == 1 or not numbers:
        return dict(numbers)
    total = torch.tensor([numbers[name] for name in sorted(numbers)], dtype=torch.float64)
    distributed.all_reduce(total)
    means = dict(zip(sorted(numbers), (total / n_processes()).tolist(), strict=True))
    return {name: means[name] for name in numbers}


def all_agree(own: bool) -> bool:
    """Whether it is so in every process."""
    return mean_over_processes({"own": float(own)})["own"] == 1.0


def gather(state: Tensor) -> Tensor:
    """One row for each process."""
    if n_processes() == 1:
        return state.unsqueeze(0)
    rows = [torch.empty_like(state) for _ in range(n_processes())]
    distributed.all_gather(rows, state)
    return torch.stack(rows)


def own_row(states: Tensor) -> Tensor:
    """Row of this process; a tensor of its own, since a generator crashes on a view as its state."""
    return states[rank()].clone()
