"""Blocks of a page: tables of rows by columns, claims, and the few that only one page needs."""

import math
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, stdev
from typing import Any, Final

import numpy as np

from benchmarks.render.cells import DASH, Cell, markdown_table, number
from benchmarks.render.source import Line, Sample, Source, failed, matches, measure
from coterie.errors import InputError

N_BINS: Final = 10


@dataclass(frozen=True)
class Item:
    """A row, a group of columns, or one of several tables: a title, and which lines it is about."""

    title: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Values that replace ``$name`` in templates and selections."""

    def __add__(self, other: "Item") -> "Item":
        """Narrow this item by another one, whose title remains."""
        return Item(other.title, {**self.where, **other.where}, {**self.variables, **other.variables})

    def substitute(self, text: str) -> str:
        """Replace variables in a text by their values, which may be other variables."""
        values = {**self.where, **self.variables}
        for _ in range(2):
            text = re.sub(r"\$(\w+)", lambda match: str(values.get(match[1], match[0])), text)
        return text

    def resolve(self, where: Mapping[str, Any]) -> dict[str, Any]:
        """Replace values that are variables in a selection."""
        resolved = dict(where)
        for _ in range(2):
            for key, value in resolved.items():
                if isinstance(value, str) and value.startswith("$"):
                    resolved[key] = self.variables[value[1:]]
        return resolved


@dataclass(frozen=True)
class Column:
    """A column: its title, the template of its cells, and in what they differ from the rest of the table."""

    title: str
    template: str
    where: Mapping[str, Any] = field(default_factory=dict)
    over: Mapping[str, Any] | None = None
    pick: Sequence[str] = ()
    best: str = ""  # print the largest ("max") or the smallest ("min") value in bold


@dataclass(frozen=True)
class Block:
    """Part of a section, as specified in a page."""

    source: Source
    kind: str = "table"
    text: str = ""
    file: str | Sequence[str] = ()
    where: Mapping[str, Any] = field(default_factory=dict)
    each: Sequence[Any] = ()  # repeat the table for each of these
    row: str | Sequence[str] = "method"  # field, or fields, that distinguish rows
    rows: Sequence[Any] | str = ()
    """Values of these fields; by default all in the order of the file, and all in order of names for "sorted"."""
    head: str | Sequence[str] = ""
    columns: Sequence[Any] = ()
    across: Sequence[Any] = ()  # repeat the columns for each of these
    before: Sequence[Any] = ()  # columns that come first and are not repeated
    over: Mapping[str, Any] | None = None  # lines to compare with, in what they differ from those of the cell
    pick: Sequence[str] = ()  # use only the line of a cell that is largest by these measures
    published: str = ""  # path of the published value, with variables
    missing: str = DASH
    notes: bool = False  # show in the first cell why a run did not finish
    common: Sequence[str] = ()  # use only the values of the first field that all values of the second one have
    names: Mapping[str, str] = field(default_factory=dict)
    ddof: int = 1
    items: Sequence[Any] = ()  # claims, wins or headlines

    @property
    def files(self) -> Sequence[str]:
        """All files that the block is about."""
        return [self.file] if isinstance(self.file, str) else self.file

    @property
    def fields(self) -> Sequence[str]:
        """Fields that distinguish rows."""
        return [self.row] if isinstance(self.row, str) else self.row

    def name(self, key: Any) -> str:
        """Return the name of a key as shown."""
        return self.names.get(str(key)) or self.source.name(key)

    def item(self, spec: Any, fields: Sequence[str] = ()) -> Item:
        """Parse the value of a field (or of several), or a mapping of fields with ``title`` and ``_variables``."""
        if not isinstance(spec, Mapping):
            values = spec if isinstance(spec, list | tuple) else [spec]
            return Item(" | ".join(map(self.name, values)), dict(zip(fields, values, strict=True)))
        where = {key: value for key, value in spec.items() if key != "title" and not key.startswith("_")}
        variables = {key[1:]: value for key, value in spec.items() if key.startswith("_")}
        title = " | ".join(self.name(spec[key]) for key in fields if key in spec)
        return Item(spec.get("title", title), where, variables)

    def lines(self, where: Mapping[str, Any] | None = None) -> list[Line]:
        """Select lines of the block, finished or not."""
        wanted = {**self.where, **(where or {})}
        return [line for file in self.files for line in self.source.lines(file) if matches(line, wanted)]

    def sample(self, item: Item, other: Mapping[str, Any] | None = None) -> Sample:
        """Select the finished runs that an item is about."""
        where = item.resolve({**item.where, **(other or {})})
        lines = [line for line in self.lines(where) if not failed(line)]
        if self.common:
            shared = self._shared()
            lines = [line for line in lines if line[self.common[0]] in shared]
        return Sample(lines, self.source.unit(self.files[0]))

    def _shared(self) -> set[Any]:
        unit, kind = self.common
        found = defaultdict(set)
        for line in self.lines():
            found[line[kind]].add(line[unit])
        return set.intersection(*found.values())

    def cell(self, item: Item, column: Column | None = None, whole: Item | None = None) -> Cell:
        """Collect what a cell is filled from."""
        column = column or Column("", "")
        item = item + Item(where=column.where)
        over = self.over if column.over is None else column.over
        pick = column.pick or self.pick
        variables = {"as": item.where.get("method", ""), **self.where, **item.where, **item.variables}

        def published(expression: str) -> float | None:
            if not self.published or variables["as"] == "nothing":
                return None
            path = Item(variables={**variables, "metric": expression}).substitute(self.published)
            return self.source.published_value(path)

        return Cell(
            self.sample(item).pick(pick),
            None if over is None else self.sample(item, over).pick(pick),
            None if whole is None else self.sample(whole + Item(where=column.where)),
            published,
            self.ddof,
        )

    def column(self, spec: Any, item: Item) -> Column:
        """Parse the name of a usual column, or a title, a template and options."""
        title, template, *options = self.source.common["columns"][spec] if isinstance(spec, str) else spec
        chosen = dict(options[0]) if options else {}
        chosen["best"] = item.substitute(chosen.get("best", ""))
        return Column(item.substitute(title), item.substitute(template), **chosen)

    def row_items(self, item: Item) -> list[Item]:
        """List the rows, as specified or as found."""
        if self.rows and self.rows != "sorted":
            return [self.item(spec, self.fields) for spec in self.rows]
        found: Iterable[tuple[Any, ...]] = dict.fromkeys(
            tuple(line.get(key) for key in self.fields) for line in self.sample(item).lines
        )
        if self.rows == "sorted":
            order = {key: position for position, key in enumerate(self.source.common["names"])}
            found = sorted(found, key=lambda keys: [(order.get(key, len(order)), key) for key in keys])
        return [self.item(keys, self.fields) for keys in found]


# Tables


def table(block: Block) -> str:
    """Render a table for each of `each`; rows that a table has nothing about are left out of it."""
    parts, never = [], None
    for item in map(block.item, block.each or [{}]):
        text, empty = _one_table(block, item)
        parts.append(f"**{item.title}**\n\n{text}" if item.title else text)
        never = empty if never is None else never & empty
    if never:
        raise InputError(f"Nothing of {block.file} matches {', '.join(sorted(never))}.")
    return "\n\n".join(parts)


def _one_table(block: Block, item: Item) -> tuple[str, set[str]]:
    """Render one table; also return the rows that it has nothing about."""
    groups = [block.item(spec) for spec in block.across] or [Item()]
    columns = [(Item(), block.column(spec, item)) for spec in block.before]
    columns += [(group, block.column(spec, item + group)) for group in groups for spec in block.columns]
    heads = [" ".join(filter(None, (group.title, column.title))) for group, column in columns]
    rows = block.row_items(item)
    texts = []
    for row in rows:
        line: list[str | None] = []
        for head, (group, column) in zip(heads, columns, strict=True):
            narrowed = item + group + row
            template = narrowed.substitute(column.template)
            cell = block.cell(narrowed, column, item + group if ":cover}" in template else None)
            line.append(None if head in row.variables.get("omit", ()) else cell.fill(template))
        if block.notes and line[0] is None:
            line[0] = next((str(one["note"]) for one in block.lines((item + row).where) if failed(one)), None)
        texts.append(line)
    _mark_best([column for _, column in columns], rows, texts)
    body, empty = [], set()
    for row, line in zip(rows, texts, strict=True):
        title = (item + row).substitute(row.title)
        if any(line):
            body.append([*title.split(" | "), *(block.missing if text is None else text for text in line)])
        else:
            empty.add(str({"title": title, **row.where}))
    first = [block.head] if isinstance(block.head, str) else block.head
    return markdown_table([*map(item.substitute, first), *heads], body), empty


def _mark_best(columns: Sequence[Column], rows: Sequence[Item], texts: Sequence[list[str | None]]) -> None:
    """Print the best value of a column in bold, where it has at least three; references do not take part."""
    for position, column in enumerate(columns):
        values = {
            index: float(match[0].replace(",", ""))
            for index, row in enumerate(rows)
            if not row.variables.get("reference") and (match := re.match(r"-?[\d.,]*\d", texts[index][position] or ""))
        }
        if column.best and len(values) > 2:
            best = (max if column.best == "max" else min)(values.values())
            for index in (index for index, value in values.items() if value == best):
                ours, slash, published = str(texts[index][position]).partition(" / ")
                texts[index][position] = f"**{ours}**{slash}{published}"


def growth(block: Block) -> str:
    """Append to a table of seconds how they grow: the exponent between the first row and the last."""
    first, last = (block.item(block.rows[index], block.fields) for index in (0, -1))
    (step,) = (math.log(last.where[key] / first.where[key]) for key in block.fields)
    row = ["exponent"]
    for group in map(block.item, block.across):
        seconds = [block.cell(group + item).leading_value("{seconds:mean}") or math.nan for item in (first, last)]
        row.append(f"{math.log(seconds[1] / seconds[0]) / step:.2f}")
    return f"{table(block)}\n| {' | '.join(row)} |"


# Lists


_CLAIMS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "above": operator.gt,
}


def claims(block: Block) -> str:
    """List targets with whether they were reached."""
    lines = []
    for text, template, comparison, limit, *spec in block.items:
        options = dict(spec[0]) if spec else {}
        column = Column("", template, over=options.pop("over", None))
        cell = block.cell(block.item(options), column)
        value = cell.leading_value(template)
        if value is None:
            raise InputError(f"Nothing of {block.file} matches the claim {text!r}.")
        reached = "reached" if _CLAIMS[comparison](value, limit) else "**not reached**"
        lines.append(f"- {text}: {reached} ({cell.fill(template)})")
    return "\n".join(lines)


def wins(block: Block) -> str:
    """Count the rows in which one method is above another or above the published value, and name them."""
    lines = []
    for text, template, spec in block.items:
        options = dict(spec)
        over, is_named = options.pop("over"), options.pop("named", True)
        above, equal, total = [], 0, 0
        for row in block.row_items(Item()):
            cell = block.cell(row + block.item(options))
            ours, theirs = cell.leading_value(template), _other_value(block, row, over, cell, template)
            if ours is not None and theirs is not None:
                difference = round(ours, 3) - round(theirs, 3)
                above += [row.title] * (difference > 0)
                equal += difference == 0
                total += 1
        named = f" ({', '.join(above) or 'none'})" if is_named else ""
        lines.append(f"- {text} on {len(above)} of {total}{named}" + (f", equal on {equal}" if equal else ""))
    return "\n".join(lines)


def _other_value(block: Block, row: Item, over: Any, cell: Cell, template: str) -> float | None:
    if over == "published":
        return cell.published(template.strip("{").partition(":")[0])
    options = dict(over)
    other = replace(block, file=options.pop("file", block.file))
    template = options.pop("cell", template)
    return other.cell(row + block.item(options)).leading_value(template)


def unfinished(block: Block) -> str:
    """List runs that did not finish, and why."""
    data = defaultdict(set)
    for line in filter(failed, block.lines()):
        data[line["method"], line["note"]].add(str(line["data"]).rpartition("/")[2])
    return "\n".join(
        f"- {block.name(method)}, {note}: {', '.join(sorted(names))}" for (method, note), names in sorted(data.items())
    )


def headlines(block: Block) -> str:
    """Render our value of each row beside the published one and that of a peer in the same run, and who is ahead."""
    rows = []
    for spec in block.items:
        narrowed = replace(block, file=spec["file"], pick=spec.get("pick", ()))
        template = spec["cell"]
        cells = [narrowed.cell(block.item(spec["where"] | spec[who])) for who in ("ours", "peer")]
        ours, theirs = (cell.leading_value(template) for cell in cells)
        if ours is None or theirs is None:
            raise InputError(f"Nothing of {spec['file']} matches the headline {spec['task']!r}.")
        is_even = abs(ours - theirs) <= max(cell.standard_error(template) for cell in cells)
        outcome = "even" if is_even else "win" if ours > theirs else "**loss**"
        texts = [str(cell.fill(template)) for cell in cells]
        peer = f"{spec['peer_name']} {texts[1]}"
        printed = re.sub(r"\{(.+?)\}", lambda path: number(block.source.published_value(path[1])), spec["published"])
        rows.append([spec["method"], spec["what"], spec["task"], texts[0], printed, peer, outcome])
    return markdown_table(block.head, rows)


# Calibration


@dataclass(frozen=True)
class Bin:
    """Data sets with about the same prediction."""

    low: float
    high: float
    n_sets: int
    predicted: float  # mean prediction
    true: float  # mean true value
    error: float  # standard error of the true mean


def calibration_bins(predicted: Sequence[float], true: Sequence[float]) -> list[Bin]:
    """Group predictions between 0 and 1 into bins of equal width; empty bins are left out."""
    edges = np.linspace(0.0, 1.0, N_BINS + 1)
    bins = np.clip(np.digitize(predicted, edges) - 1, 0, N_BINS - 1)
    found = []
    for index in np.unique(bins).tolist():
        inside = np.flatnonzero(bins == index).tolist()
        expected, happened = ([values[position] for position in inside] for values in (predicted, true))
        error = stdev(happened) / math.sqrt(len(happened)) if len(happened) > 1 else 0.0
        low, high = float(edges[index]), float(edges[index + 1])
        found.append(Bin(low, high, len(inside), mean(expected), mean(happened), error))
    return found


def calibration_error(predicted: Sequence[float], true: Sequence[float]) -> float:
    """Compute the expected calibration error: the mean distance of predicted and true means over all predictions."""
    bins = calibration_bins(predicted, true)
    return sum(one.n_sets * abs(one.predicted - one.true) for one in bins) / len(predicted)


def _predictions(block: Block, item: Item) -> tuple[list[float], list[float]]:
    """Evaluate the block's two columns, predicted and true values, where there are both."""
    lines = replace(block, file=item.variables.get("file", block.file)).sample(item).lines
    values = [[measure(line, expression).get(None) for line in lines] for expression in block.columns]
    pairs = [(first, second) for first, second in zip(*values, strict=True) if first is not None and second is not None]
    return [first for first, _ in pairs], [second for _, second in pairs]


def calibration(block: Block) -> str:
    """Render predicted and true values in bins."""
    rows = [
        [
            f"{one.low:.1f} to {one.high:.1f}",
            str(one.n_sets),
            number(one.predicted),
            f"{number(one.true)} ± {number(one.error)}",
        ]
        for one in calibration_bins(*_predictions(block, Item()))
    ]
    return markdown_table(block.head, rows)


def calibration_summary(block: Block) -> str:
    """Render means, calibration error and correlation of predicted and true values of several groups."""
    rows = []
    for item in map(block.item, block.rows):
        predicted, true = _predictions(block, item)
        varied = len(set(predicted)) > 1 and len(set(true)) > 1
        correlation = float(np.corrcoef(predicted, true)[0, 1]) if varied else None
        scores = mean(predicted), mean(true), calibration_error(predicted, true), correlation
        rows.append([item.title, str(len(predicted)), *map(number, scores)])
    return markdown_table(block.head, rows)


KINDS: Final[Mapping[str, Callable[[Block], str]]] = {
    "table": table,
    "growth": growth,
    "claims": claims,
    "wins": wins,
    "unfinished": unfinished,
    "headlines": headlines,
    "calibration": calibration,
    "calibration-summary": calibration_summary,
    "text": lambda _: "",
}
