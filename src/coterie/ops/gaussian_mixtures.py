"""Mixtures of Gaussians with diagonal covariances: densities, EM, and the number of components."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NEAR = 3.0  # distance between means, in sums of deviations, beyond which two components are never merged
LEAST_VARIANCE = 1e-12  # least variance of a component, for one of identical points
MIN_IMPROVEMENT = 1.0  # least improvement of the penalised log-likelihood that counts; less may be rounding
ONE_IN_A_MILLION = 4.753  # quantile of the standard normal distribution at one minus 1e-6


def diagonal_log_prob(
    x: Float[Tensor, "*B N D"], mean: Float[Tensor, "*B K D"], deviation: Float[Tensor, "*B K D"]
) -> Float[Tensor, "*B N K"]:
    """Compute the log-density of every point under every component, without an (N, K, D) tensor."""
    # Centred, since squares of numbers far from zero would leave no digits for their differences.
    centre = mean.mean(dim=-2, keepdim=True)
    log_prob = sufficient_statistics(x - centre) @ _coefficients(mean - centre, deviation).mT
    return log_prob.minimum(_peak(deviation).unsqueeze(-2))


def sufficient_statistics(x: Float[Tensor, "*B N D"]) -> Float[Tensor, "*B N S"]:
    """Return the sufficient statistics of diagonal Gaussians: one, the features, and their squares."""
    return torch.cat((torch.ones_like(x[..., :1]), x, x.square()), dim=-1)


def _coefficients(mean: Float[Tensor, "*B K D"], deviation: Float[Tensor, "*B K D"]) -> Float[Tensor, "*B K S"]:
    """Return the coefficients of the sufficient statistics in the log-density."""
    precision = deviation.square().reciprocal()
    constant = _peak(deviation) - 0.5 * (mean.square() * precision).sum(dim=-1)
    return torch.cat((constant.unsqueeze(-1), mean * precision, -0.5 * precision), dim=-1)


def _peak(deviation: Float[Tensor, "*B K D"]) -> Float[Tensor, "*B K"]:
    """Compute the log-density of each component at its mean."""
    return -deviation.log().sum(dim=-1) - 0.5 * deviation.shape[-1] * math.log(2 * math.pi)


def mixture_log_joint(x: Float[Tensor, "N D"], kept: Mapping[str, Tensor]) -> Float[Tensor, "N K"]:
    """Compute log(weight x density) from the parameters that a clustering keeps."""
    return kept["log_share"] + diagonal_log_prob(x, kept["mean"], kept["deviation"])


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture whose deviations are regularised towards expected ones."""

    share: Float[Tensor, " K"]
    mean: Float[Tensor, "K D"]
    deviation: Float[Tensor, "K D"]
    expected: Float[Tensor, "K D"]  # prior of the deviations
    trust: float  # number of points that the prior counts as

    def joint(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N K"]:
        """Compute the joint log-density of every point and component."""
        return diagonal_log_prob(x, self.mean, self.deviation) + self.share.log()

    def keep(self, index: Tensor) -> "Mixture":
        """Return some of the components, with weights that sum to one."""
        share = self.share[index]
        return Mixture(share / share.sum(), self.mean[index], self.deviation[index], self.expected[index], self.trust)

    def with_more(self, other: "Mixture", share: float) -> "Mixture":
        """Return the components of both mixtures; the other one gets this weight."""
        return Mixture(
            torch.cat((self.share * (1 - share), other.share * share)),
            torch.cat((self.mean, other.mean)),
            torch.cat((self.deviation, other.deviation)),
            torch.cat((self.expected, other.expected)),
            self.trust,
        )


def is_explained(x: Float[Tensor, "N D"], mixture: Mixture) -> Bool[Tensor, " N"]:
    """Return which points lie within the one-in-a-million contour of some component."""
    squares = -2 * (diagonal_log_prob(x, mixture.mean, mixture.deviation) - _peak(mixture.deviation))
    # Wilson and Hilferty's approximation of the chi-squared quantile.
    ninth = 2 / (9 * x.shape[1])
    return squares.amin(dim=1) < x.shape[1] * (1 - ninth + ONE_IN_A_MILLION * math.sqrt(ninth)) ** 3


def run_em(x: Float[Tensor, "N D"], mixture: Mixture, steps: int) -> Mixture:
    """Run E- and M-steps."""
    return _Points.of(x).run_em(mixture, steps)


@dataclass(frozen=True, slots=True)
class _Points:
    """Points as sufficient statistics; components are in the rows, since sums over rows are fast."""

    statistics: Float[Tensor, "N S"]
    centre: Float[Tensor, " D"]

    @classmethod
    def of(cls, x: Float[Tensor, "N D"]) -> "_Points":
        """Centre the points, for the same reason as in `diagonal_log_prob`."""
        centre = x.mean(dim=0)
        return cls(sufficient_statistics(x - centre), centre)

    def joint(self, mixture: Mixture) -> Float[Tensor, "K N"]:
        """Compute the joint log-density of every point and component."""
        coefficients = _coefficients(mixture.mean - self.centre, mixture.deviation)
        coefficients[:, 0] += mixture.share.log()
        return coefficients @ self.statistics.mT

    def fit(self, weight: Float[Tensor, "K N"], expected: Float[Tensor, "K D"], trust: float) -> Mixture:
        """Run the M-step: weights, means and deviations of weighted points."""
        sums = weight @ self.statistics
        count = sums[:, :1].clamp(min=1e-6)
        mean, square = torch.split(sums[:, 1:] / count, len(self.centre), dim=1)
        pull = trust / (trust + count)
        variance = (square - mean.square()).clamp(min=LEAST_VARIANCE)
        deviation = ((1 - pull) * variance + pull * expected.square()).sqrt()
        count = count.squeeze(1)
        return Mixture(count / count.sum(), mean + self.centre, deviation, expected, trust)

    def run_em(self, mixture: Mixture, steps: int) -> Mixture:
        """Run E- and M-steps."""
        for _ in range(steps):
            mixture = self.fit(self.joint(mixture).softmax(dim=0), mixture.expected, mixture.trust)
        return mixture


def component_cost(x: Float[Tensor, "N D"], numbers: int | None = None) -> float:
    """Return half the number of parameters of a component times log N (BIC), which it must gain in log-likelihood.

    A Gaussian with a diagonal covariance has a mean, deviations and a weight: two parameters per feature and one.
    """
    return 0.5 * (2 * x.shape[1] + 1 if numbers is None else numbers) * math.log(max(2, len(x)))


def simplify(x: Float[Tensor, "N D"], mixture: Mixture, *, steps: int) -> Mixture:
    """Drop components and merge pairs while the log-likelihood loses less than their cost."""
    cost = component_cost(x)
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
        mixture = points.run_em(mixture, steps)
    return mixture


def choose_mixture(x: Float[Tensor, "N D"], first: Mixture, second: Mixture) -> Mixture:
    """Return the second mixture if its penalised log-likelihood is clearly higher, otherwise the first."""
    cost = component_cost(x)
    worth = [float(each.joint(x).logsumexp(dim=1).sum()) - cost * len(each.share) for each in (first, second)]
    return second if worth[1] > worth[0] + MIN_IMPROVEMENT else first


def prune_components(joint: Float[Tensor, "N K"], cost: float) -> Int[Tensor, " K2"]:
    """Drop components one by one while that loses less log-likelihood than the cost; return the other indices."""
    kept = torch.arange(joint.shape[1], device=joint.device)
    while len(kept) > 1:
        here = joint[:, kept]
        share = _mean_responsibility(here)
        after = []
        for drop in range(len(kept)):
            rest = torch.arange(len(kept), device=kept.device) != drop
            # The others inherit the weight, so that one of two equal components is redundant.
            inherited = (_mean_responsibility(here[:, rest]) / share[rest]).log()
            after.append((here[:, rest] + inherited).logsumexp(dim=1).sum())
        most = torch.stack(after).max(dim=0)
        if here.logsumexp(dim=1).sum() - most.values >= cost:
            break
        kept = kept[torch.arange(len(kept), device=kept.device) != most.indices]
    return kept


def _mean_responsibility(joint: Float[Tensor, "N K"]) -> Float[Tensor, " K"]:
    return joint.softmax(dim=1).mean(dim=0).clamp(min=1e-12)


def group_by_label(
    x: Float[Tensor, "N D"], label: Int[Tensor, " N"]
) -> tuple[Float[Tensor, "K M D"], Bool[Tensor, "K M"]]:
    """Return the points of each cluster as a padded set, in their present order."""
    count = torch.bincount(label)
    order = label.argsort(stable=True)
    position = torch.arange(len(x), device=x.device) - (count.cumsum(dim=0) - count)[label[order]]
    sets = x.new_zeros((len(count), int(count.max()), x.shape[1]))
    sets[label[order], position] = x[order]
    valid = torch.arange(sets.shape[1], device=x.device) < count.unsqueeze(1)
    return sets, valid


def _log_sum(joint: Float[Tensor, "K N"]) -> Float[Tensor, " N"]:
    """Compute logsumexp over components; torch's own is several times slower on few rows."""
    most = joint.amax(dim=0).clamp(min=torch.finfo(joint.dtype).min)
    return (joint - most).exp().sum(dim=0).log() + most


def _best_drop(
    joint: Float[Tensor, "K N"], total: Float[Tensor, " N"], responsibility: Float[Tensor, "K N"], share: Tensor
) -> tuple[float, int]:
    """Find the component whose removal loses the least log-likelihood, the others staying as they are."""
    loss = -torch.log1p(-responsibility.clamp(max=0.5))
    # For a point that only one component explains, the rounded responsibility does not show the loss.
    top = joint.argmax(dim=0, keepdim=True)
    others = _log_sum(joint.scatter(0, top, -torch.inf))
    loss = loss.scatter(0, top, (total - others).unsqueeze(0)).sum(dim=1)
    loss += joint.shape[1] * torch.log1p(-share.clamp(max=1 - torch.finfo(share.dtype).eps))
    least = loss.min(dim=0)
    return float(least.values), int(least.indices)


def _best_join(
    points: _Points, total: Float[Tensor, " N"], responsibility: Float[Tensor, "K N"], mixture: Mixture
) -> tuple[float, tuple[int, int]]:
    """Find the two nearby components whose merging loses the least log-likelihood."""
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
