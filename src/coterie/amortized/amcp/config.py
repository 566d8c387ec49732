"""Shape and variant of an AMCP network."""

from dataclasses import dataclass
from typing import Literal, get_args

from coterie.amortized.amcp.mixing import Kernel, References
from coterie.amortized.filtering import check_settings
from coterie.errors import ConfigError
from coterie.nn.density import Density
from coterie.nn.vision import Encoder

EStep = Literal["regular", "transport"]
_CHOICES = {
    "filtering": ("min-loss", "anchored"),
    "e_step": get_args(EStep),
    "kernel": get_args(Kernel),
    "references": get_args(References),
    "density": ("gaussian", "flow", "none"),
    "decoding": ("robust", "faithful"),
}
_LEAST = {
    **dict.fromkeys(
        (
            "n_features",
            "width",
            "hidden",
            "depth",
            "context_width",
            "sinkhorn_steps",
            "smallest",
            "turns",
            "max_passes",
            "max_points",
        ),
        1,
    ),
    **dict.fromkeys(("em_steps", "moments", "principal", "prior_strength", "rate", "surprise_weight"), 0),
}


@dataclass(frozen=True, slots=True)
class AmcpConfig:
    """Shape and variant of an AMCP network; the defaults are ours, ``faithful`` is as near as the appendix lets us."""

    n_features: int
    """D."""
    encoder: Encoder = "identity"
    """What makes features of each element alone, before anything else."""
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
    """Whether the network chooses the next cluster, or a point that is left says which one is wanted."""
    width: int = 64
    """E: numbers that points and references are compared by."""
    hidden: int = 128
    """H: hidden numbers of all networks."""
    depth: int = 2
    """Hidden layers between the features of a point and what it is compared by."""
    em_steps: int = 3
    """T: steps of expectation and maximisation in every pass; with none, the proposal is the reference."""
    e_step: EStep = "regular"
    """Whether shares are only expected of the references, or are what each must get."""
    sinkhorn_steps: int = 10
    """L: of the latter."""
    kernel: Kernel = "quadratic"
    """How points and references are compared: by distance, by a product, or by a network on top of the distance."""
    references: References = "means"
    """Whether references are means of points, with maximisation in closed form, or squashed numbers that a network
    decodes into means, with maximisation by one step along the gradient."""
    rate: float = 1.0
    """Of that step."""
    prior_strength: float = 1.0
    """Points that the proposal counts as in the closed form."""
    dropout: float = 0.0
    """Before each layer but the last of the network that decodes references."""
    update_previous: bool = False
    """AMCP*: whether points of the clusters that are found may move between them after every pass."""
    density: Density = "gaussian"
    """What describes the points of a cluster, if anything; only of points as they are."""
    surprise_weight: float = 1.0
    """What its term of the loss is multiplied by: one over the published lambda."""
    context_width: int = 64
    """P, where the density leaves it open."""
    moments: int = 1
    """Moments of its clustering that a training set is looked at in a step, by chance; 0 is one after the other from
    the first cluster to the last, as published."""
    strays: float = 0.0
    """Largest share of the points of found clusters that are left over in training, as passes leave some: so that no
    cluster is begun with them, and passes end when nothing else is left. They go to the clusters found."""
    decoding: Literal["robust", "faithful"] = "robust"
    """Whether clusters are put right once they are found, or left as the passes made them."""
    smallest: int = 1
    """Points that a cluster must have where there is no density; those of smaller ones go to the others."""
    turns: int = 1
    """Sides that clusters with a flow are described from in the end, in the plane: for tasks without a direction."""
    max_passes: int = 50
    """Passes after which the points that are left join other clusters."""
    max_points: int = 500
    """Points of a set that are filtered; where there are more, as many are drawn, and what was found takes the rest."""

    def __post_init__(self) -> None:
        check_settings(self, _LEAST, _CHOICES)
        for name in ("dropout", "strays"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 0 and below 1.")
        if self.prior_strength == 0 and self.references == "means":
            raise ConfigError("prior_strength=0 leaves a reference without points nowhere; use a small number.")
        if self.encoder != "identity" and self.density != "none":
            raise ConfigError(
                f"density={self.density!r} describes points as they are, not what encoder={self.encoder!r} is for; "
                "use density='none'."
            )

    @classmethod
    def faithful(cls, n_features: int, *, width: int = 2, density: Density = "gaussian") -> "AmcpConfig":
        """All that the appendix says: decoded references, gradient steps, optimal transport with ten of Sinkhorn's.

        References have as many numbers as ``width``: 2 for points in the plane, 512 for images.
        """
        return cls(
            n_features,
            width=width,
            em_steps=5,
            e_step="transport",
            references="decoded",
            dropout=0.05,
            density=density,
            moments=0,
            decoding="faithful",
            max_points=1_000_000,
        )
