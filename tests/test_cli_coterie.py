"""``coterie cluster`` by its default method: its options, its outliers, and what its judge says."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from coterie.__main__ import main
from coterie.cli import cluster as methods
from coterie.cli.inputs import Writing
from coterie.cli.progress import Narrator
from coterie.cli.summary import Summary, Verdict, cluster_sizes, present, scores_against
from coterie.judged.estimator import Coterie
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table

Command: TypeAlias = Callable[..., tuple[int, str, str]]

_N_ROWS = 31


def points() -> str:
    """Two groups far apart, and one row that is somewhat away from its own."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(_N_ROWS, 2)) * 0.2 + np.where(np.arange(_N_ROWS) % 2, 20.0, 0.0)[:, None]
    X[0] = (3.5, 0.0)
    return "x,y,group\n" + "".join(f"{x:.3f},{y:.3f},{'ab'[i % 2]}\n" for i, (x, y) in enumerate(X))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run as the console script does, in a folder that has points.csv only."""
    monkeypatch.chdir(tmp_path)
    Path("points.csv").write_text(points())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


def rows_of(file: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(Path(file).read_text(encoding="utf-8"))))


def test_the_default_finds_the_number_of_clusters(command: Command) -> None:
    code, out, _ = command("cluster", "points.csv", "--truth", "group", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["n_clusters"] == len(found["sizes"]) >= 2
    assert (sum(found["sizes"]), found["outliers"]) == (_N_ROWS, 0)
    assert 0 <= found["confidence"] <= 1
    assert set(found["scores"]) == {"ARI", "NMI", "accuracy"}
    assert any("proposals" in note for note in found["notes"])


def test_outliers_from_the_fit_to_new_rows(command: Command) -> None:
    code, out, _ = command(
        "cluster", "points.csv", "--effort", "fast", "-k", "2", "--outliers", "--truth", "group",
        "-o", "rows.csv", "--save", "model.safetensors",
    )  # fmt: skip
    assert code == 0
    assert f"points.csv: {_N_ROWS} rows in 2 clusters" in out
    assert "what sets it apart" in out
    assert "\nconfidence " in out
    labels = [int(row["cluster"]) for row in rows_of("rows.csv")]
    assert labels[0] == -1
    assert {0, 1} < set(labels)
    assert next(line for line in out.splitlines() if "outliers" in line).split()[1] == str(labels.count(-1))
    assert all((row["cluster"] == "-1") == (float(row["membership"]) == 0) for row in rows_of("rows.csv"))
    assert command("predict", "model.safetensors", "points.csv", "-o", "again.csv", "-q") == (0, "", "")
    assert Path("again.csv").read_bytes() == Path("rows.csv").read_bytes()
    Path("new.csv").write_text("x,y\n20,20\n900,-900\n")
    code, out, _ = command("predict", "model.safetensors", "new.csv", "-o", "new_rows.csv", "--json")
    found = json.loads(out)
    assert (code, found["n_clusters"], sorted(found["sizes"]), found["outliers"]) == (0, 2, [0, 1], 1)
    assert [row["cluster"] == "-1" for row in rows_of("new_rows.csv")] == [False, True]
    assert "confidence" not in found


def test_number_of_clusters_is_exact(command: Command) -> None:
    found = json.loads(command("cluster", "points.csv", "--drop", "group", "--effort", "fast", "-k", "5", "--json")[1])
    assert found["n_clusters"] == len(found["sizes"]) == 5
    assert min(found["sizes"]) > 0


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ([], {}),
        (["-k", "auto", "--effort", "balanced", "--granularity", "0", "--seed", "0"], {}),
        (["-k", "4", "--seed", "7"], {"n_clusters": 4, "random_state": 7}),
        (["--effort", "thorough", "--granularity", "-1.5"], {"effort": "thorough", "granularity": -1.5}),
        (["--outliers", "--allow-single"], {"noise": True, "allow_single": True}),
    ],
    ids=" ".join,
)
def test_options_reach_the_estimator(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: Sequence[str], settings: dict[str, Any]
) -> None:
    made: list[Coterie] = []

    def stop(self: Coterie, _: object) -> None:
        made.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Coterie, "fit", stop)
    assert command("cluster", "points.csv", *arguments)[0] == 130
    expected = Coterie(**{"random_state": 0, **settings}).get_params()
    assert {**made[0].get_params(), "on_progress": None} == expected


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--weights", "mine.safetensors"],
            "--weights mine.safetensors is not for the method coterie, whose judge has",
        ),
        (["--scaling", "robust"], "--scaling robust is not for the method coterie, which tries several scalings by"),
        (["--method", "clam", "--effort", "fast"], "--effort fast is not for the method clam, only for coterie; leave"),
        (["--method", "dac", "--granularity", "0"], "--granularity 0 is not for the method dac, only for coterie;"),
        (["--method", "clam", "--outliers"], "--outliers is not for the method clam, only for coterie;"),
        (["--method", "dac", "--allow-single"], "--allow-single is not for the method dac, only for coterie;"),
        (["--effort", "huge"], "--effort takes fast, balanced, thorough; got 'huge'"),
        (["--granularity", "nan"], "--granularity takes a number, such as 1 or -0.5; got nan"),
        (["--granularity", "fine"], "--granularity"),
    ],
    ids=" ".join,
)
def test_bad_options_are_told_in_one_line(command: Command, arguments: Sequence[str], told: str) -> None:
    code, out, err = command("cluster", "absent.csv", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("coterie: ")
    assert err.count("\n") == 1
    assert told in err


def test_outliers_are_in_no_cluster() -> None:
    labels = np.array([0, -1, 1, 0, -1, 2])
    assert cluster_sizes(labels, 4) == (2, 1, 1, 0)
    assert methods.outliers_among(Coterie(noise=True), labels) == 2
    assert methods.outliers_among(Coterie(), np.zeros(3)) is None
    # To know them from the others is right: they count as a cluster.
    assert scores_against(np.array([4, 5, 6, 4, 5, 7]), labels) == {"ARI": 1.0, "NMI": 1.0, "accuracy": 1.0}


def test_silhouette_leaves_outliers_out() -> None:
    table = as_table(np.random.default_rng(0).normal(size=(20, 2)))
    encoder = TableEncoder("standard").fit(table)
    labels = np.arange(20) % 3 - 1
    inside = labels >= 0
    model = SimpleNamespace(labels_=labels, n_clusters_=2, table_=encoder)
    value, notes = methods.silhouette_of(model, table)
    assert value == pytest.approx(silhouette_score(encoder.transform(table)[inside], labels[inside]), abs=1e-5)
    assert notes == ()
    labels[:] = -1
    assert np.isnan(methods.silhouette_of(model, table)[0])


def test_verdict_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    other = {"algorithm": "Ward linkage", "columns": "standardised", "n_clusters": 4, "score": 0.61996}
    alone = Verdict(0.81234, None)
    verdict = Verdict(0.81234, other)
    assert alone.in_words() == "confidence 0.81 (agreement with the truth that the judge expects; 1 at best)"
    assert verdict.in_words() == f"{alone.in_words()}, runner-up: 4 clusters by Ward linkage, 0.62"
    assert alone.to_dict() == {"confidence": 0.8123, "runner_up": None}
    assert verdict.to_dict() == {"confidence": 0.8123, "runner_up": {**other, "score": 0.62}}
    summary = Summary("a.csv", 10, (6, 3), 0.1, outliers=1, verdict=verdict)
    present(summary, Writing(), Narrator(quiet=True))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert verdict.in_words() in lines
    assert lines[lines.index("") + 5].split() == ["outliers", "1", "10.0%"]
