"""Random views: within bounds, from the generator alone, each image by itself; and what each setting does."""

import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from coterie.errors import ConfigError
from coterie.tcc.augmentations import ERASED_AREA, YIQ, Views, feature_view

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
EVERYTHING = Views(
    0.3, 20.0, mirrored=True, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1, grey=0.3, noise=0.1, erased=0.5
)
KINDS = {"grey": Views.for_grey(), "colour": Views.for_colour(), "everything": EVERYTHING}
PRESETS = pytest.mark.parametrize("views", KINDS.values(), ids=KINDS.keys())
SHAPES = pytest.mark.parametrize("shape", [GREY, COLOUR, (3, 20, 33)], ids=str)
SETTINGS: list[dict[str, Any]] = [{field.name: getattr(EVERYTHING, field.name)} for field in fields(Views)]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pictures(count: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.rand((count, *shape), generator=seeded(seed), dtype=torch.float64)


def brightness(images: Tensor) -> Tensor:
    return torch.einsum("mchw,c->mhw", images, torch.tensor(YIQ[0], dtype=images.dtype))


@PRESETS
@SHAPES
@pytest.mark.usefixtures("untouched_random_state")
def test_views_keep_shape_and_range_and_are_the_generators(views: Views, shape: tuple[int, ...]) -> None:
    images = pictures(16, shape)
    before = images.clone()
    seen = views.applied(images, seeded())
    assert (seen.shape, seen.dtype) == (images.shape, images.dtype)
    assert ((seen >= 0) & (seen <= 1)).all()
    assert torch.equal(images, before)
    assert torch.equal(views.applied(images, seeded()), seen)
    assert not torch.equal(views.applied(images, seeded(1)), seen)


@PRESETS
@SHAPES
def test_equal_images_are_seen_each_in_its_own_way(views: Views, shape: tuple[int, ...]) -> None:
    seen = views.applied(pictures(1, shape).expand(32, -1, -1, -1), seeded()).flatten(1)
    assert (torch.cdist(seen, seen) + torch.eye(32) > 0).all()


@PRESETS
@SHAPES
def test_a_view_depends_on_its_own_image_alone(views: Views, shape: tuple[int, ...]) -> None:
    images, others = pictures(6, shape).requires_grad_(), pictures(6, shape, seed=1)
    others[2] = images[2].detach()
    seen = views.applied(images, seeded())[2]
    assert torch.equal(views.applied(others, seeded())[2], seen)
    (slope,) = torch.autograd.grad(seen.square().sum(), images)
    assert slope.isfinite().all()
    assert slope.flatten(1).any(dim=1).tolist() == [image == 2 for image in range(6)]


@SHAPES
def test_without_settings_images_stay_as_they_are(shape: tuple[int, ...]) -> None:
    images, source = pictures(3, shape), seeded()
    assert torch.equal(Views().applied(images, source), images)
    assert torch.equal(source.get_state(), seeded().get_state())
    assert EVERYTHING.applied(images[:0], source).shape == (0, *shape)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: next(iter(settings)))
def test_every_setting_does_something_to_colours_and_some_nothing_to_grey(settings: dict[str, Any]) -> None:
    views = Views(**settings)
    colour, grey = pictures(8, COLOUR), pictures(8, GREY)
    assert not torch.equal(views.applied(colour, seeded()), colour)
    for_colours = not {"saturation", "hue", "grey"}.isdisjoint(settings)
    assert torch.equal(views.applied(grey, seeded()), grey) == for_colours


@given(seed=st.integers(0, 1000), height=st.integers(1, 20), width=st.integers(1, 20))
def test_crops_are_within_the_image(seed: int, height: int, width: int) -> None:
    """Of a constant nothing else is seen, and of a ramp a stretch of it that is as long as the settings allow."""
    views = Views(smallest=0.2)
    constant = torch.full((8, 1, height, width), 0.7, dtype=torch.float64)
    torch.testing.assert_close(views.applied(constant, seeded(seed)), constant)
    if width == 1:
        return
    ramp = torch.linspace(0, 1, width, dtype=torch.float64).expand(8, 1, height, width)
    seen = views.applied(ramp, seeded(seed))[:, 0]
    slope = (seen[:, 0, -1] - seen[:, 0, 0]).unsqueeze(1)
    assert ((slope > math.sqrt(0.2 * 3 / 4) - 1e-9) & (slope < 1 + 1e-9)).all()
    straight = seen[:, 0, :1] + slope * torch.linspace(0, 1, width, dtype=torch.float64)
    torch.testing.assert_close(seen, straight.unsqueeze(1).expand_as(seen))


