"""Features that see columns: how much of a partition each single column tells, and all of them together.

A partition that repeats one column is told by that column alone. One that explains what several columns share is told a
little by each. Letters: R partitions, C clusters of all partitions together, G columns, L levels of all columns.
"""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
from jaxtyping import Bool, Float, Int

from coterie.judged.columns import Flags
from coterie.judged.features.partitions import Partitions
from coterie.judged.space import Floats, Integers, Space

_BINS = 8  # of equal numbers of rows, for continuous columns
_MAX_COLUMNS = 40  # of more, every second, third ... one is used
_MAX_LEVELS = 16  # of a discrete column; further ones count as one
_TELLING = 0.05  # fraction of the entropy of a partition above which a column tells something of it


@final
@dataclass(frozen=True, slots=True, eq=False)
class ColumnLevels:
    """The columns of the rows as levels: bins of continuous columns, values of discrete ones."""

    indicators: Float[Floats, "N L"]  # one where a row has the level
    starts: Int[Integers, " G"]  # first level of each column
    discrete: Bool[Flags, " G"]
    weight: Float[Floats, " G"]  # how much each column counts in the reference view

    @classmethod
    def find(cls, space: Space) -> Self:
        """Find the levels of the columns of a space that vary; at least one column is kept."""
        every = range(0, space.columns.count, -(-space.columns.count // _MAX_COLUMNS))
        blocks: list[Floats] = []
        discrete, weight = [], []
        for column in every:
            features = space.columns.features(column)
            codes = _levels(space.x[:, features], discrete=bool(space.discrete[column]))
            if codes.max() > 0 or (column == every[-1] and not blocks):
                blocks.append(np.eye(int(codes.max()) + 1)[codes])
                discrete.append(space.discrete[column])
                weight.append(space.table_views[0].weight[features[0]])
        starts = np.cumsum([0, *(block.shape[1] for block in blocks[:-1])])
        return cls(np.hstack(blocks), starts, np.array(discrete), np.array(weight))


def _levels(values: Floats, *, discrete: bool) -> Integers:
    """Return the level of each row (N,) in a column of one or several features."""
    if discrete:
        codes: Integers = np.unique(values, axis=0, return_inverse=True)[1].ravel()
        return np.minimum(codes, _MAX_LEVELS - 1)
    edges = np.unique(np.quantile(values[:, 0], np.arange(1, _BINS) / _BINS))
    return np.unique(np.searchsorted(edges, values[:, 0], side="right"), return_inverse=True)[1]


def column_information(levels: ColumnLevels, parts: Partitions) -> dict[str, Floats]:
    """Compute mutual informations of each partition with every column, and summarise them over the columns."""
    rows, clusters = parts.n_rows, parts.n_clusters[:, None]
    counts = parts.vector_sums(levels.indicators)  # (C, L)
    totals = levels.indicators.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = counts * np.log(counts * rows / (parts.sizes[:, None] * totals))
    terms[counts == 0.0] = 0.0
    sizes = np.diff(levels.starts, append=len(totals))
    raw = np.add.reduceat(parts.sum(terms), levels.starts, axis=1) / rows  # (R, G)
    chance = (clusters - 1.0) * (sizes - 1.0) / (2.0 * rows)
    information = np.maximum(raw - chance, 0.0)
    fraction = parts.sizes / rows
    entropy = np.maximum(-parts.sum(fraction * np.log(fraction)), 1e-9)[:, None]
    share = totals / rows
    own = np.maximum(-np.add.reduceat(share * np.log(share), levels.starts), 1e-9)

    told = np.clip(information / entropy, 0.0, 1.0)  # fraction of the partition that each column tells
    explained = np.clip(information / own, 0.0, 1.0)  # fraction of each column that the partition tells
    ordered = -np.sort(-told, axis=1)
    second = ordered[:, 1] if ordered.shape[1] > 1 else np.zeros(len(ordered))
    total = told.sum(axis=1)
    repeated = np.sqrt(told * explained)
    among_discrete = np.where(levels.discrete, told, 0.0)
    price = 0.5 * np.log(rows) / rows * ((clusters - 1.0) * (sizes - 1.0)).sum(axis=1)
    gain = raw.sum(axis=1) - entropy[:, 0] - price
    return {
        "told_by_best": ordered[:, 0],
        "told_by_second": second,
        "told_by_others": np.log1p(total - ordered[:, 0]),
        "told_by_all": np.log1p(total),
        "columns_telling": (told > _TELLING).mean(axis=1),
        "log_columns_telling": np.log1p((told > _TELLING).sum(axis=1)),
        "told_by_best_discrete": among_discrete.max(axis=1),
        "told_by_discrete": among_discrete.sum(axis=1) / np.maximum(total, 1e-6),
        "repeated_discrete": np.where(levels.discrete, repeated, 0.0).max(axis=1),
        "repeated_column": repeated.max(axis=1),
        "told_by_weighted": (told * levels.weight).sum(axis=1) / levels.weight.sum().clip(1e-6),
        "latent_class_gain": np.clip(gain / len(sizes), -5.0, 5.0),
        "latent_class_gain_relative": np.clip(gain / entropy[:, 0], -10.0, 10.0),
    }


def table_features(levels: ColumnLevels) -> dict[str, float]:
    """Compute features of the columns, the same for all partitions."""
    discrete = levels.discrete
    return {
        "discrete_columns": float(discrete.mean()),
        "discrete_weight": float(levels.weight[discrete].mean()) if discrete.any() else 0.5,
        "log_levels": float(np.log(np.diff(levels.starts, append=levels.indicators.shape[1]).mean())),
    }
