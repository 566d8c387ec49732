"""ACT-ST: how many components it takes, and what it is trained for; what it shares is in test_mixture.py."""

import math

import pytest
import torch

from benchmarks.baselines.set_transformer import ActStConfig, ActStModel
from coterie.errors import ConfigError
from coterie.nn.model import TaskBatch
from tests.models.test_mixture import act_st, blobs, going_on, seeded


@pytest.mark.parametrize("tied", [False, True])
def test_a_mixture_is_what_its_seeds_alone_would_give(tied: bool) -> None:
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


def test_seeds_do_not_depend_on_how_many_there_are() -> None:
    model = act_st()
    torch.testing.assert_close(model.seeds(7)[:, :3], model.seeds(3))
    assert torch.equal(model.seeds(1)[0], model.first_seed)


@pytest.mark.parametrize(("logit", "count"), [(-1.0, 1), (math.log(3), 3), (math.log(9), 7), (50.0, 20)])
def test_it_stops_at_the_first_mixture_that_is_probably_long_enough(logit: float, count: int) -> None:
    # Probabilities of going on are products: 3/4, 9/16, 27/64 < 1/2, and 0.9 ** 7 < 1/2 < 0.9 ** 6.
    model, batch = going_on(act_st(), logit), blobs()
    found = model.find(batch.x, batch.valid)
    assert (found.log_share > -torch.inf).sum(dim=1).tolist() == [count] * 3
    torch.testing.assert_close(found.log_share.exp().sum(dim=1), torch.ones(3, dtype=torch.float64))


def test_loss_against_sums_by_hand() -> None:
    model = going_on(act_st(max_clusters=4), math.log(3))
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


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_a_network_that_is_sure_still_learns(logit: float) -> None:
    model, batch = going_on(act_st().float(), logit), blobs()
    loss = model.loss(TaskBatch(batch.x.float(), batch.labels, batch.valid), seeded())
    loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert loss.total.isfinite()
    assert all(value.grad is not None and value.grad.isfinite().all() for value in model.parameters())


def test_published_shape_and_refusals() -> None:
    config = ActStConfig.faithful(2)
    assert (config.width, config.inducing, config.tie_blocks, config.layer_norm) == (128, 32, True, False)
    assert len(ActStModel(config).decoder) == 2
    with pytest.raises(ConfigError, match="most_clusters=0"):
        ActStConfig(2, most_clusters=0)
