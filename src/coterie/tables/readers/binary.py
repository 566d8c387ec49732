"""Binary files of arrays or typed columns: NumPy, MATLAB, Parquet and Arrow."""

import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from coterie.errors import TableError
from coterie.tables.readers.arrow import from_arrow
from coterie.tables.readers.delimited import numbered_names
from coterie.tables.readers.sparse import read_sparse_archive
from coterie.tables.table import Array, Table, as_table, unique_names

_TABLE_NAMES = ("X", "images")
_SPARSE_KEYS = {"format", "shape", "data"}  # of every archive that scipy.sparse.save_npz writes


def read_npy(path: Path) -> Table:
    """Read one array; pickled objects are rejected."""
    try:
        with path.open("rb") as file:  # numpy does not close damaged files
            array = np.load(file, allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # damaged headers, which are parsed as Python's literals, raise anything
        raise TableError(f"{path.name} is not a plain .npy array of numbers. Save it with numpy.save.") from error
    return _from_array(array, path.name)


def read_npz(path: Path) -> Table:
    """Read an archive of arrays; pickled objects are rejected."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, MemoryError):
        raise
    except Exception as error:  # damaged archives raise anything
        raise TableError(f"{path.name} is not a plain .npz archive. Save it with numpy.savez.") from error
    if arrays.keys() >= _SPARSE_KEYS:
        return read_sparse_archive(path)
    return _from_arrays(arrays, path.name)


def read_mat(path: Path) -> Table:
    """Read the arrays of a MATLAB file of version 7 or earlier."""
    from scipy.io import loadmat, matlab  # noqa: PLC0415  (slow to import; --help, which lists the formats, is fast)

    try:
        content = loadmat(path)
    except NotImplementedError as error:
        raise TableError(f"{path.name} is a MATLAB 7.3 file. In MATLAB, save it with the option '-v7'.") from error
    except (ValueError, TypeError, matlab.MatReadError, zlib.error) as error:
        raise TableError(f"{path.name} is not a MATLAB file: {error}.") from error
    arrays = {name: value for name, value in content.items() if not name.startswith("__")}
    # MATLAB has no vectors: arrays with one row or one column are vectors, unless called X.
    vectors = {
        name: value.ravel()
        for name, value in arrays.items()
        if name != "X" and isinstance(value, np.ndarray) and value.ndim == 2 and 1 in value.shape
    }
    return _from_arrays({**arrays, **vectors}, path.name)


def _from_arrays(arrays: Mapping[str, Any], source: str) -> Table:
    """Return X, or images, or the only two-dimensional array as a table; vectors of its length are extra columns."""
    by_name = [name for name in _TABLE_NAMES if name in arrays]
    tables = by_name or [name for name, value in arrays.items() if np.ndim(value) == 2]
    if not by_name and len(tables) != 1:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in arrays.items())
        raise TableError(
            f"{source} must have an array called X or images, or exactly one two-dimensional array. "
            f"It has {shapes or 'no arrays'}."
        )
    table = _from_array(arrays[tables[0]], source)
    given = arrays.get("feature_names")
    if given is not None and np.shape(given) == (table.n_columns,):
        names, notes = unique_names([str(name) for name in given])
        table = replace(table, names=names, named=True, notes=(*table.notes, *notes))
    extra_columns = {
        name: value
        for name, value in arrays.items()
        if name not in {tables[0], "feature_names"} and np.shape(value) == (table.n_rows,)
    }
    return replace(table, extra_columns=extra_columns)


def _from_array(array: object, source: str) -> Table:
    """Return an array as a table; its columns are numbered from 1, unless they are pixels."""
    table = as_table(array)
    names = table.names if table.named or table.image else numbered_names(table.n_columns)
    return replace(table, names=names, source=source)


def read_parquet(path: Path) -> Table:
    """Read a Parquet file."""
    return _from_arrow(lambda: import_pyarrow("parquet").read_table(path), path.name)


def read_arrow(path: Path) -> Table:
    """Read an Arrow file, a Feather file or an Arrow stream."""
    feather, ipc = import_pyarrow("feather"), import_pyarrow("ipc")

    def read() -> object:
        with path.open("rb") as file:
            if file.read(4) in {b"ARRO", b"FEA1"}:
                return feather.read_table(path)
            file.seek(0)
            return ipc.open_stream(file).read_all()

    return _from_arrow(read, path.name)


def to_parquet(names: Sequence[str], columns: Sequence[Array]) -> bytes:
    """Format columns as a Parquet file."""
    arrow, parquet = import_pyarrow("lib"), import_pyarrow("parquet")
    out = io.BytesIO()
    parquet.write_table(arrow.Table.from_arrays([arrow.array(column) for column in columns], list(names)), out)
    return out.getvalue()


def import_pyarrow(module: str) -> Any:
    """Import a module of pyarrow, which is slow and needed for some formats only."""
    return import_module(f"pyarrow.{module}")


def _from_arrow(read: Callable[[], object], source: str) -> Table:
    error_type: type[Exception] = import_pyarrow("lib").ArrowException
    try:
        return from_arrow(read(), source)
    except error_type as error:
        raise TableError(f"{source} cannot be read: {error}.") from error
