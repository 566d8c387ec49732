"""The method that ``coterie cluster`` is told to use: what it takes, and how it is made."""

import math
from typing import Any, Literal

import numpy as np

from coterie.cli.progress import OnProgress
from coterie.cli.requests import ClusterRequest
from coterie.data.columns import Table
from coterie.errors import InputError
from coterie.estimators import ESTIMATORS
from coterie.estimators.clam import ClAM
from coterie.estimators.dac import DAC
from coterie.metrics import silhouettes
from coterie.report.findings import thinned

_SILHOUETTE_ROWS = 2_000
_LARGEST_SEED = 2**32 - 1


def check_method(request: ClusterRequest) -> None:
    """Refuse a method that is not there, and options that it does not take."""
    if request.method not in ESTIMATORS:
        raise _unknown(request.method)
    if request.method == "dac" and request.clusters != "auto":
        raise InputError(
            f"-k {request.clusters} is not for the method dac, which finds the number of clusters by itself; "
            "leave -k out"
        )
    if request.method == "clam" and request.weights is not None:
        raise InputError(
            f"--weights {request.weights} is not for the method clam, which learns from the table itself; "
            "leave --weights out, or add --method dac"
        )


def check_seed(seed: int) -> None:
    """Refuse what random generators do not take."""
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"--seed must be from 0 to {_LARGEST_SEED}; got {seed}")


def build_estimator(request: ClusterRequest, n_clusters: int | Literal["auto"], on_progress: OnProgress) -> Any:
    """Make the estimator; what the user left open is left to the method."""
    settings: dict[str, Any] = {"random_state": request.seed, "on_progress": on_progress}
    if request.scaling is not None:
        settings["scaling"] = request.scaling
    match request.method:
        case "clam":
            return ClAM(n_clusters, **settings)
        case "dac":
            return DAC(**settings) if request.weights is None else DAC(request.weights, **settings)
        case _:
            raise _unknown(request.method)


def silhouette_of(model: Any, features: Table) -> tuple[float, tuple[str, ...]]:
    """Silhouette of a fitted model, NaN if it is not defined, and a note on how it was measured."""
    n_rows = features.n_rows
    # It needs two clusters, and one that has more than one row.
    if not 1 < model.n_clusters_ < n_rows:
        return math.nan, ()
    if isinstance(model, ClAM):
        return model.silhouette_, ()
    rows = thinned(n_rows, _SILHOUETTE_ROWS)
    labels = model.labels_[rows]
    if not 1 < len(np.unique(labels)) < len(rows):
        return math.nan, ()
    value = float(silhouettes(model.table_.transform(features)[rows], labels[None])[0])
    note = f"the silhouette is of {len(rows):,} of the {n_rows:,} rows, picked at random"
    return value, (note,) if len(rows) < n_rows else ()


def _unknown(method: str) -> InputError:
    return InputError(f"there is no method {method!r}; there is {', '.join(ESTIMATORS)}")
