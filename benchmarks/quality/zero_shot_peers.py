"""What the zero-shot default is compared with: methods that find k themselves, and methods that are told it.

Each is a function of the rows and a seed, and of k if it is told. All settings are the libraries' own unless they stand
in `Method.settings`; nothing was tuned. Libraries that are not part of the environment are imported when needed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeAlias

import numpy as np
from sklearn.cluster import (
    HDBSCAN,
    AffinityPropagation,
    AgglomerativeClustering,
    KMeans,
    MeanShift,
    SpectralClustering,
)
from sklearn.metrics import pairwise_distances, silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors

from benchmarks.quality.records import Floats, Labels, Setting
from benchmarks.quality.zero_shot_data import NOISE
from coterie.judged.candidates.registry import Effort
from coterie.judged.estimator import Coterie

SEARCH_ROWS: Final = 5_000
"""Rows, drawn at random, on which k is chosen where there are more; the chosen model is then fitted to all."""
N_INIT: Final = 10
COVARIANCES: Final = ("full", "diag", "spherical")
EVOC_COLUMNS: Final = 4
"""Columns that EVoC's own initialisation needs."""
SECONDS: Final = 120
THREE_SEEDS: Final = (0, 1, 2)
JUDGE: Final = str(Coterie().judge)
Found: TypeAlias = Labels | tuple[Labels, float]
"""A partition, perhaps with the agreement with the truth that the method expects of it."""


@dataclass(frozen=True)
class Method:
    """A method by its name in the records, and what it can cope with."""

    name: str
    fit: Callable[..., Found]
    """Of the rows and a seed, and then of k if it is told."""
    given_k: bool = False
    settings: Mapping[str, Setting] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    max_rows: int | None = None
    seconds: int = SECONDS
    """Processor seconds after which it is stopped."""
    package: str = "scikit-learn"
    scales_itself: bool = False
    """Whether it gets the columns in their own units, even where the others get them standardised."""

    @property
    def installed_version(self) -> str | None:
        """Version of the package that it needs; None if that is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None


def in_two(found: Found) -> tuple[Labels, float | None]:
    """The partition, and the confidence if there is one."""
    labels, confidence = found if isinstance(found, tuple) else (found, None)
    return np.asarray(labels, dtype=np.int64), confidence


def kmeans_silhouette(X: Floats, seed: int, *, max_clusters: int) -> Labels:
    """k-means with the k of the best silhouette."""
    rows = _search_rows(X, seed)
    distances = pairwise_distances(rows)
    silhouettes = {}
    for k in _ladder(rows, max_clusters):
        labels = KMeans(k, n_init=N_INIT, random_state=seed).fit_predict(rows)
        if 2 <= len(np.unique(labels)) < len(rows):
            silhouettes[k] = silhouette_score(distances, labels, metric="precomputed")
    return kmeans(X, seed, max(silhouettes, key=silhouettes.__getitem__))


def gmm_bic(X: Floats, seed: int, *, max_clusters: int) -> Labels:
    """Gaussian mixture with the k and the kind of covariance of the best BIC."""
    rows = _search_rows(X, seed)
    scores = {}
    for k in _ladder(rows, max_clusters):
        for kind in COVARIANCES:
            if kind == "full" and not _full_is_determined(rows, k):
                continue
            scores[k, kind] = GaussianMixture(k, covariance_type=kind, random_state=seed).fit(rows).bic(rows)
    k, kind = min(scores, key=scores.__getitem__)
    labels: Labels = GaussianMixture(k, covariance_type=kind, random_state=seed).fit_predict(X)
    return labels


def hdbscan(X: Floats, _seed: int, *, min_cluster_size: int) -> Labels:
    """HDBSCAN of scikit-learn."""
    labels: Labels = HDBSCAN(min_cluster_size=min_cluster_size, copy=True).fit_predict(X)
    return labels


def fast_hdbscan(X: Floats, _seed: int, *, min_cluster_size: int) -> Labels:
    """HDBSCAN of the package fast_hdbscan."""
    labels: Labels = _optional("fast_hdbscan").HDBSCAN(min_cluster_size=min_cluster_size).fit_predict(X)
    return labels


def evoc(X: Floats, seed: int) -> Labels:
    """EVoC, which goes by angles and is made for embeddings."""
    # Its own initialisation fails on fewer columns than its inner embedding has.
    init = "label_prop" if X.shape[1] >= EVOC_COLUMNS else None
    labels: Labels = _optional("evoc").EVoC(node_embedding_init=init, random_state=seed).fit_predict(X)
    return labels


def mean_shift(X: Floats, _seed: int) -> Labels:
    """Mean shift with scikit-learn's estimate of the bandwidth."""
    labels: Labels = MeanShift().fit_predict(X)
    return labels


def affinity_propagation(X: Floats, seed: int) -> Labels:
    """Affinity propagation."""
    labels: Labels = AffinityPropagation(random_state=seed).fit_predict(X)
    return labels


def kmeans(X: Floats, seed: int, k: int) -> Labels:
    """k-means."""
    labels: Labels = KMeans(k, n_init=N_INIT, random_state=seed).fit_predict(X)
    return labels


