"""Messages, progress and timings of a command, on the standard error, so that they never mix with results."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table as TextTable

from coterie.progress import Callback, Progress, format_seconds

_BAR_SECONDS = 0.1
_LINE_SECONDS = 10.0
_OTHER = "other"  # phase of the time between the others


@final
class ProgressDisplay:
    """Shows progress: a bar on a terminal, a line now and then elsewhere, nothing if quiet. Can show timings too."""

    def __init__(self, *, quiet: bool, profile: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, markup=False, soft_wrap=True)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal and not quiet
        self._quiet, self._profile = quiet, profile
        self._seconds: dict[str, float] = {}  # by phase
        self._phase, self._since = _OTHER, time.perf_counter()

    def say(self, text: str) -> None:
        """Print one line."""
        self._console.print(text)

    @contextmanager
    def status(self, activity: str, phase: str = "") -> Iterator[None]:
        """Show what is being done, without a measure of progress."""
        self._enter(phase)
        if self._live:
            with self._console.status(activity):
                yield
        else:
            yield
        self._enter(_OTHER)

    @contextmanager
    def progress(self, activity: str, phase: str = "") -> Iterator[Callback]:
        """Yield a callback that shows the Progress it receives."""
        self._enter(phase)
        show = self._bar(activity) if self._live else self._lines(activity)
        with show as callback:

            def receive(progress: Progress) -> None:
                self._enter(progress.phase or phase)
                callback(progress)

            yield receive
        self._enter(_OTHER)

    def show_profile(self) -> None:
        """Print where the time went, if that was asked for: the time of each phase, in the order of the first one."""
        if not self._profile:
            return
        self._enter(_OTHER)
        other = self._seconds.pop(_OTHER, 0.0)
        total = sum(self._seconds.values()) + other
        table = TextTable("phase", box=box.SIMPLE)
        for name in ("seconds", "percent"):
            table.add_column(name, justify="right")
        for name, seconds in [*self._seconds.items(), (_OTHER, other), ("total", total)]:
            table.add_row(name, f"{seconds:.2f}", f"{seconds / total:.0%}")
        Console(stderr=True, highlight=False, markup=False).print(table)

    def _enter(self, phase: str) -> None:
        """Add the time since the last call to the phase that was entered then."""
        now = time.perf_counter()
        self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._phase, self._since = phase or _OTHER, now

    @contextmanager
    def _bar(self, activity: str) -> Iterator[Callback]:
        columns = ("{task.description}", BarColumn(), TaskProgressColumn(), "{task.fields[left]}")
        with ProgressBar(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(activity, total=None, left="")

            def show(progress: Progress) -> None:
                left = "" if progress.seconds_left is None else f"{format_seconds(progress.seconds_left)} left"
                description = f"{activity}: {progress.stage}" if progress.stage else activity
                bar.update(task, description=description, total=progress.steps, completed=progress.step, left=left)

            yield _throttled(_BAR_SECONDS, show)

    @contextmanager
    def _lines(self, activity: str) -> Iterator[Callback]:
        """Print what was last reported every ten seconds, also during a stage that takes longer."""
        started, ended = time.monotonic(), Event()
        last = Progress()

        def receive(progress: Progress) -> None:
            nonlocal last
            last = progress

        def print_lines() -> None:
            while not ended.wait(_LINE_SECONDS):
                words = [str(last)] if str(last) else []
                self.say(f"{activity}: {', '.join([*words, f'{format_seconds(time.monotonic() - started)} so far'])}")

        printer = Thread(target=print_lines, daemon=True)
        if not self._quiet:
            printer.start()
        try:
            yield receive
        finally:
            ended.set()
            if not self._quiet:
                printer.join()


def _throttled(seconds: float, show: Callback) -> Callback:
    """Forward a call only if that much time has passed since the last one, or since now."""
    last = time.monotonic()

    def throttled(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            show(progress)

    return throttled
