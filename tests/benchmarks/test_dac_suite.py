"""DAC's experiments: the sets, the methods that are compared on them, and a run that was interrupted."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from benchmarks.baselines.ncp import NcpConfig, NcpModel
from benchmarks.baselines.set_transformer import ActStConfig, ActStModel
from benchmarks.quality import dac_methods, dac_sets, dac_suite
from benchmarks.quality.dac_sets import LabelledSet, Sets, exact_set, mixtures, warped
from benchmarks.quality.dac_suite import SetsRecord
from benchmarks.quality.records import read_lines
from coterie.amortized.dac.config import DacConfig
from coterie.amortized.dac.network import DacModel
from coterie.amortized.tasks.synthetic import MixturesOfGaussians, oracle_log_likelihood
from coterie.config import to_dict
from coterie.metrics import adjusted_rand_index
from coterie.nn.model import SetModel, build

SMALL = mixtures(60, 3, seed=3, batches=3)


def far_apart(n_points: int = 120) -> LabelledSet:
    y = torch.arange(n_points) % 3
    centres = torch.tensor([[-6.0, 0.0], [0.0, 6.0], [6.0, 0.0]])
    noise = torch.randn((n_points, 2), generator=Generator().manual_seed(0))
    return LabelledSet(centres[y] + 0.25 * noise, y, None)


def pretend(monkeypatch: pytest.MonkeyPatch, model: SetModel) -> None:
    """Register an untrained model under every name."""
    weights = dict(model.state_dict()), {"model": to_dict(model.config)}
    monkeypatch.setattr(dac_methods, "load_pretrained", lambda _: weights)


def untrained(kind: type[Any], config: Any) -> SetModel:
    model: SetModel = build(kind, config, Generator().manual_seed(0))
    return model


def test_the_first_sets_are_the_same_however_many_are_drawn() -> None:
    few = list(SMALL.draw())
    many = list(replace(SMALL, batches=5).draw())
    assert (len(few), len(many)) == (3, 5)
    for ours, theirs in zip(few, many, strict=False):
        assert len(ours) == dac_sets.SETS_PER_BATCH
        assert len({len(one.x) for one in ours}) == 1
        assert all(torch.equal(a.x, b.x) and torch.equal(a.y, b.y) for a, b in zip(ours, theirs, strict=True))


def test_the_true_parameters_have_the_likelihood_of_the_oracle() -> None:
    tasks = MixturesOfGaussians(max_points=60, max_clusters=3)
    drawn = tasks.sample_with_parameters(dac_sets.SETS_PER_BATCH, Generator().manual_seed(3))
    solve = dac_methods.true_parameters().prepare()
    answers = [solve(one) for one in next(SMALL.draw())]
    found = torch.stack([likelihood() for a in answers if (likelihood := a.log_likelihood) is not None])
    torch.testing.assert_close(found, oracle_log_likelihood(*drawn))


def test_every_table_has_its_own_seeds() -> None:
    seeds = [sets.seed for tables in dac_sets.TABLES.values() for sets in tables]
    assert len(set(seeds)) == len(seeds)


def test_a_set_of_an_exact_size() -> None:
    one = exact_set(250, 4, seed=0)
    assert one.x.shape == (250, 2)
    assert 1 <= one.n_clusters <= 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: dac_methods.vbdpm(3),
        lambda: dac_methods.vbdpm_informed(3),
        lambda: dac_methods.refined_seeds(3),
        lambda: dac_methods.spectral("nearest_neighbors"),
        lambda: dac_methods.spectral("rbf"),
    ],
)
def test_clusters_far_apart_are_found(make: Callable[[], dac_methods.Method]) -> None:
    one = far_apart()
    answer = make().prepare()(one)
    assert adjusted_rand_index(one.y.numpy(), answer.labels.numpy()) == 1.0
    if answer.log_likelihood is not None:
        assert -3.0 < float(answer.log_likelihood()) < 0.0


def test_a_likelihood_of_the_posterior_mean_is_that_of_its_mixture() -> None:
    # Well filled components hardly differ between the mean of the posterior and the moments of their points.
    one = far_apart(3000)
    likelihood = dac_methods.vbdpm_informed(3).prepare()(one).log_likelihood
    refined = dac_methods.refined_seeds(3).prepare()(one).log_likelihood
    assert likelihood is not None
    assert refined is not None
    assert float(likelihood()) == pytest.approx(float(refined()), abs=0.01)


def test_flows_are_fitted_to_each_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    one = far_apart()
    scores = []
    for steps in (1, 60):
        monkeypatch.setattr(dac_methods, "FLOW_STEPS", steps)
        answer = dac_methods.fitted_flows().prepare()(one)
        assert answer.log_likelihood is not None
        scores.append(float(answer.log_likelihood()))
    assert scores[0] < scores[1] < 0.0


def test_networks_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    one = far_apart(40)
    pretend(monkeypatch, untrained(DacModel, DacConfig(2, width=8, heads=2, inducing=4)))
    answers = [dac_methods.dac("w").prepare()(one), dac_methods.dac_faithful_decoding("w").prepare()(one)]
    pretend(monkeypatch, untrained(ActStModel, ActStConfig(2, width=8, heads=2, inducing=4)))
    answers.append(dac_methods.act_st("w").prepare()(one))
    pretend(monkeypatch, untrained(NcpModel, NcpConfig(2, width=8)))
    answers.append(dac_methods.ncp("w", 2).prepare()(one))
    for answer in answers:
        assert answer.labels.shape == one.y.shape
        assert int(answer.labels.min()) >= 0
        assert answer.log_likelihood is None or bool(answer.log_likelihood().isfinite())
    assert [answer.log_likelihood is None for answer in answers] == [False, False, False, True]


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "dac.jsonl"
    method = dac_methods.true_parameters()
    interrupted = dac_suite.SUITE.run(1, SMALL, method, 3, out)
    first = next(interrupted)
    interrupted.close()
    later = list(dac_suite.SUITE.run(1, SMALL, method, 3, out))
    assert [first.batch, *(record.batch for record in later)] == [0, 1, 2]
    assert list(dac_suite.SUITE.run(1, SMALL, method, 3, out)) == []
    assert read_lines(out, SetsRecord) == [first, *later]
    whole = list(dac_suite.SUITE.run(1, SMALL, method, 3, tmp_path / "again.jsonl"))
    assert [record.metrics for record in whole] == [first.metrics, *(record.metrics for record in later)]


def test_only_the_first_sets_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dac_suite, "TIMED_SETS", 15)
    records = list(dac_suite.SUITE.run(1, SMALL, dac_methods.true_parameters(), 2, tmp_path / "dac.jsonl"))
    timed = [seconds is not None for record in records for seconds in record.seconds]
    assert timed == [True] * 15 + [False] * 5


def one_table(monkeypatch: pytest.MonkeyPatch, number: int, *sets: Sets) -> None:
    monkeypatch.setitem(dac_sets.TABLES, number, sets)


def test_missing_weights_are_named_and_the_rest_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_table(monkeypatch, 1, replace(SMALL, batches=1))
    monkeypatch.setattr(dac_suite, "ACT_ST_WEIGHTS", "no-such-weights")
    out = tmp_path / "dac.jsonl"
    status = dac_suite.main(["--table", "1", "--methods", "act-st,refined-seeds", "--out", str(out)])
    assert status == 1
    assert "not run: act-st" in capsys.readouterr().err
    assert {record.method for record in read_lines(out, SetsRecord)} == {"refined-seeds"}


def test_methods_are_run_anew_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_table(monkeypatch, 1, replace(SMALL, batches=1))
    out = tmp_path / "dac.jsonl"
    assert dac_suite.main(["--table", "1", "--methods", "true-parameters,refined-seeds", "--out", str(out)]) == 0
    before = read_lines(out, SetsRecord)
    assert dac_suite.main(["--table", "1", "--methods", "true-parameters", "--anew", "--out", str(out)]) == 0
    after = read_lines(out, SetsRecord)
    assert [record.method for record in before] == ["true-parameters", "refined-seeds"]
    assert [record.method for record in after] == ["refined-seeds", "true-parameters"]
    assert after[1].metrics == before[0].metrics


def test_arcs_have_their_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = warped(60, 3, seed=3, batches=1)
    one_table(monkeypatch, 6, sets)
    monkeypatch.setitem(dac_suite.SPECTRAL_BATCHES, sets.name, 1)
    monkeypatch.setitem(dac_suite.FLOW_BATCHES, sets.name, 0)
    pretend(monkeypatch, untrained(DacModel, DacConfig(2, width=8, heads=2, inducing=4, density="flow")))
    out = tmp_path / "dac.jsonl"
    assert dac_suite.main(["--table", "6", "--out", str(out)]) == 0
    records = {record.method: record for record in read_lines(out, SetsRecord)}
    names = {"dac", "dac-faithful-decoding", "spectral-nearest-neighbors", "spectral-rbf"}
    assert set(records) == names
    spectral = records["spectral-rbf"].metrics
    assert spectral["k_true"] == spectral["k_found"]


def test_an_unknown_method_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dac_suite.main(["--table", "5", "--methods", "none", "--out", str(tmp_path / "x.jsonl")]) == 2
    assert "Known are" in capsys.readouterr().err
