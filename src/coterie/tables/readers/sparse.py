"""Files of sparse matrices: archives of scipy.sparse and Matrix Market."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.errors import TableError
from coterie.tables.readers.compression import read_bytes
from coterie.tables.readers.delimited import numbered_names
from coterie.tables.table import Table, as_table


def read_sparse_archive(path: Path) -> Table:
    """Read an archive that ``scipy.sparse.save_npz`` has written."""
    from scipy import sparse  # noqa: PLC0415  (slow to import; --help, which lists the formats, is fast)

    try:
        with path.open("rb") as file:
            matrix = sparse.load_npz(file)
        _check_indices(matrix)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # damaged archives raise anything
        raise TableError(
            f"{path.name} is not a valid archive of a sparse matrix: {error}. Save it with scipy.sparse.save_npz."
        ) from error
    return _from_matrix(matrix, path.name)


def read_matrix_market(path: Path) -> Table:
    """Read a matrix in the Matrix Market format, which may be gzipped."""
    from scipy import io as formats  # noqa: PLC0415  (slow to import, as above)

    data = read_bytes(path)
    try:
        rows, columns, stored = formats.mminfo(io.BytesIO(data))[:3]
        # Each value takes two bytes at least. Check before memory is taken for as many as the first line claims.
        if 2 * stored > len(data):
            raise TableError(
                f"{path.name} is damaged: it should have {stored:,} values ({rows:,} x {columns:,}), but it has only "
                f"{len(data):,} bytes. Write it again."
            )
        matrix = formats.mmread(io.BytesIO(data))
    except (ValueError, OverflowError, EOFError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path.name} is not a Matrix Market file: {error}. Save it with scipy.io.mmwrite.") from error
    return _from_matrix(matrix, path.name)


def _check_indices(matrix: Any) -> None:
    """Check that no index is outside the matrix, since the conversion to a dense array does not."""
    if matrix.format in {"csr", "csc", "bsr"}:
        matrix.check_format(full_check=True)


def _from_matrix(matrix: object, source: str) -> Table:
    table = as_table(matrix)
    return replace(table, names=numbered_names(table.n_columns), source=source)