def gmm(X: Floats, seed: int, k: int) -> Labels:
    """Gaussian mixture with full covariances, or diagonal ones where the rows are too few for that."""
    kind = "full" if _full_is_determined(X, k) else "diag"
    labels: Labels = GaussianMixture(k, covariance_type=kind, random_state=seed).fit_predict(X)
    return labels


def ward(X: Floats, _seed: int, k: int) -> Labels:
    """Ward linkage."""
    labels: Labels = AgglomerativeClustering(k).fit_predict(X)
    return labels


def spectral(X: Floats, seed: int, k: int) -> Labels:
    """Spectral clustering of the graph of nearest neighbours."""
    model = SpectralClustering(k, affinity="nearest_neighbors", random_state=seed)
    labels: Labels = model.fit_predict(X).astype(np.int64)
    return labels


def genie(X: Floats, _seed: int, k: int) -> Labels:
    """Genie with its own threshold of inequality, .3."""
    labels: Labels = _optional("genieclust").Genie(k).fit_predict(X)
    return labels


def _search(name: str, fit: Callable[..., Labels], max_clusters: int, **changes: Any) -> Method:
    settings: dict[str, Setting] = {"max_clusters": max_clusters, "search_rows": SEARCH_ROWS}
    return Method(name, partial(fit, max_clusters=max_clusters), settings=settings, **changes)


def coterie(X: Floats, seed: int, *, effort: Effort) -> Found:
    """The zero-shot default, as it comes."""
    model = Coterie(effort=effort, random_state=seed).fit(X)
    return model.labels_, model.confidence_


METHODS: Final = (
    Method(
        "coterie-fast",
        partial(coterie, effort="fast"),
        settings={"effort": "fast", "judge": JUDGE},
        package="coterie",
        scales_itself=True,
    ),
    Method(
        "coterie",
        partial(coterie, effort="balanced"),
        settings={"effort": "balanced", "judge": JUDGE},
        package="coterie",
        scales_itself=True,
    ),
    Method("kmeans", kmeans, given_k=True, settings={"n_init": N_INIT}, seeds=THREE_SEEDS),
    Method("ward", ward, given_k=True, max_rows=20_000),
    Method("genie", genie, given_k=True, package="genieclust"),
    Method("hdbscan-5", partial(hdbscan, min_cluster_size=5), settings={"min_cluster_size": 5}),
    Method("hdbscan-15", partial(hdbscan, min_cluster_size=15), settings={"min_cluster_size": 15}),
    Method(
        "fast-hdbscan",
        partial(fast_hdbscan, min_cluster_size=5),
        settings={"min_cluster_size": 5},
        package="fast-hdbscan",
    ),
    Method("evoc", evoc, package="evoc"),
    Method("gmm", gmm, given_k=True, seeds=THREE_SEEDS),
    Method("spectral", spectral, given_k=True, max_rows=20_000),
    _search("kmeans-silhouette", kmeans_silhouette, 20, seeds=THREE_SEEDS),
    Method("affinity-propagation", affinity_propagation, max_rows=2_000),
    Method("mean-shift", mean_shift, max_rows=20_000, seconds=60),
    _search("gmm-bic", gmm_bic, 20, seeds=THREE_SEEDS),
    # As far as the zero-shot default looks itself, since eight of the sets have more than 20 clusters.
    _search("kmeans-silhouette-50", kmeans_silhouette, 50, seconds=300),
    _search("gmm-bic-50", gmm_bic, 50, seconds=300),
)
"""The quick ones first, so that a run soon has something to show."""


def noise_to_nearest(X: Floats, labels: Labels) -> Labels:
    """Give each row of noise to the cluster of the nearest row that has one; all noise becomes one cluster."""
    noise = labels == NOISE
    if not noise.any():
        return labels
    if noise.all():
        return np.zeros_like(labels)
    nearest = NearestNeighbors(n_neighbors=1).fit(X[~noise]).kneighbors(X[noise], return_distance=False)[:, 0]
    completed = labels.copy()
    completed[noise] = labels[~noise][nearest]
    return completed


def choose(wanted: Iterable[str] | None, methods: Sequence[Method] = METHODS) -> list[Method]:
    """Methods of those names; all if none are named. A KeyError has the name that there is not."""
    known = {method.name: method for method in methods}
    return list(methods) if wanted is None else [known[name] for name in wanted]


def _search_rows(X: Floats, seed: int) -> Floats:
    if len(X) <= SEARCH_ROWS:
        return X
    sample: Floats = X[np.sort(np.random.default_rng(seed).choice(len(X), SEARCH_ROWS, replace=False))]
    return sample


def _ladder(X: Floats, max_clusters: int) -> range:
    """Every k from 2; never more than there are different rows."""
    return range(2, min(max_clusters, len(np.unique(X, axis=0)) - 1) + 1)


def _full_is_determined(X: Floats, k: int) -> bool:
    """Whether k Gaussians with full covariances have fewer free numbers than there are rows."""
    d = int(X.shape[1])
    return k * (d + 1) * (d + 2) // 2 - 1 < len(X)


def _optional(module: str) -> Any:
    """A module that may not be installed; the suite has looked before."""
    return import_module(module)
