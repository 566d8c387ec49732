"""The options of the commands, each with its line of help.

Each command has a request, a dataclass whose fields are its arguments and whose docstring is its help. Help texts have
``{placeholders}`` for what the registries of methods and of file formats list.
"""
# ruff: noqa: RUF009  (the calls in the dataclasses return dataclasses.field)

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, final

import typer

from coterie.cli.completion import complete_learner, complete_method, complete_weights

Complete: TypeAlias = Callable[[str], list[str]]  # what is typed so far -> what it may become

EXAMPLE = "example:"  # before the name of a table that ships
# Default training steps of ``coterie learn`` on a table, and on a folder of images.
TABLE_STEPS, IMAGE_STEPS = 1500, 600


def _argument(metavar: str, text: str, complete: Complete | None = None) -> Any:
    info = typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=complete)
    return field(metadata={"typer": info})


def _option(flags: str, metavar: str | None, text: str, default: Any = None, complete: Complete | None = None) -> Any:
    shown = isinstance(default, str)
    info = typer.Option(*flags.split(), metavar=metavar, help=text, show_default=shown, autocompletion=complete)
    return field(default=default, metadata={"typer": info})


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which table to read, and which of its columns to use."""

    file: str = _argument(
        "FILE", "Table ({formats}), folder of images, - for CSV from standard input, or example:wine."
    )
    columns: list[str] | None = _option(
        "--columns", "A,B", "Use only these columns: names, or numbers from 1. Can be repeated."
    )
    drop: list[str] | None = _option("--drop", "C,D", "Do not use these columns. Can be repeated.")
    ids: str | None = _option("--id", "COL", "Column with row names; not used for clustering.")
    truth: str | None = _option(
        "--truth",
        "COL",
        "Column with known classes to compare with; not used for clustering. For images, folder means the name of the "
        "sub-folder.",
    )
    strict: bool = _option(
        "--strict",
        None,
        "Stop if columns cannot be used as they are, instead of leaving them out or filling them in.",
        default=False,
    )
    image_size: str | None = _option(
        "--image-size", "HxW", "Resize the images of a folder. [default: the most common size, no side above 64]"
    )
    header: bool | None = _option(
        "--header/--no-header", None, "Whether the first line has column names. [default: detected]"
    )
    delimiter: str | None = _option(
        "--delimiter", "D", "Cell separator: one character, tab or space. [default: detected]"
    )


@dataclass(frozen=True, kw_only=True)
class Writing:
    """Which files to write, and what to print."""

    rows: str | None = _option(
        "-o --output",
        "OUT",
        "Write cluster and membership of each row ({written_formats}); - for CSV to standard output.",
    )
    append: bool = _option("--append", None, "Write all columns of FILE as well.", default=False)
    report: str | None = _option("--report", "PAGE.html", "Write an HTML page that explains the clusters.")
    save: str | None = _option("--save", "MODEL.safetensors", "Write the fitted model, for predict.")
    force: bool = _option("--force", None, "Replace existing files.", default=False)
    quiet: bool = _option("-q --quiet", None, "Print only errors, and the output of -o - or --json.", default=False)
    json: bool = _option("--json", None, "Print the summary as JSON.", default=False)
    profile: bool = _option("--profile", None, "Print where the time went.", default=False)


@final
@dataclass(frozen=True, kw_only=True)
class ClusterRequest(Reading, Writing):
    """Cluster the rows of a table, or the images in a folder.

    Without -o, --report or --save, a summary is printed and nothing is written.
    """

    arguments: ClassVar = (
        *("file", "clusters", "method", "seed", "columns", "drop", "ids", "truth", "strict", "rows", "append"),
        *(
            "report",
            "image",
            "image_size",
            "save",
            "force",
            "anyway",
            "quiet",
            "json",
            "profile",
            "header",
            "delimiter",
        ),
    )
    clusters: str = _option("-k --clusters", "N|auto", "Number of clusters{n_clusters}.", default="auto")
    method: str = _option(
        "--method", "NAME", "Clustering method: {methods}.", default="coterie", complete=complete_method
    )
    options: Mapping[str, Any] = field(default_factory=dict)  # given options that methods declare, by flag
    seed: int | None = _option(
        "--seed", "S", "The same seed gives the same clusters. [default: 0, or that of --recipe]"
    )
    image: str | None = _option(
        "--image", "HxW", "Show table rows as images in the report, such as 28x28; columns are pixels."
    )
    anyway: bool = _option("--anyway", None, "Run a method on data that it is not suitable for.", default=False)


@final
@dataclass(frozen=True, kw_only=True)
class PredictRequest(Reading, Writing):
    """Assign the rows of another table, or other images, to the clusters of a saved model.

    Columns are matched by name and other columns are ignored; without names, their order counts. Images are resized to
    the size that the model was fitted on.
    """

    arguments: ClassVar = (
        *("model", "file", "columns", "drop", "ids", "strict", "rows", "append", "force", "quiet", "json"),
        *("profile", "header", "delimiter"),
    )
    model: str = _argument("MODEL", "Model file written by cluster --save.")


@final
@dataclass(frozen=True, kw_only=True)
class LearnRequest(Reading, Writing):
    """Train a network to cluster, from a recipe or on labelled data.

    The network can then cluster data that it has not seen. You can stop training at any time; the same command resumes
    it.
    """

    arguments: ClassVar = (
        *("file", "save", "folder", "tensorboard", "sets", "truth", "columns", "drop", "method", "weights", "steps"),
        *("seed", "force", "quiet", "header", "delimiter"),
    )
    file: str = _argument(
        "RECIPE.toml|TABLE|FOLDER",
        "Recipe for a network; or table of labelled data sets; or folder with a sub-folder of images per class.",
    )
    save: str | None = _option(
        "-o --save",
        "MODEL.safetensors",
        "Write the trained model. Required, except with a recipe. [default: NAME.safetensors of the recipe]",
    )
    folder: str | None = _option(
        "--folder", "DIR", "Folder for the state of the run. [default: name of the model + .run]"
    )
    tensorboard: str | None = _option("--tensorboard", "DIR", "Write logs for TensorBoard.")
    sets: str | None = _option("--set", "COL", "Table: column with the data set of each row.")
    truth: str | None = _option("--truth", "COL", "Table: column with the class of each row within its data set.")
    method: str | None = _option(
        "--method",
        "NAME",
        "Method to train. Tables: {table_learners}. Folders: {image_learners}.",
        complete=complete_learner,
    )
    weights: str | None = _option(
        "--weights",
        "NAME|FILE|none",
        "Table, folder: initial weights. [default: those that ship, if they fit the data]",
        complete=complete_weights,
    )
    steps: int | None = _option(
        "--steps", "N", "Training steps. [default: {table_steps} for a table, {image_steps} for a folder]"
    )
    seed: int | None = _option("--seed", "S", "Table, folder: the same seed gives the same weights. [default: 0]")
    quiet: bool = _option("-q --quiet", None, "Print only errors.", default=False)


_JSON = ("--json", None, "Print as JSON.")


@final
@dataclass(frozen=True, kw_only=True)
class MethodsRequest:
    """List the clustering methods, and what each needs and takes."""

    arguments: ClassVar = ("json",)
    json: bool = _option(*_JSON, default=False)


@final
@dataclass(frozen=True, kw_only=True)
class WeightsRequest:
    """List the pretrained weights that ship with Coterie."""

    arguments: ClassVar = ("json",)
    json: bool = _option(*_JSON, default=False)


@final
@dataclass(frozen=True, kw_only=True)
class InfoRequest:
    """Describe a saved model, or weights: columns, clusters, how they were found."""

    arguments: ClassVar = ("model", "json")
    model: str = _argument(
        "MODEL",
        "Model file written by cluster --save, weights written by learn, or the name of weights that ship.",
        complete=complete_weights,
    )
    json: bool = _option(*_JSON, default=False)
