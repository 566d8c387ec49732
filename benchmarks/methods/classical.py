"""Classical methods on rows: with a given number of clusters, or with a search for it.

`FITS` has them by the names that suites use. All settings are the libraries' own unless a suite states others.
Libraries that are not dependencies are imported when needed.
"""

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from sklearn.cluster import (
    HDBSCAN,
    AffinityPropagation,
    AgglomerativeClustering,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
    SpectralClustering,
)
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances, silhouette_score
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors, kneighbors_graph
from sklearn.preprocessing import normalize

from benchmarks.baselines.kprototypes import k_prototypes
from benchmarks.data.frames import Rows, split_columns
from benchmarks.data.tables import NOISE
from benchmarks.lines import Floats, Labels
from coterie import TCC, Coterie

COVARIANCES: Final = ("full", "diag", "spherical")
EVOC_COLUMNS: Final = 4  # columns that EVoC's own initialisation needs
PRINCIPAL_AXES: Final = 50  # that k-means compares the directions of wide rows on
Found: TypeAlias = Labels | tuple[Labels, float]
"""A partition, perhaps with the agreement with the truth that the method predicts."""
GIVEN_K: Final[dict[str, Callable[..., Any]]] = {
    "kmeans": KMeans,
    "spectral": SpectralClustering,
    "gmm": GaussianMixture,
}


