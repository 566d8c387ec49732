"""Run-time checks of the array shapes in signatures, such as ``Float[Tensor, "N D"]``."""

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

from beartype import beartype
from jaxtyping import AbstractArray


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and results of a function that are annotated with shapes, and no others.

    Other annotations are mypy's: tests pass wrong types on purpose, and some protocols cannot be checked at run time.
    """
    annotations = function.__annotations__
    shapes = {name: hint for name, hint in annotations.items() if _has_shape(hint)}
    if not shapes:
        return function
    function.__annotations__ = shapes
    try:
        checked: Callable[..., Any] = beartype(function)
        return checked
    finally:
        function.__annotations__ = annotations


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
