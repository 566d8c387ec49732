"""The command, from its arguments to its files and messages."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

import coterie
from coterie.__main__ import main
from coterie.cli import cluster as clustering
from coterie.errors import OutputError
from coterie.judged.estimator import Coterie

_CLAM = ("--method", "clam")
_HEADER = "person,height,weight,colour,joined,member,group"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Command]:
    """Run the command as its console script does, in a folder that has people.csv only."""
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(people())

    def run(*arguments: str, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(arguments)
        out, err = capsys.readouterr()
        return Outcome(code, out, err)

    yield run
    hidden = [path.name for path in tmp_path.rglob(".*")]
    assert hidden == [], "something temporary was left behind"


def people(rows: int = 24) -> str:
    """Two groups of people, with gaps, a category, dates, truth values, and ids with leading zeros."""
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


def points(rows: int = 20) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    generator = np.random.default_rng(1)
    X: np.ndarray[tuple[int, int], np.dtype[np.float64]] = generator.normal(size=(rows, 3))
    X[rows // 4 :] += 20.0
    return X


def table_in(text: str, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text), delimiter=delimiter))


def test_summary_only(command: Command) -> None:
    outcome = command("cluster", "people.csv", *_CLAM, "--id", "person", "--truth", "group", "-k", "2")
    assert outcome.code == 0
    assert "people.csv: 24 rows in 2 clusters" in outcome.out
    assert "ARI 1.000, NMI 1.000, accuracy 1.000" in outcome.out
    assert "what sets it apart" in outcome.out
    assert "high height" in outcome.out or "high weight" in outcome.out or "member" in outcome.out
    assert "note: column 'height': 1 of 24 values are missing" in outcome.err
    assert "-o OUT.csv" in outcome.err
    assert [path.name for path in Path().iterdir()] == ["people.csv"]


def test_number_of_clusters_is_found(command: Command) -> None:
    outcome = command("cluster", "people.csv", *_CLAM, "--id", "person", "--drop", "group,colour", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["n_clusters"] == 2


def test_rows_have_id_cluster_and_membership(command: Command) -> None:
    outcome = command("cluster", "people.csv", "--id", "person", "-k", "2", "-o", "out.csv", "--quiet")
    assert outcome == Outcome(0, "", "")
    rows = table_in(Path("out.csv").read_text())
    assert list(rows[0]) == ["person", "cluster", "membership"]
    assert [row["person"] for row in rows] == [f"{i:03d}" for i in range(24)]
    assert {row["cluster"] for row in rows} == {"0", "1"}
    assert all(0.5 <= float(row["membership"]) <= 1 and len(row["membership"]) <= 6 for row in rows)


def test_append_repeats_the_cells_as_written(command: Command) -> None:
    command("cluster", "people.csv", "--columns", "height,weight", "-k", "2", "-o", "out.tsv", "--append", "-q")
    rows = table_in(Path("out.tsv").read_text(), "\t")
    given = table_in(people())
    assert list(rows[0]) == [*_HEADER.split(","), "cluster", "membership"]
    for row, original in zip(rows, given, strict=True):
        kept = {name: row[name] for name in original}
        assert kept == {name: "" if cell == "NA" else cell for name, cell in original.items()}


def test_append_keeps_types_in_parquet(command: Command) -> None:
    outcome = command("cluster", "people.csv", "-k", "2", "-o", "out.parquet", "--append")
    assert outcome.code == 0
    frame = pyarrow.parquet.read_table("out.parquet")
    types = {name: str(kind) for name, kind in zip(frame.schema.names, frame.schema.types, strict=True)}
    assert types["height"] == "double"
    assert types["joined"].startswith("date32")
    assert types["member"] == "bool"
    assert types["cluster"] == "int64"
    # A Parquet table comes back as plain text: whole numbers and days without trailing zeros.
    assert command("cluster", "out.parquet", "--id", "person", "-k", "2", "-o", "-", "--append").code == 0
    again = command("cluster", "out.parquet", "-k", "2", "-o", "-", "--append", "--columns", "height")
    first = table_in(again.out)[0]
    assert (first["person"], first["joined"], first["member"]) == ("0", "2024-05-01", "True")
    assert {"cluster", "membership", "cluster_2", "membership_2"} < set(first)


def test_no_header(command: Command) -> None:
    lines = people().splitlines()[1:]
    Path("plain.csv").write_text("\n".join(lines))
    outcome = command(
        "cluster", "plain.csv", *_CLAM, "--no-header", "--id", "1", "--drop", "4,5", "--truth", "7", "-k", "2",
        "-o", "-",
    )  # fmt: skip
    assert outcome.code == 0
    rows = table_in(outcome.out)
    assert list(rows[0]) == ["column_1", "cluster", "membership"]
    assert rows[3]["column_1"] == "003"
    assert "ARI 1.000" in outcome.err


def test_standard_input_to_standard_output(command: Command) -> None:
    outcome = command(
        "cluster", "-", "-k", "2", "--delimiter", ";", "-o", "-", stdin=people().replace(",", ";").encode()
    )
    assert outcome.code == 0
    rows = table_in(outcome.out)
    assert [row["row"] for row in rows] == [str(i) for i in range(1, 25)]
    assert "standard input: 24 rows in 2 clusters" in outcome.err


def test_arrays_with_truth(command: Command) -> None:
    X = points()
    np.savez("points.npz", X=X, y=(X[:, 0] > 10).astype(int))
    outcome = command("cluster", "points.npz", *_CLAM, "--truth", "y", "-k", "2", "--json", "-o", "out.csv", "--append")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["scores"] == {"ARI": 1.0, "NMI": 1.0, "accuracy": 1.0}
    rows = table_in(Path("out.csv").read_text())
    assert list(rows[0]) == ["column_1", "column_2", "column_3", "y", "cluster", "membership"]
    assert {(row["y"], row["cluster"]) for row in rows} == {("0", "1"), ("1", "0")}


def test_json_holds_all_that_was_found(command: Command) -> None:
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


def test_one_cluster_has_no_silhouette(command: Command) -> None:
    assert "silhouette" not in command("cluster", "people.csv", "-k", "1").out
    found = json.loads(command("cluster", "people.csv", "-k", "1", "--json").out)
    assert (found["sizes"], found["silhouette"]) == ([24], None)


def test_rows_without_truth_do_not_count(command: Command) -> None:
    Path("people.csv").write_text(people().replace(",small\n", ",\n", 3))
    found = json.loads(command("cluster", "people.csv", *_CLAM, "--truth", "group", "-k", "2", "--json").out)
    assert found["scores"]["ARI"] == 1.0
    assert "the scores leave out 3 rows that have no value of 'group'" in found["notes"]


def test_predict_repeats_the_labels(command: Command) -> None:
    fitted = command(
        "cluster", "people.csv", "--id", "person", "--truth", "group", "-k", "2", "-o", "fitted.csv",
        "--save", "model.safetensors",
    )  # fmt: skip
    assert "wrote fitted.csv, model.safetensors" in fitted.err
    outcome = command("predict", "model.safetensors", "people.csv", "--id", "person", "-o", "predicted.csv")
    assert outcome.code == 0
    assert "note: passed over, since the model does not use them: 'group'" in outcome.err
    assert Path("predicted.csv").read_bytes() == Path("fitted.csv").read_bytes()


def test_predict_new_rows(command: Command) -> None:
    command(
        "cluster", "people.csv", *_CLAM, "--id", "person", "--drop", "group", "-k", "2", "--save", "m.safetensors", "-q"
    )
    new = "weight,height,colour,joined,member,person\n99,,green,2024-05-30,true,900\n58,161,red,2020-05-02,false,901\n"
    outcome = command("predict", "m.safetensors", "-", "-o", "-", "--append", stdin=new.encode())
    assert outcome.code == 0
    rows = table_in(outcome.out)
    assert [row["cluster"] for row in rows] == ["1", "0"]
    assert list(rows[0]) == [*new.splitlines()[0].split(","), "cluster", "membership"]
    assert "not there when the model was fitted: 'green'" in outcome.err
    summary = json.loads(command("predict", "m.safetensors", "-", "--json", stdin=new.encode()).out)
    assert (summary["n_rows"], summary["n_clusters"], summary["sizes"]) == (2, 2, [1, 1])


def test_predict_without_names_counts_columns(command: Command) -> None:
    np.save("points.npy", points())
    np.save("wider.npy", np.hstack([np.arange(20.0)[:, None], points()]))
    command("cluster", "points.npy", "-k", "2", "--save", "m.safetensors", "-o", "fitted.csv", "-q")
    refused = command("predict", "m.safetensors", "wider.npy", "-o", "predicted.csv")
    assert (refused.code, "wider.npy has 4 columns" in refused.err) == (2, True)
    assert command("predict", "m.safetensors", "wider.npy", "--drop", "1", "-o", "predicted.csv").code == 0
    assert Path("predicted.csv").read_bytes() == Path("fitted.csv").read_bytes()


def test_report_page(command: Command) -> None:
    outcome = command("cluster", "people.csv", "--id", "person", "--truth", "group", "-k", "2", "--report", "page.html")
    assert outcome.code == 0
    page = Path("page.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "Clusters of people.csv" in page


def test_report_with_images(command: Command) -> None:
    np.savez("images.npz", X=np.hstack([points(), points()]))
    outcome = command("cluster", "images.npz", "-k", "2", "--report", "page.html", "--image", "2x3")
    assert outcome.code == 0
    assert "what sets it apart" not in outcome.out  # pixels mean nothing to a reader
    assert "data:image/png" in Path("page.html").read_text()


def test_force_replaces(command: Command) -> None:
    Path("out.csv").write_text("old")
    assert command("cluster", "people.csv", "-k", "2", "-o", "out.csv", "--force").code == 0
    assert Path("out.csv").read_text().startswith("row,cluster,membership\n")


def test_names_that_contain_commas(command: Command) -> None:
    Path("people.csv").write_text(people().replace("height,weight", '"height, cm","weight, kg"', 1))
    whole = command("cluster", "people.csv", "--columns", "height, cm", "--columns", "weight, kg", "-k", "2", "-o", "-")
    quoted = command("cluster", "people.csv", "--columns", '"height, cm","weight, kg"', "-k", "2", "-o", "-")
    assert whole.code == 0
    assert whole.out == quoted.out


def test_same_seed_same_rows(command: Command) -> None:
    first, second = (command("cluster", "people.csv", "-k", "3", "--seed", "7", "-o", "-").out for _ in range(2))
    assert first == second != ""


def test_example_that_ships(command: Command) -> None:
    outcome = command("cluster", "example:wine", "--truth", "cultivar", "-k", "3")
    assert outcome.code == 0
    assert "wine.csv: 178 rows in 3 clusters" in outcome.out


def test_no_arguments_show_help(command: Command) -> None:
    outcome = command()
    assert outcome.code == 0
    assert "Usage: coterie" in outcome.out


def test_nothing_is_kept_when_one_file_cannot_be_written(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("out.csv").write_text("old")

    def fail(*_: object, **__: object) -> str:
        raise OutputError("the disk is full")

    monkeypatch.setattr(clustering, "render_report", fail)
    outcome = command(
        "cluster", "people.csv", "-k", "2", "-o", "out.csv", "--force", "--save", "m.safetensors", "--report", "p.html"
    )
    assert (outcome.code, outcome.err) == (2, "coterie: the disk is full\n")
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "people.csv"]
    assert Path("out.csv").read_text() == "old"


def test_file_that_appears_during_the_work_is_kept(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def appear(*_: object, **__: object) -> str:
        Path("p.html").write_text("someone else's")
        return "ours"

    monkeypatch.setattr(clustering, "render_report", appear)
    outcome = command("cluster", "people.csv", "-k", "2", "-o", "out.csv", "--report", "p.html")
    assert (outcome.code, "exists already" in outcome.err) == (2, True)
    assert Path("p.html").read_text() == "someone else's"
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(("error", "code", "told"), [(KeyboardInterrupt(), 130, ""), (MemoryError(), 2, "memory")])
def test_interrupted(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, told: str
) -> None:
    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(Coterie, "fit", stop)
    outcome = command("cluster", "people.csv", "-o", "out.csv")
    assert outcome.code == code
    assert told in outcome.err
    assert [path.name for path in Path().iterdir()] == ["people.csv"]


def _start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "coterie", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def test_help_and_version_load_neither_torch_nor_sklearn() -> None:
    script = (
        "import sys; from coterie.__main__ import main; "
        "codes = [main(['--version']), main(['--help']), main(['cluster', '--help'])]; "
        "sys.exit(str([name for name in ('torch', 'sklearn', 'scipy', 'pandas') if name in sys.modules] + codes))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[0, 0, 0]"
    assert done.stdout.startswith(f"coterie {coterie.__version__}\n")


def test_module_and_pipe(tmp_path: Path) -> None:
    process = _start("cluster", "-", "-k", "2", "-o", "-", cwd=tmp_path, stdin=subprocess.PIPE)
    out, err = process.communicate(people().encode())
    assert process.returncode == 0
    assert len(table_in(out.decode())) == 24
    assert b"Traceback" not in err


def test_reader_that_goes_away(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(people())
    process = _start("cluster", "people.csv", "-k", "2", "-o", "-", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert told == b""
