"""Twin contrast and its relatives: every method is trained, measured once, and told of; embeddings are drawn alike."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.baselines.mice import MiceConfig
from benchmarks.baselines.swav import SwavConfig
from benchmarks.data.images import EmbeddingSet
from benchmarks.quality import tcc_data, tcc_estimator, tcc_figures, tcc_results, tcc_suite
from benchmarks.quality.records import read_lines
from benchmarks.quality.tcc_data import Images, embedded_sets, images
from benchmarks.quality.tcc_estimator import EstimatorRecord
from benchmarks.quality.tcc_results import significance
from benchmarks.quality.tcc_suite import ALL, CONTENDERS, PIXELS, ViewsRecord, config_of
from coterie import TCC
from coterie.tcc.model import TccConfig

N_IMAGES, SIDE = 60, 16


def striped() -> Images:
    """Images with a bright stripe, whose place is their class."""
    y = np.arange(N_IMAGES) % 10
    x = 0.1 * torch.rand((N_IMAGES, 1, SIDE, SIDE), generator=Generator().manual_seed(0))
    x[torch.arange(N_IMAGES), 0, torch.from_numpy(y) + 3] = 1.0
    return Images(x, y)


def pretended(name: str) -> EmbeddingSet:
    """Twelve classes that are easy to tell apart."""
    source = np.random.default_rng(int(name.startswith("cifar")))
    classes = np.repeat(np.arange(12), 5)
    codes = source.integers(0, 200, (12, 20))[classes] + source.integers(0, 10, (60, 20))
    return EmbeddingSet(codes.astype(np.uint8), 0.02, classes, np.zeros_like(classes), name)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tcc_data, "LOADERS", dict.fromkeys(("mnist", "cifar10"), striped))
    monkeypatch.setattr(tcc_data, "load_embeddings", pretended)
    for module in (tcc_suite, tcc_estimator, tcc_results):
        monkeypatch.setattr(module, "LOADERS", tcc_data.LOADERS)
    monkeypatch.setattr(tcc_suite, "BATCH_SIZE", 20)
    monkeypatch.setattr(tcc_suite, "TRIAL_STEPS", 4)
    images.cache_clear()
    yield
    images.cache_clear()


def test_every_method_is_trained_and_measured_once(tmp_path: Path) -> None:
    out = tmp_path / "tcc.jsonl"
    methods = (PIXELS, *CONTENDERS, "tcc, begun once")
    asked = ["--minutes", "0", "--seeds", "2", "--data", "mnist", "--methods", ";".join(methods), "--out", str(out)]
    assert tcc_suite.main(asked) == 0
    records = read_lines(out, ViewsRecord)
    assert [(record.method, record.seed) for record in records] == [(name, seed) for seed in (0, 1) for name in methods]
    for record in records:
        trained = record.method != PIXELS
        assert set(record.metrics) == {
            f"{name}{of}" for name in ("acc", "nmi", "ari") for of in ("", "_places")[: 1 + trained]
        }
        assert all(-0.5 <= value <= 1 for value in record.metrics.values())
        assert record.steps == (tcc_suite.LOOKS if trained else 0)
        assert [epoch for epoch, _, _ in record.course] == (
            [round(look / 3, 2) for look in range(1, 6)] if trained else []
        )
        if trained:
            assert record.course[-1][1] == pytest.approx(record.metrics["acc"], abs=1e-4)
    size = out.stat().st_size
    assert tcc_suite.main(asked) == 0
    assert out.stat().st_size == size
    page = tcc_results.section(tmp_path)
    assert page.startswith("\n\n## Twin contrast: images without labels")
    assert "MNIST:\n\n| method | ACC | NMI | ARI | ACC, features | epochs | seeds |\n" in page
    assert "| 2 | 2 |\n| TCC without the contrast of clusters |" in page
    assert "| begun once | " in page
    assert "CIFAR-10:\n" not in page


def test_models_are_what_their_names_say() -> None:
    shown = striped()
    ours, published = (config_of(ALL[name], shown) for name in ("tcc", "tcc as published"))
    assert ours == TccConfig(SIDE * SIDE, 10, image=(1, SIDE, SIDE))
    faithful = TccConfig.faithful(SIDE * SIDE, 10, (1, SIDE, SIDE))
    moco = config_of(ALL["moco"], shown)
    shared = {name: getattr(moco, name) for name in ("encoder", "channels", "momentum", "memory")}
    assert published == replace(faithful, **shared)
    assert isinstance(config := config_of(ALL["swav"], shown), SwavConfig)
    assert config.frozen_steps == 3
    assert isinstance(config := config_of(ALL["mice"], shown), MiceConfig)
    assert config.refreshed_every == 3
    assert config_of(ALL["tcc at once, without x"], shown) == replace(ours, sees_rows=False)


def test_unknown_methods_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tcc_suite.main(["--methods", "dec", "--out", str(tmp_path / "out.jsonl")]) == 2
    assert "dec" in capsys.readouterr().err


def test_significance_is_of_pairs() -> None:
    def record(method: str, seed: int, accuracy: float) -> ViewsRecord:
        return ViewsRecord("mnist", method, seed, {}, 1, 1, 1, 1, {"acc": accuracy}, [], "", {})

    ours, theirs = (0.9, 0.8, 0.7), (0.8, 0.72, 0.58)
    records = [record("tcc", seed, value) for seed, value in enumerate(ours)]
    records += [record("cc", seed, value) for seed, value in enumerate(theirs)]
    # Differences .1, .08 and .12: mean .1, standard error .02 / sqrt(3), so that t is 8.66 with two degrees of freedom.
    assert significance(records).endswith("| CC | 3 | .100 ± .012 | 0.0131 |")


def test_embedded_sets_are_whole_classes_and_the_same_however_many_are_drawn() -> None:
    few, many = embedded_sets("cifar100", 2, 7), embedded_sets("cifar100", 4, 7)
    for one, other in zip(few, many, strict=False):
        assert torch.equal(one.x, other.x)
        assert len(np.unique(one.y)) == 10
        assert len(one.y) == 10 * 5 * 2  # both files
    assert len(embedded_sets("tiny-imagenet", 1, 7)[0].y) == 10 * 5


def test_the_estimator_is_measured_on_images_and_embeddings(tmp_path: Path) -> None:
    out = tmp_path / "tcc_estimator.jsonl"
    asked = ["--data", "mnist,cifar100", "--seeds", "1", "--sets", "2", "--out", str(out)]
    few = {"tcc": lambda x, _: (np.arange(len(x)) % 10, {"epochs": 1.0})}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tcc_estimator, "ON_IMAGES", dict.fromkeys(tcc_estimator.ON_IMAGES, few["tcc"]))
        patched.setattr(tcc_estimator, "ON_EMBEDDINGS", {**tcc_estimator.ON_EMBEDDINGS, **few})
        assert tcc_estimator.main(asked) == 0
        size = out.stat().st_size
        assert tcc_estimator.main(asked) == 0
    assert out.stat().st_size == size
    records = read_lines(out, EstimatorRecord)
    found = {(record.data, record.method, record.seed): record for record in records}
    assert found["mnist", "tcc", 0].metrics["acc"] == 1.0
    assert ("mnist", tcc_estimator.WITHOUT_MEMORY, 0) in found
    assert {method for data, method, _ in found if data == "cifar100"} == {"tcc", "k-means", "spectral", "mixture"}
    assert found["cifar100", "k-means", 1].metrics["acc"] > 0.8
    page = tcc_results.section(tmp_path)
    assert "ACC of at least .90 within ten minutes with every seed is reached; .97 is reached." in page
    assert "CIFAR-100:\n\n| method | ACC | NMI | ARI | ACC, TCC less this | s |" in page
    assert tcc_results.section(tmp_path / "nothing") == ""


def test_pictures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "tcc.jsonl"
    quick = ["--minutes", "0", "--seeds", "1", "--data", "mnist", "--methods", "cc;moco", "--out", str(out)]
    assert tcc_suite.main(quick) == 0
    assert tcc_results.section(tmp_path) == ""  # relatives alone
    monkeypatch.setattr(tcc_figures, "RESULTS", out)
    monkeypatch.setattr(tcc_figures, "LOADERS", tcc_data.LOADERS)
    monkeypatch.setattr(tcc_figures, "TCC", partial(TCC, epochs=1, channels=4))
    assert tcc_figures.main(["--data", "mnist", "--folder", str(tmp_path / "pictures")]) == 0
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {"tcc-course.png", "tcc-mnist.png"}


def test_a_course_that_was_not_measured_is_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tcc_figures, "RESULTS", tmp_path / "nothing.jsonl")
        patched.setattr(tcc_figures, "LOADERS", tcc_data.LOADERS)
        assert tcc_figures.main(["--only", "course", "--data", "mnist", "--folder", str(tmp_path)]) == 2
    assert "Run benchmarks.quality.tcc_suite first" in capsys.readouterr().err
