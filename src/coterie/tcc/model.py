"""TCC: twin-contrast clustering (Shen et al., 2021), from its supplement and its authors' early code.

Images are told apart, and so are clusters. Every row has a place on a sphere, and a probability of each cluster by its
angle with the cluster's prototype. An instance is what its place and one relaxed draw of its cluster make together: it
is to be recognised in another view, among instances that were seen before. A cluster is the sum of its rows' places, by
how much they belong to it: it is to be recognised in what another view makes of it, among the other clusters, now and
before. The other view is looked at by a twin, which follows slowly.

The main text could not be had. What its supplement says is built as it says; how place and draw are put together, the
weights of the parts and the lengths of the memories are ours or from the authors' code, and each is a setting. So is
what makes the prototypes catch up with the places, which are good long before: prototypes that begin in the middle of
clusters of places, and rows that learn what the twin assigns them when all clusters must have equal shares.

Letters: N rows, D numbers of a row, E numbers of a place, K clusters, L entries of a memory, R rounds of one.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import normalize

from coterie.errors import ConfigError
from coterie.nn.model import ClusterModel, Loss, ViewBatch, build, settled
from coterie.nn.vision import ElementEncoder, Encoder
from coterie.ops.partitions import Clustering
from coterie.tcc.losses import (
    balance,
    cluster_representations,
    gumbel_softmax,
    info_nce,
    kl_to_uniform,
    spread_centres,
    swapped_codes,
    told_apart,
)


@final
class MemoryBank(nn.Module):
    """The last entries that were added; saved with the model, so that training goes on with them.

    Parameters
    ----------
    length : int
        How many entries are held at most, L; none at all with 0.
    shape : tuple of int
        Shape of one entry: (E,) for a feature of an instance, (K, E) for one round of K clusters.
    """

    entries: Float[Tensor, "L ..."]
    """Where entries lie, in a ring."""
    place: Int[Tensor, ""]
    """Where the next one goes."""
    filled: Int[Tensor, ""]
    """How many there are."""

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        super().__init__()
        if length < 0 or min(shape, default=1) < 1:
            raise ConfigError(f"length={length} must be at least 0, and all of shape={shape} at least 1.")
        self.register_buffer("entries", torch.zeros((length, *shape)))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def add(self, new: Float[Tensor, "M ..."]) -> None:
        """Remember new entries, the last of them as the newest, in place of the oldest."""
        length, shape = len(self.entries), self.entries.shape[1:]
        if new.ndim == 0 or new.shape[1:] != shape:
            raise ConfigError(
                f"Entries of shape {tuple(new.shape)} do not fit a memory of entries of shape {tuple(shape)}; "
                "give one entry or more along a first axis."
            )
        if length == 0:
            return
        newest = new[-length:]
        where = (self.place + torch.arange(len(newest), device=self.place.device)) % length
        self.entries[where] = newest.to(self.entries)
        self.place.copy_((self.place + len(newest)) % length)
        self.filled.copy_((self.filled + len(newest)).clamp(max=length))

    def held(self) -> Float[Tensor, "F ..."]:
        """All entries so far, the oldest first.

        A copy: what was computed with it can still be differentiated after more is added.
        """
        count = int(self.filled)
        first = self.place - self.filled
        return self.entries[(first + torch.arange(count, device=self.place.device)) % max(len(self.entries), 1)]


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
        self.check_at_least(n_clusters=1, channels=1, hidden=0, width=1)

    def check_room_for_prototypes(self) -> None:
        """Refuse a sphere on which as many prototypes as there are clusters cannot be equally far apart."""
        if self.width < self.n_clusters - 1:
            raise ConfigError(
                f"width={self.width} is too small for n_clusters={self.n_clusters} prototypes that are equally far "
                "apart at first; raise width."
            )

    def check_at_least(self, **least: int) -> None:
        """Refuse settings that are below what is given by their names."""
        for name, lowest in least.items():
            if getattr(self, name) < lowest:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least {lowest}.")

    def check_above_zero(self, *names: str) -> None:
        """Refuse settings that something is divided by, if they are not above zero."""
        for name in names:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0.")

    def check_share(self, name: str) -> None:
        """Refuse a setting that is no share of a whole."""
        if not 0 <= getattr(self, name) <= 1:
            raise ConfigError(f"{name}={getattr(self, name)} must be from 0 to 1.")


def head(features: int, hidden: int, width: int) -> nn.Sequential:
    """What stands on an encoder: one hidden layer, or none if it has no width."""
    layers = [nn.Linear(features, hidden), nn.ReLU()] if hidden else []
    return nn.Sequential(*layers, nn.Linear(hidden or features, width))


class Tower(nn.Module):
    """From rows to unit vectors."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.encoder = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        self.projection = head(self.encoder.out_width, config.hidden, config.width)

    def encoded(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Features, for others to use."""
        features: Tensor = self.encoder(x.unsqueeze(0))[0]
        return features

    def forward(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Where rows are on the sphere."""
        return self.projected(self.encoded(x))

    def projected(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N E"]:
        """The same, of rows whose features are known already."""
        return normalize(self.projection(features), dim=1)


@torch.no_grad()
def follow(twin: nn.Module, online: nn.Module, momentum: float) -> None:
    """Move the parameters of a twin a little towards those of the module that it follows."""
    for behind, ahead in zip(twin.parameters(), online.parameters(), strict=True):
        behind.lerp_(ahead, 1.0 - momentum)


def twin_of(online: nn.Module, twin: nn.Module) -> nn.Module:
    """The twin, as the other is now, and without a gradient."""
    twin.load_state_dict(online.state_dict())
    return twin.requires_grad_(requires_grad=False)


BLOCK_ROWS = 1024
"""Rows that are looked at together once training is over."""


class ContrastiveModel(ClusterModel[ViewBatch], ABC):
    """Base of the models whose clusters are learned together with what rows look like, or begun where rows are."""

    config: TowerConfig
    begins_at_places: ClassVar[bool]
    """Whether clusters are begun in the middle of clusters of places, once rows alone have been learned from."""

    @property
    @abstractmethod
    def tower(self) -> Tower:
        """What looks at rows."""

    @abstractmethod
    def believed(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Probability of each cluster for each row, of some rows at once."""

    def learn_rows_alone(self, alone: bool) -> None:
        """Learn from rows alone from now on, or from clusters as well; the same for those that know no difference."""

    def begin_at(self, centres: Float[Tensor, "K E"]) -> None:
        """Put clusters where clusters of places are."""
        raise NotImplementedError(f"{type(self).__name__} begins its clusters by itself.")

    @torch.no_grad()
    def places(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        """Where rows are on the sphere."""
        with settled(self):
            return torch.cat([self.tower(part) for part in torch.split(x, BLOCK_ROWS)])

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Probability of each cluster for each row."""
        with settled(self):
            return torch.cat([self.believed(part) for part in torch.split(x, BLOCK_ROWS)])

    @torch.no_grad()
    def cluster(self, x: Float[Tensor, "N D"], generator: Generator) -> Clustering:  # noqa: ARG002  (nothing is drawn)
        """The likeliest cluster of each row; some may have none."""
        probabilities = self.memberships(x)
        return Clustering(probabilities.argmax(dim=1), self.config.n_clusters, probabilities)

    @torch.no_grad()
    def health(self, x: Float[Tensor, "N D"]) -> dict[str, float]:
        """Signs of a collapse: clusters without a row, and how far from even the shares of the others are."""
        probabilities = self.memberships(x)
        empty = self.config.n_clusters - len(torch.unique(probabilities.argmax(dim=1)))
        return {"empty": float(empty), "uneven": float(balance(probabilities))}


@final
@dataclass(frozen=True, slots=True)
class TccConfig(TowerConfig):
    """Shape and variant of a TCC model; the defaults are ours, ``faithful`` is as near as the supplement lets us."""

    temperature: float = 0.5
    """Of the contrast of instances. Lower ones tell rows apart by what clusters have in common."""
    cluster_temperature: float = 0.5
    """Of the contrast of clusters."""
    sharpness: float = 0.1
    """What cosines with prototypes are divided by before they become probabilities."""
    relaxation: float = 0.5
    """λ: temperature of the draw of a cluster."""
    momentum: float = 0.9
    """Share of itself that the twin keeps in a step; with a memory it should be nearer to 1, since what is remembered
    is compared with what the twin makes of rows now."""
    memory: int = 0
    """L: instances that are remembered. Most of few rows would be, and be told apart from themselves as they were."""
    rounds: int = 20
    """R: rounds of cluster representations that are remembered."""
    in_batch: bool = True
    """Whether instances are told apart from those of their own batch too, and not only from remembered ones."""
    sees_rows: bool = True
    """Whether an instance is its place and its draw; without it, as in the ablation, the draw alone."""
    representation: Literal["probabilities", "draws"] = "probabilities"
    """What weighs the rows of a cluster: the supplement's way, or that of the authors' code."""
    perturbed: float = 0.1
    """Noise on remembered clusters, as deviations of twice their length: the code's augmentation of clusters."""
    cluster_weight: float = 1.0
    """What the contrast of clusters is multiplied by."""
    even: Literal["rows", "shares"] = "shares"
    """What is to be uniform: the probabilities of each row, as in the supplement's bound, or the shares of clusters."""
    even_weight: float = 1.0
    """What that is multiplied by."""
    assigned_weight: float = 1.0
    """What the surprise at the twin's equally shared assignments is multiplied by; 0 for none, as published."""
    assigned_temperature: float = 0.05
    """Of those assignments."""

    def __post_init__(self) -> None:
        self.check_tower()
        self.check_room_for_prototypes()
        self.check_above_zero("temperature", "cluster_temperature", "sharpness", "relaxation", "assigned_temperature")
        self.check_at_least(memory=0, rounds=0, perturbed=0, cluster_weight=0, even_weight=0, assigned_weight=0)
        self.check_share("momentum")

    @classmethod
    def faithful(cls, n_features: int, n_clusters: int, image: tuple[int, int, int]) -> "TccConfig":
        """All that the supplement says, and what it leaves open as the authors' code has it."""
        return cls(
            n_features,
            n_clusters,
            encoder="resnet34",
            image=image,
            channels=64,
            hidden=0,
            temperature=1.0,
            cluster_temperature=1.0,
            sharpness=1.0,
            relaxation=0.3,
            momentum=0.999,
            memory=16_384,
            rounds=20,
            in_batch=False,
            even="rows",
            assigned_weight=0.0,
        )


class Seen(NamedTuple):
    """What one side makes of rows."""

    place: Float[Tensor, "N E"]
    cosine: Float[Tensor, "N K"]
    """With the prototypes."""
    log_prob: Float[Tensor, "N K"]
    draw: Float[Tensor, "N K"]
    """Relaxed, of a cluster."""
    instance: Float[Tensor, "N E"]
    """What is recognised."""


class Side(nn.Module):
    """One of the two that look at rows."""

    def __init__(self, config: TccConfig) -> None:
        super().__init__()
        self.sharpness, self.relaxation, self.sees_rows = config.sharpness, config.relaxation, config.sees_rows
        self.tower = Tower(config)
        self.prototypes = nn.Parameter(spread_centres(config.n_clusters, config.width))
        self.of_draw = nn.Linear(config.n_clusters, config.width, bias=False)
        if config.sees_rows:
            # A random map of a random draw would be louder than the place until it has learned not to be.
            nn.init.zeros_(self.of_draw.weight)

    def cosines(self, place: Float[Tensor, "N E"]) -> Float[Tensor, "N K"]:
        """Of places with prototypes."""
        return place @ normalize(self.prototypes, dim=1).mT

    def forward(self, x: Float[Tensor, "N D"], generator: Generator) -> Seen:
        """Look at rows."""
        place = self.tower(x)
        cosine = self.cosines(place)
        log_prob = (cosine / self.sharpness).log_softmax(dim=1)
        draw = gumbel_softmax(log_prob, self.relaxation, generator)
        told = self.of_draw(draw)
        return Seen(place, cosine, log_prob, draw, normalize(place + told if self.sees_rows else told, dim=1))


@final
class TccModel(ContrastiveModel):
    """Two sides, and what they remember."""

    Config: ClassVar[type[TccConfig]] = TccConfig
    config: TccConfig
    begins_at_places: ClassVar[bool] = True

    def __init__(self, config: TccConfig) -> None:
        super().__init__()
        self.config = config
        self.online = Side(config)
        self.twin = twin_of(self.online, Side(config))
        self.instances = MemoryBank(config.memory, (config.width,))
        self.clusters = MemoryBank(config.rounds, (config.n_clusters, config.width))
        self._rows_alone = False
        self._new: list[tuple[Tensor, Tensor]] = []

    @property
    def tower(self) -> Tower:
        """That of the side which learns."""
        return self.online.tower

    def believed(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """By the angles of places with the prototypes."""
        return (self.online.cosines(self.tower(x)) / self.config.sharpness).softmax(dim=1)

    def learn_rows_alone(self, alone: bool) -> None:
        """Tell places apart, as MoCo does, and leave clusters and draws of them for later; or learn all."""
        self._rows_alone = alone

    def loss(self, batch: ViewBatch, generator: Generator) -> Loss:
        """Surprise at the instances and at the clusters, uneven shares, and surprise at what the twin assigns."""
        config = self.config
        seen: Seen = self.online(batch.first, generator)
        with torch.no_grad():
            known: Seen = self.twin(batch.second, generator)
        if self._rows_alone:
            part = self._instance_loss(seen.place, known.place)
            self._new.append((known.place, known.place.new_zeros((0, *self.clusters.entries.shape[1:]))))
            return Loss(part, {"instance": float(part.detach())})
        cluster, known_cluster = (self.represented(each) for each in (seen, known))
        parts = {
            "instance": self._instance_loss(seen.instance, known.instance),
            "cluster": config.cluster_weight * self._cluster_loss(cluster, known_cluster, generator),
            "uneven": config.even_weight
            * (kl_to_uniform(seen.log_prob).mean() if config.even == "rows" else balance(seen.log_prob.exp())),
        }
        if config.assigned_weight:
            codes = swapped_codes(known.cosine, config.assigned_temperature, steps=10)
            parts["assigned"] = -config.assigned_weight * (codes * seen.log_prob).sum(dim=1).mean()
        self._new.append((known.instance, known_cluster.unsqueeze(0)))
        return Loss(
            torch.stack(list(parts.values())).sum(), {name: float(part.detach()) for name, part in parts.items()}
        )

    def represented(self, seen: Seen) -> Float[Tensor, "K E"]:
        """Each cluster by the rows that belong to it."""
        weight = seen.draw if self.config.representation == "draws" else seen.log_prob.exp()
        return cluster_representations(weight, seen.place)

    def _instance_loss(self, instance: Float[Tensor, "N E"], known: Float[Tensor, "N E"]) -> Float[Tensor, ""]:
        config = self.config
        return told_apart(instance, known, self.instances.held(), config.temperature, in_batch=config.in_batch).mean()

    def _cluster_loss(
        self, cluster: Float[Tensor, "K E"], known: Float[Tensor, "K E"], generator: Generator
    ) -> Float[Tensor, ""]:
        """Clusters among the others of both views and those of earlier rounds; a cluster is none of its own rivals."""
        remembered = self.clusters.held()
        noise = torch.randn(remembered.shape, generator=generator, device=generator.device).to(remembered)
        earlier = normalize(2.0 * remembered + self.config.perturbed * noise, dim=2)
        others = torch.cat((cluster.unsqueeze(0), known.unsqueeze(0), earlier)).flatten(0, 1)
        same = torch.eye(len(cluster), dtype=torch.bool, device=cluster.device).repeat(1, 2 + len(earlier))
        return info_nce(cluster, known, others, self.config.cluster_temperature, same).mean()

    def after_step(self) -> None:
        """Let the twin follow, and remember what it saw."""
        follow(self.twin, self.online, self.config.momentum)
        for instance, cluster in self._new:
            self.instances.add(instance)
            self.clusters.add(cluster)
        self._new.clear()

    @torch.no_grad()
    def begin_at(self, centres: Float[Tensor, "K E"]) -> None:
        """Put the prototypes of both sides where clusters of places are, and forget earlier rounds, of other ones."""
        for side in (self.online, self.twin):
            side.get_parameter("prototypes").copy_(normalize(centres, dim=1))
        self.clusters = MemoryBank(self.config.rounds, tuple(centres.shape)).to(centres.device)

    @torch.no_grad()
    def numbered(self, labels: Int[Tensor, " N"]) -> "TccModel":
        """The same for use: clusters from the largest down, those without a row left out, and no memories."""
        size = torch.bincount(labels, minlength=self.config.n_clusters)
        order = size.argsort(descending=True, stable=True)[: int((size > 0).sum())]
        kept = build(TccModel, replace(self.config, n_clusters=len(order), memory=0, rounds=0), Generator())
        mine = self.state_dict()
        for side in ("online", "twin"):
            mine[f"{side}.prototypes"] = mine[f"{side}.prototypes"][order]
            mine[f"{side}.of_draw.weight"] = mine[f"{side}.of_draw.weight"][:, order]
        memories = {name: value for name, value in kept.state_dict().items() if _is_memory(name)}
        kept.load_state_dict(mine | memories)
        return kept.to(labels.device).eval()


def _is_memory(name: str) -> bool:
    return name.startswith(("instances.", "clusters."))
