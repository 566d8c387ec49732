"""Pictures of AMCP: what its steps bring, how it learns beside others, and what it never saw, sorted.

    python -m benchmarks.quality.amcp_figures [--only digits --runs FOLDER]

The first two are drawn from the results of ``amcp_networks``; for digits and photographs, the folder is that of
``amcp_pictures``.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
from matplotlib import pyplot as plt

from benchmarks.quality.amcp_data import Collection, test_sets
from benchmarks.quality.amcp_networks import OUT, ContenderRecord
from benchmarks.quality.amcp_pictures import IMAGES, prepared
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.drawing import COLOURS, STYLE, panels, save, show_montage
from benchmarks.quality.records import REPOSITORY, read_lines
from coterie.base import one_thread
from coterie.errors import InputError
from coterie.metrics import matched_accuracy

DEFAULT_FOLDER: Final = Path("docs/figures")
RESULTS: Final = REPOSITORY / OUT
N_PICTURES: Final = 160
PER_ROW: Final = 8
SHOWN: Final = 3
"""Sets of digits, and of photographs."""
METHOD: Final = "amcp"


def _records() -> list[ContenderRecord]:
    records = read_lines(RESULTS, ContenderRecord)
    if not records:
        raise InputError(f"There is nothing in {OUT}. Run benchmarks.quality.amcp_networks first.")
    return records


def draw_steps(folder: Path, _: Path | None) -> None:
    """Agreement and time against the number of steps of expectation and maximisation."""
    records = [each for each in _records() if each.scenario == "mog" and each.decoding == "faithful"]
    figure, axes = panels(1, 2, width=3.4, height=2.6)
    sets = list(dict.fromkeys(record.sets for record in records))
    for colour, kind in zip(COLOURS, ("regular", "transport"), strict=False):
        for style, name in zip(("-", "--"), sets, strict=False):
            points = sorted(
                (
                    (int(str(record.settings["em_steps"])), record)
                    for record in records
                    if record.sets == name and record.network in _NAMES[kind]
                ),
                key=itemgetter(0),
            )
            steps = [step for step, _ in points]
            label = f"{kind}, {name.removeprefix('mog-')}"
            scores = [mean(value for value in record.metrics["ari"] if value is not None) for _, record in points]
            seconds = [mean(record.seconds) for _, record in points]
            axes[0, 0].plot(steps, scores, style, color=colour, marker="o", markersize=3)
            axes[0, 1].plot(steps, seconds, style, color=colour, marker="o", markersize=3, label=label)
    axes[0, 0].set(xlabel="T", ylabel="ARI, as the passes made it")
    axes[0, 1].set(xlabel="T", ylabel="seconds a set", ylim=(0, None))
    axes[0, 1].legend(fontsize=7, loc="upper left")
    save(figure, folder, "amcp-steps.png")


_NAMES: Final = MappingProxyType(
    {
        "regular": ("amcp", *(f"amcp T={steps}" for steps in range(6))),
        "transport": tuple(f"amcp transport T={steps}" for steps in range(6)),
    }
)
"""Networks that differ in nothing but the number of steps."""


def draw_course(folder: Path, _: Path | None) -> None:
    """Agreement while networks are trained, against the time that they had."""
    watched = {record.network: record for record in _records() if record.course}
    figure, axes = panels(1, 1, width=4.2, height=2.8)
    for colour, (name, record) in zip(COLOURS, watched.items(), strict=False):
        minutes = [record.minutes * step / record.steps for step, _ in record.course]
        axes[0, 0].plot(
            minutes, [score for _, score in record.course], color=colour, marker="o", markersize=3, label=name
        )
    axes[0, 0].set(xlabel="minutes of training", ylabel="ARI, small sets", ylim=(0.5, 1.03))
    axes[0, 0].legend()
    save(figure, folder, "amcp-course.png")


def draw_digits(folder: Path, runs: Path | None) -> None:
    """Digits of unseen classes, a block for each cluster that was found."""
    _draw_found("mnist", folder, runs, "amcp-digits.png")


def draw_photographs(folder: Path, runs: Path | None) -> None:
    """Photographs of unseen classes, alike."""
    _draw_found("cifar10", folder, runs, "amcp-photographs.png")


def _draw_found(collection: Collection, folder: Path, runs: Path | None, name: str) -> None:
    if runs is None:
        raise InputError(
            "Clusters of pictures need the networks of benchmarks.quality.amcp_pictures; give their folder by --runs."
        )
    _, solve = prepared(METHOD, collection, runs)
    figure = plt.figure(figsize=(9.6, 2.3 * SHOWN), layout="constrained")
    rows: Any = figure.subfigures(SHOWN, 1)
    for part, one in zip(rows, test_sets(collection, N_PICTURES, SHOWN), strict=True):
        labels = solve(one)
        n_found = int(labels.max()) + 1
        accuracy = matched_accuracy(one.labels.numpy(), labels.numpy())
        part.suptitle(f"{n_found} clusters found of {one.n_clusters}, ACC {accuracy:.2f}", fontsize=9)
        largest = -(-int(labels.bincount().max()) // PER_ROW)
        axes: Any = part.subplots(1, max(2, n_found))
        for cluster, axis in enumerate(axes):
            if cluster < n_found:
                here = one.x[labels == cluster].numpy()
                show_montage(axis, here, PER_ROW, largest, channels=IMAGES[collection][0])
            else:
                axis.set_axis_off()
    save(figure, folder, name)


PARTS: Final[MappingProxyType[str, Callable[[Path, Path | None], None]]] = MappingProxyType(
    {"steps": draw_steps, "course": draw_course, "digits": draw_digits, "photographs": draw_photographs}
)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.amcp_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--runs", type=Path, help="folder of the networks for digits and photographs")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    options: Any = parser.parse_args(arguments)
    mpl.use("Agg")

    def work() -> None:
        wanted = named(options.only, PARTS, "part")
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            with mpl.rc_context(STYLE):
                PARTS[name](options.folder, options.runs)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
