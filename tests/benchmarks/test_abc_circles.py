"""Circles: networks after a few steps, a run that was interrupted, the page's part about them, and their pictures."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from benchmarks.quality import abc_circle_figures, abc_circles, abc_results
from benchmarks.quality.abc_circles import DECODINGS, KNOWN, NETWORKS, SPECTRAL, CirclesRecord, Plan
from benchmarks.quality.networks import SEED
from benchmarks.quality.records import read_lines
from coterie.metrics import adjusted_rand_index


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A few steps with few sets."""
    small = {name: replace(network, batch_size=4) for name, network in NETWORKS.items()}
    monkeypatch.setattr(abc_circles, "NETWORKS", small)
    return Plan(steps=2, n_sets=3, lengths=(8, 12), run_folder=tmp_path / "runs")


def quickly(out: Path, folder: Path, *more: str) -> int:
    return abc_circles.main(
        ["--steps", "2", "--sets", "3", "--lengths", "8,12", "--out", str(out), "--run-folder", str(folder), *more]
    )


def record(method: str, kind: str, length: int, ari: Sequence[float], decoding: str = KNOWN) -> CirclesRecord:
    settings = {} if method == SPECTRAL else {"steps": 50}
    return CirclesRecord("abc-circles", kind, 1, length, method, decoding, settings, list(ari), [4], 1.0, "0", {})


def write(folder: Path, *records: CirclesRecord) -> None:
    lines = "".join(json.dumps(asdict(each)) + "\n" for each in records)
    (folder / "abc_circles.jsonl").write_text(lines, encoding="utf-8")


def test_networks_are_as_published() -> None:
    multiplicative, additive, pairwise = (NETWORKS[name] for name in ("multiplicative", "additive", "pairwise"))
    for network in NETWORKS.values():
        config, training = network.config, network.training
        assert (config.width, config.heads, config.output_map, config.feed_forward) == (128, 1, False, "linear")
        assert (config.offset, config.pos_weight, config.symmetrise) == (False, 1.0, "logit")
        assert (training.learning_rate, training.optimiser, training.clip_norm) == (1e-3, "adam", None)
        assert (training.schedule, network.batch_size) == ("constant", 128)
    assert (multiplicative.config.depth, multiplicative.config.scale) == (2, "model")
    assert (additive.config.depth, additive.config.scale) == (2, "none")
    assert pairwise.config == replace(additive.config, depth=0)


def test_every_method_is_measured_once(tmp_path: Path, plan: Plan) -> None:
    out = tmp_path / "abc_circles.jsonl"
    assert quickly(out, plan.run_folder) == 0
    found = read_lines(out, CirclesRecord)
    measured = {(one.sets, one.length, one.method, one.decoding) for one in found}
    ways = {(SPECTRAL, KNOWN)} | {(name, decoding) for name in NETWORKS for decoding in DECODINGS}
    wanted = {(kind, length, *way) for kind in ("any", "crossing") for length in (8, 12) for way in ways}
    assert measured == wanted
    assert len(found) == len(wanted)
    for one in found:
        assert len(one.ari) == len(one.k_found) == 3
        assert all(-1 <= score <= 1 for score in one.ari)
        assert one.decoding != KNOWN or one.k_found == [4, 4, 4]
    assert quickly(out, plan.run_folder) == 0
    assert read_lines(out, CirclesRecord) == found
    page = abc_results.section(tmp_path)
    assert "ABC, additive 2" in page
    assert "| ABC, multiplicative, not told k, linkage | – | – |" in page  # of lengths that were not run


def test_an_interrupted_run_goes_on(tmp_path: Path, plan: Plan) -> None:
    out = tmp_path / "abc_circles.jsonl"
    first = next(abc_circles.run("additive", plan, out))
    later = list(abc_circles.run("additive", plan, out))
    again = list(abc_circles.run("additive", plan, tmp_path / "again.jsonl"))
    assert [one.ari for one in again] == [one.ari for one in (first, *later)]
    assert list(abc_circles.run("additive", plan, out)) == []
    # Another number of steps is another run.
    assert len(list(abc_circles.run("additive", replace(plan, steps=1), out))) == len(again)


