"""Rows that are looked at, and refining: measured once, and laid side by side set by set."""

from pathlib import Path

from benchmarks.quality import judge_rows
from benchmarks.quality.judge_rows import OUT, QUICK_ROWS, SUITE
from benchmarks.quality.judge_rows_results import section
from benchmarks.quality.records import Record, append_line, read_records


def test_sets_are_measured_once(tmp_path: Path) -> None:
    out = tmp_path / OUT.name
    for _ in range(2):
        assert judge_rows.main(["--quick", "--out", str(out)]) == 0
        records = read_records(out)
        assert len({record.key for record in records}) == len(records) == 2 * SUITE.quick_sets * len(QUICK_ROWS)
    for record in records:
        assert -1.0 <= (record.metrics["ari"] or 0.0) <= 1.0
        assert record.metrics["changed"] == 0 or record.settings["rounds"]
    assert section(tmp_path).count("\n| ") == 2 + len(QUICK_ROWS)


def line(place: int, rows: int, rounds: int, ari: float, n_clusters: int) -> Record:
    settings: dict[str, str | int | float | bool | None] = {
        "rows": rows,
        "rounds": rounds,
        "judge": "j",
        "effort": "balanced",
    }
    metrics = {"ari": ari, "n_clusters": n_clusters, "changed": int(rounds > 0)}
    return Record("", f"universal/{place}", f"{rows}, {rounds}", 0, settings, metrics, 2.0, 100, 2, 3, "0", {})


def test_only_sets_that_all_have_are_compared(tmp_path: Path) -> None:
    for record in (
        line(0, 300, 0, 0.5, 5),
        line(0, 300, 2, 0.75, 4),
        line(1, 300, 0, 0.0, 9),
        line(1, 300, 2, 0.0, 9),
        line(0, 1000, 0, 1.0, 3),
        line(0, 1000, 2, 1.0, 3),
        line(1, 1000, 0, 1.0, 3),
    ):
        append_line(tmp_path / OUT.name, record)
    text = section(tmp_path)
    assert "| 300 | .500 | .750 | +0.250 ± 0.000 | 1 | 2.00 | 1.00 | 2.0 |" in text
    assert "| 1,000 | 1.000 | 1.000 | +0.000 ± 0.000 | 1 | 0.00 | 0.00 | 2.0 |" in text
    assert section(tmp_path / "none") == ""
