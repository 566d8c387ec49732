"""All evidence about partitions, as one table with named columns."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self, final, get_args

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.special import ndtri
from scipy.stats import rankdata
from scipy.stats.qmc import Halton

from coterie.judged.candidates.candidate import Algorithm, Proposal
from coterie.judged.features.neighbours import gap_evidence, mode_evidence, modes_above, neighbourhood_evidence
from coterie.judged.features.partitions import (
    Integers,
    Labels,
    Moments,
    Partitions,
    Reals,
    Singles,
    rand_index,
    size_evidence,
)
from coterie.judged.features.separation import (
    column_evidence,
    normality_evidence,
    pair_evidence,
    separation_evidence,
    shape_evidence,
)
from coterie.judged.space import Floats, Space, fit_views

_PROBES = 256
_PROBED_AXES = 5


def whole(geometry: Space) -> dict[str, float]:
    """Size, dimension, spread of distances and densities, and whether there is anything to cluster at all."""
    rows = len(geometry.rows)
    distances = geometry.distances.ravel()
    mean = float(distances.mean(dtype=np.float64)) * rows / (rows - 1)
    square = 2.0 * float(geometry.squares.sum()) / (rows - 1)  # mean squared distance between two rows
    axes = np.square(geometry.rows).sum(axis=0)
    typical = float(np.median(geometry.lengths))
    edges = geometry.lengths
    near_normal, near_box = _emptiness(geometry.rows[:, :_PROBED_AXES])
    return {
        "log_rows": np.log(rows),
        "log_columns": np.log(geometry.n_columns),
        "log_dimension": np.log(geometry.dimension),
        "log_effective_axes": np.log(axes.sum() ** 2 / np.square(axes).sum()) if axes.any() else 0.0,
        "distance_spread": np.sqrt(max(square / mean**2 - 1.0, 0.0)) if mean > 0.0 else 0.0,
        "density_spread": float(geometry.log_cores.std()) * geometry.dimension,
        "edge_tail": np.log(np.quantile(edges, 0.99) / typical) if typical > 0.0 else 0.0,
        "equal_rows": float((geometry.neighbour_distances[:, 0] == 0.0).mean()),
        "emptiness_normal": near_normal,
        "emptiness_box": near_box,
        "log_islands": np.log(_islands(geometry)),
        "log_modes": np.log(modes_above(geometry, 1.0)),
        "second_mode": float(geometry.prominence[1]) if len(geometry.prominence) > 1 else 0.0,
    }


def _islands(geometry: Space) -> float:
    """Connected parts of the graph of mutual neighbours that hold more than a hundredth of the rows."""
    rows = len(geometry.rows)
    first, second = geometry.links.T
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(rows, rows))
    _, parts = connected_components(graph, directed=False)
    return float(max(1, (np.bincount(parts) > max(2.0, 0.01 * rows)).sum()))


def _emptiness(rows: Reals) -> tuple[float, float]:
    """Hopkins' statistic against a normal cloud and against a box: how far probes are from rows, against row to row.

    The probes are a fixed net that fills the space evenly, so that no chance is involved.
    """
    spread = rows.std(axis=0)
    if not spread.any():
        return 0.0, 0.0
    net = Halton(rows.shape[1], scramble=False).random(_PROBES + 1)[1:]  # the first one is a corner
    low, high = np.quantile(rows, [0.01, 0.99], axis=0)
    tree = KDTree(rows)
    apart = np.log(np.maximum(np.asarray(tree.query(rows, k=[2])[0]), 1e-3)).mean()
    probes = (ndtri(net) * spread, low + (high - low) * net)
    normal, box = (float(np.log(np.maximum(tree.query(probe)[0], 1e-3)).mean() - apart) for probe in probes)
    return normal, box


CONTEXT: tuple[str, ...] = (
    "agreement_mean",
    "agreement_best",
    "agreement_top_3",
    "agreement_top_10",
    "agreement_median",
    "agreement_same_k_best",
    "agreement_same_k_mean",
    "agreement_near_k_mean",
    "agreement_fewer_best",
    "agreement_more_best",
    "share_same_k",
    "share_fewer",
    "share_alike",
    "agreement_same_k_overall",
)
"""Names of the columns of context, in their order. New ones go to the end."""

_ALIKE = 0.9


def context_of(labels: Int[Labels, "R N"], n_clusters: Int[Integers, " R"]) -> Float[Singles, "R C"]:
    """Agreement (adjusted Rand index) of each partition with the others of the same rows; columns as in `CONTEXT`.

    Parameters
    ----------
    labels : integer array (R, N)
        Cluster of each row under each partition, from 0.
    n_clusters : integer array (R,)
        Number of clusters of each partition.

    Examples
    --------
    >>> import numpy as np
    >>> labels = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 2, 2]])
    >>> context_of(labels, np.array([2, 2, 3]))[:, CONTEXT.index("agreement_best")].tolist()
    [1.0, 1.0, 0.5714285969734192]
    """
    counts = np.asarray(n_clusters)
    others = ~np.eye(len(counts), dtype=np.bool_)
    agreement = rand_indices(labels)
    same = (counts[:, None] == counts) & others
    near = (np.abs(counts[:, None] - counts) <= 1) & others
    fewer, more = counts < counts[:, None], counts > counts[:, None]
    ordered = -np.sort(-np.where(others, agreement, -np.inf), axis=1)[:, : max(len(counts) - 1, 0)]
    among_same = (agreement * same).sum(axis=1)
    # How much partitions of this number agree with each other, whether with this one or not.
    at_k = counts[:, None] == counts
    pairs = at_k @ same.sum(axis=1)
    columns = (
        _mean(agreement, others),
        _best(agreement, others),
        _leading(ordered, 3),
        _leading(ordered, 10),
        np.median(ordered, axis=1) if ordered.shape[1] else np.zeros(len(counts)),
        _best(agreement, same),
        _mean(agreement, same),
        _mean(agreement, near),
        _best(agreement, fewer),
        _best(agreement, more),
        at_k.mean(axis=1),
        fewer.mean(axis=1),
        ((agreement > _ALIKE) & others).mean(axis=1),
        np.where(pairs > 0, at_k @ among_same / np.maximum(pairs, 1), 0.0),
    )
    return np.stack(columns, axis=1).astype(np.float32)


def _mean(values: Reals, chosen: npt.NDArray[np.bool_]) -> Reals:
    """Mean over the chosen of each line; zero where none is."""
    mean: Reals = (values * chosen).sum(axis=1) / np.maximum(chosen.sum(axis=1), 1)
    return mean


def _best(values: Reals, chosen: npt.NDArray[np.bool_]) -> Reals:
    """Largest of the chosen of each line; zero where none is."""
    best: Reals = np.where(chosen, values, -np.inf).max(axis=1)
    return np.where(np.isfinite(best), best, 0.0)


def _leading(ordered: Reals, count: int) -> Reals:
    """Mean of the first so many of each line."""
    if not ordered.shape[1]:
        return np.zeros(len(ordered))
    mean: Reals = ordered[:, :count].mean(axis=1)
    return mean


def rand_indices(labels: Int[Labels, "R N"]) -> Float[Reals, "R R"]:
    """Adjusted Rand index of every pair of partitions."""
    parts = Partitions.of(labels)
    runs, rows = parts.cluster.shape
    together = np.zeros((runs, runs))  # sums of squared cells of the contingency tables
    for run in range(runs):
        first = parts.starts[run]
        width = len(parts.sizes) - int(first)  # clusters of this partition and of all after it
        own = parts.cluster[run] - first
        cells = np.bincount((parts.cluster[run:] + (own * width - first)).ravel()).astype(np.float64)
        table = np.pad(cells, (0, -len(cells) % width)).reshape(-1, width)
        sums = np.add.reduceat(np.einsum("kc,kc->c", table, table), parts.starts[run:] - first)
        together[run, run:] = sums
        together[run:, run] = sums
    pairs = together - rows  # ordered pairs of different rows that both put together
    own = np.diagonal(pairs)
    return rand_index(pairs, own[:, None], own, rows)


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


def evidence_of(geometry: Space, labels: Int[Labels, "R N"]) -> Float[Singles, "R F"]:
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
    >>> evidence_of(Space.of(x), labels)[:, FEATURES.index("nearest_centre")].tolist()
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
)
STEPS: tuple[str, ...] = (
    *(f"{name} against fewer clusters" for name in STEPPED),
    *(f"{name} with more clusters" for name in STEPPED),
)
"""Names of the columns of steps, in their order."""
_PLACES = np.array([FEATURES.index(name) for name in STEPPED])


def steps_of(
    evidence: Float[Singles, "R F"], n_clusters: Int[Integers, " R"], series: Int[Integers, " R"]
) -> Float[Singles, "R S"]:
    """How evidence changes from the next smaller number of clusters of a series, and to the next larger one.

    Parameters
    ----------
    evidence : array (R, F)
        Columns as in `FEATURES`.
    n_clusters : integer array (R,)
        Number of clusters of each partition.
    series : integer array (R,)
        Partitions with the same number here are compared: those of one algorithm on one form of the columns.

    Returns
    -------
    array (R, S)
        Columns as in `STEPS`; zero at the ends of a series.

    Examples
    --------
    >>> import numpy as np
    >>> evidence = np.zeros((3, len(FEATURES)), dtype=np.float32)
    >>> evidence[:, FEATURES.index("silhouette")] = [0.5, 0.75, 0.25]
    >>> steps_of(evidence, np.array([2, 4, 3]), np.array([0, 0, 1]))[:, 0].tolist()
    [0.0, 0.25, 0.0]
    """
    order = np.lexsort((n_clusters, series))
    values, counts, group = evidence[order][:, _PLACES], n_clusters[order], series[order]
    rung = group * (counts.max() + 1) + counts  # rises along the order; equal for partitions of one number
    before = np.searchsorted(rung, rung, side="left") - 1
    after = np.searchsorted(rung, rung, side="right")
    has_before = (before >= 0) & (group[before] == group)
    after = np.minimum(after, len(rung) - 1)
    has_after = (group[after] == group) & (counts[after] > counts)
    steps = np.empty((len(evidence), len(STEPS)), dtype=np.float32)
    steps[order] = np.hstack(
        [
            np.where(has_before[:, None], values - values[before], 0.0),
            np.where(has_after[:, None], values[after] - values, 0.0),
        ]
    )
    return steps


ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
VIEWS = ("standardised", "raw", "whitened", "ranks")

BRIEF: tuple[str, ...] = (
    *FEATURES,
    *(f"rank of {name}" for name in FEATURES),
    *CONTEXT,
    *STEPS,
    *(f"by {name}" for name in ALGORITHMS),
    *(f"on {name}" for name in VIEWS),
)
"""Names of the columns of a brief, in their order."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """What is known about proposals for the same rows; more of them can join."""

    geometry: Space
    """Of the standardised rows: evidence is taken from these for all proposals, whatever form of the columns they saw,
    so that they can be compared."""
    proposals: tuple[Proposal, ...]
    """At least one."""
    evidence: Float[Singles, "R F"]
    """About each proposal alone."""

    @classmethod
    def of(cls, x: Floats, proposals: Sequence[Proposal]) -> Self:
        """Take the evidence.

        Parameters
        ----------
        x : float64 array (N, D)
            The rows in their original units.
        proposals : sequence of Proposal
            Partitions of these rows; at least one.
        """
        geometry = Space.of(fit_views(x)[0].transform(x))
        return cls(geometry, tuple(proposals), evidence_of(geometry, _labels(proposals)))

    def joined_by(self, others: Sequence[Proposal]) -> Self:
        """The case with further proposals, at least one, at the end."""
        evidence = np.concatenate((self.evidence, evidence_of(self.geometry, _labels(others))))
        return replace(self, proposals=(*self.proposals, *others), evidence=evidence)

    def brief(self) -> Float[Singles, "R C"]:
        """Lay out the proposals, one line each, columns as in `BRIEF`."""
        n_clusters = np.array([each.n_clusters for each in self.proposals])
        algorithm = np.array([ALGORITHMS.index(each.algorithm) for each in self.proposals])
        view = np.array([VIEWS.index(each.view) for each in self.proposals])
        brief: Singles = np.concatenate(
            (
                self.evidence,
                ranks_of(self.evidence),
                context_of(_labels(self.proposals), n_clusters),
                steps_of(self.evidence, n_clusters, algorithm * len(VIEWS) + view),
                _one_hot(algorithm, len(ALGORITHMS)),
                _one_hot(view, len(VIEWS)),
            ),
            axis=1,
        )
        return brief


def _labels(proposals: Sequence[Proposal]) -> Labels:
    return np.stack([each.labels for each in proposals])


def _one_hot(positions: Integers, width: int) -> Singles:
    rows: Singles = np.eye(width, dtype=np.float32)[positions]
    return rows
