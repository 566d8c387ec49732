"""Invalid input: each kind gives exit code 2 and one line that says what to do, and changes no file."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from coterie.__main__ import main
from tests.cli.conftest import Command
from tests.cli.test_images import RECIPE as TCC_RECIPE
from tests.cli.test_images import write_images
from tests.cli.test_learn import LEARN, RECIPE, drawings, save_weights

_HEADER = "person,height,group"
_FILES: dict[str, bytes] = {
    "people.csv": (_HEADER + "\n1,180,tall\n2,182,tall\n3,160,small\n4,161,small\n5,163,small\n").encode(),
    "empty.csv": b"",
    "header.csv": _HEADER.encode() + b"\n",
    "ragged.csv": b"a,b\n1,2\n3,4,5\n",
    "texts.csv": b"name\n" + b"".join(b"someone %d\n" % i for i in range(60)),
    "missing.csv": b"a,b\nNA,NA\nNA,\n",
    "binary.csv": bytes(range(256)) * 4,
    "binary.parquet": b"\0\1garbage",
    "binary.npz": b"\0\1garbage",
    "quote.csv": b'a,b\n"1,2\n',
    "table.xyz": b"a,b\n1,2\n",
    "few.csv": b"a,b\n1,2\n3,4\n5,9\n",
    "no_truth.csv": b"a,b,t\n1,2,\n3,4,\n5,9,\n",
    "exists.csv": b"mine",
    "exists.safetensors": b"",
    "texts_for_numbers.csv": b"a,b\nred,1\nblue,2\n",
    "garbage.safetensors": b"garbage",
    "labelled.csv": drawings().encode(),
    "one.csv": b"drawing,x,y,stroke\na,1,2,p\na,2,3,q\n",
    "ids.csv": b"drawing,x,y,stroke\n1,1,2,p\n2,2,3,q\n3,2,4,q\n",
    "same.csv": b"drawing,x,y,stroke\na,1,2,p\na,2,3,p\nb,2,4,q\nb,3,5,q\n",
    "gaps.csv": b"drawing,x,y,stroke\n,1,2,p\na,2,3,\n,2,4,q\n",
    "void.csv": b"drawing,x,y,stroke\na,1,2,p\na,2,2,q\nb,,,q\nb,,,p\n",
    "toy.toml": RECIPE.encode(),
    "tcc.toml": TCC_RECIPE.encode(),
    "wrong_tcc.toml": TCC_RECIPE.replace("epochs", "epoch").encode(),
    "texts/a.txt": b"no image",
    "damaged/b.png": b"no image",
    "other/recipe.json": b'{"seed": 1}',
}
_RECIPE_CHANGES = {
    "syntax.toml": ("steps = 6", "steps ="),
    "type.toml": ("steps = 6", "steps = 'six'"),
    "key.toml": ("seed = 3", "sead = 3"),
    "method.toml": ('"dac"', '"magic"'),
    "features.toml": ("n_features = 2", "n_features = 3"),
    "start.toml": ("seed = 3", "seed = 3\nstart = 'zebra'"),
}

_INPUT = [
    (["absent.csv"], "There is no file 'absent.csv'"),
    (["folder"], "'folder'"),
    (["empty.csv"], "is empty"),
    (["header.csv"], "header.csv"),
    (["ragged.csv"], "line 3 has 3 cells"),
    (["quote.csv"], "quote"),
    (["texts.csv"], "No column of texts.csv can form clusters"),
    (["missing.csv", "--header"], "missing"),
    (["binary.csv"], "binary data"),
    (["binary.parquet"], "binary.parquet"),
    (["binary.npz"], "binary.npz"),
    (["cells.mat"], "cells.mat"),
    (["table.xyz"], "ending"),
    (["-"], "standard input is empty"),
    (["example:beer"], "'wine'"),
    (["people.csv", "--columns", "hieght"], "Did you mean 'height'"),
    (["people.csv", "--id", "nobody"], "'nobody'"),
    (["people.csv", "--truth", "grp"], "Did you mean 'group'"),
    (["people.csv", "--drop", _HEADER], "is left to cluster"),
    (["no_truth.csv", "--truth", "t"], "Column 't', given by --truth, has no values"),
    (["people.csv", "--delimiter", "::"], "one character"),
    (["texts"], "a.txt has a header and no rows"),
    (["damaged"], "'b.png'"),
    (["photos/left/000.png"], "folder"),
    (["photos", "--truth", "class"], "'folder'"),
    (["photos", "--image-size", "8"], "--image-size '8' is not a size. Give height x width, such as 28x28"),
    (["photos", "--image-size", "0x8"], "--image-size '0x8' is not a size"),
    (["people.csv", "--image-size", "8x8"], "--image-size is for folders of images"),
]
_OPTIONS = [
    (["people.csv", "-k", "0"], "-k 0 must be an integer of at least 1, or auto"),
    (["people.csv", "-k", "-3"], "-k -3 must be"),
    (["people.csv", "-k", "many"], "-k many must be"),
    (["people.csv", "-k", "2.5"], "-k 2.5 must be"),
    (["few.csv", "-k", "4"], "-k 4 is more than the 3 rows of few.csv"),
    (["few.csv", "--method", "magic"], "There is no method 'magic'. Choose one of: coterie, clam, dac"),
    (["few.csv", "--method", "clam", "--scaling", "huge"], "--scaling huge is not known. Choose one of: robust"),
    (["absent.csv", "--effort", "huge"], "--effort huge is not known. Choose one of: fast, balanced"),
    (["absent.csv", "--effort", "thorough"], "--effort thorough is not known. Choose one of: fast, balanced"),
    (["absent.csv", "--granularity", "nan"], "--granularity nan must be a finite number"),
    (["absent.csv", "--granularity", "fine"], "--granularity"),
    (["absent.csv", "--weight", "age"], "--weight age must be a column and a number, such as age=0.5"),
    (["absent.csv", "--weight", "=2"], "--weight =2 must be a column and a number"),
    (["absent.csv", "--weight", "plan=much"], "--weight plan=much must be a column and a number, such as plan=0.5"),
    (["absent.csv", "--weight", "plan=-1"], "--weight plan=-1.0 must be a finite number of at least 0"),
    (["absent.csv", "--weight", "plan=nan"], "--weight plan=nan must be a finite number of at least 0"),
    (["people.csv", "--weight", "hieght=2"], "Did you mean 'height'"),
    (["few.csv", "--method", "dac", "--weight", "a=1"], "--weight is not an option of the method dac, but of"),
    (["absent.csv", "--missing", "drop"], "--missing drop is not known. Choose one of: ignore, indicator"),
    (["absent.csv", "--weights", "w"], "--weights is not an option of the method coterie, but of dac, attention-based"),
    (["absent.csv", "--scaling", "robust"], "choose another method, such as --method clam"),
    (["few.csv", "--method", "clam", "--effort", "fast"], "--effort is not an option of the method clam, but of"),
    (["few.csv", "--method", "dac", "--granularity", "0"], "--granularity is not an option of the method dac"),
    (["few.csv", "--method", "clam", "--noise"], "--noise is not an option of the method clam"),
    (["few.csv", "--method", "clam", "--outliers"], "--outliers is not an option of the method clam"),
    (["absent.csv", "--recipe", "tcc.toml"], "--recipe is not an option of the method coterie, but of tcc"),
    (["few.csv", "--method", "dac", "-k", "3"], "-k 3 cannot be used with the method dac, which finds the number"),
    (["few.csv", "--method", "tcc"], "The method tcc needs the number of clusters. Give it, for example -k 10"),
    (["few.csv", "--method", "tcc", "--recipe", "none.toml"], "'none.toml'"),
    (["people.csv", "--method", "tcc", "--recipe", "wrong_tcc.toml"], "epoch"),
    (["few.csv", "--method", "tcc", "--recipe", "syntax.toml"], "is not a TOML file"),
    (["few.csv", "--encoder", "./absent"], "There is no folder './absent' with weights of an encoder"),
    (["few.csv", "--method", "dac", "--weights", "zebra"], "'zebra'"),
    (["few.csv", "--method", "dac", "--weights", "no.safetensors"], "There is no model file"),
    (["few.csv", "--method", "dac", "--weights", "people.csv"], "'people.csv'"),
    (["few.csv", "--method", "dac", "--weights", "clam.safetensors"], "'clam', not 'dac'"),
    (["people.csv", "--seed", "-1"], "--seed -1 must be between 0 and"),
    (["people.csv", "--seed", "x"], "--seed"),
    (["people.csv", "--image", "2x2"], "--report"),
    (["people.csv", "--report", "p.html", "--image", "2by2"], "28x28"),
    (["people.csv", "--report", "p.html", "--image", "2x2"], "4 pixels"),
    (["photos", "--report", "p.html", "--image", "8x8"], "photos has images already. Leave it out"),
    ([], "FILE"),
    (["people.csv", "--colums", "a"], "--columns"),
]
_OUTPUT = [
    (["-o", "out.xls"], "unknown ending. Use one of: .csv, .tsv, .parquet"),
    (["-o", "out"], "unknown ending"),
    (["--report", "page.pdf"], "Use one of: .html"),
    (["--save", "model.pkl"], "Use one of: .safetensors"),
    (["-o", "exists.csv"], "exists already"),
    (["-o", "folder.csv"], "is a folder"),
    (["-o", "absent/out.csv"], "folder 'absent' does not exist"),
    (["-o", f"{'x' * 240}.csv"], "too long"),
    (["-o", "people.csv", "--force"], "is also the input"),
    (["-o", "link/people.csv", "--force"], "is also the input"),
    (["-o", "pipe.csv"], "not a regular file"),
    (["-o", "-", "--json"], "both"),
    (["--append"], "-o OUT"),
]
_PREDICT = [
    (["absent.safetensors", "people.csv"], "no model file"),
    (["garbage.safetensors", "people.csv"], "damaged"),
    (["damaged.safetensors", "few.csv"], "modified"),
    (["cut.safetensors", "few.csv"], "damaged"),
    (["clam.safetensors", "people.csv"], "'a'"),
    (["clam.safetensors", "texts_for_numbers.csv", "--strict"], "'a': 2 of 2 values are no number"),
    (["clam.safetensors", "few.csv", "-o", "clam.safetensors", "--force"], "unknown ending"),
    (["clam.safetensors", "photos"], "photos has 64 pixels per image, but the model was fitted on 2 columns"),
    (["tiny.safetensors", "people.csv"], "'tiny.safetensors' has weights but no clusters"),
]
_OUT = ("-o", "m.safetensors")
_LEARN_TABLE: list[tuple[Sequence[str], str]] = [
    ([], "Missing output path: pass -o MODEL.safetensors"),
    (["-o", "m.pkl"], "unknown ending"),
    (["-o", "tiny.safetensors"], "exists already"),
    ([*_OUT, "--folder", "people.csv"], "'people.csv'"),
    ([*_OUT, "--method", "clam"], "--method clam does not learn from tables. Choose one of: dac, amcp"),
    ([*_OUT, "--steps", "0"], "--steps 0 must be at least 1"),
    ([*_OUT, "--seed", "-1"], "--seed -1 must be between 0"),
    ([*_OUT, "--weights", "zebra"], "'zebra'"),
    ([*_OUT, "--weights", "clam.safetensors"], "are for the method 'clam', not 'dac'. Give others"),
    ([*_OUT, "--drop", "x"], "expect 2 features, but the data sets have 1. Give others, or none"),
    ([*_OUT, "--set", "drawin"], "Did you mean 'drawing'"),
    ([*_OUT, "--truth", "strike"], "Did you mean 'stroke'"),
    ([*_OUT, "--set", "stroke"], "both name the column 'stroke'"),
    ([*_OUT, "--set", "3", "--truth", "stroke"], "both name the column 'stroke'"),
    ([*_OUT, "--drop", "x,y"], "is left to cluster"),
]
_LEARN: list[tuple[Sequence[str], str]] = [
    (["labelled.csv"], "read as a table of labelled data sets, which needs --set and --truth"),
    (["labelled.csv", "--set", "drawing", *_OUT], "which needs --truth"),
    (["labelled.csv", "--truth", "stroke", *_OUT], "which needs --set"),
    (["absent.csv", *LEARN[2:], *_OUT], "There is no file 'absent.csv'"),
    (["one.csv", *LEARN[2:], *_OUT], "has only one data set, 'a'. At least 2 are needed"),
    (["ids.csv", *LEARN[2:], *_OUT], "Each of the 3 data sets in 'drawing' has one row"),
    (["same.csv", *LEARN[2:], *_OUT], "No data set of same.csv has more than one class"),
    (["gaps.csv", *LEARN[2:], *_OUT], "No row of gaps.csv has values in both"),
    (["void.csv", *LEARN[2:], *_OUT], "data set 'b' of void.csv"),
    (["toy.toml", "--set", "drawing"], "--set cannot be used with a recipe, and 'toy.toml' is one"),
    (["toy.toml", "--seed", "0", "--no-header"], "--header/--no-header, --seed cannot be used with a recipe"),
    (["toy.toml", "--weights", "none", "--columns", "a", "--drop", "b"], "--columns, --drop, --weights cannot"),
    (["absent.toml"], "'absent.toml'"),
    (["toy.toml", "-o", "absent/toy.safetensors"], "folder 'absent' does not exist"),
    (["toy.toml", "-o", "exists.safetensors"], "exists already"),
    (["toy.toml", "--folder", "toy.toml"], "'toy.toml'"),
    (["toy.toml", "--tensorboard", "board"], "pip install 'coterie[board]'"),
    ([], "RECIPE.toml"),
    (["syntax.toml"], "syntax.toml"),
    (["type.toml"], "steps='six' must be"),
    (["key.toml"], "'sead'"),
    (["method.toml"], "'magic'"),
    (["features.toml"], "n_features = 3"),
    (["start.toml"], "'zebra'"),
    (["toy.toml", "--folder", "other"], "'other'"),
    (["tcc.toml"], "--method tcc --recipe"),
    (["photos", "--set", "a", "--truth", "b"], "--set, --truth cannot be used with a folder"),
    (["photos", *_OUT, "--method", "dac"], "--method dac does not learn from images. Choose one of: attention-based"),
    (["photos", *_OUT, "--steps", "0"], "--steps 0 must be at least 1"),
    (["photos"], "Missing output path: pass -o MODEL.safetensors"),
]
_CASES: list[tuple[Sequence[str], str]] = [
    *((["cluster", *arguments], message) for arguments, message in (*_INPUT, *_OPTIONS)),
    *((["cluster", "people.csv", *arguments], message) for arguments, message in _OUTPUT),
    *((["predict", *arguments], message) for arguments, message in _PREDICT),
    *(([*LEARN, *arguments], message) for arguments, message in _LEARN_TABLE),
    *((["learn", *arguments], message) for arguments, message in _LEARN),
    (["clutser", "people.csv"], "cluster"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return a fitted model, damaged copies of it, and untrained weights."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "few.csv").write_bytes(_FILES["few.csv"])
    arguments = ("--method", "clam", "-k", "2", "--save", str(folder / "clam.safetensors"), "--quiet")
    assert main(["cluster", str(folder / "few.csv"), *arguments]) == 0
    save_weights(folder / "tiny.safetensors")
    model = (folder / "clam.safetensors").read_bytes()
    return {
        "clam.safetensors": model,
        "damaged.safetensors": model[:-1] + bytes([model[-1] ^ 0xFF]),
        "cut.safetensors": model[:-40],
        "tiny.safetensors": (folder / "tiny.safetensors").read_bytes(),
    }


@pytest.fixture(autouse=True)
def inputs(models: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Write valid and invalid inputs of every kind."""
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name, data in (_FILES | models).items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    for name, change in _RECIPE_CHANGES.items():
        Path(name).write_text(RECIPE.replace(*change))
    cells = np.empty((4, 2), dtype=object)
    for i in range(8):
        cells.flat[i] = np.arange(3)
    savemat("cells.mat", {"X": cells})
    images = np.random.default_rng(0).integers(0, 255, (3, 8, 8), dtype=np.uint8)
    write_images("photos", images)
    Image.fromarray(images[0]).save("damaged/a.png")
    Path("folder").mkdir()
    Path("folder.csv").mkdir()
    Path("link").symlink_to(".")
    os.mkfifo("pipe.csv")


@pytest.mark.parametrize(
    ("arguments", "message"), _CASES, ids=lambda value: value[:30] if isinstance(value, str) else " ".join(value)[-50:]
)
def test_invalid_input_gives_one_line(command: Command, arguments: Sequence[str], message: str) -> None:
    before = _contents()
    outcome = command(*arguments, code=2)
    assert outcome.out == ""
    assert outcome.err.startswith("coterie: ")
    assert outcome.err.count("\n") == 1
    assert message in outcome.err
    assert _contents() == before


def _contents() -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}
