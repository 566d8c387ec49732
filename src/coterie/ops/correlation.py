"""The partition that probabilities of belonging together call for (a correlation clustering).

A kernel holds, for each pair of points, the probability that they are in one cluster. Two ways to read a partition off
it, neither told the number of clusters: a tree of merges by the mean probability between clusters, cut somewhere, after
which points may still move; and joining whatever the summed log-odds say belongs together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import linkage
from torch import Tensor
from torch.nn.functional import one_hot

from coterie.errors import InputError
from coterie.ops.partitions import by_size

CUTS = tuple(cut / 100 for cut in range(5, 100, 5))
"""Cuts to choose from."""
SMALLEST = (1, 2, 3, 4, 5)
"""Numbers of points to choose from, which a cluster must have to stay one."""
LEAST_GAIN = 1e-9
"""What a move must gain: less may be a matter of rounding, and go back and forth."""
MOVES_PER_POINT = 10
"""Moves, over the number of points, after which no more are made."""


@final
@dataclass(frozen=True, slots=True)
class MergeTree:
    """All merges that make one cluster of N points, in their order: there are N - 1."""

    merges: Int[Tensor, "N-1 2"]
    """The two clusters that join: points are 0..N-1, and what the i-th merge makes is N + i."""
    probability: Float[Tensor, " N-1"]
    """Mean probability between the members of the two, never rising from one merge to the next."""


def average_linkage(kernel: Float[Tensor, "N N"]) -> MergeTree:
    """Join again and again the two clusters with the largest mean probability between their members.

    Parameters
    ----------
    kernel : tensor (N, N)
        Probability of each pair to be in one cluster, symmetric; the diagonal is ignored.

    Returns
    -------
    MergeTree
        What `cut`, `cuts` and `cut_into` take.
    """
    n = len(kernel)
    if n == 1:
        return MergeTree(torch.zeros(0, 2, dtype=torch.int64, device=kernel.device), kernel.new_zeros(0).double())
    above = np.triu_indices(n, k=1)
    steps = linkage(1.0 - kernel.detach().cpu().double().numpy()[above], "average")
    return MergeTree(
        torch.from_numpy(steps[:, :2].astype(np.int64)).to(kernel.device),
        torch.from_numpy(1.0 - steps[:, 2]).to(kernel.device),
    )


def cut(tree: MergeTree, at: float) -> Int[Tensor, " N"]:
    """Labels once all clusters with at least that mean probability between them have joined."""
    return cuts(tree, [at])[0]


def cuts(tree: MergeTree, at: Sequence[float]) -> Int[Tensor, "C N"]:
    """Labels at many cuts of one tree, for which it is walked once."""
    return _after(tree, _merges_until(tree, at))


def cut_into(tree: MergeTree, k: int) -> Int[Tensor, " N"]:
    """Labels of exactly k clusters; among equal probabilities the tree's order decides."""
    n = len(tree.merges) + 1
    if not 1 <= k <= n:
        raise InputError(f"{n} points cannot be cut into {k} clusters; ask for 1 to {n}.")
    return _after(tree, [n - k])[0]


def calibrated_cut(
    kernels: Sequence[Float[Tensor, "_ _"]],
    truths: Sequence[Int[Tensor, " _"]],
    candidates: Sequence[float],
    score: Callable[[Tensor, Tensor], float],
) -> float:
    """Find the cut of average linkage that does best over several sets whose clusters are known.

    Parameters
    ----------
    kernels : sequence of tensors (N, N)
        Probabilities of the pairs of each set.
    truths : sequence of integer tensors (N,)
        Known clusters of each set.
    candidates : sequence of float
        Cuts to choose from.
    score : callable
        ``score(truth, labels)``, larger is better, such as the normalised mutual information. Both are on the CPU.

    Returns
    -------
    float
        The candidate with the highest mean score; of equal ones the first.
    """
    if not kernels or len(kernels) != len(truths) or not candidates:
        raise InputError(
            f"{len(kernels)} kernels, {len(truths)} truths and {len(candidates)} candidates do not calibrate a cut; "
            "give at least one kernel, a truth for each, and at least one candidate."
        )
    total = np.zeros(len(candidates))
    for kernel, truth in zip(kernels, truths, strict=True):
        tree = average_linkage(kernel)
        # Many candidates fall between the same two merges, where the partition is one and the same.
        needed, which = np.unique(_merges_until(tree, candidates), return_inverse=True)
        partitions = _after(tree, needed.tolist()).cpu()
        total += np.array([score(truth.cpu(), labels) for labels in partitions])[which]
    return candidates[int(total.argmax())]


