"""Tables of numbers, categories, booleans and dates, and how they become one array of numbers.

`as_table` takes what the user has, `choose_columns` says what to cluster, `TableEncoder` makes numbers of it.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, TypeAlias, final

import numpy as np
import numpy.typing as npt

from coterie.errors import InputError, TableError
from coterie.tables.table import Array, ChosenColumns, ColumnKind, Table, as_table, choose_columns, listed

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Within this many scales of the centre a value stays as it is; farther out its distance grows as a logarithm.
FAR = 5.0
# Only values that come after fitting can lie this far out; their squares must stay finite in float32.
_FARTHEST = 1e15
_ELEMENTS_AT_ONCE = 2**21
_WINSORISED_SHARE = 100
_FEWEST_TO_WINSORISE = 10
_CONSTANT = 10 * np.finfo(np.float64).eps


@final
@dataclass(frozen=True, eq=False)
class NumberSummary:
    """What a scaler needs to know of each column; values that are not finite count as missing."""

    present: Counts
    constant: Flags
    median: Floats
    centre: Floats
    scale: Floats
    far: Counts
    largest: Floats


def summarise(block: npt.NDArray[Any], winsorised: Flags) -> NumberSummary:
    """Summarise every column of a 2-D block, a few columns at a time so that copies stay small.

    Where `winsorised`, the g = max(1, n // 100) smallest and largest values are first moved to their
    nearest neighbour among the rest (from 10 values on), and `far` counts what lies over 5 scales out.
    """
    n_rows, n_columns = block.shape
    width = max(1, _ELEMENTS_AT_ONCE // n_rows)
    parts = [
        _summarise_few(block[:, start : start + width], winsorised[start : start + width])
        for start in range(0, max(1, n_columns), width)
    ]
    return NumberSummary(*(np.concatenate(pieces) for pieces in zip(*parts, strict=True)))


def _summarise_few(block: npt.NDArray[Any], winsorised: Flags) -> tuple[npt.NDArray[Any], ...]:
    ordered = np.array(block.T, dtype=np.float64, order="C")
    missing = ~np.isfinite(ordered)
    n = ordered.shape[1]
    present = n - missing.sum(axis=1)
    if missing.any():
        ordered[missing] = np.nan
        ordered[present == 0] = 0.0
    ordered.sort(axis=1)  # missing values end up last
    count = np.where(present == 0, n, present)
    row = np.arange(len(ordered))

    # A power of two takes each column near [-2, 2] without rounding, so that no square overflows.
    largest = np.maximum(np.abs(ordered[:, 0]), np.abs(ordered[row, count - 1]))
    unit = np.ldexp(1.0, np.clip(np.frexp(largest)[1] - 1, -1000, 1000))
    ordered /= unit[:, None]
    lowest, highest = ordered[:, 0], ordered[row, count - 1]
    constant = highest - lowest <= _CONSTANT * np.maximum(np.abs(lowest), np.abs(highest))
    median = 0.5 * (ordered[row, (count - 1) // 2] + ordered[row, count // 2])

    centre, spread = _mean_and_spread(ordered, count)
    far = np.zeros(len(ordered), dtype=np.int64)
    if winsorised.any():
        cut = np.where(count >= _FEWEST_TO_WINSORISE, np.maximum(1, count // _WINSORISED_SHARE), 0)
        tamed = np.clip(ordered, ordered[row, cut][:, None], ordered[row, count - 1 - cut][:, None])
        tamed_centre, tamed_spread = _mean_and_spread(tamed, count)
        centre = np.where(winsorised, tamed_centre, centre)
        usable = winsorised & (tamed_spread >= 1e-3 * spread) & (tamed_spread > 0)
        spread = np.where(usable, tamed_spread, spread)
        farthest = np.maximum(np.abs(lowest - centre), np.abs(highest - centre))
        reaches_far = np.flatnonzero(winsorised & ~constant & (farthest > FAR * spread))
        distance = np.abs(ordered[reaches_far] - centre[reaches_far, None])
        far[reaches_far] = (distance > FAR * spread[reaches_far, None]).sum(axis=1)
    scale = spread * unit
    scale = np.where(constant | (scale < 4 * np.finfo(np.float64).tiny), 1.0, scale)
    return present, constant, median * unit, np.where(constant, median, centre) * unit, scale, far, largest


def _mean_and_spread(ordered: Floats, count: Counts) -> tuple[Floats, Floats]:
    """Return mean and population standard deviation of each row's first `count` values."""
    if (count == ordered.shape[1]).all():
        mean = ordered.mean(axis=1)
        deviation = ordered - mean[:, None]
    else:
        exists = np.arange(ordered.shape[1]) < count[:, None]
        mean = ordered.mean(axis=1, where=exists)
        deviation = np.where(exists, ordered - mean[:, None], 0.0)
    return mean, np.sqrt(np.einsum("ij,ij->i", deviation, deviation) / count)


def scaled_rows(
    block: npt.NDArray[Any], fill: Floats, centre: Floats, scale: Floats, compressed: Flags
) -> Iterator[tuple[slice, Floats]]:
    """Yield slices of rows with their scaled values; what is not finite becomes the column's `fill` first."""
    n_rows, n_columns = block.shape
    step = max(1, _ELEMENTS_AT_ONCE // (8 * max(1, n_columns)))
    half_centre, half_scale = 0.5 * centre, 0.5 * scale
    for start in range(0, n_rows, step):
        rows = slice(start, start + step)
        z = block[rows].astype(np.float64)
        missing = ~np.isfinite(z)
        if missing.any():
            z = np.where(missing, fill, z)
        # Halves, since the difference of two huge values of opposite sign overflows.
        z *= 0.5
        z -= half_centre
        with np.errstate(over="ignore"):
            z /= half_scale
        yield rows, compress(z, compressed)


def compress(z: Floats, compressed: Flags) -> Floats:
    """Draw in what lies beyond 5, where `compressed`: sign(z) (5 + log(1 + |z| - 5))."""
    distance = np.minimum(np.abs(z), np.finfo(np.float64).max)
    far = distance > FAR
    far &= compressed
    if far.any():
        z = np.where(far, np.copysign(FAR + np.log1p(np.where(far, distance - FAR, 0.0)), z), z)
    return z


def expand(z: Floats, compressed: Flags) -> Floats:
    """Undo `compress`."""
    distance = np.abs(z)
    far = (distance > FAR) & compressed
    return np.where(far, np.copysign(FAR + np.expm1(np.where(far, distance - FAR, 0.0)), z), z)


def limit(z: Floats) -> Floats:
    """Keep values that came after fitting within what float32 arithmetic can square."""
    return np.clip(z, -_FARTHEST, _FARTHEST)


MISSING_LEVEL = "(missing)"
MOST_LEVELS = 50


@final
@dataclass(frozen=True)
class CategoryColumn:
    """Levels of one text column (None stands for missing), their shares in `fit`, and the block's scale."""

    position: int
    levels: tuple[str | None, ...]
    shares: tuple[float, ...]
    offsets: tuple[float, ...]
    scale: float

    @property
    def is_constant(self) -> bool:
        """Whether every row has the same level."""
        return len(self.levels) == 1

    @property
    def is_missing(self) -> bool:
        """Whether no row has a value."""
        return self.levels == (None,)

    def encode(self, column: Array) -> npt.NDArray[np.float32]:
        """Return (indicator - offset) / scale per level, all zeros where the level is unknown."""
        offsets = np.array(self.offsets)
        # One row per level, and a last one, of zeros, for the unknown.
        rows = np.vstack([(np.eye(len(self.levels)) - offsets) / self.scale, np.zeros(len(self.levels))])
        code = {level: i for i, level in enumerate(self.levels)}
        codes = np.fromiter((code.get(text, -1) for text in texts_of(column)), dtype=np.intp, count=len(column))
        return rows.astype(np.float32)[codes]

    def decode(self, Z: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the share of each level that encoded values stand for."""
        shares: npt.NDArray[np.float64] = np.clip(Z * self.scale + np.array(self.offsets), 0.0, 1.0)
        return shares

    def unseen(self, column: Array) -> Counter[str | None]:
        """Count the values that are no level."""
        known = set(self.levels)
        return Counter(text for text in texts_of(column) if text not in known)


def fit_category(column: Array, position: int, name: str, *, scaled: bool) -> CategoryColumn:
    """Find the levels of a text column; more than 50 are refused, as they would say nothing about groups."""
    counts = Counter(column.tolist())
    n_missing = counts.pop(None, 0)
    if len(counts) > MOST_LEVELS:
        raise TableError(
            f"column {name!r} has {len(counts)} different texts in {len(column)} rows, and at most "
            f"{MOST_LEVELS} can be used as categories; leave it out (--drop {name!r}), "
            f"or name the rows by it (--id {name!r})"
        )
    levels: tuple[str | None, ...] = tuple(sorted(counts))
    shares = [counts[level] / len(column) for level in sorted(counts)]
    if n_missing:
        levels, shares = (*levels, None), [*shares, n_missing / len(column)]
    variance = sum(share * (1 - share) for share in shares)
    return CategoryColumn(
        position=position,
        levels=levels,
        shares=tuple(shares),
        offsets=tuple(shares) if scaled else (0.0,) * len(shares),
        scale=float(np.sqrt(variance)) if scaled and variance > 0 else 1.0,
    )


def texts_of(column: Array) -> list[str | None]:
    """Read a column as texts, also where a file's part holds numbers only; 7.0 reads as '7'."""
    if column.dtype.kind == "O":
        return list(column)
    if column.dtype.kind == "f":
        return [None if math.isnan(value) else repr(value).removesuffix(".0") for value in column.tolist()]
    return [str(value) for value in column.tolist()]


_MOST_LINES = 10
_FEWEST_ROWS_TO_SUSPECT_AN_ID = 10
_LIKE_AN_ID = re.compile(r"(?:^|[\W_])(?:id|index|idx|nr|no|number|row|key)$|^unnamed: 0$|^column_1$", re.IGNORECASE)
_ENDS_IN_ID = re.compile(r"[a-z](?:Id|ID)$")


def fit_notes(
    table: Table,
    positions: Sequence[int],
    summary: NumberSummary,
    categories: Sequence[CategoryColumn],
    *,
    varied: bool,
) -> tuple[str, ...]:
    """List what `fit` did that the user may want to know, most lines naming their columns."""
    names = [table.names[i] for i in positions]
    return (
        *_about_missing(table, names, summary, categories),
        *_about_constant(table, names, summary, categories, varied=varied),
        *_about_far(names, summary),
        *_about_dates(table),
        *_about_ids(table, positions, summary, categories),
    )


def _about_missing(
    table: Table, names: Sequence[str], summary: NumberSummary, categories: Sequence[CategoryColumn]
) -> Iterator[str]:
    n_missing = table.n_rows - summary.present
    gaps = np.flatnonzero((n_missing > 0) & (summary.present > 0))
    for i in gaps[:_MOST_LINES]:
        yield (
            f"column {names[i]!r}: {n_missing[i]} of {table.n_rows} values are missing or infinite, "
            f"filled with the median {summary.median[i]:.6g}"
        )
    if len(gaps) > _MOST_LINES:
        rest = gaps[_MOST_LINES:]
        yield f"{len(rest)} more columns have {n_missing[rest].sum()} missing values, filled by medians"
    for category in categories:
        if None in category.levels and not category.is_missing:
            name, count = table.names[category.position], round(category.shares[-1] * table.n_rows)
            yield f"column {name!r}: {count} missing values count as a level of their own"
    empty = [names[i] for i in np.flatnonzero(summary.present == 0).tolist()]
    empty += [table.names[category.position] for category in categories if category.is_missing]
    if empty:
        yield f"left out, since all values are missing: {listed(empty)}"


def _about_constant(
    table: Table,
    names: Sequence[str],
    summary: NumberSummary,
    categories: Sequence[CategoryColumn],
    *,
    varied: bool,
) -> Iterator[str]:
    constant = [names[i] for i in np.flatnonzero(summary.constant & (summary.present > 0)).tolist()]
    constant += [table.names[c.position] for c in categories if c.is_constant and not c.is_missing]
    if not varied:
        yield "all columns are constant, so that all rows are alike"
    elif constant:
        which = listed(constant) if table.image is None else f"{len(constant):,} of {table.n_columns:,} pixels"
        yield f"left out, since there is only one value: {which}"


def _about_far(names: Sequence[str], summary: NumberSummary) -> Iterator[str]:
    columns = np.flatnonzero(summary.far)
    if len(columns):
        shown = ", ".join(f"{names[i]!r} {summary.far[i]}" for i in columns[:_MOST_LINES])
        if len(columns) > _MOST_LINES:
            rest = columns[_MOST_LINES:]
            shown += f", and {len(rest)} more columns {summary.far[rest].sum()}"
        yield f"values far from the others, drawn in (how many per column): {shown}"


def _about_dates(table: Table) -> Iterator[str]:
    if dates := [name for name, kind in zip(table.names, table.kinds, strict=True) if kind == "date"]:
        yield f"dates, counted in seconds since 1970: {listed(dates)}"


def _about_ids(
    table: Table, positions: Sequence[int], summary: NumberSummary, categories: Sequence[CategoryColumn]
) -> Iterator[str]:
    if table.n_rows < _FEWEST_ROWS_TO_SUSPECT_AN_ID:
        return
    for i, position in enumerate(positions):
        name = table.names[position]
        like_an_id = _LIKE_AN_ID.search(name) or _ENDS_IN_ID.search(name)
        if like_an_id and summary.present[i] == table.n_rows and _counts_up(table.column(position)):
            yield f"column {name!r} only numbers the rows; to leave it out, use --id {name!r}"
    for category in categories:
        if len(category.levels) == table.n_rows:
            name = table.names[category.position]
            yield f"column {name!r} has another text in every row; to leave it out, use --id {name!r}"


def _counts_up(column: Array) -> bool:
    return column.dtype.kind in "iuf" and bool((column[1:] - column[:-1] == 1).all())


__all__ = ["ChosenColumns", "Feature", "Scaling", "Table", "TableEncoder", "as_table", "choose_columns"]

Scaling: TypeAlias = Literal["robust", "standard", "none"]
_SCALINGS = ("robust", "standard", "none")
_LARGEST_UNSCALED = 1e15  # as far as `limit` lets scaled ones go: squares must stay finite in float32


@final
@dataclass(frozen=True)
class Feature:
    """One column of the encoded array: a whole input column, or one level of a category."""

    name: str
    column: str
    kind: ColumnKind
    level: str | None = None


@final
@dataclass(frozen=True)
class NumberColumns:
    """The columns that stay one feature each, by position in the table: z = (x - centre) / scale."""

    positions: tuple[int, ...] = ()
    kinds: tuple[ColumnKind, ...] = ()
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    fills: tuple[float, ...] = ()


@final
@dataclass(frozen=True)
class TableEncoder:
    """Turn a table into an array of numbers of comparable size, and back.

    Parameters
    ----------
    scaling : {"robust", "standard", "none"}
        "standard" takes each number column to mean 0 and standard deviation 1. "robust" does so with
        its outermost percent on each side drawn in, and compresses logarithmically what then lies more
        than 5 deviations out. "none" leaves numbers as they are.

    Notes
    -----
    Missing and infinite numbers become the column's median. A category becomes one feature per level;
    together its features have the variance of one standardised column. Booleans count as 0 and 1, dates as
    seconds since 1970. Constant columns are left out, unless all are constant.

    The encoder is immutable: `fit` returns a fitted one.

    Examples
    --------
    >>> table = as_table([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> encoder = TableEncoder("standard").fit(table)
    >>> encoder.transform(table).round(2).tolist()
    [[-1.2200000286102295], [0.0], [1.2200000286102295]]
    >>> encoder.notes
    ("left out, since there is only one value: 'x1'",)
    """

    scaling: Scaling = "robust"
    names: tuple[str, ...] = ()
    named: bool = False
    numbers: NumberColumns = NumberColumns()
    categories: tuple[CategoryColumn, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.scaling not in _SCALINGS:
            raise InputError(f"scaling must be one of {', '.join(_SCALINGS)}; got {self.scaling!r}")

    def fit(self, table: Table) -> "TableEncoder":
        """Return an encoder that knows this table's columns, levels, centres and scales."""
        kinds = table.kinds
        positions = [i for i, kind in enumerate(kinds) if kind != "category"]
        winsorised = np.array([self.scaling == "robust" and kinds[i] == "number" for i in positions], dtype=np.bool_)
        summary = summarise(_number_block(table, positions), winsorised)
        categories = [
            fit_category(table.column(i), i, table.names[i], scaled=self.scaling != "none")
            for i, kind in enumerate(kinds)
            if kind == "category"
        ]
        varied = not summary.constant.all() or any(not category.is_constant for category in categories)
        kept_numbers = np.flatnonzero((summary.present > 0) & ~(summary.constant & varied))
        kept_categories = [c for c in categories if not c.is_missing and not (c.is_constant and varied)]
        if not len(kept_numbers) and not kept_categories:
            raise TableError(f"every value of every column is missing in {table.source}; there is nothing to cluster")
        as_is = self.scaling == "none"
        if as_is:
            _refuse_too_large(summary.largest.max(initial=0.0))
        numbers = NumberColumns(
            positions=tuple(positions[i] for i in kept_numbers),
            kinds=tuple(kinds[positions[i]] for i in kept_numbers),
            centres=tuple([0.0] * len(kept_numbers) if as_is else summary.centre[kept_numbers].tolist()),
            scales=tuple([1.0] * len(kept_numbers) if as_is else summary.scale[kept_numbers].tolist()),
            fills=tuple(summary.median[kept_numbers].tolist()),
        )
        notes = fit_notes(table, positions, summary, categories, varied=varied)
        return TableEncoder(self.scaling, table.names, table.named, numbers, tuple(kept_categories), notes)

    def transform(self, table: Table) -> npt.NDArray[np.float32]:
        """Encode rows as an array (n, D) in float32, all finite; levels not seen in `fit` are all zeros."""
        table = self._matching(table)
        encoded = np.zeros((table.n_rows, len(self.features)), dtype=np.float32)
        numbers = self.numbers
        if numbers.positions:
            self._check_kinds(table)
            centre, scale, fill = map(np.array, (numbers.centres, numbers.scales, numbers.fills))
            block = _number_block(table, numbers.positions)
            for rows, z in scaled_rows(block, fill, centre, scale, self._compressed):
                if self.scaling == "none":
                    _refuse_too_large(np.abs(z).max(initial=0.0))
                encoded[rows, self._number_slots] = z if self.scaling == "none" else limit(z)
        for category, start in self._category_slots:
            encoded[:, start : start + len(category.levels)] = category.encode(table.column(category.position))
        return encoded

    def inverse(self, Z: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Take encoded values (n, D) back to input units; the levels of a category to shares from 0 to 1."""
        Z = np.asarray(Z, dtype=np.float64)
        if Z.ndim != 2 or Z.shape[1] != len(self.features):
            raise InputError(f"expected encoded rows of {len(self.features)} values, got an array of shape {Z.shape}")
        decoded = np.empty_like(Z)
        slots = self._number_slots
        with np.errstate(over="ignore"):  # a point far outside of the data may have no finite original
            decoded[:, slots] = expand(Z[:, slots], self._compressed) * self.numbers.scales + self.numbers.centres
        for category, start in self._category_slots:
            stop = start + len(category.levels)
            decoded[:, start:stop] = category.decode(Z[:, start:stop])
        return decoded

    def describe_unseen(self, table: Table) -> tuple[str, ...]:
        """Say which texts of a table did not occur in `fit`, one line per column."""
        table = self._matching(table)
        lines = []
        for category in self.categories:
            unseen = category.unseen(table.column(category.position))
            if unseen:
                shown = listed(sorted(MISSING_LEVEL if level is None else level for level in unseen), 5)
                lines.append(
                    f"column {self.names[category.position]!r}: {sum(unseen.values())} rows have values "
                    f"that were not there when the model was fitted: {shown}"
                )
        return tuple(lines)

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """What each column of the encoded array stands for, in the order of the table's columns."""
        by_position: dict[int, list[Feature]] = {}
        for position, kind in zip(self.numbers.positions, self.numbers.kinds, strict=True):
            by_position[position] = [Feature(self.names[position], self.names[position], kind)]
        for category in self.categories:
            column = self.names[category.position]
            labels = [MISSING_LEVEL if level is None else level for level in category.levels]
            by_position[category.position] = [Feature(f"{column}={x}", column, "category", x) for x in labels]
        return tuple(feature for position in sorted(by_position) for feature in by_position[position])

    def to_card(self) -> dict[str, Any]:
        """Return all of the encoder as plain values that JSON holds exactly."""
        card: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return card

    @staticmethod
    def from_card(card: Mapping[str, Any]) -> "TableEncoder":
        """Return the encoder that `to_card` described."""
        expected = {field.name for field in fields(TableEncoder)}
        if set(card) != expected:
            raise InputError(f"the encoder's card has the keys {sorted(card)}, expected {sorted(expected)}")
        return TableEncoder(
            scaling=card["scaling"],
            names=tuple(card["names"]),
            named=card["named"],
            numbers=NumberColumns(**{key: tuple(values) for key, values in card["numbers"].items()}),
            categories=tuple(
                CategoryColumn(
                    position=item["position"],
                    levels=tuple(item["levels"]),
                    shares=tuple(item["shares"]),
                    offsets=tuple(item["offsets"]),
                    scale=item["scale"],
                )
                for item in card["categories"]
            ),
            notes=tuple(card["notes"]),
        )

    @cached_property
    def _compressed(self) -> npt.NDArray[np.bool_]:
        return np.array([self.scaling == "robust" and k == "number" for k in self.numbers.kinds], dtype=np.bool_)

    @cached_property
    def _number_slots(self) -> npt.NDArray[np.intp] | slice:
        """Where the number columns are in the encoded array; a slice where they are all of it, for speed."""
        if not self.categories:
            return slice(None)
        return np.flatnonzero([feature.kind != "category" for feature in self.features])

    @cached_property
    def _category_slots(self) -> tuple[tuple[CategoryColumn, int], ...]:
        first: dict[str, int] = {}
        for slot, feature in enumerate(self.features):
            first.setdefault(feature.column, slot)
        return tuple((category, first[self.names[category.position]]) for category in self.categories)

    def _matching(self, table: Table) -> Table:
        """Bring a table's columns into the order of `fit`, by name where both have names."""
        if not self.names:
            raise InputError("this TableEncoder has not been fitted; use the one that its fit(table) returns")
        if self.named and table.named:
            missing = [name for name in self.names if name not in set(table.names)]
            unexpected = [name for name in table.names if name not in set(self.names)]
            if missing or unexpected:
                parts = [f"missing: {listed(missing)}"] if missing else []
                parts += [f"unexpected: {listed(unexpected)}"] if unexpected else []
                raise TableError(
                    f"the columns of {table.source} are not those that the model was fitted on "
                    f"({'; '.join(parts)}); give it the same columns"
                )
            place = {name: i for i, name in enumerate(table.names)}
            return table.select([place[name] for name in self.names])
        if table.n_columns != len(self.names):
            raise TableError(
                f"X has {table.n_columns} features, but TableEncoder is expecting {len(self.names)} features as input"
            )
        return table

    def _check_kinds(self, table: Table) -> None:
        kinds = table.kinds
        for position, kind in zip(self.numbers.positions, self.numbers.kinds, strict=True):
            now = kinds[position]
            alike = now != "category" and (now == "date") == (kind == "date")
            if not alike and not _all_missing(table.column(position)):
                raise TableError(
                    f"column {self.names[position]!r} was of the kind {kind!r} when the model was fitted, "
                    f"and is of the kind {now!r} in {table.source}; convert it"
                )


def _all_missing(column: Array) -> bool:
    if column.dtype.kind == "O":
        return all(value is None for value in column)
    return bool(np.isnat(column).all() if column.dtype.kind == "M" else np.isnan(column).all())


def _number_block(table: Table, positions: Sequence[int]) -> Array:
    """Return number columns side by side; the table's own block, uncopied, where all of it is wanted."""
    block = table.select(positions).block
    if block is not None:
        return block
    columns = [_as_floats(table.columns[i]) for i in positions]
    return np.column_stack(columns) if columns else np.empty((table.n_rows, 0))


def _as_floats(column: Array) -> npt.NDArray[np.float64]:
    if column.dtype.kind == "O":  # all missing, or it would have been refused
        return np.full(len(column), np.nan)
    if column.dtype.kind != "M":
        return column.astype(np.float64)
    seconds = column.astype("datetime64[us]").astype(np.int64) / 1e6
    seconds[np.isnat(column)] = np.nan
    return seconds


def _refuse_too_large(largest: float) -> None:
    if largest > _LARGEST_UNSCALED:
        raise TableError(f"a value as large as {largest:g} cannot be used unscaled; use the scaling 'robust'")
