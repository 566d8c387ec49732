"""The report: one self-contained HTML page about a fitted estimator."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

import coterie
from coterie.base import BaseClusterer, FitDescription
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.reporting import distributions, points, sections
from coterie.reporting.data import ClusteringData, check_length, collect_data
from coterie.reporting.formatting import (
    cluster_colours,
    enumeration,
    format_decimals,
    format_number,
    format_percent,
    grouped_colours,
    name_parts,
    plural,
    shorten,
    visible_text,
)
from coterie.reporting.groups import group_clusters
from coterie.reporting.images import build_gallery
from coterie.reporting.profile import (
    ClusterProfile,
    FeatureStatistics,
    describe_clusters,
    feature_statistics,
    rank_features,
)
from coterie.reporting.projection import HEIGHT, WIDTH, build_map
from coterie.reporting.selection import (
    SelectionSection,
    describe_candidate,
    family_of,
    find_alternatives,
    selection_section,
)
from coterie.reporting.verdict import NOTES_SAID_HERE, Evidence, Verdict, judge_result
from coterie.tables.table import Table, merge_notes

_RANKED = 48  # features among which the most telling columns are; a category has several
_NAME_ON_MAP = 30
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
    telling = [] if statistics is None else _telling_columns(data, statistics)
    groups = group_clusters(data, description.selection, statistics)
    colours = grouped_colours([group.clusters for group in groups]) or cluster_colours(data.n_clusters)
    map_ = build_map(data, model, description, colours)
    why = selection_section(description.selection, data.n_clusters)
    alternatives = find_alternatives(description.selection, data, map_.rows)
    confusion, members, scores = None, None, []
    if truth is not None:
        known = check_length(truth, len(data.labels), "truth")
        classes, members = np.unique([str(value) for value in known.tolist()], return_inverse=True)
        scores = _score_numbers(members, data.labels)
        confusion = sections.confusion_table(data, classes, members)
    verdict = judge_result(_evidence(data, model, description, members))
    notes = tuple(map(_sentence, merge_notes((*table.notes, *model.table_.notes))))
    fit_notes = [_sentence(note) for note in model.notes_ if not note.startswith(NOTES_SAID_HERE)]
    if seconds is not None:
        fit_notes.append(f"The fit took {format_number(float(f'{seconds:.3g}'))} seconds.")
    meaningful = table.image is None or description.pixel_distances_meaningful
    silhouettes = sections.measure_silhouettes(data) if meaningful else None
    bars, tallest = sections.membership_histogram(data)
    n_colours = max(data.n_clusters, *(1 + max(each.clusters) for each in alternatives), 1)
    names = [_name_on_map(profile) for profile in profiles]
    return _template().render(
        version=coterie.__version__,
        title=title,
        source=source,
        summary=_summary(data, telling[:3] if data.n_clusters > 1 else []),
        verdict=verdict,
        selection=description.selection,
        why=why,
        kernel=sections.kernel_panels(description, data, members, colours),
        sections=description.sections,
        alternatives=alternatives,
        data=data,
        key_numbers=[*_key_numbers(data, why, verdict), *scores],
        colours=[*colours, *cluster_colours(n_colours)[len(colours) :]],
        map=map_,
        map_width=WIDTH,
        map_height=HEIGHT,
        map_shown=_shown(len(map_.rows), len(data.labels), data.noun),
        points=points.describe_points(data, map_, telling, alternatives, names),
        clusters=profiles,
        groups=groups,
        distributions=distributions.describe_distributions(data, telling) if data.n_clusters > 1 else (),
        typical_cells=[sections.typical_cells(data, profile, telling) for profile in profiles],
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


def _telling_columns(data: ClusteringData, statistics: FeatureStatistics) -> list[str]:
    """Return the columns that differ most between the clusters, and the others after them."""
    best = rank_features(statistics, _RANKED)
    columns = [*(data.features[i].column for i in best), *(feature.column for feature in data.features)]
    return [name for name in dict.fromkeys(columns) if name in data.table.names][
        : max(points.COLUMNS, distributions.COLUMNS)
    ]


def _evidence(
    data: ClusteringData, model: BaseClusterer, description: FitDescription, members: NDArray[np.int64] | None
) -> Evidence:
    some = bool(data.inside.any())
    return Evidence(
        n_rows=len(data.labels),
        n_clusters=data.n_clusters,
        n_outliers=data.n_outliers,
        noun=data.noun,
        selection=description.selection,
        expected_right=float(data.own_membership[data.inside].mean(dtype=np.float64)) if some else 0.0,
        one_requested=model.get_params().get("n_clusters") == 1,
        truth_index=None if members is None else adjusted_rand_index(members, data.labels),
    )


def _name_on_map(profile: ClusterProfile) -> str:
    """Return a short name of a cluster; an empty one if it has only its number."""
    if profile.name == f"cluster {profile.number}":
        return ""
    return profile.name if len(profile.name) <= _NAME_ON_MAP else shorten(profile.name.split(", ")[0], _NAME_ON_MAP)


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coterie", "reporting"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
    )
    environment.filters |= {"name_parts": name_parts, "percent": format_percent, "plural": plural, "shorten": shorten}
    environment.filters |= {"family": family_of, "describe": describe_candidate, "decimals": format_decimals}
    return environment.get_template("page.html.jinja")


def _finalize(value: object) -> object:
    """Remove characters from texts that would turn the direction of the page's own words."""
    if isinstance(value, Markup):
        return Markup(visible_text(value))  # noqa: S704  (it was escaped before)
    return visible_text(value) if isinstance(value, str) else value


