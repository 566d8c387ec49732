"""What a judge is trained on, and training one: made once, kept, resumed, and used by Coterie."""

import itertools
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from coterie import Coterie
from coterie.checkpoint import load_checkpoint
from coterie.errors import ConfigError
from coterie.judged import training as judging
from coterie.judged.features.table import BRIEF
from coterie.judged.judge import JudgeModel
from coterie.judged.prior.universal import DrawnSet, UniversalTasks
from coterie.judged.training import (
    JudgedSet,
    JudgingConfig,
    calibrated,
    held_out_choices,
    judged,
    judged_batches,
    judged_sets,
    padded,
    read_judged,
)
from coterie.recipes import read_recipe, recipe_from, run_recipe
from tests.proposals.sets import blobs

TINY = UniversalTasks(min_points=40, max_points=50, max_features=3, max_clusters=3)
TOY: dict[str, Any] = {
    "name": "judge-toy-v1",
    "summary": "Too small for anything but tests.",
    "seed": 3,
    "batch_size": 2,
    "model": {"method": "judge", "width": 8, "heads": 2, "depth": 1},
    "tasks": {"kind": "universal", "min_points": 40, "max_points": 50, "max_features": 3, "max_clusters": 3},
    "proposals": {"sets": 4, "held_out": 2, "thorough": 0.0, "single": 0.0},
    "train": {"steps": 3},
}


