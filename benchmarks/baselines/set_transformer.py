"""Set Transformer for mixtures of Gaussians (Lee, Lee, Kim, Kosiorek, Choi & Teh, 2019, section 5.3).

One pass maps a set to the parameters of a mixture of a fixed number of Gaussians. Labels of training sets are not used:
the network is trained by maximum likelihood. A point belongs to its most probable component.

Letters: B sets, N points, D features, K components, H hidden.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, one_hot

from coterie.errors import ConfigError
from coterie.nn.attention import MAB, PMA, SAB, AttentionConfig, ISABStack
from coterie.nn.density import GaussianHead
from coterie.nn.model import Loss, SetModel, TaskBatch
from coterie.ops.gaussian_mixtures import diagonal_log_prob, mixture_log_joint
from coterie.ops.partitions import Clustering


class Mixtures(NamedTuple):
    """One mixture per set; absent components have the weight zero."""

    log_share: Float[Tensor, "B K"]
    mean: Float[Tensor, "B K D"]
    deviation: Float[Tensor, "B K D"]

    def joint(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N K"]:
        """Compute log(weight x density) of every point and component."""
        return self.log_share.unsqueeze(1) + diagonal_log_prob(x, self.mean, self.deviation)

    def clusterings(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> list[Clustering]:
        """Assign each point to its most probable component; components without points are dropped."""
        joint = self.joint(x.masked_fill(~valid.unsqueeze(2), 0.0))
        return [_clustering(joint[i], valid[i], *(part[i] for part in self)) for i in range(len(x))]


def _clustering(
    joint: Float[Tensor, "N K"],
    valid: Bool[Tensor, " N"],
    log_share: Float[Tensor, " K"],
    mean: Float[Tensor, "K D"],
    deviation: Float[Tensor, "K D"],
) -> Clustering:
    """Build the clustering by components that win a point, the largest first; their weights sum to one."""
    winner = joint.argmax(dim=1)
    sizes = winner[valid].bincount(minlength=joint.shape[1])
    order = sizes.argsort(descending=True, stable=True)
    kept = order[: int((sizes > 0).sum())]
    return Clustering(
        labels=torch.where(valid, order.argsort()[winner], -1),
        n_clusters=len(kept),
        probabilities=joint[:, kept].softmax(dim=1) * valid.unsqueeze(1),
        extras={"mean": mean[kept], "deviation": deviation[kept], "log_share": log_share[kept].log_softmax(dim=0)},
    )


class MixtureModel(SetModel, ABC):
    """Base of models that predict a mixture for each set; components that own points are its clusters."""

    @abstractmethod
    def find(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Mixtures:
        """Predict the mixture of each set."""

    @torch.no_grad()
    def cluster_sets(
        self,
        x: Float[Tensor, "B N D"],
        valid: Bool[Tensor, "B N"],
        generator: Generator,  # noqa: ARG002  (deterministic)
    ) -> list[Clustering]:
        """Assign each point to its most probable component; drop components without points."""
        return self.find(x, valid).clusterings(x, valid)

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Compute the posterior probabilities of the components of a clustering."""
        return mixture_log_joint(x, found.extras).softmax(dim=1)


def mean_nll(mixtures: Mixtures, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, ""]:
    """Compute the negative log-likelihood per point, averaged over points and then over sets."""
    log_density = mixtures.joint(x.masked_fill(~valid.unsqueeze(2), 0.0)).logsumexp(dim=2) * valid
    return -(log_density.sum(dim=1) / valid.sum(dim=1).clamp(min=1)).mean()


