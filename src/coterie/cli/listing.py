"""Tables of text on the standard output, for commands that list or describe something."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

_WIDTH_OUTSIDE_TERMINALS = 120


def print_listing(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of cells; the first column is never wrapped."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _WIDTH_OUTSIDE_TERMINALS
    table = Table(box=box.SIMPLE)
    for position, name in enumerate(header):
        table.add_column(name, no_wrap=position == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)
