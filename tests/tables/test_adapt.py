"""Tables that differ from the one that a model was fitted on."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from coterie.errors import TableError
from coterie.tables.adapt import adapt_table
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import Table, as_table, text_column

N = 40
DAYS = np.datetime64("2024-01-01", "us") + np.arange(N) * np.timedelta64(30, "h")
FITTED = Table(
    ("id", "age", "plan", "day", "flag"),
    (
        np.arange(N),
        np.linspace(20.0, 60.0, N) ** 1.01,
        text_column(["basic", "gold"] * (N // 2)),
        DAYS,
        np.arange(N) % 3 == 0,
    ),
)
ENCODER = TableEncoder("standard", missing="keep").fit(FITTED)


def test_the_fitted_table_is_unchanged_and_columns_are_matched_by_name() -> None:
    for table in (FITTED, FITTED.select([4, 3, 2, 1, 0])):
        adapted = adapt_table(ENCODER, table)
        assert (adapted.notes, adapted.missing) == ((), 0.0)
        np.testing.assert_array_equal(ENCODER.transform(adapted.table), ENCODER.transform(FITTED))


def test_columns_that_the_model_does_not_use_may_be_missing() -> None:
    adapted = adapt_table(ENCODER, FITTED.select([1, 2, 3, 4]))
    assert adapted.notes == ()
    np.testing.assert_array_equal(ENCODER.transform(adapted.table), ENCODER.transform(FITTED))


def test_missing_columns_become_missing_values_and_others_are_ignored() -> None:
    table = Table(("age", "shoe"), (FITTED.column(1), np.zeros(N)))
    adapted = adapt_table(ENCODER, table)
    assert adapted.missing == 0.75
    assert adapted.notes[0] == "ignored because the model does not use them: 'shoe'"
    assert adapted.changed == ("missing, so that clusters are less certain: 'plan', 'day', 'flag'",)
    encoded = ENCODER.transform(adapted.table)
    kept = [feature.column == "age" for feature in ENCODER.features]
    assert np.isfinite(encoded[:, kept]).all()
    assert np.isnan(encoded[:, ~np.array(kept)]).all()


def test_a_table_without_any_of_the_columns_is_an_error() -> None:
    with pytest.raises(TableError, match="none of the columns that the model was fitted on"):
        adapt_table(ENCODER, Table(("shoe",), (np.zeros(3),)))


def test_numbers_and_dates_beside_typos_are_read_as_people_write_them() -> None:
    written = text_column(["£1,250", "tbd", "(3)", "12/31/2024"])
    days = text_column(["31.12.2024", "tomorrow", None, "1.2.2025"])
    adapted = adapt_table(ENCODER, Table(("age", "day"), (written, days)))
    np.testing.assert_array_equal(adapted.table.column(1), [1250, np.nan, -3, np.nan])
    assert adapted.table.column(3).astype("datetime64[D]").astype(str).tolist() == [
        "2024-12-31",
        "NaT",
        "NaT",
        "2025-02-01",
    ]
    assert "column 'day': 1 of 4 values is no date and counts as missing: 'tomorrow'" in adapted.notes


def test_cells_that_cannot_be_read_become_missing_and_are_counted() -> None:
    columns = list(FITTED.columns)
    columns[1] = text_column(["young", *map(str, FITTED.column(1).tolist()[1:-1]), None])
    columns[3] = text_column(["soon", *map(str, DAYS[1:])])
    adapted = adapt_table(ENCODER, replace(FITTED, columns=tuple(columns)))
    assert adapted.changed == (
        "column 'age': 1 of 40 values is no number and counts as missing: 'young'",
        "column 'day': 1 of 40 values is no date and counts as missing: 'soon'",
    )
    encoded, expected = ENCODER.transform(adapted.table), ENCODER.transform(FITTED)
    np.testing.assert_array_equal(encoded[1:-1], expected[1:-1])
    assert np.isnan(encoded[0]).any()


def test_numbers_far_outside_the_range_of_the_fit_are_told() -> None:
    columns = list(FITTED.columns)
    columns[1] = FITTED.column(1) + np.where(np.arange(N) < 3, 200.0, 0.0)
    (note,) = adapt_table(ENCODER, replace(FITTED, columns=tuple(columns))).notes
    assert note.startswith("column 'age': 3 of 40 values are far outside the range of the fit, 20.6")


def test_tables_without_names_need_the_same_number_of_columns() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    encoder = TableEncoder("standard").fit(as_table(X))
    np.testing.assert_array_equal(
        encoder.transform(adapt_table(encoder, as_table(X)).table), encoder.transform(as_table(X))
    )
    with pytest.raises(TableError, match="has 2 columns, but the model was fitted on 3"):
        adapt_table(encoder, as_table(X[:, :2]))


@pytest.mark.parametrize("first", ["month", "day"])
def test_ambiguous_dates_are_read_in_the_order_of_the_fit(first: str) -> None:
    pairs = [(month, day) for month in range(1, 13) for day in (3, 9, 25)]
    if first == "day":
        pairs = [(day, month) for month, day in pairs]
    frame = pd.DataFrame({"day": [f"{a:02d}/{b:02d}/2024 10:00" for a, b in pairs], "n": np.arange(36.0) ** 2})
    fitted = as_table(frame)
    assert fitted.date_orders == {"day": first}
    encoder = TableEncoder("standard").fit(fitted)
    assert TableEncoder.from_card(encoder.to_card()) == encoder
    new = as_table(frame[frame["day"].str.contains("03/|/03")].iloc[:4])
    adapted = adapt_table(encoder, as_table(pd.DataFrame({"day": ["04/05/2024 10:00", None], "n": [1.0, 2.0]})))
    expected = "2024-04-05T10:00" if first == "month" else "2024-05-04T10:00"
    assert adapted.table.column(0).tolist() == [np.datetime64(expected, "us").item(), None]
    told = "dates were read in the order of day and month of the fit: 'day'"
    assert (told in adapted.notes) == (first == "month")
    assert adapt_table(encoder, new).changed == ()
