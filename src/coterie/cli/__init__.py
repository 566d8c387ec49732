"""The ``coterie`` command: its sub-commands, options and help. The work is done in the modules beside this one."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, get_args

import typer

from coterie import __version__
from coterie.cli import options
from coterie.cli.options import (
    IMAGE_STEPS,
    TABLE_STEPS,
    ClusterRequest,
    LearnRequest,
    PredictRequest,
    Reading,
    Writing,
)
from coterie.errors import InputError
from coterie.methods import Method, Option, get_methods
from coterie.tables.readers import readable_endings, writable_endings

__all__ = ["build_app"]

_EXAMPLES = {
    "coterie": (
        "coterie cluster customers.csv",
        "coterie cluster customers.csv --report customers.html",
        "coterie predict customers.safetensors new.csv -o new_clusters.csv",
    ),
    "cluster": (
        "coterie cluster example:wine --truth cultivar",
        "coterie cluster customers.csv --id customer --report customers.html",
        "coterie cluster customers.csv -k 5 --drop name,email -o clusters.csv --append",
        "coterie cluster customers.csv --save customers.safetensors",
        "coterie cluster customers.csv --granularity 1 --noise",
        "coterie cluster points.csv --method dac",
        "coterie cluster photos --report photos.html -o photos.csv",
        "zcat big.csv.gz | coterie cluster - -o - > clusters.csv",
    ),
    "predict": (
        "coterie predict customers.safetensors new.csv",
        "coterie predict customers.safetensors new.csv --id customer -o clusters.csv",
        "coterie predict customers.safetensors new.parquet -o new_clusters.parquet --append",
        "coterie predict customers.safetensors - -o - < new.csv",
    ),
    "learn": (
        "coterie learn recipes/dac-mog2d.toml",
        "coterie learn mine.toml --folder runs/mine -o mine.safetensors",
        "coterie learn mine.toml --tensorboard runs/board",
        "coterie learn labelled.csv --set drawing --truth stroke -o strokes.safetensors",
    ),
}


def build_app() -> typer.Typer:
    """Build the command from what the registries of methods and of file formats hold at this moment."""
    app = typer.Typer(
        name="coterie",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=_epilog("coterie"))(coterie)
    methods = get_methods()
    facts = _facts(methods)
    commands: dict[str, Callable[..., None]] = {
        "cluster": cluster_command,
        "predict": predict_command,
        "learn": learn_command,
    }
    for name, command in commands.items():
        added = _method_parameters(methods) if name == "cluster" else []
        app.command(name, epilog=_epilog(name))(_completed(command, facts, added))
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coterie {__version__}")
        raise typer.Exit


def coterie(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find clusters in a table, or in a folder of images.

    Tables may have numbers, categories, dates and missing values. Nothing needs to be configured.
    """


def cluster_command(
    file: options.File,
    clusters: options.Clusters = "auto",
    method: options.Method = "coterie",
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
    **method_options: object,
) -> None:
    """Cluster the rows of a table, or the images in a folder.

    Without -o, --report or --save, a summary is printed and nothing is written.
    """
    request = ClusterRequest(
        reading=Reading(file, header, delimiter, tuple(columns or ()), tuple(drop or ()), ids, truth, image_size),
        writing=Writing(output, report, save, append, force, quiet, json),
        method=method,
        clusters=clusters,
        options={
            _flag(name): value for name, value in method_options.items() if value is not None and value is not False
        },
        seed=seed,
        image=image,
    )
    _run("coterie.cli.cluster", request)


