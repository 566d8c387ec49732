"""Every suite loads, names what exists, and runs at a tiny size through the runner, which resumes it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import runner
from benchmarks.__main__ import main
from benchmarks.lines import read_lines
from benchmarks.protocols import judge, speed, stability
from benchmarks.suite import Suite, load_suite, merge, resolve, suite_names
from coterie.checkpoint import load_checkpoint
from coterie.errors import InputError
from coterie.judged.prior.embeddings import EmbeddingPrior
from coterie.judged.prior.universal import SyntheticPrior
from coterie.judged.training import JudgedTasks, ScoredSet, ScoredSetsConfig, make_scored_sets, train_on_scored_sets
from coterie.recipes import Recipe

NEEDS_A_RUN = {"embeddings_out_of_fold", "judge_ablations", "omniglot_training", "tables_out_of_fold"}
"""Suites that measure what a training run left behind."""


@pytest.fixture(autouse=True)
def synthetic_data(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(data_folder))


def smoke_suite(name: str, folder: Path) -> Suite:
    return load_suite(name, results=folder / "results.jsonl", run_folder=folder / "runs", smoke=True)


@pytest.mark.parametrize("name", sorted(set(suite_names()) - NEEDS_A_RUN))
def test_a_suite_runs_and_resumes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = smoke_suite(name, tmp_path)
    only = suite["smoke"].get("only", []) if "smoke" in suite.spec else []
    assert runner.run(suite, only) == 0
    lines = read_lines(suite.results)
    assert lines, capsys.readouterr().out
    recorded = read_lines(load_suite(name).results)
    for line in lines:
        assert not recorded or line.keys() in [other.keys() for other in recorded], sorted(line)
        assert line["commit"]
        assert line["versions"]
    before = suite.results.read_text()
    assert runner.run(suite, only) == 0
    assert suite.results.read_text() == before


@pytest.mark.parametrize("name", suite_names())
def test_recorded_lines_have_the_fields_of_the_key(name: str) -> None:
    suite = load_suite(name)
    optional = {"method", "data", "n", "d", "k"} if name == "speed_clam" else set()
    wanted = {field.removeprefix("len:") for field in suite.key} - optional
    assert all(wanted <= line.keys() for line in read_lines(suite.results))


def make_run(folder: Path, tasks: JudgedTasks | None = None) -> None:
    config = ScoredSetsConfig(sets=3, held_out=3, balanced=0.0)
    make_scored_sets(tasks or SyntheticPrior(max_points=60), config, 0, folder / "runs" / "judged")


def test_folds_of_tables_have_judges_of_their_own(tmp_path: Path) -> None:
    make_run(tmp_path)
    suite = smoke_suite("tables_out_of_fold", tmp_path)
    assert runner.run(suite, []) == 0
    lines = read_lines(suite.results)
    assert {line["settings"]["fold"] for line in lines} == {0, 1}
    assert all("ari" in line["metrics"] for line in lines)
    assert len(list((tmp_path / "runs").glob("fold-*/judge.safetensors"))) == 2


def test_folds_of_embeddings_leave_out_what_their_corpus_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path, EmbeddingPrior(min_points=50, max_points=60))
    trained: dict[str, set[str]] = {}

    def train(config: Any, training: Any, held_out: Any, *rest: Any, folder: Path, **options: Any) -> Any:
        trained[folder.name] = {one.kind for one in (*training, *held_out)}
        assert options["start"] is None
        return train_on_scored_sets(config, training, held_out, *rest, folder=folder, **options)

    def read(suite: Suite) -> tuple[Recipe, list[ScoredSet]]:
        recipe, sets = read_run(suite)
        taught = ["corpus/emb_minilm_bbc", "corpus/emb_lite0_cifar100_train100", "embedding/one-class"]
        return recipe, [*sets, *(replace(sets[0], kind=kind) for kind in taught)]

    read_run = judge._read_run
    monkeypatch.setattr(judge, "_read_run", read)
    monkeypatch.setattr(judge, "train_on_scored_sets", train)
    suite = smoke_suite("embeddings_out_of_fold", tmp_path)
    assert runner.run(suite, ["texts/bbc", "texts/dblp", "image-classes/cifar100-5-0"]) == 0
    lines = read_lines(suite.results)
    assert [line["settings"]["fold"] for line in lines] == ["bbc", "dblp", "cifar100"]
    assert all("ari" in line["metrics"] for line in lines), lines
    others = {one.kind for one in read_run(suite)[1]}
    assert trained == {
        "fold-bbc": others | {"corpus/emb_lite0_cifar100_train100"},
        "fold-dblp": others | {"corpus/emb_minilm_bbc", "corpus/emb_lite0_cifar100_train100"},
        "fold-cifar100": others | {"corpus/emb_minilm_bbc"},
    }
    assert load_checkpoint(tmp_path / "runs" / "fold-bbc" / "judge.safetensors")[1]["metric"] == "cosine"


def test_subsamples_are_compared_on_the_rows_that_both_have() -> None:
    first, second = stability.take_subsamples(100, 0.8, 0)
    assert (len(first), len(set(first.tolist()))) == (80, 80)
    groups = np.arange(100) % 4
    assert stability.agreement_of_shared([first, second], [groups[first], 3 - groups[second]]) == 1.0
    assert abs(stability.agreement_of_shared([first, second], [groups[first], groups[:80]])) < 1.0


def test_random_embeddings_have_length_one() -> None:
    X, labels = speed.random_embeddings(5000, 0, {"columns": 30, "clusters": 3})
    assert X.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0, atol=1e-5)
    assert set(labels.tolist()) == {0, 1, 2}


def test_ablations_measure_scored_sets(tmp_path: Path) -> None:
    make_run(tmp_path)
    suite = smoke_suite("judge_ablations", tmp_path)
    assert runner.run(suite, suite["smoke"]["only"]) == 0
    assert [line["variant"] for line in read_lines(suite.results)][:2] == ["the judge", "silhouette"]


def test_again_replaces_lines_of_the_chosen_methods(tmp_path: Path) -> None:
    suite = smoke_suite("tables", tmp_path)
    runner.run(suite, ["kmeans"])
    first = suite.results.read_text()
    runner.run(suite, ["kmeans", "tabular/tiny"], again=True)
    lines = [json.loads(text) for text in suite.results.read_text().splitlines()]
    assert sorted(line["data"] for line in lines) == ["highdim/wide", "tabular/tiny"]
    assert len(first.splitlines()) == len(lines)


def test_unknown_names_are_rejected_and_tables_merged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no method or data set 'nothing'"):
        runner.run(smoke_suite("tables", tmp_path), ["nothing"])
    with pytest.raises(InputError, match="no suite 'nothing'"):
        load_suite("nothing")
    with pytest.raises(InputError, match="not TOML"):
        load_suite("tables", overrides=["x"])
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}
    tables: dict[str, dict[str, Any]] = {"first": {"x": 1, "y": {"z": 1}}, "second": {"like": "first", "y": {"w": 2}}}
    assert resolve(tables, "second") == {"x": 1, "y": {"z": 1, "w": 2}}
    assert load_suite("tables", overrides=["seeds=[7]"])["seeds"] == [7]


def test_the_command_lists_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert "zero_shot" in capsys.readouterr().out
    results = str(tmp_path / "results.jsonl")
    assert main(["run", "amcp", "--smoke", "--results", results, "--dry-run"]) == 0
    assert "to do: mog-40-2 amcp" in capsys.readouterr().out
    assert main(["run", "tables", "--only", "nothing", "--results", results]) == 2
    assert main(["figures", "amcp_networks", "--only", "steps", "--only", "course", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "amcp-steps.png").is_file()
    assert main(["figures", "zero_shot", "--folder", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("suite", "figure"), [("abc_circles", "ari"), ("dac", "mixtures"), ("judge_calibration", "calibration")]
)
def test_a_figure_is_drawn_from_results(suite: str, figure: str, tmp_path: Path) -> None:
    assert main(["figures", suite, "--only", figure, "--folder", str(tmp_path)]) == 0
    assert list(tmp_path.glob("*.png"))


def test_figures_of_embeddings_are_drawn_from_results(tmp_path: Path) -> None:
    def line(data: str, k: int, method: str) -> str:
        scores = {"ari": 0.5, "ari_assigned": 0.6, "confidence": 0.4}
        return json.dumps({"data": data, "method": method, "seed": 0, "k": k, "metrics": scores})

    sets = [("texts/bbc", 5), ("image-classes/cifar100-5-0", 5), ("image-classes/tinyimagenet-10-0", 10)]
    for name, methods in {"embeddings_unknown": ["coterie", "evoc"], "embeddings_out_of_fold": ["coterie"]}.items():
        lines = [line(data, k, method) for data, k in sets for method in methods]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    results = str(tmp_path / "embeddings_unknown.jsonl")
    assert main(["figures", "embeddings_unknown", "--results", results, "--folder", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"embeddings-agreement.png", "embeddings-confidence.png"}
    for name in ("embeddings_unknown", "embeddings_out_of_fold"):
        (tmp_path / f"{name}.jsonl").write_text("")
    assert main(["figures", "embeddings_unknown", "--results", results, "--folder", str(tmp_path)]) == 2
