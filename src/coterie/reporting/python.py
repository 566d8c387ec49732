"""What estimators show in Python: the report, the summary as a data frame, the card of a notebook."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jinja2
import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from coterie.base import BaseClusterer, FitDescription, ShownRows
from coterie.errors import InputError, MissingExtraError
from coterie.files import write_atomically
from coterie.reporting.data import ClusteringData, collect_data
from coterie.reporting.formatting import cluster_colours, plural
from coterie.reporting.page import render_report
from coterie.reporting.profile import (
    ClusterProfile,
    FeatureStatistics,
    describe_clusters,
    feature_statistics,
    rank_features,
)
from coterie.tables.readers.images import FILE_COLUMN
from coterie.tables.table import Array, Table, as_integers, as_table, unknown_column

_LIBRARIES = ("pandas", "polars", "pyarrow")  # of data frames, the first that is installed comes first
_COLUMNS = 8  # of the table that the summary shows
_CARD_ROWS, _CARD_CLUSTERS, _CARD_NOTES = 5_000, 12, 3


def write_report(
    model: BaseClusterer,
    path: str | Path | None,
    X: Any,
    *,
    title: str | None,
    ids: Any,
    truth: Any,
    images: tuple[int, int] | None,
    force: bool,
) -> Path | str:
    """Render the page of ``BaseClusterer.report``; write it if there is a path, otherwise return it."""
    X, ids = _set_aside(model, X, ids)
    X, truth = _set_aside(model, X, truth)
    shown, rows = model.rows_to_show(X)
    source = rows.table.source
    default = f"Clusters of {source}" if Path(source).suffix else "Clusters"  # only files have names
    page = render_report(
        shown,
        rows.table,
        title=default if title is None else title,
        source=source,
        ids=np.array([_as_text(name) for name in _row_names(shown, rows)]) if ids is None else ids,
        truth=truth,
        images=images,
    )
    if path is None:
        return page
    write_atomically(path, page, force=force)
    return Path(path)


def _set_aside(model: BaseClusterer, X: Any, values: Any) -> tuple[Any, Array | None]:
    """Return the values of a column that is given by name, and X without it unless the clusters were made from it."""
    if values is None or not isinstance(values, str):
        return X, None if values is None else np.asarray(values)
    name, table = values, model.rows_to_show()[1].table if X is None else as_table(X)
    if name in table.names:
        column = table.column(table.names.index(name))
    elif name in table.extra_columns:
        column = table.extra_columns[name]
    else:
        raise unknown_column(table, name, tuple(table.extra_columns))
    if X is not None and name in table.names and name not in model.table_.names:
        frame: object = nw.from_native(X, eager_only=True, pass_through=True)
        others = [position for position, other in enumerate(table.names) if other != name]
        # A data frame keeps its index.
        X = nw.to_native(frame.drop(name)) if isinstance(frame, nw.DataFrame) else table.select(others)
    return X, as_integers(column)


def _row_names(model: BaseClusterer, rows: ShownRows) -> Sequence[Any]:
    """Name the rows: by their index, a column that identifies them, their file, or numbers from 0 as Python counts."""
    table, column = rows.table, model.table_.row_names
    if rows.index is not None and type(rows.index).__name__ != "RangeIndex":
        names: Sequence[Any] = rows.index.tolist()
    elif column in table.names:
        names = as_integers(table.column(table.names.index(column))).tolist()
    elif FILE_COLUMN in table.extra_columns:
        names = table.extra_columns[FILE_COLUMN].tolist()
    else:
        names = range(table.n_rows) if rows.index is None else rows.index
    return names


def _as_text(name: Any) -> str:
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def summarise(model: BaseClusterer, X: Any = None) -> Any:
    """Build the data frame of ``BaseClusterer.summary``."""
    shown, rows = model.rows_to_show(X)
    description = shown.describe_fit(rows.table)
    data, statistics, profiles = _describe(shown, rows.table, description)
    columns: dict[str, Any] = {
        "cluster": [profile.number for profile in profiles],
        "size": [profile.size for profile in profiles],
        "share": [float(profile.fraction) for profile in profiles],
        "membership": [profile.membership for profile in profiles],
    }
    if statistics is not None:
        columns["features"] = [profile.name for profile in profiles]
    names = _row_names(shown, rows)
    columns["typical"] = [names[each.typical] if each.typical >= 0 else None for each in profiles]
    if statistics is not None:
        columns |= _typical_values(data, statistics)
    if data.n_outliers:
        share = data.n_outliers / len(data.labels)
        noise = {"cluster": -1, "size": data.n_outliers, "share": share, "features": "noise"}
        columns = {name: _with_last(values, noise.get(name)) for name, values in columns.items()}
    return nw.to_native(nw.from_dict(columns, backend=_library(rows)))


def _describe(
    model: BaseClusterer, table: Table, description: FitDescription
) -> tuple[ClusteringData, FeatureStatistics | None, tuple[ClusterProfile, ...]]:
    """Describe the clusters of these rows; without statistics if single columns say little, as those of images."""
    data = collect_data(model, table, None, description)
    columns_meaningful = table.image is None and description.columns_meaningful
    statistics = feature_statistics(data) if columns_meaningful else None
    return data, statistics, describe_clusters(data, statistics)


def _typical_values(data: ClusteringData, statistics: FeatureStatistics) -> dict[str, Any]:
    """Return the mean or the most frequent level per cluster of the columns in which the clusters differ most."""
    best = rank_features(statistics, len(data.features)).tolist()
    groups = {index: group for group in data.features_by_column for index in group}
    values: dict[str, Any] = {}
    for index in dict.fromkeys([*best, *range(len(data.features))]):
        feature, group = data.features[index], groups.get(index, [])  # parts of dates are in no group
        if feature.kind == "category" and len(group) > 1:
            levels = [str(data.features[i].level) for i in group]
            means = np.nan_to_num(statistics.means[:, group], nan=-1.0)
            values[f"most frequent {feature.column}"] = [levels[i] for i in means.argmax(axis=1)]
        elif feature.kind in {"number", "boolean", "date"}:
            means = statistics.means[:, index]
            values[f"mean {feature.name}"] = _to_dates(means) if feature.kind == "date" else means
        if len(values) == _COLUMNS:
            break
    return values


def _to_dates(seconds: NDArray[np.float64]) -> NDArray[np.datetime64]:
    dates = np.where(np.isfinite(seconds), seconds, 0.0).astype(np.int64).astype("datetime64[s]")
    dates[~np.isfinite(seconds)] = np.datetime64("NaT")
    return dates.astype("datetime64[us]")


def _with_last(values: Any, last: Any) -> Any:
    """Append one value; None is what the type of the others has for no value."""
    if not isinstance(values, np.ndarray):
        is_number = isinstance(values[0], float)
        return [*values, float("nan") if last is None and is_number else last]
    missing = np.datetime64("NaT") if values.dtype.kind == "M" else np.nan
    return np.append(values, np.array([missing], dtype=values.dtype))


def _library(rows: ShownRows) -> Any:
    """Return the kind of data frame to build."""
    if rows.frame_kind in _LIBRARIES:
        return rows.frame_kind
    installed = next((name for name in _LIBRARIES if find_spec(name)), None)
    if installed is None:
        raise MissingExtraError("summary needs pandas, polars or pyarrow, of which none is installed. Install one.")
    return installed


def render_card(model: BaseClusterer) -> str:
    """Render what a notebook shows of a fitted estimator, as a small piece of HTML."""
    sizes = np.bincount(model.labels_[model.labels_ >= 0], minlength=model.n_clusters_) if _has_labels(model) else ()
    names: Sequence[str] = ()
    try:
        shown, rows = model.rows_to_show(at_most=_CARD_ROWS)
    except InputError:  # it was loaded or copied, and has no rows
        pass
    else:
        _, statistics, profiles = _describe(shown, rows.table, shown.describe_fit(rows.table))
        names = () if statistics is None else [profile.name for profile in profiles]
    n_rows = len(model.labels_) if _has_labels(model) else 0
    colours = cluster_colours(model.n_clusters_)
    facts = [plural(model.n_clusters_, "cluster"), f"of {plural(n_rows, 'row')}" if n_rows else ""]
    confidence = vars(model).get("confidence_") if model.n_clusters_ > 1 else None
    environment = jinja2.Environment(loader=jinja2.PackageLoader("coterie", "reporting"), autoescape=True)
    return environment.get_template("card.html.jinja").render(
        model=repr(model),
        headline=" ".join(filter(None, facts)),
        confidence=None if confidence is None else f"{confidence:.2f}",
        clusters=[
            {
                "number": cluster,
                "colour": colours[cluster].light,
                "size": f"{size:,}",
                "share": f"{size / n_rows:.1%}",
                "name": names[cluster] if names else "",
            }
            for cluster, size in enumerate(sizes[:_CARD_CLUSTERS])
        ],
        more=max(0, len(sizes) - _CARD_CLUSTERS),
        has_names=bool(names),
        n_noise=n_rows - int(np.sum(sizes)),
        notes=(*model.table_.notes, *model.notes_)[:_CARD_NOTES],
    )


def _has_labels(model: BaseClusterer) -> bool:
    return "labels_" in vars(model)
