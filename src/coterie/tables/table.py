"""The table that everything else in this package reads, and the choice of its columns."""

import difflib
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from functools import lru_cache
from itertools import product
from numbers import Number
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final

import narwhals as nw
import numpy as np
import numpy.typing as npt

from coterie.errors import TableError

Array: TypeAlias = npt.NDArray[Any]
ImageShape: TypeAlias = tuple[int, int, int]
"""Height, width and channels: 1 for grey, 3 for red, green and blue."""

_COLOUR = 3
_WITH_ALPHA = 4
_NUMBERS_AT_ONCE = 2**22
_LAST_PIXEL = re.compile(r"pixel (\d+),(\d+)(?:,(\d+))?")


@lru_cache(maxsize=16)
def pixel_names(shape: ImageShape) -> tuple[str, ...]:
    """Name the columns of images: `pixel 3,7` is in the fourth row from the top; a third number is the channel."""
    counted = shape[:2] if shape[2] == 1 else shape
    return tuple("pixel " + ",".join(map(str, place)) for place in product(*map(range, counted)))


def image_shape(names: Sequence[str]) -> ImageShape | None:
    """Return the shape of the images whose columns `pixel_names` named; None for other columns."""
    last = _LAST_PIXEL.fullmatch(names[-1]) if names else None
    if last is None:
        return None
    height, width, channels = (1 + int(number or 0) for number in last.groups())
    shape = height, width, channels
    # The number of columns is compared first: a name may claim an image of any size.
    fits = height * width * channels == len(names) and pixel_names(shape) == tuple(names)
    return shape if fits else None


def size_in_words(shape: Sequence[int]) -> str:
    """Write height and width as the command's options take them."""
    return f"{shape[0]}x{shape[1]}"


def as_pixels(images: Array) -> tuple[Array, ImageShape]:
    """Lay out images as rows of pixels.

    Parameters
    ----------
    images : array (n, height, width) or (n, height, width, channels)
        Numbers; 1, 3 or 4 channels, of which the fourth is opacity: such images are put on white.

    Returns
    -------
    block : array (n, pixels)
        Uncopied where possible.
    shape : (height, width, channels)
        Without opacity.

    Raises
    ------
    TableError
        When the last of four dimensions has another size, as that of images whose channels come first.
    """
    if images.ndim == 3:
        images = images[..., None]
    height, width, channels = images.shape[1:]
    if channels not in {1, _COLOUR, _WITH_ALPHA}:
        raise TableError(_channels_elsewhere(images))
    if channels == _WITH_ALPHA:
        images, channels = _on_white(images), _COLOUR
    return images.reshape(len(images), height * width * channels), (height, width, channels)


def _channels_elsewhere(images: Array) -> str:
    seen = f"Found array with dim 4 (shape={images.shape}), which is read as images (n, height, width, channels)"
    if images.shape[1] in {1, _COLOUR}:
        return (
            f"{seen}, but here the channels come first. Bring them to the end: X.transpose(0, 2, 3, 1), "
            "or X.permute(0, 2, 3, 1) of a tensor."
        )
    return f"{seen} with 1, 3 or 4 channels. Bring it into this form, or flatten each sample: X.reshape(len(X), -1)."


