"""Constraints accept what they describe, and one message explains every violation."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import validation
from coterie.errors import ConfigError, InputError

BOUNDS = st.none() | st.integers(-5, 5)
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.integers(-9, 9), BOUNDS, BOUNDS)
def test_integers_are_accepted_within_bounds(value: int, low: int | None, high: int | None) -> None:
    within = (low is None or low <= value) and (high is None or value <= high)
    assert (
        validation.Integer(low, high).accepts(value) == validation.Integer(low, high).accepts(np.int64(value)) == within
    )
    assert validation.Number(low, high).accepts(float(value)) == within
    strictly = (low is None or low < value) and (high is None or value < high)
    assert validation.Number(low, high, exclusive=True).accepts(value) == strictly


@given(ANYTHING)
def test_constraints_without_bounds_accept_a_type(value: Any) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    assert validation.Integer().accepts(value) == is_integer
    assert validation.Number().accepts(value) == (is_integer or (isinstance(value, float) and bool(np.isfinite(value))))
    assert validation.BOOLEAN.accepts(value) == isinstance(value, bool)
    assert validation.NONE.accepts(value) == (value is None)
    assert validation.PATH.accepts(value) == isinstance(value, str)


@given(ANYTHING)
def test_any_value_is_accepted_or_shown_in_the_error(value: Any) -> None:
    allowed = (validation.Integer(3), validation.Choice("auto"), validation.NONE)
    if any(constraint.accepts(value) for constraint in allowed):
        validation.check_parameter("x", value, allowed)
        return
    with pytest.raises(InputError) as raised:
        validation.check_parameter("x", value, allowed)
    assert str(raised.value) == f"x={value!r} must be an integer of at least 3, or 'auto', or None."


def test_choices_compare_types() -> None:
    assert validation.Choice("a", 1).accepts(1)
    for value in (True, 1.0, "1", np.float64(1), ["a"]):
        assert not validation.Choice("a", 1).accepts(value)


@pytest.mark.parametrize(
    ("constraint", "value", "allowed"),
    [
        (validation.Integer(), 1.0, "an integer"),
        (validation.Integer(1), True, "an integer of at least 1"),
        (validation.Integer(maximum=9), 10, "an integer of at most 9"),
        (validation.Integer(1, 9), "5", "an integer between 1 and 9"),
        (validation.Number(), float("nan"), "a finite number"),
        (validation.Number(0, exclusive=True), 0.0, "a finite number above 0"),
        (validation.Number(maximum=1, exclusive=True), 1, "a finite number below 1"),
        (validation.Number(0, 1, exclusive=True), 1, "a finite number between 0 and 1, both excluded"),
        (validation.FRACTION, 1.5, "a finite number between 0.0 and 1.0"),
        (validation.Choice("a", "b"), "c", "one of 'a', 'b'"),
        (validation.Choice("auto"), "none", "'auto'"),
        (validation.BOOLEAN, 1, "True or False"),
        (validation.PATH, 3, "a path"),
        (validation.InstanceOf(dict, "a mapping"), [], "a mapping"),
        ((validation.PATH, validation.NONE), 3, "a path, or None"),
        (validation.ARRAY_LIKE, "abc", "an array"),
        (validation.ARRAY_LIKE, [], "an array"),
        (
            (validation.Number(0), validation.SequenceOf(validation.Number(0))),
            [1, -1],
            "a finite number of at least 0, or a sequence of these",
        ),
    ],
)
def test_messages_describe_the_allowed_values(constraint: validation.Constraints, value: object, allowed: str) -> None:
    with pytest.raises(InputError) as raised:
        validation.check_parameter("parameter", value, constraint)
    assert str(raised.value) == f"parameter={value!r} must be {allowed}."


def test_paths_and_arrays_are_accepted() -> None:
    validation.check_parameter("weights", Path("model.safetensors"), validation.PATH)
    validation.check_parameter("init", np.zeros((2, 3)), validation.ARRAY_LIKE)
    validation.check_parameter("beta", (0.5, 2), validation.SequenceOf(validation.Number(0)))


def test_attributes_are_checked_by_name() -> None:
    @dataclass
    class Owner:
        width: int = 0
        free: object = object()

    validation.check_parameters(Owner(), {"width": validation.Integer(0)})
    with pytest.raises(ConfigError, match=r"^width=0 must be an integer of at least 1\.$"):
        validation.check_parameters(Owner(), {"width": validation.Integer(1)}, ConfigError)


def test_there_must_be_as_many_rows_as_clusters() -> None:
    validation.check_n_clusters(3, 3)
    with pytest.raises(InputError, match=r"^n_clusters=4 is more than n_samples=3\."):
        validation.check_n_clusters(4, 3)
