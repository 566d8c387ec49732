"""Tables and numbers as they stand on generated pages."""

import math
from collections.abc import Iterable, Sequence
from statistics import mean, stdev


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int = 3) -> str:
    """A score as it stands in the tables; a dash where there is none."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def with_error(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error of scores; of a single one no error, and a dash where there are none."""
    if len(values) < 2:
        return number(values[0] if values else None, digits)
    error = stdev(values) / math.sqrt(len(values))
    return f"{number(mean(values), digits)} ± {number(error, digits)}"
