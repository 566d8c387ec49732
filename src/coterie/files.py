"""Files that are written whole or not at all."""

import os
import secrets
from pathlib import Path

from coterie.errors import OutputError


def write_atomically(path: str | Path, data: bytes | str, *, force: bool) -> None:
    """Write a file whole or not at all: to a neighbour first, which then takes its place.

    Raises
    ------
    OutputError
        When the file exists and `force` is False, its folder does not exist, or writing fails.
    """
    path = Path(path)
    content = data.encode("utf-8") if isinstance(data, str) else data
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder; name a file to write")
    if path.is_file() and not force:
        raise OutputError(f"{str(path)!r} exists already; choose another name, or allow replacing it (--force)")
    if not path.parent.is_dir():
        raise OutputError(f"the folder {str(path.parent)!r} does not exist; create it first")
    if path.exists() and not path.is_file():  # a device or a pipe takes the bytes, and must not be replaced
        path.write_bytes(content)
        return
    target = path.resolve()
    neighbour = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with neighbour.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        neighbour.replace(target)
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written: {error.strerror or error}") from error
    finally:
        neighbour.unlink(missing_ok=True)
