"""``coterie cluster`` and ``coterie predict`` on tables."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from sklearn.metrics import silhouette_score

import coterie
from coterie import DAC, TCC, ClAM, Coterie
from coterie.base import FitDescription, Selection
from coterie.cli import predict as prediction
from coterie.cli import results
from coterie.cli.options import Writing
from coterie.cli.progress import ProgressDisplay
from coterie.cli.results import measure_silhouette, score_against
from coterie.cli.summary import Summary, cluster_sizes, count_outliers, print_summary
from coterie.errors import OutputError
from coterie.progress import Callback, Progress
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import as_table
from tests.cli.conftest import Command, Outcome, read_rows, stop_fit

_CLAM = ("--method", "clam")
_HEADER = "person,height,weight,colour,joined,member,group"
_N_POINTS = 31


def people(rows: int = 24) -> str:
    """Return a table of two groups of people with missing values, categories, dates, booleans and padded ids."""
    generator = np.random.default_rng(5)
    lines = [_HEADER]
    for i in range(rows):
        tall = i % 3 == 0
        height = f"{generator.normal(190 if tall else 160, 3):.1f}" if i != 4 else ""
        weight = f"{generator.normal(95 if tall else 60, 3):.0f}" if i != 7 else "NA"
        colour = ("red", "blue")[int(generator.random() < 0.3)]
        lines.append(
            f"{i:03d},{height},{weight},{colour},{'2024' if tall else '2020'}-05-{i + 1:02d},"
            f"{'true' if tall else 'false'},{'tall' if tall else 'small'}"
        )
    return "\n".join(lines) + "\n"


def blobs() -> str:
    """Return two distant groups, and one row somewhat away from its group."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(_N_POINTS, 2)) * 0.2 + np.where(np.arange(_N_POINTS) % 2, 20.0, 0.0)[:, None]
    X[0] = (3.5, 0.0)
    return "x,y,group\n" + "".join(f"{x:.3f},{y:.3f},{'ab'[i % 2]}\n" for i, (x, y) in enumerate(X))


def points(rows: int = 20) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    X: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.random.default_rng(1).normal(size=(rows, 3))
    X[rows // 4 :] += 20.0
    return X


@pytest.fixture(autouse=True)
def tables() -> None:
    """Write people.csv and blobs.csv."""
    Path("people.csv").write_text(people())
    Path("blobs.csv").write_text(blobs())


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.name not in {"people.csv", "blobs.csv"})


def test_summary(command: Command) -> None:
    outcome = command("cluster", "people.csv", *_CLAM, "--id", "person", "--truth", "group", "-k", "2")
    assert "people.csv: 24 rows in 2 clusters" in outcome.out
    assert "ARI 1.000, NMI 1.000, accuracy 1.000" in outcome.out
    assert "distinguishing features" in outcome.out
    assert "high height" in outcome.out or "high weight" in outcome.out or "member" in outcome.out
    assert "note: missing values, filled with the median: 'height' 1 of 24" in outcome.err
    assert "-o OUT.csv" in outcome.err
    assert files() == []


def test_summary_as_json(command: Command) -> None:
    outcome = command(
        "cluster", "people.csv", *_CLAM, "--id", "person", "--truth", "group", "-k", "2", "--json", "-o", "out.csv",
        "--save", "model.safetensors",
    )  # fmt: skip
    found = json.loads(outcome.out)
    assert outcome.err == ""
    assert (found["source"], found["n_rows"], found["n_clusters"], found["sizes"]) == ("people.csv", 24, 2, [16, 8])
    assert found["outliers"] == 0
    assert "confidence" not in found
    assert 0 < found["silhouette"] <= 1
    assert found["seconds"] > 0
    assert found["files"] == {"rows": "out.csv", "model": "model.safetensors"}
    assert any("missing" in note for note in found["notes"])


@pytest.mark.parametrize("method", ["coterie", "clam"])
def test_number_of_clusters_is_found(command: Command, method: str) -> None:
    outcome = command("cluster", "blobs.csv", "--method", method, "--truth", "group", "--json")
    found = json.loads(outcome.out)
    assert found["n_clusters"] == len(found["sizes"]) >= 2
    assert (sum(found["sizes"]), found["outliers"]) == (_N_POINTS, 0)
    assert set(found["scores"]) == {"ARI", "NMI", "accuracy"}
    assert ("confidence" in found) == (method == "coterie")


