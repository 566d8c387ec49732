"""The report page: self-contained, safe, small, and available for data of every shape."""

import json
import re
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_blobs

from coterie import TCC
from coterie.errors import InputError
from coterie.reporting.formatting import cluster_colours
from coterie.reporting.page import render_report
from coterie.reporting.sections import axis_over, training_curve
from coterie.tables.table import Table, as_table
from tests.reporting.pages import KMeansClusterer, Structure, decode, page_of, points_of, wine


def test_page_has_every_section() -> None:
    page = page_of(wine(), 3, truth=load_wine().target, seconds=1.5)
    structure = Structure(page)
    sections = {
        "map",
        "sizes",
        "clusters",
        "cluster-0",
        "cluster-2",
        "distributions",
        "heat",
        "certainty",
        "truth",
        "how",
    }
    assert sections <= structure.ids()
    for text in (
        *("178 rows in 3 clusters", "Silhouettes: 0.", "adjusted Rand index", "took 1.5 seconds"),
        *("All 178 rows are shown.", "10 of 12 runs are shown.", "beta=3.0 n_clusters=3"),
    ):
        assert text in structure.text
    assert "callback" not in structure.text
    assert len(points_of(page)["id"]) == 178


def test_clusters_are_numbered_as_in_the_labels() -> None:
    page = page_of(wine(), 3, truth=load_wine().target)
    assert set(re.findall(r'<span class="swatch k(\d+)">(\d+)</span>', page)) == {("0", "0"), ("1", "1"), ("2", "2")}
    assert re.findall(r'<span class="prototype k\d+"[^>]*>(\d+)</span>', page) == ["0", "1", "2"]
    assert re.findall(r"<title>Cluster (\d+):", page) == ["0", "1", "2"]
    assert re.findall(r'class="tick beside k\d+ named"[^>]*>(\d+)<', page) == ["0", "1", "2"]
    assert "cluster ${cluster}," in page


def test_the_page_is_self_contained_and_reproducible() -> None:
    page = page_of(wine(), 3)
    addresses = [a[name] or "" for _, a in Structure(page).tags for name in ("src", "href") if name in a]
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in addresses)
    assert not [text for text in ("://", "@import", "url(") if text in page]
    assert page_of(wine(), 3) == page_of(wine(), 3)


def test_names_and_values_cannot_become_markup() -> None:
    evil = "<script>alert('x')</script>"
    closing = "</script><img src=x onerror=alert(1)>"
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 20)
    names = (evil, closing, '"onmouseover="alert(1)')
    texts = np.array([evil, closing], dtype=object)[group]
    table = Table(names, (rng.normal(5.0 * group, 1), texts, rng.normal(3.0 * group, 1)), notes=(evil,))
    page = render_report(
        KMeansClusterer(2).fit(table),
        table,
        title=evil,
        source=closing,
        ids=np.array([f"{closing}{i}" for i in range(40)]),
        truth=np.array([evil, closing])[group],
    )
    structure = Structure(page)
    assert sum(tag == "script" for tag, _ in structure.tags) == 2
    assert not [tag for tag, attributes in structure.tags if {"onerror", "onmouseover"} & set(attributes)]
    assert all(attributes.get("src") != "x" for _, attributes in structure.tags)
    assert evil in structure.text
    points = points_of(page)
    assert any(closing in text for text in points["id"])
    assert {column["full"] for column in points["columns"]} == set(names)


def test_characters_that_turn_the_direction_of_words_are_removed() -> None:
    turned = "a\u202egnp.\u2066x"
    table = Table((turned, "b"), (np.array([1.0, 2.0, 9.0, 9.5]), np.array([turned, "x", "y", "y"], dtype=object)))
    page = page_of(table, 2, ids=np.array([f"{turned}{i}" for i in range(4)]), truth=np.array([turned] * 4))
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page)
    assert points_of(page)["columns"][0]["full"] in {turned, "b"}  # as JSON escapes, which a download needs


def test_two_columns_are_plotted_with_the_regions_of_clusters() -> None:
    X, _ = make_blobs(120, centers=3, random_state=0)
    page = page_of(Table(("width", "height"), block=X), 3)
    structure = Structure(page)
    assert "basins of attraction" in structure.text
    assert "width →" in structure.text
    regions = next(a for tag, a in structure.tags if tag == "img" and a.get("class") == "regions")
    assert decode(regions["src"]).size == (280, 174)


def test_constant_columns_and_equal_embeddings_still_give_a_map() -> None:
    X, _ = make_blobs(60, centers=2, random_state=0)
    structure = Structure(page_of(as_table(np.column_stack([X, np.ones(60)])), 2))
    assert "principal components" in structure.text
    table = as_table(np.ones((12, 3)) + 1e-9 * np.arange(12.0).reshape(-1, 1))
    model = TCC(2, epochs=1, channels=4, random_state=0).fit(as_table(np.arange(36.0).reshape(12, 3)))
    assert "t-SNE" in render_report(model, table, title="rows", source="rows")


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "text"),
    [(12, 3, "compares the embeddings"), (9, 3, "principal components"), (12, 2, "a row at its two values")],
)
def test_embeddings_place_rows_unless_there_are_few_rows_or_columns(n_rows: int, n_columns: int, text: str) -> None:
    table = as_table(np.arange(float(n_rows * n_columns)).reshape(n_rows, n_columns) ** 2)
    model = TCC(2, epochs=1, channels=4, random_state=0).fit(table)
    structure = Structure(render_report(model, table, title="rows", source="rows"))
    assert text in structure.text


