"""``coterie cluster``: read, fit, write, and print a summary."""

import math
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from coterie.base import BaseClusterer, FitDescription
from coterie.cli.inputs import Loaded, load_table, parse_size, result_table
from coterie.cli.options import ClusterRequest
from coterie.cli.outputs import Outputs, check_outputs
from coterie.cli.progress import ProgressDisplay
from coterie.cli.summary import Summary, cluster_sizes, count_outliers, known_classes, print_summary, score_against
from coterie.errors import InputError
from coterie.files import write_atomically
from coterie.methods import get_method, get_methods
from coterie.metrics import silhouettes
from coterie.reporting.data import collect_data, sample_rows
from coterie.reporting.profile import describe_clusters, feature_statistics
from coterie.tables.readers import write_table
from coterie.tables.readers.images import Size
from coterie.tables.table import Table, take_rows
from coterie.validation import Number, check_parameter, check_parameters

_SILHOUETTE_ROWS = 2_000
_LARGEST_SEED = 2**32 - 1


def build_estimator(request: ClusterRequest, display: ProgressDisplay) -> BaseClusterer:
    """Build the estimator of the chosen method, with the parameters that the options set."""
    method = get_method(request.method)
    options = {flag: option for option in method.options for flag in (option.flag, *option.former)}
    parameters: dict[str, Any] = {}
    for flag, value in request.options.items():
        if flag not in options:
            others = [each.name for each in get_methods() if any(flag in (o.flag, *o.former) for o in each.options)]
            raise InputError(
                f"{flag} is not an option of the method {method.name}, but of {', '.join(others)}. "
                f"Leave it out, or choose another method, such as --method {others[0]}."
            )
        option = options[flag]
        if flag != option.flag:
            display.say(f"warning: {flag} was renamed to {option.flag} and will stop working in version 0.3")
        if option.choices and value not in option.choices:
            raise InputError(f"{option.flag} {value} is not known. Choose one of: {', '.join(option.choices)}.")
        if option.kind is dict:
            parameters[option.parameter] = _parse_numbers(flag, value)
        else:
            parameters[option.parameter] = option.value if option.kind is bool else value
    n_clusters = _parse_n_clusters(request.clusters)
    if n_clusters != "auto":
        if not method.takes_n_clusters:
            raise InputError(
                f"-k {n_clusters} cannot be used with the method {method.name}, which finds the number of clusters "
                "itself. Leave -k out."
            )
        parameters["n_clusters"] = n_clusters
    elif not method.finds_n_clusters and not any(
        option.gives_n_clusters and option.parameter in parameters for option in method.options
    ):
        raise InputError(f"The method {method.name} needs the number of clusters. Give it, for example -k 10.")
    check_seed(request.seed)
    if request.seed is not None:
        parameters["random_state"] = request.seed
    model = method.build_estimator(**parameters)
    check_parameters(model, model.constraints)
    return model


def check_seed(seed: int | None) -> None:
    """Require a seed that random generators accept, if one was given."""
    if seed is not None and not 0 <= seed <= _LARGEST_SEED:
        raise InputError(f"--seed {seed} must be between 0 and {_LARGEST_SEED}.")


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


