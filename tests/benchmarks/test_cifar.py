"""Pictures of unseen classes: parts share no class, sets are as they should be, and the suite measures and goes on."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.data.images import PictureSet
from benchmarks.quality import cifar_data, cifar_networks, cifar_results, cifar_suite, networks
from benchmarks.quality.cifar_data import held_out_sets, is_of, pictures, training_tasks
from benchmarks.quality.cifar_networks import NETWORKS, SHARED, AbcNetwork, compared_network, shared_encoder
from benchmarks.quality.cifar_suite import BASELINE_READING, BASELINES, METHODS, READINGS, SINGLETONS, CifarRecord
from benchmarks.quality.records import Setting, append_line, read_lines
from coterie.amortized.tasks.classes import Instances

MEMBERS, POINTS = 8, 16
FEW = Instances((POINTS, POINTS), (2, 4), "composition", 1.0)


@cache
def pretended(name: str) -> PictureSet:
    """Classes that are a colour each."""
    assert name == "cifar100"
    source = np.random.default_rng(0)
    classes = np.repeat(np.arange(100), MEMBERS)
    colours = source.integers(0, 200, (100, 1, 1, 3))
    images = colours[classes] + source.integers(0, 50, (len(classes), 32, 32, 3))
    nothing = np.zeros_like(classes)
    names = tuple(map(str, range(100)))
    return PictureSet(images.astype(np.uint8), classes, nothing, nothing, names, ("all",), ("test",), name)


@pytest.fixture(autouse=True)
def _file_that_is_pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cifar_data, "load_pictures", pretended)
    monkeypatch.setattr(cifar_data, "N_POINTS", POINTS)
    pictures.cache_clear()
    yield
    pictures.cache_clear()


def test_parts_share_no_class_and_leave_none_out() -> None:
    classes = torch.arange(100)
    training, validation, test = (is_of(part, classes) for part in ("training", "validation", "test"))
    assert torch.stack([training, validation, test]).sum(dim=0).eq(1).all()
    assert classes[test].tolist() == list(range(90, 100))
    assert (int(training.sum()), int(validation.sum())) == (81, 9)
    assert sorted(set(pictures("validation").classes.tolist())) == list(range(5, 90, 10))


def test_held_out_sets_are_as_published_and_the_same_however_many_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar_data, "N_POINTS", 40)
    few, many = held_out_sets("test", 3), held_out_sets("test", 30)
    assert all(torch.equal(one.images, other.images) for one, other in zip(few, many, strict=False))
    assert {one.n_clusters for one in many} >= {5, 10}  # of eight pictures each, five classes are the fewest
    for one in many:
        assert one.pixels.shape == (40, 3072)
        assert 0 <= float(one.pixels.min()) <= float(one.pixels.max()) <= 1
        assert one.labels.bincount().gt(0).all()
        means = one.images.float().mean(dim=(2, 3))
        for cluster in range(one.n_clusters):  # one colour, one class
            assert float(means[one.labels == cluster].std(dim=0, correction=0).max()) < 5
    assert {one.n_clusters for one in held_out_sets("validation", 60)} == set(range(5, 10))


def test_training_sets_are_of_training_classes_moved_and_mirrored() -> None:
    tasks = training_tasks(FEW)
    assert bool(is_of("training", tasks.classes).all())
    assert (tasks.points, tasks.clusters, tasks.mirrored) == (FEW.points, FEW.clusters, True)
    batch = tasks.sample(3, Generator().manual_seed(0))
    assert batch.x.shape == (3, POINTS, 3072)
    assert batch.valid.all()


def test_networks_are_as_they_are_said_to_be() -> None:
    multiplicative, additive, pairwise = (NETWORKS[name].config for name in ("multiplicative", "additive", "pairwise"))
    assert additive == replace(multiplicative, compatibility="additive")
    assert pairwise == replace(additive, depth=0)
    assert (multiplicative.encoder, multiplicative.depth, multiplicative.heads, multiplicative.width) == (
        "vgg",
        2,
        4,
        128,
    )
    for network in NETWORKS.values():
        assert network.instances == Instances((128, 128), (2, 10), "composition", 1.0)
    assert SHARED.channels == multiplicative.channels


@pytest.fixture
def small_suite(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def small(network: AbcNetwork) -> AbcNetwork:
        config = replace(network.config, channels=4, width=8, heads=2)
        return replace(network, config=config, batch_size=1, instances=FEW).with_steps(2)

    for module in (cifar_networks, cifar_suite):
        monkeypatch.setattr(module, "NETWORKS", {name: small(network) for name, network in NETWORKS.items()})
        monkeypatch.setattr(module, "SHARED", replace(SHARED, channels=4, steps=2, batch_size=8))
        monkeypatch.setattr(module, "VALIDATION_SETS", 2)
    monkeypatch.setattr(cifar_suite, "STARTS", 1)
    monkeypatch.setattr(networks, "TRIAL_STEPS", 1)
    shared_encoder.cache_clear()
    yield
    shared_encoder.cache_clear()


@pytest.mark.usefixtures("small_suite")
def test_the_suite_measures_every_method_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "cifar100.jsonl"
    quick = {name: settings for name, settings in BASELINES.items() if name.startswith("kmeans")}
    monkeypatch.setattr(cifar_suite, "BASELINES", quick)
    asked = ["--run-folder", str(tmp_path / "runs"), "--sets", "2", "--out", str(out)]
    asked += ["--methods", ",".join((*NETWORKS, *quick, SINGLETONS))]
    assert cifar_suite.main(asked) == 0
    records = read_lines(out, CifarRecord)
    tested = {(record.method, record.reading): record for record in records if record.part == "test"}
    assert len(tested) == len(NETWORKS) * len(READINGS) + len(quick) + 1
    for record in tested.values():
        assert len(record.metrics["nmi"]) == len(record.seconds) == 2
        assert not record.told or record.metrics["k_found"] == record.metrics["k_true"]
    assert sum(tested["kmeans-pixels", BASELINE_READING].metrics["nmi"]) / 2 > 0.8
    assert set(tested[SINGLETONS, BASELINE_READING].metrics["ari"]) == {0.0}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "named-4-2.safetensors",
        *(f"{name}-2" for name in NETWORKS),
    }
    size = out.stat().st_size
    assert cifar_suite.main(asked) == 0
    assert out.stat().st_size == size
    assert cifar_suite.main([*asked, "--methods", "kmeans-pixels", "--anew"]) == 0
    assert len(read_lines(out, CifarRecord)) == len(records)
    text = cifar_results.section(tmp_path)
    assert "| ABC, additive | eigengap, spectral |" in text
    assert "pairwise: 2 steps of 1 sets" in text


@pytest.mark.usefixtures("small_suite")
def test_networks_begin_with_the_shared_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    untrained = {name: network.with_steps(0) for name, network in cifar_networks.NETWORKS.items()}
    monkeypatch.setattr(cifar_networks, "NETWORKS", untrained)
    shared, minutes = shared_encoder(tmp_path)
    assert minutes >= 0
    for name in untrained:
        weights = compared_network(name, tmp_path).state_dict()
        assert all(torch.equal(weights[key], value) for key, value in shared.items())
    assert any("running_mean" in key for key in shared)


def test_unknown_methods_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cifar_suite.main(["--run-folder", str(tmp_path), "--methods", "dbscan"]) == 2
    assert "dbscan" in capsys.readouterr().err


def record(method: str, reading: str, nmi: list[float], *, told: bool) -> CifarRecord:
    budget: dict[str, Setting] = {"steps": 9, "batch_size": 4, "minutes": 1.5}
    settings = {"model.channels": "24", **budget, **{f"shared.{name}": value for name, value in budget.items()}}
    metrics = {"nmi": nmi, "ari": [0.5] * len(nmi), "k_true": [4.0] * len(nmi), "k_found": [5.0] * len(nmi)}
    return CifarRecord("test", method, reading, told, settings, 1, metrics, [0.1] * len(nmi), "0", {})


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    one = record("pairwise", "linkage", [0.2, 0.4], told=False)
    append_line(tmp_path / "x.jsonl", one)
    assert read_lines(tmp_path / "x.jsonl", CifarRecord) == [one]
    assert json.loads(json.dumps(asdict(one))) == asdict(one)
    assert one.key != record("pairwise", "linkage", [0.2], told=False).key


def test_the_section_says_what_is_above_what(tmp_path: Path) -> None:
    assert cifar_results.section(tmp_path) == ""
    out = tmp_path / "cifar100.jsonl"
    append_line(out, record("multiplicative", "linkage", [0.4, 0.6], told=False))
    append_line(out, record("pairwise", "linkage", [0.2, 0.4], told=False))
    append_line(out, record("kmeans-pixels", BASELINE_READING, [0.7, 0.7], told=True))
    text = cifar_results.section(tmp_path)
    assert "| ABC, multiplicative | linkage | .500 ± .100 | .500 ± .000 | 1.00 ± .00 | .100 ± .000 |" in text
    assert "| k-means, pixels |  | .700 ± .000 | .500 ± .000 | – | .100 ± .000 |" in text
    start = "ABC, multiplicative (linkage, not told k) above "
    assert f"{start}pairwise (linkage, not told k): NMI reached (.200 ± .000), ARI **not reached** (.000 ± " in text
    assert f"{start}k-means, pixels (told k): NMI **not reached** (-.200 ± .100)" in text
    assert "- ABC, additive (linkage, not told k) above pairwise (linkage, not told k): not run." in text
    assert "ABC, multiplicative: 9 steps of 4 sets, 1.5 minutes of one core; pairwise: 9 steps" in text
    assert "{" not in text


def test_every_method_and_reading_has_a_title() -> None:
    assert set(METHODS) == cifar_results.METHODS.keys()
    assert {*READINGS, BASELINE_READING} == cifar_results.READINGS.keys()
