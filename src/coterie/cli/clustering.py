"""``coterie cluster``: read, fit, write, and tell."""

import time
from typing import Any, Literal

from coterie.cli.methods import check_method, check_seed, estimator_at_work, outliers_among, silhouette_of, verdict_of
from coterie.cli.outputs import Outputs, check_outputs
from coterie.cli.progress import Narrator
from coterie.cli.reading import Loaded, height_and_width, load, result_table
from coterie.cli.requests import ClusterRequest
from coterie.cli.summary import Summary, cluster_sizes, known_groups, present, scores_against
from coterie.data.columns import Table
from coterie.data.files import write_atomically, write_table
from coterie.errors import InputError
from coterie.report import render_report
from coterie.report.findings import gather
from coterie.report.profile import describe_clusters, feature_statistics


def run(request: ClusterRequest) -> None:
    """Do what was asked; whatever can be refused is refused before the fit."""
    writing = request.writing
    narrator = Narrator(quiet=writing.quiet)
    n_clusters = _number_of_clusters(request.clusters)
    image = _image_size(request)
    check_method(request)
    check_seed(request.seed)
    outputs = check_outputs(writing, [request.reading.file])
    with narrator.steps(f"Reading {request.reading.file}") as on_step:
        loaded = load(request.reading, on_step=on_step)
    features, truth = loaded.chosen.features, loaded.chosen.truth
    _check_pixels(image, features)
    if n_clusters != "auto" and n_clusters > features.n_rows:
        raise InputError(
            f"{n_clusters} clusters were asked for (-k), and {loaded.source.name} has {features.n_rows} rows; "
            "ask for fewer clusters"
        )
    known, groups, truth_notes = known_groups(truth, str(loaded.chosen.truth_name))
    with estimator_at_work(request, n_clusters, narrator) as model:
        began = time.perf_counter()
        model.fit(features)
        seconds = time.perf_counter() - began
    with narrator.phase("Writing"):
        silhouette, silhouette_notes = silhouette_of(model, features)
        traits = () if image or features.image or writing.quiet or writing.json else _traits(model, features)
        _write(loaded, model, outputs, append=writing.append, seconds=seconds, image=image)
    summary = Summary(
        source=loaded.source.name,
        n_rows=features.n_rows,
        sizes=cluster_sizes(model.labels_, model.n_clusters_),
        seconds=seconds,
        outliers=outliers_among(model, model.labels_),
        traits=traits,
        silhouette=silhouette,
        verdict=verdict_of(model),
        scores={} if truth is None else scores_against(groups, model.labels_[known]),
        notes=(*features.notes, *model.table_.notes, *model.notes_, *silhouette_notes, *truth_notes),
        files=outputs.files,
        noun="row" if features.image is None else "image",
    )
    present(summary, writing, narrator)


def _number_of_clusters(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"-k takes a whole number from 1, or auto; got {text!r}")
    return int(text)


def _image_size(request: ClusterRequest) -> tuple[int, int] | None:
    if request.image is None:
        return None
    if request.writing.report is None:
        raise InputError("--image is about the page; say where to write it (--report PAGE.html)")
    return height_and_width("--image", request.image)


def _traits(model: Any, features: Table) -> tuple[str, ...]:
    """Say in a few words what sets each cluster apart."""
    found = gather(model, features, None)
    return tuple(profile.name for profile in describe_clusters(found, feature_statistics(found)))


def _check_pixels(image: tuple[int, int] | None, features: Table) -> None:
    if image is not None and features.image is not None:
        raise InputError(
            f"--image is for tables whose columns are pixels, and {features.source} has images already; leave it out"
        )
    if image is not None and image[0] * image[1] != features.n_columns:
        raise InputError(
            f"images of {image[0]}x{image[1]} have {image[0] * image[1]} pixels, and {features.n_columns} columns are "
            "clustered; choose the pixels (--columns, --drop, --id, --truth), or another size"
        )


def _write(
    loaded: Loaded, model: Any, outputs: Outputs, *, append: bool, seconds: float, image: tuple[int, int] | None
) -> None:
    """Write all files, or none; what goes to the standard output comes last, since it cannot be taken back."""
    rows = None
    if outputs.wants_rows:
        rows = result_table(loaded, model.labels_, model.probabilities_, append=append, typed=outputs.typed)
    with outputs.staged() as staged:
        if staged.model is not None:
            model.save(staged.model)
        if staged.report is not None:
            page = render_report(
                model,
                loaded.chosen.features,
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
