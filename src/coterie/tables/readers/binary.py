"""Tables from files that hold arrays or typed columns: numpy, MATLAB, Parquet and Arrow."""

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from coterie.errors import MissingExtraError, TableError
from coterie.tables.readers.delimited import numbered_names
from coterie.tables.table import Table, as_table, unique_names

_TABLE_NAMES = ("X", "images")


def _read_npy(path: Path) -> Table:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise TableError(f"{path.name} is not a plain .npy array of numbers; save it with numpy.save") from error
    return _unnamed(array, path.name)


def _read_npz(path: Path) -> Table:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise TableError(f"{path.name} is not a plain .npz archive; save it with numpy.savez") from error
    return _from_arrays(arrays, path.name)


def _read_mat(path: Path) -> Table:
    try:
        content = loadmat(path)
    except NotImplementedError as error:
        raise TableError(f"{path.name} is a MATLAB 7.3 file; in MATLAB, save it with the option '-v7'") from error
    except (ValueError, TypeError, MatReadError, zlib.error) as error:
        raise TableError(f"{path.name} is not a MATLAB file: {error}") from error
    arrays = {name: value for name, value in content.items() if not name.startswith("__")}
    # MATLAB has no vectors: what has one row or one column, and is not called X, is one.
    vectors = {
        name: value.ravel()
        for name, value in arrays.items()
        if name != "X" and isinstance(value, np.ndarray) and value.ndim == 2 and 1 in value.shape
    }
    return _from_arrays({**arrays, **vectors}, path.name)


def _from_arrays(arrays: Mapping[str, Any], source: str) -> Table:
    """Take X, or images, or the only two-dimensional array, as the table, and vectors of its length as `side`."""
    by_name = [name for name in _TABLE_NAMES if name in arrays]
    tables = by_name or [name for name, value in arrays.items() if np.ndim(value) == 2]
    if not by_name and len(tables) != 1:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in arrays.items())
        raise TableError(
            f"{source} needs an array X or images, or exactly one of two dimensions; it has {shapes or 'none'}"
        )
    chosen = tables[0]
    table = _unnamed(arrays[chosen], source)
    given = arrays.get("feature_names")
    if given is not None and np.shape(given) == (table.n_columns,):
        names, notes = unique_names([str(name) for name in given])
        table = replace(table, names=names, named=True, notes=(*table.notes, *notes))
    side = {
        name: value
        for name, value in arrays.items()
        if name not in {chosen, "feature_names"} and np.shape(value) == (table.n_rows,)
    }
    return replace(table, side=side)


def _unnamed(array: object, source: str) -> Table:
    """Take an array as a table whose columns are numbered from 1, unless they are pixels."""
    table = as_table(array)
    names = table.names if table.named or table.image else numbered_names(table.n_columns)
    return replace(table, names=names, source=source)


def _read_parquet(path: Path) -> Table:
    return _from_arrow(lambda: pyarrow("parquet").read_table(path), path.name)


def _read_arrow(path: Path) -> Table:
    feather = pyarrow("feather")
    ipc = pyarrow("ipc")

    def read() -> object:
        with path.open("rb") as file:
            if file.read(4) in {b"ARRO", b"FEA1"}:
                return feather.read_table(path)
            file.seek(0)
            return ipc.open_stream(file).read_all()

    return _from_arrow(read, path.name)


def _from_arrow(read: Callable[[], object], source: str) -> Table:
    error_type: type[Exception] = pyarrow("lib").ArrowException
    try:
        table = as_table(read())
    except error_type as error:
        raise TableError(f"{source} cannot be read: {error}") from error
    return replace(table, source=source)


def pyarrow(module: str) -> Any:
    """Import a part of pyarrow, which is an extra."""
    try:
        return import_module(f"pyarrow.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "Parquet and Arrow files need pyarrow, which is not installed; pip install 'coterie[arrow]'"
        ) from error


BINARY_READERS: dict[str, Callable[[Path], Table]] = {
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".ipc": _read_arrow,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".mat": _read_mat,
}
