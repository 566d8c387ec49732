"""Evidence from one normal cloud per cluster: likelihood gained, certainty of the labels, shape of the clusters."""

import numpy as np

from coterie.evidence.geometry import Geometry
from coterie.evidence.moments import Moments, log_determinants
from coterie.evidence.partitions import Partitions, Reals


def normality_evidence(geometry: Geometry, parts: Partitions, moments: Moments) -> dict[str, Reals]:
    """How well normal clouds explain the rows, at the price of their parameters, and whether they return the labels."""
    axes = moments.rows.shape[1]
    covariances = moments.covariances(moments.scatters, parts.sizes)
    determinants = log_determinants(covariances)
    inverses = np.linalg.inv(covariances).astype(np.float64, copy=False)
    distances = _mahalanobis(moments, inverses)  # (C, N)
    own_distance = parts.own(distances)
    constants = np.log(parts.sizes / parts.n_rows) - 0.5 * determinants
    distances *= -0.5
    distances += constants[:, None]  # log-likelihoods now, but for a constant that all share
    own, best = parts.own(distances), parts.most(distances)
    distances -= best[parts.owner]
    np.exp(distances, out=distances)
    mixture = best + np.log(parts.total(distances))

    single = np.cov(moments.rows.T, bias=True).reshape(axes, axes) + 1e-6 * np.eye(axes)
    alone = -0.5 * (log_determinants(single[None])[0] + axes)
    gain = mixture.mean(axis=1) - alone
    hard = own.mean(axis=1) - alone
    parameters = (parts.n_clusters - 1.0) * (1.0 + axes + axes * (axes + 1) / 2)
    price = 0.5 * parameters * np.log(parts.n_rows) / parts.n_rows
    certainty = np.exp(own - mixture)
    returned = own >= best - 1e-9
    kurtosis = parts.means(np.square(own_distance)) / (axes * (axes + 2.0)) - 1.0
    return {
        "normal_gain": gain / axes,
        "normal_gain_hard": hard / axes,
        "normal_bic": np.clip((gain - price) / axes, -10.0, 10.0),
        "normal_returns": returned.mean(axis=1),
        "normal_returns_worst": parts.least(parts.means(returned)),
        "normal_certainty": certainty.mean(axis=1),
        "normal_certainty_worst": parts.least(parts.means(certainty)),
        "kurtosis_mean": np.clip(parts.weighted(kurtosis), -1.0, 10.0),
        "kurtosis_most": np.log1p(np.maximum(parts.most(kurtosis), -0.9)),
        "axis_aligned_gain": _axis_aligned_gain(geometry, parts),
    }


def _mahalanobis(moments: Moments, inverses: Reals) -> Reals:
    """Squared distances (C, N) of all rows from all clouds, as one matrix product over monomials."""
    axes = moments.rows.shape[1]
    upper = np.triu_indices(axes)
    pulled = np.einsum("cij,cj->ci", inverses, moments.means)
    doubled = np.where(upper[0] == upper[1], 1.0, 2.0) * inverses[:, upper[0], upper[1]]
    constant = np.einsum("ci,ci->c", pulled, moments.means)
    forms = np.hstack([constant[:, None], -2.0 * pulled, doubled])
    squared: Reals = np.maximum(forms @ moments.monomials.T, 0.0)
    return squared


def _axis_aligned_gain(geometry: Geometry, parts: Partitions) -> Reals:
    """BIC gain per row and axis of clouds whose axes are those of all rows."""
    rows, axes = geometry.rows, geometry.rows.shape[1]
    sizes = parts.sizes[:, None]
    sums = parts.sums(np.hstack([rows, np.square(rows)]))
    scatter = np.maximum(sums[:, axes:] - np.square(sums[:, :axes]) / sizes, 0.0)
    total = np.square(rows).mean(axis=0) + 1e-6
    pooled = (parts.total(scatter) / parts.n_rows)[parts.owner] + 1e-6 * total
    variances = (scatter + 3.0 * pooled) / (sizes + 3.0)
    fit = -0.5 * np.log(variances / total).sum(axis=1) + np.log(parts.sizes / parts.n_rows)
    price = 0.5 * (parts.n_clusters - 1.0) * (2.0 * axes + 1.0) * np.log(parts.n_rows) / parts.n_rows
    gain: Reals = np.clip((parts.weighted(fit) - price) / axes, -10.0, 10.0)
    return gain
