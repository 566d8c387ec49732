"""Correlation clustering: partitions from a kernel of pairwise probabilities to be in one cluster.

Two decodings find the number of clusters themselves: average linkage cut at a threshold, after which points may still
move between clusters; and greedy edge contraction by summed log-odds. Kernels are symmetric, and their diagonal is
ignored; labels are 0..K-1, all in use, the largest cluster first.
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
from coterie.ops.partitions import relabel_by_size

THRESHOLDS = tuple(percent / 100 for percent in range(5, 100, 5))  # thresholds to calibrate over
MIN_CLUSTER_SIZES = (1, 2, 3, 4, 5)  # minimum cluster sizes to calibrate over
LEAST_GAIN = 1e-9  # least gain of a move; a smaller one may be rounding, and points would move back and forth
MOVES_PER_POINT = 10  # largest number of moves per point


@final
@dataclass(frozen=True, slots=True)
class MergeTree:
    """The M = N - 1 merges of N points into one cluster, in order."""

    merges: Int[Tensor, "M 2"]  # the two clusters of each merge: points are 0..N-1, and the i-th merge creates N + i
    probability: Float[Tensor, " M"]  # mean probability between the members of the two, non-increasing


def average_linkage(kernel: Float[Tensor, "N N"]) -> MergeTree:
    """Build the tree of average linkage, which merges the two clusters with the largest mean probability."""
    n = len(kernel)
    if n == 1:
        return MergeTree(torch.zeros(0, 2, dtype=torch.int64, device=kernel.device), kernel.new_zeros(0).double())
    above = np.triu_indices(n, k=1)
    steps = linkage(1.0 - kernel.detach().cpu().double().numpy()[above], "average")
    return MergeTree(
        torch.from_numpy(steps[:, :2].astype(np.int64)).to(kernel.device),
        torch.from_numpy(1.0 - steps[:, 2]).to(kernel.device),
    )


def cut_at(tree: MergeTree, threshold: float) -> Int[Tensor, " N"]:
    """Merge all clusters with at least that mean probability between them, and return the labels."""
    return cut_at_each(tree, [threshold])[0]


def cut_at_each(tree: MergeTree, thresholds: Sequence[float]) -> Int[Tensor, "C N"]:
    """Cut one tree at several thresholds in a single pass over it."""
    return _labels_after(tree, _count_merges(tree, thresholds))


def cut_into(tree: MergeTree, k: int) -> Int[Tensor, " N"]:
    """Cut a tree into exactly k clusters; among equal probabilities the order of the tree decides."""
    n = len(tree.merges) + 1
    if not 1 <= k <= n:
        raise InputError(f"{n} points cannot be cut into {k} clusters; ask for 1 to {n}.")
    return _labels_after(tree, [n - k])[0]


def calibrate_threshold(
    kernels: Sequence[Float[Tensor, "_ _"]],
    labels: Sequence[Int[Tensor, " _"]],
    candidates: Sequence[float],
    score: Callable[[Tensor, Tensor], float],
) -> float:
    """Return the threshold of average linkage with the highest mean score(true, predicted); the first of equal ones."""
    if not kernels or len(kernels) != len(labels) or not candidates:
        raise InputError(
            f"Cannot calibrate a threshold with {len(kernels)} kernels, {len(labels)} label tensors and "
            f"{len(candidates)} candidates; give at least one kernel with its labels, and one candidate."
        )
    total = np.zeros(len(candidates))
    for kernel, true in zip(kernels, labels, strict=True):
        tree = average_linkage(kernel)
        # Candidates between the same two merges give the same partition.
        needed, which = np.unique(_count_merges(tree, candidates), return_inverse=True)
        partitions = _labels_after(tree, needed.tolist()).cpu()
        total += np.array([score(true.cpu(), partition) for partition in partitions])[which]
    return candidates[int(total.argmax())]


def merge_small_clusters(kernel: Float[Tensor, "N N"], labels: Int[Tensor, " N"], min_size: int) -> Int[Tensor, " N"]:
    """Merge each cluster below the minimum size into the most probable one that has it; if none has it, all stay."""
    sizes = labels.bincount()
    stays = sizes >= min_size
    if bool(stays.all()) or not bool(stays.any()):
        return labels
    members = one_hot(labels).to(kernel.dtype)
    together = members.T @ kernel @ members / (sizes.unsqueeze(1) * sizes)
    nearest = together.masked_fill(~stays, -torch.inf).argmax(dim=1)
    own = torch.arange(len(sizes), device=labels.device)
    return relabel_by_size(torch.where(stays, own, nearest)[labels])


def apply_local_moves(kernel: Float[Tensor, "N N"], labels: Int[Tensor, " N"], threshold: float) -> Int[Tensor, " N"]:
    """Move points between clusters, one at a time, while that improves the partition.

    The objective is the sum, over all pairs within clusters, of their probability minus the threshold, which linkage
    only maximises greedily and without taking merges back. The move with the largest gain comes first. No cluster is
    opened, but one may become empty.
    """
    above = kernel.detach().cpu().double().numpy() - threshold
    np.fill_diagonal(above, 0.0)
    own: npt.NDArray[np.int64] = labels.cpu().numpy().copy()
    points = np.arange(len(own))
    # Sum over the members of each cluster; a move changes two columns.
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
    return relabel_by_size(torch.from_numpy(own).to(kernel.device))


class Linkage(NamedTuple):
    """Settings of average linkage."""

    threshold: float  # mean probability down to which clusters are merged
    min_cluster_size: int = 1  # smallest size of a cluster; smaller ones are merged into others
    local_moves: bool = False  # whether points then move between clusters


def cluster_by_linkage(kernel: Float[Tensor, "N N"], settings: Linkage) -> Int[Tensor, " N"]:
    """Cluster by average linkage down to a threshold, without clusters that are too small."""
    labels = merge_small_clusters(
        kernel, cut_at(average_linkage(kernel), settings.threshold), settings.min_cluster_size
    )
    return apply_local_moves(kernel, labels, settings.threshold) if settings.local_moves else labels


def calibrate_linkage(
    kernels: Sequence[Float[Tensor, "_ _"]],
    labels: Sequence[Int[Tensor, " _"]],
    score: Callable[[Tensor, Tensor], float],
) -> Linkage:
    """Find the settings that score best on sets with known clusters: the threshold first, then the other two."""
    threshold = calibrate_threshold(kernels, labels, THRESHOLDS, score)
    candidates = [Linkage(threshold, size, moves) for moves in (False, True) for size in MIN_CLUSTER_SIZES]
    total = np.zeros(len(candidates))
    for kernel, true in zip(kernels, labels, strict=True):
        total += [score(true.cpu(), cluster_by_linkage(kernel, settings).cpu()) for settings in candidates]
    return candidates[int(total.argmax())]


def contract_edges(kernel: Float[Tensor, "N N"], bias: float = 0.0) -> Int[Tensor, " N"]:
    """Merge the two clusters with the largest sum of log-odds between them, until no sum is positive.

    Greedy additive edge contraction (Keuper et al., 2015): a heuristic for correlation clustering, that is, for the
    most probable partition if pairs were independent, which is NP-hard. A bias is added to the log-odds of each pair:
    negative for more clusters, positive for fewer.
    """
    # Rounding turns high probabilities into certainties, and one of these would outweigh all other pairs.
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
        # best was one of the two must search again.
        joined = (best == kept) | (best == gone)
        better = (sums[kept] > best_sum) | (joined & (sums[kept] == best_sum))
        again = np.union1d(np.flatnonzero(joined & ~better), [kept, gone])
        best[better], best_sum[better] = kept, sums[kept, better]
        best[again] = sums[again].argmax(axis=1)
        best_sum[again] = sums[again, best[again]]
    return relabel_by_size(torch.from_numpy(owner).to(kernel.device))


def _count_merges(tree: MergeTree, thresholds: Sequence[float]) -> list[int]:
    """Count the merges with at least each of the probabilities."""
    least = torch.tensor(thresholds, dtype=torch.float64, device=tree.probability.device)
    return (tree.probability >= least.unsqueeze(1)).sum(dim=1).tolist()


def _labels_after(tree: MergeTree, counts: Sequence[int]) -> Int[Tensor, "C N"]:
    """Return the labels after each of several numbers of merges."""
    merges: npt.NDArray[np.int64] = tree.merges.cpu().numpy()
    n = len(merges) + 1
    labels: dict[int, Tensor] = {}
    owner = np.arange(n)
    for done in range(max(counts) + 1):
        if done in counts:
            labels[done] = relabel_by_size(torch.from_numpy(owner.copy()))
        if done < n - 1:
            owner[np.isin(owner, merges[done])] = n + done
    return torch.stack([labels[count] for count in counts]).to(tree.merges.device)
