"""The part of docs/results.md about twin-contrast clustering and its relatives."""

from collections.abc import Container, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, Final

from scipy.stats import ttest_1samp

from benchmarks.quality.markdown import number, table, with_error
from benchmarks.quality.records import read_lines
from benchmarks.quality.tcc_data import EMBEDDED, LOADERS
from benchmarks.quality.tcc_estimator import ON_EMBEDDINGS, ON_IMAGES, EstimatorRecord
from benchmarks.quality.tcc_suite import ABLATIONS, CONTENDERS, LOOKS, PIXELS, ViewsRecord

DASH: Final = "–"
TITLES: Final = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny-imagenet": "Tiny-ImageNet",
}
NAMES: Final = {
    "tcc": "TCC",
    "tcc without clusters' contrast": "TCC without the contrast of clusters",
    "tcc at once": "TCC, all at once",
    "tcc at once, without x": "TCC, all at once, without x",
    "tcc as published": "TCC's losses as published",
    "cc": "CC",
    "mice": "MiCE",
    "swav": "SwAV",
    "moco": "MoCo + k-means",
    PIXELS: "k-means on pixels",
}
METRICS: Final = ("acc", "nmi", "ari")
HEAD: Final = ("ACC", "NMI", "ARI")
PRINTED: Final[Mapping[str, tuple[float, float, float]]] = {
    "TCC": (0.906, 0.790, 0.733),
    "MiCE": (0.835, 0.737, 0.698),
    "CC": (0.790, 0.705, 0.637),
    "SwAV": (0.796, 0.711, 0.649),
    "DeepCluster-v2": (0.727, 0.652, 0.589),
    "k-means on pixels": (0.229, 0.087, 0.049),
}
"""ACC, NMI and ARI on CIFAR-10 as the papers have them."""
TARGETS: Final = {"mnist": (0.90, 0.97), "fashion-mnist": (0.60, 0.68)}
"""What the method's own clusters were to reach with its defaults within ten minutes, and what would be good."""
MOST_SECONDS: Final = 600.0
RECONSTRUCTION: Final = "**TCC is part reconstruction** ([what is known](methods/tcc.md))."
TEXT: Final = """\
All methods in the next tables share one encoder (four convolutions of 32 channels), projection, views, batches of
256, AdamW in cycles, and {minutes:g} processor minutes of one thread for each training, in which they get as far as
"epochs" says. The images are 10,000 of each collection, those of its test part, seen without their labels; ± the
standard error over seeds. Scale-downs: published runs have a ResNet-34, 1,000 epochs, all 60,000 images of CIFAR-10
and a GPU. Relatives have two views (SwAV no smaller crops, MiCE no third view for its gate), temperatures as
published, but MoCo that of TCC, without which it is far worse here. TCC's own settings (temperature, views of grey
images, no memory, how fast the twin follows, when and how often clusters begin) were chosen on 10,000 training images
of MNIST and Fashion-MNIST, by their labels, some of them at this length; nothing was chosen on CIFAR-10, and nothing
for the relatives. "Features" are clusters of k-means, five starts, on where rows are on the sphere in the end: what a
head could have found."""
PRINTED_TEXT: Final = "As printed, CIFAR-10 at full scale:"
DEFAULTS_TEXT: Final = """\
`TCC(10).fit(images)`, nothing else said, on the 10,000 test images of each collection, from its own head; minutes by
the clock, on one core of two while the other was busy too. Its settings for images were chosen by the labels of
10,000 training images of MNIST and Fashion-MNIST. That long runs have a memory and short ones none, as in the tables
before, goes by them too. In between, long runs had none; that their first seed came out lower here, as shown, was one
reason to go back:"""
COURSE_TEXT: Final = """\
ACC during training, of the methods' own clusters and, in brackets, of k-means on their features; means over seeds:"""
ABLATION_TEXT: Final = (
    "What TCC's settings do: ACC after {minutes:g} processor minute{s} ({seeds} seeds; relaxation is λ, rounds the "
    "memory of clusters; defaults are relaxation 0.5, no memory, momentum 0.9, 20 rounds, temperature 0.5):"
)
SIGNIFICANCE_TEXT: Final = """\
Paired t-tests of ACC over collections and seeds, as in the supplement's D.3. There are few pairs, and those of one
collection have more in common than the test thinks:"""
EMBEDDED_TEXT: Final = """\
On embeddings (EfficientNet-Lite0), sets of ten classes, {sets} of each collection; all are told k, and TCC is
`TCC(10).fit(X)` with views by dropout, noise and mixing. Its first settings for rows were far below k-means on the
first two sets of CIFAR-100; after that had been seen, they were chosen anew (no memory, more dropout and noise) on two
other draws of classes from the same collection, and all sets measured once:"""


