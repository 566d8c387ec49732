"""From the parameters of the ClAM estimator to a checked plan of runs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle, islice
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.covariance import ledoit_wolf
from torch import Tensor
from torch.nn.functional import normalize

from coterie.data.tables import TableEncoder, as_table
from coterie.errors import InputError, TableError
from coterie.estimators.clam_search import STARTS, Plan, grid
from coterie.models.clam import ClamConfig
from coterie.training import TrainConfig

RELATIVE_BETAS = (1.0, 4.0, 16.0, 64.0)
"""What ``beta="auto"`` tries, over the mean distance of the rows from their centre."""
MIXED_STARTS = ("k-means", "k-means++", "data", "k-means", "normal", "k-means++", "k-means", "data")
"""What ``init="mixed"`` takes in turn."""
CHOICES = {
    "select": ("silhouette", "loss"),
    "objective": ("masked", "unmasked"),
    "metric": ("euclidean", "cosine", "manhattan", "mahalanobis"),
}


def make_plan(parameters: Mapping[str, Any], x: Tensor, table: TableEncoder) -> Plan:
    """Check the parameters against the rows and lay out all runs."""
    for name, known in CHOICES.items():
        _choice(name, parameters[name], known)
    clusters = _cluster_counts(parameters, len(x))
    rows, features = x.shape
    fills = parameters["fill"]
    fills = list(fills) if isinstance(fills, Sequence) and not isinstance(fills, str) else [fills]
    for fill in fills or [()]:
        _choice("fill", fill, ("mean", "min", "max"))
    metric = parameters["metric"]
    whitening = _whitening(x) if metric == "mahalanobis" else None
    weights = parameters["prototype_weights"]
    runs = grid(
        clusters,
        _starts(parameters),
        _betas(parameters, x if whitening is None else x @ whitening),
        _numbers("learning_rate", parameters["learning_rate"], low=0.0),
        _numbers("mask_rate", parameters["mask_rate"], low=0.0, high=1.0),
        fills,
    )
    learned = isinstance(weights, str)
    if parameters["legacy_mask"] and int(features * min(run.mask_rate for run in runs)) < 1:
        raise InputError(
            f"legacy_mask hides int({features} x mask_rate) features, which is none: raise mask_rate, or turn it off."
        )
    return Plan(
        runs=runs,
        model=ClamConfig(
            n_features=features,
            n_prototypes=max(clusters),
            n_runs=len(runs),
            steps=_whole("steps", parameters["steps"]),
            metric=metric,
            objective=parameters["objective"],
            weighting="equal" if weights is None else "learned" if learned else "given",
            rows_per_mask=1 if parameters["legacy_mask"] else 32,
            legacy_mask=parameters["legacy_mask"],
            plateau=parameters["plateau"],
        ),
        epochs=None if parameters["epochs"] == "auto" else _whole("epochs", parameters["epochs"]),
        batch_size=batch_size_for(parameters["batch_size"], rows),
        halving=parameters["halving"],
        select=parameters["select"],
        min_cluster_size=_minimum(parameters["min_cluster_size"]),
        train=TrainConfig(
            steps=0,
            learning_rate=1.0,
            schedule="constant" if parameters["plateau"] else "cosine",
            betas=(0.9, 0.999) if parameters["plateau"] else (0.9, 0.99),
            epsilon=1e-7,
        ),
        start=_given_start(parameters["init"], clusters, x, table),
        prototype_weights=_given_weights(weights, clusters, x),
        whitening=whitening,
    )


def batch_size_for(setting: Any, rows: int) -> int:
    """Rows of a training step: by default about a sixth of the data, from 32 to 512."""
    if setting == "auto":
        return min(rows, 1 << min(9, max(5, math.ceil(math.log2(max(rows / 6, 1))))))
    return min(rows, _whole("batch_size", setting))


def check_weight(sample_weight: npt.ArrayLike | None, x: Tensor) -> Tensor | None:
    """Row weights as a tensor; they must be as many as rows, not negative, and not all zero."""
    if sample_weight is None:
        return None
    values = _floats("sample_weight", sample_weight)
    if values.shape != (len(x),):
        raise InputError(f"sample_weight.shape == {values.shape}, expected ({len(x)},): one weight for each row of X.")
    if not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise InputError("sample_weight has values that are negative, not finite, or all zero. Give weights from 0 up.")
    return torch.from_numpy(values).to(x.device)


def _cluster_counts(parameters: Mapping[str, Any], rows: int) -> list[int]:
    setting = parameters["n_clusters"]
    if setting == "auto":
        largest = _whole("max_clusters", parameters["max_clusters"])
        return list(range(2, min(largest, rows - 1) + 1)) or [1]
    clusters = _whole("n_clusters", setting)
    if clusters > rows:
        raise InputError(f"n_samples={rows} should be >= n_clusters={clusters}: ask for fewer clusters.")
    return [clusters]


def _starts(parameters: Mapping[str, Any]) -> list[str]:
    restarts, init = _whole("n_restarts", parameters["n_restarts"]), parameters["init"]
    if not isinstance(init, str):
        return ["given"] * restarts
    _choice("init", init, ("mixed", *STARTS))
    if parameters["n_clusters"] == "auto":  # many k share the work
        restarts = min(restarts, 4)
    return list(islice(cycle(MIXED_STARTS), restarts)) if init == "mixed" else [init] * restarts


def _betas(parameters: Mapping[str, Any], x: Tensor) -> list[float]:
    if isinstance(parameters["beta"], str):
        _choice("beta", parameters["beta"], ("auto",))
        spread = _mean_distance(x, parameters["metric"])
        relative = RELATIVE_BETAS if parameters["n_clusters"] != "auto" else RELATIVE_BETAS[1::2]
        return [value / spread if spread > 0 else value for value in relative]
    betas = _numbers("beta", parameters["beta"], low=0.0)
    return [beta / 2.0 for beta in betas] if parameters["code_beta"] else betas


def _mean_distance(x: Tensor, metric: str) -> float:
    if metric == "cosine":
        unit = normalize(x, dim=1)
        return float(1.0 - (unit @ normalize(unit.mean(dim=0), dim=0)).mean())
    centred = x - x.mean(dim=0)
    return float((centred.abs() if metric == "manhattan" else centred.square()).sum(dim=1).mean())


def _whitening(x: Tensor) -> Tensor:
    """Symmetric square root of the precision of the rows, by Ledoit and Wolf's shrunk covariance."""
    if len(x) == 1:  # which has no covariance
        return torch.eye(x.shape[1], device=x.device)
    covariance, _ = ledoit_wolf(x.cpu().numpy().astype(np.float64))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors / np.sqrt(np.maximum(values, 1e-12)) @ vectors.T
    return torch.from_numpy(root.astype(np.float32)).to(x.device)


