"""Configurations from plain values, and back."""

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from coterie.clam.model import ClamConfig
from coterie.config import from_dict, from_recipe, to_dict
from coterie.errors import ConfigError, InputError
from coterie.training.loop import TrainConfig
from tests.conftest import MODELS


@dataclass(frozen=True)
class Sample:
    width: int
    rates: tuple[float, ...] = (0.1, 0.2)
    names: tuple[str, ...] = field(default_factory=tuple)


@pytest.mark.parametrize(
    "config", [Sample(3), Sample(3, (), ("a",)), TrainConfig(7, betas=(0.5, 0.6)), ClamConfig(4, 2, metric="cosine")]
)
def test_values_survive_json(config: Sample | TrainConfig | ClamConfig) -> None:
    assert from_dict(type(config), json.loads(json.dumps(to_dict(config)))) == config


def test_unknown_and_missing_settings_raise_an_error() -> None:
    assert from_dict(Sample, {"width": 2}) == Sample(2)
    with pytest.raises(ConfigError, match=r"Sample has no setting 'hight', 'wdth'; it has: width, rates, names"):
        from_dict(Sample, {"wdth": 2, "hight": 3})
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
def test_values_of_the_annotated_type_are_accepted(name: str, value: object, stored: object) -> None:
    assert getattr(from_dict(Kinds, {name: value}), name) == stored


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("whole", 1.0, "an integer"),
        ("whole", "1", "an integer"),
        ("whole", True, "an integer"),
        ("whole", None, "an integer"),
        ("number", "fast", "a finite number"),
        ("number", False, "a finite number"),
        ("number", float("nan"), "a finite number"),
        ("number", float("inf"), "a finite number"),
        ("text", 3, "a string"),
        ("flag", 1, "True or False"),
        ("choice", "c", r"one of 'a', 'b', 3"),
        ("choice", 3.0, r"one of 'a', 'b', 3"),
        ("maybe", "none", "a finite number, or None"),
        ("pair", [1], r"a list of 2 \(a finite number, an integer\)"),
        ("pair", [1, 2.5], r"a list of 2 \(a finite number, an integer\)"),
        ("pair", 1, r"a list of 2 \(a finite number, an integer\)"),
        ("grid", [1], "a list, each item a list, each item an integer"),
        ("grid", [["1"]], "a list, each item a list, each item an integer"),
        ("table", [], "a table of settings"),
    ],
)
def test_values_of_another_type_raise_an_error(name: str, value: object, allowed: str) -> None:
    with pytest.raises(ConfigError, match=rf"^Kinds\.{name}=.* must be {allowed}\.$"):
        from_dict(Kinds, {name: value})


@dataclass(frozen=True)
class Renamed:
    RENAMED: ClassVar[dict[str, str]] = {"colour": "hue"}
    hue: int = 0


def test_former_names_of_settings_are_translated() -> None:
    assert from_dict(Renamed, {"colour": 3}) == from_dict(Renamed, {"hue": 3}) == Renamed(3)


def test_recipes_that_cannot_be_read_raise_an_error_with_the_file_name(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    with pytest.raises(InputError, match="There is no recipe file"):
        from_recipe(path, dict)
    path.write_text("width = ")
    with pytest.raises(ConfigError, match=r"recipe\.toml' is not a TOML file"):
        from_recipe(path, dict)
    path.write_text("width = 'wide'")
    with pytest.raises(ConfigError, match=r"^Recipe '.*recipe\.toml': Sample\.width='wide' must be an integer\.$"):
        from_recipe(path, partial(from_dict, Sample))


def test_configurations_of_models_are_frozen() -> None:
    for model in MODELS.values():
        assert model.Config.__dataclass_params__.frozen
