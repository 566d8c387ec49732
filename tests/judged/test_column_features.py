"""Features that see columns, and the agreement of k-means on two halves of the rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from coterie.judged.features.columns import ColumnLevels, column_information, table_features
from coterie.judged.features.partitions import Partitions
from coterie.judged.features.stability import halves_agreement, stability_features
from coterie.judged.space import Floats, Geometry, Space
from tests.judged.sets import blobs


def told(x: Floats, *labels: np.ndarray) -> dict[str, Floats]:
    return column_information(ColumnLevels.find(Space(x)), Partitions.from_labels(np.array(labels)))


@pytest.fixture(scope="module")
def junk() -> tuple[Floats, np.ndarray, np.ndarray]:
    """Blobs in six columns and a junk category: rows, the blobs, the category."""
    rng = np.random.default_rng(0)
    truth, code = np.arange(600) % 4, rng.integers(3, size=600)
    numbers = 3.0 * rng.normal(size=(4, 6))[truth] + rng.normal(size=(600, 6))
    return np.hstack([numbers, np.eye(3)[code]]), truth, code


def test_a_partition_equal_to_a_junk_column_is_told_by_that_column_alone(
    junk: tuple[Floats, np.ndarray, np.ndarray],
) -> None:
    x, truth, code = junk
    found = told(x, code, truth)
    assert found["told_by_best"][0] == pytest.approx(1.0, abs=0.02)
    assert found["told_by_others"][0] == pytest.approx(0.0, abs=0.05)
    for name in ("told_by_best_discrete", "repeated_discrete", "repeated_column", "told_by_discrete"):
        assert found[name][0] == pytest.approx(1.0, abs=0.06), name
        assert found[name][1] < 0.6, name
    assert found["columns_telling"][0] == pytest.approx(1 / 7)
    for name in ("told_by_others", "told_by_all", "told_by_second", "columns_telling", "told_by_weighted"):
        assert found[name][1] > found[name][0] + 0.1, name
    assert found["latent_class_gain"][1] > found["latent_class_gain"][0] + 0.1
    assert found["latent_class_gain"][1] > 0.0 > found["latent_class_gain"][0] - 0.05


def test_information_is_that_of_scikit_learn_less_chance(junk: tuple[Floats, np.ndarray, np.ndarray]) -> None:
    _, truth, code = junk
    x = np.column_stack([truth + code, code]).astype(np.float64)
    found = told(x, truth)
    entropy = mutual_info_score(truth, truth)
    raw = np.array([mutual_info_score(truth, column) for column in x.T])
    chance = 3 * (np.array([6, 3]) - 1) / (2 * len(x))
    assert found["told_by_best"] == pytest.approx(np.maximum(raw - chance, 0.0).max() / entropy)
    assert found["told_by_all"] == pytest.approx(np.log1p(np.maximum(raw - chance, 0.0).sum() / entropy))


def test_columns_of_the_table_are_counted(junk: tuple[Floats, np.ndarray, np.ndarray]) -> None:
    x = junk[0]
    found = table_features(ColumnLevels.find(Space(x)))
    assert found["discrete_columns"] == pytest.approx(1 / 7)
    assert found["discrete_weight"] < 0.3
    assert found["log_levels"] == pytest.approx(np.log((6 * 8 + 3) / 7))
    assert table_features(ColumnLevels.find(Space(x[:, :6])))["discrete_weight"] == 0.5


@pytest.mark.parametrize(
    "x",
    [
        np.ones((30, 2)),
        np.hstack([np.ones((30, 2)), np.arange(30.0)[:, None]]),
        np.arange(2.0)[:, None],
        np.random.default_rng(0).normal(size=(25, 200)),
        1e300 * np.random.default_rng(0).normal(size=(40, 2)),
        np.arange(60.0)[:, None] % 30,
    ],
    ids=["constant", "one column varies", "two rows", "many columns", "huge", "thirty values"],
)
def test_features_of_unusual_columns_are_finite(x: Floats) -> None:
    each = np.arange(len(x))
    found = told(x, 0 * each, each, each % 2)
    assert all(np.isfinite(column).all() for column in found.values())
    assert all(np.isfinite(list(table_features(ColumnLevels.find(Space(x))).values())))


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(20, 80), st.integers(1, 6), st.integers(1, 7))
def test_features_are_bounded_and_do_not_depend_on_order(seed: int, rows: int, columns: int, clusters: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(rows, columns)), rng.integers(3, size=rows)])
    labels = np.unique(rng.integers(clusters, size=rows), return_inverse=True)[1]
    found = told(x, labels)
    for name in ("told_by_best", "told_by_second", "columns_telling", "told_by_discrete", "repeated_column"):
        assert 0.0 <= found[name][0] <= 1.0 + 1e-9, name
    assert found["told_by_second"] <= found["told_by_best"]
    assert found["told_by_best_discrete"] <= found["told_by_best"]
    assert found["repeated_discrete"] <= found["repeated_column"]
    assert found["told_by_others"] <= found["told_by_all"]
    order, swapped = rng.permutation(rows), rng.permutation(columns + 1)
    other = told(x[order][:, swapped] * 4.0, (labels.max() - labels)[order])
    for name, values in found.items():
        np.testing.assert_allclose(other[name], values, atol=1e-9, err_msg=name)


def test_halves_agree_on_the_number_of_clusters_there_are() -> None:
    x, truth = blobs(200, d=2, k=4, spread=0.5)
    x[:, 1] *= 1.3  # which two clusters are merged depends on chance only in a square
    numbers, agreement = curve = halves_agreement(Geometry(x))
    assert agreement[np.searchsorted(numbers, np.log(4))] == pytest.approx(1.0)
    assert agreement[numbers > np.log(4.5)].max() < 0.95
    found = stability_features(curve, Partitions.from_labels(np.stack([truth, truth // 2, np.arange(200) % 9])))
    assert found["halves_agree"][0] == pytest.approx(1.0)
    assert found["halves_agree_relative"][0] == pytest.approx(0.0)
    assert found["halves_agree"][2] < 0.9
    assert (found["halves_agree_relative"] <= 0.0).all()


def test_rows_without_clusters_have_halves_that_disagree() -> None:
    x = np.random.default_rng(0).normal(size=(300, 5))
    assert halves_agreement(Geometry(x))[1].max() < 0.8


@pytest.mark.parametrize("x", [np.zeros((2, 1)), np.arange(3.0)[:, None], np.ones((30, 2))], ids=len)
def test_few_or_equal_rows_have_an_agreement_too(x: Floats) -> None:
    numbers, agreement = halves_agreement(Geometry(x))
    assert numbers.shape == agreement.shape
    assert np.isfinite(agreement).all()


def test_the_order_of_rows_does_not_change_the_halves() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(101, 3))
    order = rng.permutation(101)
    np.testing.assert_allclose(halves_agreement(Geometry(x[order]))[1], halves_agreement(Geometry(x))[1], atol=1e-9)
