"""Errors that the options alone tell: checked before any file is read, and without numpy or scikit-learn."""

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from coterie.cli.options import EXAMPLE, ClusterRequest, LearnRequest, Reading, Writing
from coterie.config import from_recipe
from coterie.errors import InputError, TableError, WeightsError
from coterie.methods import TORCH_PACKAGES, Method, Option, get_method, get_methods, require_packages
from coterie.validation import Number, check_parameter

LARGEST_SEED = 2**32 - 1
_HEIGHT_AND_WIDTH = re.compile(r"([1-9]\d{0,4})[x×]([1-9]\d{0,4})", re.IGNORECASE)


def check_options(request: object) -> None:
    """Raise the errors that the options alone tell."""
    if isinstance(request, ClusterRequest):
        if request.image is not None and request.report is None:
            raise InputError("--image has an effect on the report only. Add --report PAGE.html, or leave it out.")
        for option, size in (("--image", request.image), ("--image-size", request.image_size)):
            if size is not None:
                parse_size(option, size)
        check_method(request)
    elif isinstance(request, LearnRequest):
        require_packages(TORCH_PACKAGES, "coterie learn")
        if request.steps is not None and request.steps < 1:
            raise InputError(f"--steps {request.steps} must be at least 1.")
        check_seed(request.seed)
    if isinstance(request, Reading):
        _check_source(request.file)
    if isinstance(request, Writing):
        _check_writing(request)


def _check_source(file: str) -> None:
    """Require that the file exists, if its name is plain: no pattern, and no part of a file."""
    is_plain = file != "-" and not any(mark in file for mark in ("::", "*", "?", "["))
    if is_plain and not file.startswith(EXAMPLE) and not os.path.lexists(file):
        raise TableError(f"There is no file {file!r}. Check the path.")


def _check_writing(request: Writing) -> None:
    if request.rows == "-" and request.json:
        raise InputError(
            "-o - and --json both write to standard output. Write the rows to a file, or leave --json out."
        )
    if request.append and request.rows is None:
        raise InputError("--append has an effect on the written rows only. Add -o OUT, or leave it out.")


def check_method(request: ClusterRequest) -> tuple[Method, dict[str, Any], list[str]]:
    """Return the chosen method, the parameters of the estimator that the options set, and warnings."""
    method = get_method(request.method)
    options = {flag: option for option in method.options for flag in (option.flag, *option.former)}
    parameters: dict[str, Any] = {}
    warnings = []
    for flag, value in request.options.items():
        if flag not in options:
            others = [each.name for each in get_methods() if any(flag in (o.flag, *o.former) for o in each.options)]
            raise InputError(
                f"{flag} is not an option of the method {method.name}, but of {', '.join(others)}. "
                f"Leave it out, or choose another method, such as --method {others[0]}."
            )
        option = options[flag]
        if flag != option.flag:
            warnings.append(f"{flag} was renamed to {option.flag} and will stop working in version 0.3")
        parameters[option.parameter] = _parse(flag, option, value)
    n_clusters = parse_n_clusters(request.clusters)
    if n_clusters != "auto":
        if not method.takes_n_clusters:
            raise InputError(
                f"-k {n_clusters} cannot be used with the method {method.name}, which finds the number of clusters "
                "itself. Leave -k out."
            )
        parameters["n_clusters"] = n_clusters
    elif not method.finds_n_clusters and not any(
        option.gives_n_clusters and option.parameter in parameters for option in method.options
    ):
        raise InputError(f"The method {method.name} needs the number of clusters. Give it, for example -k 10.")
    check_seed(request.seed)
    if request.seed is not None:
        parameters["random_state"] = request.seed
    method.check_packages()
    return method, parameters, warnings


def check_seed(seed: int | None) -> None:
    """Require a seed that random generators accept, if one was given."""
    if seed is not None and not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"--seed {seed} must be between 0 and {LARGEST_SEED}.")


def parse_n_clusters(text: str) -> int | Literal["auto"]:
    """Parse the number of clusters."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"-k {text} must be an integer of at least 1, or auto.")
    return int(text)


def check_files(method: Method, parameters: Mapping[str, Any]) -> None:
    """Check the weights, the recipe or the encoder that the options name."""
    if "weights" in parameters:
        check_weights(method, parameters["weights"])
    if "recipe" in parameters:
        from_recipe(parameters["recipe"], dict)
    if "encoder" in parameters:
        from coterie.encoders import find_encoder  # noqa: PLC0415  (imports numpy)

        find_encoder(parameters["encoder"])


def check_weights(method: Method, weights: str) -> Mapping[str, Any]:
    """Require weights of the method, by name or file; return their card."""
    from coterie.pretrained.registry import load_pretrained  # noqa: PLC0415  (imports numpy)

    _, card = load_pretrained(weights)
    if card.get("method") != method.name:
        raise WeightsError(
            f"--weights {weights} are for the method {card.get('method')!r}, not {method.name!r}. Give others."
        )
    return card


def parse_size(option: str, text: str) -> tuple[int, int]:
    """Parse a height and a width such as 28x28."""
    size = _HEIGHT_AND_WIDTH.fullmatch(text)
    if size is None:
        raise InputError(f"{option} {text!r} is not a size. Give height x width, such as 28x28.")
    return int(size[1]), int(size[2])


def _parse(flag: str, option: Option, value: Any) -> Any:
    """Return the value of a parameter from that of an option."""
    if option.choices and value not in option.choices:
        raise InputError(f"{option.flag} {value} is not known. Choose one of: {', '.join(option.choices)}.")
    if option.kind is dict:
        return _parse_numbers(flag, value)
    if option.kind is bool:
        return option.value
    if option.kind is float and not math.isfinite(value):
        raise InputError(f"{flag} {value} must be a finite number.")
    return value


def _parse_numbers(flag: str, given: Sequence[str]) -> dict[str, float]:
    """Parse repeated NAME=NUMBER; a name may contain an equals sign itself."""
    numbers = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        try:
            numbers[name] = float(number)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"{flag} {text} must be a column and a number, such as {name or 'age'}=0.5.")
        check_parameter(f"{flag} {name}", numbers[name], Number(0.0))
    return numbers
