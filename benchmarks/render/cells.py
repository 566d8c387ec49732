"""Cells of tables: statistics of a sample of lines, and templates of them.

A template such as ``{ari:se3} ({n_clusters:mean.0})`` has fields of a measure, a statistic and digits. "3" drops the
leading zero, as is usual for scores; ".3" keeps it.

========  ============================================================================================
mean      also median, max, min, sum
se        mean ± standard error
each      all values
n         number of values
percent   mean in percent
ratio     mean over the mean of what the cell is compared with
gain      mean ± standard error of the paired differences from it, losses in bold
diff      the same, never bold
lack      the same with the opposite sign
p         p-value of a paired t-test
pairs     number of pairs
pub       the published value after a slash, if there is one
printed   the published value with its error
cover     how many of all units there are, if not all
========  ============================================================================================
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, pstdev, stdev
from typing import Final

from scipy.stats import ttest_1samp

from benchmarks.render.source import Sample
from coterie.errors import InputError

DASH: Final = "–"
_FIELD: Final = re.compile(r"\{([^{}]+?):([a-z]+)(\.?\d?)\}")


def number(value: float | None, digits: str = "3") -> str:
    """Format a number; a dash where there is none."""
    if value is None:
        return DASH
    if digits.startswith("."):
        return f"{value:,.{digits[1:]}f}"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a Markdown table."""
    head = list(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *rows])


@dataclass(frozen=True)
class Cell:
    """What a template is filled from."""

    sample: Sample
    over: Sample | None = None  # what the sample is compared with
    whole: Sample | None = None  # the sample of all rows together, to count units
    published: Callable[[str], float | None] = lambda _: None
    ddof: int = 1

    def fill(self, template: str) -> str | None:
        """Fill a template; None where no field has anything to show."""
        texts = [self._text(*match.groups()) for match in _FIELD.finditer(template)]
        if not any(texts):
            return None
        remaining = iter(texts)
        return _FIELD.sub(lambda _: DASH if (text := next(remaining)) is None else text, template)

    def leading_value(self, template: str) -> float | None:
        """Return the number of a template's first field."""
        match = _FIELD.search(template)
        return None if match is None else self._value(match[1], match[2])

    def standard_error(self, template: str) -> float:
        """Return the standard error of a template's first field; 0 for a single value."""
        match = _FIELD.search(template)
        values = [] if match is None else self.sample.values(match[1])
        return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0

    def differences(self, expression: str) -> list[float]:
        """Subtract what the sample is compared with, unit by unit."""
        if self.over is None:
            raise InputError(f"The measure {expression!r} has nothing to be compared with. Give its column `over`.")
        ours, theirs = self.sample.units(expression), self.over.units(expression)
        return [ours[unit] - theirs[unit] for unit in ours if unit in theirs]

    def with_error(self, values: Sequence[float], digits: str) -> str:
        """Format the mean and its standard error, which is left out for a single value."""
        if len(values) < 2:
            return number(mean(values), digits)
        error = (stdev if self.ddof else pstdev)(values) / math.sqrt(len(values))
        return f"{number(mean(values), digits)} ± {number(error, digits)}"

    def _value(self, expression: str, statistic: str) -> float | None:
        if statistic in _OF_DIFFERENCES:
            differences = self.differences(expression)
            return mean(differences) * (-1 if statistic == "lack" else 1) if differences else None
        values = self.sample.values(expression)
        if not values:
            return None
        if statistic == "ratio" and self.over is not None:
            return mean(values) / mean(self.over.values(expression))
        return _REDUCTIONS.get(statistic, mean)(values)

    def _text(self, expression: str, statistic: str, digits: str) -> str | None:
        """Fill one field; None where there is nothing to show."""
        if statistic in _OF_CELL:
            return _OF_CELL[statistic](self, expression, digits)
        if statistic in _OF_DIFFERENCES:
            differences = self.differences(expression)
            return _OF_DIFFERENCES[statistic](self, differences, digits) if differences else None
        if statistic in _OF_VALUES:
            values = self.sample.values(expression)
            return _OF_VALUES[statistic](self, values, digits) if values else None
        if statistic not in {*_REDUCTIONS, "ratio"}:
            raise InputError(f"{statistic!r} is not a statistic. See benchmarks/render/cells.py for those there are.")
        value = self._value(expression, statistic)
        if statistic == "ratio" and not digits:
            digits = ".2" if value is not None and value < 10 else ".0"
        return None if value is None else number(value, digits)


def _published(cell: Cell, expression: str, digits: str) -> str:
    value = cell.published(expression)
    return "" if value is None else f" / {number(value, digits)}"


def _printed(cell: Cell, expression: str, digits: str) -> str | None:
    value, error = (cell.published(name) for name in (expression, f"{expression}_error"))
    if value is None:
        return None
    return number(value, digits) + ("" if error is None else f" ± {number(error, digits)}")


def _coverage(cell: Cell, expression: str, _: str) -> str:
    there, wanted = (len(sample.units(expression)) for sample in (cell.sample, cell.whole or cell.sample))
    return "" if there == wanted else f" ({there} of {wanted})"


def _difference(cell: Cell, differences: Sequence[float], digits: str) -> str:
    return ("+" if mean(differences) >= 0 else "") + cell.with_error(differences, digits)


def _gain(cell: Cell, differences: Sequence[float], digits: str) -> str:
    text = _difference(cell, differences, digits)
    return f"**{text}**" if mean(differences) < 0 else text


_OF_CELL: Final[Mapping[str, Callable[[Cell, str, str], str | None]]] = {
    "pub": _published,
    "printed": _printed,
    "cover": _coverage,
}
_OF_DIFFERENCES: Final[Mapping[str, Callable[[Cell, Sequence[float], str], str]]] = {
    "gain": _gain,
    "diff": _difference,
    "lack": lambda cell, differences, digits: cell.with_error([-each for each in differences], digits),
    "p": lambda _, differences, digits: number(float(ttest_1samp(differences, 0.0).pvalue), digits),
    "pairs": lambda _, differences, __: str(len(differences)),
}
_OF_VALUES: Final[Mapping[str, Callable[[Cell, Sequence[float], str], str]]] = {
    "se": Cell.with_error,
    "n": lambda _, values, __: f"{len(values):,}",
    "each": lambda _, values, digits: ", ".join(number(value, digits) for value in values),
    "percent": lambda _, values, __: f"{100 * mean(values):.0f} %",
}
_REDUCTIONS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "mean": mean,
    "median": median,
    "max": max,
    "min": min,
    "sum": sum,
}