def test_a_trained_network_is_kept(plan: Plan) -> None:
    first, second = (abc_circles.trained("multiplicative", plan) for _ in range(2))
    fresh = abc_circles.trained("multiplicative", replace(plan, steps=0))
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
    assert not torch.equal(first.query.weight, fresh.query.weight)
    assert {path.name for path in plan.run_folder.iterdir()} == {"multiplicative-2", "multiplicative-0"}


def test_sets_are_of_their_kind_and_others_than_those_trained_on() -> None:
    may, must = (abc_circles.circles(kind, 20, 5) for kind in ("any", "crossing"))
    assert may.x.shape == must.x.shape == (5, 20, 2)
    assert not torch.equal(may.x, must.x)
    assert torch.equal(may.x, abc_circles.circles("any", 20, 5).x)
    assert SEED not in {seed + length for seed in abc_circles.SETS_SEEDS.values() for length in (10, 20)}


def test_spectral_clustering_is_told_how_many() -> None:
    labels = torch.arange(24) % 4
    centres = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    noise = 0.3 * torch.randn((24, 2), generator=torch.Generator().manual_seed(0))
    (found,) = abc_circles.spectral((0.3 * (centres[labels] + noise)).unsqueeze(0))
    assert adjusted_rand_index(labels.numpy(), found.numpy()) == 1.0


def test_an_unknown_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert quickly(tmp_path / "x.jsonl", tmp_path, "--networks", "none") == 2
    assert "Known are" in capsys.readouterr().err


def test_a_page_of_nothing_says_so(tmp_path: Path) -> None:
    assert abc_results.section(tmp_path) == "Not run."


def test_the_order_of_methods_is_judged_set_by_set(tmp_path: Path) -> None:
    lengths = abc_circles.LENGTHS
    records = [record("additive", "any", length, [0.9, 0.7]) for length in lengths]
    records += [
        record("multiplicative", "any", length, [0.5, 0.2] if length == 50 else [0.9, 0.8]) for length in lengths
    ]
    records += [record(SPECTRAL, "any", length, [0.5, 0.3]) for length in lengths]
    records += [record("pairwise", "any", length, [0.1, 0.1]) for length in lengths if length != 100]
    records += [record("additive", "any", 20, [0.0, 0.4], "linkage")]
    write(tmp_path, *records)
    page = abc_results.section(tmp_path)
    assert (
        "Steps that were trained for, of 7,812 in the paper: ABC, additive 50, ABC, multiplicative 50, pairwise 50."
        in page
    )
    assert "| ABC, additive, told k | .800 ± .071 | .800 ± .071 |" in page
    assert "| ABC, additive, not told k, linkage | – | .200 ± .141 | – |" in page
    assert (
        "Networks told k, circles may cross: ABC, additive above spectral at every length (+0.400 ± 0.000 where" in page
    )
    assert "ABC, multiplicative above spectral **at 4 of 5 lengths only** (-0.050 ± 0.035 where it is" in page
    assert "spectral above pairwise was not run." in page
    assert "Networks told k, every circle crosses another: ABC, additive above spectral was not run" in page
    assert "Networks not told k, linkage, circles may cross: ABC, additive above spectral was not run" in page


def test_pictures_are_written(tmp_path: Path, plan: Plan) -> None:
    write(tmp_path, *(record(name, "any", length, [0.4, 0.6]) for name in abc_results.METHODS for length in (10, 20)))
    options = ["--folder", str(tmp_path / "pictures"), "--results", str(tmp_path / "abc_circles.jsonl")]
    assert abc_circle_figures.main([*options, "--steps", "2", "--run-folder", str(plan.run_folder)]) == 0
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert names == {"abc-circles.png", "abc-circles-ari.png"}


def test_pictures_that_cannot_be_drawn_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--folder", str(tmp_path), "--results", str(tmp_path / "none.jsonl")]
    assert abc_circle_figures.main([*options, "--only", "ari"]) == 2
    assert "Run benchmarks.quality.abc_circles first" in capsys.readouterr().err
    assert abc_circle_figures.main([*options, "--only", "none"]) == 2
    assert "Known are" in capsys.readouterr().err