def test_crops_have_all_areas_and_aspects_that_they_may() -> None:
    images = torch.zeros(2000, 3, 32, 32, dtype=torch.float64)
    images[:, 0] = torch.linspace(0, 1, 32)
    images[:, 1] = torch.linspace(0, 1, 32).unsqueeze(1)
    seen = Views(smallest=0.2).applied(images, seeded())
    width, height = seen[:, 0, 0, -1] - seen[:, 0, 0, 0], seen[:, 1, -1, 0] - seen[:, 1, 0, 0]
    area, aspect = width * height, width / height
    assert 0.2 - 1e-6 <= area.min() < 0.21
    assert area.max() > 0.97
    assert 3 / 4 - 1e-6 <= aspect.min() < 0.76
    assert 1.3 < aspect.max() <= 4 / 3 + 1e-6
    narrow = seen[width < 0.7, 0]
    assert narrow.min() < 0.01  # they lie at both edges, too
    assert narrow.max() > 0.99


def test_mirrored_images_are_mirrored_half_the_time() -> None:
    images = pictures(1000, (1, 4, 6))
    seen = Views(mirrored=True).applied(images, seeded())
    same = (seen - images).abs().amax(dim=(1, 2, 3)) < 1e-6
    over = (seen - images.flip(3)).abs().amax(dim=(1, 2, 3)) < 1e-6
    assert (same ^ over).all()
    assert 450 < over.sum() < 550


def test_turned_images_are_turned_by_so_much_at_most() -> None:
    """A bright half keeps its side, and its edge runs through the middle."""
    images = torch.zeros(500, 1, 33, 33, dtype=torch.float64)
    images[..., 17:] = 1.0
    seen = Views(turn_by=15.0).applied(images, seeded())[:, 0]
    bright = seen[..., 6:-6].sum(dim=2)  # without the corners that came in from outside
    tilt = torch.rad2deg(torch.atan2(bright[:, 24] - bright[:, 8], torch.tensor(16.0)))
    assert 13 < tilt.max() < 16
    assert -16 < tilt.min() < -13


def test_brightness_multiplies() -> None:
    images = 0.5 * pictures(500, (3, 4, 4)) + 0.1
    factor = Views(brightness=0.4).applied(images, seeded()) / images
    torch.testing.assert_close(factor, factor[:, :1, :1, :1].expand_as(factor))
    assert 0.6 <= factor.min() < 0.62
    assert 1.38 < factor.max() <= 1.4


@pytest.mark.parametrize("channels", [1, 3])
def test_contrast_keeps_the_mean_brightness(channels: int) -> None:
    images = 0.2 * pictures(500, (channels, 4, 4)) + 0.4
    seen = Views(contrast=0.4).applied(images, seeded())
    mean = [(brightness(part) if channels == 3 else part[:, 0]).mean(dim=(1, 2)) for part in (images, seen)]
    torch.testing.assert_close(mean[1], mean[0])
    factor = seen.std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))
    assert 0.6 <= factor.min() < 0.63
    assert 1.37 < factor.max() <= 1.41


@pytest.mark.parametrize(
    "settings", [{"saturation": 0.4}, {"hue": 0.5}, {"grey": 0.5}], ids=lambda one: next(iter(one))
)
def test_colours_change_and_brightness_stays(settings: dict[str, Any]) -> None:
    images = 0.2 * pictures(200, (3, 4, 4)) + 0.4
    seen = Views(**settings).applied(images, seeded())
    torch.testing.assert_close(brightness(seen), brightness(images), atol=1e-7, rtol=1e-6)
    grey = images[:, :1].expand(-1, 3, -1, -1)
    torch.testing.assert_close(Views(**settings).applied(grey, seeded()), grey, atol=1e-7, rtol=1e-6)


def test_hues_turn_and_saturation_stays() -> None:
    images = 0.2 * pictures(200, (3, 1, 1)) + 0.4
    apart = torch.tensor(YIQ, dtype=torch.float64)
    seen = Views(hue=0.1).applied(images, seeded())
    before, after = ((part.flatten(1) @ apart.mT)[:, 1:] for part in (images, seen))
    torch.testing.assert_close(after.norm(dim=1), before.norm(dim=1), atol=1e-6, rtol=1e-5)
    cosine = (before * after).sum(dim=1) / (before.norm(dim=1) * after.norm(dim=1))
    turned = torch.rad2deg(cosine.clamp(-1, 1).acos())
    assert 34 < turned.max() <= 36 + 1e-3


def test_colours_are_lost_as_often_as_asked() -> None:
    seen = Views(grey=0.2).applied(pictures(2000, (3, 2, 2)), seeded())
    lost = (seen - seen[:, :1]).abs().amax(dim=(1, 2, 3)) < 1e-6
    assert 340 < lost.sum() < 460


def test_noise_has_its_standard_deviation_and_each_value_its_own() -> None:
    images = torch.full((50, 3, 8, 8), 0.5)
    added = Views(noise=0.05).applied(images, seeded()) - images
    assert float(added.std()) == pytest.approx(0.05, rel=0.05)
    assert added.std(dim=1).mean() > 0.03


