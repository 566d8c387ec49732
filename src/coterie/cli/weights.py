"""``coterie weights``: the weights that ship with Coterie."""

import json
import sys
from typing import Any

from coterie.cli.listing import print_listing
from coterie.cli.options import WeightsRequest
from coterie.pretrained.registry import PACKAGE, read_index


def run(request: WeightsRequest) -> None:
    """Print the shipped weights."""
    entries = [
        {"name": name, "method": entry.method, "bytes": (PACKAGE / entry.file).stat().st_size, "summary": entry.summary}
        for name, entry in read_index(PACKAGE).items()
    ]
    if request.json:
        sys.stdout.write(json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
        return
    print_listing(("weights", "method", "size", "what they are for"), map(_row, entries))


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    return entry["name"], entry["method"], format_size(entry["bytes"]), entry["summary"]


def format_size(size: int) -> str:
    """Format a number of bytes.

    Examples
    --------
    >>> format_size(1_530_000)
    '1.5 MB'
    """
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
