"""NCP: against its definition word by word, by enumeration, and that order and padding do not matter."""

import math
from collections import Counter
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.baselines.ncp import NcpConfig, NcpModel, by_appearance, random_orders
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.errors import ConfigError
from coterie.nn.model import TaskBatch, build
from coterie.ops.partitions import Clustering

PARTITIONS_OF_THREE = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def make_model(seed: int = 0, **settings: Any) -> NcpModel:
    return build(NcpModel, NcpConfig(n_features=2, **({"width": 12, "depth": 2} | settings)), seeded(seed)).double()


def sharpened(model: NcpModel, factor: float = 30.0) -> NcpModel:
    """Make the first weights' nearly equal options differ."""
    with torch.no_grad():
        model.option_network[-1][-1].weight.mul_(factor)  # type: ignore[index]  # torch cannot say that it holds networks
    return model


def blobs(n: int = 20, sets: int = 3, seed: int = 1) -> TaskBatch:
    batch = MixturesOfGaussians(max_points=100).sample(sets, seeded(seed))
    return TaskBatch(batch.x[:, :n].double(), batch.labels[:, :n], batch.valid[:, :n])


def padded(batch: TaskBatch, extra: int, fill: float) -> TaskBatch:
    sets = len(batch.x)
    return TaskBatch(
        torch.cat([batch.x, torch.full((sets, extra, 2), fill, dtype=batch.x.dtype)], dim=1),
        torch.cat([batch.labels, torch.full((sets, extra), 7)], dim=1),
        torch.cat([batch.valid, torch.zeros((sets, extra), dtype=torch.bool)], dim=1),
    )


def sure(*labels: int) -> tuple[Tensor, Tensor]:
    return torch.tensor([labels]), torch.ones((1, len(labels)), dtype=torch.bool)


def literal_options(model: NcpModel, x: Tensor, labels: list[int]) -> Tensor:
    """Probabilities of the options of the point that is as many places into the set as there are labels."""
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


def check(found: Clustering, valid: Tensor) -> None:
    sizes = found.labels[valid].bincount(minlength=found.n_clusters)
    assert len(sizes) == found.n_clusters
    assert (sizes > 0).all()
    assert (sizes.diff() <= 0).all()
    assert (found.labels[~valid] == -1).all()


def test_probabilities_are_those_of_the_definition() -> None:
    model, x = sharpened(make_model()), blobs(n=7, sets=2).x
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


def test_only_what_the_clusters_hold_and_what_is_to_come_matters() -> None:
    model, x = sharpened(make_model()), blobs(n=8, sets=1).x
    labels, valid = sure(0, 0, 1, 1, 0, 1, 0, 0)
    among_earlier, among_later = torch.tensor([3, 4, 1, 2, 0, 5, 6, 7]), torch.tensor([0, 1, 2, 3, 4, 5, 7, 6])
    expected = model.log_prob(x, labels, valid)[0, 5]
    for order in (among_earlier, among_later):
        assert by_appearance(labels[:, order], valid)[0, 5] in (0, 1)
        torch.testing.assert_close(model.log_prob(x[:, order], labels[:, order], valid)[0, 5], expected)


def test_the_most_probable_labelling_is_kept() -> None:
    model = sharpened(make_model(n_samples=60), 5)
    for seed in range(4):
        x = blobs(n=3, sets=1, seed=seed).x
        order = random_orders(x, torch.ones((1, 3), dtype=torch.bool), 1, seeded(seed))[0]
        log_prob = [model.log_prob(x[:, order[0]], *sure(*p)).sum() for p in PARTITIONS_OF_THREE]
        assert torch.stack(log_prob).exp().sum().item() == pytest.approx(1.0)
        best = PARTITIONS_OF_THREE[int(torch.stack(log_prob).argmax())]
        labels = model.cluster(x[0], seeded(seed)).labels[order]
        assert tuple(by_appearance(labels, torch.ones((1, 3), dtype=torch.bool))[0].tolist()) == best


def test_a_single_labelling_is_drawn_by_its_probability() -> None:
    model, valid = sharpened(make_model(n_samples=1), 5), torch.ones((1, 3), dtype=torch.bool)
    x = blobs(n=3, sets=1, seed=2).x
    drawn: Counter[tuple[int, ...]] = Counter()
    for seed in range(600):
        labels = model.cluster(x[0], seeded(seed)).labels
        drawn[tuple(by_appearance(labels.unsqueeze(0), valid)[0].tolist())] += 1
    expected = dict.fromkeys(PARTITIONS_OF_THREE, 0.0)
    for order in permutations(range(3)):
        for partition in PARTITIONS_OF_THREE:
            labels = torch.tensor([partition])[:, list(order)]
            expected[partition] += float(model.log_prob(x[:, list(order)], labels, valid).sum().exp().detach()) / 6
    assert set(drawn) <= set(expected)
    for partition, probability in expected.items():
        assert drawn[partition] / 600 == pytest.approx(probability, abs=0.07)


