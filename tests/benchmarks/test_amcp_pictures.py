"""Pictures of unseen classes, as in AMCP's experiments: networks, choices, scores, and runs that go on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from benchmarks.quality import amcp_baselines, amcp_data, amcp_pictures, amcp_results, networks
from benchmarks.quality.amcp_baselines import BASELINES, Solve
from benchmarks.quality.amcp_data import POINTS, Collection, HeldOutSet, Pictures, pictures
from benchmarks.quality.amcp_pictures import (
    COLLECTIONS,
    CONTENDERS,
    IMAGES,
    METHODS,
    MINUTES,
    OF_COLLECTIONS,
    TEST_SETS,
    VALIDATION_POINTS,
    PictureRecord,
    main,
    measure,
    network_of,
    prepared,
    steps_within,
)
from benchmarks.quality.networks import Network
from benchmarks.quality.records import Settings, append_line, read_lines
from coterie.metrics import matched_accuracy
from coterie.models.amcp import AmcpModel
from coterie.models.base import SetModel
from coterie.models.dac import DacModel
from coterie.models.ncp import NcpModel

MEMBERS, SIZES = 40, (20, 30)
SHAPES = {"mnist": (1, 16, 16), "cifar10": (3, 16, 16), "tiny-imagenet-embedded": (12, 1, 1)}
SMALL = {
    AmcpModel: {"channels": 4, "width": 8, "hidden": 8, "depth": 1, "em_steps": 1, "moments": 1, "max_passes": 3},
    DacModel: {"channels": 4, "width": 8, "heads": 2, "inducing": 2, "anchors": 1},
    NcpModel: {"channels": 4, "width": 8, "depth": 1, "n_samples": 2},
}
KEYS = {"acc", "ari", "nmi", "k_true", "k_found"}


def pretended(n_classes: int, shape: tuple[int, int, int]) -> Pictures:
    """Classes that are easy to tell apart, their pictures mixed."""
    source = np.random.default_rng(0)
    classes = source.permutation(np.repeat(np.arange(n_classes), MEMBERS))
    centres = source.integers(0, 200, (n_classes, *shape))
    images = centres[classes] + source.integers(0, 50, (len(classes), *shape))
    return Pictures(torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(classes))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Few small pictures and networks; the folder that these are trained in."""
    loaded = {name: pretended(200 if shape[1:] == (1, 1) else 10, shape) for name, shape in SHAPES.items()}
    monkeypatch.setattr(amcp_data, "LOADERS", {name: lambda one=one: one for name, one in loaded.items()})
    small = {name: replace(each, config={**each.config, **SMALL[each.kind]}) for name, each in CONTENDERS.items()}
    monkeypatch.setattr(amcp_pictures, "CONTENDERS", small)
    monkeypatch.setattr(amcp_pictures, "IMAGES", SHAPES)
    monkeypatch.setattr(amcp_pictures, "MINUTES", dict.fromkeys(SHAPES, 0.0))
    monkeypatch.setattr(amcp_pictures, "POINTS", dict.fromkeys(SHAPES, SIZES))
    monkeypatch.setattr(amcp_pictures, "TEST_SETS", dict.fromkeys(SIZES, 3))
    monkeypatch.setattr(amcp_pictures, "TRAINING_POINTS", (15, 20))
    monkeypatch.setattr(amcp_pictures, "VALIDATION_POINTS", dict.fromkeys(SHAPES, 15))
    monkeypatch.setattr(amcp_pictures, "VALIDATION_SETS", 2)
    monkeypatch.setattr(networks, "TRIAL_STEPS", 1)
    pictures.cache_clear()
    yield tmp_path / "runs"
    pictures.cache_clear()


def lines(runs: Path) -> list[PictureRecord]:
    return read_lines(runs.with_name("amcp_pictures.jsonl"), PictureRecord)


def asked(runs: Path, methods: str, collections: str = "mnist") -> list[str]:
    out = str(runs.with_name("amcp_pictures.jsonl"))
    return ["--collections", collections, "--methods", methods, "--runs", str(runs), "--out", out]


