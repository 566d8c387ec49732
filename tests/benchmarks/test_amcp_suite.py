"""AMCP on the sets of DAC's tables: what is measured, a run that was interrupted, and what the page says of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import Generator

from benchmarks.quality import amcp_results, amcp_suite, dac_methods, dac_sets, dac_suite
from benchmarks.quality.amcp_suite import AS_MADE_BATCHES, SUITE, WEIGHTS, main, plan
from benchmarks.quality.dac_methods import NO_LIMIT, Solve
from benchmarks.quality.dac_results import METHODS
from benchmarks.quality.dac_sets import TABLES, mixtures
from benchmarks.quality.dac_suite import SetsRecord
from benchmarks.quality.records import append_line, read_lines
from coterie.amortized.amcp.config import AmcpConfig
from coterie.amortized.amcp.network import AmcpModel
from coterie.config import to_dict
from coterie.nn.model import build

NAMES = ["amcp", "amcp-star", "amcp-faithful-decoding", "amcp-star-faithful-decoding"]
N_SETS = 3
FEW = {
    1: (mixtures(60, 3, seed=3, batches=1), mixtures(80, 4, seed=4, batches=1)),
    5: (mixtures(60, 3, seed=5, batches=1),),
}
SMALL = AmcpConfig(2, width=8, hidden=8, depth=1, em_steps=1, max_passes=3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Few sets, and an untrained network in the place of the weights."""
    model = build(AmcpModel, SMALL, Generator().manual_seed(0))
    weights = dict(model.state_dict()), {"model": to_dict(model.config)}
    monkeypatch.setattr(dac_methods, "load_pretrained", {WEIGHTS: weights}.__getitem__)
    monkeypatch.setattr(amcp_suite, "SUITE", replace(SUITE, tables=FEW))
    monkeypatch.setattr(dac_sets, "SETS_PER_BATCH", N_SETS)
    return ["--out", str(tmp_path / "amcp.jsonl")]


def lines(asked: list[str]) -> list[SetsRecord]:
    return read_lines(Path(asked[-1]), SetsRecord)


def test_all_sets_of_two_tables_are_taken() -> None:
    assert {table: TABLES[table] for table in (1, 5)} == SUITE.tables
    for table, kinds in SUITE.tables.items():
        for sets in kinds:
            planned = list(plan(table, sets))
            assert [method.name for method, _ in planned] == NAMES
            fewer = min(sets.batches, AS_MADE_BATCHES)  # of clusters as the passes made them
            assert [batches for _, batches in planned] == [sets.batches, sets.batches, fewer, fewer]
            assert {method.settings["weights"] for method, _ in planned} == {WEIGHTS}
    assert set(NAMES) <= METHODS.keys()
    assert all(set(methods) <= METHODS.keys() for methods in amcp_results.BESIDE.values())
    assert amcp_results.BESIDE.keys() == SUITE.tables.keys()


def test_each_method_is_the_network_with_settings_of_its_own(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AmcpConfig] = []
    solver = dac_methods.solver

    def noted(model: AmcpModel) -> Solve:
        seen.append(model.config)
        assert not model.training
        return solver(model)

    monkeypatch.setattr(dac_methods, "solver", noted)
    assert main(asked) == 0
    as_made = replace(SMALL, decoding="faithful", max_points=NO_LIMIT)
    four = [SMALL, replace(SMALL, update_previous=True), as_made, replace(as_made, update_previous=True)]
    assert seen == four * 3
    records = lines(asked)
    kinds = [(table, sets) for table, all_sets in FEW.items() for sets in all_sets]
    assert [(record.table, record.sets, record.method) for record in records] == [
        (table, sets.name, name) for table, sets in kinds for name in NAMES
    ]
    for record in records:
        assert record.suite == "amcp"
        assert set(record.metrics) == {"ll", "ari", "nmi", "k_true", "k_found"}
        assert all(len(values) == len(record.seconds) == N_SETS for values in record.metrics.values())
        assert all(value is not None and -1 <= value <= 1 for value in record.metrics["ari"])
        assert all(value is not None and 0 <= value <= 1 for value in record.metrics["nmi"])
        assert all(value is not None and value >= 1 for value in record.metrics["k_found"])
        assert None not in record.metrics["ll"]
        same = next(one for one in records if (one.table, one.sets) == (record.table, record.sets))
        assert record.metrics["k_true"] == same.metrics["k_true"]


