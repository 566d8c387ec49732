"""What can go wrong, by who can mend it.

Every message says what happened, which value was seen, and what to do about it.
"""


class CoterieError(Exception):
    """Base of all errors that Coterie raises on purpose."""


class InputError(CoterieError, ValueError):
    """The data or a parameter cannot be used as given."""


class TableError(InputError):
    """A table cannot be read or turned into numbers."""


class ConfigError(InputError):
    """A configuration has an unknown key or a value of the wrong kind."""


class WeightsError(CoterieError, ValueError):
    """A model file is damaged, foreign, or not what its card says."""


class TrainingError(CoterieError, RuntimeError):
    """Training cannot go on, such as when the loss is no longer a number."""


class OutputError(CoterieError, OSError):
    """A result cannot be written where it was asked for."""


class MissingExtraError(CoterieError, ImportError):
    """An optional dependency is needed; the message has the line that installs it."""