def test_every_collection_and_method_has_all_that_it_needs() -> None:
    for each in (IMAGES, MINUTES, VALIDATION_POINTS, OF_COLLECTIONS, amcp_results.COLLECTION_TITLES):
        assert set(each) == set(COLLECTIONS)
    assert TEST_SETS.keys() == {size for sizes in POINTS.values() for size in sizes}
    assert amcp_results.PICTURES.keys() == set(METHODS)
    assert {method for methods in OF_COLLECTIONS.values() for method in methods} == set(METHODS)
    assert all(set(BASELINES) <= set(methods) for methods in OF_COLLECTIONS.values())


@pytest.mark.parametrize("collection", COLLECTIONS)
def test_networks_read_the_pictures_of_their_collection(collection: Collection) -> None:
    image = IMAGES[collection]
    for name in OF_COLLECTIONS[collection]:
        if name in BASELINES:
            continue
        network = CONTENDERS[name].network(collection)
        assert network.kind is CONTENDERS[name].kind
        assert network.config.n_features == image[0] * image[1] * image[2]
        by_features = image[1:] == (1, 1) or name == "amcp-mlp"
        encoder = ("mlp", None) if by_features else ("strided", image)
        assert (network.config.encoder, network.config.image) == encoder
    amcp, star = (CONTENDERS[name] for name in ("amcp", "amcp-star"))
    assert star.network(collection) == amcp.network(collection)
    assert (star.weights_of, star.decoded) == ("amcp", {"update_previous": True})


@pytest.mark.usefixtures("runs")
def test_training_sets_are_moved_as_their_pictures_allow() -> None:
    digits, turned = CONTENDERS["amcp"].tasks("mnist"), CONTENDERS["amcp-turned"].tasks("mnist")
    assert (digits.turn_by, digits.mirrored, digits.rotations) == (10.0, False, False)
    assert (turned.turn_by, turned.mirrored, turned.rotations) == (10.0, False, True)
    assert CONTENDERS["amcp"].tasks("cifar10").mirrored
    features = CONTENDERS["amcp-turned"].tasks("tiny-imagenet-embedded")
    assert (features.turn_by, features.mirrored, features.rotations) == (0.0, False, False)
    for count in (2, 3, 4):
        classes = CONTENDERS[f"amcp-{count}-classes"].tasks("mnist").classes
        assert set(classes.tolist()) == set(range(0, 2 * count, 2))