def _summary(data: ClusteringData, columns: Sequence[str]) -> str:
    """Describe the result in one sentence, and where the clusters differ in another."""
    sizes, noun = data.sizes, data.noun
    rows = plural(len(data.labels), noun)
    outliers = f", and {plural(data.n_outliers, 'outlier')}" if data.n_outliers else ""
    if data.n_clusters == 1:
        return f"{rows} in one cluster{outliers}."
    clusters = f"{data.n_clusters:,} clusters"
    if sizes.min() == sizes.max():
        split = f"{clusters} of {plural(sizes.min(), noun)} each"
    elif data.n_clusters <= 4:
        split = f"{clusters} of {enumeration([f'{n:,}' for n in sizes])} {noun}s"
    else:
        split = f"{clusters} of {sizes.min():,} to {plural(sizes.max(), noun)}"
    best = f" They differ most in {enumeration([data.short[name] for name in columns])}." if columns else ""
    return f"{rows} in {split}{outliers}.{best}"


def _key_numbers(data: ClusteringData, why: SelectionSection | None, verdict: Verdict) -> list[tuple[str, str, str]]:
    """Return label, value and note of each number at the top of the page."""
    n, columns, features = len(data.labels), data.table.n_columns, len(data.features)
    size = ("columns", f"{columns:,}", f"encoded as {features:,} numbers" if features != columns else "")
    if data.table.image is not None:
        height, width, channels = data.table.image
        size = ("pixels", f"{height:,} × {width:,}", "grey" if channels == 1 else "in colour")
    outliers = f"and {plural(data.n_outliers, 'outlier')}" if data.n_outliers else ""
    numbers = [(f"{data.noun}s", f"{n:,}", ""), size, ("clusters", f"{data.n_clusters:,}", outliers)]
    if why is not None:
        numbers.append(("confidence", format_decimals(why.confidence.value), why.confidence.unit))
    if data.n_clusters > 1 and data.inside.any():
        membership = format_percent(float(data.own_membership[data.inside].mean(dtype=np.float64)))
        if verdict.level == "none":
            numbers.append(("mean membership", membership, "as the method computes it"))
        else:
            numbers.append(("expected right", membership, f"{data.noun}s in the right cluster"))
    return numbers


def _score_numbers(members: NDArray[np.int64], labels: NDArray[np.int64]) -> list[tuple[str, str, str]]:
    scores = (
        ("adjusted Rand index", adjusted_rand_index(members, labels), "0 = random, 1 = perfect"),
        ("mutual information", normalized_mutual_information(members, labels), "normalised, 1 = perfect"),
        ("accuracy", matched_accuracy(members, labels), "best match of clusters to classes"),
    )
    return [(name, format_decimals(value, 3), note) for name, value, note in scores]


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


def _sentence(note: str) -> str:
    """Start with a capital letter and end with a full stop."""
    text = note[:1].upper() + note[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
