"""How time grows: what is measured of each method, and what the page says of it."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.quality.amcp_results import speeds
from benchmarks.speed.amcp import METHODS, blobs, growth, main


def test_every_method_is_measured_on_every_shape(tmp_path: Path) -> None:
    out = tmp_path / "speed_amcp.jsonl"
    assert main(["--quick", "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(line["method"], line["n"]) for line in lines] == [(name, n) for n in (100, 200) for name in METHODS]
    assert all(line["seconds"] > 0 and line["k_found"] >= 1 for line in lines)
    assert {line["ari"] for line in lines if line["method"] in {"AMCP", "DAC"}} == {1.0}  # two blobs far apart


def test_growth_is_an_exponent() -> None:
    assert growth([(10, 0.5), (20, 7.0), (100, 5.0)]) == pytest.approx(1.0)
    assert growth([(10, 1.0), (100, 100.0)]) == pytest.approx(2.0)


def test_sets_have_as_many_points_and_clusters_as_asked_for() -> None:
    x, labels = blobs(90, 4)
    assert x.shape == (90, 2)
    assert labels.bincount().tolist() == [23, 23, 22, 22]
    assert torch.equal(blobs(90, 4)[0], x)


def test_the_page_has_both_tables_and_the_growth() -> None:
    lines = [
        {"method": method, "n": n, "k": k, "seconds": factor * n * k / 1e4}
        for n, k in ((1000, 8), (3000, 8), (9000, 8), (3000, 2), (3000, 4))
        for method, factor in (("AMCP, passes", 1.0), ("DAC, passes", 2.0))
    ]
    *_, by_points, by_clusters = speeds(lines).split("\n\n")
    assert by_points.startswith("| points, 8 clusters | AMCP, passes | DAC, passes |")
    assert "| 3,000 | 2.400 | 4.800 |" in by_points
    assert by_points.endswith("| growth | 1.00 | 1.00 |")
    assert [row.split(" | ")[0] for row in by_clusters.splitlines()[2:]] == ["| 2", "| 4", "| 8", "| growth"]
    assert speeds([]) == ""
