"""What is special in TCC: twins, memories, clusters that are told apart, and prototypes that catch up."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.nn.model import ViewBatch, build
from coterie.tcc.losses import info_nce
from coterie.tcc.model import TccConfig, TccModel
from coterie.training.loop import TrainConfig, train

SMALL: dict[str, Any] = {"encoder": "mlp", "channels": 8, "hidden": 16, "width": 8, "memory": 12, "rounds": 3}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def model_of(**settings: Any) -> TccModel:
    return build(TccModel, TccConfig(6, 3, **(SMALL | settings)), seeded(1))


def views(n_rows: int = 10, seed: int = 2) -> ViewBatch:
    x = torch.randn(n_rows, 6, generator=seeded(seed))
    noise = 0.1 * torch.randn(2, n_rows, 6, generator=seeded(seed + 1))
    return ViewBatch(x + noise[0], x + noise[1], torch.arange(n_rows))


def stepped(model: TccModel, batch: ViewBatch) -> dict[str, float]:
    loss = model.loss(batch, seeded(3))
    model.after_step()
    return dict(loss.parts)


def test_the_twin_begins_as_the_other_and_follows_it() -> None:
    model = model_of(momentum=0.9)
    pairs = list(zip(model.twin.parameters(), model.online.parameters(), strict=True))
    assert all(torch.equal(behind, ahead) for behind, ahead in pairs)
    assert not any(behind.requires_grad for behind, _ in pairs)
    before = [behind.clone() for behind, _ in pairs]
    with torch.no_grad():
        for _, ahead in pairs:
            ahead.add_(1.0)
    stepped(model, views())
    for (behind, _), start in zip(pairs, before, strict=True):
        torch.testing.assert_close(behind, start + 0.1)


def test_no_gradient_reaches_the_twin() -> None:
    model = model_of()
    model.loss(views(), seeded()).total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert all(value.grad is None for value in model.twin.parameters())
    assert all(value.grad is not None for value in model.online.parameters())


def test_what_the_twin_saw_is_remembered_after_the_step() -> None:
    model, batch = model_of(), views(5)
    model.loss(batch, seeded(3))
    assert len(model.instances.held()) == len(model.clusters.held()) == 0
    model.after_step()
    assert model.instances.held().shape == (5, 8)
    assert model.clusters.held().shape == (1, 3, 8)
    torch.testing.assert_close(model.instances.held().norm(dim=1), torch.ones(5))
    for _ in range(4):
        stepped(model, batch)
    assert len(model.instances.held()) == 12
    assert len(model.clusters.held()) == 3


def test_a_cluster_is_not_told_apart_from_its_own_past() -> None:
    """Entries of the same cluster in the memory may be anything."""
    model, batch = model_of(perturbed=0.0), views()
    stepped(model, batch)
    cluster, known = (torch.nn.functional.normalize(torch.randn(3, 8, generator=seeded(i)), dim=1) for i in (4, 5))
    past = model.clusters.held().clone()
    got = float(model._cluster_loss(cluster, known, seeded()))
    others = torch.cat((cluster, known, past[0]))
    apart = [
        float(info_nce(cluster[k : k + 1], known[k : k + 1], others[torch.arange(9) % 3 != k], 0.5)) for k in range(3)
    ]
    assert got == pytest.approx(sum(apart) / 3, abs=1e-5)


def test_instances_are_told_apart_from_the_batch_and_from_what_was_before() -> None:
    model, batch = model_of(sees_rows=True), views(4)
    assert stepped(model, batch)["instance"] > 0  # though nothing is remembered yet
    alone = model_of(in_batch=False)
    assert stepped(alone, batch)["instance"] == pytest.approx(0.0, abs=1e-6)
    assert stepped(alone, batch)["instance"] > 0


def test_without_rows_an_instance_is_its_draw() -> None:
    model, batch = model_of(sees_rows=False), views(6)
    seen = model.online(batch.first, seeded(7))
    torch.testing.assert_close(seen.instance, torch.nn.functional.normalize(model.online.of_draw(seen.draw), dim=1))


@pytest.mark.parametrize("representation", ["probabilities", "draws"])
def test_clusters_are_unit_vectors_whatever_the_order_of_rows(representation: str) -> None:
    model, batch = model_of(representation=representation), views(9)
    seen = model.online(batch.first, seeded(7))
    clusters = model.represented(seen)
    order = torch.randperm(9, generator=seeded(8))
    shuffled = model.represented(
        seen._replace(place=seen.place[order], log_prob=seen.log_prob[order], draw=seen.draw[order])
    )
    torch.testing.assert_close(clusters, shuffled)
    torch.testing.assert_close(clusters.norm(dim=1), torch.ones(3))


def blobs() -> tuple[Tensor, Tensor]:
    """Three clusters that are easy to tell apart."""
    labels = torch.arange(60) % 3
    centres = 4 * torch.eye(3, 6)
    return centres[labels] + 0.3 * torch.randn(60, 6, generator=seeded(9)), labels


def test_prototypes_begin_where_they_are_put() -> None:
    model, (x, labels) = model_of(), blobs()
    stepped(model, views())
    places = model.places(x)
    centres = torch.stack([places[labels == k].mean(dim=0) for k in range(3)])
    model.begin_at(centres)
    by_angle = (torch.nn.functional.normalize(centres, dim=1) @ places.T).argmax(dim=0)
    assert torch.equal(model.cluster(x, seeded()).labels, by_angle)
    assert torch.equal(model.online.prototypes, model.twin.get_parameter("prototypes"))
    assert len(model.clusters.held()) == 0
    assert len(model.instances.held()) > 0


def test_clusters_are_learned() -> None:
    model, (x, labels) = model_of(), blobs()
    generator = seeded(10)

    def batches() -> Any:
        while True:
            noise = 0.3 * torch.randn(2, *x.shape, generator=generator)
            yield ViewBatch(x + noise[0], x + noise[1], torch.arange(len(x)))

    train(model, batches(), TrainConfig(150, learning_rate=5e-3), generator=generator)
    found = model.cluster(x, seeded()).labels
    assert len(torch.unique(found)) == 3
    assert len(torch.unique(found * 3 + labels)) == 3  # each cluster is one of the true ones


def test_the_parts_are_weighed() -> None:
    batch = views()
    plain = model_of().loss(batch, seeded(3))
    assert set(plain.parts) == {"instance", "cluster", "uneven", "assigned"}
    assert plain.total.item() == pytest.approx(sum(plain.parts.values()), rel=1e-5)
    changed = model_of(cluster_weight=2.0, even_weight=3.0, assigned_weight=0.0).loss(batch, seeded(3))
    assert set(changed.parts) == {"instance", "cluster", "uneven"}
    assert changed.parts["cluster"] == pytest.approx(2 * plain.parts["cluster"], rel=1e-5)
    assert changed.parts["uneven"] == pytest.approx(3 * plain.parts["uneven"], rel=1e-5)


def test_even_rows_is_the_bound_of_the_supplement() -> None:
    model, batch = model_of(even="rows"), views()
    seen = model.online(batch.first, seeded(3))
    expected = (seen.log_prob.exp() * (seen.log_prob + math.log(3))).sum(dim=1).mean().item()
    assert model.loss(batch, seeded(3)).parts["uneven"] == pytest.approx(expected, rel=1e-4)


def test_faithful_is_as_published() -> None:
    config = TccConfig.faithful(3072, 10, (3, 32, 32))
    assert (config.encoder, config.width, config.momentum, config.temperature) == ("resnet34", 128, 0.999, 1.0)
    assert (config.memory, config.rounds, config.relaxation, config.in_batch) == (16_384, 20, 0.3, False)
    assert (config.even, config.representation, config.assigned_weight) == ("rows", "probabilities", 0.0)
    small = replace(config, channels=2, memory=8)
    model = build(TccModel, small, seeded())
    x = torch.rand(4, 3072, generator=seeded(1))
    train(model, [ViewBatch(x, x, torch.arange(4))] * 2, TrainConfig(2), generator=seeded(2))
    assert model.cluster(x, seeded()).labels.shape == (4,)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temperature": 0.0}, "temperature=0"),
        ({"momentum": 1.5}, "momentum=1.5"),
        ({"memory": -1}, "memory=-1"),
        ({"width": 1}, "width=1"),
        ({"hidden": -1}, "hidden=-1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        TccConfig(6, 3, **(SMALL | settings))
