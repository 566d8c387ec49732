"""Files compressed by gzip or Zstandard -> bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.errors import TableError, import_extra
from coterie.tables.readers.delimited import parse_delimited
from coterie.tables.table import Table

_CODECS = {".gz": "gzip", ".zst": "zstd"}


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if it ends in .gz or .zst."""
    codec = _CODECS.get(path.suffix.lower())
    if codec is None:
        return path.read_bytes()
    arrow: Any = import_extra("pyarrow", extra="arrow", purpose="Compressed files need pyarrow")
    with path.open("rb") as file:  # an error to open it is not one of the compression
        try:
            with arrow.CompressedInputStream(file, codec) as stream:
                return bytes(stream.read())
        except OSError as error:
            raise TableError(f"{path.name} is not a complete {codec} file: {error}.") from error


def read_compressed(
    path: Path, header: bool | None = None, delimiter: str | None = None, as_text: Sequence[str] = ()
) -> Table:
    """Read a compressed text file; those that are called .tsv are separated by tabs."""
    if delimiter is None and path.stem.lower().endswith(".tsv"):
        delimiter = "\t"
    return parse_delimited(read_bytes(path), source=path.name, header=header, delimiter=delimiter, as_text=as_text)
