"""Records in JSON: one object per line, or a list of objects."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from coterie.errors import EmptyTableError, TableError
from coterie.tables.readers.compression import read_bytes
from coterie.tables.readers.objects import LONGEST_VECTOR, describe_vectors, from_objects
from coterie.tables.table import Table, format_list

Record: TypeAlias = dict[str, Any]

_MOST_CELLS = 2**28


def read_json(path: Path) -> Table:
    """Read records from a file of JSON lines, or from one list of objects."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(f"{path.name} is not in UTF-8, as JSON must be: {error.reason}. Save it in UTF-8.") from error
    records = _parse_list(text, path.name) if text.lstrip()[:1] == "[" else None
    if records is None:
        records = list(_parse_lines(text, path.name))
    if not records:
        raise EmptyTableError(f"{path.name} has no records. A table needs at least one row.")
    columns, notes = _to_columns(records, path.name)
    return from_objects(list(columns), list(columns.values()), source=path.name, notes=notes)


def _parse_list(text: str, source: str) -> list[Record] | None:
    """Parse one list of objects; None if the first line is a list of its own, as in JSON lines."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise _invalid(source, error.lineno, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise TableError(f"{source} is not valid JSON: {error}.") from error
    for number, record in enumerate(content, start=1):
        _check_record(record, f"element {number} of the list in {source}")
    return list(content)


def _parse_lines(text: str, source: str) -> Iterator[Record]:
    # Only the line feed ends a line: str.splitlines would also split at characters that JSON allows inside texts.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise _invalid(source, number, error.msg) from error
        except (ValueError, RecursionError) as error:
            raise TableError(f"{source}, line {number} is not valid JSON: {error}.") from error
        _check_record(record, f"{source}, line {number}")
        yield record


def _invalid(source: str, line: int, reason: str) -> TableError:
    return TableError(
        f"{source}, line {line} is not valid JSON: {reason}. Write one object per line, such as "
        '{"age": 31, "city": "Ulm"}, or one list of such objects.'
    )


def _check_record(record: object, where: str) -> None:
    if not isinstance(record, dict):
        raise TableError(
            f"{where} is {_describe(record)}, but each row must be an object with the names of the columns, such as "
            '{"age": 31, "city": "Ulm"}.'
        )


def _describe(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _to_columns(records: Sequence[Record], source: str) -> tuple[dict[str, list[object]], tuple[str, ...]]:
    """Return the columns in the order in which they first appear; what has no value is None."""
    flattened: dict[str, None] = {}
    left_out: dict[str, None] = {}
    vectors = _find_vectors(records)
    rows = [_flatten(_expand_vectors(record, vectors), flattened, left_out) for record in records]
    # Null in place of a nested object is no value of a column that is called like the object.
    empty = {name for name in flattened if all(row.get(name) is None for row in rows)}
    known = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in known if name not in left_out and name not in empty]
    if not names:
        raise TableError(
            f"The objects in {source} have no values that are numbers, texts or booleans"
            f"{'; lists and deeper objects are not read: ' + format_list(list(left_out)) if left_out else ''}."
        )
    if len(names) * len(rows) > _MOST_CELLS:
        raise TableError(
            f"The objects in {source} have {len(names):,} different keys, too many for a table of {len(rows):,} rows. "
            "Use the same keys in every object."
        )
    notes = [describe_vectors(vectors)] if vectors else []
    if flattened:
        notes.append(f"nested objects became columns of their own: {format_list(list(flattened))}")
    if left_out:
        notes.append(f"left out, since lists and deeper objects are not read: {format_list(list(left_out))}")
    return {name: [row.get(name) for row in rows] for name in names}, tuple(notes)


def _find_vectors(records: Sequence[Record]) -> list[str]:
    """Return the names of lists of numbers, such as embeddings, that have as many numbers in all records."""
    lengths: dict[str, set[int]] = {}
    for record in records:
        for name, value in record.items():
            if isinstance(value, list):
                are_numbers = all(type(each) in {int, float} for each in value)
                lengths.setdefault(name, set()).add(len(value) if are_numbers else 0)
    found = [name for name, sizes in lengths.items() if len(sizes) == 1 and 2 <= max(sizes) <= LONGEST_VECTOR]
    return [
        name
        for name in found
        if all(isinstance(record.get(name), list | None) and f"{name}.0" not in record for record in records)
    ]


def _expand_vectors(record: Record, names: Sequence[str]) -> Record:
    """Return a record with a value for each number of its vectors."""
    if not names:
        return record
    row: Record = {}
    for name, value in record.items():
        row |= {f"{name}.{i}": each for i, each in enumerate(value or ())} if name in names else {name: value}
    return row


def _flatten(record: Record, flattened: dict[str, None], left_out: dict[str, None]) -> Record:
    """Return a record whose nested objects are flattened by one level; collect the names of nested and of lost ones."""
    if not any(isinstance(value, dict | list) for value in record.values()):
        return record
    row: Record = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flattened[name] = None
        inner = {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
        for key, each in inner.items():
            if isinstance(each, dict | list):
                left_out[key] = None
            else:
                row[key] = each
    return row
