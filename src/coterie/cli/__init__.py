"""The ``coterie`` command: its options and its help. The work is done in the modules beside this one."""

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from coterie import __version__
from coterie.cli import options
from coterie.cli.inputs import ClusterRequest, LearnRequest, PredictRequest, Reading, Writing

__all__ = ["app"]

_COTERIE_EXAMPLES = (
    "coterie cluster customers.csv",
    "coterie cluster customers.csv --report customers.html",
    "coterie predict customers.safetensors new.csv -o new_clusters.csv",
)
_CLUSTER_EXAMPLES = (
    "coterie cluster example:wine --truth cultivar",
    "coterie cluster customers.csv --id customer --report customers.html",
    "coterie cluster customers.csv -k 5 --drop name,email -o clusters.csv --append",
    "coterie cluster customers.csv --save customers.safetensors",
    "coterie cluster customers.csv --granularity 1 --outliers",
    "coterie cluster points.csv --method dac",
    "coterie cluster photos --report photos.html -o photos.csv",
    "zcat big.csv.gz | coterie cluster - -o - > clusters.csv",
)
_PREDICT_EXAMPLES = (
    "coterie predict customers.safetensors new.csv",
    "coterie predict customers.safetensors new.csv --id customer -o clusters.csv",
    "coterie predict customers.safetensors new.parquet -o new_clusters.parquet --append",
    "coterie predict customers.safetensors - -o - < new.csv",
)
_LEARN_EXAMPLES = (
    "coterie learn recipes/dac-mog2d.toml",
    "coterie learn mine.toml --folder runs/mine -o mine.safetensors",
    "coterie learn mine.toml --tensorboard runs/board",
    "coterie learn sorted.csv --set drawing --truth stroke -o strokes.safetensors",
)

app = typer.Typer(
    name="coterie",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _examples(lines: Iterable[str]) -> str:
    """Put examples at the end of a help text, each on a line of its own; the backspace keeps them from being joined."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coterie {__version__}")
        raise typer.Exit


@app.callback(epilog=_examples(_COTERIE_EXAMPLES))
def coterie(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find groups of similar rows in a table, or of similar images.

    Numbers, categories, dates and gaps are all welcome; nothing needs to be set.
    """


@app.command(epilog=_examples(_CLUSTER_EXAMPLES))
def cluster(
    file: options.File,
    clusters: options.Clusters = "auto",
    method: options.Method = "coterie",
    effort: options.Effort = None,
    granularity: options.Granularity = None,
    outliers: options.Outliers = False,
    allow_single: options.AllowSingle = False,
    weights: options.Weights = None,
    scaling: options.Scaling = None,
    recipe: options.TccRecipe = None,
    seed: options.Seed = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    ids: options.Ids = None,
    truth: options.Truth = None,
    output: options.Output = None,
    append: options.Append = False,
    report: options.Report = None,
    image: options.Image = None,
    image_size: options.ImageSize = None,
    save: options.Save = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
) -> None:
    """Find the clusters of a table, or of the images in a folder.

    Without -o, --report or --save, a summary is shown and nothing is written.
    """
    request = ClusterRequest(
        reading=Reading(file, header, delimiter, tuple(columns or ()), tuple(drop or ()), ids, truth, image_size),
        writing=Writing(output, report, save, append, force, quiet, json),
        method=method,
        clusters=clusters,
        effort=effort,
        granularity=granularity,
        outliers=outliers,
        allow_single=allow_single,
        weights=weights,
        scaling=scaling,
        recipe=recipe,
        seed=seed,
        image=image,
    )
    _run("coterie.cli.cluster", request)


@app.command(epilog=_examples(_PREDICT_EXAMPLES))
def predict(
    model: options.Model,
    file: options.File,
    columns: options.Columns = None,
    drop: options.Drop = None,
    ids: options.Ids = None,
    output: options.Output = None,
    append: options.Append = False,
    force: options.Force = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
) -> None:
    """Put the rows of another table, or other images, into the clusters of a saved model.

    Columns are found by their names, and others are passed over; without names, they are taken in order. Images are
    brought to the size of those that the model was fitted on.
    """
    request = PredictRequest(
        model=model,
        reading=Reading(file, header, delimiter, tuple(columns or ()), tuple(drop or ()), ids),
        writing=Writing(rows=output, append=append, force=force, quiet=quiet, json=json),
    )
    _run("coterie.cli.predict", request)


@app.command(epilog=_examples(_LEARN_EXAMPLES))
def learn(
    file: options.LearnSource,
    output: options.Trained = None,
    folder: options.Folder = None,
    tensorboard: options.Tensorboard = None,
    sets: options.Sets = None,
    truth: options.LearnTruth = None,
    columns: options.Columns = None,
    drop: options.Drop = None,
    method: options.LearnMethod = None,
    weights: options.StartWeights = None,
    steps: options.Steps = None,
    seed: options.LearnSeed = None,
    force: options.Force = False,
    quiet: options.Silent = False,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
) -> None:
    """Train a network to cluster, by a recipe or on sorted sets.

    The network then clusters sets that it has not seen. Training can be stopped at any time; the same command goes on
    with the run.
    """
    request = LearnRequest(
        reading=Reading(file, header, delimiter, tuple(columns or ()), tuple(drop or ()), truth=truth),
        writing=Writing(model=output, force=force, quiet=quiet),
        folder=folder,
        tensorboard=tensorboard,
        sets=sets,
        method=method,
        weights=weights,
        steps=steps,
        seed=seed,
    )
    _run("coterie.cli.learn", request)


def _run(module: str, request: ClusterRequest | PredictRequest | LearnRequest) -> None:
    """Load a command's code when it is needed, and not for --help: torch and scikit-learn take seconds."""
    import_module(module).run(request)
