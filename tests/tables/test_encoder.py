"""TableEncoder: tables become numbers of comparable size, and back."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.preprocessing import StandardScaler

from coterie.errors import InputError, TableError
from coterie.tables.encoder import Missing, Scaling, TableEncoder
from coterie.tables.table import Table, as_table, text_column

SCALINGS: tuple[Scaling, ...] = ("robust", "standard", "none")


def encode(X: object, scaling: Scaling = "robust") -> npt.NDArray[np.float32]:
    table = as_table(X)
    return TableEncoder(scaling).fit(table).transform(table)


SHAPES = st.tuples(st.integers(2, 40), st.integers(1, 5))
ORDINARY = hnp.arrays(np.float64, SHAPES, elements=st.floats(-1e6, 1e6, width=32))


@given(ORDINARY)
def test_standard_scaling_equals_standard_scaler(X: npt.NDArray[np.float64]) -> None:
    table = as_table(X)
    encoder = TableEncoder("standard").fit(table)
    spread = X.std(axis=0)
    # Whether columns that differ only in their last digits are constant may differ.
    clear = [i for i, p in enumerate(encoder.numbers.positions) if spread[p] > 1e-6 * np.abs(X[:, p]).max()]
    expected = StandardScaler().fit_transform(X)[:, [encoder.numbers.positions[i] for i in clear]]
    np.testing.assert_allclose(encoder.transform(table)[:, clear], expected, atol=1e-6, rtol=1e-6)


ANY_FLOATS = hnp.arrays(np.float64, st.tuples(st.integers(1, 30), st.integers(1, 4)), elements=st.floats())


@given(ANY_FLOATS, st.sampled_from(SCALINGS))
def test_encoded_values_are_finite(X: npt.NDArray[np.float64], scaling: Scaling) -> None:
    if not np.isfinite(X).any():
        with pytest.raises(TableError, match="missing"):
            encode(X, scaling)
        return
    if scaling == "none" and np.abs(X[np.isfinite(X)]).max() > 1e15:
        with pytest.raises(TableError, match="robust"):
            encode(X, scaling)
        return
    Z = encode(X, scaling)
    assert Z.dtype == np.float32
    assert len(Z) == len(X)
    assert np.isfinite(Z).all()


@given(ORDINARY, st.sampled_from(SCALINGS))
def test_inverse_transform_inverts_transform(X: npt.NDArray[np.float64], scaling: Scaling) -> None:
    table = as_table(X)
    encoder = TableEncoder(scaling).fit(table)
    kept = X[:, encoder.numbers.positions]
    error = np.abs(encoder.inverse_transform(encoder.transform(table)) - kept)
    assert (error <= 1e-5 * np.abs(kept).max(axis=0)).all()


def test_robust_scaling_equals_a_computation_by_hand() -> None:
    x = np.arange(10.0)
    x[9] = 1000.0
    winsorised = np.clip(x, 1.0, 8.0)
    z = (x - winsorised.mean()) / winsorised.std()
    z[9] = 5 + np.log1p(z[9] - 5)
    table = as_table(x[:, None])
    encoder = TableEncoder().fit(table)
    np.testing.assert_allclose(encoder.transform(table)[:, 0], z, rtol=1e-6)
    assert encoder.notes == ("extreme values pulled in (count per column): 'x0' 1",)
    np.testing.assert_allclose(encoder.inverse_transform(encoder.transform(table))[:, 0], x, rtol=1e-5, atol=1e-6)


def test_robust_scaling_of_small_samples_and_rare_values_uses_the_full_deviation() -> None:
    few = np.array([[0.0], [1.0], [50.0]])
    np.testing.assert_allclose(encode(few), encode(few, "standard"), rtol=1e-6)
    rare = np.zeros((1000, 1))
    rare[:5] = 1.0
    assert TableEncoder().fit(as_table(rare)).numbers.scales[0] == pytest.approx(rare.std())


def test_a_block_and_separate_columns_give_equal_results() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_t(2, size=(500, 7))
    X[rng.random(X.shape) < 0.1] = np.nan
    table = as_table(X)
    split = Table(table.names, tuple(X.T), named=False)
    for scaling in SCALINGS:
        whole = TableEncoder(scaling).fit(table)
        assert whole == TableEncoder(scaling).fit(split)
        np.testing.assert_array_equal(whole.transform(table), whole.transform(split))


def test_huge_values_keep_their_order_and_batches_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.array([[-1.7e308], [0.0], [1.7e308]])
    np.testing.assert_allclose(encode(X, "standard")[:, 0], [-1.2247449, 0.0, 1.2247449], rtol=1e-6)
    encoder = TableEncoder("standard").fit(as_table([[0.0], [1e-300]]))
    assert np.isfinite(encoder.transform(as_table([[1e308]]))).all()
    X = np.random.default_rng(0).normal(size=(50, 9))
    X[3, 4] = np.inf
    whole = encode(X)
    monkeypatch.setattr("coterie.tables.encoder._ELEMENTS_PER_BATCH", 120)
    np.testing.assert_allclose(encode(X), whole, rtol=1e-6)


def test_missing_numbers_become_the_median() -> None:
    X = np.array([[1.0, np.nan], [2.0, np.nan], [np.inf, np.nan], [9.0, np.nan]])
    table = as_table(X)
    encoder = TableEncoder("none").fit(table)
    assert encoder.transform(table).tolist() == [[1.0], [2.0], [2.0], [9.0]]
    assert encoder.notes == (
        "missing values, filled with the median: 'x0' 1 of 4 (2)",
        "left out, since all values are missing: 'x1'",
    )
    assert encoder.transform(as_table([[np.nan, 5.0]])).tolist() == [[2.0]]


MISSING: tuple[Missing, ...] = ("fill", "keep", "indicate")


@pytest.mark.parametrize("missing", MISSING)
def test_notes_about_many_columns_are_abbreviated(missing: Missing) -> None:
    X = np.random.default_rng(0).normal(size=(50, 40))
    X[0] = np.nan
    notes = TableEncoder(missing=missing).fit(as_table(X)).notes
    (note,) = notes
    assert "'x9' 1 of 50" in note
    assert "'x10'" not in note
    assert note.endswith(" and 30 more columns")


def test_the_median_of_dates_is_a_date() -> None:
    (note, _) = TableEncoder().fit(MIXED.select([3])).notes
    assert note == "missing values, filled with the median: 'day' 1 of 4 (2020-01-02)"
    times = np.array(["2020-01-01T10:00", "NaT", "2020-01-01T12:30"], dtype="datetime64[us]")
    assert TableEncoder().fit(Table(("t",), (times,))).notes[0].endswith("(2020-01-01 11:15:00)")


@pytest.mark.parametrize("scaling", SCALINGS)
def test_missing_values_can_be_kept(scaling: Scaling) -> None:
    columns = (np.array([1.0, np.nan, np.inf, 5.0, 9.0]), text_column(["a", "b", None, None, "a"]))
    table = Table(("income", "plan"), columns)
    encoder = TableEncoder(scaling, missing="keep").fit(table)
    Z = encoder.transform(table)
    assert [feature.name for feature in encoder.features] == ["income", "plan=a", "plan=b"]
    np.testing.assert_array_equal(np.isnan(Z[:, 0]), [False, True, True, False, False])
    np.testing.assert_array_equal(np.isnan(Z[:, 1:]), [[False] * 2, [False] * 2, [True] * 2, [True] * 2, [False] * 2])
    present = Table(("income", "plan"), (np.array([1.0, 5.0, 9.0]), text_column(["a", "b", "a"])))
    alone = TableEncoder(scaling).fit(present)  # scales and offsets are those of the present values
    np.testing.assert_array_equal(alone.transform(present)[:, 0], Z[[0, 3, 4], 0])
    np.testing.assert_array_equal(alone.transform(present)[:, 1:], Z[[0, 1, 4], 1:])
    back = encoder.inverse_transform(Z)
    np.testing.assert_allclose(back[:, 0], [1.0, np.nan, np.nan, 5.0, 9.0], rtol=1e-6)
    np.testing.assert_allclose(back[:, 1], [1.0, 0.0, np.nan, np.nan, 1.0], atol=1e-6)
    assert encoder.notes == ("missing values, which tell nothing: 'income' 2 of 5, 'plan' 2 of 5",)


def test_missing_values_can_be_indicated() -> None:
    encoder = TableEncoder("none", missing="indicate").fit(MIXED)
    names = ["n", "colour=blue", "colour=red", "colour=(missing)", "flag", "day", "day is missing"]
    assert [feature.name for feature in encoder.features] == names
    Z = encoder.transform(MIXED.select([0, 1, 2, 3]))
    assert Z[:, 6].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert np.isnan(Z[:, 5]).tolist() == [False, False, True, False]
    assert Z[:, 3].tolist() == [0.0, 0.0, 1.0, 0.0]
    assert "missing values, each a feature of its own: 'day' 1 of 4" in encoder.notes
    scaled = TableEncoder("standard", missing="indicate").fit(MIXED)
    indicator = scaled.transform(MIXED)[:, 6]
    assert (indicator.mean(), indicator.std()) == (pytest.approx(0.0, abs=1e-6), pytest.approx(1.0))
    np.testing.assert_allclose(scaled.inverse_transform(scaled.transform(MIXED))[:, 6], [0, 0, 1, 0], atol=1e-6)
    constant = TableEncoder(missing="indicate").fit(as_table([[5.0], [np.nan], [5.0]]))
    assert [feature.name for feature in constant.features] == ["x0 is missing"]


def test_a_category_that_is_missing_in_new_rows_only_is_not_unseen_if_missing_values_are_kept() -> None:
    table = as_table([["a", 1.0], ["b", 2.0], ["a", 4.0]])
    new = as_table([["z", 1.0], [None, 1.0], ["a", 1.0]])
    for missing in MISSING[1:]:
        encoder = TableEncoder(missing=missing).fit(table)
        Z = encoder.transform(new)
        assert not Z[0, :2].any()
        assert np.isnan(Z[1, :2]).all()
        assert encoder.describe_unseen(new) == (
            "column 'x0': 1 rows have values that did not occur when the model was fitted: 'z'",
        )


def test_columns_without_values_are_left_out_whatever_becomes_of_missing_values() -> None:
    columns = (np.full(3, np.nan), text_column([None, None, None]), text_column(["a", None, "a"]), np.arange(3.0))
    table = Table(("empty", "blank", "same", "n"), columns)
    left_out = "left out, since all values are missing: 'empty', 'blank'"
    for missing, kept in zip(MISSING[1:], (["n"], ["same=a", "same=(missing)", "n"]), strict=True):
        encoder = TableEncoder(missing=missing).fit(table)
        assert [feature.name for feature in encoder.features] == kept
        assert left_out in encoder.notes
        with pytest.raises(TableError, match="Every value of every column is missing"):
            TableEncoder(missing=missing).fit(table.select([0, 1]))


def test_columns_can_be_left_out() -> None:
    encoder = TableEncoder().fit(MIXED, leave_out=dict.fromkeys(("colour", "day"), "as asked for"))
    assert [feature.name for feature in encoder.features] == ["n", "flag"]
    assert encoder.notes == ("left out: 'colour' (as asked for), 'day' (as asked for)",)
    expected = TableEncoder().fit(MIXED.select([0, 2])).transform(MIXED.select([0, 2]))
    np.testing.assert_array_equal(encoder.transform(MIXED), expected)
    with pytest.raises(TableError, match="All columns"):
        TableEncoder().fit(MIXED, leave_out=dict.fromkeys(MIXED.names, "as asked for"))


def test_constant_columns_are_left_out_unless_all_are_constant() -> None:
    X = np.array([[0.1, 1.0], [0.1, 2.0]])
    encoder = TableEncoder().fit(as_table(X))
    assert [feature.name for feature in encoder.features] == ["x1"]
    for X in (np.full((5, 3), 0.1), np.ones((1, 3))):
        assert not encode(X).any()
        assert "all columns are constant" in TableEncoder().fit(as_table(X)).notes[0]
    assert not encode([["a"], ["a"]]).any()


def test_a_category_has_the_variance_of_one_number_column() -> None:
    rng = np.random.default_rng(0)
    for n_levels in (2, 5, 40):
        column = text_column([f"level {i}" for i in rng.integers(n_levels, size=500)])
        Z = encode(column[:, None])
        assert Z.shape[1] == n_levels
        assert Z.astype(float).var(axis=0).sum() == pytest.approx(1.0, rel=1e-5)
        np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-6)


MIXED = Table(
    names=("n", "colour", "flag", "day"),
    columns=(
        np.array([1.0, 2.0, 4.0, 8.0]),
        text_column(["red", "blue", None, "red"]),
        np.array([True, False, True, True]),
        np.array(["2020-01-01", "2020-01-02", "NaT", "2020-01-05"], dtype="datetime64[us]"),
    ),
)


def test_features_of_a_mixed_table_and_their_inverse() -> None:
    encoder = TableEncoder().fit(MIXED)
    levels = ["colour=blue", "colour=red", "colour=(missing)"]
    assert [feature.name for feature in encoder.features] == ["n", *levels, "flag", "day"]
    assert [feature.kind for feature in encoder.features] == ["number", *["category"] * 3, "boolean", "date"]
    back = encoder.inverse_transform(encoder.transform(MIXED))
    np.testing.assert_allclose(back[:, 0], [1.0, 2.0, 4.0, 8.0], rtol=1e-6)
    np.testing.assert_allclose(back[:, 1:4], [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(back[:, 4], [1, 0, 1, 1], atol=1e-6)
    seconds = np.datetime64("2020-01-05").astype("datetime64[s]").astype(int)
    assert back[3, 5] == pytest.approx(seconds, abs=1.0)
    assert any("treated as dates: 'day'" in note for note in encoder.notes)
    assert any("category of their own" in note for note in encoder.notes)


def test_indicators_and_booleans_are_not_scaled() -> None:
    assert encode([["a"], ["b"], ["a"]], "none").tolist() == [[1, 0], [0, 1], [1, 0]]
    flags = np.zeros((1000, 1), dtype=bool)
    flags[0] = True
    np.testing.assert_allclose(encode(flags), encode(flags, "standard"))


def test_unseen_levels_become_zeros_and_are_described() -> None:
    encoder = TableEncoder().fit(as_table([["a", 1.0], ["b", 2.0], ["a", 4.0]]))
    new = as_table([["z", 1.0], [None, 1.0], ["a", 1.0]])
    Z = encoder.transform(new)
    assert not Z[:2, :2].any()
    assert Z[2, :2].all()
    (line,) = encoder.describe_unseen(new)
    assert "2 rows" in line
    assert "'(missing)', 'z'" in line


def test_levels_are_matched_as_text_and_limited() -> None:
    encoder = TableEncoder().fit(Table(("code",), (text_column(["1", "2", "x"]),)))
    part = encoder.transform(Table(("code",), (np.array([2.0, 1.0]),)))
    np.testing.assert_array_equal(part, encoder.transform(Table(("code",), (text_column(["2", "1"]),))))


def test_the_rarest_texts_of_a_category_of_many_are_one_level() -> None:
    texts = [f"town {i}" for i in range(49) for _ in range(3)] + [f"village {i}" for i in range(20)]
    table = Table(("place", "n"), (text_column(texts), np.arange(0.0, 2 * len(texts), 2.0)))
    encoder = TableEncoder().fit(table)
    assert len(encoder.categories[0].levels) == 50
    assert "columns of over 50 different texts, of which the rarest count as one, '(other)': 'place'" in encoder.notes
    Z = encoder.transform(Table(("place", "n"), (text_column(["village 3", "unheard of", "town 0"]), np.zeros(3))))
    np.testing.assert_array_equal(Z[0], Z[1])
    assert (Z[0] != Z[2]).any()


@pytest.mark.parametrize("name", ["id", "customer_id", "CustomerID", "Unnamed: 0", "column_1", "Zeile"])
def test_row_numbers_are_left_out(name: str) -> None:
    table = Table((name, "width"), (np.arange(20.0), np.arange(20.0) ** 2))
    encoder = TableEncoder().fit(table)
    assert encoder.notes == (f"left out: {name!r} (row numbers)",)
    assert [feature.name for feature in encoder.features] == ["width"]


def test_parts_of_dates_are_points_on_a_circle() -> None:
    days = np.datetime64("2024-01-01", "us") + np.arange(60) * np.timedelta64(1, "D")
    table = Table(("day", "n"), (days, np.arange(60.0) ** 2))
    encoder = TableEncoder("none").fit(table)
    assert [feature.name for feature in encoder.features] == ["day", "day: weekday (cos)", "day: weekday (sin)", "n"]
    assert "column 'day': rows are also compared by weekday" in encoder.notes
    new = Table(("day", "n"), (np.array(["2030-01-07", "NaT"], dtype="datetime64[us]"), np.zeros(2)))  # a Monday
    np.testing.assert_allclose(encoder.transform(new)[:, 1:3], [[1.0, 0.0], [0.0, 0.0]], atol=1e-6)
    scaled = TableEncoder("standard", missing="keep").fit(table)
    Z = scaled.transform(table)[:, 1:3].astype(float)
    assert Z.var(axis=0).sum() == pytest.approx(1.0, rel=1e-5)
    assert np.isnan(scaled.transform(new)[1, 1:3]).all()
    np.testing.assert_allclose(
        scaled.inverse_transform(scaled.transform(table))[:7, 1], np.cos(2 * np.pi * np.arange(7) / 7), atol=1e-5
    )
    assert TableEncoder.from_card(scaled.to_card()) == scaled


def test_times_without_a_day_are_hours_only() -> None:
    times = np.datetime64("1970-01-01T00:30", "us") + np.arange(24).repeat(2) * np.timedelta64(1, "h")
    encoder = TableEncoder().fit(Table(("at", "n"), (times, np.arange(48.0) ** 2)))
    assert [feature.name for feature in encoder.features] == ["at: hour (cos)", "at: hour (sin)", "n"]


def test_columns_are_matched_by_name_if_both_tables_have_names() -> None:
    encoder = TableEncoder("none").fit(MIXED)
    reordered = MIXED.select([3, 2, 1, 0])
    np.testing.assert_array_equal(encoder.transform(reordered), encoder.transform(MIXED))
    with pytest.raises(TableError, match="missing: 'n'"):
        encoder.transform(MIXED.select([1, 2, 3]))
    other = Table(("n", "colour", "flag", "date"), MIXED.columns)
    with pytest.raises(TableError, match="missing: 'day'; unexpected: 'date'"):
        encoder.transform(other)


def test_the_number_and_kinds_of_columns_must_match() -> None:
    encoder = TableEncoder().fit(as_table([[1.0], [2.0]]))
    with pytest.raises(TableError, match=r"X has 4 features, but \w+ is expecting 1 features as input"):
        encoder.transform(as_table(np.ones((3, 4))))
    with pytest.raises(InputError, match="1 values"):
        encoder.inverse_transform(np.ones((3, 2)))
    with pytest.raises(TableError, match=r"'number'.*'category'"):
        encoder.transform(as_table([["a"], ["b"]]))
    for missing in (None, np.datetime64("NaT")):  # columns without values match every kind
        assert np.isfinite(encoder.transform(as_table(np.array([[missing]])))).all()


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_card_gives_an_equal_encoder(scaling: Scaling, missing: Missing) -> None:
    encoder = TableEncoder(scaling, missing=missing).fit(MIXED)
    card = encoder.to_card()
    assert json.loads(json.dumps(card)) == card
    again = TableEncoder.from_card(json.loads(json.dumps(card)))
    assert (again, again.features) == (encoder, encoder.features)
    np.testing.assert_array_equal(again.transform(MIXED), encoder.transform(MIXED))
    with pytest.raises(InputError, match="keys"):
        TableEncoder.from_card({"scaling": "robust"})


def test_cards_of_earlier_versions_fill_in_missing_values() -> None:
    encoder = TableEncoder().fit(MIXED)
    card = encoder.to_card()
    del card["missing"], card["indicators"]
    assert TableEncoder.from_card(card) == encoder


def test_unfitted_encoders_and_unknown_scalings_raise_an_error() -> None:
    with pytest.raises(InputError, match="fit"):
        TableEncoder().transform(MIXED)
    unknown: Any = "minmax"
    with pytest.raises(InputError, match="minmax"):
        TableEncoder(unknown)
    with pytest.raises(InputError, match="minmax"):
        TableEncoder(missing=unknown)


def test_a_table_of_prose_only_is_an_error_that_names_the_option_for_texts() -> None:
    prose = [f"the parcel number {i} came late" for i in range(60)]
    with pytest.raises(TableError, match=r"text='my note' \(--text 'my note'\)"):
        TableEncoder().fit(Table(("my note", "id"), (text_column(prose), np.arange(60.0))))
    with pytest.raises(TableError, match=r"or say by text= \(--text\) which column"):
        TableEncoder().fit(Table(("who",), (text_column([f"person {i}" for i in range(60)]),)))
