"""MoCo, SwAV, CC and MiCE: their losses by plain loops, and what they share with TCC."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.baselines.cc import CcModel
from benchmarks.baselines.mice import MiceModel, SideOutput
from benchmarks.baselines.moco import MocoModel
from benchmarks.baselines.swav import SwavModel
from coterie.nn.model import ViewBatch, build
from coterie.ops.partitions import k_means_start
from coterie.tcc.losses import max_mahalanobis_centres
from coterie.tcc.model import ContrastiveModel
from coterie.training.loop import TrainConfig, train

ENCODER: dict[str, Any] = {"encoder": "mlp", "channels": 8, "projection_hidden": 16, "embedding_dim": 8}
SMALL: dict[type[ContrastiveModel], dict[str, Any]] = {
    MocoModel: {"queue_size": 12},
    SwavModel: {"frozen_steps": 5},
    CcModel: {},
    MiceModel: {"queue_size": 12, "refreshed_every": 10},
}
in_batch_or_not = pytest.mark.parametrize("in_batch", [True, False])


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def model_of(kind: type[ContrastiveModel], **settings: Any) -> Any:
    return build(kind, kind.Config(6, 3, **(ENCODER | SMALL[kind] | settings)), seeded(1))


def views(n_rows: int = 10, seed: int = 2) -> ViewBatch:
    x = torch.randn(n_rows, 6, generator=seeded(seed))
    noise = 0.1 * torch.randn(2, n_rows, 6, generator=seeded(seed + 1))
    return ViewBatch(x + noise[0], x + noise[1], torch.arange(n_rows))


def fit(model: Any, steps: int, seed: int = 3) -> None:
    train(model, [views(seed=seed + step) for step in range(steps)], TrainConfig(steps), generator=seeded(seed))


def loss_of(model: Any, batch: ViewBatch) -> float:
    return float(model.loss(batch, seeded()).total.detach())


def array(x: Tensor) -> NDArray[np.float64]:
    return x.detach().double().numpy()


def info_nce(query: Any, key: Any, negatives: list[Any], temperature: float) -> float:
    candidates = [math.exp(query @ other / temperature) for other in (key, *negatives)]
    return -math.log(candidates[0] / sum(candidates))


@in_batch_or_not
def test_the_loss_of_moco(in_batch: bool) -> None:
    model, batch = model_of(MocoModel, in_batch_negatives=in_batch), views(4, seed=20)
    fit(model, 2)
    query, key = array(model.online(batch.first)), array(model.momentum_encoder(batch.second))
    queue = list(array(model.queue.contents()))
    assert len(queue) == 12
    expected = [
        info_nce(query[i], key[i], queue + [key[j] for j in range(4) if in_batch and j != i], 0.5) for i in range(4)
    ]
    assert loss_of(model, batch) == pytest.approx(np.mean(expected), rel=1e-5)


def test_prototypes_of_moco_are_set_and_not_trained() -> None:
    model, x = model_of(MocoModel), views().first
    torch.testing.assert_close(model.prototypes, max_mahalanobis_centres(3, 8))
    centres = torch.randn(3, 8, generator=seeded(4))
    model.set_prototypes(centres)
    fit(model, 2)
    torch.testing.assert_close(model.prototypes, normalize(centres, dim=1))
    odds = np.exp(array(model.embeddings(x)) @ array(normalize(centres, dim=1)).T / 0.1)
    np.testing.assert_allclose(array(model.memberships(x)), odds / odds.sum(axis=1, keepdims=True), rtol=1e-4)


def balanced(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute SwAV's codes."""
    codes = np.exp(scores / 0.05)
    codes /= codes.sum(axis=1, keepdims=True)
    for _ in range(3):
        codes /= codes.sum(axis=0)
        codes /= codes.sum(axis=1, keepdims=True)
    return codes


def test_the_loss_of_swav() -> None:
    model, batch = model_of(SwavModel), views(7)
    one, other = (array(model.network(view) @ model.prototypes.mT) for view in (batch.first, batch.second))
    total = 0.0
    for predicted, codes in ((one, balanced(other)), (other, balanced(one))):
        for i in range(7):
            odds = np.exp(predicted[i] / 0.1)
            total -= sum(codes[i, k] * math.log(odds[k] / odds.sum()) for k in range(3)) / 14
    assert loss_of(model, batch) == pytest.approx(total, rel=1e-4)


def test_prototypes_of_swav_are_frozen_at_first_and_normalised() -> None:
    model = model_of(SwavModel, frozen_steps=3)
    before = model.prototypes.detach().clone()
    fit(model, 3)
    torch.testing.assert_close(model.prototypes, before)
    resumed = model_of(SwavModel, frozen_steps=3)
    resumed.load_state_dict(model.state_dict())
    fit(resumed, 1)
    assert (resumed.prototypes - before).abs().max() > 1e-4
    torch.testing.assert_close(resumed.prototypes.norm(dim=1), torch.ones(3))


def nt_xent(one: NDArray[np.float64], other: NDArray[np.float64], temperature: float) -> float:
    total = 0.0
    for query, key in ((one, other), (other, one)):
        for i in range(len(one)):
            negatives = [view[j] for view in (query, key) for j in range(len(one)) if j != i]
            total += info_nce(query[i], key[i], negatives, temperature) / (2 * len(one))
    return total


