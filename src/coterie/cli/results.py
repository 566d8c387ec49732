"""The fit of ``coterie cluster``, what its summary says of it, and its files. Needs scikit-learn."""

import math
import time
from dataclasses import dataclass
from typing import final

import numpy as np

from coterie.base import BaseClusterer, FitDescription
from coterie.cli.inputs import Loaded, result_table
from coterie.cli.options import ClusterRequest
from coterie.cli.outputs import Outputs
from coterie.cli.progress import ProgressDisplay
from coterie.cli.summary import KnownClasses, Summary, cluster_sizes, count_outliers
from coterie.files import write_atomically
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information, silhouettes
from coterie.reporting.data import collect_data, sample_rows
from coterie.reporting.profile import describe_clusters, feature_statistics
from coterie.tables.readers import write_table
from coterie.tables.readers.images import Size
from coterie.tables.table import Array, Table, merge_notes, take_rows

_SILHOUETTE_ROWS = 2_000


@final
@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted estimator, and the rows that it was fitted on."""

    model: BaseClusterer
    as_read: Table  # the columns that were chosen
    features: Table  # what was clustered: the same, or their embeddings
    seconds: float  # duration of the fit
    description: FitDescription


def fit(model: BaseClusterer, as_read: Table, display: ProgressDisplay) -> Fitted:
    """Fit the estimator, with its progress on the display."""
    with display.progress("Encoding", "encoding") as callback:
        features = model.prepare_table(as_read, callback, reset=True)
    with display.progress("Clustering", "clustering") as callback:
        model.set_params(callback=callback)
        start = time.perf_counter()
        model.fit(features)
        seconds = time.perf_counter() - start
    return Fitted(model.set_params(callback=None), as_read, features, seconds, model.describe_fit(features))


def measure_silhouette(
    model: BaseClusterer, features: Table, description: FitDescription
) -> tuple[float, tuple[str, ...]]:
    """Return the mean silhouette without outliers, NaN if it is undefined, and notes on how it was measured."""
    inside = np.flatnonzero(model.labels_ >= 0)
    # It needs two clusters, and one that has more than one row.
    if not 1 < model.n_clusters_ < len(inside):
        return math.nan, ()
    if not description.pixel_distances_meaningful and features.image is not None:
        return math.nan, ()
    if description.silhouette is not None:
        return description.silhouette, ()
    rows = inside[sample_rows(len(inside), _SILHOUETTE_ROWS)]
    labels = model.labels_[rows]
    if not 1 < len(np.unique(labels)) < len(rows):
        return math.nan, ()
    encode = description.encode or model.table_.transform
    value = float(silhouettes(encode(take_rows(features, rows)), labels[None])[0])
    note = f"the silhouette was measured on a random sample of {len(rows):,} of {features.n_rows:,} rows"
    return value, (note,) if len(rows) < len(inside) else ()


def score_against(classes: Array, labels: Array) -> dict[str, float]:
    """Compare clusters with known classes; outliers count as one more cluster."""
    return {
        "ARI": adjusted_rand_index(classes, labels),
        "NMI": normalized_mutual_information(classes, labels),
        "accuracy": matched_accuracy(classes, labels),
    }


def summarise(
    fitted: Fitted, request: ClusterRequest, loaded: Loaded, known: KnownClasses, outputs: Outputs, image: Size | None
) -> Summary:
    """Measure and describe the clusters."""
    model, features, description = fitted.model, fitted.features, fitted.description
    silhouette, notes = measure_silhouette(model, features, description)
    is_alone = description.selection is None  # otherwise the confidence is shown instead
    is_images = image is not None or features.image is not None
    return Summary(
        source=loaded.source.name,
        n_rows=features.n_rows,
        sizes=cluster_sizes(model.labels_, model.n_clusters_),
        seconds=fitted.seconds,
        outliers=count_outliers(model, model.labels_),
        descriptions=() if is_images or request.quiet or request.json else _describe_clusters(fitted),
        silhouette=silhouette,
        selection=description.selection,
        scores=score_against(known.classes, model.labels_[known.rows]) if len(known.rows) else {},
        table_notes=merge_notes((*features.notes, *model.table_.notes)),
        fit_notes=(*model.notes_, *known.notes, *(notes if is_alone else ())),
        files=outputs.files,
        noun="row" if features.image is None else "image",
    )


def _describe_clusters(fitted: Fitted) -> tuple[str, ...]:
    """Return the distinguishing words or features of each cluster; nothing if columns do not characterise them."""
    model, features, as_read = fitted.model, fitted.features, fitted.as_read
    if features is not as_read and as_read.kinds == ("category",):
        from coterie.topics import distinctive_words  # noqa: PLC0415  (slow to import, and for texts only)

        words = distinctive_words(as_read.column(0).tolist(), model.labels_)
        return tuple(", ".join(words[cluster]) for cluster in range(model.n_clusters_))
    if not fitted.description.columns_meaningful or as_read.image is not None:
        return ()
    data = collect_data(model, features, None, fitted.description)
    return tuple(profile.name for profile in describe_clusters(data, feature_statistics(data)))


def write(fitted: Fitted, request: ClusterRequest, loaded: Loaded, outputs: Outputs, image: Size | None) -> None:
    """Write all files, or none; standard output comes last, since it cannot be undone."""
    model, rows = fitted.model, None
    if outputs.wants_rows:
        rows = result_table(loaded, model.labels_, model.probabilities_, append=request.append, typed=outputs.typed)
    with outputs.staged() as staged:
        if staged.model is not None:
            model.save(staged.model)
        if staged.report is not None:
            from coterie.reporting.page import render_report  # noqa: PLC0415  (slow to import, and not always needed)

            page = render_report(
                model,
                fitted.features,
                title=f"Clusters of {loaded.source.name}",
                source=loaded.source.name,
                ids=loaded.chosen.ids,
                truth=loaded.chosen.truth,
                seconds=fitted.seconds,
                images=image,
            )
            write_atomically(staged.report, page, force=False)
        if staged.rows is not None and rows is not None:
            write_table(staged.rows, *rows, force=False)
    if outputs.to_stdout and rows is not None:
        write_table("-", *rows, force=False)
