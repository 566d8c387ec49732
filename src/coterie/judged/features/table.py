"""The feature table of candidates: named columns that the judge reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.special import ndtri

from coterie.judged.candidates.registry import ALGORITHMS, Candidate
from coterie.judged.features.columns import ColumnLevels, column_information, table_features
from coterie.judged.features.embeddings import EMBEDDING_FEATURES, EMBEDDING_STEPPED, embedding_features
from coterie.judged.features.measures import (
    ClusterMoments,
    centre_features,
    column_features,
    count_modes,
    density_features,
    gap_features,
    mode_features,
    neighbourhood_features,
    normality_features,
    pair_features,
    shape_features,
    silhouette_features,
    size_features,
)
from coterie.judged.features.null_model import GapCurves, gap_statistics
from coterie.judged.features.partitions import AGREEMENTS, AnyLabels, Partitions, agreement_features, rand_indices
from coterie.judged.features.stability import halves_agreement, stability_features
from coterie.judged.space import Floats, Geometry, Integers, Singles, Space
from coterie.ops.ranks import halton_points, rank_values

FEATURES: dict[str, str] = {
    # the rows as a whole, the same for all candidates
    "log_rows": "log number of rows",
    "log_columns": "log number of columns",
    "log_dimension": "log intrinsic dimension",
    "log_effective_axes": "log effective number of principal axes (participation ratio of the variances)",
    "distance_spread": "coefficient of variation of the distances",
    "density_spread": "standard deviation of the log density",
    "edge_tail": "log ratio of long to median edges of the spanning tree",
    "equal_rows": "fraction of rows with an equal row",
    "emptiness_normal": "Hopkins-like statistic against a Gaussian: log distance of probes to rows over row to row",
    "emptiness_box": "the same against a uniform box",
    "log_islands": "log number of large connected components of the mutual neighbour graph",
    "log_modes": "log number of density modes of prominence above 1",
    "second_mode": "prominence of the second mode",
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
    "same_2": "the same for two neighbours",
    "same_4": "the same for four neighbours",
    "same_8": "the same for eight neighbours",
    "same_12": "the same for twelve neighbours",
    "same_1_worst": "same_1 of the worst cluster",
    "same_4_worst": "same_4 of the worst cluster",
    "same_12_worst": "same_12 of the worst cluster",
    "same_1_median": "same_1 of the median cluster",
    "same_4_median": "same_4 of the median cluster",
    "same_12_median": "same_12 of the median cluster",
    "outvoted": "fraction of rows most of whose neighbours are in other clusters",
    "outvoted_worst": "the same in the worst cluster",
    "modularity": "modularity of the neighbour graph",
    "modularity_relative": "modularity over its maximum for these cluster volumes",
    "conductance_mean": "mean fraction of neighbour edges that leave a cluster",
    "conductance_worst": "conductance of the worst cluster",
    "log_normalised_cut": "log of one plus the sum of the conductances",
    "astray": "fraction of rows outside the largest connected piece of their cluster",
    "astray_worst": "the same in the worst cluster",
    "log_pieces": "log mean number of connected pieces per cluster",
    "log_pieces_worst": "log largest number of connected pieces of a cluster",
    "border_share": "fraction of rows with a neighbour in another cluster",
    "border_share_worst": "the same in the worst cluster",
    "border_sparsity": "log density inside over log density at the borders",
    "border_sparsity_worst": "the same for the worst cluster",
    "density_spread_within": "standard deviation of the log density within clusters, over that of all rows",
    "density_spread_worst": "the same for the worst cluster",
    # gaps and modes
    "gap_to_longest_worst": "log gap around a cluster over its longest inner edge, worst cluster",
    "gap_to_longest_median": "the same, median cluster",
    "gap_to_typical_worst": "log gap around a cluster over its mean inner edge, worst cluster",
    "gap_to_typical_median": "the same, median cluster",
    "log_dunn": "log smallest gap over longest inner edge (Dunn index on the spanning tree)",
    "log_cuts_to_fewest": "log number of tree edges cut over the fewest possible",
    "cut_share": "fraction of tree edges cut",
    "cut_length": "mean log length of cut edges over all edges",
    "inner_tail_mean": "log longest over mean inner edge, mean over rows",
    "inner_tail_worst": "the same, worst cluster",
    "uncut_to_cut": "log longest inner edge over the longest cut edge: above zero if the widest gap was missed",
    "density_validity": "density-based validity (DBCV), mean over rows",
    "density_validity_worst": "the same, worst cluster",
    "density_validity_median": "the same, median cluster",
    "own_mode": "log prominence of the main mode of each cluster, mean over rows",
    "own_mode_worst": "the same, worst cluster",
    "own_mode_median": "the same, median cluster",
    "second_mode_mean": "log prominence of the second mode of each cluster, mean over rows",
    "second_mode_worst": "the same, worst cluster",
    "without_mode": "fraction of clusters without a clear mode",
    "with_two_modes": "fraction of clusters with two clear modes",
    "log_modes_per_cluster": "log number of modes over number of clusters",
    # separation
    "silhouette": "mean silhouette",
    "silhouette_worst": "silhouette of the worst cluster",
    "silhouette_median": "silhouette of the median cluster",
    "silhouette_negative": "fraction of rows with a negative silhouette",
    "log_calinski_harabasz": "log Calinski-Harabasz index",
    "log_davies_bouldin": "log Davies-Bouldin index",
    "log_davies_bouldin_worst": "the same, worst cluster",
    "variance_left": "fraction of variance within clusters",
    "log_left_to_uniform": "log variance within clusters over that of a uniform cloud cut into as many",
    "nearest_centre": "fraction of rows whose nearest mean is that of their cluster",
    "nearest_centre_worst": "the same in the worst cluster",
    "spherical_gain": "BIC gain of equal spherical Gaussians over a single one",
    "log_radius_ratio": "log largest over median cluster radius",
    # Gaussians
    "normal_gain": "log-likelihood gain of a Gaussian mixture over a single Gaussian",
    "normal_gain_hard": "the same with hard assignments",
    "normal_bic": "BIC gain of a Gaussian mixture",
    "normal_returns": "fraction of rows that the mixture assigns to their cluster",
    "normal_returns_worst": "the same in the worst cluster",
    "normal_certainty": "mean posterior probability of the own cluster",
    "normal_certainty_worst": "the same in the worst cluster",
    "kurtosis_mean": "excess of Mardia's kurtosis within clusters",
    "kurtosis_most": "the same, largest",
    "axis_aligned_gain": "BIC gain of Gaussians aligned with the principal axes",
    # inside of clusters
    "inner_gap_mean": "largest gap along the longest axes of a cluster, mean over rows",
    "inner_gap_worst": "the same, worst cluster",
    "inner_halves_mean": "variance that a cut across a long axis explains, mean over rows",
    "inner_halves_worst": "the same, worst cluster",
    "inner_valley_mean": "depth of the valley along the longest axes, mean over rows",
    "inner_valley_worst": "the same, worst cluster",
    "inner_valley_significance_mean": "log significance of that valley, mean over rows",
    "inner_valley_significance_worst": "the same, worst cluster",
    "inner_skewness_mean": "log skewness along the longest axes, mean over rows",
    "elongation_mean": "fraction of a cluster's variance along its longest axis, mean over rows",
    # pairs of clusters that touch
    "valley_mean": "depth of the valley to the touching cluster, mean over clusters",
    "valley_worst": "the same, worst cluster",
    "valley_median": "the same, median cluster",
    "valley_significance_mean": "log significance of that valley, mean over rows",
    "valley_significance_worst": "the same, worst cluster",
    "valley_significance_median": "the same, median cluster",
    "separation_worst": "log Mahalanobis distance to the touching cluster, worst cluster",
    "separation_median": "the same, median cluster",
    "merging_cost_worst": "log-likelihood lost by merging with the touching cluster, worst cluster",
    "merging_cost_median": "the same, median cluster",
    # variants in which small clusters count less
    "rows_without_mode": "fraction of rows in clusters without a clear mode",
    "rows_with_two_modes": "fraction of rows in clusters with two clear modes",
    "own_mode_notable": "own_mode of the worst cluster that is not small",
    "basins_agree": "adjusted Rand index with the basins of modes of prominence 1",
    "high_basins_agree": "the same for prominence 2",
    "valley_rows": "valley depth, mean over rows",
    "valley_significance_notable": "valley significance of the worst cluster that is not small",
    "separation_rows": "separation, mean over rows",
    "merging_cost_rows": "merging cost, mean over rows",
    "merging_cost_notable": "merging cost of the worst cluster that is not small",
    "silhouette_notable": "silhouette of the worst cluster that is not small",
    "border_sparsity_notable": "border sparsity of the worst cluster that is not small",
    "conductance_rows": "conductance, mean over rows",
    "density_validity_notable": "density validity of the worst cluster that is not small",
    # columns
    "column_best": "fraction of variance between clusters in the column that separates them best",
    "column_top_3": "the same, mean of the best three columns",
    "column_median": "the same, median column",
    "columns_mattering": "effective fraction of columns in which clusters differ",
    "columns_mostly_explained": "fraction of columns with over half of their variance between clusters",
    "columns_idle": "fraction of columns that clusters explain no better than a random partition",
    # mutual information of the partition with single columns, over the entropy of the partition
    "told_by_best": "fraction of the partition that the best column tells",
    "told_by_second": "the same, second best column",
    "told_by_others": "log of one plus the sum over all columns but the best",
    "told_by_all": "log of one plus the sum over all columns",
    "columns_telling": "fraction of columns that tell over five percent of the partition",
    "log_columns_telling": "log of one plus their number",
    "told_by_best_discrete": "fraction of the partition that the best discrete column tells",
    "told_by_discrete": "fraction of the sum over all columns that discrete columns contribute",
    "repeated_discrete": "normalised mutual information with the most similar discrete column",
    "repeated_column": "normalised mutual information with the most similar column",
    "told_by_weighted": "mean over columns, weighted by how much they count in distances",
    "latent_class_gain": "BIC gain per row and column of independent columns within clusters",
    "latent_class_gain_relative": "the same, over the entropy of the partition",
    # stability
    "halves_agree": "adjusted Rand index of k-means on two halves of the rows, for this number of clusters",
    "halves_agree_relative": "the same, less its largest value for any number of clusters",
    # gap statistics: log variance left under a null model, less that left by the partition
    "gap_normal": "gap to k-means on a Gaussian of the same covariance, for this number of clusters",
    "gap_normal_of_k_means": "the same of k-means instead of the partition",
    "gap_normal_of_two": "the same for two clusters, the same for all candidates",
    "gap_normal_largest": "the largest for any number of clusters, the same for all candidates",
    "gap_columns": "gap to k-means on rows with the same columns and rank correlations, for this number of clusters",
    "gap_columns_of_k_means": "the same of k-means instead of the partition",
    "gap_columns_of_two": "the same for two clusters, the same for all candidates",
    "gap_columns_largest": "the largest for any number of clusters, the same for all candidates",
    # columns of the table and noise, the same for all candidates
    "noise": "fraction of the rows that were left out as background noise",
    "discrete_columns": "fraction of columns that are discrete",
    "discrete_weight": "mean weight of discrete columns",
    "log_levels": "log mean number of levels of the columns, continuous ones in bins",
}
"""What is measured of each candidate: column -> meaning. Names are stored in the cards of judges."""

STEPPED: tuple[str, ...] = (
    "silhouette",
    "modularity",
    "normal_bic",
    "variance_left",
    "density_validity",
    "own_mode",
    "separation_rows",
    "normal_gain",
    "same_12",
    "conductance_rows",
    "merging_cost_rows",
    "valley_rows",
    "log_clusters",
    "basins_agree",
    "normal_certainty",
    "column_top_3",
    "told_by_all",
    "latent_class_gain",
)
"""Features of which the change with the number of clusters is a column too."""
VIEWS = ("standardised", "raw", "whitened", "ranks", "power", "factors", "unweighted")

# Scored sets on disk, which judges are trained on, have their columns in this order.
_ONE_HOT_ORDER = (
    "k-means",
    "Gaussian mixture",
    "Gaussian mixture, diagonal",
    "Gaussian mixture, shared shape",
    "Ward linkage",
)
_MAX_CELLS = 1 << 21  # pairs of a cluster and a row in memory at once: sixteen megabytes a table
_PROBES = 256
_PROBED_AXES = 5


@final
@dataclass(frozen=True, slots=True)
class FeatureSet:
    """What is measured of candidates under one metric."""

    meanings: Mapping[str, str]  # feature -> meaning
    stepped: tuple[str, ...]  # features of which the change with the number of clusters is a column too
    views: tuple[str, ...]  # views that candidates come from; none if there is only one
    compute: Callable[[Any, Int[AnyLabels, "R N"]], Float[Singles, "R F"]]  # from a space and partitions of its rows

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the columns for changes with the number of clusters."""
        fewer = (f"{name} against fewer clusters" for name in self.stepped)
        return (*fewer, *(f"{name} with more clusters" for name in self.stepped))


