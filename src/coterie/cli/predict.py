"""``coterie predict``: assign new rows to the clusters of a saved model.

The model file and the table are read, and checked, before scikit-learn is imported.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.cli.imports import quick_import
from coterie.cli.inputs import load_table, name_rows, result_table
from coterie.cli.options import PredictRequest
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import ProgressDisplay
from coterie.cli.summary import Summary, cluster_sizes, count_outliers, print_summary
from coterie.errors import TableError, WeightsError
from coterie.methods import get_method, read_card
from coterie.progress import Callback, Progress
from coterie.tables.adapt import adapt_table
from coterie.tables.readers import write_table
from coterie.tables.table import Array, Table, image_shape, merge_notes, take_rows

if TYPE_CHECKING:  # imports scikit-learn
    from coterie.base import BaseClusterer

_ROWS_AT_ONCE = 2**18


def run(request: PredictRequest) -> None:
    """Run the command; all errors that can be foreseen are raised before anything is written."""
    display = ProgressDisplay(quiet=request.quiet, profile=request.profile)
    outputs = check_outputs(request, [request.model, request.file])
    card = _read_fitted(request.model)
    method = get_method(card["method"])
    method.check_packages()
    with display.progress(f"Reading {request.file}", "reading") as callback:
        shape = image_shape(card["encoder"].get("names", ()))
        loaded = load_table(request, shape=shape, callback=callback)
    with display.status("Loading", "import"), quick_import(method.estimator.partition(":")[0]):
        model = method.load_estimator().load(request.model)
    with display.progress("Encoding", "encoding") as callback:
        read = model.prepare_table(loaded.chosen.features, callback)
    adapted = adapt_table(model.table_, read)
    features = adapted.table
    if request.strict and adapted.changed:
        raise TableError(
            f"{loaded.source.name} differs from the table that the model was fitted on ({'; '.join(adapted.changed)}). "
            "Fix it, or leave --strict out."
        )
    loaded = name_rows(loaded, model.table_.row_names)
    with display.progress("Predicting", "assignment") as callback:
        start = time.perf_counter()
        labels, memberships = _predict(model, features, callback)
        seconds = time.perf_counter() - start
        # What the missing columns would have said is unknown.
        memberships = (1.0 - adapted.missing) * memberships + adapted.missing / max(1, model.n_clusters_)
        notes = (*adapted.notes, *model.table_.describe_unseen(features), *read.notes)
    with display.status("Writing", "writing"):
        if outputs.wants_rows:
            rows = result_table(loaded, labels, memberships, append=request.append, typed=outputs.typed)
            with outputs.staged() as staged:
                write_table("-" if staged.rows is None else staged.rows, *rows, force=False)
    summary = Summary(
        source=loaded.source.name,
        n_rows=features.n_rows,
        sizes=cluster_sizes(labels, model.n_clusters_),
        outliers=count_outliers(model, labels),
        seconds=seconds,
        table_notes=merge_notes(notes),
        files=outputs.files,
        noun="row" if features.image is None else "image",
    )
    print_summary(summary, request, display)


def _read_fitted(path: str) -> Mapping[str, Any]:
    """Read the card of a model that has clusters."""
    card = read_card(path)
    if "encoder" not in card:
        method = card["method"]
        raise WeightsError(
            f"{path!r} has weights but no clusters: it was written by learn, not by cluster --save. Find clusters "
            f"first: coterie cluster FILE --method {method} --weights {path} --save MODEL"
        )
    return card


def _predict(model: "BaseClusterer", features: Table, callback: Callback) -> tuple[Array, Array]:
    """Return labels and memberships, which are computed for many rows at a time to report the progress."""
    started, n = time.monotonic(), features.n_rows
    parts = []
    for start in range(0, n, _ROWS_AT_ONCE):
        part = features if n <= _ROWS_AT_ONCE else take_rows(features, np.arange(start, min(n, start + _ROWS_AT_ONCE)))
        parts.append((model.predict(part), model.predict_proba(part)))
        seconds = time.monotonic() - started
        callback(Progress(min(n, start + _ROWS_AT_ONCE), n, seconds=seconds, stage=f"assignment of {n:,} rows"))
    return np.concatenate([labels for labels, _ in parts]), np.concatenate([memberships for _, memberships in parts])
