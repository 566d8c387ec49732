"""What all estimators share: tables in, labels out, files in between."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController
from torch import Generator, Tensor

from coterie import __version__
from coterie.checkpoint import load_checkpoint, save_checkpoint
from coterie.errors import InputError, WeightsError
from coterie.tables.encoder import Scaling, TableEncoder
from coterie.tables.table import Table, as_table, image_shape


def generator_from(random_state: Any, device: torch.device) -> Generator:
    """A torch generator of its own, seeded from scikit-learn's idea of a random state; no global state is touched."""
    if random_state is None:  # for which scikit-learn would take numpy's global state
        random_state = np.random.RandomState()
    try:
        seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except ValueError as error:
        raise InputError(
            f"random_state must be a whole number, a RandomState or None; got {random_state!r}."
        ) from error
    return Generator(device=device).manual_seed(seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread of the processor, whatever is set outside.

    The products here are many and small: threads would wait for each other most of the time (thirty times slower on a
    busy machine of two cores), and sums split among threads would make results depend on their number.
    """
    before = torch.get_num_threads()
    with _thread_pools().limit(limits=1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@cache
def _thread_pools() -> ThreadpoolController:
    """The thread pools of the libraries, which are all loaded by now; to look for them takes milliseconds."""
    return ThreadpoolController()


def device_from(name: str) -> torch.device:
    """The device to compute on; "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device={name!r} is not known to torch. Use 'auto', 'cpu' or 'cuda'.") from error


class BaseClusterer(ClusterMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn is untyped
    """Base of all estimators.

    A subclass implements ``fit``, sets ``model_`` and ``table_``, and says how its model is written down. Those that
    ``fit`` trains on the data itself derive from it at once, those that are trained beforehand by way of
    ``AmortizedClusterer``.
    """

    method: ClassVar[str]
    saved_unfitted: ClassVar[bool] = False
    """Whether there is something to save before ``fit``."""
    device: str
    table_: TableEncoder

    @abstractmethod
    def fit(self, X: Any, y: None = None) -> Self:
        """Cluster the rows of X."""

    @abstractmethod
    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """Clusters of the rows of X."""

    @abstractmethod
    def _to_checkpoint(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON values that make up the fitted estimator."""

    @abstractmethod
    def _from_checkpoint(self, tensors: dict[str, Tensor], card: dict[str, Any]) -> None:
        """Become the fitted estimator that ``_to_checkpoint`` described."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        return tags

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the estimator as one safetensors file, without the labels of the rows it was fitted on.

        Parameters
        ----------
        path : str or Path
            Where to.
        force : bool
            Whether an existing file may be replaced.
        """
        fitted = "table_" in vars(self)
        if not (fitted or self.saved_unfitted):
            check_is_fitted(self)
        tensors, card = self._to_checkpoint()
        card = {
            "method": self.method,
            "coterie": __version__,
            "parameters": {name: value for name, value in self.get_params(deep=False).items() if _is_plain(value)},
            **card,
        }
        if fitted:
            card |= {"encoder": self.table_.to_card(), "n_features_in": self.n_features_in_}
        save_checkpoint(path, tensors, card, force=force)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that ``save`` wrote; no pickle is involved.

        Parameters
        ----------
        path : str or Path
            Where from.
        """
        tensors, card = load_checkpoint(path)
        if card.get("method") != cls.method:
            raise WeightsError(
                f"{str(path)!r} holds a model of the method {card.get('method')!r}, not {cls.method!r}. "
                "Use coterie.load, which takes any."
            )
        try:
            estimator = cls(**{name: _as_given(value) for name, value in card["parameters"].items()})
            if "encoder" in card or not cls.saved_unfitted:
                estimator.table_ = TableEncoder.from_card(card["encoder"])
                estimator.n_features_in_ = int(card["n_features_in"])
                if estimator.table_.named:
                    estimator.feature_names_in_ = np.array(estimator.table_.names, dtype=object)
            estimator._from_checkpoint(tensors, card)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise WeightsError(f"{str(path)!r} lacks part of its model ({error!r}). Save it again.") from error
        return estimator

    def _read(self, X: Any, *, reset: bool) -> Table:
        """X as a table, with scikit-learn's checks of names and number of columns."""
        table = as_table(X)
        if not reset:
            self._check_image(table)
        if isinstance(X, Table):
            if reset:
                self.n_features_in_ = X.n_columns
                self.feature_names_in_ = np.array(X.names, dtype=object)
            return X
        as_it_is = table.named or (isinstance(X, np.ndarray) and table.image is None)
        shaped = X if as_it_is else np.empty((0, table.n_columns))
        validate_data(self, shaped, reset=reset, skip_check_array=True)
        return table

    def _check_image(self, table: Table) -> None:
        """Refuse images of another shape than those of ``fit``: as many pixels may be in other places."""
        fitted = None if table.image is None else image_shape(self.table_.names)
        if fitted is not None and table.image != fitted:
            raise InputError(
                f"X has images of the shape {table.image} (height, width, channels), but {type(self).__name__} was "
                f"fitted on images of the shape {fitted}. Bring them to that shape."
            )

    def _fit_encoder(self, X: Any, scaling: Scaling) -> Tensor:
        """Read X, learn how to encode it, and encode it."""
        table = self._read(X, reset=True)
        self.table_ = TableEncoder(scaling).fit(table)
        return self._to_tensor(table)

    def _encode(self, X: Any) -> Tensor:
        """Encode new rows as those of ``fit`` were."""
        check_is_fitted(self)
        return self._to_tensor(self._read(X, reset=False))

    def _to_tensor(self, table: Table) -> Tensor:
        return torch.from_numpy(self.table_.transform(table)).to(device_from(self.device))


def labels_to_numpy(labels: Tensor) -> npt.NDArray[np.int64]:
    """Labels as scikit-learn wants them."""
    return labels.cpu().numpy().astype(np.int64)


def to_numpy(tensor: Tensor | None) -> npt.NDArray[np.float32]:
    """Numbers as scikit-learn wants them."""
    if tensor is None:
        raise TypeError("the model gave no tensor")
    return tensor.detach().cpu().numpy()


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold a parameter; arrays, random generators and functions are not written."""
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float)


def _as_given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