def _given_start(init: Any, clusters: Sequence[int], x: Tensor, table: TableEncoder) -> Tensor | None:
    if isinstance(init, str):
        return None
    try:
        start = as_table(init)
        encoded = table.transform(start)
    except TableError as error:
        raise InputError(f"init cannot be used: {error}") from error
    if len(clusters) > 1 or start.n_rows != clusters[0]:
        raise InputError(
            f"init has {start.n_rows} rows; it needs one for each cluster, and a number for n_clusters "
            f"(now {clusters[0] if len(clusters) == 1 else 'auto'!r})."
        )
    return torch.from_numpy(encoded).to(x.device)


def _given_weights(weights: Any, clusters: Sequence[int], x: Tensor) -> Tensor | None:
    if weights is None:
        return None
    if isinstance(weights, str):
        _choice("prototype_weights", weights, ("learned",))
        return None
    values = _floats("prototype_weights", weights)
    if values.shape != (max(clusters),) or not ((values > 0) & np.isfinite(values)).all():
        raise InputError(f"prototype_weights must be {max(clusters)} positive numbers, one a cluster; got {weights!r}.")
    return torch.from_numpy(values).to(x.device)


def _floats(name: str, values: Any) -> npt.NDArray[np.float32]:
    try:
        return np.asarray(values, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} must be numbers; got {values!r}.") from error


def _choice(name: str, value: Any, known: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}.")


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name} must be a whole number from 1 up; got {value!r}.")
    return int(value)


def _minimum(value: Any) -> int | None:
    if value == "auto":
        return None
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise InputError(f"min_cluster_size must be 'auto' or a whole number from 0 up; got {value!r}.")
    return int(value)


def _numbers(name: str, values: Any, *, low: float, high: float = math.inf) -> list[float]:
    numbers = list(values) if isinstance(values, Iterable) else [values]
    if not numbers or not all(isinstance(number, Real) and low < float(number) < high for number in numbers):
        upper = "" if math.isinf(high) else f" and below {high:g}"
        raise InputError(f"{name} must be one or several numbers above {low:g}{upper}; got {values!r}.")
    return [float(number) for number in numbers]
