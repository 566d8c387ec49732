"""TCC: twin-contrast clustering (Shen et al., 2021), after the paper's supplement and its authors' early code.

An encoder with a projection head maps an image x to an embedding f(x) on the unit sphere; its assignment probabilities
are pi(k) = softmax_k(f(x) . mu_k / temperature) with prototypes mu. Two contrastive losses compare a view with what the
momentum encoder computes from another view:

- instance level (Eq. 1 and 2): InfoNCE of the instance embedding, which depends on f(x) and on a Gumbel-softmax sample
  c of the cluster, plus a KL divergence from uniform assignments;
- cluster level: InfoNCE of the cluster representations r_k = normalise(sum_i pi_i(k) f(x_i)) (Eq. 6).

Equations are those of the supplement; the main text was not available. How x and c are combined, the loss weights and
the queue sizes are ours or from the authors' code, and configurable. Two additions are ours: k-means initialisation of
the prototypes (``set_prototypes``), and training of pi towards balanced assignments of the momentum encoder.

Shapes: N rows, D input features, E embedding dimensions, K clusters, L queue entries.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from coterie.errors import ConfigError
from coterie.nn.model import ClusterModel, Loss, ViewBatch, build, eval_mode
from coterie.nn.vision import ElementEncoder
from coterie.ops.partitions import Clustering
from coterie.tcc import losses
from coterie.tcc.config import EncoderConfig, TccConfig

INFERENCE_ROWS = 1024  # rows per block of inference
SINKHORN_STEPS = 10
FORMER_KEYS = {
    "twin.": "momentum_branch.", ".tower.projection.": ".network.projection_head.", ".tower.": ".network.",
    ".of_draw.": ".assignment_embedding.", "instances.": "instance_queue.", "clusters.": "cluster_queue.",
    "_queue.place": "_queue.pointer", "_queue.filled": "_queue.size",
}  # fmt: skip
"""Parts of state-dict keys of earlier versions, and the present ones."""


@final
class MemoryBank(nn.Module):
    """A first-in, first-out queue of past keys; part of the state dict, so that training can be resumed.

    It keeps at most ``length`` entries: (E,) for instances, (K, E) for the cluster representations of a batch.
    """

    entries: Float[Tensor, "L ..."]  # ring buffer
    pointer: Int[Tensor, ""]  # index of the next entry
    size: Int[Tensor, ""]  # number of entries so far, at most L

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        if length < 0 or min(shape, default=1) < 1:
            raise ConfigError(f"length={length} must be at least 0, and every element of shape={shape} at least 1.")
        self.register_buffer("entries", torch.zeros((length, *shape)))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self.register_buffer("size", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys: Float[Tensor, "..."]) -> None:
        """Add keys, the last one as the newest, and drop the oldest entries."""
        length, shape = len(self.entries), self.entries.shape[1:]
        if keys.ndim == 0 or keys.shape[1:] != shape:
            raise ConfigError(f"keys of shape {tuple(keys.shape)} must have entries of shape {tuple(shape)}.")
        if length == 0:
            return
        newest = keys[-length:]
        index = (self.pointer + torch.arange(len(newest), device=self.pointer.device)) % length
        self.entries[index] = newest.to(self.entries)
        self.pointer.copy_((self.pointer + len(newest)) % length)
        self.size.copy_((self.size + len(newest)).clamp(max=length))

    def contents(self) -> Float[Tensor, "F ..."]:
        """Return a copy of all entries, the oldest first; it can be differentiated after more keys are added."""
        first = self.pointer - self.size
        index = first + torch.arange(int(self.size), device=first.device)
        return self.entries[index % max(len(self.entries), 1)]


def projection_head(n_features: int, hidden: int, n_outputs: int) -> nn.Sequential:
    """Build an MLP with one hidden layer, or a linear layer if ``hidden`` is 0."""
    layers = [nn.Linear(n_features, hidden), nn.ReLU()] if hidden else []
    return nn.Sequential(*layers, nn.Linear(hidden or n_features, n_outputs))


class EmbeddingNetwork(nn.Module):
    """f: encoder, projection head and L2 normalisation."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        self.projection_head = projection_head(self.encoder.out_width, config.projection_hidden, config.embedding_dim)

    def encode(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Compute the features before the projection head."""
        features: Tensor = self.encoder(x.unsqueeze(0))[0]
        return features

    def project(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N E"]:
        """Compute embeddings from encoder features."""
        return normalize(self.projection_head(features), dim=1)

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Compute embeddings f(x)."""
        return self.project(self.encode(x))


@torch.no_grad()
def ema_update(momentum_module: nn.Module, online: nn.Module, momentum: float) -> None:
    """Update the momentum encoder: theta' <- momentum theta' + (1 - momentum) theta."""
    for average, current in zip(momentum_module.parameters(), online.parameters(), strict=True):
        average.lerp_(current, 1.0 - momentum)


def as_momentum_copy(module: nn.Module, online: nn.Module) -> nn.Module:
    """Initialise a momentum module with the online weights, and disable its gradient."""
    module.load_state_dict(online.state_dict())
    return module.requires_grad_(requires_grad=False)


class ContrastiveModel(ClusterModel[ViewBatch], ABC):
    """Base of models that learn embeddings and clusters from two views of each row."""

    config: EncoderConfig
    kmeans_init: ClassVar[bool]  # whether ``set_prototypes`` gets k-means centres of the embeddings after the warm-up
    cluster_loss_enabled: bool = True  # false during the warm-up, which trains the instance-level loss only

    @property
    @abstractmethod
    def network(self) -> EmbeddingNetwork:
        """The encoder and projection head that are trained."""

    @abstractmethod
    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute pi(k) of a batch."""

    def set_prototypes(self, centres: Float[Tensor, "K E"]) -> None:
        """Set the prototypes to the given centres."""
        raise NotImplementedError(f"{type(self).__name__} initialises its clusters itself.")

    @torch.no_grad()
    def embeddings(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Compute f(x) of all rows in eval mode."""
        with eval_mode(self):
            return torch.cat([self.network(block) for block in torch.split(x, INFERENCE_ROWS)])

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute pi(k) of all rows in eval mode."""
        with eval_mode(self):
            return torch.cat([self.assignment_probabilities(block) for block in torch.split(x, INFERENCE_ROWS)])

    @torch.no_grad()
    def cluster(self, x: Float[Tensor, "N D"], generator: Generator) -> Clustering:  # noqa: ARG002  (deterministic)
        """Assign each row to its most probable cluster; clusters may be empty."""
        probabilities = self.memberships(x)
        return Clustering(probabilities.argmax(dim=1), self.config.n_clusters, probabilities)

    @torch.no_grad()
    def collapse_metrics(self, x: Float[Tensor, "N D"]) -> dict[str, float]:
        """Return the number of empty clusters, and KL(mean pi || 1/K)."""
        probabilities = self.memberships(x)
        empty = self.config.n_clusters - len(torch.unique(probabilities.argmax(dim=1)))
        return {"empty_clusters": float(empty), "imbalance": float(losses.balance_loss(probabilities))}


class BranchOutput(NamedTuple):
    """What a branch computes from a view."""

    embedding: Float[Tensor, "N E"]  # f(x)
    cosine: Float[Tensor, "N K"]  # f(x) . mu_k
    log_pi: Float[Tensor, "N K"]
    gumbel_sample: Float[Tensor, "N K"]  # c
    instance: Float[Tensor, "N E"]  # embedding of the instance-level loss: normalise(f(x) + W c)


class Branch(nn.Module):
    """Encoder, projection head and prototypes; TCC has an online branch and a momentum branch."""

    def __init__(self, config: TccConfig) -> None:
        super().__init__()
        self.config = config
        self.network = EmbeddingNetwork(config)
        self.prototypes = nn.Parameter(losses.max_mahalanobis_centres(config.n_clusters, config.embedding_dim))  # mu
        self.assignment_embedding = nn.Linear(config.n_clusters, config.embedding_dim, bias=False)  # W
        if config.condition_on_x:
            # A random map of a random sample would outweigh f(x) at first.
            nn.init.zeros_(self.assignment_embedding.weight)

    def cosines(self, embedding: Float[Tensor, "N E"]) -> Float[Tensor, "N K"]:
        """Compute the cosines of embeddings and prototypes."""
        return embedding @ normalize(self.prototypes, dim=1).mT

    def forward(self, x: Float[Tensor, "N D"], generator: Generator) -> BranchOutput:
        """Compute f(x), pi, the Gumbel-softmax sample c and the instance embedding."""
        embedding = self.network(x)
        cosine = self.cosines(embedding)
        log_pi = (cosine / self.config.assignment_temperature).log_softmax(dim=1)
        sample = losses.gumbel_softmax(log_pi, self.config.gumbel_temperature, generator)
        instance = self.assignment_embedding(sample)
        if self.config.condition_on_x:
            instance = embedding + instance
        return BranchOutput(embedding, cosine, log_pi, sample, normalize(instance, dim=1))


@final
class TccModel(ContrastiveModel):
    """Online branch, momentum branch, instance queue and cluster queue."""

    Config: ClassVar[type[TccConfig]] = TccConfig
    config: TccConfig
    kmeans_init: ClassVar[bool] = True

    def __init__(self, config: TccConfig) -> None:
        super().__init__()
        self.config = config
        self.online = Branch(config)
        self.momentum_branch = as_momentum_copy(Branch(config), self.online)
        self.instance_queue = MemoryBank(config.queue_size, (config.embedding_dim,))
        self.cluster_queue = MemoryBank(config.cluster_queue_size, (config.n_clusters, config.embedding_dim))
        self._new_keys: list[tuple[Tensor, Tensor | None]] = []

    @property
    def network(self) -> EmbeddingNetwork:
        """The network of the online branch."""
        return self.online.network

    def assignment_probabilities(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute pi(k) = softmax(f(x) . mu_k / temperature) of a batch."""
        return (self.online.cosines(self.network(x)) / self.config.assignment_temperature).softmax(dim=1)

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:
        """Sum the instance-level and cluster-level losses, the balance term and the Sinkhorn cross-entropy."""
        config = self.config
        query: BranchOutput = self.online(batch.first, generator)
        with torch.no_grad():
            key: BranchOutput = self.momentum_branch(batch.second, generator)
        if not self.cluster_loss_enabled:
            loss = self._instance_loss(query.embedding, key.embedding)
            self._new_keys.append((key.embedding, None))
            return Loss(loss, {"instance": float(loss.detach())})
        r, key_r = self.cluster_representations(query), self.cluster_representations(key)
        per_sample = config.balance == "per_sample"
        balance = losses.kl_to_uniform(query.log_pi).mean() if per_sample else losses.balance_loss(query.log_pi.exp())
        parts = {
            "instance": self._instance_loss(query.instance, key.instance),
            "cluster": config.cluster_weight * self._cluster_loss(r, key_r, generator),
            "balance": config.balance_weight * balance,
        }
        if config.sinkhorn_weight:
            codes = losses.sinkhorn_codes(key.cosine, config.sinkhorn_epsilon, SINKHORN_STEPS)
            parts["sinkhorn"] = -config.sinkhorn_weight * (codes * query.log_pi).sum(dim=1).mean()
        self._new_keys.append((key.instance, key_r))
        total = torch.stack(list(parts.values())).sum()
        return Loss(total, {name: float(part.detach()) for name, part in parts.items()})

    def cluster_representations(self, output: BranchOutput) -> Float[Tensor, "K E"]:
        """Compute r_k (Eq. 6)."""
        weight = output.gumbel_sample if self.config.aggregation == "gumbel" else output.log_pi.exp()
        return losses.cluster_representations(weight, output.embedding)

    def _instance_loss(self, query: Float[Tensor, "N E"], key: Float[Tensor, "N E"]) -> Float[Tensor, ""]:
        """Compute -log p(i | x, c), the likelihood term of Eq. 2."""
        queue, in_batch = self.instance_queue.contents(), self.config.in_batch_negatives
        loss = losses.instance_info_nce(query, key, queue, self.config.temperature, in_batch_negatives=in_batch)
        return loss.mean()

    def _cluster_loss(
        self, r: Float[Tensor, "K E"], key_r: Float[Tensor, "K E"], generator: Generator
    ) -> Float[Tensor, ""]:
        """Contrast r_k with the other clusters of both views and of past batches, which are perturbed by noise."""
        past = self.cluster_queue.contents()
        noise = torch.randn(past.shape, generator=generator, device=generator.device).to(past)
        past = normalize(2.0 * past + self.config.cluster_noise * noise, dim=2)
        negatives = torch.cat((r.unsqueeze(0), key_r.unsqueeze(0), past)).flatten(0, 1)
        same_cluster = torch.eye(len(r), dtype=torch.bool, device=r.device).repeat(1, 2 + len(past))
        return losses.info_nce(r, key_r, negatives, self.config.cluster_temperature, same_cluster).mean()

    def after_step(self) -> None:
        """Update the momentum branch and the queues."""
        ema_update(self.momentum_branch, self.online, self.config.momentum)
        for instances, clusters in self._new_keys:
            self.instance_queue.enqueue(instances)
            if clusters is not None:
                self.cluster_queue.enqueue(clusters.unsqueeze(0))
        self._new_keys.clear()

    @torch.no_grad()
    def set_prototypes(self, centres: Float[Tensor, "K E"]) -> None:
        """Set the prototypes of both branches, and clear the cluster queue, which belongs to the former ones."""
        for branch in (self.online, self.momentum_branch):
            branch.get_parameter("prototypes").copy_(normalize(centres, dim=1))
        self.cluster_queue = MemoryBank(self.config.cluster_queue_size, tuple(centres.shape)).to(centres.device)

    @torch.no_grad()
    def for_inference(self, labels: Int[Tensor, " N"]) -> "TccModel":
        """Return a copy whose clusters are ordered by size, without empty clusters and queues."""
        sizes = torch.bincount(labels, minlength=self.config.n_clusters)
        order = sizes.argsort(descending=True, stable=True)[: int((sizes > 0).sum())]
        config = replace(self.config, n_clusters=len(order), queue_size=0, cluster_queue_size=0)
        model = build(TccModel, config, Generator())
        state = {name: value for name, value in self.state_dict().items() if "_queue." not in name}
        for branch in ("online", "momentum_branch"):
            state[f"{branch}.prototypes"] = state[f"{branch}.prototypes"][order]
            name = f"{branch}.assignment_embedding.weight"
            state[name] = state[name][:, order]
        model.load_state_dict(model.state_dict() | state)
        return model.to(labels.device).eval()


def translate_former_keys(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the state-dict keys of models that earlier versions saved."""
    translated = {}
    for name, value in state.items():
        key = name
        for former, new in FORMER_KEYS.items():
            if former.startswith((".", "_")) or key.startswith(former):
                key = key.replace(former, new, 1)
        translated[key] = value
    return translated
