"""The registry of methods. Each method declares in its own folder what the command and recipes need to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from coterie.errors import InputError, WeightsError

if TYPE_CHECKING:
    from coterie.base import BaseClusterer

METHODS: dict[str, str] = {
    "coterie": "coterie.judged",
    "clam": "coterie.clam",
    "dac": "coterie.amortized.dac",
    "attention-based": "coterie.amortized.abc",
    "amcp": "coterie.amortized.amcp",
    "tcc": "coterie.tcc",
}
"""Name of each method, in the command and in model files, and the package that has its ``METHOD``.

To add a method, add a line: ``METHODS["mine"] = "my_package"``, where ``my_package.METHOD`` is a ``Method``.
"""


@final
@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option of a method, and the parameter of the estimator that it sets."""

    flag: str
    """Such as ``--effort``."""
    parameter: str
    """Parameter of the estimator."""
    help: str
    """One line for ``--help``."""
    kind: type[str | int | float | bool] = str
    """Type of the value; ``bool`` makes a flag without a value."""
    choices: tuple[str, ...] = ()
    """The values that are allowed; empty for any."""
    default: str = ""
    """Value that the method uses if the option is not given, for ``--help``."""
    metavar: str | None = None
    """What stands for the value in ``--help``; by default the choices or the type."""
    former: tuple[str, ...] = ()
    """Former flags; they work for one release, with a warning."""
    gives_n_clusters: bool = False
    """Whether the option also determines the number of clusters, so that ``-k`` is not required."""


@final
@dataclass(frozen=True, slots=True)
class Method:
    """What the rest of the package knows about a method without importing it."""

    name: str
    """Key of ``METHODS``."""
    estimator: str
    """The scikit-learn estimator, as ``"module:Class"``."""
    summary: str
    """What it does, in one line for ``--help``."""
    options: tuple[Option, ...] = ()
    """Command-line options that this method takes, beyond those that all have."""
    takes_n_clusters: bool = True
    """Whether the number of clusters can be given."""
    finds_n_clusters: bool = True
    """Whether ``n_clusters="auto"`` works."""
    factory: str | None = None
    """Function that builds the estimator from keyword parameters, as ``"module:function"``; by default the class."""
    learns_from: tuple[Literal["tables", "images"], ...] = ()
    """What ``coterie learn`` can train it on: labelled tables, folders of labelled images; empty for neither."""
    network: str | None = None
    """The ``ClusterModel``, as ``"module:Class"``; None if the method has no network of its own."""

    def build_estimator(self, **parameters: Any) -> "BaseClusterer":
        """Build an unfitted estimator; the random state is 0 unless it is given."""
        if self.factory is not None:
            estimator: BaseClusterer = _imported(self.factory)(**parameters)
            return estimator
        return self.load_estimator()(**{"random_state": 0, **parameters})

    def load_estimator(self) -> "type[BaseClusterer]":
        """Import the estimator class."""
        kind: type[BaseClusterer] = _imported(self.estimator)
        return kind

    def load_network(self) -> Any:
        """Import the network class; None if there is none."""
        return None if self.network is None else _imported(self.network)


def get_methods() -> list[Method]:
    """Return all registered methods."""
    return [get_method(name) for name in METHODS]


def get_method(name: str) -> Method:
    """Return the method of that name.

    Raises
    ------
    InputError
        If no method has that name.
    """
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
    from coterie.checkpoint import load_checkpoint  # noqa: PLC0415  (imports torch, which --help does not need)

    card: Mapping[str, Any] = load_checkpoint(path)[1]
    name = card.get("method")
    if name not in METHODS:
        raise WeightsError(
            f"{str(path)!r} holds a model of the unknown method {name!r}; this version knows: "
            f"{', '.join(METHODS)}. Install the version of Coterie that wrote it."
        )
    return get_method(name).load_estimator().load(path)


def _imported(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
