"""Real data for benchmarks, read from the folder COTERIE_DATA."""

import os
from pathlib import Path

from coterie.errors import InputError


def data_folder(wanted: str) -> Path:
    """Return the folder that COTERIE_DATA names; the error says what was wanted from it."""
    folder = os.environ.get("COTERIE_DATA")
    if not folder:
        raise InputError(f"{wanted} is read from the folder COTERIE_DATA, which is not set. Set it to that folder.")
    return Path(folder)