def column_names(metric: str = "euclidean") -> tuple[str, ...]:
    """Return the names of all columns, including those of algorithms registered from outside."""
    features = FEATURE_SETS[metric]
    first = _ONE_HOT_ORDER if metric == "euclidean" else ()
    algorithms = dict.fromkeys((*first, *(name for name, each in ALGORITHMS.items() if each.metric == metric)))
    return (
        *features.meanings,
        *(f"rank of {name}" for name in features.meanings),
        *AGREEMENTS,
        *features.steps,
        *(f"by {name}" for name in algorithms),
        *(f"on {name}" for name in features.views),
    )


@final
@dataclass(frozen=True, slots=True, eq=False)
class CandidateFeatures:
    """Candidates for the same rows, and the features of each; more candidates can be added."""

    space: Space  # the rows; features are those on standardised columns, so that candidates of all views compare
    candidates: tuple[Candidate, ...]  # at least one
    values: Float[Singles, "R F"]  # columns as in the `FEATURE_SETS` of the metric
    agreement: Float[Floats, "R R"]  # adjusted Rand index of every pair of candidates

    @classmethod
    def compute(cls, x: Floats | Space, candidates: Sequence[Candidate]) -> Self:
        """Compute the features of candidates for rows (N, D) in original units."""
        space, labels = Space.of(x), _stack_labels(candidates)
        values = FEATURE_SETS[space.metric].compute(space, labels)
        return cls(space, tuple(candidates), values, rand_indices(labels))

    def extended(self, others: Sequence[Candidate]) -> Self:
        """Return the same with further candidates, at least one, at the end."""
        candidates = (*self.candidates, *others)
        new = FEATURE_SETS[self.space.metric].compute(self.space, _stack_labels(others))
        agreement = rand_indices(_stack_labels(candidates), self.agreement)
        return replace(self, candidates=candidates, values=np.concatenate((self.values, new)), agreement=agreement)

    def take(self, kept: Int[Integers, " K"]) -> Self:
        """Return the same of these candidates alone."""
        candidates = tuple(self.candidates[index] for index in kept)
        agreement = self.agreement[np.ix_(kept, kept)]
        return replace(self, candidates=candidates, values=self.values[kept], agreement=agreement)

    def table(self) -> Float[Singles, "R C"]:
        """Return all columns of `column_names`, one row per candidate."""
        return self.select(dict.fromkeys(column_names(self.space.metric), 0.0))

    def select(self, columns: Mapping[str, float]) -> Float[Singles, "R C"]:
        """Return columns by name, one row per candidate; those that this version lacks get the given neutral value."""
        features = FEATURE_SETS[self.space.metric]
        n_clusters = np.array([each.n_clusters for each in self.candidates])
        algorithms, views = [each.algorithm for each in self.candidates], [each.view for each in self.candidates]
        numbers: dict[tuple[str, str], int] = {}
        series = np.array([numbers.setdefault(key, len(numbers)) for key in zip(algorithms, views, strict=True)])
        blocks = (
            (features.meanings, self.values),
            ((f"rank of {name}" for name in features.meanings), rank_columns(self.values)),
            (AGREEMENTS, agreement_features(self.agreement, n_clusters)),
            (features.steps, step_features(self.values, n_clusters, series, features)),
        )
        found = {name: column for names, block in blocks for name, column in zip(names, block.T, strict=True)}
        found |= {f"by {name}": np.array([each == name for each in algorithms]) for name in {*algorithms, *ALGORITHMS}}
        found |= {f"on {name}": np.array([each == name for each in views]) for name in {*views, *features.views}}
        table = np.empty((len(self.candidates), len(columns)), dtype=np.float32)
        for position, (name, neutral) in enumerate(columns.items()):
            table[:, position] = found.get(name, neutral)
        return table


