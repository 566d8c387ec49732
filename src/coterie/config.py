"""Frozen dataclasses to and from plain dictionaries; unknown keys are refused."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any, ClassVar, Protocol, TypeVar

from coterie.errors import ConfigError


class _DataclassInstance(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Config = TypeVar("Config", bound=_DataclassInstance)


def to_dict(config: _DataclassInstance) -> dict[str, Any]:
    """Plain values of a configuration, ready for JSON."""
    return asdict(config)


def from_dict(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Build a configuration; every key must be known and every required one present.

    Parameters
    ----------
    kind : type
        The frozen dataclass to build.
    values : mapping
        Its values, as ``to_dict`` gives them.
    """
    known = {field.name: field for field in fields(kind)}
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(
            f"{kind.__name__} has no setting {', '.join(map(repr, unknown))}; it has: {', '.join(known)}."
        )
    missing = [
        name
        for name, field in known.items()
        if name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise ConfigError(f"{kind.__name__} lacks the setting {', '.join(map(repr, missing))}.")
    # JSON has no tuples; frozen configurations hold nothing else.
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
