"""From tables to rows: missing values filled in from similar rows, scales, columns and their weights."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.impute import KNNImputer

from coterie.errors import InputError, TableError
from coterie.judged import preparation
from coterie.judged.estimator import Coterie
from coterie.judged.preparation import Imputer, Missing, Preparation
from coterie.judged.views import fit_views
from coterie.metrics import adjusted_rand_index
from coterie.reporting.data import collect_data
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import Table, as_table, take_rows, text_column

Floats = npt.NDArray[np.float64]


def prepare(table: Table, **settings: object) -> Preparation:
    return Preparation.fit(table, np.arange(table.n_rows), **settings)  # type: ignore[arg-type]  # by keyword


def mixed_table(n: int = 60, seed: int = 0) -> Table:
    """Two groups in two numbers, a category and a date; one value in eight is missing."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 2
    gap = rng.random((4, n)) < 0.125
    numbers = np.where(gap[:2], np.nan, 6.0 * truth + rng.normal(size=(2, n)))
    plan = [None if g else ("basic", "gold")[t] for g, t in zip(gap[2], truth, strict=True)]
    day = np.datetime64("2020-01-01", "us") + (1000 * truth + rng.integers(9, size=n)).astype("timedelta64[D]")
    day[gap[3]] = np.datetime64("NaT")
    return Table(("age", "income", "plan", "day"), (*numbers, text_column(plan), day))


def test_values_missing_from_clear_groups_are_filled_from_their_group() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 40)
    X = 10.0 * np.eye(3)[truth] + rng.normal(size=(120, 3))
    gaps = rng.choice(120, 10, replace=False), rng.integers(3, size=10)
    complete = X[gaps]
    X[gaps] = np.nan
    prepared = prepare(as_table(X))
    decoded = prepared.encoder.inverse_transform(prepared.encode(as_table(X)))
    assert np.abs(decoded[gaps] - complete).max() < 3.5


def test_missing_categories_are_filled_from_similar_rows() -> None:
    table = mixed_table()
    prepared = prepare(table)
    decoded = prepared.encoder.inverse_transform(prepared.encode(table))
    names = [feature.name for feature in prepared.encoder.features]
    assert names[:5] == ["age", "income", "plan=basic", "plan=gold", "day"]
    gold = decoded[:, names.index("plan=gold")]
    np.testing.assert_allclose(gold, np.arange(60) % 2, atol=1e-6)
    np.testing.assert_allclose(decoded[:, 2] + decoded[:, 3], 1.0, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_values_from_complete_donors_equal_those_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    donors = rng.normal(size=(80, 5)).astype(np.float32)
    rows = rng.normal(size=(60, 5)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.3] = np.nan
    expected = KNNImputer(n_neighbors=5).fit(donors).transform(rows)
    Imputer(donors, np.arange(5)).fill(rows)
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_donors_at_the_same_distance_all_count() -> None:
    donors = np.column_stack([np.repeat([0.0, 9.0], 12), np.arange(24.0)]).astype(np.float32)
    row = np.array([[0.0, np.nan]], dtype=np.float32)
    Imputer(donors, np.arange(2)).fill(row)
    assert row.tolist() == [[0.0, 5.5]]


def test_values_missing_from_a_discrete_column_become_one_of_its_values() -> None:
    donors = np.array([[0.0, 1.0]] * 6 + [[0.0, 5.0]] * 2 + [[9.0, 9.0]], dtype=np.float32)
    row = np.array([[0.0, np.nan]], dtype=np.float32)
    Imputer(donors, np.arange(2)).fill(row)
    assert row.tolist() == [[0.0, 1.0]]  # the mean is 2


def test_columns_that_cannot_form_clusters_are_left_out() -> None:
    table = Table(("who", "n"), (text_column([f"name {i}" for i in range(60)]), np.arange(60.0) ** 2))
    prepared = prepare(table)
    assert prepared.columns.names == ("n",)
    assert prepared.encoder.notes[0] == "left out: 'who' (almost every text is another)"
    for alone, weights in ((table.select([0]), None), (table, {"n": 0.0})):
        with pytest.raises(
            TableError, match=r"No column of memory can form clusters.*'who' \(almost every text is another"
        ):
            prepare(alone, column_weights=weights)


ANY_ROWS = hnp.arrays(
    np.float64, st.tuples(st.integers(2, 25), st.integers(1, 4)), elements=st.floats(-1e3, 1e3, width=32)
)


@given(ANY_ROWS, st.data())
def test_any_rows_become_finite_and_do_not_depend_on_the_others(X: Floats, data: st.DataObject) -> None:
    mask = data.draw(hnp.arrays(np.bool_, X.shape))
    mask[0] = False
    X = np.where(mask, np.nan, X)
    table = as_table(X)
    prepared = prepare(table)
    whole = prepared.transform(table)
    assert np.isfinite(whole).all()
    some = data.draw(st.lists(st.integers(0, len(X) - 1), min_size=1))
    np.testing.assert_array_equal(prepared.transform(take_rows(table, np.array(some))), whole[some])
    present = ~np.isnan(prepared.encoder.transform(table))
    np.testing.assert_array_equal(prepared.encode(table)[present], prepared.encoder.transform(table)[present])


def test_blocks_of_many_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = mixed_table(400)
    prepared = prepare(table)
    whole = prepared.transform(table)
    monkeypatch.setattr(preparation, "_CELLS_AT_ONCE", 3000)
    np.testing.assert_array_equal(prepared.transform(table), whole)


def test_donors_that_lack_values_are_not_the_nearest() -> None:
    donors = np.array([[1.0, 2.0, 0.0]] * 5 + [[np.nan, 2.0, 9.0]] * 5, dtype=np.float32)
    row = np.array([[0.9, 2.0, np.nan]], dtype=np.float32)
    Imputer(donors, np.arange(3)).fill(row)
    assert row[0, 2] == 0.0


def test_rows_without_any_value_become_the_mean() -> None:
    X = np.random.default_rng(0).normal(size=(30, 3))
    nothing, one_gap = as_table(np.full((1, 3), np.nan)), as_table([[X[0, 0], np.nan, X[0, 2]]])
    complete = prepare(as_table(X))  # without gaps in the fitted table no donors are kept
    assert len(complete.donors) == 0
    np.testing.assert_array_equal(complete.transform(nothing), 0.0)
    assert complete.encode(one_gap)[0, 1] == 0.0
    X[5, 2] = np.nan
    prepared = prepare(as_table(X))
    np.testing.assert_allclose(prepared.transform(nothing), 0.0, atol=1e-6)
    assert prepared.encode(one_gap)[0, 1] != 0.0


def test_donors_are_limited_by_number_and_by_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(1500, 2))
    X[7, 1] = np.nan
    table = as_table(X)
    assert prepare(table).donors.shape == (1000, 2)
    monkeypatch.setattr(preparation, "_MAX_DONOR_CELLS", 1000)
    assert prepare(table).donors.shape == (500, 2)


