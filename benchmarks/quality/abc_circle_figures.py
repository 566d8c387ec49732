"""Pictures of attention-based clustering on circles (Figures 1 and 2 of its paper).

    python -m benchmarks.quality.abc_circle_figures --only kernels,ari

The networks are those that `abc_circles` trained; they are trained now if its run folder does not have them. The sets
that are drawn are the first of a seed that nothing is measured with.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from sklearn.metrics.pairwise import rbf_kernel
from torch import Generator, Tensor

from benchmarks.quality.abc_circles import (
    CIRCLES,
    DEFAULT_OUT,
    KNOWN,
    LENGTHS,
    SETS_SEEDS,
    SPECTRAL,
    CirclesRecord,
    Plan,
    add_plan,
    decoded,
    kernels,
    spectral,
    trained,
)
from benchmarks.quality.abc_results import KINDS, METHODS, summary
from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.drawing import COLOURS, FAINT, STYLE, dots, matched_colours, panels, save
from benchmarks.quality.records import read_lines
from coterie.amortized.tasks.synthetic import CircleTasks
from coterie.base import one_thread
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index

DEFAULT_FOLDER: Final = Path("docs/figures")
SEED: Final = 5
SHOWN: Final = ((100, False), (50, True))
"""Length of each set that is drawn, and whether its circles must cross."""
DRAWN: Final = ("additive", "multiplicative", "pairwise")
"""Networks in the order of the paper's panels."""
DOT: Final = 7.0
Part = Callable[[Path, Path, Plan], None]


def draw_kernels(folder: Path, _: Path, plan: Plan) -> None:
    """Figure 1: sets, the kernels that networks make of them, and clusters; only spectral clustering is told k."""
    models = {name: trained(name, plan) for name in DRAWN}
    figure, axes = panels(2 * len(SHOWN), len(DRAWN) + 2, width=1.9, height=1.95)
    for pair, (length, crossing) in zip(axes.reshape(len(SHOWN), 2, -1), SHOWN, strict=True):
        batch, centre, radius = CircleTasks(length, CIRCLES, crossing).sample_with_circles(
            1, Generator().manual_seed(SEED + length)
        )
        x, truth = batch.x[0], batch.labels[0]
        order = truth.argsort(stable=True)
        _draw_set(pair[0, 0], x, truth, truth, f"{length} points on {CIRCLES} circles")
        _outline(pair[0, 0], centre[0], radius[0])
        _draw_kernel(pair[1, 0], (truth.unsqueeze(1) == truth).double(), order)
        for column, name in zip(pair[:, 1:].T, DRAWN, strict=False):
            found = kernels(models[name], batch.x)
            labels = decoded(models[name], "linkage", found)[0]
            _draw_set(column[0], x, truth, labels, METHODS[name])
            _draw_kernel(column[1], found[0], order)
        _draw_set(pair[0, -1], x, truth, spectral(batch.x)[0], f"{METHODS[SPECTRAL]}, told k")
        _draw_kernel(pair[1, -1], torch.from_numpy(rbf_kernel(x.double().numpy(), gamma=1.0)), order)
    save(figure, folder, "abc-circles.png")


def draw_ari(folder: Path, results: Path, _: Plan) -> None:
    """Figure 2: agreement with the truth against the length of sets, told k and not."""
    records = read_lines(results, CirclesRecord)
    if not records:
        raise InputError(f"{results} has no results. Run benchmarks.quality.abc_circles first.")
    figure, axes = panels(1, len(SETS_SEEDS), width=3.6, height=2.9, sharey=True)
    for axis, (kind, title) in zip(axes[0], KINDS.items(), strict=True):
        for name, colour in zip(METHODS, COLOURS, strict=False):
            _draw_line(axis, records, kind, name, KNOWN, colour, "-", METHODS[name])
            _draw_line(axis, records, kind, name, "linkage", colour, ":", None)
        axis.set(xlabel="points of a set", title=title, xticks=LENGTHS)
        axis.grid(visible=True, axis="y", color=FAINT, linewidth=0.3)
    axes[0, 0].set_ylabel("ARI")
    axes[0, 0].plot([], [], ":", color=FAINT, linewidth=1.2, label="k not told")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    save(figure, folder, "abc-circles-ari.png")


def _draw_line(
    axis: Axes,
    records: Sequence[CirclesRecord],
    kind: str,
    name: str,
    decoding: str,
    colour: str,
    style: str,
    label: str | None,
) -> None:
    points = [(length, summary(records, kind, name, decoding, length)) for length in LENGTHS]
    shown = [(length, *found) for length, found in points if found is not None]
    if not shown:
        return
    lengths, means, errors = np.array(shown).T
    width = 1.4 if style == "-" else 1.0
    axis.errorbar(
        lengths, means, errors, color=colour, linestyle=style, linewidth=width, marker=".", markersize=4, label=label
    )


def _draw_set(axis: Axes, x: Tensor, truth: Tensor, labels: Tensor, title: str) -> None:
    """Points coloured by cluster, as the true cluster is that it has most in common with."""
    dots(axis, x.numpy(), s=DOT, c=matched_colours(truth.numpy(), labels.numpy()), linewidths=0)
    if labels is not truth:
        score = adjusted_rand_index(truth.numpy(), labels.numpy())
        title += f"\n{len(torch.unique(labels))} clusters, ARI {score:.2f}"
    axis.set_title(title, fontsize=8)
    low, high = x.amin(dim=0), x.amax(dim=0)
    half = 0.55 * float((high - low).max())
    sides = [(middle - half, middle + half) for middle in ((low + high) / 2).tolist()]
    axis.set(xticks=[], yticks=[], aspect="equal", box_aspect=1, xlim=sides[0], ylim=sides[1])


def _outline(axis: Axes, centre: Tensor, radius: Tensor) -> None:
    angle = torch.linspace(0.0, 2 * torch.pi, 100)
    for middle, own in zip(centre, radius, strict=True):
        axis.plot(
            (middle[0] + own * angle.cos()).numpy(),
            (middle[1] + own * angle.sin()).numpy(),
            color=FAINT,
            linewidth=0.4,
            zorder=0,
        )


def _draw_kernel(axis: Axes, kernel: Tensor, order: Tensor) -> None:
    """A kernel with the points of each circle side by side; white is 1."""
    axis.imshow(kernel[order][:, order].numpy(), cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    axis.set(xticks=[], yticks=[])


PARTS: Final[MappingProxyType[str, Part]] = MappingProxyType({"kernels": draw_kernels, "ari": draw_ari})


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.abc_circle_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    add_plan(parser)
    options = parser.parse_args(arguments)
    plan = Plan(options.steps, run_folder=options.run_folder)
    mpl.use("Agg")

    def work() -> None:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in named(options.only, PARTS, "part"):
            with mpl.rc_context(STYLE):
                PARTS[name](options.folder, options.results, plan)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
