"""What DAC and ClAM would add to the proposals: measured once, and laid out."""

from pathlib import Path

import pytest

from benchmarks.quality import more_proposers
from benchmarks.quality.more_proposers import OUT, SUITE, section
from benchmarks.quality.records import Record, append_line, read_records


@pytest.mark.slow
def test_sets_are_measured_once(tmp_path: Path) -> None:
    out = tmp_path / OUT.name
    for _ in range(2):
        assert more_proposers.main(["--quick", "--out", str(out)]) == 0
        assert len(read_records(out)) == SUITE.quick_sets


def test_the_best_is_the_best_of_both(tmp_path: Path) -> None:
    for place, (best, dac) in enumerate(((0.5, 1.0), (1.0, 0.0))):
        metrics = {"best": best, "dac": dac, "clam": 0.25, "dac_seconds": 0.5, "clam_seconds": 2.0}
        append_line(tmp_path / OUT.name, Record("", str(place), "", 1, {}, metrics, 1.0, 9, 2, 3, "0", {}))
    text = section(tmp_path)
    assert "| all proposals | .750 | .7500 | 1.00 |" in text
    assert "| DAC | .500 | 1.0000 | 0.50 |" in text
    assert "| ClAM, told k | .250 | .7500 | 2.00 |" in text
    assert section(tmp_path / "none") == ""
