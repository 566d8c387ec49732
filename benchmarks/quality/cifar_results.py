"""The part of docs/results.md about pictures of unseen classes, clustered end to end from pixels: ABC's Table 4."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Final, TypeAlias

from benchmarks.quality.cifar_networks import CHANNELS, NETWORKS
from benchmarks.quality.cifar_suite import BASELINE_READING, OUT, PUBLISHED_SETS, SINGLETONS, CifarRecord
from benchmarks.quality.markdown import number, table, with_error
from benchmarks.quality.networks import values_of
from benchmarks.quality.records import read_lines

Way: TypeAlias = tuple[str, str]
"""Method, and how its clusters are read."""

METHODS: Final = {
    "multiplicative": "ABC, multiplicative",
    "additive": "ABC, additive",
    "pairwise": "pairwise",
    "kmeans-embeddings": "k-means, embeddings",
    "spectral-embeddings": "spectral, embeddings",
    "kmeans-pixels": "k-means, pixels",
    "spectral-pixels": "spectral, pixels",
    SINGLETONS: "each picture by itself",
}
READINGS: Final = {
    "linkage": "linkage",
    "eigengap": "eigengap, spectral",
    "linkage-k": "linkage",
    "spectral-k": "spectral",
    BASELINE_READING: "",
}
HEAD: Final = ("NMI", "ARI", "k-MAE", "s")
DIGITS: Final = {"nmi": 3, "ari": 3, "k_error": 2, "seconds": 3}
TEXT: Final = """\
ABC's Table 4, whose numbers our copy of the paper has lost: sets of 128 pictures of 2 to 10 classes by the paper's
Algorithm 1, of the last ten classes of CIFAR-100, which no network was trained on; {sets} sets, where the paper has
{published_sets:,}. Networks see pixels, and are trained end to end with their encoder. k-means (ten starts) and
spectral clustering (neighbours) are told k; "embeddings" are what the encoder of the multiplicative network, once
trained, makes of pixels. Their settings were chosen by NMI on nine classes that were held back from training, and the
cut of linkage by ARI on the same: NMI, the paper's score, is high for many small clusters, as the row in which each
picture is by itself shows. "Pairwise" is the additive network without attention.

What is smaller than published: there were 100 pictures of each class to learn from, of 81 classes, where the paper
has 600 of 90; the VGG-like encoder begins with {channels} channels, not 64, and gets wider in the same way; and the
authors drew ten million sets. Here the encoder was learned first, once for all three networks, by naming the 81
training classes{shared}, since pairs alone did not begin to teach it in a short trial. From there each network went
on, encoder and all, with sets like those of the test: {budgets}. Pictures were turned, stretched, shifted and
mirrored at random meanwhile. One training run each. After ± stands the standard error over sets; s: processor seconds
per set, from pixels to clusters, one thread of a busy machine."""
COMPARED: Final[Sequence[tuple[Way, Way]]] = (
    (("multiplicative", "linkage"), ("pairwise", "linkage")),
    (("additive", "linkage"), ("pairwise", "linkage")),
    (("multiplicative", "linkage"), ("multiplicative", "eigengap")),
    (("multiplicative", "linkage"), ("kmeans-embeddings", BASELINE_READING)),
    (("multiplicative", "linkage"), ("spectral-embeddings", BASELINE_READING)),
    (("multiplicative", "linkage"), ("kmeans-pixels", BASELINE_READING)),
)
"""What should be above what."""


def section(folder: Path) -> str:
    """The section, from its heading on; nothing if nothing was measured."""
    lines = [record for record in read_lines(folder / OUT.name, CifarRecord) if record.part == "test"]
    records = {(record.method, record.reading): record for record in lines}
    if not records:
        return ""
    parts = ["\n\n## CIFAR-100: pictures of unseen classes", _text(records)]
    for told, title in ((False, "k unknown"), (True, "k given")):
        rows = [
            _row(record)
            for method in METHODS
            for reading in READINGS
            if (record := records.get((method, reading))) is not None and record.told == told
        ]
        if rows:
            parts.append(table([title, "clusters by", *HEAD], rows))
    parts.append("What should be above what, with the mean difference set by set:")
    parts.append("\n".join(_verdict(records, *pair) for pair in COMPARED))
    return "\n\n".join(parts)


def _text(records: Mapping[Way, CifarRecord]) -> str:
    settings = {record.method: record.settings for record in records.values() if record.method in NETWORKS}
    one = next(iter(settings.values()), None)
    return TEXT.format(
        sets=max(len(record.seconds) for record in records.values()),
        published_sets=PUBLISHED_SETS,
        channels=CHANNELS if one is None else one["model.channels"],
        shared="" if one is None else f" ({_budget(one, 'pictures', 'shared.')})",
        budgets="; ".join(f"{METHODS[name]}: {_budget(settings[name])}" for name in METHODS if name in settings)
        or "not run",
    )


def _budget(settings: Mapping[str, object], things: str = "sets", prefix: str = "") -> str:
    steps, batch_size, minutes = (settings[prefix + name] for name in ("steps", "batch_size", "minutes"))
    return f"{steps} steps of {batch_size} {things}, {minutes} minutes of one core"


def _row(record: CifarRecord) -> list[str]:
    cells = [with_error(values_of(record, metric), digits) for metric, digits in DIGITS.items()]
    if record.told:
        cells[list(DIGITS).index("k_error")] = number(None)
    return [METHODS[record.method], READINGS[record.reading], *cells]


def _verdict(records: Mapping[Way, CifarRecord], above: Way, below: Way) -> str:
    """Whether one is above the other, set by set."""
    one, other = records.get(above), records.get(below)
    start = f"- {_name(above)} above {_name(below)}: "
    if one is None or other is None or len(one.seconds) != len(other.seconds):
        return start + "not run."
    said = []
    for metric in ("nmi", "ari"):
        gains = [ours - theirs for ours, theirs in zip(one.metrics[metric], other.metrics[metric], strict=True)]
        reached = "reached" if mean(gains) > 0 else "**not reached**"
        said.append(f"{metric.upper()} {reached} ({with_error(gains)})")
    return start + ", ".join(said) + "."


def _name(way: Way) -> str:
    method, reading = way
    if reading == BASELINE_READING:
        return f"{METHODS[method]} (told k)"
    return f"{METHODS[method]} ({READINGS[reading]}, not told k)"
