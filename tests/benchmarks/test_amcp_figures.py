"""Pictures of AMCP are drawn from results, and say what they lack."""

from pathlib import Path

import pytest

from benchmarks.quality import amcp_figures
from benchmarks.quality.amcp_figures import main
from benchmarks.quality.amcp_networks import ContenderRecord
from benchmarks.quality.records import append_line


def record(network: str, em_steps: int, sets: str, ari: float) -> ContenderRecord:
    return ContenderRecord(
        network=network,
        scenario="mog",
        settings={"em_steps": str(em_steps), "parameters": 10},
        minutes=2.0,
        steps=100,
        loss=0.1,
        course=[(50, 0.4), (100, ari)] if network == "amcp" else [],
        sets=sets,
        sets_seed=1,
        decoding="faithful",
        metrics={"ari": [ari, None]},
        seconds=[0.1 * (1 + em_steps)],
        commit="0",
        versions={},
    )


def test_curves_are_drawn_from_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = tmp_path / "amcp_networks.jsonl"
    monkeypatch.setattr(amcp_figures, "RESULTS", results)
    for sets in ("mog-1000-4", "mog-3000-12"):
        for network, steps in (("amcp", 3), ("amcp T=1", 1), ("amcp transport T=1", 1), ("amcp transport T=3", 3)):
            append_line(results, record(network, steps, sets, 0.8 + 0.01 * steps))
    assert main(["--only", "steps,course", "--folder", str(tmp_path / "drawn")]) == 0
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["amcp-course.png", "amcp-steps.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "drawn").iterdir())


def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(amcp_figures, "RESULTS", tmp_path / "none.jsonl")
    assert main(["--only", "course", "--folder", str(tmp_path)]) == 2
    assert "amcp_networks first" in capsys.readouterr().err
    assert main(["--only", "digits", "--folder", str(tmp_path)]) == 2
    assert "--runs" in capsys.readouterr().err
