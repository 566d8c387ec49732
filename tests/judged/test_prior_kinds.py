"""The kinds of task: mixed tables, sets without structure, junk columns and gaps, labelled tables; held-out kinds."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from coterie.config import from_dict
from coterie.errors import ConfigError
from coterie.judged.prior import decorations, mixed, sampling, structureless
from coterie.judged.prior.decorations import DECORATIONS, HELD_OUT_DECORATIONS, JUNK, JUNK_CATEGORIES, JUNK_WEIGHTS
from coterie.judged.prior.mixed import COLUMNS, HELD_OUT_STYLES, MIXED_STYLES, sample_mixed
from coterie.judged.prior.real import load_labelled_table
from coterie.judged.prior.sampling import Rng
from coterie.judged.prior.structureless import HELD_OUT_STRUCTURELESS, STRUCTURELESS, UNIVARIATE
from coterie.judged.prior.task import SyntheticTask
from coterie.judged.prior.universal import TASK_KINDS, SyntheticPrior

SMALL: dict[str, Any] = {"min_points": 60, "max_points": 150}


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def sample(n_tasks: int, seed: int = 0, **settings: Any) -> list[SyntheticTask]:
    prior, generator = SyntheticPrior(**{**SMALL, **settings}), seeded(seed)
    return [prior.sample_task(generator) for _ in range(n_tasks)]


def words(tasks: list[SyntheticTask], key: str) -> Counter[str]:
    return Counter(word for task in tasks for word in str(task.description.get(key, "")).split(", ") if word)


def two_clusters(n_points: int = 100, n_features: int = 4) -> SyntheticTask:
    """Four columns, the last a category, and every tenth row noise."""
    labels = torch.arange(n_points) % 2
    x = Rng(seeded()).normal(n_points, n_features) + 5 * labels.unsqueeze(1)
    x[:, -1] = torch.arange(n_points) % 3
    labels[::10] = -1
    return SyntheticTask(x, labels, "table", {}, (n_features - 1,))


def table_file(folder: Path, name: str, n_rows: int = 300, n_classes: int = 3) -> None:
    rng = np.random.default_rng(0)
    lines = ["size,colour,day,other,class"]
    for row in range(n_rows):
        kind = row % n_classes
        colour = "" if row % 7 == 0 else ("red", "green", "blue")[rng.integers(3)]
        size = "" if row % 11 == 0 else f"{rng.normal(kind):.3f}"
        lines.append(f"{size},{colour},2024-01-{1 + row % 28:02d},{rng.normal():.3f},type {kind}")
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders with labelled tables."""
    (tmp_path / "mixed").mkdir()
    (tmp_path / "tabular").mkdir()
    table_file(tmp_path / "mixed", "sales")
    table_file(tmp_path / "mixed", "parts", n_classes=2)
    (tmp_path / "mixed" / "INDEX.csv").write_text("table,rows\nsales,300\n", encoding="utf-8")
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "tabular" / "plants.npz", X=rng.normal(size=(400, 6)).astype(np.float32), y=np.arange(400) % 5)
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    return tmp_path


def test_a_task_becomes_the_table_of_a_user() -> None:
    task = replace(
        two_clusters(12),
        x=two_clusters(12).x.index_put((torch.tensor([1, 2]), torch.tensor([0, 3])), torch.tensor(torch.nan)),
    )
    table = task.to_table()
    assert table.kinds == ("number", "number", "number", "category")
    assert table.column(3).tolist() == [f"level {i % 3}" if i != 2 else None for i in range(12)]
    for column in range(3):
        np.testing.assert_array_equal(table.column(column), task.x[:, column].double().numpy())
    plain = replace(task, categories=()).to_table()
    assert plain.block is not None
    np.testing.assert_array_equal(plain.block, task.x.double().numpy())


def test_rows_and_columns_are_taken_with_their_labels_and_categories() -> None:
    task = two_clusters(20)
    some = task.take(task.labels != 0)
    assert set(some.labels.tolist()) == {-1, 0}
    assert torch.equal(some.x, task.x[task.labels != 0])
    assert task.select(torch.tensor([3, 0])).categories == (0,)
    assert task.largest_cluster() is None  # too small
    largest = two_clusters(200).largest_cluster()
    assert largest is not None
    assert (largest.n_clusters, len(largest.x)) == (1, 100)