def test_number_of_clusters_is_exact(command: Command) -> None:
    outcome = command("cluster", "blobs.csv", "--drop", "group", "--effort", "fast", "-k", "5", "--json")
    sizes = json.loads(outcome.out)["sizes"]
    assert len(sizes) == 5
    assert min(sizes) > 0


def test_rows_have_id_cluster_and_membership(command: Command) -> None:
    outcome = command("cluster", "people.csv", "--id", "person", "-k", "2", "-o", "out.csv", "--quiet")
    assert outcome == Outcome(0, "", "")
    rows = read_rows("out.csv")
    assert list(rows[0]) == ["person", "cluster", "membership"]
    assert [row["person"] for row in rows] == [f"{i:03d}" for i in range(24)]
    assert {row["cluster"] for row in rows} == {"0", "1"}
    assert all(0.5 <= float(row["membership"]) <= 1 and len(row["membership"]) <= 6 for row in rows)


def test_append_repeats_the_cells_as_written(command: Command) -> None:
    command("cluster", "people.csv", "--columns", "height,weight", "-k", "2", "-o", "out.tsv", "--append", "-q")
    rows = read_rows("out.tsv", "\t")
    assert list(rows[0]) == [*_HEADER.split(","), "cluster", "membership"]
    for row, original in zip(rows, csv.DictReader(io.StringIO(people())), strict=True):
        kept = {name: row[name] for name in original}
        assert kept == {name: "" if cell == "NA" else cell for name, cell in original.items()}


def test_append_keeps_types_in_parquet(command: Command) -> None:
    command("cluster", "people.csv", "-k", "2", "-o", "out.parquet", "--append")
    frame = pyarrow.parquet.read_table("out.parquet")
    types = {name: str(kind) for name, kind in zip(frame.schema.names, frame.schema.types, strict=True)}
    assert types["height"] == "double"
    assert types["joined"].startswith("date32")
    assert (types["member"], types["cluster"]) == ("bool", "int64")
    # As text, days have no time of day.
    again = command("cluster", "out.parquet", "-k", "2", "-o", "-", "--append", "--columns", "height")
    first = again.rows[0]
    assert (first["person"], first["joined"], first["member"]) == ("000", "2024-05-01", "True")
    assert {"cluster", "membership", "cluster_2", "membership_2"} < set(first)


def test_table_without_a_header(command: Command) -> None:
    Path("plain.csv").write_text("\n".join(people().splitlines()[1:]))
    outcome = command(
        "cluster", "plain.csv", *_CLAM, "--no-header", "--id", "1", "--drop", "4,5", "--truth", "7", "-k", "2",
        "-o", "-",
    )  # fmt: skip
    assert list(outcome.rows[0]) == ["column_1", "cluster", "membership"]
    assert outcome.rows[3]["column_1"] == "003"
    assert "ARI 1.000" in outcome.err


def test_standard_input_to_standard_output(command: Command) -> None:
    outcome = command(
        "cluster", "-", "-k", "2", "--delimiter", ";", "-o", "-", stdin=people().replace(",", ";").encode()
    )
    assert [row["person"] for row in outcome.rows] == [f"{i:03d}" for i in range(24)]
    assert "standard input: 24 rows in 2 clusters" in outcome.err


def test_arrays_with_known_classes(command: Command) -> None:
    X = points()
    np.savez("points.npz", X=X, y=(X[:, 0] > 10).astype(int))
    outcome = command("cluster", "points.npz", *_CLAM, "--truth", "y", "-k", "2", "--json", "-o", "out.csv", "--append")
    assert json.loads(outcome.out)["scores"] == {"ARI": 1.0, "NMI": 1.0, "accuracy": 1.0}
    rows = read_rows("out.csv")
    assert list(rows[0]) == ["column_1", "column_2", "column_3", "y", "cluster", "membership"]
    assert {(row["y"], row["cluster"]) for row in rows} == {("0", "1"), ("1", "0")}


def test_one_cluster_has_no_silhouette_and_rows_without_a_class_do_not_count(command: Command) -> None:
    shown = command("cluster", "people.csv", "-k", "1").out
    assert "silhouette" not in shown
    assert "confidence" not in shown
    found = json.loads(command("cluster", "people.csv", "-k", "1", "--json").out)
    assert (found["sizes"], found["silhouette"], found.get("confidence")) == ([24], None, None)
    Path("people.csv").write_text(people().replace(",small\n", ",\n", 3))
    found = json.loads(command("cluster", "people.csv", *_CLAM, "--truth", "group", "-k", "2", "--json").out)
    assert found["scores"]["ARI"] == 1.0
    assert "the scores exclude 3 rows without a value in 'group'" in found["notes"]


