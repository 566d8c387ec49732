"""BaseClusterer, the scikit-learn interface of every method: tables in, labels out, model files, seeds, threads."""

import inspect
import re
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from coterie import __version__
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import InputError, TableError, WeightsError
from coterie.methods import import_object
from coterie.metrics import adjusted_rand_index, silhouettes
from coterie.progress import Callback, make_callback
from coterie.tables.adapt import follow_date_orders
from coterie.tables.encoder import TableEncoder
from coterie.tables.table import Table, as_table, densify, image_shape, take_rows
from coterie.validation import BOOLEAN, NONE, Constraints, InstanceOf, check_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SILHOUETTE_ROWS = 2_000  # on which ``score`` measures the silhouette
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
    agreement: Sequence[float] = ()
    """Adjusted Rand index of the result with the choice of each subsample, its own included; empty if unknown."""


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
    text_components: Mapping[str, str] = field(default_factory=dict)
    """Columns made from texts, named "COLUMN: words", and the column of texts of each."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class ShownRows:
    """The rows that a summary, a report or a map shows, and how the caller knows them."""

    table: Table
    index: Any = None  # the index of a pandas frame; None if rows have numbers only
    frame_kind: str | None = None  # "pandas", "polars" or "pyarrow", if the rows came as a data frame

    @classmethod
    def from_input(cls, X: Any, table: Table) -> "ShownRows":
        """Keep the index and the kind of the data frame that a table was made from; no value is copied."""
        frame: object = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame | nw.Series):
            return cls(table)
        return cls(table, nw.maybe_get_index(frame), frame.implementation.value)

    def take(self, positions: npt.NDArray[np.int64]) -> "ShownRows":
        """Return some of the rows."""
        index = None if self.index is None else self.index[positions]
        return replace(self, table=take_rows(self.table, positions), index=index)


class BaseClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn is untyped
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
    probabilities_: npt.NDArray[np.float32]
    n_clusters_: int
    notes_: tuple[str, ...]
    _fitted_rows: ShownRows
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
        # Rows of texts, which became numbers on the way, keep their index.
        self._fitted_rows = ShownRows.from_input(X, self._fitted_rows.table)
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

    def transform(self, X: Any) -> npt.NDArray[Any]:
        """Compute the distances of the rows of X from the cluster centres, in the encoded columns.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.

        Returns
        -------
        array (n, n_clusters_) of float64
            A data frame with the index of X after ``set_output(transform="pandas")``.

        Examples
        --------
        >>> from coterie import Coterie
        >>> model = Coterie(2, random_state=0).fit([[0.0], [1.0], [9.0], [10.0], [11.0]])
        >>> model.transform([[10.0], [0.5]]).argmin(axis=1).tolist()
        [0, 1]
        >>> model.get_feature_names_out().tolist()
        ['coterie0', 'coterie1']
        """
        check_is_fitted(self)
        with one_thread():
            return cdist(self._encode_table(self._read(X, reset=False)), self._encoded_centres())

    def score(self, X: Any, y: Any = None) -> float:
        """Compute how good the clusters of the rows of X are; higher is better.

        So that ``GridSearchCV`` and ``cross_val_score`` work without ``scoring``.

        Parameters
        ----------
        X : array-like (n, d)
            Rows with the columns of ``fit``.
        y : array-like (n,), optional
            Known classes.

        Returns
        -------
        float
            With known classes the adjusted Rand index. Without, the method's own measure; if it has none, the mean
            silhouette in the encoded columns, on at most 2,000 rows sampled at random, or 0 if it is undefined.

        Examples
        --------
        >>> from coterie import Coterie
        >>> X = [[0.0], [1.0], [9.0], [10.0], [11.0]]
        >>> model = Coterie(2, random_state=0).fit(X)
        >>> model.score(X, ["low", "low", "high", "high", "high"])
        1.0
        >>> model.score(X) > 0.7
        True
        """
        check_is_fitted(self)
        if y is not None:
            return adjusted_rand_index(y, self.predict(X))
        with one_thread():
            return self._score(X)

    def report(
        self,
        path: str | Path | None = None,
        X: Any = None,
        *,
        title: str | None = None,
        ids: Any = None,
        truth: Any = None,
        images: tuple[int, int] | None = None,
        force: bool = False,
    ) -> Path | str:
        """Write one self-contained HTML page that shows and explains the clusters.

        Parameters
        ----------
        path : str or Path, optional
            File to write. Without it, the page is returned.
        X : array-like (n, d), optional
            Rows to show; by default those of ``fit``. An estimator that was loaded, pickled or copied has no rows, and
            needs them.
        title : str, optional
            Heading of the page.
        ids : array-like (n,) or str, optional
            Names of the rows, or the column of X that has them. By default an index of a pandas frame that is not
            just numbered, a column that was left out because it identifies the rows, or numbers from 0.
        truth : array-like (n,) or str, optional
            Known class of each row, to compare the clusters with, or the column of X that has them.
        images : (height, width), optional
            Show rows as grey images of this shape; the columns are their pixels. Not needed for arrays of images.
        force : bool
            Whether an existing file may be replaced.

        Returns
        -------
        Path or str
            The file; or the HTML if there is no path.

        Notes
        -----
        The estimator refers to the rows of ``fit`` without copying them: do not change the values of an array in place
        before calling ``report``, ``summary`` or ``plot`` without X. Adding a column to a data frame does no harm.

        Examples
        --------
        >>> from coterie import Coterie
        >>> page = Coterie(2, random_state=0).fit([[0.0], [1.0], [9.0], [10.0]]).report()
        >>> page.startswith("<!doctype html>")
        True
        """
        write = _show("write_report")
        written: Path | str = write(self, path, X, title=title, ids=ids, truth=truth, images=images, force=force)
        return written

    def summary(self, X: Any = None) -> Any:
        """Describe the clusters in a data frame with one row per cluster, and a last one for noise if there is any.

        Parameters
        ----------
        X : array-like (n, d), optional
            Rows to describe; by default those of ``fit``. An estimator that was loaded, pickled or copied needs them.

        Returns
        -------
        DataFrame
            Of pandas, polars or Arrow, as the rows were; otherwise of the first of these that is installed. Its columns
            are ``cluster``, ``size``, ``share`` (of the rows), ``membership`` (mean, of the rows in their own cluster),
            ``features`` that distinguish the cluster from the other rows, the ``typical`` row by its name as in
            ``report``, and the mean or the most frequent level of the columns in which the clusters differ most.

        Examples
        --------
        >>> from coterie import Coterie
        >>> import pandas as pd
        >>> heights = pd.DataFrame({"height": [1.0, 2.0, 3.0, 9.0, 10.0, 11.0, 10.0]}, index=list("abcdefg"))
        >>> Coterie(2, random_state=0).fit(heights).summary()[["size", "features", "typical", "mean height"]]
           size     features typical  mean height
        0     4  high height       e         10.0
        1     3   low height       b          2.0
        """
        return _show("summarise")(self, X)

    def plot(self, ax: "Axes | None" = None, X: Any = None, columns: tuple[str, str] | None = None) -> "Axes":
        """Draw the rows as points, coloured by cluster; needs matplotlib, ``pip install 'coterie[plot]'``.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default in a new figure.
        X : array-like (n, d), optional
            Rows to draw; by default those of ``fit``. An estimator that was loaded, pickled or copied needs them.
        columns : (str, str), optional
            Two columns of numbers, booleans or dates for the axes. By default rows are placed as on the map of the
            report.

        Returns
        -------
        matplotlib Axes

        Examples
        --------
        >>> from coterie import Coterie
        >>> model = Coterie(2, random_state=0).fit([[0.0], [1.0], [9.0], [10.0]])
        >>> from matplotlib.figure import Figure
        >>> model.plot(ax=Figure().subplots()).get_legend() is not None
        True
        """
        axes: Axes = import_object("coterie.reporting.plot:plot_clusters", "plot")(self, ax, X, columns)
        return axes

    def rows_to_show(self, X: Any = None, at_most: int | None = None) -> tuple[Self, ShownRows]:
        """Return rows, and an estimator whose ``labels_`` and ``probabilities_`` are those of these rows.

        Parameters
        ----------
        X : array-like (n, d), optional
            Rows with the columns of ``fit``; by default those of ``fit`` themselves.
        at_most : int, optional
            Number of rows to sample at random if there are more.

        Returns
        -------
        estimator
            Itself for the rows of ``fit``, otherwise a copy.
        ShownRows
        """
        check_is_fitted(self)
        if X is None:
            fitted: ShownRows | None = vars(self).get("_fitted_rows")
            if fitted is None:
                raise InputError(
                    f"This {type(self).__name__} has no rows: it was loaded, pickled or copied, and these keep none. "
                    "Give the rows to show as X."
                )
            if at_most is None or fitted.table.n_rows <= at_most:
                return self, fitted
            sample = _sample(fitted.table.n_rows, at_most)
            return self._with_labels(self.labels_[sample], self.probabilities_[sample]), fitted.take(sample)
        rows = ShownRows.from_input(X, self._read(X, reset=False))
        if at_most is not None:
            rows = rows.take(_sample(rows.table.n_rows, at_most))
        labels = self.predict(rows.table)
        if np.array_equal(labels, vars(self).get("labels_", ())):
            return self, rows
        return self._with_labels(labels, self.predict_proba(rows.table)), rows

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

    def _score(self, X: Any) -> float:
        """Compute the measure of clusters without known classes; by default the silhouette."""
        table = self._read(X, reset=False)
        if table.n_rows > _SILHOUETTE_ROWS:
            table = take_rows(table, _sample(table.n_rows, _SILHOUETTE_ROWS))
        labels = self._predict(table)
        inside = labels >= 0
        clusters, numbered = np.unique(labels[inside], return_inverse=True)
        if not 1 < len(clusters) < len(numbered):
            return 0.0
        embed = self.describe_fit(table).embed
        encoded = self._encode_table(table) if embed is None else embed(table)
        return float(silhouettes(encoded[inside], numbered[None])[0])

    def _encode_table(self, table: Table) -> npt.NDArray[Any]:
        """Encode rows as numbers, missing values filled in."""
        encoded: npt.NDArray[Any] = (self.describe_fit(table).encode or self.table_.transform)(table)
        return encoded

    def _encoded_centres(self) -> npt.NDArray[Any]:
        """Return the mean (n_clusters_, n_encoded) of the encoded rows of each cluster."""
        centres: npt.NDArray[Any] = self._means
        return centres

    @property
    def _n_features_out(self) -> int:
        """Number of columns of ``transform``, which scikit-learn names."""
        return self.n_clusters_

    def _with_labels(self, labels: npt.NDArray[np.int64], probabilities: npt.NDArray[np.float32]) -> Self:
        """Return a copy that describes other rows; a subclass removes what holds for the rows of ``fit`` only."""
        other = copy(self)
        other.labels_, other.probabilities_ = labels, probabilities
        return other

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
        return densify(table)

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
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle and copy keep: all but the rows of ``fit``, as in model files."""
        return {name: value for name, value in super().__getstate__().items() if name != "_fitted_rows"}

    def _repr_html_inner(self) -> str:
        """Return what notebooks show: scikit-learn's diagram, and of a fitted estimator its clusters."""
        if "n_clusters_" not in vars(self):
            diagram: str = super()._repr_html_inner()
            return diagram
        card: str = _show("render_card")(self)
        return card

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        texts = {"text/plain": repr(self)}
        return texts | ({"text/html": self._repr_html_inner()} if get_config()["display"] == "diagram" else {})

    def _progress(self) -> Callback | None:
        """Return what receives progress: the callback, and the printer if ``verbose``."""
        return make_callback(self.callback, verbose=bool(self.verbose), name=type(self).__name__)

    def _read(self, X: Any, *, reset: bool) -> Table:
        """Return X as a table, after scikit-learn's checks of names and number of columns."""
        _check_is_table(X)
        table = densify(as_table(X))
        if reset:
            self._fitted_rows = ShownRows.from_input(X, table)
        else:
            self._check_image_shape(table)
            table, _ = follow_date_orders(self.table_, table)
        if isinstance(X, Table):
            if reset:
                self.n_features_in_ = X.n_columns
                self.feature_names_in_ = np.array(X.names, dtype=object)
            return table
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