@pytest.mark.usefixtures("tables")
def test_every_kind_is_sampled_and_valid() -> None:
    tasks = sample(500, tables=("mixed", "tabular"))
    for task in tasks:
        assert (task.x.dtype, task.labels.dtype) == (torch.float32, torch.int64)
        assert not task.x.isinf().any()
        present = ~task.x.isnan()
        assert present.any(dim=1).all()
        assert "gaps" in str(task.description.get("decorations")) or task.kind.startswith("real/") or present.all()
        sizes = torch.bincount(task.labels[task.labels >= 0])
        assert int(sizes.min()) > 0
        assert task.n_clusters == len(sizes)
        assert (task.n_clusters == 1) == task.kind.startswith("structureless")
        for position in task.categories:
            codes = task.x[:, position][present[:, position]]
            assert bool(((codes == codes.round()) & (codes >= 0)).all())
        assert task.to_table().n_rows == len(task.x)
    kinds = Counter(task.kind.partition("/")[0] for task in tasks)
    assert set(kinds) == set(TASK_KINDS) - {"largest-cluster"}
    assert any(task.kind == "structureless/largest-cluster" for task in tasks)
    total = sum(kind.weight for kind in TASK_KINDS.values())
    assert kinds["mixed"] / len(tasks) == pytest.approx(TASK_KINDS["mixed"].weight / total, abs=0.06)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_held_out_kinds_are_only_in_the_validation_split(split: str) -> None:
    weights = {"structureless": 1.0, "mixed": 0.6, "blobs": 0.4}
    tasks = sample(500, weights=weights, decorated=2.0, split=split, max_points=80)
    kinds = {task.kind.partition("/")[2] for task in tasks if task.kind.startswith("structureless/")}
    styles = {task.kind for task in tasks if task.kind.startswith("mixed/")}
    added = set(words(tasks, "decorations"))
    every = {name for name in MIXED_STYLES if name.startswith("mixed/")}
    if split == "train":
        assert kinds == set(STRUCTURELESS) - HELD_OUT_STRUCTURELESS
        assert styles == every - HELD_OUT_STYLES
        assert added == (set(JUNK) | set(DECORATIONS)) - HELD_OUT_DECORATIONS
    else:
        assert kinds == HELD_OUT_STRUCTURELESS
        assert styles == HELD_OUT_STYLES
        assert added == set(JUNK) | set(DECORATIONS)


def test_names_of_held_out_kinds_exist() -> None:
    assert set(STRUCTURELESS) > HELD_OUT_STRUCTURELESS
    assert len(STRUCTURELESS) >= 20
    assert 0.15 < len(HELD_OUT_STRUCTURELESS) / len(STRUCTURELESS) < 0.35
    assert set(MIXED_STYLES) > HELD_OUT_STYLES
    assert set(JUNK) | set(DECORATIONS) > HELD_OUT_DECORATIONS
    assert set(JUNK) == set(JUNK_WEIGHTS)
    assert set(DECORATIONS) == set(decorations.DECORATION_WEIGHTS)
    assert set(COLUMNS) == {kind for weights in MIXED_STYLES.values() for kind in weights}
    assert set(STRUCTURELESS) > UNIVARIATE | structureless.DISCRETE


@pytest.mark.parametrize("name", STRUCTURELESS)
@pytest.mark.parametrize("n_features", [1, 2, 3, 9])
def test_sets_without_structure_have_the_wanted_size(name: str, n_features: int) -> None:
    if n_features == 1 and name not in UNIVARIATE:
        return
    x, categories = STRUCTURELESS[name](120, n_features, Rng(seeded(2)))
    assert x.shape == (120, n_features)
    assert x.dtype == torch.float32
    assert x.isfinite().all()
    assert all(position < n_features for position in categories)
    assert (x.amax(dim=0) > x.amin(dim=0)).any()


def test_sets_without_structure_have_no_column_with_groups_of_its_own() -> None:
    tasks = sample(300, weights={"structureless": 1.0, "largest-cluster": 0.2}, decorated=2.0)
    assert not decorations.GROUPED_JUNK & set(words(tasks, "decorations"))
    assert all((task.labels == 0).all() for task in tasks)


