"""What follows filtering where decoding is robust: the clusters that the passes gave compete for the points.

Gaussians are put right by expectation and maximisation, which need no network. Other densities have no closed form: the
network describes each cluster anew by its points alone, and what it says is then moved uphill in their likelihood.
Either way, clusters that bring less likelihood than they cost are dropped or joined, and each of those that are left is
looked at alone, since what looks like one cluster among many may be several.

Letters: N points, of which S were filtered; D features, K clusters, B sets, P numbers that describe a cluster, A sides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import pad

from coterie.amortized.tasks.synthetic import turned
from coterie.nn.density import DensityHead, FlowHead, GaussianHead, StatisticianHead
from coterie.ops.gaussian_mixtures import (
    CLEARLY,
    Mixture,
    better_of,
    cost_of_component,
    explained,
    grouped,
    needed_components,
    refine,
    simplify,
)
from coterie.ops.partitions import at_most

TRUST = 10.0
"""Points that the deviations which the network gives count as, against those that are there."""
STEPS = 5
"""Steps of expectation and maximisation after each change of the components."""
LOOKED_AT = 64
"""Points of a Gaussian cluster that are enough to see whether it is several."""
ASCENT = 20
"""Steps uphill from what the network says of a cluster."""
RATE = 0.05
"""Of those steps."""
SETTLING_RATE = 0.02
"""Of the last steps, of all clusters together."""
WEIGHING = 3
"""Steps of expectation and maximisation that weigh the sides that a cluster is described from."""
HOPE = 1.0
"""Log-likelihood per point that the steps may bring at most, as far as it is worth trying."""
SLIGHT = 1e-3
"""Posterior probability below which a point is none of a cluster's business."""
CHUNK = 32
"""Points of a piece that densities are computed for at once."""
LIKELY_JOINS = 3
"""Pairs of clusters that are tried as one, of those that the network finds the best."""
BLOCK_ELEMENTS = 1 << 21
"""Largest number of (cluster, row, hidden) cells that questions about rows hold at once: eight megabytes a tensor."""

Passes = dict[str, Tensor]
"""What the passes over one set have kept: one row for each, among others of its ``context`` and ``count``."""


