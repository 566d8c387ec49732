"""Pictures of DAC among hand-written characters: a pass with what it generates, and clusterings (Figures 6 and 7).

    python -m benchmarks.quality.emnist_figures --run-folder FOLDER [--only filtering]

The folder is that of ``emnist_suite``, which trains the network. Sets are the first of their seed with 100 test
pictures of four classes, and are not those of the table.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from torch import Generator

from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.drawing import STYLE, panels, save, show_montage
from benchmarks.quality.emnist_sets import HeldOutSet, tasks
from benchmarks.quality.emnist_suite import trained
from coterie.amortized.dac.network import DacModel
from coterie.base import one_thread
from coterie.errors import InputError
from coterie.metrics import adjusted_rand_index
from coterie.nn.density import StatisticianHead

DEFAULT_FOLDER: Final = Path("docs/figures")
SEED: Final = 5
N_PICTURES: Final = 100
N_CLASSES: Final = 4
SHOWN: Final = 3
"""Sets of a figure."""
PER_ROW: Final = 8
"""Pictures in a row of a block."""
MANY_PER_ROW: Final = 14
"""The same where most of the set is shown."""


def sets() -> Iterator[HeldOutSet]:
    """Test sets of 100 pictures with pictures of all four classes, without end."""
    sampler, generator = tasks("test", (N_PICTURES, N_PICTURES), N_CLASSES), Generator().manual_seed(SEED)
    while True:
        batch = sampler.sample(1, generator)
        one = HeldOutSet(batch.x[0], batch.labels[0])
        if one.n_clusters == N_CLASSES:
            yield one


@torch.no_grad()
def draw_filtering(model: DacModel, folder: Path) -> None:
    """Figure 6: who is in the first cluster that is found, what its description generates, and who is not in it."""
    if not isinstance(model.density, StatisticianHead):
        raise InputError(f"density={model.config.density!r} generates no pictures; use 'statistician'.")
    widths = (PER_ROW, PER_ROW, MANY_PER_ROW)
    figure, axes = panels(SHOWN, 3, width=3.2, height=2.1, gridspec_kw={"width_ratios": widths})
    for row, one in zip(axes, islice(sets(), SHOWN), strict=True):
        x = one.x.unsqueeze(0)
        found = model.filter(model.embedded(x, torch.ones(x.shape[:2], dtype=torch.bool)))
        inside = found.logits[0] > 0
        if found.context is None or not bool(inside.any()):
            raise InputError("The network takes no picture of a set in its first pass. Train it for longer.")
        generated = model.density.sample(found.context, int(inside.sum()), Generator().manual_seed(SEED))[0]
        for axis, pictures, width in zip(row, (one.x[inside], generated, one.x[~inside]), widths, strict=True):
            show_montage(axis, pictures.numpy(), width)
    for axis, title in zip(axes[0], ("in the cluster", "generated from its description", "the others"), strict=True):
        axis.set_title(title)
    save(figure, folder, "dac-emnist-filtering.png")


def draw_clusters(model: DacModel, folder: Path) -> None:
    """Figure 7: the clusters that are found, a block for each."""
    figure = plt.figure(figsize=(9.6, 2.1 * SHOWN), layout="constrained")
    rows: Any = figure.subfigures(SHOWN, 1)
    for part, one in zip(rows, islice(sets(), SHOWN), strict=True):
        found = model.cluster(one.x, Generator().manual_seed(SEED))
        score = adjusted_rand_index(one.labels.numpy(), found.labels.numpy())
        part.suptitle(f"{found.n_clusters} clusters found of {one.n_clusters}, ARI {score:.2f}", fontsize=9)
        largest = -(-int(found.labels.bincount().max()) // PER_ROW)
        columns = max(N_CLASSES, found.n_clusters)
        for cluster, axis in enumerate(part.subplots(1, columns)):
            if cluster < found.n_clusters:
                show_montage(axis, one.x[found.labels == cluster].numpy(), PER_ROW, largest)
            else:
                axis.set_axis_off()
    save(figure, folder, "dac-emnist.png")


PARTS: Final[MappingProxyType[str, Callable[[DacModel, Path], None]]] = MappingProxyType(
    {"filtering": draw_filtering, "clusters": draw_clusters}
)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.emnist_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--run-folder", type=Path, required=True, help="of the training")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    options: Any = parser.parse_args(arguments)
    mpl.use("Agg")

    def work() -> None:
        wanted = named(options.only, PARTS, "part")
        options.folder.mkdir(parents=True, exist_ok=True)
        model = trained(options.run_folder)
        for name in wanted:
            with mpl.rc_context(STYLE):
                PARTS[name](model, options.folder)

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
