"""Map the features of a table to those that a network was trained for, and encode labelled tables as tasks."""

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

LEAST_VARIANCE = 1e-8  # fraction of the largest variance below which a principal component is rounding


@final
@dataclass(frozen=True, slots=True)
class FeatureMap:
    """A linear map from the features of the data to those of a network."""

    centre: Float[Tensor, " D"]
    matrix: Float[Tensor, "D F"]

    def __call__(self, x: Float[Tensor, "N D"]) -> Float[Tensor, "N F"]:
        """Map rows."""
        return (x - self.centre) @ self.matrix

    def to(self, like: Tensor) -> "FeatureMap":
        """Return the map with the type and device of these rows."""
        return FeatureMap(self.centre.to(like), self.matrix.to(like))


def fit_feature_map(x: Float[Tensor, "N D"], n_features: int, *, standardised: bool) -> tuple[FeatureMap, str] | None:
    """Fit a map to that many features, and describe it in a sentence; None if rows have them already.

    Too few features are repeated cyclically, which multiplies all distances by one factor. Too many are replaced by
    their principal components, of unit variance if the network expects standardised features; if the data have fewer
    components, these are repeated.
    """
    given = x.shape[1]
    if given == n_features:
        return None
    if given < n_features:
        matrix = _repeat(torch.eye(given), n_features)
        sentence = f"the network takes {n_features} features: the {given} of the data are repeated"
        return FeatureMap(torch.zeros(given), matrix), sentence
    centre = x.double().mean(dim=0)
    centred = x.double() - centre
    if given > len(x):  # pixels: the covariance would be large, and of low rank
        _, deviations, axes = torch.linalg.svd(centred, full_matrices=False)
        values, vectors = deviations[:n_features].square() / len(x), axes.T[:, :n_features]
    else:
        values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
        values, vectors = values.flip(0).clamp(min=0)[:n_features], vectors.flip(1)[:, :n_features]
    # The sign of an eigenvector is arbitrary: its largest entry is made positive.
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    vectors = vectors * torch.where(largest < 0, -1.0, 1.0)
    real = max(1, int((values > LEAST_VARIANCE * values[0]).sum()))
    explained = float(values.sum() / centred.square().sum().div(len(x)).clamp(min=torch.finfo(values.dtype).tiny))
    if standardised:
        vectors = vectors / torch.where(values > 0, values, 1.0).sqrt()
    sentence = (
        f"the network takes {n_features} features: the {given} of the data are replaced by their first "
        f"{min(real, n_features)} principal components, which hold {explained:.0%} of the variance"
    )
    return FeatureMap(centre, _repeat(vectors[:, :real], n_features)), sentence


def align_features(given: Sequence[str], expected: Sequence[str]) -> tuple[FeatureMap, str | None] | None:
    """Map features by name to the positions they had in training, and describe it in a sentence.

    Missing ones become zero, the standardised value of a constant column. None if all are in position already, or if
    some are unknown.
    """
    if list(given) == list(expected) or not set(given) <= set(expected):
        return None
    matrix = torch.zeros((len(given), len(expected)))
    positions = {name: position for position, name in enumerate(expected)}
    for row, name in enumerate(given):
        matrix[row, positions[name]] = 1.0
    absent = [name for name in expected if name not in set(given)]
    sentence = f"ignored, since they are constant here: {format_list(absent)}" if absent else None
    return FeatureMap(torch.zeros(len(given)), matrix), sentence


def encode_tasks(
    tasks: Iterable[tuple[Any, npt.ArrayLike]], scaling: Scaling
) -> tuple[list[tuple[Tensor, Tensor]], list[str]]:
    """Encode each task on its own scale, with integer labels; also return the names of the features.

    A column that varies in some task is a feature of all tasks, and zero where it does not vary.
    """
    pairs = []
    for table, labels in read_tasks(tasks):
        encoder = TableEncoder(scaling).fit(table)
        pairs.append((encoder, torch.from_numpy(encoder.transform(table)), labels))
    columns = pairs[0][0].names
    for position, (encoder, _, _) in enumerate(pairs):
        if set(encoder.names) != set(columns):
            raise InputError(
                f"Task {position} has the columns {format_list(encoder.names)}, but task 0 has "
                f"{format_list(columns)}. Give all tasks the same columns."
            )
    column_of = {feature.name: feature.column for encoder, _, _ in pairs for feature in encoder.features}
    names = sorted(column_of, key=lambda name: columns.index(column_of[name]))  # levels stay in order of occurrence
    sets = []
    for encoder, rows, labels in pairs:
        aligned = align_features([feature.name for feature in encoder.features], names)
        sets.append((rows if aligned is None else aligned[0](rows), labels))
    return sets, names


def read_tasks(tasks: Iterable[tuple[Any, npt.ArrayLike]]) -> list[tuple[Table, Int[Tensor, " _"]]]:
    """Read each task as a table and integer labels, numbered from 0 in order of occurrence."""
    if not isinstance(tasks, Iterable):
        raise InputError(f"learn() takes a list of pairs (X, y), not a {type(tasks).__name__}.")
    pairs = [_read_task(position, task) for position, task in enumerate(tasks)]
    if not pairs:
        raise InputError("learn() needs at least one task: a pair (X, y) of rows and their labels.")
    return pairs


def _read_task(position: int, task: Any) -> tuple[Table, Tensor]:
    try:
        X, y = task
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Task {position} must be a pair (X, y) of rows and their labels, not a {type(task).__name__}."
        ) from error
    table = as_table(X)
    labels = np.asarray(y)
    if labels.shape != (table.n_rows,):
        raise InputError(
            f"Task {position} has {table.n_rows} rows, and its labels have the shape {labels.shape}; give one label "
            "per row."
        )
    missing = [row for row, name in enumerate(labels.tolist()) if name is None or _is_nan(name)]
    if missing:
        raise InputError(f"Row {missing[0]} of task {position} has no label; remove such rows.")
    number = {name: i for i, name in enumerate(dict.fromkeys(labels.tolist()))}
    return table, torch.tensor([number[name] for name in labels.tolist()])


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _repeat(columns: Float[Tensor, "D R"], n_features: int) -> Float[Tensor, "D F"]:
    return columns[:, torch.arange(n_features, device=columns.device) % columns.shape[1]]
