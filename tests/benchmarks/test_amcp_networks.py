"""AMCP's variants and their peers: what is trained and watched, how clusters are read off, and a run that goes on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Generator

from benchmarks.baselines.ncp import NcpConfig, NcpModel
from benchmarks.baselines.set_transformer import ActStConfig, ActStModel
from benchmarks.quality import amcp_networks, amcp_results, dac_methods, dac_sets, dac_suite, networks
from benchmarks.quality.amcp_networks import CONTENDERS, SCENARIOS, Contender, ContenderRecord, decodings, main
from benchmarks.quality.dac_methods import NO_LIMIT, Answer, Solve
from benchmarks.quality.dac_sets import LabelledSet, mixtures, warped
from benchmarks.quality.networks import SEED, Network, n_parameters, one_cycle, trained
from benchmarks.quality.records import append_line, read_lines
from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.synthetic import MixturesOfGaussians, WarpedGaussians
from coterie.nn.model import SetModel, build
from coterie.progress import Progress

AMCP = AmcpConfig(2, width=8, hidden=8, depth=1, em_steps=1, max_passes=3)
DAC = DacConfig(2, width=8, heads=2, inducing=2, depth=1, mask_depth=1, max_passes=3)
ACT_ST = ActStConfig(2, width=8, heads=2, inducing=2)
NCP = NcpConfig(2, width=8, depth=1, n_samples=2)
N_SETS = 3
TASKS = MixturesOfGaussians(max_points=40, max_clusters=3)
SETS = mixtures(60, 3, seed=3, batches=1)
MORE_SETS = mixtures(90, 5, seed=3, batches=1)
ARCS = warped(60, 3, seed=3, batches=1)


def built(kind: type[SetModel], config: object) -> SetModel:
    return build(kind, config, Generator().manual_seed(0)).eval()


def contender(kind: type[SetModel], config: object, scenario: str = "mog", *, watched: bool = False) -> Contender:
    return Contender(scenario, Network(kind, config, one_cycle(1), batch_size=2), watched)


@pytest.fixture(autouse=True)
def _small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {
        "amcp": contender(AmcpModel, AMCP, watched=True),
        "dac": contender(DacModel, DAC),
        "act-st": contender(ActStModel, ACT_ST),
        "ncp": contender(NcpModel, NCP),
        "amcp warped": contender(AmcpModel, replace(AMCP, density="flow"), "warped"),
    }
    scenarios = {
        "mog": amcp_networks.Scenario(TASKS, (SETS, MORE_SETS)),
        "warped": amcp_networks.Scenario(WarpedGaussians(max_points=40, max_clusters=3), (ARCS,)),
    }
    monkeypatch.setattr(amcp_networks, "CONTENDERS", few)
    monkeypatch.setattr(amcp_networks, "SCENARIOS", scenarios)
    monkeypatch.setattr(amcp_networks, "MAX_POINTS", 40)
    monkeypatch.setattr(amcp_networks, "POINTWISE_SETS", 2)
    monkeypatch.setattr(amcp_networks, "WATCHES", 2)
    monkeypatch.setattr(dac_sets, "SETS_PER_BATCH", N_SETS)
    monkeypatch.setattr(networks, "TRIAL_STEPS", 1)


def test_contenders_are_as_they_are_said_to_be() -> None:
    assert {each.scenario for each in CONTENDERS.values()} == SCENARIOS.keys()
    assert {name for name, each in CONTENDERS.items() if each.watched} == {"amcp", "dac", "ncp"}
    plain = CONTENDERS["amcp"].network.config
    for steps in (0, 1, 2, 4, 5):
        assert CONTENDERS[f"amcp T={steps}"].network.config == replace(plain, em_steps=steps)
    assert CONTENDERS["amcp transport T=3"].network.config == replace(plain, e_step="transport")
    described = (CONTENDERS[name].network for name in ("amcp", "dac"))
    ours, theirs = (n_parameters(each.kind(each.config)) for each in described)
    assert 0.8 < ours / theirs < 1.2
    seeds = {sets.seed for scenario in SCENARIOS.values() for sets in scenario.sets}
    assert seeds == {amcp_networks.SETS_SEED}
    assert amcp_networks.WATCHED_SEED not in seeds


@pytest.mark.parametrize(
    ("kind", "config", "ways"),
    [
        (AmcpModel, AMCP, ["faithful", "star", "robust"]),
        (AmcpModel, replace(AMCP, decoding="faithful"), ["faithful", "star"]),
        (DacModel, DAC, ["faithful", "robust"]),
        (ActStModel, ACT_ST, ["as it comes"]),
        (NcpModel, NCP, ["as it comes"]),
    ],
)
def test_clusters_are_read_off_in_several_ways(kind: type[SetModel], config: object, ways: list[str]) -> None:
    model = built(kind, config)
    found = decodings(model)
    assert list(found) == ways
    assert set(ways) <= set(amcp_results.DECODINGS)
    one = next(MORE_SETS.draw())[0]
    for solve in found.values():
        answer = solve(one)
        assert answer.labels.shape == one.y.shape
        assert int(answer.labels.min()) >= 0
        assert (answer.log_likelihood is None) == (kind is NcpModel)
        assert answer.log_likelihood is None or bool(answer.log_likelihood().isfinite())
    if ways[-1] != "star":  # the last is the network's own
        own = model.cluster(one.x, Generator().manual_seed(SEED)).labels
        assert torch.equal(found[ways[-1]](one).labels, own)
    assert model.config == config  # the network itself stays as it was


def test_ways_share_the_weights_and_differ_in_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AmcpModel] = []

    def noted(model: AmcpModel) -> Solve:
        seen.append(model)
        return lambda one: Answer(torch.zeros_like(one.y))

    monkeypatch.setattr(dac_methods, "solver", noted)
    model = built(AmcpModel, AMCP)
    decodings(model)
    as_made = replace(AMCP, decoding="faithful", max_points=NO_LIMIT)
    assert [each.config for each in seen] == [as_made, replace(as_made, update_previous=True), AMCP]
    for each in seen:
        assert not each.training
        assert all(torch.equal(a, b) for a, b in zip(each.parameters(), model.parameters(), strict=True))


def test_every_network_is_trained_and_measured(tmp_path: Path) -> None:
    out = tmp_path / "amcp_networks.jsonl"
    assert main(["--minutes", "0", "--out", str(out)]) == 0
    records = read_lines(out, ContenderRecord)
    found = {(record.network, record.sets, record.decoding): record for record in records}
    kinds = (SETS.name, MORE_SETS.name)
    three = ("faithful", "star", "robust")
    assert list(found) == [
        *(("amcp", kind, way) for kind in kinds for way in three),
        *(("dac", kind, way) for kind in kinds for way in ("faithful", "robust")),
        *((name, kind, "as it comes") for name in ("act-st", "ncp") for kind in kinds),
        *(("amcp warped", ARCS.name, way) for way in three),
    ]
    for record in records:
        assert (record.minutes, record.steps, record.sets_seed) == (0, 20, 3)
        pointwise = (record.network, record.sets) == ("ncp", MORE_SETS.name)
        assert len(record.seconds) == (2 if pointwise else N_SETS)
        assert set(record.metrics) == {"ll", "ari", "nmi", "k_true", "k_found"}
        assert all(len(values) == len(record.seconds) for values in record.metrics.values())
        assert all(value is not None and -1 <= value <= 1 for value in record.metrics["ari"])
        assert all(value is not None and value >= 1 for value in record.metrics["k_found"])
        assert all((value is None) == (record.network == "ncp") for value in record.metrics["ll"])
        # Two of twenty steps have their score, where a network is watched.
        assert [step for step, _ in record.course] == ([10, 20] if record.network == "amcp" else [])
    assert found["amcp", SETS.name, "star"].settings["em_steps"] == "1"
    assert found["amcp warped", ARCS.name, "star"].settings["density"] == '"flow"'
    page = amcp_results.networks(records)
    assert page.startswith("0 minutes each.")
    assert all(f"{kind}:\n\n| network | parameters | steps |" in page for kind in (*kinds, ARCS.name))
    parameters = found["dac", SETS.name, "robust"].settings["parameters"]
    assert page.count(f"| dac | {parameters:,} | 20 | ") == 2
    beside = amcp_results.beside_others(records)
    assert beside.count("| method | sets | LL | ARI | NMI | k-MAE | s |") == 3
    assert beside.count("\n| AMCP | ") == beside.count("\n| AMCP*, as the passes made it | ") == 3
    assert beside.count("\n| DAC | ") == beside.count(f"\n| NCP | {N_SETS} | – |") + 1 == 2
    assert amcp_results.beside_others([]) == "Not run."


def test_what_the_file_has_is_not_measured_again(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    asked = ["--minutes", "0", "--out", str(out), "--networks"]
    assert main([*asked, "dac"]) == 0
    first = out.read_bytes()
    assert main([*asked, "dac"]) == 0
    assert out.read_bytes() == first
    assert main([*asked, "act-st,dac"]) == 0
    assert out.read_bytes().startswith(first)
    assert main([*asked, "dac", "--anew"]) == 0
    records = read_lines(out, ContenderRecord)
    assert [record.network for record in records] == ["act-st"] * 2 + ["dac"] * 4
    before = read_first(first, tmp_path)
    assert [record.metrics for record in records[2:]] == [record.metrics for record in before]
    assert {record.loss for record in records[2:]} == {before[0].loss}  # the same seed, the same sets


def read_first(lines: bytes, folder: Path) -> list[ContenderRecord]:
    (folder / "before.jsonl").write_bytes(lines)
    return read_lines(folder / "before.jsonl", ContenderRecord)


def test_an_interrupted_network_is_taken_up_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out.jsonl"
    asked = ["--minutes", "0", "--out", str(out), "--networks", "act-st,dac"]
    measure, calls = dac_suite.measured, 0

    def interrupted(drawn: Sequence[LabelledSet], solve: Solve) -> tuple[dict[str, list[float | None]], list[float]]:
        nonlocal calls
        calls += 1
        if calls == 4:  # act-st has two lines, and dac the first of its four
            raise KeyboardInterrupt
        return measure(drawn, solve)

    monkeypatch.setattr(amcp_networks, "measured", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(asked)
    assert [record.network for record in read_lines(out, ContenderRecord)] == ["act-st"] * 2
    assert main(asked) == 0
    assert [record.network for record in read_lines(out, ContenderRecord)] == ["act-st"] * 2 + ["dac"] * 4
    assert calls == 4 + 4


def test_an_unknown_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    assert main(["--networks", "dac,none", "--anew", "--out", str(out)]) == 2
    assert "Unknown network 'none'. Known are: amcp, dac, act-st, ncp, amcp warped." in capsys.readouterr().err
    assert not out.exists()


def test_a_network_is_watched_without_a_trace() -> None:
    network = Network(AmcpModel, AMCP, one_cycle(5, evaluate_every=2), batch_size=2)
    shown: list[bool] = []
    said: list[Progress] = []
    drawn = next(SETS.draw())[:2]

    def watch(model: AmcpModel) -> dict[str, float]:
        scores = amcp_networks.watched_ari(model, drawn)
        shown.append(model.training)
        return scores

    followed = trained("followed", network, TASKS, on_log=said.append, watch=watch)
    assert [each.step for each in said if each.evaluation is not None] == [2, 4, 5]
    assert shown == [True] * 3  # training goes on as it was
    assert all(-1 <= each.evaluation["ari"] <= 1 for each in said if each.evaluation is not None)
    assert said[-1].evaluation == amcp_networks.watched_ari(followed, drawn)
    assert not followed.training
    alone = trained("alone", network, TASKS, on_log=lambda _: None)
    assert all(torch.equal(a, b) for a, b in zip(followed.parameters(), alone.parameters(), strict=True))


def record(
    network: str, decoding: str, ari: list[float], k_found: list[int], sets: str = "mog-60-3"
) -> ContenderRecord:
    metrics: dict[str, list[float | None]] = {"ari": [*ari], "k_true": [2, 3], "k_found": [*k_found]}
    return ContenderRecord(
        network=network,
        scenario="mog",
        settings={"parameters": 1234},
        minutes=3.0,
        steps=5678,
        loss=0.5,
        course=[(10, 0.25), (20, 0.75)] if network == "amcp" else [(10, 0.5)],
        sets=sets,
        sets_seed=3,
        decoding=decoding,
        metrics=metrics,
        seconds=[0.25, 0.75],
        commit="0",
        versions={},
    )


def test_the_page_has_better_and_worse(tmp_path: Path) -> None:
    empty = amcp_results.sections(tmp_path)
    assert empty["amcp_networks"]() == empty["amcp_course"]() == "Not run."
    for one in (
        record("amcp", "faithful", [0.4, 0.6], [2, 5]),
        record("amcp", "robust", [0.9, 0.7], [2, 3]),
        record("dac", "faithful", [0.8, 0.8], [3, 3]),
        record("dac", "faithful", [0.5, 0.5], [2, 3], sets="mog-90-5"),
    ):
        append_line(tmp_path / "amcp_networks.jsonl", one)
    made = amcp_results.sections(tmp_path)
    first, second = made["amcp_networks"]().split("mog-90-5:")
    assert first.startswith("3 minutes each.\n\nmog-60-3:\n\n")
    # Nobody was a star or came as it was, so that there are no such columns.
    heads = " | ".join(f"{words} {way}" for way in ("faithful", "robust") for words in ("ARI", "k-MAE", "s"))
    assert f"| network | parameters | steps | {heads} |" in first
    assert "| amcp | 1,234 | 5,678 | .500 ± .100 | 1.00 | .500 | .800 ± .100 | .00 | .500 |" in first
    assert "| dac | 1,234 | 5,678 | .800 ± .000 | .50 | .500 | – | – | – |" in first
    assert "| amcp |" not in second  # of those sets, it has none
    assert "| dac | 1,234 | 5,678 | .500 ± .000 | .00 | .500 |" in second
    course = made["amcp_course"]().splitlines()
    assert course[0] == "| network | 1 of 2 | 2 of 2 |"
    assert course[2:] == ["| amcp | .250 (10) | .750 (20) |", "| dac | .500 (10) | – |"]


def test_the_page_says_what_steps_and_transport_bring(tmp_path: Path) -> None:
    assert amcp_results.sections(tmp_path)["amcp_claims"]() == "Not run."
    for one in (
        record("amcp T=0", "faithful", [0.4, 0.6], [2, 3]),
        record("amcp T=1", "faithful", [0.6, 0.9], [2, 3]),
        record("amcp T=1", "robust", [1.0, 1.0], [2, 3]),  # what is put right in the end does not count
        record("amcp T=1", "faithful", [0.5, 0.5], [2, 3], sets="mog-90-5"),
        record("amcp transport T=1", "faithful", [0.3, 0.5], [2, 3], sets="mog-90-5"),
    ):
        append_line(tmp_path / "amcp_networks.jsonl", one)
    lines = amcp_results.sections(tmp_path)["amcp_claims"]().splitlines()
    assert lines[0] == "| ARI, clusters as the passes made them | mog-60-3 | mog-90-5 |"
    assert lines[2:] == [
        "| amcp T=1, less amcp T=0 | .250 ± .050 | – |",
        "| amcp transport T=1, less amcp T=1 | – | -.100 ± .100 |",
    ]
