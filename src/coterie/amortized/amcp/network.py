"""AMCP: amortized mixing coupling processes (Liu & Jing, 2022), a reconstruction.

Clusters are found one per pass. Coupling (InterCC) reads the remaining points and the clusters found, and predicts a
reference for the next one. Mixing (IntraCM) moves it, and those of the clusters found, by a few E- and M-steps over all
points, with a background for points that no cluster explains yet. A network then decides which remaining points belong.
Points are never compared with each other: the cost of a pass is points times clusters so far.

Only the appendix of the paper was available. It specifies the two E-steps, the two M-steps, the form of the references
and of the network that decodes them, the update of previous clusters, and the costs. The coupling network, the
background, the membership network and the loss are ours.

Letters: B sets, N points, D features, E width of an embedding, K clusters, P numbers that describe a cluster.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn
from torch.nn.functional import one_hot, pad

from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.mixing import InterClusterCoupling, IntraClusterMixing, Membership, Mixed, feed_forward
from coterie.amortized.filtering import FilteringModel, stack_states
from coterie.amortized.refinement import Passes
from coterie.errors import ConfigError
from coterie.nn.density import density_head
from coterie.nn.model import Loss, Score, TaskBatch, seeded_from
from coterie.nn.vision import ElementEncoder
from coterie.ops.correlation import MIN_CLUSTER_SIZES
from coterie.ops.partitions import Clustering
from coterie.ops.sinkhorn import LOG_ZERO, log_mass

MAX_MOVES = 30  # largest number of rounds in which points move between clusters, once all clusters are found


@dataclass(frozen=True, slots=True)
class Pass:
    """Result of one pass over each set."""

    logits: Float[Tensor, "B N"]  # positive for members of the new cluster
    context: Float[Tensor, "B P"] | None  # input of the density head, if there is one
    mixed: Mixed  # references of the new cluster and of those found before


@final
class AmcpModel(FilteringModel):
    """The coupling and mixing networks, and the loop that clusters with them."""

    Config = AmcpConfig
    config: AmcpConfig

    def __init__(self, config: AmcpConfig) -> None:
        super().__init__()
        self.config = config
        width, hidden = config.width, config.hidden
        self.embed = ElementEncoder(config.encoder, config.n_features, config.image, config.channels)
        self.lift = feed_forward([self.input_width, *[hidden] * config.depth, width])
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

    def embed_points(self, x: Float[Tensor, "*B N F"]) -> Float[Tensor, "*B N E"]:
        """Embed encoded points in the space of the references; between 0 and 1 if these are decoded."""
        points: Tensor = self.lift(x)
        return torch.sigmoid(points) if self.config.references == "decoded" else points

    def find_cluster(
        self,
        z: Float[Tensor, "B N E"],
        valid: Bool[Tensor, "B N"],
        labels: Int[Tensor, "B N"],
        anchor: Int[Tensor, " B"] | None = None,
    ) -> Pass:
        """Find one more cluster among the valid points of embedded sets whose label is still -1.

        Labels are 0..K-1; clusters may be empty. Anchored networks find the cluster of the anchor.
        """
        remaining = valid & (labels < 0)
        member = membership_matrix(labels, valid, z.dtype)
        at_anchor = None if anchor is None else z.gather(1, anchor.reshape(-1, 1, 1).expand(-1, 1, z.shape[2]))
        coupled = self.coupling(z, remaining, *cluster_means_and_proportions(z, valid, member), at_anchor)
        transport_steps = self.config.sinkhorn_steps if self.config.e_step == "transport" else 0
        mixed: Mixed = self.mixing(z, valid, coupled, steps=self.config.em_steps, transport_steps=transport_steps)
        logits = self.membership(z, self.mixing.pair_logits(z, mixed), mixed)
        return Pass(logits, self._pool_context(z, remaining, logits, mixed), mixed)

    def _pool_context(self, z: Tensor, remaining: Tensor, logits: Tensor, mixed: Mixed) -> Float[Tensor, "B P"] | None:
        """Pool the input of the density head over the points, weighted by membership."""
        if self.pool is None or self.describe is None:
            return None
        weight = torch.sigmoid(logits) * remaining
        weight = (weight / weight.sum(dim=1, keepdim=True).clamp(min=1e-6)).unsqueeze(1)
        own = mixed.mean[:, :1]
        context: Tensor = self.describe(torch.cat((own, weight @ (z - own).square(), weight @ self.pool(z)), dim=2))
        return context.squeeze(1)

    def loss(self, batch: TaskBatch, generator: Generator) -> Loss:
        """Compute the membership and density loss of the next cluster, with some true clusters already found."""
        # Dropout takes no generator.
        with seeded_from(generator) if self.config.dropout else nullcontext():
            x = batch.x.masked_fill(~batch.valid.unsqueeze(2), 0.0)
            z = self.embed_points(self.encode_for_training(x, batch.valid, generator))
            true = batch.labels.masked_fill(~batch.valid, -1)
            return (
                self._loss_of_prefixes(x, z, true, generator)
                if self.config.prefixes_per_set
                else self._loss_of_sequence(x, z, true, generator)
            )

    def _loss_of_prefixes(
        self, x: Float[Tensor, "B N D"], z: Float[Tensor, "B N E"], true: Int[Tensor, "B N"], generator: Generator
    ) -> Loss:
        """Compute the loss of the next cluster after random prefixes of the sequence of clusters."""
        z, true, x = (part.repeat_interleave(self.config.prefixes_per_set, dim=0) for part in (z, true, x))
        order = random_cluster_order(true, generator)
        # With leftovers there is one more prefix: all clusters are found, and only leftovers remain.
        count = (order >= 0).sum(dim=1) + int(self.config.leftover_fraction > 0)
        passed = (torch.rand(len(z), generator=generator, device=generator.device).to(z.device) * count).long()
        return self._next_loss(x, z, true, (order >= 0) & (order < passed.unsqueeze(1)), generator)[0]

    def _loss_of_sequence(
        self, x: Float[Tensor, "B N D"], z: Float[Tensor, "B N E"], true: Int[Tensor, "B N"], generator: Generator
    ) -> Loss:
        """Compute the loss of all clusters from the first to the last, removing the true one each time."""
        found = torch.zeros((len(z), int(true.max()) + 1), dtype=torch.bool, device=z.device)
        losses = []
        while not bool(found.gather(1, true.clamp(min=0)).logical_or(true < 0).all()):
            open_sets = (~found.gather(1, true.clamp(min=0)) & (true >= 0)).any(dim=1).nonzero().squeeze(1)
            loss, chosen = self._next_loss(x[open_sets], z[open_sets], true[open_sets], found[open_sets], generator)
            losses.append((loss, len(open_sets) / len(z)))
            found[open_sets] |= one_hot(chosen, found.shape[1]).bool()
        names = losses[0][0].parts
        return Loss(
            torch.stack([loss.total * fraction for loss, fraction in losses]).sum(),
            {name: sum(loss.parts[name] * fraction for loss, fraction in losses) for name in names},
        )

    def _next_loss(
        self,
        x: Float[Tensor, "B N D"],
        z: Float[Tensor, "B N E"],
        true: Int[Tensor, "B N"],
        found: Bool[Tensor, "B K"],
        generator: Generator,
    ) -> tuple[Loss, Int[Tensor, " B"]]:
        """Compute the loss of the next cluster of each set, and which one it is; true labels are -1 in padding."""
        valid = true >= 0
        is_found = found.gather(1, true.clamp(min=0)) & valid
        known = is_found & ~self._sample_leftovers(true, generator) if self.config.leftover_fraction else is_found
        remaining = valid & ~known
        anchor = None
        if self.config.filtering == "anchored":
            keys = torch.rand(true.shape, generator=generator, device=generator.device).to(z.device)
            anchor = keys.masked_fill(~remaining, -1.0).argmax(dim=1)
        result = self.find_cluster(z, valid, true.masked_fill(~known, -1), anchor)
        # Leftovers are not members of the next cluster: if only they remain, no point is to be taken.
        member = (one_hot(true.clamp(min=0), found.shape[1]) * (valid & ~is_found).unsqueeze(2)).to(z.dtype)
        target = None if anchor is None else true.gather(1, anchor.unsqueeze(1)).clamp(min=0)
        weight = self.config.nll_weight
        return self.filtering_loss(x, result.logits, result.context, remaining, member, target, generator, weight)

    def _sample_leftovers(self, true: Int[Tensor, "B N"], generator: Generator) -> Bool[Tensor, "B N"]:
        """Sample which points of found clusters are left over, a random fraction of each set."""
        # Position by position, so that padding does not change the random numbers of the points.
        uniform = torch.rand((true.shape[1] + 1, len(true)), generator=generator, device=generator.device)
        uniform = uniform.to(true.device)
        return (uniform[1:] < self.config.leftover_fraction * uniform[:1]).T

    def filter_encoded(
        self, x: Float[Tensor, "B N F"], valid: Bool[Tensor, "B N"], generator: Generator
    ) -> list[Passes]:
        """Find the clusters of all sets in parallel, until no point is left."""
        z = self.embed_points(x)
        labels = torch.full_like(valid, -1, dtype=torch.int64)
        kept: list[list[dict[str, Tensor]]] = [[] for _ in range(len(x))]
        # Sets share the random numbers, all sampled in advance, so that none depends on the others.
        n_anchors = self.config.max_passes if self.config.filtering == "anchored" else 0
        uniform = torch.rand(n_anchors, generator=generator, device=generator.device).to(z.device)
        for number in range(self.config.max_passes):
            active = (valid & (labels < 0)).any(dim=1).nonzero().squeeze(1)
            if len(active) == 0:
                break
            points, mask, assigned = z[active], valid[active], labels[active]
            turn = torch.tensor([len(kept[position]) for position in active.tolist()], device=z.device)
            remaining = mask & (assigned < 0)
            anchor = choose_remaining(remaining, uniform[number]) if n_anchors else None
            result = self.find_cluster(points, mask, assigned, anchor)
            logits = result.logits.masked_fill(~remaining, -torch.inf)
            taken, leftover = self._split_remaining(logits, remaining, anchor, turn)
            assigned = torch.where(taken, turn.unsqueeze(1), assigned)
            if bool(leftover.any()):
                assigned = torch.where(leftover, self._nearest(points, mask, assigned), assigned)
            if self.config.update_previous:  # AMCP*
                assigned = torch.where(assigned >= 0, self._nearest(points, mask, assigned), assigned)
            labels[active] = assigned
            for row in taken.any(dim=1).nonzero().squeeze(1).tolist():
                kept[int(active[row])].append(_pass_state(result, row, int(turn[row])))
        if self._by_centres and self.config.decoding == "robust":
            labels = self._reassign(z, valid, labels)
        return [
            self._stack_states(states, z[position], valid[position], labels[position]) if states else {}
            for position, states in enumerate(kept)
        ]

    def _split_remaining(
        self,
        logits: Float[Tensor, "B N"],
        remaining: Bool[Tensor, "B N"],
        anchor: Int[Tensor, " B"] | None,
        turn: Int[Tensor, " B"],
    ) -> tuple[Bool[Tensor, "B N"], Bool[Tensor, "B N"]]:
        """Return the members of the new cluster, and the leftovers, which join clusters found; not both are empty."""
        taken = logits > 0
        targets, likeliest = remaining, (logits == logits.amax(dim=1, keepdim=True)) & remaining
        if anchor is not None:
            targets = one_hot(anchor, logits.shape[1]).bool()
        # Only a network trained with leftovers can tell that nothing else remains, and never in the first pass.
        rejected = (~(taken & targets).any(dim=1) & (turn > 0) & (self.config.leftover_fraction > 0)).unsqueeze(1)
        certain = likeliest if anchor is None else likeliest | targets
        return (taken | certain) & ~rejected, targets & rejected

    def _nearest(
        self, z: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], labels: Int[Tensor, "B N"]
    ) -> Int[Tensor, "B N"]:
        """Return, for each point, the cluster found that has the highest score."""
        centre, proportion = self._centres(z, valid, membership_matrix(labels, valid, z.dtype))
        nearest: Tensor = (self.mixing.pair_scores(z, centre) + log_mass(proportion).unsqueeze(1)).argmax(dim=2)
        return nearest

    def _reassign(
        self, z: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], labels: Int[Tensor, "B N"]
    ) -> Int[Tensor, "B N"]:
        """Move points to the clusters with the highest score until nothing changes: mixing, once all are found."""
        for _ in range(MAX_MOVES):
            moved = torch.where(labels >= 0, self._nearest(z, valid, labels), labels)
            if torch.equal(moved, labels):
                break
            labels = moved
        return labels

    def _centres(
        self, z: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], member: Float[Tensor, "B N K"]
    ) -> tuple[Float[Tensor, "B K E"], Float[Tensor, "B K"]]:
        """Compute the references of clusters from their members alone, and their proportions."""
        mean, proportion = cluster_means_and_proportions(z, valid, member)
        return self.mixing.decode(self.coupling.as_reference(mean)), proportion

    def _stack_states(
        self, states: Sequence[dict[str, Tensor]], z: Float[Tensor, "N E"], valid: Tensor, labels: Int[Tensor, " N"]
    ) -> Passes:
        """Stack the states of all passes over one set, padded to one number of references."""
        passes = len(states)
        for state in states:
            missing = passes - len(state["offset"])
            state["reference"] = pad(state["reference"], (0, 0, 0, missing))
            state["offset"] = pad(state["offset"], (0, missing), value=LOG_ZERO)
        member = one_hot(labels.clamp(min=0), passes).to(z.dtype) * (labels >= 0).unsqueeze(1)
        centre, _ = self._centres(z.unsqueeze(0), valid.unsqueeze(0), member.unsqueeze(0))
        return stack_states(states) | {"centre": centre.squeeze(0), "count": member.sum(dim=0).long()}

    def membership_logits(self, x: Float[Tensor, "N F"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Compute the membership logits of encoded points in each pass, independently of the other passes."""
        z = self.embed_points(x).expand(len(extras["turn"]), -1, -1)
        mixed = Mixed(*(extras[name] for name in ("reference", "offset", "background", "level", "state")))
        logits: Tensor = self.membership(z, self.mixing.pair_logits(z, mixed), mixed)
        return logits.T

    @property
    def _by_centres(self) -> bool:
        """Whether clusters compete for points by their references alone."""
        return not self._has_posteriors and (self.config.update_previous or self.config.decoding == "robust")

    @property
    def _keeps_weights(self) -> bool:
        return super()._keeps_weights or self._by_centres or self.config.leftover_fraction > 0

    def _memberships(self, x: Float[Tensor, "N X"], clustering: Clustering) -> Float[Tensor, "N K"]:
        extras = clustering.extras
        if not self._by_centres:
            memberships = super()._memberships(x, clustering)
            if self._has_posteriors or not self.config.leftover_fraction:
                return memberships
            is_leftover = (self.membership_logits(x, extras) <= 0).all(dim=1, keepdim=True)
            return torch.where(is_leftover, self._reference_memberships(x, extras), memberships)
        return self._reference_memberships(x, extras)

    def _reference_memberships(self, x: Float[Tensor, "N F"], extras: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
        """Compute memberships from the scores of encoded points with the clusters' references and their weights."""
        scores = self.mixing.pair_scores(self.embed_points(x).unsqueeze(0), extras["centre"].unsqueeze(0))
        memberships: Tensor = (scores.squeeze(0) + extras["log_share"]).softmax(dim=1)
        return memberships

    def _refine(
        self, x: Float[Tensor, "N D"], sampled: Float[Tensor, "S D"], passes: Passes, generator: Generator
    ) -> dict[str, Tensor]:
        if not self._by_centres:
            return super()._refine(x, sampled, passes, generator)
        count = passes["count"]
        large = count >= (self.config.min_cluster_size if self.config.decoding == "robust" else 1)
        large |= (count == count.max()) & ~large.any()
        return super()._refine(x, sampled, {name: value[large] for name, value in passes.items()}, generator)

    def calibrate(self, batches: Sequence[TaskBatch], score: Score) -> AmcpConfig:
        """Return the configuration with the minimum cluster size that scores best, where references decide alone."""
        if not self._by_centres or self.config.decoding != "robust":
            return self.config
        before = self.config
        means = {}
        for size in MIN_CLUSTER_SIZES:
            self.config = replace(before, min_cluster_size=size)
            scores = []
            for batch in batches:
                clusterings = self.cluster_sets(batch.x, batch.valid, Generator(batch.x.device).manual_seed(0))
                for one, labels, valid in zip(clusterings, batch.labels, batch.valid, strict=True):
                    scores.append(score(labels[valid], one.labels[valid]))
            means[size] = sum(scores) / len(scores)
        self.config = before
        return replace(before, min_cluster_size=max(means, key=lambda size: means[size]))

    def cluster_contexts(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """Compute the context of the cluster of each set's first point or, without anchors, of any cluster."""
        first = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        none = torch.full_like(valid, -1, dtype=torch.int64)
        anchor = first if self.config.filtering == "anchored" else None
        context = self.find_cluster(self.embed_points(self.encode(x, valid)), valid, none, anchor).context
        if context is None:
            raise ConfigError("A network without a density has no contexts.")
        return context


def _pass_state(result: Pass, row: int, turn: int) -> dict[str, Tensor]:
    """Return the tensors that are kept from a pass over one set."""
    mixed = result.mixed
    state = {
        "reference": mixed.mean[row, : turn + 1],
        "offset": mixed.offset[row, : turn + 1],
        "background": mixed.background[row],
        "level": mixed.level[row],
        "state": mixed.state[row],
        "turn": torch.tensor(turn, device=mixed.mean.device),
    }
    if result.context is not None:
        state["context"] = result.context[row]
    return state


def membership_matrix(
    labels: Int[Tensor, "B N"], valid: Bool[Tensor, "B N"], dtype: torch.dtype
) -> Float[Tensor, "B N K"]:
    """Return one where a point is in a cluster; there is at least one cluster, possibly empty."""
    known = valid & (labels >= 0)
    return one_hot(labels.clamp(min=0)).to(dtype) * known.unsqueeze(2)


def cluster_means_and_proportions(
    z: Float[Tensor, "B N E"], valid: Bool[Tensor, "B N"], member: Float[Tensor, "B N K"]
) -> tuple[Float[Tensor, "B K E"], Float[Tensor, "B K"]]:
    """Compute the mean of each cluster and its proportion of the points."""
    count = member.sum(dim=1)
    mean = member.mT @ z / count.clamp(min=1).unsqueeze(2)
    return mean, count / valid.sum(dim=1, keepdim=True).clamp(min=1)


def choose_remaining(remaining: Bool[Tensor, "B N"], uniform: Float[Tensor, ""]) -> Int[Tensor, " B"]:
    """Choose one remaining point of each set, given a uniform number between 0 and 1."""
    count = remaining.sum(dim=1)
    rank = (uniform * count).long().minimum(count - 1)
    return (remaining.cumsum(dim=1) > rank.unsqueeze(1)).byte().argmax(dim=1)


def random_cluster_order(true: Int[Tensor, "B N"], generator: Generator) -> Int[Tensor, "B K"]:
    """Return the rank of each cluster in a random order of those that a set has; -1 for the others."""
    member = one_hot(true.clamp(min=0)) * (true >= 0).unsqueeze(2)
    present = member.sum(dim=1) > 0
    keys = torch.rand(present.shape, generator=generator, device=generator.device).to(true.device)
    return keys.masked_fill(~present, 2.0).argsort(dim=1).argsort(dim=1).masked_fill(~present, -1)
