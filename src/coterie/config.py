"""Frozen dataclasses from dictionaries and TOML files, and back; unknown settings and wrong types raise an error."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, Union, final, get_args, get_origin, get_type_hints

from coterie.errors import ConfigError, InputError
from coterie.validation import BOOLEAN, NONE, Choice, Constraint, InstanceOf, Integer, Number, check_parameter


class _DataclassInstance(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Config = TypeVar("Config", bound=_DataclassInstance)
Made = TypeVar("Made")

_CONSTRAINTS: dict[Any, Constraint] = {
    int: Integer(),
    float: Number(),
    str: InstanceOf(str, "a string"),
    bool: BOOLEAN,
    NoneType: NONE,
    dict: InstanceOf(dict, "a table of settings"),
}


def to_dict(config: _DataclassInstance) -> dict[str, Any]:
    """Return the values of a configuration, ready for JSON."""
    return asdict(config)


def from_dict(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Build a frozen dataclass from its values; a wrong key or type raises a ``ConfigError``.

    Integers are accepted as floats, and lists as tuples. The ``RENAMED`` of the dataclass, if any, maps former names
    of settings, which files of earlier versions have, to the present ones.
    """
    renamed: Mapping[str, str] = getattr(kind, "RENAMED", {})
    values = {renamed.get(name, name): value for name, value in values.items()}
    known = {field.name: field.default is MISSING and field.default_factory is MISSING for field in fields(kind)}
    if unknown := sorted(set(values) - set(known)):
        raise ConfigError(
            f"{kind.__name__} has no setting {', '.join(map(repr, unknown))}; it has: {', '.join(known)}."
        )
    if missing := [name for name, required in known.items() if required and name not in values]:
        raise ConfigError(f"{kind.__name__} lacks the setting {', '.join(map(repr, missing))}.")
    hints = get_type_hints(kind)
    for name, value in values.items():
        check_parameter(f"{kind.__name__}.{name}", value, _constraints(hints[name]), ConfigError)
    return kind(**{name: _to_tuples(value) for name, value in values.items()})


def from_recipe(path: str | Path, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """Build an object from the content of a recipe, a TOML file; errors have the name of the file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no recipe file {str(path)!r}. Check the path.")
    try:
        return make(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{str(path)!r} is not a TOML file: {error}.") from error
    except ConfigError as error:
        raise ConfigError(f"Recipe {str(path)!r}: {error}") from error


@final
@dataclass(frozen=True, slots=True)
class _ListOf:
    """A list with one item per constraint, or with any number of items that satisfy the only one."""

    items: tuple[tuple[Constraint, ...], ...]
    any_length: bool

    def accepts(self, value: Any) -> bool:
        if not isinstance(value, list | tuple) or not (self.any_length or len(value) == len(self.items)):
            return False
        wanted = self.items * len(value) if self.any_length else self.items
        return all(any(c.accepts(item) for c in each) for item, each in zip(value, wanted, strict=True))

    def __str__(self) -> str:
        items = [" or ".join(map(str, each)) for each in self.items]
        return f"a list, each item {items[0]}" if self.any_length else f"a list of {len(items)} ({', '.join(items)})"


def _constraints(hint: Any) -> tuple[Constraint, ...]:
    """Return what an annotation allows; annotations without a plain type allow anything."""
    parts = get_args(hint)
    match get_origin(hint) or hint:
        case origin if origin in (Union, UnionType):
            return tuple(constraint for part in parts for constraint in _constraints(part))
        case origin if origin is Literal:
            return (Choice(*parts),)
        case origin if origin is tuple:
            any_length = parts[-1:] == (...,)
            return (_ListOf(tuple(map(_constraints, parts[:1] if any_length else parts)), any_length),)
        case origin:
            return (_CONSTRAINTS.get(origin, InstanceOf(object, "any value")),)


def _to_tuples(value: Any) -> Any:
    """Convert lists, which JSON and TOML have, to tuples, which frozen configurations have."""
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value
