"""Frozen dataclasses to and from plain dictionaries; unknown keys and values of the wrong kind are refused."""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

from coterie.errors import ConfigError, InputError


class _DataclassInstance(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Config = TypeVar("Config", bound=_DataclassInstance)
Made = TypeVar("Made")

_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    bool: "true or false",
    NoneType: "nothing",
    dict: "a table of settings",
}


def to_dict(config: _DataclassInstance) -> dict[str, Any]:
    """Plain values of a configuration, ready for JSON."""
    return asdict(config)


def from_dict(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Build a configuration; every key must be known, every required one present, and every value of its kind.

    Parameters
    ----------
    kind : type
        The frozen dataclass to build.
    values : mapping
        Its values, as ``to_dict`` gives them. A whole number may stand for any number, and a list for a tuple.

    Raises
    ------
    ConfigError
        If a key is unknown or missing, or a value is of another kind than its field is annotated with.
    """
    renamed: Mapping[str, str] = getattr(kind, "RENAMED", {})  # former names, which files of earlier versions have
    values = {renamed.get(name, name): value for name, value in values.items()}
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
    wanted = get_type_hints(kind)
    for name, value in values.items():
        if not _is_of_kind(value, wanted[name]):
            raise ConfigError(f"{kind.__name__} cannot have {name} = {value!r}; give it {_in_words(wanted[name])}.")
    return kind(**{name: _frozen(value) for name, value in values.items()})


def from_recipe(path: str | Path, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """Make what a recipe file describes of the content of the file.

    Parameters
    ----------
    path : str or Path
        A TOML file.
    make : callable
        From the content to what is made of it; its refusals are told with the name of the file.

    Raises
    ------
    InputError
        If there is no such file, if it is not TOML, or if its content is refused.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no recipe file {str(path)!r}. Check the path.")
    try:
        return make(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not a TOML file: {error}.") from error
    except ConfigError as error:
        raise ConfigError(f"Recipe {str(path)!r}: {error}") from error


def _is_of_kind(value: Any, hint: Any) -> bool:
    """Whether a plain value may become that of a field with such an annotation; kinds that are not plain pass."""
    parts = get_args(hint)
    match get_origin(hint) or hint:
        case origin if origin in (Union, UnionType):
            return any(_is_of_kind(value, part) for part in parts)
        case origin if origin is Literal:
            return any(value == part and type(value) is type(part) for part in parts)
        case origin if origin is tuple:
            return isinstance(value, list | tuple) and _are_of_kinds(value, parts)
        case origin if origin is float:
            return type(value) in (int, float) and math.isfinite(value)
        case origin if origin in _KINDS:
            return type(value) is origin  # True is an int to isinstance
    return True


def _are_of_kinds(values: list[Any] | tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    if parts[-1:] == (...,):
        return all(_is_of_kind(value, parts[0]) for value in values)
    return len(values) == len(parts) and all(map(_is_of_kind, values, parts))


def _in_words(hint: Any) -> str:
    """What a setting takes, as a message says it."""
    parts = get_args(hint)
    match get_origin(hint) or hint:
        case origin if origin in (Union, UnionType):
            return " or ".join(map(_in_words, parts))
        case origin if origin is Literal:
            return f"one of {', '.join(map(repr, parts))}"
        case origin if origin is tuple and parts[-1:] == (...,):
            return f"a list, each of it {_in_words(parts[0])}"
        case origin if origin is tuple:
            return f"a list of {len(parts)} ({', '.join(map(_in_words, parts))})"
        case origin:
            return _KINDS.get(origin, "any value")


def _frozen(value: Any) -> Any:
    """JSON and TOML have no tuples; frozen configurations hold nothing else."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
