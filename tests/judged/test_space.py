"""Views of the columns; distances, neighbours, spanning trees and modes against other ways to compute them."""

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from scipy.stats import norm, rankdata
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import NearestNeighbors

from coterie.errors import InputError
from coterie.judged.space import Floats, Geometry, Modes, Space, spanning_tree
from coterie.judged.views import View, fit_views


def normal(n: int = 300, d: int = 4, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, d))


def views_of(x: Floats) -> dict[str, Floats]:
    space = Space(x)
    return {view.name: space.geometry(view.name).rows for view in space.views}


@pytest.mark.parametrize("x", [normal(n=2000), normal(d=1)], ids=["independent equal columns", "one column"])
def test_views_that_would_change_nothing_are_left_out(x: Floats) -> None:
    assert set(views_of(x)) == {"standardised"}


@pytest.mark.parametrize(("factor", "raw"), [(1.05, False), (3.0, True), (100.0, False)])
def test_raw_columns_are_a_view_where_scales_differ_moderately(factor: float, raw: bool) -> None:
    x = normal(n=2000) * [1.0, 1.0, 1.0, factor]
    views = views_of(x)
    assert ("raw" in views) == raw
    if raw:
        ratio = np.diff(x, axis=0) / np.diff(views["raw"], axis=0)
        assert np.allclose(ratio, ratio[0, 0])


def test_standardised_columns_have_unit_deviation_and_constant_ones_no_effect() -> None:
    x = normal() * [1.0, 1e3, 1e-6, 7.0] + [0.0, 1e6, 1.0, 0.0]
    x[0, 0] = 100.0
    z = views_of(x)["standardised"]
    assert np.abs(z).max() == 10.0
    assert np.allclose(z[1:].std(axis=0), 1.0, atol=0.1)
    x = normal()
    x[:, 1] = 0.1
    for view in fit_views(x):
        other = x.copy()
        other[:, 1] = 77.0
        assert np.array_equal(view.transform(x), view.transform(other))


def test_whitened_columns_are_uncorrelated_and_vary() -> None:
    x = normal(n=500)
    x[:, 1] = 0.9 * x[:, 0] + 0.3 * x[:, 1]
    assert np.allclose(np.cov(views_of(x)["whitened"].T, bias=True), np.eye(4), atol=1e-8)
    x = normal(n=500, d=3)
    x = np.concatenate([x, x[:, :1] + x[:, 1:2]], axis=1)
    assert views_of(x)["whitened"].shape == (500, 3)


def test_ranks_of_skewed_columns_are_normal_scores() -> None:
    x = np.exp(2.0 * normal(n=200, d=2))
    scores = views_of(x)["ranks"]
    for column in range(2):
        expected = norm.ppf((rankdata(x[:, column]) - 0.5) / len(x))
        kept = np.abs(expected) < 2.0  # the extremes were clipped before
        assert np.allclose(scores[kept, column], expected[kept], atol=1e-6)


def test_many_columns_are_reduced_to_fifty_and_keep_the_distances_of_few_rows() -> None:
    assert all(rows.shape[1] <= 50 for rows in views_of(normal(n=80, d=300)).values())
    x = normal(n=20, d=300)
    view = fit_views(x)[0]
    z = np.clip((x - view.centre) / view.scale, -10, 10)
    projected = view.transform(x)
    assert np.allclose(((projected[:, None] - projected) ** 2).sum(-1), ((z[:, None] - z) ** 2).sum(-1))


@pytest.mark.parametrize("d", [3, 70])
def test_views_survive_saving_and_apply_to_new_rows(d: int) -> None:
    x = np.exp(normal(n=150, d=d)) * np.linspace(1, 2, d)
    new = np.exp(normal(n=20, d=d, seed=1))
    views = fit_views(x)
    names = [view.name for view in views]
    assert (names[:3], names[-1]) == (["power", "ranks", "raw"], "standardised")
    for view in views:
        again = View.from_arrays(view.name, view.to_arrays())
        assert np.array_equal(again.transform(new), view.transform(new))
        assert np.allclose(view.transform(x)[:5], view.transform(x[:5]))
        assert np.isfinite(view.transform(1e300 * new)).all()


def test_scaling_everything_changes_no_view() -> None:
    x = np.exp(normal()) * [1.0, 2.0, 4.0, 8.0]
    for before, after in zip(fit_views(x), fit_views(1e-30 * x), strict=True):
        assert np.allclose(before.transform(x), after.transform(1e-30 * x), atol=1e-6)
    assert all(np.isfinite(rows).all() for rows in views_of(normal() * 1e307).values())


def test_a_space_computes_each_part_once_and_can_drop_its_geometry() -> None:
    space = Space(normal(50) * [1.0, 2.0, 3.0, 4.0])
    assert Space.of(space) is space
    assert space.views is space.views
    geometry = space.geometry("raw")
    assert space.geometry("raw") is geometry
    assert geometry.reachability_tree(5) is geometry.reachability_tree(5)
    light = space.without_geometry()
    assert light.x is space.x
    assert light.views == space.views
    assert light.geometry("raw") is not geometry


@pytest.fixture(scope="module")
def x() -> Floats:
    return normal(150, 4, seed=3) * [5.0, 2.0, 1.0, 0.5] + 7.0


