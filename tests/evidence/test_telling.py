"""The truth scores better than wrong partitions, in the columns that are meant to tell."""

import numpy as np
import pytest

from coterie.judged.features.table import FEATURES, evidence_of
from coterie.judged.space import Space


def blobs(*centres: tuple[float, float], size: int = 150) -> np.ndarray:
    rng = np.random.default_rng(11)
    return np.concatenate([np.array(centre) + rng.normal(size=(size, 2)) for centre in centres])


def scores(x: np.ndarray, *labels: np.ndarray) -> dict[str, list[float]]:
    evidence = evidence_of(Space.of(x), np.array(labels))
    return {name: evidence[:, column].tolist() for column, name in enumerate(FEATURES)}


@pytest.fixture(scope="module")
def halves() -> dict[str, list[float]]:
    """First the true cut of three blobs, then one blob cut in two, then two blobs merged."""
    x = blobs((0.0, 0.0), (5.5, 0.0), (0.0, 7.0))
    truth = np.repeat([0, 1, 2], 150)
    halved = np.where((truth == 2) & (x[:, 0] > 0.0), 3, truth)
    merged = np.minimum(truth, 1)
    return scores(x, truth, halved, merged)


@pytest.mark.parametrize(
    ("name", "margin"),
    [
        ("border_sparsity", 1.0),
        ("border_sparsity_worst", 0.5),
        ("valley_worst", 0.4),
        ("valley_significance_worst", 0.5),
        ("merging_cost_worst", 0.2),
        ("own_mode_worst", 0.5),
        ("silhouette_worst", 0.1),
        ("density_validity_worst", 0.3),
        ("gap_to_typical_worst", 0.5),
        ("separation_worst", 0.3),
        ("modularity_relative", 0.02),
        ("normal_bic", 0.005),
        ("basins_agree", 0.1),
        ("own_mode_notable", 0.5),
        ("merging_cost_notable", 0.2),
        ("normal_certainty_worst", 0.02),
    ],
)
def test_a_halved_blob_shows(halves: dict[str, list[float]], name: str, margin: float) -> None:
    truth, halved, _ = halves[name]
    assert truth > halved + margin


@pytest.mark.parametrize(
    ("name", "margin"),
    [
        ("second_mode_worst", 0.5),
        ("inner_valley_worst", 0.4),
        ("inner_valley_significance_worst", 0.7),
        ("inner_halves_worst", 0.1),
        ("inner_gap_worst", 0.01),
        ("with_two_modes", 0.3),
        ("uncut_to_cut", -0.2),
        ("variance_left", 0.1),
        ("log_pieces_worst", 0.5),
    ],
)
def test_merged_blobs_show(halves: dict[str, list[float]], name: str, margin: float) -> None:
    truth, _, merged = halves[name]
    assert merged > truth + margin


@pytest.mark.parametrize("name", ["border_sparsity", "density_validity", "same_12", "own_mode_worst", "log_dunn"])
def test_rings_are_better_than_halves(name: str) -> None:
    rng = np.random.default_rng(2)
    angle = rng.uniform(0.0, 2.0 * np.pi, size=400)
    truth = np.repeat([0, 1], 200)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1.0 + 2.0 * truth)[:, None]
    x += 0.1 * rng.normal(size=x.shape)
    found = scores(x, truth, (x[:, 0] > 0.0).astype(np.int64))[name]
    assert found[0] > found[1]


def test_clustered_rows_leave_more_empty_space() -> None:
    rng = np.random.default_rng(4)
    clustered = blobs((0.0, 0.0), (20.0, 0.0), (0.0, 20.0), (20.0, 20.0), size=60)
    labels = np.zeros((1, 240), dtype=np.int64)
    for name in ("emptiness_normal", "emptiness_box"):
        values = [scores(x, *labels)[name][0] for x in (clustered, rng.normal(size=(240, 2)), rng.random((240, 2)))]
        assert values[0] > max(values[1:]) + 0.5


def test_kurtosis_tells_rings_from_heavy_tails() -> None:
    rng = np.random.default_rng(8)
    normal = rng.normal(size=(600, 2))
    ring = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    heavy = rng.standard_t(4.0, size=(600, 2))
    one = np.zeros((1, 600), dtype=np.int64)
    low, none, high = (scores(x, *one)["kurtosis_mean"][0] for x in (ring, normal, heavy))
    assert low < -0.4
    assert abs(none) < 0.15
    assert high > 0.5
