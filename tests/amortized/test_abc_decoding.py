"""ABC: clusters that are read off its kernel, points that join later, and calibration."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.amortized.abc import network as attention_based
from coterie.amortized.abc.config import AttentionBasedConfig, Decoding
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.metrics import adjusted_rand_index, normalized_mutual_information
from coterie.nn.model import TaskBatch, build
from coterie.ops.correlation import THRESHOLDS, average_linkage, contract_edges, cut_at
from coterie.ops.partitions import Clustering
from coterie.training.loop import TrainConfig, train

DECODINGS: tuple[Decoding, ...] = ("linkage", "contraction", "eigengap")
EVERY_DECODING = pytest.mark.parametrize("decoding", DECODINGS)
SETTINGS: dict[str, Any] = {"width": 16, "heads": 2, "depth": 1}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def blobs(sets: int = 2, n: int = 40, seed: int = 1, spread: float = 0.4) -> TaskBatch:
    """Groups around four places, some of them nearly empty."""
    labels = (4 * torch.rand((sets, n), generator=seeded(seed)).square()).long()
    labels[:, :4] = torch.arange(4)
    centres = torch.tensor([[0.0, 0.0], [3.0, 1.0], [-2.0, 3.0], [1.0, -3.0]])
    x = centres[labels] + spread * torch.randn((sets, n, 2), generator=seeded(seed + 100))
    return TaskBatch(x, labels, torch.ones_like(labels, dtype=torch.bool))


@pytest.fixture(scope="module")
def taught() -> AttentionBasedModel:
    """A network that knows such groups, to be used with other configurations by `with_settings`."""
    model = build(AttentionBasedModel, AttentionBasedConfig(2, **SETTINGS), seeded())
    batches = [blobs(8, 24, seed) for seed in range(1000, 1120)]
    train(model, batches, TrainConfig(len(batches), learning_rate=5e-3), generator=seeded())
    return model.eval()


def with_settings(model: AttentionBasedModel, **settings: Any) -> AttentionBasedModel:
    """The same network with another configuration."""
    other = build(AttentionBasedModel, replace(model.config, **settings), seeded())
    other.load_state_dict(model.state_dict())
    return other.eval()


def block_kernel(*sizes: int, within: float = 0.9, between: float = 0.05) -> Tensor:
    truth = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return torch.where(truth.unsqueeze(1) == truth, within, between)


def joining(model: AttentionBasedModel, x: Tensor, found: Clustering) -> Tensor:
    """Cluster with whose kept points each point is on average most probably together, written out."""
    layers, cluster = found.extras["layers"], found.extras["cluster"]
    new = model.encode(x.unsqueeze(0))
    for block, kept in zip(model.blocks, layers[:-1], strict=True):
        new = block(new, kept.unsqueeze(0))
    chance = model.log_probabilities(new, layers[-1:])[0].exp()[0]
    return torch.stack([chance[:, cluster == own].mean(dim=1) for own in range(found.n_clusters)], dim=1).argmax(dim=1)


@EVERY_DECODING
def test_clusters_that_were_learned_are_found(taught: AttentionBasedModel, decoding: Decoding) -> None:
    batch = blobs(4, seed=7)
    clusterings = with_settings(taught, decoding=decoding).cluster_sets(batch.x, batch.valid, seeded(4))
    for truth, found in zip(batch.labels, clusterings, strict=True):
        assert adjusted_rand_index(truth.numpy(), found.labels.numpy()) > 0.8


@EVERY_DECODING
@pytest.mark.parametrize("n_clusters", [1, 2, 5, 9])
def test_the_number_of_clusters_is_honoured(taught: AttentionBasedModel, decoding: Decoding, n_clusters: int) -> None:
    model = with_settings(taught, decoding=decoding, n_clusters=n_clusters)
    for x in blobs(3, seed=8).x:
        found = model.cluster(x, seeded(4))
        assert found.n_clusters == n_clusters
        assert set(found.labels.tolist()) == set(range(n_clusters))
        sizes = found.labels.bincount().tolist()
        assert all(more >= less for more, less in pairwise(sizes))
    assert model.cluster(blobs(1, 5).x[0], seeded(4)).n_clusters == min(n_clusters, 5)


@EVERY_DECODING
@pytest.mark.parametrize("gain", [1.0, 30.0])
def test_clusters_are_those_that_the_kernel_calls_for(decoding: Decoding, gain: float) -> None:
    """Also where the kernel knows nothing, clusters are many and points are far out: each stays where it was put."""
    model = build(AttentionBasedModel, AttentionBasedConfig(2, decoding=decoding), seeded()).eval()
    last = model.embed[2]
    with torch.no_grad():
        model.query.weight.mul_(6.0)
        for value in last.parameters():
            value.mul_(gain)
    x = blobs(1, 200, seed=9).x[0]
    found = model.cluster(x, seeded(4))
    kept = found.extras["kept"]
    assert sorted(kept.tolist()) == list(range(200))
    with torch.no_grad():
        called_for = model.decode_kernel(model.kernel(x[kept].unsqueeze(0))[0], seeded())
    if decoding == "eigengap":
        assert found.n_clusters == len(called_for.bincount())
    else:
        assert adjusted_rand_index(called_for.numpy(), found.labels[kept].numpy()) == 1.0
    assert torch.equal(found.labels[kept], found.extras["cluster"])


@EVERY_DECODING
@pytest.mark.parametrize("max_points", [8, 30, 1000])
def test_memberships_reproduce_labels(taught: AttentionBasedModel, decoding: Decoding, max_points: int) -> None:
    model = with_settings(taught, decoding=decoding, max_points=max_points)
    for x in blobs(3, seed=10, spread=1.5).x:
        found = model.cluster(x, seeded(4))
        belonging = model.memberships(x, found)
        torch.testing.assert_close(belonging.sum(dim=1), torch.ones(len(x)))
        assert torch.equal(belonging.argmax(dim=1), found.labels)


@EVERY_DECODING
def test_of_many_points_the_rest_joins_by_the_kernel(taught: AttentionBasedModel, decoding: Decoding) -> None:
    model = with_settings(taught, decoding=decoding, max_points=12)
    batch = blobs(3, 60, seed=11)
    for x, truth in zip(batch.x, batch.labels, strict=True):
        found = model.cluster(x, seeded(4))
        kept = found.extras["kept"]
        assert kept.shape == (12,)
        torch.testing.assert_close(found.extras["layers"][0], model.encode(x[kept].unsqueeze(0))[0])
        rest = torch.ones(60, dtype=torch.bool)
        rest[kept] = False
        with torch.no_grad():
            expected = joining(model, x, found)
        assert torch.equal(found.labels[rest], expected[rest])
        assert torch.equal(found.labels[kept], found.extras["cluster"])
        assert adjusted_rand_index(truth.numpy(), found.labels.numpy()) > 0.6


def test_points_that_join_are_taken_in_parts(taught: AttentionBasedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = with_settings(taught, max_points=20), blobs(1, 90, seed=12).x[0]
    whole = model.cluster(x, seeded(4))
    monkeypatch.setattr(attention_based, "BLOCK_ROWS", 7)
    parts = model.cluster(x, seeded(4))
    assert torch.equal(whole.labels, parts.labels)
    torch.testing.assert_close(model.memberships(x, parts), model.memberships(x, whole))


def test_the_subsample_depends_on_neither_order_nor_other_sets(taught: AttentionBasedModel) -> None:
    model, batch = with_settings(taught, max_points=10), blobs(2, 50, seed=13)
    order = torch.randperm(50, generator=seeded(6))
    moved = model.cluster(batch.x[1][order], seeded(4))
    expected = model.cluster_sets(batch.x, batch.valid, seeded(4))[1]
    assert torch.equal(moved.labels, expected.labels[order])
    assert torch.equal(order[moved.extras["kept"]], expected.extras["kept"])


@EVERY_DECODING
def test_points_can_be_embedded_before(taught: AttentionBasedModel, decoding: Decoding) -> None:
    model, x = with_settings(taught, decoding=decoding, max_points=30), blobs(1, seed=14).x[0]
    found = model.cluster(x, seeded(4))
    seed = int(torch.randint(2**62, (), generator=seeded(4)))
    with torch.no_grad():
        embedded = model.encode(x.unsqueeze(0))[0]
    again = model.cluster_encoded(embedded, seeded(seed))
    assert torch.equal(again.labels, found.labels)
    assert again.n_clusters == found.n_clusters
    assert all(torch.equal(again.extras[name], value) for name, value in found.extras.items())


@pytest.mark.parametrize("sizes", [(5, 5, 5), (9, 4, 3, 2), (6, 2), (8,)], ids=str)
@EVERY_DECODING
def test_a_block_kernel_is_decoded(decoding: Decoding, sizes: tuple[int, ...]) -> None:
    kernel = block_kernel(*sizes)
    order = torch.randperm(len(kernel), generator=seeded(3))
    model = build(AttentionBasedModel, AttentionBasedConfig(2, **SETTINGS, decoding=decoding), seeded())
    labels = model.decode_kernel(kernel[order][:, order], seeded())
    truth = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))[order]
    assert adjusted_rand_index(truth.numpy(), labels.numpy()) == 1.0
    assert len(labels.bincount()) == len(sizes)


def test_each_decoding_does_what_its_name_says() -> None:
    logits = torch.randn((9, 9), generator=seeded(5), dtype=torch.float64)
    kernel = (logits + logits.T).sigmoid()
    model = build(AttentionBasedModel, AttentionBasedConfig(2, **SETTINGS, threshold=0.45), seeded())
    assert torch.equal(model.decode_kernel(kernel, seeded()), cut_at(average_linkage(kernel), 0.45))
    assert torch.equal(
        with_settings(model, decoding="contraction").decode_kernel(kernel, seeded()), contract_edges(kernel)
    )
    # Two groups of which each has two halves: told nothing, the gap is after two; told four, there are four.
    halves = block_kernel(6, 6, 6, 6, within=0.95, between=0.0)
    halves[:12, :12] = halves[:12, :12].clamp(min=0.6)
    halves[12:, 12:] = halves[12:, 12:].clamp(min=0.6)
    spectral = with_settings(model, decoding="eigengap")
    assert spectral.decode_kernel(halves, seeded()).bincount().tolist() == [12, 12]
    assert with_settings(spectral, n_clusters=4).decode_kernel(halves, seeded()).bincount().tolist() == [6, 6, 6, 6]


def test_small_clusters_join_where_they_are_most_probable(taught: AttentionBasedModel) -> None:
    kernel = torch.full((8, 8), 0.1)
    for part in (slice(0, 3), slice(3, 6), slice(6, 8)):
        kernel[part, part] = 0.9
    kernel[6:, 3:6] = kernel[3:6, 6:] = 0.3
    unchanged, merged = [0, 0, 0, 1, 1, 1, 2, 2], [1, 1, 1, 0, 0, 0, 0, 0]
    for smallest, n_clusters, expected in (
        (1, None, unchanged),
        (3, None, merged),
        (3, 3, unchanged),
        (4, None, unchanged),
    ):
        model = with_settings(taught, min_cluster_size=smallest, n_clusters=n_clusters)
        assert model.decode_kernel(kernel, seeded()).tolist() == expected


def test_calibration_finds_the_best_threshold(taught: AttentionBasedModel) -> None:
    batches = [blobs(3, 30, 15, 1.2), blobs(2, 20, 16, 1.2)]
    batches[1].valid[0, 12:] = False
    score = normalized_mutual_information
    found = taught.calibrate(batches, score)
    totals = []
    for at in THRESHOLDS:
        total = 0.0
        for batch in batches:
            for x, truth, valid in zip(batch.x, batch.labels, batch.valid, strict=True):
                with torch.no_grad():
                    labels = cut_at(average_linkage(taught.kernel(x[valid].unsqueeze(0))[0]), at)
                total += score(truth[valid].numpy(), labels.numpy())
        totals.append(total)
    assert max(totals) > min(totals) + 0.1
    assert found.threshold == THRESHOLDS[totals.index(max(totals))]
    assert (
        replace(found, threshold=taught.config.threshold, min_cluster_size=taught.config.min_cluster_size)
        == taught.config
    )


def test_equal_points_are_in_one_cluster(taught: AttentionBasedModel) -> None:
    x = blobs(1, 12, seed=17).x[0].repeat(3, 1)
    for decoding in DECODINGS:
        labels = with_settings(taught, decoding=decoding, max_points=20).cluster(x, seeded(4)).labels.reshape(3, 12)
        assert (labels == labels[0]).all()
