"""Configuration of an attention-based clustering network."""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from coterie.errors import ConfigError
from coterie.nn.vision import Encoder
from coterie.validation import BOOLEAN, NONE, Choice, Constraints, Integer, Number, check_parameters

Compatibility = Literal["multiplicative", "additive"]
Decoding = Literal["linkage", "contraction", "eigengap"]


@dataclass(frozen=True, slots=True)
class AttentionBasedConfig:
    """Configuration of an ABC network; the defaults are ours, ``faithful`` gives the published ones."""

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
        "n_features": Integer(1),
        "encoder": Choice(*get_args(Encoder)),
        "channels": Integer(1),
        "views": Integer(1),
        "width": Integer(1),
        "heads": Integer(1),
        "depth": Integer(0),
        "compatibility": Choice(*get_args(Compatibility)),
        "scale": Choice("head", "model", "none"),
        "residual": Choice("input", "gated"),
        "feed_forward": Choice("relu", "linear"),
        "output_map": BOOLEAN,
        "symmetrise": Choice("logit", "probability"),
        "offset": BOOLEAN,
        "pos_weight": Number(0.0, exclusive=True),
        "decoding": Choice(*get_args(Decoding)),
        "threshold": Number(0.0, 1.0, exclusive=True),
        "min_cluster_size": Integer(1),
        "local_moves": BOOLEAN,
        "n_clusters": (Integer(1), NONE),
        "max_points": Integer(1),
    }
    RENAMED: ClassVar[dict[str, str]] = {
        "decode": "decoding",
        "cut": "threshold",
        "smallest": "min_cluster_size",
        "climb": "local_moves",
    }
    """Former names, which weight files of earlier versions have."""

    n_features: int  # D
    encoder: Encoder = "identity"  # network that encodes each element by itself
    image: tuple[int, int, int] | None = None  # channels, height and width, if elements are images
    channels: int = 64  # width of the encoder
    views: int = 1
    """Slightly distorted views of an image whose encodings are averaged when clustering; training uses one."""
    width: int = 128  # H
    heads: int = 4  # attention heads
    depth: int = 2  # self-attention blocks; 0 compares pairs without context, the published ablation
    compatibility: Compatibility = "multiplicative"
    """Compatibility function of queries and keys, in attention and in the kernel."""
    scale: Literal["head", "model", "none"] = "head"  # width whose square root divides the attention logits
    residual: Literal["input", "gated"] = "input"
    """Whether attention is added to a point, or mixed with it in learned proportions."""
    feed_forward: Literal["relu", "linear"] = "relu"  # activation after the linear map of a block
    output_map: bool = True  # whether the concatenated heads pass a linear map
    symmetrise: Literal["logit", "probability"] = "logit"
    """What is averaged over the two directions of a pair: logits (the authors' code) or probabilities (the paper)."""
    offset: bool = True
    """Whether all logits of the kernel share a learned offset, which says how rare pairs of one cluster are."""
    pos_weight: float = 1.0
    """Weight of pairs of one cluster in the loss; other than 1, the kernel is not one of probabilities."""
    decoding: Decoding = "linkage"
    """How the kernel is decoded: average linkage, greedy contraction by log-odds, or spectral clustering with the
    eigengap, as published."""
    threshold: float = 0.6  # mean probability down to which average linkage merges clusters
    min_cluster_size: int = 1
    """Points that a cluster of average linkage must have; smaller ones are merged into the most similar one."""
    local_moves: bool = False
    """Whether points then move between clusters while that raises the probabilities within them."""
    n_clusters: int | None = None  # number of clusters; None to find it from the kernel
    max_points: int = 1000
    """Points that the kernel is computed for; larger sets are subsampled, and the rest is assigned by the kernel."""

    def __post_init__(self) -> None:
        check_parameters(self, self.CONSTRAINTS, ConfigError)

    @classmethod
    def faithful(
        cls,
        n_features: int,
        *,
        compatibility: Compatibility = "multiplicative",
        encoder: Encoder = "identity",
        image: tuple[int, int, int] | None = None,
        pos_weight: float = 1.0,
    ) -> "AttentionBasedConfig":
        """Return the network, kernel and decoding of the published experiments on images."""
        return cls(
            n_features,
            encoder=encoder,
            image=image,
            compatibility=compatibility,
            scale="model",
            feed_forward="linear",
            offset=False,
            pos_weight=pos_weight,
            decoding="eigengap",
        )
