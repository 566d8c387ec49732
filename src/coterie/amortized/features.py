"""Tables with any features -> those that a network was trained for, and sorted tables -> what it is trained on."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from coterie.errors import InputError
from coterie.tables.encoder import Scaling, TableEncoder
from coterie.tables.table import Table, as_table, format_list

LEAST_VARIANCE = 1e-8
"""Share of the largest principal component's variance, below which another is only rounding."""


@final
@dataclass(frozen=True, slots=True)
class FeatureMatch:
    """A linear map from the features that there are to those that a network takes."""

    centre: Float[Tensor, " D"]
    matrix: Float[Tensor, "D F"]

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Rows as the network takes them."""
        return (x - self.centre) @ self.matrix

    def to(self, like: Tensor) -> "FeatureMatch":
        """The same map for rows like these."""
        return FeatureMatch(self.centre.to(like), self.matrix.to(like))


def match_features(x: Float[Tensor, "N D"], n_features: int, *, standardised: bool) -> tuple[FeatureMatch, str] | None:
    """How to bring rows to so many features, and a sentence about it; None if they have them already.

    Too few features are repeated in turn, which leaves every distance as it was but for one factor. Too many are
    replaced by their principal components, of unit variance if the network is used to standardised features; of data
    that have fewer components than that, these are repeated.
    """
    given = x.shape[1]
    if given == n_features:
        return None
    if given < n_features:
        matrix = _repeated(torch.eye(given), n_features)
        sentence = f"the network takes {n_features} features: the {given} of the data are repeated"
        return FeatureMatch(torch.zeros(given), matrix), sentence
    centre = x.double().mean(dim=0)
    centred = x.double() - centre
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
    values, vectors = values.flip(0).clamp(min=0)[:n_features], vectors.flip(1)[:, :n_features]
    # The sign of an eigenvector is chance: its largest entry is made positive.
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    vectors = vectors * torch.where(largest < 0, -1.0, 1.0)
    real = max(1, int((values > LEAST_VARIANCE * values[0]).sum()))
    share = float(values.sum() / centred.square().sum().div(len(x)).clamp(min=torch.finfo(values.dtype).tiny))
    if standardised:
        vectors = vectors / torch.where(values > 0, values, 1.0).sqrt()
    sentence = (
        f"the network takes {n_features} features: of the {given} of the data, the first {min(real, n_features)} "
        f"principal components are used, which hold {share:.0%} of the variance"
    )
    return FeatureMatch(centre, _repeated(vectors[:, :real], n_features)), sentence


def place_features(given: Sequence[str], wanted: Sequence[str]) -> tuple[FeatureMatch, str | None] | None:
    """How to bring features into the places that they had when the network was learned, by their names.

    Those that are not there count as zero, which is what a column with one value is standardised to. None if they are
    in place already, or if they are others.
    """
    if list(given) == list(wanted) or not set(given) <= set(wanted):
        return None
    matrix = torch.zeros((len(given), len(wanted)))
    for row, name in enumerate(given):
        matrix[row, wanted.index(name)] = 1.0
    absent = [name for name in wanted if name not in set(given)]
    sentence = f"without a say, since each has one value here: {format_list(absent)}" if absent else None
    return FeatureMatch(torch.zeros(len(given)), matrix), sentence


def encode_tasks(
    tasks: Iterable[tuple[Any, npt.ArrayLike]], scaling: Scaling
) -> tuple[list[tuple[Tensor, Tensor]], list[str]]:
    """Rows of each task as numbers on its own scale, with its clusters as whole numbers; and the features' names.

    A column that varies in some of the tasks is a feature of all: where it does not vary, it is zero.
    """
    pairs = [_encoded(table, labels, scaling) for table, labels in pairs_of(tasks)]
    columns = pairs[0][0].names
    for position, (encoder, _, _) in enumerate(pairs):
        if set(encoder.names) != set(columns):
            raise InputError(
                f"Task {position} has the columns {format_list(encoder.names)}, and task 0 has {format_list(columns)}. "
                "Give all tasks the same columns."
            )
    there = {feature.name: feature.column for encoder, _, _ in pairs for feature in encoder.features}
    names = sorted(there, key=lambda name: columns.index(there[name]))  # levels of a category as they first occur
    sets = []
    for encoder, rows, labels in pairs:
        placed = place_features([feature.name for feature in encoder.features], names)
        sets.append((rows if placed is None else placed[0](rows), labels))
    return sets, names


def pairs_of(tasks: Iterable[tuple[Any, npt.ArrayLike]]) -> list[tuple[Table, Int[Tensor, " N"]]]:
    """Each task as a table, and its clusters as whole numbers from 0 in the order in which they first occur."""
    if not isinstance(tasks, Iterable):
        raise InputError(f"learn() takes a list of pairs (X, y), not a {type(tasks).__name__}.")
    pairs = [_pair(position, task) for position, task in enumerate(tasks)]
    if not pairs:
        raise InputError("learn() needs at least one task: a pair (X, y) of rows and their clusters.")
    return pairs


def _pair(position: int, task: Any) -> tuple[Table, Tensor]:
    try:
        X, y = task
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Task {position} is not a pair (X, y) of rows and their clusters, but a {type(task).__name__}."
        ) from error
    table = as_table(X)
    clusters = np.asarray(y)
    if clusters.shape != (table.n_rows,):
        raise InputError(
            f"Task {position} has {table.n_rows} rows, and its clusters have the shape {clusters.shape}; "
            "give one cluster for each row."
        )
    unknown = [row for row, name in enumerate(clusters.tolist()) if name is None or _is_nan(name)]
    if unknown:
        raise InputError(f"Row {unknown[0]} of task {position} has no cluster; leave such rows out.")
    place = {name: i for i, name in enumerate(dict.fromkeys(clusters.tolist()))}
    return table, torch.tensor([place[name] for name in clusters.tolist()])


def _encoded(table: Table, labels: Tensor, scaling: Scaling) -> tuple[TableEncoder, Tensor, Tensor]:
    encoder = TableEncoder(scaling).fit(table)
    return encoder, torch.from_numpy(encoder.transform(table)), labels


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _repeated(columns: Float[Tensor, "D R"], n_features: int) -> Float[Tensor, "D F"]:
    return columns[:, torch.arange(n_features, device=columns.device) % columns.shape[1]]
