"""The part of docs/results.md that is about AMCP; what was not run is a dash, or is said not to have been."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks.quality.amcp_data import POINTS, Collection
from benchmarks.quality.amcp_networks import ContenderRecord
from benchmarks.quality.amcp_pictures import COLLECTIONS, TOLD, PictureRecord
from benchmarks.quality.dac_results import TITLES, DacPage
from benchmarks.quality.dac_sets import TABLES
from benchmarks.quality.markdown import number, table, with_error
from benchmarks.quality.networks import values_of
from benchmarks.quality.records import read_lines
from benchmarks.speed.amcp import growth

NOT_RUN: Final = "Not run."
DASH: Final = "–"
BESIDE: Final = {
    1: (
        "true-parameters",
        "amcp",
        "amcp-star",
        "dac",
        "act-st",
        "refined-seeds",
        "amcp-faithful-decoding",
        "amcp-star-faithful-decoding",
        "dac-faithful-decoding",
    ),
    5: ("true-parameters", "amcp", "amcp-star", "dac", "ncp-10", "ncp-50"),
}
"""Methods that stand in each of DAC's tables beside AMCP."""
SYNTHETIC_METRICS: Final = ("ll", "ari", "nmi", "k_error", "seconds")
SYNTHETIC_HEAD: Final = ("LL", "ARI", "NMI", "k-MAE", "s")
LARGE: Final = "mog-3000-12"
LEAST_ARI, MOST_K_ERROR = 0.95, 0.4
"""What was aimed at there."""
DECODINGS: Final = ("faithful", "star", "robust", "as it comes")
PICTURES: Final = {
    "amcp": "AMCP",
    "amcp-star": "AMCP*",
    "amcp-transport": "AMCP, optimal transport",
    "amcp-unframed": "AMCP, points as they are, without frames",
    "amcp-mlp": "AMCP, MLP encoder",
    "amcp-2-classes": "AMCP, 2 training classes",
    "amcp-3-classes": "AMCP, 3 training classes",
    "amcp-4-classes": "AMCP, 4 training classes",
    "dac": "DAC, anchored, kernel",
    "ncp": "NCP",
    "kmeans": "k-means, told k",
    "spectral": "spectral, told k",
    "gmm": "Gaussian mixture, told k",
    "kmeans-encoded": "k-means on the encoder's features, told k",
    "spectral-encoded": "spectral on the encoder's features, told k",
}
GAINS_OVER: Final = ("kmeans", "spectral", "kmeans-encoded", "spectral-encoded")
"""Methods, told the number of clusters, that AMCP is compared with set by set."""
GAINS: Final = (
    *((ours, told) for ours in ("amcp", "amcp-star") for told in GAINS_OVER),
    ("amcp", "dac"),
    ("amcp-transport", "amcp"),
    ("amcp", "amcp-unframed"),
)
"""All that is compared so."""
COLLECTION_TITLES: Final[dict[Collection, str]] = {
    "mnist": "MNIST, odd digits",
    "cifar10": "CIFAR-10, the other five classes",
    "tiny-imagenet": "Tiny-ImageNet, the other hundred classes",
    "tiny-imagenet-embedded": "Tiny-ImageNet, the same, embedded",
}
SPEED_TEXT: Final = """\
The appendix says that time grows with the points and with the clusters so far, and with nothing else. Seconds for one
set of Gaussians of equal size, one thread, on a quiet machine, the median of three. "Passes": clusters as the passes
make them, all points in the network; "AMCP" and "DAC" are the estimators, which filter a sample of the points and put
clusters right. "Growth" is the exponent from the first line to the last: 1 where twice as many take twice as long.
A pass of AMCP looks at all clusters so far, so that all passes together grow faster than with the clusters; where
passes leave strays, more clusters are found than there are, and time grows faster with the points too. As far as it can
be told, the claim holds for one pass; DAC, whose passes see fewer and fewer points, takes less time here."""
PICTURES_TEXT: Final = """\
The appendix's splits: MNIST's even digits are trained on and the odd ones tested; airplane, bird, deer, frog and ship
of CIFAR-10, and the other five; the first hundred classes of Tiny-ImageNet, and the other hundred. Sets have 2 to 5
classes (Tiny-ImageNet 2 to 20). Scaled down: minutes of one core instead of hours of a graphics card, training sets
of 40 to 150 pictures instead of 1,000 to 10,000, 20 to 100 test sets of each size instead of 1,000, Tiny-ImageNet
with 50 pictures of each class at 32 by 32 pixels instead of 550 at 64. "Embedded": features of EfficientNet-Lite0,
which knows the classes of ImageNet.

Five classes are too few to learn from what makes a class. So pictures are put together of two halves, each of a class
that is as it is or turned by a quarter to either side, which makes 225 classes of five. No half is upside down: a six
would be a nine, which is one of the digits of the test. An encoder learns to name those of an upper and a lower half,
of which some are whole pictures, and stays as it is. Networks then learn from sets of what it sees of other classes:
those of a left and a right half, none of them whole. Of Tiny-ImageNet, which has classes enough, every other one is
named and the others are sorted. AMCP and DAC see each set along its own 8 principal directions; "without frames", as
NCP does, the encoder's features as they are. Halves, frames, their directions, the learning rate, and that AMCP is
trained through all clusters of a set in turn, were chosen on sets of EMNIST's letters, never on the odd digits.

Networks are not told k; what is left to choose of their clusters, such as how small they may be, is what did best on
sets of such classes that were held back. k-means, spectral clustering and mixtures are told k, and have 50 principal
components of each set: of its pixels (embedded: its features) or, "on the encoder's features", of what the networks'
encoder sees. Published accuracies (Table 6, sets not described further): MNIST AMCP .985, AMCP* .976; CIFAR-10 .902,
.909; Tiny-ImageNet .132, .138. NMI is over the geometric mean of the entropies, as there."""
CLAIMS: Final = (
    ("amcp T=1", "amcp T=0"),
    ("amcp", "amcp T=1"),
    ("amcp T=5", "amcp T=1"),
    ("amcp transport T=1", "amcp T=1"),
    ("amcp transport T=3", "amcp"),
    ("amcp transport T=5", "amcp T=5"),
)
"""Networks that differ in what the appendix says makes them better: more steps, and optimal transport."""
CONTENDING: Final = {
    ("amcp", "robust"): "AMCP",
    ("amcp", "faithful"): "AMCP, as the passes made it",
    ("amcp", "star"): "AMCP*, as the passes made it",
    ("dac", "robust"): "DAC",
    ("dac", "faithful"): "DAC, as the passes made it",
    ("act-st", "as it comes"): "ACT-ST",
    ("ncp", "as it comes"): "NCP",
}
"""Networks and decodings that are shown with all that is measured; those for warped sets have the same names there."""
PICTURE_METRICS: Final = {"acc": 3, "nmi": 3, "ari": 3, "k_error": 2, "seconds": 2}


