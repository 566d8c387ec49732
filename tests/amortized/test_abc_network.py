"""ABC: its size as published, the kernel's laws, its loss by hand, and how clusters are read off."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from coterie.amortized.abc.config import AttentionBasedConfig
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.tasks.synthetic import CircleTasks
from coterie.nn.model import TaskBatch, build

SMALL: dict[str, Any] = {"width": 16, "heads": 2, "depth": 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "multiplicative": {},
    "additive": {"compatibility": "additive"},
    "probability": {"symmetrise": "probability"},
    "additive, probability": {"compatibility": "additive", "symmetrise": "probability", "scale": "none"},
    "gated": {"residual": "gated"},
    "faithful": {"scale": "model", "feed_forward": "linear", "offset": False, "pos_weight": 2.5},
    "pairwise": {"depth": 0, "compatibility": "additive"},
    "mlp": {"encoder": "mlp", "channels": 4},
}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def make_model(seed: int = 0, **settings: Any) -> AttentionBasedModel:
    """A model that has learned nothing, but whose kernel is not near one half everywhere."""
    model = build(AttentionBasedModel, AttentionBasedConfig(2, **(SMALL | settings)), seeded(seed)).double()
    with torch.no_grad():
        if model.offset is not None:
            model.offset.fill_(-0.3)
        model.query.weight.mul_(3.0)
        if model.bend is not None:
            model.bend.mul_(5.0)
    return model


def circles(n_points: int = 12, sets: int = 3, seed: int = 1) -> TaskBatch:
    batch = CircleTasks(n_points, 3).sample(sets, seeded(seed))
    return TaskBatch(batch.x.double(), batch.labels, batch.valid)


def with_padding(batch: TaskBatch, fill: float = 7.0) -> TaskBatch:
    """The same sets with points missing: other numbers of them in each."""
    valid = torch.rand(batch.valid.shape, generator=seeded(3)) < 0.7
    valid[:, :2] = True
    return TaskBatch(torch.where(valid.unsqueeze(2), batch.x, fill), torch.where(valid, batch.labels, 0), valid)


@pytest.fixture(params=VARIANTS.values(), ids=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> AttentionBasedModel:
    return make_model(**request.param)


def count(model: AttentionBasedModel) -> int:
    return sum(value.numel() for value in model.parameters())


@pytest.mark.parametrize("n_features", [2, 640])
def test_the_published_network_has_its_number_of_parameters(n_features: int) -> None:
    linear = 128 * 128 + 128
    layer_norm = 2 * 128
    embedding = (n_features + 1) * 128 + linear
    block = 5 * linear + 2 * layer_norm  # query, key, value, output and feed-forward maps
    similarity = 2 * linear
    multiplicative = embedding + 2 * block + similarity
    assert count(AttentionBasedModel(AttentionBasedConfig.faithful(n_features))) == multiplicative
    # One vector for all heads of a block, as wide as a head, and one for the kernel.
    additive = multiplicative + 2 * 128 // 4 + 128
    config = AttentionBasedConfig.faithful(n_features, compatibility="additive")
    assert count(AttentionBasedModel(config)) == additive
    # For circles: one head, and no map after it.
    on_circles = replace(config, heads=1, output_map=False, scale="none")
    assert count(AttentionBasedModel(on_circles)) == multiplicative - 2 * linear + 2 * 128 + 128
    assert count(AttentionBasedModel(replace(on_circles, depth=0))) == embedding + similarity + 128


def test_the_published_network_for_images() -> None:
    config = AttentionBasedConfig.faithful(28 * 28, encoder="conv", image=(1, 28, 28), pos_weight=9.0)
    model = AttentionBasedModel(config)
    encoder = sum(value.numel() for value in model.encoder.parameters())
    assert count(model) - encoder == count(AttentionBasedModel(AttentionBasedConfig.faithful(64)))
    assert (config.decoding, config.symmetrise, config.pos_weight) == ("eigengap", "logit", 9.0)
    assert (config.width, config.heads, config.depth) == (128, 4, 2)
    assert (config.scale, config.feed_forward) == ("model", "linear")


def test_the_kernel_is_symmetric_equivariant_and_strictly_between_zero_and_one(model: AttentionBasedModel) -> None:
    x = circles().x
    kernel = model.kernel(x)
    order = torch.randperm(x.shape[1], generator=seeded(4))
    torch.testing.assert_close(model.kernel(x[:, order]), kernel[:, order][:, :, order], atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(kernel, kernel.mT, atol=1e-12, rtol=1e-12)
    assert ((kernel > 0) & (kernel < 1)).all()
    assert kernel.std() > 1e-3, "a constant kernel would pass every test"
    one = model.kernel(x[:, :1])
    assert one.shape == (3, 1, 1)
    assert ((one > 0) & (one < 1)).all()


@pytest.mark.parametrize("fill", [0.0, 1e5, float("nan")])
def test_masking_equals_removal(model: AttentionBasedModel, fill: float) -> None:
    batch = with_padding(circles(), fill)
    kernels = model.kernel(batch.x, batch.valid)
    for kernel, x, valid in zip(kernels, batch.x, batch.valid, strict=True):
        removed = model.kernel(x[valid].unsqueeze(0))[0]
        torch.testing.assert_close(kernel[valid][:, valid], removed, atol=1e-12, rtol=1e-12)


def test_the_loss_is_the_mean_over_all_pairs_with_the_diagonal(model: AttentionBasedModel) -> None:
    batch = with_padding(circles())
    expected = []
    for x, labels, valid in zip(batch.x, batch.labels, batch.valid, strict=True):
        kernel = model.kernel(x[valid].unsqueeze(0))[0]
        own = labels[valid]
        total = torch.zeros((), dtype=torch.float64)
        for i in range(len(own)):
            for j in range(len(own)):
                chance = kernel[i, j]
                total -= model.config.pos_weight * chance.log() if own[i] == own[j] else (1 - chance).log()
        expected.append(total / len(own) ** 2)
    torch.testing.assert_close(model.loss(batch, seeded()).total, torch.stack(expected).mean())


@pytest.mark.parametrize("compatibility", ["multiplicative", "additive"])
@pytest.mark.parametrize("pos_weight", [1.0, 0.3, 6.0])
def test_with_logits_it_is_the_loss_of_torch(compatibility: Any, pos_weight: float) -> None:
    model, batch = make_model(compatibility=compatibility, pos_weight=pos_weight), circles()
    last = model.layers(model.encode(batch.x))[-1]
    forth, back = model.logits(last, last)
    torch.testing.assert_close(back, forth.mT)
    assert not torch.allclose(forth, forth.mT), "either direction alone is not symmetric"
    same = (batch.labels.unsqueeze(2) == batch.labels.unsqueeze(1)).double()
    weight = torch.tensor(pos_weight, dtype=torch.float64)
    expected = binary_cross_entropy_with_logits((forth + forth.mT) / 2, same, pos_weight=weight)
    torch.testing.assert_close(model.loss(batch, seeded()).total, expected)


@pytest.mark.parametrize("compatibility", ["multiplicative", "additive"])
def test_with_probabilities_it_is_the_plain_loss_of_their_mean(compatibility: Any) -> None:
    model, batch = make_model(compatibility=compatibility, symmetrise="probability"), circles()
    last = model.layers(model.encode(batch.x))[-1]
    forth, _ = model.logits(last, last)
    mean = (forth.sigmoid() + forth.mT.sigmoid()) / 2
    torch.testing.assert_close(model.kernel(batch.x), mean)
    same = (batch.labels.unsqueeze(2) == batch.labels.unsqueeze(1)).double()
    torch.testing.assert_close(model.loss(batch, seeded()).total, binary_cross_entropy(mean, same))


@pytest.mark.parametrize("symmetrise", ["logit", "probability"])
def test_the_loss_stays_finite_where_probabilities_are_rounded_away(symmetrise: Any) -> None:
    model, batch = make_model(symmetrise=symmetrise).float(), circles()
    with torch.no_grad():
        model.query.weight.mul_(1e4)
    loss = model.loss(TaskBatch(batch.x.float(), batch.labels, batch.valid), seeded()).total
    assert loss > 100
    assert all(slope.isfinite().all() for slope in torch.autograd.grad(loss, list(model.parameters())))


def test_accuracy_counts_valid_pairs_only(model: AttentionBasedModel) -> None:
    batch = with_padding(circles())
    fractions = []
    for kernel, labels, valid in zip(model.kernel(batch.x, batch.valid), batch.labels, batch.valid, strict=True):
        own = labels[valid]
        fractions.append(((kernel[valid][:, valid] > 0.5) == (own.unsqueeze(1) == own)).double().mean())
    assert model.loss(batch, seeded()).parts["right_pairs"] == pytest.approx(float(torch.stack(fractions).mean()))


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_only_attention_brings_context(depth: int) -> None:
    model = make_model(depth=depth, compatibility="additive")
    x = circles().x
    other = x.clone()
    other[:, 2:] += 0.5
    pair, changed = model.kernel(x)[:, :2, :2], model.kernel(other)[:, :2, :2]
    if depth == 0:
        torch.testing.assert_close(pair, changed, atol=1e-13, rtol=1e-13)
        torch.testing.assert_close(pair, model.kernel(x[:, :2]), atol=1e-13, rtol=1e-13)
    else:
        assert (pair - changed).abs().amin() > 1e-6


def test_an_adjacency_is_followed() -> None:
    """Where edges lead to no other group, the other groups are as if they were not there."""
    model, batch = make_model(), circles()
    same = (batch.labels.unsqueeze(2) == batch.labels.unsqueeze(1)).double()
    kernel = model.kernel(batch.x, batch.valid, same)
    torch.testing.assert_close(model.kernel(batch.x, None, torch.ones_like(same)), model.kernel(batch.x))
    own = batch.labels[0] == 1
    torch.testing.assert_close(kernel[0][own][:, own], model.kernel(batch.x[:1, own])[0])
