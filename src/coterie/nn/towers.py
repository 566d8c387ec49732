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
        for name, least in {"n_clusters": 1, "channels": 1, "hidden": 0, "width": 1}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {least}.")


class Tower(nn.Module):
    """From rows to unit vectors."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.encoder = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        features = self.encoder.out_width
        hidden = [nn.Linear(features, config.hidden), nn.ReLU()] if config.hidden else []
        self.projection = nn.Sequential(*hidden, nn.Linear(config.hidden or features, config.width))

    def encoded(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Features, for others to use."""
        features: Tensor = self.encoder(x.unsqueeze(0))[0]
        return features

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Where rows are on the sphere."""
        return normalize(self.projection(self.encoded(x)), dim=1)


@torch.no_grad()
def follow(twin: nn.Module, online: nn.Module, momentum: float) -> None:
    """Move the parameters of a twin a little towards those of the module that it follows."""
    for behind, ahead in zip(twin.parameters(), online.parameters(), strict=True):
        behind.lerp_(ahead, 1.0 - momentum)


def twin_of(online: nn.Module, twin: nn.Module) -> nn.Module:
    """The twin, as the other is now, and without a gradient."""
    twin.load_state_dict(online.state_dict())
    return twin.requires_grad_(requires_grad=False)
