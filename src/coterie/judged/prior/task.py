"""SyntheticTask, one labelled set: what the prior samples and the judge is trained on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from coterie.tables.table import Table, text_column

NOISE: Final = -1
MIN_SINGLE_CLUSTER: Final = 40  # points that a cluster needs to become a set of one cluster


@final
@dataclass(frozen=True, slots=True)
class SyntheticTask:
    """One labelled set."""

    x: Float[Tensor, "N D"]  # points in random order, on any scale; NaN for gaps
    labels: Int[Tensor, " N"]  # clusters 0 to K - 1, none of them empty; all 0 if there is no structure, -1 for noise
    kind: str  # what evaluation groups by, such as "geometric", "mixed/people" or "structureless/ring"
    description: Mapping[str, float | str]  # what was sampled: layout, shapes or columns, sizes, agreement
    categories: tuple[int, ...] = ()  # columns of x whose values are codes 0, 1, ... of levels

    @property
    def n_clusters(self) -> int:
        """Number of clusters, without noise; 1 if there is no structure."""
        return int(self.labels.max()) + 1

    def to_table(self) -> Table:
        """Return the points as the table that a user would have: numbers with NaN, categories as text with None."""
        values = self.x.double().numpy()
        names = tuple(f"x{position}" for position in range(values.shape[1]))
        if not self.categories:
            return Table(names, block=values, named=False, source="prior")
        columns = [values[:, position] for position in range(values.shape[1])]
        for position in self.categories:
            codes = columns[position].tolist()
            columns[position] = text_column([None if math.isnan(code) else f"level {code:.0f}" for code in codes])
        return Table(names, tuple(map(np.ascontiguousarray, columns)), named=False, source="prior")

    def take(self, rows: Bool[Tensor, " N"] | Int[Tensor, " M"]) -> "SyntheticTask":
        """Return the task of some rows, with clusters numbered anew from 0."""
        labels = self.labels[rows]
        present = torch.bincount(labels[labels >= 0]).nonzero().squeeze(1)
        numbered = torch.where(labels >= 0, torch.searchsorted(present, labels), NOISE)
        return replace(self, x=self.x[rows], labels=numbered)

    def select(self, columns: Int[Tensor, " E"]) -> "SyntheticTask":
        """Return the task with these columns, in this order."""
        categories = tuple(new for new, old in enumerate(columns.tolist()) if old in self.categories)
        return replace(self, x=self.x[:, columns], categories=categories)

    def largest_cluster(self) -> "SyntheticTask | None":
        """Return the largest cluster as a task of its own; None if it has fewer than 40 points."""
        members = self.labels == int(torch.bincount(self.labels[self.labels >= 0]).argmax())
        return self.take(members) if int(members.sum()) >= MIN_SINGLE_CLUSTER else None
