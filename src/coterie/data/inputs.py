"""From what Python users hold (arrays, frames, tensors, lists) to a `Table`."""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from numbers import Number
from typing import Any

import narwhals as nw
import numpy as np

from coterie.data.columns import Array, Table
from coterie.data.pixels import as_pixels, pixel_names
from coterie.errors import TableError


def as_table(X: object) -> Table:
    """Take an array, a data frame, a tensor or a list of rows as a `Table`.

    Parameters
    ----------
    X : array-like, pandas or polars DataFrame, pyarrow Table, torch tensor
        Rows are samples. Numeric arrays are taken as they are, without a copy. Those of three dimensions (n, height,
        width) or four (n, height, width, channels) are images; a fourth channel is opacity, and they are put on white.

    Returns
    -------
    Table
        With the frame's own column names, or `x0, x1, ...`, or for images `pixel 0,0, pixel 0,1, ...`.

    Raises
    ------
    TableError
        (a `ValueError`) when the data is empty, sparse, complex, or of one dimension or more than four.

    Examples
    --------
    >>> as_table([[1.0, 2.0], [3.0, 4.0]]).names
    ('x0', 'x1')
    """
    if isinstance(X, Table):
        table = X
    elif _is_sparse(X):
        raise TableError(
            f"Sparse data was passed ({type(X).__name__}), but dense data is required. "
            "Use X.toarray() if it fits in memory, or sklearn.decomposition.TruncatedSVD to shorten it first."
        )
    else:
        frame = _as_frame(X)
        table = _from_array(_as_array(X)) if frame is None else _from_frame(frame)
    for size, what in ((table.n_rows, "sample(s)"), (table.n_columns, "feature(s)")):
        if size == 0:
            shape = (table.n_rows, table.n_columns)
            raise TableError(f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required.")
    return table


def _is_sparse(X: object) -> bool:
    sparse: Any = sys.modules.get("scipy.sparse")  # such a matrix exists only where scipy is imported already
    return sparse is not None and bool(sparse.issparse(X))


def _as_frame(X: Any) -> nw.DataFrame[Any] | None:
    try:
        frame: object = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise TableError(f"{error}. Give every column a name of its own.") from error
    if isinstance(frame, nw.LazyFrame):
        raise TableError(f"a lazy frame was passed ({type(X).__name__}); call its .collect() first")
    return frame if isinstance(frame, nw.DataFrame) else None


def _as_array(X: object) -> Array:
    torch: Any = sys.modules.get("torch")  # a tensor exists only where torch is imported already
    if torch is not None and isinstance(X, torch.Tensor):
        tensor: Any = X.detach().cpu()
        return np.asarray(tensor.float() if tensor.dtype == torch.bfloat16 else tensor)
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "iufb":
        return np.asarray(np.ma.filled(X.astype(np.float64), np.nan))
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise TableError(f"the rows do not form a table, since they differ in length: {error}") from error
    if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
        # Numbers among texts were turned into texts; objects keep each value's own type.
        array = np.asarray(X, dtype=object)
    return array


def _from_array(array: Array) -> Table:
    if array.dtype.names is not None and array.ndim == 1:
        names = array.dtype.names
        return Table(names, tuple(_typed(array[name], name) for name in names), source="structured array")
    kind = array.dtype.kind
    if array.ndim in {3, 4} and kind in "iufb":
        block, shape = as_pixels(_plain_numbers(array))
        return Table(pixel_names(shape), block=block, named=False, source="array", image=shape)
    if array.ndim != 2:
        raise TableError(_not_two_dimensional(array))
    if kind == "c":
        raise TableError(f"Complex data not supported: the dtype is {array.dtype}. Use its real and imaginary parts.")
    names = tuple(f"x{i}" for i in range(array.shape[1]))
    if kind in "iufb":
        return Table(names, block=_plain_numbers(array), named=False, source="array")
    if kind == "O":
        try:
            return Table(names, block=array.astype(np.float64), named=False, source="array")
        except (ValueError, TypeError):  # some value is text, or no number at all: each column tells
            pass
    columns = tuple(_typed(array[:, i], name) for i, name in enumerate(names))
    return Table(names, columns, named=False, source="array")


def _not_two_dimensional(array: Array) -> str:
    if array.ndim > 2:
        return (
            f"Found array with dim {array.ndim} (shape={array.shape}) and dtype {array.dtype}, while 2 dimensions are "
            "expected, of which rows are samples, or numbers that are images (n, height, width) or (n, height, width, "
            "channels). Flatten each sample, such as by X.reshape(len(X), -1)."
        )
    seen = "scalar array" if array.ndim == 0 else "1D array"
    return (
        f"Expected 2D array, got {seen} instead (shape={array.shape}). Reshape your data either using "
        "array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) if it contains "
        "a single sample."
    )


def _plain_numbers(array: Array) -> Array:
    """Bring what numpy holds in more than 64 bits down to float64."""
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def _typed(column: Array, name: str) -> Array:
    """Give one column of an array the type that its values have."""
    match column.dtype.kind:
        case "i" | "u" | "f" | "b":
            return _plain_numbers(column)
        case "M":
            return column.astype("datetime64[us]")
        case "m":
            return _seconds(column)
        case "S":
            return _typed_objects(np.char.decode(column, "utf-8", "replace").tolist(), name)
        case "U" | "O":
            return _typed_objects(column.tolist(), name)
    raise TableError(f"column {name!r} has the dtype {column.dtype}, which is no number, text or date; drop it")


def _typed_objects(values: Sequence[object], name: str, *, text_stays: bool = False) -> Array:
    """Find what Python objects have in common: numbers, dates, or else texts; None and NaN are missing."""
    present = [None if _is_missing(value) else value for value in values]
    kinds = {type(value) for value in present if value is not None}
    moments = [_without_zone(value) for value in present if isinstance(value, date)]
    if moments and all(issubclass(kind, date) for kind in kinds):
        dates = np.full(len(present), np.datetime64("NaT"), dtype="datetime64[us]")
        dates[[value is not None for value in present]] = moments
        return dates
    for value in present:
        if isinstance(value, complex | np.complexfloating):
            raise TableError(f"Complex data not supported: column {name!r} has {value!r}.")
        if not isinstance(value, str | bytes | Number | np.generic | date | time | None):
            raise TypeError(
                f"argument must be a string or a number: column {name!r} has a value of type "
                f"{type(value).__name__!r}. Drop the column or take it apart."
            )
    if not (text_stays and kinds <= {str, np.str_}):
        try:
            numbers = np.array(present, dtype=object).astype(np.float64)
        except (ValueError, TypeError):
            pass
        else:
            return numbers.astype(np.bool_) if kinds and kinds <= {bool, np.bool_} and None not in present else numbers
    return _texts([None if value is None else str(value) for value in present])


def _is_missing(value: object) -> bool:
    """Tell None, NaN, and pandas' own NA and NaT, which only pandas could compare with."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def _without_zone(moment: date) -> date:
    """Take a moment in any time zone to the same moment in UTC, which numpy's dates are in."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None)
    return moment


def _texts(values: Sequence[str | None]) -> Array:
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def _seconds(durations: Array) -> Array:
    seconds = durations.astype("timedelta64[us]").astype(np.float64) / 1e6
    seconds[np.isnat(durations)] = np.nan
    return seconds


def _from_frame(frame: nw.DataFrame[Any]) -> Table:
    names = tuple(str(name) for name in frame.columns)
    source = type(frame.to_native()).__module__.partition(".")[0] + " frame"
    table = Table(
        names,
        (np.empty(0),) * len(names),
        named=all(isinstance(n, str) for n in frame.columns),
        source=source,
    )
    if names and all(dtype.is_numeric() and not dtype.is_decimal() for dtype in frame.schema.dtypes()):
        block = frame.to_numpy()
        if block.dtype.kind in "iuf":
            return replace(table, columns=(), block=_plain_numbers(block))
    columns = tuple(_series_values(series, name) for series, name in zip(frame.iter_columns(), names, strict=True))
    if not columns:
        return replace(table, columns=(), block=np.empty(frame.shape))
    return replace(table, columns=columns)


def _series_values(series: nw.Series[Any], name: str) -> Array:
    """Take one column of a frame as the type that the frame says it has."""
    dtype = series.dtype
    if dtype == nw.Boolean and not series.is_null().any():
        return np.asarray(series.to_numpy(), dtype=np.bool_)
    if dtype.is_numeric() or dtype == nw.Boolean:
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    if isinstance(dtype, nw.Date | nw.Datetime):
        return _dates(series)
    if isinstance(dtype, nw.Duration):
        return _seconds(np.asarray(series.to_numpy(), dtype="timedelta64[us]"))
    if isinstance(dtype, nw.Categorical | nw.Enum):
        return _texts([None if _is_missing(value) else str(value) for value in series.to_list()])
    if isinstance(dtype, nw.String | nw.Time | nw.Object | nw.Unknown):
        return _typed_objects(series.to_list(), name, text_stays=True)
    raise TableError(
        f"column {name!r} has the type {dtype}, which is no number, text or date; drop it or take it apart"
    )


def _dates(series: nw.Series[Any]) -> Array:
    if isinstance(series.dtype, nw.Datetime) and series.dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return np.asarray(series.to_numpy()).astype("datetime64[us]")
