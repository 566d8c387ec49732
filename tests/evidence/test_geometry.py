"""Distances, neighbours, trees and modes against other ways to compute them."""

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

from coterie.errors import InputError
from coterie.judged.space import Modes, Space, spanning_tree


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    rng = np.random.default_rng(3)
    return rng.normal(size=(150, 4)) * [5.0, 2.0, 1.0, 0.5] + 7.0


@pytest.fixture(scope="module")
def geometry(x: np.ndarray) -> Space:
    return Space.of(x)


@pytest.fixture(scope="module")
def unit(x: np.ndarray) -> float:
    return float(np.sqrt(x.var(axis=0).mean()))


def test_distances_are_in_units_of_the_mean_variance(x: np.ndarray, geometry: Space, unit: float) -> None:
    np.testing.assert_allclose(geometry.distances, cdist(x, x) / unit, atol=1e-6)


def test_principal_axes_keep_distances_and_are_ordered(geometry: Space) -> None:
    np.testing.assert_allclose(cdist(geometry.rows, geometry.rows), geometry.distances, atol=1e-6)
    assert (np.diff(geometry.rows.var(axis=0)) < 0.0).all()


def test_neighbours_are_those_of_scikit_learn(x: np.ndarray, geometry: Space, unit: float) -> None:
    distances, index = NearestNeighbors(n_neighbors=15).fit(x).kneighbors()
    np.testing.assert_array_equal(geometry.neighbours, index)
    np.testing.assert_allclose(geometry.neighbour_distances, distances / unit, rtol=1e-5)


def test_links_are_mutual(geometry: Space) -> None:
    near = [set(row[:10]) for row in geometry.neighbours.tolist()]
    expected = {(a, b) for a in range(len(near)) for b in near[a] if a < b and a in near[b]}
    assert {tuple(pair) for pair in geometry.links.tolist()} == expected


def test_tree_is_as_long_as_that_of_scipy(geometry: Space) -> None:
    assert geometry.lengths.sum() == pytest.approx(minimum_spanning_tree(geometry.distances).sum(), rel=1e-5)
    found = geometry.distances[geometry.tree[:, 0], geometry.tree[:, 1]]
    np.testing.assert_allclose(found, geometry.lengths)
    cores = geometry.neighbour_distances[:, 9]
    reach = np.maximum(np.maximum(geometry.distances, cores), cores[:, None])
    assert geometry.reach_lengths.sum() == pytest.approx(minimum_spanning_tree(reach).sum(), rel=1e-2)


def test_tree_of_a_line() -> None:
    places = np.array([[0.0], [10.0], [1.0], [3.0]])
    edges, lengths = spanning_tree(cdist(places, places).astype(np.float32), np.zeros(4))
    assert {tuple(sorted(edge)) for edge in edges.tolist()} == {(0, 2), (2, 3), (1, 3)}
    assert sorted(lengths) == [1.0, 2.0, 7.0]


def test_modes_of_a_line() -> None:
    """Cores fall to 1 and to 2 with a pass of 8 between: the lower peak rises log 4 above it."""
    log_cores = np.log([4.0, 1.0, 8.0, 2.0, 3.0])
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    modes = Modes.of(edges, np.log([4.0, 8.0, 8.0, 3.0]), log_cores)
    assert modes.leading(2, log_cores).tolist() == [1, 3]
    np.testing.assert_allclose(modes.prominence, [0.0, np.log(4.0), 0.0, np.log(4.0), 0.0])
    assert modes.basins(1.0).tolist() == [0, 0, 0, 1, 1]
    assert modes.basins(2.0).tolist() == [0] * 5


def test_as_many_modes_as_blobs_stand_out() -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0], [20.0, 4.0]])
    geometry = Space.of(np.concatenate([corner + rng.normal(size=(80, 2)) for corner in corners]))
    assert (geometry.prominence > 1.5).sum() == 5
    assert set(geometry.peaks[:5] // 80) == {0, 1, 2, 3, 4}
    assert adjusted_rand_score(np.repeat(np.arange(5), 80), geometry.basins[0]) > 0.95


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_dimension_is_that_of_the_subspace(dimension: int) -> None:
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0][:dimension]
    estimate = Space.of(rng.random((800, dimension)) @ turn).dimension
    assert estimate == pytest.approx(dimension, rel=0.25)


@pytest.mark.parametrize("x", [np.zeros((1, 2)), np.zeros(5), np.zeros((4, 0)), np.array([[0.0], [np.nan]])])
def test_what_cannot_be_judged_is_refused(x: np.ndarray) -> None:
    with pytest.raises(InputError, match="two or more rows"):
        Space.of(x)
