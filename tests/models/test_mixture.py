"""What holds for both models that describe a set by a mixture: what is kept of it, and that order and padding do not
matter, here in float64 and by networks that were never trained."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from benchmarks.baselines.set_transformer import (
    ActStConfig,
    ActStModel,
    MixtureModel,
    SetTransformerConfig,
    SetTransformerModel,
)
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.nn.model import TaskBatch, build
from coterie.ops.gaussian_mixtures import Mixtures
from coterie.ops.partitions import Clustering

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "inducing": 4, "depth": 2, "decoder_depth": 2}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def blobs(n: int = 30, sets: int = 3, seed: int = 1) -> TaskBatch:
    batch = MixturesOfGaussians(max_points=100).sample(sets, seeded(seed))
    return TaskBatch(batch.x[:, :n].double(), batch.labels[:, :n], batch.valid[:, :n])


def going_on(model: ActStModel, logit: float) -> ActStModel:
    """Let every mixture say, with this logit, that one more component is needed."""
    with torch.no_grad():
        model.head.weight[0] = 0
        model.head.bias[0] = logit
    return model


def act_st(**settings: Any) -> ActStModel:
    return build(ActStModel, ActStConfig(n_features=2, **(SMALL | settings)), seeded()).double()


def set_transformer(**settings: Any) -> SetTransformerModel:
    """A model whose components differ enough for several to win points."""
    model = build(SetTransformerModel, SetTransformerConfig(2, **(SMALL | settings)), seeded()).double()
    with torch.no_grad():
        model.head.weight.mul_(4)
    return model


@pytest.fixture(params=[lambda: going_on(act_st(), math.log(9)), set_transformer], ids=["act-st", "set-transformer"])
def model(request: pytest.FixtureRequest) -> MixtureModel:
    make: Callable[[], MixtureModel] = request.param
    return make()


def check(found: Clustering, valid: Tensor) -> None:
    """What every clustering keeps to."""
    sizes = found.labels[valid].bincount(minlength=found.n_clusters)
    assert len(sizes) == found.n_clusters
    assert (sizes > 0).all()
    assert (sizes.diff() <= 0).all()
    assert (found.labels[~valid] == -1).all()
    assert found.probabilities is not None
    torch.testing.assert_close(found.probabilities.sum(dim=1), valid.to(found.probabilities.dtype))
    assert torch.equal(found.probabilities[valid].argmax(dim=1), found.labels[valid])
    assert all(len(part) == found.n_clusters for part in found.extras.values())
    torch.testing.assert_close(found.extras["log_share"].exp().sum().item(), 1.0)


@pytest.mark.parametrize("fill", [0.0, 1e6, math.nan])
def test_padding_changes_nothing(fill: float, model: MixtureModel) -> None:
    batch = blobs()
    more = TaskBatch(
        torch.cat([batch.x, torch.full((3, 5, 2), fill, dtype=torch.float64)], dim=1),
        torch.cat([batch.labels, torch.full((3, 5), 7)], dim=1),
        torch.cat([batch.valid, torch.zeros((3, 5), dtype=torch.bool)], dim=1),
    )
    torch.testing.assert_close(model.loss(more, seeded()).total, model.loss(batch, seeded()).total)
    for i, found in enumerate(model.cluster_sets(more.x, more.valid, seeded())):
        alone = model.cluster(batch.x[i], seeded(9))
        check(found, more.valid[i])
        assert torch.equal(alone.labels, found.labels[:30])
        for name, part in alone.extras.items():
            torch.testing.assert_close(part, found.extras[name])


def test_permuting_points_permutes_labels_and_sets_are_independent(model: MixtureModel) -> None:
    batch = blobs()
    order = torch.randperm(30, generator=seeded(5))
    n_clusters = []
    for x, found in zip(batch.x, model.cluster_sets(batch.x[:, order], batch.valid, seeded()), strict=True):
        alone = model.cluster(x, seeded(9))
        check(found, batch.valid[0])
        n_clusters.append(found.n_clusters)
        assert torch.equal(alone.labels[order], found.labels)
        torch.testing.assert_close(alone.extras["mean"], found.extras["mean"])
    assert max(n_clusters) > 1


def test_memberships_of_the_set_itself_are_its_probabilities(model: MixtureModel) -> None:
    x = blobs(sets=1).x[0]
    found = model.cluster(x, seeded())
    assert found.probabilities is not None
    torch.testing.assert_close(model.memberships(x, found), found.probabilities)
    torch.testing.assert_close(model.memberships(1e3 * x, found).sum(dim=1), torch.ones(30, dtype=torch.float64))


def test_components_without_points_are_dropped_and_the_largest_comes_first(model: MixtureModel) -> None:
    far = Mixtures(
        torch.tensor([[0.2, 0.3, 0.4, 0.1]], dtype=torch.float64).log(),
        torch.tensor([[[0.0, 0.0], [90.0, 90.0], [9.0, 9.0], [9.0, 9.0]]], dtype=torch.float64),
        torch.ones((1, 4, 2), dtype=torch.float64),
    )
    model.find = lambda *_: far  # type: ignore[method-assign]  # a network that is known
    x = torch.tensor([[0.0, 0.0], [9.0, 9.0], [9.0, 8.0], [0.0, 1.0], [8.0, 9.0]], dtype=torch.float64)
    found = model.cluster(x, seeded())
    check(found, torch.ones(5, dtype=torch.bool))
    assert found.labels.tolist() == [1, 0, 0, 1, 0]
    torch.testing.assert_close(found.extras["log_share"].exp(), torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))
    torch.testing.assert_close(found.extras["mean"], far.mean[0, [2, 0]])


@pytest.mark.parametrize("x", [torch.zeros(1, 2), torch.full((9, 2), 3.0), 1e4 * torch.eye(2)], ids=str)
def test_odd_sets(x: Tensor, model: MixtureModel) -> None:
    model, valid = model.float(), torch.ones((1, len(x)), dtype=torch.bool)
    found = model.cluster(x, seeded())
    check(found, valid[0])
    assert all(part.isfinite().all() for part in found.extras.values())
    batch = TaskBatch(x.unsqueeze(0), torch.zeros((1, len(x)), dtype=torch.long), valid)
    assert model.loss(batch, seeded()).total.isfinite()


def test_a_set_of_no_points_has_no_clusters(model: MixtureModel) -> None:
    batch = blobs()
    found = model.cluster_sets(batch.x, torch.zeros_like(batch.valid), seeded())[0]
    assert (found.n_clusters, found.labels.tolist()) == (0, [-1] * 30)


@pytest.mark.parametrize(
    ("kind", "config"),
    [(ActStModel, ActStConfig(2, **SMALL)), (SetTransformerModel, SetTransformerConfig(2, 2, **SMALL))],
    ids=["act-st", "set-transformer"],
)
def test_training_lowers_the_loss_and_reaches_every_parameter(kind: type[MixtureModel], config: Any) -> None:
    model, tasks, generator = (
        build(kind, config, seeded()),
        MixturesOfGaussians(max_points=40, max_clusters=2),
        seeded(),
    )
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = model.loss(tasks.sample(8, generator), generator)
        loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in model.parameters())
        optimiser.step()
        losses.append(float(loss.total.detach()))
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
