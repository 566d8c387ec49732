"""Encoders of elements: how wide, what padding leaves behind, and invalid settings."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from coterie.errors import ConfigError
from coterie.nn.vision import ElementEncoder, Encoder

IMAGE = (1, 28, 28)
CONVOLUTIONAL: tuple[Encoder, ...] = ("conv", "strided", "vgg")


def built(
    kind: Encoder, image: tuple[int, int, int] | None = (2, 32, 32), channels: int = 4, features: int = 5
) -> ElementEncoder:
    """An encoder with known weights in double precision; torch's own random state stays."""
    n_features = features if image is None else image[0] * image[1] * image[2]
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(Generator().manual_seed(0).get_state())
        return ElementEncoder(kind, n_features, image, channels).double()


def elements(*shape: int, seed: int = 1) -> Tensor:
    return torch.rand(shape, generator=Generator().manual_seed(seed), dtype=torch.float64)


def statistics(encoder: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in encoder.named_buffers()}


EVERY_KIND = pytest.mark.parametrize(
    "encoder",
    [built("identity", None), built("mlp", None), *(built(kind) for kind in CONVOLUTIONAL)],
    ids=["identity", "mlp", *CONVOLUTIONAL],
)


def a_set(encoder: ElementEncoder, sets: int, count: int, seed: int = 1) -> Tensor:
    width = 5 if encoder.image is None else 2 * 32 * 32
    return elements(sets, count, width, seed=seed)


@pytest.mark.parametrize(
    ("kind", "image", "channels", "width"),
    [
        ("conv", IMAGE, 64, 64),
        ("strided", IMAGE, 64, 64),
        ("vgg", (3, 32, 32), 64, 80),
        ("conv", (3, 32, 32), 8, 8 * 2 * 2),
        ("strided", (3, 32, 32), 8, 8 * 2 * 2),
        ("conv", (1, 16, 47), 8, 8 * 1 * 2),
        ("strided", (1, 16, 47), 8, 8 * 1 * 3),
        ("strided", (2, 31, 17), 8, 8 * 2 * 1),
        ("vgg", (1, 32, 64), 2, 80),
        ("identity", None, 4, 5),
        ("mlp", None, 4, 4),
    ],
)
def test_widths(kind: Encoder, image: tuple[int, int, int] | None, channels: int, width: int) -> None:
    encoder = built(kind, image, channels).eval()
    assert encoder.out_width == width
    encoded = encoder(elements(2, 3, 5 if image is None else math.prod(image)))
    assert encoded.shape == (2, 3, width)
    assert encoded.isfinite().all()


def test_the_published_networks_have_their_layers() -> None:
    """Numbers of weights, by hand: those of convolutions without bias, a factor and a shift for each channel."""
    four = [9 * 1 * 64, *[9 * 64 * 64] * 3]
    assert count(built("conv", IMAGE, 64)) == sum(four) + 4 * 2 * 64
    widths = [3, 64, 128, 256, 512, 512]
    five = [9 * before * after + 2 * after for before, after in pairwise(widths)]
    assert count(built("vgg", (3, 32, 32), 64)) == sum(five) + 513 * 80
    assert count(built("strided", IMAGE, 64)) == 25 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64
    assert count(built("mlp", None, 4)) == 6 * 16 + 17 * 16 + 17 * 4
    assert count(built("identity", None)) == 0


def count(module: nn.Module) -> int:
    return sum(value.numel() for value in module.parameters())


def test_channels_come_first() -> None:
    """An image whose second channel alone is lit is seen by the weights of the second channel alone."""
    encoder = built("conv", (2, 16, 16)).eval()
    dark, lit = torch.zeros(16 * 16, dtype=torch.float64), elements(16 * 16)
    first = next(part for part in encoder.modules() if isinstance(part, nn.Conv2d))
    nn.init.zeros_(first.weight[:, 1])
    both = torch.stack([torch.cat([dark, lit]), torch.cat([lit, dark]), torch.cat([dark, dark])]).unsqueeze(0)
    with torch.no_grad():
        second, first_only, none = encoder(both)[0]
    assert torch.equal(second, none)
    assert not torch.equal(first_only, none)


