"""The options that commands share, each with its line of help."""

from typing import Annotated

import typer

from coterie.cli.inputs import IMAGE_STEPS, STEPS

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Table to read: .csv, .tsv or .txt (also .gz), .parquet, .arrow, .feather, .npy, .npz or .mat; "
        "a folder of images; - for CSV from standard input; example:wine for the example that ships.",
        show_default=False,
    ),
]
Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="File that cluster --save wrote.", show_default=False),
]
LearnSource = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE.toml|TABLE|FOLDER",
        help="Recipe, which says what network to train on what sets; or a table of sets that are sorted already, of "
        "the same kinds as for cluster; or a folder that has a sub-folder of images for each class.",
        show_default=False,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="NAME",
        help="How to cluster: coterie (many algorithms propose, a network that was trained beforehand chooses), clam "
        "(learns from the table itself), dac, amcp or attention-based (learned beforehand, from other sets), tcc "
        "(learns from the images themselves, or from rows; needs -k or --recipe, and takes minutes).",
    ),
]
LearnMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="NAME",
        help="What learns: dac or amcp from a table, attention-based from a folder.",
        show_default=False,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="NAME|FILE",
        help="With dac, amcp and attention-based: what was learned beforehand; weights that ship, by name, or a file "
        "that learn wrote. By default those that ship for points in the plane, or for images.",
        show_default=False,
    ),
]
StartWeights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="NAME|FILE|none",
        help="With a table or a folder: weights to begin from. By default those that ship, if they take such rows.",
        show_default=False,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        help=f"Steps of training; by default {STEPS} with a table, {IMAGE_STEPS} with a folder.",
        show_default=False,
    ),
]
LearnSeed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="S",
        help="With a table: the same seed gives the same weights; 0 by default.",
        show_default=False,
    ),
]
Sets = Annotated[
    str | None,
    typer.Option(
        "--set", metavar="COL", help="With a table: column that says which set a row belongs to.", show_default=False
    ),
]
LearnTruth = Annotated[
    str | None,
    typer.Option(
        "--truth",
        metavar="COL",
        help="With a table: column that says which cluster of its set a row belongs to.",
        show_default=False,
    ),
]
Clusters = Annotated[
    str,
    typer.Option(
        "-k",
        "--clusters",
        metavar="N|auto",
        help="How many clusters; auto finds it out, as dac and amcp always do, and tcc never.",
    ),
]
Effort = Annotated[
    str | None,
    typer.Option(
        "--effort",
        metavar="NAME",
        help="With coterie: how much is tried: fast, balanced or thorough; balanced by default.",
        show_default=False,
    ),
]
Granularity = Annotated[
    float | None,
    typer.Option(
        "--granularity",
        metavar="G",
        help="With coterie: above 0 for more and smaller clusters, below 0 for fewer and larger ones; 0 by default.",
        show_default=False,
    ),
]
Outliers = Annotated[
    bool, typer.Option("--outliers", help="With coterie: rows that lie far from all others get the cluster -1.")
]
AllowSingle = Annotated[
    bool, typer.Option("--allow-single", help="With coterie: the answer may be that all rows are one cluster.")
]
Scaling = Annotated[
    str | None,
    typer.Option(
        "--scaling",
        metavar="NAME",
        help="With all but coterie: what makes number columns comparable: robust (extremes drawn in), standard, none. "
        "By default robust for clam, standard for tcc, otherwise what the weights were learned with (auto).",
        show_default=False,
    ),
]
TccRecipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="FILE.toml",
        help="With tcc: all its settings, and where its run is kept, as recipes/tcc-cifar10.toml has them.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="S",
        help="The same seed gives the same clusters; 0 by default, or that of the recipe.",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="Cluster by these columns only: names, or numbers counted from 1. May be repeated.",
        show_default=False,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="C,D",
        help="Leave these columns out. May be repeated.",
        show_default=False,
    ),
]
Ids = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="COL",
        help="Column that names the rows; it is not clustered by.",
        show_default=False,
    ),
]
Truth = Annotated[
    str | None,
    typer.Option(
        "--truth",
        metavar="COL",
        help="Column with known groups to compare the clusters with; it is not clustered by. Of images, folder stands "
        "for the sub-folders that they are in.",
        show_default=False,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line has names; found out by default.",
        show_default=False,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        metavar="D",
        help="What separates cells: one character, tab or space; found out by default.",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUT",
        help="Write the cluster and membership of each row: .csv, .tsv or .parquet; - for CSV on standard output.",
        show_default=False,
    ),
]
Append = Annotated[
    bool,
    typer.Option(
        "--append",
        help="Write all columns of FILE beside the cluster.",
    ),
]
Report = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="PAGE.html",
        help="Write a page that shows and explains the clusters.",
        show_default=False,
    ),
]
Image = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="HxW",
        help="Draw the rows of a table as images on the page, such as 28x28; their columns are the pixels.",
        show_default=False,
    ),
]
ImageSize = Annotated[
    str | None,
    typer.Option(
        "--image-size",
        metavar="HxW",
        help="Bring the images of a folder to this height and width; by default to the size that most have, but no "
        "side longer than 64.",
        show_default=False,
    ),
]
Save = Annotated[
    str | None,
    typer.Option(
        "--save",
        metavar="MODEL.safetensors",
        help="Write the fitted model, for predict.",
        show_default=False,
    ),
]
Trained = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--save",
        metavar="MODEL.safetensors",
        help="Write the trained model here; without it, a recipe's goes to NAME.safetensors, by the recipe's name.",
        show_default=False,
    ),
]
Folder = Annotated[
    str | None,
    typer.Option(
        "--folder",
        metavar="DIR",
        help="Keep the run here instead of in NAME.run, by the recipe's or MODEL's name; a run that was stopped goes "
        "on from it.",
        show_default=False,
    ),
]
Tensorboard = Annotated[
    str | None,
    typer.Option(
        "--tensorboard",
        metavar="DIR",
        help="Write what is logged for TensorBoard, too.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace files that exist already.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "-q",
        "--quiet",
        help="Show nothing but errors, and what -o - or --json print.",
    ),
]
Silent = Annotated[
    bool,
    typer.Option(
        "-q",
        "--quiet",
        help="Show nothing but errors.",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print what was found as one JSON object.",
    ),
]
