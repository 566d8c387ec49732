"""Robust decoding: clusters compete for the points after the filtering passes.

Gaussians are refined by EM, without the network. Other densities have no closed form: the network describes each
cluster again from its points alone, and gradient ascent on the context raises their likelihood. In both cases, clusters
whose gain in likelihood is below their cost are dropped or merged, and each remaining cluster is filtered by itself,
since it may be several.

Letters: N points, of which S were filtered; D features, K clusters, B sets, P numbers that describe a cluster, A
rotations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import pad

from coterie.amortized.tasks.synthetic import rotations_of
from coterie.nn.density import DensityHead, FlowHead, GaussianHead, StatisticianHead
from coterie.ops.gaussian_mixtures import (
    MIN_IMPROVEMENT,
    Mixture,
    choose_mixture,
    component_cost,
    group_by_label,
    is_explained,
    prune_components,
    run_em,
    simplify,
)
from coterie.ops.partitions import subsample

PRIOR_COUNT = 10.0  # points that the network's deviations count as, against the observed ones
EM_STEPS = 5  # E- and M-steps after each change of the components
SPLIT_POINTS = 64  # points of a Gaussian cluster that are filtered again to see whether it is several
ASCENT_STEPS = 20  # steps of gradient ascent on a context
ASCENT_RATE = 0.05  # step size of the ascent of single clusters
JOINT_ASCENT_RATE = 0.02  # step size of the final ascent of all clusters together
ROTATION_EM_STEPS = 3  # E- and M-steps for the weights of the rotations
MAX_GAIN = 1.0  # log-likelihood per point that an ascent can gain; merges that would need more are not tried
MIN_POSTERIOR = 1e-3  # posterior probability below which a point is ignored by a cluster
CHUNK = 32  # points per chunk
MERGE_CANDIDATES = 3  # pairs of clusters whose merging is tried with an ascent
BLOCK_ELEMENTS = 1 << 21  # largest number of (cluster, row, hidden) cells in memory at once: eight megabytes per tensor

Passes = dict[str, Tensor]  # states of the passes over one set: one row each, such as its ``context`` and ``count``


class FilteringNetwork(Protocol):
    """What refinement needs of the network."""

    def cluster_contexts(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> Float[Tensor, "B P"]:
        """Compute the context of the cluster of each set's first point or, without anchors, of any cluster."""

    def filter_sets(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], generator: Generator) -> list[Passes]:
        """Run all passes over sets."""


def refine_gaussians(
    network: FilteringNetwork,
    head: GaussianHead,
    x: Float[Tensor, "N D"],
    sampled: Float[Tensor, "S D"],
    passes: Passes,
    generator: Generator,
) -> dict[str, Tensor]:
    """Fit mean, deviation and weight of each cluster to all points, starting from the passes over the sampled ones."""
    mixture = run_em(sampled, _mixture(head, passes), EM_STEPS)
    if len(sampled) < len(x):
        mixture = run_em(x, mixture, EM_STEPS)
        missed = x[~is_explained(x, mixture)]
        if len(missed):
            valid = torch.ones((1, len(missed)), dtype=torch.bool, device=x.device)
            more = network.filter_sets(missed.unsqueeze(0), subsample(len(sampled), valid, generator), generator)
            mixture = run_em(x, mixture.with_more(_mixture(head, *more), len(missed) / len(x)), EM_STEPS)
    mixture = simplify(x, mixture, steps=EM_STEPS)
    _, label = torch.unique(mixture.joint(sampled).argmax(dim=1), return_inverse=True)
    alone, valid = group_by_label(sampled, label)
    split = network.filter_sets(alone, subsample(SPLIT_POINTS, valid, generator), generator)
    if any(len(each["count"]) > 1 for each in split):
        other = run_em(x, _mixture(head, *split), EM_STEPS)
        mixture = choose_mixture(x, mixture, simplify(x, other, steps=EM_STEPS))
    return {"mean": mixture.mean, "deviation": mixture.deviation, "log_share": mixture.share.log()}


def refine_densities(
    network: FilteringNetwork,
    head: DensityHead,
    sampled: Float[Tensor, "S D"],
    passes: Passes,
    generator: Generator,
    rotations: int = 1,
) -> dict[str, Tensor]:
    """Fit context and weight of each cluster to the sampled points, starting from the passes over them.

    With several rotations, a cluster has a context and a weight for each of them.
    """
    work = _Densities(network, head, sampled)
    best = work.improve(passes)
    _, label, _ = work.compete(best)
    split = network.filter_sets(*group_by_label(sampled, label), generator)
    if any(len(each["count"]) > 1 for each in split):
        other = work.improve(*split)
        best = other if work.score(other) > work.score(best) + MIN_IMPROVEMENT else best
    best = work.ascend_together(best)
    if rotations > 1:
        return work.average_rotations(best, rotations)
    return {"context": best.context, "log_share": best.log_weight}


