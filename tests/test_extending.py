"""Methods, candidate algorithms and file formats from outside the package work everywhere without other changes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.__main__ import main
from coterie.judged.candidates.registry import ALGORITHMS, Algorithm, register
from coterie.methods import METHODS, get_method
from coterie.tables import readers
from coterie.tables.readers import FORMATS, Format
from coterie.tables.table import Table

_METHOD = """
from coterie.methods import Method, Option

METHOD = Method(
    name="toy",
    estimator="toy_method.estimator:Toy",
    summary="splits the rows at a quantile of the first column",
    options=(Option("--quantile", "quantile", "where to split", kind=float, metavar="Q", default="0.5"),),
    takes_n_clusters=False,
)
"""
_ESTIMATOR = '''
import numpy as np

from coterie.base import BaseClusterer, FitDescription, ReportSection
from coterie.tables.encoder import TableEncoder
from coterie.validation import FRACTION, Choice


class Toy(BaseClusterer):
    """Splits the rows at a quantile of the first column."""

    method = "toy"
    constraints = {"n_clusters": Choice("auto"), "quantile": FRACTION}

    def __init__(self, n_clusters="auto", *, quantile=0.5, random_state=None, verbose=False, callback=None):
        self.n_clusters = n_clusters
        self.quantile = quantile
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def _fit(self, X):
        table = self._read(X, reset=True)
        self.table_ = TableEncoder("standard").fit(table)
        encoded = self.table_.transform(table)
        self.threshold_ = float(np.quantile(encoded[:, 0], self.quantile))
        self.n_clusters_ = 2
        self.notes_ = (f"split at the quantile {self.quantile}",)
        self.probabilities_ = self._split(encoded)
        self.labels_ = self.probabilities_.argmax(axis=1)

    def _split(self, encoded):
        return np.eye(2, dtype=np.float32)[(encoded[:, 0] > self.threshold_).astype(int)]

    def _predict_proba(self, X):
        return self._split(self.table_.transform(self._read(X, reset=False)))

    def describe_fit(self, table):
        rows = (("threshold", f"{self.threshold_:.2f}"), ("rows", table.n_rows))
        section = ReportSection("Where the split is", ("At a <quantile>.",), ("quantity", "value"), rows)
        return FitDescription(sections=(section,))

    def _to_checkpoint(self):
        return {"threshold": np.array(self.threshold_)}, {"notes": list(self.notes_)}

    def _from_checkpoint(self, arrays, card):
        self.threshold_ = float(arrays["threshold"])
        self.n_clusters_, self.notes_ = 2, tuple(card["notes"])
'''


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray[Any, Any]:
    """Work in a folder that has points.csv, with the numbers from 0 to 9 in its first column."""
    monkeypatch.chdir(tmp_path)
    X = np.column_stack([np.arange(10.0), np.arange(10.0) % 3])
    np.savetxt("points.csv", X, delimiter=",", header="x,y", comments="")
    return X


@pytest.fixture
def toy_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register a method of another package."""
    package = tmp_path / "site" / "toy_method"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_METHOD)
    (package / "estimator.py").write_text(_ESTIMATOR)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setitem(METHODS, "toy", "toy_method")
    yield
    for name in ("toy_method", "toy_method.estimator"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("toy_method")
def test_method(points: np.ndarray[Any, Any], capsys: pytest.CaptureFixture[str]) -> None:
    model = get_method("toy").build_estimator(quantile=0.3).fit(points)
    assert model.labels_.tolist() == [0] * 3 + [1] * 7

    assert main(["cluster", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "toy (splits the rows at a quantile of the first column)" in text
    assert "--quantile Q toy: where to split. [default: 0.5]" in text

    arguments = ["cluster", "points.csv", "--method", "toy", "--quantile", "0.3"]
    assert main([*arguments, "--report", "page.html", "--save", "toy.safetensors", "-o", "rows.csv"]) == 0
    shown = capsys.readouterr()
    assert "points.csv: 10 rows in 2 clusters" in shown.out
    assert "note: split at the quantile 0.3" in shown.err
    page = Path("page.html").read_text()
    section = ("<h2>Where the split is</h2>", "At a &lt;quantile&gt;.", '<th scope="col">quantity</th>', "<td>10</td>")
    assert [part for part in section if part not in page] == []
    assert main(["predict", "toy.safetensors", "points.csv", "-o", "again.csv", "-q"]) == 0
    assert Path("again.csv").read_bytes() == Path("rows.csv").read_bytes()
    assert coterie.load("toy.safetensors").get_params()["quantile"] == 0.3


@pytest.mark.usefixtures("toy_method", "points")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "toy", "--quantile", "2"], "quantile=2.0 must be a finite number between 0.0 and 1.0."),
        (["--method", "toy", "-k", "3"], "-k 3 cannot be used with the method toy, which finds the number of clusters"),
        (["--method", "toy", "--effort", "fast"], "--effort is not an option of the method toy, but of coterie."),
        (["--method", "clam", "--quantile", "0.1"], "--quantile is not an option of the method clam, but of toy."),
    ],
)
def test_method_options_are_checked(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["cluster", "points.csv", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("toy_method", "points")
def test_an_option_must_not_hide_one_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site" / "toy_method" / "__init__.py").write_text(_METHOD.replace("--quantile", "--seed"))
    assert main(["cluster", "--help"]) == 2
    assert "toy: --seed is an option of the command already; choose another flag." in capsys.readouterr().err


@pytest.fixture
def no_algorithms() -> Iterator[None]:
    """Remove all candidate algorithms, and restore them in their order, which decides on results."""
    shipped = dict(ALGORITHMS)
    ALGORITHMS.clear()
    yield
    ALGORITHMS.clear()
    ALGORITHMS.update(shipped)


@pytest.mark.usefixtures("points", "no_algorithms")
def test_candidate_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    def halves(geometry: Any, ks: Any) -> Iterator[Any]:
        if 2 in ks:
            yield (geometry.rows[:, 0] > np.median(geometry.rows[:, 0])).astype(np.int64)

    register(Algorithm("halves", halves))
    assert main(["cluster", "points.csv", "--columns", "x", "--json", "--report", "page.html"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"] == [5, 5]
    page = Path("page.html").read_text()
    assert '<i class="mark family-other"></i>halves' in page
    assert "halves" in " ".join(found["notes"])


def test_file_format(
    points: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(path: Path) -> Table:
        return Table(("x", "y"), block=np.array(json.loads(path.read_text())))

    def write(names: Any, columns: Any) -> bytes:
        return json.dumps({name: column.tolist() for name, column in zip(names, columns, strict=True)}).encode()

    monkeypatch.setattr(readers, "FORMATS", [*FORMATS, Format("JSON", (".json",), read, write=write)])
    assert main(["cluster", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert ".mat, .json), folder of images" in text
    assert "Write cluster and membership of each row (.csv, .tsv, .parquet, .json)" in text
    Path("points.json").write_text(json.dumps(points.tolist()))
    assert main(["cluster", "points.json", "-k", "2", "-o", "rows.json", "--append", "-q"]) == 0
    rows = json.loads(Path("rows.json").read_text())
    assert list(rows) == ["x", "y", "cluster", "membership"]
    assert rows["x"] == list(range(10))
