"""Configuration of a DAC network."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from coterie.amortized.filtering import UNLIMITED, FilteringConfig
from coterie.errors import ConfigError
from coterie.nn.density import Density, Likelihood
from coterie.validation import BOOLEAN, Choice, Constraints, Integer, Number


@dataclass(frozen=True, slots=True)
class DacConfig(FilteringConfig):
    """Configuration of a DAC network; the defaults are ours, ``faithful`` gives the published ones."""

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = FilteringConfig.CONSTRAINTS | {
        "anchor_position": Choice("input", "latent"),
        "anchoring": Choice("shown", "compared"),
        "anchors": Integer(1),
        "likelihood": Choice(*get_args(Likelihood)),
        "heads": Integer(1),
        "inducing": Integer(1),
        "depth": Integer(1),
        "mask_depth": Integer(1),
        "tie_blocks": BOOLEAN,
        "layer_norm": BOOLEAN,
        "scale": Choice("head", "model"),
        "threshold": Number(0.0, 1.0, exclusive=True),
        "local_moves": BOOLEAN,
    }
    RENAMED: ClassVar[dict[str, str]] = FilteringConfig.RENAMED | {"cut": "threshold", "climb": "local_moves"}

    anchor_position: Literal["input", "latent"] = "input"
    """Whether points attend to the anchor before the encoder (the authors' code) or after it (the paper)."""
    anchoring: Literal["shown", "compared"] = "shown"
    """Whether points only attend to the anchor, as published, or products of their features with its features are also
    added, without which networks for many features hardly learn which points resemble the anchor."""
    anchors: int = 1  # anchors per set and training step; with latent anchors the encoder runs once for all of them
    likelihood: Likelihood = "gaussian"
    """Likelihood of the features given the code of a "statistician"; "bernoulli" is for values from 0 to 1."""
    heads: int = 4  # attention heads
    inducing: int = 16  # M, inducing points of each ISAB
    depth: int = 4  # ISABs of the encoder
    mask_depth: int = 2  # ISABs between the cluster summary and the mask m
    tie_blocks: bool = False  # whether all blocks of a stack except the first share their weights
    layer_norm: bool = True  # whether attention blocks have layer normalisation
    scale: Literal["head", "model"] = "head"  # width whose square root divides the attention logits
    threshold: float = 0.5  # mean probability down to which average linkage merges clusters (``decoding="kernel"``)
    local_moves: bool = False
    """Whether points then move between clusters while that raises the probabilities within them."""

    def __post_init__(self) -> None:
        FilteringConfig.__post_init__(self)
        if self.decoding == "kernel" and (self.filtering != "anchored" or self.density != "none"):
            raise ConfigError(
                f"decoding='kernel' needs filtering='anchored' and density='none', not {self.filtering!r} and "
                f"{self.density!r}; use decoding='robust'."
            )

    @classmethod
    def faithful(cls, n_features: int, *, density: Density = "gaussian") -> "DacConfig":
        """Return the published network: 629,253 parameters for Gaussians in two dimensions."""
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
            max_points=UNLIMITED,
        )
