"""The page's part about DAC, from no results, some, and all of one method; and the benchmark of its speed."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.quality import dac_results
from benchmarks.quality.dac_results import DacPage, Target
from benchmarks.quality.dac_sets import TABLES, published
from benchmarks.quality.dac_suite import SetsRecord
from benchmarks.speed import dac as speed


def record(method: str, ll: Sequence[float], k_found: Sequence[int], batch: int = 0, seed: int = 1000) -> SetsRecord:
    return SetsRecord(
        suite="dac",
        table=1,
        sets="mog-1000-4",
        sets_seed=seed,
        batch=batch,
        n_points=300,
        method=method,
        settings={},
        metrics={"ll": list(ll), "ari": [1.0, 0.98], "nmi": [1.0, 1.0], "k_true": [2, 3], "k_found": list(k_found)},
        seconds=[0.25, None],
        commit="0",
        versions={},
    )


def page(folder: Path, *records: SetsRecord) -> DacPage:
    lines = "".join(json.dumps(asdict(each)) + "\n" for each in records)
    (folder / "dac.jsonl").write_text(lines, encoding="utf-8")
    return DacPage(folder)


def test_sections_can_be_made_of_nothing(tmp_path: Path) -> None:
    for name, make in dac_results.sections(tmp_path).items():
        assert "not run" in make().lower(), name


def test_gaps_are_taken_set_by_set(tmp_path: Path) -> None:
    found = page(
        tmp_path,
        record("true-parameters", [-1.0, -2.0], [2, 3]),
        record("dac", [-1.5, -2.1], [2, 5]),
        record("dac", [-9.0, -9.0], [2, 3], batch=1),  # its truth was not run
        record("dac", [-7.0, -7.0], [9, 9], seed=4),  # other sets
    )
    assert found.values(1, "mog-1000-4", "dac", "gap") == pytest.approx([0.5, 0.1])
    assert found.values(1, "mog-1000-4", "dac", "k_error") == [0, 2, 0, 0]
    assert found.values(1, "mog-1000-4", "dac", "seconds") == [0.25, 0.25]
    assert "| DAC | 4 | -5.400 ± 2.082 / -.692 | .300 ± .200 | .990" in found.table_1()
    assert "ARI at least .98: reached (.990)." in found.verdict(1)
    assert "k-MAE at most .06: **not reached** (.500)." in found.verdict(1)


def test_the_network_is_set_against_the_refinement_without_one(tmp_path: Path) -> None:
    found = page(
        tmp_path,
        record("dac", [-1.5, -2.1], [2, 5]),
        record("refined-seeds", [-1.5, -2.1], [2, 3]),
        record("x", [], []),
    )
    first, second = found.network_brings().splitlines()
    assert (
        first
        == "- (1000, 4), DAC less our refinement from k-means++, set by set: ARI .000 ± .000, k-MAE 1.000 ± 1.000."
    )
    assert second.endswith("not run.")


def test_a_target_says_what_it_aims_at() -> None:
    target = Target(1, "mog-3000-12", "ari", "ARI", 0.955, at_least=True)
    assert target.verdict(None) == "- (3000, 12), ARI at least .955: not run."


def test_published_numbers_are_of_known_sets_and_methods() -> None:
    names = {*dac_results.METHODS, "spectral", "unattributed", "fitted-flows"}
    for number, tables in TABLES.items():
        printed = published()[str(number)]
        assert {sets.name for sets in tables} <= set(printed)
        assert names.issuperset(method for block in printed.values() for method in block)


def test_speed_is_compared(tmp_path: Path) -> None:
    shared = {"max_clusters": 12, "peak_mb": 3.2, "ari": 0.97}
    lines = [
        {"method": "dac", "n": 3000, "seconds": 0.1, "median_seconds": 0.05, **shared},
        {"method": "bayesian-mixture", "n": 3000, "seconds": 0.2, "median_seconds": 0.2, **shared},
        {"method": "kmeans-search", "n": 3000, "seconds": 4.0, "median_seconds": 4.0, **shared},
        {"method": "spectral-rbf", "n": 3000, "max_clusters": 12, "seconds": None, "expected_seconds": 99.0},
    ]
    (tmp_path / "speed_dac.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    found = DacPage(tmp_path)
    assert (
        "| 3,000 | 0.100 s (0.050), 3 MB, .970 | 0.200 s (0.200), 3 MB, .970 | not run | not run | 4.000 s"
        in found.speeds()
    )
    verdict = found.speed_verdict()
    assert "than Bayesian mixture: **not reached** (2.0 times; 4.0 by the medians)." in verdict
    assert "than k-means search: reached (40.0 times; 80.0 by the medians)." in verdict
    assert "30,000 points, at least 10 times faster than Bayesian mixture: not run." in verdict


def test_slow_methods_are_expected_to_grow_by_the_square() -> None:
    done = [
        {"method": "spectral-rbf", "n": 1000, "max_clusters": 12, "seconds": 1.0},
        {"method": "spectral-rbf", "n": 3000, "max_clusters": 12, "seconds": None, "expected_seconds": 9.0},
        {"method": "dac", "n": 3000, "max_clusters": 12, "seconds": 1.0},
    ]
    assert speed.would_take("spectral-rbf", 6000, done) == pytest.approx(36.0)
    assert speed.would_take("kmeans-search", 6000, done) == 0.0
    assert speed.would_take("dac", 6000, done) == 0.0


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def quickly(method: str, *_: int) -> dict[str, float]:
        measured.append(method)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return {"seconds": 1.0}

    monkeypatch.setattr(speed, "in_own_process", quickly)
    out = tmp_path / "speed.jsonl"
    with pytest.raises(KeyboardInterrupt):
        speed.main(["--quick", "--out", str(out)])
    assert speed.main(["--quick", "--out", str(out)]) == 0
    assert measured == [measured[0], *list(speed.METHODS)[1:2], *list(speed.METHODS)[1:]]
    assert [json.loads(line)["method"] for line in out.read_text().splitlines()] == list(speed.METHODS)
    assert speed.main(["--quick", "--anew", "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == len(speed.METHODS)


@pytest.mark.parametrize("method", sorted(set(speed.METHODS) - {"dac"}))
def test_a_method_is_measured(method: str) -> None:
    found = speed.measure(method, 150, 3, n_sets=2)
    assert found["sets"] == 2
    assert found["seconds"] > 0.0
    assert found["peak_mb"] >= 0.0
    assert found["ari"] > 0.5