def test_an_interrupted_run_goes_on_and_is_not_repeated(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measured, calls = dac_suite.measured, 0

    def interrupted(*given: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return measured(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(dac_suite, "measured", interrupted)
    some = ["--methods", "amcp,amcp-star", *asked]
    with pytest.raises(KeyboardInterrupt):
        main(some)
    first = Path(asked[-1]).read_bytes()
    assert [record.method for record in lines(asked)] == NAMES[:2]
    assert main(some) == 0
    assert Path(asked[-1]).read_bytes().startswith(first)
    assert [record.method for record in lines(asked)] == NAMES[:2] * 3
    assert calls == 2 * 3 + 1
    assert main(some) == 0
    assert calls == 2 * 3 + 1


def test_only_what_is_asked_for_is_run_anew(asked: list[str]) -> None:
    assert main(["--methods", "amcp,amcp-star", *asked]) == 0
    before = {(record.table, record.sets, record.method): record for record in lines(asked)}
    assert main(["--methods", "amcp-star", "--anew", *asked]) == 0
    after = lines(asked)
    assert [record.method for record in after] == ["amcp"] * 3 + ["amcp-star"] * 3
    assert after[:3] == [record for record in before.values() if record.method == "amcp"]
    for record in after:
        assert record.metrics == before[record.table, record.sets, record.method].metrics


def test_an_unknown_method_is_refused(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--methods", "amcp,none", *asked]) == 2
    assert f"Known are: {', '.join(sorted(NAMES))}." in capsys.readouterr().err
    assert not Path(asked[-1]).exists()


def test_missing_weights_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(amcp_suite, "SUITE", replace(SUITE, tables=FEW))
    monkeypatch.setattr(amcp_suite, "WEIGHTS", "no-such-weights")
    out = tmp_path / "amcp.jsonl"
    assert main(["--methods", "amcp", "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert "not run: amcp on mog-60-3" in said
    assert "no-such-weights" in said
    assert lines([str(out)]) == []


def record(method: str, ari: list[float], k_found: list[int], ll: list[float], table: int = 1) -> SetsRecord:
    return SetsRecord(
        suite="amcp" if method.startswith("amcp") else "dac",
        table=table,
        sets="mog-3000-12",
        sets_seed=TABLES[table][-1].seed,
        batch=0,
        n_points=2000,
        method=method,
        settings={},
        metrics={"ll": [*ll], "ari": [*ari], "nmi": [0.5, 0.5], "k_true": [8, 9], "k_found": [*k_found]},
        seconds=[0.25, None],
        commit="0",
        versions={},
    )


def test_a_page_without_results_says_so(tmp_path: Path) -> None:
    made = amcp_results.sections(tmp_path)
    assert made["amcp_synthetic"]() == made["amcp_verdict"]() == "Not run."
    append_line(tmp_path / "dac.jsonl", record("dac", [0.9, 0.9], [8, 9], [-1.0, -1.0]))
    made = amcp_results.sections(tmp_path)
    assert made["amcp_synthetic"]() == made["amcp_verdict"]() == "Not run."  # DAC's own results are not AMCP's


def test_the_page_says_what_is_better_and_what_is_worse(tmp_path: Path) -> None:
    append_line(tmp_path / "dac.jsonl", record("dac", [0.95, 0.97], [8, 9], [-1.0, -2.0]))
    append_line(tmp_path / "dac.jsonl", record("ncp-10", [0.5, 0.5], [8, 9], [-1.0, -2.0], table=5))
    append_line(tmp_path / "amcp.jsonl", record("amcp", [0.98, 0.98], [8, 10], [-1.5, -2.5]))
    append_line(tmp_path / "amcp.jsonl", record("amcp", [0.7, 0.7], [8, 9], [-1.5, -2.5], table=5))
    made = amcp_results.sections(tmp_path)
    assert made["amcp_verdict"]().splitlines() == [
        "- (3000, 12), ARI at least .95: reached (.980).",
        "- (3000, 12), k-MAE at most .4: **not reached** (.500).",
        "- (3000, 12), AMCP less DAC, set by set: ARI .0200 ± .0100.",
        "- (3000, 12), AMCP less DAC, set by set: k-MAE .5000 ± .5000.",
        "- (3000, 12), AMCP less DAC, set by set: LL -.5000 ± .0000.",
    ]
    text = made["amcp_synthetic"]()
    small, large, fifth = text.split("Sets of DAC's Table ")[1:]
    assert small.startswith("1, (1000, 4):")
    assert "| AMCP | not run | – | – | – | – | – |" in small
    assert "| AMCP | 2 | -2.000 ± .500 | .980 ± .000 | .500 ± .000 | .500 ± .500 | .250 |" in large
    assert "| DAC | 2 | -1.500 ± .500 | .960 ± .010 | .500 ± .000 | .000 ± .000 | .250 |" in large
    assert "| AMCP* | not run |" in large
    assert fifth.startswith("5, (3000, 12):")
    assert "| AMCP | 2 | -2.000 ± .500 | .700 ± .000 |" in fifth
    assert "| NCP, S = 10 | 2 |" in fifth
    assert "/" not in text  # what was printed of DAC stands in its own tables


def test_without_dac_there_is_nothing_to_compare_with(tmp_path: Path) -> None:
    append_line(tmp_path / "amcp.jsonl", record("amcp", [0.9, 0.9], [8, 9], [-1.5, -2.5]))
    text = amcp_results.sections(tmp_path)["amcp_verdict"]()
    assert "ARI at least .95: **not reached** (.900)." in text
    assert "k-MAE at most .4: reached (.000)." in text
    assert "less DAC" not in text
