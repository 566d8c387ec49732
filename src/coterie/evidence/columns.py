"""Evidence column by column: classes of a table differ in some of its columns, mere cuts a little in all of them."""

import numpy as np

from coterie.evidence.geometry import Geometry
from coterie.evidence.partitions import Partitions, Reals

_MOST_COLUMNS = 64  # of more, every second, third ... one is looked at
_TOP = 3
_MOSTLY = 0.5
_CHANCE = 3.0  # times the share that a partition by chance would explain


def column_evidence(geometry: Geometry, parts: Partitions) -> dict[str, Reals]:
    """How much of each column's variance lies between clusters, and how that is spread over the columns."""
    columns = geometry.columns[:, :: -(-geometry.n_columns // _MOST_COLUMNS)]
    variance = np.square(columns).mean(axis=0)
    columns = columns[:, variance > 0.0] / np.sqrt(variance[variance > 0.0])
    if not columns.shape[1]:
        columns = np.zeros((len(columns), 1))
    between = parts.total(np.square(parts.sums(columns)) / parts.sizes[:, None]) / parts.n_rows
    chance = ((parts.n_clusters - 1.0) / max(parts.n_rows - 1.0, 1.0))[:, None]
    explained = np.clip((between - chance) / np.maximum(1.0 - chance, 1e-9), 0.0, 1.0)
    ordered = -np.sort(-explained, axis=1)
    total, squares = explained.sum(axis=1), np.square(explained).sum(axis=1)
    return {
        "column_best": ordered[:, 0],
        "column_top_3": ordered[:, :_TOP].mean(axis=1),
        "column_median": np.median(explained, axis=1),
        "columns_mattering": np.square(total) / np.maximum(squares, 1e-12) / explained.shape[1],
        "columns_mostly_explained": (explained > _MOSTLY).mean(axis=1),
        "columns_idle": (between < _CHANCE * chance).mean(axis=1),
    }
