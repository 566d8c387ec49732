"""The part of docs/results.md that is about hand-written characters; what was not run is a dash, or is said so."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Final

from benchmarks.quality.markdown import number, table
from benchmarks.quality.omniglot_sets import published
from benchmarks.quality.omniglot_suite import EVALUATION, HELD_BACK, OmniglotRecord
from benchmarks.quality.records import read_lines

DASH: Final = "–"
METHODS: Final = {
    "abc": "ABC, end to end",
    "abc-1-view": "ABC, end to end, one view",
    "multiplicative": "ABC, multiplicative",
    "additive": "ABC, additive",
    "faithful": "ABC as published, multiplicative",
    "faithful-additive": "ABC as published, additive",
    "pairwise": "pairwise",
    "dac-af": "DAC-AF",
    "kcl": "KCL",
    "mcl": "MCL",
    "k-means": "k-means, pixels",
    "k-means-many": "k-means, pixels, 100 clusters",
    "spectral-rbf": "spectral, pixels",
}
READINGS: Final = {
    "linkage": "linkage at the cut",
    "contraction": "contraction",
    "eigengap": "eigengap, spectral",
    "linkage-k": "linkage, k given",
    "spectral-k": "spectral, k given",
    "kernel": "every point an anchor",
    "robust": "one anchor after the other",
    "training": "trained on the set",
    "many": "told 100",
    "k": "k given",
}
OTHER_READING: Final = {"dac-af": "kernel", "kcl": "training", "mcl": "training", "k-means-many": "many"}
"""What stands for linkage, of methods that have ways to clusters of their own."""
TOLD: Final = ("k-means", "spectral-rbf")
"""Methods that are always told k."""
COLUMNS: Final = (
    ("varying", "linkage"),
    ("varying", "contraction"),
    ("varying", "eigengap"),
    ("varying", "linkage-k"),
    ("varying", "spectral-k"),
    ("fixed", "linkage-k"),
    ("fixed", "spectral-k"),
)
PER_ALPHABET: Final = ("abc", "additive", "pairwise", "dac-af")
KERNELS: Final = ("abc", "abc-1-view", "multiplicative", "additive", "faithful", "faithful-additive", "pairwise")
COMPARED: Final = {"kcl": 0, "mcl": 1, "dac-af": 2}
"""Methods of the published Table 8, by their place in its lists."""
AT_LEAST: Final = 0.89
GOAL: Final = 0.92
WITHIN: Final = 0.02
DAC_AT_LEAST: Final = 0.80
TIMES_FASTER: Final = 30.0


class OmniglotPage:
    """All records of the suite, and the sections made of them."""

    def __init__(self, folder: Path) -> None:
        self.records = {
            (record.alphabets, record.task, record.method, record.reading): record
            for record in read_lines(folder / "omniglot.jsonl", OmniglotRecord)
        }

    def record(self, task: str, method: str, reading: str, which: str = EVALUATION) -> OmniglotRecord | None:
        """The newest one; of methods with ways to clusters of their own, that which gives or hides k as asked."""
        if method in TOLD:
            reading = "k" if reading in {"linkage-k", "k"} else ""
        elif method in OTHER_READING:
            reading = OTHER_READING[method] if reading in {"linkage", OTHER_READING[method]} else ""
        return self.records.get((which, task, method, reading))

    def mean(self, task: str, method: str, reading: str, metric: str = "nmi", which: str = EVALUATION) -> float | None:
        """Mean over the alphabets; None if it was not run."""
        record = self.record(task, method, reading, which)
        values = {} if record is None else _values(record, metric)
        return mean(values.values()) if values else None

    def cell(self, task: str, method: str, reading: str, metric: str = "nmi", which: str = EVALUATION) -> str:
        """Mean over alphabets and its standard error."""
        record = self.record(task, method, reading, which)
        if record is None:
            return DASH
        return _spread(list(_values(record, metric).values()), 3 if metric == "nmi" else 1)

    def instances(self) -> str:
        """Sets of 100 images: all methods, all ways to read clusters off."""
        rows = []
        for method, title in METHODS.items():
            cells = [self.cell(task, method, reading) for task, reading in COLUMNS]
            error = self.cell("varying", method, "linkage", "k_error")
            if any(cell != DASH for cell in cells):
                rows.append([title, cells[0], error, *cells[1:]])
        head = ["method", "k unknown: linkage", "k off by", "contraction", "eigengap, spectral"]
        head += ["k known: linkage", "spectral", "k = 20: linkage", "spectral"]
        return table(head, rows) if rows else "Not run."

    def per_alphabet(self) -> str:
        """Table 5: NMI of each alphabet."""
        columns = [
            (f"{METHODS[method]}, {words}", self.record(task, method, reading))
            for method in PER_ALPHABET
            for task, reading, words in (
                ("varying", "linkage", "k unknown"),
                ("varying", "linkage-k", "known"),
                ("fixed", "linkage-k", "20"),
            )
        ]
        there = [(words, record) for words, record in columns if record is not None]
        if not there:
            return "Not run."
        names = sorted(there[0][1].nmi)
        rows = [[_spelled(name), *(number(record.nmi.get(name)) for _, record in there)] for name in names]
        return table(["alphabet", *(words for words, _ in there)], rows)

    def whole(self) -> str:
        """Tables 3 and 4: whole alphabets."""
        rows = []
        for method, title in METHODS.items():
            for reading, words in READINGS.items():
                record = self.records.get((EVALUATION, "whole", method, reading))
                if record is None:
                    continue
                printed = _printed(method, told=record.told)
                cells = [
                    _beside(_spread(list(_values(record, metric).values()), digits), printed.get(metric), digits)
                    for metric, digits in (("nmi", 3), ("k_error", 1), ("seconds", 2))
                ]
                if record.told:
                    cells[1] = DASH
                rows.append([title, words, *cells])
        return table(["method", "clusters by", "NMI", "k off by", "s"], rows) if rows else "Not run."

    def table_8(self) -> str:
        """Errors and seconds of each alphabet, beside the published ones."""
        ours = {method: self.record("whole", method, "linkage") for method in ("abc", *COMPARED)}
        if ours["abc"] is None:
            return "Not run."
        rows = []
        for name, printed in published()["alphabets"].items():
            row = [_spelled(name), str(printed["k"])]
            for metric, digits in (("k_error", 0), ("seconds", 1)):
                for method, record in ours.items():
                    text = DASH if record is None else number(_values(record, metric).get(name), digits)
                    theirs = printed[metric][COMPARED[method]] if method in COMPARED else None
                    row.append(_beside(text, theirs, digits))
            rows.append(row)
        titles = [METHODS[method] for method in ours]
        return table(["alphabet", "k", *(f"{t}: k off by" for t in titles), *(f"{t}: s" for t in titles)], rows)

    def held_back(self) -> str:
        """What was looked at before the evaluation alphabets were."""
        rows = []
        for method in KERNELS:
            cells = [
                self.cell(task, method, reading, metric, HELD_BACK)
                for task in ("varying", "whole")
                for reading, metric in (("linkage", "nmi"), ("linkage", "k_error"), ("eigengap", "nmi"))
            ]
            record = self.record("varying", method, "linkage", HELD_BACK)
            if record is not None:
                rows.append([METHODS[method], str(record.found.get("cut", DASH)), *cells])
        head = ["method", "cut"]
        head += [f"{task}: {what}" for task in ("100 images", "whole") for what in ("linkage", "k off by", "eigengap")]
        return table(head, rows) if rows else "Not run."

    def verdict(self) -> str:
        """Which of the aims were reached."""
        unknown = self.mean("varying", "abc", "linkage")
        known = self.mean("varying", "abc", "linkage-k")
        dac, ours = (self.mean("whole", method, "linkage") for method in ("dac-af", "abc"))
        lines = [
            _aim(f"100 images, k unknown, NMI at least {number(AT_LEAST, 2)}", unknown, AT_LEAST),
            _aim(f"the same, at least {number(GOAL, 2)}", unknown, GOAL),
        ]
        apart = None if unknown is None or known is None else abs(known - unknown)
        lines.append(_aim(f"k known and unknown within {number(WITHIN, 2)}", apart, WITHIN, at_most=True))
        lines.append(_aim(f"whole alphabets, DAC-AF at least {number(DAC_AT_LEAST, 2)}", dac, DAC_AT_LEAST))
        above = None if dac is None or ours is None else ours - dac
        lines.append(_aim("whole alphabets, ABC above DAC-AF", above, 0.0))
        printed = published()["nmi"]["dac-af"]["unknown"]
        lines.append(_aim(f"whole alphabets, ABC above the published DAC-AF, {number(printed)}", ours, printed))
        off = self.mean("whole", "abc", "linkage", "k_error")
        theirs = published()["means"]["dac-af"]["k_error"]
        words = f"whole alphabets, ABC's k off by no more than the published DAC-AF's, {theirs}"
        lines.append(_aim(words, off, theirs, at_most=True, digits=1))
        for rival in ("kcl", "mcl"):
            times = self._times_faster(rival)
            words = f"whole alphabets, ABC at least {TIMES_FASTER:.0f} times faster than {METHODS[rival]}"
            lines.append(_aim(words, times, TIMES_FASTER, digits=0))
        return "\n".join(lines)

    def _times_faster(self, rival: str) -> float | None:
        theirs, ours = (self.mean("whole", method, "linkage", "seconds") for method in (rival, "abc"))
        return None if theirs is None or ours is None else theirs / ours


def sections(folder: Path) -> dict[str, Callable[[], str]]:
    """Parts of the page by their names in the template."""
    page = OmniglotPage(folder)
    return {
        "omniglot_instances": page.instances,
        "omniglot_verdict": page.verdict,
        "omniglot_per_alphabet": page.per_alphabet,
        "omniglot_whole": page.whole,
        "omniglot_table_8": page.table_8,
        "omniglot_held_back": page.held_back,
    }


def _values(record: OmniglotRecord, metric: str) -> Mapping[str, float]:
    by_metric = {"nmi": record.nmi, "k_error": record.k_error, "seconds": record.seconds}
    return by_metric[metric]


def _printed(method: str, *, told: bool) -> Mapping[str, float]:
    """What the paper has of a method, if it was told as much."""
    name = "k-means" if method == "k-means-many" else method
    scores = published()["nmi"].get(name, {})
    found = {"nmi": scores["given" if told else "unknown"]} if ("given" if told else "unknown") in scores else {}
    return found if told else found | published()["means"].get(name, {})


def _spread(values: Sequence[float], digits: int) -> str:
    """Mean, and its standard error if there are several."""
    text = number(mean(values), digits)
    return text if len(values) < 2 else f"{text} ± {number(stdev(values) / math.sqrt(len(values)), digits)}"


def _beside(text: str, printed: float | None, digits: int) -> str:
    return text if printed is None else f"{text} / {number(printed, digits)}"


def _aim(words: str, value: float | None, limit: float, *, at_most: bool = False, digits: int = 3) -> str:
    if value is None:
        return f"- {words}: not run."
    reached = value <= limit if at_most else value >= limit
    return f"- {words}: {'reached' if reached else '**not reached**'} ({number(value, digits)})."


def _spelled(name: str) -> str:
    return name.replace("_", " ")
