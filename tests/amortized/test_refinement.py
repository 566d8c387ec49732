"""Clusters without a closed form, put right after filtering; the Gaussian ones are tested with the network."""

import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import Generator, Tensor

from coterie.amortized.refinement import Passes, _Clusters, _Densities, log_probs, refine_densities, rotated_log_probs
from coterie.amortized.tasks.synthetic import rotations_of
from coterie.nn.density import DensityHead, FlowHead, StatisticianHead


class Discs(DensityHead):
    """Normal densities of unit width in the plane: the context is the mean."""

    context_width = 2
    width = 2

    def deterministic_log_prob(self, x: Tensor, context: Tensor) -> Tensor:
        return -0.5 * (x - context.unsqueeze(1)).square().sum(dim=2) - math.log(2 * math.pi)


@dataclass
class Network:
    """Says of a cluster that it is beside its mean; the second look at each set finds what it was told to."""

    second_look: dict[int, list[list[float]]] = field(default_factory=dict)
    """Means, by how many points the set has; other sets are one cluster."""

    def cluster_contexts(self, x: Tensor, valid: Tensor) -> Tensor:
        return _means(x, valid) + 0.3

    def filter_sets(self, x: Tensor, valid: Tensor, generator: Generator) -> list[Passes]:
        del generator
        return [
            passes(self.second_look.get(int(there.sum()), [mean.tolist()]))
            for mean, there in zip(_means(x, valid), valid, strict=True)
        ]


def passes(means: list[list[float]]) -> Passes:
    """Passes that found clusters of ten points around these means."""
    return {"context": torch.tensor(means), "count": torch.full((len(means),), 10)}


def _means(x: Tensor, valid: Tensor) -> Tensor:
    return (x * valid.unsqueeze(2)).sum(dim=1) / valid.sum(dim=1, keepdim=True)


def groups(*centres: float) -> Tensor:
    """A hundred points around each place on the diagonal, ten fewer for each next."""
    noise = torch.randn((100, 2), generator=Generator().manual_seed(0))
    return torch.cat([noise[: 100 - 10 * i] + centre for i, centre in enumerate(centres)])


def refined(x: Tensor, found: Passes, network: Network) -> list[list[float]]:
    """Means of the clusters, in order."""
    result = refine_densities(network, Discs(), x, found, Generator().manual_seed(0))
    torch.testing.assert_close(result["log_share"].exp().sum(), torch.tensor(1.0))
    return sorted(result["context"].tolist())


@pytest.mark.parametrize(
    ("found", "second_look"),
    [
        pytest.param([[0.0, 0.0], [9.0, 9.0]], {}, id="as it is"),
        pytest.param([[-0.7, 0.0], [0.7, 0.0], [9.0, 9.0]], {}, id="one in halves"),
        pytest.param([[0.0, 0.0], [9.0, 9.0], [90.0, 90.0]], {}, id="one of nothing"),
        pytest.param([[4.0, 4.0]], {190: [[0.0, 0.0], [9.0, 9.0]]}, id="two as one"),
    ],
)
def test_errors_of_filtering_are_corrected(found: list[list[float]], second_look: dict[int, list[list[float]]]) -> None:
    x = groups(0.0, 9.0)
    got = refined(x, passes(found), Network(second_look))
    truth = [x[:100].mean(dim=0).tolist(), x[100:].mean(dim=0).tolist()]
    torch.testing.assert_close(torch.tensor(got), torch.tensor(truth), atol=0.05, rtol=0)


def test_superfluous_splits_are_discarded() -> None:
    x = groups(0.0)
    got = refined(x, passes([[0.0, 0.0]]), Network({100: [[-0.5, 0.0], [0.5, 0.0]]}))
    torch.testing.assert_close(torch.tensor(got), x.mean(dim=0, keepdim=True), atol=0.05, rtol=0)


def flow() -> FlowHead:
    head, source = FlowHead(2, context_width=3, blocks=2, hidden=8).double(), Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(0.0, 0.3, generator=source)
    return head


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=Generator().manual_seed(1), dtype=torch.float64)


