"""TCC's network: queues, momentum branch, cluster-level loss, prototypes, and former configurations."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor
from torch.nn.functional import normalize

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.config import to_dict
from coterie.errors import ConfigError
from coterie.nn.model import ViewBatch, build, to_arrays, to_tensors
from coterie.tcc.config import PUBLISHED, TccConfig
from coterie.tcc.losses import info_nce
from coterie.tcc.model import MemoryBank, TccModel
from coterie.training.loop import TrainConfig, train

SMALL: dict[str, Any] = {
    "encoder": "mlp",
    "channels": 8,
    "projection_hidden": 16,
    "embedding_dim": 8,
    "queue_size": 12,
    "cluster_queue_size": 3,
}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def numbered_entries(first: int, count: int, shape: tuple[int, ...]) -> Tensor:
    numbers = torch.arange(first, first + count, dtype=torch.float32)
    return numbers.reshape(-1, *[1] * len(shape)).expand(-1, *shape)


@given(
    length=st.integers(0, 7), sizes=st.lists(st.integers(0, 16), max_size=8), shape=st.sampled_from([(), (2,), (3, 2)])
)
def test_memory_banks_keep_the_newest_entries_in_order(length: int, sizes: list[int], shape: tuple[int, ...]) -> None:
    bank = MemoryBank(length, shape)
    assert bank.contents().shape == (0, *shape)
    total = 0
    for size in sizes:
        bank.enqueue(numbered_entries(total, size, shape))
        total += size
        count = min(total, length)
        assert torch.equal(bank.contents(), numbered_entries(total - count, count, shape))
        assert int(bank.size) == count


def test_a_memory_bank_copies_entries_without_gradient() -> None:
    bank = MemoryBank(2, (2,)).double()
    keys = torch.ones(2, 2, requires_grad=True) * 1
    bank.enqueue(keys)
    with torch.no_grad():
        keys.zero_()
    contents = bank.contents()
    assert contents.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert (contents.dtype, contents.requires_grad) == (torch.float64, False)
    assert not list(bank.parameters())
    query = torch.ones(2, dtype=torch.float64, requires_grad=True)
    loss = (contents @ query).sum()
    bank.enqueue(torch.full((2, 2), 7.0))
    (slope,) = torch.autograd.grad(loss, query)
    assert slope.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("length", [0, 5])
def test_a_memory_bank_is_restored_from_a_file(tmp_path: Path, length: int) -> None:
    bank, other = MemoryBank(length, (3,)), MemoryBank(length, (3,))
    bank.enqueue(numbered_entries(0, 7, (3,)))
    save_checkpoint(tmp_path / "bank.safetensors", to_arrays(bank.state_dict()), {}, force=False)
    other.load_state_dict(to_tensors(load_checkpoint(tmp_path / "bank.safetensors")[0]))
    for each in (bank, other):
        each.enqueue(numbered_entries(7, 2, (3,)))
    assert torch.equal(other.contents(), bank.contents())


@pytest.mark.parametrize(("length", "shape"), [(-1, (3,)), (2, (0,)), (2, (3, -1))])
def test_invalid_memory_banks_raise_an_error(length: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=rf"length={length} must be at least 0, and every element of shape=\("):
        MemoryBank(length, shape)


@pytest.mark.parametrize("shape", [(), (3,), (2, 4), (2, 1, 3)])
def test_entries_of_another_shape_raise_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"must have entries of shape \(3,\)"):
        MemoryBank(2, (3,)).enqueue(torch.ones(shape))


def model_of(**settings: Any) -> TccModel:
    return build(TccModel, TccConfig(6, 3, **(SMALL | settings)), seeded(1))


def views(n_rows: int = 10, seed: int = 2) -> ViewBatch:
    x = torch.randn(n_rows, 6, generator=seeded(seed))
    noise = 0.1 * torch.randn(2, n_rows, 6, generator=seeded(seed + 1))
    return ViewBatch(x + noise[0], x + noise[1], torch.arange(n_rows))


def step(model: TccModel, batch: ViewBatch) -> dict[str, float]:
    loss = model.loss(batch, seeded(3))
    model.after_step()
    return dict(loss.parts)


def test_the_momentum_branch_is_a_moving_average_without_gradient() -> None:
    model = model_of(momentum=0.9)
    pairs = list(zip(model.momentum_branch.parameters(), model.online.parameters(), strict=True))
    assert all(torch.equal(average, current) for average, current in pairs)
    model.loss(views(), seeded()).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert all(average.grad is None and current.grad is not None for average, current in pairs)
    before = [average.clone() for average, _ in pairs]
    with torch.no_grad():
        for _, current in pairs:
            current.add_(1.0)
    step(model, views())
    for (average, _), start in zip(pairs, before, strict=True):
        torch.testing.assert_close(average, start + 0.1)


def test_keys_are_enqueued_after_the_step() -> None:
    model, batch = model_of(), views(5)
    model.loss(batch, seeded(3))
    assert len(model.instance_queue.contents()) == len(model.cluster_queue.contents()) == 0
    model.after_step()
    assert model.instance_queue.contents().shape == (5, 8)
    assert model.cluster_queue.contents().shape == (1, 3, 8)
    torch.testing.assert_close(model.instance_queue.contents().norm(dim=1), torch.ones(5))
    for _ in range(4):
        step(model, batch)
    assert (len(model.instance_queue.contents()), len(model.cluster_queue.contents())) == (12, 3)


def test_past_representations_of_the_same_cluster_are_not_negatives() -> None:
    model, batch = model_of(cluster_noise=0.0), views()
    step(model, batch)
    r, key_r = (normalize(torch.randn(3, 8, generator=seeded(i)), dim=1) for i in (4, 5))
    candidates = torch.cat((r, key_r, model.cluster_queue.contents()[0]))
    expected = [
        float(info_nce(r[k : k + 1], key_r[k : k + 1], candidates[torch.arange(9) % 3 != k], 0.5)) for k in range(3)
    ]
    assert float(model._cluster_loss(r, key_r, seeded())) == pytest.approx(sum(expected) / 3, abs=1e-5)


def test_negatives_are_the_batch_and_the_queue() -> None:
    batch = views(4)
    assert step(model_of(), batch)["instance"] > 0  # the queue is empty
    model = model_of(in_batch_negatives=False)
    assert step(model, batch)["instance"] == pytest.approx(0.0, abs=1e-6)
    assert step(model, batch)["instance"] > 0


def test_without_x_the_instance_embedding_depends_on_the_gumbel_sample_only() -> None:
    model, batch = model_of(condition_on_x=False), views(6)
    output = model.online(batch.first, seeded(7))
    expected = normalize(model.online.assignment_embedding(output.gumbel_sample), dim=1)
    torch.testing.assert_close(output.instance, expected)


@pytest.mark.parametrize("aggregation", ["probabilities", "gumbel"])
def test_cluster_representations_are_unit_vectors(aggregation: str) -> None:
    model, batch = model_of(aggregation=aggregation), views(9)
    output = model.online(batch.first, seeded(7))
    weight = output.gumbel_sample if aggregation == "gumbel" else output.log_pi.exp()
    torch.testing.assert_close(model.cluster_representations(output), normalize(weight.mT @ output.embedding, dim=1))


def blobs() -> tuple[Tensor, Tensor]:
    """Three well separated clusters."""
    labels = torch.arange(60) % 3
    return 4 * torch.eye(3, 6)[labels] + 0.3 * torch.randn(60, 6, generator=seeded(9)), labels


def test_prototypes_can_be_set() -> None:
    model, (x, labels) = model_of(), blobs()
    step(model, views())
    embeddings = model.embeddings(x)
    centres = torch.stack([embeddings[labels == k].mean(dim=0) for k in range(3)])
    model.set_prototypes(centres)
    nearest = (normalize(centres, dim=1) @ embeddings.T).argmax(dim=0)
    assert torch.equal(model.cluster(x, seeded()).labels, nearest)
    assert torch.equal(model.online.prototypes, model.momentum_branch.get_parameter("prototypes"))
    assert len(model.cluster_queue.contents()) == 0
    assert len(model.instance_queue.contents()) > 0


def test_clusters_are_learned() -> None:
    model, (x, labels) = model_of(), blobs()
    generator = seeded(10)

    def batches() -> Iterator[ViewBatch]:
        while True:
            noise = 0.3 * torch.randn(2, *x.shape, generator=generator)
            yield ViewBatch(x + noise[0], x + noise[1], torch.arange(len(x)))

    train(model, batches(), TrainConfig(150, learning_rate=5e-3), generator=generator)
    found = model.cluster(x, seeded()).labels
    assert len(torch.unique(found)) == 3
    assert len(torch.unique(found * 3 + labels)) == 3  # each cluster is a true one


def test_the_loss_is_a_weighted_sum() -> None:
    batch = views()
    plain = model_of().loss(batch, seeded(3))
    assert set(plain.parts) == {"instance", "cluster", "balance", "sinkhorn"}
    assert plain.total.item() == pytest.approx(sum(plain.parts.values()), rel=1e-5)
    changed = model_of(cluster_weight=2.0, balance_weight=3.0, sinkhorn_weight=0.0).loss(batch, seeded(3))
    assert set(changed.parts) == {"instance", "cluster", "balance"}
    assert changed.parts["cluster"] == pytest.approx(2 * plain.parts["cluster"], rel=1e-5)
    assert changed.parts["balance"] == pytest.approx(3 * plain.parts["balance"], rel=1e-5)


def test_the_balance_per_sample_is_the_divergence_of_equation_2() -> None:
    model, batch = model_of(balance="per_sample"), views()
    log_pi = model.online(batch.first, seeded(3)).log_pi
    expected = (log_pi.exp() * (log_pi + math.log(3))).sum(dim=1).mean().item()
    assert model.loss(batch, seeded(3)).parts["balance"] == pytest.approx(expected, rel=1e-4)


def test_settings_are_as_published_and_former_names_translated() -> None:
    settings = PUBLISHED | {"encoder": "resnet34", "image": (3, 32, 32), "channels": 2, "queue_size": 8}
    model = build(TccModel, TccConfig(3072, 10, **settings), seeded())
    x = torch.rand(4, 3072, generator=seeded(1))
    train(model, [ViewBatch(x, x, torch.arange(4))] * 2, TrainConfig(2), generator=seeded(2))
    assert model.cluster(x, seeded()).labels.shape == (4,)
    former = {"sharpness": 0.3, "even": "rows", "representation": "draws", "memory": 5, "width": 16}
    config = TccConfig.from_values({"n_features": 6, "n_clusters": 3}, former)
    assert (config.assignment_temperature, config.balance, config.aggregation) == (0.3, "per_sample", "gumbel")
    assert (config.queue_size, config.embedding_dim) == (5, 16)
    assert TccConfig.from_values(to_dict(config)) == config


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0},
        {"momentum": 1.5},
        {"queue_size": -1},
        {"embedding_dim": 1},
        {"projection_hidden": -1},
        {"balance": "both"},
    ],
    ids=str,
)
def test_invalid_settings_raise_an_error_that_names_them(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(ConfigError, match=f"{name}={value!r}"):
        TccConfig(6, 3, **(SMALL | settings))