def log_probs(head: DensityHead, x: Float[Tensor, "N D"], context: Float[Tensor, "K P"]) -> Float[Tensor, "N K"]:
    """Compute the log-density of every point in every cluster, in blocks of bounded size."""
    rows = max(1, BLOCK_ELEMENTS // (len(context) * head.width))
    parts = [head.deterministic_log_prob(part.expand(len(context), -1, -1), context) for part in torch.split(x, rows)]
    return torch.cat(parts, dim=1).T


def rotated_log_probs(
    head: DensityHead, x: Float[Tensor, "N 2"], context: Float[Tensor, "K A P"], log_side: Float[Tensor, "K A"]
) -> Float[Tensor, "N K"]:
    """Compute the log-density of every point in every cluster, averaged over rotations."""
    return (_rotation_log_probs(head, x, context) + log_side).logsumexp(dim=2)


def _rotation_log_probs(
    head: DensityHead, x: Float[Tensor, "N 2"], context: Float[Tensor, "K A P"]
) -> Float[Tensor, "N K A"]:
    views = zip(rotations_of(x, context.shape[1]), context.unbind(dim=1), strict=True)
    return torch.stack([log_probs(head, rotated, of_view) for rotated, of_view in views], dim=2)


@dataclass(frozen=True, slots=True)
class _Clusters:
    """Clusters as contexts and weights."""

    context: Float[Tensor, "K P"]
    log_weight: Float[Tensor, " K"]


@dataclass(frozen=True, slots=True)
class _Densities:
    """The points of one set, and operations on clusters of them whose densities have no closed form."""

    network: FilteringNetwork
    head: DensityHead
    x: Float[Tensor, "S D"]

    @property
    def cost(self) -> float:
        """Log-likelihood that one more cluster must gain."""
        return component_cost(self.x, _n_parameters(self.head, self.x.shape[1]))

    def joint(self, clusters: _Clusters) -> Float[Tensor, "S K"]:
        """Compute the joint log-density of every point and cluster."""
        return log_probs(self.head, self.x, clusters.context) + clusters.log_weight

    def score(self, clusters: _Clusters) -> float:
        """Compute the log-likelihood minus the cost of the clusters."""
        return float(self.joint(clusters).logsumexp(dim=1).sum()) - self.cost * len(clusters.context)

    def compete(self, clusters: _Clusters) -> tuple[Int[Tensor, " K2"], Int[Tensor, " S"], Float[Tensor, "S K2"]]:
        """Return the clusters that win some point, the winner of each point, and the winners' joint log-densities."""
        joint = self.joint(clusters)
        winners, label = torch.unique(joint.argmax(dim=1), return_inverse=True)
        return winners, label, joint[:, winners]

    def improve(self, *passes: Passes) -> _Clusters:
        """Drop superfluous clusters of the passes, describe the others again, and merge some while that is better."""
        count = torch.cat([each["count"] for each in passes]).to(self.x.dtype) + 0.5
        start = _Clusters(torch.cat([each["context"] for each in passes]), (count / count.sum()).log())
        kept = prune_components(self.joint(start), self.cost)
        clusters = _Clusters(start.context[kept], start.log_weight[kept])
        for steps in (0, ASCENT_STEPS):
            clusters = self.describe_again(clusters, steps)
        merged = self.merge_best_pair(clusters)
        while merged is not None:
            clusters = self.describe_again(merged, ASCENT_STEPS)
            merged = self.merge_best_pair(clusters)
        return clusters

    def describe_again(self, clusters: _Clusters, steps: int) -> _Clusters:
        """Describe each cluster by the points it wins, starting from the network's context of these if it is better."""
        winners, alone, valid = self.won_points(clusters)
        known, new = clusters.context[winners], self.network.cluster_contexts(alone, valid)
        better = self.log_likelihood(alone, valid, new) > self.log_likelihood(alone, valid, known)
        context = self.ascend(alone, valid, torch.where(better.unsqueeze(1), new, known), steps)
        return _Clusters(context, (valid.sum(dim=1).to(self.x.dtype) / len(self.x)).log())

    def average_rotations(self, clusters: _Clusters, rotations: int) -> dict[str, Tensor]:
        """Describe each cluster by the points it wins under several rotations, weighted by how well each explains them.

        A flow treats features in sequence, so what it can describe depends on the rotation. Where no direction is
        special, the average of the densities over rotations is closer to the truth than any one of them.
        """
        winners, alone, valid = self.won_points(clusters)
        rotated, mask = torch.cat(rotations_of(alone, rotations)), valid.repeat(rotations, 1)
        context = self.ascend(rotated, mask, self.network.cluster_contexts(rotated, mask), ASCENT_STEPS)
        context = context.reshape(rotations, len(winners), -1).transpose(0, 1)
        log_prob = _rotation_log_probs(self.head, self.x, context)
        weight = valid.sum(dim=1, keepdim=True).to(self.x.dtype).expand(-1, rotations) / (rotations * len(self.x))
        for _ in range(ROTATION_EM_STEPS):
            count = (log_prob + weight.log()).flatten(1).softmax(dim=1).sum(dim=0).reshape(weight.shape)
            weight = (count + 0.5 / rotations) / (len(self.x) + 0.5 * len(winners))
        total = weight.sum(dim=1)
        return {"context": context, "log_side": (weight / total.unsqueeze(1)).log(), "log_share": total.log()}

    def won_points(
        self, clusters: _Clusters
    ) -> tuple[Int[Tensor, " K2"], Float[Tensor, "K2 N D"], Bool[Tensor, "K2 N"]]:
        """Return the clusters that win some point, and the points that each wins."""
        winners, label, joint = self.compete(clusters)
        # The likeliest point of each cluster comes first, as the anchor of anchored networks.
        order = joint.amax(dim=1).argsort(descending=True)
        return winners, *group_by_label(self.x[order], label[order])

    def merge_best_pair(self, clusters: _Clusters) -> _Clusters | None:
        """Merge two clusters, if some pair loses less log-likelihood by that than a cluster costs."""
        winners, label, joint = self.compete(clusters)
        n_clusters = len(winners)
        if n_clusters < 2:
            return None
        apart = joint.gather(1, label.unsqueeze(1)).squeeze(1)
        own = torch.zeros(n_clusters, dtype=joint.dtype, device=joint.device).index_add(0, label, apart)
        pair = torch.triu_indices(n_clusters, n_clusters, offset=1, device=joint.device)
        # Neighbours have a point that is likely in both. Try as many pairs as there are clusters.
        near = torch.minimum(joint[:, pair[0]], joint[:, pair[1]]).amax(dim=0)
        pair = pair[:, near.argsort(descending=True)[:n_clusters]]
        row, which = (label.unsqueeze(1).unsqueeze(2) == pair).any(dim=1).nonzero().unbind(1)
        union, valid = group_by_label(self.x[row], which)
        context = self.network.cluster_contexts(union, valid)
        log_weight = (valid.sum(dim=1).to(joint.dtype) / len(self.x)).log()

        def loss(candidates: Tensor, context: Tensor) -> Tensor:
            together = self.log_likelihood(union[candidates], valid[candidates], context)
            together = together + valid[candidates].sum(dim=1) * log_weight[candidates]
            return own[pair[:, candidates]].sum(dim=0) - together

        initial = loss(torch.arange(len(context), device=joint.device), context)
        likely = initial.argsort()[:MERGE_CANDIDATES]
        likely = likely[initial[likely] < self.cost + MAX_GAIN * valid[likely].sum(dim=1)]
        if len(likely) == 0:
            return None
        context = self.ascend(union[likely], valid[likely], context[likely], ASCENT_STEPS)
        least = loss(likely, context).min(dim=0)
        if float(least.values) >= self.cost:
            return None
        chosen = likely[least.indices]
        rest = torch.ones(n_clusters, dtype=torch.bool, device=joint.device)
        rest[pair[:, chosen]] = False
        return _Clusters(
            torch.cat((clusters.context[winners][rest], context[least.indices].unsqueeze(0))),
            torch.cat((clusters.log_weight[winners][rest], log_weight[chosen].unsqueeze(0))),
        )

    def log_likelihood(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], context: Float[Tensor, "B P"]
    ) -> Float[Tensor, " B"]:
        """Compute the log-likelihood of each set under its own context."""
        return _Chunks.of(x, valid).log_likelihood(self.head, context)

    def ascend(
        self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"], context: Float[Tensor, "B P"], steps: int
    ) -> Float[Tensor, "B P"]:
        """Raise the likelihood of each set by gradient ascent on its context."""
        chunks = _Chunks.of(x, valid)
        return _ascend(context, steps, ASCENT_RATE, lambda moving: chunks.log_likelihood(self.head, moving))

    def ascend_together(self, clusters: _Clusters) -> _Clusters:
        """Raise the likelihood of the mixture by gradient ascent on all contexts at once."""
        posterior = self.joint(clusters).softmax(dim=1).T
        cluster, row = (posterior > MIN_POSTERIOR).nonzero().unbind(1)
        chunks = _Chunks.of(*group_by_label(self.x[row], cluster))
        empty = torch.full_like(posterior, -torch.inf)

        def log_likelihood(moving: Tensor) -> Tensor:
            # Pairs of a point and a cluster are in the order of the list, by cluster.
            pairs = chunks.log_prob(self.head, moving)[chunks.valid] + clusters.log_weight[cluster]
            return empty.index_put((cluster, row), pairs).logsumexp(dim=0).sum(dim=0, keepdim=True)

        context = _ascend(clusters.context, ASCENT_STEPS, JOINT_ASCENT_RATE, log_likelihood)
        weight = self.joint(_Clusters(context, clusters.log_weight)).softmax(dim=1).mean(dim=0)
        return _Clusters(context, weight.log())


