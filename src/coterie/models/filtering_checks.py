"""What configurations of filtering networks refuse alike."""

from collections.abc import Mapping
from typing import Protocol

from coterie.errors import ConfigError


class Described(Protocol):
    """What is checked of a configuration beyond its single settings."""

    @property
    def n_features(self) -> int:
        """D."""

    @property
    def density(self) -> str:
        """What describes the points of a cluster."""

    @property
    def principal(self) -> int:
        """Principal directions of a set that its encoded points are seen along."""

    @property
    def principal_beside(self) -> bool:
        """Whether points are then seen as they are too."""

    @property
    def turns(self) -> int:
        """Sides that clusters with a flow are described from."""


def check_settings(config: Described, least: Mapping[str, int], choices: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse numbers that are too small, words that are not known, and what needs another kind of density."""
    for name, value in least.items():
        if getattr(config, name) < value:
            raise ConfigError(f"{name}={getattr(config, name)} must be at least {value}.")
    for name, known in choices.items():
        if getattr(config, name) not in known:
            raise ConfigError(f"{name}={getattr(config, name)!r} is not known; use {' or '.join(known)}.")
    if config.turns > 1 and (config.n_features != 2 or config.density != "flow"):
        raise ConfigError(
            f"turns={config.turns} is for flows of 2 features; this is a {config.density!r} density of "
            f"{config.n_features}. Use turns=1."
        )
    if config.principal and config.density != "none":
        raise ConfigError(
            f"principal={config.principal} is for sets without a density; density={config.density!r} would describe "
            "points as they are. Use density='none'."
        )
    if config.principal_beside and not config.principal:
        raise ConfigError("principal_beside=True is for points that are seen along directions; set principal too.")
