"""Whether a method suits the data."""

from typing import Any


def check_suitable(*_: Any, anyway: bool) -> None:
    """Check nothing."""
