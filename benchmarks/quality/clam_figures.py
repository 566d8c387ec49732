"""Pictures of ClAM: the idea, and the paper's Figures 1, 4 and 6 to 15 made again.

    python -m benchmarks.quality.clam_figures --only basins,toys

Pictures go to docs/figures, the numbers that they show to a results file, where they replace those of an earlier run.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from benchmarks.quality import clam_data, clam_sweeps, clam_toy_figures
from benchmarks.quality.drawing import COLOURS, FAINT, INK, STYLE, panels, save
from benchmarks.quality.records import Record, read_records
from coterie.base import one_thread
from coterie.errors import InputError

DEFAULT_FOLDER: Final = Path("docs/figures")
DEFAULT_OUT: Final = Path("benchmarks/results/clam_figures.jsonl")
SEED: Final = 0
NAMES: Final = MappingProxyType({"movlib": "MovLib", "micepe": "MicePE", "ctg": "CTG", "usps": "USPS"})
Part = Callable[[Path], Iterator[Record]]


def draw_prototypes(folder: Path) -> Iterator[Record]:
    """Figure 6: prototypes of Fashion-MNIST as they are learned."""
    shown, record = clam_sweeps.prototype_history(clam_data.load("fmnist-10k"), SEED)
    framed = np.pad(shown.reshape(*shown.shape[:2], 28, 28), ((0, 0), (0, 0), (2, 2), (2, 2)), constant_values=np.nan)
    figure, axes = panels(1, 1, width=7.4, height=4.6)
    colours = mpl.colormaps["RdBu_r"].resampled(33)  # few colours make a small file
    image = axes[0, 0].imshow(
        framed.transpose(0, 2, 1, 3).reshape(32 * len(shown), -1),
        cmap=colours,
        vmin=-2.5,
        vmax=2.5,
        interpolation="none",
    )
    axes[0, 0].set_yticks([32 * row + 16 for row in range(len(shown))], clam_sweeps.EPOCHS_SHOWN)
    axes[0, 0].set(xticks=[], ylabel="epoch")
    axes[0, 0].spines[:].set_visible(False)
    axes[0, 0].tick_params(length=0)
    figure.colorbar(image, ax=axes[0, 0], shrink=0.6, aspect=30, label="standardised brightness", extend="both")
    save(figure, folder, "prototypes.png")
    yield record


def draw_sensitivity(folder: Path) -> Iterator[Record]:
    """Figures 7 to 10: what the silhouette owes to each parameter, for several T."""
    sweeps = []
    for name in clam_sweeps.SWEEP_DATA:
        sweeps.append(clam_sweeps.sweep(clam_data.load(name), SEED))
        yield from sweeps[-1].records(SEED)
    for parameter, words in clam_sweeps.AXES.items():
        figure, axes = panels(2, 3, width=2.5, height=1.9)
        for axis, sweep in zip(axes.flat, sweeps, strict=False):
            _draw_sweep(axis, sweep, parameter)
            axis.set_xlabel(words, fontsize=8)
        axes[0, 0].set_ylabel("silhouette")
        axes[1, 0].set_ylabel("silhouette")
        _explain_sweep(axes[1, 2])
        save(figure, folder, f"sensitivity-{parameter.replace('_', '-')}.png")


def _shades() -> list[Any]:
    return [mpl.colormaps["viridis"](place) for place in np.linspace(0.0, 0.85, len(clam_sweeps.SWEEP_STEPS))]


def _draw_sweep(axis: Axes, sweep: clam_sweeps.Sweep, parameter: str) -> None:
    values = sweep.values[parameter]
    places = np.arange(len(values)) if parameter == "fill" else np.array(values)
    for shade, steps in zip(_shades(), clam_sweeps.SWEEP_STEPS, strict=True):
        best, whole = sweep.best(steps, parameter)
        axis.plot(places, best, color=shade, linewidth=1.1)
        axis.plot(places, sweep.median(steps, parameter), color=shade, linewidth=0.7, linestyle="dotted")
        axis.scatter(places, best, s=14, facecolors=[shade if kept else "white" for kept in whole], edgecolors=[shade])
    axis.axhline(sweep.kmeans, color=FAINT, linewidth=1.0, linestyle="dashed", zorder=0)
    if parameter == "fill":
        axis.set_xticks(places, values)
    elif parameter != "mask_rate":
        axis.set_xscale("log")
    axis.set_title(_title(sweep.table.name))
    axis.tick_params(labelsize=7)


def _explain_sweep(axis: Axes) -> None:
    lines = [
        Line2D([], [], color=shade, label=f"T = {steps}")
        for shade, steps in zip(_shades(), clam_sweeps.SWEEP_STEPS, strict=True)
    ]
    kinds = [
        Line2D([], [], color=INK, marker="o", markersize=4, label=f"best of {clam_sweeps.RESTARTS}"),
        Line2D([], [], color=INK, marker="o", markersize=4, markerfacecolor="white", label="... with fewer clusters"),
        Line2D([], [], color=INK, linestyle="dotted", label=f"median of {clam_sweeps.RESTARTS}"),
        Line2D([], [], color=FAINT, linestyle="dashed", label="k-means"),
    ]
    axis.axis("off")
    axis.legend(handles=[*lines, *kinds], loc="center", fontsize=8)


def _title(name: str) -> str:
    return NAMES.get(name, "Fashion-MNIST" if name.startswith("fmnist") else name.capitalize())


def draw_entropy(folder: Path) -> Iterator[Record]:
    """Figure 14: how undecided the pull on the rows is."""
    figure, axes = panels(3, 3, width=2.4, height=1.6, sharex=True)
    bins = np.linspace(0.0, 1.0, 31)
    for axis, name in zip(axes.flat, clam_sweeps.ENTROPY_DATA, strict=True):
        for relative, record in clam_sweeps.entropies(clam_data.load(name), SEED):
            tabled = record.method.endswith("tabled")
            weights = np.full(len(relative), 1.0 / len(relative))
            options: dict[str, Any] = {"histtype": "step", "color": COLOURS[1], "linewidth": 1.2} if tabled else {}
            options = options or {"color": COLOURS[0], "alpha": 0.75}
            axis.hist(relative, bins, weights=weights, label="tabled β" if tabled else "default", **options)
            yield record
        axis.set_title(_title(name))
        axis.tick_params(labelsize=7)
    axes[0, 0].legend(fontsize=8)
    axes[2, 1].set_xlabel("entropy of the pull on a row, over log K")
    axes[1, 0].set_ylabel("share of the rows")
    save(figure, folder, "entropy.png")


PARTS: Final[MappingProxyType[str, Part]] = MappingProxyType(
    {
        "idea": clam_toy_figures.draw_idea,
        "basins": clam_toy_figures.draw_basins,
        "toys": clam_toy_figures.draw_toys,
        "outliers": clam_toy_figures.draw_outliers,
        "prototypes": draw_prototypes,
        "sensitivity": draw_sensitivity,
        "entropy": draw_entropy,
    }
)


def replace_records(path: Path, records: Sequence[Record]) -> None:
    """Write records to a results file, each in the place of an earlier one of the same run."""
    merged = {record.key: record for record in (*read_records(path), *records)}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".partial")
    unfinished.write_text("".join(json.dumps(asdict(record)) + "\n" for record in merged.values()), encoding="utf-8")
    unfinished.replace(path)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.clam_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    options = parser.parse_args(arguments)
    mpl.use("Agg")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in options.only.split(","):
            if name not in PARTS:
                raise InputError(f"Unknown part {name!r}. Known are: {', '.join(PARTS)}.")
            with mpl.rc_context(STYLE):
                records = list(PARTS[name](options.folder))
            replace_records(options.out, records)
            print(f"{name}: {len(records)} records", flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
