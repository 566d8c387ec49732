"""Sets of hand-written characters: parts share no picture, the suite measures and goes on, pictures are laid out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.data.images import PictureSet
from benchmarks.quality import emnist_figures, emnist_results, emnist_sets, emnist_suite
from benchmarks.quality.drawing import MARGIN, montage
from benchmarks.quality.emnist_sets import SIDE, HeldOutSet, Sizes, held_out_sets, part_of, pictures, tasks
from benchmarks.quality.emnist_suite import EmnistRecord, Stage, log_likelihood
from benchmarks.quality.records import append_line, read_lines
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.nn.density import StatisticianHead
from coterie.nn.model import build
from coterie.ops.partitions import Clustering

N_CLASSES, MEMBERS = 4, 30
TINY = Sizes(20, 2)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pretended(name: str) -> PictureSet:
    """Stripes at a place of their own for each class, and a corner whose grey says which picture it is."""
    classes = np.tile(np.arange(N_CLASSES), MEMBERS)
    images = np.zeros((len(classes), SIDE, SIDE), dtype=np.uint8)
    for image, place in zip(images, classes, strict=True):
        image[:, 7 * place + 1 : 7 * place + 5] = 250
    images[:, 0, 0] = np.arange(len(classes)) + 1
    nothing = np.zeros_like(classes)
    return PictureSet(images, classes, nothing, nothing, tuple("abcd"), ("all",), ("test",), name)


@pytest.fixture(autouse=True)
def _files_that_are_pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(emnist_sets, "load_pictures", pretended)
    pictures.cache_clear()
    yield
    pictures.cache_clear()


def test_parts_share_no_picture_and_have_all_classes() -> None:
    parts = {part: pictures(part) for part in emnist_sets.SEEDS}
    shown = [int(number) for images, _ in parts.values() for number in images[:, 0, 0, 0]]
    assert sorted(shown) == list(range(1, N_CLASSES * MEMBERS + 1))
    counts = {part: torch.bincount(classes).tolist() for part, (_, classes) in parts.items()}
    assert counts == {"training": [21] * N_CLASSES, "validation": [3] * N_CLASSES, "test": [6] * N_CLASSES}


def test_every_fifth_picture_of_a_class_is_for_the_test() -> None:
    assert part_of(np.zeros(20, dtype=np.int64)).tolist() == [0, 0, 0, 1, 2, 0, 0, 0, 0, 2] * 2


def test_held_out_sets_are_the_same_however_many_are_drawn() -> None:
    few, many = held_out_sets("test", TINY, 2), held_out_sets("test", TINY, 4)
    for one, other in zip(few, many, strict=False):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.labels, other.labels)
    assert all(6 <= len(one.labels) < 20 for one in many)
    assert {one.n_clusters for one in held_out_sets("test", TINY, 20)} == {1, 2}
    assert set(torch.unique(many[0].x).tolist()) == {0.0, 1.0}


def small_config() -> DacConfig:
    return replace(emnist_suite.CONFIG, channels=4, width=8, inducing=2, depth=1, mask_depth=1, context_width=3)


def test_likelihood_of_one_cluster_is_the_mean_bound_per_pixel() -> None:
    model = build(DacModel, small_config(), seeded()).eval()
    (one,) = held_out_sets("test", TINY, 1)
    context = torch.randn((1, 3), generator=seeded())
    alone = Clustering(one.labels, 1, extras={"context": context, "log_share": torch.zeros(1)})
    assert isinstance(model.density, StatisticianHead)
    source = seeded()
    with torch.no_grad():
        draws = [model.density.bound(one.x.unsqueeze(0), context, source) for _ in range(emnist_suite.DRAWS)]
    expected = float(torch.cat(draws).mean()) / SIDE**2
    assert log_likelihood(model, one, alone) == pytest.approx(expected, rel=1e-5)
    # Nothing is gained or lost, but for chance, by counting a cluster as two halves.
    halves = {"context": context.expand(2, -1), "log_share": torch.full((2,), 0.5).log()}
    assert log_likelihood(model, one, Clustering(one.labels, 2, extras=halves)) == pytest.approx(expected, rel=0.05)


@pytest.fixture
def small_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emnist_suite, "CONFIG", small_config())
    monkeypatch.setattr(emnist_suite, "STAGES", (Stage((6, 12), steps=3, learning_rate=1e-3, batch_size=2),) * 2)
    monkeypatch.setattr(emnist_suite, "TEST_SETS", {TINY: 5})
    monkeypatch.setattr(emnist_suite, "TRIAL_STEPS", 1)


@pytest.mark.usefixtures("small_suite")
def test_the_suite_measures_every_method_once(tmp_path: Path) -> None:
    out = tmp_path / "emnist.jsonl"
    asked = ["--run-folder", str(tmp_path / "run"), "--sets", "2", "--out", str(out)]
    assert emnist_suite.main(asked) == 0
    records = {record.method: record for record in read_lines(out, EmnistRecord)}
    assert list(records) == list(emnist_suite.METHODS)
    assert all(len(record.metrics["ari"]) == 2 for record in records.values())
    assert records["kmeans"].metrics["ari"] == [1.0, 1.0]
    assert len(records["dac"].metrics["ll"]) == 2
    assert "ll" not in records["kmeans"].metrics
    decodings = {name: record.settings.get("model.decoding") for name, record in records.items()}
    assert (decodings["dac"], decodings["dac-faithful"], decodings["kmeans"]) == ('"robust"', '"faithful"', None)
    size = out.stat().st_size
    assert emnist_suite.main(asked) == 0
    assert out.stat().st_size == size
    assert emnist_results.section(tmp_path / "nothing") == ""


@pytest.mark.usefixtures("small_suite")
def test_unknown_methods_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emnist_suite.main(["--run-folder", str(tmp_path), "--methods", "dbscan"]) == 2
    assert "dbscan" in capsys.readouterr().err


def test_section_has_printed_numbers_beside_ours(tmp_path: Path) -> None:
    metrics: dict[str, list[float]] = {"ari": [0.9, 0.8], "nmi": [0.9, 0.8], "k_true": [3, 4], "k_found": [3, 5]}
    stage = '{"points": [30, 100], "steps": 2000, "batch_size": 10, "moved": {"turn_by": 1.0}, "only_density": true}'
    dac = EmnistRecord(
        data="emnist-1000-4",
        part="test",
        method="dac",
        settings={"stage-1": stage, "parameters": 1_234_567, "minutes": 3.0},
        sets_seed=2,
        metrics=metrics | {"ll": [-0.19, -0.17]},
        seconds=[1.0, 3.0],
        commit="",
        versions={},
    )
    out = tmp_path / emnist_suite.OUT.name
    append_line(out, dac)
    append_line(out, replace(dac, method="kmeans", metrics=metrics))
    text = emnist_results.section(tmp_path)
    assert "| DAC | -.180 ± .010 | .850 ± .050 | .850 ± .050 | .50 ± .50 | 2.00 ± 1.00 |" in text
    assert "| k-means, true k | – | .850 ± .050 | .850 ± .050 | – | 2.00 ± 1.00 |" in text
    assert "| DAC, as printed | -.193 ± .002 | – | – | – | – |" in text
    assert "2,000 steps of 10 sets of 30 to 100 pictures, these turned, stretched and shifted a little, of the" in text
    assert text.endswith("at least .80: reached.")


def test_pictures_stand_in_rows_dark_on_white() -> None:
    sheet = montage(np.ones((11, SIDE**2)), 10)
    side = SIDE + MARGIN
    assert sheet.shape == (2 * side + 2, 10 * side + 2)
    assert (1 - sheet).sum() == 11 * SIDE**2
    assert sheet[side + 2, 2] == 0
    assert sheet[side + 2, side + 2] == 1
    assert montage(np.ones((0, SIDE**2)), 10, least_rows=3).shape == (3 * side + 2, 10 * side + 2)


def test_drawn_sets_have_all_classes() -> None:
    one = next(emnist_figures.sets())
    assert isinstance(one, HeldOutSet)
    assert (one.n_clusters, len(one.labels)) == (4, 100)
    assert tasks("test", (5, 5), 2).sample(1, seeded()).x.shape == (1, 5, SIDE**2)
