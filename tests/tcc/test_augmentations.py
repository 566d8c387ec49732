"""Augmentations: range, randomness, and the effect of each setting."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.tcc.augmentations import ERASED_AREA, YIQ, Augmentations, augment_features

GRAY, COLOUR = (1, 28, 28), (3, 32, 32)
ALL = replace(Augmentations.for_colour(), max_rotation=20.0, noise=0.1, erasing=0.5)
PRESETS = {"grayscale": Augmentations.for_grayscale(), "colour": Augmentations.for_colour(), "all": ALL}
presets = pytest.mark.parametrize("augment", PRESETS.values(), ids=PRESETS.keys())
shapes = pytest.mark.parametrize("shape", [GRAY, COLOUR, (3, 20, 33)], ids=str)
SETTINGS: list[dict[str, Any]] = [{field.name: getattr(ALL, field.name)} for field in fields(Augmentations)]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_images(count: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.rand((count, *shape), generator=seeded(seed), dtype=torch.float64)


def luma(images: Tensor) -> Tensor:
    return torch.einsum("mchw,c->mhw", images, torch.tensor(YIQ[0], dtype=images.dtype))


@presets
@shapes
@pytest.mark.usefixtures("untouched_random_state")
def test_shape_and_range_are_kept_and_the_generator_decides(augment: Augmentations, shape: tuple[int, ...]) -> None:
    images = random_images(16, shape)
    before = images.clone()
    view = augment(images, seeded())
    assert (view.shape, view.dtype) == (images.shape, images.dtype)
    assert ((view >= 0) & (view <= 1)).all()
    assert torch.equal(images, before)
    assert torch.equal(augment(images, seeded()), view)
    assert not torch.equal(augment(images, seeded(1)), view)


@presets
@shapes
def test_images_are_augmented_independently(augment: Augmentations, shape: tuple[int, ...]) -> None:
    same = augment(random_images(1, shape).expand(32, -1, -1, -1), seeded()).flatten(1)
    assert (torch.cdist(same, same) + torch.eye(32) > 0).all()
    images, others = random_images(6, shape).requires_grad_(), random_images(6, shape, seed=1)
    others[2] = images[2].detach()
    view = augment(images, seeded())[2]
    assert torch.equal(augment(others, seeded())[2], view)
    (slope,) = torch.autograd.grad(view.square().sum(), images)
    assert slope.isfinite().all()
    assert slope.flatten(1).any(dim=1).tolist() == [image == 2 for image in range(6)]


@shapes
def test_the_defaults_change_nothing(shape: tuple[int, ...]) -> None:
    images, source = random_images(3, shape), seeded()
    assert torch.equal(Augmentations()(images, source), images)
    assert torch.equal(source.get_state(), seeded().get_state())
    assert ALL(images[:0], source).shape == (0, *shape)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: next(iter(settings)))
def test_every_setting_changes_colour_images_and_colour_settings_no_gray_ones(settings: dict[str, Any]) -> None:
    augment = Augmentations(**settings)
    colour, gray = random_images(8, COLOUR), random_images(8, GRAY)
    assert not torch.equal(augment(colour, seeded()), colour)
    colour_only = not {"saturation", "hue", "grayscale"}.isdisjoint(settings)
    assert torch.equal(augment(gray, seeded()), gray) == colour_only


@given(seed=st.integers(0, 1000), height=st.integers(1, 20), width=st.integers(1, 20))
def test_crops_are_inside_the_image(seed: int, height: int, width: int) -> None:
    """A constant image stays constant; a crop of a linear ramp is linear."""
    augment = Augmentations(min_crop_area=0.2)
    constant = torch.full((8, 1, height, width), 0.7, dtype=torch.float64)
    torch.testing.assert_close(augment(constant, seeded(seed)), constant)
    if width == 1:
        return
    ramp = torch.linspace(0, 1, width, dtype=torch.float64).expand(8, 1, height, width)
    view = augment(ramp, seeded(seed))[:, 0]
    slope = (view[:, 0, -1] - view[:, 0, 0]).unsqueeze(1)
    assert ((slope > math.sqrt(0.2 * 3 / 4) - 1e-9) & (slope < 1 + 1e-9)).all()
    straight = view[:, 0, :1] + slope * torch.linspace(0, 1, width, dtype=torch.float64)
    torch.testing.assert_close(view, straight.unsqueeze(1).expand_as(view))


def test_crops_cover_the_allowed_areas_aspects_and_positions() -> None:
    images = torch.zeros(2000, 3, 32, 32, dtype=torch.float64)
    images[:, 0] = torch.linspace(0, 1, 32)
    images[:, 1] = torch.linspace(0, 1, 32).unsqueeze(1)
    view = Augmentations(min_crop_area=0.2)(images, seeded())
    width, height = view[:, 0, 0, -1] - view[:, 0, 0, 0], view[:, 1, -1, 0] - view[:, 1, 0, 0]
    area, aspect = width * height, width / height
    assert 0.2 - 1e-6 <= area.min() < 0.21
    assert area.max() > 0.97
    assert 3 / 4 - 1e-6 <= aspect.min() < 0.76
    assert 1.3 < aspect.max() <= 4 / 3 + 1e-6
    narrow = view[width < 0.7, 0]
    assert narrow.min() < 0.01
    assert narrow.max() > 0.99


def test_half_of_the_images_are_flipped() -> None:
    images = random_images(1000, (1, 4, 6))
    view = Augmentations(horizontal_flip=True)(images, seeded())
    same = (view - images).abs().amax(dim=(1, 2, 3)) < 1e-6
    flipped = (view - images.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-6
    assert (same ^ flipped).all()
    assert 450 < flipped.sum() < 550


def test_rotations_are_within_the_bound() -> None:
    """The edge of a bright half runs through the centre."""
    images = torch.zeros(500, 1, 33, 33, dtype=torch.float64)
    images[..., 17:] = 1.0
    view = Augmentations(max_rotation=15.0)(images, seeded())[:, 0]
    bright = view[..., 6:-6].sum(dim=2)  # without the corners
    tilt = torch.rad2deg(torch.atan2(bright[:, 24] - bright[:, 8], torch.tensor(16.0)))
    assert 13 < tilt.max() < 16
    assert -16 < tilt.min() < -13


def test_brightness_is_a_factor() -> None:
    images = 0.5 * random_images(500, (3, 4, 4)) + 0.1
    factor = Augmentations(brightness=0.4)(images, seeded()) / images
    torch.testing.assert_close(factor, factor[:, :1, :1, :1].expand_as(factor))
    assert 0.6 <= factor.min() < 0.62
    assert 1.38 < factor.max() <= 1.4


@pytest.mark.parametrize("channels", [1, 3])
def test_contrast_keeps_the_mean_brightness(channels: int) -> None:
    images = 0.2 * random_images(500, (channels, 4, 4)) + 0.4
    view = Augmentations(contrast=0.4)(images, seeded())
    mean = [(luma(part) if channels == 3 else part[:, 0]).mean(dim=(1, 2)) for part in (images, view)]
    torch.testing.assert_close(mean[1], mean[0])
    factor = view.std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))
    assert 0.6 <= factor.min() < 0.63
    assert 1.37 < factor.max() <= 1.41


@pytest.mark.parametrize("settings", [{"saturation": 0.4}, {"hue": 0.5}, {"grayscale": 0.5}], ids=str)
def test_colour_changes_keep_the_brightness(settings: dict[str, Any]) -> None:
    images = 0.2 * random_images(200, (3, 4, 4)) + 0.4
    augment = Augmentations(**settings)
    torch.testing.assert_close(luma(augment(images, seeded())), luma(images), atol=1e-7, rtol=1e-6)
    gray = images[:, :1].expand(-1, 3, -1, -1)
    torch.testing.assert_close(augment(gray, seeded()), gray, atol=1e-7, rtol=1e-6)


def test_hue_changes_keep_the_saturation() -> None:
    images = 0.2 * random_images(200, (3, 1, 1)) + 0.4
    to_yiq = torch.tensor(YIQ, dtype=torch.float64)
    view = Augmentations(hue=0.1)(images, seeded())
    before, after = ((part.flatten(1) @ to_yiq.mT)[:, 1:] for part in (images, view))
    torch.testing.assert_close(after.norm(dim=1), before.norm(dim=1), atol=1e-6, rtol=1e-5)
    cosine = (before * after).sum(dim=1) / (before.norm(dim=1) * after.norm(dim=1))
    assert 34 < torch.rad2deg(cosine.clamp(-1, 1).acos()).max() <= 36 + 1e-3


def test_noise_and_grey_have_the_given_strength() -> None:
    view = Augmentations(grayscale=0.2)(random_images(2000, (3, 2, 2)), seeded())
    gray = (view - view[:, :1]).abs().amax(dim=(1, 2, 3)) < 1e-6
    assert 340 < gray.sum() < 460
    images = torch.full((50, 3, 8, 8), 0.5)
    noise = Augmentations(noise=0.05)(images, seeded()) - images
    assert float(noise.std()) == pytest.approx(0.05, rel=0.05)
    assert noise.std(dim=1).mean() > 0.03


def test_rectangles_are_erased_with_the_given_probability() -> None:
    view = Augmentations(erasing=0.3)(torch.ones(2000, 3, 40, 40), seeded())
    assert torch.equal(view[:, 0], view[:, 2])
    erased = view[:, 0] != 1
    assert not view[:, 0][erased].any()
    assert 540 < erased.any(dim=(1, 2)).sum() < 660
    erased = erased[erased.any(dim=(1, 2))]
    assert torch.equal(erased, erased.any(dim=1).unsqueeze(1) & erased.any(dim=2).unsqueeze(2))
    area = erased.double().mean(dim=(1, 2))
    assert ERASED_AREA[0] / 2 < area.min() < 0.03
    assert 0.18 < area.max() < ERASED_AREA[1] * 1.15
    assert erased.any(dim=(0, 1)).all()  # up to the edges
    assert erased.any(dim=(0, 2)).all()


@pytest.mark.parametrize(
    "settings",
    [
        {"min_crop_area": 0.0},
        {"min_crop_area": 1.2},
        {"max_rotation": 181.0},
        {"brightness": -0.1},
        {"contrast": 1.1},
        {"saturation": float("nan")},
        {"hue": 0.6},
        {"grayscale": 2.0},
        {"noise": float("inf")},
        {"erasing": -1.0},
    ],
    ids=str,
)
def test_invalid_settings_raise_an_error_that_names_them(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(ConfigError, match=f"{name}={value} must be a finite number"):
        Augmentations(**settings)


@pytest.mark.parametrize(
    "images",
    [torch.zeros(3, 28, 28), torch.zeros(2, 4, 8, 8), torch.zeros((2, 3, 8, 8), dtype=torch.uint8)],
    ids=["one image", "four channels", "bytes"],
)
def test_other_tensors_raise_an_error(images: Tensor) -> None:
    with pytest.raises(ConfigError, match=r"Images must be floating-point numbers .* got torch\.\w+ of shape \("):
        Augmentations()(images, seeded())


def rows(count: int = 50, width: int = 6, seed: int = 0) -> Tensor:
    return torch.randn((count, width), generator=seeded(seed), dtype=torch.float64)


def augmented(x: Tensor, seed: int = 0, *, mixup: float = 0.0, noise: float = 0.0, dropout: float = 0.0) -> Tensor:
    return augment_features(x, seeded(seed), mixup=mixup, noise=noise, dropout=dropout)


@pytest.mark.usefixtures("untouched_random_state")
def test_feature_augmentations_depend_on_the_generator_only() -> None:
    x = rows()
    before = x.clone()
    view = augmented(x, mixup=0.3, noise=0.1, dropout=0.2)
    assert (view.shape, view.dtype) == (x.shape, x.dtype)
    assert torch.equal(x, before)
    assert torch.equal(augmented(x, mixup=0.3, noise=0.1, dropout=0.2), view)
    assert not torch.equal(augmented(x, 1, mixup=0.3, noise=0.1, dropout=0.2), view)
    assert torch.equal(augmented(x), x)


def test_dropout_keeps_the_mean_and_noise_is_relative() -> None:
    view = augmented(torch.ones(4000, 5), dropout=0.25)
    torch.testing.assert_close(view, (view != 0) / 0.75)
    torch.testing.assert_close(view.mean(dim=0), torch.ones(5), atol=0.04, rtol=0)
    x = rows(4000, 3) * torch.tensor([0.0, 0.1, 10.0], dtype=torch.float64) + 5
    noise = augmented(x, noise=0.5) - x
    torch.testing.assert_close(noise.std(dim=0), 0.5 * x.std(dim=0), rtol=0.05, atol=1e-12)
    assert not noise[:, 0].any()


def test_mixup_adds_a_fraction_of_another_row() -> None:
    view = augmented(torch.eye(200, dtype=torch.float64), mixup=0.4)
    own = view.diagonal()
    others = view.clone().fill_diagonal_(0.0)
    torch.testing.assert_close(own + others.sum(dim=1), torch.ones(200, dtype=torch.float64))
    assert ((others > 0).sum(dim=1) == 1).all()
    assert 0.6 <= own.min() < 0.62
    assert own.max() > 0.98
    assert len(set(others.argmax(dim=1).tolist())) > 100


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_rows_have_finite_gradients(count: int) -> None:
    x = rows(count).requires_grad_()
    view = augmented(x, mixup=0.3, noise=0.1, dropout=0.2)
    (slope,) = torch.autograd.grad(view.square().sum(), x)
    assert view.shape == (count, 6)
    assert (view.isfinite() & slope.isfinite()).all()


@pytest.mark.parametrize("settings", [{"dropout": 1.0}, {"noise": -0.1}, {"mixup": 1.5}], ids=str)
def test_invalid_feature_augmentations_raise_an_error(settings: dict[str, Any]) -> None:
    ((name, value),) = settings.items()
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        augmented(rows(), **settings)
