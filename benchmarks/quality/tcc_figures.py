"""Pictures of twin contrast: how it learns beside its relatives, and images in the clusters that it found.

    python -m benchmarks.quality.tcc_figures [--only course] [--only clusters --data mnist,fashion-mnist]

The first is drawn from the results of ``tcc_suite``; for the other, TCC is trained, which takes minutes.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
import numpy as np

from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.drawing import PALETTE, STYLE, panels, save, show_montage
from benchmarks.quality.records import REPOSITORY, read_lines
from benchmarks.quality.tcc_data import LOADERS, N_CLASSES, images
from benchmarks.quality.tcc_estimator import pixels_of
from benchmarks.quality.tcc_results import NAMES, TITLES
from benchmarks.quality.tcc_suite import CONTENDERS, OUT, ViewsRecord
from coterie import TCC
from coterie.errors import InputError
from coterie.metrics import matched_accuracy

DEFAULT_FOLDER: Final = Path("docs/figures")
RESULTS: Final = REPOSITORY / OUT
PER_ROW: Final = 8
ROWS: Final = 5
SEED: Final = 0


def draw_course(folder: Path, data: Sequence[str]) -> None:
    """Accuracy of own clusters, and of k-means on features, against epochs: a row of panels for each."""
    measured = [record for record in read_lines(RESULTS, ViewsRecord) if record.method in CONTENDERS]
    longest = max((record.minutes for record in measured), default=0.0)
    records = [record for record in measured if record.minutes == longest]
    shown = [name for name in data if any(record.data == name for record in records)]
    if not shown:
        raise InputError(f"There is nothing of that in {OUT}. Run benchmarks.quality.tcc_suite first.")
    figure, axes = panels(2, len(shown), width=3.2, height=2.5, sharex="col", sharey="col")
    for column, name in enumerate(shown):
        for colour, method in zip(PALETTE, CONTENDERS, strict=False):
            courses = [one.looks for one in records if (one.data, one.method) == (name, method)]
            looks = list(zip(*courses, strict=True))
            epochs = [mean(epoch for epoch, _, _ in look) for look in looks]
            for row, place in enumerate((1, 2)):
                values = [mean(look[place] for look in each) for each in looks]
                axes[row, column].plot(epochs, values, color=colour, marker="o", markersize=2.5, label=NAMES[method])
        axes[0, column].set_title(TITLES[name])
        axes[1, column].set_xlabel("epochs")
    axes[0, 0].set_ylabel("ACC, own clusters")
    axes[1, 0].set_ylabel("ACC, k-means on features")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7, loc="outside right center")
    save(figure, folder, "tcc-course.png")


def draw_clusters(folder: Path, data: Sequence[str]) -> None:
    """The images that are most surely in each cluster of `TCC`, and those that are least so."""
    for name in data:
        shown = images(name)
        model = TCC(N_CLASSES, random_state=SEED).fit(pixels_of(shown))
        sure = model.probabilities_.max(axis=1)
        x = shown.x.flatten(1).numpy()
        figure, axes = panels(2, model.n_clusters_, width=1.3, height=1.0)
        for cluster in range(model.n_clusters_):
            members = np.flatnonzero(model.labels_ == cluster)
            order = members[np.argsort(-sure[members], kind="stable")]
            for row, chosen in enumerate((order[: PER_ROW * ROWS], order[-PER_ROW * ROWS :])):
                show_montage(axes[row, cluster], x[chosen], PER_ROW, ROWS, channels=shown.x.shape[1])
            axes[0, cluster].set_title(f"{len(members):,}", fontsize=8)
        accuracy = matched_accuracy(shown.y, model.labels_)
        title = f"{TITLES[name]}, ACC {accuracy:.2f}: the surest of each cluster, and the least sure"
        figure.suptitle(title, fontsize=9)
        save(figure, folder, f"tcc-{name}.png")


PARTS: Final[MappingProxyType[str, Callable[[Path, Sequence[str]], None]]] = MappingProxyType(
    {"course": draw_course, "clusters": draw_clusters}
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.tcc_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--data", default=",".join(LOADERS), help="collections (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    options: Any = parser.parse_args(arguments)
    mpl.use("Agg")

    def work() -> None:
        data, wanted = named(options.data, LOADERS, "data"), named(options.only, PARTS, "part")
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            with mpl.rc_context(STYLE):
                PARTS[name](options.folder, data)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
