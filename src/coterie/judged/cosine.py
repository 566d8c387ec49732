"""Wide rows, such as embeddings of texts and images, compared by their directions: recognition, geometry, space.

Letters: N rows, D columns, E dimensions of the directions, J neighbours.
"""

from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.spatial.distance import squareform

from coterie.judged.columns import Columns
from coterie.judged.preparation import Preparation
from coterie.judged.space import Floats, Geometry, Integers, Singles, Space
from coterie.judged.views import AnyView, CosineView
from coterie.ops.neighbours import most_similar

Metric: TypeAlias = Literal["cosine", "euclidean"]

GRAPH_NEIGHBOURS = 30
_MIN_COLUMNS = 12  # columns from which directions mean something: docs/decisions/0038
_MIN_ROWS = 250  # among fewer, neighbours are too far away
_MIN_UNIT_COLUMNS = 16  # columns from which rows of equal length are taken for embeddings
_SURELY_COLUMNS = 257  # columns in one unit from which other rows are
_DISCRETE = 0.5  # fraction of discrete columns above which a table is compared column by column
_MEASURED_ROWS = 2000  # whose lengths are measured
_EQUAL_LENGTHS = 0.02  # relative standard deviation of the lengths: half precision rounds by less than a thousandth
# Ratio of the scales of columns up to which they are in one unit. An array without names is hardly ever a table of many
# units, and the borders of images vary little.
_MAX_RATIO = {"named": 20.0, "unnamed": 1000.0}
_BANDWIDTH_STEPS = 32  # of the bisection for the bandwidth of each row


def metrics_to_try(preparation: Preparation, encoded: Float[Singles, "N D"]) -> tuple[Metric, ...]:
    """Return how rows may be compared: "cosine" if they look like embeddings, both if that is open.

    Directions need many rows of number columns without gaps. Rows of length one are embeddings, and so are those of
    hundreds of columns in one unit.
    """
    encoder = preparation.encoder
    columns = encoded.shape[1]
    plain = len(encoder.numbers.positions) == columns and set(encoder.numbers.kinds) == {"number"}
    if columns < _MIN_COLUMNS or not plain or len(preparation.donors):
        return ("euclidean",)
    if columns >= _MIN_UNIT_COLUMNS and _have_length_one(preparation, encoded):
        return ("cosine",)
    discrete = preparation.columns.find_discrete(_some(encoded).astype(np.float64))
    if len(encoded) < _MIN_ROWS or discrete.mean() > _DISCRETE:
        return ("euclidean",)
    return ("cosine",) if columns >= _SURELY_COLUMNS and _in_one_unit(preparation) else ("euclidean", "cosine")


def direction_units(preparation: Preparation, encoded: Float[Singles, "N D"]) -> tuple[Floats, Floats]:
    """Return the factor and the offset (D,) of the encoded columns whose directions are compared.

    Those of embeddings, and of columns in one unit, restore the units of the input; other columns stay standardised.
    """
    if _in_one_unit(preparation) or _have_length_one(preparation, encoded):
        return preparation.units
    return np.ones(encoded.shape[1]), np.zeros(encoded.shape[1])


