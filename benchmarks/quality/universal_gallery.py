"""A picture of what the universal prior draws: two thirds shapes, one third tables.

    python -m benchmarks.quality.universal_gallery

The sets are the first of the seed for each layout.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from PIL import Image
from torch import Generator, Tensor

from benchmarks.quality.dac_figures import DEFAULT_FOLDER
from benchmarks.quality.drawing import FAINT, PALETTE, STYLE, dots, panels, save
from coterie.base import one_thread
from coterie.judged.prior.geometric import EDGES, SCENES, SPATIAL
from coterie.judged.prior.sampling import standardised
from coterie.judged.prior.universal import DrawnSet, UniversalTasks

SEED: Final = 3
COLUMNS: Final = 8
QUOTA: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "geometric": {"scattered": 5, "packed": 6, "grid": 4, "grouped": 3} | dict.fromkeys((*SCENES, *EDGES), 1),
        "table": {"factors": 8, "manifold": 2, "embedding": 2, "spectra": 2, "sparse": 2},
    }
)
"""Panels of each layout, in the order in which they are shown."""
DOT: Final = 1.6
TINTS: Final = 96
NAME: Final = "universal-gallery.png"


def gallery() -> list[DrawnSet]:
    """The sets that are shown, layout by layout."""
    return [one for kind, quota in QUOTA.items() for one in _first(kind, quota)]


def _first(kind: str, quota: Mapping[str, int]) -> list[DrawnSet]:
    """Of each layout the first sets that are drawn, as many as its quota says."""
    tasks = UniversalTasks(min_points=200, max_points=700, max_features=3 if kind == "geometric" else 40)
    generator = Generator().manual_seed(SEED)
    taken: dict[str, list[DrawnSet]] = {layout: [] for layout in quota}
    while any(len(taken[layout]) < count for layout, count in quota.items()):
        one = tasks.draw(generator)
        layout = str(one.story["layout"])
        spatial = one.x.shape[1] == 3
        if (
            one.kind == kind
            and len(taken[layout]) < quota[layout]
            and spatial <= (layout in SPATIAL or kind == "table")
        ):
            taken[layout].append(one)
    return [one for sets in taken.values() for one in sets]


def plane(x: Tensor) -> Tensor:
    """Two features as they are, one beside noise, and of more the first two principal components."""
    if x.shape[1] == 2:
        return x
    level = standardised(x)
    if x.shape[1] == 1:
        return torch.cat((level, torch.rand(level.shape, generator=Generator().manual_seed(0))), dim=1)
    directions: Tensor = torch.linalg.svd(level, full_matrices=False)[2][:2]
    return level @ directions.T


def draw_set(axis: Axes, one: DrawnSet) -> None:
    """Points coloured by their true cluster, those of none in grey."""
    colours = [PALETTE[label % len(PALETTE)] if label >= 0 else FAINT for label in one.labels.tolist()]
    dots(axis, plane(one.x).numpy(), s=DOT, c=colours, linewidths=0)
    axis.set(xticks=[], yticks=[], box_aspect=0.85)
    if one.kind == "geometric":
        axis.set_aspect("equal", "datalim")
    n_clusters, width = int(one.labels.max()) + 1, one.x.shape[1]
    features = "" if one.kind == "geometric" and width == 2 else f", {width} col."
    axis.set_title(f"{one.story['layout']}: {n_clusters}{features}", fontsize=7, pad=2)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw the gallery; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.universal_gallery", description=__doc__)
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the picture (default: %(default)s)")
    options = parser.parse_args(arguments)
    mpl.use("Agg")
    options.folder.mkdir(parents=True, exist_ok=True)
    sets = gallery()
    with mpl.rc_context(STYLE):
        figure, axes = panels(-(-len(sets) // COLUMNS), COLUMNS, width=1.2, height=1.15)
        for axis, one in zip(axes.flat, sets, strict=True):
            draw_set(axis, one)
        save(figure, options.folder, NAME)
    # Thousands of dots with soft edges make a large file; with few colours it is a third of that.
    path = options.folder / NAME
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(TINTS).save(path, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