def predict_command(
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
    """Assign the rows of another table, or other images, to the clusters of a saved model.

    Columns are matched by name and other columns are ignored; without names, their order counts. Images are resized to
    the size that the model was fitted on.
    """
    request = PredictRequest(
        model=model,
        reading=Reading(file, header, delimiter, tuple(columns or ()), tuple(drop or ()), ids),
        writing=Writing(rows=output, append=append, force=force, quiet=quiet, json=json),
    )
    _run("coterie.cli.predict", request)


def learn_command(
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
    """Train a network to cluster, from a recipe or on labelled data.

    The network can then cluster data that it has not seen. You can stop training at any time; the same command resumes
    it.
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
    """Import the code of a command only when it runs, not for --help: torch and scikit-learn take seconds."""
    import_module(module).run(request)


def _epilog(command: str) -> str:
    """Format the examples at the end of a help text; the backspace keeps their lines from being joined."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in _EXAMPLES[command])))


def _facts(methods: Iterable[Method]) -> dict[str, str]:
    """Return what replaces the placeholders of the help texts."""
    methods = list(methods)
    always = ", ".join(method.name for method in methods if not method.takes_n_clusters)
    never = ", ".join(method.name for method in methods if not method.finds_n_clusters)
    return {
        "formats": ", ".join(readable_endings()),
        "written_formats": ", ".join(writable_endings()),
        "methods": "; ".join(f"{method.name} ({method.summary})" for method in methods),
        "n_clusters": (f"; {always}: only auto" if always else "") + (f"; {never}: required" if never else ""),
        "table_learners": ", ".join(method.name for method in methods if "tables" in method.learns_from),
        "image_learners": ", ".join(method.name for method in methods if "images" in method.learns_from),
        "table_steps": str(TABLE_STEPS),
        "image_steps": str(IMAGE_STEPS),
    }


def _completed(
    command: Callable[..., None], facts: Mapping[str, str], added: list[inspect.Parameter]
) -> Callable[..., None]:
    """Return the command with completed help texts, and with further options after ``--method``."""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            kind, info = get_args(parameter.annotation)
            info = copy(info)
            info.help = info.help.format(**facts)
            parameters.append(parameter.replace(annotation=Annotated[kind, info]))
        if parameter.name == "method":
            parameters += added

    @wraps(command)
    def completed(**values: Any) -> None:
        command(**values)

    completed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    return completed


def _method_parameters(methods: Iterable[Method]) -> list[inspect.Parameter]:
    """Return the options that methods declare as parameters for typer; options of the same flag become one."""
    declared: dict[str, dict[str, Option]] = {}
    for method in methods:
        for option in method.options:
            declared.setdefault(option.flag, {})[method.name] = option
    parameters = []
    for flag, by_method in declared.items():
        parameters.append(_parameter(flag, by_method))
        former = dict.fromkeys(name for option in by_method.values() for name in option.former)
        parameters += [_parameter(name, by_method, hidden=True) for name in former]
    return parameters


def _parameter(flag: str, by_method: Mapping[str, Option], *, hidden: bool = False) -> inspect.Parameter:
    options_ = list(by_method.values())
    kind, name = options_[0].kind, flag.removeprefix("--").replace("-", "_")
    if any(option.kind is not kind for option in options_):
        raise InputError(f"The methods {', '.join(by_method)} declare {flag} with different types; make them equal.")
    if name in inspect.signature(cluster_command).parameters:
        raise InputError(f"{', '.join(by_method)}: {flag} is an option of the command already; choose another flag.")
    choices = list(dict.fromkeys(choice for option in options_ for choice in option.choices))
    info = typer.Option(
        False if kind is bool else None,
        flag,
        metavar=None if kind is bool else options_[0].metavar or "|".join(choices) or kind.__name__.upper(),
        help=f"{', '.join(by_method)}: {options_[0].help}.{_defaults(by_method)}",
        show_default=False,
        hidden=hidden,
    )
    annotation = bool if kind is bool else kind | None
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=info, annotation=annotation)


def _defaults(by_method: Mapping[str, Option]) -> str:
    users: dict[str, list[str]] = {}
    for method, option in by_method.items():
        if option.default:
            users.setdefault(option.default, []).append(method)
    if len(users) == 1:
        return f" [default: {next(iter(users))}]"
    parts = [f"{value} ({', '.join(names)})" for value, names in users.items()]
    return f" [default: {'; '.join(parts)}]" if parts else ""


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