def test_sampling_is_stated_and_the_page_stays_small() -> None:
    X, _ = make_blobs(100_000, centers=4, n_features=6, random_state=0)
    page = page_of(as_table(X), 4)
    assert len(page.encode()) < 2_000_000
    text = Structure(page).text
    assert "A random sample of 5,000 of 100,000 rows is shown." in text
    assert "A random sample of 2,000 of 100,000 rows is shown." in text
    points = points_of(page)
    each = [points["x"], points["membership"], *(column["values"] for column in points["columns"])]
    assert [len(values) for values in each] == [5_000] * 8


@pytest.mark.parametrize(
    ("X", "k"),
    [
        (np.array([[1.0, 2.0]]), 1),
        (np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), 2),
        (np.array([[1.0], [2.0]]), 2),
        (np.ones((5, 3)), 1),
        (np.linspace(0, 1, 30)[:, None], 3),
        (np.random.default_rng(0).normal(size=(50, 4)), 1),
        (np.random.default_rng(0).normal(size=(50, 2)), 1),
        (np.random.default_rng(0).normal(size=(40, 4)), 40),
        (np.random.default_rng(0).normal(size=(300, 800)), 12),
        (np.random.default_rng(0).normal(size=(50, 3)) * 1e30, 2),
        (np.random.default_rng(0).normal(size=(50, 3)) * 1e-30, 2),
    ],
    ids=["one-row", "two-rows", "two-values", "equal", "one-column", "one-cluster", "one-region", "singletons",
         "wide", "huge", "tiny"],
)  # fmt: skip
def test_every_shape_gives_a_page(X: np.ndarray[Any, Any], k: int) -> None:
    page = page_of(as_table(X), k)
    structure = Structure(page)
    assert f"cluster-{k - 1}" in structure.ids()
    assert "nan" not in re.sub(r"[a-z]+nan|nan[a-z]+", "", structure.text.lower())
    assert "NaN" not in json.dumps(points_of(page))


def test_wide_tables_show_the_best_columns() -> None:
    X, _ = make_blobs(90, centers=3, n_features=800, random_state=0)
    text = Structure(page_of(as_table(X), 3)).text
    assert "The 16 columns and levels that separate the clusters best are shown, of 800." in text


def test_mixed_table_with_missing_values() -> None:
    rng = np.random.default_rng(1)
    group = np.arange(90) % 3
    income = rng.normal(1000.0 * group, 100)
    income[:5] = np.nan
    job = np.array(["nurse", "cook", "pilot"], dtype=object)[group]
    job[5:9] = None
    since = np.datetime64("2020-01-01", "us") + (group * 100).astype("timedelta64[D]")
    table = Table(("income", "job", "since", "owner"), (income, job, since, group == 1))
    text = Structure(page_of(table, 3)).text
    assert "job = pilot" in text
    assert "missing" in text
    assert "Missing values, filled with the median" in text


def test_infinite_values_and_a_table_without_names() -> None:
    X, _ = make_blobs(60, centers=2, random_state=0)
    X[0, 0], X[1, 1] = np.inf, np.nan
    named, unnamed = Table(("width", "height"), block=X), as_table(X)
    model = KMeansClusterer(2).fit(named)
    pages = [render_report(model, table, title="", source="") for table in (named, unnamed)]
    assert pages[0] == pages[1]
    values = {column["full"]: column["values"] for column in points_of(pages[0])["columns"]}
    assert values["width"].count("∞") == values["height"].count(None) == 1


def test_only_the_largest_classes_are_shown() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    text = Structure(page_of(as_table(X), 2, truth=np.arange(120) % 60)).text
    assert "The 40 largest of 60 classes are shown." in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ids": np.arange(3)}, r"ids has shape \(3,\), but there are 178 rows"),
        ({"truth": np.zeros((178, 2))}, r"truth has shape \(178, 2\)"),
        ({"images": (4, 4)}, "16 pixels"),
    ],
)
def test_arguments_must_match_the_rows(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        page_of(wine(), 3, **more)


def test_another_table_is_rejected() -> None:
    model = KMeansClusterer(3).fit(wine())
    fewer = Table(wine().names, block=load_wine().data[:50])
    with pytest.raises(InputError, match="50 rows, but the model was fitted on 178"):
        render_report(model, fewer, title="", source="")


def test_colours_axes_and_curves() -> None:
    colours = cluster_colours(40)
    assert len({colour.light for colour in colours}) == len({colour.dark for colour in colours}) == 40
    assert all(re.fullmatch("#[0-9a-f]{6}", code) for c in colours for code in (c.light, c.dark))
    axis = axis_over(-0.3, 1.0)
    assert [text for _, text in axis.ticks] == ["0", "0.5", "1.0"]
    assert all(0 <= at <= 100 for at, _ in axis.ticks)
    assert [text for _, text in axis_over(1000.0, 1001.0).ticks][:2] == ["1,000.0", "1,000.2"]
    assert [text for _, text in axis_over(0.0, 4e-30).ticks][1] == "1.00e−30"
    curves = [training_curve(losses) for losses in ([100.0, 10.0, 1.0], [3.0, 2.5, 2.0], [1.0, 1.0], [])]
    assert [curve and curve["y"].title for curve in curves] == ["loss (logarithmic)", "loss", "loss", None]
