"""The report: one self-contained HTML page about a fitted estimator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

import coterie
from coterie.base import BaseClusterer
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.reporting import sections
from coterie.reporting.data import ClusteringData, check_length, collect_data
from coterie.reporting.formatting import (
    cluster_colours,
    enumeration,
    format_number,
    format_percent,
    name_parts,
    plural,
    shorten,
)
from coterie.reporting.images import build_gallery
from coterie.reporting.profile import describe_clusters, feature_statistics, rank_features
from coterie.reporting.projection import HEIGHT, WIDTH, Map, build_map
from coterie.reporting.selection import (
    Alternative,
    SelectionSection,
    describe_candidate,
    family_of,
    find_alternatives,
    selection_section,
)
from coterie.tables.table import Table

_TIP_COLUMNS = 4
_VISIBLE_NOTES = 8
_UNSHOWN = {"callback", "verbose"}  # parameters that do not influence the result


def render_report(
    model: BaseClusterer,
    table: Table,
    *,
    title: str,
    source: str,
    ids: NDArray[Any] | None = None,
    truth: NDArray[Any] | None = None,
    seconds: float | None = None,
    images: tuple[int, int] | None = None,
) -> str:
    """Render a self-contained HTML page that explains a clustering.

    Parameters
    ----------
    model : fitted estimator
        Its ``describe_fit`` determines which sections the page has.
    table : Table
        The rows that the model was fitted on.
    title : str
        Heading of the page.
    source : str
        Where the table comes from.
    ids : array (N,), optional
        Names of the rows; by default their numbers from 1.
    truth : array (N,), optional
        Known class of each row, to compare the clusters with.
    seconds : float, optional
        Duration of the fit.
    images : (height, width), optional
        Show rows as grey images of this shape; the columns are their pixels. Not needed for a table of images.

    Returns
    -------
    str
        HTML that loads nothing from elsewhere.

    Raises
    ------
    InputError
        If `table`, `ids` or `truth` do not match the fitted rows in number, or `images` the columns.

    Examples
    --------
    >>> from coterie import ClAM
    >>> from coterie.tables.table import as_table
    >>> X = as_table([[0.0, 1.0], [0.1, 0.9], [5.0, 4.0], [5.1, 4.2]])
    >>> model = ClAM(n_clusters=2, random_state=0).fit(X)
    >>> page = render_report(model, X, title="Four points", source="typed by hand")
    >>> page.startswith("<!doctype html>")
    True
    """
    if images is not None:
        table = replace(table, image=(*images, 1))
    description = model.describe_fit(table)
    data = collect_data(model, table, ids, description)
    # Single pixels say little: clusters of images are described by images.
    has_columns = table.image is None and description.columns_meaningful
    statistics = feature_statistics(data) if has_columns else None
    profiles = describe_clusters(data, statistics)
    best_features = np.empty(0, dtype=np.int64) if statistics is None else rank_features(statistics, 24)
    best_columns = list(dict.fromkeys(data.features[i].column for i in best_features))
    meaningful = table.image is None or description.pixel_distances_meaningful
    silhouettes = sections.measure_silhouettes(data) if meaningful else None
    colours = cluster_colours(data.n_clusters)
    map_ = build_map(data, model, description, colours)
    why = selection_section(description.selection, data.n_clusters)
    alternatives = find_alternatives(description.selection, data, map_.rows)
    notes = tuple(_sentence(note) for note in (*table.notes, *model.table_.notes))
    fit_notes = [_sentence(note) for note in model.notes_]
    if seconds is not None:
        fit_notes.append(f"The fit took {format_number(float(f'{seconds:.3g}'))} seconds.")
    key_numbers = _key_numbers(data, silhouettes, why)
    confusion, members = None, None
    if truth is not None:
        known = check_length(truth, len(data.labels), "truth")
        classes, members = np.unique([str(value) for value in known.tolist()], return_inverse=True)
        key_numbers += _score_numbers(members, data.labels)
        confusion = sections.confusion_table(data, classes, members)
    bars, tallest = sections.membership_histogram(data)
    return _template().render(
        version=coterie.__version__,
        title=title,
        source=source,
        summary=_summary(data, silhouettes, best_columns[:3]),
        warning=why.confidence.caution if why else "",
        selection=description.selection,
        why=why,
        kernel=sections.kernel_panels(description, data, members, colours),
        sections=description.sections,
        alternatives=alternatives,
        data=data,
        key_numbers=key_numbers,
        colours=cluster_colours(max(data.n_clusters, *(1 + max(each.clusters) for each in alternatives), 1)),
        map=map_,
        map_width=WIDTH,
        map_height=HEIGHT,
        map_shown=_shown(len(map_.rows), len(data.labels), data.noun),
        tips=_tips(data, map_, best_columns[:_TIP_COLUMNS], alternatives),
        clusters=profiles,
        typical_cells=[sections.typical_cells(data, profile, best_columns) for profile in profiles],
        gallery=None if table.image is None else build_gallery(data),
        heat=None if statistics is None else sections.heat_map(data, statistics),
        silhouettes=silhouettes,
        silhouettes_shown=_describe_silhouettes(data, silhouettes, meaningful=meaningful),
        histogram=bars,
        tallest=tallest,
        confusion=confusion,
        table_notes=notes[:_VISIBLE_NOTES],
        more_table_notes=notes[_VISIBLE_NOTES:],
        fit_notes=fit_notes,
        parameters=[(name, repr(value)) for name, value in sorted(model.get_params().items()) if name not in _UNSHOWN],
        curve=sections.training_curve(description.losses),
        runs=sections.run_table(description.runs),
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coterie", "reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"name_parts": name_parts, "percent": format_percent, "plural": plural, "shorten": shorten}
    environment.filters |= {"family": family_of, "describe": describe_candidate}
    return environment.get_template("page.html.jinja")


def _summary(data: ClusteringData, silhouettes: sections.Silhouettes | None, columns: Sequence[str]) -> str:
    """Describe the result in one sentence."""
    sizes, noun = data.sizes, data.noun
    rows = plural(len(data.labels), noun)
    outliers = f", and {plural(data.n_outliers, 'outlier')}" if data.n_outliers else ""
    if data.n_clusters == 1:
        return f"{rows} in one cluster{outliers}: no separate groups were found."
    clusters = f"{data.n_clusters} clusters"
    if sizes.min() == sizes.max():
        split = f"{clusters} of {plural(sizes.min(), noun)} each"
    elif data.n_clusters <= 4:
        split = f"{clusters} of {enumeration([f'{n:,}' for n in sizes])} {noun}s"
    else:
        split = f"{clusters} of {sizes.min():,} to {plural(sizes.max(), noun)}"
    best = f" They differ most in {enumeration([data.short[name] for name in columns])}." if columns else ""
    if silhouettes is None:
        separation = ""
    elif silhouettes.mean >= 0.25:
        kind = "well separated" if silhouettes.mean >= 0.5 else "separate, with fuzzy borders"
        separation = f" The clusters are {kind}."
    else:
        separation = " The clusters overlap strongly."
    return f"{rows} in {split}{outliers}.{best}{separation}"


def _key_numbers(
    data: ClusteringData, silhouettes: sections.Silhouettes | None, selection: SelectionSection | None
) -> list[tuple[str, str, str]]:
    """Return label, value and note of each number at the top of the page."""
    n, columns, features = len(data.labels), data.table.n_columns, len(data.features)
    size = ("columns", f"{columns:,}", f"encoded as {features:,} numbers" if features != columns else "")
    if data.table.image is not None:
        height, width, channels = data.table.image
        size = ("pixels", f"{height:,} × {width:,}", "grey" if channels == 1 else "in colour")
    outliers = f"and {plural(data.n_outliers, 'outlier')}" if data.n_outliers else ""
    numbers = [(f"{data.noun}s", f"{n:,}", ""), size, ("clusters", f"{data.n_clusters:,}", outliers)]
    if selection is not None:
        numbers.append(("confidence", f"{selection.confidence.value:.2f}", selection.confidence.unit))
    if silhouettes is not None:
        sampled = silhouettes.n_rows < n - data.n_outliers
        note = f"random sample of {silhouettes.n_rows:,} {data.noun}s" if sampled else "from −1 to 1"
        numbers.append(("mean silhouette", f"{silhouettes.mean:.2f}".replace("-", "−"), note))
    membership = float(data.own_membership[data.inside].mean(dtype=np.float64)) if n > data.n_outliers else 0.0
    return [*numbers, ("mean membership", format_percent(membership), "in the assigned cluster")]


def _score_numbers(members: NDArray[np.int64], labels: NDArray[np.int64]) -> list[tuple[str, str, str]]:
    scores = (
        ("adjusted Rand index", adjusted_rand_index(members, labels), "0 = random, 1 = perfect"),
        ("mutual information", normalized_mutual_information(members, labels), "normalised, 1 = perfect"),
        ("accuracy", matched_accuracy(members, labels), "best match of clusters to classes"),
    )
    return [(name, f"{value:.3f}".replace("-", "−"), note) for name, value, note in scores]


def _shown(shown: int, n: int, noun: str) -> str:
    if shown < n:
        return f"A random sample of {shown:,} of {n:,} {noun}s is shown."
    return f"All {n:,} {noun}s are shown." if n > 1 else f"The only {noun} is shown."


def _describe_silhouettes(data: ClusteringData, silhouettes: sections.Silhouettes | None, *, meaningful: bool) -> str:
    if silhouettes is not None:
        return _shown(silhouettes.n_rows, len(data.labels) - data.n_outliers, data.noun)
    if not meaningful:
        return "No silhouette: it would compare pixels, but the clusters are based on what a network learned."
    return f"No silhouette: it needs at least two clusters, and more {data.noun}s than clusters."


def _tips(
    data: ClusteringData, map_: Map, columns: Sequence[str], alternatives: Sequence[Alternative]
) -> dict[str, Any]:
    """Return what the page shows when the pointer is at a point."""
    memberships = data.own_membership
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "noun": data.noun,
        "columns": [data.short[name] for name in columns],
        "alternatives": [
            {"clusters": each.n_clusters, "labels": each.labels, "percents": each.clusters} for each in alternatives
        ],
        "points": [
            [
                *(round(float(v), 1) for v in position),
                int(data.labels[row]),
                format_percent(float(memberships[row])),
                shorten(data.ids[row], 60),
                sections.row_texts(data, columns, row),
            ]
            for row, position in zip(map_.rows.tolist(), map_.points, strict=True)
        ],
    }


def _sentence(note: str) -> str:
    """Start with a capital letter and end with a full stop."""
    text = note[:1].upper() + note[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
