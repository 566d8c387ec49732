"""Views: transformations of the columns under which algorithms look for clusters.

Letters: N rows, D features, E dimensions of a view, Q knots.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeAlias, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float
from scipy.linalg import svd
from scipy.special import ndtri

from coterie.judged.columns import FEW_VALUES, Columns, Flags, Floats, prediction_weights
from coterie.tables.encoder import NumberSummary, summarise

Singles = npt.NDArray[np.float32]

_CLIP = 10.0  # standard deviations at which standardised values are clipped
_WIDE_CLIP = 1e9  # of heavy-tailed values before they are transformed; powers of larger ones overflow
_BEYOND = 10.0  # ranges of the values by which the transformation goes on beyond them
_MAX_DIMENSIONS = 50
_KEPT_VARIANCE = 0.99
_MIN_WHITENED = 4  # thin parallel clusters differ along an axis of little variance: keep all of a few axes
_WHITENED_WEIGHT = 0.5  # columns that count less are not whitened, which would undo their weights
_MIN_COLUMNS_OF_FACTORS = 4
# Columns that say little of one another may still agree on the clusters, if there are several of them.
_DOWNWEIGHTED, _MIN_DOWNWEIGHTED = 0.7, 2
_MAX_KNOTS = 256
# Raw columns differ from standardised ones only where scales differ, but a single column must not dominate.
_RAW_RATIOS = (1.15, 30.0)
_EQUAL_VARIANCES = 1.3
_SKEWED, _HEAVY_TAILED = 1.0, 3.0  # skewness and excess kurtosis above which ranks may help
_SKEWED_FRACTION = 0.2
_VERY_SKEWED, _VERY_HEAVY_TAILED = 2.0, 10.0  # above which distances in original units say little
_COSINE_DIMENSIONS = 100
_CELLS_AT_ONCE = 2**22


@final
@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A transformation of the features, fitted on some rows and applicable to others."""

    name: str  # "standardised", "power", "ranks", "raw", "whitened", "factors" or "unweighted"
    centre: Floats  # (D,): subtracted from each feature
    scale: Floats  # (D,): what the difference is divided by; infinite for constant columns
    limit: Floats  # () or (D,): scaled values are clipped to plus and minus this
    knots: Floats  # (Q, D): scaled values to interpolate between; no rows if there is no such step
    scores: Floats  # (Q, D): what the knots become
    weight: Floats  # (D,): factor of each feature
    projection: Floats  # (D, E): applied last; no columns if there is none

    @classmethod
    def from_arrays(cls, name: str, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """Restore a view from ``to_arrays``; those of version 0.2 had no weights."""
        return cls(name, **{"weight": np.ones(len(arrays["centre"])), **arrays})

    def to_arrays(self) -> dict[str, Floats]:
        """Return all fields but the name, to save."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}

    def transform(self, x: Floats) -> Floats:
        """Transform rows (N, D) to (N, E)."""
        # Halves, since the difference of two huge values of opposite sign overflows.
        with np.errstate(over="ignore"):
            z = (0.5 * x - 0.5 * self.centre) / (0.5 * self.scale)
        z = np.clip(z, -self.limit, self.limit)
        if len(self.knots):
            columns = (np.interp(*three) for three in zip(z.T, self.knots.T, self.scores.T, strict=True))
            z = np.stack(list(columns), axis=1)
        z = z * self.weight
        return z @ self.projection if self.projection.size else z


@final
@dataclass(frozen=True, slots=True, eq=False)
class CosineView:
    """Directions of wide rows: centred unit vectors on their leading principal axes, again of length one.

    Distances between them order pairs of rows as the cosine does.
    """

    name: ClassVar[str] = "cosine"
    factor: Singles  # (D,): what encoded columns are multiplied by to be in the units of the input
    origin: Singles  # (D,): what is then added
    mean: Singles  # (D,): of the unit vectors
    axes: Singles  # (D, E): principal axes of the centred unit vectors

    @classmethod
    def fit(cls, encoded: Float[Singles, "N D"], factor: Floats, origin: Floats) -> Self:
        """Fit to encoded rows; multiplied by `factor` and moved by `origin` they are in the units of the input."""
        unit = float(np.abs(factor).max()) or 1.0  # lengths do not matter, and squares of huge ones overflow
        none = np.empty(0, dtype=np.float32)
        fitted = cls((factor / unit).astype(np.float32), (origin / unit).astype(np.float32), none, none[:, None])
        units = fitted.units(encoded)
        mean = units.mean(axis=0)
        centred = units - mean
        if len(centred) >= centred.shape[1]:
            axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))[1][:, ::-1]
        else:
            axes = _singular_vectors(centred.astype(np.float64))[1].T
        axes = axes[:, : min(_COSINE_DIMENSIONS, *centred.shape)]
        # The sign of an axis is arbitrary: make its largest entry positive.
        axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
        return replace(fitted, mean=mean, axes=axes.astype(np.float32))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """Restore a view from ``to_arrays``."""
        return cls(**arrays)

    def to_arrays(self) -> dict[str, Singles]:
        """Return all fields, to save."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def units(self, encoded: npt.NDArray[Any]) -> Singles:
        """Return encoded rows (N, D) as unit vectors in the units of the input; rows of zeros stay zeros."""
        rows: Singles = encoded * self.factor
        rows += self.origin
        lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
        rows /= np.maximum(lengths, np.finfo(np.float32).tiny)[:, None]
        return rows

    def transform(self, x: npt.NDArray[Any]) -> Floats:
        """Transform encoded rows (N, D) to directions (N, E)."""
        projected = np.empty((len(x), self.axes.shape[1]))
        step = max(1, _CELLS_AT_ONCE // len(self.mean))
        for start in range(0, len(x), step):  # wide rows take much memory
            rows = self.units(np.asarray(x[start : start + step], dtype=np.float32))
            rows -= self.mean
            projected[start : start + step] = rows @ self.axes
        lengths = np.sqrt(np.einsum("ne,ne->n", projected, projected))
        projected /= np.maximum(lengths, np.finfo(np.float32).tiny)[:, None]
        return projected


AnyView: TypeAlias = View | CosineView


def restore_view(name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> AnyView:
    """Restore a view of that name from the arrays of its ``to_arrays``."""
    return CosineView.from_arrays(arrays) if name == CosineView.name else View.from_arrays(name, dict(arrays))


def fit_views(x: Float[Floats, "N D"], columns: Columns | None = None) -> tuple[View, ...]:
    """Fit the views of rows that differ from one another.

    The first is the reference, in which features of partitions are computed: standardised columns, after a power
    transformation of heavy-tailed ones if there are any.
    """
    columns = columns or Columns.numbers(x.shape[1])
    discrete = columns.find_discrete(x)
    summary = summarise(x, np.ones(x.shape[1], dtype=np.bool_))
    centre = summary.centre
    scale = _scales(x, summary, columns)
    standardised = _linear_view("standardised", centre, scale, _CLIP)
    z = standardised.transform(x)
    continuous = ~discrete[columns.group] & np.array([len(np.unique(column)) > FEW_VALUES for column in z.T])
    heavy = continuous & _exceed(z, _VERY_SKEWED, _VERY_HEAVY_TAILED)
    reference = _power_view(x, standardised, heavy) if heavy.any() else standardised
    predicted = prediction_weights(reference.transform(x), columns, discrete)
    weight = (columns.weight * predicted)[columns.group]
    reference, standardised = replace(reference, weight=weight), replace(standardised, weight=weight)

    views = [_reduced(reference, x)]
    if (factors := _factors_view(reference, x, columns)) is not None:
        views.append(factors)
    if continuous.any() and _exceed(z, _SKEWED, _HEAVY_TAILED)[continuous].mean() >= _SKEWED_FRACTION:
        knots, scores = _normal_scores(z, continuous)
        views.append(_reduced(replace(standardised, name="ranks", knots=knots, scores=scores), x))
    if (raw := _raw_view(summary, columns)) is not None:
        views.append(_reduced(replace(raw, weight=weight), x))
    if (whitened := _whitened_view(reference, x)) is not None:
        views.append(whitened)
    if heavy.any():
        views.append(_reduced(standardised, x))
    if ((predicted < _DOWNWEIGHTED) & (columns.weight > 0.0)).sum() >= _MIN_DOWNWEIGHTED:
        views.append(_reduced(replace(reference, name="unweighted", weight=columns.weight[columns.group]), x))
    return tuple(views)


def _linear_view(name: str, centre: Floats, scale: Floats, limit: float) -> View:
    none = np.empty((0, len(centre)))
    return View(name, centre, scale, np.array(limit), none, none, np.ones(len(centre)), none.T)


def _scales(x: Floats, summary: NumberSummary, columns: Columns) -> Floats:
    """Return the scale of each feature: all features of a category together have variance one, two in one unit two."""
    scale = np.where(summary.constant, np.inf, summary.scale)
    if (category := columns.category[columns.group]).any():
        largest = float(np.abs(x[:, category]).max()) or 1.0  # first, since the squares of huge numbers overflow
        variances = np.zeros(x.shape[1])
        variances[category] = (x[:, category] / largest).var(axis=0)
        scale[category] = largest * columns.scales(variances)[category]
    if columns.in_one_unit:
        scale[list(columns.in_one_unit)] = np.sqrt(np.mean(scale[list(columns.in_one_unit)] ** 2))
    return scale


def _reduced(view: View, x: Floats) -> View:
    """Project a view of very many features to its leading principal axes."""
    if x.shape[1] <= _MAX_DIMENSIONS:
        return view
    variances, directions = _principal_axes(view.transform(x))
    return replace(view, projection=directions[:, : min(_MAX_DIMENSIONS, max(1, int((variances > 0).sum())))])


def _principal_axes(z: Floats) -> tuple[Floats, Floats]:
    """Return the variances, largest first and zero where they are rounding only, and the axes as columns."""
    centred = z - z.mean(axis=0)
    singular, axes = _singular_vectors(centred)
    singular[singular < 1e-9 * max(singular[0], 1e-9)] = 0.0
    # The sign of an axis is arbitrary: make its largest entry positive.
    sign = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    return singular**2 / len(z), (axes * sign[:, None]).T


def _singular_vectors(x: Floats) -> tuple[Floats, Floats]:
    """Return the singular values, largest first, and the right singular vectors as rows."""
    try:
        _, singular, axes = np.linalg.svd(x, full_matrices=False)
    except np.linalg.LinAlgError:  # the fast algorithm can fail where many columns are the same
        _, singular, axes = svd(x, full_matrices=False, lapack_driver="gesvd")
    return singular, axes


def _raw_view(summary: NumberSummary, columns: Columns) -> View | None:
    """Return the columns in their own units; None where that would change nothing or let one column dominate."""
    varying = summary.scale[~summary.constant & ~columns.category[columns.group]]
    if not varying.size or not _RAW_RATIOS[0] <= varying.max() / varying.min() <= _RAW_RATIOS[1]:
        return None
    return _linear_view("raw", summary.centre, np.where(summary.constant, np.inf, varying.max()), 1e3)


def _factors_view(reference: View, x: Floats, columns: Columns) -> View | None:
    """Return the principal axes with more variance than chance gives them; None if that is none or all of them.

    What columns share has a large variance along some axis. Columns that have nothing to do with the others drop out.
    """
    if columns.count < _MIN_COLUMNS_OF_FACTORS:
        return None
    variances, axes = _principal_axes(reference.transform(x))
    # The largest variance of unrelated columns, by Marchenko and Pastur. Scales are robust: variances are not all one.
    highest = variances.sum() / columns.count * (1.0 + np.sqrt(columns.count / len(x))) ** 2
    kept = min(int((variances > highest).sum()), _MAX_DIMENSIONS)
    if not 0 < kept < int((variances > 0.0).sum()):
        return None
    return replace(reference, name="factors", projection=axes[:, :kept])


def _whitened_view(reference: View, x: Floats) -> View | None:
    """Return principal components of unit variance; None if they would change nothing."""
    view = replace(reference, name="whitened", weight=np.where(reference.weight >= _WHITENED_WEIGHT, 1.0, 0.0))
    z = view.transform(x)
    variances, axes = _principal_axes(z)
    if z.shape[1] == 1 or variances[0] == 0.0:
        return None
    enough = int(np.searchsorted(np.cumsum(variances), _KEPT_VARIANCE * variances.sum())) + 1
    enough = min(max(enough, _MIN_WHITENED), _MAX_DIMENSIONS, int((variances > 1e-6 * variances[0]).sum()))
    if variances[0] <= _EQUAL_VARIANCES * variances[enough - 1] and enough == (z.std(axis=0) > 0).sum():
        return None
    return replace(view, projection=axes[:, :enough] / np.sqrt(variances[:enough]))


def _exceed(z: Floats, skewness: float, kurtosis: float) -> Bool[Flags, " D"]:
    """Return which features are more skewed, or have heavier tails."""
    centred = z - z.mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0))
    moments = centred / np.maximum(deviation, np.finfo(np.float64).tiny)
    exceed: Flags = (np.abs((moments**3).mean(axis=0)) > skewness) | ((moments**4).mean(axis=0) - 3.0 > kurtosis)
    return exceed


def _power_view(x: Floats, standardised: View, heavy: Flags) -> View:
    """Return the standardised view after Yeo and Johnson's transformation of the heavy-tailed features."""
    from scipy.stats import yeojohnson  # noqa: PLC0415  (slow to import, and for heavy-tailed columns only)

    wide = replace(standardised, limit=np.where(heavy, _WIDE_CLIP, _CLIP))
    z = wide.transform(x)
    count = min(_MAX_KNOTS, len(x))
    knots = np.tile(np.linspace(-_CLIP, _CLIP, count + 2)[:, None], x.shape[1])
    scores = knots.copy()
    for feature in np.flatnonzero(heavy):
        values = np.unique(z[:, feature])
        low, middle, high = np.quantile(z[:, feature], (0.25, 0.5, 0.75))
        spread = max(high - low, np.abs(values).max() / _WIDE_CLIP)
        power = yeojohnson((z[:, feature] - middle) / spread)[1]
        # One more knot on either side, so that rows far beyond all others stay far from them.
        beyond = _BEYOND * (values[-1] - values[0])
        picked = values[np.linspace(0, len(values) - 1, count).round().astype(np.int64)]
        knots[:, feature] = values[0] - beyond, *picked, values[-1] + beyond
        transformed = yeojohnson((z[:, feature] - middle) / spread, power)
        with np.errstate(over="ignore"):  # beyond the values
            curve = yeojohnson((knots[:, feature] - middle) / spread, power)
        scores[:, feature] = np.clip((curve - transformed.mean()) / (transformed.std() or 1.0), -_CLIP, _CLIP)
    return replace(wide, name="power", knots=knots, scores=scores)


def _normal_scores(z: Floats, continuous: Flags) -> tuple[Floats, Floats]:
    """Return knots (Q, D) and the normal scores of their ranks; features that are not continuous stay as they are."""
    count = min(_MAX_KNOTS, len(z))
    knots = np.tile(np.linspace(-_CLIP, _CLIP, count)[:, None], z.shape[1])
    scores = knots.copy()
    for feature in np.flatnonzero(continuous):
        values, counts = np.unique(z[:, feature], return_counts=True)
        middle = (np.cumsum(counts) - 0.5 * counts) / len(z)  # equal values have the mean of their ranks
        # Few values are repeated, which does not affect the interpolation; very many are thinned out.
        picked = np.linspace(0, len(values) - 1, count).round().astype(np.int64)
        knots[:, feature], scores[:, feature] = values[picked], ndtri(middle[picked])
    return knots, scores
