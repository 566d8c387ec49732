"""What the methods share that filter: they find one cluster, take its points away, and look at what is left.

A pass over a set keeps what tells its cluster: with it, new points are judged as the set's own were. Where there is a
density, what the passes gave is put right afterwards, and points go to the clusters by their posteriors; where there is
none, or decoding is faithful, each point goes to the first pass that takes it.

Letters: B sets, N points, of which S were filtered; D features, E features after the encoder, K clusters, P numbers
that describe a cluster.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid, one_hot

from coterie.amortized.refinement import (
    BLOCK_ELEMENTS,
    Passes,
    log_probs,
    refine_densities,
    refine_gaussians,
    turned_log_probs,
)
from coterie.errors import ConfigError
from coterie.nn.density import Density, DensityHead, GaussianHead
from coterie.nn.model import SetModel
from coterie.nn.vision import ElementEncoder, Encoder
from coterie.ops.gaussian_mixtures import joint_of
from coterie.ops.partitions import Clustering, at_most, by_value
from coterie.validation import BOOLEAN, Choice, Constraints, Integer, check_parameters

TINY = 1e-6
"""Share of the variance along the first direction, or of absolute third moments, below which all is rounding."""
ROUNDINGS = 4
"""Units of rounding that points which are all the same may seem to differ by."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """One for each set: its middle, and the directions in which it extends most, the longest first."""

    middle: Float[Tensor, "B E"]
    axes: Float[Tensor, "B E C"]
    """Of one length each, such that coordinates of the set are one on average, by their squares."""

    def coordinates(self, x: Float[Tensor, "B N E"]) -> Float[Tensor, "B N C"]:
        """Points as seen from the frame of their set."""
        return (x - self.middle.unsqueeze(1)) @ self.axes

    def mirrored(self, generator: Generator) -> "Frames":
        """The same, each axis in one of its two directions by chance."""
        draws = torch.randint(2, (len(self.axes), 1, self.axes.shape[2]), generator=generator, device=generator.device)
        return Frames(self.middle, self.axes * (2 * draws.to(self.axes) - 1))


@torch.no_grad()
def principal_frames(x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], count: int) -> Frames:
    """Frames of the principal directions of each set's valid points; those that a set has not got are zeros.

    An axis points to where the set is more stretched out (its third moment is positive), whatever the order of points;
    where it is as stretched out to both sides, the largest of the axis's own numbers is positive.
    """
    there = valid.unsqueeze(2).to(x.dtype)
    size = there.sum(dim=1, keepdim=True).clamp(min=1)
    middle = (x * there).sum(dim=1, keepdim=True) / size
    centred = (x - middle) * there
    # Points that differ by no more than their mean is rounded are all the same.
    rounding = ROUNDINGS * torch.finfo(x.dtype).eps * (x * there).abs().amax(dim=(1, 2), keepdim=True)
    centred = torch.where(centred.abs().amax(dim=(1, 2), keepdim=True) > rounding, centred, 0.0)
    axes = _directions(centred, count)
    seen = centred @ axes
    scale = (seen.square().sum(dim=(1, 2), keepdim=True) / (size * count)).sqrt()
    axes = axes / torch.where(scale > 0, scale, 1.0)
    third = seen.pow(3).sum(dim=1, keepdim=True)
    is_real = third.abs() > TINY * seen.abs().pow(3).sum(dim=1, keepdim=True)
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    axes = torch.where(torch.where(is_real, third, largest) < 0, -axes, axes)
    return Frames(middle.squeeze(1), axes)


def _directions(centred: Float[Tensor, "B N E"], count: int) -> Float[Tensor, "B E C"]:
    """Unit vectors along which variance is largest, by the smaller of the two matrices of products."""
    n_sets, n_points, width = centred.shape
    if width <= n_points:
        variance, axes = torch.linalg.eigh(centred.mT @ centred)
    else:
        variance, along = torch.linalg.eigh(centred @ centred.mT)
        axes = centred.mT @ along / variance.clamp(min=0).sqrt().unsqueeze(1).clamp(min=torch.finfo(centred.dtype).tiny)
    variance, axes = variance.flip(1)[:, :count], axes.flip(2)[:, :, :count]
    real = (variance > TINY * variance[:, :1]) & (variance > 0)
    axes = torch.where(real.unsqueeze(1), axes, 0.0)
    missing = centred.new_zeros((n_sets, width, count - axes.shape[2]))
    return torch.cat((axes, missing), dim=2)


BLOCK_ROWS = 2048
"""Elements that are encoded at once."""
UNLIMITED = 1_000_000
"""Value of ``max_points`` for all points."""


@dataclass(frozen=True, slots=True)
class FilteringConfig:
    """Settings of a network that DAC and AMCP share."""

    CONSTRAINTS: ClassVar[Mapping[str, Constraints]] = {
        "n_features": Integer(1),
        "encoder": Choice(*get_args(Encoder)),
        "channels": Integer(1),
        "n_principal_axes": Integer(0),
        "keep_features": BOOLEAN,
        "filtering": Choice("min-loss", "anchored"),
        "density": Choice(*get_args(Density)),
        "context_width": Integer(1),
        "width": Integer(1),
        "decoding": Choice("robust", "kernel", "faithful"),
        "min_cluster_size": Integer(1),
        "rotations": Integer(1),
        "max_passes": Integer(1),
        "max_points": Integer(1),
    }
    RENAMED: ClassVar[Mapping[str, str]] = {
        "principal": "n_principal_axes",
        "principal_beside": "keep_features",
        "smallest": "min_cluster_size",
        "turns": "rotations",
    }
    """Former names, which weight files of earlier versions have."""

    n_features: int
    """D."""
    encoder: Encoder = "identity"
    """Network that encodes each element by itself."""
    image: tuple[int, int, int] | None = None
    """Channels, height and width, if elements are images."""
    channels: int = 64
    """Width of the encoder."""
    n_principal_axes: int = 0
    """C: principal axes of a set that its encoded points are projected on, so that the network learns how clusters lie
    to each other and not where those of training were; 0 projects nothing."""
    keep_features: bool = False
    """Whether the encoded features are kept beside these projections; better if they mean the same in all sets."""
    filtering: Literal["min-loss", "anchored"] = "min-loss"
    """Whether the network chooses the next cluster (DAC, Eq. 5) or a point does, the anchor (DAC, Eq. 8 and 9)."""
    density: Density = "gaussian"
    """Density of a cluster; of encoded elements only "statistician" (DAC) or "none"."""
    context_width: int = 64
    """P, numbers that describe a cluster, where the density leaves them open."""
    width: int = 64
    """Width of the network: H of DAC, E of AMCP (the space in which points and references are compared)."""
    decoding: Literal["robust", "kernel", "faithful"] = "robust"
    """Whether clusters are refined after the passes as far as the density permits ("robust") or left as they are
    ("faithful", as published); "kernel", for anchored DAC without a density, clusters pairwise probabilities."""
    min_cluster_size: int = 1
    """Points that a cluster must have where there is no density; smaller ones are merged into others."""
    rotations: int = 1
    """Rotations over which the densities of flows are averaged, in the plane: for tasks without a direction."""
    max_passes: int = 50
    """Passes after which the remaining points join other clusters."""
    max_points: int = 500
    """Points of a set that are filtered; larger sets are subsampled, and the rest is assigned to the clusters found."""

    def __post_init__(self) -> None:
        check_parameters(self, self.CONSTRAINTS, ConfigError)
        if self.encoder != "identity" and self.density in {"gaussian", "flow"}:
            raise ConfigError(
                f"density={self.density!r} describes the points themselves, not what encoder={self.encoder!r} makes of "
                "them; use density='none', or 'statistician' for the pixels of images (DAC only)."
            )
        if self.rotations > 1 and (self.n_features != 2 or self.density != "flow"):
            raise ConfigError(
                f"rotations={self.rotations} needs density='flow' and n_features=2, not {self.density!r} and "
                f"{self.n_features}; use rotations=1."
            )
        if self.n_principal_axes and self.density != "none":
            raise ConfigError(
                f"n_principal_axes={self.n_principal_axes} needs density='none', not {self.density!r}, since a density "
                "describes the points themselves."
            )
        if self.keep_features and not self.n_principal_axes:
            raise ConfigError("keep_features=True needs n_principal_axes of at least 1.")


class FilteringModel(SetModel, ABC):
    """Base of the models that take one cluster after the other out of a set.

    Final subclasses set ``config``, ``embed`` and ``density``, and say what the passes over a set find and keep.
    """

    config: FilteringConfig
    embed: ElementEncoder
    """What makes features of each element alone."""
    density: DensityHead | None
    """What describes the points of a cluster, if anything."""

    @abstractmethod
    def filter_embedded(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Passes]:
        """What the passes have kept, for each embedded set, whose points are in order of value: one row for each pass.

        Of every pass there are its ``turn``, from 0, the ``count`` of points that it took, its ``context`` if there is
        a density head, and whatever ``claims`` reads; of a set without points there is nothing.
        """

    @abstractmethod
    def describe_sets(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """What describes the cluster of each set's first point, or the one that the network finds the easiest."""

    @abstractmethod
    def claims(self, x: Float[Tensor, "N E"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Logits by which each pass, by itself, would take each embedded point."""

    def embedded(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B N E"]:
        """Embed each valid element alone, some at a time; what costs most for images."""
        blocks = zip(torch.split(x.flatten(0, 1), BLOCK_ROWS), torch.split(valid.flatten(), BLOCK_ROWS), strict=True)
        seen = torch.cat([self.embed(part.unsqueeze(0), there.unsqueeze(0))[0] for part, there in blocks])
        return seen.reshape(*x.shape[:2], self.embed.out_width)

    @property
    def seen_width(self) -> int:
        """Numbers of an encoded point as the network sees it."""
        as_they_are = self.embed.out_width
        if not self.config.n_principal_axes:
            return as_they_are
        return self.config.n_principal_axes + (as_they_are if self.config.keep_features else 0)

    def seen_in_training(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> Float[Tensor, "B N E"]:
        """Encoded points as the network sees them; frames are mirrored by chance, since no direction is the right one.

        Seen from the frames of their sets, classes that are trained on cannot be known by heart.
        """
        seen: Tensor = self.embed(x, valid)
        if not self.config.n_principal_axes:
            return seen
        return self._seen_from(principal_frames(seen, valid, self.config.n_principal_axes).mirrored(generator), seen)

    def framed(
        self, seen: Float[Tensor, "B N F"], valid: Bool[Tensor, "B N"]
    ) -> tuple[Float[Tensor, "B N E"], Frames | None]:
        """Encoded points as the network sees them once training is over, and the frames that they are seen from."""
        if not self.config.n_principal_axes:
            return seen, None
        frames = principal_frames(seen, valid, self.config.n_principal_axes)
        return self._seen_from(frames, seen), frames

    def _seen_from(self, frames: Frames, seen: Float[Tensor, "B N F"]) -> Float[Tensor, "B N E"]:
        coordinates = frames.coordinates(seen)
        return torch.cat((seen, coordinates), dim=2) if self.config.keep_features else coordinates

    def filter_all(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator) -> list[Passes]:
        """What the passes have kept, for each set, whose points are in order of value: one row for each pass."""
        return self.filter_embedded(self.framed(self.embedded(x, valid), valid)[0], valid, generator)

    @torch.no_grad()
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Filter all sets side by side until nothing is left in any, then put each one's clusters right."""
        x = x.masked_fill(~valid.unsqueeze(2), 0.0)
        seen = self.embedded(x, valid)
        # By value, so that what is drawn by chance does not depend on how the points are arranged.
        order = by_value(seen, valid)
        seen, frames = self.framed(seen, valid)
        ordered, there = arranged(x, order), valid.gather(1, order)
        shown = at_most(self.config.max_points, there, generator)
        passes = self.filter_embedded(arranged(seen, order), shown, generator)
        # Each set goes on with the same draws, lest one depend on those before it.
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        for i, state in enumerate(passes):
            if state:
                source = Generator(device=generator.device).manual_seed(seed)
                passes[i] = self._components(ordered[i, there[i]], ordered[i, shown[i]], state, source)
                if frames is not None:
                    rows = len(passes[i]["log_share"])
                    passes[i]["middle"] = frames.middle[i].expand(rows, -1)
                    passes[i]["axes"] = frames.axes[i].expand(rows, -1, -1)
        judged = x if self._has_posteriors else seen
        return [self._decode(*each) for each in zip(judged, valid, passes, strict=True)]

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Posteriors where there is a density, unless decoding is faithful; otherwise by which pass takes a point."""
        if found.n_clusters == 0 or len(x) == 0:
            return x.new_zeros((len(x), found.n_clusters))
        if not self._has_posteriors:
            seen = self.embedded(x.unsqueeze(0), torch.ones((1, len(x)), dtype=torch.bool, device=x.device))
            if self.config.n_principal_axes:
                # Every cluster knows the frame of the set that it was found in.
                seen = self._seen_from(Frames(found.extras["middle"][:1], found.extras["axes"][:1]), seen)
            x = seen[0]
        return self._belonging(x, found)

    @torch.no_grad()
    def joint(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Log-density of any points together with each of the clusters that were found in some set."""
        extras = found.extras
        if "mean" in extras:
            return joint_of(x, extras)
        if self.density is None:
            raise ConfigError("A network without a density head knows no densities.")
        if "log_side" in extras:
            return turned_log_probs(self.density, x, extras["context"], extras["log_side"]) + extras["log_share"]
        return log_probs(self.density, x, extras["context"]) + extras["log_share"]

    @property
    def _has_posteriors(self) -> bool:
        return self.density is not None and self.config.decoding == "robust"

    @property
    def _compete(self) -> bool:
        """Whether clusters compete for points, each with its share: shares then stay what made them win."""
        return self._has_posteriors

    def _components(
        self, x: Float[Tensor, "N D"], shown: Float[Tensor, "S D"], passes: Passes, generator: Generator
    ) -> dict[str, Tensor]:
        """What tells the clusters of one set, from what its passes have kept."""
        if self.density is not None and self._has_posteriors:
            if isinstance(self.density, GaussianHead):
                return refine_gaussians(self, self.density, x, shown, passes, generator)
            return refine_densities(self, self.density, shown, passes, generator, self.config.rotations)
        share = (passes["count"].to(x.dtype) + 0.5) / (len(passes["count"]) * 0.5 + len(shown))
        return {name: value for name, value in passes.items() if name != "count"} | {"log_share": share.log()}

    def _decode(self, x: Float[Tensor, "N X"], valid: Bool[Tensor, " N"], state: dict[str, Tensor]) -> Clustering:
        """Clusters of one set, the largest first."""
        labels = torch.full_like(valid, -1, dtype=torch.int64)
        if not state:
            return Clustering(labels, 0)
        points = x[valid]
        every = Clustering(labels, len(state["log_share"]), extras=state)
        size = torch.bincount(self._belonging(points, every).argmax(dim=1), minlength=every.n_clusters)
        order = size.argsort(descending=True, stable=True)[: int((size > 0).sum())]
        kept = {name: value[order] for name, value in state.items()}
        kept["log_share"] = (
            kept["log_share"].log_softmax(dim=0) if self._compete else (size[order].to(x.dtype) / len(points)).log()
        )
        found = Clustering(labels, len(order), extras=kept)
        belonging = self._belonging(points, found)
        labels[valid] = belonging.argmax(dim=1)
        probabilities = torch.zeros((len(x), len(order)), dtype=x.dtype, device=x.device)
        probabilities[valid] = belonging
        return Clustering(labels, len(order), probabilities, found.extras)

    def _belonging(self, x: Float[Tensor, "N X"], found: Clustering) -> Float[Tensor, "N K"]:
        """Memberships of points as they are where there are posteriors, else of embedded ones."""
        if self._has_posteriors:
            return self.joint(x, found).softmax(dim=1)
        rows = max(1, BLOCK_ELEMENTS // (found.n_clusters * self.config.width))
        claims = torch.cat([self.claims(part, found.extras) for part in torch.split(x, rows)])
        return self._shared_out(claims, found.extras["turn"])

    def _shared_out(self, claims: Float[Tensor, "N K"], turn: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """Memberships by what all passes claim."""
        return first_come(claims, turn, leftovers_to_first=self.config.decoding == "faithful")


def first_come(
    claims: Float[Tensor, "N K"], turn: Int[Tensor, " K"], *, leftovers_to_first: bool
) -> Float[Tensor, "N K"]:
    """Memberships by the logits of passes that come in turn: whom an earlier pass takes, no later one gets.

    Points that no pass takes belong to all of them a little, or wholly to the first.
    """
    order = turn.argsort()
    takers = (claims > 0)[:, order].cumsum(dim=1)
    earlier = torch.empty_like(takers)
    earlier[:, order] = takers - (claims > 0)[:, order].long()
    # Chances over their sum, but such that it cannot be zero.
    belonging = logsigmoid(claims).masked_fill(earlier > 0, -torch.inf).softmax(dim=1)
    if leftovers_to_first:
        first = one_hot(order[0], len(turn)).to(belonging.dtype)
        belonging = torch.where(takers[:, -1:] > 0, belonging, first)
    return belonging


def arranged(x: Float[Tensor, "B N X"], order: Int[Tensor, "B M"]) -> Float[Tensor, "B M X"]:
    """The points of each set, or some of them, in that order."""
    return x.gather(1, order.unsqueeze(2).expand(-1, -1, x.shape[2]))
