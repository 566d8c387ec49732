"""Putting the page together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

import coterie
from coterie.metrics import adjusted_rand_index, matched_accuracy, normalized_mutual_information
from coterie.report.findings import Findings, FittedClusterer, gather, matching
from coterie.report.formatting import cluster_colours, count, enumeration, name_parts, number, percent, shorten
from coterie.report.images import draw_pictures
from coterie.report.profile import describe_clusters, feature_statistics, telling_features
from coterie.report.projection import HEIGHT, WIDTH, Map, draw_map
from coterie.report.sections import (
    KernelClusterer,
    Silhouettes,
    cluster_cards,
    confusion_table,
    heat_map,
    kernel_pictures,
    membership_histogram,
    row_texts,
    run_table,
    silhouettes,
    training_curve,
)
from coterie.report.selection import Alternative, Judgement, alternatives_of, judgement_of
from coterie.tables.table import Table
from coterie.tcc.estimator import TCC

_TIP_COLUMNS = 4
_NOTES_IN_SIGHT = 8


@dataclass(frozen=True)
class KeyNumber:
    """A number at the head of the page."""

    label: str
    value: str
    note: str = ""


def render_report(
    model: FittedClusterer,
    table: Table,
    *,
    title: str,
    source: str,
    ids: NDArray[Any] | None = None,
    truth: NDArray[Any] | None = None,
    seconds: float | None = None,
    images: tuple[int, int] | None = None,
) -> str:
    """Show and explain a clustering on one self-contained HTML page.

    Parameters
    ----------
    model : fitted clusterer
        What was fitted on `table`.
    table : Table
        The rows that the model was fitted on.
    title : str
        Heading of the page.
    source : str
        Where the table comes from, in words for the reader.
    ids : array of shape (N,), optional
        What to call each row; by default its number, counted from 1.
    truth : array of shape (N,), optional
        The known class of each row, to compare the clusters with.
    seconds : float, optional
        How long the clustering took.
    images : (height, width), optional
        Draw rows as grey images of this shape; the columns are their pixels. Not needed for a table of images.

    Returns
    -------
    str
        A page of HTML that loads nothing from elsewhere.

    Raises
    ------
    InputError
        If `table`, `ids` or `truth` differ from the fitted rows in number, or `images` from the columns.

    Examples
    --------
    >>> from pathlib import Path
    >>> from coterie import ClAM
    >>> from coterie.data.inputs import as_table
    >>> X = as_table([[0.0, 1.0], [0.1, 0.9], [5.0, 4.0], [5.1, 4.2]])
    >>> model = ClAM(n_clusters=2, random_state=0).fit(X)
    >>> page = render_report(model, X, title="Four points", source="typed by hand")
    >>> page.startswith("<!doctype html>")
    True
    """
    if images is not None:
        table = replace(table, image=(*images, 1))
    found = gather(model, table, ids)
    # Of single pixels nothing is told: a cluster of images is shown by its pictures.
    statistics = feature_statistics(found) if table.image is None else None
    profiles = describe_clusters(found, statistics)
    telling = np.empty(0, dtype=np.int64) if statistics is None else telling_features(statistics, 24)
    # What a network sees in images has little to do with how far apart their pixels are.
    by_pixels = table.image is None or not isinstance(model, KernelClusterer | TCC)
    scores = silhouettes(found) if by_pixels else None
    colours = cluster_colours(found.n_clusters)
    drawn = draw_map(found, model, colours)
    judgement = judgement_of(model)
    alternatives = alternatives_of(model, found, drawn.rows)
    telling_columns = _different_columns(found, telling)
    notes = tuple(_sentence(note) for note in (*table.notes, *model.table_.notes))
    key_numbers = _key_numbers(found, scores, judgement)
    confusion, members = None, None
    if truth is not None:
        classes, members = _classes(matching(truth, len(found.labels), "truth"))
        key_numbers += _agreement(members, found.labels)
        confusion = confusion_table(found, classes, members)
    histogram = membership_histogram(found)
    return _template().render(
        version=coterie.__version__,
        title=title,
        source=source,
        summary=_summary(found, scores, telling_columns[:3]),
        warning=judgement.verdict.caution if judgement else "",
        judgement=judgement,
        kernel=kernel_pictures(model, found, members, colours),
        alternatives=alternatives,
        outliers=_outliers(found),
        noun=found.noun,
        all_rows="all rows but the outliers" if found.n_outliers else "all rows",
        key_numbers=key_numbers,
        colours=cluster_colours(max(found.n_clusters, *(each.n_colours for each in alternatives), 1)),
        row_count=count(int(found.sizes.sum()), found.noun),
        map=drawn,
        map_width=WIDTH,
        map_height=HEIGHT,
        map_drawn=_drawn(len(drawn.rows), len(found.labels), "drawn", found.noun),
        dots=_dots(found, drawn),
        prototypes=[{"left": f"{100 * x / WIDTH:.2f}", "top": f"{100 * y / HEIGHT:.2f}"} for x, y in drawn.prototypes],
        points=_points(found, drawn, telling_columns[:_TIP_COLUMNS], alternatives),
        clusters=cluster_cards(found, profiles, telling),
        pictures=None if table.image is None else draw_pictures(found),
        heat=None if statistics is None else heat_map(found, statistics),
        silhouettes=scores,
        silhouettes_drawn=_silhouettes_drawn(found, scores, by_pixels=by_pixels),
        histogram=histogram,
        fullest=count(histogram.fullest, found.noun),
        confusion=confusion,
        table_notes=notes[:_NOTES_IN_SIGHT],
        more_table_notes=notes[_NOTES_IN_SIGHT:],
        fit_notes=_fit_notes(model, seconds),
        # A function given to follow the progress shows as an address in memory, which says nothing.
        parameters=[(name, repr(value)) for name, value in sorted(model.get_params().items()) if not callable(value)],
        curve=training_curve(model.history_["loss"]),
        runs=run_table(model.runs_),
    )


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("coterie", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["name_parts"] = name_parts
    return environment.get_template("page.html.jinja")


def _different_columns(found: Findings, telling: NDArray[np.int64]) -> list[str]:
    return list(dict.fromkeys(found.features[place].column for place in telling))


def _outliers(found: Findings) -> dict[str, Any] | None:
    """Return what the page says of the rows that are in no cluster; None if there are none."""
    n = found.n_outliers
    if not n:
        return None
    largest = max(n, int(found.sizes.max()))
    return {
        "count": f"{n:,}",
        "rows": count(n, found.noun),
        "share": percent(n / len(found.labels)),
        "bar": 100 * n / largest,
    }


def _summary(found: Findings, scores: Silhouettes | None, columns: Sequence[str]) -> str:
    """Say in one sentence what came out."""
    sizes = found.sizes
    noun = found.noun
    rows = count(len(found.labels), noun)
    left = f"; {count(found.n_outliers, noun)} {'is an outlier' if found.n_outliers == 1 else 'are outliers'}"
    left = left if found.n_outliers else ""
    if found.n_clusters == 1:
        return f"{rows} fell into one cluster: no groups were told apart{left}."
    clusters = f"{found.n_clusters} clusters"
    if sizes.min() == sizes.max():
        split = f"{clusters} of {count(sizes.min(), noun)} each"
    elif found.n_clusters <= 4:
        split = f"{clusters} of {enumeration([f'{n:,}' for n in sizes])} {noun}s"
    else:
        split = f"{clusters}, the largest of {sizes.max():,} and the smallest of {count(sizes.min(), noun)}"
    apart = f", told apart best by {enumeration([found.short[name] for name in columns])}" if columns else ""
    return f"{rows} fell into {split}{apart}{_clarity(scores)}{left}."


def _clarity(scores: Silhouettes | None) -> str:
    if scores is None:
        return ""
    words = (
        (0.5, "the clusters are clearly separate"),
        (0.25, "the clusters are separate, with blurred borders"),
    )
    return "; " + next((text for least, text in words if scores.mean >= least), "the clusters overlap much")


def _key_numbers(found: Findings, scores: Silhouettes | None, judgement: Judgement | None) -> list[KeyNumber]:
    n = len(found.labels)
    facts = [
        KeyNumber(f"{found.noun}s", f"{n:,}"),
        _extent(found),
        KeyNumber(
            "clusters", f"{found.n_clusters:,}", f"and {count(found.n_outliers, 'outlier')}" * bool(found.n_outliers)
        ),
    ]
    if judgement is not None:
        facts.append(KeyNumber("confidence", f"{judgement.verdict.confidence:.2f}", judgement.verdict.measured))
    if scores is not None:
        thinned = scores.drawn < n - found.n_outliers
        note = f"of {scores.drawn:,} {found.noun}s picked at random" if thinned else "from −1 to 1"
        facts.append(KeyNumber("mean silhouette", f"{scores.mean:.2f}".replace("-", "−"), note))
    membership = float(found.top_membership[found.inside].mean(dtype=np.float64)) if n > found.n_outliers else 0.0
    facts.append(KeyNumber("mean membership", percent(membership), "in the own cluster"))
    return facts


def _extent(found: Findings) -> KeyNumber:
    """Say how much there is of each row."""
    if found.table.image is not None:
        height, width, channels = found.table.image
        return KeyNumber("pixels", f"{height:,} × {width:,}", "grey" if channels == 1 else "in colour")
    columns, features = found.table.n_columns, len(found.features)
    return KeyNumber("columns", f"{columns:,}", f"seen as {features:,} numbers" if features != columns else "")


def _classes(truth: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the known classes as text, and the place of each row's class among them."""
    classes, members = np.unique([str(value) for value in truth.tolist()], return_inverse=True)
    return classes, members