def _stack_labels(candidates: Sequence[Candidate]) -> npt.NDArray[np.int64]:
    return np.stack([each.labels for each in candidates])


def partition_features(space: Space, labels: Int[AnyLabels, "R N"]) -> Float[Singles, "R F"]:
    """Compute the features of R partitions of the rows; columns as in `FEATURES`.

    They are finite and depend neither on the scale of the rows nor on the names of the clusters.
    """
    labels = np.asarray(labels)
    geometry = space.reference
    levels = geometry.cached("column levels", lambda: ColumnLevels.find(space))
    stability = geometry.cached("halves", lambda: halves_agreement(geometry))
    gaps = geometry.cached("gaps", lambda: GapCurves.compute(geometry))
    shared = geometry.cached("dataset features", lambda: dataset_features(geometry) | table_features(levels))
    shared["noise"] = space.noise
    table = np.empty((len(labels), len(FEATURES)), dtype=np.float32)
    for start, stop in _blocks(labels):
        parts = Partitions.from_labels(labels[start:stop])
        moments = ClusterMoments.compute(geometry, parts)
        centres = centre_features(geometry, parts)
        found: dict[str, Floats | float] = {
            **shared,
            **size_features(parts),
            **neighbourhood_features(geometry, parts),
            **gap_features(geometry, parts),
            **density_features(geometry, parts),
            **mode_features(geometry, parts),
            **silhouette_features(geometry, parts),
            **centres,
            **normality_features(geometry, parts, moments),
            **shape_features(parts, moments),
            **pair_features(geometry, parts, moments),
            **column_features(geometry, parts),
            **column_information(levels, parts),
            **stability_features(stability, parts),
            **gap_statistics(gaps, parts, centres["variance_left"]),
        }
        for column, name in enumerate(FEATURES):
            table[start:stop, column] = found[name]
    return table


