"""Columns of texts become numbers, dates, booleans or categories, decided for the whole column and told."""

import datetime as dt
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.tables.values import (
    MISSING_MARKERS,
    TypedColumn,
    infer_column,
    infer_levels,
    is_value,
    keep_text,
    read_epochs,
)

NAN = math.nan


def moments(column: TypedColumn) -> list[str]:
    assert column.values.dtype == np.dtype("datetime64[us]")
    return [str(value).removesuffix(".000000").removesuffix("T00:00:00") for value in column.values]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1234.5", "2", ".5", "7."], [1234.5, 2, 0.5, 7]),
        (["1e5", "-2E-3", "+3", "inf", "-Infinity"], [1e5, -2e-3, 3, math.inf, -math.inf]),
        (["$1,234.50", "$3", "-$2", "$-2.5"], [1234.5, 3, -2, -2.5]),
        (["US$ 12", "US$ 1,000,000"], [12, 1e6]),
        (["USD 12", "13 USD"], [12, 13]),
        (["\u20ac 12", "\u20ac12.50", "0"], [12, 12.5, 0]),
        (["1.234,50 \u20ac", "2,5 \u20ac", "1.234.567 \u20ac"], [1234.5, 2.5, 1_234_567]),
        (["1,234", "1,234,567", "5"], [1234, 1_234_567, 5]),
        (["1,23,45,678.9", "12,345"], [12_345_678.9, 12_345]),
        (["12.3%", "4 %", "-5%"], [12.3, 4, -5]),
        (["1 234", "1\u00a0234", "1\u202f234,5", "1\u2009234\u2009567"], [1234, 1234, 1234.5, 1_234_567]),
        (["1'234", "1\u2019234.5"], [1234, 1234.5]),
        (["(12)", "($1,234.50)", "-12", "\u221212", "\u201312"], [-12, -1234.5, -12, -12, -12]),
        (["12-", "1.234,50-", "3"], [-12, -1234.5, 3]),
        (["12 kg", "13.5 kg"], [12, 13.5]),
        (["12km/h", "9km/h"], [12, 9]),
        (["21.5\u00b0C", "-3\u00b0C"], [21.5, -3]),
        (["30 m\u00b2", "41 m\u00b2"], [30, 41]),
        (["2019", "2020"], [2019, 2020]),
        (["0", "00", "7", "9", *"123456789123"], [0, 0, 7, 9, *map(int, "123456789123")]),
        ([" 5 ", "5", None, ""], [5, 5, NAN, NAN]),
        (["NA", "", None], [NAN, NAN, NAN]),
    ],
)
def test_numbers_as_people_write_them(texts: list[str | None], expected: list[float]) -> None:
    values = infer_column(texts).values
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    "texts",
    [
        ["01234", "90210"],
        ["007", "12", "15"],
        ["+493012345678", "+4915112345678"],
        ["0301234567", "01761234567"],
        ["601 123 456", "602 987 654"],
        ["555-1234", "555-9999"],
        ["1.2.3", "1.10.0"],
        ["1.2.10", "1.3.12"],
        ["192.168.1.1", "10.0.0.1"],
        ["192.168.100.100", "192.168.100.101"],
        ["A12", "B7"],
        ["1_000", "2_000"],
        ["0x1F", "0x20"],
        ["12 kg", "13"],
        ["12 kg", "13 g"],
        ["$5", "\u20ac6"],
        ["3+", "1", "2"],
        ["1-2", "3-4"],
        ["1/2", "3/4"],
        ["yes", "no"],
        ["12,", "13,"],
        ["(12", "13)"],
        ["--5", "-"],
        ["2020-13-45", "2020-01-01"],
        ["2023-02-29", "2024-02-29"],
        ["25:00", "26:10"],
        ["1,2,3", "2,3"],
        ["unknown", "unknown", "5"],
    ],
)
def test_what_only_resembles_numbers_or_dates_stays_text(texts: list[str]) -> None:
    assert infer_column(texts).values.tolist() == [None if text in MISSING_MARKERS else text for text in texts]