def test_the_loss_of_cc() -> None:
    model, batch = model_of(CcModel), views(5)
    both = (batch.first, batch.second)
    embeddings = [array(model.network(view)) for view in both]
    pi = [array(model.assignment_probabilities(view)) for view in both]
    columns = [each.T / np.linalg.norm(each.T, axis=1, keepdims=True) for each in pi]
    means = [each.mean(axis=0) for each in pi]
    expected = {
        "instance": nt_xent(embeddings[0], embeddings[1], 0.5),
        "cluster": nt_xent(columns[0], columns[1], 1.0),
        "balance": sum(math.log(3) + float((mean * np.log(mean)).sum()) for mean in means),
    }
    found = model.loss(batch, seeded())
    assert dict(found.parts) == pytest.approx(expected, rel=1e-4)
    assert found.total.item() == pytest.approx(sum(expected.values()), rel=1e-4)


def joint_probability(model: Any, output: SideOutput, key: Tensor, *, in_batch: bool) -> NDArray[np.float64]:
    """Multiply the gate's probability by that of the expert for each row and expert."""
    gate_embedding, experts, keys = (array(each) for each in (*output, key))
    prototypes, queue = array(normalize(model.prototypes, dim=1)), array(model.queue.contents())
    joint = np.zeros((len(keys), 3))
    for i in range(len(keys)):
        gate = np.exp(array(model.gate) @ gate_embedding[i])
        for k in range(3):
            negatives = [entry[k] for entry in queue] + [keys[j, k] for j in range(len(keys)) if in_batch and j != i]
            loss = info_nce(experts[i, k] + prototypes[k], keys[i, k], negatives, 1.0)
            joint[i, k] = gate[k] / gate.sum() * math.exp(-loss)
    return joint


@in_batch_or_not
def test_the_loss_of_mice_is_the_elbo_and_the_likelihood(in_batch: bool) -> None:
    model, batch = model_of(MiceModel, in_batch_negatives=in_batch), views(4, seed=20)
    fit(model, 2)
    key = model.teacher(batch.second).expert
    joint = joint_probability(model, model.online(batch.first), key, in_batch=in_batch)
    posterior = joint / joint.sum(axis=1, keepdims=True)
    elbo = (posterior * (np.log(joint) - np.log(posterior))).sum(axis=1).mean()
    assert loss_of(model, batch) == pytest.approx(-elbo, rel=1e-5)
    assert loss_of(model, batch) == pytest.approx(-np.log(joint.sum(axis=1)).mean(), rel=1e-5)


def test_the_posterior_of_mice_uses_the_queue() -> None:
    model, x = model_of(MiceModel), views(6).first
    odds = np.exp(array(model.embeddings(x)) @ array(max_mahalanobis_centres(3, 8)).T)
    np.testing.assert_allclose(array(model.memberships(x)), odds / odds.sum(axis=1, keepdims=True), rtol=1e-4)
    fit(model, 2)
    key = model.teacher(x).expert
    joint = joint_probability(model, model.online(x), key, in_batch=False)
    np.testing.assert_allclose(array(model.memberships(x)), joint / joint.sum(axis=1, keepdims=True), rtol=1e-4)


def test_expert_prototypes_of_mice_are_means_of_momentum_embeddings() -> None:
    model, expected = model_of(MiceModel, refreshed_every=2), np.zeros((3, 8))
    with torch.no_grad():  # so that hardly any row is assigned to the last expert
        model.network.projection_head[-1].bias.copy_(-20 * model.gate[2])
    before = model.prototypes.detach().clone()
    for step in (1, 2):
        batch = views(seed=30 + step)
        key = model.teacher(batch.second).expert
        labels = joint_probability(model, model.online(batch.first), key, in_batch=True).argmax(axis=1)
        for i, k in enumerate(labels):
            expected[k] += array(key)[i, k]
        model.loss(batch, seeded())
        model.after_step()
        assert bool(model.sums.any()) == (step == 1)
    found = array(model.prototypes)
    np.testing.assert_allclose(found[:2], expected[:2] / np.linalg.norm(expected[:2], axis=1, keepdims=True), rtol=1e-4)
    assert not expected[2].any()
    np.testing.assert_array_equal(found[2], array(before[2]))


@pytest.mark.parametrize(("kind", "steps"), [(MocoModel, 60), (SwavModel, 60), (CcModel, 60), (MiceModel, 300)])
def test_clusters_are_learned(kind: type[ContrastiveModel], steps: int) -> None:
    model, labels, generator = model_of(kind), torch.arange(60) % 3, seeded(10)
    x = 4 * torch.eye(3, 6)[labels] + 0.3 * torch.randn(60, 6, generator=seeded(9))

    def batches() -> Iterator[ViewBatch]:
        while True:
            noise = 0.3 * torch.randn(2, *x.shape, generator=generator)
            yield ViewBatch(x + noise[0], x + noise[1], torch.arange(len(x)))

    train(model, batches(), TrainConfig(steps, learning_rate=5e-3), generator=generator)
    if model.kmeans_init:
        model.set_prototypes(k_means_start(model.embeddings(x), 1, 3, generator)[0])
    found = model.cluster(x, seeded()).labels
    assert len(torch.unique(found)) == 3
    assert len(torch.unique(found * 3 + labels)) == 3  # each cluster is a true one
