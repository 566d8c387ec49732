"""Table, the input of everything else: its type, the conversion of arrays and frames, and the choice of columns."""

import difflib
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from functools import cached_property, lru_cache
from itertools import product
from numbers import Number
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final

import narwhals as nw
import numpy as np
import numpy.typing as npt

from coterie.errors import EmptyTableError, TableError
from coterie.tables.values import TypedColumn, infer_column, is_time_name, read_epochs

Array: TypeAlias = npt.NDArray[Any]
ColumnKind: TypeAlias = Literal["number", "boolean", "date", "category"]
ImageShape: TypeAlias = tuple[int, int, int]  # height, width and channels: 1 for grey, 3 for red, green and blue

_KINDS: dict[str, ColumnKind] = {
    "i": "number",
    "u": "number",
    "f": "number",
    "b": "boolean",
    "M": "date",
    "O": "category",
}
_RGB, _RGBA = 3, 4
_ELEMENTS_PER_BATCH = 2**22
_FEW_COLUMNS = 100  # of a sparse matrix that is made dense at once
_MOST_DENSE = 2**28  # values of a sparse matrix that is made dense: 2 GiB
_LAST_PIXEL = re.compile(r"pixel (\d+),(\d+)(?:,(\d+))?")


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Rows and named columns, read-only: one 2-D numeric ``block``, a ``sparse`` matrix, or separate ``columns``."""

    names: tuple[str, ...]  # one distinct name per column
    columns: tuple[Array, ...] = ()  # 1-D arrays of numbers, booleans, datetime64, or objects: ``str`` or ``None``
    block: Array | None = None  # 2-D array of numbers or booleans, the caller's own memory
    named: bool = True  # whether the names came with the data; False if they are generated
    extra_columns: Mapping[str, Array] = field(default_factory=dict)  # known labels, file names; never clustered
    notes: tuple[str, ...] = ()  # what reading the data decided, one sentence each
    source: str = "memory"  # where the table came from, for messages
    image: ImageShape | None = None  # shape of the images, if each row is one: its pixels row by row, channels last
    sparse: Any = None  # a scipy.sparse.csr_array of many columns; `densify` makes it a block
    date_orders: Mapping[str, str] = field(default_factory=dict)
    """Of columns of dates with the day or the month first: ``TypedColumn.date_order``."""

    def __post_init__(self) -> None:
        if self.sparse is not None:
            lengths, width = {self.sparse.shape[0]}, self.sparse.shape[1]
        elif self.block is None:
            object.__setattr__(self, "columns", tuple(map(_read_only, self.columns)))
            lengths, width = {len(column) for column in self.columns}, len(self.columns)
        else:
            object.__setattr__(self, "block", _read_only(self.block))
            lengths, width = {self.block.shape[0]}, self.block.shape[1]
        if len(lengths) > 1 or width != len(self.names):
            raise TableError(
                f"A table needs one name per column and columns of equal length. Got {len(self.names)} names, "
                f"{width} columns, lengths {sorted(lengths)}."
            )
        if self.image is not None and math.prod(self.image) != width:
            raise TableError(
                f"Images of shape {self.image} (height, width, channels) have {math.prod(self.image):,} pixels, "
                f"but the table has {width:,} columns. Give the shape whose product is that number."
            )
        extra = {name: _read_only(values) for name, values in self.extra_columns.items()}
        object.__setattr__(self, "extra_columns", MappingProxyType(extra))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        if self.block is not None or self.sparse is not None:
            return int((self.sparse if self.block is None else self.block).shape[0])
        return len(self.columns[0]) if self.columns else 0

    @property
    def n_columns(self) -> int:
        """Number of columns, without `extra_columns`."""
        return len(self.names)

    @cached_property
    def kinds(self) -> tuple[ColumnKind, ...]:
        """Kind of each column."""
        if self.block is not None or self.sparse is not None:
            dtype = (self.sparse if self.block is None else self.block).dtype
            return (_KINDS[dtype.kind],) * self.n_columns
        return tuple(_KINDS[column.dtype.kind] for column in self.columns)

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Position of each column by its name."""
        return {name: position for position, name in enumerate(self.names)}

    @property
    def side(self) -> Mapping[str, Array]:
        """Former name of ``extra_columns``."""
        warnings.warn("Table.side was renamed to extra_columns.", FutureWarning, stacklevel=2)
        return self.extra_columns

    def column(self, position: int) -> Array:
        """Return one column without copying it, unless it is sparse."""
        if self.sparse is not None:
            return np.asarray(self.sparse[:, [position]].toarray()[:, 0])
        return self.columns[position] if self.block is None else self.block[:, position]

    def select(self, positions: Sequence[int]) -> "Table":
        """Return a table of these columns in this order; some of an image's pixels are no image."""
        if list(positions) == list(range(self.n_columns)):
            return self
        names = tuple(self.names[i] for i in positions)
        if self.sparse is not None:
            return replace(self, names=names, sparse=self.sparse[:, list(positions)])
        if self.block is None:
            return replace(self, names=names, columns=tuple(self.columns[i] for i in positions), image=None)
        return replace(self, names=names, block=self.block[:, list(positions)], image=None)


