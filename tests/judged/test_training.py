"""Training of a judge: scored candidates, calibration, and a recipe from start to end."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from torch import Generator, Tensor, nn

from coterie import Coterie
from coterie.checkpoint import load_checkpoint
from coterie.config import from_dict
from coterie.errors import ConfigError
from coterie.judged import training
from coterie.judged.features.table import column_names
from coterie.judged.judge import Judge, JudgeConfig
from coterie.judged.network import JudgeModel
from coterie.judged.prior.task import SyntheticTask
from coterie.judged.prior.universal import SyntheticPrior
from coterie.judged.training import copy_weights
from coterie.nn.model import build
from coterie.pretrained.registry import load_pretrained
from coterie.recipes import parse_recipe, run_recipe

TINY = SyntheticPrior(min_points=40, max_points=50, max_features=3, max_clusters=3)
TOY: dict[str, Any] = {
    "name": "judge-toy-v1",
    "summary": "For tests.",
    "seed": 3,
    "batch_size": 2,
    "model": {"method": "judge", "width": 8, "heads": 2, "depth": 1},
    "tasks": {"kind": "universal", "min_points": 40, "max_points": 50, "max_clusters": 3, "weights": {"blobs": 1.0}},
    "candidates": {"sets": 4, "held_out": 2, "balanced": 0.0},
    "train": {"steps": 3},
}


class FirstColumn(nn.Module):
    """A judge whose logits are the first column."""

    def forward(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        return columns[..., 0], columns.new_zeros(len(columns))


JUDGE_BY_FIRST_COLUMN = cast(JudgeModel, FirstColumn())


def scored(logits: list[float], scores: list[float], numbers: list[int], truth: int = 3) -> training.ScoredSet:
    columns = torch.stack((torch.tensor(logits), torch.zeros(len(logits))), dim=1)
    return training.ScoredSet(columns, torch.tensor(scores), torch.tensor(numbers), truth)


def same(first: training.ScoredSet, second: training.ScoredSet) -> bool:
    return first.n_true_clusters == second.n_true_clusters and all(
        torch.equal(getattr(first, name), getattr(second, name)) for name in ("columns", "score", "n_clusters")
    )


def task(n: int = 60, outliers: int = 0) -> SyntheticTask:
    x, labels = make_blobs(n, centers=3, cluster_std=0.5, random_state=0)
    labels[:outliers] = -1
    return SyntheticTask(torch.from_numpy(x).float(), torch.from_numpy(labels), "geometric", {})


def test_candidates_are_scored_by_the_true_labels() -> None:
    one = training.score_candidates(task(outliers=5), "fast", seed=0)
    assert one is not None
    assert one.columns.shape == (len(one.score), len(column_names()))
    assert one.columns.isfinite().all()
    assert one.n_true_clusters == 3
    assert float(one.score.max()) == 1.0  # outliers do not count
    assert int(one.n_clusters[one.score.argmax()]) == 3
    assert one.n_clusters.dtype == torch.int64


def test_equal_points_have_no_candidates() -> None:
    equal = SyntheticTask(torch.ones((30, 2)), torch.zeros(30, dtype=torch.int64), "table", {})
    assert training.score_candidates(equal, "fast", seed=0) is None


def test_scored_sets_are_kept_and_only_missing_ones_are_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; test_a_recipe_trains_a_judge_for_coterie starts others."""
    config = training.ScoredSetsConfig(sets=3, held_out=1, balanced=0.0)
    for start in range(0, 4, 2):
        training._make_file(TINY, config, 5, range(start, start + 2), tmp_path)
    monkeypatch.setattr(training, "SETS_PER_FILE", 2)
    monkeypatch.setattr(training, "ProcessPoolExecutor", fail)
    whole = training.make_scored_sets(TINY, config, 5, tmp_path)
    assert len(whole) == 4
    assert not any(same(first, second) for first, second in itertools.combinations(whole, 2))
    assert {one.n_true_clusters for one in whole} <= {1, 2, 3}

    first, second = sorted(tmp_path.iterdir())
    kept, lost = first.stat().st_mtime_ns, second.read_bytes()
    second.unlink()
    with pytest.raises(NotImplementedError):  # a file is missing
        training.make_scored_sets(TINY, config, 5, tmp_path)
    training._make_file(TINY, config, 5, range(2, 4), tmp_path)
    assert second.read_bytes() == lost
    assert first.stat().st_mtime_ns == kept
    assert all(map(same, training.make_scored_sets(TINY, config, 5, tmp_path), whole))


