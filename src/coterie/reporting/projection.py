"""The map: two-dimensional positions of rows and prototypes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd

from coterie.base import BaseClusterer, FitDescription
from coterie.reporting.data import OUTLIER, SEED, ClusteringData, sample_rows
from coterie.reporting.formatting import Colour, format_percent, plural
from coterie.reporting.images import indexed_png
from coterie.reporting.sections import Axis, axis_over
from coterie.tables.table import Table, take_rows

MAP_ROWS = 5_000
EMBEDDED_ROWS = 2_000  # rows on the map if a network must embed them
TSNE_ROWS = 1_000  # rows that t-SNE places, which takes a second; others are put beside the most similar of these
_FEWEST_TSNE_ROWS = 10
_PERPLEXITY = 20.0
_ITERATIONS, _ANGLE = 400, 0.8  # of t-SNE: half as many as usual, and coarser sums, for a map that looks the same
_COMPONENTS = 50  # principal components that t-SNE works on
_NEIGHBOURS = 3
_MOST_FOR_COMPONENTS = 12  # columns up to which principal components are shown, however much they explain,
_ENOUGH = 0.5  # and the fraction of the variance from which they are shown anyway
_LONGITUDE = frozenset({"lon", "lng", "long", "longitude"})
_LATITUDE = frozenset({"lat", "latitude"})
_MOST_BESIDE_COORDINATES = 4  # columns of a table that is drawn as a map
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
    labels: NDArray[np.float64]  # positions of the clusters' numbers; nan for a cluster without rows on the map
    x: Axis
    y: Axis
    point_size: float
    regions: str | None  # image of the cluster that a row at each position would be assigned to
    explanation: str
    label_meaning: str  # where the number of a cluster is
    name: str  # what is on the axes, in the list of what may be


@dataclass(frozen=True)
class _Projection:
    points: NDArray[np.float64]
    prototypes: NDArray[np.float64] | None  # trained ones, which are where they are; others are in the middle
    titles: tuple[str, str]
    explanation: str
    name: str  # in the list of what may be on the axes
    aspect: float | None = (
        0.0  # units to the right that are as long as one upwards; None for comparable axes, 0 for any
    )


def build_map(data: ClusteringData, model: BaseClusterer, description: FitDescription, colours: list[Colour]) -> Map:
    """Place rows by where they are on the globe, by their two values, by what is near, or by principal components."""
    numbers = [feature.column for feature in data.features if feature.kind == "number"]
    two_numbers = len(data.features) == 2 and numbers == list(data.table.names)
    trained = description.prototypes is not None
    rows = sample_rows(len(data.labels), MAP_ROWS if description.embed is None else EMBEDDED_ROWS)
    geographic = find_coordinates(data.table)
    regions_by: tuple[int, int] | None = None
    if geographic is not None:
        regions_by = geographic if two_numbers else None
        view = _plot_coordinates(data, rows, geographic)
    elif two_numbers:
        regions_by = (0, 1)
        view = _plot_values(data, rows, trained=trained)
    elif description.embed is not None and len(data.labels) >= _FEWEST_TSNE_ROWS:
        embeddings = np.asarray(description.embed(take_rows(data.table, rows)))
        view = _place_neighbours(data, embeddings, "the embeddings that the network learned")
    elif data.encoded.shape[1] == 1:
        view = _plot_one_column(data, rows)
    else:
        view = _project(data, rows, by_direction=not description.columns_meaningful, trained=trained)
    low, high = _frame(view)
    scale = np.array([WIDTH, HEIGHT]) / (high - low)
    # Points are drawn in random order; otherwise the last cluster would cover the others.
    order = np.random.default_rng(SEED).permutation(len(rows))
    middles = _middles(view.points, data.labels[rows], data.n_clusters) if view.prototypes is None else view.prototypes
    regions = ""
    if regions_by is not None and data.n_clusters > 1:
        view = replace(view, explanation=f"{view.explanation} {_explain_regions(data, trained=trained)}")
        regions = _regions(model, data.table, low, high, colours, regions_by)
    return Map(
        rows=rows[order],
        points=_flip_y((view.points[order] - low) * scale),
        labels=_flip_y((middles - low) * scale),
        x=axis_over(low[0], high[0], view.titles[0]),
        y=axis_over(low[1], high[1], view.titles[1]),
        point_size=float(np.clip(8.5 - 0.85 * np.log2(max(len(rows), 64) / 64), 3.2, 8.5)),
        regions=regions or None,
        explanation=view.explanation,
        label_meaning="at its trained prototype" if trained and view.prototypes is not None else "in its middle",
        name=view.name,
    )


def _middles(points: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int) -> NDArray[np.float64]:
    """Return the median position of the rows of each cluster, nan for one that has none here."""
    middles = np.full((n_clusters, 2), np.nan)
    for cluster in np.unique(labels[labels != OUTLIER]):
        middles[cluster] = np.median(points[labels == cluster], axis=0)
    return middles


def _flip_y(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([points[:, 0], HEIGHT - points[:, 1]])


def find_coordinates(table: Table) -> tuple[int, int] | None:
    """Return the positions of longitude and latitude in a table with few other columns; None if it has none."""
    if table.n_columns > _MOST_BESIDE_COORDINATES or table.image is not None:
        return None
    found = [
        [
            position
            for position, name in enumerate(table.names)
            if name.strip().lower() in names and _within(table.column(position), limit)
        ]
        for names, limit in ((_LONGITUDE, 180.0), (_LATITUDE, 90.0))
    ]
    return (found[0][0], found[1][0]) if all(len(positions) == 1 for positions in found) else None


def _within(values: NDArray[Any], limit: float) -> bool:
    if values.dtype.kind not in "iuf":
        return False
    finite = values[np.isfinite(values)]
    return bool(len(finite) and np.abs(finite.astype(np.float64)).max() <= limit)


def _plot_coordinates(data: ClusteringData, rows: NDArray[np.int64], positions: tuple[int, int]) -> _Projection:
    """Plot longitude to the right and latitude upwards; a degree of longitude is shorter away from the equator."""
    every = np.column_stack([data.table.column(position) for position in positions]).astype(np.float64)
    middle = [float(np.median(column[np.isfinite(column)])) for column in every.T]
    placed = np.isfinite(every[rows])
    points = np.where(placed, every[rows], middle)
    missing = int((~placed).any(axis=1).sum())
    latitudes = np.radians([points[:, 1].min(), points[:, 1].max()])
    without = f" Of {plural(missing, data.noun)} the position is unknown: they are in the middle." if missing else ""
    return _Projection(
        points=points,
        prototypes=None,
        titles=(data.table.names[positions[0]], data.table.names[positions[1]]),
        explanation=f"Each point is a {data.noun} at its longitude and latitude; north is up.{without}",
        name="longitude and latitude",
        aspect=1 / max(float(np.cos(latitudes.mean())), 0.05),
    )


def _plot_values(data: ClusteringData, rows: NDArray[np.int64], *, trained: bool) -> _Projection:
    values = data.values[rows]
    return _Projection(
        points=np.where(~np.isfinite(values), data.encoder.inverse_transform(data.encoded[rows]), values),
        prototypes=data.encoder.inverse_transform(data.prototypes) if trained else None,
        titles=(data.label(0), data.label(1)),
        explanation=f"Each point is a {data.noun} at its two values.",
        name="two values",
    )


def _explain_regions(data: ClusteringData, *, trained: bool) -> str:
    regions = "the basins of attraction of the prototypes" if trained else "the regions of the clusters"
    elsewhere = "; elsewhere it would be an outlier" if data.n_outliers else ""
    return (
        f"The tinted areas are {regions}: a new row there would be assigned to the cluster of that colour{elsewhere}."
    )


def _plot_one_column(data: ClusteringData, rows: NDArray[np.int64]) -> _Projection:
    def along(encoded: NDArray[np.float32], height: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([data.encoder.inverse_transform(encoded)[:, 0], height])

    return _Projection(
        points=along(data.encoded[rows], np.random.default_rng(SEED).uniform(-1, 1, len(rows))),
        prototypes=None,
        titles=(data.label(0), ""),
        explanation="There is one column, shown from left to right; the height is random and only separates points.",
        name="one column",
    )


def _project(data: ClusteringData, rows: NDArray[np.int64], *, by_direction: bool, trained: bool) -> _Projection:
    """Use principal components if they show most of what there is, and else keep near what is near."""
    # Images stay float32 to save memory.
    points = data.encoded[rows].astype(np.float64 if data.table.image is None else np.float32)
    together = np.vstack([points, data.prototypes]) if trained else points
    if together.var(axis=0).sum() == 0:
        return _Projection(
            points=np.zeros((len(rows), 2)),
            prototypes=None,
            titles=("", ""),
            explanation=f"All {data.noun}s are equal, so all points coincide.",
            name="",
        )
    axes, ratios = _principal_axes(together)
    columns = len({feature.column for feature in data.features})
    is_wide = columns > _MOST_FOR_COMPONENTS and float(ratios.sum()) < _ENOUGH
    if (by_direction or is_wide) and len(data.labels) >= _FEWEST_TSNE_ROWS:
        if by_direction:
            points = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        what = (
            f"directions of {data.noun}s" if by_direction else "all columns" if data.table.image is None else "pixels"
        )
        return _place_neighbours(data, points, what)
    projected = (together - together.mean(axis=0)) @ axes.T
    titles = [_component_title(data, axes[i], ratios[i], i + 1) for i in (0, 1)]
    explained = float(ratios.sum())
    caution = f"{data.noun}s that overlap here may differ in other columns"
    if explained > 0.95:
        caution = "the map shows nearly everything"
    return _Projection(
        points=projected[: len(rows)],
        prototypes=projected[len(rows) :] if trained else None,
        titles=(titles[0], titles[1]),
        explanation=f"Each point is one {data.noun}, placed by the first two principal components. "
        f"They explain {format_percent(explained)} of the variance, so {caution}.",
        name="principal components",
        aspect=None,
    )


def _place_neighbours(data: ClusteringData, x: NDArray[Any], compared_by: str) -> _Projection:
    """Place rows by t-SNE: similar ones near each other. Beyond a sample, a row is among its nearest of the sample."""
    from sklearn.manifold import TSNE  # noqa: PLC0415  (slow to import, and only for such maps)

    x = _reduce(x)
    sample = sample_rows(len(x), TSNE_ROWS)
    start = x[sample, :2] if x.shape[1] > 1 else np.column_stack([x[sample, 0], np.zeros(len(sample))])
    deviation = float(start[:, 0].std())
    tsne = TSNE(
        perplexity=min(_PERPLEXITY, (len(sample) - 1) / 3),
        init=(start * (1e-4 / deviation)).astype(np.float32) if deviation > 0 else "random",
        max_iter=_ITERATIONS,
        angle=_ANGLE,
        random_state=SEED,
    )
    placed = tsne.fit_transform(x[sample]).astype(np.float64)
    points = np.empty((len(x), 2))
    points[sample] = placed
    others = np.setdiff1d(np.arange(len(x)), sample)
    if len(others):
        from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415  (as above)

        neighbours = NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(x[sample])
        distances, nearest = neighbours.kneighbors(x[others])
        weights = 1 / np.maximum(distances, np.finfo(np.float32).tiny) ** 2  # so that equal rows are at one place
        weights /= weights.sum(axis=1, keepdims=True)
        points[others] = (weights[..., None] * placed[nearest]).sum(axis=1)
    return _Projection(
        points=points,
        prototypes=None,
        titles=("", ""),
        explanation=f"Each point is one {data.noun}, placed by t-SNE, which compares {compared_by}: similar "
        f"{data.noun}s are close together. Distances between groups, and their sizes, mean little.",
        name="similarity (t-SNE)",
        aspect=None,
    )


def _reduce(x: NDArray[Any]) -> NDArray[np.float32]:
    """Keep the first principal components, which have what distances between near rows tell."""
    centred = (x - x.mean(axis=0)).astype(np.float32)
    _, _, axes = randomized_svd(centred, min(_COMPONENTS, *centred.shape), random_state=SEED)
    reduced: NDArray[np.float32] = (centred @ axes.T).astype(np.float32)
    return reduced


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
    """Return the corners of the drawing around all points."""
    together = view.points if view.prototypes is None else np.vstack([view.points, view.prototypes])
    low, high = together.min(axis=0), together.max(axis=0)
    span = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    span = span * (1 + 2 * _MARGIN)
    sides = np.array([WIDTH, HEIGHT])
    if view.aspect is None:  # the scales of the axes may differ by a factor of two, which uses the area better
        span = np.maximum(span, (span / sides).max() * sides / 2)
    elif view.aspect:
        units = sides * [view.aspect, 1.0]
        span = (span / units).max() * units
    middle = (low + high) / 2
    return middle - span / 2, middle + span / 2


def _regions(
    model: BaseClusterer,
    table: Table,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    colours: list[Colour],
    axes: tuple[int, int],
) -> str:
    """Colour a grid over the map by the cluster that a row there would be assigned to."""
    width, height = _GRID
    steps = [(np.arange(size) + 0.5) / size for size in _GRID]
    xs = low[0] + (high[0] - low[0]) * steps[0]
    ys = high[1] - (high[1] - low[1]) * steps[1]
    grid = np.empty((width * height, 2))
    grid[:, axes] = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    labels = model.predict(Table(table.names, block=grid, named=table.named)).reshape(height, width)
    # Outliers are transparent.
    return indexed_png(np.where(labels == OUTLIER, 0, 1 + labels % 255), [None, *(colour.light for colour in colours)])
