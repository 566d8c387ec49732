"""Evidence from distances to clusters and to their centres: the classical indices."""

import numpy as np

from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Partitions, Reals, Singles, safe_log

_TINY = np.finfo(np.float32).tiny


def separation_evidence(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    """Silhouettes, Calinski-Harabasz, Davies-Bouldin, variance left over, and agreement with the nearest centre."""
    return {**_silhouettes(geometry, parts), **_centres(geometry, parts)}


def _silhouettes(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    sums: Singles = parts.one_hot() @ geometry.distances  # (C, N)
    sizes = parts.sizes.astype(np.float32)
    own_size = sizes[parts.cluster]
    within = parts.own(sums) / np.maximum(own_size - 1.0, 1.0)
    sums /= sizes[:, None]
    sums[parts.cluster, np.arange(parts.n_rows)] = np.inf
    between = parts.least(sums)
    defined = (own_size > 1.0) & np.isfinite(between)
    between = np.where(defined, between, within)
    values = np.where(defined, (between - within) / np.maximum(np.maximum(within, between), _TINY), 0.0)
    means = parts.means(values)
    return {
        "silhouette": values.mean(axis=1),
        "silhouette_worst": parts.least(means),
        "silhouette_median": parts.median(means),
        "silhouette_notable": parts.least_notable(means),
        "silhouette_negative": (values < 0.0).mean(axis=1),
    }


def _centres(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    rows, count = parts.n_rows, parts.n_clusters
    centres = parts.sums(geometry.rows) / parts.sizes[:, None]
    lengths = np.einsum("cd,cd->c", centres, centres)
    scatter = np.maximum(parts.totals(geometry.squares) - parts.sizes * lengths, 0.0)
    total = max(float(geometry.squares.sum()), float(_TINY))
    left = np.clip(parts.total(scatter) / total, 0.0, 1.0)
    ratio = (1.0 - left) * np.maximum(rows - count, 1.0) / (np.maximum(left, 1e-9) * np.maximum(count - 1.0, 1.0))

    squared = np.maximum(geometry.squares + lengths[:, None] - 2.0 * (centres @ geometry.rows.T), 0.0)
    own = parts.own(squared)
    nearest = own <= parts.least(squared) * (1.0 + 1e-9) + 1e-12
    radii = parts.means(np.sqrt(own))
    similarity = _most_similar(parts, centres, radii)
    return {
        "log_calinski_harabasz": np.where(count > 1, safe_log(ratio), 0.0),
        "log_davies_bouldin": np.where(count > 1, safe_log(parts.mean(similarity), 1e-3, 1e3), 0.0),
        "log_davies_bouldin_worst": np.where(count > 1, safe_log(parts.most(similarity), 1e-3, 1e3), 0.0),
        "variance_left": left,
        # Cutting an even cloud of d dimensions into k pieces leaves about k^(-2/d) of its variance.
        "log_left_to_uniform": safe_log(left) + 2.0 / geometry.dimension * np.log(count),
        "nearest_centre": nearest.mean(axis=1),
        "nearest_centre_worst": parts.least(parts.means(nearest)),
        "spherical_gain": _spherical_gain(geometry, parts, left),
        "log_radius_ratio": safe_log(parts.most(radii) / np.maximum(parts.median(radii), 1e-6), 1.0, 1e3),
    }


def _most_similar(parts: Partitions, centres: Reals, radii: Reals) -> Reals:
    """Davies and Bouldin's similarity (C,) of each cluster to the one it is most like."""
    padded, spread = parts.padded(centres, 0.0), parts.padded(radii, -np.inf)
    squares = np.einsum("rkd,rkd->rk", padded, padded)
    apart = squares[:, :, None] + squares[:, None, :] - 2.0 * (padded @ padded.transpose(0, 2, 1))
    apart = np.sqrt(np.maximum(apart, 1e-12))
    similar = (spread[:, :, None] + spread[:, None, :]) / apart
    similar[:, np.arange(similar.shape[1]), np.arange(similar.shape[1])] = -np.inf
    most: Reals = np.maximum(similar.max(axis=2)[parts.owner, parts.place], 0.0)
    return most


def _spherical_gain(geometry: Geometry, parts: Partitions, left: Reals) -> Reals:
    """Gain per row and column of equal round normal clusters over one, less the price of their parameters (BIC)."""
    rows, columns = parts.n_rows, float(geometry.rows.shape[1])
    share = parts.sizes / rows
    fit = -0.5 * columns * safe_log(left * rows / np.maximum(rows - parts.n_clusters, 1.0))
    price = 0.5 * (parts.n_clusters - 1.0) * (columns + 1.0) * np.log(rows) / rows
    gain: Reals = (parts.total(share * np.log(share)) + fit - price) / columns
    return gain
