"""Odd tables, clustered by Coterie: the answer is sound, or the refusal says why."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from coterie.errors import InputError
from tests.estimators.test_coterie import assert_sound, quick
from tests.proposals.sets import blobs


def mixed(n: int = 90) -> tuple[pd.DataFrame, np.ndarray]:
    """Two kinds of customers, told apart by numbers, words and dates, with gaps in each."""
    rng = np.random.default_rng(0)
    kind = np.arange(n) % 2
    frame = pd.DataFrame(
        {
            "spent": np.where(kind, 500.0, 20.0) + rng.normal(size=n),
            "plan": np.where(kind, "firm", "private"),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(kind * 900 + rng.integers(0, 9, n), unit="D"),
            "active": kind == 1,
        }
    )
    frame.loc[::17, "spent"] = np.nan
    frame.loc[5::19, "plan"] = None
    frame.loc[3::23, "since"] = pd.NaT
    return frame, kind


def test_numbers_words_dates_and_gaps() -> None:
    frame, kind = mixed()
    model = quick(n_clusters=2).fit(frame)
    assert_sound(model, frame)
    assert adjusted_rand_score(kind, model.labels_) > 0.8
    assert model.feature_names_in_.tolist() == list(frame)
    shuffled = frame[["active", "since", "plan", "spent"]]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(shuffled)


def test_words_alone() -> None:
    frame = pd.DataFrame({"a": list("xxyyzz") * 5, "b": list("uuvvuu") * 5})
    model = quick().fit(frame)
    assert_sound(model, frame)


@pytest.mark.parametrize("k", [None, 6, 7])
def test_equal_rows_stay_together(k: int | None) -> None:
    X = np.repeat(blobs(7, k=4)[0], 5, axis=0)
    model = quick(n_clusters=k).fit(X)
    assert_sound(model, X)
    assert all(len(set(part)) == 1 for part in model.labels_.reshape(7, 5).tolist())
    assert k in (None, model.n_clusters_)


def test_more_clusters_than_distinct_rows_are_refused() -> None:
    with pytest.raises(InputError, match=r"n_clusters=8, but the 35 rows that are looked at have fewer distinct"):
        quick(n_clusters=8).fit(np.repeat(blobs(7, k=4)[0], 5, axis=0))


@pytest.mark.parametrize("X", [np.full((12, 3), 7.0), np.array([[3.0, 4.0]])], ids=["equal rows", "one row"])
@pytest.mark.parametrize("noise", [False, True])
def test_what_cannot_be_told_apart_is_one_cluster(X: np.ndarray, noise: bool) -> None:
    model = quick(noise=noise).fit(X)
    assert_sound(model, X)
    assert model.n_clusters_ == 1
    assert model.labels_.tolist() == [0] * len(X)
    assert (model.proposals_, model.levels_, model.runner_up_) == ([], [], None)


@pytest.mark.parametrize("k", [None, 1, 2])
def test_two_rows(k: int | None) -> None:
    X = np.array([[3.0, 4.0], [5.0, 1.0]])
    model = quick(n_clusters=k).fit(X)
    assert_sound(model, X)
    assert k in (None, model.n_clusters_)


def test_one_column() -> None:
    X = np.concatenate([np.linspace(0, 1, 30), np.linspace(9, 10, 40)])[:, None]
    model = quick(n_clusters=2).fit(X)
    assert_sound(model, X)
    assert np.bincount(model.labels_).tolist() == [40, 30]


@pytest.mark.parametrize("scale", [1e300, [1e300, 1e-300, 1.0], [1e-300, 1e-300, 1e300]], ids=str)
def test_huge_and_tiny_units(scale: float | list[float]) -> None:
    X, truth = blobs(80)
    model = quick(n_clusters=4).fit(X * scale)
    assert_sound(model, X * scale)
    assert adjusted_rand_score(truth, model.labels_) == 1.0


def test_values_at_the_ends_of_what_a_float_holds() -> None:
    X = np.where(blobs(40, d=2)[0] > 3.0, 1.7e308, -1.7e308)
    assert_sound(quick().fit(X), X)


def test_constant_columns_change_nothing() -> None:
    X, _ = blobs(80)
    wide = np.column_stack([np.full(80, 3.0), X, np.zeros(80)])
    np.testing.assert_array_equal(quick(n_clusters=4).fit(wide).labels_, quick(n_clusters=4).fit(X).labels_)
