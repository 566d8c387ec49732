"""``coterie cluster``: check, read, fit, write, and print a summary.

Everything that can be wrong with the options or the file is checked before scikit-learn is imported.
"""

from coterie.cli.checks import check_files, check_method, parse_n_clusters, parse_size
from coterie.cli.imports import quick_import
from coterie.cli.inputs import load_table, name_rows
from coterie.cli.options import ClusterRequest
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import ProgressDisplay
from coterie.cli.suitability import check_suitable
from coterie.cli.summary import known_classes, print_summary
from coterie.errors import InputError
from coterie.tables.readers.images import Size
from coterie.tables.roles import reject_unusable
from coterie.tables.table import Table


def run(request: ClusterRequest) -> None:
    """Run the command; all errors that can be foreseen are raised before the fit."""
    display = ProgressDisplay(quiet=request.quiet, profile=request.profile)
    image = None if request.image is None else parse_size("--image", request.image)
    method, parameters, warnings = check_method(request)
    check_files(method, parameters)
    outputs = check_outputs(request, [request.file])
    for warning in warnings:
        display.say(f"warning: {warning}")
    with display.progress(f"Reading {request.file}", "reading") as callback:
        loaded = load_table(request, callback=callback)
    features = loaded.chosen.features
    _check_pixels(image, features)
    if request.strict:
        texts = set(parameters.get("text", ()))
        reject_unusable(features.select([i for i, name in enumerate(features.names) if name not in texts]))
    n_clusters = parse_n_clusters(request.clusters)
    if n_clusters != "auto" and n_clusters > features.n_rows:
        raise InputError(
            f"-k {n_clusters} is more than the {features.n_rows} rows of {loaded.source.name}. Ask for fewer clusters."
        )
    known = known_classes(loaded.chosen.truth, str(loaded.chosen.truth_name))
    check_suitable(method, features, parameters, display, anyway=request.anyway)
    with display.status("Loading", "import"), quick_import("coterie.cli.results"):
        from coterie.cli import results  # noqa: PLC0415  (scikit-learn takes longer than all checks)

        model = method.build_estimator(**parameters)
    fitted = results.fit(model, features, display)
    loaded = name_rows(loaded, fitted.model.table_.row_names)
    with display.status("Writing", "summary"):
        summary = results.summarise(fitted, request, loaded, known, outputs, image)
    with display.status("Writing", "writing"):
        results.write(fitted, request, loaded, outputs, image)
    print_summary(summary, request, display)


def _check_pixels(image: Size | None, features: Table) -> None:
    if image is not None and features.image is not None:
        raise InputError(f"--image is for tables of pixels, and {features.source} has images already. Leave it out.")
    if image is not None and image[0] * image[1] != features.n_columns:
        raise InputError(
            f"--image {image[0]}x{image[1]} means {image[0] * image[1]} pixels, but {features.n_columns} columns are "
            "used. Choose the pixels with --columns, --drop, --id and --truth, or another size."
        )
