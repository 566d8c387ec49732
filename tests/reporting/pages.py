"""Estimators without training, and a parser of pages."""

import io
import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

from coterie.base import BaseClusterer, FitDescription
from coterie.reporting.data import ClusteringData, collect_data
from coterie.reporting.page import render_report
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import Table, as_table

_VOID = {"meta", "img", "wbr", "br", "link", "input"}


class KMeansClusterer(BaseClusterer):
    """K-means with soft memberships, made-up losses and runs."""

    method: ClassVar[str] = "k-means"

    def __init__(self, n_clusters: int = 2, beta: float = 3.0, verbose: bool = False, callback: Any = None) -> None:
        self.n_clusters = n_clusters
        self.beta = beta
        self.verbose = verbose
        self.callback = callback

    def _fit(self, X: Any) -> None:
        table = self._read(as_table(X), reset=True)
        self.table_ = TableEncoder("standard").fit(table)
        Z = self.table_.transform(table)
        centres = KMeans(self.n_clusters, n_init=1, random_state=0, max_iter=30).fit(Z).cluster_centers_
        sizes = np.bincount(self._memberships(Z, centres).argmax(axis=1), minlength=self.n_clusters)
        self.centres_ = centres[np.argsort(-sizes, kind="stable")].astype(np.float32)
        self.probabilities_ = self._memberships(Z, self.centres_)
        self.labels_ = self.probabilities_.argmax(axis=1).astype(np.int64)
        self.n_clusters_ = self.n_clusters
        self.notes_ = ("three runs were tried",)

    def _memberships(self, Z: NDArray[np.float32], centres: NDArray[Any]) -> NDArray[np.float32]:
        squared = np.stack([((Z - centre) ** 2).sum(axis=1) for centre in centres], axis=1)
        weights = np.exp(-self.beta / Z.shape[1] * (squared - squared.min(axis=1, keepdims=True)))
        memberships: NDArray[np.float32] = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
        return memberships

    def _predict_proba(self, X: Any) -> NDArray[np.float32]:
        return self._memberships(self.table_.transform(self._read(X, reset=False)), self.centres_)

    def describe_fit(self, table: Table) -> FitDescription:
        """Describe prototypes, losses and runs."""
        assert table.n_columns == len(self.table_.names)
        runs = [
            {"n_clusters": self.n_clusters, "beta": b, "loss": 0.5 / b, "silhouette": 0.1 * b, "chosen": b == 3}
            for b in range(1, 13)
        ]
        losses = [float(5 * np.exp(-t / 12) + 0.1) for t in range(60)]
        return FitDescription(prototypes=self.centres_, losses=losses, runs=runs)

    def _to_checkpoint(self) -> Any:
        raise NotImplementedError

    def _from_checkpoint(self, arrays: Any, card: Any) -> None:
        raise NotImplementedError


class GivenClusterer(KMeansClusterer):
    """An estimator that is given its labels, and perhaps its memberships."""

    def fit_given(self, table: Table, labels: Any, memberships: Any = None) -> "GivenClusterer":
        """Set the fitted attributes."""
        self.table_ = TableEncoder("standard").fit(table)
        self.labels_ = np.asarray(labels)
        self.n_clusters_ = int(self.labels_.max()) + 1
        given = np.eye(self.n_clusters_)[self.labels_] if memberships is None else np.asarray(memberships)
        self.probabilities_ = given.astype(np.float32)
        self.notes_ = ()
        return self

    def describe_fit(self, table: Table) -> FitDescription:
        """Describe nothing."""
        assert table.n_columns == len(self.table_.names)
        return FitDescription()


def data_of(model: BaseClusterer, table: Table, ids: NDArray[Any] | None = None) -> ClusteringData:
    """Collect the data of a fitted estimator."""
    return collect_data(model, table, ids, model.describe_fit(table))


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
    """Render the report of k-means."""
    return render_report(KMeansClusterer(k).fit(table), table, title="A title", source="a file", **more)


def points_of(page: str) -> dict[str, Any]:
    """Return the JSON that the page has about its points."""
    found = re.search(r'<script type="application/json" id="points">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    loaded: dict[str, Any] = json.loads(found.group(1))
    return loaded


def decode(url: str | None) -> Image.Image:
    """Return the image of a data URL."""
    kind, _, data = str(url).partition(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(b64decode(data)))


def wine() -> Table:
    """Return the wine data."""
    data = load_wine()
    return Table(tuple(data.feature_names), block=data.data)
