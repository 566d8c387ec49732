"""Pictures of DAC: one cluster after the other, clusterings, and densities (Figures 2, 3 and 5 of its paper).

    python -m benchmarks.quality.dac_figures --only filtering,mog

The sets are the first of their seed that have enough clusters to be worth a look, and are not those of the tables.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Ellipse
from matplotlib.patheffects import withStroke
from torch import Generator

from benchmarks.quality.dac_methods import load_model
from benchmarks.quality.dac_sets import LabelledSet, Sets, mixtures, warped
from benchmarks.quality.dac_suite import MIXTURE_WEIGHTS, WARPED_WEIGHTS
from benchmarks.quality.drawing import INK, STYLE, dots, matched_colours, panels, save
from coterie.amortized.dac.network import DacModel
from coterie.base import one_thread
from coterie.errors import CoterieError, InputError
from coterie.metrics import adjusted_rand_index
from coterie.nn.density import GaussianHead
from coterie.ops.partitions import Clustering

DEFAULT_FOLDER: Final = Path("docs/figures")
SEED: Final = 5
MANY: Final = 50
"""Batches among which sets are looked for."""
DOT: Final = 3.0
COLUMNS: Final = 4
CELLS: Final = 240
"""Places along each side at which a density is evaluated."""
DECADES: Final = 4.0
"""Powers of ten that the picture of a density spans."""
Part = Callable[[Path], None]


def pick(sets: Sets, count: int, least: int) -> list[LabelledSet]:
    """The first sets that have so many clusters at least."""
    return list(islice((one for batch in sets.draw() for one in batch if one.n_clusters >= least), count))


def draw_filtering(folder: Path) -> None:
    """Figures 2 and 3: the passes over one set, and what they come to."""
    (one,) = pick(mixtures(1000, 8, SEED, MANY), 1, least=6)
    model = load_model(DacModel, MIXTURE_WEIGHTS)
    found = model.cluster(one.x, Generator().manual_seed(SEED))
    passes = _passes(model, one)
    rows = -(-(len(passes) + 2) // COLUMNS)
    figure, axes = panels(rows, COLUMNS)
    truth, *others = axes.flat
    _draw_labels(truth, one, one.y.numpy())
    truth.set_title(f"truth: {one.n_clusters} clusters")
    shades = LinearSegmentedColormap.from_list("membership", ("#e9c46a", "#d1495b", "#26256b"))
    image: Any = None
    for number, (axis, (chance, remaining, mean, deviation)) in enumerate(zip(others, passes, strict=False), start=1):
        dots(axis, one.x[~remaining].numpy(), s=DOT, color="#e2e2e2", linewidths=0)
        order = chance.argsort()  # the likely ones on top
        shown = one.x[remaining][order].numpy()
        image = axis.scatter(
            shown[:, 0], shown[:, 1], s=DOT, c=chance[order].numpy(), cmap=shades, vmin=0, vmax=1, linewidths=0
        )
        axis.add_patch(_ellipse(mean, deviation))
        axis.set_title(f"pass {number}: {int((chance > 0.5).sum())} of {len(shown)} points")
    last = others[len(passes)]
    _draw_labels(last, one, found.labels.numpy())
    for mean, deviation in zip(found.extras["mean"], found.extras["deviation"], strict=True):
        last.add_patch(_ellipse(mean, deviation))
    last.set_title(f"put right: {found.n_clusters} clusters")
    for axis in axes.flat:
        _frame(axis, one)
    for axis in others[len(passes) + 1 :]:
        axis.axis("off")
    bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, pad=0.01)
    bar.set_label("membership", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    save(figure, folder, "dac-filtering.png")


def _passes(model: DacModel, one: LabelledSet) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Of each pass: memberships of the points that it saw, which these were, and the cluster's mean and deviations."""
    head = model.density
    if not isinstance(head, GaussianHead):
        raise InputError("The passes are drawn with ellipses, which only a Gaussian density has.")
    remaining = torch.ones(len(one.x), dtype=torch.bool)
    passes = []
    while bool(remaining.any()):
        with torch.no_grad():
            found = model.filter(one.x[remaining].unsqueeze(0))
        if found.context is None:
            raise InputError("A network with a density gives its numbers.")
        mean, deviation = head.parameters_of(found.context)
        chance = found.logits[0].sigmoid()
        if not bool((chance > 0.5).any()):
            break
        passes.append((chance, remaining.clone(), mean[0], deviation[0]))
        remaining[remaining.clone()] = chance <= 0.5
    return passes


