"""AMCP: what its configurations are, its loss by hand, and that it learns."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel, Pass
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import TaskBatch, build
from coterie.training.loop import TrainConfig, train

SMALL: dict[str, Any] = {"width": 8, "hidden": 16, "depth": 1, "em_steps": 2, "context_width": 8}
CENTRES = torch.tensor([[3.0, 0.0], [-3.0, 1.0], [0.0, -3.0], [1.0, 4.0]])


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def make_model(seed: int = 0, **settings: Any) -> AmcpModel:
    return build(AmcpModel, AmcpConfig(2, **(SMALL | settings)), seeded(seed)).eval()


def easy_sets(sets: int, n: int = 40, seed: int = 1) -> TaskBatch:
    """Sets of groups far apart, of which each set has some."""
    source = seeded(seed)
    labels = torch.randint(4, (sets, n), generator=source) % torch.randint(1, 5, (sets, 1), generator=source)
    x = CENTRES[labels] + 0.2 * torch.randn((sets, n, 2), generator=source)
    return TaskBatch(x, labels, torch.ones_like(labels, dtype=torch.bool))


def pretending(model: AmcpModel, logits: Tensor, context: Tensor | None) -> AmcpModel:
    """A network that says this of the next cluster, whatever is left."""
    mixed = model.find_cluster(torch.zeros(1, 1, 8), torch.ones(1, 1, dtype=torch.bool), torch.tensor([[-1]])).mixed
    model.find_cluster = lambda *_: Pass(logits, context, mixed)  # type: ignore[method-assign]  # a network that is known
    return model


def of_each_cluster(model: AmcpModel, batch: TaskBatch, found: Tensor, logits: Tensor, context: Tensor) -> Tensor:
    """Cross-entropy over what is left and negative log-likelihood of the members, cluster by cluster, word for word."""
    assert model.density is not None
    log_prob = model.density.log_prob(batch.x, context, seeded())
    losses = torch.full(found.shape, torch.inf)
    for i, j in product(*map(range, found.shape)):
        member = batch.labels[i] == j
        left = ~found[i][batch.labels[i]]
        if member.any() and not found[i, j]:
            entropy = binary_cross_entropy_with_logits(logits[i, left], member[left].float())
            losses[i, j] = entropy - model.config.nll_weight * log_prob[i, member].mean()
    return losses


def test_the_faithful_network_is_what_the_appendix_states() -> None:
    config = AmcpConfig.faithful(2)
    assert config.width == 2  # C.1: d = 2 for synthetic data
    assert AmcpConfig.faithful(784, width=512, density="none").width == 512  # and 512 for images
    assert (config.e_step, config.sinkhorn_steps) == ("transport", 10)  # C.2.3: at most ten of Sinkhorn-Knopp's
    assert config.em_steps == 5  # C.2.3: T from 1 to 5, the more the better
    assert config.references == "decoded"  # C.1: squashed references, an MLP with a sigmoid output
    assert config.dropout > 0  # C.1: before every layer but the last
    assert config.prefixes_per_set == 0  # clusters one after the other, from the first to the last
    assert config.decoding == "faithful"
    assert not config.update_previous  # C.2.3: that is AMCP*
    assert config.max_points >= 10_000  # C.1: sets of 10,000 points are clustered whole
    decoder = AmcpModel(config).mixing.decoder
    assert decoder is not None
    assert [type(layer).__name__ for layer in decoder] == ["Dropout", "Linear", "Tanh", "Linear"]


@pytest.mark.parametrize("nll_weight", [0.0, 0.3, 1.0])
def test_the_easiest_cluster_that_is_left_counts(nll_weight: float) -> None:
    batch = easy_sets(12)
    logits, context = torch.randn((12, 40), generator=seeded(3)), torch.randn((12, 4), generator=seeded(4))
    model = pretending(make_model(nll_weight=nll_weight), logits, context)
    found = torch.zeros((12, 4), dtype=torch.bool)
    found[6:, 0] = batch.labels[6:].amax(dim=1) > 0  # of some sets one cluster is found already
    losses = of_each_cluster(model, batch, found, logits, context)
    loss, chosen = model._next_loss(batch.x, torch.zeros(12, 40, 8), batch.labels, found, seeded())
    assert torch.equal(chosen, losses.argmin(dim=1))
    assert len(torch.unique(chosen)) > 1
    torch.testing.assert_close(loss.total, losses.amin(dim=1).mean())
    assert loss.parts["membership"] + nll_weight * loss.parts["nll"] == pytest.approx(float(loss.total))


def test_the_cluster_of_the_anchor_counts_and_anchors_are_left() -> None:
    batch = easy_sets(12)
    logits, context = torch.randn((12, 40), generator=seeded(3)), torch.randn((12, 4), generator=seeded(4))
    model = pretending(make_model(), logits, context)
    found = torch.zeros((12, 4), dtype=torch.bool)
    found[:, 1] = True
    losses = of_each_cluster(model, batch, found, logits, context)
    model.config = replace(model.config, filtering="anchored")
    every = []
    for seed in range(15):
        loss, chosen = model._next_loss(batch.x, torch.zeros(12, 40, 8), batch.labels, found, seeded(seed))
        torch.testing.assert_close(loss.total, losses.gather(1, chosen.unsqueeze(1)).mean())
        every.append(chosen)
    assert losses.gather(1, torch.stack(every, dim=1)).isfinite().all()  # neither found nor empty
    assert (torch.stack(every) != losses.argmin(dim=1)).any()  # nor always the easiest


@pytest.mark.parametrize("filtering", ["min-loss", "anchored"])
def test_the_whole_sequence_takes_clusters_one_by_one(filtering: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = make_model(prefixes_per_set=0, filtering=filtering), easy_sets(6)
    batch = replace(batch, valid=batch.valid & (torch.arange(40) < torch.tensor([[40], [40], [30], [9], [1], [40]])))
    before: list[Tensor] = []
    chosen: list[list[int]] = [[] for _ in range(6)]
    losses = []
    real = model._next_loss

    def noted(x: Tensor, h: Tensor, true: Tensor, found: Tensor, generator: Generator) -> Any:
        loss, which = real(x, h, true, found, generator)
        before.append(found.sum(dim=1))
        losses.append(float(loss.total.detach()) * len(x) / 6)
        for one, label in zip(x, which.tolist(), strict=True):
            chosen[next(i for i in range(6) if torch.equal(batch.x[i, 0], one[0]))].append(label)
        return loss, which

    monkeypatch.setattr(model, "_next_loss", noted)
    loss = model.loss(batch, seeded())
    for labels, labelled, valid in zip(chosen, batch.labels, batch.valid, strict=True):
        assert sorted(labels) == torch.unique(labelled[valid]).tolist()  # each once, and no other
    assert [torch.unique(count).tolist() for count in before] == [[turn] for turn in range(len(before))]
    assert float(loss.total.detach()) == pytest.approx(sum(losses), rel=1e-5)
    assert sum(loss.parts.values()) == pytest.approx(sum(losses), rel=1e-5)


def test_leftovers_are_not_members_of_the_next_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = easy_sets(200)
    logits = torch.randn((200, 40), generator=seeded(3))
    model = pretending(make_model(leftover_fraction=0.5, density="none"), logits, None)
    left: list[Tensor] = []
    real = model.find_cluster

    def noted(h: Tensor, valid: Tensor, labels: Tensor, anchor: Tensor | None) -> Pass:
        left.append(labels < 0)
        return real(h, valid, labels, anchor)

    monkeypatch.setattr(model, "find_cluster", noted)
    everything = torch.ones((200, 4), dtype=torch.bool)
    loss, _ = model._next_loss(batch.x, torch.zeros(200, 40, 8), batch.labels, everything, seeded())
    share = left[0].float().mean(dim=1)
    assert float(share.mean()) == pytest.approx(0.25, abs=0.02)  # of found clusters between none and a half
    assert float(share.std()) > 0.1
    taken_by_mistake = binary_cross_entropy_with_logits(logits, torch.zeros_like(logits), reduction="none") * left[0]
    torch.testing.assert_close(loss.total, (taken_by_mistake.sum(dim=1) / left[0].sum(dim=1).clamp(min=1)).mean())
    nothing = torch.zeros((200, 4), dtype=torch.bool)
    model._next_loss(batch.x, torch.zeros(200, 40, 8), batch.labels, nothing, seeded())
    assert left[1].all()  # where no cluster is found, there are none


@pytest.mark.parametrize("prefixes", [1, 4])
def test_prefixes_of_all_lengths_are_sampled(prefixes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = make_model(prefixes_per_set=prefixes), easy_sets(50)
    seen: list[Tensor] = []
    real = model._next_loss
    monkeypatch.setattr(model, "_next_loss", lambda *given: seen.append(given[3]) or real(*given))  # type: ignore[func-returns-value]  # notes
    model.loss(batch, seeded())
    (found,) = seen
    assert found.shape == (50 * prefixes, 4)
    present = torch.stack([(batch.labels == j).any(dim=1) for j in range(4)], dim=1).repeat_interleave(prefixes, dim=0)
    assert not (found & ~present).any()
    left = (present & ~found).sum(dim=1)
    assert (left >= 1).all()
    assert set(left.tolist()) == {1, 2, 3, 4}


@pytest.mark.parametrize("prefixes", [0, 1])
@pytest.mark.parametrize("density", ["gaussian", "flow", "none"])
def test_padding_that_is_not_a_number_does_not_reach_the_loss(density: Any, prefixes: int) -> None:
    model, batch = make_model(density=density, prefixes_per_set=prefixes), easy_sets(4)
    padded = TaskBatch(
        torch.cat((batch.x, torch.full((4, 3, 2), torch.nan)), dim=1),
        torch.cat((batch.labels, torch.full((4, 3), 99)), dim=1),
        torch.cat((batch.valid, torch.zeros((4, 3), dtype=torch.bool)), dim=1),
    )
    loss = model.loss(padded, seeded())
    torch.testing.assert_close(loss.total, model.loss(batch, seeded()).total)
    loss.total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert all(value.grad is None or value.grad.isfinite().all() for value in model.parameters())


@pytest.mark.usefixtures("untouched_random_state")
def test_dropout_is_seeded_by_the_generator() -> None:
    settings: dict[str, Any] = {"references": "decoded", "prefixes_per_set": 0, "density": "none"}  # no other sampling
    model, batch = make_model(dropout=0.5, **settings).train(), easy_sets(4)
    first, again, other = (float(model.loss(batch, seeded(seed)).total.detach()) for seed in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize(
    "settings",
    [{}, {"filtering": "anchored"}, {"e_step": "transport", "sinkhorn_steps": 3, "prefixes_per_set": 0}],
    ids=["ours", "anchored", "transport"],
)
def test_training_beats_a_random_partition(settings: dict[str, Any]) -> None:
    model = make_model(density="none", **(settings | {"hidden": 32})).train()
    losses: list[float] = []
    real = model.loss

    def noted(batch: TaskBatch, generator: Generator) -> Any:
        losses.append(float((loss := real(batch, generator)).total.detach()))
        return loss

    model.loss = noted  # type: ignore[method-assign]  # notes
    batches = (easy_sets(16, seed=seed) for seed in range(100, 160))
    train(model, batches, TrainConfig(60, learning_rate=1e-2), generator=seeded())
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])
    model.eval()
    batch = easy_sets(12, seed=7)
    found = model.cluster_sets(batch.x, batch.valid, seeded())
    several = [i for i in range(12) if len(torch.unique(batch.labels[i])) > 1]
    scores = [adjusted_rand_index(batch.labels[i].numpy(), found[i].labels.numpy()) for i in several]
    assert sum(scores) / len(scores) > 0.5  # zero for a random partition