def _agreement(members: NDArray[np.int64], labels: NDArray[np.int64]) -> list[KeyNumber]:
    measured = (
        ("adjusted Rand index", adjusted_rand_index(members, labels)),
        ("mutual information", normalized_mutual_information(members, labels)),
        ("accuracy", matched_accuracy(members, labels)),
    )
    notes = ("0 by chance, 1 at best", "normalised, 1 at best", "best match of clusters to classes")
    return [
        KeyNumber(name, f"{value:.3f}".replace("-", "−"), note)
        for (name, value), note in zip(measured, notes, strict=True)
    ]


def _drawn(drawn: int, n: int, verb: str, noun: str, among: str = "") -> str:
    if drawn < n:
        return f"{drawn:,} of {n:,} {noun}s{among} are {verb}, picked at random."
    return f"All {n:,} {noun}s{among} are {verb}." if n > 1 else f"The only {noun} is {verb}."


def _silhouettes_drawn(found: Findings, scores: Silhouettes | None, *, by_pixels: bool) -> str:
    if scores is not None:
        among = " in clusters" if found.n_outliers else ""
        return _drawn(scores.drawn, len(found.labels) - found.n_outliers, "measured", found.noun, among)
    if not by_pixels:
        return (
            "There is no silhouette here: it would compare pixels, and the clusters are of what a network sees in them."
        )
    return f"The silhouette needs at least two clusters, and more {found.noun}s than clusters, so there is none here."


