"""The command on images: in a folder, and in arrays."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from coterie import TCC
from tests.cli.conftest import Command, read_rows, stop_fit

_QUICK = ("--effort", "fast", "-k", "2")
RECIPE = """\
name = "small"
summary = "For tests."
seed = 3

[parameters]
n_clusters = 2
epochs = 3
batch_size = 8
channels = 4
folder = "small.run"

[settings]
width = 16
hidden = 16

[augmentations]
min_crop_area = 0.9
"""


def half_images(n: int = 24, side: int = 8) -> NDArray[np.uint8]:
    """Return images with a bright half: every third on the left, the others at the bottom."""
    X = np.random.default_rng(0).integers(0, 60, (n, side, side), dtype=np.uint8)
    for i in range(n):
        half = (slice(None), slice(side // 2)) if i % 3 == 0 else (slice(side // 2), slice(None))
        X[i][half] += 180
    return X


def write_images(folder: str, images: NDArray[np.uint8]) -> None:
    for i, image in enumerate(images):
        path = Path(folder, "left" if i % 3 == 0 else "top", f"{i:03d}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


@pytest.fixture(autouse=True)
def photos() -> None:
    """Write a folder of images."""
    write_images("photos", half_images())


def test_folder_to_rows_and_report(command: Command) -> None:
    outcome = command("cluster", "photos", *_QUICK, "--truth", "folder", "-o", "out.csv", "--report", "page.html")
    assert "ARI 1.000" in outcome.out
    assert "distinguishing features" not in outcome.out
    table = read_rows("out.csv")
    assert list(table[0]) == ["file", "cluster", "membership"]
    assert [row["file"] for row in table][:2] == ["left/000.png", "left/003.png"]
    assert {row["cluster"] for row in table if row["file"].startswith("top")} == {"0"}
    page = Path("page.html").read_text()
    assert "Clusters of photos" in page
    assert "24 images in 2 clusters" in page
    assert 'title="image left/' in page
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "page.html", "photos"]
    assert all(path.is_dir() or path.suffix == ".png" for path in Path("photos").rglob("*"))


def test_predict_resizes_other_images(command: Command) -> None:
    command("cluster", "photos", *_QUICK, "--save", "m.safetensors", "-o", "fitted.csv", "-q")
    command("predict", "m.safetensors", "photos", "-o", "again.csv")
    assert Path("again.csv").read_bytes() == Path("fitted.csv").read_bytes()
    larger = np.repeat(half_images(6).repeat(3, axis=1).repeat(3, axis=2)[..., None], 3, axis=3)
    larger[..., 2] = 40
    write_images("others", larger)
    outcome = command("predict", "m.safetensors", "others", "-o", "others.csv")
    assert "resized to 8x8" in outcome.err
    assert "converted to grey" in outcome.err
    assert [row["cluster"] for row in read_rows("others.csv")] == ["1", "1", "0", "0", "0", "0"]


def test_sizes_of_images_and_other_methods(command: Command) -> None:
    outcome = command("cluster", "photos", *_QUICK, "--image-size", "4x6", "--json")
    found = json.loads(outcome.out)
    assert (found["source"], found["n_rows"]) == ("photos", 24)
    assert any("resized to 4x6" in note for note in found["notes"])
    command("cluster", "photos", "--method", "clam", "-k", "2", "--truth", "folder", "-q", "-o", "out.csv")
    assert len(read_rows("out.csv")) == 24


def test_append_excludes_the_pixels(command: Command) -> None:
    np.savez("set.npz", images=half_images(), y=np.arange(24))
    np.savez("bare.npz", images=half_images())
    for source, names in (("photos", ["file", "folder"]), ("set.npz", ["y"]), ("bare.npz", ["row"])):
        command("cluster", source, *_QUICK, "-o", "out.csv", "--append", "-q", "--force")
        assert list(read_rows("out.csv")[0]) == [*names, "cluster", "membership"]


def test_tcc_trains_on_the_images(command: Command) -> None:
    options = ("--method", "tcc", "-k", "2", "--truth", "folder")
    outcome = command("cluster", "photos", *options, "-o", "f.csv", "--report", "p.html", "--save", "m.safetensors")
    assert "ARI" in outcome.out
    assert "silhouette" not in outcome.out
    page = Path("p.html").read_text()
    assert "placed by t-SNE, which compares the embeddings" in page
    assert "</b> by epoch.</figcaption>" in page
    assert "No silhouette: it would compare pixels" in page
    command("predict", "m.safetensors", "photos", "-o", "again.csv", "-q")
    assert Path("again.csv").read_bytes() == Path("f.csv").read_bytes()


def test_tcc_takes_tables(command: Command) -> None:
    Path("table.csv").write_text("a,b\n" + "".join(f"{i % 2 * 9},{i % 2 * 9 + i % 3 * 0.1}\n" for i in range(20)))
    options = ("--method", "tcc", "-k", "2", "--scaling", "robust")
    outcome = command("cluster", "table.csv", *options, "--save", "m.safetensors", "-o", "f.csv")
    assert "silhouette" in outcome.out
    command("predict", "m.safetensors", "table.csv", "-o", "again.csv", "-q")
    assert Path("again.csv").read_bytes() == Path("f.csv").read_bytes()


def test_tcc_with_a_recipe_resumes_its_run(command: Command) -> None:
    Path("small.toml").write_text(RECIPE)
    arguments = ("cluster", "photos", "--method", "tcc", "--recipe", "small.toml")
    outcome = command(*arguments, "--truth", "folder", "-o", "f.csv", "--report", "p.html")
    assert "ARI" in outcome.out
    assert len(read_rows("f.csv")) == 24
    log = Path("small.run", "clusters-3", "log.jsonl").read_bytes()
    command(*arguments, "-o", "again.csv", "-q")
    assert Path("again.csv").read_bytes() == Path("f.csv").read_bytes()
    assert Path("small.run", "clusters-3", "log.jsonl").read_bytes() == log
    other = command(*arguments, "--seed", "4", code=2)
    assert "'small.run'" in other.err
    assert "seed" in other.err


@pytest.mark.parametrize(
    ("arguments", "changes"),
    [
        ([], {}),
        (["-k", "auto"], {}),
        (["-k", "4", "--scaling", "robust"], {"n_clusters": 4, "scaling": "robust"}),
        (["--seed", "0"], {"random_state": 0}),
    ],
    ids=" ".join,
)
def test_options_override_the_recipe(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], changes: dict[str, object]
) -> None:
    fitted = stop_fit(monkeypatch, TCC)
    Path("small.toml").write_text(RECIPE)
    command("cluster", "photos", "--method", "tcc", "--recipe", "small.toml", *arguments, code=130)
    expected = {"n_clusters": 2, "epochs": 3, "channels": 4, "random_state": 3, "scaling": "standard"} | changes
    assert expected.items() <= fitted[0].get_params().items()
    assert fitted[0].callback is not None


def test_arrays_of_colour_images(command: Command) -> None:
    np.savez("set.npz", images=np.repeat(half_images()[..., None], 3, axis=3), y=np.arange(24) % 3 == 0)
    outcome = command("cluster", "set.npz", *_QUICK, "--truth", "y", "--report", "page.html")
    assert "ARI 1.000" in outcome.out
    page = Path("page.html").read_text()
    assert 'title="image 1' in page
    assert "in colour" in page


def test_current_folder_has_a_name(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("photos")
    assert command("cluster", ".", *_QUICK).out.startswith("photos:")


def test_without_pillow_the_extra_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert "pip install 'coterie[images]'" in command("cluster", "photos", code=2).err