def _blocks(labels: AnyLabels) -> list[tuple[int, int]]:
    """Return ranges of partitions whose clusters times the rows fit into memory at once."""
    clusters = labels.max(axis=1, initial=0) + 1
    bounds = [0]
    held = 0
    for run, count in enumerate(clusters.tolist()):
        if held and (held + count) * labels.shape[1] > _MAX_CELLS:
            bounds.append(run)
            held = 0
        held += count
    bounds.append(len(labels))
    return [(start, stop) for start, stop in pairwise(bounds) if stop > start]


def dataset_features(geometry: Geometry) -> dict[str, float]:
    """Compute the features of the rows as a whole: size, dimension, spread, and whether they cluster at all."""
    rows = len(geometry.rows)
    mean = float(geometry.unit_distances.ravel().mean(dtype=np.float64)) * rows / (rows - 1)
    square = 2.0 * float(geometry.squared_norms.sum()) / (rows - 1)  # mean squared distance between two rows
    axes = np.square(geometry.components).sum(axis=0)
    edges = geometry.unit_tree.lengths
    typical = float(np.median(edges))
    near_normal, near_box = _emptiness(geometry.components[:, :_PROBED_AXES])
    return {
        "log_rows": np.log(rows),
        "log_columns": np.log(geometry.rows.shape[1]),
        "log_dimension": np.log(geometry.dimension),
        "log_effective_axes": np.log(axes.sum() ** 2 / np.square(axes).sum()) if axes.any() else 0.0,
        "distance_spread": np.sqrt(max(square / mean**2 - 1.0, 0.0)) if mean > 0.0 else 0.0,
        "density_spread": float(geometry.log_cores.std()) * geometry.dimension,
        "edge_tail": np.log(np.quantile(edges, 0.99) / typical) if typical > 0.0 else 0.0,
        "equal_rows": float((geometry.unit_neighbour_distances[:, 0] == 0.0).mean()),
        "emptiness_normal": near_normal,
        "emptiness_box": near_box,
        "log_islands": np.log(_count_islands(geometry)),
        "log_modes": np.log(count_modes(geometry, 1.0)),
        "second_mode": float(geometry.prominences[1]) if len(geometry.prominences) > 1 else 0.0,
    }


