"""The options of the commands, each with its line of help, and the requests that commands make of them.

Help texts have ``{placeholders}`` for what the registries of methods and of file formats list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, final

import typer

TABLE_STEPS, IMAGE_STEPS = 1500, 600
"""Default training steps of ``coterie learn`` on a table, and on a folder of images."""


def _argument(metavar: str, text: str) -> Any:
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def _option(*flags: str, text: str, metavar: str | None = None, show_default: bool = False) -> Any:
    return typer.Option(*flags, metavar=metavar, help=text, show_default=show_default)


File = Annotated[
    str,
    _argument(
        "FILE",
        "Table ({formats}), folder of images, - for CSV from standard input, or example:wine.",
    ),
]
Model = Annotated[str, _argument("MODEL", "Model file written by cluster --save.")]
LearnSource = Annotated[
    str,
    _argument(
        "RECIPE.toml|TABLE|FOLDER",
        "Recipe for a network; or a table of labelled data sets; or a folder with a sub-folder of images per class.",
    ),
]
Clusters = Annotated[
    str,
    _option("-k", "--clusters", metavar="N|auto", text="Number of clusters{n_clusters}.", show_default=True),
]
Method = Annotated[str, _option("--method", metavar="NAME", text="Clustering method: {methods}.", show_default=True)]
Seed = Annotated[
    int | None,
    _option("--seed", metavar="S", text="The same seed gives the same clusters. [default: 0, or that of --recipe]"),
]
Columns = Annotated[
    list[str] | None,
    _option("--columns", metavar="A,B", text="Use only these columns: names, or numbers from 1. Can be repeated."),
]
Drop = Annotated[list[str] | None, _option("--drop", metavar="C,D", text="Do not use these columns. Can be repeated.")]
Ids = Annotated[str | None, _option("--id", metavar="COL", text="Column with row names; not used for clustering.")]
Truth = Annotated[
    str | None,
    _option(
        "--truth",
        metavar="COL",
        text="Column with known classes to compare with; not used for clustering. For images, folder means the name "
        "of the sub-folder.",
    ),
]
Header = Annotated[
    bool | None,
    _option("--header/--no-header", text="Whether the first line has column names. [default: detected]"),
]
Delimiter = Annotated[
    str | None,
    _option("--delimiter", metavar="D", text="Cell separator: one character, tab or space. [default: detected]"),
]
Output = Annotated[
    str | None,
    _option(
        "-o",
        "--output",
        metavar="OUT",
        text="Write cluster and membership of each row ({written_formats}); - for CSV to standard output.",
    ),
]
Append = Annotated[bool, _option("--append", text="Write all columns of FILE as well.")]
Report = Annotated[
    str | None, _option("--report", metavar="PAGE.html", text="Write an HTML page that explains the clusters.")
]
Image = Annotated[
    str | None,
    _option(
        "--image", metavar="HxW", text="Show table rows as images in the report, such as 28x28; columns are pixels."
    ),
]
ImageSize = Annotated[
    str | None,
    _option(
        "--image-size",
        metavar="HxW",
        text="Resize the images of a folder. [default: the most common size, no side above 64]",
    ),
]
Save = Annotated[
    str | None, _option("--save", metavar="MODEL.safetensors", text="Write the fitted model, for predict.")
]
Force = Annotated[bool, _option("--force", text="Replace existing files.")]
Quiet = Annotated[bool, _option("-q", "--quiet", text="Print only errors, and the output of -o - or --json.")]
Json = Annotated[bool, _option("--json", text="Print the summary as JSON.")]

Trained = Annotated[
    str | None,
    _option(
        "-o",
        "--save",
        metavar="MODEL.safetensors",
        text="Write the trained model. Required, except with a recipe. [default: NAME.safetensors of the recipe]",
    ),
]
Folder = Annotated[
    str | None,
    _option("--folder", metavar="DIR", text="Folder for the state of the run. [default: name of the model + .run]"),
]
Tensorboard = Annotated[str | None, _option("--tensorboard", metavar="DIR", text="Write logs for TensorBoard.")]
Sets = Annotated[str | None, _option("--set", metavar="COL", text="Table: column with the data set of each row.")]
LearnTruth = Annotated[
    str | None, _option("--truth", metavar="COL", text="Table: column with the class of each row within its data set.")
]
LearnMethod = Annotated[
    str | None,
    _option("--method", metavar="NAME", text="Method to train. Tables: {table_learners}. Folders: {image_learners}."),
]
StartWeights = Annotated[
    str | None,
    _option(
        "--weights",
        metavar="NAME|FILE|none",
        text="Table, folder: initial weights. [default: those that ship, if they fit the data]",
    ),
]
Steps = Annotated[
    int | None,
    _option(
        "--steps", metavar="N", text="Training steps. [default: {table_steps} for a table, {image_steps} for a folder]"
    ),
]
LearnSeed = Annotated[
    int | None,
    _option("--seed", metavar="S", text="Table, folder: the same seed gives the same weights. [default: 0]"),
]
Silent = Annotated[bool, _option("-q", "--quiet", text="Print only errors.")]


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """Which table to read, and which of its columns to use."""

    file: str
    header: bool | None = None
    delimiter: str | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    ids: str | None = None
    truth: str | None = None
    image_size: str | None = None
    """Size that the images of a folder are resized to, such as 28x28."""


@final
@dataclass(frozen=True, slots=True)
class Writing:
    """Which files to write, and what to print."""

    rows: str | None = None
    report: str | None = None
    model: str | None = None
    append: bool = False
    force: bool = False
    quiet: bool = False
    json: bool = False


@final
@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """Arguments of ``coterie cluster``."""

    reading: Reading
    writing: Writing = field(default_factory=Writing)
    method: str = "coterie"
    clusters: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of the options that methods declare, by flag, as far as they were given."""
    seed: int | None = None
    image: str | None = None


@final
@dataclass(frozen=True, slots=True)
class PredictRequest:
    """Arguments of ``coterie predict``."""

    model: str
    reading: Reading
    writing: Writing = field(default_factory=Writing)


@final
@dataclass(frozen=True, slots=True)
class LearnRequest:
    """Arguments of ``coterie learn``; None where the default is used."""

    reading: Reading
    writing: Writing = field(default_factory=Writing)
    folder: str | None = None
    tensorboard: str | None = None
    sets: str | None = None
    method: str | None = None
    weights: str | None = None
    steps: int | None = None
    seed: int | None = None
