"""Set Transformer for mixtures of Gaussians (Lee, Lee, Kim, Kosiorek, Choi & Teh, 2019, section 5.3).

One pass turns a set into the parameters of a mixture of a fixed number of Gaussians. The labels of training sets are
not used: the network learns to make its mixtures likely. A point belongs to the component that it is most probably of.

Letters: B sets, N points, D features, K components, H hidden.
"""

from dataclasses import dataclass
from typing import Literal, final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from coterie.errors import ConfigError
from coterie.models.mixture import MixtureModel, mean_surprise
from coterie.nn.attention import PMA, SAB, AttentionConfig, ISABStack
from coterie.nn.density import GaussianHead
from coterie.ops.mixture import Mixtures
from coterie.structures import Loss, TaskBatch


@dataclass(frozen=True, slots=True)
class SetTransformerConfig:
    """Shape of a Set Transformer; the defaults are those of our DAC, ``faithful`` gives the published ones."""

    n_features: int
    """D."""
    n_components: int = 4
    """K."""
    covariance: Literal["diagonal", "isotropic"] = "diagonal"
    """Whether a component has one standard deviation for each feature or one for all."""
    width: int = 64
    """H."""
    heads: int = 4
    """Parts that the width is split into."""
    inducing: int = 16
    """Inducing points of each layer of the encoder."""
    depth: int = 4
    """Layers of the encoder."""
    decoder_depth: int = 2
    """Layers in which the components see each other."""
    layer_norm: bool = True
    """Whether attention blocks normalise."""
    scale: Literal["head", "model"] = "head"
    """Width whose root divides attention's logits."""

    def __post_init__(self) -> None:
        for name in ("n_features", "n_components", "depth", "decoder_depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.covariance not in {"diagonal", "isotropic"}:
            raise ConfigError(f"covariance={self.covariance!r} is not known; use diagonal or isotropic.")

    @classmethod
    def faithful(cls, n_features: int, *, n_components: int = 4) -> "SetTransformerConfig":
        """Network of the published experiments."""
        return cls(
            n_features,
            n_components,
            covariance="isotropic",
            width=128,
            inducing=32,
            depth=2,
            decoder_depth=2,
            layer_norm=False,
            scale="model",
        )


@final
class SetTransformerModel(MixtureModel):
    """The network that turns sets into mixtures."""

    Config = SetTransformerConfig
    config: SetTransformerConfig

    def __init__(self, config: SetTransformerConfig) -> None:
        super().__init__()
        self.config = config
        attention = AttentionConfig(
            config.width, config.heads, config.inducing, layer_norm=config.layer_norm, scale=config.scale
        )
        self.encoder = ISABStack(config.n_features, config.depth, attention)
        self.pool = PMA(config.width, config.n_components, attention)
        self.decoder = nn.Sequential(*(SAB(config.width, attention) for _ in range(config.decoder_depth)))
        self.component = GaussianHead(config.n_features)
        widths = config.n_features if config.covariance == "diagonal" else 1
        self.head = nn.Linear(config.width, 1 + config.n_features + widths)

    def find(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Mixtures:
        """Mixture that the network describes each set by."""
        hidden, _ = self.encoder(x.masked_fill(~valid.unsqueeze(2), 0.0), valid)
        share, mean, width = self.head(self.decoder(self.pool(hidden, valid))).split(
            [1, self.config.n_features, self.head.out_features - 1 - self.config.n_features], dim=2
        )
        parameters = torch.cat([mean, width.expand_as(mean)], dim=2)
        return Mixtures(share.squeeze(2).log_softmax(dim=1), *self.component.parameters_of(parameters))

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:  # noqa: ARG002  (nothing is drawn)
        """Minus the mean log-likelihood of the points; labels play no part."""
        return Loss(mean_surprise(self.find(batch.x, batch.valid), batch.x, batch.valid))
