"""BaseClusterer, the scikit-learn interface of every method: tables in, labels out, model files, seeds, threads."""

import inspect
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from coterie import __version__
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import InputError, WeightsError
from coterie.progress import Callback, make_callback
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import Table, as_table, image_shape
from coterie.validation import BOOLEAN, NONE, Constraints, InstanceOf, check_parameters

_SHARED_PARAMETERS = {
    "device": 'str\n"auto" (a GPU if there is one), "cpu", "cuda", ...',
    "random_state": "int, RandomState or None\nThe same seed gives the same result.",
    "verbose": "bool\nPrint progress to the standard error.",
    "callback": "callable, optional\nCalled with a ``coterie.progress.Progress`` as the work proceeds.",
}
_SHARED_CONSTRAINTS: dict[str, Constraints] = {
    "device": InstanceOf(str, "the name of a torch device"),
    "verbose": BOOLEAN,
    "callback": (InstanceOf(Callable, "a function"), NONE),
}
_SHARED_ATTRIBUTES = {
    "labels_": "array (n,)\nCluster of each row; the largest cluster is 0.",
    "n_clusters_": "int\nNumber of clusters.",
    "probabilities_": "array (n, n_clusters_)\nMembership probabilities of the training rows.",
    "cluster_centers_": (
        "array (n_clusters_, n_encoded)\n"
        "Mean of each cluster in the units of the input; columns as ``table_.features``."
    ),
    "n_features_in_": "int\nNumber of input columns.",
    "feature_names_in_": "array of str\nNames of the input columns, if they have names.",
    "notes_": "tuple of str\nDecisions made during the fit, one sentence each.",
    "table_": "TableEncoder\nHow columns became numbers; its ``notes`` list every decision.",
}


@final
@dataclass(frozen=True, slots=True)
class ReportSection:
    """A section that a method adds to the report: a title, paragraphs and, if it has rows, a table."""

    title: str
    paragraphs: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Selection:
    """Scored candidate partitions, and the one that was chosen.

    A candidate is a mapping with ``algorithm``, ``columns``, ``n_clusters`` and ``score``.
    """

    confidence: float
    """Expected adjusted Rand index of the result; if ``chosen`` is None, the probability of a single cluster."""
    candidates: Sequence[Mapping[str, Any]]  # all candidates, the best first
    levels: Sequence[Mapping[str, Any]]  # best candidate of each number of clusters, in ascending order of that number
    chosen: Mapping[str, Any] | None  # the candidate behind the result; None if all rows are one cluster
    runner_up: Mapping[str, Any] | None  # best candidate that differs clearly from the chosen one
    shortlist: Callable[[int], Sequence[Mapping[str, Any]]]
    """Returns the best candidates, at most that many, without near duplicates."""
    alternative: Callable[[int, Any], npt.NDArray[np.int64]]
    """Returns the labels of the rows of a table by the best candidate with that number of clusters."""
    low_confidence: float = 0.25  # confidence below which the result is little better than a guess


@final
@dataclass(frozen=True, slots=True)
class FitDescription:
    """What a fit can tell about itself, for the summary and the report; every field has a neutral default."""

    silhouette: float | None = None  # mean silhouette if the fit measured it; otherwise the command does
    pixel_distances_meaningful: bool = True  # if not, no silhouette is computed for clusters of images
    columns_meaningful: bool = True  # if not, as those of embeddings, no columns characterise the clusters
    encode: Callable[[Table], npt.NDArray[Any]] | None = None
    """Encodes a table and fills in its missing values; None if the encoder does that."""
    embed: Callable[[Any], npt.NDArray[Any]] | None = None
    """Maps a table to learned embeddings (n, d), which place its rows on the map; None to use the columns."""
    prototypes: npt.NDArray[Any] | None = None
    """Trained prototypes (n_clusters, n_encoded) in the encoded space; None to use the means of the clusters."""
    losses: Sequence[float] = ()  # training loss of each epoch
    runs: Sequence[Mapping[str, Any]] = ()  # settings and scores of the training runs; one is ``chosen``
    kernel: npt.NDArray[Any] | None = None  # probability (m, m) that two rows are in the same cluster
    kernel_rows: npt.NDArray[np.int64] | None = None  # row numbers (m,) of the kernel
    selection: Selection | None = None  # the candidates that the result was chosen from
    sections: tuple[ReportSection, ...] = ()  # further sections of the report


