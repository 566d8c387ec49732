"""Partitions that probabilities of pairs call for: against scipy, and against all partitions of few points."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score
from torch import Generator, Tensor

from coterie.errors import InputError
from coterie.metrics import normalized_mutual_information
from coterie.ops import correlation
from coterie.ops.partitions import relabel_by_size


def probabilities(n: int, seed: int, spread: float = 2.0, shift: float = 0.0) -> Tensor:
    """A symmetric kernel without structure."""
    logits = spread * torch.randn(n, n, generator=Generator().manual_seed(seed), dtype=torch.float64) + shift
    return ((logits + logits.T) / 2).sigmoid()


def structured(truth: Tensor, noise: float, seed: int, within: float = 2.0, between: float = -2.0) -> Tensor:
    error = noise * torch.randn(len(truth), len(truth), generator=Generator().manual_seed(seed), dtype=torch.float64)
    return (torch.where(truth.unsqueeze(1) == truth, within, between) + (error + error.T) / 2).sigmoid()


def in_order(labels: Tensor) -> bool:
    """Whether labels are 0..k-1, all in use, the largest first, ties by first member."""
    sizes = labels.bincount()
    firsts = [int((labels == k).nonzero()[0]) if sizes[k] else -1 for k in range(len(sizes))]
    keys = [(-int(size), first) for size, first in zip(sizes, firsts, strict=True)]
    return labels.dtype == torch.int64 and bool((sizes > 0).all()) and keys == sorted(keys)


def partitions(n: int) -> Iterator[list[int]]:
    """All partitions of n points."""
    if n == 0:
        yield []
        return
    for rest in partitions(n - 1):
        yield from ([*rest, label] for label in range(max(rest, default=-1) + 2))


def objective(kernel: Tensor, labels: Tensor, bias: float = 0.0) -> float:
    """Sum of log-odds of the pairs that are together."""
    together = (labels.unsqueeze(1) == labels).triu(diagonal=1)
    return float((torch.logit(kernel) + bias)[together].sum())


def contracted_plainly(kernel: Tensor, bias: float) -> Tensor:
    """The same by looking at all pairs of clusters before each merge."""
    odds = torch.logit(kernel) + bias
    clusters = [[i] for i in range(len(kernel))]
    while len(clusters) > 1:
        pairs = [(i, j) for i in range(len(clusters)) for j in range(i + 1, len(clusters))]
        sums = [float(odds[clusters[i]][:, clusters[j]].sum()) for i, j in pairs]
        if max(sums) <= 0:
            break
        i, j = pairs[int(np.argmax(sums))]
        clusters[i] += clusters.pop(j)
    labels = torch.zeros(len(kernel), dtype=torch.int64)
    for number, members in enumerate(clusters):
        labels[members] = number
    return relabel_by_size(labels)


@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 10_000))
def test_small_clusters_are_absorbed_and_large_ones_only_grow(n: int, smallest: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    kernel = torch.rand((n, n), generator=generator)
    kernel = (kernel + kernel.T) / 2
    labels = relabel_by_size(torch.randint(4, (n,), generator=generator))
    found = correlation.merge_small_clusters(kernel, labels, smallest)
    sizes, before = found.bincount(), labels.bincount()
    if int(before.max()) < smallest:
        assert torch.equal(found, labels)
        return
    assert int(sizes.min()) >= smallest
    assert len(sizes) == int((before >= smallest).sum())
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    for cluster in range(len(before)):  # whoever was together stays together
        assert len(set(found[labels == cluster].tolist())) == 1
    assert torch.equal(correlation.merge_small_clusters(kernel, found, smallest), found)


def test_calibration_finds_the_minimum_cluster_size() -> None:
    kernel = torch.full((7, 7), 0.05)
    kernel[:3, :3] = kernel[3:6, 3:6] = 0.9
    kernel[6, 3:6] = kernel[3:6, 6] = 0.2
    alone, joined = torch.tensor([0, 0, 0, 1, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 1, 1])
    for truth in (alone, joined):
        how = correlation.calibrate_linkage([kernel], [truth], normalized_mutual_information)
        assert torch.equal(correlation.cluster_by_linkage(kernel, how), relabel_by_size(truth))


def above_cut(kernel: Tensor, labels: Tensor, at: float) -> float:
    """Sum of how far the pairs that are together are above the cut."""
    together = (labels.unsqueeze(1) == labels).triu(diagonal=1)
    return float((kernel - at)[together].sum())


@given(st.integers(2, 10), st.integers(0, 10_000), st.floats(0.1, 0.9))
def test_local_moves_end_where_no_move_gains(n: int, seed: int, at: float) -> None:
    kernel = probabilities(n, seed)
    labels = relabel_by_size(torch.randint(3, (n,), generator=Generator().manual_seed(seed)))
    found = correlation.apply_local_moves(kernel, labels, at)
    assert in_order(found)
    assert above_cut(kernel, found, at) >= above_cut(kernel, labels, at)
    for point in range(n):
        for cluster in range(int(found.max()) + 1):
            other = found.clone()
            other[point] = cluster
            assert above_cut(kernel, other, at) <= above_cut(kernel, found, at) + 1e-6
    assert torch.equal(correlation.apply_local_moves(kernel, found, at), found)


@given(st.integers(2, 12), st.integers(0, 1000))
def test_local_moves_do_not_depend_on_the_order_of_points(n: int, seed: int) -> None:
    kernel, source = probabilities(n, seed), Generator().manual_seed(seed)
    labels, order = relabel_by_size(torch.randint(3, (n,), generator=source)), torch.randperm(n, generator=source)
    found, again = (
        correlation.apply_local_moves(kernel, labels, 0.5),
        correlation.apply_local_moves(kernel[order][:, order], labels[order], 0.5),
    )
    assert torch.equal(relabel_by_size(found[order]), again)


def test_a_point_that_linkage_put_wrong_moves() -> None:
    truth = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    kernel = torch.where(truth.unsqueeze(1) == truth, 0.7, 0.1)
    kernel[3, 4] = kernel[4, 3] = 0.99  # what merges first never comes apart again
    wrong = correlation.cluster_by_linkage(kernel, correlation.Linkage(0.3))
    assert not torch.equal(wrong, truth)
    assert torch.equal(correlation.cluster_by_linkage(kernel, correlation.Linkage(0.3, local_moves=True)), truth)
    assert correlation.calibrate_linkage([kernel], [truth], adjusted_rand_score).local_moves


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_clusters_are_numbered_by_size_then_by_first_member(raw: list[int]) -> None:
    labels = torch.tensor(raw)
    renamed = relabel_by_size(labels)
    assert in_order(renamed)
    assert torch.equal(renamed.unsqueeze(1) == renamed, labels.unsqueeze(1) == labels)


@given(st.integers(2, 15), st.integers(0, 1000), st.floats(0.05, 0.95))
def test_cut_is_scipys(n: int, seed: int, at: float) -> None:
    kernel = probabilities(n, seed)
    distances = (1.0 - kernel).fill_diagonal_(0.0).numpy()
    expected = fcluster(linkage(squareform(distances, checks=False), "average"), 1.0 - at, "distance")
    found = correlation.cut_at(correlation.average_linkage(kernel), at)
    assert in_order(found)
    assert torch.equal(found, relabel_by_size(torch.from_numpy(expected).long()))


def test_merges_are_by_the_mean_probability_between_clusters() -> None:
    kernel = torch.tensor([[0.1, 0.9, 0.4, 0.2], [0.9, 0.1, 0.6, 0.2], [0.4, 0.6, 0.1, 0.2], [0.2, 0.2, 0.2, 0.1]])
    tree = correlation.average_linkage(kernel)
    assert tree.merges.sort(dim=1).values.tolist() == [[0, 1], [2, 4], [3, 5]]
    torch.testing.assert_close(tree.probability, torch.tensor([0.9, 0.5, 0.2], dtype=torch.float64), atol=1e-7, rtol=0)
    assert correlation.cut_at(tree, 0.95).tolist() == [0, 1, 2, 3]
    assert correlation.cut_at(tree, 0.7).tolist() == [0, 0, 1, 2]
    assert correlation.cut_at(tree, 0.3).tolist() == [0, 0, 0, 1]
    assert correlation.cut_at(tree, 0.1).tolist() == [0, 0, 0, 0]


def test_cuts_merge_at_the_threshold_and_ignore_the_diagonal() -> None:
    assert correlation.cut_at(correlation.average_linkage(torch.full((3, 3), 0.5)), 0.5).tolist() == [0, 0, 0]
    kernel = probabilities(10, 0)
    other = kernel.clone().fill_diagonal_(0.0)
    assert torch.equal(correlation.average_linkage(kernel).probability, correlation.average_linkage(other).probability)
    assert torch.equal(correlation.contract_edges(kernel), correlation.contract_edges(other))


@given(st.integers(1, 12), st.integers(0, 1000))
def test_cut_into_gives_exactly_that_many(n: int, seed: int) -> None:
    for kernel in (probabilities(n, seed), torch.full((n, n), 0.5), torch.eye(n)):
        tree = correlation.average_linkage(kernel)
        for k in range(1, n + 1):
            labels = correlation.cut_into(tree, k)
            assert in_order(labels)
            assert int(labels.max()) + 1 == k


def test_several_cuts_equal_single_cuts_in_any_order() -> None:
    tree = correlation.average_linkage(probabilities(30, 1))
    at = [0.5, 0.9, 0.1, 0.5, 1.5, -1.0]
    together = correlation.cut_at_each(tree, at)
    assert together.shape == (6, 30)
    for row, probability in zip(together, at, strict=True):
        assert torch.equal(row, correlation.cut_at(tree, probability))
    assert together[4].tolist() == list(range(30))
    assert together[5].tolist() == [0] * 30


def test_impossible_numbers_of_clusters_are_rejected() -> None:
    tree = correlation.average_linkage(probabilities(4, 0))
    for k in (0, 5):
        with pytest.raises(InputError, match=f"4 points cannot be cut into {k} clusters; ask for 1 to 4"):
            correlation.cut_into(tree, k)


def test_calibration_finds_the_best_threshold() -> None:
    truth = torch.arange(5).repeat_interleave(6)
    # All probabilities are too high: what belongs apart is at about .7.
    kernels = [structured(truth, 0.3, seed, within=3.0, between=0.8) for seed in range(3)]
    candidates = [0.1, 0.3, 0.5, 0.8, 0.85, 0.999]
    best = correlation.calibrate_threshold(kernels, [truth] * 3, candidates, normalized_mutual_information)
    assert best == 0.8, "of equal ones the first"
    assert adjusted_rand_score(truth, correlation.cut_at(correlation.average_linkage(kernels[0]), best)) == 1.0
    assert correlation.cut_at(correlation.average_linkage(kernels[0]), 0.5).max() == 0


def test_calibration_takes_the_mean_over_sets_of_any_size() -> None:
    truths = [torch.arange(2).repeat_interleave(4), torch.arange(3).repeat_interleave(2), torch.zeros(1).long()]
    kernels = [structured(truth, 0.0, 0) for truth in truths]
    candidates = [0.01, 0.5, 0.99]
    means = [
        np.mean(
            [
                adjusted_rand_score(y, correlation.cut_at(correlation.average_linkage(kernel), at))
                for kernel, y in zip(kernels, truths, strict=True)
            ]
        )
        for at in candidates
    ]
    best = correlation.calibrate_threshold(
        kernels, truths, candidates, lambda truth, labels: float(adjusted_rand_score(truth, labels))
    )
    assert best == candidates[int(np.argmax(means))] == 0.5


@pytest.mark.parametrize(("sets", "truths", "candidates"), [(0, 0, [0.5]), (2, 1, [0.5]), (1, 1, [])])
def test_calibration_needs_sets_and_candidates(sets: int, truths: int, candidates: list[float]) -> None:
    with pytest.raises(InputError, match=r"Cannot calibrate a threshold .* give at least one kernel"):
        correlation.calibrate_threshold(
            [torch.ones(2, 2)] * sets, [torch.zeros(2).long()] * truths, candidates, normalized_mutual_information
        )


@given(st.integers(2, 14), st.integers(0, 1000), st.sampled_from([-1.0, 0.0, 0.7]))
def test_contraction_is_the_plain_one(n: int, seed: int, bias: float) -> None:
    kernel = probabilities(n, seed, shift=-0.5)
    found = correlation.contract_edges(kernel, bias)
    assert in_order(found)
    assert torch.equal(found, contracted_plainly(kernel, bias))


@given(st.integers(2, 7), st.integers(0, 1000))
def test_contraction_ends_where_no_merge_helps_and_near_the_best_of_all_partitions(n: int, seed: int) -> None:
    kernel = probabilities(n, seed)
    found = correlation.contract_edges(kernel)
    reached = objective(kernel, found)
    best = max(objective(kernel, torch.tensor(partition)) for partition in partitions(n))
    assert 0.0 <= reached <= best + 1e-9
    for a in range(int(found.max()) + 1):
        for b in range(a):
            assert objective(kernel, torch.where(found == a, b, found)) <= reached + 1e-9


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_contraction_finds_clear_clusters_in_any_order(noise: float) -> None:
    truth = torch.arange(5).repeat_interleave(torch.tensor([20, 10, 8, 5, 2]))
    order = torch.randperm(45, generator=Generator().manual_seed(0))
    kernel = structured(truth, noise, 0, within=3.0, between=-3.0)
    assert torch.equal(correlation.contract_edges(kernel), truth)
    assert adjusted_rand_score(correlation.contract_edges(kernel[order][:, order]), truth[order]) == 1.0


def test_bias_decides_how_much_is_joined() -> None:
    kernel = probabilities(40, 3)
    numbers = [int(correlation.contract_edges(kernel, bias).max()) + 1 for bias in (-50.0, -1.0, 1.0, 50.0)]
    assert (numbers[0], numbers[-1]) == (40, 1)
    assert numbers == sorted(numbers, reverse=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certainties_are_no_harder_than_rounding(dtype: torch.dtype) -> None:
    truth = torch.arange(4).repeat_interleave(5)
    kernel = (truth.unsqueeze(1) == truth).to(dtype)
    assert torch.equal(correlation.contract_edges(kernel), truth)
    assert correlation.contract_edges(torch.zeros(3, 3)).tolist() == [0, 1, 2]
    kernel[0, 5] = kernel[5, 0] = 1.0  # one wrong certainty among many
    assert torch.equal(correlation.contract_edges(kernel), truth)
