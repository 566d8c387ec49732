"""Ranks and Halton points equal those of scipy."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from scipy.stats.qmc import Halton

from coterie.ops.ranks import halton_points, rank_values


@given(
    count=st.integers(0, 40),
    columns=st.integers(0, 4),
    levels=st.integers(1, 60),
    seed=st.integers(0, 10_000),
    kind=st.sampled_from([np.float32, np.float64]),
)
def test_ranks_equal_those_of_scipy(count: int, columns: int, levels: int, seed: int, kind: npt.DTypeLike) -> None:
    """Few levels give ties; many give none."""
    values = np.random.default_rng(seed).integers(-levels, levels, size=(count, columns)).astype(kind)
    ranks = rank_values(values)
    assert ranks.dtype == np.float64
    np.testing.assert_array_equal(ranks, rankdata(values, axis=0))


def test_ranks_of_extreme_values_equal_those_of_scipy() -> None:
    values = np.array([[np.inf, 1.0], [0.0, np.nan], [-0.0, 2.0], [-np.inf, np.nan], [np.inf, 0.0]])
    np.testing.assert_array_equal(rank_values(values), rankdata(values, axis=0))


@pytest.mark.parametrize("dimensions", [1, 2, 8, 60])
@pytest.mark.parametrize("count", [0, 1, 2, 1025])
def test_points_equal_those_of_scipy(count: int, dimensions: int) -> None:
    expected = Halton(dimensions, scramble=False).random(count)
    np.testing.assert_allclose(halton_points(count, dimensions), expected, rtol=0.0, atol=1e-15)
