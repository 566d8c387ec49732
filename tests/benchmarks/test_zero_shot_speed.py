"""The speed of the zero-shot default: what is measured, what is not, and what the page says of it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import zero_shot_speed_results
from benchmarks.quality.records import Labels, Record, append_line, read_records
from benchmarks.quality.zero_shot_peers import Method
from benchmarks.speed import zero_shot
from benchmarks.speed.zero_shot import METHODS, Measured, blobs, in_own_process, measure

FOUND = Measured([3.0, 1.0, 2.0], before_mb=100.0, peak_mb=150.0, ari=0.5, n_clusters=4)
BY_NAME = {method.name: method for method in METHODS}


def line(method: str, rows: int, seconds: float, note: str = "", **metrics: float) -> Record:
    found: Mapping[str, float] = {"peak_mb": 500.0, "before_mb": 400.0, "ari": 0.25, "n_clusters": 3} | metrics
    settings = {"threads": 2, "limit_seconds": 120}
    return Record("", f"blobs-{rows}", method, 0, settings, {} if note else found, seconds, rows, 10, 10, "0", {}, note)


def test_a_larger_table_has_the_groups_of_a_smaller_one() -> None:
    x, labels = blobs(200_000, 0)
    assert x.shape == (200_000, zero_shot.COLUMNS)
    means = np.stack([x[labels == label].mean(axis=0) for label in range(zero_shot.CLUSTERS)])
    assert np.allclose(means, np.random.default_rng(0).normal(0.0, zero_shot.SPREAD, means.shape), atol=0.05)


@pytest.mark.parametrize("method", ["kmeans-1", "coterie-fast"])
def test_a_method_is_measured(method: str) -> None:
    calls: list[None] = []
    found = measure(BY_NAME[method], 150, 2, lambda: calls.append(None))
    assert len(calls) == 3
    assert len(found.seconds) == 2
    assert min(found.seconds) > 0.0
    assert found.peak_mb >= found.before_mb > 10.0
    assert found.ari > 0.5
    assert found.n_clusters > 1


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int]] = []

    def quickly(method: Method, rows: int, runs: int) -> Measured:
        asked.append((method.name, rows, runs))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return FOUND

    monkeypatch.setattr(zero_shot, "in_own_process", quickly)
    out = tmp_path / "speed.jsonl"
    arguments = ["--quick", "--methods", "coterie,kmeans", "--out", str(out)]
    with pytest.raises(KeyboardInterrupt):
        zero_shot.main(arguments)
    assert zero_shot.main(arguments) == 0
    assert asked == [("coterie", 300, 3), ("kmeans", 300, 3), ("kmeans", 300, 3)]
    ours, theirs = read_records(out)
    assert (ours.seconds, ours.metrics["longest"], ours.metrics["peak_mb"]) == (2.0, 3.0, 150.0)
    assert (theirs.seed, theirs.settings["limit_seconds"]) == (zero_shot.SEED, 120)
    assert zero_shot.main([*arguments, "--anew"]) == 0
    assert len(asked) == 5
    assert len(read_records(out)) == 2


def test_what_took_too_long_or_may_not_is_not_tried_on_more_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def too_slow(_: Method, rows: int, runs: int) -> str:
        asked.append(rows)
        assert runs == (3 if rows <= 10_000 else 1)
        return "more than 120 s"

    monkeypatch.setattr(zero_shot, "in_own_process", too_slow)
    records = list(zero_shot.run([BY_NAME["hdbscan-5"]], (10_000, 100_000, 1_000_000), tmp_path / "a.jsonl"))
    assert asked == [10_000]
    assert [record.note for record in records] == ["more than 120 s"] + 2 * ["not run: more than 120 s at 10,000 rows"]
    bounded = replace(BY_NAME["coterie-thorough"], max_rows=500)
    assert next(zero_shot.run([bounded], (501,), tmp_path / "b.jsonl")).note == "not run: more than 500 rows"


def test_unknown_and_missing_methods_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert zero_shot.main(["--quick", "--methods", "none"]) == 2
    absent = replace(METHODS[0], package="no-such-package")
    monkeypatch.setattr(zero_shot, "choose", lambda *_: [absent])
    assert zero_shot.main(["--quick"]) == 0
    assert "the package no-such-package is not installed" in capsys.readouterr().err


def fails(*_: object) -> Labels:
    raise ValueError("cannot")


@pytest.mark.slow
def test_a_process_is_measured_stopped_or_has_failed() -> None:
    method = BY_NAME["kmeans-1"]
    found = in_own_process(method, 200, 1)
    assert isinstance(found, Measured)
    assert len(found.seconds) == 1
    assert in_own_process(replace(method, seconds=0), 100_000, 1) == "more than 0 s"
    assert in_own_process(Method("fails", fails), 200, 1) == "failed: its process ended with code 1"


def test_the_section_says_which_aims_are_met(tmp_path: Path) -> None:
    assert zero_shot_speed_results.section(tmp_path) == ""
    for record in (
        line("coterie-fast", 1_000, 0.5),
        line("coterie", 1_000, 6.0),
        line("kmeans", 1_000, 0.4),
        line("coterie", 100_000, 0.0, note="more than 120 s"),
        line("coterie", 1_000_000, 30.0, peak_mb=1_900.0),
    ):
        append_line(tmp_path / zero_shot.OUT.name, record)
    page = zero_shot_speed_results.section(tmp_path)
    assert "| **Coterie, fast** | 0.50 | 500 (400) | .250 | 3 | – | 1.25 |" in page
    assert "| **Coterie, balanced** | 6.00 | 500 (400) | .250 | 3 | – | 15 |" in page
    assert "| **Coterie, balanced** | more than 120 s | – |" in page
    assert "- Coterie, fast, 1,000 rows within 1 s: met (0.50 s)." in page
    assert "- Coterie, balanced, 1,000 rows within 5 s: **not met** (6.00 s)." in page
    assert "100,000 rows within 20 s: **not met** (more than 120 s)." in page
    assert "1,000,000 rows within 2,000 MB: met (1,900 MB)." in page
    assert (
        "Not measured: **Coterie, thorough**; EVoC; fast_hdbscan, size 5; HDBSCAN, size 5; k-means, one start." in page
    )
    aims = zero_shot_speed_results.TARGETS
    assert aims[0].verdict([]).endswith("not measured.")
