"""Encoders that learn by naming: trained once, always alike, and what AMCP's networks see of pictures through one."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from benchmarks.quality import amcp_data, amcp_lessons, amcp_pictures
from benchmarks.quality.amcp_data import Collection, pictures
from benchmarks.quality.amcp_lessons import Lessons, lessons
from benchmarks.quality.amcp_pictures import CONTENDERS, NAMINGS, eyes
from benchmarks.quality.naming import NamedPictures, Naming, _Namer, _NamerConfig, encoder_that_names
from coterie.nn.model import build
from coterie.nn.vision import ElementEncoder
from tests.benchmarks.test_amcp_pictures import SHAPES, pretended

QUICK = Naming(4, 3, 8, encoder="mlp")
IMAGE = (1, 4, 4)
CLASSES = (3, 7, 11)


def as_they_are(images: Tensor, _: Generator) -> Tensor:
    return images.float() / 255


def shown() -> NamedPictures:
    """Classes that are bright in places of their own, by any numbers."""
    source = Generator().manual_seed(0)
    place = torch.arange(3).repeat(20)
    images = torch.randint(60, (60, 16), generator=source)
    images[torch.arange(60), place] += 190
    return NamedPictures(images.to(torch.uint8).reshape(60, *IMAGE), torch.tensor(CLASSES)[place], as_they_are)


def never_shown() -> NamedPictures:
    raise AssertionError("The pictures are asked for again.")


def encoder() -> ElementEncoder:
    return ElementEncoder("mlp", 16, IMAGE, QUICK.channels)


def test_an_encoder_is_trained_once(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "named.safetensors"
    weights, minutes = encoder_that_names(QUICK, shown, path)
    assert [each.name for each in path.parent.iterdir()] == ["named.safetensors"]
    loaded, as_long = encoder_that_names(QUICK, never_shown, path)
    assert as_long == minutes >= 0
    assert loaded.keys() == weights.keys() == {f"encoder.{name}" for name in encoder().state_dict()}
    assert all(torch.equal(loaded[name], value) for name, value in weights.items())


@pytest.mark.parametrize("by_direction", [False, True])
@pytest.mark.usefixtures("untouched_random_state")
def test_the_same_pictures_give_the_same_encoder(tmp_path: Path, *, by_direction: bool) -> None:
    naming = replace(QUICK, by_direction=by_direction)
    first, again = (encoder_that_names(naming, shown, tmp_path / name)[0] for name in ("one", "other"))
    assert all(torch.equal(again[name], value) for name, value in first.items())
    longer = encoder_that_names(replace(naming, steps=4), shown, tmp_path / "longer")[0]
    assert any(not torch.equal(longer[name], value) for name, value in first.items())


def test_pictures_of_one_name_are_seen_more_alike_than_any_others(tmp_path: Path) -> None:
    pixels, classes = shown().images.flatten(1).float() / 255, shown().classes
    same = classes[:, None] == classes
    is_apart = {}
    for steps in (1, 60):
        naming = replace(QUICK, steps=steps, batch_size=30, by_direction=True, learning_rate=1e-2)
        weights, _ = encoder_that_names(naming, shown, tmp_path / str(steps))
        looking = encoder()
        looking.load_state_dict({name.removeprefix("encoder."): value for name, value in weights.items()})
        with torch.no_grad():
            features = normalize(looking(pixels.unsqueeze(0))[0], dim=1)
        alike = features @ features.T
        is_apart[steps] = bool(alike[same].min() > alike[~same].max())
    assert is_apart == {1: False, 60: True}


def named(pixels: Tensor, longer: float, *, by_direction: bool) -> Tensor:
    """Logits of pictures whose features are so many times as long."""
    config = _NamerConfig(replace(QUICK, by_direction=by_direction), IMAGE, 3)
    model = build(_Namer, config, Generator().manual_seed(0))
    last = model.encoder.network[-1]  # type: ignore[index]  # a Sequential
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.weight.mul_(longer)
        last.bias.mul_(longer)
        logits: Tensor = model(pixels)
    return logits


def test_by_direction_how_long_features_are_does_not_matter() -> None:
    pixels = shown().images[:9].float() / 255
    plain, longer = (named(pixels, each, by_direction=True) for each in (1.0, 50.0))
    torch.testing.assert_close(plain, longer)
    assert plain.std() > 0.1
    plain, longer = (named(pixels, each, by_direction=False) for each in (1.0, 50.0))
    assert (plain - longer).abs().max() > 1


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Few small pictures and quick encoders for AMCP's networks; the folder that these are kept in."""
    loaded = {name: pretended(10, SHAPES[name]) for name in ("mnist", "cifar10")}
    monkeypatch.setattr(amcp_data, "LOADERS", {name: lambda one=one: one for name, one in loaded.items()})
    quick = {kind: replace(each, channels=4, steps=2, batch_size=8) for kind, each in NAMINGS.items()}
    monkeypatch.setattr(amcp_pictures, "NAMINGS", quick)
    monkeypatch.setattr(amcp_pictures, "IMAGES", SHAPES)
    monkeypatch.setattr(amcp_lessons, "MEMBERS", 2)
    for kept in (pictures, lessons, eyes):
        kept.cache_clear()
    yield tmp_path / "runs"
    for kept in (pictures, lessons, eyes):
        kept.cache_clear()


def digits() -> Tensor:
    return amcp_data.test_sets("mnist", 20, 1)[0].x


def test_features_are_directions_of_each_picture_alone(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = digits()
    for name in ("amcp", "amcp-mlp"):
        looking = CONTENDERS[name].eyes("mnist", runs)
        features = looking.features(x)
        assert features.shape == (len(x), 4)
        torch.testing.assert_close(features.norm(dim=1), torch.ones(len(x)))
        assert not features.requires_grad
        torch.testing.assert_close(looking.features(x[3:5]), features[3:5])
        with monkeypatch.context() as patched:
            patched.setattr(amcp_pictures, "ENCODED_AT_ONCE", 7)
            torch.testing.assert_close(looking.features(x), features)


def test_an_encoder_is_trained_once_for_each_kind_and_number_of_classes(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[tuple[Collection, int | None]] = []

    def noted(collection: Collection, n_classes: int | None = None) -> Lessons:
        asked_for.append((collection, n_classes))
        return lessons(collection, n_classes)

    monkeypatch.setattr(amcp_pictures, "lessons", noted)
    names = ("amcp", "amcp-star", "amcp-transport", "amcp-unframed", "dac", "ncp", "amcp-mlp", "amcp-2-classes")
    x = digits()
    features = {name: CONTENDERS[name].eyes("mnist", runs).features(x) for name in names}
    assert asked_for == [("mnist", None), ("mnist", None), ("mnist", 2)]
    files = {"mnist-strided-all-2.safetensors", "mnist-mlp-all-2.safetensors", "mnist-strided-2-2.safetensors"}
    assert {path.name for path in runs.iterdir()} == files
    assert not torch.allclose(features["amcp"], features["amcp-mlp"])
    assert not torch.allclose(features["amcp"], features["amcp-2-classes"])
    eyes.cache_clear()
    assert all(torch.equal(CONTENDERS[name].eyes("mnist", runs).features(x), features[name]) for name in names)
    assert len(asked_for) == 3
    CONTENDERS["amcp"].eyes("cifar10", runs)
    assert asked_for[3:] == [("cifar10", None)]
