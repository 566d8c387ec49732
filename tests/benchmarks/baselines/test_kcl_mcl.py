"""KCL and MCL: their losses by hand, and clusters from predicted pairs."""

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy, kl_div

from benchmarks.baselines.kcl_mcl import MARGIN, Objective, cluster_pairwise, kcl_loss, mcl_loss
from coterie.metrics import adjusted_rand_index

LABELS = torch.arange(40) % 4
SAME = LABELS.unsqueeze(0) == LABELS.unsqueeze(1)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def probabilities(sets: int = 2, n: int = 6, k: int = 3) -> Tensor:
    return (2.0 * torch.randn((sets, n, k), generator=seeded(), dtype=torch.float64)).softmax(dim=2)


def some_pairs(n: int = 6) -> Tensor:
    groups = torch.arange(n) % 2
    return groups.unsqueeze(0) == groups.unsqueeze(1)


def test_mcl_is_the_cross_entropy_of_inner_products() -> None:
    predicted, same = probabilities(), some_pairs()
    for one, loss in zip(predicted, mcl_loss(predicted, same), strict=True):
        pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
        inner = torch.stack([one[i] @ one[j] for i, j in pairs])
        truth = torch.tensor([float(same[i, j]) for i, j in pairs], dtype=torch.float64)
        torch.testing.assert_close(loss, binary_cross_entropy(inner, truth))


def test_kcl_is_the_divergence_of_the_similar_and_a_hinge_for_the_others() -> None:
    predicted, same = probabilities(), some_pairs()
    for one, loss in zip(predicted, kcl_loss(predicted, same), strict=True):
        costs = []
        for i in range(6):
            for j in range(6):
                both = [kl_div(one[b].log(), one[a], reduction="sum") for a, b in ((i, j), (j, i))]
                if i != j:
                    costs += [sum(each if same[i, j] else (MARGIN - each).clamp(min=0.0) for each in both)]
        torch.testing.assert_close(loss, torch.stack([torch.as_tensor(cost) for cost in costs]).mean())


@pytest.mark.parametrize("loss", [kcl_loss, mcl_loss])
def test_the_loss_of_the_truth_is_zero(loss: object) -> None:
    certain = torch.nn.functional.one_hot(LABELS).double().unsqueeze(0)
    assert callable(loss)
    assert float(loss(certain, SAME)) == pytest.approx(0.0, abs=1e-6)
    assert float(loss(certain, ~SAME)) > 1.0


@pytest.mark.parametrize("objective", ["kcl", "mcl"])
def test_clusters_follow_clear_pairs(objective: Objective) -> None:
    """Also with weak features, one pair in twenty predicted wrongly, and more outputs than clusters."""
    elements = torch.randn((40, 8), generator=seeded(1)) + LABELS.unsqueeze(1)
    wrong = torch.rand((40, 40), generator=seeded(2)) < 0.025
    wrong = wrong | wrong.mT
    found = cluster_pairwise(
        elements, lambda _: (SAME ^ wrong).float(), 7, objective, seeded(3), epochs=200, restarts=3
    )
    assert adjusted_rand_index(LABELS.numpy(), found.labels.numpy()) == 1.0
    assert found.seconds > 0
    again = cluster_pairwise(elements, lambda _: (SAME ^ wrong).float(), 7, objective, seeded(3), epochs=2)
    assert again.loss > found.loss
