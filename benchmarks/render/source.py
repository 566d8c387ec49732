"""Results files as flat lines: read them, select among them, and evaluate measures on them."""

import json
import math
import operator
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, Final, TypeAlias

import numpy as np

from benchmarks.lines import RESULTS, read_lines
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index, normalized_mutual_information

Line: TypeAlias = Mapping[str, Any]  # one line of a results file, flattened
Units: TypeAlias = dict[tuple[Any, ...], float]
"""A measure of each unit (a data set, a seed): what statistics are taken over and differences are paired by."""

BENCHMARKS: Final = RESULTS.parent
COMMON: Final = "common.toml"


@cache
def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file once."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def read_flat(path: Path, newest: Sequence[str] = ()) -> Sequence[Line]:
    """Read and flatten a results file once; of lines that are the same in some fields, keep the last one."""
    if path.name in DERIVED:
        return DERIVED[path.name](path.parent)
    if not path.is_file():
        raise InputError(f"{path} does not exist. Run its suite first, or remove it from the page.")
    lines = [flatten(line) for line in read_lines(path)]
    return list({tuple(line.get(key) for key in newest): line for line in lines}.values()) if newest else lines


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give nested fields dotted names; metrics lose their prefix, and lists of lists are numbered from 1."""
    line: dict[str, Any] = {}
    for key, value in record.items():
        name = "" if key == "metrics" and not prefix else prefix + key
        if isinstance(value, Mapping):
            line |= flatten(value, f"{name}." if name else "")
        elif isinstance(value, list) and value and isinstance(value[0], list):
            for position, row in enumerate(value, start=1):
                line |= {f"{name}.{position}.{index}": each for index, each in enumerate(row, start=1)}
        if name:
            line[name] = value
    return line


@dataclass(frozen=True)
class Source:
    """Where pages are rendered from, and what they share."""

    results: Path = RESULTS
    pages: Path = BENCHMARKS / "pages"
    published: Path = BENCHMARKS / "published"

    @property
    def common(self) -> Mapping[str, Mapping[str, Any]]:
        """Names, usual columns, and how files are read."""
        return read_toml(self.pages / COMMON)

    def name(self, key: Any) -> str:
        """Return the name of a key of the results files as shown; by default the key without its folder."""
        text = f"{key:,}" if isinstance(key, int) else str(key)
        return str(self.common["names"].get(text, text.rpartition("/")[2]))

    def unit(self, file: str) -> Sequence[str]:
        """Return the fields that identify a unit of a file; by default every line is one."""
        fields: Sequence[str] = self.common["files"].get(file, {}).get("unit", ())
        return fields

    def lines(self, file: str) -> Sequence[Line]:
        """Return all lines of a results file; of repeated runs, the last one."""
        return read_flat(self.results / file, tuple(self.common["files"].get(file, {}).get("newest", ())))

    def published_value(self, path: str) -> float | None:
        """Look up a number such as ``dac:1.mog-1000-4.dac.ll``; None where the paper's cell is empty or unreadable."""
        file, _, keys = path.partition(":")
        value: Any = read_toml(self.published / f"{file}.toml")
        for key in keys.split("."):
            if isinstance(value, list):
                value = value[int(key)] if key.isdigit() else None
            else:
                value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, int | float) else None


def _stored_scores(results: Path) -> list[Line]:
    """Scores that come with the benchmark collections: means of the methods that have all data sets of a block."""
    blocks = json.loads((results / "zero_shot_stored.json").read_text(encoding="utf-8"))
    return [{"block": block, **one} for block, methods in blocks.items() for one in methods]


def _clam_overlaps(results: Path) -> list[Line]:
    """Agreement of ClAM's best partition with the best partition of each baseline."""
    lines: list[Line] = []
    for path in sorted((results / "labels").glob("*-clam.npz")):
        data = path.stem.removesuffix("-clam")
        for method in ("kmeans", "spectral", "agglomerative"):
            other = path.with_name(f"{data}-{method}.npz")
            if other.is_file():
                theirs, ours = (np.load(each, allow_pickle=False)["labels"] for each in (other, path))
                nmi, ari = normalized_mutual_information(theirs, ours), adjusted_rand_index(theirs, ours)
                lines.append({"data": data, "method": method, "overlap_nmi": nmi, "overlap_ari": ari})
    return lines


