"""Configurations to and from plain values."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from coterie.clam.model import ClamConfig
from coterie.config import from_dict, to_dict
from coterie.errors import ConfigError
from coterie.training.loop import TrainConfig
from tests.conftest import MODELS


@dataclass(frozen=True)
class Sample:
    width: int
    rates: tuple[float, ...] = (0.1, 0.2)
    names: tuple[str, ...] = field(default_factory=tuple)


@pytest.mark.parametrize(
    "config",
    [Sample(3), Sample(3, (), ("a",)), TrainConfig(7, betas=(0.5, 0.6)), ClamConfig(4, 2, metric="cosine")],
)
def test_values_survive_json(config: Sample | TrainConfig | ClamConfig) -> None:
    assert from_dict(type(config), json.loads(json.dumps(to_dict(config)))) == config


def test_what_has_a_default_may_be_left_out() -> None:
    assert from_dict(Sample, {"width": 2}) == Sample(2)


def test_unknown_settings_are_refused_and_the_known_ones_listed() -> None:
    with pytest.raises(ConfigError, match=r"Sample has no setting 'hight', 'wdth'; it has: width, rates, names"):
        from_dict(Sample, {"wdth": 2, "hight": 3})


def test_missing_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=r"ClamConfig lacks the setting 'n_features', 'n_prototypes'"):
        from_dict(ClamConfig, {})


@dataclass(frozen=True)
class Kinds:
    whole: int = 1
    number: float = 1.0
    text: str = ""
    flag: bool = False
    choice: Literal["a", "b", 3] = "a"
    maybe: float | None = None
    pair: tuple[float, int] = (0.5, 1)
    grid: tuple[tuple[int, ...], ...] = ()
    table: dict[str, Any] = field(default_factory=dict)
    anything: Any = None


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("whole", -3, -3),
        ("number", 2, 2),
        ("number", 1e-3, 1e-3),
        ("text", "β", "β"),
        ("flag", True, True),
        ("choice", "b", "b"),
        ("choice", 3, 3),
        ("maybe", None, None),
        ("maybe", 4, 4),
        ("pair", [1, 2], (1, 2)),
        ("pair", (0.5, 2), (0.5, 2)),
        ("grid", [[1], []], ((1,), ())),
        ("table", {"a": [1]}, {"a": [1]}),
        ("anything", "at all", "at all"),
    ],
)
def test_values_of_the_right_kind_are_taken(name: str, value: object, stored: object) -> None:
    assert getattr(from_dict(Kinds, {name: value}), name) == stored


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("whole", 1.0, "a whole number"),
        ("whole", "1", "a whole number"),
        ("whole", True, "a whole number"),
        ("whole", None, "a whole number"),
        ("number", "fast", "a finite number"),
        ("number", False, "a finite number"),
        ("number", float("nan"), "a finite number"),
        ("number", float("inf"), "a finite number"),
        ("text", 3, "a text"),
        ("flag", 1, "true or false"),
        ("choice", "c", r"one of 'a', 'b', 3"),
        ("choice", 3.0, r"one of 'a', 'b', 3"),
        ("maybe", "none", "a finite number or nothing"),
        ("pair", [1], r"a list of 2 \(a finite number, a whole number\)"),
        ("pair", [1, 2.5], r"a list of 2 \(a finite number, a whole number\)"),
        ("pair", 1, r"a list of 2 \(a finite number, a whole number\)"),
        ("grid", [1], "a list, each of it a list, each of it a whole number"),
        ("grid", [["1"]], "a list, each of it a list, each of it a whole number"),
        ("table", [], "a table of settings"),
    ],
)
def test_values_of_another_kind_are_refused(name: str, value: object, wanted: str) -> None:
    with pytest.raises(ConfigError, match=rf"Kinds cannot have {name} = .*; give it {wanted}\.$"):
        from_dict(Kinds, {name: value})


def test_configurations_of_models_are_frozen() -> None:
    for model in MODELS.values():
        assert model.Config.__dataclass_params__.frozen