def absorbed(kernel: Float[Tensor, "N N"], labels: Int[Tensor, " N"], smallest: int) -> Int[Tensor, " N"]:
    """Let clusters that are too small join the others, each as a whole the one that it is most probably with.

    Parameters
    ----------
    kernel : tensor (N, N)
        Probability of each pair to be in one cluster.
    labels : integer tensor (N,)
        Clusters, 0..K-1, all in use.
    smallest : int
        Points that a cluster must have to stay; if none has as many, all stay.

    Returns
    -------
    integer tensor (N,)
        Clusters, from the largest down.
    """
    sizes = labels.bincount()
    stays = sizes >= smallest
    if bool(stays.all()) or not bool(stays.any()):
        return labels
    members = one_hot(labels).to(kernel.dtype)
    together = members.T @ kernel @ members / (sizes.unsqueeze(1) * sizes)
    nearest = together.masked_fill(~stays, -torch.inf).argmax(dim=1)
    own = torch.arange(len(sizes), device=labels.device)
    return by_size(torch.where(stays, own, nearest)[labels])


def climbed(kernel: Float[Tensor, "N N"], labels: Int[Tensor, " N"], at: float) -> Int[Tensor, " N"]:
    """Let points move to other clusters, one at a time, as long as that makes the partition better.

    A partition is as good as the sum, over all pairs within clusters, of how far their probability is above the cut:
    what linkage, which never takes a merge back, only climbs towards. The move that gains most comes first. No cluster
    is opened, but one may be left by all.

    Parameters
    ----------
    kernel : tensor (N, N)
        Probability of each pair to be in one cluster, symmetric; the diagonal is ignored.
    labels : integer tensor (N,)
        Clusters, 0..K-1, all in use.
    at : float
        The cut.

    Returns
    -------
    integer tensor (N,)
        Clusters, from the largest down.
    """
    above = kernel.detach().cpu().double().numpy() - at
    np.fill_diagonal(above, 0.0)
    own: npt.NDArray[np.int64] = labels.cpu().numpy().copy()
    points = np.arange(len(own))
    # Of each point with the members of each cluster; a move changes two of the columns.
    sums = above @ np.eye(own.max() + 1)[own]
    for _ in range(MOVES_PER_POINT * len(own)):
        gains = sums - sums[points, own][:, None]
        best = gains.argmax(axis=1)
        point = int(gains[points, best].argmax())
        if gains[point, best[point]] <= LEAST_GAIN:
            break
        sums[:, own[point]] -= above[point]
        sums[:, best[point]] += above[point]
        own[point] = best[point]
    return by_size(torch.from_numpy(own).to(kernel.device))


class Linkage(NamedTuple):
    """How clusters are read off by average linkage."""

    threshold: float
    """Mean probability down to which clusters join."""
    min_cluster_size: int = 1
    """Points that a cluster must have to stay one."""
    local_moves: bool = False
    """Whether points move afterwards."""


def linked(kernel: Float[Tensor, "N N"], how: Linkage) -> Int[Tensor, " N"]:
    """Labels by average linkage down to a cut, without clusters that are too small."""
    labels = absorbed(kernel, cut(average_linkage(kernel), how.threshold), how.min_cluster_size)
    return climbed(kernel, labels, how.threshold) if how.local_moves else labels


