"""Which columns are discrete, how much they count, and the views that follow from it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.judged.columns import FEW_VALUES, Columns, prediction_weights
from coterie.judged.space import Floats, Space
from coterie.judged.views import View, fit_views
from tests.judged.sets import blobs

FLOOR = 0.1  # weight of a column that the others do not predict


def one_hot(codes: np.ndarray) -> Floats:
    indicators: Floats = np.eye(int(codes.max()) + 1)[codes]
    return indicators


def junk(n: int, levels: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(levels, size=n)


def weights(x: Floats, columns: Columns | None = None) -> Floats:
    """Return the weight of each column in the reference view."""
    space = Space(x, columns)
    first = [space.columns.features(column)[0] for column in range(space.columns.count)]
    return space.table_views[0].weight[first]


def test_indicators_of_one_category_are_joined() -> None:
    rng = np.random.default_rng(0)
    number = rng.normal(size=(90, 1))
    x = np.hstack([number, one_hot(junk(90, 3)), number + 1.0, 5.0 * one_hot(junk(90, 2, seed=2)) - 1.0])
    joined = Columns.numbers(x.shape[1]).join_one_hot(x)
    assert joined.group.tolist() == [0, 1, 1, 1, 2, 3, 3]
    assert joined.names == ("x0", "x1", "x4", "x5")
    assert joined.category.tolist() == [False, True, False, True]
    assert joined.features(1).tolist() == [1, 2, 3]
    assert Space(x).columns.names == joined.names


def test_what_is_no_category_is_not_joined() -> None:
    rng = np.random.default_rng(0)
    flags = rng.integers(2, size=(90, 3)).astype(np.float64)  # several may be high in a row
    numbers = rng.normal(size=(90, 2))
    few = np.eye(3)[np.arange(12) % 3]  # too few rows to tell
    for x in (flags, numbers, few, np.ones((90, 2))):
        columns = Columns.numbers(x.shape[1])
        assert columns.join_one_hot(x) is columns


def test_columns_with_few_values_are_discrete() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack(
        [rng.normal(size=200), rng.integers(2, size=200), rng.integers(FEW_VALUES, size=200), rng.poisson(20, size=200)]
    )
    columns = Columns.numbers(4)
    assert columns.find_discrete(x).tolist() == [False, True, True, False]
    assert columns.find_discrete(x[:20]).tolist() == [False, True, False, False]  # too few rows for each value
    assert columns.find_discrete(x[rng.permutation(200)] * [1e-9, 3.0, 1e9, 1.0]).tolist() == [False, True, True, False]


def test_scales_give_each_column_variance_one() -> None:
    columns = replace(Columns.numbers(4), group=np.array([0, 1, 1, 2]), names=("a", "b", "c"))
    assert columns.scales(np.array([4.0, 3.0, 6.0, 0.0])).tolist() == [2.0, 3.0, 3.0, np.inf]


@pytest.mark.parametrize("levels", [2, 3, 8])
def test_a_discrete_column_counts_by_how_well_the_others_predict_it(levels: int) -> None:
    x, truth = blobs(400)
    found = weights(np.hstack([x, one_hot(junk(400, levels)), one_hot(truth)]))
    assert found[:3].tolist() == [1.0, 1.0, 1.0]  # numbers count in full
    assert found[3] < 0.3
    assert found[4] > 0.5
    assert weights(np.column_stack([x, junk(400, 2), truth]))[3:] == pytest.approx([FLOOR, 0.9], abs=0.15)


def test_unrelated_columns_are_at_the_floor_on_average() -> None:
    rng = np.random.default_rng(0)
    found = [weights(np.column_stack([rng.normal(size=(300, 4)), junk(300, 2, seed)]))[-1] for seed in range(20)]
    assert np.median(found) == pytest.approx(FLOOR)
    assert max(found) < 0.35


def test_weights_given_by_the_user_multiply() -> None:
    x = np.column_stack([blobs(200)[0], junk(200, 2)])
    given_weights = np.array([1.0, 0.5, 2.0, 3.0])
    np.testing.assert_allclose(
        weights(x, replace(Columns.numbers(4), weight=given_weights)), given_weights * weights(x)
    )


def test_where_nothing_can_be_predicted_all_columns_count() -> None:
    codes = junk(200, 3)[:, None].astype(np.float64)
    everything = np.array([True])
    for z, columns in ((codes, Columns.numbers(1)), (codes[:10], Columns.numbers(1))):
        assert prediction_weights(z, columns, everything).tolist() == [1.0]
    assert (
        prediction_weights(
            np.random.default_rng(0).normal(size=(50, 3)), Columns.numbers(3), np.zeros(3, bool)
        ).tolist()
        == [1.0] * 3
    )


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(2, 6), st.floats(-3.0, 3.0), st.floats(-1e3, 1e3))
def test_order_scale_and_shift_of_rows_change_no_weight(seed: int, levels: int, log_scale: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(levels, size=60)
    x = np.column_stack([rng.normal(size=(60, 2)) + codes[:, None], codes, one_hot(np.arange(60) % 3)])
    before = weights(x)
    assert ((before >= FLOOR - 1e-9) & (before <= 1.0)).all()
    np.testing.assert_allclose(weights(x[rng.permutation(60)]), before, atol=1e-8)
    np.testing.assert_allclose(weights((x + shift) * 10.0**log_scale), before, atol=1e-4)
    order = np.array([2, 1, 0, 3, 4, 5])
    np.testing.assert_allclose(weights(x[:, order])[order[:3]], before[:3], atol=1e-8)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_huge_and_tiny_categories_have_finite_views(factor: float) -> None:
    x = np.hstack([blobs(80)[0], one_hot(junk(80, 3))]) * factor
    for view in fit_views(x, Space(x).columns):
        assert np.isfinite(view.transform(x)).all()


def test_the_features_of_a_category_have_variance_one_together() -> None:
    x = np.hstack([blobs(300)[0], one_hot(junk(300, 4))])
    space = Space(x)
    view = space.table_views[0]
    rows = view.transform(x) / view.weight
    assert rows[:, 3:].var(axis=0).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(rows[:, :3].std(axis=0), 1.0, atol=0.05)
    assert [features.tolist() for features in space.geometry(view.name).discrete] == [[3, 4, 5, 6]]


def test_the_power_view_tames_heavy_tails() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.exp(2.0 * rng.normal(size=500)), -np.exp(rng.normal(size=500)), rng.normal(size=500)])
    view = fit_views(x)[0]
    assert view.name == "power"
    z = view.transform(x)
    np.testing.assert_allclose(z[:, :2].mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(z[:, :2].std(axis=0), 1.0, atol=0.02)
    assert np.abs((z**3).mean(axis=0)).max() < 1.0
    for column in range(3):  # increasing
        assert (np.diff(z[np.argsort(x[:, column]), column]) >= 0.0).all()
    standardised = next(other for other in fit_views(x) if other.name == "standardised").transform(x)
    np.testing.assert_allclose(z[:, 2], standardised[:, 2], atol=1e-9)  # has no heavy tails


@pytest.mark.parametrize("far", [1e3, 1e9, 1e150, 1.7e308])
def test_rows_far_beyond_all_others_stay_far(far: float) -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    x[0] = far, -far
    with np.errstate(all="raise", under="ignore"):
        views = fit_views(x)
        rows = [view.transform(np.array([[far, far], [0.0, 0.0], [-far, -far]])) for view in views]
    assert views[0].name == "power"
    assert all(np.isfinite(each).all() for each in rows)
    low, middle, high = rows[0][::-1]
    assert (low < middle - 0.5).all()
    assert (high > middle + 0.5).all()


def test_the_factors_view_drops_an_unrelated_column() -> None:
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(600, 1))
    x = np.hstack([shared + 0.3 * rng.normal(size=(600, 5)), rng.normal(size=(600, 1))])
    (factors,) = (view for view in fit_views(x) if view.name == "factors")
    assert factors.projection.shape == (6, 1)
    share = np.square(factors.projection[:, 0])
    assert share[-1] < 0.01
    np.testing.assert_allclose(share[:-1], 0.2, atol=0.02)
    assert "factors" not in {view.name for view in fit_views(x[:, :3])}


def test_columns_of_low_weight_are_not_whitened() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(400, 1)) + 0.4 * rng.normal(size=(400, 3))
    x = np.hstack([numbers, one_hot(junk(400, 3))])
    (whitened,) = (view for view in fit_views(x, Space(x).columns) if view.name == "whitened")
    other = x.copy()
    other[:, 3:] = np.roll(other[:, 3:], 1, axis=1)
    np.testing.assert_array_equal(whitened.transform(x), whitened.transform(other))
    np.testing.assert_allclose(np.cov(whitened.transform(x).T, bias=True), np.eye(3), atol=1e-8)


def test_views_saved_by_version_0_2_load() -> None:
    x = blobs(100)[0] * [1.0, 2.0, 3.0]
    for view in fit_views(x):
        arrays = view.to_arrays()
        del arrays["weight"]
        again = View.from_arrays(view.name, arrays)
        np.testing.assert_array_equal(again.transform(x), view.transform(x))
