"""Clustering without being told k: its data, its peers, their limits, and the arithmetic of the page."""

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from benchmarks.quality import zero_shot_peers, zero_shot_results, zero_shot_suite
from benchmarks.quality.records import Floats, Labels, Record, Setting, read_records
from benchmarks.quality.zero_shot_data import BenchmarkSet, load, names
from benchmarks.quality.zero_shot_peers import METHODS, Method, choose, in_two, noise_to_nearest
from benchmarks.quality.zero_shot_results import BLOCKS, best_stored, block_tables, newest, section, summarise
from benchmarks.quality.zero_shot_suite import Answer, Told, Worker
from coterie.errors import InputError

HERE = [method for method in METHODS if method.installed_version is not None]


def ladder_of_rows() -> BenchmarkSet:
    """Twelve rows on a line: two references, the second of which calls the last two rows noise."""
    thirds, halves = np.repeat([0, 1, 2], 4), np.array([0] * 6 + [1] * 4 + [-1] * 2)
    return BenchmarkSet("fcps/line", "batteries", np.arange(12.0)[:, None], (thirds, halves))


def record(method: str, data: str, seed: int = 0, *, given_k: bool = False, n: int = 100, **metrics: float) -> Record:
    found = {"ari": 0.5, "nmi": 0.5, "ari_assigned": 0.5, "n_clusters": 3, "noise_share": 0.0} | metrics
    settings: dict[str, Setting] = {"group": "batteries", "given_k": given_k}
    return Record("zero-shot", data, method, seed, settings, found, 1.0, n, 2, 3, "0", {})


