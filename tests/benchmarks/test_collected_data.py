"""What the judges are trained on beside benchmark collections: texts and tables of public packages."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.data import corpora, package_tables
from benchmarks.data.package_tables import Source, find_labels, find_sources, read_source, to_csv, without_duplicates
from coterie.judged.prior.real import load_labelled_table


def _frame(rows: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = np.arange(rows) % 3
    return pd.DataFrame(
        {
            "code": [f"row {index}" for index in range(rows)],
            "width": kind + 0.5 * rng.normal(size=rows),
            "height": (kind == 1) + 0.4 * rng.normal(size=rows),
            "depth": (kind == 2) + 0.4 * rng.normal(size=rows),
            "copy": 10 * kind,
            "kind": np.array(["ash", "elm", "oak"])[kind],
        }
    )


def test_texts_of_several_classes_and_small_classes_are_left_out() -> None:
    texts = [(f"class {index % 3}", f"text {index}") for index in range(90)]
    texts += [("class 0", "both"), ("class 1", "both"), ("class 0", "text 0"), ("small", "alone")]
    chosen, labels = corpora.select(texts)
    assert sorted(Counter(labels.tolist()).values()) == [30, 30, 30]
    assert len(set(chosen)) == 90
    assert "both" not in chosen
    assert "alone" not in chosen


def test_large_classes_are_cut_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "MAX_TEXTS", 100)
    sizes = {"large": 500, "medium": 60, "small": 20}
    chosen, labels = corpora.select([(name, f"{name} {i}") for name, size in sizes.items() for i in range(size)])
    assert sorted(np.bincount(labels).tolist()) == [20, 40, 40]
    assert len(chosen) == 100


def test_predictable_columns_become_classes_without_those_that_tell_them() -> None:
    frame = package_tables.usable_columns(_frame())
    assert "code" not in frame
    best = next(each for each in find_labels(frame) if each.label == "kind")
    assert best.kappa > 0.6
    assert "copy" not in best.features  # it tells the kind alone
    noise = pd.DataFrame(np.random.default_rng(1).normal(size=(120, 4)), columns=list("abcd"))
    assert not find_labels(noise.assign(coin=np.arange(120) % 2))


def test_written_tables_are_read_as_labelled_tables(tmp_path: Path) -> None:
    best = find_labels(package_tables.usable_columns(_frame()))[0]
    path = tmp_path / "some-table-kind.csv"
    path.write_text(to_csv(best), encoding="utf-8")
    task = load_labelled_table(path)
    assert task.x.shape == (120, best.features.shape[1])
    assert task.n_clusters == 3


def test_tables_of_benchmarks_and_near_duplicates_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "package" / "data"
    folder.mkdir(parents=True)
    for name in ("trees", "iris", "renamed"):
        _frame().to_csv(folder / f"{name}.csv", index=False)
    found = list(find_sources(tmp_path))
    assert [each.name for each in found] == ["renamed", "trees"]
    renamed = Source("package", "renamed", found[0].frame.rename(columns=str.upper))
    assert len(without_duplicates([found[1], renamed])) == 1
    other = Source("package", "other", _frame(90).assign(width=range(90), height=range(90), depth=range(90)))
    assert len(without_duplicates([found[1], other])) == 2


def test_files_without_names_of_columns_are_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("1,2,3\n4,5,6\n", encoding="utf-8")
    assert read_source(path, "package") is None
    path.write_text("a;b\n1;2\n", encoding="utf-8")
    source = read_source(path, "package")
    assert source is not None
    assert list(source.frame.columns) == ["a", "b"]
