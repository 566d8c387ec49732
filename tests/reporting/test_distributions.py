"""Small histograms and bars per cluster, compared with cases worked out by hand."""

import re

import numpy as np
import pytest

from coterie.reporting.data import ClusteringData
from coterie.reporting.distributions import Distribution, Row, describe_distributions
from coterie.tables.table import Table
from tests.reporting.pages import GivenClusterer, Structure, data_of, page_of


def data_with(table: Table, labels: list[int]) -> ClusteringData:
    return data_of(GivenClusterer().fit_given(table, labels), table)


def describe(values: list[object] | np.ndarray, labels: list[int]) -> Distribution:
    array = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    table = Table(("x", "y"), (array, np.arange(float(len(array)))))
    (found,) = describe_distributions(data_with(table, labels), ["x"])
    return found


def heights(row: Row) -> list[float]:
    """Return the heights of a histogram in percent of the tallest bar."""
    return [100 - float(y) for y in re.findall(r"V([\d.]+)H", row.outline)]


def test_few_distinct_numbers_have_a_bar_each() -> None:
    answers = np.array([1.0, 1.0, 2.0, 3.0, 5.0, 4.0, 5.0, 5.0])
    found = describe(answers, [0, 0, 0, 0, 1, 1, 1, 1])
    assert (found.low, found.high, found.levels, found.note) == ("1", "5", (), "")
    assert heights(found.everywhere) == [67, 33, 33, 33, 100]
    assert [heights(row) for row in found.clusters] == [[100, 50, 50, 0, 0], [0, 0, 0, 33, 100]]
    assert [row.summary for row in (found.everywhere, *found.clusters)] == ["3.5", "1.5", "5"]
    assert [row.cluster for row in (found.everywhere, *found.clusters)] == [None, 0, 1]


def test_missing_values_are_shares() -> None:
    found = describe(np.array([1.0, np.nan, np.inf, 4.0, 5.0, 6.0]), [0, 0, 0, 0, 1, 1])
    assert [row.missing for row in (found.everywhere, *found.clusters)] == ["33% missing", "50% missing", ""]
    empty = describe(np.array([1.0, 2.0, np.nan, np.nan]), [0, 0, 1, 1])
    assert (empty.clusters[1].summary, empty.clusters[1].outline, empty.clusters[1].missing) == (
        "–",
        "",
        "100% missing",
    )


def test_extreme_values_do_not_squeeze_the_others() -> None:
    values = np.append(np.linspace(-10, 10, 999), 1e6)
    found = describe(values, [0] * 500 + [1] * 500)
    assert found.note == "Values from −10 to 1,000,000; those beyond the ends are in the outer bars."
    assert min(heights(found.everywhere)) > 50


def test_amounts_over_orders_of_magnitude_have_growing_bins() -> None:
    found = describe(np.geomspace(1.0, 1e6, 600), [0] * 300 + [1] * 300)
    assert found.note.startswith("The scale is logarithmic.")
    assert max(heights(found.clusters[0])[13:]) == 0
    linear = describe(np.linspace(0.0, 1e6, 600), [0] * 300 + [1] * 300)
    assert "logarithmic" not in linear.note


def test_constant_and_huge_values_have_a_bar() -> None:
    found = describe(np.full(4, 7.0), [0, 0, 1, 1])
    assert (found.low, found.high, heights(found.everywhere)) == ("7", "7", [100])
    huge = describe(np.array([1e308, -1e308, 0.5e308, 0.1e308] * 20), [0, 1] * 40)
    assert heights(huge.everywhere)


def test_dates_are_binned_in_time() -> None:
    days = np.datetime64("2024-01-01", "us") + np.arange(60).astype("timedelta64[D]")
    days[3] = np.datetime64("NaT")
    found = describe(days, [0] * 30 + [1] * 30)
    assert (found.low[:7], found.high[:7]) == ("2024-01", "2024-02")
    assert found.clusters[0].missing == "3% missing"
    assert found.clusters[1].summary == "2024-02-14"


def test_levels_have_bars_that_all_clusters_share() -> None:
    found = describe(["a", "a", "b", None, "b", "b", "b", "a"], [0, 0, 0, 0, 1, 1, 1, 1])
    assert found.levels == ("b", "a")
    assert [bar[2] for bar in found.everywhere.bars] == ["57%", "43%"]
    assert [bar[2] for bar in found.clusters[1].bars] == ["75%", "25%"]
    assert found.clusters[1].bars[0][0] == 100
    assert found.clusters[1].bars[0][1] == pytest.approx(100 * (4 / 7) / 0.75)
    assert [row.missing for row in found.clusters] == ["25% missing", ""]
    booleans = describe(np.array([True, False, True, True]), [0, 0, 1, 1])
    assert booleans.levels == ("yes", "no")


def test_many_levels_are_put_together() -> None:
    found = describe([f"city {i % 20}" for i in range(60)], [0] * 30 + [1] * 30)
    assert (len(found.levels), found.levels[-1]) == (7, "other")
    assert found.note == "6 of 20 levels; the others are together."
    assert sum(float(bar[2].strip("%<")) for bar in found.everywhere.bars) == pytest.approx(100)


def test_free_text_has_no_distribution() -> None:
    comments = np.array([f"comment {i}" for i in range(9)] + ["comment 0"], dtype=object)
    data = data_with(Table(("comment", "x"), (comments, np.arange(10.0))), [0] * 5 + [1] * 5)
    assert [each.full for each in describe_distributions(data, ["comment", "x"])] == ["x"]


def test_outliers_are_in_no_distribution() -> None:
    table = Table(("x", "y"), (np.array([1.0, 2.0, 3.0, 50.0]), np.arange(4.0)))
    model = GivenClusterer().fit_given(table, [0, 0, 1, -1], np.eye(2)[[0, 0, 1, 0]])
    (found,) = describe_distributions(data_of(model, table), ["x"])
    assert found.high == "3"


def test_the_page_shows_the_most_telling_columns_first() -> None:
    rng = np.random.default_rng(0)
    group = np.arange(90) % 2
    table = Table(("noise", "signal"), (rng.normal(size=90), rng.normal(9.0 * group)))
    text = Structure(page_of(table, 2)).text
    section = text[text.index("Distributions") :]
    assert section.index("signal") < section.index("noise")
    assert "distributions" not in Structure(page_of(table, 1)).ids()
