from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import clam_suite, markdown, results
from benchmarks.quality.clam_suite import Grid, Pool, grid_estimators, train_pool
from benchmarks.quality.records import LabelledTable


def test_results_page_is_what_the_results_files_say() -> None:
    assert results.main(["--check"]) == 0, "run: python -m benchmarks.quality.results"


def test_page_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "results.md"
    monkeypatch.setattr(results, "PAGE", page)
    assert results.main(["--check"]) == 1
    assert results.main([]) == 0
    assert results.main(["--check"]) == 0
    assert "{{" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("value", "text"), [(0.4123, ".412"), (-0.01, "-.010"), (1.0, "1.000"), (None, "–")])
def test_scores_are_written_as_in_the_paper(value: float | None, text: str) -> None:
    assert markdown.number(value) == text


def test_rules_choose_as_they_say() -> None:
    pool = Pool(
        labels=np.array([[0, 0, 1], [0, 1, 1], [1, 1, 1]]),
        silhouette=np.array([0.2, 0.5, 0.9]),
        loss=np.array([0.1, 0.2, 0.3]),
        full=np.array([True, True, False]),
    )
    assert pool.choose("loss").tolist() == [0, 0, 1]
    assert pool.choose("silhouette").tolist() == [1, 1, 1]
    assert pool.choose("silhouette-full").tolist() == [0, 1, 1]


def test_a_grid_trains_every_run_of_every_start() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 3
    table = LabelledTable("toy", rng.normal(size=(60, 4)) + 8.0 * truth[:, None], truth, 3)
    grid = Grid((4.0, 16.0), (0.1,), (("k-means", 2), ("spread", 12)), epochs=5, batch_size=30)
    pool = train_pool(table, grid_estimators(table, grid, {}), seed=0)
    assert pool.labels.shape == (grid.settings()["runs"], 60)
    assert table.metrics(pool.choose("silhouette-full"))["ari"] == 1.0


def test_every_data_set_has_its_methods() -> None:
    assert "clam-faithful-grid" in clam_suite.methods_for("zoo")
    assert clam_suite.methods_for("fmnist") == list(clam_suite.VARIANTS)