def section(folder: Path) -> str:
    """The section, from its heading on; nothing if nothing was measured."""
    measured = read_lines(folder / "tcc.jsonl", ViewsRecord)
    with_tcc = {record.data for record in measured if record.method == "tcc"}
    records = [record for record in measured if record.data in with_tcc]  # relatives alone say nothing of TCC
    estimated = read_lines(folder / "tcc_estimator.jsonl", EstimatorRecord)
    if not records and not estimated:
        return ""
    parts = ["\n\n## Twin contrast: images without labels", RECONSTRUCTION]
    if records:
        ablated = _at_longest(records, ("tcc", *ABLATIONS), by=ABLATIONS)
        records = _at_longest(records, CONTENDERS, by=CONTENDERS) + [one for one in records if one.method == PIXELS]
        parts.append(TEXT.format(minutes=records[0].minutes))
        parts += [f"{TITLES[data]}:\n\n{_compared(records, data)}" for data in LOADERS if _of(records, data)]
        parts += [
            PRINTED_TEXT,
            table(["method", *HEAD], [[name, *map(number, cells)] for name, cells in PRINTED.items()]),
        ]
        parts += [SIGNIFICANCE_TEXT, significance(records)]
        parts += [
            COURSE_TEXT,
            *(f"{TITLES[data]}:\n\n{_course(records, data)}" for data in LOADERS if _of(records, data)),
        ]
        if ablated:
            minutes, seeds = ablated[0].minutes, 1 + max(record.seed for record in ablated)
            s = "" if minutes == 1 else "s"
            parts += [ABLATION_TEXT.format(minutes=minutes, s=s, seeds=seeds), _ablations(ablated)]
    shown = [record for record in estimated if record.data in LOADERS]
    if shown:
        parts += [DEFAULTS_TEXT, _defaults(shown)]
    embedded = [record for record in estimated if record.data in EMBEDDED]
    if embedded:
        parts += [EMBEDDED_TEXT.format(sets=1 + max(record.seed for record in embedded)), _embedded(embedded)]
    return "\n\n".join(parts)


def _at_longest(records: Sequence[ViewsRecord], methods: Container[str], by: Container[str]) -> list[ViewsRecord]:
    """Those of the methods that had as much time as any of some had at most."""
    longest = max((record.minutes for record in records if record.method in by), default=-1.0)
    return [record for record in records if record.method in methods and record.minutes == longest]


def _of(records: Sequence[Any], data: str, method: str | None = None) -> list[Any]:
    return [record for record in records if record.data == data and method in (None, record.method)]


def _values(records: Sequence[Any], metric: str) -> list[float]:
    return [record.metrics[metric] for record in records if metric in record.metrics]


def _compared(records: Sequence[ViewsRecord], data: str) -> str:
    rows = []
    for method, title in NAMES.items():
        if found := _of(records, data, method):
            own = [with_error(_values(found, metric)) for metric in METRICS]
            epochs = number(mean(record.epochs for record in found), 0) if found[0].steps else DASH
            rows.append([title, *own, with_error(_values(found, "acc_places")), epochs, str(len(found))])
    return table(["method", *HEAD, "ACC, features", "epochs", "seeds"], rows)


