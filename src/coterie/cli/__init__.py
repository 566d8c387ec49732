"""The ``coterie`` command: its sub-commands, options and help. The work is done in the modules beside this one."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import MISSING, fields
from typing import Annotated, Any, final, get_type_hints

import typer
from typer.core import TyperCommand

from coterie import __version__
from coterie.cli.checks import check_options
from coterie.cli.completion import complete_weights
from coterie.cli.options import (
    IMAGE_STEPS,
    TABLE_STEPS,
    ClusterRequest,
    InfoRequest,
    LearnRequest,
    MethodsRequest,
    PredictRequest,
    WeightsRequest,
)
from coterie.errors import InputError
from coterie.methods import Method, Option, get_methods, import_object

__all__ = ["build_app"]

# What stands for the endings of files in help texts, until these are shown.
_READABLE, _WRITABLE = "<readable>", "<writable>"
_REQUESTS = (ClusterRequest, PredictRequest, LearnRequest, MethodsRequest, WeightsRequest, InfoRequest)
_EXAMPLES = {
    "coterie": (
        "coterie cluster customers.csv",
        "coterie cluster customers.csv --report customers.html",
        "coterie predict customers.safetensors new.csv -o new_clusters.csv",
    ),
    "cluster": (
        "coterie cluster customers.csv",
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
    "methods": ("coterie methods", "coterie methods --json"),
    "weights": ("coterie weights", "coterie cluster points.csv --method dac --weights dac-warped2d-v2"),
    "info": ("coterie info customers.safetensors", "coterie info dac-plane-v1 --json"),
}


def build_app() -> typer.Typer:
    """Build the command from what the registries of methods and of file formats hold at this moment."""
    app = typer.Typer(
        name="coterie",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(epilog=_epilog("coterie"))(coterie)
    methods = get_methods()
    for request in _REQUESTS:
        name = request.__name__.removesuffix("Request").lower()
        parameters = _parameters(request, _facts(methods))
        if request is ClusterRequest:  # the options of methods come after --method
            parameters[3:3] = _method_parameters(methods)
        add = app.command(name, cls=_Command, help=inspect.getdoc(request), epilog=_epilog(name))
        add(_command(name, request, parameters))
    return app


@final
class _Command(TyperCommand):
    """A command that asks the registry of file formats for their endings only when its help is shown."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Complete the help texts, and write the help."""
        self._fill_in_formats()
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the help texts, which some shells show, and return what may come next."""
        self._fill_in_formats()
        return super().shell_complete(ctx, incomplete)

    def _fill_in_formats(self) -> None:
        from coterie.tables.readers import readable_endings, writable_endings  # noqa: PLC0415  (imports numpy)

        for parameter in self.params:
            for placeholder, endings in ((_READABLE, readable_endings()), (_WRITABLE, writable_endings())):
                if placeholder in (text := getattr(parameter, "help", None) or ""):
                    vars(parameter)["help"] = text.replace(placeholder, ", ".join(endings))


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


def _command(name: str, request: type[Any], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    """Return the function of a command, with a signature for typer."""

    def command(**values: Any) -> None:
        arguments = {key: values.pop(key) for key in request.arguments}
        given = {
            f"--{key.replace('_', '-')}": value
            for key, value in values.items()
            if value is not None and value is not False and value != []
        }
        filled_in = request(**arguments, **({"options": given} if given else {}))
        check_options(filled_in)
        import_object(f"coterie.cli.{name}:run", f"coterie {name}")(filled_in)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # inspect reads it
    return command


def _parameters(request: type[Any], facts: Mapping[str, str]) -> list[inspect.Parameter]:
    """Return the fields of a request that are arguments as parameters, with completed help texts."""
    hints = get_type_hints(request)
    by_name = {field.name: field for field in fields(request)}
    parameters = []
    for name in request.arguments:
        info = copy(by_name[name].metadata["typer"])
        info.help = info.help.format(**facts)
        default = inspect.Parameter.empty if by_name[name].default is MISSING else by_name[name].default
        parameters.append(_parameter(name, Annotated[hints[name], info], default))
    return parameters


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _epilog(command: str) -> str:
    """Format the examples at the end of a help text; the backspace keeps their lines from being joined."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in _EXAMPLES[command])))


def _facts(methods: Sequence[Method]) -> dict[str, str]:
    """Return what replaces the placeholders of the help texts."""
    always = ", ".join(method.name for method in methods if not method.takes_n_clusters)
    never = ", ".join(method.name for method in methods if not method.finds_n_clusters)
    return {
        "formats": _READABLE,
        "written_formats": _WRITABLE,
        "methods": "; ".join(f"{method.name} ({method.summary})" for method in methods),
        "n_clusters": (f"; {always}: only auto" if always else "") + (f"; {never}: required" if never else ""),
        "table_learners": ", ".join(method.name for method in methods if "tables" in method.learns_from),
        "image_learners": ", ".join(method.name for method in methods if "images" in method.learns_from),
        "table_steps": str(TABLE_STEPS),
        "image_steps": str(IMAGE_STEPS),
    }


def _method_parameters(methods: Sequence[Method]) -> list[inspect.Parameter]:
    """Return the options that methods declare as parameters for typer; options of the same flag become one."""
    declared: dict[str, dict[str, Option]] = {}
    for method in methods:
        for option in method.options:
            declared.setdefault(option.flag, {})[method.name] = option
    parameters = []
    for flag, by_method in declared.items():
        parameters.append(_method_parameter(flag, by_method))
        former = dict.fromkeys(name for option in by_method.values() for name in option.former)
        parameters += [_method_parameter(name, by_method, hidden=True) for name in former]
    return parameters


def _method_parameter(flag: str, by_method: Mapping[str, Option], *, hidden: bool = False) -> inspect.Parameter:
    options = list(by_method.values())
    kind, name = options[0].kind, flag.removeprefix("--").replace("-", "_")
    if any(option.kind is not kind for option in options):
        raise InputError(f"The methods {', '.join(by_method)} declare {flag} with different types; make them equal.")
    if name in ClusterRequest.arguments:
        raise InputError(f"{', '.join(by_method)}: {flag} is an option of the command already; choose another flag.")
    choices = list(dict.fromkeys(choice for option in options for choice in option.choices))
    info = typer.Option(
        False if kind is bool else None,
        flag,
        metavar=None if kind is bool else options[0].metavar or "|".join(choices) or kind.__name__.upper(),
        help=f"{', '.join(by_method)}: {options[0].help}.{_defaults(by_method)}",
        show_default=False,
        hidden=hidden,
        autocompletion=_completion(options[0], choices),
    )
    given: Any = {bool: bool, dict: list[str] | None, list: list[str] | None}.get(kind, kind | None)
    return _parameter(name, given, info)


def _completion(option: Option, choices: Sequence[str]) -> Callable[[str], list[str]] | None:
    """Return what the shell offers for the value of an option; None for file names."""
    if option.parameter == "weights":
        return complete_weights

    def complete(typed: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(typed)]

    return complete if choices else None


def _defaults(by_method: Mapping[str, Option]) -> str:
    users: dict[str, list[str]] = {}
    for method, option in by_method.items():
        if option.default:
            users.setdefault(option.default, []).append(method)
    parts = list(users) if len(users) == 1 else [f"{value} ({', '.join(names)})" for value, names in users.items()]
    return f" [default: {'; '.join(parts)}]" if parts else ""