def _ascend(
    context: Float[Tensor, "B P"],
    steps: int,
    rate: float,
    objective: Callable[[Float[Tensor, "B P"]], Float[Tensor, " G"]],
) -> Float[Tensor, "B P"]:
    """Run gradient ascent and keep the best context: of each set by itself, or of all if there is one objective."""
    moving = context.clone().requires_grad_()
    optimiser = torch.optim.Adam([moving], lr=rate)
    highest, best = torch.full_like(context[:, 0], -torch.inf), context
    for step in range(steps + 1):
        with torch.enable_grad():
            value = objective(moving)
            better = value.detach() > highest
            highest = torch.where(better, value.detach(), highest)
            best = torch.where(better.unsqueeze(1), moving.detach(), best)
            if step < steps:
                (moving.grad,) = torch.autograd.grad(-value.sum(), moving)
                optimiser.step()
    return best


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Sets of different sizes in equal chunks, so that little is computed for padding."""

    x: Float[Tensor, "C L D"]
    valid: Bool[Tensor, "C L"]
    owner: Int[Tensor, " C"]  # set that each chunk belongs to

    @classmethod
    def of(cls, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> "_Chunks":
        """Split sets into chunks; those without a point are left out."""
        rest = -x.shape[1] % CHUNK
        x, valid = pad(x, (0, 0, 0, rest)), pad(valid, (0, rest))
        chunks = valid.reshape(-1, CHUNK)
        used = chunks.any(dim=1).nonzero().squeeze(1)
        owner = used // (x.shape[1] // CHUNK)
        return cls(x.reshape(-1, CHUNK, x.shape[2])[used], chunks[used], owner)

    def log_likelihood(self, head: DensityHead, context: Float[Tensor, "B P"]) -> Float[Tensor, " B"]:
        """Compute the log-likelihood of each set under its own context."""
        of_chunks = (self.log_prob(head, context) * self.valid).sum(dim=1)
        return torch.zeros_like(context[:, 0]).index_add(0, self.owner, of_chunks)

    def log_prob(self, head: DensityHead, context: Float[Tensor, "B P"]) -> Float[Tensor, "C L"]:
        """Compute the log-density of each point under the context of its set."""
        return head.deterministic_log_prob(self.x, context[self.owner])


def _n_parameters(head: DensityHead, n_features: int) -> int:
    """Count the parameters of a cluster: mean, deviations and weight, plus rotation and warp of a flow.

    A statistician's cluster counts only its weight: its contexts are those of the kinds of data that it has learned,
    and naming one costs little.
    """
    if isinstance(head, StatisticianHead):
        return 1
    numbers = 2 * n_features + 1
    if isinstance(head, FlowHead):
        numbers += n_features * (n_features - 1) // 2 + n_features
    return numbers


def _mixture(head: GaussianHead, *passes: Passes) -> Mixture:
    """Return the Gaussians of the passes over one or several sets, weighted by the points that they took."""
    mean, deviation = head.parameters_of(torch.cat([each["context"] for each in passes]))
    count = torch.cat([each["count"] for each in passes]).to(mean.dtype) + 0.5
    return Mixture(count / count.sum(), mean, deviation, deviation, PRIOR_COUNT)
