"""Files compressed by gzip or Zstandard -> bytes."""

from pathlib import Path

from coterie.errors import TableError

_CODECS = {".gz": "gzip", ".zst": "zstd"}


def is_compressed(path: Path) -> bool:
    """Return whether the name of a file says that it is compressed."""
    return path.suffix.lower() in _CODECS


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
