"""Messages and progress of a command, on the standard error, so that they never mix with results."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import final

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn
from rich.progress import Progress as ProgressBar

from coterie.progress import Callback, Progress, format_seconds

_BAR_SECONDS = 0.1
_LINE_SECONDS = 10.0


@final
class ProgressDisplay:
    """Shows progress: a bar on a terminal, a line now and then elsewhere, nothing if quiet."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal and not quiet

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text)

    def status(self, activity: str) -> AbstractContextManager[object]:
        """Show what is being done, without a measure of progress."""
        return self._console.status(activity) if self._live else nullcontext()

    @contextmanager
    def progress(self, activity: str) -> Iterator[Callback]:
        """Yield a callback that shows the Progress it receives."""
        if not self._live:
            yield _throttled(_LINE_SECONDS, lambda progress: self.say(f"{activity}: {progress}"))
            return
        columns = ("{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[left]}")
        with ProgressBar(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(activity, total=None, left="")

            def show(progress: Progress) -> None:
                left = "" if progress.seconds_left is None else f"{format_seconds(progress.seconds_left)} left"
                description = f"{activity}: {progress.stage}" if progress.stage else activity
                bar.update(task, description=description, total=progress.steps, completed=progress.step, left=left)

            yield _throttled(_BAR_SECONDS, show)


def _throttled(seconds: float, show: Callback) -> Callback:
    """Forward a call only if that much time has passed since the last one, or since now."""
    last = time.monotonic()

    def throttled(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            show(progress)

    return throttled
