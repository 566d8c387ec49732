"""Agreement between partitions, and ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from coterie.judged.features.table import CONTEXT, context_of, rand_indices, ranks_of


def column(table: np.ndarray, name: str) -> list[float]:
    return [round(float(value), 6) for value in table[:, CONTEXT.index(name)]]


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(2, 30))
def test_rand_indices_are_those_of_scikit_learn(seed: int, runs: int, rows: int) -> None:
    labels = np.random.default_rng(seed).integers(0, [[5]] * runs, size=(runs, rows))
    expected = [[adjusted_rand_score(first, second) for second in labels] for first in labels]
    np.testing.assert_allclose(rand_indices(labels), expected, atol=1e-12)


def test_context_by_hand() -> None:
    pairs, swapped, crossed, finer = [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 0, 1], [0, 1, 2, 2]
    labels = np.array([pairs, swapped, crossed, finer])
    context = context_of(labels, labels.max(axis=1) + 1)
    near, far = 4.0 / 7.0, adjusted_rand_score(crossed, finer)
    assert column(context, "agreement_best") == pytest.approx([1.0, 1.0, max(-0.5, far), near], abs=1e-6)
    assert column(context, "agreement_mean")[0] == pytest.approx((1.0 - 0.5 + near) / 3, abs=1e-6)
    assert column(context, "agreement_top_3")[0] == pytest.approx((1.0 - 0.5 + near) / 3, abs=1e-6)
    assert column(context, "agreement_median")[0] == pytest.approx(near, abs=1e-6)
    assert column(context, "agreement_same_k_best") == [1.0, 1.0, -0.5, 0.0]
    assert column(context, "agreement_same_k_mean") == [0.25, 0.25, -0.5, 0.0]
    assert column(context, "agreement_same_k_overall") == [0.0, 0.0, 0.0, 0.0]
    assert column(context, "agreement_fewer_best") == pytest.approx([0.0, 0.0, 0.0, near], abs=1e-6)
    assert column(context, "share_same_k") == [0.75, 0.75, 0.75, 0.25]
    assert column(context, "share_fewer") == [0.0, 0.0, 0.0, 0.75]
    assert column(context, "share_alike") == [0.25, 0.25, 0.0, 0.0]


@pytest.mark.parametrize("runs", [1, 2, 12])
def test_context_is_finite(runs: int) -> None:
    labels = np.random.default_rng(0).integers(0, 3, size=(runs, 9))
    context = context_of(labels, labels.max(axis=1) + 1)
    assert context.shape == (runs, len(CONTEXT))
    assert context.dtype == np.float32
    assert np.isfinite(context).all()


def test_context_does_not_depend_on_the_order_of_proposals() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=(15, 40))
    counts = labels.max(axis=1) + 1
    order = rng.permutation(15)
    np.testing.assert_allclose(context_of(labels[order], counts[order]), context_of(labels, counts)[order], atol=1e-6)


def test_ranks_average_ties() -> None:
    ranks = ranks_of(np.array([[2.0, 5.0], [1.0, 5.0], [2.0, 5.0], [9.0, 5.0]], dtype=np.float32))
    np.testing.assert_allclose(ranks[:, 0], [0.5, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(ranks[:, 1], 0.5)
    assert ranks_of(np.ones((1, 3), dtype=np.float32)).tolist() == [[0.5] * 3]