def draw_mixtures(folder: Path) -> None:
    """Clusterings of mixtures, at the size that was trained for and at three times as many clusters."""
    model = load_model(DacModel, MIXTURE_WEIGHTS)
    shown = pick(mixtures(1000, 4, SEED, MANY), 3, least=3) + pick(mixtures(3000, 12, SEED, MANY), 3, least=7)
    figure, axes = panels(2, len(shown), width=1.9, height=1.9)
    for column, one in zip(axes.T, shown, strict=True):
        _draw_truth_and_found(column, one, model.cluster(one.x, Generator().manual_seed(SEED)))
    save(figure, folder, "dac-mog.png")


def draw_warped(folder: Path) -> None:
    """Figure 5: arcs, their clusters, and the density that the flow gives."""
    model = load_model(DacModel, WARPED_WEIGHTS)
    shown = pick(warped(1000, 4, SEED, MANY), 3, least=3) + pick(warped(3000, 12, SEED, MANY), 3, least=6)
    figure, axes = panels(3, len(shown), width=1.9, height=1.9)
    for column, one in zip(axes.T, shown, strict=True):
        found = model.cluster(one.x, Generator().manual_seed(SEED))
        _draw_truth_and_found(column[:2], one, found)
        _draw_density(column[2], one, model, found)
    axes[2, 0].set_ylabel("density")
    save(figure, folder, "dac-warped.png")


def _draw_truth_and_found(column: Sequence[Axes], one: LabelledSet, found: Clustering) -> None:
    truth, ours = column
    _draw_labels(truth, one, one.y.numpy())
    truth.set_title(f"{len(one.x)} points, {one.n_clusters} clusters", fontsize=8)
    _draw_labels(ours, one, found.labels.numpy())
    score = adjusted_rand_index(one.y.numpy(), found.labels.numpy())
    ours.set_title(f"{found.n_clusters} found, ARI {score:.2f}", fontsize=8)
    if truth.get_subplotspec().is_first_col():  # type: ignore[union-attr]  # a panel of a grid has one
        truth.set_ylabel("truth")
        ours.set_ylabel("DAC")
    for axis in column:
        _frame(axis, one)


def _draw_labels(axis: Axes, one: LabelledSet, labels: npt.NDArray[np.integer[Any]]) -> None:
    """Points coloured by cluster, in the colour of the true cluster that it has most in common with."""
    dots(axis, one.x.numpy(), s=DOT, c=matched_colours(one.y.numpy(), labels), linewidths=0)


def _draw_density(axis: Axes, one: LabelledSet, model: DacModel, found: Clustering) -> None:
    sides = [torch.linspace(low, high, CELLS) for low, high in _square(one)]
    grid = torch.cartesian_prod(*sides)
    density = model.joint(grid, found).logsumexp(dim=1).reshape(CELLS, CELLS).T.numpy() / np.log(10)
    levels = np.linspace(density.max() - DECADES, density.max(), 17)
    axis.contourf(*(side.numpy() for side in sides), density, levels, cmap="GnBu", extend="min")
    dots(axis, one.x[::3].numpy(), s=1.0, color=INK, alpha=0.5, linewidths=0)
    _frame(axis, one)


def _square(one: LabelledSet) -> list[tuple[float, float]]:
    """Ends of the two sides of a square around a set."""
    low, high = one.x.amin(dim=0), one.x.amax(dim=0)
    half = 0.54 * float((high - low).max())
    return [(middle - half, middle + half) for middle in ((low + high) / 2).tolist()]


def _ellipse(mean: torch.Tensor, deviation: torch.Tensor) -> Ellipse:
    """Where two standard deviations end."""
    width, height = (4 * deviation).tolist()
    return Ellipse(
        (float(mean[0]), float(mean[1])),
        width,
        height,
        fill=False,
        edgecolor=INK,
        linewidth=0.8,
        path_effects=[withStroke(linewidth=2.2, foreground="white")],
    )


def _frame(axis: Axes, one: LabelledSet) -> None:
    """Show the same square of a set in all its panels."""
    axis.set(xticks=[], yticks=[], aspect="equal", box_aspect=1)
    axis.set(**dict(zip(("xlim", "ylim"), _square(one), strict=True)))


PARTS: Final[MappingProxyType[str, Part]] = MappingProxyType(
    {"filtering": draw_filtering, "mog": draw_mixtures, "warped": draw_warped}
)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.dac_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    options = parser.parse_args(arguments)
    mpl.use("Agg")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in options.only.split(","):
            if name not in PARTS:
                raise InputError(f"Unknown part {name!r}. Known are: {', '.join(PARTS)}.")
            with mpl.rc_context(STYLE):
                PARTS[name](options.folder)
    except CoterieError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
