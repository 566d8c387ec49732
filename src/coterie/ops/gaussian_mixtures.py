"""Mixtures of Gaussians with diagonal covariances: densities, maximum-likelihood steps, and how many components."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from coterie.ops.partitions import Clustering

NEAR = 3.0
"""Distance between means, in sums of deviations, beyond which two components are not one."""
LEAST_VARIANCE = 1e-12
"""Of a component, lest one of equal points have none."""
CLEARLY = 1.0
"""Log-likelihood by which a mixture must be better; less may be rounding."""
ONE_IN_A_MILLION = 4.753
"""Standard deviations that a normal number exceeds so rarely."""


def diagonal_log_prob(
    x: Float[Tensor, "*B N D"], mean: Float[Tensor, "*B K D"], deviation: Float[Tensor, "*B K D"]
) -> Float[Tensor, "*B N K"]:
    """Log-density of every point under every component, by one product of matrices: no (N, K, D) tensor."""
    # Around the components, since squares of numbers far from zero would leave no digits for their differences.
    centre = mean.mean(dim=-2, keepdim=True)
    log_prob = statistics(x - centre) @ _coefficients(mean - centre, deviation).mT
    return log_prob.minimum(_peak(deviation).unsqueeze(-2))


def statistics(x: Float[Tensor, "*B N D"]) -> Float[Tensor, "*B N S"]:
    """All that a Gaussian with a diagonal covariance asks of a point: one, its features, and their squares."""
    return torch.cat((torch.ones_like(x[..., :1]), x, x.square()), dim=-1)


def _coefficients(mean: Float[Tensor, "*B K D"], deviation: Float[Tensor, "*B K D"]) -> Float[Tensor, "*B K S"]:
    """What the statistics of a point are multiplied by to give its log-density."""
    precision = deviation.square().reciprocal()
    constant = _peak(deviation) - 0.5 * (mean.square() * precision).sum(dim=-1)
    return torch.cat((constant.unsqueeze(-1), mean * precision, -0.5 * precision), dim=-1)


def _peak(deviation: Float[Tensor, "*B K D"]) -> Float[Tensor, "*B K"]:
    """Log-density of each component at its mean."""
    return -deviation.log().sum(dim=-1) - 0.5 * deviation.shape[-1] * math.log(2 * math.pi)


class Mixtures(NamedTuple):
    """One mixture for each set; components that a set does not have are given the share zero."""

    log_share: Float[Tensor, "B K"]
    mean: Float[Tensor, "B K D"]
    deviation: Float[Tensor, "B K D"]

    def joint(self, x: Float[Tensor, "B N D"]) -> Float[Tensor, "B N K"]:
        """Logarithm of share times density, of every point and component."""
        return self.log_share.unsqueeze(1) + diagonal_log_prob(x, self.mean, self.deviation)

    def clusterings(self, x: Float[Tensor, "B N D"], valid: Bool[Tensor, "B N"]) -> list[Clustering]:
        """Give each point to its most probable component; components without points are dropped."""
        joint = self.joint(x.masked_fill(~valid.unsqueeze(2), 0.0))
        return [_clustering(joint[i], valid[i], *(part[i] for part in self)) for i in range(len(x))]


def joint_of(x: Float[Tensor, "N D"], kept: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
    """Logarithm of share times density, from what a clustering keeps of its mixture."""
    return kept["log_share"] + diagonal_log_prob(x, kept["mean"], kept["deviation"])


@dataclass(frozen=True, slots=True)
class Mixture:
    """Components with their shares; every deviation is held near one that is expected, as by so many points more."""

    share: Float[Tensor, " K"]
    mean: Float[Tensor, "K D"]
    deviation: Float[Tensor, "K D"]
    expected: Float[Tensor, "K D"]
    """Deviations that the components are expected to have."""
    trust: float
    """Number of points that the expectation counts as."""

    def joint(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Log-density of every point together with every component."""
        return diagonal_log_prob(x, self.mean, self.deviation) + self.share.log()

    def keep(self, index: Tensor) -> "Mixture":
        """Some of the components, their shares scaled to sum to one."""
        share = self.share[index]
        return Mixture(share / share.sum(), self.mean[index], self.deviation[index], self.expected[index], self.trust)

    def with_more(self, other: "Mixture", share: float) -> "Mixture":
        """The components and those of another mixture, which takes this share from them."""
        return Mixture(
            torch.cat((self.share * (1 - share), other.share * share)),
            torch.cat((self.mean, other.mean)),
            torch.cat((self.deviation, other.deviation)),
            torch.cat((self.expected, other.expected)),
            self.trust,
        )


