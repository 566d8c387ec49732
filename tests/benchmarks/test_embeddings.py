"""Sets of embedded pictures: parts share no class, training sets are sound, and the suite measures and goes on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.data.images import EmbeddingSet
from benchmarks.quality import embeddings_data, embeddings_results, embeddings_suite, networks
from benchmarks.quality.embeddings_data import LAST_DIGITS, Preparation, TrainingTasks, features, held_out_sets
from benchmarks.quality.embeddings_suite import NETWORKS, EmbeddingsRecord
from benchmarks.quality.records import read_lines
from coterie.amortized.abc.network import AttentionBasedConfig
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.tasks.classes import Instances

N_CLASSES, MEMBERS, N_FEATURES = 30, 20, 140


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def pretended(name: str) -> EmbeddingSet:
    """Classes that are easy to tell apart, the same in both files of CIFAR-100."""
    source = np.random.default_rng(int(name.startswith("cifar")))
    centres = source.integers(0, 200, (N_CLASSES, N_FEATURES)) * (source.random((N_CLASSES, N_FEATURES)) < 0.4)
    classes = np.repeat(np.arange(N_CLASSES), MEMBERS)
    codes = np.clip(centres[classes] + source.integers(0, 20, (len(classes), N_FEATURES)), 0, 255)
    return EmbeddingSet(codes.astype(np.uint8), 0.02, classes, np.zeros_like(classes), name)


@pytest.fixture(autouse=True)
def _files_that_are_pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(embeddings_data, "load_embeddings", pretended)
    monkeypatch.setattr(embeddings_data, "POINTS", {"tiny-imagenet": (20, 30), "cifar100": (30, 30)})
    features.cache_clear()
    yield
    features.cache_clear()


def test_parts_share_no_class_and_leave_none_out() -> None:
    digits = [digit for part in LAST_DIGITS.values() for digit in part]
    assert sorted(digits) == list(range(10))
    for each in features().values():
        assert torch.stack([each.of("training"), each.of("validation"), each.of("test")]).sum(dim=0).eq(1).all()


def test_preparation_is_a_map_that_other_classes_have_no_say_in() -> None:
    x = torch.rand(400, N_FEATURES, generator=seeded())
    prepare = Preparation.of(x)
    first = prepare(x[:10])
    torch.testing.assert_close(prepare(x)[:10], first, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(first.square().mean(dim=1), torch.ones(10))
    both = [each.prepared[each.of("test")] for each in features().values()]
    assert all(each.shape[1] == embeddings_data.WIDTH for each in both)


def test_held_out_sets_are_the_same_however_many_are_drawn() -> None:
    few, many = held_out_sets("tiny-imagenet", "test", 3), held_out_sets("tiny-imagenet", "test", 5)
    for one, other in zip(few, many, strict=False):
        assert torch.equal(one.raw, other.raw)
        assert 2 <= one.n_clusters <= 9  # of the classes 7, 8, 9, 17 ...
        assert one.labels.bincount().gt(0).all()


def test_training_sets_are_moved_and_blurred() -> None:
    instances = Instances((20, 20), (2, 4), "dirichlet", 5.0)
    plain = TrainingTasks(instances, moved=0.0, noise=0.0).sample(6, seeded())
    moved = TrainingTasks(instances, moved=1.0, noise=0.0).sample(6, seeded())
    assert torch.equal(plain.labels, moved.labels)
    assert not torch.isclose(plain.x, moved.x).all(dim=2).any()
    for x, y, labels in zip(plain.x, moved.x, plain.labels, strict=True):
        for cluster in labels.unique():  # who belongs together has moved together
            torch.testing.assert_close(
                x[labels == cluster].diff(dim=0), y[labels == cluster].diff(dim=0), atol=1e-4, rtol=1e-4
            )
    blurred = TrainingTasks(instances, moved=0.0, noise=0.5).sample(6, seeded())
    assert float((blurred.x - plain.x).std()) == pytest.approx(0.5, abs=0.05)


@pytest.fixture
def small_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    width = embeddings_data.WIDTH
    small = {
        "abc": replace(NETWORKS["abc"], config=AttentionBasedConfig(width, width=16, depth=1)),
        "dac-anchored": replace(
            NETWORKS["dac-anchored"],
            config=DacConfig(width, density="none", filtering="anchored", width=16, inducing=4, depth=1, mask_depth=1),
        ),
    }
    few = {
        name: replace(each, instances=Instances((20, 20), (2, 4), "dirichlet", 5.0), batch_size=2).with_steps(4)
        for name, each in small.items()
    }
    monkeypatch.setattr(embeddings_suite, "NETWORKS", few)
    monkeypatch.setattr(embeddings_suite, "METHODS", ("kmeans", "spectral", *few))
    monkeypatch.setattr(embeddings_suite, "VALIDATION_SETS", 2)
    monkeypatch.setattr(networks, "TRIAL_STEPS", 1)


@pytest.mark.usefixtures("small_suite")
def test_the_suite_measures_every_method_once(tmp_path: Path) -> None:
    out = tmp_path / "embeddings.jsonl"
    asked = ["--runs", str(tmp_path / "runs"), "--sets", "3", "--out", str(out)]
    assert embeddings_suite.main(asked) == 0
    records = read_lines(out, EmbeddingsRecord)
    tested = {(record.method, record.data): record for record in records if record.part == "test"}
    assert len(tested) == 4 * 2
    assert all(len(record.metrics["ari"]) == 3 for record in tested.values())
    assert sum(tested["kmeans", "cifar100"].metrics["ari"]) / 3 > 0.8
    assert tested["spectral", "cifar100"].metrics["k_found"] == tested["kmeans", "cifar100"].metrics["k_true"]
    size = out.stat().st_size
    assert embeddings_suite.main(asked) == 0
    assert out.stat().st_size == size
    text = embeddings_results.section(tmp_path)
    assert "k-means" in text
    assert embeddings_results.section(tmp_path / "nothing") == ""


@pytest.mark.usefixtures("small_suite")
def test_unknown_methods_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert embeddings_suite.main(["--runs", str(tmp_path), "--methods", "dbscan"]) == 2
    assert "dbscan" in capsys.readouterr().err
