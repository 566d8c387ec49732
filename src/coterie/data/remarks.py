"""What an encoder did to the columns of a table, in sentences for the user."""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from coterie.data.categories import CategoryColumn
from coterie.data.columns import Array, Table, listed
from coterie.data.scaling import NumberSummary

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
