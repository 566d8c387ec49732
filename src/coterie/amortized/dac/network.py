"""DAC: deep amortized clustering by filtering (Lee, Lee & Teh, 2019).

A set transformer finds one cluster per pass (Eq. 3): the parameters of its density and, for every point, the mask m
that says whether it belongs. To cluster a set, filter it, remove the members, and repeat until no point is left.
Trained on labelled sets, the network clusters sets of new classes and finds their number.

Elements may be images: an encoder turns each into features once, and filtering reads these.

Letters: B sets, N points, D features, E features after the encoder, K clusters, H hidden, M inducing points, P numbers
that describe a cluster, A anchors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, one_hot

from coterie.amortized.dac.config import DacConfig
from coterie.amortized.filtering import FilteringModel, gather_points, stack_states
from coterie.amortized.refinement import Passes
from coterie.errors import ConfigError
from coterie.nn.attention import MAB, PMA, AttentionConfig, Comparison, ISABStack
from coterie.nn.density import density_head
from coterie.nn.model import Loss, Score, TaskBatch
from coterie.nn.vision import ElementEncoder
from coterie.ops.correlation import Linkage, calibrate_linkage, cluster_by_linkage

ANCHOR_POINT_PAIRS = 1 << 15  # pairs of an anchor and a point in one forward pass
UNCERTAIN_LOGIT = 1.0
"""If the largest logit is below this in absolute value, a pass also takes the points almost as likely."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """Result of one pass over each set."""

    logits: Float[Tensor, "B N"]  # logits of the mask m, positive for members of the cluster
    context: Float[Tensor, "B P"] | None  # input of the density head, if there is one
    summary: Float[Tensor, "B S H"]
    """Summaries that the attention blocks made of the set; with them, new points are treated like its members."""
    anchor: Float[Tensor, "B 1 A"] | None  # the encoded anchor, if the network is anchored


@final
class DacModel(FilteringModel):
    """The filtering network, and the loop that clusters with it."""

    Config = DacConfig
    config: DacConfig

    def __init__(self, config: DacConfig) -> None:
        super().__init__()
        self.config = config
        attention = AttentionConfig(
            config.width, config.heads, config.inducing, layer_norm=config.layer_norm, scale=config.scale
        )
        anchored, at_input = config.filtering == "anchored", config.anchor_position == "input"
        self.embed = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        anchor_width = self.input_width if at_input else config.width
        self.show_anchor = MAB(anchor_width, anchor_width, attention) if anchored else None
        self.compare = Comparison(anchor_width, config.width) if anchored and config.anchoring == "compared" else None
        encoded = config.width if anchored and at_input else self.input_width
        self.encoder = ISABStack(encoded, config.depth, attention, tied=config.tie_blocks)
        self.pool = PMA(config.width, 1, attention)
        self.show_cluster = MAB(config.width, config.width, attention)
        self.decoder = ISABStack(config.width, config.mask_depth, attention, tied=config.tie_blocks)
        self.membership = nn.Linear(config.width, 1)
        self.density = density_head(
            config.density, config.n_features, config.context_width, config.width, config.likelihood
        )
        self.describe = None if self.density is None else nn.Linear(config.width, self.density.context_width)

    def filter(
        self,
        x: Float[Tensor, "B N E"],
        valid: Bool[Tensor, "B N"] | None = None,
        anchor: Int[Tensor, " B"] | None = None,
    ) -> Filtered:
        """Find one cluster of each encoded set (Eq. 3), that of the anchor if the network is anchored (Eq. 8)."""
        return self.filter_anchors(x, valid, None if anchor is None else anchor.unsqueeze(1))

    def filter_anchors(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"] | None, anchors: Int[Tensor, "B A"] | None
    ) -> Filtered:
        """Find the clusters of several anchors of each set; results of one set are consecutive."""
        anchor = None
        if self.config.anchor_position == "input":
            x, valid, anchor = self._attend_to_anchors(x, valid, anchors)
        hidden, of_encoder = self.encoder(x, valid)
        if self.config.anchor_position == "latent":
            hidden, valid, anchor = self._attend_to_anchors(hidden, valid, anchors)
            of_encoder = [_repeat(summary, len(hidden)) for summary in of_encoder]
        cluster = self.pool(hidden, valid)
        hidden, of_decoder = self.decoder(self.show_cluster(hidden, cluster), valid)
        return Filtered(
            logits=self.membership(hidden).squeeze(2),
            context=None if self.describe is None else self.describe(cluster.squeeze(1)),
            summary=torch.cat([*of_encoder, cluster, *of_decoder], dim=1),
            anchor=anchor,
        )

    def _attend_to_anchors(
        self, x: Float[Tensor, "B N X"], valid: Bool[Tensor, "B N"] | None, anchors: Int[Tensor, "B A"] | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Repeat each set for its anchors and let it attend to them; return sets, masks and the anchors' features."""
        if self.show_anchor is None:
            return x, valid, None
        if anchors is None:
            raise ConfigError("A network with filtering='anchored' needs an anchor for each set.")
        anchor = gather_points(x, anchors).flatten(0, 1).unsqueeze(1)
        return (
            self._attend_to_anchor(_repeat(x, len(anchor)), anchor),
            None if valid is None else _repeat(valid, len(anchor)),
            anchor,
        )

    def _attend_to_anchor(
        self, x: Float[Tensor, "B N X"], anchor: Float[Tensor, "B 1 X"] | None
    ) -> Float[Tensor, "B N _"]:
        """Let points attend to an anchor, if the network is anchored."""
        if self.show_anchor is None:
            return x
        attended: Tensor = self.show_anchor(x, anchor)
        return attended if self.compare is None else attended + self.compare(x, anchor)

    def mask_logits(
        self, x: Float[Tensor, "B N E"], summary: Float[Tensor, "B S H"], anchor: Float[Tensor, "B 1 A"] | None
    ) -> Float[Tensor, "B N"]:
        """Compute the mask logits of any encoded points, given the summaries and the anchor of a pass."""
        depth, inducing = self.config.depth, self.config.inducing
        parts = torch.split(summary, [inducing] * depth + [1] + [inducing] * self.config.mask_depth, dim=1)
        at_input = self.config.anchor_position == "input"
        hidden = self.encoder.attend(self._attend_to_anchor(x, anchor) if at_input else x, parts[:depth])
        hidden = hidden if at_input else self._attend_to_anchor(hidden, anchor)
        hidden = self.decoder.attend(self.show_cluster(hidden, parts[depth]), parts[depth + 1 :])
        logits: Tensor = self.membership(hidden)
        return logits.squeeze(2)

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:
        """Compute the loss of the easiest cluster (Eq. 5 and 7), or of the cluster of each anchor (Eq. 9)."""
        anchors = None
        if self.config.filtering == "anchored":
            anchors = torch.multinomial(batch.valid.float(), self.config.anchors, replacement=True, generator=generator)
        x = batch.x.masked_fill(~batch.valid.unsqueeze(2), 0.0)
        labels = batch.labels.masked_fill(~batch.valid, 0)
        result = self.filter_anchors(self.encode_for_training(x, batch.valid, generator), batch.valid, anchors)
        x, labels, valid = (_repeat(each, len(result.logits)) for each in (x, labels, batch.valid))
        members = (one_hot(labels) * valid.unsqueeze(2)).to(x.dtype)
        target = None if anchors is None else labels.gather(1, anchors.reshape(-1, 1))
        return self.filtering_loss(x, result.logits, result.context, valid, members, target, generator)[0]

    def cluster_contexts(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """Compute the context of the cluster of each set's first point or, without anchors, of any cluster."""
        first = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        context = self.filter(self.encode(x, valid), valid, first).context
        if context is None:
            raise ConfigError("A network without a density has no contexts.")
        return context

    def filter_encoded(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Passes]:
        """Filter encoded sets in parallel, pass by pass; or run one pass for each cluster of the pairwise kernel."""
        if self.config.decoding == "kernel":
            return [self._filter_medoids(points[mask]) for points, mask in zip(x, valid, strict=True)]
        remaining = valid.clone()
        kept: list[list[dict[str, Tensor]]] = [[] for _ in range(len(x))]
        for _ in range(self.config.max_passes):
            active = remaining.any(dim=1).nonzero().squeeze(1)
            if len(active) == 0:
                break
            # Points that were taken are not only masked but left out, so that later passes cost less.
            left = remaining[active]
            order = left.byte().argsort(dim=1, descending=True, stable=True)[:, : int(left.sum(dim=1).max())]
            shown = left.gather(1, order)
            points = gather_points(x[active], order)
            anchor = None
            if self.config.filtering == "anchored":
                # Sets share the random number, so that none depends on the others.
                uniform = torch.rand((), generator=generator, device=generator.device).to(x.device)
                count = shown.sum(dim=1)
                anchor = (uniform * count).long().minimum(count - 1)
            # Attention is faster without a mask, which a single set never needs.
            result = self.filter(points, None if bool(shown.all()) else shown, anchor)
            taken = (result.logits > 0) & shown
            if self.config.decoding == "robust":
                # A pass always takes its anchor, and the likeliest point rather than none.
                if anchor is not None:
                    taken.scatter_(1, anchor.unsqueeze(1), value=True)
                largest = result.logits.masked_fill(~shown, -torch.inf).amax(dim=1, keepdim=True)
                margin = torch.where(largest.abs() < UNCERTAIN_LOGIT, UNCERTAIN_LOGIT, 0.0)
                taken |= shown & (result.logits >= largest.clamp(max=UNCERTAIN_LOGIT) - margin)
            for row, position in enumerate(active.tolist()):
                if bool(taken[row].any()) or not kept[position]:
                    kept[position].append(_pass_state(result, row, taken[row].sum(), len(kept[position])))
            if anchor is None and not bool(taken.any()):
                break  # the next pass would be the same
            remaining[active] = left.scatter(1, order, shown & ~taken)
        return [stack_states(states) for states in kept]

    def _filter_medoids(self, x: Float[Tensor, "N E"]) -> Passes:
        """Cluster the pairwise kernel, and run one pass for each cluster, with its medoid as the anchor."""
        if len(x) == 0:
            return {}
        kernel = pair_kernel(self, x)
        cluster = cluster_by_linkage(
            kernel, Linkage(self.config.threshold, self.config.min_cluster_size, self.config.local_moves)
        )
        result = self.filter_anchors(x.unsqueeze(0), None, medoids(kernel, cluster).unsqueeze(0))
        return stack_states([_pass_state(result, row, count, row) for row, count in enumerate(cluster.bincount())])

    def calibrate(self, batches: Sequence[TaskBatch], score: Score) -> DacConfig:
        """Return the configuration with the linkage settings that score best, for ``decoding="kernel"``."""
        if self.config.decoding != "kernel":
            return self.config
        sets = [each for batch in batches for each in zip(batch.x, batch.valid, batch.labels, strict=True)]
        kernels = []
        for x, valid, _ in sets:
            alone = x[valid].unsqueeze(0)
            encoded, _ = self.project(self.embed(alone), torch.ones_like(alone[..., 0], dtype=torch.bool))
            kernels.append(pair_kernel(self, encoded[0]))
        linkage = calibrate_linkage(kernels, [labels[valid] for _, valid, labels in sets], score)
        return replace(self.config, **linkage._asdict())

    def membership_logits(self, x: Float[Tensor, "N E"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Compute the membership logits of encoded points in each pass, independently of the other passes."""
        points = x.expand(len(extras["turn"]), -1, -1)
        return self.mask_logits(points, extras["summary"], extras.get("anchor")).T

    def _combine_logits(self, logits: Float[Tensor, "N K"], turn: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """Turn the logits of all passes into memberships; passes around medoids have no order."""
        if self.config.decoding == "kernel":
            return logsigmoid(logits).softmax(dim=1)
        return super()._combine_logits(logits, turn)


def pair_kernel(network: DacModel, x: Float[Tensor, "N E"]) -> Float[Tensor, "N N"]:
    """Compute the probability that two points are in the same cluster, from the mean logit with either as anchor."""
    anchors = torch.arange(len(x), device=x.device)
    blocks = torch.split(anchors, max(1, ANCHOR_POINT_PAIRS // len(x)))
    logits = torch.cat([network.filter_anchors(x.unsqueeze(0), None, part.unsqueeze(0)).logits for part in blocks])
    return torch.sigmoid((logits + logits.T) / 2)


def medoids(kernel: Float[Tensor, "N N"], cluster: Int[Tensor, " N"]) -> Int[Tensor, " K"]:
    """Return the point of each cluster with the largest mean probability; ties go to the first."""
    members = one_hot(cluster).to(kernel.dtype)
    mean = (kernel @ members) / members.sum(dim=0)
    return mean.masked_fill(members == 0, -1.0).argmax(dim=0)


def _pass_state(result: Filtered, row: int, count: Tensor, turn: int) -> dict[str, Tensor]:
    """Return the tensors that are kept from a pass over one set."""
    state = {"summary": result.summary[row], "count": count, "turn": torch.full_like(count, turn)}
    if result.context is not None:
        state["context"] = result.context[row]
    if result.anchor is not None:
        state["anchor"] = result.anchor[row]
    return state


def _repeat(x: Tensor, rows: int) -> Tensor:
    """Repeat each set the same number of times, consecutively, up to that many rows."""
    return x if len(x) == rows else x.repeat_interleave(rows // len(x), dim=0)