@EVERY_KIND
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fill", [0.0, 1e6, float("nan")])
def test_padding_leaves_no_trace(encoder: ElementEncoder, training: bool, fill: float) -> None:
    encoder.train(training)
    x = a_set(encoder, 2, 6)
    valid = torch.tensor([[True, True, False, True, True, True], [False, True, True, True, False, True]])
    before = statistics(encoder)
    padded = encoder(torch.where(valid.unsqueeze(2), x, fill), valid)
    after = statistics(encoder)
    encoder.load_state_dict(before, strict=False)
    removed = encoder(x[valid].unsqueeze(0))[0]
    torch.testing.assert_close(padded[valid], removed)
    assert not padded[~valid].any()
    for name, value in statistics(encoder).items():
        torch.testing.assert_close(after[name], value)
        assert training or torch.equal(value, before[name])
    encoder.load_state_dict(before, strict=False)


@EVERY_KIND
def test_sets_of_nothing_become_zeros_and_leave_statistics_alone(encoder: ElementEncoder) -> None:
    encoder.train()
    before = statistics(encoder)
    encoded = encoder(a_set(encoder, 2, 3), torch.zeros((2, 3), dtype=torch.bool))
    assert encoded.shape == (2, 3, encoder.out_width)
    assert not encoded.any()
    assert all(torch.equal(value, before[name]) for name, value in statistics(encoder).items())


@EVERY_KIND
def test_after_training_each_element_is_encoded_alone(encoder: ElementEncoder) -> None:
    encoder.eval()
    x = a_set(encoder, 2, 4)
    with torch.no_grad():
        together = encoder(x)
        for which in range(2):
            for place in range(4):
                torch.testing.assert_close(
                    encoder(x[which : which + 1, place : place + 1])[0, 0], together[which, place]
                )
        torch.testing.assert_close(encoder(x.flip(0, 1)), together.flip(0, 1))


@pytest.mark.parametrize("kind", CONVOLUTIONAL)
def test_while_training_all_elements_of_all_sets_make_the_statistics(kind: Encoder) -> None:
    one, other = built(kind), built(kind)
    x = elements(2, 4, 2 * 32 * 32)
    torch.testing.assert_close(one(x).flatten(0, 1), other(x.reshape(1, 8, -1))[0])
    for name, value in statistics(one).items():
        torch.testing.assert_close(value, statistics(other)[name])


@EVERY_KIND
def test_gradients_reach_valid_elements_alone(encoder: ElementEncoder) -> None:
    encoder.train()
    before = statistics(encoder)
    x = a_set(encoder, 2, 4).requires_grad_()
    valid = torch.tensor([[True, False, True, True], [True, True, False, True]])
    encoder(x, valid).square().sum().backward()
    encoder.load_state_dict(before, strict=False)
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert not x.grad[~valid].any()
    assert x.grad[valid].any(dim=1).all()


@pytest.mark.parametrize("kind", CONVOLUTIONAL)
def test_one_element_is_enough_to_train_on(kind: Encoder) -> None:
    assert built(kind, (1, 32, 32))(elements(1, 1, 32 * 32)).isfinite().all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "resnet"}, "encoder='resnet' must be one of 'identity', 'mlp'"),
        ({"channels": 0}, "channels=0 must be at least 1"),
        ({"image": None}, r"needs image=\(channels, height, width\) whose product is n_features=784; got image=None"),
        ({"image": (1, 28, 29)}, r"product is n_features=784; got image=\(1, 28, 29\)"),
        ({"image": (-1, -28, 28)}, r"got image=\(-1, -28, 28\)"),
        ({"image": (49, 4, 4)}, "halves images 4 times"),
        ({"kind": "vgg"}, "halves images 5 times"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ElementEncoder(**(dict[str, Any](kind="conv", n_features=784, image=IMAGE) | settings))


@pytest.mark.parametrize(("kind", "convolutions"), [("resnet18", 20), ("resnet34", 36)])
def test_residual_networks_have_their_layers_and_no_biased_convolution(kind: Encoder, convolutions: int) -> None:
    encoder = built(kind, (3, 16, 16))
    found = [layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d)]
    assert len(found) == convolutions  # with those around the blocks that halve
    assert all(layer.bias is None for layer in found)
    assert (encoder.out_width, encoder(elements(1, 5, 768)).shape) == (32, (1, 5, 32))