@pytest.fixture(scope="module")
def geometry(x: Floats) -> Geometry:
    return Geometry(x)


def test_unit_distances_are_in_units_of_the_mean_variance(x: Floats, geometry: Geometry) -> None:
    unit = float(np.sqrt(x.var(axis=0).mean()))
    np.testing.assert_allclose(geometry.unit_distances, cdist(x, x) / unit, atol=1e-6)
    np.testing.assert_allclose(geometry.distances, cdist(x, x))
    np.testing.assert_allclose(cdist(geometry.components, geometry.components), geometry.unit_distances, atol=1e-6)
    assert (np.diff(geometry.components.var(axis=0)) < 0.0).all()


def test_neighbours_are_those_of_scikit_learn(x: Floats, geometry: Geometry) -> None:
    distances, index = NearestNeighbors(n_neighbors=32).fit(x).kneighbors()
    np.testing.assert_array_equal(geometry.neighbours, index)
    np.testing.assert_array_equal(geometry.unit_neighbours, index[:, :15])
    found = geometry.unit_neighbour_distances
    np.testing.assert_allclose(found / found[0, 0], distances[:, :15] / distances[0, 0], rtol=1e-5)
    near = [set(row[:10]) for row in index.tolist()]
    mutual = {(a, b) for a in range(len(near)) for b in near[a] if a < b and a in near[b]}
    assert {tuple(pair) for pair in geometry.mutual_links.tolist()} == mutual


def test_spanning_trees_are_as_short_as_those_of_scipy(geometry: Geometry) -> None:
    for tree, distances in ((geometry.tree, geometry.distances), (geometry.unit_tree, geometry.unit_distances)):
        assert tree.lengths.sum() == pytest.approx(minimum_spanning_tree(distances).sum(), rel=1e-5)
        np.testing.assert_allclose(distances[tuple(tree.edges.T)], tree.lengths)
        assert (np.diff(tree.lengths) >= 0).all()
    cores = geometry.unit_neighbour_distances[:, 9]
    reach = np.maximum(np.maximum(geometry.unit_distances, cores), cores[:, None])
    expected = minimum_spanning_tree(reach).sum()
    assert geometry.unit_reachability_tree.lengths.sum() == pytest.approx(expected, rel=1e-2)


def test_spanning_trees_of_a_line_and_of_isolated_rows() -> None:
    geometry = Geometry(np.concatenate([normal(50, 2), [[30.0, 0.0]]]))
    tree = geometry.reachability_tree(5)
    ends = geometry.reach(5)[tree.edges].max(axis=1)
    assert np.allclose(tree.lengths, np.maximum(geometry.distances[tuple(tree.edges.T)], ends))
    points = np.array([[0.0], [10.0], [1.0], [3.0]])
    tree = spanning_tree(cdist(points, points).astype(np.float32), np.zeros(4))
    assert {tuple(sorted(edge)) for edge in tree.edges.tolist()} == {(0, 2), (2, 3), (1, 3)}
    assert sorted(tree.lengths) == [1.0, 2.0, 7.0]


def test_modes_of_a_line() -> None:
    """Cores fall to 1 and to 2 with a saddle of 8 between: the lower peak rises log 4 above it."""
    log_cores = np.log([4.0, 1.0, 8.0, 2.0, 3.0])
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4]])
    modes = Modes.find(edges, np.log([4.0, 8.0, 8.0, 3.0]), log_cores)
    assert modes.leading(2, log_cores).tolist() == [1, 3]
    np.testing.assert_allclose(modes.prominence, [0.0, np.log(4.0), 0.0, np.log(4.0), 0.0])
    assert modes.basins(1.0).tolist() == [0, 0, 0, 1, 1]
    assert modes.basins(2.0).tolist() == [0] * 5


def test_every_blob_has_a_prominent_mode() -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0], [20.0, 4.0]])
    geometry = Geometry(np.concatenate([corner + rng.normal(size=(80, 2)) for corner in corners]))
    assert (geometry.prominences > 1.5).sum() == 5
    assert set(geometry.peaks[:5] // 80) == {0, 1, 2, 3, 4}
    assert adjusted_rand_score(np.repeat(np.arange(5), 80), geometry.basins[0]) > 0.95


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_dimension_is_that_of_the_subspace(dimension: int) -> None:
    rng = np.random.default_rng(1)
    rotation = np.linalg.qr(rng.normal(size=(8, 8)))[0][:dimension]
    assert Geometry(rng.random((800, dimension)) @ rotation).dimension == pytest.approx(dimension, rel=0.25)


@pytest.mark.parametrize("x", [np.zeros((1, 2)), np.zeros(5), np.zeros((4, 0)), np.array([[0.0], [np.nan]])])
def test_rows_without_features_are_rejected(x: np.ndarray) -> None:
    with pytest.raises(InputError, match="two or more rows"):
        _ = Geometry(x).unit_rows


def test_axes_are_the_same_where_the_fast_decomposition_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(60, 5)) @ np.random.default_rng(1).normal(size=(5, 8))
    expected = views_of(x)

    def fail(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", fail)
    found = views_of(x)
    assert found.keys() == expected.keys()
    for name, rows in found.items():
        np.testing.assert_allclose(rows, expected[name], atol=1e-6)