def cluster_given_k(method: str, x: npt.NDArray[Any], k: int, seed: int = 0, **settings: Any) -> Labels:
    """Cluster rows by k-means, spectral clustering or a Gaussian mixture, with settings of scikit-learn."""
    model = GIVEN_K[method](k, random_state=seed, **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Graph is not fully connected")  # separate clusters are what is sought
        labels: Labels = np.asarray(model.fit_predict(x)).astype(np.int64)
    return labels


def kmeans_silhouette(X: Floats, seed: int, *, max_clusters: int, search_rows: int, n_init: int = 10) -> Labels:
    """k-means with the k of the best silhouette; k is chosen on a random sample of a large table."""
    rows = _sample(X, seed, search_rows)
    distances = pairwise_distances(rows)
    silhouettes = {}
    for k in _candidate_ks(rows, max_clusters):
        labels = KMeans(k, n_init=n_init, random_state=seed).fit_predict(rows)
        if 2 <= len(np.unique(labels)) < len(rows):
            silhouettes[k] = silhouette_score(distances, labels, metric="precomputed")
    return kmeans(X, seed, max(silhouettes, key=silhouettes.__getitem__), n_init=n_init)


def kmeans_silhouette_cosine(X: Floats, seed: int, *, max_clusters: int, search_rows: int, n_init: int = 10) -> Labels:
    """The same on directions."""
    return kmeans_silhouette(
        _directions(X, seed), seed, max_clusters=max_clusters, search_rows=search_rows, n_init=n_init
    )


def eigengap(X: Floats, seed: int, *, n_neighbors: int, max_clusters: int) -> Labels:
    """Spectral clustering with the k of the largest gap between eigenvalues of the normalised graph Laplacian.

    The graph joins each row with the rows of the largest cosine.
    """
    directed = csr_array(kneighbors_graph(X, n_neighbors, metric="cosine"))
    both = csr_array(0.5 * (directed + directed.T))
    # One less the Laplacian has the same gaps, and its largest eigenvalues are found faster than the smallest of the
    # Laplacian.
    scale = diags_array(1.0 / np.sqrt(both.sum(axis=1)))
    adjacency = scale @ both @ scale
    count = min(max_clusters, len(X) - 2) + 1
    start = np.random.default_rng(seed).uniform(size=len(X))
    values, vectors = eigsh(adjacency, count, which="LA", v0=start)
    values, vectors = values[::-1], vectors[:, ::-1]
    k = 2 + int((values[1:-1] - values[2:]).argmax())
    return kmeans(normalize(vectors[:, :k]), seed, k, n_init=10)


def gmm_bic(X: Floats, seed: int, *, max_clusters: int, search_rows: int) -> Labels:
    """Gaussian mixture with the k and the covariance type of the best BIC, chosen on a sample as above."""
    rows = _sample(X, seed, search_rows)
    scores = {}
    for k in _candidate_ks(rows, max_clusters):
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
    package = import_module("fast_hdbscan")
    labels: Labels = package.HDBSCAN(min_cluster_size=min_cluster_size).fit_predict(X)
    return labels


def evoc(X: Floats, seed: int) -> Labels:
    """EVoC, which compares rows by angle and is made for embeddings."""
    # Its own initialisation fails on fewer columns than its inner embedding has.
    init = "label_prop" if X.shape[1] >= EVOC_COLUMNS else None
    labels: Labels = import_module("evoc").EVoC(node_embedding_init=init, random_state=seed).fit_predict(X)
    return labels


def plscan(X: Floats, _seed: int) -> Labels:
    """PLSCAN on rows of length one, since it has no cosine."""
    return _plscan(normalize(X))


def umap_hdbscan(X: Floats, seed: int, *, min_cluster_size: int, **settings: Any) -> Labels:
    """HDBSCAN on UMAP's embedding."""
    return hdbscan(_umap(X, seed, settings), seed, min_cluster_size=min_cluster_size)


def umap_plscan(X: Floats, seed: int, **settings: Any) -> Labels:
    """PLSCAN on UMAP's embedding."""
    return _plscan(_umap(X, seed, settings))


def _plscan(X: Floats) -> Labels:
    labels: Labels = import_module("fast_plscan").PLSCAN(num_threads=1).fit_predict(X)
    return labels


def _umap(X: Floats, seed: int, settings: dict[str, Any]) -> Floats:
    embedding: Floats = import_module("umap").UMAP(random_state=seed, **settings).fit_transform(X)
    return embedding


def mean_shift(X: Floats, _seed: int) -> Labels:
    """Mean shift with scikit-learn's estimate of the bandwidth."""
    labels: Labels = MeanShift().fit_predict(X)
    return labels


def affinity_propagation(X: Floats, seed: int) -> Labels:
    """Affinity propagation."""
    labels: Labels = AffinityPropagation(random_state=seed).fit_predict(X)
    return labels


def kmeans(X: Floats, seed: int, k: int, *, n_init: int) -> Labels:
    """k-means."""
    labels: Labels = KMeans(k, n_init=n_init, random_state=seed).fit_predict(X)
    return labels


def kmeans_cosine(X: Floats, seed: int, k: int, *, n_init: int) -> Labels:
    """k-means on directions."""
    return kmeans(_directions(X, seed), seed, k, n_init=n_init)


def minibatch_kmeans(X: Floats, seed: int, k: int, *, batch_size: int) -> Labels:
    """Mini-batch k-means, as the benchmark MTEB scores embeddings by."""
    labels: Labels = MiniBatchKMeans(k, batch_size=batch_size, random_state=seed).fit_predict(X)
    return labels


def gmm(X: Floats, seed: int, k: int) -> Labels:
    """Gaussian mixture with full covariances, or diagonal ones where there are too few rows."""
    kind = "full" if _full_is_determined(X, k) else "diag"
    labels: Labels = GaussianMixture(k, covariance_type=kind, random_state=seed).fit_predict(X)
    return labels


def ward(X: Floats, _seed: int, k: int) -> Labels:
    """Ward linkage."""
    labels: Labels = AgglomerativeClustering(k).fit_predict(X)
    return labels


def spectral(X: Floats, seed: int, k: int) -> Labels:
    """Spectral clustering of the graph of nearest neighbours."""
    return cluster_given_k("spectral", X, k, seed, affinity="nearest_neighbors")


def genie(X: Floats, _seed: int, k: int) -> Labels:
    """Genie with its own threshold of inequality, 0.3."""
    labels: Labels = import_module("genieclust").Genie(k).fit_predict(X)
    return labels


def kprototypes(X: Rows, seed: int, k: int, *, gamma: float, n_init: int) -> Labels:
    """k-prototypes on standardised numbers and categories, where a gap is a category."""
    numbers, codes, _ = split_columns(pd.DataFrame(X))
    return k_prototypes(numbers, codes + 1, k, gamma=gamma, n_init=n_init, seed=seed)


def coterie(X: Rows, seed: int, *k: int, judge: str, **settings: Any) -> Found:
    """The default method of this package."""
    model = Coterie(*k, weights=judge, random_state=seed, **settings).fit(X)
    return model.labels_, model.confidence_


def tcc(X: Floats, seed: int, k: int, **settings: Any) -> Labels:
    """TCC on colour images, given as rows of their pixels."""
    side = round((X.shape[1] / 3) ** 0.5)
    images = X.astype(np.uint8).reshape(-1, side, side, 3)
    labels: Labels = TCC(k, random_state=seed, **settings).fit_predict(images)
    return labels


FITS: Final[dict[str, Callable[..., Found]]] = {
    function.__name__: function
    for function in (
        *(affinity_propagation, coterie, eigengap, evoc, fast_hdbscan, genie, gmm, gmm_bic, hdbscan, kmeans),
        *(kmeans_cosine, kmeans_silhouette, kmeans_silhouette_cosine, kprototypes, mean_shift, minibatch_kmeans),
        *(plscan, spectral, tcc, umap_hdbscan, umap_plscan, ward),
    )
}
"""From rows and a seed, and k if it is given, to a partition."""


def split_confidence(found: Found) -> tuple[Labels, float | None]:
    """Return the partition, and the predicted agreement if there is one."""
    labels, confidence = found if isinstance(found, tuple) else (found, None)
    return np.asarray(labels, dtype=np.int64), confidence


def noise_to_nearest(X: Floats, labels: Labels, metric: str = "euclidean") -> Labels:
    """Assign each noise row to the cluster of the nearest clustered row; if all rows are noise, to one cluster."""
    noise = labels == NOISE
    if not noise.any():
        return labels
    if noise.all():
        return np.zeros_like(labels)
    search = NearestNeighbors(n_neighbors=1, metric=metric).fit(X[~noise])
    nearest = search.kneighbors(X[noise], return_distance=False)[:, 0]
    completed = labels.copy()
    completed[noise] = labels[~noise][nearest]
    return completed


def _directions(X: Floats, seed: int) -> Floats:
    """Project rows of length one on their principal axes, and scale them to length one again."""
    axes = PCA(min(PRINCIPAL_AXES, *X.shape), random_state=seed)
    directions: Floats = normalize(axes.fit_transform(normalize(X)))
    return directions


def _sample(X: Floats, seed: int, most: int) -> Floats:
    if len(X) <= most:
        return X
    sample: Floats = X[np.sort(np.random.default_rng(seed).choice(len(X), most, replace=False))]
    return sample


def _candidate_ks(X: Floats, max_clusters: int) -> range:
    """Every k from 2, at most the number of distinct rows less one."""
    return range(2, min(max_clusters, len(np.unique(X, axis=0)) - 1) + 1)


def _full_is_determined(X: Floats, k: int) -> bool:
    """Whether k Gaussians with full covariances have fewer parameters than there are rows."""
    d = int(X.shape[1])
    return k * (d + 1) * (d + 2) // 2 - 1 < len(X)