def fail(*_: object, **__: object) -> None:
    raise NotImplementedError


def test_sets_are_padded_to_a_batch() -> None:
    sets = [scored([1.0, 2.0], [0.5, 0.6], [2, 3]), scored([3.0], [0.7], [2], truth=1)]
    batch = training.pad_candidates(sets)
    assert batch.columns[..., 0].tolist() == [[1.0, 2.0], [3.0, 0.0]]
    torch.testing.assert_close(batch.score, torch.tensor([[0.5, 0.6], [0.7, 0.0]]))
    assert batch.valid.tolist() == [[True, True], [True, False]]
    assert batch.single.tolist() == [False, True]


def test_the_generator_determines_the_batches() -> None:
    sets = [scored([float(index)], [0.5], [2]) for index in range(50)]

    def first_three(seed: int) -> list[Any]:
        batches = training.candidate_batches(
            sets, batch_size=8, max_candidates=96, generator=Generator().manual_seed(seed)
        )
        return [batch.columns.tolist() for batch in itertools.islice(batches, 3)]

    assert first_three(0) == first_three(0) != first_three(1)
    assert len({str(columns) for columns in first_three(0)}) == 3


def test_choices_are_compared_with_the_best_candidate() -> None:
    sets = [
        scored([0.0, 2.0, 1.0], [0.9, 0.5, 0.1], [3, 5, 2]),
        scored([1.0, 0.0], [0.7, 0.2], [3, 4]),
        scored([5.0, 0.0], [0.0, 0.0], [9, 9], truth=1),  # does not count
    ]
    found = training.evaluate_choices(JUDGE_BY_FIRST_COLUMN, sets)
    assert found == pytest.approx(
        {"adjusted_rand_index": 0.6, "best_candidate": 0.8, "error_in_number_of_clusters": 1.0}
    )


def test_calibration_recovers_slope_and_offset() -> None:
    logits = torch.linspace(-3.0, 3.0, 60)
    scores = (0.5 * logits - 0.4).sigmoid()
    sets = [
        scored([logit, logit - 9.0], [score, 0.0], [3, 2])
        for logit, score in zip(logits.tolist(), scores.tolist(), strict=True)
    ]
    found = training.fit_calibration(JUDGE_BY_FIRST_COLUMN, sets)
    cost = 0.5 * training.NUMBER_COST * np.log2(3)  # of the three clusters that each choice has
    assert (found["slope"], found["offset"]) == pytest.approx((0.5, cost - 0.4), abs=1e-4)
    unsure = training.fit_calibration(JUDGE_BY_FIRST_COLUMN, [*sets, scored([4.0], [0.9], [2], truth=1)])
    assert unsure["slope"] < 0.5


def test_a_recipe_trains_a_judge_for_coterie(tmp_path: Path) -> None:
    path = run_recipe(parse_recipe(TOY), tmp_path)
    _, card = load_checkpoint(path)
    assert card["method"] == "judge"
    assert card["columns"] == list(column_names())
    assert (card["steps"], set(card["calibration"])) == (3, {"slope", "offset", "number_cost", "single_threshold"})
    assert card["evaluation"]["adjusted_rand_index"] <= card["evaluation"]["best_candidate"]
    assert [part.name for part in sorted((tmp_path / "judged").iterdir())] == ["judged-000000.safetensors"]
    before = path.read_bytes()
    path.unlink()
    assert run_recipe(parse_recipe(TOY), tmp_path).read_bytes() == before
    X = make_blobs(60, centers=3, random_state=0)[0]
    model = Coterie(weights=path, effort="fast", random_state=0).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert 0.0 <= model.confidence_ <= 1.0


def test_a_judge_of_embeddings_is_trained_on_the_sets_of_two_recipes(tmp_path: Path) -> None:
    tasks = {"kind": "embeddings", "min_points": 60, "max_points": 80, "max_clusters": 5, "structureless": 0.0}
    toml = """name = "toy-broad-v1"
summary = "A toy."
seed = 4
batch_size = 2
model = { method = "judge" }
tasks = { kind = "embeddings", min_points = 60, max_points = 80, max_clusters = 9, structureless = 0.0, broad = 1.0 }
candidates = { sets = 1, held_out = 1 }
train = { steps = 1 }
"""
    (tmp_path / "broad.toml").write_text(toml, encoding="utf-8")
    source = TOY | {"tasks": tasks, "more": ["broad.toml"]}
    path = run_recipe(parse_recipe(source, folder=tmp_path), tmp_path / "run")
    _, card = load_checkpoint(path)
    assert (card["metric"], card["columns"]) == ("cosine", list(column_names("cosine")))
    assert [each["name"] for each in card["more"]] == ["toy-broad-v1"]
    assert {part.name for part in (tmp_path / "run").glob("judged*")} == {"judged", "judged-1"}
    rows = np.random.default_rng(0).normal(size=(80, 20))
    assert Coterie(weights=path, effort="fast", random_state=0).fit(rows).metric_ == "cosine"