def calibrated_linkage(
    kernels: Sequence[Float[Tensor, "_ _"]],
    truths: Sequence[Int[Tensor, " _"]],
    score: Callable[[Tensor, Tensor], float],
) -> Linkage:
    """The cut that does best over sets whose clusters are known, then the smallest cluster and whether points move."""
    at = calibrated_cut(kernels, truths, CUTS, score)
    candidates = [Linkage(at, smallest, climb) for climb in (False, True) for smallest in SMALLEST]
    total = np.zeros(len(candidates))
    for kernel, truth in zip(kernels, truths, strict=True):
        total += [score(truth.cpu(), linked(kernel, how).cpu()) for how in candidates]
    return candidates[int(total.argmax())]


def contracted(kernel: Float[Tensor, "N N"], bias: float = 0.0) -> Int[Tensor, " N"]:
    """Join the two clusters with the largest sum of log-odds between them, until no sum is positive.

    Greedy additive edge contraction (Keuper et al. 2015): it climbs towards the partition that is most probable if
    pairs were independent, the NP-hard optimum of correlation clustering.

    Parameters
    ----------
    kernel : tensor (N, N)
        Probability of each pair to be in one cluster, symmetric; the diagonal is ignored.
    bias : float
        Added to the log-odds of each pair: below zero for more clusters, above for fewer.

    Returns
    -------
    int64 tensor (N,)
        Clusters 0..K-1, the largest first.
    """
    # Rounding makes certainties of what is merely very probable, and one of them would outweigh all other pairs.
    eps = torch.finfo(kernel.dtype).eps
    sums = torch.logit(kernel.detach(), eps=eps).cpu().double().numpy() + bias
    np.fill_diagonal(sums, -np.inf)
    owner = np.arange(len(sums))
    best = sums.argmax(axis=1)
    best_sum = sums[owner, best]
    for _ in range(len(sums) - 1):
        kept = int(best_sum.argmax())
        if best_sum[kept] <= 0.0:
            break
        gone = int(best[kept])
        owner[owner == gone] = kept
        sums[kept] += sums[gone]
        sums[kept, kept] = -np.inf
        sums[:, kept] = sums[kept]
        sums[gone] = sums[:, gone] = -np.inf
        # The new sum is the best of a row if it is no less than the best so far. Of the other rows, only those whose
        # best was one of the two must look again.
        joined = (best == kept) | (best == gone)
        better = (sums[kept] > best_sum) | (joined & (sums[kept] == best_sum))
        again = np.union1d(np.flatnonzero(joined & ~better), [kept, gone])
        best[better], best_sum[better] = kept, sums[kept, better]
        best[again] = sums[again].argmax(axis=1)
        best_sum[again] = sums[again, best[again]]
    return by_size(torch.from_numpy(owner).to(kernel.device))


def _merges_until(tree: MergeTree, at: Sequence[float]) -> list[int]:
    """How many merges have at least each of those probabilities."""
    wanted = torch.tensor(at, dtype=torch.float64, device=tree.probability.device)
    return (tree.probability >= wanted.unsqueeze(1)).sum(dim=1).tolist()


def _after(tree: MergeTree, counts: Sequence[int]) -> Int[Tensor, "C N"]:
    """Labels after each of several numbers of merges."""
    merges: npt.NDArray[np.int64] = tree.merges.cpu().numpy()
    n = len(merges) + 1
    wanted = set(counts)
    found: dict[int, Tensor] = {}
    owner = np.arange(n)
    for done in range(max(wanted) + 1):
        if done in wanted:
            found[done] = by_size(torch.from_numpy(owner.copy()))
        if done < n - 1:
            owner[np.isin(owner, merges[done])] = n + done
    return torch.stack([found[count] for count in counts]).to(tree.merges.device)
