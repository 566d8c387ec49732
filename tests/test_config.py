"""Configurations to and from plain values."""

import json
from dataclasses import dataclass, field

import pytest

from coterie.config import from_dict, to_dict
from coterie.errors import ConfigError
from coterie.models import MODELS
from coterie.models.clam import ClamConfig
from coterie.training import TrainConfig


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


def test_configurations_of_models_are_frozen() -> None:
    for model in MODELS.values():
        assert model.Config.__dataclass_params__.frozen