def test_columns_say_which_column_a_feature_was_made_from() -> None:
    columns = prepare(mixed_table(), column_weights={"plan": 0.5}).columns
    assert columns.names == ("age", "income", "plan", "day", "day: weekday", "day: month")
    assert columns.group.tolist() == [0, 1, 2, 2, 3, 4, 4, 5, 5]
    assert columns.category.tolist() == [False, False, True, False, True, True]
    assert columns.weight.tolist() == [1.0, 1.0, 0.5, 1.0, 1.0, 1.0]


def test_indicators_of_missing_values_are_columns_of_their_own_on_request() -> None:
    table = mixed_table()
    prepared = prepare(table, missing="indicator", column_weights={"age": 2.0})
    columns = prepared.columns
    dates = ("day", "day: month", "day is missing")
    assert columns.names == ("age", "age is missing", "income", "income is missing", "plan", *dates)
    assert columns.group.tolist() == [0, 1, 2, 3, 4, 4, 4, 5, 6, 6, 7]
    assert columns.category.tolist() == [False, True, False, True, True, False, True, True]
    assert columns.weight.tolist() == [2.0, 2.0, *[1.0] * 6]
    rows = prepared.transform(table)
    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(rows[:, 1] > 0, np.isnan(table.column(0)))


def test_weights_do_not_change_the_rows_but_a_weight_of_0_leaves_a_column_out() -> None:
    table = mixed_table()
    np.testing.assert_array_equal(
        prepare(table, column_weights={"age": 3.0}).transform(table), prepare(table).transform(table)
    )
    without = prepare(table, column_weights={"plan": 0, "day": 0.0})
    assert without.columns.names == ("age", "income")
    assert without.encoder.notes[0] == "left out: 'plan' (as asked for), 'day' (as asked for)"
    assert without.transform(table).shape == (60, 2)
    names = Table(("who", "age"), (text_column([f"name {i}" for i in range(60)]), table.column(0)))
    assert prepare(names, column_weights={"who": 0}).columns.names == ("age",)
    with pytest.raises(TableError, match="All columns of memory are left out"):
        prepare(names, column_weights={"who": 0, "age": 0})


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf, "2", True, None])
def test_weights_must_be_numbers_of_at_least_0(weight: float) -> None:
    with pytest.raises(InputError, match=r"column_weights\['age'\]=.* must be a finite number of at least 0"):
        prepare(mixed_table(), column_weights={"age": weight})


