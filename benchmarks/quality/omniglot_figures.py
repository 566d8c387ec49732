"""Pictures of characters clustered by attention: a kernel, and NMI during training (Figures 4 and 3 of the paper).

    python -m benchmarks.quality.omniglot_figures --weights runs/abc-omniglot-v1.safetensors [--only kernel]

The set is all drawings of the first letters of one evaluation alphabet, fixed beforehand. What is drawn of the training
is in the results file, where ``omniglot_training`` put it.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.quality.commands import exit_status, named
from benchmarks.quality.drawing import COLOURS, FAINT, STYLE, panels, save
from benchmarks.quality.omniglot_methods import abc
from benchmarks.quality.omniglot_models import WEIGHTS, load_base
from benchmarks.quality.omniglot_sets import Alphabet, alphabets
from benchmarks.quality.omniglot_suite import DEFAULT_OUT, OmniglotRecord
from benchmarks.quality.omniglot_training import METHOD
from benchmarks.quality.records import read_lines
from coterie.base import one_thread
from coterie.errors import InputError
from coterie.metrics import normalized_mutual_information

DEFAULT_FOLDER: Final = Path("docs/figures")
ALPHABET: Final = "Tengwar"
LETTERS: Final = 6
CURVES: Final = MappingProxyType(
    {
        "spectral-k": "spectral, k given",
        "linkage": "linkage, k unknown",
        "eigengap": "eigengap and spectral, k unknown",
    }
)
MARGIN: Final = 2
"""Pixels between images."""
PER_ROW: Final = 20
"""Images in a row of the picture."""

Greys = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sources:
    """Where what is drawn comes from, and where pictures go."""

    weights: str
    results: Path
    folder: Path


def draw_kernel(sources: Sources) -> None:
    """Figure 4: the kernel of all drawings of some letters beside the truth, and what was found."""
    (alphabet,) = alphabets("evaluation", (ALPHABET,))
    index = (alphabet.labels < LETTERS).nonzero().squeeze(1)
    index = index[alphabet.labels[index].argsort(stable=True)]
    truth = alphabet.labels[index]
    prepared = abc(load_base(sources.weights)).prepare()
    kernel: torch.Tensor = prepared.gather(prepared.look(alphabet), index)
    same = (truth.unsqueeze(0) == truth.unsqueeze(1)).float()
    labels = prepared.readings["linkage"].read(kernel, LETTERS)
    figure = plt.figure(figsize=(9.6, 6.0), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1.0))
    above, below = halves
    axes = above.subplots(1, 3)
    shown = ((kernel, "probability to be one letter"), (same, "truth"), (kernel - same, "difference"))
    for axis, (matrix, title) in zip(axes, shown, strict=True):
        signed = title == "difference"
        image = axis.imshow(matrix.numpy(), cmap="RdBu_r" if signed else "magma", vmin=-1 if signed else 0, vmax=1)
        axis.set_title(title)
        axis.set(xticks=[], yticks=[])
        above.colorbar(image, ax=axis, shrink=0.8, aspect=25, pad=0.02).ax.tick_params(labelsize=7)
    score = normalized_mutual_information(truth.numpy(), labels.numpy())
    found = int(labels.max()) + 1
    left, right = below.subplots(1, 2)
    _show(left, _montage(alphabet, index, truth), f"{len(index)} drawings of {LETTERS} letters, a row each")
    _show(right, _montage(alphabet, index, labels), f"{found} clusters, a bar after each, NMI {score:.2f}")
    save(figure, sources.folder, "abc-omniglot.png")


def _montage(alphabet: Alphabet, index: torch.Tensor, labels: torch.Tensor) -> Greys:
    """Images cluster after cluster, dark on white, a bar after each; a row takes another cluster if all of it fits."""
    side = alphabet.images.shape[-1] + MARGIN
    rows: list[Greys] = []
    place = PER_ROW
    for label in range(int(labels.max()) + 1):
        for some in torch.split(index[labels == label], PER_ROW):
            if place + len(some) > PER_ROW:
                rows.append(np.ones((side, PER_ROW * side + MARGIN)))
                place = 0
            for image in alphabet.images[some, 0].numpy():
                rows[-1][:-MARGIN, place * side + MARGIN : (place + 1) * side] = 1 - image / 255
                place += 1
        rows[-1][MARGIN : -2 * MARGIN, place * side : place * side + MARGIN] = 0.6
    return np.concatenate(rows)


def _show(axis: Axes, picture: Greys, title: str) -> None:
    axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="antialiased")
    axis.set_title(title)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(b=False)


def draw_training(sources: Sources) -> None:
    """Figure 3: NMI on alphabets that were held back, after so many steps."""
    records = [record for record in read_lines(sources.results, OmniglotRecord) if record.method == METHOD]
    if not records:
        raise InputError(f"{str(sources.results)!r} has nothing of the training. Run omniglot_training first.")
    figure, axes = panels(1, 1, width=4.6, height=3.0)
    axis = axes[0, 0]
    for colour, (reading, words) in zip(COLOURS, CURVES.items(), strict=False):
        points = sorted((_step(one), mean(one.nmi.values())) for one in records if one.reading == reading)
        axis.plot(*zip(*points, strict=True), color=colour, label=words, linewidth=1.4, marker=".", markersize=4)
    axis.set(xlabel="steps of five sets", ylabel="NMI, 100 images", xlim=(0, None))
    axis.grid(color=FAINT, alpha=0.3, linewidth=0.5)
    axis.legend(fontsize=8)
    save(figure, sources.folder, "abc-omniglot-training.png")


def _step(record: OmniglotRecord) -> int:
    return int(record.settings["step"] or 0)


PARTS: Final[MappingProxyType[str, Callable[[Sources], None]]] = MappingProxyType(
    {"kernel": draw_kernel, "training": draw_training}
)


@one_thread()
def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.omniglot_figures", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated parts (default: %(default)s)")
    parser.add_argument("--weights", default=WEIGHTS, help="name or path (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=DEFAULT_OUT, help="results file (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="of the pictures (default: %(default)s)")
    options: Any = parser.parse_args(arguments)
    mpl.use("Agg")

    def work() -> None:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in named(options.only, PARTS, "part"):
            with mpl.rc_context(STYLE):
                PARTS[name](Sources(options.weights, options.results, options.folder))

    return exit_status(work)


if __name__ == "__main__":
    sys.exit(main())