class FilteringNetwork(Protocol):
    """What refinement asks of the network."""

    def describe_sets(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """What the network says of the cluster of each set's first point, or of the one that it finds the easiest."""

    def filter_all(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator) -> list[Passes]:
        """Filter sets side by side until nothing is left in any."""


def refine_gaussians(
    network: FilteringNetwork,
    head: GaussianHead,
    x: Float[Tensor, "N D"],
    shown: Float[Tensor, "S D"],
    passes: Passes,
    generator: Generator,
) -> dict[str, Tensor]:
    """Mean, deviation and share of each cluster, from the passes over the points that were shown, and all points."""
    mixture = refine(shown, _mixture(head, passes), STEPS)
    if len(shown) < len(x):
        mixture = refine(x, mixture, STEPS)
        missed = x[~explained(x, mixture)]
        if len(missed):
            everyone = torch.ones((1, len(missed)), dtype=torch.bool, device=x.device)
            more = network.filter_all(missed.unsqueeze(0), at_most(len(shown), everyone, generator), generator)
            mixture = refine(x, mixture.with_more(_mixture(head, *more), len(missed) / len(x)), STEPS)
    mixture = simplify(x, mixture, steps=STEPS)
    _, label = torch.unique(mixture.joint(shown).argmax(dim=1), return_inverse=True)
    alone, valid = grouped(shown, label)
    closer = network.filter_all(alone, at_most(LOOKED_AT, valid, generator), generator)
    if any(len(each["count"]) > 1 for each in closer):
        other = refine(x, _mixture(head, *closer), STEPS)
        mixture = better_of(x, mixture, simplify(x, other, steps=STEPS))
    return {"mean": mixture.mean, "deviation": mixture.deviation, "log_share": mixture.share.log()}


def refine_densities(
    network: FilteringNetwork,
    head: DensityHead,
    shown: Float[Tensor, "S D"],
    passes: Passes,
    generator: Generator,
    turns: int = 1,
) -> dict[str, Tensor]:
    """Context and share of each cluster, from the passes over the points that were shown.

    With several turns, a cluster has a context for each side that the points are seen from, and shares of the sides.
    """
    work = _Densities(network, head, shown)
    best = work.improved(passes)
    _, label, _ = work.competition(best)
    closer = network.filter_all(*grouped(shown, label), generator)
    if any(len(each["count"]) > 1 for each in closer):
        other = work.improved(*closer)
        best = other if work.worth(other) > work.worth(best) + CLEARLY else best
    best = work.settled(best)
    if turns > 1:
        return work.from_all_sides(best, turns)
    return {"context": best.context, "log_share": best.log_share}


def log_probs(head: DensityHead, x: Float[Tensor, "N D"], context: Float[Tensor, "K P"]) -> Float[Tensor, "N K"]:
    """Log-density of every point in every cluster, in blocks of bounded size."""
    rows = max(1, BLOCK_ELEMENTS // (len(context) * head.width))
    parts = [head.settled_log_prob(part.expand(len(context), -1, -1), context) for part in torch.split(x, rows)]
    return torch.cat(parts, dim=1).T


def turned_log_probs(
    head: DensityHead, x: Float[Tensor, "N 2"], context: Float[Tensor, "K A P"], log_side: Float[Tensor, "K A"]
) -> Float[Tensor, "N K"]:
    """Log-density of every point in every cluster that is described from several sides: the mean over these."""
    return (_from_sides(head, x, context) + log_side).logsumexp(dim=2)


def _from_sides(head: DensityHead, x: Float[Tensor, "N 2"], context: Float[Tensor, "K A P"]) -> Float[Tensor, "N K A"]:
    sides = zip(turned(x, context.shape[1]), context.unbind(dim=1), strict=True)
    return torch.stack([log_probs(head, seen, of_side) for seen, of_side in sides], dim=2)


@dataclass(frozen=True, slots=True)
class _Described:
    """Clusters, each by what the head reads and by its share."""

    context: Float[Tensor, "K P"]
    log_share: Float[Tensor, " K"]


@dataclass(frozen=True, slots=True)
class _Densities:
    """The points of one set, and what may be done to clusters of them that have no closed form."""

    network: FilteringNetwork
    head: DensityHead
    x: Float[Tensor, "S D"]

    @property
    def cost(self) -> float:
        """Log-likelihood that one more cluster must bring."""
        return cost_of_component(self.x, _numbers(self.head, self.x.shape[1]))

    def joint(self, clusters: _Described) -> Float[Tensor, "S K"]:
        """Log-density of every point together with every cluster."""
        return log_probs(self.head, self.x, clusters.context) + clusters.log_share

    def worth(self, clusters: _Described) -> float:
        """Log-likelihood after the cost of the clusters."""
        return float(self.joint(clusters).logsumexp(dim=1).sum()) - self.cost * len(clusters.context)

    def competition(self, clusters: _Described) -> tuple[Int[Tensor, " K2"], Int[Tensor, " S"], Float[Tensor, "S K2"]]:
        """Clusters that win some point, who wins each, and the log-densities of the winners."""
        joint = self.joint(clusters)
        winners, label = torch.unique(joint.argmax(dim=1), return_inverse=True)
        return winners, label, joint[:, winners]

    def improved(self, *passes: Passes) -> _Described:
        """Clusters that passes gave: needless ones dropped, the others described anew, and joined if that is better."""
        count = torch.cat([each["count"] for each in passes]).to(self.x.dtype) + 0.5
        start = _Described(torch.cat([each["context"] for each in passes]), (count / count.sum()).log())
        kept = needed_components(self.joint(start), self.cost)
        clusters = _Described(start.context[kept], start.log_share[kept])
        for steps in (0, ASCENT):
            clusters = self.described_anew(clusters, steps)
        joined = self.joined(clusters)
        while joined is not None:
            clusters = self.described_anew(joined, ASCENT)
            joined = self.joined(clusters)
        return clusters

    def described_anew(self, clusters: _Described, steps: int) -> _Described:
        """Clusters by the points that each wins: uphill from what the network says of these alone, or was known."""
        winners, alone, valid = self.own_points(clusters)
        known, new = clusters.context[winners], self.network.describe_sets(alone, valid)
        better = self.own(alone, valid, new) > self.own(alone, valid, known)
        context = self.uphill(alone, valid, torch.where(better.unsqueeze(1), new, known), steps)
        return _Described(context, (valid.sum(dim=1).to(self.x.dtype) / len(self.x)).log())

    def from_all_sides(self, clusters: _Described, turns: int) -> dict[str, Tensor]:
        """Clusters by the points that each wins, described from several sides, each as far as it explains them.

        A flow treats its features one after the other, so what it can describe well depends on the side. Where no side
        is special, the mean of the densities from all of them is closer to the truth than that from any one.
        """
        winners, alone, valid = self.own_points(clusters)
        seen, there = torch.cat(turned(alone, turns)), valid.repeat(turns, 1)
        context = self.uphill(seen, there, self.network.describe_sets(seen, there), ASCENT)
        context = context.reshape(turns, len(winners), -1).transpose(0, 1)
        of_point = _from_sides(self.head, self.x, context)
        share = valid.sum(dim=1, keepdim=True).to(self.x.dtype).expand(-1, turns) / (turns * len(self.x))
        for _ in range(WEIGHING):
            belonging = (of_point + share.log()).flatten(1).softmax(dim=1).sum(dim=0).reshape(share.shape)
            share = (belonging + 0.5 / turns) / (len(self.x) + 0.5 * len(winners))
        whole = share.sum(dim=1)
        return {"context": context, "log_side": (share / whole.unsqueeze(1)).log(), "log_share": whole.log()}

    def own_points(
        self, clusters: _Described
    ) -> tuple[Int[Tensor, " K2"], Float[Tensor, "K2 N D"], Bool[Tensor, "K2 N"]]:
        """Clusters that win some point, and the points that each wins."""
        winners, label, joint = self.competition(clusters)
        # The likeliest point of each cluster comes first: it is the anchor where one is asked for.
        order = joint.amax(dim=1).argsort(descending=True)
        return winners, *grouped(self.x[order], label[order])

    def joined(self, clusters: _Described) -> _Described | None:
        """Clusters of which two became one, if some pair loses less likelihood by that than a cluster costs."""
        winners, label, joint = self.competition(clusters)
        n_clusters = len(winners)
        if n_clusters < 2:
            return None
        apart = joint.gather(1, label.unsqueeze(1)).squeeze(1)
        own = torch.zeros(n_clusters, dtype=joint.dtype, device=joint.device).index_add(0, label, apart)
        pair = torch.triu_indices(n_clusters, n_clusters, offset=1, device=joint.device)
        # Neighbours have a point that is likely in both. As many pairs as there are clusters are asked about.
        near = torch.minimum(joint[:, pair[0]], joint[:, pair[1]]).amax(dim=0)
        pair = pair[:, near.argsort(descending=True)[:n_clusters]]
        row, which = (label.unsqueeze(1).unsqueeze(2) == pair).any(dim=1).nonzero().unbind(1)
        union, valid = grouped(self.x[row], which)
        context = self.network.describe_sets(union, valid)
        log_share = (valid.sum(dim=1).to(joint.dtype) / len(self.x)).log()

        def loss(candidates: Tensor, context: Tensor) -> Tensor:
            together = self.own(union[candidates], valid[candidates], context)
            together = together + valid[candidates].sum(dim=1) * log_share[candidates]
            return own[pair[:, candidates]].sum(dim=0) - together

        at_first = loss(torch.arange(len(context), device=joint.device), context)
        likely = at_first.argsort()[:LIKELY_JOINS]
        likely = likely[at_first[likely] < self.cost + HOPE * valid[likely].sum(dim=1)]
        if len(likely) == 0:
            return None
        context = self.uphill(union[likely], valid[likely], context[likely], ASCENT)
        least = loss(likely, context).min(dim=0)
        if float(least.values) >= self.cost:
            return None
        chosen = likely[least.indices]
        rest = torch.ones(n_clusters, dtype=torch.bool, device=joint.device)
        rest[pair[:, chosen]] = False
        return _Described(
            torch.cat((clusters.context[winners][rest], context[least.indices].unsqueeze(0))),
            torch.cat((clusters.log_share[winners][rest], log_share[chosen].unsqueeze(0))),
        )

    def own(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], context: Float[Tensor, "B P"]
    ) -> Float[Tensor, " B"]:
        """Log-likelihood of each set under its own context."""
        return _Chunks.of(x, valid).log_likelihood(self.head, context)

    def uphill(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], context: Float[Tensor, "B P"], steps: int
    ) -> Float[Tensor, "B P"]:
        """Contexts under which the points of each set are likelier."""
        chunks = _Chunks.of(x, valid)
        return _ascend(context, steps, RATE, lambda moving: chunks.log_likelihood(self.head, moving))

    def settled(self, clusters: _Described) -> _Described:
        """Clusters that share the points between them, moved uphill together; so far each had its points for itself."""
        belonging = self.joint(clusters).softmax(dim=1).T
        cluster, row = (belonging > SLIGHT).nonzero().unbind(1)
        chunks = _Chunks.of(*grouped(self.x[row], cluster))
        apart = torch.full_like(belonging, -torch.inf)

        def log_likelihood(moving: Tensor) -> Tensor:
            # Pairs of a point and a cluster come out in the order that they are listed in, by cluster.
            pairs = chunks.log_prob(self.head, moving)[chunks.valid] + clusters.log_share[cluster]
            return apart.index_put((cluster, row), pairs).logsumexp(dim=0).sum(dim=0, keepdim=True)

        context = _ascend(clusters.context, ASCENT, SETTLING_RATE, log_likelihood)
        share = self.joint(_Described(context, clusters.log_share)).softmax(dim=1).mean(dim=0)
        return _Described(context, share.log())


