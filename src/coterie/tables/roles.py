"""Columns of a table that cannot form clusters, since they identify its rows or hold free text."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from coterie.errors import TableError
from coterie.tables.table import Array, Table, format_list

MAX_LEVELS: Final = 50  # most different texts of a category; of more, the rarest become one level
MIN_ROWS: Final = 10  # fewer rows do not show whether a column repeats its values
OTHER_LEVEL: Final = "(other)"  # the level of the rarest texts of a category of many

_ALMOST_ALL = 0.9  # fraction of different values from which a column tells the rows apart
_MANY_VALUES = 0.5  # the same for texts of a form that only identifiers have
_MANY_WORDS = 5.0  # mean number of words from which texts of many different values are prose
_FEW_REPEATS = 0.2  # fraction of different texts from which long texts are prose
_FREQUENT = 0.3  # fraction of the rows that the most frequent texts must have to be levels of a category
_LEVEL_ROWS = 3  # that a frequent text has at least
_REPEATED_IDS = 0.1  # fraction of different numbers from which a column with the name of an id is one
_LONG_NUMBER = 1e8  # integers of nine digits and more that never repeat are phone or account numbers
_LARGEST_INTEGER = 2.0**53  # beyond, floats are not exact
_SAMPLED_TEXTS = 1_000
_NAME_LENGTH = 60  # longer texts do not name rows
_NUMBERS_THE_ROWS = "row numbers"
_PROSE = "free text"

# Words that end the name of an id, and words that are such a name by themselves: a price index is no id.
_ID_NAME = re.compile(
    r"(?:^|[\W_])(?:ids?|uuid|guid|sku|rowid|ident|identifier|nr|nummer|identifiant)$|(?:nr|nummer|_no|_num)$"
    r"|^(?:index|idx|key|code|no|num|number|row|ref|reference|numero|número|numéro|unnamed: 0|column_1)$",
    re.IGNORECASE,
)
_CAMEL_CASE_ID = re.compile(r"[a-z](?:Id|ID|Nr|No)$")
_IDENTIFIERS: Final[Mapping[str, re.Pattern[str]]] = {
    "e-mail addresses": re.compile(r"[^@\s]+@[^@\s]+\.[a-z]{2,}", re.IGNORECASE),
    "web addresses": re.compile(r"(?:https?|ftp)://\S+|www\.\S+", re.IGNORECASE),
    "UUIDs": re.compile(r"\{?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}?", re.IGNORECASE),
    "hashes": re.compile(r"(?=.*\d)(?:0x)?[0-9a-f]{16,128}", re.IGNORECASE),
    "IP addresses": re.compile(r"(?:\d{1,3}\.){3}\d{1,3}"),
}


@final
@dataclass(frozen=True, slots=True)
class UnusableColumn:
    """A column by which rows cannot be grouped."""

    name: str
    reason: str  # such as "e-mail addresses", for messages
    names_rows: bool  # whether its values can name the rows in outputs: distinct and short


def find_unusable(table: Table) -> tuple[UnusableColumn, ...]:
    """Return the columns of a table that cannot form clusters: row numbers, ids, addresses, names and free text.

    Categories of many texts are usable, since their rarest texts become one level. If no other column is usable,
    numbers that happen to number the rows are, unless they have the name of an id.

    Examples
    --------
    >>> import pandas as pd
    >>> people = pd.DataFrame({"who": [f"person {i}" for i in range(20)], "age": [20, 50, 30, 40] * 5})
    >>> from coterie.tables.table import as_table
    >>> find_unusable(as_table(people))
    (UnusableColumn(name='who', reason='almost every text is another', names_rows=True),)
    """
    if table.image is not None or table.n_rows < MIN_ROWS:
        return ()
    unusable = []
    for position, kind in enumerate(table.kinds):
        found = None
        if kind == "category":
            found = _judge_texts(table, position)
        elif kind == "number" and (table.named or table.names[position].startswith("column_")):
            found = _judge_numbers(table, position)
        if found is not None:
            unusable.append(found)
    if len(unusable) == table.n_columns:
        unusable = [each for each in unusable if each.reason != _NUMBERS_THE_ROWS or _is_id_name(each.name)]
    return tuple(unusable)


def choose_row_names(unusable: Sequence[UnusableColumn]) -> str | None:
    """Return the column that names the rows best: the first with the name of an id, else the first in the table."""
    able = [column.name for column in unusable if column.names_rows]
    return next((name for name in able if _is_id_name(name)), able[0] if able else None)


def advise_texts(unusable: Sequence[UnusableColumn]) -> str:
    """Return the end of a piece of advice: how to cluster columns of texts by what they say, if there are any."""
    if prose := [column.name for column in unusable if column.reason.startswith(_PROSE)]:
        name = prose[0]
        return f", or cluster {name!r} by what its texts say: text={name!r} (--text {shlex.quote(name)})"
    if any("text" in column.reason for column in unusable):
        return ", or say by text= (--text) which column holds texts to cluster by what they say"
    return ""


def reject_unusable(table: Table) -> None:
    """Raise an error that lists all columns that cannot form clusters, if there are any."""
    if unusable := find_unusable(table):
        listed = "; ".join(f"{column.name!r}: {column.reason}" for column in unusable)
        names = ",".join(column.name for column in unusable)
        raise TableError(
            f"{len(unusable)} of the {table.n_columns} columns of {table.source} cannot form clusters ({listed}). "
            f"Leave them out, with --drop {names!r}, or without --strict."
        )


def describe_unusable(unusable: Sequence[UnusableColumn]) -> dict[str, str]:
    """Return why columns are left out, by name."""
    return {column.name: column.reason for column in unusable}


def _judge_texts(table: Table, position: int) -> UnusableColumn | None:
    name, counts = table.names[position], count_texts(table.column(position))
    n_present, n_different = sum(counts.values()), len(counts)
    if n_different < MIN_ROWS:
        return None
    variety = n_different / n_present
    texts = list(counts)[:: max(1, n_different // _SAMPLED_TEXTS)]
    reason = _why_no_levels(texts, variety)
    if reason is None and n_different > MAX_LEVELS:
        frequent = sum(n for n in sorted(counts.values())[1 - MAX_LEVELS :] if n >= _LEVEL_ROWS)
        if frequent < _FREQUENT * n_present:
            reason = f"{n_different:,} different texts, none of them frequent"
    if reason is None:
        return None
    is_short = float(np.mean([len(text) for text in texts])) < _NAME_LENGTH
    return UnusableColumn(name, reason, is_short and n_different == table.n_rows)


def _why_no_levels(texts: Sequence[str], variety: float) -> str | None:
    """Say why different texts are not the levels of a category, given how many of the values are different."""
    for what, form in _IDENTIFIERS.items():
        if variety >= _MANY_VALUES and sum(form.fullmatch(text) is not None for text in texts) >= 0.9 * len(texts):
            return what
    words = float(np.mean([len(text.split()) for text in texts]))
    if words >= _MANY_WORDS and variety >= _FEW_REPEATS and len(texts) > MAX_LEVELS:
        return f"{_PROSE} of {words:.0f} words on average"
    return "almost every text is another" if variety >= _ALMOST_ALL else None


def _judge_numbers(table: Table, position: int) -> UnusableColumn | None:
    name, values = table.names[position], table.column(position)
    # A few rows tell that most columns are not integers.
    if not (_are_integers(values[: 2 * MIN_ROWS]) and _are_integers(values)):
        return None
    steps = np.diff(values.astype(np.float64))
    if steps[0] != 0.0 and (steps == steps[0]).all():
        return UnusableColumn(name, _NUMBERS_THE_ROWS, names_rows=True)
    n_different = len(np.unique(values))
    is_unique = n_different == len(values)
    if _is_id_name(name) and (is_unique or n_different >= max(MAX_LEVELS, _REPEATED_IDS * len(values))):
        return UnusableColumn(name, "identifiers", is_unique)
    if is_unique and float(np.abs(values).min()) >= _LONG_NUMBER:
        return UnusableColumn(name, "long numbers that never repeat", names_rows=True)
    return None


def _is_id_name(name: str) -> bool:
    return _ID_NAME.search(name) is not None or _CAMEL_CASE_ID.search(name) is not None


def _are_integers(values: Array) -> bool:
    if values.dtype.kind in "iu":
        return True
    if values.dtype.kind != "f":
        return False
    exact = values.astype(np.float64)  # half precision has no number as large as the bound
    return bool((np.abs(exact) < _LARGEST_INTEGER).all() and (exact == np.floor(exact)).all())  # NaN is not smaller


def count_texts(values: Array) -> dict[str, int]:
    """Count the different texts of a column, without missing values, in the order in which they occur."""
    counts: dict[str, int] = {}
    for text in values.tolist():
        if text is not None:
            counts[text] = counts.get(text, 0) + 1
    return counts


def describe_levels(names: Sequence[str]) -> str:
    """Say that the rarest texts of these columns became one level."""
    return (
        f"columns of over {MAX_LEVELS} different texts, of which the rarest count as one, {OTHER_LEVEL!r}: "
        f"{format_list(names)}"
    )