def sections(folder: Path) -> dict[str, Callable[[], str]]:
    """Parts of the page by their names in the template."""
    contenders = read_lines(folder / "amcp_networks.jsonl", ContenderRecord)
    pictures = read_lines(folder / "amcp_pictures.jsonl", PictureRecord)
    page = DacPage(folder, "dac.jsonl", "amcp.jsonl")
    return {
        "amcp_synthetic": lambda: synthetic(page),
        "amcp_verdict": lambda: verdict(page),
        "amcp_networks": lambda: networks(contenders),
        "amcp_contenders": lambda: beside_others(contenders),
        "amcp_claims": lambda: claims(contenders),
        "amcp_course": lambda: course(contenders),
        "amcp_pictures": lambda: picture_tables(pictures),
        "amcp_speed": lambda: speeds(read_lines(folder / "speed_amcp.jsonl", dict)),
    }


def synthetic(page: DacPage) -> str:
    """AMCP beside what DAC was compared with, on the sets of its tables."""
    if not page.chosen(1, LARGE, "amcp"):
        return NOT_RUN
    parts = []
    for number_of_table, methods in BESIDE.items():
        for sets in TABLES[number_of_table]:
            rows = [page.row(number_of_table, sets.name, method, SYNTHETIC_METRICS) for method in methods]
            # What is after a slash was printed of DAC and of what it was compared with, and stands in DAC's tables.
            rows = [[cell.split(" / ")[0] for cell in row] for row in rows]
            title = f"Sets of DAC's Table {number_of_table}, {TITLES[sets.name]}:\n\n"
            parts.append(title + table(["method", "sets", *SYNTHETIC_HEAD], rows))
    return "\n\n".join(parts)


