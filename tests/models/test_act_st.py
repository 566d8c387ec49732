"""ACT-ST: how many components it takes, what it is trained for, and that order and padding do not matter."""

import math
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.models.act_st import ActStConfig, ActStModel
from coterie.models.base import build
from coterie.ops.mixture import Mixtures
from coterie.structures import Clustering, TaskBatch
from coterie.tasks.gaussians import MixturesOfGaussians

SMALL = {"width": 16, "heads": 2, "inducing": 4, "depth": 2, "decoder_depth": 2}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def make_model(seed: int = 0, **settings: Any) -> ActStModel:
    return build(ActStModel, ActStConfig(n_features=2, **(SMALL | settings)), seeded(seed)).double()


def blobs(n: int = 30, sets: int = 3, seed: int = 1) -> TaskBatch:
    batch = MixturesOfGaussians(max_points=100).sample(sets, seeded(seed))
    return TaskBatch(batch.x[:, :n].double(), batch.labels[:, :n], batch.valid[:, :n])


def padded(batch: TaskBatch, extra: int, fill: float) -> TaskBatch:
    sets = len(batch.x)
    return TaskBatch(
        torch.cat([batch.x, torch.full((sets, extra, 2), fill, dtype=batch.x.dtype)], dim=1),
        torch.cat([batch.labels, torch.full((sets, extra), 7)], dim=1),
        torch.cat([batch.valid, torch.zeros((sets, extra), dtype=torch.bool)], dim=1),
    )


def going_on(model: ActStModel, logit: float) -> None:
    """Let every mixture say, with this logit, that one more component is needed."""
    with torch.no_grad():
        model.head.weight[0] = 0
        model.head.bias[0] = logit


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


@pytest.mark.parametrize("tied", [False, True])
def test_a_mixture_is_what_its_seeds_alone_would_give(tied: bool) -> None:
    model, batch = make_model(tie_blocks=tied, decoder_depth=3), blobs()
    raw, log_continue = model.describe(batch.x, batch.valid, 5)
    hidden, _ = model.encoder(batch.x, batch.valid)
    more = torch.zeros(3, dtype=torch.float64)
    for k in range(1, 6):
        slots = model.look(model.seeds(k).expand(3, -1, -1), hidden)
        for i in range(3):
            slots = model.decoder[min(i, len(model.decoder) - 1)](slots)
        out = model.head(slots)
        torch.testing.assert_close(raw[:, k - 1, :k], out[..., 1:])
        more = more + out[..., 0].mean(dim=1).sigmoid().log()
        torch.testing.assert_close(log_continue[:, k - 1], more)


def test_seeds_do_not_depend_on_how_many_there_are() -> None:
    model = make_model()
    torch.testing.assert_close(model.seeds(7)[:, :3], model.seeds(3))
    assert torch.equal(model.seeds(1)[0], model.first_seed)


@pytest.mark.parametrize(("logit", "count"), [(-1.0, 1), (math.log(3), 3), (math.log(9), 7), (50.0, 20)])
def test_it_stops_at_the_first_mixture_that_is_probably_long_enough(logit: float, count: int) -> None:
    # Probabilities of going on are products: 3/4, 9/16, 27/64 < 1/2, and 0.9 ** 7 < 1/2 < 0.9 ** 6.
    model, batch = make_model(), blobs()
    going_on(model, logit)
    found = model.find(batch.x, batch.valid)
    assert (found.log_share > -torch.inf).sum(dim=1).tolist() == [count] * 3
    torch.testing.assert_close(found.log_share.exp().sum(dim=1), torch.ones(3, dtype=torch.float64))


def test_loss_against_sums_by_hand() -> None:
    model = make_model(max_clusters=4)
    going_on(model, math.log(3))
    batch = TaskBatch(
        blobs(sets=2, n=6).x,
        torch.tensor([[0, 0, 0, 0, 0, 0], [3, 1, 1, 3, 0, 2]]),
        torch.tensor([[True] * 6, [True] * 4 + [False] * 2]),
    )
    loss = model.loss(batch, seeded())
    # Going on has the probabilities 3/4, (3/4)², ...; the first set needs no second component, the second needs two.
    log_continue = [k * math.log(0.75) for k in range(1, 5)]
    log_stop = [math.log(1 - 0.75**k) for k in range(1, 5)]
    assert loss.parts["stopping"] == pytest.approx(-(sum(log_stop) + log_continue[0] + sum(log_stop[1:])) / 2)
    raw, _ = model.describe(batch.x, batch.valid, 4)
    log_likelihood = 0.0
    for i, count in enumerate([1, 2]):
        share = raw[i, count - 1, :count, 0].softmax(dim=0)
        mean, width = raw[i, count - 1, :count, 1:].chunk(2, dim=1)
        deviation = torch.nn.functional.softplus(width) + 1e-6
        noise = (batch.x[i][batch.valid[i]].unsqueeze(1) - mean) / deviation
        density = (-noise.square() / 2).exp() / (deviation * math.sqrt(2 * math.pi))
        log_likelihood += float((density.prod(dim=2) @ share).log().mean().detach()) / 2
    assert loss.parts["surprise"] == pytest.approx(-log_likelihood)
    assert float(loss.total.detach()) == pytest.approx(sum(loss.parts.values()))


