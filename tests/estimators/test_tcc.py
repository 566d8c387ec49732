"""What is special in TCC's estimator: images from anywhere, training that goes on, and clusters that collapse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import adjusted_rand_score
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from coterie import TCC
from coterie.errors import ConfigError, InputError, TrainingError
from coterie.methods import load
from coterie.progress import Progress
from coterie.tcc import estimator as tcc
from coterie.tcc.augmentations import Views
from coterie.tcc.model import TccModel

SETTINGS: dict[str, Any] = {"width": 16, "hidden": 16, "memory": 32}
CORNERS = ((0, 0), (0, 9), (9, 4))
GENTLE = Views(smallest=0.9, brightness=0.2)
"""Views in which a corner stays where it is."""


def quick(n_clusters: int = 3, **settings: Any) -> TCC:
    small: dict[str, Any] = {"epochs": 40, "channels": 4, "settings": SETTINGS, "views": GENTLE, "random_state": 0}
    return TCC(n_clusters, **(small | settings))


def squares(side: int = 16) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Sixty images with a bright square in one of three places; these have 30, 20 and 10."""
    rng = np.random.default_rng(0)
    places = np.repeat([0, 1, 2], [30, 20, 10])[rng.permutation(60)]
    images = rng.integers(0, 40, (60, 16, 16), dtype=np.uint8)
    for image, place in zip(images, places, strict=True):
        top, left = CORNERS[place]
        image[top : top + 7, left : left + 7] += 200
    return images.repeat(side // 16, axis=1).repeat(side // 16, axis=2), places


def table() -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Three groups, in numbers with gaps and in a category."""
    rng = np.random.default_rng(0)
    groups = np.repeat([0, 1, 2], [30, 20, 15])
    X = pd.DataFrame(rng.normal(size=(65, 5)) + 6 * np.eye(3, 5)[groups], columns=list("abcde"))
    X.iloc[::7, 1] = np.nan
    X["colour"] = np.array(["red", "green", "blue"])[groups]
    return X, groups


@pytest.fixture(scope="module")
def of_images() -> TCC:
    return quick().fit(squares()[0])


@pytest.fixture(scope="module")
def of_table() -> TCC:
    return quick(epochs=80, channels=16, settings={"width": 16, "hidden": 16}).fit(table()[0])


def assert_sound(model: TCC, X: Any, rows: int) -> None:
    """What a user may read is there, and agrees with each other."""
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    sizes = np.bincount(model.labels_)
    assert len(model.labels_) == rows
    assert len(sizes) == model.n_clusters_
    assert sizes.min() > 0
    assert (np.diff(sizes) <= 0).all()
    memberships = model.predict_proba(X)
    assert memberships.shape == (rows, model.n_clusters_)
    np.testing.assert_allclose(memberships.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(memberships, model.probabilities_)
    places = model.transform(X)
    assert places.shape == (rows, 16)
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1.0, rtol=1e-5)
    assert model.get_feature_names_out().shape == (16,)
    assert len(model.history_["empty"]) == len(model.history_["uneven"]) > 0


def test_arrays_of_images_are_sorted(of_images: TCC) -> None:
    X, places = squares()
    assert_sound(of_images, X, 60)
    assert adjusted_rand_score(places, of_images.labels_) > 0.9
    assert len(of_images.history_["loss"]) == 40
    assert of_images.cluster_centers_.shape == (3, 256)
    np.testing.assert_allclose(of_images.cluster_centers_[0], X[of_images.labels_ == 0].mean(axis=0).ravel(), rtol=1e-3)
    assert of_images.notes_ == ()


def test_tables_with_gaps_and_categories_are_sorted(of_table: TCC) -> None:
    X, groups = table()
    assert_sound(of_table, X, 65)
    assert adjusted_rand_score(groups, of_table.labels_) > 0.9
    assert of_table.model_.config.encoder == "mlp"


def test_rows_are_told_apart_from_their_past_in_long_runs_or_if_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remembered = []
    numbered = TccModel.numbered

    def noted(self: TccModel, labels: Tensor) -> TccModel:
        remembered.append((len(self.instances.held()), self.config.momentum))
        return numbered(self, labels)

    monkeypatch.setattr(TccModel, "numbered", noted)
    X, _ = squares()
    for settings in ({}, {"memory": 30}, {"memory": 30, "in_batch": False}):
        TCC(2, epochs=2, batch_size=20, channels=4, settings=settings).fit(X)
    TCC(2, epochs=1, batch_size=20).fit(table()[0])
    assert remembered == [(0, 0.9), (30, 0.9), (30, 0.9), (0, 0.9)]
    monkeypatch.setattr(tcc, "LONG", 6)
    for batch_size, settings in ((20, {}), (60, {}), (20, {"memory": 7})):
        TCC(2, epochs=2 * batch_size // 20, batch_size=batch_size, channels=4, settings=settings).fit(X)
    TCC(2, epochs=9, batch_size=20).fit(table()[0])  # no images
    assert remembered[4:] == [(40, 0.99), (0, 0.99), (7, 0.99), (0, 0.9)]
    with pytest.raises(InputError, match="told apart from nothing"):
        TCC(2, settings={"in_batch": False}).fit(X)


def test_folders_of_images_are_read(of_images: TCC, tmp_path: Path) -> None:
    X, _ = squares()
    for i, image in enumerate(X):
        Image.fromarray(image).save(tmp_path / f"{i:02d}.png")
    model = quick().fit(tmp_path)
    np.testing.assert_array_equal(model.labels_, of_images.labels_)
    np.testing.assert_array_equal(model.predict(str(tmp_path)), of_images.labels_)


def test_loaders_give_images_with_channels_first(of_images: TCC) -> None:
    X, places = squares()
    images = torch.from_numpy(X).unsqueeze(1)
    with_labels = DataLoader(TensorDataset(images, torch.from_numpy(places)), batch_size=25)
    np.testing.assert_array_equal(quick().fit(with_labels).labels_, of_images.labels_)
    alone: Any = DataLoader(images, batch_size=7)  # type: ignore[arg-type]  # a tensor is such a data set
    np.testing.assert_array_equal(of_images.predict(alone), of_images.labels_)


def test_colour_and_odd_sizes_are_taken() -> None:
    X, _ = squares()
    coloured = np.stack([X, X // 2, X // 3], axis=-1)[:, :, :12]
    model = quick(epochs=2).fit(coloured)
    assert model.model_.config.image == (3, 16, 16)
    assert model.notes_[0] == "the network takes images of 16x16: those of 16x12 are resized"
    assert quick(epochs=2).fit(squares(96)[0][:20]).model_.config.image == (1, 64, 64)
    assert quick(epochs=2, image_size=20).fit(X).model_.config.image == (1, 20, 20)


@pytest.mark.parametrize("kind", ["images", "table"])
def test_files_change_nothing_and_hold_no_memories(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model: TCC = request.getfixturevalue(f"of_{kind}")
    X: Any = squares()[0] if kind == "images" else table()[0]
    path = tmp_path / "model.safetensors"
    model.save(path)
    again: Any = load(path)
    assert type(again) is TCC
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.transform(X[:5]), model.transform(X[:5]))
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    assert (again.history_, again.notes_) == (model.history_, model.notes_)
    assert (again.model_.config.memory, again.model_.config.rounds) == (0, 0)
    weights = sum(value.numel() for value in model.model_.parameters())
    assert path.stat().st_size < 4 * weights + 40_000


@pytest.mark.usefixtures("untouched_random_state")
def test_the_same_number_gives_the_same_clusters() -> None:
    X, _ = squares()
    first, second = (quick(epochs=6).fit(X).model_.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = quick(epochs=6, random_state=1).fit(X).model_.state_dict()
    assert not torch.equal(first["online.prototypes"], other["online.prototypes"])


def stopping_at(step: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("step", [17, 24, 33])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(step: int, tmp_path: Path) -> None:
    X, _ = squares()  # clusters are begun after step 24
    whole = quick(folder=tmp_path / "whole").fit(X)
    with pytest.raises(KeyboardInterrupt):
        quick(folder=tmp_path / "stopped", on_progress=stopping_at(step)).fit(X)
    heard: list[Progress] = []
    stopped = quick(folder=tmp_path / "stopped", on_progress=heard.append).fit(X)
    theirs = whole.model_.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in stopped.model_.state_dict().items())
    assert stopped.history_ == whole.history_
    assert len(whole.history_["loss"]) == 40
    assert (heard[-1].step, heard[-1].steps) == (40, 40)
    assert 0 < len(heard) <= 40 - step + 2
    finished = quick(folder=tmp_path / "stopped").fit(X)  # nothing is left to do
    np.testing.assert_array_equal(finished.labels_, whole.labels_)
    assert finished.history_ == whole.history_


def test_a_folder_changes_nothing_and_takes_no_other_run(of_images: TCC, tmp_path: Path) -> None:
    X, _ = squares()
    kept = quick(folder=tmp_path).fit(X)
    np.testing.assert_array_equal(kept.probabilities_, of_images.probabilities_)
    assert kept.history_ == of_images.history_
    with pytest.raises(TrainingError, match="they differ in rows"):
        quick(folder=tmp_path).fit(X[::-1].copy())
    with pytest.raises(TrainingError, match=r"they differ in seed, steps"):
        quick(folder=tmp_path, random_state=1, epochs=9).fit(X)


def test_a_collapse_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, _ = squares()

    def far_away(places: Tensor, n_clusters: int, _: Any) -> Tensor:
        middle = places.mean(dim=0)
        return torch.stack([middle, *[-middle] * (n_clusters - 1)])

    monkeypatch.setattr("coterie.tcc.schedule._centres", far_away)
    model = quick(learning_rate=1e-9).fit(X)
    assert model.history_["empty"][-1] == 2
    assert model.history_["uneven"][-1] > 0.5
    assert model.notes_[-1] == "the clusters collapsed: only 1 of the 3 that were asked for has a row"
    assert model.n_clusters_ == 1
    assert_sound(model, X, 60)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(TCC.load(tmp_path / "model.safetensors").predict(X), model.labels_)


def test_clusters_of_one_size_keep_their_own_centres(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of clusters of one size either may come first, but it is the same one in labels, centres and memberships."""
    X, _ = squares()
    model = quick(2, learning_rate=0.0)
    whole = TccModel.memberships
    halves = torch.eye(2)[torch.arange(60) % 2]
    monkeypatch.setattr(TccModel, "memberships", lambda self, x: halves if len(x) == 60 else whole(self, x))
    model.fit(X)
    for k in range(2):
        mean = X[model.labels_ == k].mean(axis=0).ravel()
        np.testing.assert_allclose(model.cluster_centers_[k], mean, rtol=1e-3)


@pytest.mark.parametrize("warm_up", [0.0, 1.0])
def test_either_part_of_training_may_be_left_out(warm_up: float) -> None:
    model = quick(epochs=5, warm_up=warm_up).fit(squares()[0])
    assert len(model.history_["loss"]) == 5
    assert bool(model.history_["empty"]) == (warm_up == 0.0)


def test_few_rows_are_gone_through_more_often() -> None:
    X, _ = squares()
    heard: list[Progress] = []

    def stop(progress: Progress) -> None:
        heard.append(progress)
        raise KeyboardInterrupt

    for rows, batch_size in ((X, 60), (X, 6), (X.reshape(60, -1), 60), (X.reshape(60, -1), 10), (X.reshape(60, -1), 1)):
        with pytest.raises(KeyboardInterrupt):
            quick(epochs="auto", batch_size=batch_size, on_progress=stop).fit(rows)
    assert [progress.steps for progress in heard] == [300, 600, 300, 600, 3000]


def test_progress_is_of_the_whole_course() -> None:
    heard: list[Progress] = []
    quick(epochs=10, on_progress=heard.append).fit(squares()[0])
    assert [(progress.step, progress.steps) for progress in heard] == [(step, 10) for step in range(1, 11)]
    assert all(progress.seconds_left >= 0 for progress in heard)


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"n_clusters": 61}, InputError, "n_clusters=61 is more than n_samples=60"),
        ({"n_clusters": 0}, InputError, "n_clusters=0"),
        ({"epochs": 0}, InputError, "epochs=0"),
        ({"warm_up": 1.5}, InputError, "warm_up=1.5 must be a share"),
        ({"image_size": 0}, InputError, "image_size=0"),
        ({"folder": "run", "random_state": None}, InputError, "give a whole number as random_state, which is None"),
        ({"settings": {"tempreature": 1.0}}, ConfigError, "no setting 'tempreature'"),
        ({"settings": {"n_clusters": 4}}, InputError, "settings has n_clusters"),
        ({"encoder": "vgg"}, ConfigError, "too small"),
    ],
)
def test_refusals(settings: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        quick(**settings).fit(squares()[0])


def test_input_that_cannot_be_used_is_refused(of_images: TCC) -> None:
    empty: Any = DataLoader(torch.zeros(0, 1, 16, 16))  # type: ignore[arg-type]  # a tensor is such a data set
    with pytest.raises(InputError, match="gives no batch"):
        quick().fit(empty)
    named: Any = DataLoader([{"image": torch.zeros(1, 16, 16)}])  # type: ignore[arg-type]  # so is a list
    with pytest.raises(InputError, match="The DataLoader gives dict"):
        quick().fit(named)
    with pytest.raises(InputError, match=r"shape \(8, 32, 1\).*fitted on images of the shape \(16, 16, 1\)"):
        of_images.predict(squares()[0].reshape(60, 8, 32))
    with pytest.raises(InputError, match="cannot be used unscaled"):
        quick(scaling="none").fit(1e9 * np.eye(4))
