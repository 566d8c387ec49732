"""The registry of methods. Each method declares in its own folder what the command and recipes need to know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from coterie.errors import InputError, MissingExtraError, WeightsError

if TYPE_CHECKING:
    from coterie.base import BaseClusterer

# Name of each method, in the command and in model files, and the package that has its ``METHOD``.
# To add a method, add a line: ``METHODS["mine"] = "my_package"``, where ``my_package.METHOD`` is a ``Method``.
METHODS: dict[str, str] = {
    "coterie": "coterie.judged",
    "clam": "coterie.clam",
    "dac": "coterie.amortized.dac",
    "attention-based": "coterie.amortized.abc",
    "amcp": "coterie.amortized.amcp",
    "tcc": "coterie.tcc",
}

TORCH_PACKAGES = ("torch", "zuko")  # what the extra ``torch`` installs


@final
@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option of a method, and the parameter of the estimator that it sets."""

    flag: str  # such as ``--effort``
    parameter: str  # parameter of the estimator
    help: str  # one line for ``--help``
    kind: type[str | int | float | bool | dict[str, float] | list[str]] = str
    """Type of the value; ``bool`` is a flag without one; ``dict``, of NAME=NUMBER, and ``list`` can be repeated."""
    value: bool = True  # what a flag without a value sets
    choices: tuple[str, ...] = ()  # the values that are allowed; empty for any
    default: str = ""  # value that the method uses if the option is not given, for ``--help``
    metavar: str | None = None  # what stands for the value in ``--help``; by default the choices or the type
    former: tuple[str, ...] = ()  # former flags; they work for one release, with a warning
    gives_n_clusters: bool = False  # whether it also determines the number of clusters, so that -k is not required


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What a method costs, so that the command can warn before a fit, and what its default weights are for.

    Costs are rough figures, measured on one core of a server (AMD EPYC) on tables of 1,000 to 60,000 rows.
    """

    seconds_per_row: float = 0.0  # duration of a fit on data that take long
    seconds_per_cell: float = 0.0  # the same, for each number in the table
    bytes_per_row: float = 0.0  # memory
    max_seconds: float | None = None  # expected duration above which the command does not start, unless asked to
    n_features: int | None = None  # features that the default weights take; None for any number

    def seconds(self, n_rows: int, n_columns: int) -> float:
        """Estimate the duration of a fit from above."""
        return n_rows * (self.seconds_per_row + n_columns * self.seconds_per_cell)


@final
@dataclass(frozen=True, slots=True)
class Method:
    """What the rest of the package knows about a method without importing it."""

    name: str  # key of ``METHODS``
    estimator: str  # the scikit-learn estimator, as ``"module:Class"``
    summary: str  # what it does, in one line for ``--help``
    options: tuple[Option, ...] = ()  # command-line options that this method takes, beyond those that all have
    takes_n_clusters: bool = True  # whether the number of clusters can be given
    finds_n_clusters: bool = True  # whether ``n_clusters="auto"`` works
    factory: str | None = None  # builds the estimator from keyword parameters, as ``"module:function"``
    learns_from: tuple[Literal["tables", "images"], ...] = ()  # labelled data on which ``coterie learn`` can train it
    network: str | None = None  # the ``ClusterModel``, as ``"module:Class"``, if the method has a network of its own
    packages: tuple[str, ...] = ()  # optional packages that the method needs, such as ``TORCH_PACKAGES``
    limits: Limits = Limits()  # what it costs; by default nothing is known

    def build_estimator(self, **parameters: Any) -> "BaseClusterer":
        """Build an unfitted estimator; the random state is 0 unless it is given."""
        if self.factory is not None:
            estimator: BaseClusterer = import_object(self.factory, self._purpose)(**parameters)
            return estimator
        return self.load_estimator()(**{"random_state": 0, **parameters})

    def check_packages(self) -> None:
        """Raise an error with the line to run if a package that the method needs is not installed; imports none."""
        require_packages(self.packages, self._purpose)

    def load_estimator(self) -> "type[BaseClusterer]":
        """Import the estimator class."""
        kind: type[BaseClusterer] = import_object(self.estimator, self._purpose)
        return kind

    def load_network(self) -> Any:
        """Import the network class; None if there is none."""
        return None if self.network is None else import_object(self.network, self._purpose)

    @property
    def _purpose(self) -> str:
        return f"The method {self.name!r}"


def get_methods() -> list[Method]:
    """Return all registered methods."""
    return [get_method(name) for name in METHODS]


def get_method(name: str) -> Method:
    """Return the method of that name; an unknown one raises an ``InputError``."""
    if name not in METHODS:
        raise InputError(f"There is no method {name!r}. Choose one of: {', '.join(METHODS)}.")
    method: Method = import_module(METHODS[name]).METHOD
    return method


def load(path: str | Path) -> "BaseClusterer":
    """Read a fitted estimator of any method from a file that its ``save`` wrote; no pickle is involved.

    Parameters
    ----------
    path : str or Path
        The model file.

    Returns
    -------
    estimator
        Ready to ``predict``.
    """
    return get_method(read_card(path)["method"]).load_estimator().load(path)


def read_card(path: str | Path) -> Mapping[str, Any]:
    """Read the card of a model file: its ``method``, which is registered, parameters and everything but the arrays."""
    from coterie.checkpoint import load_checkpoint  # noqa: PLC0415  (imports numpy, which --help does not need)

    card: Mapping[str, Any] = load_checkpoint(path)[1]
    name = card.get("method")
    if name not in METHODS:
        raise WeightsError(
            f"{str(path)!r} holds a model of the unknown method {name!r}; this version knows: "
            f"{', '.join(METHODS)}. Install the version of Coterie that wrote it."
        )
    return card


def import_object(target: str, purpose: str) -> Any:
    """Import ``"module:name"`` for a purpose; if torch is needed and missing, the error has the line to run."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name not in TORCH_PACKAGES:
            raise
        raise _missing_package(error.name, purpose) from error


def require_packages(packages: Sequence[str], purpose: str) -> None:
    """Raise the error of ``import_object`` unless these packages are installed; nothing is imported."""
    for package in packages:
        if not _is_installed(package):
            raise _missing_package(package, purpose)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:  # an import hook that hides the package
        return False


def _missing_package(package: str, purpose: str) -> MissingExtraError:
    return MissingExtraError(f"{purpose} needs {package}, which is not installed. Run: pip install 'coterie[torch]'.")
