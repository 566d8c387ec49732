"""Configuration of TCC: the encoder, the losses, and the published values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final, get_args

from coterie.config import from_dict
from coterie.errors import ConfigError
from coterie.nn.vision import Encoder
from coterie.validation import FRACTION, Choice, Constraints, Integer, Number, check_parameters

POSITIVE = Number(0.0, exclusive=True)
Aggregation = Literal["probabilities", "gumbel"]
Balance = Literal["per_sample", "marginal"]


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Encoder, projection head and number of clusters: the part that all contrastive models share."""

    RENAMED: ClassVar[Mapping[str, str]] = {"hidden": "projection_hidden", "width": "embedding_dim"}
    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
        **dict.fromkeys(("n_clusters", "channels", "embedding_dim"), Integer(1)),
        "projection_hidden": Integer(0),
    }
    HAS_PROTOTYPES: ClassVar[bool] = True  # whether K equidistant prototypes must fit on the sphere of the embeddings

    n_features: int  # D
    n_clusters: int  # K
    encoder: Encoder = "strided"  # architecture of the encoder
    image: tuple[int, int, int] | None = None  # channels, height and width, if rows are images
    channels: int = 32  # width of the encoder
    projection_hidden: int = 256  # hidden units of the projection head; 0 for a linear one, as published
    embedding_dim: int = 128  # E, the dimension of the embedding f(x)

    def __post_init__(self) -> None:
        check_parameters(self, self.CONSTRAINTS, ConfigError)
        if self.HAS_PROTOTYPES and self.embedding_dim < self.n_clusters - 1:
            raise ConfigError(
                f"embedding_dim={self.embedding_dim} is too small for n_clusters={self.n_clusters} equidistant "
                f"prototypes. Use at least {self.n_clusters - 1}."
            )


@final
@dataclass(frozen=True, slots=True)
class TccConfig(EncoderConfig):
    """Configuration of a TCC model; the defaults are ours, ``PUBLISHED`` has those of the paper."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        **EncoderConfig.RENAMED,
        "sharpness": "assignment_temperature", "relaxation": "gumbel_temperature",
        "memory": "queue_size", "rounds": "cluster_queue_size", "in_batch": "in_batch_negatives",
        "sees_rows": "condition_on_x", "representation": "aggregation", "perturbed": "cluster_noise",
        "even": "balance", "even_weight": "balance_weight",
        "assigned_weight": "sinkhorn_weight", "assigned_temperature": "sinkhorn_epsilon",
    }  # fmt: skip
    RENAMED_VALUES: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "representation": {"draws": "gumbel"},
        "even": {"rows": "per_sample", "shares": "marginal"},
    }
    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
        **EncoderConfig.CONSTRAINTS,
        **dict.fromkeys(("temperature", "cluster_temperature", "assignment_temperature"), POSITIVE),
        **dict.fromkeys(("gumbel_temperature", "sinkhorn_epsilon"), POSITIVE),
        **dict.fromkeys(("cluster_noise", "cluster_weight", "balance_weight", "sinkhorn_weight"), Number(0.0)),
        **dict.fromkeys(("queue_size", "cluster_queue_size"), Integer(0)),
        "momentum": FRACTION,
        "aggregation": Choice(*get_args(Aggregation)),
        "balance": Choice(*get_args(Balance)),
    }

    temperature: float = 0.5  # of the instance-level InfoNCE loss; low values push apart rows of the same cluster
    cluster_temperature: float = 0.5  # temperature of the cluster-level InfoNCE loss
    assignment_temperature: float = 0.1  # softmax temperature of pi(k) = softmax(f(x) . mu_k / temperature).
    gumbel_temperature: float = 0.5  # lambda, the temperature of the Gumbel-softmax sample c
    momentum: float = 0.9  # decay of the momentum encoder; with a queue of old keys it should be closer to 1
    queue_size: int = 0  # past instance keys that serve as negatives; in small data sets many would be false ones
    cluster_queue_size: int = 20  # past batches whose K cluster representations serve as negatives
    in_batch_negatives: bool = True  # whether the other keys of the batch are negatives too
    condition_on_x: bool = True  # whether p(i | x, c) depends on x (Eq. 2), or on c only, as in the ablation (Eq. 5).
    aggregation: Aggregation = "probabilities"  # weights in r_k: pi (Eq. 6), or c, as in the authors' code
    cluster_noise: float = 0.1  # noise on queued cluster representations, relative to twice their length
    cluster_weight: float = 1.0  # weight of the cluster-level loss
    balance: Balance = "marginal"  # what is pulled towards uniform: pi of each sample (Eq. 2), or its mean
    balance_weight: float = 1.0  # weight of that KL divergence
    sinkhorn_weight: float = 1.0  # of the cross-entropy with balanced momentum assignments; published: 0
    sinkhorn_epsilon: float = 0.05  # temperature of these assignments

    @classmethod
    def from_values(cls, *values: Mapping[str, Any]) -> "TccConfig":
        """Build a configuration from dictionaries, later ones first; former names and values are translated."""
        translated = {}
        for name, value in (item for mapping in values for item in mapping.items()):
            former = cls.RENAMED_VALUES.get(name, {})
            translated[cls.RENAMED.get(name, name)] = former[value] if value in tuple(former) else value
        return from_dict(cls, translated)


PUBLISHED: dict[str, Any] = {
    "projection_hidden": 0, "embedding_dim": 128,
    "temperature": 1.0, "cluster_temperature": 1.0, "assignment_temperature": 1.0, "gumbel_temperature": 0.3,
    "momentum": 0.999, "queue_size": 16_384, "cluster_queue_size": 20, "in_batch_negatives": False,
    "condition_on_x": True, "aggregation": "probabilities", "cluster_noise": 0.1, "cluster_weight": 1.0,
    "balance": "per_sample", "balance_weight": 1.0, "sinkhorn_weight": 0.0, "sinkhorn_epsilon": 0.05,
}  # fmt: skip
"""Settings from the paper's supplement and, where it gives none, from its authors' code."""