DERIVED: Final[Mapping[str, Callable[[Path], Sequence[Line]]]] = {
    "zero_shot_stored.json": _stored_scores,
    "clam overlaps": _clam_overlaps,
}
"""Results that are not lines of a file."""

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "prefix": lambda value, text: str(value).startswith(text),
    "max": operator.le,
    "min": operator.ge,
}


def matches(line: Line, where: Mapping[str, Any]) -> bool:
    """Whether a line has the wanted values: equal, in a list, or compared as in ``{prefix = "sipu/"}``."""

    def matches_one(value: Any, wanted: Any) -> bool:
        if isinstance(wanted, Mapping):
            return value is not None and all(_COMPARISONS[name](value, limit) for name, limit in wanted.items())
        return value in wanted if isinstance(wanted, list) else bool(value == wanted)

    return all(matches_one(line.get(key), wanted) for key, wanted in where.items())


def failed(line: Line) -> bool:
    """Whether the run did not finish; its note says why."""
    return bool(line.get("note"))


CLOSE_FACTOR: Final = 1.5
_OPERATION: Final = re.compile(r"(?P<wrap>\||max\()?(?P<a>[^|()=,]+?)(?: (?P<sign>[-=/~]) |, )(?P<b>[^|()=]+?)[|)]?")
_OPERATORS: Final[Mapping[str | None, Callable[[float, float], float]]] = {
    "-": operator.sub,
    "/": operator.truediv,
    "=": lambda a, b: float(a == b),
    "~": lambda a, b: float(max(a, b) <= CLOSE_FACTOR * min(a, b)),
    None: max,
}


def measure(line: Line, expression: str) -> dict[Any, float]:
    """Evaluate ``x``, ``x - y``, ``|x - y|``, ``x / y``, ``x = y``, ``x ~ y`` or ``max(x, y)`` on a line.

    ``x ~ y`` is 1 if they differ by a factor of at most 1.5, and 0 if not.
    A field that is a list or a mapping gives several values, by their index or key; a number has the key None.
    """
    parsed = _OPERATION.fullmatch(expression)
    if parsed is None:
        return _numbers(line.get(expression))
    first, second = _numbers(line.get(parsed["a"])), _numbers(line.get(parsed["b"], _constant(parsed["b"])))
    values = {
        key: _OPERATORS[parsed["sign"]](value, second.get(key, second.get(None, math.nan)))
        for key, value in first.items()
        if key in second or None in second
    }
    return {key: abs(value) for key, value in values.items()} if parsed["wrap"] == "|" else values


def _constant(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[\d.]+", text) else None


def _numbers(value: Any) -> dict[Any, float]:
    items = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else [(None, value)]
    )
    return {key: each for key, each in items if isinstance(each, int | float)}


@dataclass(frozen=True)
class Sample:
    """Lines that one cell is about."""

    lines: Sequence[Line]
    unit: Sequence[str] = ()

    def units(self, expression: str) -> Units:
        """Evaluate a measure: one number per unit, the mean where a unit has several."""
        grouped = defaultdict(list)
        for position, line in enumerate(self.lines):
            unit = tuple(line.get(name) for name in self.unit) if self.unit else (position,)
            for key, value in measure(line, expression).items():
                grouped[*unit, key].append(value)
        return {unit: values[0] if len(values) == 1 else mean(values) for unit, values in grouped.items()}

    def values(self, expression: str) -> list[float]:
        """Evaluate a measure, without the names of the units."""
        return list(self.units(expression).values())

    def pick(self, expressions: Sequence[str]) -> "Sample":
        """Keep only the line that is largest by the first measure, ties broken by the next."""
        if not (expressions and self.lines):
            return self
        best = max(self.lines, key=lambda line: [measure(line, each).get(None, -math.inf) for each in expressions])
        return replace(self, lines=[best])
