"""Files compressed by gzip or Zstandard -> bytes."""

from collections.abc import Sequence
from pathlib import Path

from coterie.errors import TableError
from coterie.tables.readers.delimited import parse_delimited
from coterie.tables.table import Table

_CODECS = {".gz": "gzip", ".zst": "zstd"}


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if it ends in .gz or .zst."""
    codec = _CODECS.get(path.suffix.lower())
    if codec is None:
        return path.read_bytes()
    import pyarrow as pa  # noqa: PLC0415  (slow to import, and for such files only)

    with path.open("rb") as file:  # an error to open it is not one of the compression
        try:
            with pa.CompressedInputStream(file, codec) as stream:
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
