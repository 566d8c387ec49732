"""Scores that come with the benchmark collections of zero_shot.jsonl, digested once into zero_shot_stored.json.

    python -m benchmarks.render.stored PEER_SCORES.CSV

The CSV has one row per method and reference labelling, with the method given that reference's k.
"""

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks.lines import RESULTS
from benchmarks.render.source import Line, matches, read_flat

STORED: Final = RESULTS / "zero_shot_stored.json"
N_METHODS: Final = 5
BLOCKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "fcps": {"data": {"prefix": "fcps/"}},
    "graves": {"data": {"prefix": "graves/"}},
    "sipu": {"data": {"prefix": "sipu/"}},
    "sipu, sets of up to 10,000 rows": {"data": {"prefix": "sipu/"}, "n": {"max": 10_000}},
    "fcps, graves and sipu": {},
}


def digest(rows: Iterable[Mapping[str, str]], runs: Iterable[Line]) -> dict[str, list[Line]]:
    """Keep, for each block, the methods with the best mean ARI among those that have all its data sets.

    Only data sets of our own runs count, each with the reference labelling that a method agrees with best.
    """
    sizes = {line["data"]: line["n"] for line in runs}
    scores: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for row in rows:
        data = f"{row['battery']}/{row['dataset']}"
        if data in sizes:
            found = float(row["ARI"]), float(row["NMI"])
            scores[row["method"]][data] = max(scores[row["method"]].get(data, (-1.0, 0.0)), found)
    blocks: dict[str, list[Line]] = {}
    for title, where in BLOCKS.items():
        wanted = {data for data, n in sizes.items() if matches({"data": data, "n": n}, where)}
        means: list[Line] = [
            {
                "method": method,
                "sets": len(wanted),
                "ari": round(mean(found[data][0] for data in wanted), 6),
                "nmi": round(mean(found[data][1] for data in wanted), 6),
            }
            for method, found in scores.items()
            if wanted and found.keys() >= wanted
        ]
        blocks[title] = sorted(means, key=lambda one: -one["ari"])[:N_METHODS]
    return blocks


def main(path: Path) -> None:
    """Write the digest of a CSV file."""
    runs = [line for line in read_flat(RESULTS / "zero_shot.jsonl") if line["settings.group"] == "batteries"]
    with path.open(encoding="utf-8", newline="") as file:
        STORED.write_text(json.dumps(digest(csv.DictReader(file), runs), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
