"""Constraints on parameters, declared as data and checked in one place.

Estimators declare ``constraints = {"n_clusters": (Integer(1), Choice("auto"))}``; configurations call
``check_parameters(self, CONSTRAINTS, ConfigError)`` in ``__post_init__``. Every message is written here.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from typing import Any, Protocol, TypeAlias, final

from coterie.errors import InputError


class Constraint(Protocol):
    """A set of allowed values."""

    def accepts(self, value: Any) -> bool:
        """Return whether the value is allowed."""

    def __str__(self) -> str:
        """Describe the allowed values, as in "must be ..."."""


Constraints: TypeAlias = Constraint | tuple[Constraint, ...]  # one constraint, or alternatives


@final
@dataclass(frozen=True, slots=True)
class Integer:
    """An integer within bounds; True and False are not integers here."""

    minimum: int | None = None
    maximum: int | None = None

    def accepts(self, value: Any) -> bool:
        """Return whether the value is an integer within the bounds."""
        return not isinstance(value, bool) and isinstance(value, Integral) and _within(value, self)

    def __str__(self) -> str:
        return f"an integer{_range(self)}"


@final
@dataclass(frozen=True, slots=True)
class Number:
    """A finite real number within bounds, which are included unless ``exclusive``."""

    minimum: float | None = None
    maximum: float | None = None
    exclusive: bool = False

    def accepts(self, value: Any) -> bool:
        """Return whether the value is a finite number within the bounds."""
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            return False
        return _within(value, self) and not (self.exclusive and value in {self.minimum, self.maximum})

    def __str__(self) -> str:
        return f"a finite number{_range(self, exclusive=self.exclusive)}"


@final
class Choice:
    """One of several fixed values, compared with their type: 1 is neither True nor 1.0."""

    def __init__(self, *options: Any) -> None:
        self.options = options

    def accepts(self, value: Any) -> bool:
        """Return whether the value is one of the options."""
        return any(type(value) is type(option) and value == option for option in self.options)

    def __str__(self) -> str:
        options = ", ".join(map(repr, self.options))
        return options if len(self.options) == 1 else f"one of {options}"


@final
@dataclass(frozen=True, slots=True)
class InstanceOf:
    """An instance of a type, such as ``InstanceOf(bool, "True or False")``."""

    type: Any
    description: str

    def accepts(self, value: Any) -> bool:
        """Return whether the value is of the type."""
        return isinstance(value, self.type)

    def __str__(self) -> str:
        return self.description


@final
@dataclass(frozen=True, slots=True)
class SequenceOf:
    """A non-empty sequence or array, whose items satisfy a constraint if there is one."""

    item: Constraint | None = None

    def accepts(self, value: Any) -> bool:
        """Return whether the value is such a sequence."""
        is_sequence = isinstance(value, Collection) and not isinstance(value, str) and len(value) > 0
        return is_sequence and (self.item is None or all(map(self.item.accepts, value)))

    def __str__(self) -> str:
        return "an array" if self.item is None else "a sequence of these"


FRACTION = Number(0.0, 1.0)
BOOLEAN = InstanceOf(bool, "True or False")
NONE = Choice(None)
PATH = InstanceOf((str, PathLike), "a path")
ARRAY_LIKE = SequenceOf()


def check_parameter(name: str, value: Any, constraints: Constraints, error: type[ValueError] = InputError) -> None:
    """Raise an error unless the value satisfies a constraint.

    Examples
    --------
    >>> check_parameter("n_clusters", 3, (Integer(1), Choice("auto")))
    >>> check_parameter("n_clusters", 0, (Integer(1), Choice("auto")))
    Traceback (most recent call last):
    ...
    coterie.errors.InputError: n_clusters=0 must be an integer of at least 1, or 'auto'.
    """
    options = constraints if isinstance(constraints, tuple) else (constraints,)
    if not any(option.accepts(value) for option in options):
        raise error(f"{name}={value!r} must be {', or '.join(map(str, options))}.")


def check_parameters(
    owner: object, constraints: Mapping[str, Constraints], error: type[ValueError] = InputError
) -> None:
    """Check the attributes of an estimator or a configuration that have constraints."""
    for name, allowed in constraints.items():
        check_parameter(name, getattr(owner, name), allowed, error)


def check_n_clusters(n_clusters: int, n_samples: int) -> None:
    """Raise an error if there are more clusters than rows."""
    if n_clusters > n_samples:
        raise InputError(f"n_clusters={n_clusters} is more than n_samples={n_samples}. Ask for fewer clusters.")


def _within(value: Any, bounds: Integer | Number) -> bool:
    return (bounds.minimum is None or value >= bounds.minimum) and (bounds.maximum is None or value <= bounds.maximum)


def _range(bounds: Integer | Number, *, exclusive: bool = False) -> str:
    low, high = bounds.minimum, bounds.maximum
    if low is not None and high is not None:
        return f" between {low} and {high}{', both excluded' if exclusive else ''}"
    if low is not None:
        return f" above {low}" if exclusive else f" of at least {low}"
    if high is not None:
        return f" below {high}" if exclusive else f" of at most {high}"
    return ""
