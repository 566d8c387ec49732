"""Configurations of the networks: rejected settings, and former names in weight files."""

from typing import Any

import pytest

from coterie.amortized.abc.config import AttentionBasedConfig
from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.dac.config import DacConfig
from coterie.config import from_dict, to_dict
from coterie.errors import ConfigError
from coterie.validation import Integer, Number

CONFIGS = (DacConfig, AmcpConfig, AttentionBasedConfig)
UNCHECKED = {"image"}  # checked by the encoder that reads it


@pytest.mark.parametrize("config", CONFIGS)
def test_every_setting_is_checked(config: Any) -> None:
    settings = to_dict(config(2))
    assert settings.keys() == config.CONSTRAINTS.keys() | UNCHECKED
    for name, constraints in config.CONSTRAINTS.items():
        for constraint in constraints if isinstance(constraints, tuple) else (constraints,):
            wrong: list[Any] = ["other"]
            if isinstance(constraint, Integer | Number):
                wrong += [True, float("nan"), (constraint.minimum or 0) - 1]
            for value in wrong:
                with pytest.raises(ConfigError, match=f"{name}=.* must be"):
                    config(**{"n_features": 2, name: value})


@pytest.mark.parametrize("config", CONFIGS)
def test_former_names_are_translated(config: Any) -> None:
    for former, name in config.RENAMED.items():
        value = to_dict(config(2))[name]
        assert from_dict(config, {"n_features": 2, former: value}) == config(2)


@pytest.mark.parametrize("config", [DacConfig, AmcpConfig])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"density": "gaussian", "encoder": "mlp"}, "density='gaussian' describes the points themselves"),
        ({"density": "gaussian", "rotations": 4}, "rotations=4 needs density='flow'"),
        ({"density": "flow", "n_features": 3, "rotations": 4}, "rotations=4 needs density='flow' and n_features=2"),
        ({"density": "gaussian", "n_principal_axes": 2}, "n_principal_axes=2 needs density='none'"),
        ({"density": "none", "keep_features": True}, "keep_features=True needs n_principal_axes"),
    ],
)
def test_settings_that_contradict_each_other_are_rejected(config: Any, settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**({"n_features": 2} | settings))


@pytest.mark.parametrize("settings", [{"filtering": "anchored"}, {"density": "none"}], ids=str)
def test_kernel_decoding_needs_anchors_and_no_density(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="decoding='kernel' needs filtering='anchored' and density='none'"):
        DacConfig(2, decoding="kernel", **settings)
    assert DacConfig(2, decoding="kernel", filtering="anchored", density="none").decoding == "kernel"


@pytest.mark.parametrize(
    "settings",
    [{"dropout": 1.0}, {"leftover_fraction": 1.0}, {"prior_strength": 0}, {"density": "statistician"}],
    ids=str,
)
def test_settings_that_amcp_alone_rejects(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        AmcpConfig(2, **settings)
