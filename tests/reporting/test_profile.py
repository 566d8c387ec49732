"""Statistics that explain clusters, compared with cases worked out by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from coterie.reporting.data import CYCLE, ClusteringData, format_cell, format_mean, sample_rows
from coterie.reporting.formatting import enumeration, format_number, format_percent, name_parts, short_names, shorten
from coterie.reporting.profile import (
    ClusterProfile,
    Trait,
    cluster_names,
    describe_clusters,
    describe_cycle,
    feature_statistics,
    rank_features,
)
from coterie.reporting.sections import heat_map
from coterie.tables.encoder import Feature
from coterie.tables.table import Table, as_table
from tests.reporting.pages import GivenClusterer, data_of


def data_with(table: Table, labels: list[int], memberships: list[list[float]] | None = None) -> ClusteringData:
    return data_of(GivenClusterer().fit_given(table, labels, memberships), table)


def profiles_of(data: ClusteringData) -> tuple[ClusterProfile, ...]:
    return describe_clusters(data, feature_statistics(data))


def test_effect_is_the_difference_of_means_over_the_pooled_deviation() -> None:
    x = [1.0, 2.0, 3.0, 7.0, 9.0]
    data = data_with(as_table(np.column_stack([x, [0, 1, 0, 1, 0]])), [0, 0, 0, 1, 1])
    pooled = np.sqrt((2.0 + 2.0) / 3)
    statistics = feature_statistics(data)
    assert statistics.effects[:, 0] == pytest.approx([-6 / pooled, 6 / pooled])
    assert statistics.means[:, 0] == pytest.approx([2.0, 8.0])
    assert statistics.overall[0] == pytest.approx(4.4)
    assert statistics.z_scores[:, 0] == pytest.approx([(2 - 4.4) / np.std(x), (8 - 4.4) / np.std(x)])


def test_traits_compare_with_the_rows_elsewhere() -> None:
    x = np.array([10.0, 12.0, 14.0, 0.0, 2.0, 4.0])
    since = np.datetime64("2020-01-01", "us") + (100 * x).astype("timedelta64[D]")
    first, _ = profiles_of(data_with(Table(("x", "since"), (x, since)), [0, 0, 0, 1, 1, 1]))
    traits = {trait.label: trait for trait in first.traits}
    assert (traits["x"].inside, traits["x"].outside, traits["x"].bar) == ("12", "2", 1.0)
    assert traits["x"].difference == "5.0 standard deviations above the others"
    assert traits["since"].outside == "2020-07-19"
    assert traits["since"].difference == "5.0 standard deviations later than the others"


def test_clusters_are_named_by_what_texts_are_about_and_not_by_what_they_are_not_about() -> None:
    columns = {
        "note: late, parcel": [9.0, 8, 9, 0, 1, 0],
        "note: refund": [0.0, 1, 0, 5, 6, 5],
        "x": [0.0, 1, 0, 3, 4, 9],
    }
    table = Table(tuple(columns), tuple(map(np.array, columns.values())))
    components = {name: "note" for name in table.names if name != "x"}
    data = replace(data_with(table, [0, 0, 0, 1, 1, 1]), text_components=components)
    assert [profile.name for profile in profiles_of(data)] == [
        "note about late, parcel, low x",
        "note about refund, high x",
    ]
    only = Table(table.names[:1], table.columns[:1])
    data = replace(data_with(only, [0, 0, 0, 1, 1, 1]), text_components=components)
    assert [profile.name for profile in profiles_of(data)] == ["note about late, parcel", "note not about late, parcel"]


def test_an_answer_is_set_apart_from_its_question() -> None:
    answers = np.array(["agree"] * 3 + ["disagree"] * 3, dtype=object)
    names = {
        column: [profile.name for profile in profiles_of(data_with(Table((column,), (answers,)), [0, 0, 0, 1, 1, 1]))]
        for column in ("easy", "Is it easy?", "It is easy")
    }
    assert names == {
        "easy": ["easy agree", "easy disagree"],
        "Is it easy?": ["Is it easy? agree", "Is it easy? disagree"],
        "It is easy": ["It is easy: agree", "It is easy: disagree"],
    }


def test_sums_of_zeros_are_zero() -> None:
    feature = Feature("x", "x", "number")
    assert [format_mean(feature, mean, 2.0) for mean in (1.7e-14, 1e-3, 0.0)] == ["0", "0.001", "0"]


def cyclic(parts: Mapping[str, tuple[float, Sequence[float]]]) -> ClusteringData:
    """Return two clusters of six rows and the parts of a date by name: the length of the cycle, and a value per row."""
    signup = np.datetime64("2020-01-01", "us") + np.arange(12).astype("timedelta64[D]")
    data = data_with(Table(("signup",), (signup,)), [0] * 6 + [1] * 6)
    features, columns = list(data.features), [data.values[:, 0]]
    for part, (length, values) in parts.items():
        angles = 2 * np.pi * np.array(values) / length
        for level, column in (("cos", np.cos(angles)), ("sin", np.sin(angles))):
            kind: Any = CYCLE
            features.append(Feature(f"signup: {part} ({level})", "signup", kind, level))
            columns.append(column)
    data = replace(data, features=tuple(features))
    vars(data)["values"] = np.column_stack(columns)  # as the encoder would return them
    return data


def test_parts_of_dates_are_described_by_their_mean_direction() -> None:
    spread = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    hours = [21.5, 22.0, 22.5, 23.0, 21.0, 22.0]
    data = cyclic(
        {
            "hour": (24, [*hours, *(4 * each for each in spread)]),
            "weekday": (7, [5, 5, 5, 5, 5, 6, *spread]),
            "month": (12, [11, 0, 11, 10, 11, 11, *(2 * each for each in spread)]),
        }
    )
    assert [(each.part, each.cosine, each.sine) for each in data.cycles] == [
        ("hour", 1, 2),
        ("weekday", 3, 4),
        ("month", 5, 6),
    ]
    traits = [describe_cycle(data, each, 0) for each in data.cycles]
    found = [(trait.label, trait.inside, trait.outside) for trait in traits if trait is not None]
    assert found == [
        ("signup: hour", "around 22:00", "no usual time"),
        ("signup: weekday", "mostly Saturdays", "no usual time"),
        ("signup: month", "around December", "no usual time"),
    ]
    assert [describe_cycle(data, each, 1) for each in data.cycles] == [None] * 3
    profile = profiles_of(data)[0]
    assert {"signup: hour", "signup: weekday", "signup: month"} <= {trait.label for trait in profile.traits}


def test_parts_of_dates_that_do_not_differ_and_weekends() -> None:
    both = cyclic({"weekday": (7, [5, 6, 5, 6, 5, 6, *[2] * 6]), "hour": (24, [9] * 12)})
    weekend, nine = (describe_cycle(both, each, 0) for each in both.cycles)
    assert nine is None
    assert weekend is not None
    assert (weekend.inside, weekend.outside) == ("mostly weekends", "mostly Wednesdays")
    assert weekend.word == "signup mostly weekends"


def test_features_that_mean_nothing_by_themselves_are_no_traits() -> None:
    data = cyclic({"hour": (24, [0] * 6 + [12] * 6)})
    statistics = feature_statistics(data)
    assert data.features_by_column == [[0]]
    assert data.independent_features == {0}
    heat = heat_map(data, statistics)
    assert heat is not None
    assert [row["label"] for row in heat["rows"]] == ["signup"]
    halves = replace(data, features=data.features[:2])  # a cosine without its sine
    assert halves.cycles == []


def test_variance_between_clusters_is_explained_and_effects_finite() -> None:
    X = np.array([[0.0, 5.0], [0.0, 6.0], [9.0, 5.0], [9.0, 6.0]])
    statistics = feature_statistics(data_with(as_table(X), [0, 0, 1, 1]))
    assert statistics.explained == pytest.approx([1.0, 0.0])
    assert rank_features(statistics, 5).tolist() == [0]
    data = data_with(as_table([[0.0, 1.0], [0.0, 2.0], [4.0, 1.0], [4.0, 2.0]]), [0, 0, 1, 1])
    assert np.isfinite(feature_statistics(data).effects).all()
    assert profiles_of(data)[1].name == "high x0"
    x = 1e9 + np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])
    statistics = feature_statistics(data_with(as_table(x[:, None]), [0, 0, 0, 1, 1, 1]))
    assert statistics.effects[1, 0] == pytest.approx(10 / 1.0, rel=1e-6)


def test_missing_numbers_are_ignored_and_clusters_without_values_have_no_mean() -> None:
    X = np.array([[1.0, 0.0], [np.nan, 1.0], [3.0, 0.0], [7.0, 1.0], [np.nan, 0.0]])
    data = data_with(as_table(X), [0, 0, 0, 1, 1])
    assert feature_statistics(data).means[:, 0] == pytest.approx([2.0, 7.0])
    assert format_cell(data.table, 0, 1) == "missing"
    X = np.array([[1.0, 0.0], [2.0, 1.0], [np.nan, 0.0], [np.nan, 1.0]])
    statistics = feature_statistics(data_with(as_table(X), [0, 0, 1, 1]))
    assert np.isnan(statistics.means[1, 0])
    assert statistics.effects[:, 0].tolist() == [0.0, 0.0]


def test_categories_are_described_by_proportions() -> None:
    colour = np.array(["red", "red", "red", "blue", None, "blue"], dtype=object)
    table = Table(("colour", "size"), (colour, np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])))
    first, second = profiles_of(data_with(table, [0, 0, 0, 1, 1, 1]))
    assert first.name == "colour red"
    trait = first.traits[0]
    assert (trait.label, trait.inside, trait.outside) == ("colour = red", "100%", "0%")
    assert trait.effect == pytest.approx(np.pi)
    assert (trait.bar, trait.difference) == (1.0, "100 percentage points more than elsewhere")
    assert second.name == "colour blue"
    assert format_cell(table, 0, 4) == "missing"


def test_the_more_frequent_of_two_levels_is_reported() -> None:
    member = np.array([*["yes"] * 10, *["no"] * 9, "yes"], dtype=object)
    data = data_with(Table(("member", "size"), (member, np.arange(20.0) % 10)), [0] * 10 + [1] * 10)
    first, second = profiles_of(data)
    assert [profile.name for profile in (first, second)] == ["member yes", "member no"]
    traits = [(trait.label, trait.inside) for trait in (*first.traits, *second.traits)]
    assert traits == [("member = yes", "100%"), ("member = no", "90%")]
    assert [data.label(i) for i in sorted(data.independent_features)] == ["member = yes", "size"]
    heat = heat_map(data, feature_statistics(data))
    assert heat is not None
    assert [row["label"] for row in heat["rows"]] == ["member = yes"]


def test_names_prefer_frequent_levels_and_say_which_are_rarer() -> None:
    member = np.array([*["no"] * 20, *["no"] * 6, *["yes"] * 4], dtype=object)
    table = Table(("member", "size"), (member, np.arange(30.0) % 10))
    assert profiles_of(data_with(table, [0] * 20 + [1] * 10))[1].name == "less member no"
    booleans = Table(("member", "size"), (member == "yes", np.arange(30.0) % 10))
    names = [profile.name for profile in profiles_of(data_with(booleans, [0] * 20 + [1] * 10))]
    assert names == ["not member", "more member"]
    city = np.array([*["Oslo", "Lima", "Oslo", "Kyiv"] * 3, *["Rome"] * 9, "Oslo", "Lima", "Kyiv"], dtype=object)
    table = Table(("city", "size"), (city, np.arange(24.0) % 12))
    first, second = profiles_of(data_with(table, [0] * 12 + [1] * 12))
    assert [profile.name for profile in (first, second)] == ["city Oslo", "city Rome"]
    assert first.traits[0].label == "city = Rome"
    assert [(t.label, t.inside) for t in second.traits] == [("city = Rome", "75%"), ("city = Oslo", "8%")]


def test_dates_and_booleans_are_formatted() -> None:
    days = np.array(["2020-01-01", "2020-01-03", "2021-01-01", "2021-01-05"], dtype="datetime64[us]")
    table = Table(("since", "member"), (days, np.array([True, True, False, False])))
    first, second = profiles_of(data_with(table, [0, 0, 1, 1]))
    assert {trait.inside for trait in first.traits} == {"2020-01-02", "100%"}
    assert set(second.name.split(", ")) == {"late since", "not member"}
    assert [format_cell(table, i, 0) for i in (0, 1)] == ["2020-01-01", "yes"]
    gap = Table(("since",), (np.array(["NaT", "2020-01-01T12:30"], dtype="datetime64[us]"),))
    assert [format_cell(gap, 0, i) for i in (0, 1)] == ["missing", "2020-01-01 12:30"]


def test_typical_rows_are_near_the_prototype_and_borderline_ones_have_small_margins() -> None:
    data = data_with(as_table([[0.0], [1.0], [2.5], [10.0], [11.0]]), [0, 0, 0, 1, 1])
    assert profiles_of(data)[0].typical == 1
    memberships = [[0.9, 0.1], [0.6, 0.4], [0.52, 0.48], [0.3, 0.7]]
    first, second = profiles_of(data_with(as_table([[0.0], [1.0], [2.0], [9.0]]), [0, 0, 0, 1], memberships))
    assert [(row, other) for row, _, other, _ in first.borderline] == [(2, 1), (1, 1)]
    assert second.borderline == ()


def trait(column: str, word: str, effect: float = 2.0, inside: str = "1") -> Trait:
    return Trait(column, column, effect, inside, "0", word, 0.5, "")


def test_names_have_distinct_strong_traits_or_values() -> None:
    first = [trait("a", "high a"), trait("b", "low b"), trait("c", "high c")]
    second = [trait("a", "high a"), trait("b", "low b"), trait("c", "low c")]
    assert cluster_names([first, second]) == ["high a, low b, high c", "high a, low b, low c"]
    assert cluster_names([first, [trait("z", "low z")]]) == ["high a, low b", "low z"]
    names = cluster_names([[trait("a", "low a", inside="1")], [trait("a", "low a", inside="2")]])
    assert names == ["low a (1)", "low a (2)"]
    assert cluster_names([[trait("a", "high a", 0.3)], []]) == ["close to the average"] * 2
    assert cluster_names([[]]) == ["all rows"]


def test_sample_is_seeded_and_keeps_small_tables_whole() -> None:
    assert sample_rows(5, 10).tolist() == [0, 1, 2, 3, 4]
    rows = sample_rows(1000, 100)
    assert len(set(rows.tolist())) == 100
    assert rows.tolist() == sample_rows(1000, 100).tolist()


def test_numbers_have_four_digits_and_percents_are_rounded() -> None:
    values = (0.0, 3.0, -1.5, 12.3456, 0.012341, 1234.5, 7654321.0, 1.5e12, float("nan"), float("-inf"))
    texts = ["0", "3", "−1.5", "12.35", "0.01234", "1,234", "7,654,321", "1.50e+12", "missing", "−∞"]
    assert [format_number(value) for value in values] == texts
    assert [format_percent(fraction) for fraction in (-0.0, -1e-17, 1 - 1e-12)] == ["0%", "0%", ">99%"]
    assert [format_percent(fraction) for fraction in (0, 0.001, 0.5, 0.999, 1)] == ["0%", "<1%", "50%", ">99%", "100%"]


def test_shortening() -> None:
    assert shorten("brief") == "brief"
    assert shorten("yearly income before tax and deductions", 28) == "yearly income before tax…"
    assert len(shorten("x" * 100, 28)) == 28
    names = [f"a_very_long_measurement_name_of_gene_number_{i}_with_unit_mg_per_ml" for i in range(300)]
    assert len(set(short_names(names).values())) == 300
    assert short_names(["a", "b"]) == {"a": "a", "b": "b"}
    assert name_parts("od280/od315_of") == ["od280/", "od315_", "of"]
    assert [enumeration("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