def explained(x: Float[Tensor, "N D"], mixture: Mixture) -> Bool[Tensor, " N"]:
    """Which points are where some component has its points, but for one in a million."""
    squares = -2 * (diagonal_log_prob(x, mixture.mean, mixture.deviation) - _peak(mixture.deviation))
    # Wilson and Hilferty's approximation of the chi-squared distribution's quantile.
    ninth = 2 / (9 * x.shape[1])
    return squares.amin(dim=1) < x.shape[1] * (1 - ninth + ONE_IN_A_MILLION * math.sqrt(ninth)) ** 3


def refine(x: Float[Tensor, "N D"], mixture: Mixture, steps: int) -> Mixture:
    """Expectation and maximisation in turn."""
    return _Points.of(x).refine(mixture, steps)


@dataclass(frozen=True, slots=True)
class _Points:
    """Points by their statistics; with the components in the rows, since sums over rows are the fast ones."""

    statistics: Float[Tensor, "N S"]
    centre: Float[Tensor, " D"]

    @classmethod
    def of(cls, x: Float[Tensor, "N D"]) -> "_Points":
        """Around their mean, for the same reason as in `diagonal_log_prob`."""
        centre = x.mean(dim=0)
        return cls(statistics(x - centre), centre)

    def joint(self, mixture: Mixture) -> Float[Tensor, "K N"]:
        """Log-density of every point together with every component."""
        coefficients = _coefficients(mixture.mean - self.centre, mixture.deviation)
        coefficients[:, 0] += mixture.share.log()
        return coefficients @ self.statistics.mT

    def fit(self, weight: Float[Tensor, "K N"], expected: Float[Tensor, "K D"], trust: float) -> Mixture:
        """The M-step: shares, means and deviations of weighted points."""
        sums = weight @ self.statistics
        count = sums[:, :1].clamp(min=1e-6)
        mean, square = torch.split(sums[:, 1:] / count, len(self.centre), dim=1)
        pull = trust / (trust + count)
        variance = (square - mean.square()).clamp(min=LEAST_VARIANCE)
        deviation = ((1 - pull) * variance + pull * expected.square()).sqrt()
        count = count.squeeze(1)
        return Mixture(count / count.sum(), mean + self.centre, deviation, expected, trust)

    def refine(self, mixture: Mixture, steps: int) -> Mixture:
        """Expectation and maximisation in turn."""
        for _ in range(steps):
            mixture = self.fit(self.joint(mixture).softmax(dim=0), mixture.expected, mixture.trust)
        return mixture


def cost_of_component(x: Float[Tensor, "N D"], numbers: int | None = None) -> float:
    """Log-likelihood that one more component must bring: half its numbers times log N (Schwarz's criterion).

    A Gaussian with a diagonal covariance has a mean, deviations and a share: two numbers per feature and one.
    """
    return 0.5 * (2 * x.shape[1] + 1 if numbers is None else numbers) * math.log(max(2, len(x)))


def simplify(x: Float[Tensor, "N D"], mixture: Mixture, *, steps: int) -> Mixture:
    """Drop components and join pairs of them as long as the likelihood loses less than they cost."""
    cost = cost_of_component(x)
    points = _Points.of(x)
    while len(mixture.share) > 1:
        joint = points.joint(mixture)
        total = _log_sum(joint)
        responsibility = (joint - total).exp()
        without, dropped = _best_drop(joint, total, responsibility, mixture.share)
        joined_loss, pair = _best_join(points, total, responsibility, mixture)
        if min(without, joined_loss) >= cost:
            break
        index = torch.arange(len(mixture.share), device=x.device)
        if without <= joined_loss:
            mixture = mixture.keep(index != dropped)
        else:
            first, second = pair
            kept = index != second
            responsibility[first] += responsibility[second]
            expected = mixture.expected.clone()
            expected[first] = torch.minimum(expected[first], expected[second])
            mixture = points.fit(responsibility[kept], expected[kept], mixture.trust)
        mixture = points.refine(mixture, steps)
    return mixture


def better_of(x: Float[Tensor, "N D"], first: Mixture, second: Mixture) -> Mixture:
    """The second mixture if its likelihood after the cost of its components is clearly higher, otherwise the first."""
    cost = cost_of_component(x)
    worth = [float(each.joint(x).logsumexp(dim=1).sum()) - cost * len(each.share) for each in (first, second)]
    return second if worth[1] > worth[0] + CLEARLY else first


