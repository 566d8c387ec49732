"""What DAC and AMCP share: find one cluster, remove its points, and repeat on the rest.

Each pass over a set keeps a state with which new points are treated like those of the set. With a density, the clusters
are refined after the last pass and points are assigned by posterior probabilities; without one, or with faithful
decoding, each point goes to the first pass that takes it.

Letters: B sets, N points, of which S were filtered; D features, E features after the encoder, C principal axes, K
clusters, P numbers that describe a cluster.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid, one_hot, softplus

from coterie.amortized.refinement import (
    BLOCK_ELEMENTS,
    Passes,
    log_probs,
    refine_densities,
    refine_gaussians,
    rotated_log_probs,
)
from coterie.errors import ConfigError
from coterie.nn.density import Density, DensityHead, GaussianHead
from coterie.nn.model import Loss, SetModel
from coterie.nn.vision import ElementEncoder, Encoder
from coterie.ops.gaussian_mixtures import mixture_log_joint
from coterie.ops.partitions import Clustering, lexicographic_order, subsample
from coterie.validation import BOOLEAN, Choice, Constraints, Integer, check_parameters

NEGLIGIBLE = 1e-6  # fraction of the largest variance, or of the absolute third moment, below which a value is rounding
ROUNDINGS = 4  # units of rounding by which equal points may differ


@final
@dataclass(frozen=True, slots=True, eq=False)
class PrincipalAxes:
    """Principal axes of each set."""

    centre: Float[Tensor, "B E"]
    axes: Float[Tensor, "B E C"]
    """All of one length, such that the mean squared coordinate of the set is one; zeros where a set has fewer."""

    def project(self, x: Float[Tensor, "B N E"]) -> Float[Tensor, "B N C"]:
        """Project points on the axes of their set."""
        return (x - self.centre.unsqueeze(1)) @ self.axes

    def flip_at_random(self, generator: Generator) -> "PrincipalAxes":
        """Flip each axis with probability one half."""
        bits = torch.randint(2, (len(self.axes), 1, self.axes.shape[2]), generator=generator, device=generator.device)
        return PrincipalAxes(self.centre, self.axes * (2 * bits.to(self.axes) - 1))


@torch.no_grad()
def principal_axes(x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], count: int) -> PrincipalAxes:
    """Compute the principal axes of each set's valid points.

    An axis points to where the set is more stretched out (positive third moment), whatever the order of points; if the
    third moment is zero, the largest entry of the axis is positive.
    """
    mask = valid.unsqueeze(2).to(x.dtype)
    size = mask.sum(dim=1, keepdim=True).clamp(min=1)
    centre = (x * mask).sum(dim=1, keepdim=True) / size
    centred = (x - centre) * mask
    # Points that differ by no more than the rounding of their mean are equal.
    rounding = ROUNDINGS * torch.finfo(x.dtype).eps * (x * mask).abs().amax(dim=(1, 2), keepdim=True)
    centred = torch.where(centred.abs().amax(dim=(1, 2), keepdim=True) > rounding, centred, 0.0)
    axes = _leading_directions(centred, count)
    projected = centred @ axes
    scale = (projected.square().sum(dim=(1, 2), keepdim=True) / (size * count)).sqrt()
    axes = axes / torch.where(scale > 0, scale, 1.0)
    third = projected.pow(3).sum(dim=1, keepdim=True)
    is_skewed = third.abs() > NEGLIGIBLE * projected.abs().pow(3).sum(dim=1, keepdim=True)
    largest = axes.gather(1, axes.abs().argmax(dim=1, keepdim=True))
    axes = torch.where(torch.where(is_skewed, third, largest) < 0, -axes, axes)
    return PrincipalAxes(centre.squeeze(1), axes)


def _leading_directions(centred: Float[Tensor, "B N E"], count: int) -> Float[Tensor, "B E C"]:
    """Return the unit vectors of largest variance, from the smaller of the two Gram matrices."""
    n_sets, n_points, width = centred.shape
    if width <= n_points:
        variance, axes = torch.linalg.eigh(centred.mT @ centred)
    else:
        variance, along = torch.linalg.eigh(centred @ centred.mT)
        axes = centred.mT @ along / variance.clamp(min=0).sqrt().unsqueeze(1).clamp(min=torch.finfo(centred.dtype).tiny)
    variance, axes = variance.flip(1)[:, :count], axes.flip(2)[:, :, :count]
    real = (variance > NEGLIGIBLE * variance[:, :1]) & (variance > 0)
    axes = torch.where(real.unsqueeze(1), axes, 0.0)
    missing = centred.new_zeros((n_sets, width, count - axes.shape[2]))
    return torch.cat((axes, missing), dim=2)


BLOCK_ROWS = 2048  # elements that are encoded at once
UNLIMITED = 1_000_000  # value of ``max_points`` for all points


@dataclass(frozen=True, slots=True)
class FilteringConfig:
    """Settings of a network that DAC and AMCP share."""

    CONSTRAINTS: ClassVar[dict[str, Constraints]] = {
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
    RENAMED: ClassVar[dict[str, str]] = {
        "principal": "n_principal_axes",
        "principal_beside": "keep_features",
        "smallest": "min_cluster_size",
        "turns": "rotations",
    }
    """Former names, which weight files of earlier versions have."""

    n_features: int  # D
    encoder: Encoder = "identity"  # network that encodes each element by itself
    image: tuple[int, int, int] | None = None  # channels, height and width, if elements are images
    channels: int = 64  # width of the encoder
    n_principal_axes: int = 0
    """C: principal axes of a set that its encoded points are projected on, so that the network learns how clusters lie
    to each other and not where those of training were; 0 projects nothing."""
    keep_features: bool = False
    """Whether the encoded features are kept beside these projections; better if they mean the same in all sets."""
    filtering: Literal["min-loss", "anchored"] = "min-loss"
    """Whether the network chooses the next cluster (DAC, Eq. 5) or a point does, the anchor (DAC, Eq. 8 and 9)."""
    density: Density = "gaussian"  # density of a cluster; of encoded elements only "statistician" (DAC) or "none"
    context_width: int = 64  # P, numbers that describe a cluster, where the density leaves them open
    width: int = 64  # width of the network: H of DAC, E of AMCP (the space in which points and references are compared)
    decoding: Literal["robust", "kernel", "faithful"] = "robust"
    """Whether clusters are refined after the passes as far as the density permits ("robust") or left as they are
    ("faithful", as published); "kernel", for anchored DAC without a density, clusters pairwise probabilities."""
    min_cluster_size: int = 1
    """Points that a cluster must have where there is no density; smaller ones are merged into others."""
    rotations: int = 1
    """Rotations over which the densities of flows are averaged, in the plane: for tasks without a direction."""
    max_passes: int = 50  # passes after which the remaining points join other clusters
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
    """Base of DAC's and AMCP's networks.

    A subclass sets ``config``, ``embed`` and ``density``, and implements the passes: ``filter_encoded``,
    ``cluster_contexts`` and ``membership_logits``.
    """

    config: FilteringConfig
    embed: ElementEncoder  # encoder of single elements
    density: DensityHead | None  # density of a cluster, if any

    @abstractmethod
    def filter_encoded(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Passes]:
        """Run all passes over encoded sets whose points are in lexicographic order; return the states of each set.

        A state has one row per pass: its ``turn``, from 0, the ``count`` of points taken, its ``context`` if there is a
        density, and what ``membership_logits`` reads. A set without points has an empty state.
        """

    @abstractmethod
    def cluster_contexts(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """Compute the context of the cluster of each set's first point or, without anchors, of any cluster."""

    @abstractmethod
    def membership_logits(self, x: Float[Tensor, "N E"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Compute the logits with which each pass, by itself, would take each encoded point."""

    def encode(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B N E"]:
        """Encode each valid element by itself, in blocks; the costliest step for images."""
        blocks = zip(torch.split(x.flatten(0, 1), BLOCK_ROWS), torch.split(valid.flatten(), BLOCK_ROWS), strict=True)
        encoded = torch.cat([self.embed(part.unsqueeze(0), mask.unsqueeze(0))[0] for part, mask in blocks])
        return encoded.reshape(*x.shape[:2], self.embed.out_width)

    @property
    def input_width(self) -> int:
        """Width of an encoded point after projection."""
        width = self.embed.out_width
        if not self.config.n_principal_axes:
            return width
        return self.config.n_principal_axes + (width if self.config.keep_features else 0)

    def encode_for_training(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> Float[Tensor, "B N E"]:
        """Encode and project points for training; axes are flipped at random, since no direction is the right one.

        Projected on the axes of their sets, training classes cannot be memorised by position.
        """
        encoded: Tensor = self.embed(x, valid)
        if not self.config.n_principal_axes:
            return encoded
        axes = principal_axes(encoded, valid, self.config.n_principal_axes)
        return self._project_on(axes.flip_at_random(generator), encoded)

    def filtering_loss(
        self,
        x: Float[Tensor, "B N D"],
        logits: Float[Tensor, "B N"],
        context: Float[Tensor, "B P"] | None,
        shown: Bool[Tensor, "B N"],
        member: Float[Tensor, "B N K"],
        target: Int[Tensor, "B 1"] | None,
        generator: Generator,
        nll_weight: float = 1.0,
    ) -> tuple[Loss, Int[Tensor, " B"]]:
        """Compute the loss of the target cluster (DAC, Eq. 9), or without one of the easiest (Eq. 5 and 7), and which.

        A pass chooses among the points that are ``shown``.
        """
        count = member.sum(dim=1)
        # Cross-entropy with the members of each cluster as targets, for all clusters at once: it is linear in these.
        all_points = (softplus(logits) * shown).sum(dim=1, keepdim=True)
        of_members = torch.einsum("bn,bnk->bk", logits, member)
        membership = (all_points - of_members) / shown.sum(dim=1, keepdim=True).clamp(min=1)
        nll = torch.zeros_like(membership)
        if self.density is not None and context is not None:
            log_prob = self.density.log_prob(x, context, generator)
            nll = -torch.einsum("bn,bnk->bk", log_prob, member) / count.clamp(min=1)
        total = membership + nll_weight * nll
        chosen = total.masked_fill(count == 0, torch.inf).argmin(dim=1, keepdim=True) if target is None else target
        parts = {"membership": float(membership.detach().gather(1, chosen).mean())}
        if self.density is not None:
            parts["nll"] = float(nll.detach().gather(1, chosen).mean())
        return Loss(total.gather(1, chosen).mean(), parts), chosen.squeeze(1)

    def project(
        self, encoded: Float[Tensor, "B N F"], valid: Bool[Tensor, "B N"]
    ) -> tuple[Float[Tensor, "B N E"], PrincipalAxes | None]:
        """Project encoded points for inference; also return the axes."""
        if not self.config.n_principal_axes:
            return encoded, None
        axes = principal_axes(encoded, valid, self.config.n_principal_axes)
        return self._project_on(axes, encoded), axes

    def _project_on(self, axes: PrincipalAxes, encoded: Float[Tensor, "B N F"]) -> Float[Tensor, "B N E"]:
        projected = axes.project(encoded)
        return torch.cat((encoded, projected), dim=2) if self.config.keep_features else projected

    def filter_sets(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator) -> list[Passes]:
        """Run all passes over sets whose points are in lexicographic order; return the states of each set."""
        return self.filter_encoded(self.project(self.encode(x, valid), valid)[0], valid, generator)

    @torch.no_grad()
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Filter all sets side by side until no point is left, then refine the clusters of each."""
        x = x.masked_fill(~valid.unsqueeze(2), 0.0)
        encoded = self.encode(x, valid)
        # Sorted, so that random choices do not depend on the order of the points.
        order = lexicographic_order(encoded, valid)
        encoded, axes = self.project(encoded, valid)
        ordered, mask = gather_points(x, order), valid.gather(1, order)
        sampled = subsample(self.config.max_points, mask, generator)
        passes = self.filter_encoded(gather_points(encoded, order), sampled, generator)
        # Each set continues from the same seed, so that none depends on those before it.
        seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
        for i, state in enumerate(passes):
            if state:
                source = Generator(device=generator.device).manual_seed(seed)
                passes[i] = self._refine(ordered[i, mask[i]], ordered[i, sampled[i]], state, source)
                if axes is not None:
                    rows = len(passes[i]["log_share"])
                    passes[i]["middle"] = axes.centre[i].expand(rows, -1)
                    passes[i]["axes"] = axes.axes[i].expand(rows, -1, -1)
        points = x if self._has_posteriors else encoded
        return [self._decode(*each) for each in zip(points, valid, passes, strict=True)]

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], clustering: Clustering) -> Float[Tensor, "N K"]:
        """Compute posterior probabilities, or without a density or with faithful decoding, go by the passes."""
        if clustering.n_clusters == 0 or len(x) == 0:
            return x.new_zeros((len(x), clustering.n_clusters))
        if not self._has_posteriors:
            encoded = self.encode(x.unsqueeze(0), torch.ones((1, len(x)), dtype=torch.bool, device=x.device))
            if self.config.n_principal_axes:
                axes = PrincipalAxes(clustering.extras["middle"][:1], clustering.extras["axes"][:1])
                encoded = self._project_on(axes, encoded)
            x = encoded[0]
        return self._memberships(x, clustering)

    @torch.no_grad()
    def joint(self, x: Float[Tensor, "N D"], clustering: Clustering) -> Float[Tensor, "N K"]:
        """Compute the joint log-density of any points and the clusters of some set."""
        extras = clustering.extras
        if "mean" in extras:
            return mixture_log_joint(x, extras)
        if self.density is None:
            raise ConfigError("The network has no density; use one with density='gaussian' or 'flow'.")
        if "log_side" in extras:
            return rotated_log_probs(self.density, x, extras["context"], extras["log_side"]) + extras["log_share"]
        return log_probs(self.density, x, extras["context"]) + extras["log_share"]

    @property
    def _has_posteriors(self) -> bool:
        return self.density is not None and self.config.decoding == "robust"

    @property
    def _keeps_weights(self) -> bool:
        """Whether clusters compete with mixture weights, which then stay as they are."""
        return self._has_posteriors

    def _refine(
        self, x: Float[Tensor, "N D"], sampled: Float[Tensor, "S D"], passes: Passes, generator: Generator
    ) -> dict[str, Tensor]:
        """Turn the states of the passes over one set into the parameters of its clusters."""
        if self.density is not None and self._has_posteriors:
            if isinstance(self.density, GaussianHead):
                return refine_gaussians(self, self.density, x, sampled, passes, generator)
            return refine_densities(self, self.density, sampled, passes, generator, self.config.rotations)
        weight = (passes["count"].to(x.dtype) + 0.5) / (len(passes["count"]) * 0.5 + len(sampled))
        return {name: value for name, value in passes.items() if name != "count"} | {"log_share": weight.log()}

    def _decode(self, x: Float[Tensor, "N X"], valid: Bool[Tensor, " N"], state: dict[str, Tensor]) -> Clustering:
        """Assign the points of one set to its clusters, the largest first."""
        labels = torch.full_like(valid, -1, dtype=torch.int64)
        if not state:
            return Clustering(labels, 0)
        points = x[valid]
        every = Clustering(labels, len(state["log_share"]), extras=state)
        size = torch.bincount(self._memberships(points, every).argmax(dim=1), minlength=every.n_clusters)
        order = size.argsort(descending=True, stable=True)[: int((size > 0).sum())]
        kept = {name: value[order] for name, value in state.items()}
        kept["log_share"] = (
            kept["log_share"].log_softmax(dim=0)
            if self._keeps_weights
            else (size[order].to(x.dtype) / len(points)).log()
        )
        memberships = self._memberships(points, Clustering(labels, len(order), extras=kept))
        labels[valid] = memberships.argmax(dim=1)
        probabilities = torch.zeros((len(x), len(order)), dtype=x.dtype, device=x.device)
        probabilities[valid] = memberships
        return Clustering(labels, len(order), probabilities, kept)

    def _memberships(self, x: Float[Tensor, "N X"], clustering: Clustering) -> Float[Tensor, "N K"]:
        """Compute memberships of points if there are posteriors, otherwise of encoded points."""
        if self._has_posteriors:
            return self.joint(x, clustering).softmax(dim=1)
        rows = max(1, BLOCK_ELEMENTS // (clustering.n_clusters * self.config.width))
        logits = torch.cat([self.membership_logits(part, clustering.extras) for part in torch.split(x, rows)])
        return self._combine_logits(logits, clustering.extras["turn"])

    def _combine_logits(self, logits: Float[Tensor, "N K"], turn: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """Turn the logits of all passes into memberships."""
        return memberships_by_first_pass(logits, turn, leftovers_to_first=self.config.decoding == "faithful")


def memberships_by_first_pass(
    logits: Float[Tensor, "N K"], turn: Int[Tensor, " K"], *, leftovers_to_first: bool
) -> Float[Tensor, "N K"]:
    """Compute memberships from the logits of successive passes: a point belongs to the first pass that takes it.

    Points that no pass takes belong to all passes in proportion, or entirely to the first.
    """
    order = turn.argsort()
    takers = (logits > 0)[:, order].cumsum(dim=1)
    earlier = torch.empty_like(takers)
    earlier[:, order] = takers - (logits > 0)[:, order].long()
    # Probabilities over their sum, computed such that the sum cannot be zero.
    memberships = logsigmoid(logits).masked_fill(earlier > 0, -torch.inf).softmax(dim=1)
    if leftovers_to_first:
        first = one_hot(order[0], len(turn)).to(memberships.dtype)
        memberships = torch.where(takers[:, -1:] > 0, memberships, first)
    return memberships


def stack_states(states: Sequence[dict[str, Tensor]]) -> Passes:
    """Stack the states of the passes over one set; empty without passes."""
    return {name: torch.stack([state[name] for state in states]) for name in states[0]} if states else {}


def gather_points(x: Float[Tensor, "B N X"], order: Int[Tensor, "B M"]) -> Float[Tensor, "B M X"]:
    """Reorder the points of each set, or select some of them."""
    return x.gather(1, order.unsqueeze(2).expand(-1, -1, x.shape[2]))
