"""Arrow tables, from files or databases -> a table without the columns that do not have one value per row."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coterie.errors import EmptyTableError, TableError
from coterie.tables.readers.geometry import expand_points
from coterie.tables.readers.objects import LONGEST_VECTOR, describe_vectors
from coterie.tables.table import Table, as_table

_BYTES = ("binary", "large_binary", "binary_view")


def from_arrow(content: Any, source: str, notes: Sequence[str] = ()) -> Table:
    """Convert an Arrow table: points and lists of as many numbers become columns; structs and bytes are left out."""
    if not content.num_rows:
        raise EmptyTableError(f"{source} has no rows. A table needs at least one row.")
    content, told = expand_points(content)
    content, vectors = _expand_vectors(content)
    if vectors:
        told = (*told, describe_vectors(vectors))
    content, left_out = _drop_nested(content)
    if not content.num_columns:
        raise TableError(f"{source} has no column of numbers, texts or dates. It has {', '.join(left_out) or 'none'}.")
    if left_out:
        told = (*told, f"left out, since they are neither numbers, texts nor dates: {', '.join(left_out)}")
    return replace(as_table(content), source=source, notes=(*notes, *told))


def _expand_vectors(content: Any) -> tuple[Any, list[str]]:
    """Replace columns of lists of numbers, such as embeddings, by a column for each number if all have as many."""
    import pyarrow as pa  # noqa: PLC0415  (slow to import, as above)
    from pyarrow import compute  # noqa: PLC0415

    expanded, fields = [], []
    for name, column in zip(content.column_names, content.columns, strict=True):
        kind = column.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        length = 0
        if is_list and (pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type)):
            lengths = compute.list_value_length(column).unique().drop_null().to_pylist()
            length = lengths[0] if len(lengths) == 1 else 0
        if 2 <= length <= LONGEST_VECTOR and f"{name}.0" not in content.column_names:
            fields += [(f"{name}.{i}", compute.list_element(column, i)) for i in range(length)]
            expanded.append(name)
        else:
            fields.append((name, column))
    if not expanded:
        return content, []
    names, columns = zip(*fields, strict=True)
    return pa.Table.from_arrays(columns, names), expanded


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
