"""TorchClusterer, the base of the methods that compute with torch: tables as tensors, devices, generators."""

from abc import ABC
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from coterie.base import BaseClusterer, seed_from
from coterie.errors import InputError
from coterie.tables.encoder import Scaling, TableEncoder
from coterie.tables.table import Table


class TorchClusterer(BaseClusterer, ABC):
    """Base of the estimators that compute with torch."""

    def _fit_encoder(self, X: Any, scaling: Scaling) -> Tensor:
        """Read X, fit the encoder on it, and encode it."""
        table = self._read(X, reset=True)
        self.table_ = TableEncoder(scaling).fit(table)
        return self._to_tensor(table)

    def _encode(self, X: Any) -> Tensor:
        """Encode new rows with the fitted encoder."""
        check_is_fitted(self)
        return self._to_tensor(self._read(X, reset=False))

    def _encoded_centres(self) -> npt.NDArray[Any]:
        """Return the mean of the encoded rows of each cluster, which is a tensor here."""
        return to_numpy(self._means)

    def _to_tensor(self, table: Table) -> Tensor:
        return torch.from_numpy(self.table_.transform(table)).to(device_from(self.device))


def generator_from(random_state: Any, device: torch.device) -> Generator:
    """Return a new torch generator seeded from scikit-learn's ``random_state``; no global state is touched."""
    return Generator(device=device).manual_seed(seed_from(random_state))


def device_from(name: str) -> torch.device:
    """Return the torch device; "auto" takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"device={name!r} is not known to torch. Use 'auto', 'cpu' or 'cuda'.") from error


def labels_to_numpy(labels: Tensor) -> npt.NDArray[np.int64]:
    """Convert labels to the type that scikit-learn expects."""
    return labels.cpu().numpy().astype(np.int64)


def to_numpy(tensor: Tensor | None) -> npt.NDArray[np.float32]:
    """Convert a tensor that must exist to a numpy array."""
    if tensor is None:
        raise TypeError("the model returned no tensor")
    return tensor.detach().cpu().numpy()
