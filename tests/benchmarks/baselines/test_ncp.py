"""NCP against its definition and by enumeration; what holds for all set models is in test_set_laws.py."""

from collections import Counter
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.baselines.ncp import NcpConfig, NcpModel, by_appearance, random_orders
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.nn.model import TaskBatch, build

PARTITIONS_OF_THREE = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def make_model(seed: int = 0, **settings: Any) -> NcpModel:
    return build(NcpModel, NcpConfig(n_features=2, **({"width": 12, "depth": 2} | settings)), seeded(seed)).double()


def with_distinct_options(model: NcpModel, factor: float = 30.0) -> NcpModel:
    """Make the nearly equal options of initial weights differ."""
    with torch.no_grad():
        model.option_network[-1][-1].weight.mul_(factor)  # type: ignore[index]  # torch cannot say that it holds networks
    return model


def blobs(n: int = 20, sets: int = 3, seed: int = 1) -> TaskBatch:
    batch = MixturesOfGaussians(max_points=100).sample(sets, seeded(seed))
    return TaskBatch(batch.x[:, :n].double(), batch.labels[:, :n], batch.valid[:, :n])


def partition_of(*labels: int) -> tuple[Tensor, Tensor]:
    return torch.tensor([labels]), torch.ones((1, len(labels)), dtype=torch.bool)


def literal_options(model: NcpModel, x: Tensor, labels: list[int]) -> Tensor:
    """Compute the probabilities of the options of the next point, by loops."""
    n, opened = len(labels), len(set(labels))
    to_come = sum((model.later(x[i]) for i in range(n + 1, len(x))), start=torch.zeros(12, dtype=x.dtype))
    scores = []
    for option in range(opened + 1):
        state = to_come
        for cluster in range(max(opened, option + 1)):
            members = [i for i in range(n) if labels[i] == cluster] + ([n] if cluster == option else [])
            total = sum((model.member(x[i]) for i in members), start=torch.zeros(12, dtype=x.dtype))
            state = state + model.cluster_network(total + model.offset)
        scores.append(model.option_network(state))
    return torch.cat(scores).softmax(dim=0)


def test_probabilities_are_those_of_the_definition() -> None:
    model, x = with_distinct_options(make_model()), blobs(n=7, sets=2).x
    labels = torch.tensor([[3, 3, 0, 1, 0, 3, 2], [1, 1, 1, 1, 1, 1, 1]])
    log_prob = model.log_prob(x, labels, torch.ones_like(labels, dtype=torch.bool))
    for i, renamed in enumerate([[0, 0, 1, 2, 1, 0, 3], [0] * 7]):
        for n in range(7):
            expected = literal_options(model, x[i], renamed[:n])
            torch.testing.assert_close(expected.sum().item(), 1.0)
            torch.testing.assert_close(log_prob[i, n], expected[renamed[n]].log())
    assert (log_prob[:, 0] == 0).all()


def test_labels_are_renumbered_as_they_appear() -> None:
    labels = torch.tensor([[5, 2, 5, 0, 2], [1, 1, 0, 1, 9]])
    valid = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    assert by_appearance(labels, valid).tolist() == [[0, 1, 0, 2, 1], [0, 0, 1, 0, 0]]


def test_the_order_within_clusters_and_of_remaining_points_does_not_matter() -> None:
    model, x = with_distinct_options(make_model()), blobs(n=8, sets=1).x
    labels, valid = partition_of(0, 0, 1, 1, 0, 1, 0, 0)
    among_earlier, among_later = torch.tensor([3, 4, 1, 2, 0, 5, 6, 7]), torch.tensor([0, 1, 2, 3, 4, 5, 7, 6])
    expected = model.log_prob(x, labels, valid)[0, 5]
    for order in (among_earlier, among_later):
        assert by_appearance(labels[:, order], valid)[0, 5] in (0, 1)
        torch.testing.assert_close(model.log_prob(x[:, order], labels[:, order], valid)[0, 5], expected)


def test_the_most_probable_labelling_is_kept() -> None:
    model = with_distinct_options(make_model(n_samples=60), 5)
    for seed in range(4):
        x = blobs(n=3, sets=1, seed=seed).x
        order = random_orders(x, torch.ones((1, 3), dtype=torch.bool), 1, seeded(seed))[0]
        log_prob = [model.log_prob(x[:, order[0]], *partition_of(*p)).sum() for p in PARTITIONS_OF_THREE]
        assert torch.stack(log_prob).exp().sum().item() == pytest.approx(1.0)
        best = PARTITIONS_OF_THREE[int(torch.stack(log_prob).argmax())]
        labels = model.cluster(x[0], seeded(seed)).labels[order]
        assert tuple(by_appearance(labels, torch.ones((1, 3), dtype=torch.bool))[0].tolist()) == best


def test_a_single_labelling_is_sampled_by_its_probability() -> None:
    model, valid = with_distinct_options(make_model(n_samples=1), 5), torch.ones((1, 3), dtype=torch.bool)
    x = blobs(n=3, sets=1, seed=2).x
    sampled: Counter[tuple[int, ...]] = Counter()
    for seed in range(600):
        labels = model.cluster(x[0], seeded(seed)).labels
        sampled[tuple(by_appearance(labels.unsqueeze(0), valid)[0].tolist())] += 1
    expected = dict.fromkeys(PARTITIONS_OF_THREE, 0.0)
    for order in permutations(range(3)):
        for partition in PARTITIONS_OF_THREE:
            labels = torch.tensor([partition])[:, list(order)]
            expected[partition] += float(model.log_prob(x[:, list(order)], labels, valid).sum().exp().detach()) / 6
    assert set(sampled) <= set(expected)
    for partition, probability in expected.items():
        assert sampled[partition] / 600 == pytest.approx(probability, abs=0.07)


def test_sums_of_members_give_the_memberships_of_new_points() -> None:
    model, x = with_distinct_options(make_model()), blobs(sets=1).x[0]
    found = model.cluster(x, seeded())
    assert found.n_clusters > 1
    each = model.member(x).detach()
    for k in range(found.n_clusters):
        torch.testing.assert_close(found.extras["sums"][k], each[found.labels == k].sum(dim=0))
    new = blobs(sets=1, seed=8).x[0, :4]
    memberships = model.memberships(new, found)
    torch.testing.assert_close(memberships.sum(dim=1), torch.ones(4, dtype=torch.float64))
    for i in range(4):
        joined = [
            model.log_prob(torch.cat([x, new[i : i + 1]]).unsqueeze(0), *partition_of(*found.labels.tolist(), k))[0, -1]
            for k in range(found.n_clusters)
        ]
        torch.testing.assert_close(memberships[i], torch.stack(joined).softmax(dim=0).detach())


@pytest.mark.usefixtures("untouched_random_state")
def test_orders_are_permutations_and_depend_on_the_generator() -> None:
    batch = blobs()
    orders = random_orders(batch.x, batch.valid, 3, seeded())
    assert torch.equal(orders.sort(dim=2).values, torch.arange(20).expand(3, 3, -1))
    assert not torch.equal(orders[:, 0], orders[:, 1])
    assert not torch.equal(orders, random_orders(batch.x, batch.valid, 3, seeded(1)))
    model = with_distinct_options(make_model(n_samples=1))
    runs = [model.cluster_sets(batch.x, batch.valid, seeded(seed))[0].labels for seed in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
