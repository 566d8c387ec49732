"""Pictures of unseen classes, as in AMCP's experiments: encoders, networks, choices, scores, and runs that go on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import normalized_mutual_info_score
from torch import Tensor

from benchmarks.baselines.ncp import NcpModel
from benchmarks.quality import amcp_baselines, amcp_data, amcp_lessons, amcp_pictures, amcp_results, networks
from benchmarks.quality.amcp_baselines import BASELINES, COMPONENTS, Solve, ToldSet
from benchmarks.quality.amcp_data import POINTS, Collection, HeldOutSet, Pictures, pictures
from benchmarks.quality.amcp_lessons import lessons
from benchmarks.quality.amcp_pictures import (
    ANCHORED,
    COLLECTIONS,
    CONTENDERS,
    IMAGES,
    METHODS,
    NAMINGS,
    OF_COLLECTIONS,
    TEST_SETS,
    TOLD,
    PictureRecord,
    eyes,
    main,
    measure,
    network_of,
    prepared,
    steps_within,
)
from benchmarks.quality.networks import Network
from benchmarks.quality.records import Settings, append_line, read_lines
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.network import DacModel
from coterie.metrics import matched_accuracy
from coterie.nn.model import SetModel

MEMBERS, SIZES = 40, (20, 30)
SHAPES = {"mnist": (1, 16, 16), "cifar10": (3, 16, 16), "tiny-imagenet-embedded": (12, 1, 1)}
SMALL = {
    AmcpModel: {"width": 8, "hidden": 8, "depth": 1, "em_steps": 1, "moments": 1, "max_passes": 3},
    DacModel: {"width": 8, "heads": 2, "inducing": 2, "anchors": 1},
    NcpModel: {"width": 8, "depth": 1, "n_samples": 2},
}
FEATURES = 4
"""Of the small encoders."""
ENCODER = "mnist-strided-all-2.safetensors"
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
    """Few small pictures, encoders and networks; the folder that these are trained in."""
    loaded = {name: pretended(200 if shape[1:] == (1, 1) else 10, shape) for name, shape in SHAPES.items()}
    monkeypatch.setattr(amcp_data, "LOADERS", {name: lambda one=one: one for name, one in loaded.items()})
    small = {name: replace(each, config={**each.config, **SMALL[each.kind]}) for name, each in CONTENDERS.items()}
    monkeypatch.setattr(amcp_pictures, "CONTENDERS", small)
    monkeypatch.setattr(amcp_pictures, "IMAGES", SHAPES)
    quick = {kind: replace(each, channels=FEATURES, steps=2, batch_size=8) for kind, each in NAMINGS.items()}
    monkeypatch.setattr(amcp_pictures, "NAMINGS", quick)
    monkeypatch.setattr(amcp_lessons, "MEMBERS", 2)
    monkeypatch.setattr(amcp_pictures, "MINUTES", 0.0)
    monkeypatch.setattr(amcp_pictures, "POINTS", dict.fromkeys(SHAPES, SIZES))
    monkeypatch.setattr(amcp_pictures, "TEST_SETS", dict.fromkeys(SIZES, 3))
    monkeypatch.setattr(amcp_pictures, "TRAINING_POINTS", (15, 20))
    monkeypatch.setattr(amcp_pictures, "VALIDATION_POINTS", dict.fromkeys(SHAPES, 15))
    monkeypatch.setattr(amcp_pictures, "VALIDATION_SETS", 2)
    monkeypatch.setattr(networks, "TRIAL_STEPS", 1)
    for kept in (pictures, lessons, eyes):
        kept.cache_clear()
    yield tmp_path / "runs"
    for kept in (pictures, lessons, eyes):
        kept.cache_clear()


def lines(runs: Path) -> list[PictureRecord]:
    return read_lines(runs.with_name("amcp_pictures.jsonl"), PictureRecord)


def asked(runs: Path, methods: str, collections: str = "mnist") -> list[str]:
    out = str(runs.with_name("amcp_pictures.jsonl"))
    return ["--collections", collections, "--methods", methods, "--runs", str(runs), "--out", out]


def first_set(collection: Collection = "mnist") -> HeldOutSet:
    return amcp_data.test_sets(collection, SIZES[0], 1)[0]


def test_every_collection_and_method_has_all_that_it_needs() -> None:
    for each in (IMAGES, amcp_pictures.MOST_CLUSTERS, amcp_pictures.VALIDATION_POINTS, OF_COLLECTIONS):
        assert set(each) == set(COLLECTIONS)
    assert amcp_results.COLLECTION_TITLES.keys() == set(COLLECTIONS)
    assert TEST_SETS.keys() == {size for sizes in POINTS.values() for size in sizes}
    assert amcp_results.PICTURES.keys() == set(METHODS)
    assert {method for pair in amcp_results.GAINS for method in pair} <= set(METHODS)
    assert {method for methods in OF_COLLECTIONS.values() for method in methods} == set(METHODS)
    assert all(set(BASELINES) <= set(methods) for methods in OF_COLLECTIONS.values())
    assert {contender.encoder for contender in CONTENDERS.values()} == set(NAMINGS)
    assert all(naming.encoder == kind and naming.by_direction for kind, naming in NAMINGS.items())


def test_contenders_differ_in_what_their_names_say() -> None:
    amcp = CONTENDERS["amcp"]
    assert amcp.network(9).config.n_features == 9
    assert amcp.network(9).config.principal == ANCHORED["principal"] > 0
    star = CONTENDERS["amcp-star"]
    assert star.network(9) == amcp.network(9)
    assert (star.weights_of, star.decoded) == ("amcp", {"update_previous": True})
    transport, unframed = (CONTENDERS[f"amcp-{name}"].network(9).config for name in ("transport", "unframed"))
    assert transport == replace(amcp.network(9).config, e_step="transport")
    assert unframed == replace(amcp.network(9).config, principal=0)
    assert CONTENDERS["amcp-mlp"] == replace(amcp, encoder="mlp")
    for count in (2, 3, 4):
        assert CONTENDERS[f"amcp-{count}-classes"] == replace(amcp, n_classes=count)
    dac = CONTENDERS["dac"].network(9).config
    assert (dac.filtering, dac.decoding, dac.principal) == ("anchored", "kernel", ANCHORED["principal"])


def test_training_sets_are_of_what_is_seen_of_classes_to_sort(runs: Path) -> None:
    for name, n_classes in (("amcp", 5), ("amcp-2-classes", 2)):
        tasks, held_back = (CONTENDERS[name].tasks("mnist", runs, held_back=held_back) for held_back in (False, True))
        learned = lessons("mnist", CONTENDERS[name].n_classes)
        assert torch.equal(tasks.classes, learned.sorted.classes)
        assert torch.equal(held_back.classes, learned.held_back.classes)
        assert len(torch.unique(torch.cat((tasks.classes, held_back.classes)))) == 3 * n_classes * (3 * n_classes - 1)
        assert tasks.codes.shape == (len(tasks.classes), FEATURES)
        assert (tasks.instances.points, tasks.instances.clusters) == ((15, 20), (1, 6))
        still = CONTENDERS[name].eyes("mnist", runs).features(learned.sorted.images.flatten(1).float() / 255)
        assert not torch.allclose(tasks.codes, still, atol=1e-3)  # each picture is moved a little
        assert torch.equal(CONTENDERS[name].tasks("mnist", runs).codes, tasks.codes)  # always alike


def test_features_need_no_encoder(runs: Path) -> None:
    looking = eyes("tiny-imagenet-embedded", "strided", None, runs)
    assert (looking.encoder, looking.minutes) == (None, 0.0)
    assert not runs.exists()
    x = first_set("tiny-imagenet-embedded").x
    torch.testing.assert_close(looking.features(x), x / x.norm(dim=1, keepdim=True))
    tasks = CONTENDERS["amcp"].tasks("tiny-imagenet-embedded", runs)
    still = lessons("tiny-imagenet-embedded").sorted.images.flatten(1).float()
    torch.testing.assert_close(tasks.codes, still / still.norm(dim=1, keepdim=True))  # nothing is moved
    assert tasks.instances.clusters == (1, 20)
    assert main(asked(runs, "amcp,ncp", "tiny-imagenet-embedded")) == 0
    records = lines(runs)
    assert [(record.data, record.method) for record in records] == [("tiny-imagenet-embedded", "amcp")] * 2
    assert records[0].settings["model.n_features"] == "12"  # and NCP is not for these


def test_encoded_baselines_see_what_the_encoder_sees(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ToldSet] = []

    def noting(method: str, _: Settings) -> Solve:
        assert method == "kmeans"
        return lambda one: seen.append(one) or torch.zeros(len(one.x))  # type: ignore[func-returns-value]  # notes

    monkeypatch.setattr(amcp_baselines, "solver", noting)
    one = first_set()
    for method in ("kmeans", "kmeans-encoded"):
        prepared(method, "mnist", runs)[1](one)
    plain, encoded = seen
    assert torch.equal(plain.x, one.x)
    assert torch.equal(encoded.x, CONTENDERS["amcp"].eyes("mnist", runs).features(one.x))
    assert encoded.x.shape == (len(one.x), FEATURES)
    assert encoded.n_clusters == one.n_clusters


def test_methods_are_measured_once(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = asked(runs, "amcp,amcp-star,ncp,dac,kmeans,kmeans-encoded")
    assert main(given) == 0
    found = {(record.method, record.n_points): record for record in lines(runs)}
    of_all_sizes = ("amcp", "amcp-star", "dac", "kmeans", "kmeans-encoded")
    pairs = [(method, size) for method in of_all_sizes for size in SIZES]
    assert set(found) == {*pairs, ("ncp", SIZES[0])}  # it goes from picture to picture
    for (method, _), record in found.items():
        assert record.metrics.keys() == KEYS
        assert all(len(values) == len(record.seconds) == 3 for values in record.metrics.values())
        assert all(0 <= value <= 1 for name in ("acc", "nmi") for value in record.metrics[name])
        assert all(-1 <= value <= 1 for value in record.metrics["ari"])
        assert all(2 <= value <= 5 for value in record.metrics["k_true"])
        assert all(value >= 1 for value in record.metrics["k_found"])
        if method in TOLD:
            assert record.metrics["k_found"] == record.metrics["k_true"]
        else:
            assert (record.settings["steps"], record.settings["minutes"]) == (20, 0.0)
            assert (record.settings["encoder"], record.settings["n_classes"]) == ("strided", None)
    assert min(found["kmeans", SIZES[0]].metrics["acc"]) > 0.9
    of_star, of_amcp = found["amcp-star", SIZES[0]].settings, found["amcp", SIZES[0]].settings
    assert {key for key in of_star if of_star[key] != of_amcp[key]} == {"model.update_previous"}
    trained_here = ("mnist-amcp", "mnist-dac", "mnist-ncp")
    kept = {path.name for path in runs.iterdir()}
    assert kept == {ENCODER, *trained_here, *(f"{name}.steps.json" for name in trained_here)}
    before = lines(runs)
    assert capsys.readouterr().out.count(" ACC ") == len(before)
    assert main(given) == 0
    assert capsys.readouterr().out == ""
    assert lines(runs) == before


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
    assert (settings["n_classes"], settings["encoder"]) == (None, "strided")
    assert {path.name for path in runs.iterdir()} == {ENCODER, "mnist-amcp", "mnist-amcp.steps.json"}


def test_steps_are_counted_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Network[SetModel]] = []

    def seconds(network: Network[SetModel], _: object) -> float:
        timed.append(network)
        return 0.5

    monkeypatch.setattr(amcp_pictures, "seconds_per_step", seconds)
    monkeypatch.setattr(amcp_pictures, "MINUTES", 2.0)
    assert steps_within("amcp", "mnist", runs) == 240
    monkeypatch.setattr(amcp_pictures, "MINUTES", 0.01)
    assert steps_within("amcp", "tiny-imagenet-embedded", runs) == 20  # at least
    assert steps_within("amcp", "mnist", runs) == 240
    assert [network.config.n_features for network in timed] == [FEATURES, 12]


@pytest.mark.parametrize("method", ["spectral", "spectral-encoded"])
def test_validation_sets_choose_among_settings(runs: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    of_kmeans = amcp_baselines.solver("kmeans", BASELINES["kmeans"][0])

    def of_quality(plain: str, settings: Settings) -> Solve:
        """What finds something for 20 neighbours, and otherwise one cluster."""
        assert plain == "spectral"
        return of_kmeans if settings["neighbours"] == 20 else lambda one: torch.zeros(len(one.x), dtype=torch.int64)

    monkeypatch.setattr(amcp_baselines, "solver", of_quality)
    chosen, solve = prepared(method, "mnist", runs)
    assert chosen == BASELINES["spectral"][1]
    one = first_set()
    assert len(torch.unique(solve(one))) == one.n_clusters
    monkeypatch.setattr(amcp_pictures, "BASELINES", {"spectral": BASELINES["spectral"][::-1]})
    assert prepared(method, "mnist", runs)[0] == chosen


@pytest.mark.usefixtures("runs")
def test_scores_belong_to_their_sets() -> None:
    sets = amcp_data.test_sets("mnist", SIZES[0], 3)
    answers = {tuple(one.index.tolist()): place for place, one in enumerate(sets)}
    asked_for: list[int] = []

    def solve(one: ToldSet) -> Tensor:
        """The first set right, the second in one cluster, the third with some wrong."""
        assert isinstance(one, HeldOutSet)
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
    settings: Settings = {"components": 50} if method in TOLD else {"minutes": 6.0}
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
        record("spectral-encoded", [0.9, 0.9], k_found=(3, 4)),
        record("amcp", [0.6, 0.8]),
        record("amcp-star", [0.9, 0.7]),
        record("amcp", [0.7, 0.7], n_points=5000),
    ):
        append_line(tmp_path / "amcp_pictures.jsonl", one)
    text = amcp_results.sections(tmp_path)["amcp_pictures"]()
    small, large = text.split("MNIST, odd digits, ")[1:]
    assert small.startswith(
        "2 sets of 1,000, networks trained for 6 minutes:\n\n| method | ACC | NMI | ARI | k-MAE | s |"
    )
    rows = [line for line in small.splitlines() if line.startswith("| ")][2:]
    others = "| .600 ± .100 | .500 ± .100 |"
    assert rows == [
        f"| AMCP | .700 ± .100 {others} 1.00 ± 1.00 | .50 ± .25 |",
        f"| AMCP* | .800 ± .100 {others} 1.00 ± 1.00 | .50 ± .25 |",
        f"| k-means, told k | .500 ± .000 {others} – | .50 ± .25 |",
        f"| spectral on the encoder's features, told k | .900 ± .000 {others} – | .50 ± .25 |",
    ]
    encoded = "less spectral on the encoder's features, told k, ACC set by set"
    assert [line for line in small.splitlines() if line.startswith("- ")] == [
        "- AMCP, less k-means, told k, ACC set by set: .200 ± .100: above.",
        f"- AMCP, {encoded}: -.200 ± .100: **not above**.",
        "- AMCP*, less k-means, told k, ACC set by set: .300 ± .100: above.",
        f"- AMCP*, {encoded}: -.100 ± .100: **not above**.",
    ]
    assert large.startswith("2 sets of 5,000")
    assert "set by set" not in large
    assert "\n\n\n" not in text
    assert text.startswith("\n\n## AMCP: pictures")  # what comes before it in the template ends its line


def test_the_text_has_the_numbers_that_were_used() -> None:
    kinds = len(amcp_data.TRAINING_CLASSES["mnist"]) * len(amcp_lessons.QUARTERS)
    for expected in (
        f"makes {kinds**2} classes of five",
        "training sets of {} to {} pictures".format(*amcp_pictures.TRAINING_POINTS),
        f"{min(TEST_SETS.values())} to {max(TEST_SETS.values())} test sets of each size",
        f"its own {ANCHORED['principal']} principal directions",
        f"have {COMPONENTS} principal components",
    ):
        assert expected in amcp_results.PICTURES_TEXT.replace("\n", " ")