def _count_islands(geometry: Geometry) -> float:
    """Count the components of the mutual neighbour graph with over one percent of the rows."""
    rows = len(geometry.rows)
    first, second = geometry.mutual_links.T
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(rows, rows))
    _, parts = connected_components(graph, directed=False)
    return float(max(1, (np.bincount(parts) > max(2.0, 0.01 * rows)).sum()))


def _emptiness(rows: Floats) -> tuple[float, float]:
    """Compute Hopkins-like statistics against a Gaussian and against a box.

    They compare the log distance from probes to rows with that from row to row. The probes are a fixed low-discrepancy
    sequence, so that no randomness is involved.
    """
    spread = rows.std(axis=0)
    if not spread.any():
        return 0.0, 0.0
    net = halton_points(_PROBES + 1, rows.shape[1])[1:]  # the first one is a corner
    low, high = np.quantile(rows, [0.01, 0.99], axis=0)
    tree = KDTree(rows)
    apart = np.log(np.maximum(np.asarray(tree.query(rows, k=[2])[0]), 1e-3)).mean()
    probes = (ndtri(net) * spread, low + (high - low) * net)
    normal, box = (float(np.log(np.maximum(tree.query(probe)[0], 1e-3)).mean() - apart) for probe in probes)
    return normal, box


