"""A model that trains within milliseconds, and functions that train it in other processes."""

import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Generator, Tensor, distributed, nn

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import TrainingError
from coterie.nn.model import Loss, to_arrays, to_tensors
from coterie.progress import Progress
from coterie.training import state
from coterie.training.loop import TrainConfig, train

CASES = {
    "plain": TrainConfig(23, learning_rate=0.05, save_every=5),
    "best": TrainConfig(23, learning_rate=0.3, evaluate_every=3, keep_best="error", save_every=7),
    "all": TrainConfig(
        23, learning_rate=0.05, schedule="one-cycle", optimiser="adamw", weight_decay=0.1, clip_norm=0.5, accumulate=3,
        evaluate_every=4, save_every=6,
    ),
}  # fmt: skip


class Toy(nn.Module):
    """Two layers that learn the sum of two numbers, with an unused parameter and a count of the steps."""

    count: Tensor

    def __init__(self, seed: int = 0, *, noise: float = 0.3, pause: float = 0.0) -> None:
        super().__init__()
        source = Generator().manual_seed(seed)
        self.inner = nn.Parameter(torch.randn(2, 4, generator=source))
        self.outer = nn.Parameter(torch.randn(4, generator=source))
        self.unused = nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.tensor(0))
        self.noise, self.pause = noise, pause

    def loss(self, batch: Tensor, generator: Generator) -> Loss:
        noise = self.noise * torch.randn(4, generator=generator) if self.noise else 0.0
        error = (torch.tanh(batch @ self.inner + noise) @ self.outer - batch.sum(dim=1)).square().mean()
        size = 0.01 * self.outer.square().sum()
        return Loss(error + size, {"error": float(error.detach()), "size": float(size.detach())})

    def after_step(self) -> None:
        self.count += 1
        time.sleep(self.pause)

    def evaluate(self) -> dict[str, float]:
        """Return the error on fixed points."""
        x = torch.randn(50, 2, generator=Generator().manual_seed(99))
        with torch.no_grad():
            return {"error": float((torch.tanh(x @ self.inner) @ self.outer - x.sum(dim=1)).square().mean())}


def batches_from(generator: Generator) -> Iterator[Tensor]:
    """Yield random batches, each after a random number of other random numbers."""
    while True:
        torch.rand(int(torch.randint(9, (), generator=generator)), generator=generator)
        yield torch.randn(8, 2, generator=generator)


def run(
    folder: Path | None,
    config: TrainConfig,
    *,
    model: Toy | None = None,
    seed: int = 1,
    callback: Callable[[Progress], None] | None = None,
) -> Toy:
    """Train a toy, resuming from the folder."""
    model = Toy() if model is None else model
    generator = Generator().manual_seed(seed)
    batches = batches_from(generator)
    train(model, batches, config, generator=generator, callback=callback, evaluate=model.evaluate, folder=folder)
    return model


def run_slowly(folder: Path, config: TrainConfig, pause: float) -> None:
    """Train in a process that may be killed; write the final weights to a file."""
    torch.set_num_threads(1)
    model = run(folder, config, model=Toy(pause=pause))
    save_checkpoint(folder / "end.safetensors", to_arrays(model.state_dict()), {}, force=True)


@dataclass(frozen=True)
class Worker:
    """Settings of one of two processes."""

    n_batches: int = 1000
    nan_batch: int | None = None  # position of a batch of NaN
    pause: float = 0.0


def run_together(rank: int, folder: Path, meeting: Path, config: TrainConfig, worker: Worker) -> None:
    """Train as one of two processes, with initial weights and a generator of its own."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=2)
    model, generator = Toy(seed=rank, noise=0.0, pause=worker.pause), Generator().manual_seed(rank)
    batches = (
        batch * (math.nan if position == worker.nan_batch else 1.0)
        for position, batch in enumerate(islice(batches_from(generator), worker.n_batches))
    )

    def evaluate() -> dict[str, float]:
        return {"error": model.evaluate()["error"] + rank, "rank": float(rank)}

    message = ""
    try:
        with mock.patch.object(state, "save_checkpoint", save_checkpoint if rank == 0 else _fail):
            train(model, batches, config, generator=generator, evaluate=evaluate, folder=folder)
    except TrainingError as error:
        message = str(error)
    meeting.with_suffix(f".{rank}.txt").write_text(message)
    save_checkpoint(meeting.with_suffix(f".{rank}"), to_arrays(model.state_dict()), {}, force=True)
    distributed.destroy_process_group()


def in_process(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a function in a process that is forked from one with torch loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "torch._dynamo", __name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def join_all(processes: Sequence[BaseProcess]) -> None:
    """Wait for all processes to succeed; kill those that hang."""
    for process in processes:
        process.join(60)
    hung = [process for process in processes if process.is_alive()]
    for process in hung:
        process.kill()
    assert hung == []
    assert [process.exitcode for process in processes] == [0] * len(processes)


def wait_for_step(step: int, folder: Path, process: BaseProcess) -> None:
    """Wait until the step is in the log, or until the process has ended."""
    path, until = folder / "log.jsonl", time.monotonic() + 60
    while process.is_alive() and (path.read_bytes().count(b"\n") if path.exists() else 0) < step:
        assert time.monotonic() < until, "the process makes no progress"
        time.sleep(0.001)


def _fail(*_: Any, **__: Any) -> None:
    raise AssertionError("only rank 0 writes")


def log_of(folder: Path) -> list[dict[str, Any]]:
    """Return the log without the times."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for line in lines:
        assert line.pop("seconds") >= 0
    return lines


def weights_in(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint."""
    return to_tensors(load_checkpoint(path)[0])


def assert_equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Require bitwise equality."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name
