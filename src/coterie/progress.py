"""Progress of a fit or a training run: what callbacks receive, and what ``verbose`` prints."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeAlias, final

_SECONDS_BETWEEN_LINES = 2.0
_PARTS = 100  # of a step of a stage, since the steps of ``Progress`` are integers


@final
@dataclass(frozen=True, slots=True)
class Progress:
    """State of a fit or a training run; passed to the ``callback`` of every estimator."""

    step: int = 0  # steps done
    steps: int | None = None  # total number of steps; None if it is not known
    loss: float | None = None  # training loss of the last step; None if nothing is trained
    seconds: float = 0.0  # time since the run started or was resumed
    resumed_at: int = 0  # steps done by an earlier, interrupted run
    parts: Mapping[str, float] = field(default_factory=dict)  # terms of the loss
    evaluation: Mapping[str, float] | None = None  # held-out evaluation, on steps that have one
    stage: str = ""  # current stage, such as ``"k-means, standardised columns"``
    phase: str = ""  # what the stage is part of, such as ``"candidates"``; the same for many stages

    @property
    def fraction(self) -> float | None:
        """Fraction of the steps that are done, from 0 to 1; None if their number is not known."""
        return min(1.0, self.step / self.steps) if self.steps else None

    @property
    def seconds_left(self) -> float | None:
        """Estimated time for the remaining steps; None if their number is not known, or none has been done."""
        if self.steps is None or self.step <= self.resumed_at:
            return None
        return self.seconds / (self.step - self.resumed_at) * (self.steps - self.step)

    def __str__(self) -> str:
        words = [self.stage] if self.stage else []
        if self.fraction is not None:
            words.insert(0, f"{self.fraction:.0%}")
        if self.steps and (self.loss is not None or not self.stage):
            words.append(f"step {self.step:,} of {self.steps:,}")
        if self.loss is not None:
            words.append(f"loss {self.loss:.4g}")
        if self.seconds_left:
            words.append(f"about {format_seconds(self.seconds_left)} left")
        return ", ".join(words)


Callback: TypeAlias = Callable[[Progress], None]


@final
class StageProgress:
    """Report the stages of a run, each of which is some steps of the whole, to a callback.

    Parameters
    ----------
    callback : callable, optional
        Called with a ``Progress`` when a stage begins. Without it, nothing is reported.
    """

    def __init__(self, callback: Callback | None) -> None:
        self._callback = callback
        self._started = time.monotonic()
        self._lock = Lock()
        self._begun = 0.0  # steps of the stages that are done
        self._current = 0.0  # steps of the present stage
        self._expected: float | None = None

    def expect(self, steps: float) -> None:
        """Say how many steps follow; only what is said first counts, so that progress never goes back."""
        if self._expected is None:
            self._expected = self._begun + self._current + steps

    def begin(self, phase: str, stage: str = "", steps: float = 1.0) -> None:
        """Report that a stage begins, which is that many steps; the one before it is done."""
        if self._callback is None:
            return
        with self._lock:  # candidates are generated in threads
            self._begun, self._current = self._begun + self._current, steps
            total = None if self._expected is None else max(1, round(self._expected * _PARTS))
            done = round(self._begun * _PARTS) if total is None else min(total, round(self._begun * _PARTS))
            seconds = time.monotonic() - self._started
        self._callback(Progress(done, total, seconds=seconds, stage=stage or phase, phase=phase))


def format_seconds(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours.

    Examples
    --------
    >>> format_seconds(150)
    '2 min'
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def make_callback(callback: Callback | None, *, verbose: bool, name: str) -> Callback | None:
    """Return a callback that calls the given one and, if verbose, prints "name: ..." to stderr every two seconds."""
    if not verbose:
        return callback
    last = time.monotonic() - _SECONDS_BETWEEN_LINES

    def show(progress: Progress) -> None:
        nonlocal last
        if callback is not None:
            callback(progress)
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            sys.stderr.write(f"{name}: {progress}\n")

    return show
