"""The map: two-dimensional positions of rows and prototypes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from coterie.base import BaseClusterer, FitDescription
from coterie.reporting.data import OUTLIER, SEED, ClusteringData, sample_rows
from coterie.reporting.formatting import Colour, format_percent
from coterie.reporting.images import indexed_png
from coterie.reporting.sections import Axis, axis_over
from coterie.tables.table import Table, take_rows

MAP_ROWS = 5_000
TSNE_ROWS = 2_000  # most points of a t-SNE map, which takes seconds to compute
_FEWEST_TSNE_ROWS = 10
_PERPLEXITY = 30.0
WIDTH, HEIGHT = 1000.0, 620.0
_GRID = (280, 174)
_MARGIN = 0.05
_LOADINGS = 3
_EXACT_SIDE = 500  # tables with more rows or columns have approximate principal axes,
_EXACT_COLUMNS = 1_000  # unless they are that narrow, and ten times as long


@dataclass(frozen=True)
class Map:
    """Rows as points; positions are in units of the drawing, `WIDTH` by `HEIGHT`, y pointing down."""

    rows: NDArray[np.int64]
    points: NDArray[np.float64]
    prototypes: NDArray[np.float64]
    x: Axis
    y: Axis
    point_size: float
    regions: str | None  # image of the cluster that a row at each position would be assigned to
    explanation: str
    prototype_meaning: str


@dataclass(frozen=True)
class _Projection:
    points: NDArray[np.float64]
    prototypes: NDArray[np.float64]
    titles: tuple[str, str]
    explanation: str
    same_scale: bool
    prototype_meaning: str = ""  # set where it differs from the usual one


def build_map(data: ClusteringData, model: BaseClusterer, description: FitDescription, colours: list[Colour]) -> Map:
    """Place rows by their values if there are two columns, by learned embeddings, or by principal components."""
    numbers = [feature.column for feature in data.features if feature.kind == "number"]
    two_numbers = len(data.features) == 2 and numbers == list(data.table.names)
    trained = description.prototypes is not None
    embed = description.embed
    if two_numbers or len(data.labels) < _FEWEST_TSNE_ROWS:
        embed = None
    rows = sample_rows(len(data.labels), MAP_ROWS if embed is None else TSNE_ROWS)
    if two_numbers:
        view = _plot_values(data, rows, trained=trained)
    elif embed is not None:
        view = _project_embeddings(data, np.asarray(embed(take_rows(data.table, rows))), rows)
    elif data.encoded.shape[1] == 1:
        view = _plot_one_column(data, rows)
    else:
        view = _project_principal(data, rows)
    low, high = _frame(view)
    scale = np.array([WIDTH, HEIGHT]) / (high - low)
    # Points are drawn in random order; otherwise the last cluster would cover the others.
    order = np.random.default_rng(SEED).permutation(len(rows))
    return Map(
        rows=rows[order],
        points=_flip_y((view.points[order] - low) * scale),
        prototypes=_flip_y((view.prototypes - low) * scale),
        x=axis_over(low[0], high[0], view.titles[0]),
        y=axis_over(low[1], high[1], view.titles[1]),
        point_size=float(np.clip(8.5 - 0.85 * np.log2(max(len(rows), 64) / 64), 3.2, 8.5)),
        regions=_regions(model, data.table, low, high, colours) if two_numbers and data.n_clusters > 1 else None,
        explanation=view.explanation,
        prototype_meaning=view.prototype_meaning
        or ("the trained prototypes of the clusters" if trained else "the means of the clusters"),
    )


def _flip_y(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([points[:, 0], HEIGHT - points[:, 1]])


def _plot_values(data: ClusteringData, rows: NDArray[np.int64], *, trained: bool) -> _Projection:
    regions = "the basins of attraction of the prototypes" if trained else "the regions of the clusters"
    elsewhere = "; elsewhere it would be an outlier" if data.n_outliers else ""
    values = data.values[rows]
    return _Projection(
        points=np.where(~np.isfinite(values), data.encoder.inverse_transform(data.encoded[rows]), values),
        prototypes=data.encoder.inverse_transform(data.prototypes),
        titles=(data.label(0), data.label(1)),
        explanation=f"Each point is a row at its two values. The tinted areas are {regions}: "
        f"a new row there would be assigned to the cluster of that colour{elsewhere}.",
        same_scale=False,
    )


def _plot_one_column(data: ClusteringData, rows: NDArray[np.int64]) -> _Projection:
    def along(encoded: NDArray[np.float32], height: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([data.encoder.inverse_transform(encoded)[:, 0], height])

    return _Projection(
        points=along(data.encoded[rows], np.random.default_rng(SEED).uniform(-1, 1, len(rows))),
        prototypes=along(data.prototypes, np.zeros(len(data.prototypes))),
        titles=(data.label(0), ""),
        explanation="There is one column, shown from left to right; the height is random and only separates points.",
        same_scale=False,
    )


def _project_embeddings(data: ClusteringData, embeddings: NDArray[np.float32], rows: NDArray[np.int64]) -> _Projection:
    from sklearn.manifold import TSNE  # noqa: PLC0415  (slow to import, and only for maps of embeddings)

    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="random", random_state=SEED)
    points = tsne.fit_transform(embeddings).astype(np.float64)
    # The centre of a cluster has no position on a t-SNE map, so the nearest row marks it.
    centres = data.memberships[rows].T @ embeddings
    nearest = (centres @ embeddings.T).argmax(axis=1)
    return _Projection(
        points=points,
        prototypes=points[nearest],
        titles=("", ""),
        explanation=f"Each point is one {data.noun}, placed by t-SNE on the embeddings that the network learned: "
        f"similar {data.noun}s are close together. Distances between groups mean little.",
        same_scale=True,
        prototype_meaning=f"at the {data.noun} nearest to the centre of each cluster",
    )


def _project_principal(data: ClusteringData, rows: NDArray[np.int64]) -> _Projection:
    # Images stay float32 to save memory.
    points = data.encoded[rows].astype(np.float64 if data.table.image is None else np.float32)
    together = np.vstack([points, data.prototypes])
    if together.var(axis=0).sum() == 0:
        zeros = np.zeros((len(together), 2))
        return _Projection(
            points=zeros[: len(rows)],
            prototypes=zeros[len(rows) :],
            titles=("", ""),
            explanation=f"All {data.noun}s are equal, so all points coincide.",
            same_scale=False,
        )
    axes, ratios = _principal_axes(together)
    projected = (together - together.mean(axis=0)) @ axes.T
    titles = [_component_title(data, axes[i], ratios[i], i + 1) for i in (0, 1)]
    explained = float(ratios.sum())
    caution = "clusters that overlap here may be separate in other dimensions"
    if explained > 0.95:
        caution = "the map shows nearly everything"
    return _Projection(
        points=projected[: len(rows)],
        prototypes=projected[len(rows) :],
        titles=(titles[0], titles[1]),
        explanation=f"Each point is one {data.noun}, placed by the first two principal components. "
        f"They explain {format_percent(explained)} of the variance, so {caution}.",
        same_scale=True,
    )


def _principal_axes(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the first two principal axes (2, D), the largest entry of each positive, and their shares of the variance.

    They are those of ``sklearn.decomposition.PCA``, which is slow to import.
    """
    centred = x - x.mean(axis=0)
    rows, columns = x.shape
    if max(rows, columns) <= _EXACT_SIDE or (columns <= _EXACT_COLUMNS and rows >= 10 * columns):
        squares, vectors = np.linalg.eigh(centred.T @ centred)
        squares, axes = squares[:-3:-1], vectors.T[:-3:-1]
    else:
        _, singular, axes = randomized_svd(centred, 2, random_state=SEED, flip_sign=False)
        squares = singular**2
    axes = axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1))
    return axes, np.maximum(squares, 0.0) / (centred**2).sum()