def test_rectangles_are_erased() -> None:
    images = torch.ones(2000, 3, 40, 40)
    seen = Views(erased=0.3).applied(images, seeded())
    assert torch.equal(seen[:, 0], seen[:, 2])
    hole = seen[:, 0] != 1
    assert not seen[:, 0][hole].any()
    assert 540 < hole.any(dim=(1, 2)).sum() < 660
    hole = hole[hole.any(dim=(1, 2))]
    assert torch.equal(hole, hole.any(dim=1).unsqueeze(1) & hole.any(dim=2).unsqueeze(2))
    share = hole.double().mean(dim=(1, 2))
    assert ERASED_AREA[0] / 2 < share.min() < 0.03
    assert 0.18 < share.max() < ERASED_AREA[1] * 1.15
    assert hole.any(dim=(0, 1)).all()  # up to the edges
    assert hole.any(dim=(0, 2)).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"smallest": 0.0}, "smallest=0 leaves nothing"),
        ({"smallest": 1.2}, "smallest=1.2 must be at least 0 and at most 1"),
        ({"turn_by": 181.0}, "turn_by=181.0 must be at least 0 and at most 180"),
        ({"brightness": -0.1}, "brightness=-0.1 must be at least 0"),
        ({"contrast": 1.1}, "contrast=1.1 must be .* at most 1"),
        ({"saturation": float("nan")}, "saturation=nan"),
        ({"hue": 0.6}, "hue=0.6 must be at least 0 and at most 0.5"),
        ({"grey": 2.0}, "grey=2.0"),
        ({"noise": float("inf")}, "noise=inf must be at least 0 and finite"),
        ({"erased": -1.0}, "erased=-1.0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Views(**settings)


@pytest.mark.parametrize(
    "images",
    [torch.zeros(3, 28, 28), torch.zeros(2, 4, 8, 8), torch.zeros((2, 3, 8, 8), dtype=torch.uint8)],
    ids=["one", "four channels", "bytes"],
)
def test_what_are_no_images_is_refused(images: Tensor) -> None:
    with pytest.raises(ConfigError, match=r"Views are of images .* got torch\.\w+ of shape \("):
        Views().applied(images, seeded())


def rows(count: int = 50, width: int = 6, seed: int = 0) -> Tensor:
    return torch.randn((count, width), generator=seeded(seed), dtype=torch.float64)


@pytest.mark.usefixtures("untouched_random_state")
def test_views_of_features_are_the_generators() -> None:
    x = rows()
    before = x.clone()
    seen = feature_view(x, seeded(), 0.2, 0.1, 0.3)
    assert (seen.shape, seen.dtype) == (x.shape, x.dtype)
    assert torch.equal(x, before)
    assert torch.equal(feature_view(x, seeded(), 0.2, 0.1, 0.3), seen)
    assert not torch.equal(feature_view(x, seeded(1), 0.2, 0.1, 0.3), seen)
    assert torch.equal(feature_view(x, seeded(), 0.0, 0.0, 0.0), x)
    alike = feature_view(torch.ones(2, 50), seeded(), 0.5, 0.0, 0.0)
    assert not torch.equal(alike[0], alike[1])


def test_dropout_keeps_the_mean() -> None:
    seen = feature_view(torch.ones(4000, 5), seeded(), 0.25, 0.0, 0.0)
    torch.testing.assert_close(seen, (seen != 0) / 0.75)
    torch.testing.assert_close(seen.mean(dim=0), torch.ones(5), atol=0.04, rtol=0)


def test_noise_is_as_large_as_the_features_vary() -> None:
    scale = torch.tensor([0.0, 0.1, 10.0], dtype=torch.float64)
    x = rows(4000, 3) * scale + 5
    added = feature_view(x, seeded(), 0.0, 0.5, 0.0) - x
    torch.testing.assert_close(added.std(dim=0), 0.5 * x.std(dim=0), rtol=0.05, atol=1e-12)
    assert not added[:, 0].any()


def test_a_share_of_another_row_is_mixed_in() -> None:
    x = torch.eye(200, dtype=torch.float64)
    seen = feature_view(x, seeded(), 0.0, 0.0, 0.4)
    own = seen.diagonal()
    others = seen.clone().fill_diagonal_(0.0)
    torch.testing.assert_close(own + others.sum(dim=1), torch.ones(200, dtype=torch.float64))
    assert ((others > 0).sum(dim=1) == 1).all()
    assert 0.6 <= own.min() < 0.62
    assert own.max() > 0.98
    assert len(set(others.argmax(dim=1).tolist())) > 100


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_rows_have_views_with_finite_gradients(count: int) -> None:
    x = rows(count).requires_grad_()
    seen = feature_view(x, seeded(), 0.2, 0.1, 0.3)
    (slope,) = torch.autograd.grad(seen.square().sum(), x)
    assert seen.shape == (count, 6)
    assert (seen.isfinite() & slope.isfinite()).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [((1.0, 0.0, 0.0), "dropout=1.0"), ((0.0, -0.1, 0.0), "noise=-0.1"), ((0.0, 0.0, 1.5), "mixed=1.5")],
)
def test_views_of_features_that_cannot_be_are_refused(settings: tuple[float, float, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        feature_view(rows(), seeded(), *settings)
