"""What commands of the benchmarks have in common."""

import sys
from collections.abc import Callable, Iterable

from coterie.errors import CoterieError, InputError


def named(text: str, known: Iterable[str], what: str, between: str = ",") -> list[str]:
    """Names between commas, or what else is between them, each of them a known one."""
    names, all_known = text.split(between), list(known)
    unknown = [name for name in names if name not in all_known]
    if unknown:
        raise InputError(f"Unknown {what} {unknown[0]!r}. Known are: {', '.join(all_known)}.")
    return names


def exit_status(work: Callable[[], None]) -> int:
    """Do it, and return 0; say why not, and return 2, where it is refused."""
    try:
        work()
    except CoterieError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