def test_sums_are_those_of_the_members_and_tell_where_a_last_point_goes() -> None:
    model, x = sharpened(make_model()), blobs(sets=1).x[0]
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
            model.log_prob(torch.cat([x, new[i : i + 1]]).unsqueeze(0), *sure(*found.labels.tolist(), k))[0, -1]
            for k in range(found.n_clusters)
        ]
        torch.testing.assert_close(memberships[i], torch.stack(joined).softmax(dim=0).detach())


@pytest.mark.parametrize("fill", [0.0, 1e6, math.nan])
def test_padding_changes_nothing(fill: float) -> None:
    model, batch = sharpened(make_model(n_orders=2)), blobs()
    batch = TaskBatch(batch.x, batch.labels, torch.arange(20) < torch.tensor([[20], [9], [1]]))
    more = padded(batch, 5, fill)
    torch.testing.assert_close(model.loss(more, seeded()).total, model.loss(batch, seeded()).total)
    found = model.cluster_sets(more.x, more.valid, seeded())
    for i, with_more in enumerate(found):
        alone = model.cluster(batch.x[i][batch.valid[i]], seeded())
        check(with_more, more.valid[i])
        assert torch.equal(alone.labels, with_more.labels[more.valid[i]])
        torch.testing.assert_close(alone.extras["sums"], with_more.extras["sums"])


def test_permuting_points_permutes_labels() -> None:
    model, batch = sharpened(make_model()), blobs()
    order = torch.randperm(20, generator=seeded(5))
    pairs = zip(
        model.cluster_sets(batch.x, batch.valid, seeded()),
        model.cluster_sets(batch.x[:, order], batch.valid, seeded()),
        strict=True,
    )
    for found, permuted in pairs:
        assert torch.equal(found.labels[order], permuted.labels)
        assert torch.equal(found.extras["sums"], permuted.extras["sums"])


@pytest.mark.usefixtures("untouched_random_state")
def test_orders_are_orders_and_differ_with_the_generator() -> None:
    batch = blobs()
    orders = random_orders(batch.x, batch.valid, 3, seeded())
    assert torch.equal(orders.sort(dim=2).values, torch.arange(20).expand(3, 3, -1))
    assert not torch.equal(orders[:, 0], orders[:, 1])
    assert not torch.equal(orders, random_orders(batch.x, batch.valid, 3, seeded(1)))
    model = sharpened(make_model(n_samples=1))
    runs = [model.cluster_sets(batch.x, batch.valid, seeded(seed))[0].labels for seed in (0, 0, 1)]
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_there_are_no_more_clusters_than_allowed() -> None:
    found = make_model(most_clusters=3, n_samples=1).cluster(blobs().x[0], seeded())
    assert found.n_clusters == 3


@pytest.mark.parametrize("x", [torch.zeros(1, 2), torch.full((9, 2), 3.0), 1e4 * torch.eye(2)], ids=str)
def test_odd_sets(x: Tensor) -> None:
    model, valid = sharpened(make_model()).float(), torch.ones((1, len(x)), dtype=torch.bool)
    found = model.cluster(x, seeded())
    check(found, valid[0])
    assert model.memberships(x, found).isfinite().all()
    assert model.loss(TaskBatch(x.unsqueeze(0), torch.zeros((1, len(x)), dtype=torch.long), valid), seeded()).total >= 0


def test_a_set_of_no_points_has_no_clusters() -> None:
    batch = blobs()
    valid = batch.valid.clone()
    valid[1] = False
    assert make_model().loss(TaskBatch(batch.x, batch.labels, valid), seeded()).total.isfinite()
    found = make_model().cluster_sets(batch.x, valid, seeded())[1]
    assert (found.n_clusters, found.labels.tolist()) == (0, [-1] * 20)


def test_training_lowers_the_loss_and_reaches_every_parameter() -> None:
    model, generator = make_model(width=24).float(), seeded()
    tasks = MixturesOfGaussians(max_points=30, max_clusters=3)
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    losses = []
    for step in range(60):
        optimiser.zero_grad()
        loss = model.loss(tasks.sample(8, generator), generator)
        loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if step == 0:
            assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in model.parameters())
        optimiser.step()
        losses.append(float(loss.total.detach()))
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])


def test_published_shape_and_refusals() -> None:
    model = NcpModel(NcpConfig.faithful(2))
    networks = (model.member, model.later, model.cluster_network, model.option_network)
    hidden = [sum(isinstance(part, torch.nn.PReLU) for part in network.modules()) for network in networks]
    assert hidden == [4, 4, 5, 5]
    with pytest.raises(ConfigError, match="n_samples=0"):
        NcpConfig(2, n_samples=0)
