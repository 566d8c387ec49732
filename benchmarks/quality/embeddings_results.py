"""The part of docs/results.md about embedded pictures of classes that no clusterer was trained on."""

from pathlib import Path
from statistics import mean
from typing import Final

from benchmarks.quality.dac_sets import published
from benchmarks.quality.embeddings_data import Collection
from benchmarks.quality.embeddings_suite import BASELINES, COLLECTIONS, OUT, EmbeddingsRecord
from benchmarks.quality.markdown import number, table, with_error
from benchmarks.quality.networks import values_of
from benchmarks.quality.records import read_lines

DASH: Final = "–"
TITLES: Final[dict[Collection, str]] = {"tiny-imagenet": "Tiny-ImageNet", "cifar100": "CIFAR-100"}
METHODS: Final = {
    "kmeans": "k-means, true k",
    "spectral": "spectral, true k",
    "kmeans-raw": "k-means on raw features, true k",
    "spectral-raw": "spectral on raw features, true k",
    "dec": "DEC, true k",
    "kcl": "KCL",
    "mcl": "MCL",
    "dac-min-loss": "DAC-MLF",
    "dac-anchored": "DAC-AF",
    "dac-anchored-12": "DAC-AF, trained on 2 to 12 classes",
    "dac-framed": "DAC-AF, principal directions too",
    "dac-framed-12": "DAC-AF, principal directions too, trained on 2 to 12 classes",
    "abc": "ABC",
    "dac-anchored-12-short": "DAC-AF, trained on 2 to 12 classes, half the steps",
    "dac-anchored-12-before": "DAC-AF, trained on 2 to 12 classes, before",
    "abc-before": "ABC, before",
}
METRICS: Final = ("ari", "nmi", "k_error", "seconds")
HEAD: Final = ("ARI", "NMI", "k-MAE", "s")
DIGITS: Final = {"ari": 3, "nmi": 3, "k_error": 2, "seconds": 3}
TEXT: Final = """\
A stand-in for the embedded ImageNet of DAC's Table 2 and ABC's Table 3, whose features cannot be had: 1,280 features
of EfficientNet-Lite0, which was trained to name the classes of ImageNet. Classes are told apart by the last digit of
their number: 0 to 5 for training, 6 for choices, 7 to 9 for the test; no set mixes the two collections. Tiny-ImageNet
has 50 pictures of each class, so its sets have 100 to 300 pictures; those of CIFAR-100 have 300; all have 2 to 12
classes, of sizes as in ABC's Algorithm 1. k-means (ten starts) and spectral clustering (neighbours) are told k and
have the features, raw or prepared as for the networks (roots, unit length, 128 principal directions of the training
classes, partly whitened), that did best on the validation classes. DAC was trained on sets of at most 100 pictures and
four classes as published, and DAC-AF also on the sets of ABC, up to 200 and twelve. DAC-AF compares with its anchors,
and every picture is one; how it and ABC read average linkage (the cut, the smallest cluster, whether pictures then
move between clusters) is what had the best ARI on the validation classes. What is tested was then trained anew on the
classes for training and for choices together, 140 of Tiny-ImageNet's and 70 of CIFAR-100's, with nothing else changed;
but not DAC-MLF and DAC-AF on four classes, which are as they were before that and before pictures moved. "Principal
directions too" is DAC-AF that sees every set also from the set's own 32 principal directions (`principal_beside`),
calibrated and trained a second time like the others. One such run each, on a processor, of a few minutes{minutes}.
After results on the test classes had been seen, these were added: DAC-AF on twelve classes, the baselines on raw
features, the joining of clusters that are too small, the moving of pictures between clusters, the second training,
twice as many steps for DAC-AF on twelve classes, which do not show on the validation classes (ARI {validated}), and
last the principal directions; "before" is what networks did without pictures that move, the second training and twice
the steps. All settings are from the validation classes. After ± stands the standard error over sets; s: processor
seconds per set."""
NOT_TOLD: Final = ("abc", "dac-framed", "dac-framed-12", "dac-anchored", "dac-anchored-12", "dac-anchored-12-short")
"""Methods that were to do better than those that are told the number of clusters."""


def section(folder: Path) -> str:
    """The section, from its heading on; nothing if nothing was measured."""
    records = {
        (record.data, record.method): record
        for record in read_lines(folder / OUT.name, EmbeddingsRecord)
        if record.part == "test"
    }
    if not records:
        return ""
    minutes = {
        METHODS[method]: record.settings.get("minutes") for (_, method), record in records.items() if method in METHODS
    }
    budgets = ", ".join(f"{title} {taken}" for title, taken in minutes.items() if taken is not None)
    text = TEXT.format(minutes=f" ({budgets})" if budgets else "", validated=_validated(folder))
    parts = ["\n\n## Embeddings", text]
    for data in COLLECTIONS:
        rows = [_row(name, records.get((data, name))) for name in METHODS if (data, name) in records]
        count = max(len(record.seconds) for record in records.values() if record.data == data)
        parts.append(f"{TITLES[data]}, {count} sets:\n\n" + table(["method", *HEAD], rows))
    printed = published()["2"]["embedded-imagenet"]
    rows = [[title, *_printed_cells(printed[name])] for name, title in METHODS.items() if name in printed]
    parts.append("As printed, embedded ImageNet, 1,000 sets at (300, 12):\n\n" + table(["method", *HEAD], rows))
    parts.append("Those that are not told k were to be above those that are; mean difference of ARI, set by set:")
    parts += [f"{TITLES[data]}:\n\n{_gains(records, data)}" for data in COLLECTIONS]
    return "\n\n".join(parts)


def _validated(folder: Path) -> str:
    """How DAC-AF on twelve classes does on the validation classes after as many steps and after half of them."""
    scores: dict[str, list[float]] = {"dac-anchored-12": [], "dac-anchored-12-short": []}
    for record in read_lines(folder / OUT.name, EmbeddingsRecord):
        if record.part == "validation" and record.method in scores:
            scores[record.method].append(mean(record.metrics["ari"]))
    long, short = (number(mean(each)) if each else DASH for each in scores.values())
    return f"{long} after all and {short} after half of them, mean of both collections"


def _row(name: str, record: EmbeddingsRecord | None) -> list[str]:
    cells = [with_error(values_of(record, metric), DIGITS[metric]) for metric in METRICS]
    if name in BASELINES:
        cells[METRICS.index("k_error")] = DASH  # it is told
    return [METHODS[name], *cells]


def _printed_cells(printed: dict[str, float]) -> list[str]:
    cells = []
    for metric in METRICS:
        text = number(printed.get(metric), DIGITS[metric])
        error = printed.get(f"{metric}_error")
        cells.append(text if error is None else f"{text} ± {number(error, DIGITS[metric])}")
    return cells


def _gains(records: dict[tuple[Collection, str], EmbeddingsRecord], data: Collection) -> str:
    """What not being told costs or not: how far those that are not told are above those that are, set by set."""
    rows = []
    for method in NOT_TOLD:
        cells = []
        for told in BASELINES:
            ours, theirs = (records.get((data, name)) for name in (method, told))
            if ours is None or theirs is None:
                cells.append(DASH)
                continue
            gains = [one - other for one, other in zip(ours.metrics["ari"], theirs.metrics["ari"], strict=True)]
            reached = "above" if mean(gains) > 0 else "**not above**"
            cells.append(f"{reached} ({with_error(gains, 3)})")
        rows.append([METHODS[method], *cells])
    return table(["ARI, not told k", *(METHODS[told] for told in BASELINES)], rows)
