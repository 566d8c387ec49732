"""Recognition of background noise."""

import numpy as np
import pytest

from coterie.judged import noise as noise_module
from coterie.judged.noise import NoiseModel
from coterie.judged.space import Floats
from tests.judged.sets import blobs, rings

Flags = np.typing.NDArray[np.bool_]


def in_noise(x: Floats, share: float = 0.1, seed: int = 0) -> tuple[Floats, Flags]:
    """Add rows spread evenly over the range of the others; return which rows were added."""
    rng = np.random.default_rng(seed)
    low, high = x.min(axis=0), x.max(axis=0)
    added = round(share / (1.0 - share) * len(x))
    noise = low + (high - low) * (1.2 * rng.random((added, x.shape[1])) - 0.1)
    return np.concatenate([x, noise]), np.arange(len(x) + added) >= len(x)


def cities(n: int = 6000, seed: int = 0) -> Floats:
    """Twelve clusters in the plane of very different sizes and spreads."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(12, n, p=(weights := rng.uniform(0.1, 2.0, 12)) / weights.sum())
    centres, spreads = rng.uniform(8.0, 92.0, (12, 2)), np.geomspace(0.5, 4.0, 12)
    points: Floats = centres[labels] + spreads[labels, None] * rng.normal(size=(n, 2))
    return points


def fit(x: Floats) -> NoiseModel:
    model = NoiseModel.fit(x)
    assert model is not None
    return model


@pytest.mark.parametrize("share", [0.08, 0.2, 0.35])
@pytest.mark.parametrize(
    ("x", "recall"),
    [
        pytest.param(cities(), 0.8, id="cities"),
        pytest.param(blobs(4000, d=2)[0], 0.75, id="blobs"),  # which cover a fifth of the box
        pytest.param(blobs(4000, d=5)[0], 0.8, id="five columns"),
        pytest.param(rings(4000)[0], 0.65, id="rings"),  # which cover a quarter
    ],
)
def test_most_background_is_found_and_few_other_rows_are(x: Floats, recall: float, share: float) -> None:
    rows, is_noise = in_noise(x, share)
    model = fit(rows)
    found = model.find(rows)
    assert found[is_noise].mean() > recall
    assert is_noise[found].mean() > 0.8
    assert model.share == pytest.approx(share, rel=0.3)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(cities(), id="cities"),
        pytest.param(blobs(2000, d=2)[0], id="blobs"),
        pytest.param(rings(2000)[0], id="rings"),
        pytest.param(RNG.random((2000, 2)), id="one uniform square"),
        pytest.param(RNG.normal(size=(2000, 3)), id="one Gaussian"),
        pytest.param(RNG.standard_t(2, size=(2000, 3)), id="heavy tails"),
        pytest.param(RNG.exponential(size=(2000, 2)), id="skewed"),
        pytest.param(RNG.poisson(40.0, size=(2000, 2)).astype(float), id="counts"),
        pytest.param(RNG.integers(0, 5, size=(2000, 3)).astype(float), id="few values"),
        pytest.param(RNG.random((2000, 1)), id="one column"),
        pytest.param(RNG.normal(size=(500, 20)), id="many columns"),
        pytest.param(RNG.normal(size=(5, 2)), id="five rows"),
        pytest.param(np.ones((50, 3)), id="equal rows"),
    ],
)
def test_there_is_no_background_in_clean_data(x: Floats) -> None:
    assert NoiseModel.fit(x) is None


@pytest.mark.parametrize("share", [0.03, 0.1, 0.3])
def test_a_sparse_cluster_is_not_background(share: float) -> None:
    rng = np.random.default_rng(0)
    dense, _ = blobs(round(3000 * (1.0 - share)), d=2)
    sparse = np.array([12.0, 3.0]) + 1.5 * rng.normal(size=(round(3000 * share), 2))
    assert NoiseModel.fit(np.concatenate([dense, sparse])) is None


def test_a_few_values_far_away_hide_no_background() -> None:
    x, is_noise = in_noise(cities())
    x = np.concatenate([x, [[1e6, 0.0], [50.0, -1e6]]])
    found = fit(x).find(x)
    assert found[-2:].all()
    assert found[:-2][is_noise].mean() > 0.8


def test_units_and_columns_with_few_values_do_not_matter() -> None:
    x, _ = in_noise(cities())
    found = fit(x).find(x)
    other = 1e-3 * x * [1.0, 1e4] + 7.0
    assert (fit(other).find(other) == found).mean() > 0.999
    wide = np.column_stack([x[:, 0], np.arange(len(x)) % 3, x[:, 1]])
    np.testing.assert_array_equal(fit(wide).find(wide), found)


def test_new_rows_are_judged_by_the_rows_near_them() -> None:
    x, _ = in_noise(blobs(3000, d=2)[0], 0.15)
    model = fit(x)
    new = np.array([[3.0, 3.0], [-100.0, 50.0], [0.0, 0.0], [6.0, 6.0]])
    assert model.find(new).tolist() == [True, True, False, False]
    assert model.find(new[:0]).shape == (0,)


def test_large_tables_are_sampled_and_all_rows_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    x, is_noise = in_noise(cities())
    monkeypatch.setattr(noise_module, "_MAX_ROWS", 3000)
    model = fit(x)
    assert len(model.rows) == 3000
    found = model.find(x)
    assert found[is_noise].mean() > 0.75
    assert is_noise[found].mean() > 0.75


def test_a_model_survives_saving() -> None:
    x, _ = in_noise(cities())
    model = fit(x)
    again = NoiseModel.from_arrays(model.to_arrays())
    assert again is not None
    np.testing.assert_array_equal(again.find(x), model.find(x))
    assert again.share == model.share
    assert NoiseModel.from_arrays({}) is None
