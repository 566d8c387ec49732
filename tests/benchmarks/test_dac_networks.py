"""Networks that are trained for the same time."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality import dac_networks, networks
from benchmarks.quality.dac_networks import NETWORKS, NetworkRecord, main
from benchmarks.quality.dac_results import DacPage
from benchmarks.quality.records import read_lines
from coterie.amortized.dac.config import DacConfig


def test_every_network_is_trained_and_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_config = DacConfig(2, width=8, heads=2, inducing=2, depth=1, mask_depth=1, max_passes=3)
    small = replace(NETWORKS["ours"], config=small_config)
    monkeypatch.setattr(dac_networks, "NETWORKS", {"small": small, "again": small})
    monkeypatch.setattr(dac_networks, "BATCHES", 1)
    monkeypatch.setattr(networks, "TRIAL_STEPS", 2)
    out = tmp_path / "dac_networks.jsonl"
    assert main(["--minutes", "0", "--out", str(out)]) == 0
    first, second = read_lines(out, NetworkRecord)
    assert first.network == "small"
    assert first.steps == second.steps == 20
    assert first.loss == second.loss  # the same seed, the same sets
    assert first.n_sets == 10
    assert set(first.metrics) == {"mog-1000-4", "mog-3000-12"}
    assert all(-1 <= one["ari"] <= 1 and one["k_error"] >= 0 for one in first.metrics.values())
    page = DacPage(tmp_path).networks()
    assert page.startswith("0 minutes each:")
    assert f"| small | {first.parameters:,} | 20 |" in page


def test_a_page_without_them_says_so(tmp_path: Path) -> None:
    assert DacPage(tmp_path).networks() == "Not run."
