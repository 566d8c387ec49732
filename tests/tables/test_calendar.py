"""Parts of dates that come round again."""

import numpy as np
import pytest

from coterie.tables.calendar import CycleColumn, Part, find_cycles, is_time_of_day, to_circle

DAY = np.timedelta64(1, "D")
START = np.datetime64("2023-03-01", "us")


@pytest.mark.parametrize(
    ("moments", "parts"),
    [
        (START + np.arange(30) * DAY, ("weekday",)),
        (START + np.arange(30) * 7 * DAY, ()),  # the same weekday, and less than one and a half years
        (START + np.arange(600) * DAY, ("weekday", "month")),
        (START + np.arange(30) * np.timedelta64(5, "h"), ("hour",)),
        (START + np.arange(30) * np.timedelta64(1, "m"), ()),
        (START + np.arange(10) * np.timedelta64(50, "D"), ()),  # too few
        (np.datetime64("1970-01-01", "us") + np.arange(24) * np.timedelta64(1, "h"), ("hour",)),
    ],
)
def test_parts_are_found_where_dates_go_round_more_than_once(moments: np.ndarray, parts: tuple[Part, ...]) -> None:
    assert find_cycles(moments) == parts
    with_gap = np.append(moments, np.datetime64("NaT"))
    assert find_cycles(with_gap) == parts


def test_the_last_hour_is_beside_the_first() -> None:
    hours = np.datetime64("2024-05-05", "us") + np.array([23, 0, 12]) * np.timedelta64(1, "h")
    late, first, noon = to_circle(hours, "hour")
    assert np.linalg.norm(late - first) < 0.3
    assert np.linalg.norm(noon - first) == pytest.approx(2.0)


def test_mondays_and_januaries_are_at_angle_zero_also_before_1970() -> None:
    mondays = np.array(["2024-01-01", "1969-12-29"], dtype="datetime64[us]")
    np.testing.assert_allclose(to_circle(mondays, "weekday"), [[1, 0], [1, 0]], atol=1e-12)
    januaries = np.array(["2024-01-31", "1950-01-01"], dtype="datetime64[us]")
    np.testing.assert_allclose(to_circle(januaries, "month"), [[1, 0], [1, 0]], atol=1e-12)


def test_scaled_features_have_variance_one_together_and_gaps_are_filled() -> None:
    moments = np.append(START + np.arange(100) * DAY, np.datetime64("NaT"))
    encoded = CycleColumn.fit(moments, 0, "weekday", scaled=True).encode(moments, 0.0)
    assert encoded[-1].tolist() == [0.0, 0.0]
    assert encoded[:-1].astype(float).var(axis=0).sum() == pytest.approx(1.0, rel=1e-5)


def test_times_of_day_are_those_of_the_first_day_of_1970() -> None:
    assert is_time_of_day(np.array(["1970-01-01T14:30", "NaT"], dtype="datetime64[us]"))
    assert not is_time_of_day(np.array(["1970-01-02T14:30"], dtype="datetime64[us]"))
    assert not is_time_of_day(np.array(["NaT"], dtype="datetime64[us]"))