class BaseClusterer(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn is untyped
    """Base of all estimators.

    A subclass declares its ``method`` name and the ``constraints`` of its parameters, implements ``_fit`` and
    ``_predict_proba``, and says how it is written to a model file. Parameters and attributes that all estimators share
    are added to the class docstring.
    """

    method: ClassVar[str]  # key of ``coterie.methods.METHODS``
    constraints: ClassVar[Mapping[str, Constraints]] = {}  # allowed values of the parameters, checked by ``fit``
    renamed_parameters: ClassVar[Mapping[str, str]] = {"on_progress": "callback"}
    """Former names of parameters; they work for one release, with a FutureWarning."""
    former_attributes: ClassVar[Mapping[str, str | Callable[[Any], Any]]] = {}
    """Former fitted attributes: the present name, or a function. They work for one release, with a FutureWarning."""
    saves_unfitted: ClassVar[bool] = False  # whether there is something to save before ``fit``
    device: str = "cpu"
    verbose: bool
    callback: Callback | None
    table_: TableEncoder
    labels_: npt.NDArray[np.int64]
    n_clusters_: int
    notes_: tuple[str, ...]
    _sizes: list[int] | None = None  # rows of each cluster, if a model file says so

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = _accept_former_names(cls.__init__)  # type: ignore[method-assign]
            cls.__doc__ = _completed_docstring(cls)
            names = inspect.signature(cls.__init__).parameters
            shared = {name: allowed for name, allowed in _SHARED_CONSTRAINTS.items() if name in names}
            cls.constraints = shared | dict(cls.constraints)

    def fit(self, X: Any, y: None = None) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X : array, DataFrame, Arrow table, tensor or list (n, d)
            Numbers, categories, booleans or dates, missing values included; or images (n, height, width[, channels]).
        y : None
            Ignored; present for scikit-learn.

        Returns
        -------
        self
        """
        check_parameters(self, self.constraints)
        with one_thread():
            self._fit(X)
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Assign the rows of X to the clusters found by ``fit``; on the training rows this equals ``labels_``.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.

        Returns
        -------
        array (n,) of int64
        """
        check_is_fitted(self)
        with one_thread():
            return self._predict(X)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute membership probabilities of the rows of X.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.

        Returns
        -------
        array (n, n_clusters_) of float32
            Rows sum to one.
        """
        check_is_fitted(self)
        with one_thread():
            return self._predict_proba(X)

    @abstractmethod
    def _fit(self, X: Any) -> None:
        """Set the fitted attributes; runs on one thread, after the parameters were checked."""

    @abstractmethod
    def _predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Compute membership probabilities; runs on one thread, on a fitted estimator."""

    def _predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Compute labels; by default the most probable cluster."""
        labels: npt.NDArray[np.int64] = self._predict_proba(X).argmax(axis=1).astype(np.int64)
        return labels

    def describe_fit(self, table: Table) -> FitDescription:
        """Describe the fit for the summary and the report; a subclass adds what only it knows.

        Parameters
        ----------
        table : Table
            The rows that the estimator was fitted on.
        """
        return FitDescription()

    def prepare_table(self, table: Table, callback: Callback | None = None, *, reset: bool = False) -> Table:
        """Return the table that ``fit`` and ``predict`` work on: by default the table itself.

        Parameters
        ----------
        table : Table
            Rows as they were read.
        callback : callable, optional
            Called with a ``coterie.progress.Progress`` as the work proceeds.
        reset : bool
            Whether the table is one to fit, not to predict.
        """
        return table

    @abstractmethod
    def _to_checkpoint(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return the arrays and JSON values that make up the fitted estimator."""

    @abstractmethod
    def _from_checkpoint(self, arrays: dict[str, npt.NDArray[Any]], card: dict[str, Any]) -> None:
        """Restore the fitted state that ``_to_checkpoint`` described."""

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the estimator as one safetensors file, without the training rows' labels.

        Parameters
        ----------
        path : str or Path
            File to write.
        force : bool
            Whether an existing file may be replaced.
        """
        fitted = "table_" in vars(self)
        if not (fitted or self.saves_unfitted):
            check_is_fitted(self)
        arrays, card = self._to_checkpoint()
        card = {
            "method": self.method,
            "coterie": __version__,
            "parameters": {
                name: value.item() if isinstance(value, np.generic) else value
                for name, value in self.get_params(deep=False).items()
                if _is_json(value)
            },
            **card,
        }
        if fitted:
            card |= {"encoder": self.table_.to_card(), "n_features_in": self.n_features_in_}
            if (sizes := self._cluster_sizes()) is not None:
                card["sizes"] = sizes
        save_checkpoint(path, arrays, card, force=force)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that ``save`` wrote; no pickle is involved.

        Parameters
        ----------
        path : str or Path
            File to read.
        """
        arrays, card = load_checkpoint(path)
        if card.get("method") != cls.method:
            raise WeightsError(
                f"{str(path)!r} holds a model of the method {card.get('method')!r}, not {cls.method!r}. "
                "Use coterie.load, which reads any method."
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # files of earlier versions have former names
                estimator = cls(**{name: _as_given(value) for name, value in card["parameters"].items()})
            if "encoder" in card or not cls.saves_unfitted:
                estimator.table_ = TableEncoder.from_card(card["encoder"])
                estimator.n_features_in_ = int(card["n_features_in"])
                if estimator.table_.named:
                    estimator.feature_names_in_ = np.array(estimator.table_.names, dtype=object)
            estimator._sizes = card.get("sizes")
            estimator._from_checkpoint(arrays, card)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise WeightsError(f"{str(path)!r} lacks part of its model ({error!r}). Save it again.") from error
        return estimator

    def _cluster_sizes(self) -> list[int] | None:
        """Count the training rows of each cluster; a model that was read from a file has what it says, if anything."""
        if "labels_" not in vars(self):
            return self._sizes
        inside = self.labels_[self.labels_ >= 0]
        sizes: list[int] = np.bincount(inside, minlength=self.n_clusters_).tolist()
        return sizes

    @classmethod
    def _translate_arguments(
        cls, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replace former parameter names; a subclass may also translate former positional arguments."""
        return args, _translated(cls, kwargs)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; see ``get_params``."""
        super().set_params(**_translated(type(self), params))
        return self

    def __getattr__(self, name: str) -> Any:
        compute = type(self).former_attributes.get(name)
        if compute is None or "n_clusters_" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        renamed = f"; use {compute}" if isinstance(compute, str) else ""
        warnings.warn(f"{name} of {type(self).__name__} is deprecated{renamed}.", FutureWarning, stacklevel=2)
        return getattr(self, compute) if isinstance(compute, str) else compute(self)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def _progress(self) -> Callback | None:
        """Return what receives progress: the callback, and the printer if ``verbose``."""
        return make_callback(self.callback, verbose=bool(self.verbose), name=type(self).__name__)

    def _read(self, X: Any, *, reset: bool) -> Table:
        """Return X as a table, after scikit-learn's checks of names and number of columns."""
        table = as_table(X)
        if not reset:
            self._check_image_shape(table)
        if isinstance(X, Table):
            if reset:
                self.n_features_in_ = X.n_columns
                self.feature_names_in_ = np.array(X.names, dtype=object)
            return X
        has_columns = table.named or (isinstance(X, np.ndarray) and table.image is None)
        shaped = X if has_columns else np.empty((0, table.n_columns))
        validate_data(self, shaped, reset=reset, skip_check_array=True)
        return table

    def _check_image_shape(self, table: Table) -> None:
        """Reject images whose shape is not that of ``fit``: equally many pixels would be at other positions."""
        fitted = None if table.image is None else image_shape(self.table_.names)
        if fitted is not None and table.image != fitted:
            raise InputError(
                f"X has images of shape {table.image} (height, width, channels), but {type(self).__name__} was "
                f"fitted on images of shape {fitted}. Resize them to that shape."
            )


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, whatever is set outside.

    The matrix products here are many and small: threads would wait for each other most of the time (thirty times
    slower on a busy machine with two cores), and sums split among threads would make results depend on their number.
    """
    torch: Any = sys.modules.get("torch")  # its threads are limited apart, if a method has imported it
    before = 1 if torch is None else torch.get_num_threads()
    with _thread_pools().limit(limits=1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the thread pools of the libraries, which are all loaded by now; finding them takes milliseconds."""
    return ThreadpoolController()


def seed_from(random_state: Any) -> int:
    """Return a seed drawn from scikit-learn's ``random_state``; no global state is touched."""
    if random_state is None:  # scikit-learn would use numpy's global state
        random_state = np.random.RandomState()
    try:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except ValueError as error:
        raise InputError(f"random_state={random_state!r} must be an integer, a RandomState or None.") from error


def _accept_former_names(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor take former parameter names; ``inspect.signature`` shows the present ones only."""

    @wraps(init)
    def wrapper(self: BaseClusterer, *args: Any, **kwargs: Any) -> None:
        args, kwargs = type(self)._translate_arguments(args, kwargs)
        init(self, *args, **kwargs)

    return wrapper


def _translated(cls: type[BaseClusterer], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Replace former parameter names by the present ones, with a FutureWarning each."""
    translated = dict(parameters)
    for former, name in cls.renamed_parameters.items():
        if former in translated:
            warnings.warn(
                f"{former} of {cls.__name__} was renamed to {name}; the former name will stop working in version 0.3.",
                FutureWarning,
                stacklevel=4,
            )
            if name in translated:
                raise InputError(f"{cls.__name__} got both {former} and {name}, its present name. Give {name} alone.")
            translated[name] = translated.pop(former)
    return translated


def _completed_docstring(cls: type[BaseClusterer]) -> str:
    """Add the shared parameters and attributes, which are documented once, to the class docstring."""
    doc = inspect.cleandoc(cls.__doc__ or "")
    names = [name for name in inspect.signature(cls.__init__).parameters if name != "self"]
    shared = {name: text for name, text in _SHARED_PARAMETERS.items() if name in names}
    return with_entries(with_entries(doc, "Parameters", shared), "Attributes", _SHARED_ATTRIBUTES)


def with_entries(doc: str, section: str, entries: Mapping[str, str]) -> str:
    """Append numpydoc entries that a section does not have yet."""
    match = re.search(rf"^{section}\n-+\n(?:(?!\n\n\w[^\n]*\n-{{3,}}).)*", doc, re.MULTILINE | re.DOTALL)
    if match is None:
        return doc
    missing = [
        "\n    ".join(f"{name} : {text}".splitlines())
        for name, text in entries.items()
        if not re.search(rf"^{re.escape(name)} : ", match.group(), re.MULTILINE)
    ]
    return "\n".join((doc[: match.end()].rstrip(), *missing)) + doc[match.end() :]


def _is_json(value: Any) -> bool:
    """Return whether JSON can hold a parameter; arrays, random generators and functions are not saved."""
    if isinstance(value, list | tuple):
        return all(_is_json(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(name, str) and isinstance(item, str | int | float) for name, item in value.items())
    return value is None or isinstance(value, str | int | float | np.integer | np.floating)


def _as_given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
