"""Shape and variant of a DAC network."""

from dataclasses import dataclass
from typing import Literal, get_args

from coterie.amortized.filtering import check_settings
from coterie.errors import ConfigError
from coterie.nn.density import Density, Likelihood
from coterie.nn.vision import Encoder

_CHOICES = {
    "filtering": ("min-loss", "anchored"),
    "anchor_position": ("input", "latent"),
    "density": get_args(Density),
    "likelihood": get_args(Likelihood),
    "scale": ("head", "model"),
    "anchoring": ("shown", "compared"),
    "decoding": ("robust", "kernel", "faithful"),
}
_LEAST = {
    **dict.fromkeys(
        (
            "n_features",
            "context_width",
            "width",
            "depth",
            "mask_depth",
            "anchors",
            "smallest",
            "turns",
            "max_passes",
            "max_points",
        ),
        1,
    ),
    "principal": 0,
}


@dataclass(frozen=True, slots=True)
class DacConfig:
    """Shape and variant of a DAC network; the defaults are ours, ``faithful`` gives the published ones."""

    n_features: int
    """D."""
    encoder: Encoder = "identity"
    """What makes features of each element alone, before sets are looked at."""
    image: tuple[int, int, int] | None = None
    """Channels, height and width, where elements are images."""
    channels: int = 64
    """Width of that encoder."""
    principal: int = 0
    """C: principal directions of a set that its encoded points are seen along, so that what is learned is the
    arrangement of clusters and not where in space those of training were; 0 for points as they are."""
    principal_beside: bool = False
    """Whether encoded points are then seen as they are too; on features that mean the same in all sets that is more."""
    filtering: Literal["min-loss", "anchored"] = "min-loss"
    """Whether the network chooses the cluster (Eq. 5) or a point says which one is wanted (Eq. 8 and 9)."""
    anchor_position: Literal["input", "latent"] = "input"
    """Whether the anchor is shown before the first encoder (the authors' code) or after it (the paper)."""
    anchoring: Literal["shown", "compared"] = "shown"
    """Whether points only see the anchor, as published, or products of their features and its are added to them:
    without these, networks for many features hardly learn to tell who is like the anchor."""
    anchors: int = 1
    """Anchors of a set that a step of training asks about; the encoder serves all of them if they are latent."""
    density: Density = "gaussian"
    """What describes the points of a cluster, if anything; of elements that are encoded, only "statistician" can."""
    likelihood: Likelihood = "gaussian"
    """What a statistician takes features for, given their code: any numbers, or chances from 0 to 1."""
    context_width: int = 64
    """P, where the density leaves it open."""
    width: int = 64
    """H."""
    heads: int = 4
    """Parts that the width is split into."""
    inducing: int = 16
    """M."""
    depth: int = 4
    """Layers of the encoder."""
    mask_depth: int = 2
    """Layers between the cluster's summary and the memberships."""
    tie_blocks: bool = False
    """Whether all layers of a stack but the first share their weights."""
    layer_norm: bool = True
    """Whether attention blocks normalise."""
    scale: Literal["head", "model"] = "head"
    """Width whose root divides attention's logits."""
    decoding: Literal["robust", "kernel", "faithful"] = "robust"
    """Whether clusters are put right after filtering, as far as the density allows, or left as the passes made them;
    "kernel", for anchors without a density, asks around every point and cuts a tree of what all say of each other."""
    cut: float = 0.5
    """Mean probability down to which that tree joins clusters."""
    smallest: int = 1
    """Points that a cluster of that tree must have; smaller ones join those that they are most probably with."""
    climb: bool = False
    """Whether points then move between these clusters, as long as that raises the probabilities within them."""
    turns: int = 1
    """Sides that clusters with a flow are described from in the end, in the plane: for tasks without a direction."""
    max_passes: int = 50
    """Passes after which the points that are left join other clusters."""
    max_points: int = 500
    """Points of a set that are filtered; where there are more, as many are drawn, and what was found takes the rest."""

    def __post_init__(self) -> None:
        check_settings(self, _LEAST, _CHOICES)
        if self.decoding == "kernel" and (self.filtering != "anchored" or self.density != "none"):
            raise ConfigError(
                f"decoding='kernel' is for filtering='anchored' and density='none', not {self.filtering!r} and "
                f"{self.density!r}; use decoding='robust'."
            )
        if not 0 < self.cut < 1:
            raise ConfigError(f"cut={self.cut} must be between 0 and 1.")
        if self.encoder != "identity" and self.density in {"gaussian", "flow"}:
            raise ConfigError(
                f"density={self.density!r} describes points as they are, not what encoder={self.encoder!r} is for; "
                "use density='none', or 'statistician' for pixels."
            )

    @classmethod
    def faithful(cls, n_features: int, *, density: Density = "gaussian") -> "DacConfig":
        """Network of the published experiments: 629,253 parameters for Gaussians in two dimensions."""
        return cls(
            n_features,
            density=density,
            context_width=128,
            width=128,
            inducing=32,
            depth=4,
            mask_depth=4,
            tie_blocks=True,
            layer_norm=False,
            scale="model",
            decoding="faithful",
            max_points=1_000_000,
        )
