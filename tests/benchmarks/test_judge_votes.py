"""Samples that vote: measured once, and laid beside the first of them alone."""

from pathlib import Path

import pytest

from benchmarks.quality import judge_votes
from benchmarks.quality.judge_votes import OUT, QUICK_ROWS, SUITE
from benchmarks.quality.judge_votes_results import section
from benchmarks.quality.records import Record, append_line, read_records
from coterie.judged.sample import VOTERS


@pytest.mark.slow
def test_sets_are_measured_once(tmp_path: Path) -> None:
    out = tmp_path / OUT.name
    for _ in range(2):
        assert judge_votes.main(["--quick", "--out", str(out)]) == 0
        records = read_records(out)
        assert len({record.key for record in records}) == len(records) == 2 * SUITE.quick_sets
    for alone, voted in zip(records[::2], records[1::2], strict=True):
        assert (alone.settings["voters"], voted.settings["voters"]) == (1, VOTERS["thorough"])
        assert alone.settings["rows"] == QUICK_ROWS
        assert alone.metrics["changed"] == 0
        assert alone.metrics["ari"] == voted.metrics["ari"] or voted.metrics["changed"]
        assert (voted.metrics["ari"] or 0.0) <= (voted.metrics["best_alone"] or 0.0)
        assert alone.seconds < voted.seconds
    assert section(tmp_path).count("\n| ") == 4


def line(place: int, voters: int, ari: float, n_clusters: int, mean_alone: float = 0.5) -> Record:
    metrics = {
        "ari": ari,
        "n_clusters": n_clusters,
        "confidence": 0.75,
        "changed": int(voters > 1),
        "mean_alone": mean_alone,
        "best_alone": 1.0,
    }
    settings: dict[str, str | int | float | bool | None] = {
        "voters": voters,
        "rows": 2_000,
        "judge": "j",
        "effort": "thorough",
    }
    method = "one sample" if voters == 1 else f"{voters} samples"
    return Record("", f"universal/{place}", method, 7, settings, metrics, 9.0 * voters, 8_000, 2, 3, "0", {})


def test_only_sets_that_both_have_are_compared(tmp_path: Path) -> None:
    assert section(tmp_path) == ""
    for record in (line(0, 1, 0.5, 5), line(0, 3, 0.75, 4), line(1, 1, 0.5, 3), line(1, 3, 0.25, 3), line(2, 1, 0, 9)):
        append_line(tmp_path / OUT.name, record)
    text = section(tmp_path)
    assert "2 fresh sets of the [universal prior](universal.md) of 8,000 rows each (seed 7," in text
    assert "| one sample | .500 ± .000 | 1.00 | .250 | 9 |" in text
    assert "| 3 samples | .500 ± .177 | 0.50 | .250 | 27 |" in text
    assert "gains +0.000 ± 0.177 over the first sample, and +0.000 ± 0.177 over" in text
    assert "On 2 of 2 sets" in text
    assert "would gain +0.500 ± 0.177 more" in text
