"""AMCP: amortized mixing coupling processes (Liu & Jing, 2022), a reconstruction.

Clusters are found one after the other. Coupling looks at the points that are left and at the clusters that are found,
and proposes a reference for the next one. Mixing moves it, and those of the clusters found, by a few steps of
expectation and maximisation over all points, with a background for what no cluster explains yet. A network then says of
each point that is left whether it belongs. No step compares points with each other: a pass costs as much as points
times clusters so far.

The paper's text could not be had, only its appendix. What is known from there: the two expectation and the two
maximisation steps, the form of the references and of the network that decodes them, the update of previous clusters,
and what costs how much. The network that couples, the background, the membership of points and the loss are ours.

Letters: B sets, N points, D features, E numbers that a point is compared by, K clusters, P numbers that describe one.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot, pad, softplus

from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.mixing import InterClusterCoupling, IntraClusterMixing, Membership, Mixed, feed_forward
from coterie.amortized.filtering import FilteringModel
from coterie.amortized.refinement import Passes
from coterie.errors import ConfigError
from coterie.nn.density import density_head
from coterie.nn.model import Loss, Score, TaskBatch, seeded_from
from coterie.nn.vision import ElementEncoder
from coterie.ops.correlation import SMALLEST
from coterie.ops.partitions import Clustering, members_of, order_of_clusters, picked, summed_up
from coterie.ops.sinkhorn import NEVER, log_mass

__all__ = ["AmcpConfig", "AmcpModel", "Found"]

MOST_MOVES = 30
"""Times that points may move between the clusters once all are found."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one pass says of each set: who is in the new cluster, what describes it, and how to ask about others."""

    logits: Float[Tensor, "B N"]
    """Positive where a point belongs to the new cluster."""
    context: Float[Tensor, "B P"] | None
    """Numbers that the density head reads, if there is one."""
    mixed: Mixed
    """The references: that of the new cluster, then those of the clusters found before."""