def test_predict_repeats_the_labels(command: Command) -> None:
    fitted = command(
        "cluster", "people.csv", "--id", "person", "--truth", "group", "-k", "2", "-o", "fitted.csv",
        "--save", "model.safetensors",
    )  # fmt: skip
    assert "wrote fitted.csv, model.safetensors" in fitted.err
    outcome = command("predict", "model.safetensors", "people.csv", "--id", "person", "-o", "predicted.csv")
    assert "note: ignored because the model does not use them: 'group'" in outcome.err
    assert Path("predicted.csv").read_bytes() == Path("fitted.csv").read_bytes()


def test_predict_new_rows(command: Command) -> None:
    model = ("--id", "person", "--drop", "group", "-k", "2", "--save", "m.safetensors", "-q")
    command("cluster", "people.csv", *_CLAM, *model)
    new = "weight,height,colour,joined,member,person\n99,,green,2024-05-30,true,900\n58,161,red,2020-05-02,false,901\n"
    outcome = command("predict", "m.safetensors", "-", "-o", "-", "--append", stdin=new.encode())
    assert [row["cluster"] for row in outcome.rows] == ["1", "0"]
    assert list(outcome.rows[0]) == [*new.splitlines()[0].split(","), "cluster", "membership"]
    assert "'green'" in outcome.err
    summary = json.loads(command("predict", "m.safetensors", "-", "--json", stdin=new.encode()).out)
    assert (summary["n_rows"], summary["n_clusters"], summary["sizes"]) == (2, 2, [1, 1])


def test_profile_says_where_the_time_went(command: Command) -> None:
    model = ("--save", "m.safetensors", "-o", "rows.csv")
    outcome = command("cluster", "people.csv", "--id", "person", "--effort", "fast", *model, "--json", "--profile")
    assert json.loads(outcome.out)["n_rows"] == 24
    phases = [line.split()[0] for line in outcome.err.splitlines() if "%" in line]
    expected = [
        "reading",
        "import",
        "encoding",
        "candidates",
        "features",
        "judging",
        "assignment",
        "summary",
        "writing",
    ]
    assert [phase for phase in phases if phase in expected] == expected
    assert phases[-1] == "total"
    outcome = command("predict", "m.safetensors", "people.csv", "--id", "person", "--profile", "-q")
    assert [line.split()[0] for line in outcome.err.splitlines() if "%" in line][:3] == [
        "reading",
        "import",
        "encoding",
    ]