def run(request: ClusterRequest) -> None:
    """Run the command; all errors that can be foreseen are raised before the fit."""
    display = ProgressDisplay(quiet=request.quiet)
    if request.image is not None and request.report is None:
        raise InputError("--image has an effect on the report only. Add --report PAGE.html, or leave it out.")
    image = None if request.image is None else parse_size("--image", request.image)
    model = build_estimator(request, display)
    outputs = check_outputs(request, [request.file])
    with display.progress(f"Reading {request.file}") as callback:
        loaded = load_table(request, callback=callback)
    features, truth = loaded.chosen.features, loaded.chosen.truth
    _check_pixels(image, features)
    n_clusters = _parse_n_clusters(request.clusters)
    if n_clusters != "auto" and n_clusters > features.n_rows:
        raise InputError(
            f"-k {n_clusters} is more than the {features.n_rows} rows of {loaded.source.name}. Ask for fewer clusters."
        )
    known, classes, truth_notes = known_classes(truth, str(loaded.chosen.truth_name))
    as_read = features
    with display.progress("Encoding") as callback:
        features = model.prepare_table(as_read, callback, reset=True)
    with display.progress("Clustering") as callback:
        model.set_params(callback=callback)
        start = time.perf_counter()
        model.fit(features)
        seconds = time.perf_counter() - start
    with display.status("Writing"):
        description = model.describe_fit(features)
        silhouette, silhouette_notes = measure_silhouette(model, features, description)
        descriptions: tuple[str, ...] = ()
        if features is not as_read and as_read.image is None:
            from coterie.topics import distinctive_words  # noqa: PLC0415  (slow to import, and for texts only)

            words = distinctive_words(as_read.column(0).tolist(), model.labels_)
            descriptions = tuple(", ".join(words[cluster]) for cluster in range(model.n_clusters_))
        elif description.columns_meaningful and not (image or features.image or request.quiet or request.json):
            data = collect_data(model, features, None, description)
            descriptions = tuple(profile.name for profile in describe_clusters(data, feature_statistics(data)))
        _write(loaded, features, model, outputs, append=request.append, seconds=seconds, image=image)
    summary = Summary(
        source=loaded.source.name,
        n_rows=features.n_rows,
        sizes=cluster_sizes(model.labels_, model.n_clusters_),
        seconds=seconds,
        outliers=count_outliers(model, model.labels_),
        descriptions=descriptions,
        silhouette=silhouette,
        selection=description.selection,
        scores={} if truth is None else score_against(classes, model.labels_[known]),
        notes=(*features.notes, *model.table_.notes, *model.notes_, *silhouette_notes, *truth_notes),
        files=outputs.files,
        noun="row" if features.image is None else "image",
    )
    print_summary(summary, request, display)


def _parse_n_clusters(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"-k {text} must be an integer of at least 1, or auto.")
    return int(text)


def _parse_numbers(flag: str, given: Sequence[str]) -> dict[str, float]:
    """Parse repeated NAME=NUMBER; a name may contain an equals sign itself."""
    numbers = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"{flag} {text} must be a column and a number, such as {name or 'age'}=0.5.")
        check_parameter(f"{flag} {name}", numbers[name], Number(0.0))
    return numbers


def _check_pixels(image: Size | None, features: Table) -> None:
    if image is not None and features.image is not None:
        raise InputError(f"--image is for tables of pixels, and {features.source} has images already. Leave it out.")
    if image is not None and image[0] * image[1] != features.n_columns:
        raise InputError(
            f"--image {image[0]}x{image[1]} means {image[0] * image[1]} pixels, but {features.n_columns} columns are "
            "used. Choose the pixels with --columns, --drop, --id and --truth, or another size."
        )


def _write(
    loaded: Loaded,
    features: Table,
    model: BaseClusterer,
    outputs: Outputs,
    *,
    append: bool,
    seconds: float,
    image: Size | None,
) -> None:
    """Write all files, or none; standard output comes last, since it cannot be undone."""
    rows = None
    if outputs.wants_rows:
        rows = result_table(loaded, model.labels_, model.probabilities_, append=append, typed=outputs.typed)
    with outputs.staged() as staged:
        if staged.model is not None:
            model.set_params(callback=None).save(staged.model)
        if staged.report is not None:
            from coterie.reporting.page import render_report  # noqa: PLC0415  (slow to import, and not always needed)

            page = render_report(
                model,
                features,
                title=f"Clusters of {loaded.source.name}",
                source=loaded.source.name,
                ids=loaded.chosen.ids,
                truth=loaded.chosen.truth,
                seconds=seconds,
                images=image,
            )
            write_atomically(staged.report, page, force=False)
        if staged.rows is not None and rows is not None:
            write_table(staged.rows, *rows, force=False)
    if outputs.to_stdout and rows is not None:
        write_table("-", *rows, force=False)