@pytest.mark.parametrize("style", MIXED_STYLES)
def test_columns_of_mixed_tables_depend_on_the_class(style: str) -> None:
    rng = Rng(seeded(3))
    draft = sample_mixed(style, 300, 8, 4, rng)
    clear, blurred = (
        sampling.measure_recoverability(draft.build(spread), draft.labels, draft.categories).agreement
        for spread in (0.02, 20.0)
    )
    assert clear > blurred + 0.2
    assert draft.build(1.0).shape == (300, 8)
    kinds = set(str(draft.description["kinds"]).split(", "))
    assert kinds <= set(MIXED_STYLES[style])
    assert bool(draft.categories) == bool(kinds & {"category", "grade"})


def test_columns_of_mixed_tables_are_of_their_kind() -> None:
    rng = Rng(seeded())
    for name, make in COLUMNS.items():
        column = make(rng)
        values = column.build(rng.normal(400, column.n_scores))
        assert values.shape == (400,)
        assert values.isfinite().all()
        whole = bool((values == values.round()).all())
        assert whole or name not in {"age", "count", "rare count", "answer", "boolean", "date", "category", "grade"}
        assert column.is_category == (name in {"category", "grade"})
        assert len(set(values.tolist())) > 1
    assert {int(v) for v in mixed.boolean(rng).build(rng.normal(100, 1))} == {0, 1}


def test_agreement_counts_a_category_like_one_column() -> None:
    labels = torch.arange(200) % 2
    codes = (labels + 2 * Rng(seeded()).integers(0, 1, 200)).float().unsqueeze(1)
    encoded = sampling.encode_categories(codes, (0,))
    assert encoded.shape == (200, 4)
    assert float(encoded.square().mean(dim=0).sum()) == pytest.approx(1.0)
    assert sampling.measure_recoverability(codes, labels, (0,)).agreement == 1.0


def test_agreement_of_mixed_tables_is_that_of_the_relevant_columns() -> None:
    tasks = sample(60, weights={"mixed": 1.0, "survey": 0.5, "counts": 0.5}, decorated=0.0)
    for task in tasks:
        assert float(task.description["target_low"]) <= float(task.description["agreement"])
        assert float(task.description["agreement"]) <= float(task.description["target_high"])
    irrelevant = [float(task.description["irrelevant"]) for task in tasks]
    assert min(irrelevant) == 0
    assert max(irrelevant) > 0.5


@pytest.mark.parametrize("name", JUNK)
def test_junk_columns_depend_on_nothing(name: str) -> None:
    task = decorations.add_junk(two_clusters(), [name], Rng(seeded(1)))
    assert task.x.shape == (100, 5)
    assert len(task.categories) == 1 + (name in JUNK_CATEGORIES)
    assert task.x.isfinite().all()
    if name in {"id", "row-number"}:
        assert any(len(set(task.x[:, column].tolist())) == 100 for column in range(5))
    original = {tuple(column) for column in two_clusters().x.T.tolist()}
    assert original < {tuple(column) for column in task.x.T.tolist()}


@pytest.mark.parametrize("name", DECORATIONS)
def test_decorations_keep_labels_and_categories(name: str) -> None:
    before = two_clusters()
    after = DECORATIONS[name](before, Rng(seeded(4)))
    assert torch.equal(after.labels, before.labels)
    gaps = after.x.isnan()
    assert bool(gaps.any()) == name.startswith("gaps")
    assert not gaps.all(dim=1).any()
    assert float(gaps.float().mean(dim=0).max()) <= 0.5
    if name.startswith("gaps"):
        assert torch.equal(after.x[~gaps], before.x[~gaps])
    if name == "repeated-rows":
        rows = {(*row, label) for row, label in zip(before.x.tolist(), before.labels.tolist(), strict=True)}
        assert all((*row, label) in rows for row, label in zip(after.x.tolist(), after.labels.tolist(), strict=True))
        assert len(set(map(tuple, after.x.tolist()))) < len(set(map(tuple, before.x.tolist())))
    for position in after.categories:
        assert set(after.x[:, position][~gaps[:, position]].tolist()) == {0.0, 1.0, 2.0}