def test_progress_of_the_default_never_goes_back(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []

    @contextmanager
    def record(_: ProgressDisplay, __: str, phase: str = "") -> Iterator[Callback]:
        yield seen.append if phase == "clustering" else (lambda _: None)

    monkeypatch.setattr(ProgressDisplay, "progress", record)
    for arguments in (["--effort", "fast"], ["-k", "2"], ["--metric", "cosine", "--columns", "height,weight"]):
        seen.clear()
        command("cluster", "people.csv", "--id", "person", *arguments)
        fractions = [each.fraction or 0.0 for each in seen]
        assert fractions == sorted(fractions)
        assert 0.5 < fractions[-1] <= 1.0
        assert {"encoding", "candidates", "features", "judging", "assignment"} == {each.phase for each in seen}


def test_many_rows_are_predicted_in_parts(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("cluster", "people.csv", "-k", "2", "--id", "person", "-o", "fitted.csv", "--save", "m.safetensors", "-q")
    monkeypatch.setattr(prediction, "_ROWS_AT_ONCE", 10)
    command("predict", "m.safetensors", "people.csv", "--id", "person", "-o", "predicted.csv", "-q")
    assert Path("predicted.csv").read_bytes() == Path("fitted.csv").read_bytes()


def test_predict_without_column_names_counts_columns(command: Command) -> None:
    np.save("points.npy", points())
    np.save("wider.npy", np.hstack([np.arange(20.0)[:, None], points()]))
    command("cluster", "points.npy", "-k", "2", "--save", "m.safetensors", "-o", "fitted.csv", "-q")
    rejected = command("predict", "m.safetensors", "wider.npy", "-o", "predicted.csv", code=2)
    assert "wider.npy has 4 columns" in rejected.err
    command("predict", "m.safetensors", "wider.npy", "--drop", "1", "-o", "predicted.csv")
    assert Path("predicted.csv").read_bytes() == Path("fitted.csv").read_bytes()


@pytest.mark.parametrize("flag", ["--noise", "--outliers"])
def test_outliers_are_found_in_the_fit_and_in_new_rows(command: Command, flag: str) -> None:
    outcome = command(
        "cluster", "blobs.csv", "--effort", "fast", "-k", "2", flag, "--truth", "group",
        "-o", "rows.csv", "--save", "model.safetensors",
    )  # fmt: skip
    assert ("warning: --outliers was renamed to --noise" in outcome.err) == (flag == "--outliers")
    assert f"blobs.csv: {_N_POINTS} rows in 2 clusters" in outcome.out
    assert "\nconfidence " in outcome.out
    rows = read_rows("rows.csv")
    labels = [int(row["cluster"]) for row in rows]
    assert labels[0] == -1
    assert {0, 1} < set(labels)
    assert next(line for line in outcome.out.splitlines() if "noise" in line).split()[1] == str(labels.count(-1))
    assert all((row["cluster"] == "-1") == (float(row["membership"]) == 0) for row in rows)
    assert command("predict", "model.safetensors", "blobs.csv", "-o", "again.csv", "-q") == Outcome(0, "", "")
    assert Path("again.csv").read_bytes() == Path("rows.csv").read_bytes()
    Path("new.csv").write_text("x,y\n20,20\n900,-900\n")
    outcome = command("predict", "model.safetensors", "new.csv", "-o", "new_rows.csv", "--json")
    found = json.loads(outcome.out)
    assert (found["n_clusters"], sorted(found["sizes"]), found["outliers"]) == (2, [0, 1], 1)
    assert [row["cluster"] == "-1" for row in read_rows("new_rows.csv")] == [False, True]


_COTERIE, _DAC, _TCC = (Coterie, "coterie"), (DAC, "dac"), (TCC, "tcc")


@pytest.mark.parametrize(
    ("method", "arguments", "settings"),
    [
        (_COTERIE, [], {}),
        (_COTERIE, ["-k", "auto", "--effort", "balanced", "--granularity", "0", "--seed", "0"], {}),
        (_COTERIE, ["-k", "4", "--seed", "7"], {"n_clusters": 4, "random_state": 7}),
        (_COTERIE, ["--effort", "fast", "--granularity", "-1.5"], {"effort": "fast", "granularity": -1.5}),
        (
            _COTERIE,
            ["--weight", "x=0.5", "--weight", "a=b=2", "--missing", "indicator"],
            {"column_weights": {"x": 0.5, "a=b": 2.0}, "missing": "indicator"},
        ),
        (_COTERIE, ["--noise", "--allow-single"], {"noise": True, "allow_single": True}),
        ((ClAM, "clam"), ["--scaling", "standard"], {"scaling": "standard"}),
        (_DAC, [], {}),
        (
            _DAC,
            ["-k", "auto", "--scaling", "none", "--weights", "dac-mog2d-v2"],
            {"scaling": "none", "weights": "dac-mog2d-v2"},
        ),
        (_TCC, ["-k", "4", "--scaling", "robust"], {"n_clusters": 4, "scaling": "robust"}),
    ],
)
def test_options_set_parameters_and_others_keep_their_defaults(
    command: Command, monkeypatch: pytest.MonkeyPatch, method: Any, arguments: Sequence[str], settings: dict[str, Any]
) -> None:
    estimator, name = method
    fitted = stop_fit(monkeypatch, estimator)
    command("cluster", "blobs.csv", "--method", name, *arguments, code=130)
    expected = estimator(**{"random_state": 0, **settings}).get_params()
    assert fitted[0].get_params()["callback"] is not None
    assert {**fitted[0].get_params(), "callback": None} == expected


def test_outliers_are_in_no_cluster() -> None:
    labels = np.array([0, -1, 1, 0, -1, 2])
    assert cluster_sizes(labels, 4) == (2, 1, 1, 0)
    assert count_outliers(Coterie(noise=True), labels) == 2
    assert count_outliers(Coterie(noise=True), np.zeros(3)) == 0
    assert count_outliers(Coterie(), np.zeros(3)) is None
    # In the scores, they count as one more cluster.
    assert score_against(np.array([4, 5, 6, 4, 5, 7]), labels) == {"ARI": 1.0, "NMI": 1.0, "accuracy": 1.0}


def test_silhouette_is_that_of_scikit_learn_without_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    table = as_table(np.random.default_rng(0).normal(size=(20, 2)))
    encoder = TableEncoder("standard").fit(table)
    labels = np.arange(20) % 3 - 1
    inside = labels >= 0
    model: Any = SimpleNamespace(labels_=labels, n_clusters_=2, table_=encoder)
    value, notes = measure_silhouette(model, table, FitDescription())
    assert value == pytest.approx(silhouette_score(encoder.transform(table)[inside], labels[inside]), abs=1e-5)
    assert notes == ()
    assert measure_silhouette(model, table, FitDescription(silhouette=0.5)) == (0.5, ())
    monkeypatch.setattr(results, "_SILHOUETTE_ROWS", 10)
    value, notes = measure_silhouette(model, table, FitDescription())
    assert -1 < value < 1
    assert notes == ("the silhouette was measured on a random sample of 10 of 20 rows",)
    for n_clusters in (1, 20):
        model.n_clusters_ = n_clusters
        assert np.isnan(measure_silhouette(model, table, FitDescription())[0])


def test_confidence_in_words_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    other = {"algorithm": "Ward linkage", "columns": "standardised", "n_clusters": 4, "score": 0.61996}
    chosen = {**other, "n_clusters": 3}

    def selection(**changes: Any) -> Selection:
        values: dict[str, Any] = {"confidence": 0.81234, "chosen": chosen, "runner_up": other, **changes}
        nothing: Any = None
        return Selection(candidates=[], levels=[], shortlist=nothing, alternative=nothing, **values)

    def show(**changes: Any) -> tuple[list[str], dict[str, Any]]:
        notes = {name: changes.pop(name) for name in ("table_notes", "fit_notes") if name in changes}
        summary = Summary("a.csv", 10, (6, 3), 0.1, outliers=1, selection=selection(**changes), **notes)
        print_summary(summary, Writing(), ProgressDisplay(quiet=True))
        return [line.strip() for line in capsys.readouterr().out.splitlines()], json.loads(summary.to_json())

    _, content = show(table_notes=tuple(f"note {i}" for i in range(11)), fit_notes=("Chosen.",))
    assert content["notes"] == [*(f"note {i}" for i in range(11)), "Chosen."]
    lines, content = show()
    confidence = "confidence 0.81 (expected adjusted Rand index; 1 = perfect)"
    assert f"{confidence}, runner-up: 4 clusters by Ward linkage, 0.62" in lines
    assert lines[lines.index("") + 5].split() == ["noise", "1", "10.0%"]
    assert (content["confidence"], content["runner_up"]) == (0.8123, {**other, "score": 0.62})
    lines, content = show(runner_up=None)
    assert confidence in lines
    assert content["runner_up"] is None
    assert "confidence 0.81 (probability of a single cluster; 1 = certain)" in show(chosen=None, runner_up=None)[0]


def test_many_notes_on_a_table_are_cut_but_not_those_of_the_fit(capsys: pytest.CaptureFixture[str]) -> None:
    for n_notes, n_shown in ((9, 9), (12, 8)):
        notes = tuple(f"about {i}" for i in range(n_notes))
        summary = Summary("a.csv", 10, (6, 3), 0.1, table_notes=notes, fit_notes=("Chosen.",))
        print_summary(summary, Writing(), ProgressDisplay(quiet=False))
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
        assert told[:n_shown] == [f"note: {note}" for note in notes[:n_shown]]
        rest = ["note: 4 more notes on the table are listed with --json"] if n_shown < n_notes else []
        assert told[n_shown:] == [*rest, "note: Chosen."]


def test_reports_of_tables_and_of_rows_as_images(command: Command) -> None:
    page = ("--id", "person", "--truth", "group", "-k", "2", "--report", "page.html")
    command("cluster", "people.csv", *page)
    text = Path("page.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "Clusters of people.csv" in text
    np.savez("images.npz", X=np.hstack([points(), points()]))
    outcome = command("cluster", "images.npz", "-k", "2", "--report", "images.html", "--image", "2x3")
    assert "distinguishing features" not in outcome.out  # single pixels mean nothing to a reader
    assert "data:image/png" in Path("images.html").read_text()


def test_force_replaces_files_and_a_seed_repeats_rows(command: Command) -> None:
    Path("out.csv").write_text("old")
    command("cluster", "people.csv", "-k", "2", "-o", "out.csv", "--force")
    assert Path("out.csv").read_text().startswith("person,cluster,membership\n")
    first, second = (command("cluster", "people.csv", "-k", "3", "--seed", "7", "-o", "-").out for _ in range(2))
    assert first == second != ""
    assert "Usage: coterie" in command().out


def test_column_names_may_contain_commas(command: Command) -> None:
    Path("people.csv").write_text(people().replace("height,weight", '"height, cm","weight, kg"', 1))
    whole = command("cluster", "people.csv", "--columns", "height, cm", "--columns", "weight, kg", "-k", "2", "-o", "-")
    quoted = command("cluster", "people.csv", "--columns", '"height, cm","weight, kg"', "-k", "2", "-o", "-")
    assert whole.out == quoted.out


def test_nothing_is_written_when_one_file_fails(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.csv").write_text("old")

    def fail(*_: object, **__: object) -> str:
        raise OutputError("the disk is full")

    monkeypatch.setattr("coterie.reporting.page.render_report", fail)
    outputs = ("-o", "out.csv", "--force", "--save", "m.safetensors", "--report", "p.html")
    assert command("cluster", "people.csv", "-k", "2", *outputs, code=2).err == "coterie: the disk is full\n"
    assert files() == ["out.csv"]
    assert Path("out.csv").read_text() == "old"


def test_file_that_appears_during_the_work_is_kept(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def appear(*_: object, **__: object) -> str:
        Path("p.html").write_text("someone else's")
        return "ours"

    monkeypatch.setattr("coterie.reporting.page.render_report", appear)
    outcome = command("cluster", "people.csv", "-k", "2", "-o", "out.csv", "--report", "p.html", code=2)
    assert "exists already" in outcome.err
    assert Path("p.html").read_text() == "someone else's"
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(("error", "code", "message"), [(KeyboardInterrupt(), 130, ""), (MemoryError(), 2, "memory")])
def test_interruption(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(Coterie, "fit", stop)
    assert message in command("cluster", "people.csv", "-o", "out.csv", code=code).err
    assert files() == []


def _start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "coterie", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def test_help_and_version_load_neither_torch_nor_scikit_learn() -> None:
    script = (
        "import sys; from coterie.__main__ import main; "
        "codes = [main(['--version']), main(['--help']), main(['cluster', '--help'])]; "
        "sys.exit(str([name for name in ('torch', 'sklearn', 'scipy', 'pandas') if name in sys.modules] + codes))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[0, 0, 0]"
    assert done.stdout.startswith(f"coterie {coterie.__version__}\n")


def test_clustering_loads_neither_pandas_nor_what_only_reports_need() -> None:
    unneeded = ("torch", "pandas", "pyarrow", "jinja2", "sklearn.manifold", "sklearn.cluster")
    script = (
        "import gc, sys; from coterie.__main__ import main; code = main(['cluster', 'example:wine', '-q']); "
        f"loaded = [name for name in {unneeded} if name in sys.modules]; "
        "import pandas; sys.exit(str([code, loaded, gc.isenabled(), hasattr(pandas, 'DataFrame')]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[0, [], True, True]"


def test_scipy_stats_is_imported_once_it_is_asked_for() -> None:
    script = (
        "import sys; from coterie.cli.imports import quick_import\n"
        "with quick_import('nothing'):\n"
        "    import scipy.stats as postponed\n"
        "    from scipy.stats import rankdata\n"
        "import scipy.stats\n"
        "sys.exit(str([rankdata([3, 1, 2]).tolist(), postponed.rankdata is scipy.stats.rankdata is rankdata]))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[[3.0, 1.0, 2.0], True]"


def test_module_reads_from_a_pipe() -> None:
    process = _start("cluster", "-", "-k", "2", "-o", "-", stdin=subprocess.PIPE)
    out, err = process.communicate(people().encode())
    assert process.returncode == 0
    assert len(list(csv.DictReader(io.StringIO(out.decode())))) == 24
    assert b"Traceback" not in err


def test_closed_output_ends_the_command_quietly() -> None:
    process = _start("cluster", "people.csv", "-k", "2", "-o", "-")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    message = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert message == b""