def _show(name: str) -> Any:
    """Import a function of the report, which is built upon estimators and above them."""
    return import_object(f"coterie.reporting.python:{name}", "The report")


def _sample(n_rows: int, at_most: int) -> npt.NDArray[np.int64]:
    """Return all row numbers, or a random sample of them with a fixed seed, in ascending order."""
    if n_rows <= at_most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, at_most, replace=False))


def _check_is_table(X: Any) -> None:
    """Reject what is no table, and say what to do; ``as_table`` rejects arrays that are none."""
    if X is None:
        raise TableError("Expected 2D array, got None instead. Give an array, a data frame or a list of rows.")
    if isinstance(X, str | Path):
        raise TableError(
            f"Expected 2D array, got the name {str(X)!r} instead. To cluster a file, use "
            f"coterie.cluster({str(X)!r}), or read it first with coterie.tables.readers.read_table."
        )
    if isinstance(X, Mapping) and not hasattr(X, "shape"):  # one kind of sparse matrix is a dict
        kind = type(X).__name__
        raise TableError(f"Expected 2D array, got a {kind} instead. Make it a table, such as pandas.DataFrame(X).")
    if isinstance(nw.from_native(X, allow_series=True, pass_through=True), nw.Series):
        raise TableError("Expected 2D array, got a single column instead. Use X.to_frame().")
    if isinstance(X, list | tuple) and X:
        if all(isinstance(row, Mapping) for row in X):
            raise TableError(f"Expected 2D array, got a {type(X).__name__} of dicts instead. Use pandas.DataFrame(X).")
        if all(isinstance(row, str) for row in X):
            raise TableError(
                f"Expected 2D array, got a {type(X).__name__} of {len(X):,} texts instead. To cluster texts by what "
                "they mean, give Coterie an encoder; see docs/embeddings.md."
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
