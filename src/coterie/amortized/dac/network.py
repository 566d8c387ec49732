"""DAC: deep amortized clustering by filtering (Lee, Lee & Teh, 2019).

A set network finds one cluster in one pass: the parameters of its density and, for every point, whether it belongs.
Clustering is to filter, to take the members away, and to repeat until nothing is left. Training shows the network
labelled sets; afterwards it clusters sets of classes that it never saw, without being told their number.

Elements may be images: an encoder makes features of each alone, once, and filtering sees these instead.

Letters: B sets, N points, D features, E features after the encoder, K clusters, H hidden, M inducing points, P numbers
that describe a cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, one_hot, softplus

from coterie.amortized.dac.config import DacConfig
from coterie.amortized.filtering import FilteringModel, arranged
from coterie.amortized.refinement import Passes
from coterie.errors import ConfigError
from coterie.nn.attention import MAB, PMA, AttentionConfig, Comparison, ISABStack
from coterie.nn.density import Density, density_head
from coterie.nn.model import Loss, Score, TaskBatch
from coterie.nn.vision import ElementEncoder
from coterie.ops.correlation import Linkage, calibrated_linkage, linked

ANCHORED_POINTS = 1 << 15
"""Pairs of an anchor and a point that are asked about at once."""


class Found(Protocol):
    """What is used of what filtering finds."""

    @property
    def logits(self) -> Float[Tensor, "R N"]:
        """Positive where a point is with the anchor of the row."""


class AnchoredNetwork(Protocol):
    """What the kernel asks of the network."""

    def filter_around(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"] | None, anchors: Int[Tensor, "B A"] | None
    ) -> Found:
        """Find the clusters of several anchors of each set."""


def pair_kernel(network: AnchoredNetwork, x: Float[Tensor, "N E"]) -> Float[Tensor, "N N"]:
    """Probability of each pair to be together, from the mean of the log-odds that each has around the other."""
    anchors = torch.arange(len(x), device=x.device)
    few = torch.split(anchors, max(1, ANCHORED_POINTS // len(x)))
    logits = torch.cat([network.filter_around(x.unsqueeze(0), None, part.unsqueeze(0)).logits for part in few])
    return torch.sigmoid((logits + logits.T) / 2)


def medoids(kernel: Float[Tensor, "N N"], cluster: Int[Tensor, " N"]) -> Int[Tensor, " K"]:
    """The point of each cluster that is most probably with the others of it; the first of equals."""
    members = one_hot(cluster).to(kernel.dtype)
    belonging = (kernel @ members) / members.sum(dim=0)
    return belonging.masked_fill(members == 0, -1.0).argmax(dim=0)


__all__ = ["DacConfig", "DacModel", "Density", "Filtered"]

HESITATION = 1.0
"""Log-odds within which a pass is in doubt about even the likeliest point; it takes those almost as likely with it."""


@dataclass(frozen=True, slots=True)
class Filtered:
    """What one pass says of each set: who is in the cluster, what describes it, and how to ask about other points."""

    logits: Float[Tensor, "B N"]
    """Positive where a point belongs to the cluster."""
    context: Float[Tensor, "B P"] | None
    """Numbers that the density head reads, if there is one."""
    summary: Float[Tensor, "B S H"]
    """All that attention has kept of the set: with it, new points are judged as its members were."""
    anchor: Float[Tensor, "B 1 A"] | None
    """The anchor as the network saw it, if it is anchored."""


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
        meets_anchor = self.seen_width if at_input else config.width
        self.show_anchor = MAB(meets_anchor, meets_anchor, attention) if anchored else None
        self.compare = Comparison(meets_anchor, config.width) if anchored and config.anchoring == "compared" else None
        encoded = config.width if anchored and at_input else self.seen_width
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
        """Find one cluster among the valid points of embedded sets, that of the anchors if the network is anchored."""
        return self.filter_around(x, valid, None if anchor is None else anchor.unsqueeze(1))

    def filter_around(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"] | None, anchors: Int[Tensor, "B A"] | None
    ) -> Filtered:
        """The same for several anchors of each set; what is found around those of one set comes before the next's."""
        shown = None
        if self.config.anchor_position == "input":
            x, valid, shown = self._met(x, valid, anchors)
        hidden, of_encoder = self.encoder(x, valid)
        if self.config.anchor_position == "latent":
            hidden, valid, shown = self._met(hidden, valid, anchors)
            of_encoder = [_repeated(summary, len(hidden)) for summary in of_encoder]
        cluster = self.pool(hidden, valid)
        hidden, of_decoder = self.decoder(self.show_cluster(hidden, cluster), valid)
        return Filtered(
            logits=self.membership(hidden).squeeze(2),
            context=None if self.describe is None else self.describe(cluster.squeeze(1)),
            summary=torch.cat([*of_encoder, cluster, *of_decoder], dim=1),
            anchor=shown,
        )

    def _met(
        self, x: Float[Tensor, "B N X"], valid: Bool[Tensor, "B N"] | None, anchors: Int[Tensor, "B A"] | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Sets that have seen an anchor, once for each of theirs, who of them is valid, and the anchors as points."""
        if self.show_anchor is None:
            return x, valid, None
        if anchors is None:
            raise ConfigError("A network that filters by anchors needs one anchor for each set.")
        shown = arranged(x, anchors).flatten(0, 1).unsqueeze(1)
        return (
            self._seen_beside(_repeated(x, len(shown)), shown),
            None if valid is None else _repeated(valid, len(shown)),
            shown,
        )

    def _seen_beside(self, x: Float[Tensor, "B N X"], anchor: Float[Tensor, "B 1 X"] | None) -> Float[Tensor, "B N _"]:
        """Points that know of an anchor, if the network is anchored."""
        if self.show_anchor is None:
            return x
        seen: Tensor = self.show_anchor(x, anchor)
        return seen if self.compare is None else seen + self.compare(x, anchor)

    def judge(
        self, x: Float[Tensor, "B N E"], summary: Float[Tensor, "B S H"], anchor: Float[Tensor, "B 1 A"] | None
    ) -> Float[Tensor, "B N"]:
        """Membership logits of any embedded points, by what a pass has kept."""
        parts = torch.split(
            summary,
            [self.config.inducing] * self.config.depth + [1] + [self.config.inducing] * self.config.mask_depth,
            dim=1,
        )
        of_encoder, cluster, of_decoder = (
            parts[: self.config.depth],
            parts[self.config.depth],
            parts[self.config.depth + 1 :],
        )
        at_input = self.config.anchor_position == "input"
        hidden = self.encoder.attend(self._seen_beside(x, anchor) if at_input else x, of_encoder)
        hidden = hidden if at_input else self._seen_beside(hidden, anchor)
        hidden = self.decoder.attend(self.show_cluster(hidden, cluster), of_decoder)
        logits: Tensor = self.membership(hidden)
        return logits.squeeze(2)

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:
        """Error of the memberships and of the density, of the easiest cluster or of the anchor's (Eq. 5, 7 and 9)."""
        anchors = None
        if self.config.filtering == "anchored":
            anchors = torch.multinomial(batch.valid.float(), self.config.anchors, replacement=True, generator=generator)
        x = batch.x.masked_fill(~batch.valid.unsqueeze(2), 0.0)
        labels = batch.labels.masked_fill(~batch.valid, 0)
        found = self.filter_around(self.seen_in_training(x, batch.valid, generator), batch.valid, anchors)
        x, labels, valid = (_repeated(each, len(found.logits)) for each in (x, labels, batch.valid))
        members = (one_hot(labels) * valid.unsqueeze(2)).to(x.dtype)
        count = members.sum(dim=1)
        # Cross-entropy with one cluster's members as targets, for all clusters at once: the targets enter linearly.
        everywhere = (softplus(found.logits) * valid).sum(dim=1, keepdim=True)
        there = torch.einsum("bn,bnk->bk", found.logits, members)
        membership = (everywhere - there) / valid.sum(dim=1, keepdim=True).clamp(min=1)
        surprise = torch.zeros_like(membership)
        if self.density is not None and found.context is not None:
            log_prob = self.density.log_prob(x, found.context, generator)
            surprise = -torch.einsum("bn,bnk->bk", log_prob, members) / count.clamp(min=1)
        total = membership + surprise
        if anchors is None:
            chosen = total.masked_fill(count == 0, torch.inf).argmin(dim=1, keepdim=True)
        else:
            chosen = labels.gather(1, anchors.reshape(-1, 1))
        parts = {"membership": float(membership.detach().gather(1, chosen).mean())}
        if self.density is not None:
            parts["surprise"] = float(surprise.detach().gather(1, chosen).mean())
        return Loss(total.gather(1, chosen).mean(), parts)

    def describe_sets(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """What describes the cluster of each set's first point, or the one that the network finds the easiest."""
        first = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        context = self.filter(self.embedded(x, valid), valid, first).context
        if context is None:
            raise ConfigError("A network without a density head describes no clusters.")
        return context

    def filter_embedded(
        self, x: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Passes]:
        """Pass after pass over embedded sets, side by side; or one for each cluster that the kernel calls for."""
        if self.config.decoding == "kernel":
            return [self._passes_by_kernel(points[there]) for points, there in zip(x, valid, strict=True)]
        remaining = valid.clone()
        kept: list[list[dict[str, Tensor]]] = [[] for _ in range(len(x))]
        for _ in range(self.config.max_passes):
            active = remaining.any(dim=1).nonzero().squeeze(1)
            if len(active) == 0:
                break
            # Points that were taken are not only masked but left out: later passes cost less and less.
            there = remaining[active]
            order = there.byte().argsort(dim=1, descending=True, stable=True)[:, : int(there.sum(dim=1).max())]
            shown = there.gather(1, order)
            points = arranged(x[active], order)
            anchor = None
            if self.config.filtering == "anchored":
                # Sets share the random number, lest one depend on its neighbours.
                uniform = torch.rand((), generator=generator, device=generator.device).to(x.device)
                count = shown.sum(dim=1)
                anchor = (uniform * count).long().minimum(count - 1)
            # Without a mask attention is faster; a set that is alone never needs one.
            found = self.filter(points, None if bool(shown.all()) else shown, anchor)
            taken = (found.logits > 0) & shown
            if self.config.decoding == "robust":
                # A pass always takes something: its anchor, and the likeliest point rather than none.
                if anchor is not None:
                    taken.scatter_(1, anchor.unsqueeze(1), value=True)
                likeliest = found.logits.masked_fill(~shown, -torch.inf).amax(dim=1, keepdim=True)
                doubt = torch.where(likeliest.abs() < HESITATION, HESITATION, 0.0)
                taken |= shown & (found.logits >= likeliest.clamp(max=HESITATION) - doubt)
            for row, position in enumerate(active.tolist()):
                if bool(taken[row].any()) or not kept[position]:
                    kept[position].append(_state_of(found, row, taken[row].sum(), len(kept[position])))
            if anchor is None and not bool(taken.any()):
                break  # the same points would be shown again, with the same result
            remaining[active] = there.scatter(1, order, shown & ~taken)
        return [
            {name: torch.stack([state[name] for state in states]) for name in states[0]} if states else {}
            for states in kept
        ]

    def _passes_by_kernel(self, x: Float[Tensor, "N E"]) -> Passes:
        """One pass for each cluster that all points, each as an anchor, call for together: that around its middle."""
        if len(x) == 0:
            return {}
        kernel = pair_kernel(self, x)
        cluster = linked(kernel, Linkage(self.config.threshold, self.config.min_cluster_size, self.config.local_moves))
        found = self.filter_around(x.unsqueeze(0), None, medoids(kernel, cluster).unsqueeze(0))
        states = [_state_of(found, row, count, row) for row, count in enumerate(cluster.bincount())]
        return {name: torch.stack([state[name] for state in states]) for name in states[0]}

    def calibrate(self, batches: Sequence[TaskBatch], score: Score) -> DacConfig:
        """The configuration with the way to read average linkage that does best, where all points are anchors."""
        if self.config.decoding != "kernel":
            return self.config
        sets = [each for batch in batches for each in zip(batch.x, batch.valid, batch.labels, strict=True)]
        kernels = []
        for x, there, _ in sets:
            alone = x[there].unsqueeze(0)
            seen, _ = self.framed(self.embed(alone), torch.ones_like(alone[..., 0], dtype=torch.bool))
            kernels.append(pair_kernel(self, seen[0]))
        found = calibrated_linkage(kernels, [labels[there] for _, there, labels in sets], score)
        return replace(self.config, **found._asdict())

    def claims(self, x: Float[Tensor, "N E"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Logits by which each pass, by itself, would take each embedded point."""
        everyone = x.expand(len(extras["turn"]), -1, -1)
        return self.judge(everyone, extras["summary"], extras.get("anchor")).T

    def _shared_out(self, claims: Float[Tensor, "N K"], turn: Int[Tensor, " K"]) -> Float[Tensor, "N K"]:
        """Memberships by what all passes claim; of those that the kernel called for, none comes before another."""
        if self.config.decoding == "kernel":
            return logsigmoid(claims).softmax(dim=1)
        return super()._shared_out(claims, turn)


def _state_of(found: Filtered, row: int, count: Tensor, turn: int) -> dict[str, Tensor]:
    """What is kept of a pass over one set."""
    state = {"summary": found.summary[row], "count": count, "turn": torch.full_like(count, turn)}
    if found.context is not None:
        state["context"] = found.context[row]
    if found.anchor is not None:
        state["anchor"] = found.anchor[row]
    return state


def _repeated(x: Tensor, rows: int) -> Tensor:
    """Each set as often as it takes to have that many rows, those of one set together."""
    return x if len(x) == rows else x.repeat_interleave(rows // len(x), dim=0)
