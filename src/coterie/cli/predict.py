"""``coterie predict``: put new rows into the clusters of a saved model."""

import time
from dataclasses import replace
from typing import Any

from coterie.checkpoint import load_checkpoint
from coterie.cli.cluster import outliers_among
from coterie.cli.inputs import PredictRequest, load, result_table
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import Narrator
from coterie.cli.summary import Summary, cluster_sizes, present
from coterie.errors import TableError, WeightsError
from coterie.methods import METHODS
from coterie.methods import load as load_model
from coterie.tables.encoder import TableEncoder
from coterie.tables.readers.files import write_table
from coterie.tables.table import Table, image_shape, listed


def run(request: PredictRequest) -> None:
    """Do what was asked; whatever can be refused is refused before anything is written."""
    writing = request.writing
    narrator = Narrator(quiet=writing.quiet)
    outputs = check_outputs(writing, [request.model, request.reading.file])
    with narrator.steps(f"Reading {request.reading.file}") as on_step:
        model = _fitted_model(request.model)
        loaded = load(request.reading, like=image_shape(model.table_.names), on_step=on_step)
    features = _fitting(loaded.chosen.features, model.table_)
    with narrator.phase("Predicting"):
        began = time.perf_counter()
        labels, memberships = model.predict(features), model.predict_proba(features)
        seconds = time.perf_counter() - began
        notes = (*features.notes, *model.table_.describe_unseen(features))
    with narrator.phase("Writing"):
        if outputs.wants_rows:
            rows = result_table(loaded, labels, memberships, append=writing.append, typed=outputs.typed)
            with outputs.staged() as staged:
                write_table("-" if staged.rows is None else staged.rows, *rows, force=False)
    summary = Summary(
        source=loaded.source.name,
        n_rows=features.n_rows,
        sizes=cluster_sizes(labels, model.n_clusters_),
        outliers=outliers_among(model, labels),
        seconds=seconds,
        notes=notes,
        files=outputs.files,
        noun="row" if features.image is None else "image",
    )
    present(summary, writing, narrator)


def _fitted_model(path: str) -> Any:
    """Read a model that was fitted to a table, as ``cluster --save`` writes it."""
    _, card = load_checkpoint(path)
    method = card.get("method")
    if method in METHODS and "encoder" not in card:
        raise WeightsError(
            f"{path!r} has weights, and no clusters yet: learn wrote it, not cluster --save; "
            f"find clusters with them first (coterie cluster FILE --method {method} --weights {path} --save MODEL)"
        )
    return load_model(path)


def _fitting(features: Table, encoder: TableEncoder) -> Table:
    """Pass over the columns that the model does not know by name; without names, their number must be right."""
    if encoder.named and features.named:
        known = [i for i, name in enumerate(features.names) if name in encoder.names]
        others = [name for name in features.names if name not in encoder.names]
        if not others or not known:
            return features
        note = f"passed over, since the model does not use them: {listed(others)}"
        return replace(features.select(known), notes=(*features.notes, note))
    if features.n_columns != len(encoder.names) and features.image is not None:
        raise TableError(
            f"{features.source} has images of {features.n_columns:,} pixels, and the model was fitted on "
            f"{len(encoder.names):,} columns; use a model that was fitted on such images"
        )
    if features.n_columns != len(encoder.names):
        raise TableError(
            f"{features.source} has {features.n_columns} columns, and the model was fitted on {len(encoder.names)}; "
            "choose them (--columns, --drop, --id)"
        )
    return features
