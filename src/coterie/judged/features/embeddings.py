"""Features of partitions of embeddings: communities at several resolutions, null model, halves, eigenvalues.

Sizes, neighbourhoods and centres are measured as for tables, on the directions of the rows.
Letters: N rows, R partitions, C clusters of all partitions together, E dimensions.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array

from coterie.judged.candidates.communities import community_weights, find_communities, finest_communities
from coterie.judged.candidates.registry import cluster_numbers
from coterie.judged.cosine import GRAPH_NEIGHBOURS, CosineGeometry, CosineSpace
from coterie.judged.features.measures import centre_features, neighbourhood_features, size_features
from coterie.judged.features.partitions import AnyLabels, Partitions
from coterie.judged.features.stability import halves_agreement, stability_features
from coterie.judged.space import Floats, Singles

EMBEDDING_FEATURES: dict[str, str] = {
    # the rows as a whole, the same for all candidates
    "log_rows": "log number of rows",
    "log_columns": "log number of columns of the table",
    "log_dimension": "log intrinsic dimension",
    "log_effective_axes": "log effective number of principal axes (participation ratio of the variances)",
    "first_axis": "fraction of the variance along the first axis",
    "mean_length": "length of the mean of the unit vectors: how much all rows have in common",
    "similarity_nearest": "mean cosine with the most similar row",
    "similarity_far": "mean cosine with the thirtieth most similar row",
    "similarity_spread": "standard deviation of the latter",
    "hubness": "log standard deviation of how often rows are among the most similar ones of others",
    "log_communities": "log number of communities at resolution one",
    "modularity_at_one": "modularity of these",
    "modularity_at_one_above_null": "the same, less that of the null model",
    "log_connected_eigenvalues": "log number of eigenvalues of the graph above .9",
    # sizes
    "log_clusters": "log number of clusters",
    "log_rows_per_cluster": "log mean cluster size",
    "size_evenness": "entropy of the sizes over its maximum",
    "log_effective_clusters": "entropy of the sizes",
    "smallest_share": "fraction of rows in the smallest cluster",
    "largest_share": "fraction of rows in the largest cluster",
    "log_smallest_to_fair": "log smallest size over mean size",
    "tiny_clusters": "fraction of clusters below five rows",
    "small_clusters": "fraction of clusters below a fifth of the mean size",
    # neighbourhoods
    "same_1": "fraction of nearest neighbours in the same cluster",
    "same_1_worst": "same_1 of the worst cluster",
    "same_1_median": "same_1 of the median cluster",
    "same_4": "the same for four neighbours",
    "same_4_worst": "same_4 of the worst cluster",
    "same_4_median": "same_4 of the median cluster",
    "same_12": "the same for twelve neighbours",
    "same_12_worst": "same_12 of the worst cluster",
    "same_12_median": "same_12 of the median cluster",
    "same_12_notable": "same_12 of the worst cluster that is not small",
    "outvoted": "fraction of rows most of whose neighbours are in other clusters",
    "outvoted_worst": "the same in the worst cluster",
    "conductance_mean": "mean fraction of neighbour edges that leave a cluster",
    "conductance_rows": "the same, mean over rows",
    "conductance_worst": "conductance of the worst cluster",
    "log_normalised_cut": "log of one plus the sum of the conductances",
    "astray": "fraction of rows outside the largest connected piece of their cluster",
    "log_pieces": "log mean number of connected pieces per cluster",
    "border_share": "fraction of rows with a neighbour in another cluster",
    "border_sparsity": "log density inside over log density at the borders",
    "border_sparsity_median": "the same for the median cluster",
    # centres
    "log_calinski_harabasz": "log Calinski-Harabasz index",
    "log_davies_bouldin": "log Davies-Bouldin index",
    "log_davies_bouldin_worst": "the same, worst cluster",
    "variance_left": "fraction of variance within clusters",
    "log_left_to_uniform": "log variance within clusters over that of a uniform cloud cut into as many",
    "variance_left_to_null": "log variance within clusters over that of k-means under the null model",
    "nearest_centre": "fraction of rows whose nearest mean is that of their cluster",
    "nearest_centre_worst": "the same in the worst cluster",
    "spherical_gain": "BIC gain of equal spherical Gaussians over a single one",
    "log_radius_ratio": "log largest over median cluster radius",
    # the weighted graph
    "modularity_half": "modularity at resolution 1/2",
    "modularity": "modularity",
    "modularity_2": "modularity at resolution 2",
    "modularity_5": "modularity at resolution 5",
    "modularity_12": "modularity at resolution 12",
    "modularity_30": "modularity at resolution 30",
    "modularity_above_null": "modularity less that of communities of the null model, for this number of clusters",
    "log_best_resolution": "log resolution at which communities have this number of clusters",
    "kept_weight": "fraction of the weight of edges within clusters",
    "kept_weight_above_null": "the same, less that of communities of the null model",
    "merge_mean": "log weight between a cluster and its nearest one over that of random edges, mean over clusters",
    "merge_worst": "the same, largest",
    "hold_mean": "log weight within a cluster over that of random edges, mean over clusters",
    "hold_worst": "the same, smallest",
    "hold_to_merge": "log weight within clusters over that to the nearest one, for their sizes, mean over clusters",
    "hold_to_merge_worst": "the same, smallest",
    "eigengap": "eigenvalue of the graph for this number of clusters, less the next one",
    "eigengap_relative": "the same, over the largest such gap",
    "eigenvalue": "the eigenvalue",
    # stability
    "halves_agree": "adjusted Rand index of k-means on two halves of the rows, for this number of clusters",
    "halves_agree_relative": "the same, less its largest value for any number of clusters",
}
"""What is measured of each candidate partition of embeddings: column -> meaning."""

EMBEDDING_STEPPED: tuple[str, ...] = (
    "log_clusters",
    "modularity",
    "modularity_above_null",
    "kept_weight",
    "same_12",
    "variance_left",
    "variance_left_to_null",
    "spherical_gain",
    "merge_mean",
    "hold_to_merge",
    "conductance_rows",
    "halves_agree",
    "nearest_centre",
    "eigenvalue",
)
"""Features of which the change with the number of clusters is a column too."""

_RESOLUTIONS = {"_half": 0.5, "": 1.0, "_2": 2.0, "_5": 5.0, "_12": 12.0, "_30": 30.0}
_NULL_RESOLUTIONS = tuple(float(each) for each in 0.26 * 2.0 ** np.arange(8))
_NULL_SEED = 0
_HALVES_UP_TO = 120  # clusters
_FLOOR = 1e-4


def embedding_features(space: CosineSpace, labels: Int[AnyLabels, "R N"]) -> Float[Singles, "R F"]:
    """Compute the features of R partitions of the rows; columns as in `EMBEDDING_FEATURES`."""
    geometry = space.reference
    parts = Partitions.from_labels(np.asarray(labels))
    null = geometry.cached("null model", lambda: NullCurves(geometry))
    halves = geometry.cached("halves", lambda: _halves(geometry))
    shared = geometry.cached("dataset features", lambda: _dataset_features(space, null))
    centres = centre_features(geometry, parts)
    found: dict[str, Floats | float] = {
        **shared,
        **size_features(parts),
        **neighbourhood_features(geometry, parts),
        **centres,
        **_graph_features(geometry, parts, null),
        **_eigenvalue_features(geometry, parts),
        **stability_features(halves, parts),
        "variance_left_to_null": np.log(np.maximum(centres["variance_left"], _FLOOR)) - null.log_left(parts),
    }
    table = np.empty((len(labels), len(EMBEDDING_FEATURES)), dtype=np.float32)
    for column, name in enumerate(EMBEDDING_FEATURES):
        table[:, column] = found[name]
    return table


class NullCurves:
    """Communities and k-means of rows without clusters, of the same covariance, by number of clusters."""

    def __init__(self, geometry: CosineGeometry) -> None:
        rows = geometry.rows
        rng = np.random.default_rng(_NULL_SEED)
        centred = rows - rows.mean(axis=0)
        values, axes = np.linalg.eigh(centred.T @ centred / len(rows))
        sample = rng.normal(size=rows.shape) * np.sqrt(np.maximum(values, 0.0)) @ axes.T + rows.mean(axis=0)
        null = CosineGeometry(sample / np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), _FLOOR))
        self.graph = null.graph(GRAPH_NEIGHBOURS)
        points = []
        for resolution in _NULL_RESOLUTIONS:
            labels = find_communities(null, GRAPH_NEIGHBOURS, resolution)
            weights = community_weights(self.graph, labels)
            total = weights.sum()
            kept = float(np.trace(weights) / total)
            modularity = kept - float(np.square(weights.sum(axis=1) / total).sum())
            means = np.linalg.norm(_sums(null.rows, labels), axis=1) ** 2 / np.bincount(labels)
            overall = float(np.square(null.rows.mean(axis=0)).sum())
            left = (1.0 - means.sum() / len(rows)) / max(1.0 - overall, _FLOOR)
            points.append((np.log(labels.max() + 1), modularity, kept, np.log(max(left, _FLOOR))))
        self.points = np.array(sorted(points)).T

    def modularity(self, parts: Partitions) -> Floats:
        """Return the modularity for the number of clusters of each partition (R,)."""
        return self._at(parts, 1)

    def kept(self, parts: Partitions) -> Floats:
        """Return the fraction of the weight within communities (R,)."""
        return self._at(parts, 2)

    def log_left(self, parts: Partitions) -> Floats:
        """Return the log fraction of the variance within communities (R,)."""
        return self._at(parts, 3)

    def _at(self, parts: Partitions, column: int) -> Floats:
        found: Floats = np.interp(np.log(parts.n_clusters), self.points[0], self.points[column])
        return found


def _sums(rows: Floats, labels: Int[AnyLabels, " N"]) -> Floats:
    n = len(labels)
    members = csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, int(labels.max()) + 1))
    return np.asarray(members.T @ rows)


def _halves(geometry: CosineGeometry) -> tuple[Floats, Floats]:
    numbers = cluster_numbers(len(geometry.rows) // 2, len(geometry.rows), _HALVES_UP_TO, fine=False)
    return halves_agreement(geometry, numbers)


def _dataset_features(space: CosineSpace, null: NullCurves) -> dict[str, float]:
    geometry = space.reference
    rows = geometry.rows
    centred = rows - rows.mean(axis=0)
    values = np.linalg.eigvalsh(centred.T @ centred)
    arriving = np.bincount(geometry.similar_rows.ravel(), minlength=len(rows))
    labels = find_communities(geometry, GRAPH_NEIGHBOURS, 1.0)
    weights = community_weights(geometry.graph(GRAPH_NEIGHBOURS), labels)
    total = weights.sum()
    modularity = float(np.trace(weights) / total - np.square(weights.sum(axis=1) / total).sum())
    at_null = float(np.interp(np.log(labels.max() + 1), null.points[0], null.points[1]))
    far = geometry.similarities[:, -1]
    mean = space.views[0].mean
    return {
        "log_rows": np.log(len(rows)),
        "log_columns": np.log(space.x.shape[1]),
        "log_dimension": np.log(geometry.dimension),
        "log_effective_axes": np.log(max(values.sum() ** 2 / max(np.square(values).sum(), _FLOOR), 1.0)),
        "first_axis": float(values[-1] / max(values.sum(), _FLOOR)),
        "mean_length": float(np.linalg.norm(mean)),
        "similarity_nearest": float(geometry.similarities[:, 0].mean()),
        "similarity_far": float(far.mean()),
        "similarity_spread": float(far.std()),
        "hubness": np.log(arriving.std() + 1.0),
        "log_communities": np.log(labels.max() + 1),
        "modularity_at_one": modularity,
        "modularity_at_one_above_null": modularity - at_null,
        "log_connected_eigenvalues": np.log(max(int((_eigenvalues(geometry) > 0.9).sum()), 1)),
    }


def _eigenvalues(geometry: CosineGeometry) -> Floats:
    """Return the eigenvalues of the normalised graph between small communities, the largest first."""

    def compute() -> Floats:
        graph = geometry.graph(GRAPH_NEIGHBOURS)
        weights = community_weights(graph, finest_communities(geometry, GRAPH_NEIGHBOURS, 2))
        roots = np.sqrt(weights.sum(axis=1))
        return np.asarray(np.linalg.eigvalsh(weights / np.outer(roots, roots))[::-1], dtype=np.float64)

    return geometry.cached("eigenvalues", compute)


def _eigenvalue_features(geometry: CosineGeometry, parts: Partitions) -> dict[str, Floats]:
    """Gap of the eigenvalues of the graph at each number of clusters: zero beyond the number of eigenvalues."""
    values = np.append(_eigenvalues(geometry), 0.0)
    gaps = values[:-1] - values[1:]
    position = np.minimum(parts.n_clusters.astype(np.intp) - 1, len(gaps) - 1)
    gap = gaps[position]
    return {
        "eigengap": gap,
        "eigengap_relative": gap / max(float(gaps[1:].max(initial=0.0)), _FLOOR),
        "eigenvalue": values[position],
    }


def _graph_features(geometry: CosineGeometry, parts: Partitions, null: NullCurves) -> dict[str, Floats]:
    """Weights of the edges within and between clusters, compared with those of random edges."""
    graph = geometry.graph(GRAPH_NEIGHBOURS)
    labels = parts.cluster - parts.starts[:, None]
    columns: dict[str, list[float]] = {
        name: [] for name in ("kept", "chance", "merge", "worst", "hold", "low", "gap", "least")
    }
    for own in labels:
        weights = community_weights(graph, own)
        volume = weights.sum(axis=1)
        total = volume.sum()
        inside = np.diagonal(weights)
        between = weights / np.outer(volume, volume) * total
        np.fill_diagonal(between, 0.0)
        merge = np.log(np.maximum(between.max(axis=1), _FLOOR))
        hold = np.log(np.maximum(inside * total / np.square(volume), _FLOOR))
        values = (inside.sum() / total, np.square(volume / total).sum(), merge.mean(), merge.max(), hold.mean())
        for name, value in zip(
            columns, (*values, hold.min(), (hold - merge).mean(), (hold - merge).min()), strict=True
        ):
            columns[name].append(float(value))
    found = {name: np.array(values) for name, values in columns.items()}
    kept, chance = found["kept"], found["chance"]
    modularity = kept - chance
    numbers = [find_communities(geometry, GRAPH_NEIGHBOURS, each).max() + 1.0 for each in _NULL_RESOLUTIONS]
    order = np.argsort(numbers, kind="stable")
    resolution = np.interp(
        np.log(parts.n_clusters), np.log(np.array(numbers)[order]), np.log(np.array(_NULL_RESOLUTIONS)[order])
    )
    return {
        **{f"modularity{name}": kept - scale * chance for name, scale in _RESOLUTIONS.items()},
        "modularity_above_null": modularity - null.modularity(parts),
        "log_best_resolution": resolution,
        "kept_weight": kept,
        "kept_weight_above_null": kept - null.kept(parts),
        "merge_mean": found["merge"],
        "merge_worst": found["worst"],
        "hold_mean": found["hold"],
        "hold_worst": found["low"],
        "hold_to_merge": found["gap"],
        "hold_to_merge_worst": found["least"],
    }