def take_rows(table: Table, rows: npt.NDArray[np.int64]) -> Table:
    """Return a table of some of the rows."""
    extra = {name: values[rows] for name, values in table.extra_columns.items()}
    if table.sparse is not None:
        return replace(table, sparse=table.sparse[rows], extra_columns=extra)
    if table.block is not None:
        return replace(table, block=table.block[rows], extra_columns=extra)
    return replace(table, columns=tuple(column[rows] for column in table.columns), extra_columns=extra)


def _read_only(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view


def as_table(X: object) -> Table:
    """Convert an array, a data frame, a tensor or a list of rows to a `Table`.

    Rows are samples. Numeric arrays are not copied. Arrays (n, height, width) or (n, height, width, channels) are
    images; a fourth channel is opacity, blended with white. Columns have the names of the frame, or `x0, x1, ...`, or
    for images `pixel 0,0, pixel 0,1, ...`. Sparse matrices of more than 100 columns stay sparse. Data that is empty or
    complex raises a `TableError`.

    Examples
    --------
    >>> as_table([[1.0, 2.0], [3.0, 4.0]]).names
    ('x0', 'x1')
    """
    sparse: Any = sys.modules.get("scipy.sparse")  # a sparse matrix exists only if scipy is imported already
    if isinstance(X, Table):
        table = X
    elif sparse is not None and sparse.issparse(X):
        table = _from_sparse(X)
    else:
        frame = _to_frame(X)
        table = _from_array(_to_array(X)) if frame is None else _from_frame(frame)
    for size, what in ((table.n_rows, "sample(s)"), (table.n_columns, "feature(s)")):
        if size == 0:
            shape = (table.n_rows, table.n_columns)
            raise EmptyTableError(f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required.")
    return table


def _to_frame(X: Any) -> nw.DataFrame[Any] | None:
    try:
        frame: object = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise TableError(f"{error}. Give every column its own name.") from error
    if isinstance(frame, nw.LazyFrame):
        raise TableError(f"A lazy frame was passed ({type(X).__name__}). Call its .collect() first.")
    return frame if isinstance(frame, nw.DataFrame) else None


def _to_array(X: object) -> Array:
    torch: Any = sys.modules.get("torch")  # a tensor exists only if torch is imported already
    if torch is not None and isinstance(X, torch.Tensor):
        tensor: Any = X.detach().cpu()
        return np.asarray(tensor.float() if tensor.dtype == torch.bfloat16 else tensor)
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "iufb":
        return np.asarray(np.ma.filled(X.astype(np.float64), np.nan))
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise TableError(f"The rows do not form a table, since they differ in length: {error}.") from error
    if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
        # Numbers among strings were converted to strings; an object array keeps the type of each value.
        array = np.asarray(X, dtype=object)
    return array


def _from_array(array: Array) -> Table:
    if array.dtype.names is not None and array.ndim == 1:
        names = array.dtype.names
        return from_columns(names, [_to_column(array[name], name) for name in names], source="structured array")
    kind = array.dtype.kind
    if array.ndim in {3, 4} and kind in "iufb":
        block, shape = _flatten_images(_to_64_bits(array))
        return Table(pixel_names(shape), block=block, named=False, source="array", image=shape)
    if array.ndim > 2:
        raise TableError(
            f"Found array with dim {array.ndim} (shape={array.shape}) and dtype {array.dtype}; expected 2 dimensions, "
            "or numeric images (n, height, width) or (n, height, width, channels). "
            "Flatten each sample, for example with X.reshape(len(X), -1)."
        )
    if array.ndim < 2:
        raise TableError(
            f"Expected 2D array, got {'1D' if array.ndim else 'scalar'} array instead (shape={array.shape}). Reshape "
            "your data either using array.reshape(-1, 1) if your data has a single feature or array.reshape(1, -1) "
            "if it contains a single sample."
        )
    if kind == "c":
        raise TableError(f"Complex data not supported: the dtype is {array.dtype}. Use its real and imaginary parts.")
    names = tuple(f"x{i}" for i in range(array.shape[1]))
    if kind in "iufb":
        return Table(names, block=_to_64_bits(array), named=False, source="array")
    if kind == "O" and not any(isinstance(value, str | bytes) for value in array.flat):
        with suppress(ValueError, TypeError):  # if not all values are numbers, convert column by column
            return Table(names, block=array.astype(np.float64), named=False, source="array")
    columns = [_to_column(array[:, i], name) for i, name in enumerate(names)]
    return from_columns(names, columns, named=False, source="array")


def from_columns(names: tuple[str, ...], columns: Sequence[TypedColumn], **options: Any) -> Table:
    """Return a table of columns whose types were found; one note says what was decided of a column, or of several."""
    deciding: dict[tuple[str, ...], list[str]] = {}
    for name, column in zip(names, columns, strict=True):
        if column.notes:
            deciding.setdefault(column.notes, []).append(name)
    notes = (
        f"column{'s' if len(which) > 1 else ''} {format_list(which)}: {'; '.join(told)}"
        for told, which in deciding.items()
    )
    orders = {name: column.date_order for name, column in zip(names, columns, strict=True) if column.date_order}
    values = tuple(column.values for column in columns)
    return Table(names, values, notes=tuple(notes), date_orders=orders, **options)


def merge_notes(notes: Iterable[str]) -> tuple[str, ...]:
    """Join the notes on the same column, or columns.

    Examples
    --------
    >>> merge_notes(["column 'day': read as dates", "no header", "column 'day': also compared by weekday"])
    ("column 'day': read as dates; also compared by weekday", 'no header')
    """
    merged: dict[str, list[str]] = {}
    for note in notes:
        head, colon, told = note.partition("': ")
        about_columns = colon and head.startswith(("column '", "columns '"))
        merged.setdefault(head + colon if about_columns else note, []).extend([told] if about_columns else [])
    return tuple(about + "; ".join(dict.fromkeys(told)) for about, told in merged.items())


def _from_sparse(matrix: Any) -> Table:
    """Convert a matrix of scipy; one of few columns becomes dense."""
    rows = matrix.tocsr()
    if rows.dtype.kind not in "iufb":
        raise TableError(f"Complex data not supported: the dtype is {rows.dtype}. Use its real and imaginary parts.")
    names = tuple(f"x{i}" for i in range(rows.shape[1]))
    table = Table(names, named=False, source="sparse matrix", sparse=rows)
    return table if len(names) > _FEW_COLUMNS else densify(table)


def densify(table: Table) -> Table:
    """Return a table whose matrix is dense, if it was sparse and its values fit in memory."""
    if table.sparse is None:
        return table
    size = math.prod(table.sparse.shape)
    if size > _MOST_DENSE:
        shape = " x ".join(f"{n:,}" for n in table.sparse.shape)
        raise TableError(
            f"Sparse data with {size:,} values ({shape}) was passed; at most "
            f"{_MOST_DENSE:,} are made dense. Use Coterie, which reduces its columns first, or reduce them yourself: "
            "sklearn.decomposition.TruncatedSVD(100).fit_transform(X)."
        )
    dense = table.sparse.toarray()
    zeros = 1 - np.count_nonzero(dense) / size if size else 0.0
    note = f"the matrix is sparse ({zeros:.1%} zeros) and was made dense"
    return replace(table, block=_to_64_bits(dense), sparse=None, notes=(*table.notes, note))


def _to_64_bits(array: Array) -> Array:
    """Convert numbers of more than 64 bits to float64."""
    return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def _to_column(values: Array, name: str) -> TypedColumn:
    """Convert one column of an array to the type of its values."""
    match values.dtype.kind:
        case "i" | "u" | "f":
            return _numbers_to_column(_to_64_bits(values), name)
        case "b":
            return TypedColumn(values)
        case "M":
            return TypedColumn(values.astype("datetime64[us]"))
        case "m":
            return TypedColumn(_to_seconds(values))
        case "S":
            return _objects_to_column(np.char.decode(values, "utf-8", "replace").tolist(), name)
        case "U" | "O":
            return _objects_to_column(values.tolist(), name)
    raise TableError(f"Column {name!r} has the dtype {values.dtype}, which is not a number, text or date. Drop it.")


def _numbers_to_column(numbers: Array, name: str) -> TypedColumn:
    return read_epochs(numbers, name) or TypedColumn(numbers)


def _objects_to_column(values: Sequence[object], name: str) -> TypedColumn:
    """Convert Python objects to numbers or dates; texts, and objects of several types, as a file has them."""
    present = [None if _is_missing(value) else value for value in values]
    types = {type(value) for value in present if value is not None}
    for value in present:
        if isinstance(value, complex | np.complexfloating):
            raise TableError(f"Complex data not supported: column {name!r} has {value!r}.")
        if not isinstance(value, str | bytes | Number | np.generic | date | time | None):
            raise TypeError(
                f"argument must be a string or a number: column {name!r} has a value of type "
                f"{type(value).__name__!r}. Drop the column or split it."
            )
    if types and all(issubclass(each, date) for each in types):
        moments = [to_utc(value) if isinstance(value, date) else None for value in present]
        return TypedColumn(np.array(moments, dtype="datetime64[us]"))
    if not any(issubclass(each, str | bytes | date | time) for each in types):
        with suppress(ValueError, TypeError):
            numbers = np.array(present, dtype=object).astype(np.float64)
            if types and types <= {bool, np.bool_} and None not in present:
                return TypedColumn(numbers.astype(np.bool_))
            return _numbers_to_column(numbers, name)
    return infer_column([None if value is None else _to_text(value) for value in present], name=name)


def _to_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT."""
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float | np.floating) and math.isnan(value)


def to_utc(moment: date) -> date:
    """Convert a moment with a time zone to UTC, without a time zone as in numpy."""
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return moment.astimezone(UTC).replace(tzinfo=None)
    return moment


def text_column(values: Sequence[str | None]) -> Array:
    """Return strings as an array of objects."""
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def _to_seconds(durations: Array) -> Array:
    seconds = durations.astype("timedelta64[us]").astype(np.float64) / 1e6
    seconds[np.isnat(durations)] = np.nan
    return seconds


def _from_frame(frame: nw.DataFrame[Any]) -> Table:
    names = tuple(map(str, frame.columns))
    named = all(isinstance(name, str) for name in frame.columns)
    source = type(frame.to_native()).__module__.partition(".")[0] + " frame"
    if not names:
        return Table((), block=np.empty(frame.shape), named=named, source=source)
    if all(dtype.is_numeric() and not dtype.is_decimal() for dtype in frame.schema.dtypes()):
        block = frame.to_numpy()
        epochs = (read_epochs(block[:, i], name) for i, name in enumerate(names) if is_time_name(name))
        if block.dtype.kind in "iuf" and not any(epochs):
            return Table(names, block=_to_64_bits(block), named=named, source=source)
    columns = [_series_to_column(series, name) for series, name in zip(frame.iter_columns(), names, strict=True)]
    return from_columns(names, columns, named=named, source=source)


def _series_to_column(series: nw.Series[Any], name: str) -> TypedColumn:
    """Convert one column of a frame by its declared type; texts are read like those of a file."""
    dtype = series.dtype
    if dtype == nw.Boolean and not series.is_null().any():
        return TypedColumn(np.asarray(series.to_numpy(), dtype=np.bool_))
    if dtype.is_numeric() or dtype == nw.Boolean:
        return _numbers_to_column(np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64), name)
    if isinstance(dtype, nw.Date | nw.Datetime):
        if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return TypedColumn(np.asarray(series.to_numpy()).astype("datetime64[us]"))
    if isinstance(dtype, nw.Duration):
        return TypedColumn(_to_seconds(np.asarray(series.to_numpy(), dtype="timedelta64[us]")))
    if isinstance(dtype, nw.Categorical | nw.Enum | nw.String):
        texts = [None if _is_missing(value) else str(value) for value in series.to_list()]
        # The levels of a category were chosen, so that they are kept as they are.
        return infer_column(texts, name=name) if isinstance(dtype, nw.String) else TypedColumn(text_column(texts))
    if isinstance(dtype, nw.Time | nw.Object | nw.Unknown):
        return _objects_to_column(series.to_list(), name)
    raise TableError(
        f"Column {name!r} has the type {dtype}, which is not a number, text or date. Drop the column or split it."
    )


@lru_cache(maxsize=16)
def pixel_names(shape: ImageShape) -> tuple[str, ...]:
    """Name the columns of images: "pixel 3,7" is row 3, column 7, from 0; a third number is the channel."""
    counted = shape[:2] if shape[2] == 1 else shape
    return tuple("pixel " + ",".join(map(str, position)) for position in product(*map(range, counted)))


def image_shape(names: Sequence[str]) -> ImageShape | None:
    """Return the shape of images from the names of their columns; None for other columns.

    Examples
    --------
    >>> image_shape(pixel_names((8, 6, 3)))
    (8, 6, 3)
    """
    last = _LAST_PIXEL.fullmatch(names[-1]) if names else None
    if last is None:
        return None
    height, width, channels = (1 + int(number or 0) for number in last.groups())
    shape = height, width, channels
    # Compare the number of columns first: a forged name could stand for an image of any size.
    return shape if math.prod(shape) == len(names) and pixel_names(shape) == tuple(names) else None


def format_size(shape: Sequence[int]) -> str:
    """Format height and width as the command's options take them, such as 28x28."""
    return f"{shape[0]}x{shape[1]}"


def _flatten_images(images: Array) -> tuple[Array, ImageShape]:
    """Reshape images (n, height, width[, channels]) to rows of pixels, without a copy if they are opaque."""
    if images.ndim == 3:
        images = images[..., None]
    height, width, channels = images.shape[1:]
    if channels not in {1, _RGB, _RGBA}:
        found = (
            f"Found array with dim 4 (shape={images.shape}); images must have the shape (n, height, width, channels)"
        )
        if height in {1, _RGB}:
            raise TableError(
                f"{found}, but here the channels come first. Move them to the end: X.transpose(0, 2, 3, 1), "
                "or X.permute(0, 2, 3, 1) of a tensor."
            )
        raise TableError(f"{found} with 1, 3 or 4 channels. Reshape it, or flatten each sample: X.reshape(len(X), -1).")
    if channels == _RGBA:
        images, channels = _blend_with_white(images), _RGB
    return images.reshape(len(images), height * width * channels), (height, width, channels)


def _blend_with_white(images: Array) -> Array:
    """Blend colours (n, height, width, 4) with white by their opacity, a few images at a time."""
    if images.dtype.kind == "b" or (images.dtype.kind == "f" and not (images > 1).any()):
        white = 1.0
    else:
        white = 65535.0 if images.dtype == np.uint16 else 255.0
    blended = np.empty((*images.shape[:3], _RGB), dtype=images.dtype)
    step = max(1, _ELEMENTS_PER_BATCH // max(1, math.prod(images.shape[1:])))
    for start in range(0, len(images), step):
        batch = images[start : start + step].astype(np.float64)
        opacity = batch[..., _RGB:] / white
        colours = batch[..., :_RGB] * opacity + white * (1 - opacity)
        blended[start : start + step] = colours if images.dtype.kind == "f" else np.rint(colours)
    return blended


@final
@dataclass(frozen=True, eq=False)
class ColumnChoice:
    """The columns to cluster, and the row ids and known labels beside them."""

    features: Table
    ids: Array | None = None
    truth: Array | None = None
    ids_name: str | None = None
    truth_name: str | None = None


def choose_columns(
    table: Table,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    ids: str | None = None,
    truth: str | None = None,
) -> ColumnChoice:
    """Choose the columns to cluster: `columns` in this order (all by default), except `drop`, `ids` and `truth`.

    A number that is no name counts columns from 1. Row ids and known labels may also be among the `extra_columns`.

    Examples
    --------
    >>> import numpy as np
    >>> table = Table(("who", "height", "weight"), (np.arange(3), np.ones(3), np.ones(3)))
    >>> choose_columns(table, ids="who", drop=["weight"]).features.names
    ('height',)
    """
    kept = range(table.n_columns) if columns is None else dict.fromkeys(_find_column(table, name) for name in columns)
    excluded = {_find_column(table, name) for name in drop or ()}
    ids_name, ids_values = _take_aside(table, ids, excluded)
    truth_name, truth_values = _take_aside(table, truth, excluded)
    positions = [position for position in kept if position not in excluded]
    if not positions:
        raise TableError(
            f"No column of {table.source} is left to cluster; it has {format_list(table.names)}. "
            "Drop fewer columns or choose others."
        )
    return ColumnChoice(table.select(positions), ids_values, truth_values, ids_name, truth_name)


def column_position(table: Table, name: str) -> int | None:
    """Return the position of a column, given its name, or its number from 1 if no column has that name."""
    if name in table.positions:
        return table.positions[name]
    if name.isdecimal() and 1 <= int(name) <= table.n_columns:
        return int(name) - 1
    return None


def _find_column(table: Table, name: str, others: Sequence[str] = ()) -> int:
    position = column_position(table, name)
    if position is not None:
        return position
    raise unknown_column(table, name, others)


def unknown_column(table: Table, name: str, others: Sequence[str] = ()) -> TableError:
    """Return the error that no column of a table, and none of the others, is called like this; list similar names."""
    known = (*others, *table.names)
    by_lowered = {other.lower(): other for other in known}
    close = [by_lowered[match] for match in difflib.get_close_matches(name.strip().lower(), by_lowered, n=3)]
    hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
    return TableError(f"No column of {table.source} is called {name!r}.{hint} Columns: {format_list(known, 30)}.")


def _take_aside(table: Table, name: str | None, excluded: set[int]) -> tuple[str | None, Array | None]:
    """Return the name and values of a column that is not clustered, and exclude it from the features."""
    if name is None:
        return None, None
    if name not in table.positions and name in table.extra_columns:
        return name, as_integers(table.extra_columns[name])
    position = _find_column(table, name, tuple(table.extra_columns))
    excluded.add(position)
    return table.names[position], as_integers(table.column(position))


def as_integers(values: Array) -> Array:
    """Convert floats that are all integers to int64, so that an id 7 is not written as 7.0."""
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return values
    exact = np.abs(values) < 2.0**53
    return values.astype(np.int64) if (exact & (values == np.floor(values))).all() else values


def unique_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fill in empty names and number repeated ones; return the names, and notes about them."""
    notes = []
    filled = [name.strip() or f"column_{number}" for number, name in enumerate(names, start=1)]
    if unnamed := [new for new, old in zip(filled, names, strict=True) if not old.strip()]:
        notes.append(f"columns without a name were called {format_list(unnamed)}")
    taken = set(filled)
    seen: Counter[str] = Counter()
    unique = []
    for name in filled:
        seen[name] += 1
        number, new = seen[name], name
        if number > 1:
            while (new := f"{name}_{number}") in taken:
                number += 1
            taken.add(new)
        unique.append(new)
    if repeated := [name for name, count in seen.items() if count > 1]:
        notes.append(f"repeated column names were numbered: {format_list(repeated)}")
    return tuple(unique), tuple(notes)


def format_list(names: Sequence[str], at_most: int = 10) -> str:
    """Quote names for a message and abbreviate a long list.

    Examples
    --------
    >>> format_list(["a", "b", "c"], 2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(map(repr, names[:at_most]))
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"
