"""DAC: deep amortized clustering by filtering (Lee, Lee & Teh, 2019).

A set network finds one cluster in one pass: the parameters of its density and, for every point, whether it belongs.
Clustering is to filter, to take the members away, and to repeat until nothing is left. Training shows the network
labelled sets; afterwards it clusters sets of classes that it never saw, without being told their number.

Letters: B sets, N points, D features, K clusters, H hidden, M inducing points, P numbers that describe a cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot, softplus

from coterie.errors import ConfigError
from coterie.models.base import SetModel
from coterie.nn.attention import MAB, PMA, AttentionConfig, ISABStack
from coterie.nn.density import DensityHead, FlowHead, GaussianHead, StatisticianHead
from coterie.ops.mixture import Mixture, explained, joint_of, refine, simplify
from coterie.structures import Clustering, Loss, TaskBatch

TRUST = 10.0
"""Points that the deviations which the network gives count as, against those that are there."""
STEPS = 5
"""Steps of expectation and maximisation after each change of the components."""
BLOCK_ELEMENTS = 1 << 21
"""Largest number of (cluster, row, hidden) cells that questions about rows hold at once: eight megabytes a tensor."""

Density = Literal["gaussian", "flow", "statistician", "none"]


@dataclass(frozen=True, slots=True)
class DacConfig:
    """Shape and variant of a DAC network; the defaults are ours, ``faithful`` gives the published ones."""

    n_features: int
    """D."""
    filtering: Literal["min-loss", "anchored"] = "min-loss"
    """Whether the network chooses the cluster (Eq. 5) or a point says which one is wanted (Eq. 8 and 9)."""
    anchor_position: Literal["input", "latent"] = "input"
    """Whether the anchor is shown before the first encoder (the authors' code) or after it (the paper)."""
    density: Density = "gaussian"
    """What describes the points of a cluster, if anything."""
    context_width: int = 64
    """P, where the density leaves it open."""
    width: int = 64
    """H."""
    heads: int = 4
    """Parts that the width is split into."""
    inducing: int = 16
    """M."""
    depth: int = 4
    """Layers of the encoder."""
    mask_depth: int = 2
    """Layers between the cluster's summary and the memberships."""
    tie_blocks: bool = False
    """Whether all layers of a stack but the first share their weights."""
    layer_norm: bool = True
    """Whether attention blocks normalise."""
    scale: Literal["head", "model"] = "head"
    """Width whose root divides attention's logits."""
    decoding: Literal["robust", "faithful"] = "robust"
    """Whether clusters are put right after filtering, as far as the density allows, or left as the passes made them."""
    max_passes: int = 50
    """Passes after which the points that are left join other clusters."""
    max_points: int = 1000
    """Points of a set that are filtered; where there are more, as many are drawn, and what was found takes the rest."""

    @classmethod
    def faithful(cls, n_features: int, *, density: Density = "gaussian") -> "DacConfig":
        """Network of the published experiments: 629,253 parameters for Gaussians in two dimensions."""
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
            max_points=1_000_000,
        )


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
class DacModel(SetModel):
    """The filtering network, and the loop that clusters with it."""

    Config = DacConfig
    config: DacConfig

    def __init__(self, config: DacConfig) -> None:
        super().__init__()
        self.config = config
        attention = AttentionConfig(
            config.width, config.heads, config.inducing, layer_norm=config.layer_norm, scale=config.scale
        )
        anchored_input = config.filtering == "anchored" and config.anchor_position == "input"
        anchored_latent = config.filtering == "anchored" and config.anchor_position == "latent"
        self.show_anchor = (
            MAB(config.n_features, config.n_features, attention)
            if anchored_input
            else MAB(config.width, config.width, attention)
            if anchored_latent
            else None
        )
        encoded = config.width if anchored_input else config.n_features
        self.encoder = ISABStack(encoded, config.depth, attention, tied=config.tie_blocks)
        self.pool = PMA(config.width, 1, attention)
        self.show_cluster = MAB(config.width, config.width, attention)
        self.decoder = ISABStack(config.width, config.mask_depth, attention, tied=config.tie_blocks)
        self.membership = nn.Linear(config.width, 1)
        self.density = density_head(config)
        self.describe = None if self.density is None else nn.Linear(config.width, self.density.context_width)

    def filter(
        self,
        x: Float[Tensor, "B N D"],
        valid: Bool[Tensor, "B N"] | None = None,
        anchor: Int[Tensor, " B"] | None = None,
    ) -> Filtered:
        """Find one cluster among the valid points of each set, that of the anchors if the network is anchored."""
        shown = None
        if self.show_anchor is not None and self.config.anchor_position == "input":
            shown = _rows(x, _required(anchor))
            x = self.show_anchor(x, shown)
        hidden, of_encoder = self.encoder(x, valid)
        if self.show_anchor is not None and self.config.anchor_position == "latent":
            shown = _rows(hidden, _required(anchor))
            hidden = self.show_anchor(hidden, shown)
        cluster = self.pool(hidden, valid)
        hidden, of_decoder = self.decoder(self.show_cluster(hidden, cluster), valid)
        return Filtered(
            logits=self.membership(hidden).squeeze(2),
            context=None if self.describe is None else self.describe(cluster.squeeze(1)),
            summary=torch.cat([*of_encoder, cluster, *of_decoder], dim=1),
            anchor=shown,
        )

    def judge(
        self, x: Float[Tensor, "B N D"], summary: Float[Tensor, "B S H"], anchor: Float[Tensor, "B 1 A"] | None
    ) -> Float[Tensor, "B N"]:
        """Membership logits of any points, by what a pass has kept."""
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
        if self.show_anchor is not None and self.config.anchor_position == "input":
            x = self.show_anchor(x, anchor)
        hidden = self.encoder.attend(x, of_encoder)
        if self.show_anchor is not None and self.config.anchor_position == "latent":
            hidden = self.show_anchor(hidden, anchor)
        hidden = self.decoder.attend(self.show_cluster(hidden, cluster), of_decoder)
        logits: Tensor = self.membership(hidden)
        return logits.squeeze(2)

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:
        """Error of the memberships and of the density, of the easiest cluster or of the anchor's (Eq. 5, 7 and 9)."""
        anchor = None
        if self.config.filtering == "anchored":
            anchor = torch.multinomial(batch.valid.float(), 1, generator=generator).squeeze(1)
        found = self.filter(batch.x, batch.valid, anchor)
        members = one_hot(batch.labels, int(batch.labels.max()) + 1) * batch.valid.unsqueeze(2)
        members = members.to(batch.x.dtype)
        count = members.sum(dim=1)
        # Cross-entropy with one cluster's members as targets, for all clusters at once: the targets enter linearly.
        everywhere = (softplus(found.logits) * batch.valid).sum(dim=1, keepdim=True)
        there = torch.einsum("bn,bnk->bk", found.logits, members)
        membership = (everywhere - there) / batch.valid.sum(dim=1, keepdim=True)
        surprise = torch.zeros_like(membership)
        if self.density is not None and found.context is not None:
            log_prob = self.density.log_prob(batch.x, found.context, generator)
            surprise = -torch.einsum("bn,bnk->bk", log_prob, members) / count.clamp(min=1)
        total = membership + surprise
        if anchor is None:
            chosen = total.masked_fill(count == 0, torch.inf).argmin(dim=1, keepdim=True)
        else:
            chosen = batch.labels.gather(1, anchor.unsqueeze(1))
        parts = {"membership": float(membership.detach().gather(1, chosen).mean())}
        if self.density is not None:
            parts["surprise"] = float(surprise.detach().gather(1, chosen).mean())
        return Loss(total.gather(1, chosen).mean(), parts)

    @torch.no_grad()
    def cluster_sets(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Clustering]:
        """Filter all sets side by side until nothing is left in any, then put each one's clusters right."""
        shown = _at_most(self.config.max_points, valid, generator)
        passes = self._filter_all(x, shown, generator)
        return [self._decode(*each, generator) for each in zip(x, valid, shown, passes, strict=True)]

    @torch.no_grad()
    def memberships(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Posteriors where there is a density, unless decoding is faithful; otherwise by which pass takes a point."""
        if self._has_posteriors:
            return self.joint(x, found).softmax(dim=1)
        extras = found.extras
        rows = max(1, BLOCK_ELEMENTS // (found.n_clusters * self.config.width))
        chance = torch.cat([self._chances(part, extras) for part in torch.split(x, rows)])
        # Whom an earlier pass takes, no later one gets.
        order = extras["turn"].argsort()
        claims = (chance > 0.5)[:, order].cumsum(dim=1)
        earlier = torch.empty_like(claims)
        earlier[:, order] = claims - (chance > 0.5)[:, order].long()
        weight = chance.masked_fill(earlier > 0, 0.0)
        if self.config.decoding == "faithful":  # what is never taken is in the first cluster
            first = one_hot(order[0], found.n_clusters).to(weight.dtype)
            weight = torch.where(claims[:, -1:] > 0, weight, first)
        return weight / weight.sum(dim=1, keepdim=True)

    @torch.no_grad()
    def joint(self, x: Float[Tensor, "N D"], found: Clustering) -> Float[Tensor, "N K"]:
        """Log-density of any points together with each of the clusters that were found in some set."""
        extras = found.extras
        if "mean" in extras:
            return joint_of(x, extras)
        return self._log_probs(x, extras["context"]) + extras["log_share"]

    @property
    def _has_posteriors(self) -> bool:
        return self.density is not None and self.config.decoding == "robust"

    def _filter_all(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[dict[str, Tensor]]:
        """What the passes have kept, for each set: one row for each pass."""
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
            points = x[active].gather(1, order.unsqueeze(2).expand(-1, -1, x.shape[2]))
            anchor = None
            if self.config.filtering == "anchored":
                anchor = torch.multinomial(shown.float(), 1, generator=generator).squeeze(1)
            found = self.filter(points, shown, anchor)
            taken = (found.logits > 0) & shown
            if self.config.decoding == "robust":
                # A pass always takes something: its anchor, and the likeliest point rather than none.
                if anchor is not None:
                    taken.scatter_(1, anchor.unsqueeze(1), value=True)
                likeliest = found.logits.masked_fill(~shown, -torch.inf).argmax(dim=1, keepdim=True)
                taken |= torch.zeros_like(taken).scatter_(1, likeliest, value=True) & ~taken.any(dim=1, keepdim=True)
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

    def _decode(
        self,
        x: Float[Tensor, "N D"],
        valid: Bool[Tensor, " N"],
        shown: Bool[Tensor, " N"],
        state: dict[str, Tensor],
        generator: Generator,
    ) -> Clustering:
        """Clusters of one set, the largest first."""
        labels = torch.full_like(valid, -1, dtype=torch.int64)
        points = x[valid]
        if len(points) == 0:
            return Clustering(labels, 0)
        share = (state.pop("count") + 0.5) / (state["turn"].numel() * 0.5 + shown.sum())
        state["log_share"] = share.log()
        if self._has_posteriors:
            state = self._put_right(points, x[shown], state, generator)
        found = Clustering(labels, len(state["log_share"]), extras=state)
        belonging = self.memberships(points, found)
        size = torch.bincount(belonging.argmax(dim=1), minlength=found.n_clusters)
        order = size.argsort(descending=True, stable=True)[: int((size > 0).sum())]
        found = Clustering(labels, len(order), extras={name: value[order] for name, value in state.items()})
        belonging = self.memberships(points, found)
        labels[valid] = belonging.argmax(dim=1)
        probabilities = torch.zeros((len(x), len(order)), dtype=x.dtype, device=x.device)
        probabilities[valid] = belonging
        return Clustering(labels, len(order), probabilities, found.extras)

    def _put_right(
        self, x: Float[Tensor, "N D"], shown: Float[Tensor, "S D"], state: dict[str, Tensor], generator: Generator
    ) -> dict[str, Tensor]:
        """Let the densities that the passes gave compete for the points, and drop or join those that are too many."""
        if not isinstance(self.density, GaussianHead):
            return {name: state[name] for name in ("context", "log_share")}
        mean, deviation = self.density.parameters_of(state["context"])
        mixture = Mixture(state["log_share"].exp(), mean, deviation, deviation, TRUST)
        mixture = simplify(shown, refine(shown, mixture, STEPS), steps=STEPS)
        if len(shown) < len(x):
            mixture = refine(x, mixture, STEPS)
            missed = x[~explained(x, mixture)]
            if len(missed):
                everyone = torch.ones((1, len(missed)), dtype=torch.bool, device=x.device)
                more = self._filter_all(missed.unsqueeze(0), _at_most(len(shown), everyone, generator), generator)[0]
                mean, deviation = self.density.parameters_of(more["context"])
                mixture = mixture.with_more(more["count"] / len(x), mean, deviation)
                mixture = refine(x, mixture, STEPS)
            mixture = simplify(x, mixture, steps=STEPS)
        return {"mean": mixture.mean, "deviation": mixture.deviation, "log_share": mixture.share.log()}

    def _log_probs(self, x: Float[Tensor, "N D"], context: Float[Tensor, "K P"]) -> Float[Tensor, "N K"]:
        """Log-density of every point in every cluster."""
        if self.density is None:
            raise ConfigError("A network without a density head knows no densities.")
        rows = max(1, BLOCK_ELEMENTS // (len(context) * self.config.width))
        still = Generator(device=x.device).manual_seed(0)  # a bound that is estimated stays the same for the same rows
        parts = [
            self.density.log_prob(part.expand(len(context), -1, -1), context, still) for part in torch.split(x, rows)
        ]
        return torch.cat(parts, dim=1).T

    def _chances(self, x: Float[Tensor, "N D"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Chance that each pass, by itself, would take each point."""
        everyone = x.expand(len(extras["turn"]), -1, -1)
        return self.judge(everyone, extras["summary"], extras.get("anchor")).sigmoid().T


def _at_most(most: int, valid: Bool[Tensor, "B N"], generator: Generator) -> Bool[Tensor, "B N"]:
    """All valid points of each set, or that many of them by chance."""
    if not bool((valid.sum(dim=1) > most).any()):
        return valid
    ticket = torch.rand(valid.shape, generator=generator, device=generator.device).to(valid.device)
    ticket = ticket.masked_fill(~valid, 2.0)
    chosen = torch.zeros_like(valid).scatter_(1, ticket.topk(most, dim=1, largest=False).indices, value=True)
    return chosen & valid


def _state_of(found: Filtered, row: int, count: Tensor, turn: int) -> dict[str, Tensor]:
    """What is kept of a pass over one set."""
    state = {"summary": found.summary[row], "count": count, "turn": torch.full_like(count, turn)}
    if found.context is not None:
        state["context"] = found.context[row]
    if found.anchor is not None:
        state["anchor"] = found.anchor[row]
    return state


def density_head(config: DacConfig) -> DensityHead | None:
    """The density that the configuration asks for; "none" is no head at all."""
    match config.density:
        case "gaussian":
            return GaussianHead(config.n_features)
        case "flow":
            return FlowHead(config.n_features, config.context_width, hidden=config.width)
        case "statistician":
            return StatisticianHead(config.n_features, config.context_width, hidden=config.width)
        case "none":
            return None
        case unknown:
            raise ConfigError(f"density={unknown!r} is not known; use gaussian, flow, statistician or none.")


def _rows(x: Float[Tensor, "B N X"], index: Int[Tensor, " B"]) -> Float[Tensor, "B 1 X"]:
    return x[torch.arange(len(x), device=x.device), index].unsqueeze(1)


def _required(anchor: Tensor | None) -> Tensor:
    if anchor is None:
        raise ConfigError("A network that filters by anchors needs one anchor for each set.")
    return anchor