def test_more_recipes_must_be_of_judges(tmp_path: Path) -> None:
    toml = """name = "toy-dac-v1"
summary = "A toy."
seed = 4
batch_size = 2
model = { method = "dac", n_features = 2 }
tasks = { kind = "gaussians", max_points = 12 }
train = { steps = 1 }
"""
    (tmp_path / "dac.toml").write_text(toml, encoding="utf-8")
    recipe = parse_recipe(TOY | {"more": ["dac.toml"]}, folder=tmp_path)
    with pytest.raises(ConfigError, match="more has 'toy-dac-v1', which is no recipe of a judge"):
        run_recipe(recipe, tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": None}, r"\[candidates\] belongs to the method 'judge', which needs it"),
        ({"model": {"method": "dac", "n_features": 2}}, r"which needs it; \[model\] has method = 'dac'"),
        ({"candidates": {"sets": 0, "held_out": 1}}, "sets=0 must be"),
        ({"candidates": {"sets": 1, "held_out": 1, "balanced": 2.0}}, "balanced=2.0 must be"),
        ({"candidates": {"sets": 1, "held_out": 1, "colour": 1}}, "has no setting 'colour'"),
        ({"model": {"method": "judge", "width": 0}}, "width=0"),
    ],
)
def test_errors_in_the_recipe_of_a_judge_are_explained(changes: dict[str, Any], message: str) -> None:
    source = {key: value for key, value in (TOY | changes).items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        parse_recipe(source)


def test_the_former_section_of_a_judge_is_still_read() -> None:
    former = {key: value for key, value in TOY.items() if key != "candidates"} | {"proposals": TOY["candidates"]}
    assert parse_recipe(former) == parse_recipe(TOY)


def test_a_judge_is_trained_on_synthetic_sets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='kind = "universal"'):
        run_recipe(parse_recipe(TOY | {"tasks": {"kind": "gaussians", "max_points": 12}}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_starts_from_the_columns_that_an_earlier_judge_read() -> None:
    _, card = load_pretrained("judge-v3")
    config = replace(from_dict(JudgeConfig, card["model"]), n_columns=len(column_names()))
    model = build(JudgeModel, config, Generator().manual_seed(0))
    model.fit_normalisation(torch.rand((50, config.n_columns)))
    copy_weights(model, "judge-v3")
    judge = Judge.read("judge-v3")
    neutral = dict(zip(judge.columns, judge.network.centre.tolist(), strict=True))
    table = np.random.default_rng(0).normal(size=(7, config.n_columns)).astype(np.float32)
    columns = dict(zip(column_names(), table.T, strict=True))
    theirs = np.stack([columns.get(name, np.full(7, value)) for name, value in neutral.items()], axis=1)
    with torch.no_grad():
        logits, single = model(torch.from_numpy(table).unsqueeze(0))
    expected, expected_single = judge.network(theirs.astype(np.float32))
    unread = [name for name in judge.columns if name not in columns]
    assert len(unread) < 3, "features that are no longer computed"
    np.testing.assert_allclose(logits[0], expected, rtol=1e-4, atol=1e-4)
    assert float(single[0]) == pytest.approx(expected_single, abs=1e-4)
    with pytest.raises(ConfigError, match="another size"):
        copy_weights(build(JudgeModel, replace(config, depth=1), Generator().manual_seed(0)), "judge-v3")


def test_tasks_of_embeddings_are_for_judges_only(tmp_path: Path) -> None:
    dac = {"model": {"method": "dac", "n_features": 2}, "tasks": {"kind": "embeddings"}, "candidates": None}
    source = {key: value for key, value in (TOY | dac).items() if value is not None}
    with pytest.raises(ConfigError, match="are for judges only"):
        run_recipe(parse_recipe(source), tmp_path / "run")