class Known(nn.Module):
    """A judge whose logits are the first column."""

    def forward(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        return columns[..., 0], columns.new_zeros(len(columns))


def known() -> JudgeModel:
    return cast(JudgeModel, Known())


def made_up(logits: list[float], scores: list[float], numbers: list[int], truth: int = 3) -> JudgedSet:
    columns = torch.stack((torch.tensor(logits), torch.zeros(len(logits))), dim=1)
    return JudgedSet(columns, torch.tensor(scores), torch.tensor(numbers), truth)


def same(first: JudgedSet, second: JudgedSet) -> bool:
    return first.truth == second.truth and all(
        torch.equal(getattr(first, name), getattr(second, name)) for name in ("columns", "score", "n_clusters")
    )


def drawn(n: int = 60, strays: int = 0) -> DrawnSet:
    x, labels = blobs(n, d=2, k=3)
    labels[:strays] = -1
    return DrawnSet(torch.from_numpy(x).float(), torch.from_numpy(labels), "geometric", {})


def test_proposals_are_compared_with_the_truth() -> None:
    one = judged(drawn(strays=5), "fast", seed=0)
    assert one is not None
    assert one.columns.shape == (len(one.score), len(BRIEF))
    assert one.columns.isfinite().all()
    assert one.truth == 3
    assert float(one.score.max()) == 1.0  # strays are of no account
    assert int(one.n_clusters[one.score.argmax()]) == 3
    assert one.n_clusters.dtype == torch.int64


def test_nothing_is_proposed_for_equal_points() -> None:
    alike = DrawnSet(torch.ones((30, 2)), torch.zeros(30, dtype=torch.int64), "table", {})
    assert judged(alike, "fast", seed=0) is None


def test_the_largest_cluster_may_stand_alone() -> None:
    labels = torch.cat((torch.full((50,), 1), torch.zeros(30, dtype=torch.int64), torch.full((60,), -1)))
    both = DrawnSet(torch.arange(140.0).unsqueeze(1), labels, "table", {})
    alone = judging.largest_alone(both)
    assert alone.x.squeeze(1).tolist() == list(range(50))
    assert alone.labels.tolist() == [0] * 50
    small = DrawnSet(both.x[20:80], labels[20:80], "table", {})
    assert judging.largest_alone(small) is small


def test_sets_are_made_kept_and_made_again_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in this process; test_a_recipe_makes_a_judge_that_coterie_uses starts others."""
    config = JudgingConfig(sets=3, held_out=1, thorough=0.0, single=0.4)
    for place in range(0, 4, 2):
        judging._make_part(TINY, config, 5, range(place, place + 2), tmp_path)
    monkeypatch.setattr(judging, "PART", 2)
    monkeypatch.setattr(judging, "ProcessPoolExecutor", refused)
    whole = judged_sets(TINY, config, 5, tmp_path)
    assert len(whole) == 4
    assert not any(same(first, second) for first, second in itertools.combinations(whole, 2))
    assert all(one.truth == 1 or 2 <= one.truth <= 3 for one in whole)

    first, second = sorted(tmp_path.iterdir())
    kept, lost = first.stat().st_mtime_ns, second.read_bytes()
    second.unlink()
    with pytest.raises(NotImplementedError):  # now there is something to make
        judged_sets(TINY, config, 5, tmp_path)
    judging._make_part(TINY, config, 5, range(2, 4), tmp_path)
    assert second.read_bytes() == lost
    assert first.stat().st_mtime_ns == kept
    assert all(map(same, judged_sets(TINY, config, 5, tmp_path), whole))
    assert all(itertools.starmap(same, zip(read_judged(tmp_path), whole, strict=True)))


def refused(*_: object, **__: object) -> None:
    raise NotImplementedError


def test_sets_of_several_sizes_make_a_batch() -> None:
    sets = [made_up([1.0, 2.0], [0.5, 0.6], [2, 3]), made_up([3.0], [0.7], [2], truth=1)]
    batch = padded(sets)
    assert batch.columns[..., 0].tolist() == [[1.0, 2.0], [3.0, 0.0]]
    torch.testing.assert_close(batch.score, torch.tensor([[0.5, 0.6], [0.7, 0.0]]))
    assert batch.valid.tolist() == [[True, True], [True, False]]
    assert batch.single.tolist() == [False, True]


def test_batches_come_from_the_generator() -> None:
    sets = [made_up([float(place)], [0.5], [2]) for place in range(50)]

    def first_three(seed: int) -> list[Any]:
        batches = judged_batches(sets, batch_size=8, shown=96, generator=Generator().manual_seed(seed))
        return [batch.columns.tolist() for batch in itertools.islice(batches, 3)]

    assert first_three(0) == first_three(0) != first_three(1)
    assert len({str(columns) for columns in first_three(0)}) == 3


def test_choices_are_held_against_the_best_proposal() -> None:
    sets = [
        made_up([0.0, 2.0, 1.0], [0.9, 0.5, 0.1], [3, 5, 2]),
        made_up([1.0, 0.0], [0.7, 0.2], [3, 4]),
        made_up([5.0, 0.0], [0.0, 0.0], [9, 9], truth=1),  # of no account
    ]
    found = held_out_choices(known(), sets)
    assert found == pytest.approx(
        {"adjusted_rand_index": 0.6, "best_proposal": 0.8, "error_in_number_of_clusters": 1.0}
    )


def test_calibration_finds_the_line_that_the_scores_lie_on() -> None:
    logits = torch.linspace(-3.0, 3.0, 60)
    scores = (0.5 * logits - 0.4).sigmoid()
    sets = [
        made_up([logit, logit - 9.0], [score, 0.0], [3, 2])
        for logit, score in zip(logits.tolist(), scores.tolist(), strict=True)
    ]
    found = calibrated(known(), [*sets, made_up([4.0], [0.0], [2], truth=1)])
    assert found == pytest.approx({"slope": 0.5, "offset": -0.4}, abs=1e-4)


def test_a_recipe_makes_a_judge_that_coterie_uses(tmp_path: Path) -> None:
    path = run_recipe(recipe_from(TOY), tmp_path)
    _, card = load_checkpoint(path)
    assert card["method"] == "judge"
    assert card["columns"] == list(BRIEF)
    assert card["steps"] == 3
    assert set(card["calibration"]) == {"slope", "offset"}
    assert card["evaluation"]["adjusted_rand_index"] <= card["evaluation"]["best_proposal"]
    assert [part.name for part in sorted((tmp_path / "judged").iterdir())] == ["judged-000000.safetensors"]
    before = path.read_bytes()
    path.unlink()
    assert run_recipe(recipe_from(TOY), tmp_path).read_bytes() == before
    X = blobs(60)[0]
    model = Coterie(judge=path, effort="fast", random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert 0.0 <= model.confidence_ <= 1.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"proposals": None}, r"\[proposals\] is for the method 'judge', which needs it"),
        ({"model": {"method": "dac", "n_features": 2}}, r"which needs it; \[model\] has method = 'dac'"),
        ({"proposals": {"sets": 0, "held_out": 1}}, "sets=0 and held_out=1 must both be at least 1"),
        ({"proposals": {"sets": 1, "held_out": 1, "single": 1.0}}, "single=1.0 must be shares"),
        ({"proposals": {"sets": 1, "held_out": 1, "colour": 1}}, "has no setting 'colour'"),
        ({"model": {"method": "judge", "width": 0}}, "width=0"),
    ],
)
def test_what_is_wrong_in_the_recipe_of_a_judge_is_told(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    source = {key: value for key, value in (TOY | changes).items() if value is not None}
    lines = [f"{key} = {json.dumps(value)}" for key, value in source.items() if not isinstance(value, dict)]
    for section in (key for key, value in source.items() if isinstance(value, dict)):
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in source[section].items())]
    path = tmp_path / "recipe.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(ConfigError, match=told):
        read_recipe(path)


@pytest.mark.parametrize("changes", [{"tasks": {"kind": "gaussians", "max_points": 12}}, {"start": "judge-v2"}])
def test_a_judge_learns_from_universal_tasks_and_from_nothing(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='kind = "universal", and from nothing'):
        run_recipe(recipe_from(TOY | changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()