def _ascend(
    context: Float[Tensor, "B P"],
    steps: int,
    rate: float,
    objective: Callable[[Float[Tensor, "B P"]], Float[Tensor, " G"]],
) -> Float[Tensor, "B P"]:
    """The best of so many steps from the contexts given: each by itself, or all at once if there is one objective."""
    moving = context.clone().requires_grad_()
    optimiser = torch.optim.Adam([moving], lr=rate)
    most, best = torch.full_like(context[:, 0], -torch.inf), context
    for step in range(steps + 1):
        with torch.enable_grad():
            value = objective(moving)
            better = value.detach() > most
            most = torch.where(better, value.detach(), most)
            best = torch.where(better.unsqueeze(1), moving.detach(), best)
            if step < steps:
                (moving.grad,) = torch.autograd.grad(-value.sum(), moving)
                optimiser.step()
    return best


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Sets of very different sizes in equal pieces, so that little is computed for padding."""

    x: Float[Tensor, "C L D"]
    valid: Bool[Tensor, "C L"]
    owner: Int[Tensor, " C"]
    """Set that each piece is of."""

    @classmethod
    def of(cls, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> "_Chunks":
        """Cut sets into pieces; those without a point are left out."""
        rest = -x.shape[1] % CHUNK
        x, valid = pad(x, (0, 0, 0, rest)), pad(valid, (0, rest))
        pieces = valid.reshape(-1, CHUNK)
        used = pieces.any(dim=1).nonzero().squeeze(1)
        owner = used // (x.shape[1] // CHUNK)
        return cls(x.reshape(-1, CHUNK, x.shape[2])[used], pieces[used], owner)

    def log_likelihood(self, head: DensityHead, context: Float[Tensor, "B P"]) -> Float[Tensor, " B"]:
        """Of each set under its own context."""
        of_pieces = (self.log_prob(head, context) * self.valid).sum(dim=1)
        return torch.zeros_like(context[:, 0]).index_add(0, self.owner, of_pieces)

    def log_prob(self, head: DensityHead, context: Float[Tensor, "B P"]) -> Float[Tensor, "C L"]:
        """Of each point under the context of its set."""
        return head.settled_log_prob(self.x, context[self.owner])


def _numbers(head: DensityHead, n_features: int) -> int:
    """Numbers that a cluster is worth: mean, deviations and share; of a flow also how it is turned and bent.

    Of a statistician it is the share alone: its contexts are those of the kinds of things that it has learned, and to
    say which one costs little.
    """
    if isinstance(head, StatisticianHead):
        return 1
    numbers = 2 * n_features + 1
    if isinstance(head, FlowHead):
        numbers += n_features * (n_features - 1) // 2 + n_features
    return numbers


def _mixture(head: GaussianHead, *passes: Passes) -> Mixture:
    """The Gaussians that passes over one or several sets have described, with the shares that they took."""
    mean, deviation = head.parameters_of(torch.cat([each["context"] for each in passes]))
    count = torch.cat([each["count"] for each in passes]).to(mean.dtype) + 0.5
    return Mixture(count / count.sum(), mean, deviation, deviation, TRUST)
