"""The map: where each row and each prototype lies in two dimensions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from coterie.report.findings import OUTLIER, SEED, Findings, FittedClusterer, some_rows, thinned, was_trained
from coterie.report.formatting import Colour, percent
from coterie.report.images import indexed_png
from coterie.report.sections import Axis, axis_over
from coterie.tables.table import Table
from coterie.tcc.estimator import TCC

MAP_ROWS = 5_000
LEARNED_ROWS = 2_000
"""Most dots of a map that takes seconds to compute."""
_FEWEST_LEARNED = 10
_PERPLEXITY = 30.0
WIDTH, HEIGHT = 1000.0, 620.0
_GRID = (280, 174)
_MARGIN = 0.05
_LOADINGS = 3


@dataclass(frozen=True)
class Map:
    """Rows drawn as dots; places are in units of the picture, `WIDTH` by `HEIGHT`, downwards."""

    rows: NDArray[np.int64]
    places: NDArray[np.float64]
    prototypes: NDArray[np.float64]
    x: Axis
    y: Axis
    dot: float
    basins: str | None
    explanation: str
    rings: str
    """What the numbered rings are, in words."""


@dataclass(frozen=True)
class _Projection:
    points: NDArray[np.float64]
    prototypes: NDArray[np.float64]
    titles: tuple[str, str]
    explanation: str
    same_scale: bool
    rings: str = ""
    """What the prototypes are on this map, where they are not what they are elsewhere."""


def draw_map(found: Findings, model: FittedClusterer, colours: list[Colour]) -> Map:
    """Place rows by their values if there are two columns, by what a network learned of them, or by principal axes."""
    in_units = _is_plane(found)
    learned = isinstance(model, TCC) and not in_units and len(found.labels) >= _FEWEST_LEARNED
    rows = thinned(len(found.labels), LEARNED_ROWS if learned else MAP_ROWS)
    if in_units:
        view = _own_plane(found, model, rows)
    elif isinstance(model, TCC) and learned:
        view = _learned_plane(found, model, rows)
    elif found.encoded.shape[1] == 1:
        view = _strip(found, model, rows)
    else:
        view = _principal_plane(found, rows)
    low, high = _frame(view)
    scale = np.array([WIDTH, HEIGHT]) / (high - low)
    # A seeded shuffle of the drawing order, or the last cluster would cover the others.
    order = np.random.default_rng(SEED).permutation(len(rows))
    return Map(
        rows=rows[order],
        places=_downwards((view.points[order] - low) * scale),
        prototypes=_downwards((view.prototypes - low) * scale),
        x=axis_over(low[0], high[0], view.titles[0]),
        y=axis_over(low[1], high[1], view.titles[1]),
        dot=float(np.clip(8.5 - 0.85 * np.log2(max(len(rows), 64) / 64), 3.2, 8.5)),
        basins=_basins(model, found.table, low, high, colours) if in_units and found.n_clusters > 1 else None,
        explanation=view.explanation,
        rings=view.rings or _rings(model),
    )


def _rings(model: FittedClusterer) -> str:
    return "the prototypes, around which the clusters formed" if was_trained(model) else "the means of the clusters"


def _downwards(places: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([places[:, 0], HEIGHT - places[:, 1]])


def _is_plane(found: Findings) -> bool:
    own_columns = [feature.column for feature in found.features if feature.kind == "number"]
    return len(found.features) == 2 and own_columns == list(found.table.names)


def _own_plane(found: Findings, model: FittedClusterer, rows: NDArray[np.int64]) -> _Projection:
    areas = "the basins of attraction" if was_trained(model) else "where each cluster outweighs the others"
    elsewhere = ", and elsewhere be an outlier" if found.n_outliers else ""
    return _Projection(
        points=np.where(
            ~np.isfinite(found.values[rows]), model.table_.inverse(found.encoded[rows]), found.values[rows]
        ),
        prototypes=model.table_.inverse(found.prototypes),
        titles=(found.label(0), found.label(1)),
        explanation=f"Each dot is a row at its own two values. The tinted areas are {areas}: "
        f"a new row there would join the cluster of that colour{elsewhere}.",
        same_scale=False,
    )


def _strip(found: Findings, model: FittedClusterer, rows: NDArray[np.int64]) -> _Projection:
    def along(encoded: NDArray[np.float32], height: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.column_stack([model.table_.inverse(encoded)[:, 0], height])

    spread = np.random.default_rng(SEED).uniform(-1, 1, len(rows))
    return _Projection(
        points=along(found.encoded[rows], spread),
        prototypes=along(found.prototypes, np.zeros(len(found.prototypes))),
        titles=(found.label(0), ""),
        explanation="There is one column, so only the place from left to right means something; "
        "the height is random, to keep the dots apart.",
        same_scale=False,
    )


def _learned_plane(found: Findings, model: TCC, rows: NDArray[np.int64]) -> _Projection:
    learned = model.transform(some_rows(found.table, rows))
    perplexity = min(_PERPLEXITY, (len(rows) - 1) / 3)
    placed = TSNE(perplexity=perplexity, init="random", random_state=SEED).fit_transform(learned).astype(np.float64)
    # The middle of a cluster is where no row need be: of what is drawn, the row nearest to it stands for it.
    middles = found.memberships[rows].T @ learned
    nearest = (middles @ learned.T).argmax(axis=1)
    return _Projection(
        points=placed,
        prototypes=placed[nearest],
        titles=("", ""),
        explanation=f"Each dot is one {found.noun}, placed by what the network learned to see in it (t-SNE): "
        f"{found.noun}s that are alike to it are close together. How far groups are from each other means little.",
        same_scale=True,
        rings=f"at the {found.noun} nearest to the middle of each cluster",
    )


def _principal_plane(found: Findings, rows: NDArray[np.int64]) -> _Projection:
    # Of images, as wide as they are, twice the memory would be much.
    points = found.encoded[rows].astype(np.float64 if found.table.image is None else np.float32)
    together = np.vstack([points, found.prototypes])
    if together.var(axis=0).sum() == 0:
        flat = np.zeros((len(together), 2))
        return _Projection(
            points=flat[: len(rows)],
            prototypes=flat[len(rows) :],
            titles=("", ""),
            explanation=f"All {found.noun}s are equal, so they share one place.",
            same_scale=False,
        )
    pca = PCA(n_components=2, random_state=SEED).fit(together)
    placed = pca.transform(together)
    titles = [_axis_title(found, pca.components_[i], pca.explained_variance_ratio_[i], i + 1) for i in (0, 1)]
    shown = float(pca.explained_variance_ratio_.sum())
    caution = (
        "hardly anything is hidden"
        if shown > 0.95
        else "clusters that touch here may be apart in a direction that a flat map cannot show"
    )
    return _Projection(
        points=placed[: len(rows)],
        prototypes=placed[len(rows) :],
        titles=(titles[0], titles[1]),
        explanation=f"Each dot is one {found.noun}, placed by the two directions in which the {found.noun}s differ "
        f"most (principal axes). They hold {percent(shown)} of the variance, so {caution}.",
        same_scale=True,
    )


def _axis_title(found: Findings, loadings: NDArray[np.float64], share: float, place: int) -> str:
    title = f"Axis {place}, {percent(share)} of variance"
    if found.table.image is not None:
        return title
    strongest = sorted(found.unmirrored, key=lambda place: (-abs(loadings[place]), place))[:_LOADINGS]
    words = [f"{'+' if loadings[i] > 0 else '−'} {found.label(i)}" for i in strongest if abs(loadings[i]) > 1e-6]
    return f"{title}: {', '.join(words)}"


def _frame(view: _Projection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the picture around all dots, with the picture's proportions if axes compare."""
    together = np.vstack([view.points, view.prototypes])
    low, high = together.min(axis=0), together.max(axis=0)
    span = np.where(high > low, high - low, np.maximum(np.abs(high), 1.0))
    span = span * (1 + 2 * _MARGIN)
    # Distances along and across are the same quantity on principal axes; allow up to a factor of two.
    if view.same_scale:
        unit = max(span[0] / WIDTH, span[1] / HEIGHT)
        span = np.maximum(span, unit * np.array([WIDTH, HEIGHT]) / 2)
    middle = (low + high) / 2
    return middle - span / 2, middle + span / 2


def _basins(
    model: FittedClusterer,
    table: Table,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    colours: list[Colour],
) -> str:
    """Colour a grid over the map by the cluster that a row there would join."""
    width, height = _GRID
    steps = [(np.arange(size) + 0.5) / size for size in _GRID]
    xs = low[0] + (high[0] - low[0]) * steps[0]
    ys = high[1] - (high[1] - low[1]) * steps[1]
    grid = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    labels = model.predict(Table(table.names, block=grid, named=table.named)).reshape(height, width)
    # Where a row would be an outlier, nothing is tinted.
    return indexed_png(np.where(labels == OUTLIER, 0, 1 + labels % 255), [None, *(colour.light for colour in colours)])
