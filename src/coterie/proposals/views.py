"""Forms of the columns that algorithms may see: what is near to what depends on the scales."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self, final

import numpy as np
from scipy.special import ndtri

from coterie.data.scaling import NumberSummary, summarise
from coterie.proposals.partitions import Floats

_FAR = 10.0  # deviations from the centre at which standardised values are clipped
_MOST_DIMENSIONS = 50
_KEPT_VARIANCE = 0.99
_LEAST_WHITENED = 4  # thin clusters side by side differ along an axis of little variance: few axes are all kept
_MOST_KNOTS = 256
# Raw columns are worth a look of their own only where their deviations differ, but not so much that one column is all.
_RAW_RATIOS = (1.15, 30.0)
_EQUAL_VARIANCES = 1.3
_SKEWED, _HEAVY_TAILED = 1.0, 3.0
_SKEWED_SHARE = 0.2
_FEW_VALUES = 10


@final
@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A form of the columns, fitted on some rows and applicable to others.

    Attributes
    ----------
    name : {"raw", "standardised", "whitened", "ranks"}
        Which form.
    centre, scale : float64 array (D,)
        Subtracted from each column, and what the difference is divided by; infinite for constant columns.
    limit : float64 array ()
        Scaled values are clipped there.
    knots, scores : float64 array (Q, D)
        For "ranks", scaled values and their normal scores, interpolated between; no rows otherwise.
    projection : float64 array (D, E)
        Applied last; no columns if none is.
    """

    name: str
    centre: Floats
    scale: Floats
    limit: Floats
    knots: Floats
    scores: Floats
    projection: Floats

    def transform(self, x: Floats) -> Floats:
        """Bring rows (N, D) into this form (N, E)."""
        # Halves, since the difference of two huge values of opposite sign overflows.
        with np.errstate(over="ignore"):
            z = (0.5 * x - 0.5 * self.centre) / (0.5 * self.scale)
        z = np.clip(z, -self.limit, self.limit)
        if len(self.knots):
            columns = (np.interp(*three) for three in zip(z.T, self.knots.T, self.scores.T, strict=True))
            z = np.stack(list(columns), axis=1)
        return z @ self.projection if self.projection.size else z

    def to_arrays(self) -> dict[str, Floats]:
        """All but the name, to be saved."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, Floats]) -> Self:
        """Undo `to_arrays`."""
        return cls(name, **arrays)


def fit_views(x: Floats) -> list[View]:
    """Forms of the rows (N, D) that differ from one another, those that tell most beyond the ones before them first."""
    summary = summarise(x, np.ones(x.shape[1], dtype=np.bool_))
    scale = np.where(summary.constant, np.inf, summary.scale)
    standardised = _plain("standardised", summary.centre, scale, _FAR)
    z = standardised.transform(x)
    views = [_reduced(standardised, x)]
    if _is_skewed(z):
        knots, scores = _normal_scores(z)
        ranks = View("ranks", summary.centre, scale, np.array(_FAR), knots, scores, _nothing(x, axis=1))
        views.append(_reduced(ranks, x))
    if (raw := _raw(summary)) is not None:
        views.append(_reduced(raw, x))
    if (directions := _whitening(z)).size:
        views.append(_plain("whitened", summary.centre, scale, _FAR, directions))
    return views


def views_of(x: Floats) -> dict[str, Floats]:
    """Return the rows in every form of `fit_views`, by its name."""
    return {view.name: view.transform(x) for view in fit_views(x)}


def _nothing(x: Floats, axis: int) -> Floats:
    return np.empty((0, x.shape[-1]) if axis == 0 else (x.shape[-1], 0))


def _plain(name: str, centre: Floats, scale: Floats, limit: float, projection: Floats | None = None) -> View:
    none = np.empty((0, len(centre)))
    return View(name, centre, scale, np.array(limit), none, none, none.T if projection is None else projection)


def _reduced(view: View, x: Floats) -> View:
    """Let a view of very many columns end in their leading principal axes, which keep distances as far as may be."""
    if x.shape[1] <= _MOST_DIMENSIONS:
        return view
    variances, directions = _principal_axes(view.transform(x))
    kept = directions[:, : min(_MOST_DIMENSIONS, max(1, int((variances > 0).sum())))]
    return View(view.name, view.centre, view.scale, view.limit, view.knots, view.scores, kept)


def _principal_axes(z: Floats) -> tuple[Floats, Floats]:
    """Variances, largest first and zero where they are but rounding, and the axes as columns."""
    centred = z - z.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    singular[singular < 1e-9 * max(singular[0], 1e-9)] = 0.0
    # The sign of an axis is arbitrary; its largest entry shall be positive.
    sign = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    return singular**2 / len(z), (axes * sign[:, None]).T


def _raw(summary: NumberSummary) -> View | None:
    varying = summary.scale[~summary.constant]
    if not varying.size or not _RAW_RATIOS[0] <= varying.max() / varying.min() <= _RAW_RATIOS[1]:
        return None
    scale = np.where(summary.constant, np.inf, varying.max())
    return _plain("raw", summary.centre, scale, 1e3)


def _whitening(z: Floats) -> Floats:
    """Projection (D, E) to principal components of variance one; no columns if it would change nothing."""
    variances, axes = _principal_axes(z)
    if z.shape[1] == 1 or variances[0] == 0.0:
        return _nothing(z, axis=1)
    enough = int(np.searchsorted(np.cumsum(variances), _KEPT_VARIANCE * variances.sum())) + 1
    enough = min(max(enough, _LEAST_WHITENED), _MOST_DIMENSIONS, int((variances > 1e-6 * variances[0]).sum()))
    if variances[0] <= _EQUAL_VARIANCES * variances[enough - 1] and enough == (z.std(axis=0) > 0).sum():
        return _nothing(z, axis=1)
    projection: Floats = axes[:, :enough] / np.sqrt(variances[:enough])
    return projection


def _is_skewed(z: Floats) -> bool:
    """Whether many of the columns with more than a few values have long tails."""
    continuous = np.array([len(np.unique(column)) > _FEW_VALUES for column in z.T])
    if not continuous.any():
        return False
    centred = z[:, continuous] - z[:, continuous].mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0))
    moments = centred / np.maximum(deviation, np.finfo(np.float64).tiny)
    skewed = np.abs((moments**3).mean(axis=0)) > _SKEWED
    heavy = (moments**4).mean(axis=0) - 3.0 > _HEAVY_TAILED
    return bool((skewed | heavy).mean() >= _SKEWED_SHARE)


def _normal_scores(z: Floats) -> tuple[Floats, Floats]:
    """Knots (Q, D) and normal scores of their ranks; equal values share the mean of their ranks."""
    knots, scores = [], []
    for column in z.T:
        values, counts = np.unique(column, return_counts=True)
        middle = (np.cumsum(counts) - 0.5 * counts) / len(column)
        # Few values are repeated, which interpolation does not mind; very many are thinned out.
        picked = np.linspace(0, len(values) - 1, min(_MOST_KNOTS, len(z))).round().astype(np.int64)
        knots.append(values[picked])
        scores.append(ndtri(middle[picked]) if len(values) > 1 else np.zeros(len(picked)))
    return np.stack(knots, axis=1), np.stack(scores, axis=1)
