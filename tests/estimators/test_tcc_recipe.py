"""TCC from a file: the published run, and what is wrong in other files."""

import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from torch import Tensor, nn

from coterie import TCC
from coterie.errors import ConfigError, InputError
from coterie.nn.vision import Block
from coterie.progress import Progress
from coterie.tcc.augmentations import Views
from coterie.tcc.estimator import OF_THE_NETWORK, tcc_from_recipe
from coterie.tcc.model import TccConfig, TccModel

PUBLISHED = Path(__file__).parents[2] / "recipes" / "tcc-cifar10.toml"
SMALL = """\
name = "small"
summary = "Too small for anything but tests."
seed = 3

[parameters]
n_clusters = 2
epochs = 3
folder = "small.run"

[settings]
width = 16

[views]
smallest = 0.5
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe in a folder that is not the current one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_the_published_run_is_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of it, on ten images."""
    trained: list[TccModel] = []
    numbered = TccModel.numbered

    def noted(self: TccModel, labels: Tensor) -> TccModel:
        trained.append(self)
        return numbered(self, labels)

    monkeypatch.setattr(TccModel, "numbered", noted)
    heard: list[Progress] = []
    model = tcc_from_recipe(PUBLISHED, epochs=1, batch_size=5, folder=None, on_progress=heard.append)
    model.fit(np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8))
    assert [(progress.step, progress.steps) for progress in heard] == [(1, 2), (2, 2)]
    assert all(math.isfinite(progress.loss) and {"instance", "cluster"} <= set(progress.parts) for progress in heard)
    assert trained[0].config == TccConfig.faithful(3072, 10, (3, 32, 32))
    layers = list(trained[0].tower.encoder.modules())
    widths = [layer.way[3].out_channels for layer in layers if isinstance(layer, Block)]
    assert widths == [64] * 3 + [128] * 4 + [256] * 6 + [512] * 3
    # All but those that only shrink what goes around a block; with the projection, they are 34 layers.
    assert sum(isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) for layer in layers) == 33
    assert [type(layer) for layer in trained[0].tower.projection] == [nn.Linear]


def test_the_published_run_leaves_nothing_to_defaults() -> None:
    model = tcc_from_recipe(PUBLISHED)
    assert set(model.settings or {}) == {field.name for field in fields(TccConfig)} - set(OF_THE_NETWORK)
    assert model.views == Views(
        smallest=0.2, mirrored=True, brightness=0.4, contrast=0.4, saturation=0.4, hue=0.4, grey=0.2
    )
    expected = {
        "n_clusters": 10,
        "epochs": 1000,
        "batch_size": 384,
        "learning_rate": 1e-3,
        "warm_up": 0.0,
        "beginnings": 1,
        "encoder": "resnet34",
        "channels": 64,
        "folder": "tcc-cifar10.run",
        "random_state": 0,
    }
    assert expected.items() <= model.get_params().items()


def test_a_recipe_trains_as_its_parameters_would(small: Path) -> None:
    X, _ = make_blobs(30, centers=2, n_features=4, random_state=0)
    made = tcc_from_recipe(small).fit(X)
    same = TCC(2, epochs=3, settings={"width": 16}, views=Views(smallest=0.5), random_state=3).fit(X)
    np.testing.assert_array_equal(made.probabilities_, same.probabilities_)
    assert (Path("small.run") / "recipe.json").is_file()


def test_parameters_can_be_changed(small: Path) -> None:
    model = tcc_from_recipe(str(small), n_clusters=4, random_state=1, folder=None)
    assert (model.n_clusters, model.epochs, model.random_state, model.folder) == (4, 3, 1, None)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "small"\n', "", "TccRecipeFile lacks the setting 'name'"),
        ("seed = 3", "sead = 3", "TccRecipeFile has no setting 'sead'"),
        ("seed = 3", "seed = -3", "seed = -3 must be at least 0"),
        ("[parameters]", "[parametres]", "TccRecipeFile has no setting 'parametres'"),
        (
            "[parameters]",
            "[model]",
            r"it has \[model\] and no \[parameters\], so that it makes weights; use coterie learn",
        ),
        ("n_clusters = 2\n", "", "TCC lacks the setting 'n_clusters'"),
        ("epochs = 3", "epoch = 3", "TCC has no setting 'epoch'; it has: n_clusters, epochs, batch_size"),
        ("epochs = 3", "epochs = 3.5", "TCC cannot have epochs = 3.5; give it a whole number or one of 'auto'"),
        ("epochs = 3", 'encoder = "vit"', "TCC cannot have encoder = 'vit'"),
        ("epochs = 3", "random_state = 3", "TCC has no setting 'random_state'"),
        ('folder = "small.run"', "folder = 3", "TCC cannot have folder = 3; give it a text"),
        ("width = 16", "wdith = 16", "TccConfig has no setting 'wdith'"),
        ("width = 16", "width = 'broad'", "TccConfig cannot have width = 'broad'"),
        ("width = 16", "momentum = 2", "momentum=2 must be from 0 to 1"),
        ("width = 16", "channels = 8", r"\[settings\] has channels, which \[parameters\] or the images say"),
        ("smallest = 0.5", "largest = 0.5", "Views has no setting 'largest'"),
        ("smallest = 0.5", "smallest = 0", "smallest=0 leaves nothing of an image"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_told(small: Path, old: str, new: str, told: str) -> None:
    assert SMALL.count(old) == 1
    small.write_text(SMALL.replace(old, new))
    with pytest.raises(ConfigError, match=rf"Recipe '.*small\.toml': {told}"):
        tcc_from_recipe(small)


def test_files_that_are_no_recipes_are_refused(small: Path) -> None:
    with pytest.raises(InputError, match=r"There is no recipe file 'absent\.toml'"):
        tcc_from_recipe("absent.toml")
    for data in (b"name = ", b"\xff\xfe"):
        small.write_bytes(data)
        with pytest.raises(ConfigError, match=r"small\.toml' is not a TOML file"):
            tcc_from_recipe(small)


def test_sections_may_be_left_to_the_method(small: Path) -> None:
    small.write_text(SMALL.partition("[settings]")[0])
    model = tcc_from_recipe(small)
    assert (model.views, model.settings) == (None, {})
