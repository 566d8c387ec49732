"""Clusters of images on the page: means, typical and doubtful members."""

import io
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from coterie.errors import InputError
from coterie.report import images as pictures
from coterie.report.findings import gather
from coterie.report.images import DOUBTFUL, MOST_BYTES, TYPICAL, Pictures, draw_pictures, image_png
from coterie.report.page import render_report
from coterie.tables.table import Table, as_table
from tests.report.test_report import FakeClusterer, Structure, page_of, points_of


def decoded(address: str) -> NDArray[np.uint8]:
    kind, _, data = address.partition(",")
    assert kind == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(b64decode(data))))


def drawn(table: Table, k: int, ids: NDArray[Any] | None = None) -> Pictures:
    return draw_pictures(gather(FakeClusterer(k).fit(table), table, ids))


def two_colours(n: int = 30, side: int = 6) -> NDArray[np.uint8]:
    """Reddish images, and half as many bluish ones, with some noise."""
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
    image = decoded(image_png(levels.astype(np.float64), 0.0, 255.0))
    np.testing.assert_array_equal(image.reshape(levels.shape), levels)


def test_a_page_of_images() -> None:
    digits = load_digits()
    page = page_of(as_table(digits.images), 10, truth=digits.target)
    structure = Structure(page)
    assert "heat" not in structure.ids()
    assert 'class="traits"' not in page
    for words in ("1,797 images fell into 10 clusters", "The images on a map", "8 × 8", "of 1,797 images are shown."):
        assert words in structure.text
    shown = [attributes for tag, attributes in structure.tags if tag == "img"]
    assert 10 * (1 + TYPICAL) < len(shown) <= 10 * (1 + TYPICAL + DOUBTFUL)
    assert all(attributes["title"] == attributes["alt"] for attributes in shown)
    assert "pixel" not in " ".join(points_of(page)["columns"])
    assert points_of(page)["noun"] == "image"
    assert "Axis 1" in structure.text
    assert "pixel 0," not in structure.text.replace("'pixel 0,0', 'pixel 4,0', 'pixel 4,7'", "")  # which are constant


def test_rows_of_a_table_are_drawn_when_told_their_shape() -> None:
    digits = load_digits()
    flat, whole = as_table(digits.data[:200]), as_table(digits.images[:200])
    model = FakeClusterer(5).fit(whole)
    assert render_report(model, flat, title="", source="", images=(8, 8)) == render_report(
        model, whole, title="", source=""
    )


def test_means_are_of_the_members_and_in_colour() -> None:
    X = two_colours()
    found = drawn(as_table(X), 2)
    reds, blues = X[np.arange(30) % 3 > 0], X[np.arange(30) % 3 == 0]
    for sheet, members in zip(found.sheets, (reds, blues), strict=True):
        np.testing.assert_allclose(decoded(sheet.mean.address), members.mean(axis=0), atol=0.51)
        assert sheet.mean.title == f"Mean of {len(members)} images"


def test_names_of_the_files_are_told() -> None:
    X = two_colours()
    names = np.array([f"{'red' if i % 3 else 'blue'}/<{i}>.png" for i in range(30)])
    table = as_table(X)
    page = render_report(FakeClusterer(2).fit(table), table, title="", source="", ids=names)
    titles = [a["title"] or "" for tag, a in Structure(page).tags if tag == "img"]
    first, second = (titles[: titles.index("Mean of 10 images")], titles[titles.index("Mean of 10 images") :])
    assert all(title.startswith("image red/<") for title in first[1:])
    assert all(title.startswith("image blue/<") for title in second[1:])


