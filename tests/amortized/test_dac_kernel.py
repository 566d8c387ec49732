"""DAC with every point as an anchor: the kernel, its middles, the clusters that are read off it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from coterie.amortized.dac import network as dac_kernel
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel, Filtered, medoids, pair_kernel
from coterie.metrics import adjusted_rand_index
from coterie.nn.attention import Comparison
from coterie.nn.model import TaskBatch, build

ANCHORED: dict[str, Any] = {"filtering": "anchored", "density": "none", "width": 16, "inducing": 4, "depth": 1}
KERNEL: dict[str, Any] = ANCHORED | {"anchor_position": "latent", "anchoring": "compared", "decoding": "kernel"}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def points(sets: int, n: int, width: int = 5) -> Tensor:
    return torch.randn((sets, n, width), generator=seeded(7), dtype=torch.float64)


def network(**settings: Any) -> DacModel:
    return build(DacModel, DacConfig(5, **(KERNEL | settings)), seeded()).double().eval()


@pytest.mark.parametrize("position", ["input", "latent"])
@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_several_anchors_at_once_find_what_each_finds_alone(position: Any, masked: bool) -> None:
    model, x = network(anchor_position=position, decoding="robust"), points(3, 12)
    valid = (torch.arange(12) % 4 > 0).expand(3, -1) if masked else None
    anchors = torch.tensor([[1, 2], [5, 6], [7, 1]])
    together = model.filter_anchors(x, valid, anchors)
    for place in range(2):
        alone = model.filter(x, valid, anchors[:, place])
        assert torch.allclose(together.logits[place::2], alone.logits, atol=1e-12)
        assert torch.allclose(together.summary[place::2], alone.summary, atol=1e-12)
        assert together.anchor is not None
        assert alone.anchor is not None
        assert torch.equal(together.anchor[place::2], alone.anchor)


@torch.no_grad()
def test_the_loss_of_several_anchors_is_the_mean_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = points(2, 9), torch.arange(9).expand(2, -1) % 3
    batch = TaskBatch(x, labels, torch.ones_like(labels, dtype=torch.bool))
    model = network(anchors=4)
    drawn = torch.tensor([[0, 3, 4, 8], [1, 1, 6, 2]])
    monkeypatch.setattr(torch, "multinomial", lambda *_, **__: drawn)
    whole = model.loss(batch, seeded()).total
    parts = []
    for place in range(4):
        monkeypatch.setattr(torch, "multinomial", lambda *_, place=place, **__: drawn[:, place : place + 1])
        parts.append(model.loss(batch, seeded()).total)
    assert torch.allclose(whole, torch.stack(parts).mean(), atol=1e-12)


@torch.no_grad()
def test_the_kernel_is_symmetric_and_independent_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(), points(1, 10)[0]
    kernel = pair_kernel(model, x)
    assert torch.equal(kernel, kernel.T)
    assert bool(((kernel > 0) & (kernel < 1)).all())
    monkeypatch.setattr(dac_kernel, "ANCHOR_POINT_PAIRS", 25)
    assert torch.allclose(pair_kernel(model, x), kernel, atol=1e-12)
    order = torch.randperm(10, generator=seeded())
    assert torch.allclose(pair_kernel(model, x[order]), kernel[order][:, order], atol=1e-12)


def test_a_medoid_has_the_largest_mean_probability() -> None:
    kernel = torch.tensor([[0.9, 0.8, 0.1, 0.1], [0.8, 0.9, 0.7, 0.1], [0.1, 0.7, 0.9, 0.1], [0.1, 0.1, 0.1, 0.9]])
    assert medoids(kernel, torch.tensor([0, 0, 0, 1])).tolist() == [1, 3]


LINE = torch.tensor([[0.0], [0.1], [0.3], [5.0], [5.2], [9.0]], dtype=torch.float64)


def nearby(**settings: Any) -> DacModel:
    """A network that finds whatever is near the anchor on a line, and knows the middles of the line's clusters."""
    model = build(DacModel, DacConfig(1, **(KERNEL | settings)), seeded()).double().eval()
    filter_anchors = model.filter_anchors

    def near(x: Tensor, valid: Tensor | None, anchors: Tensor) -> Filtered:
        distance = (x[0] - x[0, anchors[0]].unsqueeze(1)).abs().sum(dim=2)
        return replace(filter_anchors(x, valid, anchors), logits=4 * (1 - distance))

    model.filter_anchors = near  # type: ignore[method-assign,assignment]  # a network that is known
    model.mask_logits = lambda x, *_: 4 * (1 - (x - LINE[[1, 3, 5]].unsqueeze(1)).abs().sum(dim=2))  # type: ignore[method-assign]
    return model


def test_clusters_follow_from_all_anchors() -> None:
    model = nearby()
    found = model.cluster(LINE, seeded())
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert torch.equal(model.memberships(LINE, found).argmax(dim=1), found.labels)


def test_the_threshold_is_calibrated_only_for_kernel_decoding() -> None:
    labels = torch.tensor([[0, 0, 0, 1, 1, 2]])
    batch = TaskBatch(LINE.unsqueeze(0), labels, torch.ones_like(labels, dtype=torch.bool))
    model = nearby(threshold=0.001)
    with torch.no_grad():
        model.config = model.calibrate([batch], adjusted_rand_index)
        assert model.config.threshold > 0.001
        assert model.cluster(LINE, seeded()).labels.tolist() == labels[0].tolist()
        model.config = replace(model.config, decoding="robust", threshold=0.001)
        assert model.calibrate([batch], adjusted_rand_index).threshold == 0.001


@torch.no_grad()
def test_a_new_comparison_already_favours_similar_points() -> None:
    comparison = Comparison(6, 32)
    assert torch.equal(comparison.point.weight, comparison.other.weight)
    anchor = torch.randn((1, 1, 6), generator=seeded(1))
    seen = torch.cat([anchor, -anchor], dim=1)
    respects = (comparison.point(seen) * comparison.other(anchor)).unflatten(2, (4, 8)).sum(dim=3)
    assert bool((respects[0, 0] >= 0).all())
    assert float(respects[0, 0].sum()) > float(respects[0, 1].sum())
