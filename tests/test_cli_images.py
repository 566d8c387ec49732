"""The command on images: in a folder, and in arrays."""

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from coterie import TCC
from coterie.__main__ import main

_QUICK = ("--effort", "fast", "-k", "2")
_RECIPE = """\
name = "small"
summary = "Too small for anything but tests."
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

[views]
smallest = 0.9
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def shapes(n: int = 24, side: int = 8) -> NDArray[np.uint8]:
    """Images with a bright half: every third at the left, the others at the top."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 60, (n, side, side), dtype=np.uint8)
    for i in range(n):
        half = (slice(None), slice(side // 2)) if i % 3 == 0 else (slice(side // 2), slice(None))
        X[i][half] += 180
    return X


def write(folder: Path, images: NDArray[np.uint8]) -> None:
    for i, image in enumerate(images):
        path = folder / ("left" if i % 3 == 0 else "top") / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run the command in a folder that has a folder of images."""
    monkeypatch.chdir(tmp_path)
    write(Path("photos"), shapes())

    def run(*arguments: str) -> Outcome:
        code = main(arguments)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    return run


def rows(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(Path(path).read_text())))


def test_folder_is_clustered_and_shown(command: Command) -> None:
    outcome = command("cluster", "photos", *_QUICK, "--truth", "folder", "-o", "out.csv", "--report", "page.html")
    assert outcome.code == 0, outcome.err
    assert "ARI 1.000" in outcome.out
    assert "what sets it apart" not in outcome.out
    table = rows("out.csv")
    assert list(table[0]) == ["file", "cluster", "membership"]
    assert [row["file"] for row in table][:2] == ["left/000.png", "left/003.png"]
    assert {row["cluster"] for row in table if row["file"].startswith("top")} == {"0"}
    page = Path("page.html").read_text()
    assert "Clusters of photos" in page
    assert "24 images fell into 2 clusters" in page
    assert 'title="image left/' in page
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "page.html", "photos"]
    assert all(path.is_dir() or path.suffix == ".png" for path in Path("photos").rglob("*"))


def test_predict_puts_other_images_where_they_belong(command: Command) -> None:
    fitted = command("cluster", "photos", *_QUICK, "--save", "m.safetensors", "-o", "fitted.csv", "-q")
    assert fitted.code == 0, fitted.err
    assert command("predict", "m.safetensors", "photos", "-o", "again.csv").code == 0
    assert Path("again.csv").read_bytes() == Path("fitted.csv").read_bytes()
    # Larger and in colour: they are brought to what the model knows.
    larger = np.repeat(shapes(6, side=8).repeat(3, axis=1).repeat(3, axis=2)[..., None], 3, axis=3)
    larger[..., 2] = 40
    write(Path("others"), larger)
    outcome = command("predict", "m.safetensors", "others", "-o", "others.csv")
    assert outcome.code == 0, outcome.err
    assert "brought to 8x8" in outcome.err
    assert "taken as grey, as asked for" in outcome.err
    assert [row["cluster"] for row in rows("others.csv")] == ["1", "1", "0", "0", "0", "0"]


def test_image_size_and_json(command: Command) -> None:
    outcome = command("cluster", "photos", *_QUICK, "--image-size", "4x6", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert (found["source"], found["n_rows"]) == ("photos", 24)
    assert "24 of 24 images had 8x8 pixels (height by width), and were brought to 4x6" in found["notes"]


def test_append_leaves_the_pixels_out(command: Command) -> None:
    assert command("cluster", "photos", *_QUICK, "-o", "out.csv", "--append", "-q").code == 0
    assert list(rows("out.csv")[0]) == ["file", "folder", "cluster", "membership"]
    np.savez("set.npz", images=shapes(), y=np.arange(24))
    assert command("cluster", "set.npz", *_QUICK, "-o", "set.csv", "--append", "-q").code == 0
    assert list(rows("set.csv")[0]) == ["y", "cluster", "membership"]
    np.savez("bare.npz", images=shapes())
    assert command("cluster", "bare.npz", *_QUICK, "-o", "bare.csv", "--append", "-q").code == 0
    assert list(rows("bare.csv")[0]) == ["row", "cluster", "membership"]


def test_other_methods_take_images(command: Command) -> None:
    outcome = command("cluster", "photos", "--method", "clam", "-k", "2", "--truth", "folder", "-q", "-o", "out.csv")
    assert outcome.code == 0, outcome.err
    assert len(rows("out.csv")) == 24


def test_tcc_learns_from_the_images(command: Command) -> None:
    asked = ("--method", "tcc", "-k", "2", "--truth", "folder")
    outcome = command("cluster", "photos", *asked, "-o", "f.csv", "--report", "p.html", "--save", "m.safetensors")
    assert outcome.code == 0, outcome.err
    assert "note: the network takes images of 16x16: those of 8x8 are resized" in outcome.err
    assert "ARI" in outcome.out
    assert "silhouette" not in outcome.out
    page = Path("p.html").read_text()
    assert "placed by what the network learned to see in it (t-SNE)" in page
    assert "The numbered rings are at the image nearest to the middle of each cluster." in page
    assert "</b> by epoch.</figcaption>" in page
    assert "There is no silhouette here: it would compare pixels" in page
    assert command("predict", "m.safetensors", "photos", "-o", "again.csv", "-q").code == 0
    assert Path("again.csv").read_bytes() == Path("f.csv").read_bytes()


def test_tcc_takes_tables(command: Command) -> None:
    Path("table.csv").write_text("a,b\n" + "".join(f"{i % 2 * 9},{i % 2 * 9 + i % 3 * 0.1}\n" for i in range(20)))
    asked = ("--method", "tcc", "-k", "2", "--scaling", "robust")
    outcome = command("cluster", "table.csv", *asked, "--save", "m.safetensors", "-o", "f.csv")
    assert outcome.code == 0, outcome.err
    assert "silhouette" in outcome.out
    assert command("predict", "m.safetensors", "table.csv", "-o", "again.csv", "-q").code == 0
    assert Path("again.csv").read_bytes() == Path("f.csv").read_bytes()


def test_tcc_follows_a_recipe_and_goes_on_with_its_run(command: Command) -> None:
    Path("small.toml").write_text(_RECIPE)
    asked = ("cluster", "photos", "--method", "tcc", "--recipe", "small.toml")
    outcome = command(*asked, "--truth", "folder", "-o", "f.csv", "--report", "p.html")
    assert outcome.code == 0, outcome.err
    assert "ARI" in outcome.out
    assert len(rows("f.csv")) == 24
    log = Path("small.run", "clusters-3", "log.jsonl").read_bytes()
    assert command(*asked, "-o", "again.csv", "-q").code == 0
    assert Path("again.csv").read_bytes() == Path("f.csv").read_bytes()
    assert Path("small.run", "clusters-3", "log.jsonl").read_bytes() == log
    other = command(*asked, "--seed", "4")
    assert (other.code, "'small.run' holds another run; they differ in seed" in other.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        ([], {}),
        (["-k", "auto"], {}),
        (["-k", "4", "--scaling", "robust"], {"n_clusters": 4, "scaling": "robust"}),
        (["--seed", "0"], {"random_state": 0}),
    ],
    ids=" ".join,
)
def test_options_go_before_what_the_recipe_says(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], changed: dict[str, object]
) -> None:
    made: list[TCC] = []

    def stop(self: TCC, _: object) -> None:
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(TCC, "fit", stop)
    Path("small.toml").write_text(_RECIPE)
    assert command("cluster", "photos", "--method", "tcc", "--recipe", "small.toml", *arguments).code == 130
    expected = {"n_clusters": 2, "epochs": 3, "channels": 4, "random_state": 3, "scaling": "standard"} | changed
    assert expected.items() <= made[0].get_params().items()
    assert made[0].on_progress is not None


def test_arrays_of_images_are_shown(command: Command) -> None:
    np.savez("set.npz", images=np.repeat(shapes()[..., None], 3, axis=3), y=np.arange(24) % 3 == 0)
    outcome = command("cluster", "set.npz", *_QUICK, "--truth", "y", "--report", "page.html")
    assert outcome.code == 0, outcome.err
    assert "ARI 1.000" in outcome.out
    page = Path("page.html").read_text()
    assert 'title="image 1' in page
    assert "in colour" in page


def test_this_folder_has_a_name(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("photos")
    outcome = command("cluster", ".", *_QUICK)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("photos:")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cluster", "empty"], "'empty' is a folder without images"),
        (["cluster", "texts"], "it has 'a.txt'"),
        (["cluster", "damaged"], "'b.png' in 'damaged' cannot be read as an image"),
        (["cluster", "photos", "--image-size", "8"], "--image-size takes height x width, such as 28x28; got '8'"),
        (["cluster", "photos", "--image-size", "0x8"], "got '0x8'"),
        (["cluster", "table.csv", "--image-size", "8x8"], "--image-size is for a folder of images"),
        (["cluster", "photos", "--report", "p.html", "--image", "8x8"], "photos has images already; leave it out"),
        (["cluster", "photos", "--truth", "class"], "'folder'"),
        (["cluster", "photos/left/000.png"], "name the folder"),
        (["cluster", "photos", "--method", "tcc"], "does not find the number of clusters by itself; give it (-k 10"),
        (
            ["cluster", "photos", "--method", "tcc", "-k", "2", "--weights", "w"],
            "--weights w is not for the method tcc",
        ),
        (["cluster", "photos", "--method", "tcc", "-k", "2", "--outliers"], "only for coterie"),
        (
            ["cluster", "photos", "--recipe", "small.toml"],
            "--recipe small.toml is not for the method coterie, only for",
        ),
        (["cluster", "photos", "--method", "dac", "--recipe", "small.toml"], "leave --recipe out, or say --method tcc"),
        (["cluster", "absent", "--method", "tcc", "--recipe", "none.toml"], "There is no recipe file 'none.toml'"),
        (["cluster", "absent", "--method", "tcc", "--recipe", "wrong.toml"], "TCC has no setting 'epoch'"),
        (["learn", "small.toml"], "Say: coterie cluster FOLDER --method tcc --recipe"),
        (["predict", "m.safetensors", "photos"], "images of 64 pixels, and the model was fitted on 3 columns"),
    ],
)
def test_refusals(command: Command, arguments: list[str], told: str) -> None:
    Path("empty").mkdir()
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("no image")
    Path("damaged").mkdir()
    Image.fromarray(shapes()[0]).save("damaged/a.png")
    Path("damaged/b.png").write_bytes(b"no image")
    Path("table.csv").write_text("a,b,c\n1,2,3\n3,4,1\n9,8,7\n")
    Path("small.toml").write_text(_RECIPE)
    Path("wrong.toml").write_text(_RECIPE.replace("epochs", "epoch"))
    if arguments[0] == "predict":
        assert command("cluster", "table.csv", "-k", "2", "--save", "m.safetensors", "-q").code == 0
    outcome = command(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err
    assert outcome.err.count("\n") == 1


def test_without_pillow_the_extra_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    outcome = command("cluster", "photos")
    assert (outcome.code, "pip install 'coterie[images]'" in outcome.err) == (2, True)