def test_noise_among_shapes() -> None:
    tasks = sample(40, weights={"noisy-shapes": 1.0}, max_noisy_points=2000, decorated=0.0)
    noise = [float((task.labels < 0).float().mean()) for task in tasks]
    assert max(noise) <= 0.35
    assert 0.1 < sum(noise) / len(noise) < 0.25
    assert max(len(task.x) for task in tasks) > 1000


def test_labelled_tables_are_tasks(tables: Path) -> None:
    whole = load_labelled_table(tables / "mixed" / "sales.csv")
    assert (whole.kind, whole.n_clusters, whole.categories) == ("real/mixed/sales", 3, (1,))
    assert whole.x.shape == (300, 4)
    assert int(whole.x[:, 0].isnan().sum()) == 28
    assert float(whole.x[0, 2]) == (np.datetime64("2024-01-01") - np.datetime64("1970-01-01")).astype(int)
    assert set(whole.x[:, 1][~whole.x[:, 1].isnan()].tolist()) == {0.0, 1.0, 2.0}
    assert load_labelled_table(tables / "tabular" / "plants.npz").n_clusters == 5

    tasks = sample(80, weights={"real": 1.0}, tables=("mixed", "tabular"), decorated=0.0)
    assert set(words(tasks, "layout")) == {"sales", "parts", "plants"}
    clusters = {task.n_clusters for task in tasks if task.description["layout"] == "plants"}
    assert clusters == {2, 3, 4, 5}
    assert {task.x.shape[1] for task in tasks if task.description["layout"] == "plants"} == {3, 4, 5, 6}
    for task in tasks:
        assert int(torch.bincount(task.labels).min()) >= sampling.MIN_CLUSTER_SIZE
        assert 100 < len(task.x) <= 400
        assert len({tuple(row) for row in task.x.nan_to_num().tolist()}) > 50


@pytest.mark.usefixtures("tables")
def test_held_out_tables_are_only_in_the_validation_split() -> None:
    settings: dict[str, Any] = {"weights": {"real": 1.0}, "tables": ("mixed", "tabular")}
    settings["held_out_tables"] = ("plants", "mixed/parts")
    assert set(words(sample(30, **settings), "layout")) == {"sales"}
    assert set(words(sample(30, split="validation", **settings), "layout")) == {"plants", "parts"}
    with pytest.raises(ConfigError, match="validation split has no tables: 0 of 3 are held out"):
        sample(1, weights={"real": 1.0}, tables=("mixed", "tabular"), split="validation")
    with pytest.raises(ConfigError, match="held_out_tables has no-such-table"):
        sample(1, weights={"real": 1.0}, tables=("mixed",), held_out_tables=("no-such-table",))


def test_missing_tables_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="No labelled tables are in tabular"):
        sample(1, weights={"real": 1.0}, tables=("tabular",))
    monkeypatch.delenv("COTERIE_DATA")
    with pytest.raises(ConfigError, match="COTERIE_DATA, which is not set"):
        sample(1, weights={"real": 1.0}, tables=("tabular",))


def test_settings_of_a_recipe() -> None:
    given = {"max_points": 1000, "weights": {"geometric": 1, "mixed": 2.5}, "tables": ["mixed"], "split": "validation"}
    prior = from_dict(SyntheticPrior, given)
    assert prior.kind_weights() == {"geometric": 1, "mixed": 2.5}
    assert prior.tables == ("mixed",)
    assert "real" not in SyntheticPrior().kind_weights()
    assert "real" in SyntheticPrior(tables=("mixed",)).kind_weights()
    assert set(SyntheticPrior(max_features=1).kind_weights()) == {"table", "structureless"}
    for settings, message in (
        ({"weights": {"shapes": 1.0}}, "weights has shapes; choose from: geometric"),
        ({"weights": {"real": 1.0}}, "Give the setting 'tables'"),
        ({"weights": {"geometric": 1.0}, "max_features": 1}, "No kind has a positive weight"),
    ):
        with pytest.raises(ConfigError, match=message):
            from_dict(SyntheticPrior, settings)
