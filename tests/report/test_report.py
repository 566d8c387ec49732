"""The report page: complete in itself, safe, small, and drawn for every shape of data."""

import json
import re
import struct
import zlib
from base64 import b64decode
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine, make_blobs

from coterie import TCC
from coterie.errors import InputError
from coterie.report.formatting import cluster_colours
from coterie.report.images import image_png, indexed_png
from coterie.report.page import render_report
from coterie.report.sections import axis_over, training_curve
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import Table, as_table

_VOID = {"meta", "img", "wbr", "br", "link", "input"}


@dataclass
class FakeClusterer:
    """A fitted clusterer made by k-means, so that the report can be tested without training anything."""

    n_clusters: int
    beta: float = 3.0
    labels_: NDArray[np.int64] = field(init=False)
    probabilities_: NDArray[np.float32] = field(init=False)
    prototypes_: NDArray[np.float32] = field(init=False)
    table_: TableEncoder = field(init=False)
    history_: dict[str, list[float]] = field(init=False)
    notes_: tuple[str, ...] = ("three runs were tried",)
    runs_: list[dict[str, Any]] = field(init=False)

    @property
    def n_clusters_(self) -> int:
        return self.n_clusters

    def fit(self, table: Table) -> "FakeClusterer":
        self.table_ = TableEncoder("standard").fit(table)
        Z = self.table_.transform(table)
        centres = KMeans(self.n_clusters, n_init=1, random_state=0, max_iter=30).fit(Z).cluster_centers_
        sizes = np.bincount(self._memberships(Z, centres).argmax(axis=1), minlength=self.n_clusters)
        self.prototypes_ = centres[np.argsort(-sizes, kind="stable")].astype(np.float32)
        self.probabilities_ = self._memberships(Z, self.prototypes_)
        self.labels_ = self.probabilities_.argmax(axis=1).astype(np.int64)
        self.history_ = {"loss": [float(5 * np.exp(-t / 12) + 0.1) for t in range(60)]}
        self.runs_ = [
            {
                "n_clusters": self.n_clusters,
                "beta": b,
                "loss": 0.5 / b,
                "silhouette": 0.1 * b,
                "start": "sample",
                "chosen": b == 3,
            }
            for b in range(1, 13)
        ]
        return self

    def _memberships(self, Z: NDArray[np.float32], centres: NDArray[Any]) -> NDArray[np.float32]:
        squared = np.stack([((Z - centre) ** 2).sum(axis=1) for centre in centres], axis=1)
        weights = np.exp(-self.beta / Z.shape[1] * (squared - squared.min(axis=1, keepdims=True)))
        memberships: NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
        return memberships

    def get_params(self) -> dict[str, Any]:
        return {"n_clusters": self.n_clusters, "beta": self.beta, "on_progress": self.fit}

    def predict(self, table: Table) -> NDArray[np.int64]:
        memberships = self._memberships(self.table_.transform(table), self.prototypes_)
        return np.asarray(np.argmax(memberships, axis=1), dtype=np.int64)


