"""Exceptions, grouped by who can fix them, and the import of optional dependencies.

Every message says what happened, the value seen, and what to do.
"""

from importlib import import_module
from typing import Any


class CoterieError(Exception):
    """Base of all errors that Coterie raises on purpose."""


class InputError(CoterieError, ValueError):
    """The data or a parameter cannot be used; the caller can fix it."""


class TableError(InputError):
    """A table cannot be read or encoded."""


class EmptyTableError(TableError):
    """A table has no rows or no columns."""


class ConfigError(InputError):
    """A configuration has an unknown setting or an invalid value."""


class WeightsError(CoterieError, ValueError):
    """A model file is missing, damaged, or of another program or version."""


class TrainingError(CoterieError, RuntimeError):
    """Training cannot continue, for example because the loss is not finite."""


class OutputError(CoterieError, OSError):
    """A result cannot be written to the given path."""


class MissingExtraError(CoterieError, ImportError):
    """An optional dependency is not installed; the message has the command that installs it."""


def import_extra(module: str, *, extra: str, purpose: str) -> Any:
    """Import an optional dependency; if it is missing, the error has the purpose and the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{purpose}, which is not installed. Run: pip install 'coterie[{extra}]'.") from error
