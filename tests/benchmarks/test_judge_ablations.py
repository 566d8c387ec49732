"""Variants of the judge, on made-up judged sets."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.quality import judge_ablation_results, judge_ablations, judge_workshop
from benchmarks.quality.judge_ablations import OUT, AblationRecord, split
from benchmarks.quality.judge_workshop import GROUPS, PROPOSERS, RULES, Outcome, Workshop
from benchmarks.quality.records import append_line, read_lines
from coterie.judged.features.table import BRIEF, FEATURES, ranks_of
from coterie.judged.training import JudgedSet
from coterie.recipes import recipe_from

TOY = recipe_from(
    {
        "name": "judge-toy-v1",
        "summary": "Too small for anything but tests.",
        "seed": 3,
        "batch_size": 4,
        "model": {"method": "judge", "width": 8, "heads": 2, "depth": 1, "hidden_columns": 0.0},
        "tasks": {"kind": "universal"},
        "proposals": {"sets": 4, "held_out": 2},
        "train": {"steps": 9, "learning_rate": 1e-2},
    }
)
TELLING = BRIEF.index("silhouette")


def made_up(seed: int, proposals: int = 6) -> JudgedSet:
    """A set whose silhouettes are the scores, and little else is known; k-means proposed the first half."""
    rng = np.random.default_rng(seed)
    columns = np.zeros((proposals, len(BRIEF)), dtype=np.float32)
    columns[:, BRIEF.index("normal_bic")] = rng.normal(size=proposals)
    columns[:, TELLING] = rng.uniform(size=proposals)
    columns[:, len(FEATURES) : 2 * len(FEATURES)] = ranks_of(columns[:, : len(FEATURES)])
    columns[: proposals // 2, PROPOSERS["by k-means"]] = 1.0
    columns[proposals // 2 :, PROPOSERS["by spectral"]] = 1.0
    columns[:, PROPOSERS["on standardised"]] = 1.0
    score = torch.from_numpy(columns[:, TELLING].copy())
    return JudgedSet(torch.from_numpy(columns), score, torch.arange(2, 2 + proposals), truth=1 + seed % 4)


def shop(sets: int = 40, held_out: int = 20, steps: int = 2) -> Workshop:
    return split([made_up(seed) for seed in range(sets)], TOY, held_out, steps)


def record(part: str, variant: str, scores: list[float], *, steps: int = 9, training_sets: int = 50) -> AblationRecord:
    summary = Outcome(scores, [1.0] * len(scores), [2.0] * len(scores)).summary()
    return AblationRecord(part, variant, training_sets, 50, 10, steps, 3, summary, scores, 1.0, "0", {})


def test_groups_have_every_column_once_and_ranks_once_more() -> None:
    everything = sorted(place for group, places in GROUPS.items() if group != "ranks" for place in places)
    assert everything == list(range(len(BRIEF)))
    assert len(GROUPS["ranks"]) == len(FEATURES)
    assert TELLING in GROUPS["separation"]
    assert len(FEATURES) + TELLING in GROUPS["separation"]


def test_rules_take_the_largest() -> None:
    one = shop()
    assert len(one.testing) == 15  # those of one cluster are no test
    found = judge_ablations._by_rule(one, RULES["silhouette"])
    assert list(found.ari) == list(found.best)
    assert sum(judge_ablations._by_rule(one, RULES["normal_bic"]).ari) < sum(found.ari)
    place = int(one.testing[0].score.argmax())
    assert found.k_error[0] == abs(2 + place - one.testing[0].truth)


def test_a_judge_that_is_not_told_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_workshop, "TREES", 10)
    one = shop(80, 40, steps=20)
    told = one.measured(one.judge)
    untold = one.measured(one.trained(hidden=GROUPS["separation"]))
    alone = one.measured(one.trained(attends=False))
    assert np.mean(told.ari) > np.mean(untold.ari) + 0.1
    assert np.mean(alone.ari) > np.mean(untold.ari) + 0.1
    assert np.mean(one.measured(one.trees()).ari) > np.mean(untold.ari)
    first = one.testing[0]
    other = JudgedSet(first.columns.clone(), first.score, first.n_clusters, first.truth)
    other.columns[:, list(GROUPS["separation"])] = 99.0
    choose = replace(one, steps=1).trained(hidden=GROUPS["separation"])
    assert choose(first) == choose(other)


def test_proposals_that_are_left_out_are_neither_chosen_nor_the_best() -> None:
    one = shop()
    asked: list[JudgedSet] = []

    def first(shown: JudgedSet) -> int:
        asked.append(shown)
        return 0

    found = one.measured(first, without=PROPOSERS["by k-means"])
    assert found.ari[0] == float(one.testing[0].score[3])
    assert found.best[0] == float(one.testing[0].score[3:].max())
    ranks = asked[0].columns[:, len(FEATURES) : 2 * len(FEATURES)]
    np.testing.assert_array_equal(ranks, ranks_of(one.testing[0].columns[3:, : len(FEATURES)].numpy()))
    nothing = one.measured(first, without=PROPOSERS["on standardised"])
    assert nothing.ari == nothing.best == [0.0] * 15
    assert nothing.k_error[0] == one.testing[0].truth - 1
    unused = one.measured(first, without=PROPOSERS["on raw"])
    assert unused == one.measured(first)


def test_all_variants_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_ablations, "read_recipe", lambda _: TOY)
    monkeypatch.setattr(judge_ablations, "read_judged", lambda _: [made_up(seed) for seed in range(70)])
    monkeypatch.setattr(judge_ablations, "SIZES", (10, 1_000))
    out = tmp_path / OUT.name
    arguments = [str(tmp_path), "--quick", "--out", str(out)]
    assert judge_ablations.main([*arguments, "--only", "sets,rule"]) == 0
    before = read_lines(out, AblationRecord)
    assert [(one.part, one.training_sets) for one in before] == [("sets", 10), *[("rule", 0)] * len(RULES)]
    assert judge_ablations.main(arguments) == 0
    records = read_lines(out, AblationRecord)
    assert records[: len(before)] == before
    assert len({one.key for one in records}) == len(records) == 1 + 1 + len(GROUPS) + 2 + len(RULES) + len(PROPOSERS)
    assert {one.part for one in records} == set(judge_ablations.PARTS)
    assert {one.circumstances for one in records} == {(40, 20, 2, 3)}
    assert judge_ablations.main(arguments) == 0
    assert read_lines(out, AblationRecord) == records
    assert judge_ablation_results.section(tmp_path).count("| **the judge**") == 5


def test_what_cannot_be_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge_ablations.main([str(tmp_path)]) == 2
    assert "has no judged sets" in capsys.readouterr().err
    assert judge_ablations.main([str(tmp_path), "--only", "all"]) == 2
    assert "Known are" in capsys.readouterr().err
    with pytest.raises(ValueError, match="cannot be held out"):
        shop(20, 20)


def test_the_section_compares_set_by_set_what_can_be_compared(tmp_path: Path) -> None:
    assert judge_ablation_results.section(tmp_path) == ""
    for one in (
        record("evidence", "ranks", [0.0, 0.0], steps=5),
        record("whole", "the judge", [0.5, 1.0]),
        record("sets", "20", [0.25, 0.75], training_sets=20),
        record("rule", "normal_bic", [0.5, 0.0]),
    ):
        append_line(tmp_path / OUT.name, one)
    page = judge_ablation_results.section(tmp_path)
    assert "trained for 9 steps each on 50 judged" in page
    assert "| 20 | .500 ± .177 | .250 ± .000 | 1.000 ± .000 | 2.00 ± 0.00 |\n| **the judge**: all 50 sets" in page
    assert "| likelihood of normal clouds, less Schwarz's penalty | .250 ± .177 | .500 ± .354 |" in page
    assert "ranks" not in page.split("run; where nothing is left")[1]