def in_this_process(worker: Worker, X: Floats, seed: int, told: Sequence[Told]) -> Answer:
    return Answer([in_two(worker.method.fit(X, seed, *each))[0] for each in told], 1.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of data with one set of each group."""
    battery = tmp_path / "clustering-data-v1" / "fcps"
    battery.mkdir(parents=True)
    for suffix, text in {"data": "0 0\n1 0\n9 9\n", "labels0": "1\n1\n2\n", "labels1": "1\n2\n0\n"}.items():
        (battery / f"tiny.{suffix}.gz").write_bytes(gzip.compress(text.encode()))
    for group in ("tabular", "highdim"):
        (tmp_path / group).mkdir()
        np.savez(tmp_path / group / "small.npz", X=np.array([[1.0, 10.0], [3.0, 30.0]]), y=np.array([0, 1]))
    y = np.arange(24) % 12
    np.savez(tmp_path / "emb_lite0_birds.npz", Xq=np.tile(y[:, None], 3).astype(np.uint8), scale=np.float32(0.5), y=y)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    load.cache_clear()
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_all_references_of_a_battery_are_read() -> None:
    assert names("batteries") == ["fcps/tiny"]
    one = load("batteries", "fcps/tiny")
    assert [reference.tolist() for reference in one.references] == [[0, 0, 1], [0, 1, -1]]
    assert one.ks == (2, 2)
    assert one.columns_for_peers is one.X


@pytest.mark.usefixtures("folder")
def test_peers_get_standardised_columns_of_tables() -> None:
    one = load("tables", names("tables")[0])
    assert one.X.tolist() == [[1.0, 10.0], [3.0, 30.0]]
    assert one.columns_for_peers.tolist() == [[-1.0, -1.0], [1.0, 1.0]]
    assert names("highdim") == ["highdim/small"]


@pytest.mark.usefixtures("folder")
def test_ten_classes_of_embeddings_are_drawn_with_all_their_rows() -> None:
    one = load("embeddings", names("embeddings")[0])
    assert one.name == "embeddings/birds"
    assert one.ks == (10,)
    assert one.X.shape == (20, 3)
    np.testing.assert_array_equal(one.X[:, 0], 0.5 * one.references[0])


def test_data_that_is_nowhere_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    with pytest.raises(InputError, match="COTERIE_DATA"):
        names("tables")


def test_the_reference_that_agrees_best_counts_without_its_noise() -> None:
    one = ladder_of_rows()
    halves = np.array([0] * 6 + [1] * 4 + [7, 8])
    score = one.score([halves, halves])
    assert (score.ari, score.nmi, score.k) == (1.0, 1.0, 2)
    thirds = one.references[0]
    assert one.score([thirds, thirds]).k == 3


def test_a_method_that_is_told_k_is_scored_reference_by_reference() -> None:
    one = ladder_of_rows()
    asked: list[Sequence[Told]] = []

    def cluster(X: Floats, _seed: int, told: Sequence[Told]) -> Answer:
        asked.append(told)
        return Answer([np.arange(len(X)) * each[0] // len(X) for each in told if each], 2.0)

    found = zero_shot_suite.run(one, choose(["kmeans"])[0], 0, cluster)
    assert asked == [[(2,), (3,)]]
    assert found.k in {2, 3}
    assert (found.metrics["ari"], found.metrics["n_clusters"]) == (1.0, found.k)
    assert found.settings["given_k"] is True


def test_noise_counts_as_a_cluster_and_is_also_given_away() -> None:
    one = ladder_of_rows()
    labels = np.array([0, 0, 0, -1, 1, 1, 1, -1, 2, 2, 2, 2])
    found = zero_shot_suite.run(one, choose(["hdbscan-5"])[0], 0, lambda *_: Answer([labels], 1.0))
    assert found.metrics["n_clusters"] == 3
    assert found.metrics["noise_share"] == pytest.approx(2 / 12, abs=1e-6)
    assert (found.metrics["ari"] or 0.0) < (found.metrics["ari_assigned"] or 0.0)


def test_noise_goes_to_the_nearest_cluster() -> None:
    X = np.array([[0.0], [1.0], [2.0], [8.0], [9.0]])
    assert noise_to_nearest(X, np.array([0, 0, -1, -1, 5])).tolist() == [0, 0, 0, 5, 5]
    assert noise_to_nearest(X, np.full(5, -1)).tolist() == [0] * 5
    clean = np.array([0, 0, 1, 1, 1])
    assert noise_to_nearest(X, clean) is clean


@pytest.mark.parametrize("method", [method for method in HERE if not method.name.endswith("-50")], ids=lambda m: m.name)
@pytest.mark.filterwarnings("ignore:Graph is not fully connected", "ignore:Affinity propagation did not converge")
def test_peers_find_clusters_far_apart(method: Method) -> None:
    X, y = make_blobs(120, 5, centers=20 * np.eye(3, 5), cluster_std=0.5, random_state=0)
    one = BenchmarkSet("fcps/blobs", "batteries", X, (y,))
    found = zero_shot_suite.run(one, method, 0, partial(in_this_process, Worker(method)))
    # These two have their own idea of how fine a partition is.
    least = 0.3 if method.name in {"affinity-propagation", "evoc"} else 0.9
    assert (found.metrics["ari_assigned"] or 0.0) > least


def test_k_is_chosen_on_a_part_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = make_blobs(300, 2, centers=[[0, 0], [30, 0], [0, 30]], random_state=0)
    monkeypatch.setattr(zero_shot_peers, "SEARCH_ROWS", 90)
    for fit in (zero_shot_peers.kmeans_silhouette, zero_shot_peers.gmm_bic):
        labels: Labels = fit(X, 0, max_clusters=5)
        assert BenchmarkSet("", "batteries", X, (y,)).score([labels]).ari == 1.0


def test_too_many_rows_are_not_tried() -> None:
    method = replace(choose(["ward"])[0], max_rows=11)
    found = zero_shot_suite.run(ladder_of_rows(), method, 0, lambda *_: pytest.fail("was run"))
    assert (found.metrics, found.note) == ({}, "not run: more than 11 rows")


@pytest.mark.slow
def test_a_method_that_takes_too_long_is_stopped_and_one_that_breaks_down_says_why() -> None:
    X = np.random.default_rng(0).normal(size=(2_000, 2))
    worker = Worker(replace(choose(["affinity-propagation"])[0], seconds=1))
    try:
        assert worker.ask(X, 0, [()]).failure == "stopped after 1 processor seconds"
        assert "ValueError" in worker.ask(np.full((5, 2), np.nan), 0, [()]).failure
        assert len(worker.ask(X[:20], 0, [()]).partitions[0]) == 20
    finally:
        worker.end()


@pytest.mark.usefixtures("folder")
def test_an_interrupted_run_goes_on_and_is_made_anew_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "ask", in_this_process)
    out = tmp_path / "zero_shot.jsonl"
    method = choose(["kmeans"])[0]
    interrupted = zero_shot_suite.run_method(method, ["embeddings"], out)
    first = next(interrupted)
    interrupted.close()
    arguments = ["--group", "embeddings", "--methods", "kmeans,ward", "--out", str(out)]
    assert zero_shot_suite.main(arguments) == 0
    before = read_records(out)
    assert before[0] == first
    assert [(r.method, r.seed) for r in before] == [("kmeans", 0), ("kmeans", 1), ("kmeans", 2), ("ward", 0)]
    assert zero_shot_suite.main(arguments) == 0
    assert read_records(out) == before
    assert zero_shot_suite.main([*arguments[:2], "--methods", "ward", "--anew", "--out", str(out)]) == 0
    assert [r.metrics for r in read_records(out)] == [r.metrics for r in before]


def test_unknown_and_missing_methods_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "x.jsonl")
    assert zero_shot_suite.main(["--methods", "none", "--out", out]) == 2
    assert "Known are" in capsys.readouterr().err
    absent = replace(METHODS[0], package="no-such-package")
    monkeypatch.setattr(zero_shot_suite, "choose", lambda _: [absent])
    assert zero_shot_suite.main(["--out", out]) == 0
    assert "needs the package no-such-package" in capsys.readouterr().err


def test_seeds_are_averaged_before_sets() -> None:
    records = [
        record("a", "fcps/x", 0, ari=0.0, n_clusters=3),
        record("a", "fcps/x", 1, ari=1.0, n_clusters=5),
        record("a", "fcps/y", 0, ari=1.0, n_clusters=1),
        record("b", "fcps/y", 0, ari=-1.0),
        replace(record("a", "fcps/z"), metrics={}, note="stopped"),
    ]
    found = summarise("a", records)
    assert found is not None
    assert (found.sets, found.ari, found.k_error, found.k_exact) == (2, 0.75, 1.5, 0.25)
    assert summarise("c", records) is None


def test_only_the_newest_of_equal_runs_counts() -> None:
    old, new = record("a", "fcps/x", ari=0.1), replace(record("a", "fcps/x", ari=0.9), settings={"given_k": False})
    assert newest([old, new]) == [new]


def test_methods_that_are_told_k_stand_apart() -> None:
    records = [
        record("hdbscan-5", "fcps/x", ari=0.25),
        record("kmeans", "fcps/x", given_k=True, ari=0.75),
        record("kmeans", "fcps/y", given_k=True, ari=0.25),
    ]
    free, told = block_tables(BLOCKS[0], records, []).split("\n\n")[1:]
    assert "| HDBSCAN, size 5 | 1 of 2 | .250 | .500 | .500 | 0.0 | 100 % | 0 % | 1.00 |" in free
    assert "k-means" not in free
    assert "| k-means | 2 | .500 | .500 | 1.00 |" in told


def test_stored_methods_must_have_all_sets_and_are_scored_by_their_best_reference() -> None:
    def row(dataset: str, method: str, ari: float, n: int = 100, battery: str = "sipu") -> dict[str, str]:
        values = {"battery": battery, "dataset": dataset, "method": method, "ARI": ari, "NMI": ari / 2, "n": n}
        return {name: str(value) for name, value in values.items()}

    rows = [
        row("a", "all", 0.2),
        row("a", "all", 0.6),
        row("big", "all", 0.4, n=100_000),
        row("a", "small-only", 0.9),
        row("unknown", "all", 0.0),
    ]
    found = best_stored(rows, ["sipu/a", "sipu/big"])
    by_title = {title: [(one.method, one.sets, one.ari, one.nmi) for one in means] for title, means in found.items()}
    assert by_title["sipu"] == [("all", 2, 0.5, 0.25)]
    assert by_title["sipu, sets of up to 10,000 rows"] == [("small-only", 1, 0.9, 0.45), ("all", 1, 0.6, 0.3)]
    assert "fcps" not in by_title


def test_the_section_can_be_made_of_nothing_and_of_something(tmp_path: Path) -> None:
    assert section(tmp_path).count("Not run.") == len(BLOCKS)
    lines = [
        record("evoc", "graves/x"),
        replace(record("spectral", "graves/x"), metrics={}, note="not run: more than 20,000 rows"),
    ]
    text = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
    (tmp_path / zero_shot_results.RECORDS).write_text(text, encoding="utf-8")
    stored = {"graves": [{"method": "Genie_G0.3", "sets": 1, "ari": 0.9, "nmi": 0.8}]}
    (tmp_path / zero_shot_results.STORED).write_text(json.dumps(stored), encoding="utf-8")
    page = section(tmp_path)
    assert "### graves: 1 sets" in page
    assert "| Genie_G0.3, stored | 1 | .900 | .800 | – |" in page
    assert "- spectral, neighbours, not run: more than 20,000 rows: graves/x." in page
