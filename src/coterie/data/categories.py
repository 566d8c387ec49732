"""Text columns as one indicator per level, weighted so that many levels count no more than one number."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from coterie.data.columns import Array
from coterie.errors import TableError

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