def rank_columns(values: Float[Singles, "R F"]) -> Float[Singles, "R F"]:
    """Rank the candidates in each column, from 0 for the smallest to 1; ties have their mean rank."""
    if len(values) < 2:
        return np.full(values.shape, 0.5, dtype=np.float32)
    ranks: Singles = ((rank_values(values) - 1.0) / (len(values) - 1.0)).astype(np.float32)
    return ranks


def step_features(
    values: Float[Singles, "R F"], n_clusters: Int[Integers, " R"], series: Int[Integers, " R"], features: FeatureSet
) -> Float[Singles, "R S"]:
    """Compute how features change from the next smaller number of clusters, and to the next larger; columns `steps`.

    Partitions of the same `series`, those of one algorithm on one view, are compared; the change is zero at its ends.
    """
    order = np.lexsort((n_clusters, series))
    positions = {name: position for position, name in enumerate(features.meanings)}
    columns = [positions[name] for name in features.stepped]
    stepped, counts, group = values[order][:, columns], n_clusters[order], series[order]
    key = group * (counts.max() + 1) + counts  # ascending; equal for partitions of one series and number
    before = np.searchsorted(key, key, side="left") - 1
    after = np.searchsorted(key, key, side="right")
    has_before = (before >= 0) & (group[before] == group)
    after = np.minimum(after, len(key) - 1)
    has_after = (group[after] == group) & (counts[after] > counts)
    steps = np.empty((len(values), 2 * len(columns)), dtype=np.float32)
    steps[order] = np.hstack(
        [
            np.where(has_before[:, None], stepped - stepped[before], 0.0),
            np.where(has_after[:, None], stepped[after] - stepped, 0.0),
        ]
    )
    return steps


FEATURE_SETS: Mapping[str, FeatureSet] = {
    "euclidean": FeatureSet(FEATURES, STEPPED, VIEWS, partition_features),
    "cosine": FeatureSet(EMBEDDING_FEATURES, EMBEDDING_STEPPED, (), embedding_features),
}
"""The features of candidates by metric."""
