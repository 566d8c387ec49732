"""Arrow tables, from files or databases -> a table without the columns that do not have one value per row."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coterie.errors import EmptyTableError, TableError
from coterie.tables.readers.geometry import expand_points
from coterie.tables.table import Table, as_table

_BYTES = ("binary", "large_binary", "binary_view")


def from_arrow(content: Any, source: str, notes: Sequence[str] = ()) -> Table:
    """Convert an Arrow table: points become two columns; lists, structs, maps and bytes are left out."""
    if not content.num_rows:
        raise EmptyTableError(f"{source} has no rows. A table needs at least one row.")
    content, told = expand_points(content)
    content, left_out = _drop_nested(content)
    if not content.num_columns:
        raise TableError(f"{source} has no column of numbers, texts or dates. It has {', '.join(left_out) or 'none'}.")
    if left_out:
        told = (*told, f"left out, since they are neither numbers, texts nor dates: {', '.join(left_out)}")
    return replace(as_table(content), source=source, notes=(*notes, *told))


def _drop_nested(content: Any) -> tuple[Any, list[str]]:
    """Return the columns that have one value per row, and the names and types of the others."""
    left_out = []
    for position in reversed(range(content.num_columns)):
        name, kind = content.field(position).name, content.field(position).type
        texts = _to_texts(content.column(position)) if str(kind) in _BYTES else None
        if texts is not None:
            content = content.set_column(position, name, texts)
        elif not _has_one_value(kind):
            left_out.append(f"{name!r} ({str(kind).partition('<')[0]})")
            content = content.remove_column(position)
    return content, left_out[::-1]


def _has_one_value(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415  (slow to import; --help, which lists the formats, is fast)

    if types.is_dictionary(kind):
        kind = kind.value_type
    extension = hasattr(kind, "storage_type") and not types.is_string(kind.storage_type)
    is_bytes = str(kind) in _BYTES or types.is_fixed_size_binary(kind)
    return not (types.is_nested(kind) or types.is_interval(kind) or is_bytes or extension)


def _to_texts(column: Any) -> Any:
    """Convert bytes to texts, since some programs do not mark texts as such; None if they are not UTF-8."""
    import pyarrow as pa  # noqa: PLC0415  (slow to import, as above)

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return None
