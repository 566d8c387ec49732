"""The options of the commands, each with its line of help.

Each command has a request, a dataclass whose fields are its arguments and whose docstring is its help. Help texts have
``{placeholders}`` for what the registries of methods and of file formats list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, final

import typer

TABLE_STEPS, IMAGE_STEPS = 1500, 600
"""Default training steps of ``coterie learn`` on a table, and on a folder of images."""


def _argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def _option(*flags: str, text: str, metavar: str | None = None, show_default: bool = False) -> Any:
    return typer.Option(*flags, metavar=metavar, help=text, show_default=show_default)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which table to read, and which of its columns to use."""

    file: Annotated[
        str,
        _argument("FILE", "Table ({formats}), folder of images, - for CSV from standard input, or example:wine."),
    ]
    columns: Annotated[
        list[str] | None,
        _option("--columns", metavar="A,B", text="Use only these columns: names, or numbers from 1. Can be repeated."),
    ] = None
    drop: Annotated[
        list[str] | None, _option("--drop", metavar="C,D", text="Do not use these columns. Can be repeated.")
    ] = None
    ids: Annotated[
        str | None, _option("--id", metavar="COL", text="Column with row names; not used for clustering.")
    ] = None
    truth: Annotated[
        str | None,
        _option(
            "--truth",
            metavar="COL",
            text="Column with known classes to compare with; not used for clustering. For images, folder means the "
            "name of the sub-folder.",
        ),
    ] = None
    image_size: Annotated[
        str | None,
        _option(
            "--image-size",
            metavar="HxW",
            text="Resize the images of a folder. [default: the most common size, no side above 64]",
        ),
    ] = None
    header: Annotated[
        bool | None,
        _option("--header/--no-header", text="Whether the first line has column names. [default: detected]"),
    ] = None
    delimiter: Annotated[
        str | None,
        _option("--delimiter", metavar="D", text="Cell separator: one character, tab or space. [default: detected]"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Writing:
    """Which files to write, and what to print."""

    rows: Annotated[
        str | None,
        _option(
            "-o",
            "--output",
            metavar="OUT",
            text="Write cluster and membership of each row ({written_formats}); - for CSV to standard output.",
        ),
    ] = None
    append: Annotated[bool, _option("--append", text="Write all columns of FILE as well.")] = False
    report: Annotated[
        str | None, _option("--report", metavar="PAGE.html", text="Write an HTML page that explains the clusters.")
    ] = None
    save: Annotated[
        str | None, _option("--save", metavar="MODEL.safetensors", text="Write the fitted model, for predict.")
    ] = None
    force: Annotated[bool, _option("--force", text="Replace existing files.")] = False
    quiet: Annotated[bool, _option("-q", "--quiet", text="Print only errors, and the output of -o - or --json.")] = (
        False
    )
    json: Annotated[bool, _option("--json", text="Print the summary as JSON.")] = False


@final
@dataclass(frozen=True, kw_only=True)
class ClusterRequest(Reading, Writing):
    """Cluster the rows of a table, or the images in a folder.

    Without -o, --report or --save, a summary is printed and nothing is written.
    """

    arguments: ClassVar = (
        *("file", "clusters", "method", "seed", "columns", "drop", "ids", "truth", "rows", "append", "report"),
        *("image", "image_size", "save", "force", "quiet", "json", "header", "delimiter"),
    )
    clusters: Annotated[
        str, _option("-k", "--clusters", metavar="N|auto", text="Number of clusters{n_clusters}.", show_default=True)
    ] = "auto"
    method: Annotated[
        str, _option("--method", metavar="NAME", text="Clustering method: {methods}.", show_default=True)
    ] = "coterie"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of the options that methods declare, by flag, as far as they were given."""
    seed: Annotated[
        int | None,
        _option("--seed", metavar="S", text="The same seed gives the same clusters. [default: 0, or that of --recipe]"),
    ] = None
    image: Annotated[
        str | None,
        _option(
            "--image", metavar="HxW", text="Show table rows as images in the report, such as 28x28; columns are pixels."
        ),
    ] = None


@final
@dataclass(frozen=True, kw_only=True)
class PredictRequest(Reading, Writing):
    """Assign the rows of another table, or other images, to the clusters of a saved model.

    Columns are matched by name and other columns are ignored; without names, their order counts. Images are resized to
    the size that the model was fitted on.
    """

    arguments: ClassVar = (
        *("model", "file", "columns", "drop", "ids", "rows", "append", "force", "quiet", "json"),
        *("header", "delimiter"),
    )
    model: Annotated[str, _argument("MODEL", "Model file written by cluster --save.")]


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
    file: Annotated[
        str,
        _argument(
            "RECIPE.toml|TABLE|FOLDER",
            "Recipe for a network; or table of labelled data sets; or folder with a sub-folder of images per class.",
        ),
    ]
    save: Annotated[
        str | None,
        _option(
            "-o",
            "--save",
            metavar="MODEL.safetensors",
            text="Write the trained model. Required, except with a recipe. [default: NAME.safetensors of the recipe]",
        ),
    ] = None
    folder: Annotated[
        str | None,
        _option("--folder", metavar="DIR", text="Folder for the state of the run. [default: name of the model + .run]"),
    ] = None
    tensorboard: Annotated[str | None, _option("--tensorboard", metavar="DIR", text="Write logs for TensorBoard.")] = (
        None
    )
    sets: Annotated[
        str | None, _option("--set", metavar="COL", text="Table: column with the data set of each row.")
    ] = None
    truth: Annotated[
        str | None,
        _option("--truth", metavar="COL", text="Table: column with the class of each row within its data set."),
    ] = None
    method: Annotated[
        str | None,
        _option(
            "--method", metavar="NAME", text="Method to train. Tables: {table_learners}. Folders: {image_learners}."
        ),
    ] = None
    weights: Annotated[
        str | None,
        _option(
            "--weights",
            metavar="NAME|FILE|none",
            text="Table, folder: initial weights. [default: those that ship, if they fit the data]",
        ),
    ] = None
    steps: Annotated[
        int | None,
        _option(
            "--steps",
            metavar="N",
            text="Training steps. [default: {table_steps} for a table, {image_steps} for a folder]",
        ),
    ] = None
    seed: Annotated[
        int | None,
        _option("--seed", metavar="S", text="Table, folder: the same seed gives the same weights. [default: 0]"),
    ] = None
    quiet: Annotated[bool, _option("-q", "--quiet", text="Print only errors.")] = False