@pytest.mark.parametrize(
    ("texts", "decimal_comma", "expected", "note"),
    [
        (["1,234", "5,678"], None, [1234, 5678], "the thousands separator ',' was left out"),
        (["1,234", "5,678"], True, [1.234, 5.678], "the comma was read as the decimal point"),
        (["1,234", "5.5"], True, [1234, 5.5], "the thousands separator ',' was left out"),
        (["1,234", "5,5"], None, [1.234, 5.5], "the comma was read as the decimal point"),
        (["0,123", "1,234"], None, [0.123, 1.234], "the comma was read as the decimal point"),
        (["1.234", "0.5"], True, [1.234, 0.5], ""),
        (["1.234", "5.678"], True, [1.234, 5.678], ""),
        (["1.234", "980", "12.000"], True, [1234, 980, 12_000], "the thousands separator '.' was left out"),
        (["1.234", "980", "12.000"], None, [1.234, 980, 12], ""),
        (["1.234", "980", "1250"], True, [1.234, 980, 1250], ""),
        (
            ["1.234", "2,5"],
            None,
            [1234, 2.5],
            "the comma was read as the decimal point; the thousands separator '.' was",
        ),
        (["12", "13"], True, [12, 13], ""),
    ],
)
def test_the_whole_column_decides_on_the_decimal_sign(
    texts: list[str], decimal_comma: bool | None, expected: list[float], note: str
) -> None:
    column = infer_column(texts, decimal_comma=decimal_comma)
    assert column.values.tolist() == expected
    assert "; ".join(column.notes).startswith(note)
    assert bool(column.notes) == bool(note)


def test_the_other_decimal_sign_is_never_mixed_in() -> None:
    column = infer_column([*["1.5"] * 30, "2,5"])
    assert np.isnan(column.values[-1])
    assert column.notes == ("1 of 31 values is no number and counts as missing ('2,5')",)
    assert infer_column(["1.5", "2,5"]).values.tolist() == ["1.5", "2,5"]


@pytest.mark.parametrize(
    "marker",
    ["n/a", "N/A", "#N/A", "NULL", "None", "unknown", "Unknown", "-", "--", "\u2014", ".", "?", "missing", "#DIV/0!"],
)
def test_placeholders_among_numbers_and_dates_are_gaps_and_told(marker: str) -> None:
    column = infer_column([*map(str, range(1, 111)), *[marker] * 10])
    assert np.isnan(column.values[110:]).all()
    assert column.values[:110].tolist() == list(range(1, 111))
    told = f"10 of 120 values are missing ({marker!r})"
    assert column.notes == (() if marker in {"NULL", "None"} else (told,))
    column = infer_column(["2024-05-03", "2024-05-04", marker])
    assert moments(column) == ["2024-05-03", "2024-05-04", "NaT"]


def test_a_few_typos_among_many_numbers_are_gaps() -> None:
    numbers = [str(i) for i in range(38)]
    column = infer_column([*numbers, "abc", "12 or 13"])
    assert column.notes == ("2 of 40 values are no numbers and count as missing ('12 or 13' 1, 'abc' 1)",)
    assert infer_column([*numbers, "a", "b", "c"]).values.dtype == object
    assert infer_column([*numbers[:18], "abc"]).values.dtype == object
    many = infer_column([*map(str, range(400)), *"abcdef"])
    assert many.notes[0].endswith("('a' 1, 'b' 1, 'c' 1, 'd' 1 and 2 more 2)")


@pytest.mark.parametrize(
    ("texts", "expected", "note"),
    [
        (
            ["<0.5", "1.2", "3", "8", ">= 90"],
            [0.5, 1.2, 3, 8, 90],
            "values with < or > count as the number that follows",
        ),
        (["<3 ng/L", "12 ng/L", "7 ng/L"], [3, 12, 7], "'ng/L' was left out"),
        (["1.5k", "980", "2M", "-3K"], [1500, 980, 2e6, -3000], "'K' was read as thousands"),
        (["\u20ac 301k", "\u20ac 1.2M"], [301_000, 1_200_000], "'\u20ac' was left out"),
        (["1 room", "3 rooms", "2 rooms"], [1, 3, 2], "'room' and 'rooms' were left out"),
        (["1 Tag", "14 Tage"], [1, 14], "'Tag' and 'Tage' were left out"),
        (["4 (4.4%)", "1,022 (22,7 %)"], [4, 1022], "the thousands separator ',' and the percentages in parentheses"),
        (["12.50-", "3.00"], [-12.5, 3], "numbers with a minus after them were read as negative"),
        (["1,200.00 CR", "15.50 DR", "3.00DR"], [1200, -15.5, -3], "debits (DR) were read as negative"),
    ],
)
def test_numbers_with_bounds_multiples_units_and_percentages(
    texts: list[str], expected: list[float], note: str
) -> None:
    column = infer_column(texts)
    assert column.values.tolist() == expected
    assert note in "; ".join(column.notes)


@pytest.mark.parametrize("texts", [["<18", ">=18"], ["<18", "18-65", ">65"], ["5 m", "5 ms"], ["12A", "14B"]])
def test_texts_that_resemble_such_numbers_stay_categories(texts: list[str]) -> None:
    assert infer_column(texts).values.tolist() == texts