@dataclass(frozen=True, slots=True)
class SetTransformerConfig:
    """Configuration of a Set Transformer; the defaults are those of our DAC, ``faithful`` has the published ones."""

    n_features: int  # D
    n_components: int = 4  # K
    covariance: Literal["diagonal", "isotropic"] = "diagonal"
    """Whether a component has a standard deviation per feature or a single one."""
    width: int = 64  # H
    heads: int = 4  # attention heads
    inducing: int = 16  # inducing points of each encoder layer
    depth: int = 4  # layers of the encoder
    decoder_depth: int = 2  # self-attention layers of the components
    layer_norm: bool = True  # whether attention blocks use layer normalisation
    scale: Literal["head", "model"] = "head"  # width whose square root divides the attention logits

    def __post_init__(self) -> None:
        for name in ("n_features", "n_components", "depth", "decoder_depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.covariance not in {"diagonal", "isotropic"}:
            raise ConfigError(f"covariance={self.covariance!r} is not known; use diagonal or isotropic.")

    @classmethod
    def faithful(cls, n_features: int, *, n_components: int = 4) -> "SetTransformerConfig":
        """Return the published configuration."""
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
    """A network from sets to mixtures."""

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
        """Predict the mixture of each set."""
        hidden, _ = self.encoder(x.masked_fill(~valid.unsqueeze(2), 0.0), valid)
        share, mean, width = self.head(self.decoder(self.pool(hidden, valid))).split(
            [1, self.config.n_features, self.head.out_features - 1 - self.config.n_features], dim=2
        )
        parameters = torch.cat([mean, width.expand_as(mean)], dim=2)
        return Mixtures(share.squeeze(2).log_softmax(dim=1), *self.component.parameters_of(parameters))

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Compute the mean negative log-likelihood; labels are not used."""
        return Loss(mean_nll(self.find(batch.x, batch.valid), batch.x, batch.valid))


@dataclass(frozen=True, slots=True)
class ActStConfig:
    """Configuration of ACT-ST; the defaults are those of our DAC, ``faithful`` has the published ones."""

    n_features: int  # D
    max_clusters: int = 4  # largest mixture whose stopping is trained; more if a training set has more clusters
    most_clusters: int = 20  # largest mixture that clustering may end with
    width: int = 64  # H
    heads: int = 4  # attention heads
    inducing: int = 16  # inducing points of each encoder layer
    depth: int = 4  # layers of the encoder
    decoder_depth: int = 2  # self-attention layers of the components
    tie_blocks: bool = False  # whether all layers of a stack except the first share their weights
    layer_norm: bool = True  # whether attention blocks use layer normalisation
    scale: Literal["head", "model"] = "head"  # width whose square root divides the attention logits

    def __post_init__(self) -> None:
        for name in ("n_features", "max_clusters", "most_clusters", "depth", "decoder_depth"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1.")

    @classmethod
    def faithful(cls, n_features: int, *, max_clusters: int = 4) -> "ActStConfig":
        """Return the published configuration."""
        return cls(
            n_features,
            max_clusters=max_clusters,
            width=128,
            inducing=32,
            depth=4,
            decoder_depth=4,
            tie_blocks=True,
            layer_norm=False,
            scale="model",
        )


@final
class ActStModel(MixtureModel):
    """A network that predicts mixtures of growing size, and when to stop."""

    Config = ActStConfig
    config: ActStConfig

    def __init__(self, config: ActStConfig) -> None:
        super().__init__()
        self.config = config
        attention = AttentionConfig(
            config.width, config.heads, config.inducing, layer_norm=config.layer_norm, scale=config.scale
        )
        self.encoder = ISABStack(config.n_features, config.depth, attention, tied=config.tie_blocks)
        self.first_seed = nn.Parameter(nn.init.xavier_uniform_(torch.empty(1, config.width)))
        self.next_seed = PMA(config.width, 1, attention)
        self.look = MAB(config.width, config.width, attention)
        distinct = min(config.decoder_depth, 2) if config.tie_blocks else config.decoder_depth
        self.decoder = nn.ModuleList(SAB(config.width, attention) for _ in range(distinct))
        self.component = GaussianHead(config.n_features)
        self.head = nn.Linear(config.width, 2 + self.component.context_width)

    def describe(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], longest: int
    ) -> tuple[Float[Tensor, "B L K P"], Float[Tensor, "B L"]]:
        """Compute raw parameters of mixtures of 1 to ``longest`` components, and log p(more are needed)."""
        hidden, _ = self.encoder(x.masked_fill(~valid.unsqueeze(2), 0.0), valid)
        seen = self.look(self.seeds(longest).expand(len(x), -1, -1), hidden, valid)
        # Row k of a set holds the components of its mixture of k + 1: no component sees a later one.
        own = torch.ones((longest, longest), dtype=torch.bool, device=x.device).tril()
        slots = seen.unsqueeze(1).expand(-1, longest, -1, -1).flatten(0, 1)
        for i in range(self.config.decoder_depth):
            slots = self.decoder[min(i, len(self.decoder) - 1)](slots, own.repeat(len(x), 1))
        raw = self.head(slots).unflatten(0, (len(x), longest))
        more = (raw[..., 0] * own).sum(dim=2) / own.sum(dim=1)
        return raw[..., 1:], logsigmoid(more).cumsum(dim=1)

    def seeds(self, count: int) -> Float[Tensor, "1 K H"]:
        """Compute the seeds of the components, each from all those before it; they do not depend on the set."""
        seeds = self.first_seed.unsqueeze(0)
        for _ in range(count - 1):
            seeds = torch.cat([seeds, self.next_seed(seeds)], dim=1)
        return seeds

    def mixtures(self, raw: Float[Tensor, "B L K P"], count: Int[Tensor, " B"]) -> Mixtures:
        """Return the mixture of the given number of components of each set."""
        chosen = raw[torch.arange(len(raw), device=raw.device), count - 1]
        absent = torch.arange(chosen.shape[1], device=raw.device) >= count.unsqueeze(1)
        mean, deviation = self.component.parameters_of(chosen[..., 1:])
        return Mixtures(chosen[..., 0].masked_fill(absent, -torch.inf).log_softmax(dim=1), mean, deviation)

    def find(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Mixtures:
        """Predict the smallest mixture that is more probably large enough than not (Eq. 11)."""
        raw, log_continue = self.describe(x, valid, self.config.most_clusters)
        goes_on = (log_continue.exp() >= 0.5).sum(dim=1)
        return self.mixtures(raw, (goes_on + 1).clamp(max=self.config.most_clusters))

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:  # noqa: ARG002  (deterministic)
        """Sum the negative log-likelihood of the mixture of the true size and the stopping loss (Eq. 12)."""
        present = one_hot(batch.labels.masked_fill(~batch.valid, 0))
        count = (present.bool() & batch.valid.unsqueeze(2)).any(dim=1).sum(dim=1).clamp(min=1)
        raw, log_continue = self.describe(batch.x, batch.valid, longest=max(self.config.max_clusters, int(count.max())))
        nll = mean_nll(self.mixtures(raw, count), batch.x, batch.valid)
        # A probability that rounds to one would have no finite cross-entropy.
        log_continue = log_continue.clamp(max=-torch.finfo(log_continue.dtype).tiny)
        log_stop = (-torch.expm1(log_continue)).log()
        needed = torch.arange(1, raw.shape[1] + 1, device=raw.device) < count.unsqueeze(1)
        stopping = -torch.where(needed, log_continue, log_stop).sum(dim=1).mean()
        parts = {"nll": float(nll.detach()), "stopping": float(stopping.detach())}
        return Loss(nll + stopping, parts)
