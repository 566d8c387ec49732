"""The method that ``coterie cluster`` is told to use: what it takes, how it is made, and what it says of itself."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np

from coterie.cli.progress import Narrator
from coterie.cli.requests import ClusterRequest
from coterie.cli.summary import Verdict
from coterie.data.columns import Array, Table
from coterie.errors import InputError
from coterie.estimators import ESTIMATORS
from coterie.estimators.amcp import AMCP
from coterie.estimators.attention_based import AttentionBasedClustering
from coterie.estimators.clam import ClAM
from coterie.estimators.coterie import Coterie
from coterie.estimators.dac import DAC
from coterie.estimators.tcc import TCC
from coterie.estimators.tcc_recipe import tcc_from_recipe
from coterie.metrics import silhouettes
from coterie.proposals import Effort
from coterie.report.findings import thinned

_SILHOUETTE_ROWS = 2_000
_LARGEST_SEED = 2**32 - 1
_OF_COTERIE = {
    option: f"only for coterie; leave {option} out, or say --method coterie"
    for option in ("--effort", "--granularity", "--outliers", "--allow-single")
}
_OF_TCC = {"--recipe": "only for tcc; leave --recipe out, or say --method tcc"}
_NOT_TAKEN: dict[str, dict[str, str]] = {
    "coterie": {
        "--weights": "whose judge has weights of its own; leave --weights out, or add --method dac",
        "--scaling": "which tries several scalings by itself; leave --scaling out, or add --method clam",
        **_OF_TCC,
    },
    "clam": {
        "--weights": "which learns from the table itself; leave --weights out, or add --method dac",
        **_OF_COTERIE,
        **_OF_TCC,
    },
    "dac": {"-k": "which finds the number of clusters by itself; leave -k out", **_OF_COTERIE, **_OF_TCC},
    "attention-based": _OF_COTERIE | _OF_TCC,
    "amcp": {"-k": "which finds the number of clusters by itself; leave -k out", **_OF_COTERIE, **_OF_TCC},
    "tcc": {
        "--weights": "which learns from the rows themselves; leave --weights out, or add --method dac",
        **_OF_COTERIE,
    },
}
"""Options that a method does not take, and why, or what to do."""


def check_method(request: ClusterRequest) -> None:
    """Refuse a method that is not there, options that it does not take, and values that they do not take."""
    if request.method not in ESTIMATORS:
        raise InputError(f"there is no method {request.method!r}; there is {', '.join(ESTIMATORS)}")
    for option, value in _given(request).items():
        if option in _NOT_TAKEN[request.method]:
            why = _NOT_TAKEN[request.method][option]
            raise InputError(f"{f'{option} {value}'.strip()} is not for the method {request.method}, {why}")
    if request.recipe is not None:
        tcc_from_recipe(request.recipe)
    elif request.method == "tcc" and request.clusters == "auto":
        raise InputError("the method tcc does not find the number of clusters by itself; give it (-k 10, for ten)")
    if request.effort not in {None, *get_args(Effort)}:
        raise InputError(f"--effort takes {', '.join(get_args(Effort))}; got {request.effort!r}")
    if not math.isfinite(request.granularity or 0.0):
        raise InputError(f"--granularity takes a number, such as 1 or -0.5; got {request.granularity}")


def _given(request: ClusterRequest) -> dict[str, str]:
    """Options that not every method takes, with their values, as far as they were given."""
    values = {
        "-k": None if request.clusters == "auto" else request.clusters,
        "--weights": request.weights,
        "--scaling": request.scaling,
        "--recipe": request.recipe,
        "--effort": request.effort,
        "--granularity": None if request.granularity is None else f"{request.granularity:g}",
        "--outliers": "" if request.outliers else None,
        "--allow-single": "" if request.allow_single else None,
    }
    return {option: value for option, value in values.items() if value is not None}


def check_seed(seed: int | None) -> None:
    """Refuse what random generators do not take; none was given if it is None."""
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"--seed must be from 0 to {_LARGEST_SEED}; got {seed}")


@contextmanager
def estimator_at_work(
    request: ClusterRequest, n_clusters: int | Literal["auto"], narrator: Narrator
) -> Iterator[AMCP | AttentionBasedClustering | ClAM | Coterie | DAC | TCC]:
    """Lend the estimator, and show what it does meanwhile; what the user left open is left to the method."""
    chosen = {
        "effort": request.effort,
        "granularity": request.granularity,
        "scaling": request.scaling,
        "weights": request.weights,
        "random_state": 0 if request.seed is None and request.recipe is None else request.seed,
    }
    settings: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    asked = None if n_clusters == "auto" else n_clusters
    if request.method == "coterie":
        with narrator.steps("Clustering") as on_step:
            yield Coterie(
                asked,
                noise=request.outliers,
                allow_single=request.allow_single,
                on_progress=on_step,
                **settings,
            )
        return
    with narrator.training("Clustering") as on_progress:
        if request.method == "clam":
            yield ClAM(n_clusters, on_progress=on_progress, **settings)
        elif request.method == "attention-based":
            yield AttentionBasedClustering(asked, on_progress=on_progress, **settings)
        elif request.method == "amcp":
            yield AMCP(on_progress=on_progress, **settings)
        elif request.recipe is not None:
            given = settings if asked is None else {"n_clusters": asked, **settings}
            yield tcc_from_recipe(request.recipe, on_progress=on_progress, **given)
        elif request.method == "tcc" and asked is not None:
            yield TCC(asked, on_progress=on_progress, **settings)
        else:
            yield DAC(on_progress=on_progress, **settings)


def outliers_among(model: Any, labels: Array) -> int | None:
    """Count the rows that a model puts into no cluster; None if it was not told to look for such."""
    return int((labels < 0).sum()) if isinstance(model, Coterie) and model.noise else None


def verdict_of(model: Any) -> Verdict | None:
    """Return what is thought of the clusters by the judge that chose them, if there was something to choose."""
    if not isinstance(model, Coterie) or not model.proposals_:
        return None
    return Verdict(model.confidence_, model.runner_up_)


def silhouette_of(model: Any, features: Table) -> tuple[float, tuple[str, ...]]:
    """Silhouette of a fitted model without its outliers, NaN if it is not defined, and notes on how it was measured."""
    inside = np.flatnonzero(model.labels_ >= 0)
    # It needs two clusters, and one that has more than one row.
    if not 1 < model.n_clusters_ < len(inside):
        return math.nan, ()
    if isinstance(model, AttentionBasedClustering | TCC) and features.image is not None:
        return math.nan, ()  # what they see in images has little to do with distances between their pixels
    if isinstance(model, ClAM):
        return model.silhouette_, ()
    rows = inside[thinned(len(inside), _SILHOUETTE_ROWS)]
    labels = model.labels_[rows]
    if not 1 < len(np.unique(labels)) < len(rows):
        return math.nan, ()
    value = float(silhouettes(model.table_.transform(features)[rows], labels[None])[0])
    note = f"the silhouette is of {len(rows):,} of the {features.n_rows:,} rows, picked at random"
    return value, (note,) if len(rows) < len(inside) else ()
