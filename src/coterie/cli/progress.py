"""What a command says while it works. All of it goes to the standard error, so that results stay clean."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar, final

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as ProgressBar

from coterie.progress import Progress, format_seconds

OnProgress: TypeAlias = Callable[[Progress], None]
OnStep: TypeAlias = Callable[[str], None]
Told = TypeVar("Told")

_BAR_SECONDS = 0.1
_LINE_SECONDS = 10.0


@final
class Narrator:
    """Tells the user what goes on: a moving bar on a terminal, now and then a line elsewhere, or nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)
        self._moving = self._console.is_terminal and not self._console.is_dumb_terminal and not quiet

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text)

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """Show what is being done, where it can be wiped away afterwards."""
        if not self._moving:
            yield
            return
        with self._console.status(what):
            yield

    @contextmanager
    def training(self, what: str) -> Iterator[OnProgress]:
        """Lend a function that shows how far training is, and how long it will still take."""
        if not self._moving:
            yield self._in_lines(what)
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
        )
        with ProgressBar(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(what, total=None, left="")

            def show(progress: Progress) -> None:
                left = f"{format_seconds(progress.seconds_left)} left"
                bar.update(task, total=progress.steps, completed=progress.step, left=left)

            yield _at_most_every(_BAR_SECONDS, show)

    @contextmanager
    def steps(self, what: str) -> Iterator[OnStep]:
        """Lend a function that shows a few words about what is being done, in place of the words before."""
        if not self._moving:
            yield _at_most_every(_LINE_SECONDS, lambda words: self.say(f"{what}: {words}"))
            return
        with self._console.status(what) as status:
            yield lambda words: status.update(f"{what}: {words}")

    def _in_lines(self, what: str) -> OnProgress:
        def show(progress: Progress) -> None:
            done = f"{progress.step / progress.steps:.0%} done"
            self.say(f"{what}: {done}, about {format_seconds(progress.seconds_left)} left")

        return _at_most_every(_LINE_SECONDS, show)


def _at_most_every(seconds: float, show: Callable[[Told], None]) -> Callable[[Told], None]:
    """Pass calls on when so much time went by since the last one, or since now."""
    last = time.monotonic()

    def sometimes(told: Told) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            show(told)

    return sometimes