def test_typical_members_come_first_and_doubtful_ones_say_where_else() -> None:
    table = as_table(load_digits().images)
    found = gather(FakeClusterer(10, beta=0.5).fit(table), table, None)
    sheets = draw_pictures(found).sheets
    for cluster, sheet in enumerate(sheets):
        distances = ((found.encoded - found.prototypes[cluster]) ** 2).sum(axis=1)
        distances[found.labels != cluster] = np.inf
        rows = [int(picture.title.split()[1].rstrip(":")) - 1 for picture in sheet.typical]
        assert rows == np.argsort(distances, kind="stable")[:TYPICAL].tolist()
        doubted = [int(picture.title.split()[1].rstrip(":")) - 1 for picture in sheet.doubtful]
        own = found.top_membership[doubted]
        assert (np.diff(own) >= 0).all()
        assert not set(rows) & set(doubted)
        for row, picture in zip(doubted, sheet.doubtful, strict=True):
            assert picture.other == np.argsort(found.memberships[row])[-2]
    assert any(sheet.doubtful for sheet in sheets)


@pytest.mark.parametrize(
    ("X", "brightest"),
    [
        (np.full((4, 2, 2), 51, dtype=np.uint8), 51),
        (np.full((4, 2, 2), 0.2), 51),
        (np.arange(16.0).reshape(4, 2, 2) * 100 - 700, 255),
        (np.ones((4, 2, 2), dtype=bool), 255),
    ],
    ids=["bytes", "fractions", "any", "truth"],
)
def test_black_and_white_are_what_the_kind_of_number_says(X: NDArray[Any], brightest: int) -> None:
    sheet = drawn(as_table(X), 1).sheets[0]
    assert max(decoded(picture.address).max() for picture in sheet.typical) == brightest


def test_gaps_are_black_and_count_in_no_mean() -> None:
    X = np.ones((4, 2, 2))
    X[0, 0, 0], X[:, 1, 1], X[1, 0, 1] = np.nan, np.nan, 0.0
    sheet = drawn(as_table(X), 1).sheets[0]
    np.testing.assert_array_equal(decoded(sheet.mean.address), [[255, 191], [255, 0]])


@pytest.mark.parametrize(("side", "k", "n"), [(64, 4, 90), (100, 2, 30), (64, 60, 70)])
def test_pictures_stay_within_bounds(side: int, k: int, n: int) -> None:
    X = np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    table = as_table(X)
    labels = np.arange(n) % k
    model = FakeClusterer(1).fit(table)
    model.n_clusters, model.labels_ = k, labels
    model.probabilities_ = np.eye(k, dtype=np.float32)[labels]
    model.prototypes_ = np.repeat(model.prototypes_, k, axis=0)
    found = draw_pictures(gather(model, table, None))
    every = [picture for s in found.sheets for picture in (s.mean, *s.typical, *s.doubtful)]
    assert sum(len(picture.address) for picture in every) <= MOST_BYTES
    assert max(decoded(every[0].address).shape) <= 64
    assert all(sheet.typical for sheet in found.sheets)
    shown = len(every) - k
    assert found.shown == ("All 70 images are shown." if shown == 70 else f"{shown} of {n} images are shown.")


def test_room_is_shared_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST_BYTES", 3_000)
    sheets = drawn(as_table(two_colours(60)), 2).sheets
    numbers = [len(sheet.typical) for sheet in sheets]
    assert 0 < numbers[0] == numbers[1] < TYPICAL


def test_shrinking_averages_neighbours() -> None:
    X = np.zeros((3, 130, 65), dtype=np.uint8)
    X[:, ::3] = 240
    mean = decoded(drawn(as_table(X), 1).sheets[0].mean.address)
    assert mean.shape == (44, 22)
    np.testing.assert_array_equal(mean[:-1], 80)
    np.testing.assert_array_equal(mean[-1], 240)


def test_one_image_and_equal_images() -> None:
    for X in (two_colours(1), np.repeat(two_colours(1), 5, axis=0)):
        table = as_table(X)
        text = Structure(page_of(table, 1)).text
        assert "fell into one cluster" in text
        assert f"all {len(X)} shown" in text


def test_what_is_no_number_cannot_be_drawn() -> None:
    table = Table(("a", "b"), (np.arange(6.0), np.array(list("xyxyxy"), dtype=object)))
    with pytest.raises(InputError, match="columns of numbers"):
        page_of(replace(table, image=(1, 2, 1)), 2)
    with pytest.raises(InputError, match="no images to draw"):
        drawn(table, 2)
