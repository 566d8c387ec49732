"""The TCC estimator: images from several sources, resumed training, collapse, model files and recipes."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from coterie import TCC
from coterie.config import to_dict
from coterie.errors import ConfigError, InputError, TrainingError
from coterie.methods import load
from coterie.progress import Callback, Progress
from coterie.tcc import estimator as tcc
from coterie.tcc.augmentations import Augmentations
from coterie.tcc.config import PUBLISHED, TccConfig
from coterie.tcc.estimator import tcc_from_options, tcc_from_recipe
from coterie.tcc.model import TccModel

SETTINGS: dict[str, Any] = {"embedding_dim": 16, "projection_hidden": 16, "queue_size": 32}
CORNERS = ((0, 0), (0, 9), (9, 4))
WEAK = Augmentations(min_crop_area=0.9, brightness=0.2)
RECIPE = Path(__file__).parents[2] / "recipes" / "tcc-cifar10.toml"


def quick(n_clusters: Any = 3, **settings: Any) -> TCC:
    small: dict[str, Any] = {
        "epochs": 40,
        "channels": 4,
        "settings": SETTINGS,
        "augmentations": WEAK,
        "random_state": 0,
    }
    return TCC(n_clusters, **(small | settings))


def squares(side: int = 16) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Sixty images with a bright square at one of three positions; these have 30, 20 and 10."""
    rng = np.random.default_rng(0)
    positions = np.repeat([0, 1, 2], [30, 20, 10])[rng.permutation(60)]
    images = rng.integers(0, 40, (60, 16, 16), dtype=np.uint8)
    for image, position in zip(images, positions, strict=True):
        top, left = CORNERS[position]
        image[top : top + 7, left : left + 7] += 200
    return images.repeat(side // 16, axis=1).repeat(side // 16, axis=2), positions


def mixed_table() -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Three groups, in numbers with missing values and in a category."""
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
    settings = {"embedding_dim": 16, "projection_hidden": 16}
    return quick(epochs=80, channels=16, settings=settings).fit(mixed_table()[0])


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[TccModel]:
    """The networks of all fits in a test as they were trained, with their queues."""
    models: list[TccModel] = []
    for_inference = TccModel.for_inference

    def record(self: TccModel, labels: Tensor) -> TccModel:
        models.append(self)
        return for_inference(self, labels)

    monkeypatch.setattr(TccModel, "for_inference", record)
    return models


def assert_consistent(model: TCC, X: Any, rows: int) -> None:
    """Check that the fitted attributes and the predictions agree."""
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    sizes = np.bincount(model.labels_)
    assert (len(model.labels_), len(sizes)) == (rows, model.n_clusters_)
    assert sizes.min() > 0
    assert (np.diff(sizes) <= 0).all()
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (rows, model.n_clusters_)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(probabilities, model.probabilities_)
    embeddings = model.transform(X)
    assert embeddings.shape == (rows, 16)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, rtol=1e-5)
    assert model.get_feature_names_out().shape == (16,)
    assert len(model.history_["empty_clusters"]) == len(model.history_["imbalance"]) > 0


def test_images_are_clustered(of_images: TCC) -> None:
    X, positions = squares()
    assert_consistent(of_images, X, 60)
    assert adjusted_rand_score(positions, of_images.labels_) > 0.9
    assert (len(of_images.history_["loss"]), of_images.cluster_centers_.shape) == (40, (3, 256))
    np.testing.assert_allclose(of_images.cluster_centers_[0], X[of_images.labels_ == 0].mean(axis=0).ravel(), rtol=1e-3)
    assert of_images.notes_ == ()


def test_tables_with_missing_values_and_categories_are_clustered(of_table: TCC) -> None:
    X, groups = mixed_table()
    assert_consistent(of_table, X, 65)
    assert adjusted_rand_score(groups, of_table.labels_) > 0.9
    assert of_table.model_.config.encoder == "mlp"


def test_long_runs_on_images_have_a_queue_and_a_slower_momentum_encoder(
    trained: list[TccModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = squares()
    for settings in ({}, {"queue_size": 30}, {"queue_size": 30, "in_batch_negatives": False}):
        TCC(2, epochs=2, batch_size=20, channels=4, settings=settings).fit(X)
    TCC(2, epochs=1, batch_size=20).fit(mixed_table()[0])
    monkeypatch.setattr(tcc, "LONG_RUN_STEPS", 6)
    for batch_size, settings in ((20, {}), (60, {}), (20, {"queue_size": 7})):
        TCC(2, epochs=2 * batch_size // 20, batch_size=batch_size, channels=4, settings=settings).fit(X)
    TCC(2, epochs=9, batch_size=20).fit(mixed_table()[0])  # not images
    found = [(len(model.instance_queue.contents()), model.config.momentum) for model in trained]
    assert found[:4] == [(0, 0.9), (30, 0.9), (30, 0.9), (0, 0.9)]
    assert found[4:] == [(40, 0.99), (0, 0.99), (7, 0.99), (0, 0.9)]


def test_folders_and_data_loaders_are_read(of_images: TCC, tmp_path: Path) -> None:
    X, positions = squares()
    for i, image in enumerate(X):
        Image.fromarray(image).save(tmp_path / f"{i:02d}.png")
    np.testing.assert_array_equal(quick().fit(tmp_path).labels_, of_images.labels_)
    np.testing.assert_array_equal(of_images.predict(str(tmp_path)), of_images.labels_)
    images = torch.from_numpy(X).unsqueeze(1)
    with_labels = DataLoader(TensorDataset(images, torch.from_numpy(positions)), batch_size=25)
    np.testing.assert_array_equal(quick().fit(with_labels).labels_, of_images.labels_)
    alone: Any = DataLoader(images, batch_size=7)  # type: ignore[arg-type]  # a tensor is a data set
    np.testing.assert_array_equal(of_images.predict(alone), of_images.labels_)


def test_images_are_resized() -> None:
    X, _ = squares()
    colour = np.stack([X, X // 2, X // 3], axis=-1)[:, :, :12]
    model = quick(epochs=2).fit(colour)
    assert model.model_.config.image == (3, 16, 16)
    assert model.notes_[0] == "images were resized from 16x12 to 16x16, the network's input"
    assert quick(epochs=2).fit(squares(96)[0][:20]).model_.config.image == (1, 64, 64)
    assert quick(epochs=2, image_size=20).fit(X).model_.config.image == (1, 20, 20)


@pytest.mark.parametrize("kind", ["images", "table"])
def test_a_loaded_model_equals_the_saved_one(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    model: TCC = request.getfixturevalue(f"of_{kind}")
    X: Any = squares()[0] if kind == "images" else mixed_table()[0]
    path = tmp_path / "model.safetensors"
    model.save(path)
    loaded: Any = load(path)
    assert type(loaded) is TCC
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.transform(X[:5]), model.transform(X[:5]))
    np.testing.assert_array_equal(loaded.cluster_centers_, model.cluster_centers_)
    assert (loaded.history_, loaded.notes_) == (model.history_, model.notes_)
    assert loaded.get_params() == model.get_params()
    weights = sum(value.numel() for value in model.model_.parameters())
    assert path.stat().st_size < 4 * weights + 40_000  # without queues


@pytest.mark.usefixtures("untouched_random_state")
def test_the_same_seed_gives_the_same_weights() -> None:
    X, _ = squares()
    first, second = (quick(epochs=6).fit(X).model_.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = quick(epochs=6, random_state=1).fit(X).model_.state_dict()
    assert not torch.equal(first["online.prototypes"], other["online.prototypes"])


def stop_at(step: int) -> Callback:
    def stop(progress: Progress) -> None:
        if progress.step == step:
            raise KeyboardInterrupt

    return stop


@pytest.mark.parametrize("step", [17, 24, 33])
def test_an_interrupted_run_is_resumed(step: int, of_images: TCC, tmp_path: Path) -> None:
    X, _ = squares()
    with pytest.raises(KeyboardInterrupt):
        quick(folder=tmp_path, callback=stop_at(step)).fit(X)
    progress: list[Progress] = []
    resumed = quick(folder=tmp_path, callback=progress.append).fit(X)
    expected = of_images.model_.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.model_.state_dict().items())
    assert resumed.history_ == of_images.history_
    assert (progress[-1].step, progress[-1].steps) == (40, 40)
    assert 0 < len(progress) <= 40 - step + 2
    finished = quick(folder=tmp_path).fit(X)
    np.testing.assert_array_equal(finished.labels_, of_images.labels_)
    assert finished.history_ == of_images.history_


def test_a_folder_is_not_used_for_another_run(tmp_path: Path) -> None:
    X, _ = squares()
    quick(folder=tmp_path, epochs=2).fit(X)
    with pytest.raises(TrainingError, match="rows"):
        quick(folder=tmp_path, epochs=2).fit(X[::-1].copy())
    with pytest.raises(TrainingError, match=r"schedule\.steps, seed"):
        quick(folder=tmp_path, random_state=1, epochs=9).fit(X)


def test_a_collapse_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, _ = squares()

    def opposite(embeddings: Tensor, n_clusters: int, _: Any) -> Tensor:
        mean = embeddings.mean(dim=0)
        return torch.stack([mean, *[-mean] * (n_clusters - 1)])

    monkeypatch.setattr("coterie.tcc.schedule._k_means_centres", opposite)
    model = quick(learning_rate=1e-9).fit(X)
    assert model.history_["empty_clusters"][-1] == 2
    assert model.history_["imbalance"][-1] > 0.5
    assert (model.notes_[-1], model.n_clusters_) == ("the clusters collapsed: 2 of 3 are empty", 1)
    assert_consistent(model, X, 60)
    model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(TCC.load(tmp_path / "model.safetensors").predict(X), model.labels_)


def test_clusters_of_equal_size_keep_their_centers(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = squares()
    memberships = TccModel.memberships
    halves = torch.eye(2)[torch.arange(60) % 2]
    monkeypatch.setattr(TccModel, "memberships", lambda self, x: halves if len(x) == 60 else memberships(self, x))
    model = quick(2, epochs=1).fit(X)
    for k in range(2):
        mean = X[model.labels_ == k].mean(axis=0).ravel()
        np.testing.assert_allclose(model.cluster_centers_[k], mean, rtol=1e-3)


def test_automatic_epochs_bound_the_steps() -> None:
    X, _ = squares()
    steps: list[int | None] = []

    def stop(progress: Progress) -> None:
        steps.append(progress.steps)
        raise KeyboardInterrupt

    for rows, batch_size in ((X, 60), (X, 6), (X.reshape(60, -1), 60), (X.reshape(60, -1), 10), (X.reshape(60, -1), 1)):
        with pytest.raises(KeyboardInterrupt):
            quick(epochs="auto", batch_size=batch_size, callback=stop).fit(rows)
    assert steps == [300, 600, 300, 600, 3000]


@pytest.mark.parametrize("warm_up", [0.0, 0.4, 1.0])
def test_progress_covers_all_stages(warm_up: float, capsys: pytest.CaptureFixture[str]) -> None:
    progress: list[Progress] = []
    model = quick(epochs=10, warm_up=warm_up, callback=progress.append, verbose=True).fit(squares()[0])
    assert [(each.step, each.steps) for each in progress] == [(step, 10) for step in range(1, 11)]
    assert all(each.seconds_left is not None and each.seconds_left >= 0 for each in progress)
    assert capsys.readouterr().err.startswith("TCC: 10%, step 1 of 10")
    assert len(model.history_["loss"]) == 10


def test_former_parameters_and_attributes_still_work() -> None:
    former: dict[str, Any] = {"beginnings": 2, "settings": {"width": 16, "memory": 8}}
    with pytest.warns(FutureWarning, match="was renamed to restarts"):
        model = quick(epochs=2, **former)
    model.fit(squares()[0])
    assert (model.restarts, model.model_.config.embedding_dim) == (2, 16)
    with pytest.warns(FutureWarning, match="prototypes_"):
        assert model.prototypes_.shape == (model.n_clusters_, 256)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"n_clusters": 61}, InputError, "n_clusters=61 is more than n_samples=60"),
        ({"n_clusters": "auto"}, InputError, "n_clusters='auto': TCC cannot find the number of clusters"),
        ({"n_clusters": 0}, InputError, "n_clusters=0"),
        ({"epochs": 0}, InputError, "epochs=0"),
        ({"warm_up": 1.5}, InputError, "warm_up=1.5"),
        ({"restarts": 0}, InputError, "restarts=0"),
        ({"image_size": 0}, InputError, "image_size=0"),
        ({"augmentations": {}}, InputError, "augmentations={}"),
        ({"folder": "run", "random_state": None}, InputError, "random_state=None must be an integer"),
        ({"settings": {"tempreature": 1.0}}, ConfigError, "tempreature"),
        ({"settings": {"n_clusters": 4}}, InputError, "settings has n_clusters"),
        ({"settings": {"in_batch_negatives": False}}, InputError, "there are no negatives"),
        ({"encoder": "vgg"}, ConfigError, "too small"),
    ],
)
def test_invalid_parameters_raise_an_error(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quick(**settings).fit(squares()[0])


def test_invalid_input_raises_an_error(of_images: TCC) -> None:
    empty: Any = DataLoader(torch.zeros(0, 1, 16, 16))  # type: ignore[arg-type]  # a tensor is a data set
    with pytest.raises(InputError, match="The DataLoader is empty"):
        quick().fit(empty)
    named: Any = DataLoader([{"image": torch.zeros(1, 16, 16)}])  # type: ignore[arg-type]  # so is a list
    with pytest.raises(InputError, match="The DataLoader yields dict"):
        quick().fit(named)
    with pytest.raises(InputError, match=r"shape \(8, 32, 1\).*fitted on images of shape \(16, 16, 1\)"):
        of_images.predict(squares()[0].reshape(60, 8, 32))
    with pytest.raises(InputError, match="too large without scaling"):
        quick(scaling="none").fit(1e9 * np.eye(4))


def test_faithful_is_the_published_configuration() -> None:
    model = TCC.faithful(10, epochs=3, settings={"queue_size": 8})
    assert model.settings == {**PUBLISHED, "queue_size": 8}
    assert (model.epochs, model.warm_up, model.encoder, model.channels) == (3, 0.0, "resnet34", 64)
    recipe = tcc_from_recipe(RECIPE)
    for name, value in TCC.faithful(10).get_params().items():
        if name not in {"image_size", "folder", "random_state"}:
            assert getattr(recipe, name) == value, name
    from_data = {"n_features", "n_clusters", "image", "encoder", "channels"}
    assert set(PUBLISHED) == {field.name for field in fields(TccConfig)} - from_data  # nothing is left to defaults


def test_the_published_recipe_trains_a_residual_network(trained: list[TccModel]) -> None:
    """For two steps on ten images."""
    progress: list[Progress] = []
    model = tcc_from_recipe(RECIPE, epochs=1, batch_size=5, folder=None, callback=progress.append)
    model.fit(np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8))
    assert [(each.step, each.steps) for each in progress] == [(1, 2), (2, 2)]
    assert all(each.loss is not None and math.isfinite(each.loss) for each in progress)
    assert PUBLISHED.items() <= to_dict(trained[0].config).items()
    convolutions = [layer for layer in trained[0].network.encoder.modules() if isinstance(layer, nn.Conv2d)]
    assert all(layer.bias is None for layer in convolutions)
    widths = [layer.out_channels for layer in convolutions if layer.kernel_size == (3, 3)]
    assert widths == [64] * 7 + [128] * 8 + [256] * 12 + [512] * 6
    assert [type(layer) for layer in trained[0].network.projection_head] == [nn.Linear]


SMALL_RECIPE = """\
name = "small"
summary = "For tests only."
seed = 3

[parameters]
n_clusters = 2
epochs = 3
folder = "small.run"

[settings]
embedding_dim = 16

[augmentations]
min_crop_area = 0.5
"""


@pytest.fixture
def small_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe outside the working directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "small.toml"
    path.write_text(SMALL_RECIPE)
    return path


def test_a_recipe_is_equivalent_to_parameters(small_recipe: Path) -> None:
    X, _ = make_blobs(30, centers=2, n_features=4, random_state=0)
    fitted = tcc_from_options(recipe=small_recipe).fit(X)
    augmentations = Augmentations(min_crop_area=0.5)
    same = TCC(2, epochs=3, settings={"embedding_dim": 16}, augmentations=augmentations, random_state=3).fit(X)
    np.testing.assert_array_equal(fitted.probabilities_, same.probabilities_)
    assert Path("small.run").is_dir()
    changed = tcc_from_recipe(str(small_recipe), n_clusters=4, random_state=1, folder=None)
    assert (changed.n_clusters, changed.epochs, changed.random_state, changed.folder) == (4, 3, 1, None)
    small_recipe.write_text(SMALL_RECIPE.partition("[settings]")[0])
    assert (tcc_from_recipe(small_recipe).augmentations, tcc_from_recipe(small_recipe).settings) == (None, {})
    assert tcc_from_options(n_clusters=2).random_state == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "small"\n', "", "name"),
        ("seed = 3", "sead = 3", "sead"),
        ("seed = 3", "seed = -3", "seed = -3 must be at least 0"),
        ("[parameters]", "[parametres]", "parametres"),
        ("[parameters]", "[model]", r"it has \[model\] and no \[parameters\], so it is a recipe for weights"),
        ("n_clusters = 2\n", "", r"\[parameters\] lacks n_clusters"),
        ("epochs = 3", "epoch = 3", r"\[parameters\] has the unknown key epoch"),
        ("epochs = 3", "epochs = 3.5", "epochs=3.5 must be an integer"),
        ("epochs = 3", 'encoder = "vit"', "encoder='vit' must be one of"),
        ("epochs = 3", "random_state = 3", "unknown key random_state"),
        ('folder = "small.run"', "folder = 3", "folder=3 must be"),
        ("embedding_dim = 16", "embeding_dim = 16", "embeding_dim"),
        ("embedding_dim = 16", "embedding_dim = 'wide'", "embedding_dim"),
        ("embedding_dim = 16", "momentum = 2", "momentum=2 must be a finite number between 0.0 and 1.0"),
        ("embedding_dim = 16", "channels = 8", r"\[settings\] has channels, which \[parameters\] or the images"),
        ("min_crop_area = 0.5", "max_crop_area = 0.5", "max_crop_area"),
        ("min_crop_area = 0.5", "min_crop_area = 0", "min_crop_area=0 must be"),
    ],
)
def test_errors_in_a_recipe_are_reported(small_recipe: Path, old: str, new: str, message: str) -> None:
    assert SMALL_RECIPE.count(old) == 1
    small_recipe.write_text(SMALL_RECIPE.replace(old, new))
    with pytest.raises(ConfigError, match=rf"Recipe '.*small\.toml': .*{message}"):
        tcc_from_recipe(small_recipe)


def test_other_files_raise_an_error(small_recipe: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.toml"):
        tcc_from_recipe("absent.toml")
    for data in (b"name = ", b"\xff\xfe"):
        small_recipe.write_bytes(data)
        with pytest.raises(ConfigError, match=r"small\.toml' is not a TOML file"):
            tcc_from_recipe(small_recipe)