def _dots(found: Findings, drawn: Map) -> list[dict[str, Any]]:
    clusters = found.labels[drawn.rows].tolist()
    places = drawn.places.round(1).tolist()
    return [{"x": x, "y": y, "cluster": cluster} for (x, y), cluster in zip(places, clusters, strict=True)]


def _points(found: Findings, drawn: Map, columns: Sequence[str], alternatives: Sequence[Alternative]) -> dict[str, Any]:
    """Return what the page shows when a dot is pointed at."""
    memberships = found.top_membership
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "noun": found.noun,
        "columns": [found.short[name] for name in columns],
        "alternatives": [
            {
                "clusters": each.n_clusters,
                "labels": each.labels,
                "shares": {group.colour: group.share for group in each.groups},
            }
            for each in alternatives
        ],
        "points": [
            [
                *(round(float(v), 1) for v in place),
                int(found.labels[row]),
                percent(float(memberships[row])),
                shorten(found.ids[row], 60),
                row_texts(found, columns, row),
            ]
            for row, place in zip(drawn.rows.tolist(), drawn.places, strict=True)
        ],
    }


def _fit_notes(model: FittedClusterer, seconds: float | None) -> list[str]:
    notes = [_sentence(note) for note in model.notes_]
    if seconds is not None:
        notes.append(f"The clustering took {number(float(f'{seconds:.3g}'))} seconds.")
    return notes


def _sentence(note: str) -> str:
    """Begin with a capital and end with a full stop."""
    text = note[:1].upper() + note[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
