"""Unusual tables give a valid clustering, or an error that says why not."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from coterie import ClAM
from coterie.errors import InputError

Floats = npt.NDArray[np.float64]
METRICS = ["euclidean", "cosine", "manhattan", "mahalanobis"]
EMPTY: list[Any] = [np.empty((0, 3)), np.empty((3, 0)), [[]], pd.DataFrame(), pl.DataFrame()]


def quick(n_clusters: Any = 2, **settings: Any) -> ClAM:
    return ClAM(n_clusters, **({"n_restarts": 2, "epochs": 4, "random_state": 0} | settings))


def noise(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=shape)


def two_groups(columns: int = 3) -> tuple[Floats, npt.NDArray[np.int64]]:
    truth = np.repeat([0, 1], [30, 20])
    return noise(50, columns) * 0.5 + 8.0 * truth[:, None], truth


def assert_valid(model: ClAM, X: Any, rows: int) -> None:
    """Check that all results are finite and that labels, predictions and probabilities agree."""
    assert model.labels_.shape == (rows,)
    assert set(model.labels_.tolist()) == set(range(model.n_clusters_))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-5)
    for name in ("predict_proba", "transform", "energy", "entropy", "trajectories"):
        assert np.isfinite(getattr(model, name)(X)).all(), name
    for name in ("cluster_centers_", "prototypes_", "beta_", "silhouette_"):
        assert np.isfinite(getattr(model, name)).all(), name
    assert np.isfinite(model.score(X))
    assert np.isfinite(model.history_["loss"]).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("rows", "n_clusters"), [(1, 1), (1, "auto"), (12, 1), (12, 3), (12, "auto")])
def test_one_point_and_equal_points(rows: int, n_clusters: Any, metric: str) -> None:
    X = np.full((rows, 3), 7.0)
    model = quick(n_clusters, metric=metric).fit(X)
    assert_valid(model, X, rows)
    assert model.n_clusters_ == 1


@pytest.mark.parametrize(("n_clusters", "found"), [(1, 1), (2, 2), ("auto", 1)])
def test_two_points(n_clusters: Any, found: int) -> None:
    X = np.array([[3.0, 4.0], [5.0, 1.0]])
    model = quick(n_clusters).fit(X)
    assert_valid(model, X, 2)
    assert model.n_clusters_ == found


def test_one_column_and_one_cluster_per_point() -> None:
    X, truth = two_groups(1)
    model = quick().fit(X)
    assert_valid(model, X, 50)
    np.testing.assert_array_equal(model.labels_, truth)
    X = noise(8, 3)
    model = quick(8).fit(X)
    assert_valid(model, X, 8)
    assert sorted(model.labels_.tolist()) == list(range(8))


@pytest.mark.parametrize(
    ("X", "settings", "message"),
    [
        (noise(8, 3), {"n_clusters": 9}, "n_clusters=9 is more than n_samples=8"),
        (np.full((6, 3), np.nan), {}, "Every value of every column is missing"),
        (np.array([[1e300, 1.0], [2.0, 3.0]]), {"scaling": "none"}, r"1e\+300.*'robust'"),
        (noise(8, 3) * 1e25, {"scaling": "none"}, "cannot be used unscaled"),
        *((empty, {}, r"0 (sample|feature)") for empty in EMPTY),
        *((no_table, {}, "2D array") for no_table in ("table.csv", 3.0, None, [], [1.0, 2.0])),
        (np.zeros((2, 2, 2, 2, 2)), {}, "dim 5"),
        (np.ones((2, 2)) * 1j, {}, "Complex data not supported"),
    ],
)
def test_invalid_tables_raise_an_error(X: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        quick(**settings).fit(X)


def test_more_clusters_than_distinct_rows() -> None:
    X = np.repeat(noise(3, 2) * 5, 10, axis=0)
    model = quick(6).fit(X)
    assert_valid(model, X, 30)
    assert model.n_clusters_ <= 3
    assert any("own no row" in note for note in model.notes_)
    assert adjusted_rand_score(np.repeat(range(3), 10), model.labels_) > 0.5


def test_missing_and_infinite_values() -> None:
    X = np.full((6, 3), np.nan)
    X[2, 1] = 4.0
    assert_valid(quick().fit(X), X, 6)
    X, truth = two_groups(6)
    X[noise(50, 6, seed=1) > 1.2] = np.nan
    model = quick().fit(X)
    assert_valid(model, X, 50)
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert np.isfinite(model.predict_proba(np.full((1, 6), np.nan))).all()
    X, truth = two_groups()
    X[3, 0], X[40, 1] = np.inf, -np.inf
    model = quick().fit(X)
    assert_valid(model, X, 50)
    np.testing.assert_array_equal(model.labels_, truth)


@pytest.mark.parametrize(
    ("scaling", "size"), [*product(["robust", "standard"], [1e-300, 1e-30, 1e30, 1e300]), ("none", 1e10)]
)
def test_huge_and_tiny_values(scaling: str, size: float) -> None:
    X, truth = two_groups()
    model = quick(scaling=scaling).fit(X * size)
    assert_valid(model, X * size, 50)
    np.testing.assert_array_equal(model.labels_, truth)


@pytest.mark.parametrize("scaling", ["robust", "standard"])
def test_a_single_huge_value(scaling: str) -> None:
    X, _ = two_groups()
    X[0, 0] = 1e300
    model = quick(scaling=scaling, min_cluster_size=5).fit(X)
    assert_valid(model, X, 50)
    assert np.isfinite(model.predict_proba(np.array([[-1e300, 1e300, 0.0]]))).all()


@pytest.mark.parametrize("offset", [0.0, 2000.0, 1e5])
def test_unscaled_values_far_from_zero(offset: float) -> None:
    """Such as years: the squares of the values must not swamp the distances."""
    X, truth = two_groups()
    model = quick(scaling="none", n_restarts=4).fit(X / 8 + offset)
    np.testing.assert_array_equal(model.labels_, truth)


@pytest.mark.parametrize("metric", METRICS)
def test_many_more_columns_than_rows(metric: str) -> None:
    truth = np.repeat([0, 1], [12, 8])
    X = noise(20, 800) + 3.0 * np.outer(2 * truth - 1, noise(800, seed=1))
    model = quick(metric=metric, epochs=8).fit(X)
    assert_valid(model, X, 20)
    if metric != "mahalanobis":  # which removes most of the distance between the groups
        np.testing.assert_array_equal(model.labels_, truth)


@pytest.mark.parametrize("metric", METRICS)
def test_constant_columns_do_not_change_the_result(metric: str) -> None:
    X, _ = two_groups()
    padded = np.column_stack([np.full(50, 3.0), X, np.zeros(50)])
    model = quick(metric=metric).fit(padded)
    assert_valid(model, padded, 50)
    np.testing.assert_array_equal(model.labels_, quick(metric=metric).fit(X).labels_)
    assert len(model.table_.features) == 3


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("scaling", ["robust", "standard", "none"])
def test_rows_of_zeros(scaling: str, metric: str) -> None:
    X, _ = two_groups()
    X[:5] = 0.0
    assert_valid(quick(scaling=scaling, metric=metric).fit(X), X, 50)


def test_strings_are_categories() -> None:
    X = np.array([["red", "small"], ["red", "small"], ["blue", "large"], ["blue", "large"]] * 8, dtype=object)
    model = quick().fit(X)
    assert_valid(model, X, 32)
    np.testing.assert_array_equal(model.labels_ == model.labels_[0], X[:, 0] == "red")
    assert np.isfinite(model.predict_proba(np.array([["green", None]], dtype=object))).all()


def test_numbers_strings_booleans_and_dates_together() -> None:
    X, truth = two_groups()
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["kind"] = np.where(truth == 0, "x", "y")
    frame["flag"] = truth == 0
    frame["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(truth * 100, unit="D")
    frame.loc[3, ["a", "kind", "when"]] = None
    model = quick().fit(frame)
    assert_valid(model, frame, 50)
    np.testing.assert_array_equal(model.labels_, truth)


def as_frame(make: Callable[..., Any]) -> Callable[[Floats], Any]:
    return lambda X: make({name: X[:, i] for i, name in enumerate("abc")})


@pytest.mark.parametrize(
    "convert",
    [
        as_frame(pd.DataFrame),
        as_frame(pl.DataFrame),
        as_frame(pa.table),
        torch.from_numpy,
        lambda X: torch.from_numpy(X).requires_grad_(),
        lambda X: X.tolist(),
        np.asfortranarray,
        lambda X: X[::-1][::-1],
        lambda X: X.astype(object),
        np.ma.masked_invalid,
    ],
    ids=["pandas", "polars", "pyarrow", "torch", "torch in a graph", "list", "fortran", "strided", "object", "masked"],
)
def test_all_types_of_tables_give_the_same_labels(convert: Callable[[Floats], Any]) -> None:
    X, _ = two_groups()
    X[4, 1] = np.nan
    expected, converted = quick(3).fit(X), convert(X)
    model = quick(3).fit(converted)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(model.predict(converted), expected.labels_)


def test_columns_are_matched_by_name_and_the_input_is_not_modified() -> None:
    X, _ = two_groups()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = quick().fit(frame)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(pl.from_pandas(frame)), model.labels_)
    X, _ = two_groups()
    X.flags.writeable = False
    before = X.copy()
    quick().fit(X).predict(X)
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float16", "float32", "bool"])
def test_all_types_of_numbers(dtype: str) -> None:
    X = (two_groups()[0] > 4).astype(dtype) if dtype == "bool" else two_groups()[0].round().clip(0).astype(dtype)
    model = quick().fit(X)
    assert_valid(model, X, 50)
    np.testing.assert_array_equal(model.labels_, two_groups()[1])
