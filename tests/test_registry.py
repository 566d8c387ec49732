"""Weights that ship: loaded by name, verified, and never changed."""

import tomllib
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
import pytest

from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import WeightsError
from coterie.judged.judge import Judge
from coterie.nn.model import to_tensors
from coterie.pretrained import registry
from coterie.pretrained.registry import load_pretrained, pretrained_card, pretrained_names, read_index
from coterie.recipes import parse_recipe, read_recipe
from recipes.register import index_text, main, register
from tests.conftest import MODELS

_RECIPES = Path(__file__).parents[1] / "recipes"


def checkpoint(folder: Path, name: str = "toy-blobs-v1", value: float = 1.0, method: str = "dac") -> Path:
    path = folder / f"{Path(name).name}.safetensors"
    card = {"name": name, "method": method, "summary": 'For "tests": β.', "recipe": {}}
    save_checkpoint(path, {"weight": np.full(2, value)}, card, force=True)
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Register two names in a temporary package, and work in an empty folder beside it."""
    package, elsewhere = tmp_path / "package", tmp_path / "elsewhere"
    package.mkdir()
    elsewhere.mkdir()
    (package / "pretrained.toml").write_text("")
    register(checkpoint(tmp_path, "toy-rings-v2", 2.0, method="other"), package)
    register(checkpoint(tmp_path), package)
    monkeypatch.setattr(registry, "PACKAGE", package)
    monkeypatch.chdir(elsewhere)
    return package


@pytest.mark.usefixtures("package")
def test_weights_are_loaded_by_name_and_listed_by_method() -> None:
    arrays, card = load_pretrained("toy-blobs-v1")
    np.testing.assert_array_equal(arrays["weight"], np.ones(2))
    assert card == pretrained_card("toy-blobs-v1")
    assert card["summary"] == 'For "tests": β.'
    assert pretrained_names() == ["toy-blobs-v1", "toy-rings-v2"]
    assert (pretrained_names("other"), pretrained_names("unknown")) == (["toy-rings-v2"], [])


@pytest.mark.usefixtures("package")
def test_files_are_loaded_by_path_and_registered_names_take_precedence() -> None:
    path = checkpoint(Path(), "mine", 3.0)
    copy(path, "bare")
    path_like_name = copy(path, Path("toy-blobs-v1"))
    names = ("mine.safetensors", "./mine.safetensors", str(path.resolve()), "bare", "./toy-blobs-v1")
    for given in (*names, path, path_like_name):
        assert float(load_pretrained(given)[0]["weight"][0]) == 3.0
    assert float(load_pretrained("toy-blobs-v1")[0]["weight"][0]) == 1.0


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("path", ["absent.safetensors", "folder/absent", "./absent", "toy-blobs-v1.safetensors"])
def test_missing_files_raise_an_error(path: str) -> None:
    with pytest.raises(WeightsError, match="There is no model file"):
        load_pretrained(path)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("load", [load_pretrained, pretrained_card])
def test_unknown_names_raise_an_error_that_lists_the_known_ones(load: Any) -> None:
    with pytest.raises(WeightsError, match=r"called 'toy-blob-v1'\. Did you mean 'toy-blobs-v1'\? Available: 'toy-b"):
        load("toy-blob-v1")
    with pytest.raises(WeightsError, match=r"called 'zebra'\. Available: 'toy-blobs-v1', 'toy-rings-v2'\."):
        load("zebra")


def test_modified_and_missing_weights_raise_an_error(package: Path, tmp_path: Path) -> None:
    other = checkpoint(tmp_path, value=4.0)  # intact, but not the registered file
    other.replace(package / "toy-blobs-v1.safetensors")
    (package / "toy-rings-v2.safetensors").unlink()
    for load in (load_pretrained, pretrained_card):
        with pytest.raises(WeightsError, match=r"'toy-blobs-v1' were modified: .*Install Coterie again"):
            load("toy-blobs-v1")
        with pytest.raises(WeightsError, match=r"is missing\. Install Coterie again"):
            load("toy-rings-v2")


def test_the_index_is_sorted_and_complete(package: Path) -> None:
    text = (package / "pretrained.toml").read_text(encoding="utf-8")
    assert list(tomllib.loads(text)) == ["toy-blobs-v1", "toy-rings-v2"]
    assert index_text(read_index(package)) == text
    assert sorted(path.name for path in package.rglob("*")) == [
        "pretrained.toml", "toy-blobs-v1.safetensors", "toy-rings-v2.safetensors",
    ]  # fmt: skip


def test_weights_are_registered_once_and_never_replaced(package: Path, tmp_path: Path) -> None:
    before = (package / "pretrained.toml").read_bytes()
    assert register(tmp_path / "toy-blobs-v1.safetensors", package) == "toy-blobs-v1"
    assert (package / "pretrained.toml").read_bytes() == before
    with pytest.raises(WeightsError, match=r"'toy-blobs-v1' is the name of other weights.*next version"):
        register(checkpoint(tmp_path, value=2.0), package)
    assert float(load_pretrained("toy-blobs-v1")[0]["weight"][0]) == 1.0


@pytest.mark.parametrize("name", ["toy", "Toy-v1", "toy-v0", "toy_v1", "../toy-v1", "toy-v1.2"])
def test_names_must_have_a_version(package: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(WeightsError, match=r"must look like 'dac-mog2d-v1'"):
        register(checkpoint(tmp_path, name), package)


def test_cards_must_have_everything_that_the_index_needs(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, {}, {"name": "toy-v1", "method": "dac"}, force=False)
    with pytest.raises(WeightsError, match="has no summary, recipe"):
        register(path, package)


def test_the_shipped_index_is_up_to_date_and_the_script_prints_errors(capsys: pytest.CaptureFixture[str]) -> None:
    text = (registry.PACKAGE / registry.INDEX).read_text(encoding="utf-8")
    assert text == index_text(read_index(registry.PACKAGE))
    shipped = {path.name for path in registry.PACKAGE.glob("*.safetensors")}
    assert shipped == {entry.file for entry in read_index(registry.PACKAGE).values()}
    assert main(["absent.safetensors"]) == 2
    assert "There is no model file 'absent.safetensors'" in capsys.readouterr().err


def test_shipped_weights_load_and_have_a_recipe() -> None:
    recipes = [read_recipe(path) for path in sorted(_RECIPES.glob("*.toml")) if not path.stem.startswith("tcc-")]
    for name, entry in read_index(registry.PACKAGE).items():
        arrays, card = load_pretrained(name)
        assert (card["name"], card["method"], card["summary"]) == (name, entry.method, entry.summary)
        recipe = parse_recipe(card["recipe"], folder=_RECIPES)
        assert recipe in recipes, f"no file in recipes/ trains {name}"
        if entry.method == "judge":  # it has the columns of the version that trained it
            Judge.read(name)
        else:
            MODELS[entry.method](recipe.model).load_state_dict(to_tensors(arrays))
        assert load_checkpoint(registry.PACKAGE / entry.file)[1] == card