@final
class AmcpModel(FilteringModel):
    """The networks that couple and mix, and the loop that clusters with them."""

    Config = AmcpConfig
    config: AmcpConfig

    def __init__(self, config: AmcpConfig) -> None:
        super().__init__()
        self.config = config
        width, hidden = config.width, config.hidden
        self.embed = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        self.lift = feed_forward([self.seen_width, *[hidden] * config.depth, width])
        self.coupling = InterClusterCoupling(
            width, hidden, references=config.references, anchored=config.filtering == "anchored"
        )
        self.mixing = IntraClusterMixing(
            width,
            kernel=config.kernel,
            references=config.references,
            rate=config.rate,
            prior_strength=config.prior_strength,
            dropout=config.dropout,
        )
        self.membership = Membership(width, hidden, self.coupling.state_width)
        self.density = density_head(config.density, config.n_features, config.context_width, hidden, "gaussian")
        self.pool = None if self.density is None else nn.Sequential(nn.Linear(width, hidden), nn.ReLU())
        self.describe = None if self.density is None else nn.Linear(2 * width + hidden, self.density.context_width)

    def lifted(self, x: Float[Tensor, "*B N F"]) -> Float[Tensor, "*B N E"]:
        """Points as they are compared; where references are decoded from squashed numbers, between 0 and 1."""
        points: Tensor = self.lift(x)
        return torch.sigmoid(points) if self.config.references == "decoded" else points

    def find(
        self,
        h: Float[Tensor, "B N E"],
        valid: Bool[Tensor, "B N"],
        labels: Int[Tensor, "B N"],
        anchor: Int[Tensor, " B"] | None = None,
    ) -> Found:
        """Find one more cluster among the valid points of lifted sets that have no label yet, which is -1.

        Labels are 0..K-1; a cluster may be empty. Anchored networks find the cluster of the anchors.
        """
        remaining = valid & (labels < 0)
        member = members_of(labels, valid, h.dtype)
        shown = None if anchor is None else h.gather(1, anchor.reshape(-1, 1, 1).expand(-1, 1, h.shape[2]))
        proposal = self.coupling(h, remaining, *summed_up(h, valid, member), shown)
        transport_steps = self.config.sinkhorn_steps if self.config.e_step == "transport" else 0
        mixed: Mixed = self.mixing(h, valid, proposal, steps=self.config.em_steps, transport_steps=transport_steps)
        logits = self.membership(h, self.mixing.claims(h, mixed), mixed)
        return Found(logits, self._context(h, remaining, logits, mixed), mixed)

    def _context(self, h: Tensor, remaining: Tensor, logits: Tensor, mixed: Mixed) -> Float[Tensor, "B P"] | None:
        """What the density head reads: means of several things over the points, by how much they are members."""
        if self.pool is None or self.describe is None:
            return None
        weight = torch.sigmoid(logits) * remaining
        weight = (weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-6)).unsqueeze(1)
        own = mixed.mean[:, :1]
        context: Tensor = self.describe(torch.cat((own, weight @ (h - own).square(), weight @ self.pool(h)), dim=2))
        return context.squeeze(1)

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:
        """Membership and surprise of the cluster that comes next, where some true clusters count as found already."""
        # Dropout knows no generator of its own.
        with seeded_from(generator) if self.config.dropout else nullcontext():
            x = batch.x.masked_fill(~batch.valid.unsqueeze(2), 0.0)
            h = self.lifted(self.seen_in_training(x, batch.valid, generator))
            true = batch.labels.masked_fill(~batch.valid, -1)
            return (
                self._loss_at_moments(x, h, true, generator)
                if self.config.prefixes_per_set
                else self._loss_in_turn(x, h, true, generator)
            )

    def _loss_at_moments(
        self, x: Float[Tensor, "B N D"], h: Float[Tensor, "B N E"], true: Int[Tensor, "B N"], generator: Generator
    ) -> Loss:
        """Loss of the next cluster after as many as chance has it."""
        h, true, x = (part.repeat_interleave(self.config.prefixes_per_set, dim=0) for part in (h, true, x))
        order = order_of_clusters(true, generator)
        # With strays there is one moment more: all clusters are found, and nothing else is left.
        count = (order >= 0).sum(dim=1) + int(self.config.leftover_fraction > 0)
        passed = (torch.rand(len(h), generator=generator, device=generator.device).to(h.device) * count).long()
        return self._next_loss(x, h, true, (order >= 0) & (order < passed.unsqueeze(1)), generator)[0]

    def _loss_in_turn(
        self, x: Float[Tensor, "B N D"], h: Float[Tensor, "B N E"], true: Int[Tensor, "B N"], generator: Generator
    ) -> Loss:
        """Loss of all clusters, from the first to the last, the true one being taken out each time."""
        found = torch.zeros((len(h), int(true.max()) + 1), dtype=torch.bool, device=h.device)
        losses = []
        while not bool(found.gather(1, true.clamp(min=0)).logical_or(true < 0).all()):
            open_sets = (~found.gather(1, true.clamp(min=0)) & (true >= 0)).any(dim=1).nonzero().squeeze(1)
            loss, chosen = self._next_loss(x[open_sets], h[open_sets], true[open_sets], found[open_sets], generator)
            losses.append((loss, len(open_sets) / len(h)))
            found[open_sets] |= one_hot(chosen, found.shape[1]).bool()
        names = losses[0][0].parts
        return Loss(
            torch.stack([loss.total * share for loss, share in losses]).sum(),
            {name: sum(loss.parts[name] * share for loss, share in losses) for name in names},
        )

    def _next_loss(
        self,
        x: Float[Tensor, "B N D"],
        h: Float[Tensor, "B N E"],
        true: Int[Tensor, "B N"],
        found: Bool[Tensor, "B K"],
        generator: Generator,
    ) -> tuple[Loss, Int[Tensor, " B"]]:
        """Loss of the next cluster of each set, and which one that is; true labels are -1 where there is no point."""
        valid = true >= 0
        is_found = found.gather(1, true.clamp(min=0)) & valid
        known = is_found & ~self._strays(true, generator) if self.config.leftover_fraction else is_found
        remaining = valid & ~known
        anchor = None
        if self.config.filtering == "anchored":
            draws = torch.rand(true.shape, generator=generator, device=generator.device).to(h.device)
            anchor = draws.masked_fill(~remaining, -1.0).argmax(dim=1)
        now = self.find(h, valid, true.masked_fill(~known, -1), anchor)
        # Strays are members of nothing that is to come: where there is nothing else, no point is to be taken.
        member = one_hot(true.clamp(min=0), found.shape[1]) * (valid & ~is_found).unsqueeze(2)
        size = member.sum(dim=1)
        # Of all clusters at once: the sum over points of log(1 + exp(logit)) is theirs together.
        common = (softplus(now.logits) * remaining).sum(dim=1, keepdim=True)
        own = torch.einsum("bn,bnk->bk", now.logits, member.to(h.dtype))
        membership = (common - own) / remaining.sum(dim=1, keepdim=True).clamp(min=1)
        surprise = torch.zeros_like(membership)
        if self.density is not None and now.context is not None:
            log_prob = self.density.log_prob(x, now.context, generator)
            surprise = -torch.einsum("bn,bnk->bk", log_prob, member.to(h.dtype)) / size.clamp(min=1)
        total = membership + self.config.nll_weight * surprise
        if anchor is None:
            chosen = total.masked_fill(size == 0, torch.inf).argmin(dim=1, keepdim=True)
        else:
            chosen = true.gather(1, anchor.unsqueeze(1)).clamp(min=0)
        parts = {"membership": float(membership.detach().gather(1, chosen).mean())}
        if self.density is not None:
            parts["surprise"] = float(surprise.detach().gather(1, chosen).mean())
        return Loss(total.gather(1, chosen).mean(), parts), chosen.squeeze(1)

    def _strays(self, true: Int[Tensor, "B N"], generator: Generator) -> Bool[Tensor, "B N"]:
        """Which points would be left over, a random share of each set."""
        # One place after the other, so that padding at the end leaves the points with the draws that they have.
        draws = torch.rand((true.shape[1] + 1, len(true)), generator=generator, device=generator.device).to(true.device)
        return (draws[1:] < self.config.leftover_fraction * draws[:1]).T

    def filter_embedded(
        self, x: Float[Tensor, "B N F"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Passes]:
        """Find clusters of all sets side by side until no point is left in any."""
        h = self.lifted(x)
        labels = torch.full_like(valid, -1, dtype=torch.int64)
        kept: list[list[dict[str, Tensor]]] = [[] for _ in range(len(x))]
        # Sets share the random numbers, and all are drawn beforehand, lest one set depend on its neighbours.
        n_draws = self.config.max_passes if self.config.filtering == "anchored" else 0
        uniform = torch.rand(n_draws, generator=generator, device=generator.device).to(h.device)
        for number in range(self.config.max_passes):
            active = (valid & (labels < 0)).any(dim=1).nonzero().squeeze(1)
            if len(active) == 0:
                break
            here, there, so_far = h[active], valid[active], labels[active]
            turn = torch.tensor([len(kept[place]) for place in active.tolist()], device=h.device)
            remaining = there & (so_far < 0)
            anchor = picked(remaining, uniform[number]) if n_draws else None
            found = self.find(here, there, so_far, anchor)
            taken, stray = self._taken(found.logits.masked_fill(~remaining, -torch.inf), remaining, anchor, turn)
            so_far = torch.where(taken, turn.unsqueeze(1), so_far)
            if bool(stray.any()):
                so_far = torch.where(stray, self._nearest(here, there, so_far), so_far)
            if self.config.update_previous:  # AMCP*
                so_far = torch.where(so_far >= 0, self._nearest(here, there, so_far), so_far)
            labels[active] = so_far
            for row in taken.any(dim=1).nonzero().squeeze(1).tolist():
                kept[int(active[row])].append(_state_of(found, row, int(turn[row])))
        if self._by_centres and self.config.decoding == "robust":
            labels = self._settled(h, valid, labels)
        return [
            self._summarised(states, h[place], valid[place], labels[place]) if states else {}
            for place, states in enumerate(kept)
        ]

    def _taken(
        self,
        logits: Float[Tensor, "B N"],
        remaining: Bool[Tensor, "B N"],
        anchor: Int[Tensor, " B"] | None,
        turn: Int[Tensor, " B"],
    ) -> tuple[Bool[Tensor, "B N"], Bool[Tensor, "B N"]]:
        """Who is in the new cluster, and who is a stray that goes to one that is found; always somebody is either."""
        taken = logits > 0
        asked_for, likeliest = remaining, (logits == logits.amax(dim=1, keepdim=True)) & remaining
        if anchor is not None:
            asked_for = one_hot(anchor, logits.shape[1]).bool()
        # Only a network that was shown strays can say that nobody else is left, and the first pass has none.
        refused = (~(taken & asked_for).any(dim=1) & (turn > 0) & (self.config.leftover_fraction > 0)).unsqueeze(1)
        certain = likeliest if anchor is None else likeliest | asked_for
        return (taken | certain) & ~refused, asked_for & refused

    def _nearest(
        self, h: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], labels: Int[Tensor, "B N"]
    ) -> Int[Tensor, "B N"]:
        """Of the found clusters, the one that claims each point most."""
        centre, share = self._centres(h, valid, members_of(labels, valid, h.dtype))
        nearest: Tensor = (self.mixing.pair_scores(h, centre) + log_mass(share).unsqueeze(1)).argmax(dim=2)
        return nearest

    def _settled(
        self, h: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], labels: Int[Tensor, "B N"]
    ) -> Int[Tensor, "B N"]:
        """Points that moved to the clusters that claim them most, again and again: mixing, now that all are found."""
        for _ in range(MOST_MOVES):
            moved = torch.where(labels >= 0, self._nearest(h, valid, labels), labels)
            if torch.equal(moved, labels):
                break
            labels = moved
        return labels

    def _centres(
        self, h: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], member: Float[Tensor, "B N K"]
    ) -> tuple[Float[Tensor, "B K E"], Float[Tensor, "B K"]]:
        """References of clusters as their members alone would have them, and their shares of all points."""
        mean, share = summed_up(h, valid, member)
        return self.mixing.decode(self.coupling.as_reference(mean)), share

    def _summarised(
        self, states: Sequence[dict[str, Tensor]], h: Float[Tensor, "N E"], valid: Tensor, labels: Int[Tensor, " N"]
    ) -> Passes:
        """What is kept of all passes over one set: every pass knows as many references, some of them none."""
        passes = len(states)
        for state in states:
            missing = passes - len(state["offset"])
            state["reference"] = pad(state["reference"], (0, 0, 0, missing))
            state["offset"] = pad(state["offset"], (0, missing), value=NEVER)
        stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        member = one_hot(labels.clamp(min=0), passes).to(h.dtype) * (labels >= 0).unsqueeze(1)
        centre, _ = self._centres(h.unsqueeze(0), valid.unsqueeze(0), member.unsqueeze(0))
        return stacked | {"centre": centre.squeeze(0), "count": member.sum(dim=0).long()}

    def claims(self, x: Float[Tensor, "N F"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Logits by which each pass, by itself, would take each embedded point."""
        h = self.lifted(x).expand(len(extras["turn"]), -1, -1)
        mixed = Mixed(*(extras[name] for name in ("reference", "offset", "background", "level", "state")))
        logits: Tensor = self.membership(h, self.mixing.claims(h, mixed), mixed)
        return logits.T

    @property
    def _by_centres(self) -> bool:
        """Whether clusters compete for the points by their references alone."""
        return not self._has_posteriors and (self.config.update_previous or self.config.decoding == "robust")

    @property
    def _compete(self) -> bool:
        return super()._compete or self._by_centres or self.config.leftover_fraction > 0

    def _belonging(self, x: Float[Tensor, "N X"], found: Clustering) -> Float[Tensor, "N K"]:
        extras = found.extras
        if not self._by_centres:
            belonging = super()._belonging(x, found)
            if self._has_posteriors or not self.config.leftover_fraction:
                return belonging
            is_stray = (self.claims(x, extras) <= 0).all(dim=1, keepdim=True)
            return torch.where(is_stray, self._by_distance(x, extras), belonging)
        return self._by_distance(x, extras)

    def _by_distance(self, x: Float[Tensor, "N F"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Memberships by how near embedded points are to the clusters' references, and by the shares of these."""
        scores = self.mixing.pair_scores(self.lifted(x).unsqueeze(0), extras["centre"].unsqueeze(0))
        belonging: Tensor = (scores.squeeze(0) + extras["log_share"]).softmax(dim=1)
        return belonging

    def _components(
        self, x: Float[Tensor, "N D"], shown: Float[Tensor, "S D"], passes: Passes, generator: Generator
    ) -> dict[str, Tensor]:
        if not self._by_centres:
            return super()._components(x, shown, passes, generator)
        count = passes["count"]
        large = count >= (self.config.min_cluster_size if self.config.decoding == "robust" else 1)
        large |= (count == count.max()) & ~large.any()
        return super()._components(x, shown, {name: value[large] for name, value in passes.items()}, generator)

    def calibrate(self, batches: Sequence[TaskBatch], score: Score) -> AmcpConfig:
        """The configuration with the smallest clusters that do best, where these are a matter of choice."""
        if not self._by_centres or self.config.decoding != "robust":
            return self.config
        before = self.config
        means = {}
        for smallest in SMALLEST:
            self.config = replace(before, min_cluster_size=smallest)
            scores = []
            for batch in batches:
                found = self.cluster_sets(batch.x, batch.valid, Generator(batch.x.device).manual_seed(0))
                for one, labels, valid in zip(found, batch.labels, batch.valid, strict=True):
                    scores.append(score(labels[valid], one.labels[valid]))
            means[smallest] = sum(scores) / len(scores)
        self.config = before
        return replace(before, min_cluster_size=max(means, key=lambda smallest: means[smallest]))

    def describe_sets(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """What describes the cluster of each set's first point, or the one that the network finds the easiest."""
        first = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        none = torch.full_like(valid, -1, dtype=torch.int64)
        anchor = first if self.config.filtering == "anchored" else None
        context = self.find(self.lifted(self.embedded(x, valid)), valid, none, anchor).context
        if context is None:
            raise ConfigError("A network without a density head describes no clusters.")
        return context


def _state_of(found: Found, row: int, turn: int) -> dict[str, Tensor]:
    """What is kept of a pass over one set."""
    mixed = found.mixed
    state = {
        "reference": mixed.mean[row, : turn + 1],
        "offset": mixed.offset[row, : turn + 1],
        "background": mixed.background[row],
        "level": mixed.level[row],
        "state": mixed.state[row],
        "turn": torch.tensor(turn, device=mixed.mean.device),
    }
    if found.context is not None:
        state["context"] = found.context[row]
    return state
