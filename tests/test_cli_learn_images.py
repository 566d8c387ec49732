"""``coterie learn FOLDER``: images that are sorted already."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coterie.__main__ import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten classes of four images each: bars at different places."""
    folder = tmp_path_factory.mktemp("images") / "bars"
    rng = np.random.default_rng(0)
    for one in range(10):
        (folder / f"class {one}").mkdir(parents=True)
        for number in range(4):
            image = rng.integers(0, 30, (20, 20), dtype=np.uint8)
            image[2 * one : 2 * one + 2] = 255
            Image.fromarray(image).save(folder / f"class {one}" / f"{number}.png")
    return folder


def test_a_network_is_learned_and_sorts_another_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["learn", str(folder), "-o", "bars.safetensors", "--steps", "2", "--weights", "none"]) == 0
    shown = capsys.readouterr()
    assert "on images of 2 of the 10 classes, which were held out: adjusted Rand index" in shown.out
    assert "coterie cluster FOLDER --method attention-based --weights bars.safetensors" in shown.err
    assert main(["cluster", str(folder), "--method", "attention-based", "--weights", "bars.safetensors"]) == 0
    assert "bars: 40 images in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "a", "--truth", "b"], "--set, --truth are for tables"),
        (["--method", "dac"], "--method dac does not learn from folders of images"),
        (["--steps", "0"], "--steps must be at least 1"),
        ([], "add -o MODEL.safetensors"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", str(folder), *options]) == 2
    assert message in capsys.readouterr().err
