"""What is told of a training run, whatever is trained: on the terminal, and for TensorBoard."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from coterie.cli.progress import Narrator, OnProgress
from coterie.errors import MissingExtraError
from coterie.training import Progress


@contextmanager
def followed(
    what: str, folder: Path, narrator: Narrator, *, save_every: int, tensorboard: str | None
) -> Iterator[OnProgress]:
    """Lend a function to call after every step, which tells how a run in that folder goes on."""
    try:
        with _board(tensorboard) as on_board, narrator.training(what) as on_progress:

            def on_log(progress: Progress) -> None:
                if progress.step == progress.resumed_at + 1:
                    narrator.say(_beginning(progress, folder))
                on_progress(progress)
                on_board(progress)

            yield on_log
    except KeyboardInterrupt:
        back = "1 step" if save_every == 1 else f"{save_every:,} steps"
        narrator.say(f"stopped; the same command goes on from the state in {folder}, at most {back} back")
        raise


def _beginning(progress: Progress, folder: Path) -> str:
    if progress.resumed_at:
        return f"going on after step {progress.resumed_at:,} of {progress.steps:,}, from {folder}"
    return f"the run is kept in {folder}; it can be stopped, and the same command goes on with it"


@contextmanager
def _board(folder: str | None) -> Iterator[OnProgress]:
    """Lend a function that writes progress for TensorBoard; one that does nothing if no folder is given."""
    if folder is None:
        yield lambda _: None
        return
    try:
        board: Any = import_module("torch.utils.tensorboard")
    except ImportError as error:
        raise MissingExtraError(
            "--tensorboard needs the library tensorboard, which is not installed; pip install 'coterie[board]'"
        ) from error
    writer: Any = None

    def log(progress: Progress) -> None:
        nonlocal writer
        if writer is None:  # what an earlier run has logged beyond the state that it left is hidden
            writer = board.SummaryWriter(folder, purge_step=progress.step)
        writer.add_scalar("loss", progress.loss, progress.step)
        for name, value in progress.parts.items():
            writer.add_scalar(f"parts/{name}", value, progress.step)
        for name, value in (progress.evaluation or {}).items():
            writer.add_scalar(f"held_out/{name}", value, progress.step)

    try:
        yield log
    finally:
        if writer is not None:
            writer.close()
