"""Clusters of images on the page: means, typical and borderline members."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from coterie.errors import InputError
from coterie.reporting import images
from coterie.reporting.images import BORDERLINE, MOST_BYTES, TYPICAL, Gallery, build_gallery, image_png, indexed_png
from coterie.reporting.page import render_report
from coterie.tables.table import Table, as_table
from tests.reporting.pages import GivenClusterer, KMeansClusterer, Structure, data_of, decode, page_of, points_of


def pixels_of(url: str) -> NDArray[np.uint8]:
    return np.asarray(decode(url))


def gallery_of(table: Table, k: int) -> Gallery:
    return build_gallery(data_of(KMeansClusterer(k).fit(table), table))


def two_colours(n: int = 30, side: int = 6) -> NDArray[np.uint8]:
    """Return reddish images, and half as many bluish ones, with some noise."""
    rng = np.random.default_rng(0)
    colours = np.where((np.arange(n) % 3 > 0)[:, None], [200, 40, 40], [40, 40, 200])
    noisy = colours[:, None, None, :] + rng.integers(-30, 30, (n, side, side, 3))
    return noisy.astype(np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["noise", "flat", "across", "down"])
def test_png_holds_the_pixels(kind: str, channels: int) -> None:
    levels = {
        "noise": np.random.default_rng(0).integers(0, 256, (20, 30, channels)),
        "flat": np.full((20, 30, channels), 77),
        "across": np.broadcast_to(7 * np.arange(30)[None, :, None], (20, 30, channels)),
        "down": np.broadcast_to(9 * np.arange(20)[:, None, None], (20, 30, channels)),
    }[kind]
    pixels = pixels_of(image_png(levels.astype(np.float64), 0.0, 255.0))
    np.testing.assert_array_equal(pixels.reshape(levels.shape), levels)


def test_pixels_of_an_indexed_png_have_colours_or_are_transparent() -> None:
    partly, opaque = (decode(indexed_png(np.array([[0, 1]]), [first, "#ffffff"])) for first in (None, "#102030"))
    assert np.asarray(partly.convert("RGBA"))[..., 3].tolist() == [[0, 255]]
    assert np.asarray(opaque.convert("RGB")).tolist() == [[[16, 32, 48], [255, 255, 255]]]
    assert "transparency" not in opaque.info


def test_a_page_of_images() -> None:
    digits = load_digits()
    page = page_of(as_table(digits.images), 10, truth=digits.target)
    structure = Structure(page)
    assert "heat" not in structure.ids()
    assert 'class="traits"' not in page
    for text in ("1,797 images in 10 clusters", "Map of the images", "8 × 8", "of 1,797 images are shown."):
        assert text in structure.text
    shown = [attributes for tag, attributes in structure.tags if tag == "img"]
    assert 10 * (1 + TYPICAL) < len(shown) <= 10 * (1 + TYPICAL + BORDERLINE)
    assert all(attributes["title"] == attributes["alt"] for attributes in shown)
    assert points_of(page)["columns"] == []
    assert points_of(page)["noun"] == "image"
    assert "placed by t-SNE, which compares pixels" in structure.text
    assert "pixel 0," not in structure.text.replace("'pixel 0,0', 'pixel 4,0', 'pixel 4,7'", "")  # which are constant


def test_rows_of_a_table_are_shown_as_images_of_a_given_shape() -> None:
    digits = load_digits()
    flat, whole = as_table(digits.data[:200]), as_table(digits.images[:200])
    model = KMeansClusterer(5).fit(whole)
    page = render_report(model, whole, title="", source="")
    assert render_report(model, flat, title="", source="", images=(8, 8)) == page


def test_means_are_of_the_members_and_in_colour() -> None:
    X = two_colours()
    gallery = gallery_of(as_table(X), 2)
    reds, blues = X[np.arange(30) % 3 > 0], X[np.arange(30) % 3 == 0]
    for cluster, members in zip(gallery.clusters, (reds, blues), strict=True):
        np.testing.assert_allclose(pixels_of(cluster.mean.url), members.mean(axis=0), atol=0.51)
        assert cluster.mean.title == f"Mean of {len(members)} images"


def test_images_have_the_names_of_their_files() -> None:
    X = two_colours()
    names = np.array([f"{'red' if i % 3 else 'blue'}/<{i}>.png" for i in range(30)])
    table = as_table(X)
    page = render_report(KMeansClusterer(2).fit(table), table, title="", source="", ids=names)
    titles = [a["title"] or "" for tag, a in Structure(page).tags if tag == "img"]
    first, second = (titles[: titles.index("Mean of 10 images")], titles[titles.index("Mean of 10 images") :])
    assert all(title.startswith("image red/<") for title in first[1:])
    assert all(title.startswith("image blue/<") for title in second[1:])


def test_typical_members_are_near_and_borderline_ones_have_low_memberships() -> None:
    table = as_table(load_digits().images)
    data = data_of(KMeansClusterer(10, beta=0.5).fit(table), table)
    gallery = build_gallery(data)
    for number, cluster in enumerate(gallery.clusters):
        distances = ((data.encoded - data.prototypes[number]) ** 2).sum(axis=1)
        distances[data.labels != number] = np.inf
        rows = [int(image.title.split()[1].rstrip(":")) - 1 for image in cluster.typical]
        assert rows == np.argsort(distances, kind="stable")[:TYPICAL].tolist()
        borderline = [int(image.title.split()[1].rstrip(":")) - 1 for image in cluster.borderline]
        assert (np.diff(data.own_membership[borderline]) >= 0).all()
        assert not set(rows) & set(borderline)
        for row, image in zip(borderline, cluster.borderline, strict=True):
            assert image.other == np.argsort(data.memberships[row])[-2]
    assert any(cluster.borderline for cluster in gallery.clusters)


@pytest.mark.parametrize(
    ("X", "brightest"),
    [
        (np.full((4, 2, 2), 51, dtype=np.uint8), 51),
        (np.full((4, 2, 2), 0.2), 51),
        (np.arange(16.0).reshape(4, 2, 2) * 100 - 700, 255),
        (np.ones((4, 2, 2), dtype=bool), 255),
    ],
    ids=["bytes", "fractions", "other numbers", "booleans"],
)
def test_black_and_white_depend_on_the_type_of_the_pixels(X: NDArray[Any], brightest: int) -> None:
    cluster = gallery_of(as_table(X), 1).clusters[0]
    assert max(pixels_of(image.url).max() for image in cluster.typical) == brightest


def test_missing_pixels_are_black_and_not_in_the_mean() -> None:
    X = np.ones((4, 2, 2))
    X[0, 0, 0], X[:, 1, 1], X[1, 0, 1] = np.nan, np.nan, 0.0
    cluster = gallery_of(as_table(X), 1).clusters[0]
    np.testing.assert_array_equal(pixels_of(cluster.mean.url), [[255, 191], [255, 0]])


@pytest.mark.parametrize(("side", "k", "n"), [(64, 4, 90), (100, 2, 30), (64, 60, 70)])
def test_images_stay_within_the_size_limit(side: int, k: int, n: int) -> None:
    table = as_table(np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8))
    gallery = build_gallery(data_of(GivenClusterer().fit_given(table, np.arange(n) % k), table))
    every = [image for c in gallery.clusters for image in (c.mean, *c.typical, *c.borderline)]
    assert sum(len(image.url) for image in every) <= MOST_BYTES
    assert max(pixels_of(every[0].url).shape) <= 64
    assert all(cluster.typical for cluster in gallery.clusters)
    shown = len(every) - k
    assert gallery.shown == ("All 70 images are shown." if shown == 70 else f"{shown} of {n} images are shown.")


def test_large_images_are_reduced_and_clusters_get_equal_room(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.zeros((3, 130, 65), dtype=np.uint8)
    X[:, ::3] = 240
    mean = pixels_of(gallery_of(as_table(X), 1).clusters[0].mean.url)
    assert mean.shape == (44, 22)
    np.testing.assert_array_equal(mean[:-1], 80)
    np.testing.assert_array_equal(mean[-1], 240)
    monkeypatch.setattr(images, "MOST_BYTES", 3_000)
    numbers = [len(cluster.typical) for cluster in gallery_of(as_table(two_colours(60)), 2).clusters]
    assert 0 < numbers[0] == numbers[1] < TYPICAL


def test_one_image_and_equal_images() -> None:
    for X in (two_colours(1), np.repeat(two_colours(1), 5, axis=0)):
        text = Structure(page_of(as_table(X), 1)).text
        assert "in one cluster" in text
        assert f"all {len(X)} shown" in text


def test_only_numbers_can_be_shown_as_images() -> None:
    table = Table(("a", "b"), (np.arange(6.0), np.array(list("xyxyxy"), dtype=object)))
    with pytest.raises(InputError, match="columns of numbers"):
        page_of(replace(table, image=(1, 2, 1)), 2)
    with pytest.raises(InputError, match="no images to show"):
        gallery_of(table, 2)