def verdict(page: DacPage) -> str:
    """Whether AMCP reached what was aimed at, and how far it is from DAC."""
    score, error = (page.mean(1, LARGE, "amcp", metric) for metric in ("ari", "k_error"))
    if score is None or error is None:
        return NOT_RUN
    start = f"- {TITLES[LARGE]}, "
    lines = [
        f"{start}ARI at least {number(LEAST_ARI, 2)}: {_reached(score >= LEAST_ARI)} ({number(score)}).",
        f"{start}k-MAE at most {number(MOST_K_ERROR, 1)}: {_reached(error <= MOST_K_ERROR)} ({number(error)}).",
    ]
    for metric, words in (("ari", "ARI"), ("k_error", "k-MAE"), ("ll", "LL")):
        both = [page.values(1, LARGE, method, metric) for method in ("amcp", "dac")]
        if all(both):
            gains = [ours - theirs for ours, theirs in zip(*both, strict=False)]
            lines.append(f"{start}AMCP less DAC, set by set: {words} {with_error(gains, 4)}.")
    return "\n".join(lines)


def networks(records: Sequence[ContenderRecord]) -> str:
    """Networks that were trained for the same time, one table for each kind of sets."""
    if not records:
        return NOT_RUN
    parts = []
    for scenario in dict.fromkeys(record.scenario for record in records):
        here = [record for record in records if record.scenario == scenario]
        for sets in dict.fromkeys(record.sets for record in here):
            rows = [
                _network_row([record for record in here if (record.network, record.sets) == (network, sets)])
                for network in dict.fromkeys(record.network for record in here if record.sets == sets)
            ]
            head = ["network", "parameters", "steps"]
            head += [f"{words} {decoding}" for decoding in DECODINGS for words in ("ARI", "k-MAE", "s")]
            used = [column for column in range(len(head)) if any(row[column] != DASH for row in rows)]
            rows = [[row[column] for column in used] for row in rows]
            parts.append(f"{sets}:\n\n" + table([head[column] for column in used], rows))
    return f"{records[0].minutes:g} minutes each.\n\n" + "\n\n".join(parts)


def beside_others(records: Sequence[ContenderRecord]) -> str:
    """AMCP, AMCP* and the methods that it is compared with at equal time, with all that is measured."""
    if not records:
        return NOT_RUN
    parts = []
    for sets in dict.fromkeys(record.sets for record in records):
        rows = [
            [CONTENDING[kind, record.decoding], str(len(record.seconds)), *_all_measured(record)]
            for record in records
            for kind in [record.network.removesuffix(" warped")]
            if record.sets == sets and (kind, record.decoding) in CONTENDING
        ]
        if rows:
            parts.append(f"{sets}:\n\n" + table(["method", "sets", *SYNTHETIC_HEAD], rows))
    return "\n\n".join(parts)


def _all_measured(record: ContenderRecord) -> list[str]:
    metrics = {name: [value for value in values if value is not None] for name, values in record.metrics.items()}
    errors = [abs(found - true) for true, found in zip(metrics["k_true"], metrics["k_found"], strict=True)]
    likelihood = with_error(metrics["ll"], 2) if metrics["ll"] else DASH
    seconds = number(mean(record.seconds))
    return [likelihood, with_error(metrics["ari"]), with_error(metrics["nmi"]), number(mean(errors), 2), seconds]


def claims(records: Sequence[ContenderRecord]) -> str:
    """What more steps and optimal transport bring, set by set, to clusters as the passes made them."""
    found = {(each.network, each.sets): each.metrics["ari"] for each in records if each.decoding == "faithful"}
    compared = {network for pair in CLAIMS for network in pair}
    columns = list(dict.fromkeys(sets for network, sets in found if network in compared))
    rows = []
    for better, plain in CLAIMS:
        cells = []
        for sets in columns:
            pairs = zip(found.get((better, sets), ()), found.get((plain, sets), ()), strict=False)
            gains = [one - other for one, other in pairs if one is not None and other is not None]
            cells.append(with_error(gains) if gains else DASH)
        if set(cells) - {DASH}:
            rows.append([f"{better}, less {plain}", *cells])
    return table(["ARI, clusters as the passes made them", *columns], rows) if rows else NOT_RUN


