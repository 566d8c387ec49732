"""``coterie learn``: train from a recipe, on a table of labelled data sets, or on a folder of labelled images.

A run keeps its state in a folder; the same command resumes it. Options and tables are checked before torch is imported.
"""

from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from coterie.cli.checks import check_weights
from coterie.cli.imports import quick_import
from coterie.cli.inputs import Loaded, load_table
from coterie.cli.options import LearnRequest
from coterie.cli.outputs import check_outputs
from coterie.cli.progress import ProgressDisplay
from coterie.cli.summary import has_value
from coterie.config import from_recipe
from coterie.errors import InputError, TableError
from coterie.methods import Method, get_methods
from coterie.tables.table import Array, Table, take_rows

NO_WEIGHTS = "none"

Kind = Literal["recipe", "table", "folder"]
Tasks: TypeAlias = list[tuple[Table, Array]]  # data sets, and the cluster of each row

# Options that have no effect on each kind of FILE, and the fields of the request that hold them.
_FOR_TABLES = {"--set": "sets", "--truth": "truth", "--columns": "columns", "--drop": "drop"}
_FOR_TABLES |= {"--header/--no-header": "header", "--delimiter": "delimiter"}
_FOR_DATA = {"--method": "method", "--weights": "weights", "--steps": "steps", "--seed": "seed"}
_UNUSED: dict[Kind, dict[str, str]] = {"recipe": _FOR_TABLES | _FOR_DATA, "folder": _FOR_TABLES, "table": {}}


def run(request: LearnRequest) -> None:
    """Run the command; all errors that can be foreseen are raised before the training."""
    display = ProgressDisplay(quiet=request.quiet)
    file = request.file
    kind: Kind = "folder" if Path(file).is_dir() else "recipe" if file.lower().endswith(".toml") else "table"
    _check_kind(request, kind)
    name = _read_name(file) if kind == "recipe" else None
    model = request.save or (None if name is None else f"{name}.safetensors")
    if model is None:
        raise InputError("Missing output path: pass -o MODEL.safetensors.")
    outputs = check_outputs(replace(request, save=model), [] if kind == "folder" else [file])
    folder = Path(request.folder or (Path(model).with_suffix(".run") if name is None else f"{name}.run"))
    method: Method | None = None
    tasks: Tasks = []
    if kind != "recipe":
        method = _find_learner(request, "images" if kind == "folder" else "tables")
        if request.weights not in {None, NO_WEIGHTS}:
            check_weights(method, str(request.weights))
    if kind == "table":
        with display.status(f"Reading {file}"):
            tasks, notes = _split_tasks(load_table(replace(request, ids=request.sets)))
        for note in notes:
            display.say(f"note: {note}")
    with display.status("Loading"), quick_import("coterie.cli.training"):
        from coterie.cli.training import learn  # noqa: PLC0415  (torch takes longer than all checks)
    learn(request, method, tasks, outputs, folder, display)


def _read_name(file: str) -> str:
    """Return the name in a recipe, which is checked when the recipe is read as a whole."""
    return str(from_recipe(file, dict).get("name", "model"))


def _check_kind(request: LearnRequest, kind: Kind) -> None:
    unused = [option for option, name in _UNUSED[kind].items() if getattr(request, name) not in (None, [])]
    if unused:
        advice = "Edit the recipe instead." if kind == "recipe" else "The sub-folders are the classes."
        raise InputError(f"{', '.join(unused)} cannot be used with a {kind}, and {request.file!r} is one. {advice}")
    missing = [option for option in ("--set", "--truth") if getattr(request, _FOR_TABLES[option]) is None]
    if kind == "table" and missing:
        raise InputError(
            f"{request.file!r} is not a recipe (.toml), so it is read as a table of labelled data sets, which needs "
            f"{' and '.join(missing)}: --set COL has the data set of each row, --truth COL its class."
        )


def _find_learner(request: LearnRequest, data: Literal["tables", "images"]) -> Method:
    """Return the method to train; by default the first that learns from such data."""
    learners = {method.name: method for method in get_methods() if data in method.learns_from}
    if request.method is None:
        return next(iter(learners.values()))
    if request.method not in learners:
        raise InputError(f"--method {request.method} does not learn from {data}. Choose one of: {', '.join(learners)}.")
    return learners[request.method]


def _split_tasks(loaded: Loaded) -> tuple[Tasks, tuple[str, ...]]:
    """Split the rows of a table by data set, check that there is something to learn, and return notes."""
    chosen, source = loaded.chosen, loaded.source.name
    if chosen.ids is None or chosen.truth is None or chosen.ids_name == chosen.truth_name:
        raise InputError(f"--set and --truth both name the column {chosen.truth_name!r}. Give two different columns.")
    known = np.flatnonzero(has_value(chosen.ids) & has_value(chosen.truth))
    if not len(known):
        raise TableError(f"No row of {source} has values in both {chosen.ids_name!r} and {chosen.truth_name!r}.")
    names, members = np.unique([str(value) for value in chosen.ids[known].tolist()], return_inverse=True)
    _, clusters = np.unique([str(value) for value in chosen.truth[known].tolist()], return_inverse=True)
    sizes = np.bincount(members)
    if len(names) < 2:
        raise TableError(
            f"Column {chosen.ids_name!r} of {source} has only one data set, {str(names[0])!r}. At least 2 are needed, "
            "preferably dozens."
        )
    if sizes.max() == 1:
        raise TableError(
            f"Each of the {len(names):,} data sets in {chosen.ids_name!r} has one row. Give a column with --set that "
            "has the same value for all rows of a data set."
        )
    rows_of_sets = np.split(np.argsort(members, kind="stable"), np.cumsum(sizes)[:-1])
    tasks = [
        (replace(take_rows(chosen.features, known[rows]), source=f"data set {str(name)!r} of {source}"), clusters[rows])
        for name, rows in zip(names, rows_of_sets, strict=True)
    ]
    if all(len(np.unique(groups)) == 1 for _, groups in tasks):
        raise TableError(
            f"No data set of {source} has more than one class in {chosen.truth_name!r}, so there is nothing to learn. "
            "Choose another column with --truth."
        )
    missing = chosen.features.n_rows - len(known)
    note = f"ignored {missing:,} rows without a value in {chosen.ids_name!r} or {chosen.truth_name!r}"
    return tasks, (*chosen.features.notes, note) if missing else chosen.features.notes
