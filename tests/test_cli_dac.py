"""``coterie cluster --method dac``, and ``coterie learn`` from a table of sorted sets."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score
from torch import Generator

from coterie.__main__ import main
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.estimator import DAC
from coterie.amortized.dac.network import DacModel
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.clam.estimator import ClAM
from coterie.cli import cluster as methods
from coterie.config import to_dict
from coterie.methods import load
from coterie.nn.model import build
from coterie.progress import Progress
from coterie.tables.table import as_table

Command: TypeAlias = Callable[..., tuple[int, str, str]]

_LEARN = ("learn", "sorted.csv", "--set", "drawing", "--truth", "stroke", "--weights", "tiny.safetensors")
_TINY = DacConfig(2, density="gaussian", width=8, heads=2, inducing=2, depth=1, mask_depth=1)


def sorted_sets(n_sets: int = 6, rows: int = 12) -> str:
    """Drawings of two strokes each, as points in the plane."""
    rng = np.random.default_rng(2)
    lines = ["drawing,x,stroke,y"]
    for drawing in range(n_sets):
        for row in range(rows):
            x, y = rng.normal(4.0 * (row % 2), 0.3, size=2) * (drawing + 1)
            lines.append(f"{drawing:03d},{x:.3f},{'ab'[row % 2]},{y:.3f}")
    return "\n".join(lines) + "\n"


def points(rows: int = 40) -> str:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(rows, 2)) * 0.2 + np.where(np.arange(rows) % 2, 5.0, 0.0)[:, None]
    return "x,y\n" + "".join(f"{x:.3f},{y:.3f}\n" for x, y in X)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Run as the console script does, in a folder with a table of each kind, and weights that were never trained."""
    monkeypatch.chdir(tmp_path)
    Path("points.csv").write_text(points())
    Path("sorted.csv").write_text(sorted_sets())
    model = build(DacModel, _TINY, Generator().manual_seed(0))
    card = {"method": "dac", "model": to_dict(_TINY), "scaling": "standard"}
    save_checkpoint("tiny.safetensors", model.state_dict(), card, force=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return code, *capsys.readouterr()

    yield run
    assert [path.name for path in tmp_path.rglob(".*")] == [], "something temporary was left behind"


def cluster(command: Command, *more: str, file: str = "points.csv") -> tuple[int, str, str]:
    return command("cluster", file, "--method", "dac", "--weights", "tiny.safetensors", *more)


def test_clusters_without_a_number(command: Command) -> None:
    code, out, err = cluster(command, "-o", "rows.csv", "--save", "model.safetensors", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    model = DAC("tiny.safetensors", random_state=0).fit(np.loadtxt("points.csv", delimiter=",", skiprows=1))
    assert found["sizes"] == np.bincount(model.labels_).tolist()
    assert "silhouette" in found
    assert command("predict", "model.safetensors", "points.csv", "-o", "again.csv", "-q")[0] == 0
    assert Path("again.csv").read_bytes() == Path("rows.csv").read_bytes()


def test_auto_is_what_dac_does_anyway(command: Command) -> None:
    assert (
        cluster(command, "-k", "auto", "--seed", "3", "-o", "-")[:2] == cluster(command, "--seed", "3", "-o", "-")[:2]
    )


def test_methods_keep_their_own_defaults(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def noted(kind: type[Any]) -> Callable[..., Any]:
        def make(*given: Any, **settings: Any) -> Any:
            made.append(kind(*given, **settings))
            return made[-1]

        return make

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for kind in (ClAM, DAC):
        monkeypatch.setattr(kind, "fit", stop)
        monkeypatch.setattr(methods, kind.__name__, noted(kind))
    for method, *more in (["clam"], ["dac"], ["dac", "--scaling", "none"], ["clam", "--scaling", "standard"]):
        assert command("cluster", "points.csv", "--method", method, *more)[0] == 130
    assert [model.scaling for model in made] == ["robust", "auto", "none", "standard"]
    assert made[1].weights == made[2].weights == DAC().weights


def _halves(model: Any, n_rows: int, n_clusters: int) -> Any:
    model.labels_ = np.arange(n_rows) * n_clusters // n_rows
    model.n_clusters_ = n_clusters
    return model


def test_silhouette_is_of_some_rows_where_there_are_many(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = DAC.fit
    monkeypatch.setattr(DAC, "fit", lambda self, X: _halves(fit(self, X), 40, 2))
    monkeypatch.setattr(methods, "_SILHOUETTE_ROWS", 30)
    found = json.loads(cluster(command, "--json")[1])
    assert -1 < found["silhouette"] < 1
    assert "the silhouette is of 30 of the 40 rows, picked at random" in found["notes"]


@pytest.mark.usefixtures("command")
def test_silhouette_agrees_with_scikit_learn() -> None:
    X = np.loadtxt("points.csv", delimiter=",", skiprows=1)
    table = as_table(X)
    model = _halves(DAC("tiny.safetensors", random_state=0).fit(table), len(X), 2)
    value, notes = methods.silhouette_of(model, table)
    assert value == pytest.approx(silhouette_score(model.table_.transform(table), model.labels_), abs=1e-5)
    assert notes == ()
    for n_clusters in (1, len(X)):
        assert np.isnan(methods.silhouette_of(_halves(model, len(X), n_clusters), table)[0])


def test_report_speaks_of_means_and_of_no_training(command: Command) -> None:
    code, _, _ = cluster(command, "--report", "page.html", "-q")
    page = Path("page.html").read_text(encoding="utf-8")
    assert code == 0
    assert "The numbered rings are the means of the clusters." in page
    assert "the prototypes" not in page
    assert "<summary>Training" not in page
    assert command("cluster", "points.csv", "--method", "clam", "-k", "2", "--report", "clam.html", "-q")[0] == 0
    assert "The numbered rings are the prototypes" in Path("clam.html").read_text(encoding="utf-8")


def test_learned_from_sorted_sets_and_used(command: Command) -> None:
    code, out, err = command(*_LEARN, "-o", "mine.safetensors", "--steps", "3")
    assert code == 0
    first, second = out.splitlines()
    assert first.startswith("mine: 3 steps in ")
    assert second.startswith("on 1 of the 6 sets, which were held out: adjusted Rand index ")
    assert err.splitlines() == [
        "the run is kept in mine.run; it can be stopped, and the same command goes on with it",
        "wrote mine.safetensors",
        "another set is clustered by: coterie cluster FILE --method dac --weights mine.safetensors",
    ]
    card = load_checkpoint("mine.safetensors")[1]
    assert (card["method"], card["steps"], card["start"], card["scaling"]) == ("dac", 3, "tiny.safetensors", "standard")
    assert card["model"] == to_dict(_TINY)
    assert isinstance(load("mine.safetensors"), DAC)
    assert command("cluster", "points.csv", "--method", "dac", "--weights", "mine.safetensors", "-q")[0] == 0


def test_learns_what_the_library_learns(command: Command) -> None:
    Path("sorted.csv").write_text(sorted_sets(3))
    code, out, _ = command(*_LEARN, "-o", "mine.safetensors", "--steps", "2", "--seed", "5", "--folder", "runs/a")
    assert code == 0
    assert "none of the 3 sets was held out, they are too few; on those learned from: adjusted Rand index" in out
    assert Path("runs", "a", "log.jsonl").exists()
    rows = [line.split(",") for line in sorted_sets(3).splitlines()[1:]]
    tasks = [
        ([[float(x), float(y)] for s, x, _, y in rows if s == name], [t for s, _, t, _ in rows if s == name])
        for name in ("000", "001", "002")
    ]
    DAC("tiny.safetensors", random_state=5).learn(tasks, steps=2).save("same.safetensors")
    theirs, ours = (load_checkpoint(f"{name}.safetensors")[0] for name in ("same", "mine"))
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)


def test_begun_from_nothing(command: Command) -> None:
    arguments = [*_LEARN[:-1], "none", "--columns", "x", "-o", "mine.safetensors", "--steps", "1", "--quiet"]
    assert command(*arguments) == (0, "", "")
    card = load_checkpoint("mine.safetensors")[1]
    assert (card["start"], card["model"]["n_features"]) == (None, 1)


def test_weights_that_ship_are_not_taken_where_they_do_not_fit(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DAC.__init__, "__defaults__", ("tiny.safetensors",))
    arguments = [*_LEARN[:-2], "--drop", "y", "-o", "mine.safetensors", "--steps", "1"]
    code, _, err = command(*arguments)
    assert code == 0
    assert err.startswith("note: begun from nothing, since tiny.safetensors takes 2 features, and the sets have 1\n")


def test_rows_without_a_set_or_a_cluster_are_left_out(command: Command) -> None:
    Path("sorted.csv").write_text(sorted_sets().replace("000,", ",", 1).replace(",a,", ",NA,", 2))
    code, _, err = command(*_LEARN, "-o", "mine.safetensors", "--steps", "1")
    assert code == 0
    assert "note: left out: 2 rows without a value of 'drawing' or 'stroke'" in err


def test_arrays_of_sets(command: Command) -> None:
    rng = np.random.default_rng(0)
    np.savez("sorted.npz", X=rng.normal(size=(40, 2)), drawing=np.repeat(np.arange(4), 10), stroke=np.tile([0, 1], 20))
    arguments = ["learn", "sorted.npz", *_LEARN[2:], "-o", "mine.safetensors", "--steps", "1", "-q"]
    assert command(*arguments) == (0, "", "")


@pytest.mark.parametrize(
    ("table", "start", "features"),
    [
        ("drawing,x,y,stroke\na,1,2,p\na,2,2,q\nb,2,4,q\nb,3,5,p\n", "tiny.safetensors", ["x", "y"]),
        (
            "drawing,x,y,stroke\na,1,red,p\na,2,blue,q\nb,2,green,q\nb,3,blue,p\n",
            "none",
            ["x", "y=blue", "y=red", "y=green"],
        ),
    ],
    ids=["one value in one set", "other levels in each set"],
)
def test_columns_need_not_vary_in_every_set(command: Command, table: str, start: str, features: list[str]) -> None:
    Path("sorted.csv").write_text(table)
    code, _, err = command(*_LEARN[:-1], start, "-o", "mine.safetensors", "--steps", "1", "-q")
    assert (code, err) == (0, "")
    assert load_checkpoint("mine.safetensors")[1]["features"] == features


def test_stopped_and_taken_up_again(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    learn = DAC.learn

    def stopped(self: DAC, *given: Any, **settings: Any) -> DAC:
        tell = self.on_progress

        def stop(progress: Progress) -> None:
            assert tell is not None
            tell(progress)
            if progress.step == 2:
                raise KeyboardInterrupt

        self.on_progress = stop
        return learn(self, *given, **settings)

    arguments = [*_LEARN, "--steps", "4"]
    with monkeypatch.context() as patch:
        patch.setattr(DAC, "learn", stopped)
        code, out, err = command(*arguments, "-o", "mine.safetensors")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == "stopped; the same command goes on from the state in mine.run, at most 1 step back"
    assert not Path("mine.safetensors").exists()
    code, _, err = command(*arguments, "-o", "mine.safetensors")
    assert code == 0
    assert "going on after step 2 of 4, from mine.run" in err
    assert command(*arguments, "-o", "whole.safetensors", "-q")[0] == 0
    assert Path("mine.safetensors").read_bytes() == Path("whole.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("more", "change", "told"),
    [
        (["--steps", "2"], ("", ""), "they differ in steps."),
        (["--seed", "1"], ("", ""), "they differ in seed."),
        ([], ("000,", "001,"), "they differ in sets."),
        (["--weights", "other.safetensors"], ("", ""), "they differ in start."),
    ],
)
def test_a_folder_is_of_one_run(command: Command, more: Sequence[str], change: tuple[str, str], told: str) -> None:
    assert command(*_LEARN, "-o", "mine.safetensors", "--steps", "1", "-q")[0] == 0
    Path("sorted.csv").write_text(sorted_sets().replace(*change, 1))
    Path("mine.safetensors").rename("other.safetensors")
    code, out, err = command(*_LEARN, "-o", "mine.safetensors", "--steps", "1", *more)
    assert (code, out) == (2, "")
    assert told in err
    (Path("mine.run") / "recipe.json").unlink()
    assert "holds a run, and no recipe.json" in command(*_LEARN, "-o", "mine.safetensors", "--steps", "1")[2]


_REFUSALS: list[tuple[Sequence[str], str]] = [
    (["cluster", "points.csv", "--method", "dac", "-k", "3"], "-k 3 is not for the method dac, which finds the number"),
    (["cluster", "points.csv", "--method", "clam", "--weights", "tiny.safetensors"], "is not for the method clam"),
    (["cluster", "points.csv", "--method", "dac", "--weights", "zebra"], "No weights are called 'zebra'"),
    (["cluster", "points.csv", "--method", "dac", "--weights", "no.safetensors"], "There is no model file"),
    (["cluster", "points.csv", "--method", "dac", "--weights", "points.csv"], "cannot be read as a model"),
    (["cluster", "points.csv", "--method", "dac", "--weights", "clam.safetensors"], "'clam', not 'dac'"),
    (["predict", "tiny.safetensors", "points.csv"], "'tiny.safetensors' has weights, and no clusters yet"),
    (["learn", "sorted.csv"], "read as a table of sorted sets, for which --set and --truth must be given"),
    (["learn", "sorted.csv", "--set", "drawing", "-o", "m.safetensors"], "for which --truth must be given"),
    (["learn", "sorted.csv", "--truth", "stroke", "-o", "m.safetensors"], "for which --set must be given"),
    ([*_LEARN], "add -o MODEL.safetensors"),
    ([*_LEARN, "-o", "m.pkl"], "ends in '.pkl'"),
    ([*_LEARN, "-o", "tiny.safetensors"], "exists already"),
    ([*_LEARN, "-o", "m.safetensors", "--folder", "points.csv"], "cannot be a folder"),
    ([*_LEARN, "-o", "m.safetensors", "--method", "clam"], "--method clam does not learn from sorted sets"),
    ([*_LEARN, "-o", "m.safetensors", "--steps", "0"], "--steps must be at least 1; got 0"),
    ([*_LEARN, "-o", "m.safetensors", "--seed", "-1"], "--seed must be from 0"),
    ([*_LEARN, "-o", "m.safetensors", "--weights", "zebra"], "No weights are called 'zebra'"),
    ([*_LEARN, "-o", "m.safetensors", "--weights", "clam.safetensors"], "are for the method 'clam'"),
    ([*_LEARN, "-o", "m.safetensors", "--drop", "x"], "take 2 features, and the sets have 1; name others, or none"),
    ([*_LEARN, "-o", "m.safetensors", "--set", "drawin"], "did you mean 'drawing'"),
    ([*_LEARN, "-o", "m.safetensors", "--truth", "strike"], "did you mean 'stroke'"),
    ([*_LEARN, "-o", "m.safetensors", "--set", "stroke"], "both name the column 'stroke'"),
    ([*_LEARN, "-o", "m.safetensors", "--set", "3", "--truth", "stroke"], "both name the column 'stroke'"),
    ([*_LEARN, "-o", "m.safetensors", "--drop", "x,y"], "no column is left"),
    (["learn", "absent.csv", *_LEARN[2:], "-o", "m.safetensors"], "there is no file 'absent.csv'"),
    (["learn", "one.csv", *_LEARN[2:], "-o", "m.safetensors"], "has one set only, 'a'; learning takes at least 2"),
    (["learn", "ids.csv", *_LEARN[2:], "-o", "m.safetensors"], "each of the 3 sets that 'drawing' tells apart has one"),
    (["learn", "same.csv", *_LEARN[2:], "-o", "m.safetensors"], "no set of same.csv has more than one cluster"),
    (["learn", "gaps.csv", *_LEARN[2:], "-o", "m.safetensors"], "no row of gaps.csv has values of both"),
    (["learn", "void.csv", *_LEARN[2:], "-o", "m.safetensors"], "every value of every column is missing in set 'b' of"),
    (["learn", "toy.toml", "--set", "drawing"], "--set is for tables of sorted sets, and 'toy.toml' is a recipe"),
    (["learn", "toy.toml", "--seed", "0", "--no-header"], "--seed, --header/--no-header are for tables"),
    (["learn", "toy.toml", "--weights", "none", "--columns", "a", "--drop", "b"], "--columns, --drop, --weights are"),
]

_TABLES = {
    "one.csv": "drawing,x,y,stroke\na,1,2,p\na,2,3,q\n",
    "ids.csv": "drawing,x,y,stroke\n1,1,2,p\n2,2,3,q\n3,2,4,q\n",
    "same.csv": "drawing,x,y,stroke\na,1,2,p\na,2,3,p\nb,2,4,q\nb,3,5,q\n",
    "gaps.csv": "drawing,x,y,stroke\n,1,2,p\na,2,3,\n,2,4,q\n",
    "void.csv": "drawing,x,y,stroke\na,1,2,p\na,2,2,q\nb,,,q\nb,,,p\n",
}


@pytest.fixture(scope="module")
def clam_model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("clam")
    ClAM(2, epochs=1, random_state=0).fit([[0.0, 1.0], [0.1, 0.9], [5.0, 4.0], [5.1, 4.2]]).save(
        folder / "m.safetensors"
    )
    return (folder / "m.safetensors").read_bytes()


@pytest.mark.parametrize(("arguments", "told"), _REFUSALS, ids=lambda value: " ".join(value)[-60:])
def test_bad_input_is_told_in_one_line(
    command: Command, clam_model: bytes, arguments: Sequence[str], told: str
) -> None:
    Path("clam.safetensors").write_bytes(clam_model)
    for name, text in _TABLES.items():
        Path(name).write_text(text)
    before = sorted(Path().rglob("*"))
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1
    assert told in err
    assert sorted(Path().rglob("*")) == before
