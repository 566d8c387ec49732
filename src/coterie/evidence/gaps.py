"""Evidence from spanning trees: what the partition cuts, and what it leaves together."""

import numpy as np
import numpy.typing as npt

from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Integers, Partitions, Reals

_CAP = 8.0  # of logarithms of ratios


def gap_evidence(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    """Gaps between clusters against the edges within; validity in terms of density."""
    return {
        **_tree_evidence(geometry, parts),
        **_reach_evidence(geometry, parts),
    }


def _ends(parts: Partitions, tree: Integers) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
    """Clusters (R, N - 1) of both ends of each edge, and whether they differ."""
    first, second = parts.cluster[:, tree[:, 0]], parts.cluster[:, tree[:, 1]]
    return first, second, first != second


def _extremes(parts: Partitions, tree: Integers, logs: Reals) -> tuple[Reals, Reals]:
    """Longest edge within each cluster and shortest edge out of it (C,); the usual length where there is none.

    A spanning tree holds the shortest of all edges that leave a cluster, so the latter is the gap itself.
    """
    first, second, cut = _ends(parts, tree)
    values = np.broadcast_to(logs, cut.shape)
    longest = np.full(len(parts.sizes), -np.inf)
    np.maximum.at(longest, first[~cut], values[~cut])
    shortest = np.full(len(parts.sizes), np.inf)
    np.minimum.at(shortest, first[cut], values[cut])
    np.minimum.at(shortest, second[cut], values[cut])
    longest = np.where(np.isfinite(longest), longest, np.median(logs))
    shortest = np.where(np.isfinite(shortest), shortest, longest)
    return longest, shortest


def _floored_logs(lengths: Reals) -> Reals:
    return np.log(np.maximum(lengths, 1e-3 * float(lengths.mean()) or 1.0))


def _tree_evidence(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    logs = _floored_logs(geometry.lengths)
    first, _, cut = _ends(parts, geometry.tree)
    values = np.broadcast_to(logs, cut.shape)
    longest, gap = _extremes(parts, geometry.tree, logs)
    clusters = len(parts.sizes)
    inner = np.bincount(first[~cut], minlength=clusters)
    typical = np.bincount(first[~cut], weights=values[~cut], minlength=clusters) / np.maximum(inner, 1)
    typical = np.where(inner > 0, typical, np.median(logs))
    cuts = cut.sum(axis=1)
    to_longest = np.clip(gap - longest, -_CAP, _CAP)
    to_typical = np.clip(gap - typical, -_CAP, _CAP)
    widest_cut = np.where(cut, values, logs.min()).max(axis=1)
    tail = np.clip(longest - typical, 0.0, _CAP)
    return {
        "gap_to_longest_worst": parts.least(to_longest),
        "gap_to_longest_median": parts.median(to_longest),
        "gap_to_typical_worst": parts.least(to_typical),
        "gap_to_typical_median": parts.median(to_typical),
        "log_dunn": np.clip(parts.least(gap) - parts.most(longest), -_CAP, _CAP),
        "log_cuts_to_fewest": np.log((cuts + 1.0) / parts.n_clusters),
        "cut_share": cuts / len(logs),
        "cut_length": np.where(cuts > 0, (values * cut).sum(axis=1) / np.maximum(cuts, 1) - logs.mean(), 0.0),
        "inner_tail_mean": parts.weighted(tail),
        "inner_tail_worst": parts.most(tail),
        # Above zero where the widest gap of all was missed.
        "uncut_to_cut": np.clip(parts.most(longest) - widest_cut, -_CAP, _CAP),
    }


def _reach_evidence(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    """Validity as of DBCV: density separation against density sparseness, on the tree of mutual reachability."""
    longest, gap = _extremes(parts, geometry.reach_tree, _floored_logs(geometry.reach_lengths))
    validity = np.sign(gap - longest) * -np.expm1(-np.abs(gap - longest))  # (gap - longest) / max of both
    return {
        "density_validity": parts.weighted(validity),
        "density_validity_notable": parts.least_notable(validity),
        "density_validity_worst": parts.least(validity),
        "density_validity_median": parts.median(validity),
    }
