"""Warnings before a fit that takes long or makes little sense; the command stops before one that takes far too long."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from coterie.cli.checks import check_weights
from coterie.cli.progress import ProgressDisplay
from coterie.errors import InputError
from coterie.methods import Method
from coterie.progress import format_seconds
from coterie.tables.table import Table

_LONG_SECONDS = 60.0  # expected duration from which the user is warned
_MANY_TIMES = 10  # columns for each feature of the weights, from which the user is warned
_INSTEAD = "Use --method coterie"


def check_suitable(
    method: Method, features: Table, parameters: Mapping[str, Any], display: ProgressDisplay, *, anyway: bool
) -> None:
    """Warn if the method takes long on this table or was not trained for it; stop if it takes too long or too much.

    With `anyway`, it only warns. A recipe has settings of its own, of which nothing is known.
    """
    if "recipe" in parameters:
        return
    for warning in _mismatches(method, features, parameters):
        display.say(f"warning: {warning}")
    limits, n_rows = method.limits, features.n_rows
    seconds, memory = limits.seconds(n_rows, features.n_columns), n_rows * limits.bytes_per_row
    reasons = []
    if limits.max_seconds is not None and seconds > limits.max_seconds:
        reasons.append(f"may take {format_seconds(seconds)}")
    if memory > _total_memory():
        reasons.append(f"needs about {memory / 1e9:.0f} GB of memory")
    what = f"the method {method.name} on {n_rows:,} rows"
    if reasons and not anyway:
        raise InputError(
            f"{what[0].upper()}{what[1:]} {' and '.join(reasons)}. {_INSTEAD}, or a sample of the rows; "
            "to start nevertheless, add --anyway."
        )
    if seconds > _LONG_SECONDS:
        display.say(f"warning: {what} may take {format_seconds(seconds)}. {_INSTEAD} for a result in seconds.")


def _mismatches(method: Method, features: Table, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield a warning if the weights take far fewer features than the table has columns."""
    expected = method.limits.n_features
    if "weights" in parameters:
        model = check_weights(method, parameters["weights"]).get("model", {})
        expected = None if model.get("image") else model.get("n_features")  # images are resized
    if expected is None or features.n_columns <= _MANY_TIMES * expected:
        return
    noun = "columns" if features.image is None else "pixels of each image"
    yield (
        f"the weights of the method {method.name} are for {expected} features, so that the {features.n_columns:,} "
        f"{noun} are replaced by {expected} principal components. {_INSTEAD}, or weights learned on such data."
    )


def _total_memory() -> float:
    """Return the memory of the machine in bytes; infinity if it is not known."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return float("inf")
