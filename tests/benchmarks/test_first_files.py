"""Generated tables as people have them, and what the suite computes on them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.__main__ import main
from benchmarks.baselines.kprototypes import k_prototypes
from benchmarks.data.first_files import FILES, load_file
from benchmarks.data.frames import encode_frame
from benchmarks.data.tables import ReferenceSet
from benchmarks.protocols.first_files import examine
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_labels_and_depends_on_the_seed_alone(name: str) -> None:
    file = load_file(name, 1_000)
    pd.testing.assert_frame_equal(file.frame, load_file(name, 1_000).frame)
    assert not file.frame.equals(load_file(name, 1_001).frame)
    assert len(file.frame) == len(file.y)
    assert set(file.junk) <= set(file.frame)
    clusters = set(file.y.tolist()) - {-1}
    assert clusters == set(range(len(clusters)))
    assert (len(clusters) == 1) == name.startswith("null/")


def test_variants_share_their_rows() -> None:
    plain, junk = load_file("junk/4.5/none", 1_000), load_file("junk/4.5/3-levels", 1_000)
    pd.testing.assert_frame_equal(plain.frame, junk.without_junk.frame)
    assert junk.frame["junk"].nunique() == 3
    assert (load_file("noise/moons/20-percent", 1_000).y == -1).mean() == pytest.approx(0.2)
    assert load_file("gaps/groups/one-column", 1_000).frame.isna().sum().tolist() == [10, 0, 0, 0, 0]
    with pytest.raises(InputError, match="no file 'nothing'"):
        load_file("nothing", 0)


def test_encoding_fills_gaps() -> None:
    day = pd.Timestamp("2026-01-01")
    frame = pd.DataFrame(
        {
            "size": [1.0, np.nan, 3.0, 5.0],
            "day": [day, pd.NaT, day, day + pd.Timedelta(days=4)],
            "colour": ["red", "blue", None, "red"],
        }
    )
    encoded = encode_frame(frame)
    assert encoded.shape == (4, 4)
    assert encoded[1, 0] == pytest.approx(encoded[2, 0])
    assert encoded[:, 2:].tolist() == [[1, 0], [0, 1], [0, 0], [1, 0]]


def test_k_prototypes_use_numbers_and_categories() -> None:
    truth = np.repeat(np.arange(4), 25)
    numbers = np.random.default_rng(0).normal(size=(100, 2)) + 9.0 * (truth % 2)[:, None]
    categories = np.stack([truth // 2, truth // 2, truth // 2], axis=1)
    labels = k_prototypes(numbers, categories, 4, gamma=9.0, n_init=5, seed=0)
    assert adjusted_rand_index(truth, labels) == 1.0


def test_answers_are_examined() -> None:
    y = np.array([0, 0, 0, 1, 1, -1])
    frame = pd.DataFrame({"junk": ["a", "b", "a", "b", "a", "b"], "x": [1.0, 2.0, 3.0, 4.0, np.nan, 6.0]})
    one = ReferenceSet("toy", "toy", frame, (y,))
    assert examine(one, np.array([0, 1, 0, 1, 0, 1])) == {
        "single": 0,
        "column_ami": 1.0,
        "repeats": 1,
        "gap_clusters": 0,
    } | {"noise_recall": 0.0}
    found = examine(one, np.array([0, 0, 0, -1, 1, -1]))
    assert (found["gap_clusters"], found["noise_recall"], found["noise_precision"]) == (1, 1.0, 0.5)
    assert examine(one, np.full(6, -1))["single"] == 1


def test_figures_are_drawn_from_results(tmp_path: Path) -> None:
    def line(data: str, method: str, **metrics: float) -> str:
        kind, family, variant = [*data.split("/"), ""][:3]
        settings = {"kind": kind, "family": family, "variant": variant}
        scores = {"ari": 0.9, "ari_assigned": 0.9, "confidence": 0.8, "single": 0, **metrics}
        return json.dumps({"data": data, "method": method, "seed": 0, "settings": settings, "metrics": scores})

    results = tmp_path / "first_files.jsonl"
    sets = ["files/customers", "null/gaussian", "noise/moons/10-percent"]
    lines = [line(data, "coterie") for data in sets] + [line("noise/cities", "coterie-noise", noise_recall=0.5)]
    results.write_text("\n".join(lines))
    held_out = {"settings": {"judge": "mine"}, "metrics": {"kind": "mixed/people", "confidence": 0.5, "ari": 0.4}}
    (tmp_path / "judge_calibration.jsonl").write_text(json.dumps(held_out))
    assert main(["figures", "first_files", "--results", str(results), "--folder", str(tmp_path)]) == 0
    names = {path.name for path in tmp_path.glob("*.png")}
    assert names == {f"first-files-{part}.png" for part in ("calibration", "noise", "null")}
    results.write_text("")
    assert main(["figures", "first_files", "--results", str(results), "--folder", str(tmp_path)]) == 2