class Structure(HTMLParser):
    """Checks that tags close in order, and collects tags, ids and texts."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"script", "style"}:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    def ids(self) -> set[str | None]:
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


def page_of(table: Table, k: int, **more: Any) -> str:
    return render_report(FakeClusterer(k).fit(table), table, title="A title", source="a file", **more)


def points_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="points">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found.group(1))
    return loaded


def wine() -> Table:
    data = load_wine()
    return Table(tuple(data.feature_names), block=data.data)


def test_wine_has_every_part() -> None:
    page = page_of(wine(), 3, truth=load_wine().target, seconds=1.5)
    structure = Structure(page)
    parts = {"map", "sizes", "clusters", "cluster-0", "cluster-2", "heat", "certainty", "truth", "how"}
    assert parts <= structure.ids()
    for words in (
        "178 rows fell into 3 clusters",
        "mean silhouette",
        "adjusted Rand index",
        "took 1.5 seconds",
    ):
        assert words in structure.text
    assert "All 178 rows are drawn." in structure.text
    assert "10 of 12 runs are shown." in structure.text
    assert "beta=3.0 n_clusters=3" in structure.text
    assert "on_progress" not in structure.text
    assert len(points_of(page)["points"]) == 178


def test_clusters_are_numbered_as_in_the_labels() -> None:
    page = page_of(wine(), 3, truth=load_wine().target)
    assert set(re.findall(r'<span class="swatch k(\d+)">(\d+)</span>', page)) == {("0", "0"), ("1", "1"), ("2", "2")}
    assert re.findall(r'<span class="prototype k\d+"[^>]*>(\d+)</span>', page) == ["0", "1", "2"]
    assert re.findall(r"<title>Cluster (\d+):", page) == ["0", "1", "2"]
    assert re.findall(r'class="tick beside k\d+ named"[^>]*>(\d+)<', page) == ["0", "1", "2"]
    assert "cluster ${cluster}," in page


def test_page_is_complete_in_itself() -> None:
    page = page_of(wine(), 3)
    addresses = [
        value
        for _, attributes in Structure(page).tags
        for name, value in attributes.items()
        if name in {"src", "href"} and value is not None
    ]
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in addresses)
    assert "://" not in page
    assert "@import" not in page
    assert "url(" not in page


def test_same_input_gives_the_same_page() -> None:
    assert page_of(wine(), 3) == page_of(wine(), 3)


def test_names_and_values_cannot_become_markup() -> None:
    evil = "<script>alert('x')</script>"
    closing = "</script><img src=x onerror=alert(1)>"
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 20)
    table = Table(
        (evil, closing, '"onmouseover="alert(1)'),
        (
            rng.normal(5.0 * group, 1),
            np.array([evil, closing], dtype=object)[group],
            rng.normal(3.0 * group, 1),
        ),
        notes=(evil,),
    )
    page = render_report(
        FakeClusterer(2).fit(table),
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
    assert any(closing[:9] in point[4] for point in points_of(page)["points"])


def test_a_plane_shows_its_own_values_and_the_basins() -> None:
    X, _ = make_blobs(120, centers=3, random_state=0)
    page = page_of(Table(("width", "height"), block=X), 3)
    structure = Structure(page)
    assert "basins of attraction" in structure.text
    assert "width →" in structure.text
    basins = next(a for tag, a in structure.tags if tag == "img" and a.get("class") == "basins")
    source = basins["src"]
    assert source is not None
    assert struct.unpack(">II", b64decode(source.partition(",")[2])[16:24]) == (280, 174)


def test_a_constant_third_column_still_gives_a_map() -> None:
    X, _ = make_blobs(60, centers=2, random_state=0)
    structure = Structure(page_of(as_table(np.column_stack([X, np.ones(60)])), 2))
    assert "principal axes" in structure.text


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "words"),
    [(12, 3, "what the network learned to see in it (t-SNE)"), (9, 3, "principal axes"), (12, 2, "its own two values")],
)
def test_what_a_network_learned_says_where_rows_are_unless_few_rows_or_columns_do(
    n_rows: int, n_columns: int, words: str
) -> None:
    table = as_table(np.arange(float(n_rows * n_columns)).reshape(n_rows, n_columns) ** 2)
    model = TCC(2, epochs=1, channels=4, random_state=0).fit(table)
    structure = Structure(render_report(model, table, title="rows", source="rows"))
    assert words in structure.text


def test_rows_that_the_network_cannot_tell_apart_still_give_a_map() -> None:
    table = as_table(np.ones((12, 3)) + 1e-9 * np.arange(12.0).reshape(-1, 1))
    model = TCC(2, epochs=1, channels=4, random_state=0).fit(as_table(np.arange(36.0).reshape(12, 3)))
    assert "t-SNE" in render_report(model, table, title="rows", source="rows")


def test_thinning_is_stated_and_the_page_stays_small() -> None:
    X, _ = make_blobs(100_000, centers=4, n_features=6, random_state=0)
    page = page_of(as_table(X), 4)
    assert len(page.encode()) < 2_000_000
    text = Structure(page).text
    assert "5,000 of 100,000 rows are drawn, picked at random." in text
    assert "4,000 of 100,000 rows are measured, picked at random." in text
    assert len(points_of(page)["points"]) == 5_000


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
    ids=["one-row", "two-rows", "two-values", "equal", "one-column", "one-cluster", "one-basin", "all-alone",
         "wide", "huge", "minute"],
)  # fmt: skip
def test_every_shape_gives_a_page(X: np.ndarray[Any, Any], k: int) -> None:
    page = page_of(as_table(X), k)
    structure = Structure(page)
    assert f"cluster-{k - 1}" in structure.ids()
    assert "nan" not in re.sub(r"[a-z]+nan|nan[a-z]+", "", structure.text.lower())
    assert "NaN" not in json.dumps(points_of(page))


def test_wide_tables_say_which_columns_are_shown() -> None:
    X, _ = make_blobs(90, centers=3, n_features=800, random_state=0)
    assert "Of 800 columns and levels, the 16 that tell" in Structure(page_of(as_table(X), 3)).text


def test_mixed_table_with_gaps() -> None:
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
    assert "5 of 90 values are missing" in text


def test_infinite_values_and_a_table_without_names() -> None:
    X, _ = make_blobs(60, centers=2, random_state=0)
    X[0, 0], X[1, 1] = np.inf, np.nan
    named, unnamed = Table(("width", "height"), block=X), as_table(X)
    model = FakeClusterer(2).fit(named)
    pages = [render_report(model, table, title="", source="") for table in (named, unnamed)]
    assert pages[0] == pages[1]
    assert "∞" in json.dumps(points_of(pages[0]), ensure_ascii=False)


def test_many_classes_are_cut_and_stated() -> None:
    X = np.random.default_rng(0).normal(size=(120, 3))
    text = Structure(page_of(as_table(X), 2, truth=np.arange(120) % 60)).text
    assert "The 40 largest of 60 classes are shown." in text


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ids": np.arange(3)}, r"`ids` has shape \(3,\) for 178 rows"),
        ({"truth": np.zeros((178, 2))}, r"`truth` has shape \(178, 2\)"),
        ({"images": (4, 4)}, "16 pixels, but the table has 13 columns"),
    ],
)
def test_what_does_not_fit_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        page_of(wine(), 3, **more)


def test_another_table_is_refused() -> None:
    model = FakeClusterer(3).fit(wine())
    fewer = Table(wine().names, block=load_wine().data[:50])
    with pytest.raises(InputError, match="50 rows but the model was fitted on 178"):
        render_report(model, fewer, title="", source="")


def test_colours_differ() -> None:
    colours = cluster_colours(40)
    assert len({colour.light for colour in colours}) == len({colour.dark for colour in colours}) == 40
    assert all(re.fullmatch("#[0-9a-f]{6}", code) for c in colours for code in (c.light, c.dark))


def test_png_holds_the_pixels() -> None:
    raw = b64decode(image_png(np.array([[[0.0], [1.0]], [[0.5], [np.nan]]]), 0.0, 1.0).partition(",")[2])
    assert raw.startswith(b"\x89PNG")
    length = struct.unpack(">I", raw[33:37])[0]
    assert zlib.decompress(raw[41 : 41 + length]) == bytes([0, 0, 255, 0, 128, 0])
    indexed = b64decode(indexed_png(np.array([[0, 1]]), ["#102030", "#ffffff"]).partition(",")[2])
    assert bytes([0x10, 0x20, 0x30, 255, 255, 255]) in indexed


def test_axis_ticks_are_round_and_inside() -> None:
    axis = axis_over(-0.3, 1.0)
    assert [text for _, text in axis.ticks] == ["0", "0.5", "1.0"]
    assert all(0 <= at <= 100 for at, _ in axis.ticks)
    assert [text for _, text in axis_over(1000.0, 1001.0).ticks][:2] == ["1,000.0", "1,000.2"]
    assert [text for _, text in axis_over(0.0, 4e-30).ticks][1] == "1.00e−30"


def test_training_curve_is_logarithmic_when_the_loss_falls_far() -> None:
    steep, flat = training_curve([100.0, 10.0, 1.0]), training_curve([3.0, 2.5, 2.0])
    assert steep is not None
    assert flat is not None
    assert (steep.logarithmic, flat.logarithmic) == (True, False)
    assert training_curve([]) is None
    assert training_curve([1.0, 1.0]) is not None


def test_png_leaves_out_what_has_no_colour() -> None:
    raw = b64decode(indexed_png(np.array([[0, 1]]), [None, "#ffffff"]).partition(",")[2])
    assert b"tRNS" + bytes([0, 255]) in raw
    assert b"tRNS" not in b64decode(indexed_png(np.array([[0]]), ["#ffffff"]).partition(",")[2])
