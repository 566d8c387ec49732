"""What ClAM's pictures are made from: toy data, basins of attraction, records that replace each other."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import clam_figures, clam_toys
from benchmarks.quality.records import read_records


@pytest.mark.parametrize("name", clam_toys.TOYS)
def test_toys_have_the_stated_means_and_covariance(name: str) -> None:
    means, sizes = clam_toys.TOYS[name]
    toy = clam_toys.elongated(name, seed=0)
    assert np.bincount(toy.y).tolist() == list(sizes)
    for label, mean in enumerate(means):
        rows = toy.X[toy.y == label]
        np.testing.assert_allclose(rows.mean(axis=0), mean, atol=0.04)
        np.testing.assert_allclose(np.cov(rows.T), clam_toys.COVARIANCE, atol=0.004)


def test_outliers_come_last_and_count_in_no_score() -> None:
    clean = clam_toys.elongated("elongated-two", seed=0)
    noisy = clean.with_outliers()
    assert noisy.inliers.sum() == len(clean.X)
    np.testing.assert_array_equal(noisy.X[len(clean.X) :], clam_toys.OUTLIERS)
    scores = [clam_toys.record_of(toy, clam_toys.truth_of(toy), 0).metrics for toy in (clean, noisy)]
    assert scores[0] == scores[1]
    assert scores[0]["ari"] == 1.0


@pytest.mark.parametrize("memories", [clam_toys.THREE_MEMORIES, clam_toys.FIVE_MEMORIES])
def test_basins_approach_nearest_memories_as_beta_grows(memories: tuple[tuple[float, float], ...]) -> None:
    nearest = clam_toys.voronoi(memories, size=100)
    different = [(clam_toys.basins(memories, beta, size=100) != nearest).mean() for beta in clam_toys.BETAS]
    assert all(later < earlier for earlier, later in pairwise(different))
    assert different[0] > 0.1
    assert different[-1] < 0.01


def test_the_mahalanobis_silhouette_tells_elongated_clusters() -> None:
    toy = clam_toys.elongated("elongated-two", seed=0)
    found = clam_toys.solve_kmeans(toy, seed=0)
    of_truth, of_kmeans = clam_toys.mahalanobis_silhouettes(toy.X, np.stack([toy.y, found.labels]))
    assert of_truth > of_kmeans


def test_pictures_are_written_and_records_replaced(tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    for _ in range(2):
        status = clam_figures.main(["--only", "basins", "--folder", str(tmp_path), "--out", str(out)])
        assert status == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"basins-three.png", "basins-five.png"}
    assert len(read_records(out)) == 2 * len(clam_toys.BETAS)


def test_an_unknown_part_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clam_figures.main(["--only", "none", "--folder", str(tmp_path), "--out", str(tmp_path / "x.jsonl")]) == 2
    assert "Known are" in capsys.readouterr().err
