"""What methods that contrast views look through: an encoder, and a projection onto a sphere.

Letters: N rows, D numbers of a row, F features of the encoder, E numbers of the projection.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from coterie.errors import ConfigError
from coterie.nn.vision import ElementEncoder, Encoder


@dataclass(frozen=True, slots=True)
class TowerConfig:
    """Shape of a tower, and how many clusters stand on it: what the settings of all such methods begin with."""

    n_features: int
    """D."""
    n_clusters: int
    """K."""
    encoder: Encoder = "strided"
    """What makes features of each row alone."""
    image: tuple[int, int, int] | None = None
    """Channels, height and width, where rows are images."""
    channels: int = 32
    """Width of the encoder."""
    hidden: int = 256
    """Hidden numbers of the projection; 0 for a projection that is linear, as published."""
    width: int = 128
    """E."""

    def check_tower(self) -> None:
        """Refuse numbers that no tower can have."""
        self.check_at_least(n_clusters=1, channels=1, hidden=0, width=1)

    def check_room_for_prototypes(self) -> None:
        """Refuse a sphere on which as many prototypes as there are clusters cannot be equally far apart."""
        if self.width < self.n_clusters - 1:
            raise ConfigError(
                f"width={self.width} is too small for n_clusters={self.n_clusters} prototypes that are equally far "
                "apart at first; raise width."
            )

    def check_at_least(self, **least: int) -> None:
        """Refuse settings that are below what is given by their names."""
        for name, lowest in least.items():
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {lowest}.")

    def check_above_zero(self, *names: str) -> None:
        """Refuse settings that something is divided by, if they are not above zero."""
        for name in names:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0.")

    def check_share(self, name: str) -> None:
        """Refuse a setting that is no share of a whole."""
        if not 0 <= getattr(self, name) <= 1:
            raise ConfigError(f"{name}={getattr(self, name)} must be from 0 to 1.")


def head(features: int, hidden: int, width: int) -> nn.Sequential:
    """What stands on an encoder: one hidden layer, or none if it has no width."""
    layers = [nn.Linear(features, hidden), nn.ReLU()] if hidden else []
    return nn.Sequential(*layers, nn.Linear(hidden or features, width))


class Tower(nn.Module):
    """From rows to unit vectors."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.encoder = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        self.projection = head(self.encoder.out_width, config.hidden, config.width)

    def encoded(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Features, for others to use."""
        features: Tensor = self.encoder(x.unsqueeze(0))[0]
        return features

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Where rows are on the sphere."""
        return self.projected(self.encoded(x))

    def projected(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N E"]:
        """The same, of rows whose features are known already."""
        return normalize(self.projection(features), dim=1)


@torch.no_grad()
def follow(twin: nn.Module, online: nn.Module, momentum: float) -> None:
    """Move the parameters of a twin a little towards those of the module that it follows."""
    for behind, ahead in zip(twin.parameters(), online.parameters(), strict=True):
        behind.lerp_(ahead, 1.0 - momentum)


def twin_of(online: nn.Module, twin: nn.Module) -> nn.Module:
    """The twin, as the other is now, and without a gradient."""
    twin.load_state_dict(online.state_dict())
    return twin.requires_grad_(requires_grad=False)
