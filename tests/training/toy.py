"""A model that trains within milliseconds, and runs of it that other processes can be given."""

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
from coterie.nn.model import Loss
from coterie.progress import Progress
from coterie.training import state
from coterie.training.loop import TrainConfig, train

CASES = {
    "plain": TrainConfig(23, learning_rate=0.05, save_every=5),
    "best": TrainConfig(23, learning_rate=0.3, evaluate_every=3, keep_best="error", save_every=7),
    "all": TrainConfig(
        23,
        learning_rate=0.05,
        schedule="one-cycle",
        optimiser="adamw",
        weight_decay=0.1,
        clip_norm=0.5,
        accumulate=3,
        evaluate_every=4,
        save_every=6,
    ),
}


class Toy(nn.Module):
    """Two layers that learn the sum of two numbers, a parameter that is of no use, and a count of the steps."""

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
        """Error on points that are always the same."""
        x = torch.randn(50, 2, generator=Generator().manual_seed(99))
        with torch.no_grad():
            return {"error": float((torch.tanh(x @ self.inner) @ self.outer - x.sum(dim=1)).square().mean())}


def draws(generator: Generator) -> Iterator[Tensor]:
    """Batches without end, each drawn when it is asked for, and by no fixed number of draws."""
    while True:
        torch.rand(int(torch.randint(9, (), generator=generator)), generator=generator)
        yield torch.randn(8, 2, generator=generator)


def run(
    folder: Path | None,
    config: TrainConfig,
    *,
    model: Toy | None = None,
    seed: int = 1,
    on_log: Callable[[Progress], None] | None = None,
) -> Toy:
    """Train a toy, going on from what the folder holds."""
    model = Toy() if model is None else model
    generator = Generator().manual_seed(seed)
    train(model, draws(generator), config, generator=generator, on_log=on_log, evaluate=model.evaluate, folder=folder)
    return model


def run_slowly(folder: Path, config: TrainConfig, pause: float) -> None:
    """Train in a process that is likely to be killed; only if it is not, there will be a file with the end."""
    torch.set_num_threads(1)
    model = run(folder, config, model=Toy(pause=pause))
    save_checkpoint(folder / "end.safetensors", model.state_dict(), {}, force=True)


@dataclass(frozen=True)
class Share:
    """What is special about one of two processes."""

    n_batches: int = 1000
    spoilt: int | None = None
    """Position of a batch that is no numbers."""
    pause: float = 0.0


def run_together(rank: int, folder: Path, meeting: Path, config: TrainConfig, share: Share) -> None:
    """Be one of two processes; begin with weights of its own, draw from a generator of its own."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=2)
    model, generator = Toy(seed=rank, noise=0.0, pause=share.pause), Generator().manual_seed(rank)
    batches = (
        batch * (math.nan if position == share.spoilt else 1.0)
        for position, batch in enumerate(islice(draws(generator), share.n_batches))
    )

    def evaluate() -> dict[str, float]:
        return {"error": model.evaluate()["error"] + rank, "rank": float(rank)}

    said = ""
    try:
        with mock.patch.object(state, "save_checkpoint", save_checkpoint if rank == 0 else _refuse):
            train(model, batches, config, generator=generator, evaluate=evaluate, folder=folder)
    except TrainingError as error:
        said = str(error)
    meeting.with_suffix(f".{rank}.txt").write_text(said)
    save_checkpoint(meeting.with_suffix(f".{rank}"), model.state_dict(), {}, force=True)
    distributed.destroy_process_group()


def in_process(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a function of this module in a process of its own, forked from one that has torch loaded already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "torch._dynamo", __name__])
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def all_end_well(processes: Sequence[BaseProcess]) -> None:
    """Wait for all of them; those that hang are killed."""
    for process in processes:
        process.join(60)
    hung = [process for process in processes if process.is_alive()]
    for process in hung:
        process.kill()
    assert hung == []
    assert [process.exitcode for process in processes] == [0] * len(processes)


def wait_for_step(step: int, folder: Path, process: BaseProcess) -> None:
    """Return once the step is in the log, or the process at its end; step 0 is there before it begins."""
    path, until = folder / "log.jsonl", time.monotonic() + 60
    while process.is_alive() and (path.read_bytes().count(b"\n") if path.exists() else 0) < step:
        assert time.monotonic() < until, "the process does not get going"
        time.sleep(0.001)


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("only the leading process writes")


def log_of(folder: Path) -> list[dict[str, Any]]:
    """All that was logged but the time, which no two runs share."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for line in lines:
        assert line.pop("seconds") >= 0
    return lines


def weights_in(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """Weights of a file that was written by a process."""
    tensors, _ = load_checkpoint(path)
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def assert_equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Both have the same bits."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert torch.equal(value, right[name]), name
