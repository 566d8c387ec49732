"""The most similar rows, against all products at once."""

import numpy as np
import pytest

from coterie.ops import neighbours
from coterie.ops.neighbours import most_similar


def test_rows_with_the_largest_products_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, among = rng.normal(size=(23, 5)).astype(np.float32), rng.normal(size=(17, 5)).astype(np.float32)
    monkeypatch.setattr(neighbours, "_CELLS_AT_ONCE", 60)  # several blocks
    found, products = most_similar(rows, among, 4)
    every = rows @ among.T
    np.testing.assert_array_equal(found, np.argsort(-every, axis=1)[:, :4])
    np.testing.assert_allclose(products, -np.sort(-every, axis=1)[:, :4], rtol=1e-6)


def test_a_row_is_not_similar_to_itself_and_ties_are_in_order() -> None:
    rows = np.ones((6, 3), dtype=np.float32)
    found, products = most_similar(rows, rows, 5, without_self=True)
    assert found.tolist() == [[other for other in range(6) if other != row] for row in range(6)]
    np.testing.assert_array_equal(products, np.full((6, 5), 3.0))