def _component_title(data: ClusteringData, loadings: NDArray[np.float64], explained: float, number: int) -> str:
    title = f"Component {number}, {format_percent(explained)} of variance"
    if data.table.image is not None:
        return title
    strongest = sorted(data.independent_features, key=lambda i: (-abs(loadings[i]), i))[:_LOADINGS]
    names = [f"{'+' if loadings[i] > 0 else '−'} {data.label(i)}" for i in strongest if abs(loadings[i]) > 1e-6]
    return f"{title}: {', '.join(names)}"


def _frame(view: _Projection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the drawing around all points, with comparable axes if they have the same scale."""
    together = np.vstack([view.points, view.prototypes])
    low, high = together.min(axis=0), together.max(axis=0)
    span = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    span = span * (1 + 2 * _MARGIN)
    # The scales of the axes may differ by a factor of two, which uses the area better.
    if view.same_scale:
        unit = max(span[0] / WIDTH, span[1] / HEIGHT)
        span = np.maximum(span, unit * np.array([WIDTH, HEIGHT]) / 2)
    middle = (low + high) / 2
    return middle - span / 2, middle + span / 2


def _regions(
    model: BaseClusterer, table: Table, low: NDArray[np.float64], high: NDArray[np.float64], colours: list[Colour]
) -> str:
    """Colour a grid over the map by the cluster that a row there would be assigned to."""
    width, height = _GRID
    steps = [(np.arange(size) + 0.5) / size for size in _GRID]
    xs = low[0] + (high[0] - low[0]) * steps[0]
    ys = high[1] - (high[1] - low[1]) * steps[1]
    grid = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    labels = model.predict(Table(table.names, block=grid, named=table.named)).reshape(height, width)
    # Outliers are transparent.
    return indexed_png(np.where(labels == OUTLIER, 0, 1 + labels % 255), [None, *(colour.light for colour in colours)])