def _network_row(records: Sequence[ContenderRecord]) -> list[str]:
    by_decoding = {record.decoding: record for record in records}
    one = records[0]
    cells = [one.network, f"{one.settings['parameters']:,}", f"{one.steps:,}"]
    for decoding in DECODINGS:
        record = by_decoding.get(decoding)
        if record is None:
            cells += [DASH] * 3
            continue
        pairs = zip(record.metrics["k_true"], record.metrics["k_found"], strict=True)
        errors = [abs(found - true) for true, found in pairs if found is not None and true is not None]
        scores = [value for value in record.metrics["ari"] if value is not None]
        cells += [with_error(scores), number(mean(errors), 2), number(mean(record.seconds))]
    return cells


def course(records: Sequence[ContenderRecord]) -> str:
    """Agreement while networks were trained."""
    watched = {record.network: record.course for record in records if record.course}
    if not watched:
        return NOT_RUN
    rows = [
        [network, *(f"{number(score)} ({step:,})" for step, score in measured)] for network, measured in watched.items()
    ]
    longest = max(len(row) for row in rows) - 1
    head = ["network", *(f"{place} of {longest}" for place in range(1, longest + 1))]
    return table(head, [[*row, *[DASH] * (len(head) - len(row))] for row in rows])


def picture_tables(records: Sequence[PictureRecord]) -> str:
    """The section on pictures of unseen classes, one table for each size of sets; nothing if nothing was measured."""
    if not records:
        return ""
    parts = ["\n\n## AMCP: pictures of unseen classes", PICTURES_TEXT]
    for collection in COLLECTIONS:
        for n_points in POINTS[collection]:
            found = {
                record.method: record for record in records if (record.data, record.n_points) == (collection, n_points)
            }
            if not found:
                continue
            rows = [_picture_row(found[method]) for method in PICTURES if method in found]
            count = len(next(iter(found.values())).seconds)
            minutes = {record.settings["minutes"] for record in found.values() if "minutes" in record.settings}
            budget = f", networks trained for {minutes.pop():g} minutes" if minutes else ""
            title = f"{COLLECTION_TITLES[collection]}, {count} sets of {n_points:,}{budget}:\n\n"
            parts.append(title + table(["method", "ACC", "NMI", "ARI", "k-MAE", "s"], rows))
            if gains := _gains(found):
                parts.append(gains)
    return "\n\n".join(parts)


def _picture_row(record: PictureRecord) -> list[str]:
    cells = [with_error(values_of(record, metric), digits) for metric, digits in PICTURE_METRICS.items()]
    if record.method in TOLD:
        cells[list(PICTURE_METRICS).index("k_error")] = DASH  # it is told
    return [PICTURES[record.method], *cells]


def _gains(found: dict[str, PictureRecord]) -> str:
    """How far AMCP, told nothing, is above methods that are told the number of clusters, and variants above others."""
    lines = []
    for ours, other in GAINS:
        if ours in found and other in found:
            pairs = zip(found[ours].metrics["acc"], found[other].metrics["acc"], strict=True)
            gains = [one - another for one, another in pairs]
            lines.append(
                f"- {PICTURES[ours]}, less {PICTURES[other]}, ACC set by set: {with_error(gains)}: "
                f"{'above' if mean(gains) > 0 else '**not above**'}."
            )
    return "\n".join(lines)


def speeds(lines: Sequence[dict[str, Any]]) -> str:
    """The section on seconds by points and by clusters, and how fast they grow; nothing if nothing was measured."""
    if not lines:
        return ""
    methods = list(dict.fromkeys(line["method"] for line in lines))
    parts = ["\n\n## AMCP: speed", SPEED_TEXT]
    for axis, fixed, words in (("n", "k", "points, {} clusters"), ("k", "n", "clusters, {:,} points")):
        counts = Counter(line[fixed] for line in lines)
        typical = counts.most_common(1)[0][0]
        values = sorted({line[axis] for line in lines if line[fixed] == typical})
        found = {(line["method"], line[axis]): line for line in lines if line[fixed] == typical}
        rows = [[f"{value:,}", *(f"{found[method, value]['seconds']:.3f}" for method in methods)] for value in values]
        exponents = (growth([(value, found[method, value]["seconds"]) for value in values]) for method in methods)
        rows.append(["growth", *(f"{exponent:.2f}" for exponent in exponents)])
        parts.append(table([words.format(typical), *methods], rows))
    return "\n\n".join(parts)


def _reached(is_reached: bool) -> str:
    return "reached" if is_reached else "**not reached**"
