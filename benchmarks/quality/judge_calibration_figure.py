"""A picture of the judge's confidence: what it expects of its choices against what comes true.

    python -m benchmarks.quality.judge_calibration_figure

From the results files; each dot is a set, each ring the mean of a bin with the number of its sets.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes

from benchmarks.quality.drawing import COLOURS, FAINT, INK, STYLE, panels, save
from benchmarks.quality.judge_calibration import OUT
from benchmarks.quality.judge_calibration_results import FIGURES, PICTURE, Point, bins, choices, of_newest_judge, real
from benchmarks.quality.records import read_records

SIDE: Final = 4.2
LOWEST: Final = -0.05
"""Where the axis of true agreement ends; it may be a little below chance."""


def draw(axis: Axes, points: Sequence[Point], colour: str, title: str) -> None:
    """A cloud of sets and, over it, the means of its bins with the numbers of their sets."""
    axis.scatter(
        [point.predicted for point in points],
        [max(point.true, LOWEST) for point in points],
        s=7,
        color=colour,
        alpha=0.3,
        linewidths=0,
    )
    means = bins(points)
    axis.errorbar(
        [one.predicted for one in means],
        [one.true for one in means],
        [one.error for one in means],
        color=colour,
        marker="o",
        markersize=5,
        markeredgecolor="white",
        linewidth=1.2,
        label=f"{title}: {len(points)}",
    )
    for one in means:
        axis.annotate(
            str(one.sets),
            (one.predicted, one.true),
            xytext=(4, -9),
            textcoords="offset points",
            fontsize=7,
            color=colour,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the picture; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.judge_calibration_figure")
    parser.add_argument("--results", type=Path, default=OUT.parent, help="folder of the files (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=FIGURES, help="of the picture (default: %(default)s)")
    options = parser.parse_args(arguments)
    points = choices(of_newest_judge(read_records(options.results / OUT.name)))
    if not points:
        print(f"error: {options.results / OUT.name} has no sets. Run judge_calibration first.", file=sys.stderr)
        return 2
    mpl.use("Agg")
    options.folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure, axes = panels(1, 1, width=SIDE, height=SIDE)
        axis = axes[0, 0]
        axis.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
        draw(axis, points, COLOURS[0], "synthetic")
        if measured := real(options.results):
            draw(axis, measured, COLOURS[1], "real")
        axis.set(xlim=(0, 1), ylim=(LOWEST - 0.02, 1.02), xlabel="agreement that is expected", aspect="equal")
        axis.set_ylabel("agreement with the truth (ARI)", color=INK)
        axis.legend(loc="upper left", fontsize=8)
        save(figure, options.folder, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
