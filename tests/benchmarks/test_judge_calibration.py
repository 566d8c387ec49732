"""Confidence: sets that are judged once, and the arithmetic of bins."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.quality import judge_calibration, judge_calibration_figure, judge_calibration_results
from benchmarks.quality.judge_calibration import OUT, judged_part, missing_parts
from benchmarks.quality.judge_calibration_results import Point, bins, calibration_error, correlation, section
from benchmarks.quality.records import Record, append_line, read_records
from benchmarks.quality.synthetic_sets import Asked
from benchmarks.quality.zero_shot_results import RECORDS
from coterie.judged import training as judging


def line(place: int, confidence: float, ari: float, *, single: float = 0.0, k: int = 3, judge: str = "j") -> Record:
    effort = judge_calibration.effort_of(place)
    metrics = {"confidence": confidence, "ari": ari, "single": single}
    return Record("", f"universal/{place}", "", 0, {"effort": effort, "judge": judge}, metrics, 1.0, 9, 2, k, "0", {})


def test_sets_are_judged_once_and_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_calibration, "SINGLE", 0.5)
    monkeypatch.setattr(judging, "FEWEST_ALONE", 10)
    out = tmp_path / OUT.name
    assert judge_calibration.main(["--quick", "--out", str(out)]) == 0
    records = read_records(out)
    assert [record.settings["effort"] for record in records] == ["fast", "balanced"] * 2
    for record in records:
        assert 0.0 < (record.metrics["confidence"] or 0.0) < 1.0
        assert 0.0 < (record.metrics["single"] or 0.0) < 1.0
        assert (record.metrics["ari"] or 0.0) <= (record.metrics["best"] or 0.0) <= 1.0
        assert record.seed == judge_calibration.SUITE.seed
    assert {record.k == 1 for record in records} == {False, True}
    again = judged_part([2], judge_calibration.QUICK_POINTS)[0]
    assert (again.key, again.metrics) == (records[2].key, records[2].metrics)
    assert judge_calibration.main(["--quick", "--out", str(out)]) == 0
    assert read_records(out) == records
    assert missing_parts(Asked(15, quick=True, out=out), judge_calibration.QUICK_POINTS) == [list(range(4, 14)), [14]]


def test_parts_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[int]] = []

    def interrupted(parts: Sequence[Sequence[int]], max_points: int) -> Iterator[list[Record]]:
        assert max_points == judge_calibration.MAX_POINTS
        asked.extend(parts)
        yield [judge_calibration._blank(place, max_points) for place in parts[-1]]
        raise KeyboardInterrupt

    monkeypatch.setattr(judge_calibration, "judged_parts", interrupted)
    out = tmp_path / OUT.name
    with pytest.raises(KeyboardInterrupt):
        judge_calibration.main(["--sets", "30", "--out", str(out)])
    assert asked == [list(range(start, start + 10)) for start in (0, 10, 20)]
    with pytest.raises(KeyboardInterrupt):
        judge_calibration.main(["--sets", "30", "--out", str(out)])
    assert asked[3:] == asked[:2]


@pytest.mark.slow
def test_parts_are_made_in_other_processes() -> None:
    (part,) = judge_calibration.judged_parts([[1, 2]], judge_calibration.QUICK_POINTS)
    assert [record.data for record in part] == ["universal/1", "universal/2"]


def test_bins_and_what_is_made_of_them() -> None:
    points = [Point("fast", 0.91, 1.0), Point("fast", 0.99, 0.6), Point("fast", 0.05, -0.05), Point("fast", 1.0, 0.8)]
    low, high = bins(points)
    assert (low.sets, low.predicted, low.true, low.error) == (1, 0.05, -0.05, 0.0)
    assert (high.sets, high.high) == (3, 1.0)
    assert [high.low, high.predicted, high.true, high.error] == pytest.approx([0.9, 2.9 / 3, 0.8, 0.2 / 3**0.5])
    assert calibration_error(points) == pytest.approx((0.1 + 3 * (2.9 / 3 - 0.8)) / 4)
    assert (correlation(points) or 0.0) > 0.9
    assert correlation(points[:1]) is None


def test_the_section_has_synthetic_and_real_sets_and_single_clusters(tmp_path: Path) -> None:
    assert section(tmp_path) == ""
    for record in (
        line(0, 0.1, 0.9, judge="older"),
        line(0, 0.75, 0.5),
        line(1, 0.75, 0.9),
        line(2, 0.35, 0.0, single=0.8, k=1),
        line(3, 0.95, 1.0, single=0.6),
    ):
        append_line(tmp_path / OUT.name, record)
    page = section(tmp_path, tmp_path)
    assert "for `j`" in page
    assert "on 4 fresh sets" in page
    assert "| 0.7 to 0.8 | 2 | .750 | .700 ± .200 |" in page
    assert "| synthetic, fast | 1 | .750 | .500 | .250 | – |" in page
    assert "of 1 sets of one cluster 1 are called so, and of 3 others 1." in page
    assert "| 0.8 to 0.9 | 1 | .800 | 1.000 ± .000 |" in page
    assert "| real |" not in page
    assert judge_calibration_results.PICTURE not in page
    for group, method in (("tables", "coterie"), ("highdim", "coterie"), ("tables", "kmeans")):
        metrics = {"ari": 0.25, "confidence": 0.5}
        append_line(tmp_path / RECORDS, Record("", group, method, 0, {"group": group}, metrics, 1.0, 9, 2, 3, "0", {}))
    assert judge_calibration_figure.main(["--results", str(tmp_path), "--folder", str(tmp_path)]) == 0
    page = section(tmp_path, tmp_path)
    assert "| real | 1 | .500 | .250 | .250 | – |" in page
    assert f"(figures/{judge_calibration_results.PICTURE})" in page


def test_there_is_no_picture_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge_calibration_figure.main(["--results", str(tmp_path), "--folder", str(tmp_path)]) == 2
    assert "has no sets" in capsys.readouterr().err
