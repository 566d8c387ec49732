"""Constraints accept what they describe, and one message explains every violation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ConfigError, InputError
from coterie.validation import (
    ARRAY_LIKE,
    BOOLEAN,
    FRACTION,
    NONE,
    PATH,
    Choice,
    Constraints,
    InstanceOf,
    Integer,
    Number,
    SequenceOf,
    check_n_clusters,
    check_parameter,
    check_parameters,
)

BOUNDS = st.none() | st.integers(-5, 5)
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.integers(-9, 9), BOUNDS, BOUNDS)
def test_integers_are_accepted_within_bounds(value: int, low: int | None, high: int | None) -> None:
    within = (low is None or low <= value) and (high is None or value <= high)
    assert Integer(low, high).accepts(value) == Integer(low, high).accepts(np.int64(value)) == within
    assert Number(low, high).accepts(float(value)) == within
    strictly = (low is None or low < value) and (high is None or value < high)
    assert Number(low, high, exclusive=True).accepts(value) == strictly


@given(ANYTHING)
def test_constraints_without_bounds_accept_a_type(value: Any) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    assert Integer().accepts(value) == is_integer
    assert Number().accepts(value) == (is_integer or (isinstance(value, float) and bool(np.isfinite(value))))
    assert BOOLEAN.accepts(value) == isinstance(value, bool)
    assert NONE.accepts(value) == (value is None)
    assert PATH.accepts(value) == isinstance(value, str)


@given(ANYTHING)
def test_any_value_is_accepted_or_shown_in_the_error(value: Any) -> None:
    allowed = (Integer(3), Choice("auto"), NONE)
    if any(constraint.accepts(value) for constraint in allowed):
        check_parameter("x", value, allowed)
        return
    with pytest.raises(InputError) as raised:
        check_parameter("x", value, allowed)
    assert str(raised.value) == f"x={value!r} must be an integer of at least 3, or 'auto', or None."


def test_choices_compare_types() -> None:
    assert Choice("a", 1).accepts(1)
    for value in (True, 1.0, "1", np.float64(1), ["a"]):
        assert not Choice("a", 1).accepts(value)


@pytest.mark.parametrize(
    ("constraint", "value", "allowed"),
    [
        (Integer(), 1.0, "an integer"),
        (Integer(1), True, "an integer of at least 1"),
        (Integer(maximum=9), 10, "an integer of at most 9"),
        (Integer(1, 9), "5", "an integer between 1 and 9"),
        (Number(), float("nan"), "a finite number"),
        (Number(0, exclusive=True), 0.0, "a finite number above 0"),
        (Number(maximum=1, exclusive=True), 1, "a finite number below 1"),
        (Number(0, 1, exclusive=True), 1, "a finite number between 0 and 1, both excluded"),
        (FRACTION, 1.5, "a finite number between 0.0 and 1.0"),
        (Choice("a", "b"), "c", "one of 'a', 'b'"),
        (Choice("auto"), "none", "'auto'"),
        (BOOLEAN, 1, "True or False"),
        (PATH, 3, "a path"),
        (InstanceOf(dict, "a mapping"), [], "a mapping"),
        ((PATH, NONE), 3, "a path, or None"),
        (ARRAY_LIKE, "abc", "an array"),
        (ARRAY_LIKE, [], "an array"),
        ((Number(0), SequenceOf(Number(0))), [1, -1], "a finite number of at least 0, or a sequence of these"),
    ],
)
def test_messages_describe_the_allowed_values(constraint: Constraints, value: object, allowed: str) -> None:
    with pytest.raises(InputError) as raised:
        check_parameter("parameter", value, constraint)
    assert str(raised.value) == f"parameter={value!r} must be {allowed}."


def test_paths_and_arrays_are_accepted() -> None:
    check_parameter("weights", Path("model.safetensors"), PATH)
    check_parameter("init", np.zeros((2, 3)), ARRAY_LIKE)
    check_parameter("beta", (0.5, 2), SequenceOf(Number(0)))


def test_attributes_are_checked_by_name() -> None:
    @dataclass
    class Owner:
        width: int = 0
        free: object = object()

    check_parameters(Owner(), {"width": Integer(0)})
    with pytest.raises(ConfigError, match=r"^width=0 must be an integer of at least 1\.$"):
        check_parameters(Owner(), {"width": Integer(1)}, ConfigError)


def test_there_must_be_as_many_rows_as_clusters() -> None:
    check_n_clusters(3, 3)
    with pytest.raises(InputError, match=r"^n_clusters=4 is more than n_samples=3\."):
        check_n_clusters(4, 3)
