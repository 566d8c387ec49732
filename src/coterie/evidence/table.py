"""All evidence about partitions, as one table with named columns."""

from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata

from coterie.evidence.columns import column_evidence
from coterie.evidence.gaps import gap_evidence
from coterie.evidence.geometry import Geometry
from coterie.evidence.modes import mode_evidence
from coterie.evidence.moments import Moments
from coterie.evidence.neighbourhoods import neighbourhood_evidence
from coterie.evidence.normality import normality_evidence
from coterie.evidence.pairs import pair_evidence
from coterie.evidence.partitions import Labels, Partitions, Reals, Singles
from coterie.evidence.separation import separation_evidence
from coterie.evidence.shape import shape_evidence
from coterie.evidence.sizes import size_evidence
from coterie.evidence.whole import whole

_CELLS = 1 << 21
"""Pairs of a cluster and a row that are held at once: sixteen megabytes a table."""

FEATURES: tuple[str, ...] = (
    # the rows as a whole
    "log_rows",
    "log_columns",
    "log_dimension",
    "log_effective_axes",
    "distance_spread",
    "density_spread",
    "edge_tail",
    "equal_rows",
    "emptiness_normal",
    "emptiness_box",
    "log_islands",
    "log_modes",
    "second_mode",
    # sizes
    "log_clusters",
    "log_rows_per_cluster",
    "size_evenness",
    "log_effective_clusters",
    "smallest_share",
    "largest_share",
    "log_smallest_to_fair",
    "tiny_clusters",
    "small_clusters",
    # neighbourhoods
    "same_1",
    "same_2",
    "same_4",
    "same_8",
    "same_12",
    "same_1_worst",
    "same_4_worst",
    "same_12_worst",
    "same_1_median",
    "same_4_median",
    "same_12_median",
    "outvoted",
    "outvoted_worst",
    "modularity",
    "modularity_relative",
    "conductance_mean",
    "conductance_worst",
    "log_normalised_cut",
    "astray",
    "astray_worst",
    "log_pieces",
    "log_pieces_worst",
    "border_share",
    "border_share_worst",
    "border_sparsity",
    "border_sparsity_worst",
    "density_spread_within",
    "density_spread_worst",
    # gaps and modes
    "gap_to_longest_worst",
    "gap_to_longest_median",
    "gap_to_typical_worst",
    "gap_to_typical_median",
    "log_dunn",
    "log_cuts_to_fewest",
    "cut_share",
    "cut_length",
    "inner_tail_mean",
    "inner_tail_worst",
    "uncut_to_cut",
    "density_validity",
    "density_validity_worst",
    "density_validity_median",
    "own_mode",
    "own_mode_worst",
    "own_mode_median",
    "second_mode_mean",
    "second_mode_worst",
    "without_mode",
    "with_two_modes",
    "log_modes_per_cluster",
    # separation
    "silhouette",
    "silhouette_worst",
    "silhouette_median",
    "silhouette_negative",
    "log_calinski_harabasz",
    "log_davies_bouldin",
    "log_davies_bouldin_worst",
    "variance_left",
    "log_left_to_uniform",
    "nearest_centre",
    "nearest_centre_worst",
    "spherical_gain",
    "log_radius_ratio",
    # normal clouds
    "normal_gain",
    "normal_gain_hard",
    "normal_bic",
    "normal_returns",
    "normal_returns_worst",
    "normal_certainty",
    "normal_certainty_worst",
    "kurtosis_mean",
    "kurtosis_most",
    "axis_aligned_gain",
    # insides of clusters
    "inner_gap_mean",
    "inner_gap_worst",
    "inner_halves_mean",
    "inner_halves_worst",
    "inner_valley_mean",
    "inner_valley_worst",
    "inner_valley_significance_mean",
    "inner_valley_significance_worst",
    "inner_skewness_mean",
    "elongation_mean",
    # pairs of clusters
    "valley_mean",
    "valley_worst",
    "valley_median",
    "valley_significance_mean",
    "valley_significance_worst",
    "valley_significance_median",
    "separation_worst",
    "separation_median",
    "merging_cost_worst",
    "merging_cost_median",
    # more of the same, with small clusters kept from having the last word
    "rows_without_mode",
    "rows_with_two_modes",
    "own_mode_notable",
    "basins_agree",
    "high_basins_agree",
    "valley_rows",
    "valley_significance_notable",
    "separation_rows",
    "merging_cost_rows",
    "merging_cost_notable",
    "silhouette_notable",
    "border_sparsity_notable",
    "conductance_rows",
    "density_validity_notable",
    # columns
    "column_best",
    "column_top_3",
    "column_median",
    "columns_mattering",
    "columns_mostly_explained",
    "columns_idle",
)
"""Names of the columns of evidence, in their order. New ones go to the end, since judges are trained on this order."""


def evidence_of(geometry: Geometry, labels: Int[Labels, "R N"]) -> Float[Singles, "R F"]:
    """Evidence about R partitions of the rows; one line each, columns as in `FEATURES`.

    Parameters
    ----------
    geometry : Geometry
        Of the N rows.
    labels : integer array (R, N)
        Cluster of each row under each partition, from 0.

    Returns
    -------
    array (R, F)
        Finite numbers that depend neither on the scale of the rows nor on the names of the clusters.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> labels = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    >>> evidence_of(Geometry.of(x), labels)[:, FEATURES.index("nearest_centre")].tolist()
    [1.0, 0.5]
    """
    labels = np.asarray(labels)
    shared = whole(geometry)
    table = np.empty((len(labels), len(FEATURES)), dtype=np.float32)
    for start, stop in _blocks(labels):
        parts = Partitions.of(labels[start:stop])
        moments = Moments.of(geometry, parts)
        found: dict[str, Reals | float] = {
            **shared,
            **size_evidence(parts),
            **neighbourhood_evidence(geometry, parts),
            **gap_evidence(geometry, parts),
            **mode_evidence(geometry, parts),
            **separation_evidence(geometry, parts),
            **normality_evidence(geometry, parts, moments),
            **shape_evidence(parts, moments),
            **pair_evidence(geometry, parts, moments),
            **column_evidence(geometry, parts),
        }
        for column, name in enumerate(FEATURES):
            table[start:stop, column] = found[name]
    return table


def _blocks(labels: Labels) -> list[tuple[int, int]]:
    """Ranges of partitions whose clusters, times the rows, fit into what is held at once."""
    clusters = labels.max(axis=1, initial=0) + 1
    bounds = [0]
    held = 0
    for run, count in enumerate(clusters.tolist()):
        if held and (held + count) * labels.shape[1] > _CELLS:
            bounds.append(run)
            held = 0
        held += count
    bounds.append(len(labels))
    return [(start, stop) for start, stop in pairwise(bounds) if stop > start]


def ranks_of(evidence: Float[Singles, "R F"]) -> Float[Singles, "R F"]:
    """Rank of each partition in each column, from 0 for the smallest to 1; equal values share their mean rank.

    Examples
    --------
    >>> import numpy as np
    >>> ranks_of(np.array([[3.0], [1.0], [3.0]], dtype=np.float32)).ravel().tolist()
    [0.75, 0.0, 0.75]
    """
    if len(evidence) < 2:
        return np.full(evidence.shape, 0.5, dtype=np.float32)
    ranks: Singles = ((rankdata(evidence, axis=0) - 1.0) / (len(evidence) - 1.0)).astype(np.float32)
    return ranks
