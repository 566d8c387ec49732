"""Progress of a fit or a training run: what callbacks receive, and what ``verbose`` prints."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, final

_SECONDS_BETWEEN_LINES = 2.0


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

    @property
    def seconds_left(self) -> float | None:
        """Estimated time for the remaining steps; None if their number is not known."""
        if self.steps is None:
            return None
        return self.seconds / max(1, self.step - self.resumed_at) * (self.steps - self.step)

    def __str__(self) -> str:
        words = [self.stage] if self.stage else []
        if self.steps:
            words.append(f"step {self.step:,} of {self.steps:,}")
        if self.loss is not None:
            words.append(f"loss {self.loss:.4g}")
        if self.seconds_left:
            words.append(f"about {format_seconds(self.seconds_left)} left")
        return ", ".join(words)


Callback: TypeAlias = Callable[[Progress], None]


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
