"""The part of docs/results.md about sets of hand-written characters, DAC's Table 7."""

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks.quality.dac_sets import published
from benchmarks.quality.emnist_sets import SMALL
from benchmarks.quality.emnist_suite import DRAWS, OUT, TEST_SETS, EmnistRecord
from benchmarks.quality.markdown import number, table, with_error
from benchmarks.quality.networks import values_of
from benchmarks.quality.records import read_lines

DASH: Final = "–"
METHODS: Final = {
    "dac": "DAC",
    "dac-faithful": "DAC, as the passes leave it",
    "kmeans": "k-means, true k",
    "kmeans-embedded": "k-means on DAC's features, true k",
}
METRICS: Final = ("ll", "ari", "nmi", "k_error", "seconds")
HEAD: Final = ("LL/pixel", "ARI", "NMI", "k-MAE", "s")
DIGITS: Final = {"ll": 3, "ari": 3, "nmi": 3, "k_error": 2, "seconds": 2}
BAR: Final = 0.8
"""ARI that was to be reached on the smaller sets."""
TEXT: Final = """\
DAC with a mixture of neural statisticians (section 6.1 and appendix E): all 47 classes are in training and test, with
different pictures. The data are not the published ones: at most 1,000 pictures a class, 44,723 in all, of which every
fifth of a class is for the test (8,942, at most 200 a class; published 18,800) and every tenth for choices. Sets are
drawn as published, with three tenths to all of the largest number of pictures, and pixels are on with the probability
that is their grey value. A class that is to have more pictures in a set than there are shows some again, their pixels
drawn anew. "DAC" is robust decoding: what a cluster must bring to be kept was chosen on sets for choices, after
clusterings of a few test pictures had shown that the first choice joined too many."""


def section(folder: Path) -> str:
    """The section, from its heading on; nothing if nothing was measured."""
    records = {
        (record.data, record.method): record
        for record in read_lines(folder / OUT.name, EmnistRecord)
        if record.part == "test"
    }
    if not records:
        return ""
    parts = ["\n\n## EMNIST: DAC with neural statisticians", TEXT]
    parts += [_budget(record) for record in list(records.values()) if record.method == "dac"][:1]
    for sizes in TEST_SETS:
        rows = [_row(name, records.get((sizes.name, name))) for name in METHODS if (sizes.name, name) in records]
        if not rows:
            continue
        printed = published()["7"][sizes.name]["dac"]
        rows.append(["DAC, as printed", f"{number(printed['ll'])} ± {number(printed['ll_error'])}", *[DASH] * 4])
        count = max(len(record.seconds) for record in records.values() if record.data == sizes.name)
        parts.append(
            f"At most {sizes.max_points} pictures of {sizes.max_clusters} classes, {count} sets:\n\n"
            + table(["method", *HEAD], rows)
        )
    if (ours := records.get((SMALL.name, "dac"))) is not None:
        reached = "reached" if mean(ours.metrics["ari"]) >= BAR else "**not reached**"
        parts.append(
            f"- ARI of DAC at ({SMALL.max_points}, {SMALL.max_clusters}) at least {number(BAR, 2)}: {reached}."
        )
    return "\n\n".join(parts)


def _budget(record: EmnistRecord) -> str:
    """What training was, as it was written down, and what the columns mean."""
    stages = [json.loads(str(value)) for key, value in record.settings.items() if key.startswith("stage-")]
    return (
        f"Training took about {record.settings['minutes']} minutes of one core: {'; then '.join(map(_stage, stages))}; "
        "the published one had 10 sets of up to 1,000 pictures a step. The network has "
        f"{record.settings['parameters']:,} numbers. LL is the lower bound of a picture's log-likelihood in the "
        f"mixture of all clusters, in nats, with the mean over {DRAWS} draws of its code. After ± stands the standard "
        "error over sets, of the published numbers as printed; s: processor seconds per set. ARI and k-MAE of the "
        "paper cannot be read in our copy."
    )


def _stage(stage: Mapping[str, Any]) -> str:
    least, most = stage["points"]
    text = f"{stage['steps']:,} steps of {stage['batch_size']} sets of {least} to {most} pictures"
    if any(stage["moved"].values()):
        text += ", these turned, stretched and shifted a little"
    return text + (", of the density alone" if stage["only_density"] else "")


def _row(name: str, record: EmnistRecord | None) -> list[str]:
    cells = [with_error(values_of(record, metric), DIGITS[metric]) for metric in METRICS]
    if name.startswith("kmeans"):
        cells[METRICS.index("k_error")] = DASH  # it is told
    return [METHODS[name], *cells]
