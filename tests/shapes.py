"""Run-time checks of the array shapes in signatures, such as ``Float[Tensor, "N D"]``."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from inspect import isclass, isfunction, unwrap
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

CHECKED_CALLS = 20
"""Calls of each function that are checked: a check costs as much as a small operation, and loops repeat shapes."""


class ShapeChecker(MetaPathFinder, Loader):
    """Checks the functions of some packages from the moment that they are imported."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = tuple(packages)

    def install(self) -> None:
        """Check what is imported from now on."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of the packages, to be loaded as usual and then checked."""
        if not any(name == package or name.startswith(f"{package}.") for package in self.packages):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _check_members(module, module.__name__)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one instance
        return spec


def _check_members(owner: Any, module: str) -> None:
    """Replace the functions of a module or class that have shapes in their signatures by checked ones."""
    for name, value in list(vars(owner).items()):
        if isfunction(value) and value.__module__ == module and any(map(_has_shape, value.__annotations__.values())):
            setattr(owner, name, check_first_calls(value))
        elif isclass(value) and value.__module__ == module and not isclass(owner):
            _check_members(value, module)


def check_first_calls(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the first calls of a function, whose other annotations are mypy's: tests pass wrong types on purpose."""
    inner = unwrap(function)  # the signature of a decorated function is that of the function inside
    annotations = inner.__annotations__
    inner.__annotations__ = {name: hint for name, hint in annotations.items() if _has_shape(hint)}
    try:
        checked: Callable[..., Any] = jaxtyped(function, typechecker=beartype)
    finally:
        inner.__annotations__ = annotations
    left = CHECKED_CALLS

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if left == 0:
            return function(*args, **kwargs)
        left -= 1
        return checked(*args, **kwargs)

    return wrapper


def _has_shape(hint: Any) -> bool:
    """Return whether a hint is a shape, or a union or tuple of shapes and plain types.

    In lists beartype would check random items, by means of Python's global random state.
    """
    parts = list(_parts(hint))
    plain = all(get_origin(part) is None and part is not ... for part in parts)
    return plain and any(isinstance(part, type) and issubclass(part, AbstractArray) for part in parts)


def _parts(hint: Any) -> Iterator[Any]:
    if get_origin(hint) in {tuple, Union, UnionType}:
        for part in get_args(hint):
            yield from _parts(part)
    else:
        yield hint
