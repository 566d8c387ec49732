"""Experiments on hand-written characters, with alphabets that are made up."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.quality import omniglot_figures, omniglot_methods, omniglot_models, omniglot_suite, omniglot_training
from benchmarks.quality.dac_methods import load_model
from benchmarks.quality.omniglot_methods import abc, methods
from benchmarks.quality.omniglot_models import Base, load_base, trained, training_tasks
from benchmarks.quality.omniglot_results import COMPARED, METHODS, OmniglotPage, sections
from benchmarks.quality.omniglot_sets import alphabets, published, sets_of
from benchmarks.quality.omniglot_suite import EVALUATION, HELD_BACK, OmniglotRecord
from benchmarks.quality.records import read_lines
from coterie.amortized.abc.network import AttentionBasedModel
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.tasks.classes import QUARTER_TURNS, Instances
from coterie.recipes import read_recipe, run_recipe

SIDE = 16
LETTERS = 7
DRAWINGS = 20
FEW = Instances((20, 20), (2, 4), "composition", 1.0, QUARTER_TURNS)
NAMES = ("Learned", "Kept", "Back", "New", "Tengwar")
RECIPE = """
name = "tiny"
summary = "Tiny."
seed = 0
batch_size = 2

[model]
method = "attention-based"
n_features = 256
encoder = "strided"
image = [1, 16, 16]
channels = 4
width = 8
heads = 2
views = 2

[tasks]
kind = "omniglot"
without = ["Back"]
points = [20, 20]
clusters = [2, 4]
rotations = true
turn_by = 10.0

[held_out]
kind = "omniglot"
only = ["Back"]
points = [20, 20]
clusters = [2, 4]

