"""Evidence about the rows as a whole, the same for every partition of them."""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree
from scipy.special import ndtri
from scipy.stats.qmc import Halton

from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Reals

_PROBES = 256
_PROBED_AXES = 5


def whole(geometry: Geometry) -> dict[str, float]:
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


def modes_above(geometry: Geometry, prominence: float) -> float:
    """How many modes stand out by so much; the highest one always does."""
    return float(max(1, (geometry.prominence > prominence).sum()))


def _islands(geometry: Geometry) -> float:
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