@pytest.mark.parametrize("fill", [0.0, 1e6, math.nan])
def test_padding_changes_nothing(fill: float) -> None:
    model, batch = make_model(), blobs()
    going_on(model, math.log(9))
    more = padded(batch, 5, fill)
    torch.testing.assert_close(model.loss(more, seeded()).total, model.loss(batch, seeded()).total)
    pairs = zip(
        model.cluster_sets(batch.x, batch.valid, seeded()),
        model.cluster_sets(more.x, more.valid, seeded()),
        strict=True,
    )
    for alone, with_more in pairs:
        check(with_more, more.valid[0])
        assert torch.equal(alone.labels, with_more.labels[:30])
        for name, part in alone.extras.items():
            torch.testing.assert_close(part, with_more.extras[name])


def test_permuting_points_permutes_labels_and_sets_are_independent() -> None:
    model, batch = make_model(), blobs()
    going_on(model, math.log(9))
    order = torch.randperm(30, generator=seeded(5))
    together = model.cluster_sets(batch.x[:, order], batch.valid, seeded())
    for x, found in zip(batch.x, together, strict=True):
        alone = model.cluster(x, seeded(9))
        check(found, batch.valid[0])
        assert torch.equal(alone.labels[order], found.labels)
        torch.testing.assert_close(alone.extras["mean"], found.extras["mean"])


def test_memberships_of_the_set_itself_are_its_probabilities() -> None:
    model, batch = make_model(), blobs(sets=1)
    going_on(model, math.log(9))
    found = model.cluster(batch.x[0], seeded())
    assert found.probabilities is not None
    torch.testing.assert_close(model.memberships(batch.x[0], found), found.probabilities)
    torch.testing.assert_close(
        model.memberships(1e3 * batch.x[0], found).sum(dim=1), torch.ones(30, dtype=torch.float64)
    )


def test_components_without_points_are_dropped_and_the_largest_comes_first() -> None:
    model = make_model()
    far = Mixtures(
        torch.tensor([[0.2, 0.3, 0.4, 0.1]], dtype=torch.float64).log(),
        torch.tensor([[[0.0, 0.0], [90.0, 90.0], [9.0, 9.0], [9.0, 9.0]]], dtype=torch.float64),
        torch.ones((1, 4, 2), dtype=torch.float64),
    )
    model.find = lambda *_: far  # type: ignore[method-assign]  # a network that is known
    x = torch.tensor([[0.0, 0.0], [9.0, 9.0], [9.0, 8.0], [0.0, 1.0], [8.0, 9.0]], dtype=torch.float64)
    found = model.cluster(x, seeded())
    assert found.labels.tolist() == [1, 0, 0, 1, 0]
    torch.testing.assert_close(found.extras["log_share"].exp(), torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))
    torch.testing.assert_close(found.extras["mean"], far.mean[0, [2, 0]])


@pytest.mark.parametrize("x", [torch.zeros(1, 2), torch.full((9, 2), 3.0), 1e4 * torch.eye(2)], ids=str)
def test_odd_sets(x: Tensor) -> None:
    model = make_model().float()
    found = model.cluster(x, seeded())
    check(found, torch.ones(len(x), dtype=torch.bool))
    assert all(part.isfinite().all() for part in found.extras.values())
    batch = TaskBatch(
        x.unsqueeze(0), torch.zeros((1, len(x)), dtype=torch.long), torch.ones((1, len(x)), dtype=torch.bool)
    )
    assert model.loss(batch, seeded()).total.isfinite()


def test_a_set_of_no_points_has_no_clusters() -> None:
    batch = blobs()
    found = make_model().cluster_sets(batch.x, torch.zeros_like(batch.valid), seeded())[0]
    assert (found.n_clusters, found.labels.tolist()) == (0, [-1] * 30)


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_a_network_that_is_sure_still_learns(logit: float) -> None:
    model = make_model().float()
    going_on(model, logit)
    batch = blobs()
    loss = model.loss(TaskBatch(batch.x.float(), batch.labels, batch.valid), seeded())
    loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert loss.total.isfinite()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in model.parameters())


def test_training_lowers_the_loss_and_reaches_every_parameter() -> None:
    model, tasks, generator = make_model().float(), MixturesOfGaussians(max_points=40, max_clusters=2), seeded()
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


def test_published_shape_and_refusals() -> None:
    config = ActStConfig.faithful(2)
    assert (config.width, config.inducing, config.tie_blocks, config.layer_norm) == (128, 32, True, False)
    assert len(ActStModel(config).decoder) == 2
    with pytest.raises(ConfigError, match="most_clusters=0"):
        ActStConfig(2, most_clusters=0)