def _some(encoded: Float[Singles, "N D"]) -> Float[Singles, "M D"]:
    return encoded[:: max(1, len(encoded) // _MEASURED_ROWS)]


def _have_length_one(preparation: Preparation, encoded: Float[Singles, "N D"]) -> bool:
    """Return whether all rows have the same length in the units of the input."""
    factor, origin = preparation.units
    lengths = np.linalg.norm(_some(encoded) * factor + origin, axis=1)
    return float(lengths.std()) <= _EQUAL_LENGTHS * float(lengths.mean())


def _in_one_unit(preparation: Preparation) -> bool:
    """Return whether the scales of most columns are alike."""
    low, high = np.quantile(preparation.units[0], (0.1, 0.9))
    return bool(high <= _MAX_RATIO["named" if preparation.encoder.named else "unnamed"] * low)


@final
class CosineGeometry(Geometry):
    """Directions (N, E), their neighbours, and graphs of them."""

    @cached_property
    def distances(self) -> Floats:
        """Distances (N, N)."""
        squares = 2.0 - 2.0 * (self.rows @ self.rows.T)
        np.maximum(squares, 0.0, out=squares)
        np.fill_diagonal(squares, 0.0)
        return np.sqrt(squares, out=squares)

    @cached_property
    def condensed(self) -> Floats:
        """Distances (N (N - 1) / 2,) as scipy's linkages take them."""
        return squareform(self.distances, checks=False)

    @cached_property
    def _similar(self) -> tuple[Integers, Singles]:
        rows = self.rows.astype(np.float32)
        return most_similar(rows, rows, min(GRAPH_NEIGHBOURS, len(rows) - 1), without_self=True)

    @property
    def similar_rows(self) -> Int[Integers, "N J"]:
        """The most similar other rows of each row, the most similar first."""
        return self._similar[0]

    @property
    def similarities(self) -> Float[Singles, "N J"]:
        """Cosine of each row and its ``similar_rows``."""
        return self._similar[1]

    def graph(self, n_neighbours: int) -> csr_array:
        """Return the symmetric graph of the most similar rows, weighted as in UMAP (McInnes et al. 2018).

        Each row has a bandwidth of its own, so that the sum of its weights is the binary logarithm of their number.
        """

        def compute() -> csr_array:
            n, count = len(self.rows), min(n_neighbours, self.similar_rows.shape[1])
            distances = np.sqrt(np.maximum(2.0 - 2.0 * self.similarities[:, :count].astype(np.float64), 0.0))
            beyond = distances - distances[:, :1]
            low, high = np.full((n, 1), 1e-6), np.full((n, 1), 4.0)
            target = np.log2(max(count, 2))
            for _ in range(_BANDWIDTH_STEPS):
                middle = np.sqrt(low * high)
                too_wide = np.exp(-beyond / middle).sum(axis=1, keepdims=True) > target
                low, high = np.where(too_wide, low, middle), np.where(too_wide, middle, high)
            weights = np.exp(-beyond / high)
            ends = np.arange(0, n * count + 1, count)
            directed = csr_array((weights.ravel(), self.similar_rows[:, :count].ravel(), ends), shape=(n, n))
            both = directed + directed.T - directed.multiply(directed.T)
            graph = csr_array(both)
            graph.sort_indices()
            return graph

        return self.cached(("graph", n_neighbours), compute)


@final
class CosineSpace(Space):
    """The encoded rows (N, D) of one fit, compared by their directions.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(50, 20)).astype(np.float32)
    >>> space = CosineSpace(rows, Columns.numbers(20), CosineView.fit(rows, np.ones(20), np.zeros(20)))
    >>> space.reference.rows.shape
    (50, 20)
    """

    metric: ClassVar[Metric] = "cosine"

    def __init__(self, x: npt.NDArray[Any], columns: Columns, view: CosineView) -> None:
        super().__init__(x, columns)
        self._view = view

    @property
    def views(self) -> tuple[CosineView, ...]:
        """The directions."""
        return (self._view,)

    @cached_property
    def discrete(self) -> npt.NDArray[np.bool_]:
        """Which columns are discrete: none of wide rows is treated so."""
        return np.zeros(self.columns.count, dtype=np.bool_)

    @property
    def reference(self) -> CosineGeometry:
        """The geometry that candidates and features are computed from."""
        return cast(CosineGeometry, super().reference)

    def _measure(self, view: AnyView) -> CosineGeometry:
        return CosineGeometry(view.transform(self.x))

    def without_geometry(self) -> "CosineSpace":
        """Return the rows and the view alone, which take little memory."""
        return CosineSpace(self.x, self.columns, self._view)