def test_what_was_left_out_of_numbers_is_told() -> None:
    assert infer_column(["$1,234.50", "(12)"]).notes == (
        "'$' and the thousands separator ',' were left out",
        "numbers in parentheses were read as negative",
    )
    assert infer_column(["01234", "90210"]).notes == ("kept as text, since its numbers have leading zeros",)
    assert infer_column(["12 kg", "13 g"]).notes == ("kept as text, since its numbers have different units: g, kg",)
    assert infer_column(["A12", "A13", "01234"]).notes == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-03", "2024-05-03"),
        ("2024-05", "2024-05-01"),
        ("2024/5/3", "2024-05-03"),
        ("2024.05.03", "2024-05-03"),
        ("2024-05-03T14:30", "2024-05-03T14:30:00"),
        ("2024-05-03 14:30:05.25", "2024-05-03T14:30:05.250000"),
        ("2024-05-03 14:30:05,123456789", "2024-05-03T14:30:05.123456"),
        ("2024-05-03T14:30:05Z", "2024-05-03T14:30:05"),
        ("2024-05-03T14:30:05+02:00", "2024-05-03T12:30:05"),
        ("2024-05-03 00:30 -0130", "2024-05-03T02:00:00"),
        ("2024-05-03T01:00+02", "2024-05-02T23:00:00"),
        ("2024/05/03 10:38:00 AM GMT+2", "2024-05-03T08:38:00"),
        ("31.12.2024", "2024-12-31"),
        ("31. 12. 2024", "2024-12-31"),
        ("31.12.24", "2024-12-31"),
        ("31.12.71 8:05", "1971-12-31T08:05:00"),
        ("31/12/2024 14:30:05", "2024-12-31T14:30:05"),
        ("12/31/2024 2:30 PM", "2024-12-31T14:30:00"),
        ("12/31/2024, 12:05:00 a.m.", "2024-12-31T00:05:00"),
        ("31-12-2024", "2024-12-31"),
        ("3 May 2024", "2024-05-03"),
        ("May 3, 2024", "2024-05-03"),
        ("May 3rd, 2024 at 2:30 pm", "2024-05-03T14:30:00"),
        ("3-May-24", "2024-05-03"),
        ("3. M\u00e4rz 2024", "2024-03-03"),
        ("SEPT 2024", "2024-09-01"),
        ("Fri, 03 May 2024 14:30:00 GMT", "2024-05-03T14:30:00"),
        ("03/May/2024:14:30:05 +0200", "2024-05-03T12:30:05"),
    ],
)
def test_dates_as_people_write_them(text: str, expected: str) -> None:
    assert moments(infer_column([text, None])) == [expected, "NaT"]


@pytest.mark.parametrize(
    ("texts", "expected", "note"),
    [
        (["31/12/2024", "01/02/2024"], "2024-02-01", "dates were read with the day before the month"),
        (["12/31/2024", "01/02/2024"], "2024-01-02", "dates were read with the month before the day"),
        (["03/04/2024", "01/02/2024"], "2024-02-01", "the day before the month, though no value tells the order"),
        (["03/04/2024 2:30 pm", "01/02/2024"], "2024-01-02", "the month before the day, though no value"),
        (["03.04.2024", "01.02.2024"], "2024-02-01", "the day before the month, though no value"),
    ],
)
def test_the_whole_column_decides_on_the_order_of_day_and_month(texts: list[str], expected: str, note: str) -> None:
    column = infer_column(texts)
    assert moments(column)[1] == expected
    assert note in column.notes[0]


def test_times_without_dates_are_of_the_first_day() -> None:
    column = infer_column(["14:30", "2:30 pm", "00:00:05", "9:05", None])
    assert column.values.astype("datetime64[s]").astype(np.int64)[:4].tolist() == [52_200, 52_200, 5, 32_700]
    assert column.notes == ("read as times of the day",)


@pytest.mark.parametrize(
    ("name", "texts", "expected"),
    [
        ("created_at", ["1714746605", "1714746606"], "2024-05-03T14:30:05"),
        ("eventTimestamp", ["1714746605123", "NA"], "2024-05-03T14:30:05.123000"),
        ("Buchungsdatum", ["20240503", "20231231"], "2024-05-03"),
    ],
)
def test_large_integers_are_moments_if_the_name_says_so(name: str, texts: list[str], expected: str) -> None:
    column = infer_column(texts, name=name)
    assert moments(column)[0] == expected
    assert len(column.notes) == 1
    assert infer_column(texts, name="amount").values.dtype == np.float64


@pytest.mark.parametrize("values", [[5.0, 6.0], [1714746605.0, 5.0], [20241305.0], [NAN], [math.inf]])
def test_other_numbers_of_a_column_named_time_stay_numbers(values: list[float]) -> None:
    assert read_epochs(np.array(values), "time") is None