def _on_white(images: Array) -> Array:
    """Blend colours (n, height, width, 4) with white by their opacity, a few images at a time."""
    white = _brightest(images)
    opaque = np.empty((*images.shape[:3], _COLOUR), dtype=images.dtype)
    step = max(1, _NUMBERS_AT_ONCE // max(1, int(np.prod(images.shape[1:]))))
    for start in range(0, len(images), step):
        some = images[start : start + step].astype(np.float64)
        share = some[..., _COLOUR:] / white
        blended = some[..., :_COLOUR] * share + white * (1 - share)
        opaque[start : start + step] = blended if images.dtype.kind == "f" else np.rint(blended)
    return opaque


def _brightest(images: Array) -> float:
    """Return what white is: 1 where no fraction or truth value is above it, else the most that a byte, or two, hold."""
    if images.dtype.kind == "b" or (images.dtype.kind == "f" and not (images > 1).any()):
        return 1.0
    return 65535.0 if images.dtype == np.uint16 else 255.0


Array: TypeAlias = npt.NDArray[Any]
ColumnKind: TypeAlias = Literal["number", "boolean", "date", "category"]

_KIND_OF_DTYPE: dict[str, ColumnKind] = {
    "i": "number",
    "u": "number",
    "f": "number",
    "b": "boolean",
    "M": "date",
    "O": "category",
}


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Rows and named columns, read-only.

    A table holds either one 2-D numeric `block` (fast: the caller's own memory, not split up) or
    separate `columns`, never both.

    Parameters
    ----------
    names : tuple of str
        One name per column, all different.
    columns : tuple of 1-D arrays
        Numbers (float64, integers), booleans, datetime64, or objects that are `str` or `None`.
    block : 2-D array, optional
        Numbers or booleans, used in place of `columns`.
    named : bool
        Whether the names came with the data; False when they were made up here.
    side : mapping of str to 1-D arrays
        Values that came along, such as known labels; never clustered.
    notes : tuple of str
        What reading decided, in sentences for the user.
    source : str
        Where the table came from.
    image : (height, width, channels), optional
        Set where each row is an image of this shape: the columns are its pixels, row by row, channels last.
    """

    names: tuple[str, ...]
    columns: tuple[Array, ...] = ()
    block: Array | None = None
    named: bool = True
    side: Mapping[str, Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = "memory"
    image: ImageShape | None = None

    def __post_init__(self) -> None:
        if self.block is None:
            object.__setattr__(self, "columns", tuple(_read_only(column) for column in self.columns))
            lengths = {len(column) for column in self.columns}
            width = len(self.columns)
        else:
            object.__setattr__(self, "block", _read_only(self.block))
            lengths, width = {self.block.shape[0]}, self.block.shape[1]
        if len(lengths) > 1 or width != len(self.names):
            raise TableError(
                f"a table needs one name per column and equally long columns; got {len(self.names)} names, "
                f"{width} columns, lengths {sorted(lengths)}"
            )
        if self.image is not None and math.prod(self.image) != width:
            raise TableError(
                f"images of the shape {self.image} (height, width, channels) have {math.prod(self.image):,} pixels, "
                f"but the table has {width:,} columns; give the shape whose product is that number"
            )
        object.__setattr__(
            self, "side", MappingProxyType({name: _read_only(values) for name, values in self.side.items()})
        )

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        if self.block is not None:
            return int(self.block.shape[0])
        return len(self.columns[0]) if self.columns else 0

    @property
    def n_columns(self) -> int:
        """How many columns there are, `side` left out."""
        return len(self.names)

    @property
    def kinds(self) -> tuple[ColumnKind, ...]:
        """What each column holds."""
        if self.block is not None:
            return (_KIND_OF_DTYPE[self.block.dtype.kind],) * self.n_columns
        return tuple(_KIND_OF_DTYPE[column.dtype.kind] for column in self.columns)

    def column(self, position: int) -> Array:
        """Return one column, without copying it."""
        return self.columns[position] if self.block is None else self.block[:, position]

    def select(self, positions: Sequence[int]) -> "Table":
        """Return the table that has these columns only, in this order; no images, unless it is all of them."""
        if list(positions) == list(range(self.n_columns)):
            return self
        names = tuple(self.names[i] for i in positions)
        if self.block is None:
            return replace(self, names=names, columns=tuple(self.columns[i] for i in positions), image=None)
        return replace(self, names=names, block=self.block[:, list(positions)], image=None)


@final
@dataclass(frozen=True, eq=False)
class ChosenColumns:
    """What to cluster, and what goes along with it untouched."""

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
) -> ChosenColumns:
    """Pick the columns to cluster; those for `ids` and `truth` are never among them.

    Parameters
    ----------
    table : Table
        Where to choose from.
    columns : sequence of str, optional
        Names to keep, in this order; all by default. Where no column has such a name,
        a number counts columns from 1.
    drop : sequence of str, optional
        Names to leave out.
    ids, truth : str, optional
        The column (or `side` values) that names the rows, and the one with the known groups.

    Returns
    -------
    ChosenColumns
        The features as a table, with `ids` and `truth` as arrays.

    Examples
    --------
    >>> import numpy as np
    >>> table = Table(("who", "height", "weight"), (np.arange(3), np.ones(3), np.ones(3)))
    >>> choose_columns(table, ids="who", drop=["weight"]).features.names
    ('height',)
    """
    if columns is None:
        kept = list(range(table.n_columns))
    else:
        kept = list(dict.fromkeys(_position(table, name) for name in columns))
    left_out = {_position(table, name) for name in drop or ()}
    ids_name, ids_values = _beside(table, ids, left_out)
    truth_name, truth_values = _beside(table, truth, left_out)
    kept = [position for position in kept if position not in left_out]
    if not kept:
        raise TableError(
            f"no column is left to cluster in {table.source}, which has {listed(table.names)}; "
            "drop fewer columns or choose others"
        )
    return ChosenColumns(table.select(kept), ids_values, truth_values, ids_name, truth_name)


def column_position(table: Table, name: str) -> int | None:
    """Find a column by its name, or by its number from 1 where no column has that name."""
    if name in table.names:
        return table.names.index(name)
    if name.isdecimal() and 1 <= int(name) <= table.n_columns:
        return int(name) - 1
    return None


def unique_names(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fill in empty names, tell repeated ones apart by a number, and say so in notes."""
    notes = []
    filled = [name.strip() or f"column_{number}" for number, name in enumerate(names, start=1)]
    if unnamed := [new for new, old in zip(filled, names, strict=True) if not old.strip()]:
        notes.append(f"columns without a name were called {listed(unnamed)}")
    counts = Counter(filled)
    taken = set(filled)
    seen: Counter[str] = Counter()
    unique = []
    for name in filled:
        seen[name] += 1
        if seen[name] == 1:
            unique.append(name)
            continue
        number = seen[name]
        while f"{name}_{number}" in taken:
            number += 1
        taken.add(f"{name}_{number}")
        unique.append(f"{name}_{number}")
    if repeated := [name for name, count in counts.items() if count > 1]:
        notes.append(f"column names that occur more than once were numbered: {listed(repeated)}")
    return tuple(unique), tuple(notes)


def _position(table: Table, name: str) -> int:
    position = column_position(table, name)
    if position is None:
        raise TableError(_unknown(table, name, table.names))
    return position


def _beside(table: Table, name: str | None, left_out: set[int]) -> tuple[str | None, Array | None]:
    """Find the values that go along under `name`, and mark their column as no feature."""
    if name is None:
        return None, None
    if name not in table.names and name in table.side:
        return name, whole_numbers(table.side[name])
    position = column_position(table, name)
    if position is None:
        raise TableError(_unknown(table, name, (*table.side, *table.names)))
    left_out.add(position)
    return table.names[position], whole_numbers(table.column(position))


def whole_numbers(values: Array) -> Array:
    """Return floats that are all whole as int64, so that an id 7 is not written as 7.0."""
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return values
    exact = np.abs(values) < 2.0**53
    return values.astype(np.int64) if (exact & (values == np.floor(values))).all() else values


def _unknown(table: Table, name: str, known: Sequence[str]) -> str:
    by_lowered = {other.lower(): other for other in known}
    close = [by_lowered[match] for match in difflib.get_close_matches(name.strip().lower(), by_lowered, n=3)]
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
    return f"no column is called {name!r} in {table.source}{hint} The columns are {listed(known, 30)}"


def listed(names: Sequence[str], at_most: int = 10) -> str:
    """Quote names for a message, cutting a long list short."""
    shown = ", ".join(repr(name) for name in names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most} more"


def _read_only(values: Array) -> Array:
    view = values.view()
    view.flags.writeable = False
    return view


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
