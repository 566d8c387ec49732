"""Configuration of an AMCP network."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from coterie.amortized.amcp.mixing import Kernel, References
from coterie.amortized.filtering import UNLIMITED, FilteringConfig
from coterie.errors import ConfigError
from coterie.nn.density import Density
from coterie.validation import BOOLEAN, Choice, Constraints, Integer, Number

EStep = Literal["regular", "transport"]


@dataclass(frozen=True, slots=True)
class AmcpConfig(FilteringConfig):
    """Configuration of an AMCP network; the defaults are ours, ``faithful`` is as close as the appendix permits."""

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = FilteringConfig.CONSTRAINTS | {
        "density": Choice("gaussian", "flow", "none"),
        "decoding": Choice("robust", "faithful"),
        "hidden": Integer(1),
        "depth": Integer(1),
        "em_steps": Integer(0),
        "e_step": Choice(*get_args(EStep)),
        "sinkhorn_steps": Integer(1),
        "kernel": Choice(*get_args(Kernel)),
        "references": Choice(*get_args(References)),
        "rate": Number(0.0),
        "prior_strength": Number(0.0),
        "dropout": Number(0.0, 1.0),
        "update_previous": BOOLEAN,
        "nll_weight": Number(0.0),
        "prefixes_per_set": Integer(0),
        "leftover_fraction": Number(0.0, 1.0),
    }
    RENAMED: ClassVar[dict[str, str]] = FilteringConfig.RENAMED | {
        "surprise_weight": "nll_weight",
        "moments": "prefixes_per_set",
        "strays": "leftover_fraction",
    }

    hidden: int = 128  # H, hidden width of all networks
    depth: int = 2  # hidden layers between the features of a point and its embedding
    em_steps: int = 3  # T, E- and M-steps per pass; with none, the reference stays where coupling put it
    e_step: EStep = "regular"
    """Whether the proportions of the references are a prior ("regular") or are enforced by optimal transport."""
    sinkhorn_steps: int = 10  # L, Sinkhorn iterations of a transport E-step
    kernel: Kernel = "quadratic"
    """Score of a point with a reference: minus half the squared distance, a bilinear form, or the distance plus a
    network."""
    references: References = "means"
    """Whether references are means of points, with the M-step in closed form, or are decoded by a network, with an
    M-step of one gradient step."""
    rate: float = 1.0  # step size of the gradient M-step
    prior_strength: float = 1.0  # number of points that the initial reference counts as in the closed-form M-step
    dropout: float = 0.0  # dropout in the network that decodes references, before every layer except the last
    update_previous: bool = False  # AMCP*: whether points may move between the clusters found so far after every pass
    nll_weight: float = 1.0
    """Weight of the density's negative log-likelihood in the loss: the inverse of the published lambda."""
    prefixes_per_set: int = 1
    """Random prefixes of the sequence of clusters that a training set contributes per step; 0 trains on the whole
    sequence, as published."""
    leftover_fraction: float = 0.0
    """Largest fraction of the points of found clusters that training leaves unassigned, as passes leave some: so that
    the network does not start a cluster with them. They are assigned to the clusters found."""

    def __post_init__(self) -> None:
        FilteringConfig.__post_init__(self)
        for name in ("dropout", "leftover_fraction"):
            if getattr(self, name) == 1:
                raise ConfigError(f"{name}=1 must be below 1.")
        if self.prior_strength == 0 and self.references == "means":
            raise ConfigError("prior_strength=0 leaves a reference without points undefined; use a small number.")

    @classmethod
    def faithful(cls, n_features: int, *, width: int = 2, density: Density = "gaussian") -> "AmcpConfig":
        """Return the network of the appendix: decoded references, gradient M-steps, transport with ten iterations.

        References have ``width`` numbers: 2 for points in the plane, 512 for images.
        """
        return cls(
            n_features,
            width=width,
            em_steps=5,
            e_step="transport",
            references="decoded",
            dropout=0.05,
            density=density,
            prefixes_per_set=0,
            decoding="faithful",
            max_points=UNLIMITED,
        )
