"""The part of docs/results.md that is about attention-based clustering of circles."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.quality.abc_circles import DEFAULT_OUT, KNOWN, LENGTHS, PUBLISHED_STEPS, SPECTRAL, CirclesRecord
from benchmarks.quality.markdown import number, table
from benchmarks.quality.records import Floats, read_lines

METHODS: Final = {
    "additive": "ABC, additive",
    "multiplicative": "ABC, multiplicative",
    SPECTRAL: "spectral",
    "pairwise": "pairwise",
}
DECODINGS: Final = {KNOWN: "told k", "linkage": "not told k, linkage", "eigengap": "not told k, eigengap"}
KINDS: Final = {"any": "circles may cross", "crossing": "every circle crosses another"}
WITH_CONTEXT: Final = ("additive", "multiplicative")
CLAIMED_FROM: Final = 20
"""Shortest sets that the paper's order of methods is looked for at."""


def scores(records: Sequence[CirclesRecord], kind: str, method: str, decoding: str, length: int) -> Floats | None:
    """ARI of each set, of the last such run in the file; None if there is none."""
    wanted = (kind, method, decoding, length)
    found = [record.ari for record in records if (record.sets, record.method, record.decoding, record.length) == wanted]
    return np.array(found[-1]) if found else None


def summary(
    records: Sequence[CirclesRecord], kind: str, method: str, decoding: str, length: int
) -> tuple[float, float] | None:
    """Mean and standard error over sets."""
    found = scores(records, kind, method, decoding, length)
    return None if found is None else (float(found.mean()), float(found.std() / np.sqrt(len(found))))


def section(folder: Path) -> str:
    """What was measured on circles: a table for each kind of sets, and whether the paper's order holds."""
    records = read_lines(folder / DEFAULT_OUT.name, CirclesRecord)
    if not records:
        return "Not run."
    parts = [_trained(records)]
    for kind, title in KINDS.items():
        head = [f"ARI, {title}", *(str(length) for length in LENGTHS)]
        rows = [
            [f"{name}, {way}", *(_cell(records, kind, method, decoding, length) for length in LENGTHS)]
            for decoding, way in DECODINGS.items()
            for method, name in METHODS.items()
            if method != SPECTRAL or decoding == KNOWN
        ]
        parts.append(table(head, rows))
    parts.append(
        f"The paper's order, for sets of {CLAIMED_FROM} points and more; spectral clustering is told k in every line:"
    )
    parts.append("\n".join(_order(records, kind, decoding) for decoding in DECODINGS for kind in KINDS))
    return "\n\n".join(parts)


def _trained(records: Sequence[CirclesRecord]) -> str:
    steps = {record.method: int(record.settings.get("steps") or 0) for record in records if record.method != SPECTRAL}
    said = [f"{METHODS[name]} {steps[name]:,}" for name in METHODS if name in steps]
    return f"Steps that were trained for, of {PUBLISHED_STEPS:,} in the paper: {', '.join(said) or 'none'}."


def _cell(records: Sequence[CirclesRecord], kind: str, method: str, decoding: str, length: int) -> str:
    found = summary(records, kind, method, decoding, length)
    return "–" if found is None else f"{number(found[0])} ± {number(found[1])}"


def _order(records: Sequence[CirclesRecord], kind: str, decoding: str) -> str:
    """Whether both networks with context are above spectral clustering, and that above pairs alone.

    Spectral clustering is always told k; the networks are as the decoding says.
    """
    lengths = [length for length in LENGTHS if length >= CLAIMED_FROM]
    pairs = [(method, SPECTRAL) for method in WITH_CONTEXT] + [(SPECTRAL, "pairwise")]
    said = []
    for above, below in pairs:
        differences = []
        for length in lengths:
            one, other = (
                scores(records, kind, method, KNOWN if method == SPECTRAL else decoding, length)
                for method in (above, below)
            )
            if one is not None and other is not None and len(one) == len(other):
                differences.append(one - other)
        said.append(f"{METHODS[above]} above {METHODS[below]} {_verdict(differences, len(lengths))}")
    return f"- Networks {DECODINGS[decoding]}, {KINDS[kind]}: {'; '.join(said)}."


def _verdict(differences: Sequence[Floats], wanted: int) -> str:
    if len(differences) < wanted:
        return "was not run"
    means = [float(each.mean()) for each in differences]
    least = min(range(wanted), key=lambda place: means[place])
    error = float(differences[least].std() / np.sqrt(len(differences[least])))
    holds = sum(mean > 0 for mean in means)
    where = "at every length" if holds == wanted else f"**at {holds} of {wanted} lengths only**"
    return f"{where} ({means[least]:+.3f} ± {error:.3f} where it is least)"