def significance(records: Sequence[ViewsRecord]) -> str:
    """How far TCC is above the others, pair by pair, and how likely that would be by chance."""
    known = {(record.method, record.data, record.seed): record.metrics["acc"] for record in records}
    rows = []
    for method, title in NAMES.items():
        pairs = [
            (value, known[method, data, seed])
            for (name, data, seed), value in known.items()
            if name == "tcc" and (method, data, seed) in known
        ]
        if method != "tcc" and len(pairs) > 1:
            gains = [ours - theirs for ours, theirs in pairs]
            chance = float(ttest_1samp(gains, 0.0).pvalue)  # of the differences, which is the paired test
            rows.append([title, str(len(pairs)), with_error(gains), f"{chance:.4f}"])
    return table(["TCC less", "pairs", "ACC", "p"], rows)


def _course(records: Sequence[ViewsRecord], data: str) -> str:
    rows = []
    for method in CONTENDERS:
        courses = [record.looks for record in _of(records, data, method)]
        if courses:
            looks = zip(*courses, strict=True)
            cells = [
                f"{number(mean(own for _, own, _ in look), 2)} ({number(mean(places for _, _, places in look), 2)})"
                for look in looks
            ]
            rows.append([NAMES[method], *cells])
    return table(["method", *(f"{look} of {LOOKS}" for look in range(1, LOOKS + 1))], rows)


def _ablations(records: Sequence[ViewsRecord]) -> str:
    used = [data for data in LOADERS if any(record.method in ABLATIONS for record in _of(records, data))]
    rows = []
    for method in ("tcc", *ABLATIONS):
        found = [_of(records, data, method) for data in used]
        if any(found):
            title = "TCC" if method == "tcc" else method.removeprefix("tcc, ")
            rows.append([title, *(with_error(_values(each, "acc")) for each in found)])
    return table(["", *(TITLES[data] for data in used)], rows)


def _defaults(records: Sequence[EstimatorRecord]) -> str:
    rows, lines = [], []
    for data, method in product(LOADERS, ON_IMAGES):
        found = _of(records, data, method)
        if not found:
            continue
        seconds = [record.seconds for record in found]
        cells = [with_error(_values(found, metric)) for metric in METRICS]
        each = ", ".join(number(value) for value in _values(found, "acc"))
        rows.append([TITLES[data] + method.removeprefix("tcc"), *cells, each, f"{mean(seconds) / 60:.1f}"])
        if method == "tcc" and data in TARGETS:
            least, good = TARGETS[data]
            worst = min(_values(found, "acc"))
            in_time = max(seconds) <= MOST_SECONDS
            lines.append(
                f"- {TITLES[data]}: ACC of at least {number(least, 2)} within ten minutes with every seed "
                f"{_reached(worst >= least and in_time)}; {number(good, 2)} {_reached(worst >= good and in_time)}."
            )
    return table(["images", *HEAD, "ACC of each seed", "minutes"], rows) + "\n\n" + "\n".join(lines)


def _embedded(records: Sequence[EstimatorRecord]) -> str:
    parts = []
    for data in EMBEDDED:
        rows = []
        ours = {record.seed: record.metrics["acc"] for record in _of(records, data, "tcc")}
        for method in ON_EMBEDDINGS:
            if found := _of(records, data, method):
                cells = [with_error(_values(found, metric)) for metric in METRICS]
                gains = [ours[one.seed] - one.metrics["acc"] for one in found if one.seed in ours]
                less = DASH if method == "tcc" else with_error(gains)
                rows.append(
                    [{"tcc": "TCC"}.get(method, method), *cells, less, f"{mean(one.seconds for one in found):.1f}"]
                )
        if rows:
            head = ["method", *HEAD, "ACC, TCC less this", "s"]
            parts.append(f"{TITLES[data]}:\n\n" + table(head, rows))
    return "\n\n".join(parts)


def _reached(is_reached: bool) -> str:
    return "is reached" if is_reached else "is **not reached**"