def test_weights_of_unknown_columns_raise_an_error_with_similar_names() -> None:
    with pytest.raises(TableError, match=r"'incom'. Did you mean 'income'\?"):
        prepare(mixed_table(), column_weights={"incom": 1.0})


def test_scales_are_relative_to_the_median_number_column() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1.0, 2.0, 10.0]
    rows = prepare(as_table(X)).transform(as_table(X))
    np.testing.assert_allclose(rows.std(axis=0), X.std(axis=0) / X[:, 1].std(), rtol=1e-5)


@pytest.mark.parametrize("missing", ["ignore", "indicator"])
def test_saved_arrays_restore_the_preparation(missing: str) -> None:
    table = mixed_table()
    prepared = prepare(table, missing=missing, column_weights={"age": 2.0})
    again = Preparation.from_arrays(TableEncoder.from_card(prepared.encoder.to_card()), prepared.to_arrays())
    new = mixed_table(seed=1)
    np.testing.assert_array_equal(again.transform(new), prepared.transform(new))
    assert again.columns.names == prepared.columns.names
    np.testing.assert_array_equal(again.columns.weight, prepared.columns.weight)


def test_models_of_earlier_versions_fill_in_medians() -> None:
    table = mixed_table()
    encoder = TableEncoder("standard").fit(table)
    prepared = Preparation.from_arrays(encoder, {})
    np.testing.assert_array_equal(prepared.encode(table), encoder.transform(table))
    assert set(prepared.columns.weight.tolist()) == {1.0}


@pytest.mark.parametrize("missing", ["ignore", "indicator"])
def test_a_fit_with_missing_values_can_be_saved_and_reported(missing: Missing, tmp_path: Path) -> None:
    table = mixed_table()
    model = Coterie(2, effort="fast", missing=missing, column_weights={"plan": 0.5}, random_state=0).fit(table)
    assert adjusted_rand_index(np.arange(60) % 2, model.labels_) == 1.0
    model.save(tmp_path / "model.safetensors")
    again = Coterie.load(tmp_path / "model.safetensors")
    assert (again.missing, again.column_weights) == (missing, {"plan": 0.5})
    new = mixed_table(seed=1)
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    data = collect_data(model, table, None, model.describe_fit(table))
    assert np.isfinite(data.encoded).all()
    assert np.isfinite(data.prototypes).all()
    names = [feature.name for feature in data.features]
    np.testing.assert_array_equal(np.isnan(data.values[:, names.index("age")]), np.isnan(table.column(0)))
    if missing == "ignore":  # what was filled in is not shown as if it were known
        unknown = [plan is None for plan in table.column(2)]
        np.testing.assert_array_equal(np.isnan(data.values[:, names.index("plan=gold")]), unknown)
    else:  # a number and its indicator are not two levels
        assert {names.index("age"), names.index("age is missing")} <= data.independent_features


def test_latitude_and_longitude_keep_the_scale_of_the_globe() -> None:
    rng = np.random.default_rng(0)
    lat, lon = rng.normal(60.0, 0.5, 400), rng.normal(10.0, 4.0, 400)
    table = Table(("shop_lat", "price", "shop_lon"), (lat, rng.normal(size=400), lon))
    prepared = prepare(table)
    assert prepared.columns.in_one_unit == (0, 2)
    assert prepared.encoder.notes[-1] == (
        "compared as places on the globe, by latitude and longitude: 'shop_lat', 'shop_lon'"
    )
    rows = prepared.transform(table)
    # At 60 degrees north a degree of longitude is half as long as one of latitude.
    assert rows[:, 2].std() / rows[:, 0].std() == pytest.approx(0.5 * lon.std() / lat.std(), rel=0.01)
    reference = fit_views(rows, prepared.columns)[0].transform(rows)
    assert reference[:, 2].std() / reference[:, 0].std() == pytest.approx(0.5 * lon.std() / lat.std(), rel=0.01)


@pytest.mark.parametrize("names", [("lat", "size"), ("latency", "lon"), ("lat", "lon")])
def test_other_columns_are_no_coordinates(names: tuple[str, str]) -> None:
    values = np.random.default_rng(0).normal(0.0, 200.0, size=(2, 50))
    assert prepare(Table(names, (values[0], values[1]))).columns.in_one_unit == ()