def needed_components(joint: Float[Tensor, "N K"], cost: float) -> Int[Tensor, " K2"]:
    """Components that are left after those are dropped, one by one, that bring less likelihood than they cost."""
    kept = torch.arange(joint.shape[1], device=joint.device)
    while len(kept) > 1:
        here = joint[:, kept]
        share = _mean_responsibility(here)
        after = []
        for drop in range(len(kept)):
            rest = torch.arange(len(kept), device=kept.device) != drop
            # The others inherit: of two that are alike, one is as good as both.
            inherited = (_mean_responsibility(here[:, rest]) / share[rest]).log()
            after.append((here[:, rest] + inherited).logsumexp(dim=1).sum())
        most = torch.stack(after).max(dim=0)
        if here.logsumexp(dim=1).sum() - most.values >= cost:
            break
        kept = kept[torch.arange(len(kept), device=kept.device) != most.indices]
    return kept


def _mean_responsibility(joint: Float[Tensor, "N K"]) -> Float[Tensor, " K"]:
    return joint.softmax(dim=1).mean(dim=0).clamp(min=1e-12)


def grouped(x: Float[Tensor, "N D"], label: Int[Tensor, " N"]) -> tuple[Float[Tensor, "K M D"], Bool[Tensor, "K M"]]:
    """The points of each cluster as a set of their own, in the order they are in, padded."""
    count = torch.bincount(label)
    order = label.argsort(stable=True)
    place = torch.arange(len(x), device=x.device) - (count.cumsum(dim=0) - count)[label[order]]
    sets = x.new_zeros((len(count), int(count.max()), x.shape[1]))
    sets[label[order], place] = x[order]
    valid = torch.arange(sets.shape[1], device=x.device) < count.unsqueeze(1)
    return sets, valid


def _log_sum(joint: Float[Tensor, "K N"]) -> Float[Tensor, " N"]:
    """Log-density of every point; torch's own logsumexp is several times slower on few rows."""
    most = joint.amax(dim=0).clamp(min=torch.finfo(joint.dtype).min)
    return (joint - most).exp().sum(dim=0).log() + most


def _best_drop(
    joint: Float[Tensor, "K N"], total: Float[Tensor, " N"], responsibility: Float[Tensor, "K N"], share: Tensor
) -> tuple[float, int]:
    """Least loss of log-likelihood when one component is dropped and the others stay as they are."""
    loss = -torch.log1p(-responsibility.clamp(max=0.5))
    # A point that only one component explains loses more than the rounding of its responsibility can tell.
    top = joint.argmax(dim=0, keepdim=True)
    others = _log_sum(joint.scatter(0, top, -torch.inf))
    loss = loss.scatter(0, top, (total - others).unsqueeze(0)).sum(dim=1)
    loss += joint.shape[1] * torch.log1p(-share.clamp(max=1 - torch.finfo(share.dtype).eps))
    least = loss.min(dim=0)
    return float(least.values), int(least.indices)


def _best_join(
    points: _Points, total: Float[Tensor, " N"], responsibility: Float[Tensor, "K N"], mixture: Mixture
) -> tuple[float, tuple[int, int]]:
    """Least loss of log-likelihood when two components near each other become one."""
    first, second = torch.triu_indices(len(mixture.share), len(mixture.share), offset=1, device=total.device)
    gap = (mixture.mean[first] - mixture.mean[second]).abs() / (mixture.deviation[first] + mixture.deviation[second])
    near = gap.amax(dim=1) < NEAR
    first, second = first[near], second[near]
    if len(first) == 0:
        return math.inf, (0, 0)
    expected = torch.minimum(mixture.expected[first], mixture.expected[second])
    of_both = responsibility[first] + responsibility[second]
    merged = points.fit(of_both, expected, mixture.trust)
    merged = replace(merged, share=mixture.share[first] + mixture.share[second])
    rest = torch.log1p(-of_both.clamp(max=1 - torch.finfo(total.dtype).eps)) + total
    loss = total.sum() - torch.logaddexp(rest, points.joint(merged)).sum(dim=1)
    least = loss.min(dim=0)
    return float(least.values), (int(first[least.indices]), int(second[least.indices]))


def _clustering(
    joint: Float[Tensor, "N K"],
    valid: Bool[Tensor, " N"],
    log_share: Float[Tensor, " K"],
    mean: Float[Tensor, "K D"],
    deviation: Float[Tensor, "K D"],
) -> Clustering:
    """Hard and soft memberships in the components that win a point, the largest first; their shares sum to one."""
    winner = joint.argmax(dim=1)
    sizes = winner[valid].bincount(minlength=joint.shape[1])
    order = sizes.argsort(descending=True, stable=True)
    kept = order[: int((sizes > 0).sum())]
    return Clustering(
        labels=torch.where(valid, order.argsort()[winner], -1),
        n_clusters=len(kept),
        probabilities=joint[:, kept].softmax(dim=1) * valid.unsqueeze(1),
        extras={"mean": mean[kept], "deviation": deviation[kept], "log_share": log_share[kept].log_softmax(dim=0)},
    )
