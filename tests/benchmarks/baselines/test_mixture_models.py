"""ACT-ST and the Set Transformer, which describe a set by a mixture; test_set_laws.py has what all set models share."""

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
    Mixtures,
    SetTransformerConfig,
    SetTransformerModel,
)
from coterie.amortized.tasks.synthetic import MixturesOfGaussians
from coterie.nn.model import TaskBatch, build
from coterie.ops.gaussian_mixtures import mixture_log_joint
from coterie.ops.partitions import Clustering

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "inducing": 4, "depth": 2, "decoder_depth": 2}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def blobs(n: int = 30, sets: int = 3, seed: int = 1) -> TaskBatch:
    batch = MixturesOfGaussians(max_points=100).sample(sets, seeded(seed))
    return TaskBatch(batch.x[:, :n].double(), batch.labels[:, :n], batch.valid[:, :n])


def with_continue_logit(model: ActStModel, logit: float) -> ActStModel:
    """Fix the logit that one more component is needed."""
    with torch.no_grad():
        model.head.weight[0] = 0
        model.head.bias[0] = logit
    return model


def act_st(**settings: Any) -> ActStModel:
    return build(ActStModel, ActStConfig(n_features=2, **(SMALL | settings)), seeded()).double()


def set_transformer(**settings: Any) -> SetTransformerModel:
    """Build a model whose components differ enough for several to have points."""
    model = build(SetTransformerModel, SetTransformerConfig(2, **(SMALL | settings)), seeded()).double()
    with torch.no_grad():
        model.head.weight.mul_(4)
    return model


@pytest.fixture(
    params=[lambda: with_continue_logit(act_st(), math.log(9)), set_transformer], ids=["act-st", "set-transformer"]
)
def model(request: pytest.FixtureRequest) -> MixtureModel:
    make: Callable[[], MixtureModel] = request.param
    return make()


def check(found: Clustering, valid: Tensor) -> None:
    """Check what every clustering satisfies."""
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
    model.find = lambda *_: far  # type: ignore[method-assign]
    x = torch.tensor([[0.0, 0.0], [9.0, 9.0], [9.0, 8.0], [0.0, 1.0], [8.0, 9.0]], dtype=torch.float64)
    found = model.cluster(x, seeded())
    check(found, torch.ones(5, dtype=torch.bool))
    assert found.labels.tolist() == [1, 0, 0, 1, 0]
    torch.testing.assert_close(found.extras["log_share"].exp(), torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))
    torch.testing.assert_close(found.extras["mean"], far.mean[0, [2, 0]])


@pytest.mark.parametrize("tied", [False, True])
def test_a_mixture_depends_on_its_own_seeds_only(tied: bool) -> None:
    model, batch = act_st(tie_blocks=tied, decoder_depth=3), blobs()
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


def test_seeds_do_not_depend_on_their_number() -> None:
    model = act_st()
    torch.testing.assert_close(model.seeds(7)[:, :3], model.seeds(3))
    assert torch.equal(model.seeds(1)[0], model.first_seed)


@pytest.mark.parametrize(("logit", "count"), [(-1.0, 1), (math.log(3), 3), (math.log(9), 7), (50.0, 20)])
def test_it_stops_at_the_first_mixture_that_is_probably_long_enough(logit: float, count: int) -> None:
    # Probabilities of going on are products: 3/4, 9/16, 27/64 < 1/2, and 0.9 ** 7 < 1/2 < 0.9 ** 6.
    model, batch = with_continue_logit(act_st(), logit), blobs()
    found = model.find(batch.x, batch.valid)
    assert (found.log_share > -torch.inf).sum(dim=1).tolist() == [count] * 3
    torch.testing.assert_close(found.log_share.exp().sum(dim=1), torch.ones(3, dtype=torch.float64))


def test_the_loss_of_act_st_by_hand() -> None:
    model = with_continue_logit(act_st(max_clusters=4), math.log(3))
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
    assert loss.parts["nll"] == pytest.approx(-log_likelihood)
    assert float(loss.total.detach()) == pytest.approx(sum(loss.parts.values()))


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_a_certain_network_has_finite_gradients(logit: float) -> None:
    model, batch = with_continue_logit(act_st().float(), logit), blobs()
    loss = model.loss(TaskBatch(batch.x.float(), batch.labels, batch.valid), seeded())
    loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert loss.total.isfinite()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in model.parameters())


@pytest.mark.parametrize("covariance", ["diagonal", "isotropic"])
def test_the_loss_of_the_set_transformer_by_hand(covariance: str) -> None:
    model, batch = set_transformer(covariance=covariance), blobs()
    hidden, _ = model.encoder(batch.x)
    raw = model.head(model.decoder(model.pool(hidden)))
    share, mean, width = raw[..., 0].softmax(dim=1), raw[..., 1:3], raw[..., 3:]
    assert width.shape[2] == (2 if covariance == "diagonal" else 1)
    deviation = torch.nn.functional.softplus(width) + 1e-6
    noise = (batch.x.unsqueeze(2) - mean.unsqueeze(1)) / deviation.unsqueeze(1)
    density = ((-noise.square() / 2).exp() / (deviation.unsqueeze(1) * math.sqrt(2 * math.pi))).prod(dim=3)
    expected = -(density * share.unsqueeze(1)).sum(dim=2).log().mean()
    torch.testing.assert_close(model.loss(batch, seeded()).total, expected)


def test_a_batch_of_mixtures_clusters_each_set_by_its_own() -> None:
    source = seeded()
    x, mean, deviation = (torch.randn((2, rows, 2), generator=source).double() for rows in (6, 3, 3))
    log_share = torch.randn((2, 3), generator=source).double().log_softmax(dim=1)
    valid = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    mixtures = Mixtures(log_share, 3 * mean, deviation.exp())
    for i, found in enumerate(mixtures.clusterings(x.masked_fill(~valid.unsqueeze(2), torch.nan), valid)):
        winner = mixtures.joint(x)[i].argmax(dim=1)
        assert (found.labels[~valid[i]] == -1).all()
        together = found.labels[valid[i]].unsqueeze(0) == found.labels[valid[i]].unsqueeze(1)
        assert torch.equal(together, winner[valid[i]].unsqueeze(0) == winner[valid[i]].unsqueeze(1))
        again = mixture_log_joint(x[i, valid[i]], found.extras).argmax(dim=1)
        assert torch.equal(again, found.labels[valid[i]])
        torch.testing.assert_close(found.extras["log_share"].exp().sum().item(), 1.0)
