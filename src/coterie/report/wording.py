"""How numbers, shares and names are written on the page."""

import math
import re
from collections.abc import Sequence


def number(value: float) -> str:
    """Write a number with four significant digits, thousands set apart, or `missing`."""
    if not math.isfinite(value):
        return "missing" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    size = abs(value)
    if size and (size >= 1e9 or size < 1e-4):
        text = f"{value:.2e}"
    elif size >= 1000 or value == round(value):
        text = f"{value:,.0f}"
    else:
        decimals = 3 - math.floor(math.log10(size))
        text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def percent(share: float) -> str:
    """Write a share as a percentage; never round something to nothing, or less than all to all."""
    if not math.isfinite(share):
        return "–"
    # A difference of sums may end a hair below zero, which would be written as -0%.
    share = max(0.0, share)
    if 0 < share < 0.01:
        return "<1%"
    if 0.99 < share < 1:
        return ">99%"
    return f"{100 * share:.0f}%"


def count(n: int, noun: str) -> str:
    """Write `1 row`, `2 rows`, `12,345 rows`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def shorten(text: str, length: int = 32) -> str:
    """Cut a long text: between words if it has any, else in the middle, since both ends tell names apart."""
    if len(text) <= length:
        return text
    whole_words = text[:length].rpartition(" ")[0].rstrip(" ,;:(-")
    if len(whole_words) > length // 2:
        return f"{whole_words}…"
    head = (length - 1) * 2 // 3
    return f"{text[:head].rstrip()}…{text[-(length - 1 - head) :].lstrip()}"


def short_names(names: Sequence[str], length: int = 28) -> dict[str, str]:
    """Shorten names so that they stay different: those that would look alike lose what they share."""
    short = {name: shorten(name, length) for name in names}
    alike: dict[str, list[str]] = {}
    for name, text in short.items():
        alike.setdefault(text, []).append(name)
    for group in alike.values():
        if len(group) > 1:
            begin = max(_shared_beginning(group) - length // 3, 0)
            end = _shared_beginning([name[::-1] for name in group])
            short |= {name: f"…{shorten(name[begin : len(name) - end], length)}…" for name in group}
    return short


def _shared_beginning(texts: Sequence[str]) -> int:
    """Return how many first characters all texts share: those of the first and the last by the alphabet."""
    pairs = zip(min(texts), max(texts), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(map(len, texts)))


def name_parts(text: str) -> list[str]:
    """Split a name where it may go on in the next line: after underlines, slashes and dots."""
    return re.findall(r"[^_/.]*[_/.]+|[^_/.]+", text)


def enumeration(parts: Sequence[str]) -> str:
    """Join words as prose: `a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