def test_ascent_never_lowers_the_likelihood() -> None:
    x, valid, context = normal(4, 40, 2), torch.arange(40) < torch.tensor([[40], [20], [1], [7]]), normal(4, 3)
    work = _Densities(Network(), flow(), x[0])
    before = work.log_likelihood(x, valid, context)
    after = [work.log_likelihood(x, valid, work.ascend(x, valid, context, steps)) for steps in (0, 1, 10)]
    torch.testing.assert_close(after[0], before)
    assert (after[1] >= before).all()
    assert (after[2] > before + 0.01).all()
    assert all(parameter.grad is None for parameter in work.head.parameters())


def test_likelihoods_are_those_of_the_points_and_sets_ascend_independently() -> None:
    x, valid, context = normal(3, 70, 2), torch.arange(70) < torch.tensor([[70], [32], [0]]), normal(3, 3)
    work = _Densities(Network(), flow(), x[0])
    expected = (work.head.deterministic_log_prob(x, context) * valid).sum(dim=1)
    torch.testing.assert_close(work.log_likelihood(x, valid, context), expected)
    # Neither padding nor the other sets change where a set's context goes.
    x, valid, context = normal(2, 12, 2), torch.arange(12) < torch.tensor([[12], [5]]), normal(2, 3)
    work = _Densities(Network(), flow(), x[0])
    together = work.ascend(x, valid, context, 5)
    alone = work.ascend(x[1:, :5], valid[1:, :5], context[1:], 5)
    torch.testing.assert_close(together[1:], alone)


def test_overlapping_clusters_share_points() -> None:
    """When each point is of one cluster alone, means are too far apart; in the end they are where the groups are."""
    x = groups(0.0, 1.5)
    work = _Densities(Network(), Discs(), x)
    apart = work.describe_again(_Clusters(torch.tensor([[0.0, 0.0], [1.5, 1.5]]), torch.zeros(2)), 20)
    settled = work.ascend_together(apart)
    assert work.score(settled) > work.score(apart)
    truth = torch.stack([x[:100].mean(dim=0), x[100:].mean(dim=0)])
    before, after = ((each.context - truth).norm() for each in (apart, settled))
    assert after < before
    torch.testing.assert_close(settled.log_weight.exp().sum(), torch.tensor(1.0))


def test_the_cost_of_a_cluster_counts_its_parameters_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x = normal(100, 2)
    statistician = StatisticianHead(2, 5, latent=2, hidden=4)
    costs = [_Densities(Network(), head, x).cost for head in (Discs(), flow(), statistician)]
    assert costs == [pytest.approx(0.5 * numbers * math.log(100)) for numbers in (5, 8, 1)]
    x, context = normal(11, 2), normal(3, 2)
    whole = log_probs(Discs(), x, context)
    monkeypatch.setattr("coterie.amortized.refinement.BLOCK_ELEMENTS", 1)
    torch.testing.assert_close(log_probs(Discs(), x, context), whole)
    assert whole.shape == (11, 3)


def test_each_rotation_has_its_own_context() -> None:
    x = groups(0.0, 9.0)
    found = refine_densities(Network(), Discs(), x, passes([[0.0, 0.0], [9.0, 9.0]]), Generator().manual_seed(0), 4)
    torch.testing.assert_close(found["log_side"].exp().sum(dim=1), torch.ones(2))
    torch.testing.assert_close(found["log_share"].exp(), torch.tensor([100.0, 90.0]) / 190, atol=0.01, rtol=0)
    truth = [torch.stack([side[:100].mean(dim=0), side[100:].mean(dim=0)]) for side in rotations_of(x, 4)]
    torch.testing.assert_close(found["context"], torch.stack(truth, dim=1), atol=0.05, rtol=0)


def test_rotations_are_equally_spaced_and_densities_averaged_over_them() -> None:
    rotated = torch.cat(rotations_of(torch.tensor([[2.0, 1.0]]), 4))
    torch.testing.assert_close(rotated, torch.tensor([[2.0, 1.0], [-1.0, 2.0], [-2.0, -1.0], [1.0, -2.0]]))
    head, x, context = flow(), normal(6, 2), normal(2, 3, 3)
    log_side = normal(2, 3).log_softmax(dim=1)
    sides = [log_probs(head, seen, context[:, side]) for side, seen in enumerate(rotations_of(x, 3))]
    mean = (torch.stack(sides, dim=2).exp() * log_side.exp()).sum(dim=2)
    torch.testing.assert_close(rotated_log_probs(head, x, context, log_side).exp(), mean)
