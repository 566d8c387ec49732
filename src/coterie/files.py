"""Atomic writing of files."""

import os
import secrets
from pathlib import Path

from coterie.errors import OutputError


def write_atomically(path: str | Path, data: bytes | str, *, force: bool) -> None:
    """Write a whole file or nothing: to a temporary file in the same folder, which then replaces the target.

    Symbolic links are followed, and text is written as UTF-8. An existing file is replaced only if `force` is true.
    """
    path = Path(path)
    content = data.encode("utf-8") if isinstance(data, str) else data
    if path.is_dir():
        raise OutputError(f"{str(path)!r} is a folder. Give the name of a file to write.")
    if path.is_file() and not force:
        raise OutputError(f"{str(path)!r} exists already. Choose another name, or replace it with force=True.")
    if not path.parent.is_dir():
        raise OutputError(f"The folder {str(path.parent)!r} does not exist. Create it first.")
    if path.exists() and not path.is_file():  # a device or a pipe receives the bytes and must not be replaced
        path.write_bytes(content)
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