def test_methods_are_measured_once(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = asked(runs, "amcp,amcp-star,ncp,dac,kmeans")
    assert main(given) == 0
    found = {(record.method, record.n_points): record for record in lines(runs)}
    pairs = [(method, size) for method in ("amcp", "amcp-star", "dac", "kmeans") for size in SIZES]
    assert set(found) == {*pairs, ("ncp", SIZES[0])}  # it goes from picture to picture
    for (method, _), record in found.items():
        assert record.metrics.keys() == KEYS
        assert all(len(values) == len(record.seconds) == 3 for values in record.metrics.values())
        assert all(0 <= value <= 1 for name in ("acc", "nmi") for value in record.metrics[name])
        assert all(-1 <= value <= 1 for value in record.metrics["ari"])
        assert all(2 <= value <= 5 for value in record.metrics["k_true"])
        assert all(value >= 1 for value in record.metrics["k_found"])
        if method in BASELINES:
            assert record.metrics["k_found"] == record.metrics["k_true"]
            assert min(record.metrics["acc"]) > 0.9
        else:
            assert (record.settings["steps"], record.settings["minutes"]) == (20, 0.0)
    of_star, of_amcp = found["amcp-star", SIZES[0]].settings, found["amcp", SIZES[0]].settings
    assert {key for key in of_star if of_star[key] != of_amcp[key]} == {"model.update_previous"}
    trained_here = ("mnist-amcp", "mnist-dac", "mnist-ncp")
    kept = {path.name for path in runs.iterdir()}
    assert kept == {*trained_here, *(f"{name}.steps.json" for name in trained_here)}
    before = lines(runs)
    assert capsys.readouterr().out.count(" ACC ") == len(before)
    assert main(given) == 0
    assert capsys.readouterr().out == ""
    assert lines(runs) == before


def test_features_have_networks_of_their_own(runs: Path) -> None:
    assert main(asked(runs, "amcp,ncp", "tiny-imagenet-embedded")) == 0
    records = lines(runs)
    assert [(record.data, record.method) for record in records] == [("tiny-imagenet-embedded", "amcp")] * 2
    assert records[0].settings["model.encoder"] == '"mlp"'  # and NCP is not for these


def test_only_what_is_asked_for_is_run_anew(runs: Path) -> None:
    assert main(asked(runs, "kmeans,gmm", "mnist,cifar10")) == 0
    before = lines(runs)
    assert [(record.data, record.method) for record in before] == [
        (data, method) for data in ("mnist", "cifar10") for method in ("kmeans", "gmm") for _ in SIZES
    ]
    assert main([*asked(runs, "kmeans", "cifar10"), "--anew"]) == 0
    after = lines(runs)
    anew = [record for record in before if (record.data, record.method) == ("cifar10", "kmeans")]
    assert after[:-2] == [record for record in before if record not in anew]
    assert [record.key for record in after[-2:]] == [record.key for record in anew]
    assert [record.metrics for record in after[-2:]] == [record.metrics for record in anew]


def test_an_interrupted_run_goes_on(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def interrupted(
        collection: Collection, n_points: int, method: str, settings: Settings, solve: Solve
    ) -> PictureRecord:
        sizes.append(n_points)
        if len(sizes) == 2:
            raise KeyboardInterrupt
        return measure(collection, n_points, method, settings, solve)

    monkeypatch.setattr(amcp_pictures, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(asked(runs, "kmeans"))
    assert [record.n_points for record in lines(runs)] == [SIZES[0]]
    assert main(asked(runs, "kmeans")) == 0
    assert [record.n_points for record in lines(runs)] == [*SIZES]
    assert sizes == [*SIZES, SIZES[1]]
    monkeypatch.setattr(amcp_pictures, "TEST_SETS", dict.fromkeys(SIZES, 4))
    assert main(asked(runs, "kmeans")) == 0
    assert [len(record.seconds) for record in lines(runs)] == [3, 3, 4, 4]  # more sets are another run


def test_amcp_star_has_the_weights_of_amcp(runs: Path) -> None:
    star, _ = network_of("amcp-star", "mnist", runs)
    log = (runs / "mnist-amcp" / "log.jsonl").read_bytes()
    plain, settings = network_of("amcp", "mnist", runs)
    assert (runs / "mnist-amcp" / "log.jsonl").read_bytes() == log  # which has the seconds: no step is taken again
    assert all(torch.equal(a, b) for a, b in zip(star.parameters(), plain.parameters(), strict=True))
    assert star.config == replace(plain.config, update_previous=True)
    assert not plain.config.update_previous
    assert (settings["n_classes"], settings["turned"]) == (None, False)
    assert {path.name for path in runs.iterdir()} == {"mnist-amcp", "mnist-amcp.steps.json"}


def test_steps_are_counted_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Network[SetModel]] = []

    def seconds(network: Network[SetModel], _: object) -> float:
        timed.append(network)
        return 0.5

    monkeypatch.setattr(amcp_pictures, "seconds_per_step", seconds)
    monkeypatch.setattr(amcp_pictures, "MINUTES", {"mnist": 2.0, "cifar10": 0.01})
    assert steps_within("amcp", "mnist", runs) == 240
    assert steps_within("amcp", "cifar10", runs) == 20  # at least
    monkeypatch.setattr(amcp_pictures, "MINUTES", {"mnist": 9.0})
    assert steps_within("amcp", "mnist", runs) == 240
    assert [network.config.n_features for network in timed] == [256, 768]


def of_quality(method: str, settings: Settings) -> Solve:
    """The truth for 20 neighbours, and otherwise one cluster."""
    assert method == "spectral"
    return lambda one: one.labels if settings["neighbours"] == 20 else torch.zeros_like(one.labels)


def test_validation_sets_choose_among_settings(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amcp_baselines, "solver", of_quality)
    one = amcp_data.test_sets("mnist", 20, 1)[0]
    chosen, solve = prepared("spectral", "mnist", runs)
    assert chosen == BASELINES["spectral"][1]
    assert torch.equal(solve(one), one.labels)
    backwards = {"spectral": BASELINES["spectral"][::-1]}
    monkeypatch.setattr(amcp_pictures, "BASELINES", backwards)
    assert prepared("spectral", "mnist", runs)[0] == chosen


@pytest.mark.usefixtures("runs")
def test_scores_belong_to_their_sets() -> None:
    sets = amcp_data.test_sets("mnist", SIZES[0], 3)
    answers = {tuple(one.index.tolist()): place for place, one in enumerate(sets)}
    asked_for: list[int] = []

    def solve(one: HeldOutSet) -> Tensor:
        """The first set right, the second in one cluster, the third with some wrong."""
        place = answers[tuple(one.index.tolist())]
        asked_for.append(place)
        return (one.labels, torch.zeros_like(one.labels), one.labels.clamp(max=1))[place]

    record = measure("mnist", SIZES[0], "amcp", {}, solve)
    assert asked_for == [0, 0, 1, 2]
    assert record.key == ("mnist", SIZES[0], "amcp", 3)
    assert record.metrics.keys() == KEYS
    found = [sets[0].labels, torch.zeros_like(sets[1].labels), sets[2].labels.clamp(max=1)]
    true = [one.labels.numpy() for one in sets]
    accuracies = [matched_accuracy(each, labels.numpy()) for each, labels in zip(true, found, strict=True)]
    shared = [
        normalized_mutual_info_score(each, labels.numpy(), average_method="geometric")
        for each, labels in zip(true, found, strict=True)
    ]
    assert len(set(accuracies)) == 3
    assert record.metrics["acc"] == pytest.approx(accuracies, abs=1e-5)
    assert record.metrics["nmi"] == pytest.approx(shared, abs=1e-5)
    assert record.metrics["acc"][0] == record.metrics["nmi"][0] == record.metrics["ari"][0] == 1
    assert record.metrics["k_true"] == [one.n_clusters for one in sets]
    assert record.metrics["k_found"] == [sets[0].n_clusters, 1, 2]


@pytest.mark.parametrize(
    ("option", "what", "known"), [("--methods", "method", METHODS), ("--collections", "collection", COLLECTIONS)]
)
def test_unknown_names_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, what: str, known: tuple[str, ...]
) -> None:
    out = tmp_path / "out.jsonl"
    assert main(["--runs", str(tmp_path / "runs"), "--out", str(out), option, f"{known[0]},none"]) == 2
    assert f"Unknown {what} 'none'. Known are: {', '.join(known)}." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def record(method: str, acc: list[float], n_points: int = 1000, k_found: tuple[int, int] = (3, 6)) -> PictureRecord:
    settings: Settings = {"components": 50} if method in BASELINES else {"minutes": 6.0}
    metrics = {
        "acc": acc,
        "nmi": [0.5, 0.7],
        "ari": [0.4, 0.6],
        "k_true": [3.0, 4.0],
        "k_found": [*map(float, k_found)],
    }
    return PictureRecord("mnist", n_points, method, settings, metrics, [0.25, 0.75], "0", {})


def test_a_page_without_pictures_has_no_such_section(tmp_path: Path) -> None:
    assert amcp_results.sections(tmp_path)["amcp_pictures"]() == ""


def test_the_page_says_what_is_above_what(tmp_path: Path) -> None:
    for one in (
        record("kmeans", [0.5, 0.5], k_found=(3, 4)),
        record("spectral", [0.9, 0.9], k_found=(3, 4)),
        record("amcp", [0.6, 0.8]),
        record("amcp", [0.7, 0.7], n_points=5000),
    ):
        append_line(tmp_path / "amcp_pictures.jsonl", one)
    text = amcp_results.sections(tmp_path)["amcp_pictures"]()
    small, large = text.split("MNIST, odd digits, ")[1:]
    assert small.startswith(
        "2 sets of 1,000, networks trained for 6 minutes:\n\n| method | ACC | NMI | ARI | k-MAE | s |"
    )
    rows = [line for line in small.splitlines() if line.startswith("| ")][2:]
    assert rows == [
        "| AMCP | .700 ± .100 | .600 ± .100 | .500 ± .100 | 1.00 ± 1.00 | .50 ± .25 |",
        "| k-means, told k | .500 ± .000 | .600 ± .100 | .500 ± .100 | – | .50 ± .25 |",
        "| spectral, told k | .900 ± .000 | .600 ± .100 | .500 ± .100 | – | .50 ± .25 |",
    ]
    assert "- AMCP, less k-means, told k, ACC set by set: .200 ± .100: above." in small
    assert "- AMCP, less spectral, told k, ACC set by set: -.200 ± .100: **not above**." in small
    assert large.startswith("2 sets of 5,000")
    assert "set by set" not in large
    assert "\n\n\n" not in text
    assert text.startswith("\n\n## AMCP: pictures")  # what comes before it in the template ends its line