def test_booleans_only_without_gaps() -> None:
    assert infer_column(["true", "FALSE", "True"]).values.tolist() == [True, False, True]
    assert infer_column(["true", None, "false"]).values.tolist() == ["true", None, "false"]


def test_missing_markers_and_spaces_in_text_columns() -> None:
    column = infer_column([" red", "red ", "N/A", "?", None, "unknown"])
    assert column.values.tolist() == ["red", "red", None, None, None, "unknown"]
    assert keep_text([" 007 ", "NA", "8"], np.array([0, 1, 2, -1], dtype=np.int32)).values.tolist() == [
        "007",
        None,
        "8",
        None,
    ]


def test_a_given_kind_makes_all_other_texts_gaps() -> None:
    column = infer_column(["12", "abc", "unknown"], kind="number")
    np.testing.assert_array_equal(column.values, [12, NAN, NAN])
    assert column.notes == (
        "1 of 3 values is missing ('unknown')",
        "1 of 3 values is no number and counts as missing ('abc')",
    )
    assert infer_column(["<0.5", "2 days"], kind="number").values[0] == 0.5
    assert infer_column(["007", "8"], kind="number").values.tolist() == [7, 8]
    assert moments(infer_column(["soon", "2024-05-03"], kind="date")) == ["NaT", "2024-05-03"]
    assert np.isnat(infer_column(["soon"], kind="date").values).all()
    assert np.isnan(infer_column(["soon"], kind="number").values).all()


def test_texts_with_any_character_are_possible() -> None:
    texts = ["a\0b", "5\n6", "\0", "\ud800", "\u0661", "x" * 10_000]
    assert infer_column(texts).values.tolist() == texts


def test_many_distinct_texts_are_recognised_by_a_sample() -> None:
    texts = [f"comment {i}" for i in range(10_000)]
    assert infer_column(texts).values.tolist() == texts
    numbers = [f"${i:,}" for i in range(250_000)]
    assert infer_column([*numbers, "n/a"]).values[:-1].tolist() == list(range(250_000))


def test_levels_that_no_cell_has_do_not_matter() -> None:
    assert infer_levels(["abc", "5"], np.array([1, 1, -1], dtype=np.int32)).values[0] == 5.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *[(text, True) for text in ("5", "1,5", "$3", "31.12.2024", "3 May 2024", "-inf")],
        *[(text, False) for text in ("height", "14:30", "May 2024", "12 kg", "25%", "", "Q1", "2024-05")],
    ],
)
def test_values_that_are_no_names(text: str, expected: bool) -> None:
    assert is_value(text) == expected


STYLES: dict[str, tuple[str, str]] = {
    "point": (",", "."),
    "comma": (".", ","),
    "space": ("\u00a0", ","),
    "swiss": ("'", "."),
}


def write_number(value: float, style: str) -> str:
    thousands, decimal = STYLES[style]
    return f"{value:,.2f}".translate({ord(","): thousands, ord("."): decimal})


@given(
    st.lists(st.integers(-(10**11), 10**11), min_size=1, max_size=30),
    st.sampled_from(sorted(STYLES)),
    st.sampled_from(["{}", "\u20ac {}", "{} \u20ac", "{}%", "{} kg", " {} "]),
)
def test_numbers_of_every_style_are_read_as_they_were(cents: list[int], style: str, form: str) -> None:
    values = [cent / 100 for cent in cents]
    column = infer_column([form.format(write_number(value, style)) for value in values])
    assert column.values.tolist() == [float(f"{value:.2f}") for value in values]


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_numbers_as_programs_write_them_are_read_exactly(values: list[float]) -> None:
    column = infer_column([repr(value) for value in values])
    assert column.values.tolist() == values
    assert column.notes == ()


FORMS = ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%d %B %Y %H:%M:%S", "%b %d, %Y, %H:%M:%S"]


@given(st.lists(st.datetimes(dt.datetime.fromisoformat("1000-01-01")), min_size=1, max_size=20), st.sampled_from(FORMS))
def test_dates_of_every_form_are_read_as_they_were(values: list[dt.datetime], form: str) -> None:
    proof = dt.datetime.fromisoformat("2024-12-31T14:30")  # tells the order of day and month
    written = [value.replace(microsecond=0) for value in [*values, proof]]
    column = infer_column([value.strftime(form) for value in written])
    assert column.values.tolist() == written


@given(st.lists(st.none() | st.text(max_size=6) | st.text("0123456789.,-/: $%()", max_size=8), min_size=1))
def test_any_texts_give_a_column_of_their_length(texts: list[Any]) -> None:
    column = infer_column(texts, name="time")
    assert len(column.values) == len(texts)
    if column.values.dtype == object:
        assert all(
            value is None or value == str(text).strip() for value, text in zip(column.values, texts, strict=True)
        )
