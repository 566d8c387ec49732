"""Which map is drawn, and where its points are."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import make_blobs
from sklearn.neighbors import NearestNeighbors

from coterie import Coterie
from coterie.base import BaseClusterer, FitDescription
from coterie.reporting.formatting import cluster_colours
from coterie.reporting.page import render_report
from coterie.reporting.projection import HEIGHT, TSNE_ROWS, WIDTH, Map, build_map, find_coordinates
from coterie.tables.table import Table, as_table
from tests.reporting.pages import GivenClusterer, KMeansClusterer, Structure, data_of, decode, points_of


def map_of(table: Table, labels: Any, **more: Any) -> Map:
    model = GivenClusterer().fit_given(table, labels)
    return map_with(model, table, FitDescription(**more))


def map_with(model: BaseClusterer, table: Table, description: FitDescription) -> Map:
    data = data_of(model, table)
    return build_map(data, model, description, cluster_colours(data.n_clusters))


def agreement_with_neighbours(points: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Return the fraction of points whose nearest other point has the same label."""
    nearest = NearestNeighbors(n_neighbors=2).fit(points).kneighbors(return_distance=False)[:, 0]
    return float((labels[nearest] == labels).mean())


def test_wide_tables_keep_near_what_is_near() -> None:
    X, y = make_blobs(400, centers=8, n_features=40, cluster_std=3.0, random_state=0)
    found = map_of(as_table(X), y)
    assert "t-SNE, which compares all columns" in found.explanation
    assert (found.x.title, found.name) == ("", "similarity (t-SNE)")
    assert agreement_with_neighbours(found.points, y[found.rows]) > 0.97
    assert (found.points >= 0).all()
    assert (found.points <= [WIDTH, HEIGHT]).all()
    for cluster, at in enumerate(found.labels):
        assert at == pytest.approx(np.median(found.points[y[found.rows] == cluster], axis=0))


def test_wide_tables_of_two_dimensions_and_narrow_ones_have_principal_components() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 30))
    assert "principal components" in map_of(as_table(flat), np.arange(200) % 2).explanation
    narrow = rng.normal(size=(200, 12))
    assert "principal components" in map_of(as_table(narrow), np.arange(200) % 2).explanation
    assert "t-SNE" in map_of(as_table(rng.normal(size=(200, 13))), np.arange(200) % 2).explanation


def test_embeddings_are_placed_by_direction() -> None:
    X, y = make_blobs(300, centers=5, n_features=8, center_box=(-1, 1), cluster_std=0.1, random_state=1)
    lengths = np.random.default_rng(0).uniform(1, 50, len(X))
    found = map_of(as_table(X * lengths[:, None]), y, columns_meaningful=False)
    assert "t-SNE, which compares directions of rows" in found.explanation
    assert agreement_with_neighbours(found.points, y[found.rows]) > 0.95


def test_rows_beyond_the_sample_are_beside_similar_ones() -> None:
    n = TSNE_ROWS + 700
    X, y = make_blobs(n, centers=4, n_features=20, cluster_std=2.0, random_state=0)
    X[-5:] = X[0]
    found = map_of(as_table(X), y)
    assert len(found.points) == n
    assert agreement_with_neighbours(found.points, y[found.rows]) > 0.97


def test_equal_rows_and_few_rows_are_placed() -> None:
    assert "coincide" in map_of(as_table(np.ones((30, 20))), np.arange(30) % 2, columns_meaningful=False).explanation
    few = np.random.default_rng(0).normal(size=(9, 20))
    assert "principal components" in map_of(as_table(few), np.arange(9) % 2).explanation