[train]
steps = 3
save_every = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five alphabets of seven letters, each letter a pattern that its drawings vary a little; and a tiny recipe."""
    folder = tmp_path_factory.mktemp("omniglot")
    rng = np.random.default_rng(0)
    patterns = rng.random((len(NAMES) * LETTERS, 1, SIDE, SIDE)) > 0.7
    drawings = np.where(patterns, 200, 20) + rng.integers(0, 50, (len(patterns), DRAWINGS, SIDE, SIDE))
    characters = np.repeat(np.arange(len(patterns)), DRAWINGS)
    np.savez(
        folder / "omniglot28.npz",
        images=drawings.reshape(-1, SIDE, SIDE).astype(np.uint8),
        split=(characters // LETTERS >= 3).astype(np.uint8),
        alphabet=(characters // LETTERS).astype(np.uint8),
        character=characters.astype(np.uint16),
        char_in_alphabet=(characters % LETTERS + 1).astype(np.uint8),
        alphabet_names=np.array(NAMES),
    )
    (folder / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COTERIE_DATA", str(folder))
        run_recipe(read_recipe(folder / "tiny.toml"), folder / "run")
    return folder


@pytest.fixture(autouse=True)
def _data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(folder))
    monkeypatch.setattr(omniglot_models, "HELD_BACK_BATCHES", 1)
    monkeypatch.setattr(omniglot_models, "WEIGHED_SETS", 4)
    small = {
        name: replace(network, config=_small(network.config), batch_size=1, instances=FEW)
        for name, network in omniglot_models.NETWORKS.items()
        if name in {"pairwise", "faithful", "dac-af"}
    }
    monkeypatch.setattr(omniglot_models, "NETWORKS", small)
    monkeypatch.setattr(omniglot_methods, "NETWORKS", small)
    monkeypatch.setattr(omniglot_methods, "EPOCHS", 2)


def _small(config: Any) -> Any:
    made = replace(config, width=8, heads=2)
    return replace(made, inducing=2, depth=1, mask_depth=1) if isinstance(made, DacConfig) else made


@pytest.fixture
def base(folder: Path) -> Base:
    return load_base(folder / "run" / "tiny.safetensors")


def test_all_methods_get_the_same_sets_within_the_limits_of_the_task() -> None:
    new, _ = alphabets("evaluation")
    assert (new.name, new.n_classes, len(new.labels)) == ("New", LETTERS, LETTERS * DRAWINGS)
    first, again = sets_of(new, "varying", 4), sets_of(new, "varying", 4)
    assert all(torch.equal(one.index, other.index) for one, other in zip(first, again, strict=True))
    for one in first:
        assert len(one.index) == len(torch.unique(one.index)) == 100
        assert 5 <= one.n_clusters == len(torch.unique(one.labels)) <= LETTERS
        letters = new.labels[one.index]
        assert len(set(zip(letters.tolist(), one.labels.tolist(), strict=True))) == one.n_clusters
    assert {one.n_clusters for one in sets_of(new, "fixed", 3)} == {LETTERS}  # fewer than twenty: all
    (whole,) = sets_of(new, "whole", 5)
    assert torch.equal(whole.labels, new.labels)


def test_the_network_in_two_says_what_it_said_in_one(base: Base, folder: Path) -> None:
    new, _ = alphabets("evaluation")
    pixels = new.pixels[::9]
    with torch.no_grad():
        in_one = load_model(AttentionBasedModel, str(folder / "run" / "tiny.safetensors")).kernel(pixels.unsqueeze(0))
        in_two = base.head.kernel(base.features(pixels, 2).unsqueeze(0))
    assert torch.allclose(in_one, in_two, atol=1e-6)
    assert not torch.allclose(base.features(pixels, 2), base.features(pixels))
    assert [alphabet.name for alphabet in base.held_back()] == ["Back"]
    prepared = abc(base).prepare()
    index = torch.arange(0, len(new.labels), 9)
    assert torch.allclose(prepared.gather(prepared.look(new), index), in_one[0], atol=1e-6)


def test_features_are_of_what_is_learned_from_alone_and_made_once(base: Base, tmp_path: Path) -> None:
    tasks = training_tasks(base, FEW, tmp_path, copies=2)
    assert tasks.features.shape == (2, 4, 2 * LETTERS * DRAWINGS, base.width)  # "Learned" and "Kept"
    (path,) = tmp_path.iterdir()
    made = path.stat().st_mtime_ns
    training_tasks(base, FEW, tmp_path, copies=2)
    assert path.stat().st_mtime_ns == made
    batch = tasks.sample(3, Generator().manual_seed(0))
    assert batch.x.shape == (3, 20, base.width)
    rows = tasks.features.flatten(0, 2)
    assert all(bool((rows == point).all(dim=1).any()) for point in batch.x[0])


def test_training_goes_on_where_it_stopped(base: Base, tmp_path: Path) -> None:
    first = trained("pairwise", base, tmp_path, steps=2, copies=1)
    assert isinstance(first, AttentionBasedModel)
    assert first.config.depth == 0
    again = trained("pairwise", base, tmp_path, steps=2, copies=1)
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), again.parameters(), strict=True))
    faithful = trained("faithful", base, tmp_path, steps=1, copies=1)
    assert faithful.config.pos_weight > 1
    assert omniglot_models.main(["--networks", "none", "--weights", str(tmp_path / "no.safetensors")]) == 2


def test_the_suite_measures_everything_once(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "omniglot.jsonl"
    small = ["--weights", str(folder / "run" / "tiny.safetensors"), "--run-folder", str(tmp_path / "runs")]
    small += ["--out", str(out), "--sets", "2", "--steps", "1", "--copies", "1"]
    assert omniglot_suite.main(small) == 0
    records = read_lines(out, OmniglotRecord)
    assert {record.method for record in records} <= METHODS.keys()
    assert {(record.task, record.reading) for record in records if record.method == "dac-af"} == {
        ("whole", "kernel"),
        ("whole", "robust"),
    }
    for record in records:
        assert set(record.nmi) == set(record.k_error) == set(record.seconds) == {"New", "Tengwar"}
        assert all(0 <= value <= 1 for value in record.nmi.values())
        assert record.told or record.task != "fixed"
        assert not record.told or set(record.k_error.values()) == {0}
    pixels = next(record for record in records if (record.method, record.task) == ("k-means", "whole"))
    assert min(pixels.nmi.values()) > 0.8  # letters are all but copies here
    capsys.readouterr()
    assert omniglot_suite.main(small) == 0
    assert capsys.readouterr().out == ""
    assert len(read_lines(out, OmniglotRecord)) == len(records)
    assert omniglot_suite.main([*small, "--anew", "--methods", "k-means", "--task", "whole"]) == 0
    assert len(read_lines(out, OmniglotRecord)) == len(records)
    assert omniglot_suite.main([*small, "--methods", "abc", "--task", "varying", "--held-back"]) == 0
    assert {tuple(r.nmi) for r in read_lines(out, OmniglotRecord) if r.alphabets == HELD_BACK} == {("Back",)}
    assert omniglot_suite.main([*small, "--methods", "nothing"]) == 2
    page = {name: make() for name, make in sections(tmp_path).items()}
    assert "| Tengwar |" in page["omniglot_per_alphabet"]
    assert "| pairwise |" in page["omniglot_instances"]
    assert "not run" not in page["omniglot_verdict"].splitlines()[0]


def test_states_of_a_run_become_a_curve(folder: Path, tmp_path: Path) -> None:
    out, states = tmp_path / "omniglot.jsonl", tmp_path / "states"
    states.mkdir()
    (states / "one.safetensors").write_bytes((folder / "run" / "state.safetensors").read_bytes())
    options = ["--snapshots", str(states), "--recipe", str(folder / "tiny.toml"), "--out", str(out), "--sets", "2"]
    assert omniglot_training.main(options) == 0
    assert {record.settings["step"] for record in read_lines(out, OmniglotRecord)} == {3}
    drawing = ["--weights", str(folder / "run" / "tiny.safetensors"), "--results", str(out), "--folder", str(tmp_path)]
    assert omniglot_figures.main(drawing) == 0
    assert all((tmp_path / name).stat().st_size > 5_000 for name in ("abc-omniglot.png", "abc-omniglot-training.png"))
    assert omniglot_figures.main([*drawing, "--only", "nothing"]) == 2
    assert omniglot_figures.main([*drawing, "--only", "training", "--results", str(tmp_path / "none.jsonl")]) == 2


def test_published_numbers_agree_with_each_other() -> None:
    table = published()
    assert len(table["alphabets"]) == 20
    for method, place in COMPARED.items():
        for metric in ("k_error", "seconds"):
            values = [one[metric][place] for one in table["alphabets"].values()]
            assert sum(values) / 20 == pytest.approx(table["means"][method][metric], abs=0.06)


def test_a_page_without_results_says_so(tmp_path: Path) -> None:
    page = OmniglotPage(tmp_path)
    assert page.instances() == page.whole() == page.per_alphabet() == page.table_8() == page.held_back() == "Not run."
    assert page.verdict().count("not run.") == len(page.verdict().splitlines())


def test_published_numbers_stand_beside_ours(tmp_path: Path) -> None:
    names = list(published()["alphabets"])
    line: dict[str, Any] = {"suite": "omniglot", "alphabets": EVALUATION, "task": "whole", "n_sets": 1, "sets_seed": 0}
    line |= {"told": False, "settings": {}, "found": {}, "commit": "", "versions": {}, "k_found": {}}
    lines = []
    for method, reading, nmi, seconds in (("abc", "linkage", 0.9, 1.0), ("dac-af", "kernel", 0.85, 2.0)):
        scores = [dict.fromkeys(names, value) for value in (nmi, 2.0, seconds)]
        fields = dict(zip(("nmi", "k_error", "seconds"), scores, strict=True))
        lines.append(json.dumps({**line, "method": method, "reading": reading, **fields}))
    (tmp_path / "omniglot.jsonl").write_text("\n".join(lines), encoding="utf-8")
    page = OmniglotPage(tmp_path)
    assert (
        "| DAC-AF | every point an anchor | .850 ± .000 / .829 | 2.0 ± .0 / 4.6 | 2.00 ± .00 / 4.30 |" in page.whole()
    )
    assert "| Mongolian | 30 | 2 | – / 6 | – / 1 | 2 / 0 | 1.0 |" in page.table_8()
    assert "DAC-AF at least .80: reached (.850)" in page.verdict()
    assert "ABC above DAC-AF: reached (.050)" in page.verdict()


def test_every_method_has_a_title(base: Base, tmp_path: Path) -> None:
    assert {method.name for method in methods(base, tmp_path)} <= METHODS.keys()