def places() -> tuple[Table, NDArray[np.int64]]:
    """Return two groups of places: the second is 20 degrees further east and 3 degrees further north."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    columns = (60.0 + 3 * y + rng.normal(0, 0.1, 200), 5.0 + 20 * y + rng.normal(0, 0.1, 200))
    return Table(("lat", "lon"), columns), y


def test_coordinates_are_drawn_with_north_up_and_true_proportions() -> None:
    table, _ = places()
    model = KMeansClusterer(2).fit(table)
    y = (table.columns[0] > 61.5).astype(int)
    found = map_with(model, table, FitDescription())
    north = found.points[y[found.rows] == 1].mean(axis=0)
    south = found.points[y[found.rows] == 0].mean(axis=0)
    assert north[0] > south[0]  # the second group is further east,
    assert north[1] < south[1]  # and further north: y points down
    assert (found.x.title, found.y.title) == ("lon", "lat")
    east, up = abs(north - south)
    assert (east / 20) / (up / 3) == pytest.approx(np.cos(np.radians(61.5)), abs=0.01)


def test_regions_on_a_geographic_map_fit_the_points() -> None:
    table, _ = places()
    page = render_report(KMeansClusterer(2).fit(table), table, title="", source="")
    regions = next(a["src"] for tag, a in Structure(page).tags if tag == "img" and a.get("class") == "regions")
    image = np.asarray(decode(regions).convert("RGB"))
    points = points_of(page)
    colours: dict[int, set[tuple[int, ...]]] = {0: set(), 1: set()}
    for x, y, cluster in zip(points["x"], points["y"], points["cluster"], strict=True):
        row, column = int(y / HEIGHT * len(image)), int(x / WIDTH * image.shape[1])
        colours[cluster].add(tuple(image[row, column].tolist()))
    assert [len(found) for found in colours.values()] == [1, 1]
    assert colours[0] != colours[1]


@pytest.mark.parametrize(
    ("names", "positions"),
    [
        (("lat", "lon"), (1, 0)),
        (("Longitude", "Latitude"), (0, 1)),
        (("lng", " LAT "), (0, 1)),
        (("x", "lat"), None),
        (("flat", "lon"), None),
        (("lat", "latitude"), None),
    ],
)
def test_coordinates_are_found_by_their_names(names: tuple[str, ...], positions: tuple[int, int] | None) -> None:
    table = Table(names, (np.array([10.0, 20.0, np.nan]), np.array([-30.0, 40.0, 50.0])))
    assert find_coordinates(table) == positions


def test_coordinates_are_found_by_their_values() -> None:
    lat, lon = np.array([10.0, 91.0]), np.array([0.0, 181.0])
    assert find_coordinates(Table(("lat", "lon"), (lat, np.array([0.0, 180.0])))) is None
    assert find_coordinates(Table(("lat", "lon"), (lat[:1], lon[1:]))) is None
    assert find_coordinates(Table(("lat", "lon"), (np.full(2, np.nan), lon[:1].repeat(2)))) is None
    texts = np.array(["a", "b"], dtype=object)
    assert find_coordinates(Table(("lat", "lon"), (texts, np.zeros(2)))) is None
    wide = Table(("lat", "lon", "a", "b", "c"), tuple(np.zeros((5, 2))))
    assert find_coordinates(wide) is None


def test_places_without_a_position_are_in_the_middle() -> None:
    table, _ = places()
    lat = table.columns[0].copy()
    lat[:3] = np.nan
    gaps = Table(("lat", "lon"), (lat, table.columns[1]))
    found = map_with(KMeansClusterer(2).fit(gaps), gaps, FitDescription())
    assert "Of 3 rows the position is unknown" in found.explanation
    assert np.isfinite(found.points).all()


def test_trained_prototypes_are_where_they_are_and_other_labels_in_the_middle() -> None:
    X, y = make_blobs(90, centers=3, n_features=4, random_state=0)
    table = as_table(X)
    assert map_of(table, y).label_meaning == "in its middle"
    model = KMeansClusterer(3).fit(table)
    assert map_with(model, table, model.describe_fit(table)).label_meaning == "at its trained prototype"


def test_a_cluster_without_rows_on_the_map_has_no_label() -> None:
    X, _ = make_blobs(40, centers=2, n_features=3, random_state=0)
    model = GivenClusterer().fit_given(as_table(X), [0] * 20 + [2] * 20, np.eye(3)[[0] * 20 + [2] * 20])
    found = map_with(model, as_table(X), FitDescription())
    assert np.isnan(found.labels[1]).all()
    page = render_report(model, as_table(X), title="", source="")
    assert points_of(page)["labels"][1] is None


def test_the_default_draws_embeddings_without_torch() -> None:
    X, _ = make_blobs(300, centers=4, n_features=64, random_state=0)
    table = as_table(X)
    model = Coterie(metric="cosine", effort="fast", random_state=0).fit(table)
    page = render_report(model, table, title="", source="")
    assert "t-SNE, which compares directions of rows" in Structure(page).text
    assert points_of(page)["columns"] == []
